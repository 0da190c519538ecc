//! INFO: statistics of the node, in Redis' format.

use std::fmt::Write as _;

use quorate_replica::{front::Requests, status::Status};

use super::{
    settings::{ClusterMode, CpuTime},
    shared::Shared,
    topology,
};
use crate::{
    commands::server::{DEADLINES_MAX, counted_deadlines, encode_keyspace},
    encode::Encoder,
    op::Op,
    resp::{reply::Reply, request::Arguments},
    store::Database,
};

/// Version of Redis whose commands are supported. Some clients choose their requests by it.
pub(super) const REDIS_VERSION: &str = "7.2.0";

/// Sections in the order of the reply, each with whether INFO without arguments includes it.
const SECTIONS: [(&str, bool); 11] = [
    ("server", true),
    ("clients", true),
    ("memory", true),
    ("persistence", true),
    ("stats", true),
    ("replication", true),
    ("cpu", true),
    ("commandstats", false),
    ("errorstats", true),
    ("cluster", true),
    ("keyspace", true),
];

pub(super) fn info(
    arguments: &Arguments<'_>,
    shared: &Shared,
    requests: &mut dyn Requests,
    r: &mut Reply<'_>,
) {
    let wanted = |(section, by_default): (&str, bool)| {
        let names = || arguments.from(1).iter();
        let all = |name: &[u8]| {
            let is = |word: &[u8]| name.eq_ignore_ascii_case(word);
            is(b"all") || is(b"everything") || (by_default && is(b"default"))
        };
        let quorate =
            section == "replication" && names().any(|name| name.eq_ignore_ascii_case(b"quorate"));
        quorate
            || (by_default && arguments.len() == 1)
            || names().any(|name| all(name) || name.eq_ignore_ascii_case(section.as_bytes()))
    };
    let status = requests.status();
    let mut text = String::new();
    for (section, _) in SECTIONS.into_iter().filter(|section| wanted(*section)) {
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        let written = match section {
            "server" => server(&mut text, &status, shared, requests.wall_ms()),
            "clients" => write_clients(&mut text, shared),
            "memory" => write_memory(&mut text, shared),
            "persistence" => write_persistence(&mut text),
            "stats" => stats(&mut text, shared),
            "cpu" => write_cpu(&mut text, shared),
            "errorstats" => shared.tally.errors.write(&mut text),
            "replication" => topology::write_replication(&mut text, &status),
            "commandstats" => shared.tally.write_commandstats(&mut text),
            // Some clients, and redis-py's tests, read this line before they ask for slots.
            "cluster" => {
                let enabled = u8::from(shared.settings.cluster_mode != ClusterMode::Off);
                write!(text, "# Cluster\r\ncluster_enabled:{enabled}\r\n")
            }
            _ => write_keyspace(&mut text, requests),
        };
        written.expect("a string takes all text");
    }
    r.verbatim(&text);
}

fn server(text: &mut String, status: &Status, shared: &Shared, now_ms: u64) -> std::fmt::Result {
    let started_ms = shared.settings.started_ms;
    let uptime = match started_ms {
        0 => 0,
        started_ms => now_ms.saturating_sub(started_ms) / 1000,
    };
    let mode = shared.settings.cluster_mode.redis_name();
    write!(text, "# Server\r\nredis_version:{REDIS_VERSION}\r\nredis_mode:{mode}\r\n")?;
    write!(text, "quorate_version:{}\r\n", shared.settings.version)?;
    write!(text, "quorate_store:{}\r\n", shared.settings.store)?;
    write!(text, "run_id:{}\r\n", topology::run_id(status, status.member.node))?;
    write!(text, "arch_bits:64\r\nos:{}\r\n", std::env::consts::OS)?;
    write!(text, "process_id:{}\r\n", std::process::id())?;
    write!(text, "tcp_port:{}\r\n", shared.settings.tcp_port)?;
    write!(text, "server_time_usec:{}\r\n", now_ms.saturating_mul(1000))?;
    write!(text, "uptime_in_seconds:{uptime}\r\n")?;
    write!(text, "uptime_in_days:{}\r\n", uptime / (24 * 60 * 60))
}

/// Writes the memory of the process as the system reports it. `mem_clients_normal` is the part used
/// for clients.
fn write_memory(text: &mut String, shared: &Shared) -> std::fmt::Result {
    let memory = (shared.settings.memory)();
    write!(text, "# Memory\r\n")?;
    for (name, bytes) in [
        ("used_memory", memory.resident_bytes),
        ("used_memory_rss", memory.resident_bytes),
        ("used_memory_peak", memory.peak_bytes),
        ("total_system_memory", memory.system_bytes),
        ("maxmemory", 0),
    ] {
        write!(text, "{name}:{bytes}\r\n{name}_human:{}\r\n", format_bytes(bytes))?;
    }
    // Memory retained by the allocator counts as used.
    write!(text, "mem_fragmentation_ratio:1.00\r\nmaxmemory_policy:noeviction\r\n")?;
    write!(text, "mem_clients_normal:{}\r\n", shared.held_bytes)?;
    write!(text, "client_memory_max:{}\r\n", shared.settings.client_bytes_max)
}

fn format_bytes(bytes: u64) -> String {
    let units = [("G", 30), ("M", 20), ("K", 10)];
    let unit = units.into_iter().find(|(_, shift)| bytes >> shift > 0);
    let Some((unit, shift)) = unit else {
        return format!("{bytes}B");
    };
    let hundredths = (u128::from(bytes) * 100) >> shift;
    format!("{}.{:02}{unit}", hundredths / 100, hundredths % 100)
}

/// Writes the number of keys of each database in this node's state, which may lag behind that of
/// the leader.
fn write_keyspace(text: &mut String, requests: &mut dyn Requests) -> std::fmt::Result {
    write!(text, "# Keyspace\r\n")?;
    let mut deadlines_left = DEADLINES_MAX;
    for database in Database::all() {
        let (mut query, mut reply) = (Vec::new(), Vec::new());
        encode_keyspace(deadlines_left, &mut Encoder(&mut query));
        Op::address(&mut query, database);
        if requests.query(&query, &mut reply).is_err() {
            // INFO is useful even without these counts.
            return Ok(());
        }
        let counts = String::from_utf8_lossy(&reply);
        let counts = counts.trim_start_matches('+').trim_end();
        deadlines_left = deadlines_left.saturating_sub(counted_deadlines(counts));
        if !counts.starts_with("keys=0,") {
            write!(text, "db{}:{counts}\r\n", database.number())?;
        }
    }
    Ok(())
}

fn write_clients(text: &mut String, shared: &Shared) -> std::fmt::Result {
    write!(text, "# Clients\r\nconnected_clients:{}\r\n", shared.clients.len())?;
    let blocked = shared.blocked_clients.len() + shared.readers.len();
    write!(text, "blocked_clients:{blocked}\r\n")?;
    write!(text, "monitor_clients:{}\r\n", shared.monitors.count())?;
    write!(text, "open_requests:{}\r\n", shared.tags.open())
}

/// Writes fields that clients check before they use a server. A node accepts clients only once its
/// data is loaded, and its log saves every write.
fn write_persistence(text: &mut String) -> std::fmt::Result {
    write!(text, "# Persistence\r\nloading:0\r\n")
}

fn write_cpu(text: &mut String, shared: &Shared) -> std::fmt::Result {
    let CpuTime { system_ms, user_ms } = (shared.settings.cpu)();
    write!(text, "# CPU\r\n")?;
    for (name, ms) in [("sys", system_ms), ("user", user_ms)] {
        write!(text, "used_cpu_{name}:{}.{:03}000\r\n", ms / 1000, ms % 1000)?;
    }
    Ok(())
}

fn stats(text: &mut String, shared: &Shared) -> std::fmt::Result {
    let connections = shared.clients.connections_total;
    write!(text, "# Stats\r\ntotal_connections_received:{connections}\r\n")?;
    shared.traffic.write(text)?;
    let (hits, misses) = shared.tally.hits_and_misses();
    write!(text, "keyspace_hits:{hits}\r\nkeyspace_misses:{misses}\r\nevicted_keys:0\r\n")?;
    write!(text, "total_error_replies:{}\r\n", shared.tally.errors.total())?;
    let [clients, keys, prefixes] = shared.tracking.table_counts();
    write!(text, "tracking_clients:{clients}\r\ntracking_total_keys:{keys}\r\n")?;
    write!(text, "tracking_total_prefixes:{prefixes}\r\n")?;
    write!(text, "monitors_disconnected:{}\r\n", shared.monitors.disconnected_count)?;
    let [channels, patterns, shards] = shared.channels.subscribed_counts();
    write!(
        text,
        "pubsub_channels:{channels}\r\npubsub_patterns:{patterns}\r\n\
         pubsubshard_channels:{shards}\r\n"
    )
}

#[cfg(test)]
mod tests {
    use super::format_bytes;

    #[test]
    fn bytes_are_shown_as_redis_shows_them() {
        let shown = [0, 1023, 1024, 1536, 25_276_510_208, u64::MAX].map(format_bytes);
        let expected = ["0B", "1023B", "1.00K", "1.50K", "23.54G", "17179869183.99G"];
        assert_eq!(shown, expected);
    }
}
