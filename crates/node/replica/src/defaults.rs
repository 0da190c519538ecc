//! Default settings of a node: the only table of these numbers.
//!
//! The command line, embedded nodes and the simulator take them from here; a test of the command
//! line compares docs/operate.md with them.

/// A leader speaks at least this often, in milliseconds.
pub const HEARTBEAT_MS: u64 = 20;
/// An election starts after a silence drawn from this range, in milliseconds.
pub const ELECTION_MS: (u64, u64) = (100, 200);
/// A request that is not done by then fails, in milliseconds.
pub const CLIENT_TIMEOUT_MS: u64 = 5_000;
/// Maximum drift of a clock, in parts per million.
pub const CLOCK_DRIFT_PPM: u64 = 10_000;
/// Delay from the leader's first contact with the last node in its present release to the use of a
/// further level by the group, in milliseconds.
pub const RAISE_MS: u64 = 24 * 3_600_000;
/// Largest command taken, in bytes.
pub const COMMAND_BYTES_MAX: usize = 8 << 20;
/// Memory for the replies and requests of all clients, in bytes.
pub const CLIENT_MEMORY_BYTES: usize = 1 << 30;
/// Log space made ahead of need, in bytes.
pub const LOG_READY_BYTES: u64 = 64 << 20;
/// A snapshot is taken when the log has grown by this multiple of the last one's size.
pub const SNAPSHOT_RATIO: u32 = 2;
/// Above this size the log is not kept for nodes that are behind, in bytes.
pub const LOG_BYTES_MAX: u64 = 8 << 30;
/// Size of new segments of the log, in bytes.
pub const LOG_SEGMENT_BYTES: u64 = 64 << 20;

/// A week after one scrub the next begins.
pub const SCRUB_EVERY_MS: u64 = 7 * 24 * 3600 * 1000;
