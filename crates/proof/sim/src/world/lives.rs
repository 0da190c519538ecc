//! Lifecycle of processes: starts, disk operations, connections to each other, and deaths.

use quorate_core::{
    level::Level,
    node_id::NodeId,
    witness::{self, Memory},
};
use quorate_node::host::PeerHost as _;

use super::{Event, World, name};
use crate::{
    check::{Verdict, Violation, levels::UsedLevels},
    disk::scan_log_writes,
    network::{LaneLink, ordered_pair},
    node::{Arrival, Node, StartDetails, StartOutcome},
};

/// Time after its removal for which a node remains connected.
const DISCONNECT_DELAY_US: u64 = 2_000_000;

/// Decision about a connection between two nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Admission {
    Admitted,
    /// The connecting node does not know the other node yet, or their releases have no feature
    /// level in common.
    Unknown,
    /// One of the two nodes was removed from the group.
    Refused,
}

impl World {
    /// Starts a process on this node.
    pub(super) fn start_process(&mut self, node: usize) -> Verdict {
        let process = &self.nodes[node];
        let stranger = node >= self.settings.founding_member_count && !process.joined_later;
        if process.running.is_some() || process.is_retired || stranger {
            return Ok(());
        }
        if process.is_removed() {
            // [member-1] A node whose folder records its removal does not start again.
            self.nodes[node].is_retired = true;
            self.counts.nodes_retired += 1;
            self.trace_line(&name(node), "retired", format_args!("it was removed"));
            return Ok(());
        }
        let spoiled = self.starts_with_damaged_file(node);
        let dies = self.draw_founder_death();
        self.roll_back_disk(node);
        let recalled = self.remembered_logs(node);
        let (founder, others) = self.nodes.split_at_mut(1);
        let (starting, mut founder) = match node.checked_sub(1) {
            None => (&mut founder[0], None),
            Some(index) => (&mut others[index], founder.first_mut()),
        };
        let reachable = node > 0 && self.network.can_connect(0, node);
        let ask = &mut |join| {
            let founder = founder.as_mut().filter(|node| reachable && !node.is_paused)?;
            let running = founder.running.as_mut()?;
            if let Some(steps) = dies {
                founder.disk.die_after_changes(steps);
            }
            Some(running.host.answer_join(join))
        };
        let outcome = starting.start(self.now, &self.settings, &mut self.dice, ask, recalled);
        self.handle_death(0);
        if self.check_damaged_start(node, spoiled, &outcome)? {
            return self.restart_repaired(node);
        }
        match outcome {
            Ok(StartOutcome::Started(started)) => self.handle_start(node, *started),
            Ok(StartOutcome::NotYet(what)) => {
                self.trace_line(&name(node), "waits", format_args!("for {what}"));
                self.nodes[node].kill(&mut self.dice);
                self.schedule_start_within(node, 50_000);
                Ok(())
            }
            Ok(StartOutcome::TooOld) => {
                self.replace_refused_release(node);
                Ok(())
            }
            Ok(StartOutcome::Killed) => {
                self.counts.kills_at_start += 1;
                self.nodes[node].kill(&mut self.dice);
                self.trace_line(&name(node), "killed", format_args!("while it starts"));
                self.plan_founding_kill(node);
                self.schedule_start_within(node, 100_000);
                Ok(())
            }
            Err(why) => {
                let detail = format!("node {} does not start: {why}", node + 1);
                Err(Violation::new("start", detail))
            }
        }
    }

    /// [lie-3] Returns the records of this node's log on the reachable nodes in its address book.
    pub(super) fn remembered_logs(&self, node: usize) -> Vec<(NodeId, Memory)> {
        let asks = self.nodes[node].installed_release >= witness::MIN_LEVEL;
        let Some(identity) = self.nodes[node].identity().filter(|_| asks) else {
            return Vec::new();
        };
        let listed =
            |other: &usize| identity.address_book().peers.contains_key(&self.nodes[*other].id());
        let others = (0..self.nodes.len()).filter(|other| *other != node).filter(listed);
        let answers = others.filter_map(|other| {
            let process = &self.nodes[other];
            let there = !process.is_paused && self.network.can_connect(node, other);
            let running = process.running.as_ref().filter(|_| there)?;
            let knows = process.running_release >= witness::MIN_LEVEL;
            knows.then(|| (process.id(), running.host.memory_of(self.nodes[node].id())))
        });
        answers.collect()
    }

    pub(crate) fn schedule_start_within(&mut self, node: usize, us: u64) {
        let wait = self.dice.between(500, us);
        self.schedule_after(wait, Event::StartProcess(node));
    }

    /// Handles the completion of a process start.
    fn handle_start(&mut self, node: usize, started: StartDetails) -> Verdict {
        let before = self.node_checkers.next_unchecked_write(node);
        let StartDetails { recovery, lost_reasons: lost } = started;
        let identity = self.nodes[node].running.as_ref().expect("just started").host.identity();
        let (member, boot) = (identity.member(), identity.boot());
        let cluster = identity.founding().cluster;
        self.open_packets(node, member, boot, cluster);
        self.attach_device(node, boot);
        let text = match member.incarnation.0 {
            0 => "",
            _ => ", as a learner: it may have forgotten votes",
        };
        self.trace_line(
            &name(node),
            "start",
            format_args!(
                "boot {boot}, remembers promise {}, decided below {}, {} votes{text}",
                recovery.hard_state.promised,
                recovery.hard_state.decided_to,
                recovery.votes.len()
            ),
        );
        let release = self.nodes[node].running_release;
        if recovery.votes.iter().any(|vote| Level::of(&vote.value) > release) {
            return UsedLevels::unsupported_level(node, release);
        }
        let next = recovery.next_seq;
        let set_back = self.nodes[node].was_set_back;
        let gone = match set_back {
            true => 0,
            false => before.saturating_sub(next),
        };
        self.node_checkers.lives().check_cluster(node, cluster)?;
        self.node_checkers.lives().check_opened_log(node, member, recovery.incarnation, gone)?;
        if self.node_checkers.lives().incarnation(node) != member.incarnation {
            self.counts.new_incarnations += 1;
            self.node_checkers.classes().record_forgotten(node);
            if !self.fault_state.may_forget(node) {
                let detail = format!("node {} forgot votes without cause: {lost:?}", node + 1);
                return Err(Violation::new("durability", detail));
            }
        }
        if !set_back {
            // Skipped while a test has set back the folder. Once the test clears the flag, the next
            // start must have a higher number than all earlier ones.
            self.node_checkers.lives().check_start(node, boot, member.incarnation)?;
            self.node_checkers.promises().check_recovered(member, recovery.hard_state.promised)?;
        }
        for batch in scan_log_writes(&self.nodes[node].disk, before..next) {
            self.node_checkers.check_released_write(node, self.nodes[node].id(), &batch)?;
        }
        self.node_checkers.set_next_write(node, next.max(before));
        if next < before {
            let detail = format!("node {} lost batches {next}..{before} of its log", node + 1);
            if self.fault_state.may_forget(node) {
                self.node_checkers.set_next_write(node, next);
            } else {
                return Err(Violation::new("durability", detail));
            }
        }
        for peer in (0..self.nodes.len()).filter(|peer| *peer != node) {
            let wait = self.dice.between(50, 3000);
            self.schedule_after(wait, Event::Dial(node, peer));
        }
        self.schedule_disk_completions(node);
        self.schedule_turn(node);
        Ok(())
    }

    /// Handles a process that was killed in the middle of a disk change. The process restarts soon.
    pub(crate) fn handle_death(&mut self, node: usize) {
        if self.nodes[node].running.is_some() && !self.nodes[node].disk.is_alive() {
            self.kill_process(node, 100);
            self.schedule_start_within(node, 100_000);
        }
    }

    pub(super) fn complete_disk_operation(
        &mut self,
        node: usize,
        life: u64,
        operation: u64,
    ) -> Verdict {
        use quorate_log::disk::{Fault as DiskFault, PendingKind};
        let process = &mut self.nodes[node];
        if process.start_count != life || !process.scheduled_operations.remove(&operation) {
            return Ok(());
        }
        if !process.disk.is_alive() {
            self.handle_death(node);
            return Ok(());
        }
        let pending = process.disk.pending();
        let Some(pending) = pending.iter().find(|pending| pending.id == operation) else {
            return Ok(());
        };
        let write = pending.kind == PendingKind::Write;
        let fails = write && std::mem::take(&mut process.next_write_fails);
        if fails {
            let fault = self.dice.pick(&[
                DiskFault::WriteFails,
                DiskFault::FlushFails,
                DiskFault::ShortWrite { bytes: 512 },
            ]);
            process.disk.inject(fault);
        }
        process.disk.complete(operation);
        if fails {
            self.counts.disk_errors += 1;
            self.trace_line(
                &name(node),
                "disk",
                format_args!("a write fails at {}", pending.position),
            );
        } else if write {
            let batch = crate::disk::read_log_write(&self.nodes[node].disk, pending.position);
            let detail = match &batch {
                Some(batch) => format!(
                    "batch {}, {} records, is on stable storage",
                    batch.seq,
                    batch.records.len()
                ),
                None => format!("wrote at {} what is no batch", pending.position),
            };
            self.trace_line(&name(node), "disk", format_args!("{detail}"));
            if let Some(batch) = batch {
                self.node_checkers.record_write(node, self.nodes[node].id(), batch)?;
            }
        }
        self.handle_death(node);
        self.schedule_turn(node);
        Ok(())
    }

    /// Schedules the completion of newly submitted disk operations.
    pub(crate) fn schedule_disk_completions(&mut self, node: usize) {
        let (least, most) = self.settings.disk_us;
        let process = &self.nodes[node];
        let (life, factor) = (process.start_count, process.disk_slowdown);
        let fresh: Vec<u64> = process
            .disk
            .pending()
            .iter()
            .map(|pending| pending.id)
            .filter(|id| !process.scheduled_operations.contains(id))
            .collect();
        for operation in fresh {
            self.nodes[node].scheduled_operations.insert(operation);
            let wait = self.dice.between(least, most) * factor;
            self.schedule_after(wait, Event::DiskOperationDone { node, life, operation });
        }
    }

    pub(super) fn dial_peer(&mut self, a: usize, b: usize) {
        if self.network.connection(a, b).is_some() {
            return;
        }
        match self.decide_admission(a, b) {
            Admission::Refused => return,
            Admission::Unknown => {
                let wait = self.dice.between(5_000, 30_000);
                return self.schedule_after(wait, Event::Dial(a, b));
            }
            Admission::Admitted => {}
        }
        let ready = |node: &Node| node.running.is_some() && !node.is_paused;
        if !ready(&self.nodes[a]) || !ready(&self.nodes[b]) || !self.network.can_connect(a, b) {
            // A restarted node connects by itself. After blocked links and pauses, another attempt
            // must be scheduled.
            let wait = self.dice.between(5_000, 30_000);
            if self.nodes[a].running.is_some() && self.nodes[b].running.is_some() {
                self.schedule_after(wait, Event::Dial(a, b));
            }
            return;
        }
        let connection = self.network.connect(a, b);
        for (node, peer) in [(a, b), (b, a)] {
            let identity = self.nodes[peer].running.as_ref().expect("ready").host.identity();
            let (member, boot) = (identity.member(), identity.boot());
            let levels = self.nodes[peer].running.as_ref().expect("ready").host.levels();
            let life = self.nodes[node].start_count;
            self.deliver_arrival_to(
                node,
                life,
                Arrival::PeerUp { peer, connection, member, boot, levels },
            );
        }
        self.trace_line("net", "connect", format_args!("{} and {}", a + 1, b + 1));
    }

    /// Decides whether two nodes connect, by the rules of the production network. The node with the
    /// higher id connects to the nodes in its table, and the other one admits any node that was not
    /// removed, known or not ([member-3]).
    fn decide_admission(&self, a: usize, b: usize) -> Admission {
        let (low, high) = ordered_pair(a, b);
        let book = |node: usize| {
            let running = self.nodes[node].running.as_ref();
            running.map(|running| running.host.identity().address_book())
        };
        let removed = |node, other: usize| {
            let id = self.nodes[other].id();
            book(node).is_some_and(|book| book.removed_nodes.contains(&id))
        };
        if removed(low, high) || removed(high, low) {
            return Admission::Refused;
        }
        let levels = |node: usize| {
            let running = self.nodes[node].running.as_ref();
            running.map(|running| running.host.levels())
        };
        if let (Some(low), Some(high)) = (levels(low), levels(high))
            && low.agreed(high).is_none()
        {
            return Admission::Unknown;
        }
        let id = self.nodes[low].id();
        let unknown = book(high).is_some_and(|book| !book.peers.contains_key(&id));
        if unknown { Admission::Unknown } else { Admission::Admitted }
    }

    /// Follows changes of a node's member table. Removed nodes are disconnected after a while.
    pub(crate) fn disconnect_removed(&mut self, node: usize) {
        let Some(running) = &mut self.nodes[node].running else {
            return;
        };
        if running.host.take_peer_table().is_none() {
            return;
        }
        let removed = running.host.identity().address_book().removed_nodes.clone();
        for peer in self.network.peers(node) {
            if removed.contains(&self.nodes[peer].id()) {
                self.schedule_after(
                    DISCONNECT_DELAY_US,
                    Event::DisconnectRemoved { node, removed_peer: peer },
                );
            }
        }
    }

    /// Disconnects a removed peer, which has had time to learn the decisions.
    pub(super) fn disconnect_peer(&mut self, node: usize, peer: usize) {
        if self.decide_admission(node, peer) == Admission::Refused {
            self.break_connection(node, peer, 100);
        }
    }

    /// Breaks the connection between two nodes. Each node notices within `late_us` microseconds.
    pub(crate) fn break_connection(&mut self, a: usize, b: usize, late_us: u64) {
        let Some(connection) = self.network.connection(a, b) else {
            return;
        };
        self.network.disconnect(a, b);
        self.counts.connection_resets += 1;
        for (node, peer) in [(a, b), (b, a)] {
            let life = self.nodes[node].start_count;
            let wait = self.dice.below(late_us + 1);
            self.schedule_after(wait, Event::ConnectionDown { node, life, peer, connection });
        }
        let (a, b) = ordered_pair(a, b);
        self.trace_line("net", "reset", format_args!("{} and {}", a + 1, b + 1));
        let wait = late_us + self.dice.between(1_000, 20_000);
        self.schedule_after(wait, Event::Dial(a, b));
    }

    pub(super) fn block_link(&mut self, from: usize, to: usize, blocked: bool) {
        self.network.set_blocked(from, to, blocked);
        let word = if blocked { "blocked" } else { "free" };
        self.trace_line("net", word, format_args!("{} to {}", from + 1, to + 1));
        if !blocked {
            for lane in 0..2 {
                let link = LaneLink { from, to, lane };
                if let Some(at) = self.network.next_arrival(link) {
                    self.schedule_at(at, Event::FragmentArrives(link));
                }
            }
        }
    }

    /// Kills a process. Connected peers notice within `late_us` microseconds.
    pub fn kill_process(&mut self, node: usize, late_us: u64) {
        if self.nodes[node].running.is_none() {
            return;
        }
        self.counts.kills += 1;
        for peer in self.network.peers(node) {
            self.break_connection(node, peer, late_us);
        }
        self.nodes[node].kill(&mut self.dice);
        self.end_device_owner(node);
        self.node_checkers.end_process(node);
        self.trace_line(&name(node), "killed", format_args!(""));
        self.drop_clients(node);
    }

    /// Notifies the node's clients that their connections are broken.
    pub(crate) fn drop_clients(&mut self, node: usize) {
        self.drop_stream_clients(node);
        for client in 0..self.clients.len() {
            if let Some((connection, at)) = self.clients[client].connection
                && at == node
            {
                let wait = self.dice.between(50, 1000);
                self.schedule_after(wait, Event::ClientDown { client, connection });
            }
        }
    }

    pub(super) fn resume_process(&mut self, node: usize, life: u64) {
        if self.nodes[node].start_count == life && self.nodes[node].is_paused {
            self.nodes[node].is_paused = false;
            self.trace_line(&name(node), "resumes", format_args!(""));
            self.schedule_turn(node);
        }
    }
}
