//! Limits of the front end, and facts about the process that it reports.

/// Limits of the front, and data about the process for INFO.
#[derive(Clone, Debug)]
pub struct Settings {
    pub version: String,
    /// Kind of store: `lsm` or `memory`.
    pub store: String,
    /// Memory limit in bytes for all connections together. Above it, no read is answered and no
    /// command queued for a transaction. Well below it, a turn ends by closing the largest
    /// connection.
    pub client_bytes_max: usize,
    /// TCP port for clients, or 0 if unknown.
    pub tcp_port: u16,
    /// Start of the process as Unix time in milliseconds, or 0 if unknown.
    pub started_ms: u64,
    pub cluster_mode: ClusterMode,
    /// Returns the memory of the process and of the machine.
    pub memory: fn() -> Memory,
    /// Returns the CPU time of the process.
    pub cpu: fn() -> CpuTime,
}

/// Replies to the cluster commands of Redis clients, which look up the slots of keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClusterMode {
    /// Cluster support is disabled, as on a plain Redis.
    #[default]
    Off,
    /// The slots, and thus the clients' connections, are spread over the reachable voters.
    Emulated,
    /// The leader has all slots, so that commands take the shortest path.
    Leader,
}

impl ClusterMode {
    /// Parses the value of `--cluster-mode`.
    pub fn parse_mode(text: &str) -> Option<Self> {
        match text {
            "off" => Some(Self::Off),
            "emulated" => Some(Self::Emulated),
            "leader" => Some(Self::Leader),
            _ => None,
        }
    }

    /// Returns Redis' name for the mode of the server.
    pub(super) const fn redis_name(self) -> &'static str {
        match self {
            Self::Off => "standalone",
            Self::Emulated | Self::Leader => "cluster",
        }
    }
}

/// Memory as reported by the system; 0 if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    pub resident_bytes: u64,
    pub peak_bytes: u64,
    /// Memory of the whole machine.
    pub system_bytes: u64,
}

/// CPU time of the process in milliseconds; 0 if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
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
            cpu: CpuTime::default,
        }
    }
}
