//! Metrics of a node in the Prometheus text format.

use std::fmt::{Display, Write as _};

use quorate_core::effect::Role;
use quorate_log::disk::{Disk, DurationHistogram};
use quorate_replica::{
    DeviceStatus, Replica,
    counters::Counters,
    front::RefusalCounts,
    latencies::CLASS_COUNT,
    scrubbing::report::{Fate, ScrubStatus},
    service::StateMachine,
    status::{Activity, Peer, Snapshot, Status, Streams},
};

/// Appends counters whose metrics are named after the fields.
macro_rules! totals {
    ($out:expr, $prefix:literal, $from:expr, { $($field:ident: $help:literal,)+ }) => {{
        let from = $from;
        $(
            let name = concat!($prefix, stringify!($field), "_total");
            append_head($out, name, $help, "counter");
            let _ = writeln!($out, "quorate_{name} {}", from.$field);
        )+
    }};
}

/// Appends all metrics of a replica.
pub(crate) fn render<D: Disk, S: StateMachine>(
    replica: &Replica<D, S>,
    status: &Status,
    clients: ClientStats,
    out: &mut String,
) {
    let voting = status.role != Role::Learner && !replica.has_log_failed();
    append_gauge(out, "voting", "Whether this node has a vote and can cast it.", u8::from(voting));
    append_gauges(status, clients, out);
    let diverged = u8::from(replica.is_in_doubt());
    append_gauge(out, "diverged", "Whether this node's data differs and may be wrong.", diverged);
    let help = "Clocks of nodes that differ from the group's by more than a second, as known here.";
    append_gauge(out, "clocks_off", help, replica.wrong_clock_count());
    append_counters(replica, out);
    append_streams(&status.streams, out);
    totals!(out, "client_", clients.refusal_counts, {
        forbidden: "Client requests refused because the role is not sufficient.",
        wrong_passwords: "Wrong passwords sent by clients.",
    });
}

pub(crate) fn append_dropped_lines(count: u64, out: &mut String) {
    let name = "stderr_lines_dropped_total";
    let help = "Log lines dropped because standard error was full or its reader too slow.";
    append_head(out, name, help, "counter");
    let _ = writeln!(out, "quorate_{name} {count}");
}

fn append_streams(streams: &Streams, out: &mut String) {
    append_gauge(out, "streams", "Named byte streams.", streams.named_count);
    append_gauge(out, "streams_open", "Byte streams open for writing.", streams.open);
    append_gauge(
        out,
        "stream_store_used_bytes",
        "Bytes of stream content stored on this node's disk.",
        streams.used_bytes,
    );
    append_gauge(
        out,
        "stream_store_file_bytes",
        "Size of the files that hold stream content.",
        streams.file_bytes,
    );
    append_gauge(
        out,
        "stream_missing_bytes",
        "Bytes of streams that this node should hold, and is fetching from others.",
        streams.missing_bytes,
    );
    append_gauge(
        out,
        "stream_ingest_stopped",
        "1 if this node accepts no stream bytes; /ready says why.",
        u64::from(streams.stop_reason.is_some()),
    );
    append_gauge(
        out,
        "stream_store_waits",
        "1 if stream bytes wait for disk space or descriptors.",
        u64::from(streams.is_short_of_resources),
    );
}

fn append_scrub(scrub: &ScrubStatus, out: &mut String) {
    append_gauge(
        out,
        "scrubbing",
        "1 while a scrub checks everything this node keeps.",
        u64::from(scrub.now.is_some()),
    );
    for (name, help, value) in [
        ("scrub_bytes_total", "Bytes that scrubs have read.", scrub.bytes_read_total),
        (
            "scrub_damaged_total",
            "Damaged places found by scrubs; a place counts each time it is found.",
            scrub.found_total,
        ),
    ] {
        append_head(out, name, help, "counter");
        let _ = writeln!(out, "quorate_{name} {value}");
    }
    let (name, help) = ("scrub_found", "Damaged places found by the last scrub, by outcome.");
    append_head(out, name, help, "gauge");
    for fate in Fate::ALL {
        let (count, fate) = (scrub.count(fate), fate.name());
        let _ = writeln!(out, "quorate_{name}{{fate=\"{fate}\"}} {count}");
    }
    append_gauge(
        out,
        "scrub_ended_unix_seconds",
        "When the last scrub ended, in seconds since 1970; 0 if none did.",
        scrub.ended_ms.unwrap_or(0) / 1000,
    );
}

/// Client statistics from the front.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClientStats {
    pub(crate) connections: usize,
    pub(crate) held_bytes: usize,
    pub(crate) refusal_counts: RefusalCounts,
}

fn append_gauges(status: &Status, clients: ClientStats, out: &mut String) {
    append_gauge(out, "leading", "Whether this node leads.", u8::from(status.role == Role::Leader));
    append_gauge(
        out,
        "leader_known",
        "Whether a leader is known.",
        u8::from(status.leader.is_some()),
    );
    append_gauge(
        out,
        "healthy",
        "Whether this node reports no error.",
        u8::from(status.error.is_none()),
    );
    append_gauge(
        out,
        "removed",
        "Whether this node was removed from the cluster, and may be switched off.",
        u8::from(status.removed),
    );
    let doing = status.progress.map(|progress| progress.activity);
    append_gauge(
        out,
        "behind",
        "Whether this node has yet to apply what is known to be decided.",
        u8::from(doing.is_some()),
    );
    append_gauge(
        out,
        "receiving_snapshot",
        "Whether this node is sent a snapshot, because no log has what it lacks.",
        u8::from(doing == Some(Activity::ReceivingSnapshot)),
    );
    append_gauge(out, "era", "Number of the configuration in force.", status.era.0);
    append_gauge(
        out,
        "feature_level",
        "Feature level that the cluster uses.",
        status.level.level.0,
    );
    append_gauge(
        out,
        "feature_level_supported",
        "Newest feature level that this node's release supports.",
        status.level.supported_level.0,
    );
    append_members(status, out);
    append_device(status.device.as_ref(), out);
    append_gauge(out, "ballot_round", "Round of the ballot led or followed.", status.ballot.round);
    append_gauge(out, "decided_slots", "Every slot below is decided.", status.decided_to.0);
    append_gauge(out, "applied_slots", "Every slot below is applied.", status.applied_to.0);
    append_gauge(out, "durable_slots", "Every slot below is durable here.", status.durable_to.0);
    append_gauge(out, "log_bytes", "Size of the log on disk.", status.log_bytes);
    let disk = status.disk;
    if let Some(rate) = disk.log_bytes_per_second {
        let help = "Growth of the log over the last minute.";
        append_gauge(out, "log_growth_bytes_per_second", help, rate);
    }
    if let Some(free) = disk.free_bytes {
        append_gauge(out, "disk_free_bytes", "Room that the log has left.", free);
    }
    let help = "Whether this node refuses data because too few members have disk space for it.";
    append_gauge(out, "data_refused", help, u8::from(disk.refuses_data));
    append_scrub(&status.scrub, out);
    append_gauge(out, "connections", "Client connections.", clients.connections);
    append_gauge(
        out,
        "client_held_bytes",
        "Memory for replies and requests of clients.",
        clients.held_bytes,
    );
    append_head(out, "peer_connected", "Whether a node is connected.", "gauge");
    for peer in &status.peers {
        let (node, connected) = (peer.member.node, u8::from(peer.connected));
        let _ = writeln!(out, "quorate_peer_connected{{node=\"{node}\"}} {connected}");
    }
    append_head(
        out,
        "peer_payload_bytes_sent_total",
        "Bytes of values sent to a node: none to an auxiliary that is not needed.",
        "counter",
    );
    for peer in status.peers.iter().filter(|peer| peer.member != status.member) {
        let (node, bytes) = (peer.member.node, peer.payload_bytes_sent);
        let _ = writeln!(out, "quorate_peer_payload_bytes_sent_total{{node=\"{node}\"}} {bytes}");
    }
    append_head(
        out,
        "ring_member",
        "Whether votes for this leader pass through a node; absent if members vote directly.",
        "gauge",
    );
    for node in &status.ring {
        let _ = writeln!(out, "quorate_ring_member{{node=\"{node}\"}} 1");
    }
    append_head(
        out,
        "auxiliary_engaged",
        "Whether an auxiliary receives proposals; known to the leader.",
        "gauge",
    );
    for peer in status.peers.iter().filter(|peer| peer.auxiliary) {
        if let Some(engaged) = peer.engaged {
            let _ = writeln!(
                out,
                "quorate_auxiliary_engaged{{node=\"{}\"}} {}",
                peer.member.node,
                u8::from(engaged)
            );
        }
    }
    append_head(
        out,
        "peer_lag_slots",
        "How many slots a node is behind; known to the leader.",
        "gauge",
    );
    for peer in &status.peers {
        if let Some(lag) = peer.lag {
            let _ = writeln!(out, "quorate_peer_lag_slots{{node=\"{}\"}} {lag}", peer.member.node);
        }
    }
}

/// Appends the metrics of a device. Without a device, all values are 0.
fn append_device(device: Option<&DeviceStatus>, out: &mut String) {
    let none = DeviceStatus::default();
    let is = device.unwrap_or(&none);
    append_gauge(
        out,
        "device_wanted",
        "Whether this node is configured to use a device.",
        u8::from(device.is_some()),
    );
    append_gauge(
        out,
        "device_used",
        "Whether a device may vote for this node.",
        u8::from(is.is_used),
    );
    append_gauge(
        out,
        "device_gives_slots",
        "Whether a device assigns slots for this node.",
        u8::from(is.assigns_from.is_some()),
    );
    for (name, help, value) in [
        ("votes", "Votes cast by this node's devices.", is.vote_count),
        ("slots", "Slots assigned by this node's devices.", is.assigned_slots),
        ("decisions", "Decisions counted by this node's devices.", is.counted_decisions),
        (
            "taken_back",
            "Times that this node took slot assignment back from its device.",
            is.revocation_count,
        ),
        (
            "values_offered",
            "Values that this node sent in frames to the leader's device.",
            is.offered_values,
        ),
        (
            "values_outgrown",
            "Values too long for a frame, sent over connections instead.",
            is.oversized_values,
        ),
        (
            "frames_lost",
            "Frames for this node dropped because its device was full.",
            is.dropped_frames,
        ),
    ] {
        let name = format!("device_{name}_total");
        append_head(out, &name, help, "counter");
        let _ = writeln!(out, "quorate_{name} {value}");
    }
    let name = "device_frames_refused_total";
    let help = "Frames refused by this node's devices, by reason.";
    append_head(out, name, help, "counter");
    for reason in quorate_replica::device_reasons() {
        let (count, reason) = (is.frames_by_outcome[reason as usize], reason.name());
        let _ = writeln!(out, "quorate_{name}{{reason=\"{reason}\"}} {count}");
    }
}

fn append_members(status: &Status, out: &mut String) {
    append_head(out, "members", "Nodes that this node knows.", "gauge");
    let role = |peer: &Peer| match (peer.weight, peer.auxiliary) {
        (0, _) => "learner",
        (_, true) => "auxiliary",
        (_, false) => "voter",
    };
    let peers = status.peers.iter();
    // A removed node still lists itself, but is not a member.
    let own = |peer: &&Peer| !(status.removed && peer.member.node == status.member.node);
    let roles: Vec<&str> = peers.filter(own).map(role).collect();
    for name in ["voter", "learner", "auxiliary"] {
        let count = roles.iter().filter(|role| **role == name).count();
        let _ = writeln!(out, "quorate_members{{role=\"{name}\"}} {count}");
    }
    append_gauge(
        out,
        "plan_underway",
        "Whether a membership change is in progress.",
        u8::from(status.plan.is_some()),
    );
}

fn append_counters<D: Disk, S: StateMachine>(replica: &Replica<D, S>, out: &mut String) {
    totals!(out, "", replica.counters(), {
        commands_accepted: "Commands accepted from this node's clients.",
        commands_answered: "Commands of this node's clients that were executed and answered.",
        commands_answered_us: "Total microseconds from acceptance to reply of these commands.",
        commands_busy: "Commands refused because a queue was full.",
        requests_timed_out: "Commands and reads that ran out of time.",
        replies_dropped: "Commands whose reply was dropped because too many waited.",
        batches_formed: "Own batches formed.",
        batches_repeated: "Own batches proposed again.",
        batches_applied: "Batches decided and executed here.",
        commands_applied: "Commands executed here.",
        batches_skipped: "Decided batches that had been executed before.",
        forwards_taken: "Batches of other nodes proposed here.",
        forwards_refused: "Batches of other nodes refused.",
        frames_mismatched: "Frames dropped because they contradict themselves.",
        frames_overload: "Frames dropped because a queue was full.",
        sends_dropped: "Frames that the network had no room for.",
        payloads_fetched: "Payloads asked for with a fetch.",
        slots_served: "Slots sent to peers that are behind.",
        slots_waited_for_era: "Values that had to wait until a leader had moved to the next era.",
        reads_asked: "Linearizable reads asked for.",
        reads_confirmed: "Confirmations that the reads shared.",
        reads_leased: "Linearizable reads served under a lease, without a confirmation.",
        reads_within: "Requested reads with a bounded staleness.",
        reads_overtaken: "Reads whose lease or bound expired before they finished: repeated.",
        reads_in_order: "Reads that ran between commands of their connection, without a confirmation.",
        stream_bytes_appended: "Bytes that became part of a byte stream.",
        stream_bytes_placed: "Stream bytes in the stream store, referenced by log records.",
        stream_bytes_recorded: "Stream bytes in log records, copied to the stream store later.",
        stream_bytes_needless: "Times that this auxiliary looked for stream content and learned that no node needs it.",
        stream_slots_skipped: "Slots whose stream content was a no-op: repeated, or after a gap or a close.",
        stream_bytes_dropped: "Stream bytes dropped for lack of room; they are sent or fetched again.",
        stream_bytes_repeated: "Bytes of own streams sent again because nothing progressed.",
        applied_from_log: "Entries applied from the log instead of memory.",
        snapshots_taken: "Snapshots of this node's state completed.",
        snapshots_installed: "Peers' snapshots installed in place of missing log entries.",
        snapshots_loaded: "Snapshots loaded by the service.",
        snapshot_bytes_sent: "Bytes of snapshots sent to peers.",
        snapshot_bytes_received: "Bytes of snapshots received from peers.",
        rings_laid: "Vote rings formed by this node as leader.",
        rings_broken: "Vote rings abandoned for lack of progress; members then vote directly for a while.",
        trims: "How often the log was trimmed.",
        alarms: "Protocol violations found; each needs a person.",
    });
    append_latencies(&replica.counters(), out);
    append_head(
        out,
        "ring_left_out_total",
        "How often a node was left out after a ring without progress.",
        "counter",
    );
    for (node, times) in replica.counters().ring_left_out.iter() {
        let _ = writeln!(out, "quorate_ring_left_out_total{{node=\"{node}\"}} {times}");
    }
    append_gauge(
        out,
        "log_ready_bytes",
        "Log space prepared in advance.",
        replica.log().spare_bytes(),
    );
    append_gauge(
        out,
        "log_start_slots",
        "First slot of the log; a snapshot has everything below.",
        replica.log().start().0,
    );
    append_gauge(
        out,
        "log_used_bytes",
        "Bytes of the log still needed.",
        replica.log().used_bytes(),
    );
    append_gauge(
        out,
        "log_bytes_max",
        "Size above which the log is trimmed even if nodes that are behind need it.",
        replica.log_bytes_max(),
    );
    if let Some(Snapshot { slot: at, bytes }) = replica.snapshot() {
        let help = "This node's snapshot has everything below this slot.";
        append_gauge(out, "snapshot_slots", help, at.0);
        append_gauge(out, "snapshot_bytes", "Size of this node's snapshot.", bytes);
    }
    totals!(out, "disk_", replica.log().counters(), {
        writes: "Writes into log segments; one per commit.",
        flushes: "Flushes of log segments; one per commit.",
        write_bytes: "Bytes written into log segments.",
        read_count: "Reads of the log after the start.",
        files_prepared: "Segments prepared.",
        segment_waits: "Segments that a write had to wait for.",
    });
    append_flush_times(&replica.log().counters().flush_times, out);
    totals!(out, "slow_", replica.slow_paths(), {
        campaigns: "Phase 1 started.",
        vote_rewrites: "Votes that replaced older ones.",
        proposal_gaps: "Proposals that arrived before an earlier one.",
        busy_refusals: "Proposals refused for lack of room.",
        missing_bytes: "Proposals that arrived without their bytes.",
        rewinds: "Times that a leader went back and resent.",
        catchups: "Times that this node requested decided values.",
        snapshots: "Times that this node requested a snapshot.",
    });
}

/// Appends the histogram of command latencies, in seconds. As Prometheus requires, each bucket
/// includes the smaller ones. The upper bound of each bucket is twice that of the previous one. A
/// bucket combines four of the counted latency classes.
fn append_latencies(counters: &Counters, out: &mut String) {
    let name = "command_latency_seconds";
    let help = "Seconds from acceptance to reply of commands from this node's clients.";
    append_head(out, name, help, "histogram");
    let mut sum = 0;
    // The last class includes all longer latencies.
    for (under_us, count) in counters.command_latencies.iter().take(CLASS_COUNT - 1) {
        sum += count;
        if under_us.is_power_of_two() {
            let le = us_to_seconds(under_us);
            let _ = writeln!(out, "quorate_{name}_bucket{{le=\"{le}\"}} {sum}");
        }
    }
    let all = counters.commands_answered;
    let took = us_to_seconds(counters.commands_answered_us);
    let _ = writeln!(
        out,
        "quorate_{name}_bucket{{le=\"+Inf\"}} {all}\nquorate_{name}_sum {took}\nquorate_{name}_count {all}"
    );
}

/// Appends the histogram of log write times.
fn append_flush_times(times: &DurationHistogram, out: &mut String) {
    let name = "disk_flush_seconds";
    let help = "Seconds until log writes were on stable storage.";
    append_head(out, name, help, "histogram");
    for (us, count) in times.cumulative_buckets() {
        let le = us_to_seconds(us);
        let _ = writeln!(out, "quorate_{name}_bucket{{le=\"{le}\"}} {count}");
    }
    let (all, took) = (times.count, us_to_seconds(times.sum_us));
    let _ = writeln!(
        out,
        "quorate_{name}_bucket{{le=\"+Inf\"}} {all}\nquorate_{name}_sum {took}\nquorate_{name}_count {all}"
    );
}

fn us_to_seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

fn append_gauge(out: &mut String, name: &str, help: &str, value: impl Display) {
    append_head(out, name, help, "gauge");
    let _ = writeln!(out, "quorate_{name} {value}");
}

fn append_head(out: &mut String, name: &str, help: &str, kind: &str) {
    let _ = writeln!(out, "# HELP quorate_{name} {help}\n# TYPE quorate_{name} {kind}");
}

#[cfg(test)]
mod tests {
    use quorate_core::{
        ballot::{Ballot, Era},
        node_id::{Member, NodeId},
        record::Class,
        slot::Slot,
    };
    use quorate_replica::status::{DiskUse, Progress};

    use super::*;

    fn status() -> Status {
        Status {
            cluster: 7,
            member: Member::first(1),
            role: Role::Follower,
            leader: Some(NodeId(2)),
            era: Era(0),
            level: quorate_replica::status::LevelStatus::default(),
            plan: None,
            removed: false,
            ballot: Ballot::ZERO,
            decided_to: Slot(9),
            applied_to: Slot(8),
            durable_to: Slot(9),
            class: Class::Durable,
            log_bytes: 0,
            log_start: Slot(1),
            snapshot: None,
            snapshot_taking: None,
            ring: Vec::new(),
            choices: Vec::new(),
            scrub: ScrubStatus::default(),
            device: None,
            disk: DiskUse::default(),
            streams: Streams::default(),
            traffic: quorate_replica::status::Traffic::default(),
            reigns: Vec::new(),
            quorum: quorate_core::quorum::QuorumRule::Majority,
            progress: None,
            error: None,
            notices: Vec::new(),
            peers: Vec::new(),
        }
    }

    fn check_lines(status: &Status, expected: [&str; 4]) {
        let mut text = String::new();
        append_gauges(status, ClientStats::default(), &mut text);
        for line in expected {
            let line = format!("quorate_{line}");
            assert!(text.lines().any(|other| other == line), "{line}: {text}");
        }
    }

    #[test]
    fn buckets_count_all_values_below_their_bound() {
        let mut counters = Counters::default();
        counters.command_latencies.add(3, 100, 100);
        counters.command_latencies.add(1, 3_000_000, 3_000_000);
        counters.command_latencies.add(1, u64::MAX, u64::MAX);
        (counters.commands_answered, counters.commands_answered_us) = (5, 9_000_300);
        let mut text = String::new();
        append_latencies(&counters, &mut text);
        let name = "quorate_command_latency_seconds";
        for line in [
            "_bucket{le=\"0.000032\"} 0",
            "_bucket{le=\"0.000128\"} 3",
            "_bucket{le=\"2.097152\"} 3",
            "_bucket{le=\"4.194304\"} 4",
            "_bucket{le=\"+Inf\"} 5",
            "_sum 9.0003",
            "_count 5",
        ] {
            let line = format!("{name}{line}");
            assert!(text.lines().any(|other| other == line), "{line}: {text}");
        }
    }

    #[test]
    fn flush_durations_are_rendered_as_a_histogram() {
        let mut times = DurationHistogram::default();
        [100, 5000, u64::MAX / 2].into_iter().for_each(|us| times.add_us(us));
        let mut text = String::new();
        append_flush_times(&times, &mut text);
        for line in
            ["{le=\"0.000064\"} 0", "{le=\"0.000128\"} 1", "{le=\"8.388608\"} 2", "{le=\"+Inf\"} 3"]
        {
            let line = format!("quorate_disk_flush_seconds_bucket{line}");
            assert!(text.lines().any(|other| other == line), "{line}: {text}");
        }
        assert!(text.ends_with("quorate_disk_flush_seconds_count 3\n"), "{text}");
    }

    /// Metrics used by alerts are always present, whatever their values.
    #[test]
    fn metrics_for_alerts_are_always_present() {
        let mut status = status();
        check_lines(&status, ["removed 0", "behind 0", "receiving_snapshot 0", "data_refused 0"]);
        status.progress = Some(Progress {
            activity: Activity::CatchingUp,
            from: 0,
            position: 1,
            end: 2,
            per_second: None,
            elapsed_ms: 0,
        });
        check_lines(&status, ["removed 0", "behind 1", "receiving_snapshot 0", "data_refused 0"]);
        let progress = status.progress.as_mut().expect("it is there");
        progress.activity = Activity::ReceivingSnapshot;
        (status.removed, status.disk.refuses_data) = (true, true);
        check_lines(&status, ["removed 1", "behind 1", "receiving_snapshot 1", "data_refused 1"]);
    }
}
