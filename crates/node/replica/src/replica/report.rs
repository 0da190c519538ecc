//! Status of a replica, with the reason if it does not serve.

use std::collections::BTreeMap;

use quorate_core::{
    effect::{Alarm, Role, SlowPaths},
    node::Node,
    node_id::{Member, NodeId},
    slot::Slot,
    time::Time,
};
use quorate_log::Log;
use quorate_log::disk::{Disk, Family};
use quorate_stream::Table;
use quorate_tuner::{Change, Setting};

use super::Replica;
use crate::{
    counters::Counters,
    differing,
    observing::{events::Event, pursuit::NodeProgress},
    ports::{
        device::DeviceStatus,
        service::{Metadata, StateMachine},
        status::{DiskUse, Peer, PeerPlane, PlanStatus, Snapshot, Status, Streams, TuningReport},
    },
};

/// Returns whether the alarm is about differing states. If this node's own state may be the wrong
/// one, its doubt is reported instead ([differ-2]).
const fn is_of_others(alarm: &Alarm) -> bool {
    matches!(alarm, Alarm::DifferentHistory { .. })
}

/// Time in milliseconds after which clients' waiting bytes are reported as stuck.
const STUCK_MS: u64 = 5_000;

impl<D: Disk, S: StateMachine> Replica<D, S> {
    pub fn status(&self, now: Time) -> Status {
        Status {
            cluster: self.spine.own.cluster,
            member: self.spine.own.member,
            role: self.spine.node().role(),
            leader: self.spine.node().leader(),
            era: self.spine.node().era(),
            quorum: self.spine.node().configuration().rule(),
            level: self.members_view().level_status(now),
            plan: self.spine.group().plan().map(|plan| PlanStatus {
                id: plan.id,
                what: plan.what.clone(),
                waits: self.members_view().plan_waits(),
            }),
            removed: self.is_removed(),
            ballot: self.spine.node().ballot(),
            decided_to: self.spine.node().decided_to(),
            applied_to: self.spine.applying.applied_to(),
            durable_to: self.spine.node().durable_to(),
            class: self.spine.node().configuration().class(),
            log_bytes: self.spine.storing.log().size_bytes(),
            log_start: self.spine.storing.log().start(),
            snapshot: self.snapshots.own_snapshot(),
            snapshot_taking: self.snapshots.taking(),
            ring: self.spine.node().ring(),
            choices: self.choices(),
            scrub: self.scrub_status(),
            device: self.devices.status().cloned(),
            disk: self.disk_use(now),
            streams: self.stream_use(now),
            traffic: self.spine.counters.traffic(),
            reigns: self.spine.observing.reigns(now),
            progress: self.spine.observing.progress(now, &self.standing()),
            error: self.error(),
            notices: self.notices(now),
            peers: self.known_peers(now),
        }
    }

    /// Returns the group's time ([time-1]) in Unix milliseconds; 0 before the first due deadline.
    pub fn group_ms(&self) -> u64 {
        self.spine.applying.time().ms()
    }

    /// Returns the status of this node's device; `None` if it never had one.
    pub fn device(&self) -> Option<&DeviceStatus> {
        self.devices.status()
    }

    /// Returns the slot below which this node counts as caught up. An auxiliary need not apply more
    /// ([aux-1]).
    pub(super) fn level_to(&self) -> Slot {
        match self.spine.node().is_auxiliary() {
            true => self.spine.node().known_to(),
            false => self.spine.applying.applied_to(),
        }
    }

    /// Returns this node's progress in applying slots.
    pub(super) fn standing(&self) -> NodeProgress {
        let node = self.spine.node();
        NodeProgress {
            unread: self.catching_up.unread_slots(),
            receiving: self.snapshots.receiving(),
            missing: node.lost_slots() + self.catching_up.missing_slots(),
            applied_to: self.level_to(),
            known_to: node.known_to(),
            led: node.leader().is_some(),
        }
    }

    /// Returns the disk space available to the log, and the log's growth rate.
    fn disk_use(&self, now: Time) -> DiskUse {
        let log = self.spine.storing.log();
        let counters = log.counters();
        DiskUse {
            free_bytes: log.disk().free_bytes(Family::Log),
            needed_bytes: self.space_needed(),
            data_refused: self.full_disk(now).is_some(),
            log_bytes_per_second: self.spine.observing.log_growth(now, counters.write_bytes),
            flush_times: counters.flush_times,
        }
    }

    pub fn stream_use(&self, now: Time) -> Streams {
        let (streams, keeping) = (self.spine.applying.streams(), &self.streaming.keeping);
        let (used_bytes, file_bytes) = keeping.bytes();
        Streams {
            named: streams.len(),
            open: streams.open_streams().count(),
            used_bytes,
            file_bytes,
            missing_bytes: keeping.missing_bytes(),
            lacks: keeping.lacks(),
            short: keeping.short().is_some(),
            stopped: self.streams_stopped(now),
        }
    }

    /// [stream-8] Returns why the bytes of this node's writing clients make no progress; `None` if
    /// they do. On other nodes than the leader, this is the only sign that the leader lacks space.
    fn streams_stopped(&self, now: Time) -> Option<String> {
        let keeping = &self.streaming.keeping;
        if let Some(why) = keeping.failure() {
            return Some(format!("the store of byte streams has failed: {why}"));
        }
        if keeping.is_full() || !keeping.has_room() && keeping.short().is_some() {
            let why = keeping.short().unwrap_or("nothing more has room");
            return Some(format!("the store of byte streams has no room: {why}"));
        }
        if let Some(node) = self.full_disk(now) {
            return Some(format!("byte streams have no room: the disk of node {node} is full"));
        }
        let stuck_ms = self.streaming.owning.stuck_ms(now);
        (stuck_ms >= STUCK_MS).then(|| {
            let seconds = stuck_ms / 1000;
            format!(
                "bytes that clients gave have waited for {seconds} s: the leader, or too many others, take none"
            )
        })
    }

    /// Returns notices for the operator about conditions that do not prevent the node from serving.
    fn notices(&self, now: Time) -> Vec<String> {
        let strain = self.spine.applying.condition().strain().map(ToOwned::to_owned);
        let short = self.streaming.keeping.short();
        let short = short.map(|why| format!("the store of byte streams waits: {why}"));
        let missing = self.streaming.keeping.missing_bytes();
        let missing = (missing > 0).then(|| {
            format!(
                "{missing} bytes of byte streams are missing here, and fetched from other nodes"
            )
        });
        let differs = self.spine.observing.alarm().filter(|alarm| is_of_others(alarm));
        let differs = differs.filter(|_| !self.suspicion.is_in_doubt());
        let differs = differs.map(|alarm| {
            format!("{alarm}; a majority has applied what this node has: see {}", differing::PAGE)
        });
        let clocks = self
            .spine
            .clocks
            .reported_deviations()
            .map(|off| format!("clock: node {} is {}", off.node, off.text()));
        self.spine
            .observing
            .notice(now)
            .into_iter()
            .chain(differs)
            .chain(clocks)
            .chain(self.room_notices(now))
            .chain(strain)
            .chain(short)
            .chain(missing)
            .collect()
    }

    /// Returns the number of wall clocks reported as wrong. A leader knows the clocks of all
    /// members.
    pub fn clocks_off(&self) -> usize {
        self.spine.clocks.reported_deviations().count()
    }

    pub fn streams(&self) -> &Table {
        self.spine.applying.streams()
    }

    /// [snap-5] Returns the number of retained bytes of streams that this node lacks; `None` if
    /// they have not been counted yet.
    pub fn stream_bytes_missing(&self) -> Option<u64> {
        let keeping = &self.streaming.keeping;
        let known = keeping.missing_bytes();
        (known > 0 || !keeping.lacks()).then_some(known)
    }

    /// Returns whether a log write failed. If so, this node casts no votes until it restarts.
    pub fn has_log_failed(&self) -> bool {
        self.spine.storing.failure().is_some()
    }

    /// Returns the most serious reason for this node not to vote or serve, if any.
    pub fn error(&self) -> Option<String> {
        if let Some(why) = self.spine.applying.condition().doubt_reason() {
            return Some(why.to_owned());
        }
        if let Some(alarm) = self.spine.observing.alarm().filter(|alarm| !is_of_others(alarm)) {
            return Some(format!(
                "a rule of the protocol was broken: {alarm}; stop the nodes, keep their folders, \
                 report it"
            ));
        }
        if let Some(error) = self.spine.storing.failure() {
            return Some(format!(
                "{error}; this node neither votes nor leads until it is restarted"
            ));
        }
        if self.is_removed() {
            return Some("this node was removed from the cluster".to_owned());
        }
        if let Some(why) = self.fitness.log_trouble() {
            let cause = self.spine.storing.log().obstacle();
            let cause = cause.map_or_else(String::new, |cause| format!(": {cause}"));
            return Some(format!(
                "{why}{cause}; this node cannot vote or lead until the log is written again"
            ));
        }
        if let Some(why) = self.devices.late_reason() {
            return Some(format!(
                "{why}; this node neither votes nor leads until it does, and has lost nothing"
            ));
        }
        let trouble = self.spine.applying.trouble();
        if self.spine.applying.condition().is_stuck() {
            return trouble;
        }
        if let Some(lost) = self.lost_value_text() {
            return Some(lost);
        }
        if let Some(error) = self.spine.storing.read_failure() {
            return Some(format!("the log could not be read back: {error}"));
        }
        if trouble.is_some() {
            return trouble;
        }
        if self.spine.node().is_out_of_rounds() {
            let times = self.spine.own.member.incarnation.0;
            return Some(format!(
                "this node has lost its memory {times} times and has no rounds left: it never leads \
                 again; replace it under a new id"
            ));
        }
        let configuration = self.spine.node().configuration();
        let forgot = configuration.position(self.spine.own.member).is_none()
            && configuration.member_of(self.spine.own.member.node).is_some();
        if forgot {
            return Some(
                "this node may have forgotten votes: it learns, without a vote".to_owned(),
            );
        }
        self.spine.storing.log().busy_reason()
    }

    /// [disk-8] Returns the first decided slot whose value the log has lost, and the number of
    /// unanswered requests for the value.
    pub fn lost_value(&self) -> Option<(Slot, u32)> {
        let running = || self.catching_up.lost_value();
        self.spine.node().relearning().or_else(running)
    }

    fn lost_value_text(&self) -> Option<String> {
        let (first, fruitless) = self.lost_value()?;
        let members = self.spine.node().configuration().members();
        let others = members.iter().map(|voter| voter.member.node);
        let others: Vec<NodeId> =
            others.filter(|node| *node != self.spine.own.member.node).collect();
        let absent: Vec<NodeId> =
            others.iter().copied().filter(|node| !self.spine.peers.has(*node)).collect();
        let asked_all = fruitless as usize > 2 * others.len();
        let next = if others.is_empty() {
            "there is no other node to fetch it from: restore this node's folder from a copy"
                .to_owned()
        } else if !asked_all && absent.len() < others.len() {
            "fetching it from peers".to_owned()
        } else if absent.is_empty() {
            "none of the other nodes has it: bring back a folder that does".to_owned()
        } else {
            let absent: Vec<String> = absent.iter().map(NodeId::to_string).collect();
            let absent = absent.join(", node ");
            format!("no connected node has it: start node {absent}")
        };
        Some(format!("the log has lost the value of slot {first}; {next}"))
    }

    pub(super) fn known_peers(&self, now: Time) -> Vec<Peer> {
        let mut peers = BTreeMap::new();
        for voter in self.spine.node().configuration().members() {
            let peer = self.peer(voter.member, voter.weight, voter.auxiliary);
            peers.insert(voter.member.node, peer);
        }
        for member in self.spine.peers.members() {
            peers.entry(member.node).or_insert_with(|| self.peer(member, 0, false));
        }
        // A node that has joined but has neither weight nor a connection is a learner that is down.
        // Ids that are only reserved are not listed here.
        let known = self.spine.group().nodes();
        for (node, known) in known.filter(|(_, known)| known.has_joined()) {
            let peer = peers.entry(node).or_insert_with(|| {
                let member = Member::first(node.0);
                self.peer(member, 0, false)
            });
            if peer.addresses.peer.is_empty() {
                known.peer.clone_into(&mut peer.addresses.peer);
            }
        }
        peers.retain(|node, _| !self.spine.is_spent(*node));
        let own = self.spine.own.member.node;
        peers.entry(own).or_insert_with(|| self.peer(self.spine.own.member, 0, false)).connected =
            true;
        if self.spine.node().role() == Role::Leader {
            for (node, heard, lag) in self.spine.node().followers(now) {
                if let Some(peer) = peers.get_mut(&node) {
                    (peer.connected, peer.lag) = (heard, Some(lag));
                    peer.engaged = Some(self.spine.node().proposes_to(node));
                }
            }
        }
        peers.into_values().collect()
    }

    fn peer(&self, member: Member, weight: u32, auxiliary: bool) -> Peer {
        Peer {
            member,
            weight,
            auxiliary,
            connected: self.spine.peers.has(member.node),
            lag: None,
            payload_bytes_sent: self.spine.counters.payload_bytes_sent.to(member.node),
            engaged: None,
            addresses: self.spine.peers.address(member.node),
            plane: PeerPlane::default(),
        }
    }

    /// Takes the next change of batch and window, for the operator's log.
    pub fn next_change(&mut self) -> Option<Change> {
        self.tuning.next_change()
    }

    pub fn next_notice(&mut self, now: Time) -> Option<String> {
        self.spine.observing.take_notice(now)
    }

    pub fn next_event(&mut self) -> Option<Event> {
        self.spine.observing.next_event()
    }

    /// Returns the tuner's estimates, predictions and choices.
    pub fn tuning(&self) -> TuningReport {
        TuningReport {
            report: self.tuning.report(),
            setting: self.tuning.setting(),
            held: self.tuning.is_held(),
        }
    }

    /// Returns descriptions of the choices that the replica made by itself, each with its reason.
    fn choices(&self) -> Vec<String> {
        let leads = self.spine.node().role() == Role::Leader;
        self.tuning.why_route().filter(|_| leads).into_iter().collect()
    }

    pub fn batching(&self) -> Setting {
        self.tuning.setting()
    }

    /// Lists which parts request a wake-up and when, to debug a replica that never idles.
    pub(crate) fn wake_sources(&self, now: Time) -> String {
        format!(
            "ending {:?}, work {}, node {:?}, due {:?}, retry {:?}, origin {:?}, reads {:?}, fetches {:?}, \
             repair {:?}, log {:?}, write {:?}",
            self.ending,
            self.has_work(),
            self.spine.protocol.next_wake_at(),
            self.spine.proposing.due_at(),
            self.catching_up.retry_at(),
            self.spine.proposing.own_origin().wake_at(now),
            self.reading.wake_at(now),
            self.spine.contents.wake_at(),
            self.catching_up.repair_at(),
            self.spine.storing.read_at(now),
            self.spine.storing.write_by(),
        )
    }

    pub fn counters(&self) -> Counters {
        Counters {
            batches_formed: self.spine.proposing.own_origin().totals().batches,
            batches_repeated: self.spine.proposing.own_origin().repeated(),
            ..self.spine.counters
        }
    }

    pub fn snapshot(&self) -> Option<Snapshot> {
        self.snapshots.own_snapshot()
    }

    /// Returns the size of the log in bytes above which it is trimmed even if nodes lag.
    pub fn log_bytes_max(&self) -> u64 {
        self.snapshots.log_bytes_max()
    }

    pub fn slow_paths(&self) -> SlowPaths {
        self.spine.protocol.slow_paths()
    }

    /// Returns the core. Tests check its invariants.
    pub fn node(&self) -> &Node {
        self.spine.node()
    }

    /// Returns the log, for its counters and its file descriptor.
    pub fn log(&self) -> &Log<D> {
        self.spine.storing.log()
    }

    pub fn service(&self) -> &S {
        self.spine.applying.service()
    }

    pub fn member(&self) -> Member {
        self.spine.own.member
    }

    /// Returns the first slot that has not been applied.
    pub fn applied_to(&self) -> Slot {
        self.spine.applying.applied_to()
    }

    /// Returns the session table in canonical form, equal on nodes that applied the same slots.
    pub fn sessions(&self) -> Metadata {
        self.spine.applying.sessions().canonical()
    }
}
