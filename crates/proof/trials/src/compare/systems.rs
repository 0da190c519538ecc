//! The systems under comparison, and how to build and start them.

use crate::shell::Failed;

/// Folder of the sources of other systems' programs.
pub(super) const SOURCES_FOLDER: &str = "bench-compare";

/// Source of a program: a build from this tree, or an installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProgramSource {
    /// The `quorate` binary of this workspace.
    Own,
    /// A Go module in a folder of its own; each package becomes a program.
    Go {
        /// Folder below [`SOURCES_FOLDER`].
        folder: &'static str,
        /// Pairs of package and program name.
        programs: &'static [(&'static str, &'static str)],
    },
    /// A package of the Rust workspace in [`SOURCES_FOLDER`], with a program of the same name.
    Rust(&'static str),
    /// A program that must be installed on the machine.
    Installed(&'static str),
}

/// Method of starting a system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StartMethod {
    /// `quorate start` with these flags.
    Quorate(&'static [&'static str]),
    /// etcd's own server.
    Etcd,
    /// A single, unreplicated Redis process.
    Redis,
    /// A program that follows the flags and output of bench-compare/README.md, with additional
    /// flags of its own.
    Library(&'static str, &'static [&'static str]),
}

/// Protocol of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    /// Frames of `quorate bench log`.
    Framed,
    /// `SET` of the Redis protocol.
    Resp,
    /// Puts over etcd's gRPC interface.
    EtcdPuts,
}

/// A system in one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct System {
    pub(super) name: &'static str,
    pub(super) class: &'static str,
    /// Description in one line.
    pub(super) description: &'static str,
    pub(super) version: &'static str,
    pub(super) transport: &'static str,
    pub(super) storage: &'static str,
    /// Parts written by us.
    pub(super) own_parts: &'static str,
    /// Settings that differ from the system's defaults, with the reason.
    pub(super) settings: &'static str,
    pub(super) build: ProgramSource,
    pub(super) start: StartMethod,
    pub(super) protocol: Protocol,
    /// Our systems of the same class to compare it with.
    pub(super) compared_with: &'static [&'static str],
    /// Set if the system runs only when it is named.
    pub(super) is_extra: bool,
}

const LOG_SYSTEMS: &[&str] = &["quorate-log"];
const KV_SYSTEMS: &[&str] = &["quorate-kv-memory", "quorate-kv-lsm"];
const NOTHING: &str = "-";
const THIS_CHECKOUT: &str = "this checkout";
const OWN_TCP: &str = "its own, TCP";
const COUNTER_PARTS: &str = "the front for clients; a state machine that counts";

const RAFT_BUILD: ProgramSource =
    ProgramSource::Go { folder: "hashicorp-raft", programs: &[(".", "hashicorp-raft")] };
const QUORATE_LOG: System = System {
    name: "quorate-log",
    class: "durable",
    description: "Quorate, a service without state (`quorate bench log`)",
    version: THIS_CHECKOUT,
    transport: OWN_TCP,
    storage: "its own log",
    own_parts: "all of it",
    settings: "defaults",
    build: ProgramSource::Own,
    start: StartMethod::Quorate(&["--store", "none", "--durability", "durable"]),
    protocol: Protocol::Framed,
    compared_with: &[],
    is_extra: false,
};
const HASHICORP: System = System {
    name: "hashicorp-raft",
    class: "durable",
    description: "hashicorp/raft, the Raft of Consul, Nomad and Vault",
    version: "raft v1.8.0, raft-wal v0.4.0 (Go)",
    transport: "its own, TCP",
    storage: "hashicorp/raft-wal; one fsync per append",
    own_parts: COUNTER_PARTS,
    settings: "BatchApplyCh on; MaxAppendEntries 256 (default 64, limit 1024): all that is in flight fits; log level warn",
    build: RAFT_BUILD,
    start: StartMethod::Library("hashicorp-raft", &[]),
    protocol: Protocol::Framed,
    compared_with: LOG_SYSTEMS,
    is_extra: false,
};
const OPENRAFT: System = System {
    name: "openraft",
    class: "durable",
    description: "OpenRaft",
    version: "0.9.21",
    transport: "ours, TCP: the project ships none",
    storage: "ours, one file: appends that meet share a write and an fdatasync; the project ships none",
    own_parts: "transport; log; batches (commands that wait share an entry; four entries in flight); the front for clients; a state machine that counts",
    settings: "defaults, but 500 ms heartbeats and 1.5 s elections: the defaults (50 ms, 150 ms) elect anew on a busy machine",
    build: ProgramSource::Rust("compare-openraft"),
    start: StartMethod::Library("compare-openraft", &[]),
    protocol: Protocol::Framed,
    compared_with: LOG_SYSTEMS,
    is_extra: false,
};
const OMNIPAXOS: System = System {
    name: "omnipaxos",
    class: "durable",
    description: "OmniPaxos",
    version: "omnipaxos 0.2.4, omnipaxos_storage 0.2.4",
    transport: "ours, TCP: the project ships none",
    storage: "its own PersistentStorage (RocksDB), synced writes",
    own_parts: "transport; the loop around the library; batches (commands that wait share an entry); the front for clients; a counter of commands",
    settings: "ticks of 10 ms, 50 of them until an election; its own batches are off, as in its defaults: a part of one waits for a tick, and each tick costs a follower a synced write of nothing",
    build: ProgramSource::Rust("compare-omnipaxos"),
    start: StartMethod::Library("compare-omnipaxos", &[]),
    protocol: Protocol::Framed,
    compared_with: LOG_SYSTEMS,
    is_extra: false,
};

/// Flags that put one command into each entry.
const ONE_COMMAND_FLAGS: &[&str] = &["--commands-per-entry", "1"];
const OPENRAFT_PLAIN: System = System {
    name: "openraft-plain",
    description: "OpenRaft, one command per entry",
    own_parts: "transport; log; the front for clients; a state machine that counts",
    start: StartMethod::Library("compare-openraft", ONE_COMMAND_FLAGS),
    is_extra: true,
    ..OPENRAFT
};
const OMNIPAXOS_PLAIN: System = System {
    name: "omnipaxos-plain",
    description: "OmniPaxos, one command per entry",
    own_parts: "transport; the loop around the library; the front for clients; a counter of commands",
    start: StartMethod::Library("compare-omnipaxos", ONE_COMMAND_FLAGS),
    is_extra: true,
    ..OMNIPAXOS
};

pub(super) const SYSTEMS: &[System] = &[
    QUORATE_LOG,
    System {
        class: "volatile",
        storage: "memory",
        start: StartMethod::Quorate(&["--store", "none", "--durability", "volatile"]),
        ..QUORATE_LOG
    },
    System {
        name: "quorate-kv-memory",
        description: "Quorate, the key-value service with its data in memory and its log on disk",
        start: StartMethod::Quorate(&["--store", "memory", "--durability", "durable"]),
        protocol: Protocol::Resp,
        ..QUORATE_LOG
    },
    System {
        name: "quorate-kv-lsm",
        description: "Quorate, the key-value service with its data in a tree on disk",
        storage: "its own log, and the tree",
        start: StartMethod::Quorate(&["--store", "lsm", "--durability", "durable"]),
        protocol: Protocol::Resp,
        ..QUORATE_LOG
    },
    System {
        name: "etcd",
        class: "durable",
        description: "etcd, its own server unchanged",
        version: "v3.7.3 (Go)",
        transport: "its own, HTTP",
        storage: "its own WAL, and bbolt",
        own_parts: "the load: a gRPC client of its generated stub, in Go",
        settings: "defaults",
        build: ProgramSource::Go {
            folder: "etcd",
            programs: &[(".", "etcd"), ("./load", "etcd-load")],
        },
        start: StartMethod::Etcd,
        protocol: Protocol::EtcdPuts,
        compared_with: KV_SYSTEMS,
        is_extra: false,
    },
    System {
        name: "redis",
        class: "durable",
        description: "one Redis, not replicated",
        version: "as installed",
        transport: NOTHING,
        storage: "its append-only file",
        own_parts: "nothing",
        settings: "appendonly yes, appendfsync always, no snapshots",
        build: ProgramSource::Installed("redis-server"),
        start: StartMethod::Redis,
        protocol: Protocol::Resp,
        // Half of its throughput is more than the store on disk reaches.
        compared_with: &["quorate-kv-memory"],
        is_extra: false,
    },
    HASHICORP,
    System {
        class: "volatile",
        storage: "its own InmemStore",
        version: "raft v1.8.0 (Go)",
        ..HASHICORP
    },
    System {
        name: "dragonboat",
        class: "durable",
        description: "Dragonboat, one group",
        version: "v3.3.8 (Go)",
        transport: OWN_TCP,
        storage: "its own LogDB (Pebble), synced",
        own_parts: COUNTER_PARTS,
        settings: "RTTMillisecond 200, ElectionRTT 10, HeartbeatRTT 1 as in its examples; sessions off (NoOPSession); no snapshots; log level warn",
        build: ProgramSource::Go { folder: "dragonboat", programs: &[(".", "dragonboat")] },
        start: StartMethod::Library("dragonboat", &[]),
        protocol: Protocol::Framed,
        compared_with: LOG_SYSTEMS,
        is_extra: false,
    },
    OPENRAFT,
    System {
        class: "volatile",
        storage: "ours, an ordered map: the project ships none",
        ..OPENRAFT
    },
    OMNIPAXOS,
    System { class: "volatile", storage: "its own MemoryStorage", ..OMNIPAXOS },
    OPENRAFT_PLAIN,
    System {
        class: "volatile",
        storage: "ours, an ordered map: the project ships none",
        is_extra: false,
        ..OPENRAFT_PLAIN
    },
    OMNIPAXOS_PLAIN,
    System {
        class: "volatile",
        storage: "its own MemoryStorage",
        is_extra: false,
        ..OMNIPAXOS_PLAIN
    },
];

impl System {
    /// Returns the id used in reports: `name/class`.
    pub(super) fn id(&self) -> String {
        format!("{}/{}", self.name, self.class)
    }

    /// Returns the store of one of our systems. Other systems have no choice of store.
    pub(super) fn store(&self) -> Option<&'static str> {
        let StartMethod::Quorate(flags) = self.start else {
            return None;
        };
        let at = flags.iter().position(|flag| *flag == "--store")?;
        flags.get(at + 1).copied()
    }

    pub(super) fn is_ours(&self) -> bool {
        matches!(self.start, StartMethod::Quorate(_))
    }

    /// Returns whether this system is compared with `ours`.
    pub(super) fn is_compared_with(&self, ours: &Self) -> bool {
        self.class == ours.class && self.compared_with.contains(&ours.name)
    }
}

/// Returns the systems selected by name or by `name/class`, and our systems that they are compared
/// with. Without names, returns all but the extra systems.
pub(super) fn choose_systems(names: &[String]) -> Result<Vec<&'static System>, Failed> {
    if names.is_empty() {
        return Ok(SYSTEMS.iter().filter(|system| !system.is_extra).collect());
    }
    let is_named = |system: &System, name: &String| system.name == name || system.id() == *name;
    for name in names {
        if !SYSTEMS.iter().any(|system| is_named(system, name)) {
            let all: Vec<String> = SYSTEMS.iter().map(System::id).collect();
            return Err(Failed(format!("{name}: no such system; there are {}", all.join(", "))));
        }
    }
    let named = |system: &System| names.iter().any(|name| is_named(system, name));
    let wanted = |system: &&System| {
        named(system) || SYSTEMS.iter().any(|peer| named(peer) && peer.is_compared_with(system))
    };
    Ok(SYSTEMS.iter().filter(wanted).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn naming_a_system_includes_its_own_counterpart() {
        let ids = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let chosen = choose_systems(&names).unwrap();
            chosen.iter().map(|system| system.id()).collect::<Vec<_>>()
        };
        assert_eq!(
            ids(&["etcd"]),
            ["quorate-kv-memory/durable", "quorate-kv-lsm/durable", "etcd/durable"]
        );
        assert_eq!(ids(&["openraft/volatile"]), ["quorate-log/volatile", "openraft/volatile"]);
        assert!(ids(&["openraft-plain"]).contains(&"openraft-plain/volatile".to_owned()));
        assert_eq!(ids(&[]).len(), SYSTEMS.len() - 2);
        assert!(choose_systems(&["no-such-system".to_owned()]).is_err());
    }

    #[test]
    fn every_other_system_has_an_own_counterpart_and_unique_id() {
        for (place, system) in SYSTEMS.iter().enumerate() {
            let ours = SYSTEMS.iter().filter(|ours| system.is_compared_with(ours));
            assert_eq!(system.is_ours(), ours.count() == 0, "{}", system.id());
            let rest = &SYSTEMS[place + 1..];
            assert!(rest.iter().all(|other| other.id() != system.id()));
        }
    }
}
