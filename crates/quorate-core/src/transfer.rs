//! Leadership handed over on purpose ([live-4]). Liveness only; every wait is bounded.

use crate::{node_id::NodeId, time::Time};

/// A transfer under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Transfer {
    /// Who is to lead.
    pub target: NodeId,
    /// When the old leader gives up waiting, and goes on.
    pub deadline: Time,
    /// Whether the token was sent.
    pub handed: bool,
}
