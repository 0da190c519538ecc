//! Process data that the front reports, and its limits.

/// Facts about the process for INFO, and the limits of the front.
#[derive(Clone, Debug)]
pub struct Settings {
    pub version: String,
    /// Store in use, `lsm` or `memory`.
    pub store: String,
    /// Memory limit of all connections in bytes. Above it no read is answered and no command queued
    /// for a transaction. Well before it, the largest connection is closed at the end of a turn.
    pub client_bytes_max: usize,
    /// TCP port for clients, or 0 if unknown.
    pub tcp_port: u16,
    /// Start of the process in Unix milliseconds, or 0 if unknown.
    pub started_ms: u64,
    pub cluster_mode: ClusterMode,
    /// Function that returns the memory of the process and of the machine.
    pub memory: fn() -> Memory,
    /// Function that returns the CPU time of the process.
    pub cpu: fn() -> Cpu,
}

/// Answers to clients in cluster mode, who ask where the slots are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClusterMode {
    /// There is no cluster, as on a plain Redis.
    #[default]
    Off,
    /// The slots are spread over the reachable voters, and with them the connections of clients.
    Emulated,
    /// The leader has all slots, so commands take the shortest way.
    Leader,
}

impl ClusterMode {
    /// Parses the value of `--cluster-mode`.
    pub fn named(text: &str) -> Option<Self> {
        match text {
            "off" => Some(Self::Off),
            "emulated" => Some(Self::Emulated),
            "leader" => Some(Self::Leader),
            _ => None,
        }
    }

    /// Returns the mode of a server as Redis names it.
    pub(super) const fn redis_name(self) -> &'static str {
        match self {
            Self::Off => "standalone",
            Self::Emulated | Self::Leader => "cluster",
        }
    }
}

/// Memory as the system reports it, 0 where unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    pub resident_bytes: u64,
    pub peak_bytes: u64,
    /// Memory of the machine.
    pub system_bytes: u64,
}

/// CPU time of the process in milliseconds, 0 where unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    pub system_ms: u64,
    pub user_ms: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            version: String::new(),
            store: String::new(),
            client_bytes_max: 1 << 30,
            tcp_port: 0,
            started_ms: 0,
            cluster_mode: ClusterMode::Off,
            memory: Memory::default,
            cpu: Cpu::default,
        }
    }
}
