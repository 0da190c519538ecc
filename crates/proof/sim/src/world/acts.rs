//! The two acts of a run: first faults of every kind, then full recovery.

use quorate_core::{configuration::Voter, effect::Role};

use super::{Event, World};
use crate::{
    check::{Verdict, Violation, linearizable},
    faults::LossScope,
    node::RunningProcess,
    workload::Client,
};

/// Virtual time within which the cluster must recover in act two, in microseconds.
const RECOVERY_US: u64 = 60_000_000;
/// Number of events within which the cluster must recover in act two, in case virtual time does not
/// advance.
const RECOVERY_EVENTS: u64 = 1_000_000;

impl World {
    // --- Acts.

    /// Runs act one: up to `events` events, faults included.
    pub fn run_act_one(&mut self, events: u64) -> Verdict {
        for _ in 0..events {
            if !self.step_event()? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Runs act two: faults stop, and the cluster must recover with every acknowledged write.
    pub fn run_act_two(&mut self) -> Verdict {
        self.stop_faults();
        if self.settings.loss_scope == LossScope::Beyond {
            // A node that is down discovers at its next start that it forgot its votes.
            self.run_for(1_000_000)?;
            if self.has_lost_quorum() {
                return self.check_standstill();
            }
        }
        let whole = self.check_recovery();
        let stuck = whole.as_ref().is_err_and(|violation| violation.property == "convergence");
        if stuck && self.settings.loss_scope == LossScope::Beyond && self.has_lost_quorum() {
            // The group may have lost its quorum meanwhile: damage that is detected late makes
            // nodes forget late.
            return self.check_standstill();
        }
        if stuck && self.has_lost_value() {
            return linearizable::check_verdict(self.client_records.history.operations());
        }
        whole
    }

    /// [disk-8] Returns whether a decided value is permanently lost: no node can read it, the nodes
    /// that lost it report the loss, and the remaining nodes are fewer than a quorum or are led by
    /// a node that lost it. Such a group can only wait.
    fn has_lost_value(&self) -> bool {
        let replicas = || self.nodes.iter().filter_map(|node| node.running.as_ref());
        let lost = |running: &&RunningProcess| running.replica().first_lost_slot().is_some();
        let first = replicas().filter_map(|running| running.replica().first_lost_slot());
        let Some((slot, _)) = first.min() else {
            return false;
        };
        let whole = replicas().filter(|running| !lost(running));
        let leads = |running: &RunningProcess| running.replica().node().role() == Role::Leader;
        let said = |running: &RunningProcess| {
            let error = running.replica().error();
            error.is_some_and(|error| error.contains("none of the other nodes has it"))
        };
        whole.clone().all(|running| running.replica().node().decided_to() <= slot)
            && (whole.count() <= self.settings.founding_member_count / 2
                || replicas().any(|running| lost(&running) && leads(running)))
            && replicas().filter(lost).all(said)
    }

    fn check_recovery(&mut self) -> Verdict {
        self.run_until("clients are answered", |world| {
            world.clients.iter().all(|client| !client.is_busy())
        })?;
        self.check_frame_clients_answered()?;
        let keys = self.client_records.exactly_once.counter_keys();
        let auditor = Client::new_final_reader(self.clients.len(), self.dice.fork(), keys);
        self.clients.push(auditor);
        self.schedule_after(1, Event::ClientActs(self.clients.len() - 1));
        self.run_until("the auditor has read every counter", |world| {
            world.clients.iter().all(|client| !client.is_busy())
        })?;
        self.run_until("no plan is in progress", Self::has_no_plan)?;
        // [aux-1] An auxiliary neither executes nor accepts commands, and has no state to compare.
        let serves = |node: &usize| self.is_group_node(*node) && !self.settings.is_auxiliary(*node);
        let serving: Vec<usize> = (0..self.nodes.len()).filter(serves).collect();
        for node in &serving {
            let visitor = Client::new_one_writer(self.clients.len(), self.dice.fork(), *node);
            self.clients.push(visitor);
            self.schedule_after(1, Event::ClientActs(self.clients.len() - 1));
        }
        self.run_until("every node has taken a write", |world| {
            let mut clients = world.clients.iter();
            clients.all(|client| !client.is_busy() || world.is_retired(client.only_node))
        })?;
        self.check_streams_recovery(&serving)?;
        self.run_until("all nodes have applied the same", Self::is_caught_up)?;
        self.check_scrubs_repair_all()?;
        self.run_until("all nodes have applied the same", Self::is_caught_up)?;
        for node in self.nodes.iter().filter(|node| self.is_group_node(node.index)) {
            let running = node.running.as_ref().expect("healed");
            if running.replica().counters().alarms > 0 {
                let detail = format!("node {}: {:?}", node.index + 1, running.replica().error());
                return Err(Violation::new("alarm", detail));
            }
        }
        self.check_final_state()
    }

    pub(crate) fn check_final_state(&mut self) -> Verdict {
        let mut digests = Vec::new();
        for node in self.nodes.iter().filter(|node| self.is_group_node(node.index)) {
            if self.settings.is_auxiliary(node.index) {
                continue;
            }
            let running = node.running.as_ref().expect("healed");
            let replica = running.replica();
            let state = (replica.service().state_digest(), replica.sessions());
            let group = (replica.group().clone(), replica.node().eras().clone());
            digests.push((node.index, (state, group)));
        }
        if let Some((odd, _)) = digests.iter().find(|(_, digest)| *digest != digests[0].1) {
            let detail = format!("node {} differs from the first in the end", odd + 1);
            return Err(Violation::new("prefix", detail));
        }
        linearizable::check_verdict(self.client_records.history.operations())
    }

    /// Returns whether every node of the group runs and, unless it is an auxiliary, has applied all
    /// slots that the most advanced node knows to be decided.
    pub fn is_caught_up(&self) -> bool {
        let farthest = self.nodes.iter().filter_map(|node| node.running.as_ref());
        let farthest = farthest.map(|running| running.replica().node().decided_to()).max();
        let members = self.nodes.iter().filter(|node| self.is_group_node(node.index));
        members.into_iter().all(|node| {
            let running = node.running.as_ref();
            let spared = self.settings.is_auxiliary(node.index);
            running
                .is_some_and(|running| spared || Some(running.replica().applied_to()) == farthest)
        })
    }

    /// Processes events until `holds` returns true. Fails if that takes too long.
    pub fn run_until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) -> Verdict {
        let deadline = self.now.plus_us(RECOVERY_US);
        for _ in 0..RECOVERY_EVENTS {
            if holds(self) {
                return Ok(());
            }
            if self.now > deadline || !self.step_event()? {
                break;
            }
        }
        let mut detail = format!("not in time: {what};");
        if let Some(configuration) = self.configuration() {
            detail += &format!("\n    {configuration:?}");
        }
        for node in &self.nodes {
            let state = match &node.running {
                None if node.is_retired => "retired".to_owned(),
                None => "down".to_owned(),
                Some(running) => format!(
                    "{:?}, {:?} of {:?} in {}, decided {}, applied {}, lacks {:?} of streams, {:?}; disk {:?}, reads idle {}, scrubs {:?}, {:?}",
                    running.replica().members(node.monotonic_time(self.now)).plan,
                    running.replica().node().role(),
                    running.replica().node().leader(),
                    running.replica().node().ballot(),
                    running.replica().node().decided_to(),
                    running.replica().applied_to(),
                    running.replica().stream_bytes_missing(),
                    running.replica().error(),
                    node.disk.pending(),
                    running.replica().log().reads_idle(),
                    running.replica().scrub_status(),
                    running.replica().counters(),
                ),
            };
            detail += &format!("\n    node {}: {state}", node.index + 1);
        }
        for client in self.clients.iter().filter(|client| client.is_busy()) {
            detail += &format!(
                "\n    client {} ({:?}) on {:?}",
                client.index, client.kind, client.connection
            );
        }
        for streamer in self.stream_clients.iter().filter(|streamer| streamer.is_busy()) {
            detail += &format!("\n    {streamer:?}");
        }
        Err(Violation::new("convergence", detail))
    }

    /// Returns whether the nodes that still remember their votes are too few for a quorum.
    fn has_lost_quorum(&self) -> bool {
        let remembers = |voter: &&Voter| {
            let mut nodes = self.nodes.iter();
            nodes.any(|node| node.member() == voter.member)
        };
        let Some(configuration) = self.configuration() else {
            return false;
        };
        let members = configuration.members();
        let weight = |voter: &Voter| u64::from(voter.weight);
        let left: u64 = members.iter().filter(remembers).map(weight).sum();
        left * 2 <= configuration.weight()
    }

    /// Checks a volatile group in which too few nodes for a quorum remember their votes. The group
    /// executes no more writes, and nodes that forgot do not vote ([class-5]). Requests before the
    /// loss may have been answered correctly.
    fn check_standstill(&mut self) -> Verdict {
        self.run_for(2_000_000)?;
        let answered = self.node_checkers.command_count();
        self.run_for(3_000_000)?;
        if self.node_checkers.command_count() != answered {
            return Err(Violation::new("durability", "a group that forgot goes on executing"));
        }
        for node in &self.nodes {
            let running = node.running.as_ref().expect("healed");
            let status = running.replica().status(node.monotonic_time(self.now));
            // [volatile-2] A node readmitted before the loss remembers all its actions under its
            // current member identity.
            let configuration = running.replica().node().configuration();
            let taken_back = configuration.position(node.member()).is_some();
            let forgot = node.member().incarnation.0 > 0 && !taken_back;
            if forgot && status.role != Role::Learner {
                let detail =
                    format!("node {} forgot votes and is {:?}", node.index + 1, status.role);
                return Err(Violation::new("durability", detail));
            }
        }
        linearizable::check_verdict(self.client_records.history.operations())
    }

    /// Processes the events of the next `us` microseconds.
    pub fn run_for(&mut self, us: u64) -> Verdict {
        let until = self.now.plus_us(us);
        while self.schedule.next_time().is_some_and(|at| at <= until) {
            self.step_event()?;
        }
        self.now = self.now.max(until);
        Ok(())
    }
}
