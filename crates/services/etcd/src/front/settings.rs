//! Settings of the front, and what is the same for all clients.

use quorate::NodeId;

use super::jwt::Tokens;

/// Version of etcd whose interface this is, as reported to clients.
pub const VERSION: &str = "3.6.0";
/// Largest request that becomes a command.
pub const REQUEST_BYTES_MAX: usize = 1536 << 10;

/// Settings of the front.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The cluster.
    pub cluster: u128,
    /// This node.
    pub node: NodeId,
    /// Connections at a time.
    pub connections_max: usize,
    /// Memory for all requests and answers, and for the work in flight for them.
    pub memory_bytes: usize,
    /// Quota of the data in bytes, above which nothing may grow until an operator allows it; 0: no
    /// quota.
    pub quota_bytes: u64,
    /// The tokens that clients get at login.
    pub tokens: Tokens,
}
