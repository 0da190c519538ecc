//! Lifecycle of processes: starts, disk operations, connections to each other, and deaths.

use quorate_core::{
    level::Level,
    node_id::NodeId,
    witness::{self, Memory},
};
use quorate_node::host::PeerSide as _;

use super::{Event, World, name};
use crate::{
    check::{Verdict, Violation, levels::Levels},
    disk::scan,
    network::{Link, pair},
    node::{Arrival, Node, Start, StartDetails},
};

/// Time after its removal for which a node remains connected.
const PARTING_US: u64 = 2_000_000;

/// Decision about a connection between two nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Admission {
    LetIn,
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
        let stranger = node >= self.settings.nodes && !process.joined;
        if process.running.is_some() || process.retired || stranger {
            return Ok(());
        }
        if process.is_removed() {
            // [member-1] A node whose folder records its removal does not start again.
            self.nodes[node].retired = true;
            self.counts.retired += 1;
            self.line(&name(node), "retired", format_args!("it was removed"));
            return Ok(());
        }
        let spoiled = self.starts_spoiled(node);
        let dies = self.founder_dies();
        self.fall_back(node);
        let recalled = self.recalled_of(node);
        let (founder, others) = self.nodes.split_at_mut(1);
        let (starting, mut founder) = match node.checked_sub(1) {
            None => (&mut founder[0], None),
            Some(index) => (&mut others[index], founder.first_mut()),
        };
        let reachable = node > 0 && self.network.can_connect(0, node);
        let ask = &mut |join| {
            let founder = founder.as_mut().filter(|node| reachable && !node.paused)?;
            let running = founder.running.as_mut()?;
            if let Some(steps) = dies {
                founder.disk.die_after(steps);
            }
            Some(running.host.admit(join))
        };
        let outcome = starting.start(self.now, &self.settings, &mut self.dice, ask, recalled);
        self.handle_death(0);
        if self.refuses_spoiled(node, spoiled, &outcome)? {
            return self.start_mended(node);
        }
        match outcome {
            Ok(Start::Runs(started)) => self.handle_start(node, *started),
            Ok(Start::Waits(what)) => {
                self.line(&name(node), "waits", format_args!("for {what}"));
                self.nodes[node].kill(&mut self.dice);
                self.starts_within(node, 50_000);
                Ok(())
            }
            Ok(Start::TooOld) => {
                self.refused_release(node);
                Ok(())
            }
            Ok(Start::Died) => {
                self.counts.start_kills += 1;
                self.nodes[node].kill(&mut self.dice);
                self.line(&name(node), "killed", format_args!("while it starts"));
                self.arm_founding(node);
                self.starts_within(node, 100_000);
                Ok(())
            }
            Err(why) => {
                let detail = format!("node {} does not start: {why}", node + 1);
                Err(Violation::new("start", detail))
            }
        }
    }

    /// [lie-3] Returns the records of this node's log on the reachable nodes in its address book.
    pub(super) fn recalled_of(&self, node: usize) -> Vec<(NodeId, Memory)> {
        let asks = self.nodes[node].release >= witness::MIN_LEVEL;
        let Some(identity) = self.nodes[node].identity().filter(|_| asks) else {
            return Vec::new();
        };
        let listed = |other: &usize| identity.book().peers.contains_key(&self.nodes[*other].id());
        let others = (0..self.nodes.len()).filter(|other| *other != node).filter(listed);
        let answers = others.filter_map(|other| {
            let process = &self.nodes[other];
            let there = !process.paused && self.network.can_connect(node, other);
            let running = process.running.as_ref().filter(|_| there)?;
            let knows = process.release_running >= witness::MIN_LEVEL;
            knows.then(|| (process.id(), running.host.memory_of(self.nodes[node].id())))
        });
        answers.collect()
    }

    pub(crate) fn starts_within(&mut self, node: usize, us: u64) {
        let wait = self.dice.between(500, us);
        self.schedule_after(wait, Event::Start(node));
    }

    /// Handles the completion of a process start.
    fn handle_start(&mut self, node: usize, started: StartDetails) -> Verdict {
        let before = self.watch.released_to(node);
        let StartDetails { recovery, lost_reasons: lost } = started;
        let identity = self.nodes[node].running.as_ref().expect("just started").host.identity();
        let (member, boot) = (identity.member(), identity.boot());
        let cluster = identity.founding().cluster;
        self.open_packets(node, member, boot, cluster);
        self.own_device(node, boot);
        let text = match member.incarnation.0 {
            0 => "",
            _ => ", as a learner: it may have forgotten votes",
        };
        self.line(
            &name(node),
            "start",
            format_args!(
                "boot {boot}, remembers promise {}, decided below {}, {} votes{text}",
                recovery.hard.promised,
                recovery.hard.decided_to,
                recovery.votes.len()
            ),
        );
        let release = self.nodes[node].release_running;
        if recovery.votes.iter().any(|vote| Level::of(&vote.value) > release) {
            return Levels::cannot_read(node, release);
        }
        let next = recovery.next_seq;
        let set_back = self.nodes[node].set_back;
        let gone = match set_back {
            true => 0,
            false => before.saturating_sub(next),
        };
        self.watch.lives().belongs(node, cluster)?;
        self.watch.lives().opened(node, member, recovery.incarnation, gone)?;
        if self.watch.lives().incarnation(node) != member.incarnation {
            self.counts.forgot += 1;
            self.watch.classes().forgot(node);
            if !self.chaos.may_forget(node) {
                let detail = format!("node {} forgot votes without cause: {lost:?}", node + 1);
                return Err(Violation::new("durability", detail));
            }
        }
        if !set_back {
            // Skipped while a test has set back the folder. Once the test clears the flag, the next
            // start must have a higher number than all earlier ones.
            self.watch.lives().check_start(node, boot, member.incarnation)?;
            self.watch.promises().recovered(member, recovery.hard.promised)?;
        }
        for batch in scan(&self.nodes[node].disk, before..next) {
            self.watch.released(node, self.nodes[node].id(), &batch)?;
        }
        self.watch.goes_on_at(node, next.max(before));
        if next < before {
            let detail = format!("node {} lost batches {next}..{before} of its log", node + 1);
            if self.chaos.may_forget(node) {
                self.watch.goes_on_at(node, next);
            } else {
                return Err(Violation::new("durability", detail));
            }
        }
        for peer in (0..self.nodes.len()).filter(|peer| *peer != node) {
            let wait = self.dice.between(50, 3000);
            self.schedule_after(wait, Event::Dial(node, peer));
        }
        self.plan_disk(node);
        self.schedule_turn(node);
        Ok(())
    }

    /// Handles a process that was killed in the middle of a disk change. The process restarts soon.
    pub(crate) fn handle_death(&mut self, node: usize) {
        if self.nodes[node].running.is_some() && !self.nodes[node].disk.is_alive() {
            self.kill_process(node, 100);
            self.starts_within(node, 100_000);
        }
    }

    pub(super) fn disk_done(&mut self, node: usize, life: u64, operation: u64) -> Verdict {
        use quorate_log::disk::{Fault as DiskFault, PendingKind};
        let process = &mut self.nodes[node];
        if process.life != life || !process.planned.remove(&operation) {
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
        let fails = write && std::mem::take(&mut process.disk_error);
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
            self.line(&name(node), "disk", format_args!("a write fails at {}", pending.at));
        } else if write {
            let batch = crate::disk::read(&self.nodes[node].disk, pending.at);
            let detail = match &batch {
                Some(batch) => format!(
                    "batch {}, {} records, is on stable storage",
                    batch.seq,
                    batch.records.len()
                ),
                None => format!("wrote at {} what is no batch", pending.at),
            };
            self.line(&name(node), "disk", format_args!("{detail}"));
            if let Some(batch) = batch {
                self.watch.wrote(node, self.nodes[node].id(), batch)?;
            }
        }
        self.handle_death(node);
        self.schedule_turn(node);
        Ok(())
    }

    /// Schedules the completion of newly submitted disk operations.
    pub(crate) fn plan_disk(&mut self, node: usize) {
        let (least, most) = self.settings.disk_us;
        let process = &self.nodes[node];
        let (life, factor) = (process.life, process.disk_factor);
        let fresh: Vec<u64> = process
            .disk
            .pending()
            .iter()
            .map(|pending| pending.id)
            .filter(|id| !process.planned.contains(id))
            .collect();
        for operation in fresh {
            self.nodes[node].planned.insert(operation);
            let wait = self.dice.between(least, most) * factor;
            self.schedule_after(wait, Event::Disk { node, life, operation });
        }
    }

    pub(super) fn dial(&mut self, a: usize, b: usize) {
        if self.network.connection(a, b).is_some() {
            return;
        }
        match self.admission(a, b) {
            Admission::Refused => return,
            Admission::Unknown => {
                let wait = self.dice.between(5_000, 30_000);
                return self.schedule_after(wait, Event::Dial(a, b));
            }
            Admission::LetIn => {}
        }
        let ready = |node: &Node| node.running.is_some() && !node.paused;
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
            let life = self.nodes[node].life;
            self.arrive(node, life, Arrival::PeerUp { peer, connection, member, boot, levels });
        }
        self.line("net", "connect", format_args!("{} and {}", a + 1, b + 1));
    }

    /// Decides whether two nodes connect, by the rules of the production network. The node with the
    /// higher id connects to the nodes in its table, and the other one admits any node that was not
    /// removed, known or not ([member-3]).
    fn admission(&self, a: usize, b: usize) -> Admission {
        let (low, high) = pair(a, b);
        let book = |node: usize| {
            let running = self.nodes[node].running.as_ref();
            running.map(|running| running.host.identity().book())
        };
        let removed = |node, other: usize| {
            let id = self.nodes[other].id();
            book(node).is_some_and(|book| book.removed.contains(&id))
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
        if unknown { Admission::Unknown } else { Admission::LetIn }
    }

    /// Follows changes of a node's member table. Removed nodes are disconnected after a while.
    pub(crate) fn disconnect_removed(&mut self, node: usize) {
        let Some(running) = &mut self.nodes[node].running else {
            return;
        };
        if running.host.take_table().is_none() {
            return;
        }
        let removed = running.host.identity().book().removed.clone();
        for peer in self.network.peers(node) {
            if removed.contains(&self.nodes[peer].id()) {
                self.schedule_after(PARTING_US, Event::Part { node, peer });
            }
        }
    }

    /// Disconnects a removed peer, which has had time to learn the decisions.
    pub(super) fn part(&mut self, node: usize, peer: usize) {
        if self.admission(node, peer) == Admission::Refused {
            self.break_connection(node, peer, 100);
        }
    }

    /// Breaks the connection between two nodes. Each node notices within `late_us` microseconds.
    pub(crate) fn break_connection(&mut self, a: usize, b: usize, late_us: u64) {
        let Some(connection) = self.network.connection(a, b) else {
            return;
        };
        self.network.disconnect(a, b);
        self.counts.resets += 1;
        for (node, peer) in [(a, b), (b, a)] {
            let life = self.nodes[node].life;
            let wait = self.dice.below(late_us + 1);
            self.schedule_after(wait, Event::Down { node, life, peer, connection });
        }
        let (a, b) = pair(a, b);
        self.line("net", "reset", format_args!("{} and {}", a + 1, b + 1));
        let wait = late_us + self.dice.between(1_000, 20_000);
        self.schedule_after(wait, Event::Dial(a, b));
    }

    pub(super) fn block(&mut self, from: usize, to: usize, blocked: bool) {
        self.network.set_blocked(from, to, blocked);
        let word = if blocked { "blocked" } else { "free" };
        self.line("net", word, format_args!("{} to {}", from + 1, to + 1));
        if !blocked {
            for lane in 0..2 {
                let link = Link { from, to, lane };
                if let Some(at) = self.network.next_arrival(link) {
                    self.schedule_at(at, Event::Piece(link));
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
        self.orphan_device(node);
        self.watch.ended(node);
        self.line(&name(node), "killed", format_args!(""));
        self.drop_clients(node);
    }

    /// Notifies the node's clients that their connections are broken.
    pub(crate) fn drop_clients(&mut self, node: usize) {
        self.drop_streamers(node);
        for client in 0..self.clients.len() {
            if let Some((connection, at)) = self.clients[client].connection
                && at == node
            {
                let wait = self.dice.between(50, 1000);
                self.schedule_after(wait, Event::ClientDown { client, connection });
            }
        }
    }

    pub(super) fn resume(&mut self, node: usize, life: u64) {
        if self.nodes[node].life == life && self.nodes[node].paused {
            self.nodes[node].paused = false;
            self.line(&name(node), "resumes", format_args!(""));
            self.schedule_turn(node);
        }
    }
}
