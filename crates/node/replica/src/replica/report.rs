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
use quorate_tuner::{Setting, SettingChange};

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
const STUCK_AFTER_MS: u64 = 5_000;

impl<D: Disk, S: StateMachine> Replica<D, S> {
    pub fn status(&self, now: Time) -> Status {
        Status {
            cluster: self.spine.identity.cluster,
            member: self.spine.identity.member,
            role: self.spine.node().role(),
            leader: self.spine.node().leader(),
            era: self.spine.node().era(),
            quorum: self.spine.node().configuration().rule(),
            level: self.members_view().level_status(now),
            plan: self.spine.group().plan().map(|plan| PlanStatus {
                id: plan.id,
                description: plan.description.clone(),
                wait_reason: self.members_view().plan_wait_reason(),
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
            snapshot_taking: self.snapshots.snapshot_in_progress(),
            ring: self.spine.node().ring_nodes(),
            choices: self.automatic_choices(),
            scrub: self.scrub_status(),
            device: self.devices.status().cloned(),
            disk: self.disk_use(now),
            streams: self.streams_status(now),
            traffic: self.spine.counters.traffic(),
            reigns: self.spine.observing.leader_changes(now),
            progress: self.spine.observing.progress(now, &self.node_progress()),
            error: self.error(),
            notices: self.operator_notices(now),
            peers: self.known_peers(now),
        }
    }

    /// Returns the group's time ([time-1]) in Unix milliseconds; 0 before the first due deadline.
    pub fn group_time_ms(&self) -> u64 {
        self.spine.applying.time().ms()
    }

    /// Returns the status of this node's device; `None` if it never had one.
    pub fn device_status(&self) -> Option<&DeviceStatus> {
        self.devices.status()
    }

    /// Returns the slot below which this node counts as caught up. An auxiliary need not apply more
    /// ([aux-1]).
    pub(super) fn caught_up_to(&self) -> Slot {
        match self.spine.node().is_auxiliary() {
            true => self.spine.node().known_decided_to(),
            false => self.spine.applying.applied_to(),
        }
    }

    /// Returns this node's progress in applying slots.
    pub(super) fn node_progress(&self) -> NodeProgress {
        let node = self.spine.node();
        NodeProgress {
            unread_slots: self.catching_up.unread_slots(),
            received_of_total: self.snapshots.receiving_progress(),
            missing_slots: node.lost_slots() + self.catching_up.missing_slots(),
            applied_to: self.caught_up_to(),
            known_to: node.known_decided_to(),
            has_leader: node.leader().is_some(),
        }
    }

    /// Returns the disk space available to the log, and the log's growth rate.
    fn disk_use(&self, now: Time) -> DiskUse {
        let log = self.spine.storing.log();
        let counters = log.counters();
        DiskUse {
            free_bytes: log.disk().free_bytes(Family::Log),
            needed_bytes: self.fitness.full_disks.missing_free_bytes(&self.spine),
            refuses_data: self.fitness.full_disks.refusing_member(now, &self.spine).is_some(),
            log_bytes_per_second: self.spine.observing.log_growth(now, counters.write_bytes),
            flush_times: counters.flush_times,
        }
    }

    pub fn streams_status(&self, now: Time) -> Streams {
        let (streams, keeping) = (self.spine.applying.streams(), &self.streaming.stream_storage);
        let (used_bytes, file_bytes) = keeping.bytes();
        Streams {
            named_count: streams.len(),
            open: streams.open_streams().count(),
            used_bytes,
            file_bytes,
            missing_bytes: keeping.missing_bytes(),
            may_lack_bytes: keeping.may_lack_bytes(),
            is_short_of_resources: keeping.shortage().is_some(),
            stop_reason: self.stream_stop_reason(now),
        }
    }

    /// [stream-8] Returns why the bytes of this node's writing clients make no progress; `None` if
    /// they do. On other nodes than the leader, this is the only sign that the leader lacks space.
    fn stream_stop_reason(&self, now: Time) -> Option<String> {
        let keeping = &self.streaming.stream_storage;
        if let Some(why) = keeping.failure() {
            return Some(format!("the store of byte streams has failed: {why}"));
        }
        if keeping.is_full() || !keeping.has_room() && keeping.shortage().is_some() {
            let why = keeping.shortage().unwrap_or("nothing more has room");
            return Some(format!("the store of byte streams has no room: {why}"));
        }
        if let Some(node) = self.fitness.full_disks.refusing_member(now, &self.spine) {
            return Some(format!("byte streams have no room: the disk of node {node} is full"));
        }
        let stuck_ms = self.streaming.owned_pieces.stuck_ms(now);
        (stuck_ms >= STUCK_AFTER_MS).then(|| {
            let seconds = stuck_ms / 1000;
            format!(
                "bytes that clients gave have waited for {seconds} s: the leader, or too many others, take none"
            )
        })
    }

    /// Returns notices for the operator about conditions that do not prevent the node from serving.
    fn operator_notices(&self, now: Time) -> Vec<String> {
        let strain = self.spine.applying.condition().strain_reason().map(ToOwned::to_owned);
        let short = self.streaming.stream_storage.shortage();
        let short = short.map(|why| format!("the store of byte streams waits: {why}"));
        let missing = self.streaming.stream_storage.missing_bytes();
        let missing = (missing > 0).then(|| {
            format!(
                "{missing} bytes of byte streams are missing here, and fetched from other nodes"
            )
        });
        let differs = self.spine.observing.alarm().filter(|alarm| is_of_others(alarm));
        let differs = differs.filter(|_| !self.suspicion.is_in_doubt());
        let differs = differs.map(|alarm| {
            format!(
                "{alarm}; a majority has applied what this node has: see {}",
                differing::DIVERGENCE_PAGE
            )
        });
        let clocks = self
            .spine
            .clocks
            .reported_deviations()
            .map(|off| format!("clock: node {} is {}", off.node, off.text()));
        self.spine
            .observing
            .promise_notice(now)
            .into_iter()
            .chain(differs)
            .chain(clocks)
            .chain(self.fitness.full_disks.notices(now, &self.spine))
            .chain(strain)
            .chain(short)
            .chain(missing)
            .collect()
    }

    /// Returns the number of wall clocks reported as wrong. A leader knows the clocks of all
    /// members.
    pub fn wrong_clock_count(&self) -> usize {
        self.spine.clocks.reported_deviations().count()
    }

    pub fn stream_table(&self) -> &Table {
        self.spine.applying.streams()
    }

    /// [snap-5] Returns the number of retained bytes of streams that this node lacks; `None` if
    /// they have not been counted yet.
    pub fn stream_bytes_missing(&self) -> Option<u64> {
        let keeping = &self.streaming.stream_storage;
        let known = keeping.missing_bytes();
        (known > 0 || !keeping.may_lack_bytes()).then_some(known)
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
            let cause = self.spine.storing.log().write_obstacle();
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
        let trouble = self.spine.applying.trouble_reason();
        if self.spine.applying.condition().is_stuck() {
            return trouble;
        }
        if let Some(lost) = self.describe_lost_slot() {
            return Some(lost);
        }
        if let Some(error) = self.spine.storing.read_failure() {
            return Some(format!("the log could not be read back: {error}"));
        }
        if trouble.is_some() {
            return trouble;
        }
        if self.spine.node().is_out_of_rounds() {
            let times = self.spine.identity.member.incarnation.0;
            return Some(format!(
                "this node has lost its memory {times} times and has no rounds left: it never leads \
                 again; replace it under a new id"
            ));
        }
        let configuration = self.spine.node().configuration();
        let forgot = configuration.position(self.spine.identity.member).is_none()
            && configuration.member_of(self.spine.identity.member.node).is_some();
        if forgot {
            return Some(
                "this node may have forgotten votes: it learns, without a vote".to_owned(),
            );
        }
        self.spine.storing.log().shortage_reason()
    }

    /// [disk-8] Returns the first decided slot whose value the log has lost, and the number of
    /// unanswered requests for the value.
    pub fn first_lost_slot(&self) -> Option<(Slot, u32)> {
        let running = || self.catching_up.first_lost_slot();
        self.spine.node().relearning_progress().or_else(running)
    }

    fn describe_lost_slot(&self) -> Option<String> {
        let (first, fruitless) = self.first_lost_slot()?;
        let members = self.spine.node().configuration().members();
        let others = members.iter().map(|voter| voter.member.node);
        let others: Vec<NodeId> =
            others.filter(|node| *node != self.spine.identity.member.node).collect();
        let absent: Vec<NodeId> =
            others.iter().copied().filter(|node| !self.spine.peers.is_connected(*node)).collect();
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
        peers.retain(|node, _| !self.spine.is_id_removed(*node));
        let own = self.spine.identity.member.node;
        peers
            .entry(own)
            .or_insert_with(|| self.peer(self.spine.identity.member, 0, false))
            .connected = true;
        if self.spine.node().role() == Role::Leader {
            for (node, heard, lag) in self.spine.node().follower_lags(now) {
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
            connected: self.spine.peers.is_connected(member.node),
            lag: None,
            payload_bytes_sent: self.spine.counters.payload_bytes_sent.total_for(member.node),
            engaged: None,
            addresses: self.spine.peers.address(member.node),
            plane: PeerPlane::default(),
        }
    }

    /// Takes the next change of batch and window, for the operator's log.
    pub fn next_change(&mut self) -> Option<SettingChange> {
        self.tuning.next_change()
    }

    pub fn next_notice(&mut self, now: Time) -> Option<String> {
        self.spine.observing.take_notice(now)
    }

    pub fn next_event(&mut self) -> Option<Event> {
        self.spine.observing.next_event()
    }

    /// Returns the tuner's estimates, predictions and choices.
    pub fn tuning_report(&self) -> TuningReport {
        TuningReport {
            report: self.tuning.report(),
            setting: self.tuning.setting(),
            is_fixed: self.tuning.is_fixed(),
        }
    }

    /// Returns descriptions of the choices that the replica made by itself, each with its reason.
    fn automatic_choices(&self) -> Vec<String> {
        let leads = self.spine.node().role() == Role::Leader;
        self.tuning.describe_route().filter(|_| leads).into_iter().collect()
    }

    pub fn batch_setting(&self) -> Setting {
        self.tuning.setting()
    }

    /// Describes the main sources of wake-ups and their times, to debug a replica that never idles.
    /// Incomplete: [`Replica::wake_at`] has all.
    pub(crate) fn wake_sources(&self, now: Time) -> String {
        format!(
            "ending {:?}, work {}, node {:?}, due {:?}, retry {:?}, origin {:?}, reads {:?}, fetches {:?}, \
             repair {:?}, log {:?}, write {:?}",
            self.ending,
            self.has_work(),
            self.spine.protocol.next_tick_at(),
            self.spine.proposing.next_due_check_at(),
            self.catching_up.retry_at(),
            self.spine.proposing.own_origin().wake_at(now),
            self.reading.wake_at(now),
            self.spine.contents.wake_at(),
            self.catching_up.repair_at(),
            self.spine.storing.read_at(now),
            self.spine.storing.write_deadline(),
        )
    }

    pub fn counters(&self) -> Counters {
        Counters {
            batches_formed: self.spine.proposing.own_origin().totals().formed_batches,
            batches_repeated: self.spine.proposing.own_origin().repeated_count(),
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
        self.spine.identity.member
    }

    /// Returns the first slot that has not been applied.
    pub fn applied_to(&self) -> Slot {
        self.spine.applying.applied_to()
    }

    /// Returns the session table in canonical form, equal on nodes that applied the same slots.
    pub fn sessions(&self) -> Metadata {
        self.spine.applying.sessions().canonical_entries()
    }
}
