//! Process data that the front reports, and its limits.

/// Process data that the front reports, and its limits.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Version of the binary.
    pub version: String,
    /// Type of the store: `lsm` or `memory`.
    pub store: String,
    /// Memory limit for all connections, in bytes. Above it no read is answered, and no command is
    /// queued for a transaction. The connection that uses most memory is closed well before, at the
    /// end of a turn.
    pub client_bytes_max: usize,
    /// Port for TCP clients; 0 if unknown.
    pub tcp_port: u16,
    /// Start time of the process, Unix time in milliseconds; 0 if unknown.
    pub started_ms: u64,
    /// Function that returns the memory of the process and the machine.
    pub memory: fn() -> Memory,
}

/// Memory as reported by the system, in bytes; 0 if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Current memory of the process.
    pub resident_bytes: u64,
    /// Peak memory of the process.
    pub peak_bytes: u64,
    /// Memory of the machine.
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
