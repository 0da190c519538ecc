//! Process data that the front reports, and its limits.

/// Facts about the process for INFO, and the limits of the front.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Version of the Quorate binary.
    pub version: String,
    /// Name of the store in use, `lsm` or `memory`.
    pub store: String,
    /// Memory limit for all connections together, in bytes. Above it no read is answered and no
    /// command is queued for a transaction. The connection that uses the most memory is closed at
    /// the end of a turn, well before the limit is reached.
    pub client_bytes_max: usize,
    /// Port for clients over TCP, or 0 if unknown.
    pub tcp_port: u16,
    /// Start time of the process as Unix time in milliseconds, or 0 if unknown.
    pub started_ms: u64,
    /// Function that returns the memory use of the process and the size of the machine's memory.
    pub memory: fn() -> Memory,
}

/// Memory in bytes as the system reports it; 0 where unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Current resident memory of the process.
    pub resident_bytes: u64,
    /// Peak resident memory of the process.
    pub peak_bytes: u64,
    /// Total memory of the machine.
    pub system_bytes: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            version: String::new(),
            store: String::new(),
            client_bytes_max: 1 << 30,
            tcp_port: 0,
            started_ms: 0,
            memory: Memory::default,
        }
    }
}
