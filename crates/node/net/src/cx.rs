//! Context that the reactor passes to each of its components.

use crate::{
    host::{PeerHost, TurnTimes},
    sources::Sources,
};

/// Current time, host interface, and table of event sources.
pub(crate) struct Cx<'a, H: ?Sized + 'a> {
    pub(crate) now: TurnTimes,
    pub(crate) host: &'a mut H,
    pub(crate) sources: &'a mut Sources,
}

/// Context for the components that serve peers.
pub(crate) type PeerCx<'a> = Cx<'a, dyn PeerHost + 'a>;
