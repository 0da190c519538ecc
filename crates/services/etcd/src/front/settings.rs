//! Settings of the front, and constants that apply to all clients.

use quorate::NodeId;

use super::jwt::Tokens;

/// Version of etcd whose API is implemented. It is reported to clients.
pub const VERSION: &str = "3.6.0";
/// Maximum size in bytes of a request that becomes a command.
pub const REQUEST_BYTES_MAX: usize = 1536 << 10;

/// Settings of the front.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Id of the cluster that the node belongs to.
    pub cluster: u128,
    pub node: NodeId,
    /// Maximum number of client connections.
    pub connections_max: usize,
    /// Memory budget in bytes for all requests and responses, and for the work in flight for them.
    pub memory_bytes: usize,
    /// Maximum size of the data in bytes; 0 for no limit. Above the limit the data may not grow
    /// until an operator disarms the alarm.
    pub quota_bytes: u64,
    /// Kind of tokens that clients receive at login.
    pub tokens: Tokens,
}
