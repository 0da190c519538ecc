//! Context of a call to a part of the reactor.

use crate::{
    host::{Now, PeerSide},
    sources::Sources,
};

/// The current time, the side of the host that the part serves, and the table of event sources.
pub(crate) struct Cx<'a, H: ?Sized + 'a> {
    pub(crate) now: Now,
    pub(crate) host: &'a mut H,
    pub(crate) sources: &'a mut Sources,
}

/// Context of the parts that serve peers.
pub(crate) type PeerCx<'a> = Cx<'a, dyn PeerSide + 'a>;
