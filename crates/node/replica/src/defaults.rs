//! Default node settings: the only table of these numbers.
//!
//! The command line, embedded nodes, the simulator and docs/operate/flags.md use them.

/// Maximum interval in milliseconds between a leader's messages.
pub const HEARTBEAT_MS: u64 = 20;
/// Range of the random election timeout in milliseconds. A node starts an election after this time
/// without a message from a leader.
pub const ELECTION_MS: (u64, u64) = (100, 200);
/// Time in milliseconds after which an unanswered request fails.
pub const CLIENT_TIMEOUT_MS: u64 = 5_000;
/// Maximum drift of a clock, in parts per million.
pub const CLOCK_DRIFT_PPM: u64 = 10_000;
/// Delay in milliseconds before the group uses a higher level, counted from the leader's first
/// contact with the last upgraded node.
pub const LEVEL_RAISE_DELAY_MS: u64 = 24 * 3_600_000;
/// Maximum size of a command, in bytes.
pub const COMMAND_BYTES_MAX: usize = 8 << 20;
/// Memory limit in bytes for the replies and requests of all clients.
pub const CLIENT_MEMORY_BYTES: usize = 1 << 30;
/// Log space in bytes that is prepared in advance.
pub const PREPARED_LOG_BYTES: u64 = 64 << 20;
/// A snapshot is taken when the log has grown by this multiple of the last snapshot's size.
pub const SNAPSHOT_RATIO: u32 = 2;
/// Size of the log in bytes above which it is trimmed even if nodes lag.
pub const LOG_BYTES_MAX: u64 = 8 << 30;
pub const LOG_SEGMENT_BYTES: u64 = 64 << 20;

/// Interval in milliseconds from the end of one scrub to the start of the next: one week.
pub const SCRUB_INTERVAL_MS: u64 = 7 * 24 * 3600 * 1000;
