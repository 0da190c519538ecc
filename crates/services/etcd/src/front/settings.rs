//! Settings of the front end, and limits that apply to all clients.

use quorate::NodeId;

use super::{jwt::TokenKind, retention::Retention};

/// Version of etcd whose API is implemented, as reported to clients.
pub const ETCD_VERSION: &str = "3.6.0";
/// Maximum size of a request that becomes a command.
pub const REQUEST_BYTES_MAX: usize = 1536 << 10;

#[derive(Clone, Debug)]
pub struct Settings {
    pub cluster_id: u128,
    pub node_id: NodeId,
    pub connections_max: usize,
    /// Memory budget of requests, responses and the work for them.
    pub memory_bytes: usize,
    /// Maximum size of the data, or 0 for no limit. Above it the data may not grow until an
    /// operator disarms the alarm.
    pub quota_bytes: u64,
    /// History that is kept.
    pub retention: Retention,
    /// Kind of tokens for clients that log in.
    pub token_kind: TokenKind,
}
