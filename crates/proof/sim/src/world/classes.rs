//! Clients that request a class other than the group's ([class-2]). A durable group acknowledges
//! their commands once a quorum has them in memory, a volatile group once a quorum has them on
//! disk. Every command is unique, and only the node that received it retries it.

use quorate_core::{configuration::Voter, level::Level, record::Class, slot::Slot};
use quorate_node::host::ClientHost as _;

use super::{Event, World};
use crate::{
    check::{Verdict, classes::index, is_quorum},
    front::{ClassEvent, class_command},
    ids::hash,
    node::Arrival,
};

impl World {
    /// Schedules the next command of another class, if the run has any.
    pub(super) fn plan_class_request(&mut self) {
        if let Some(mean_us) = self.settings.class_request_interval_us {
            let wait = self.fault_state.class_dice.interval(mean_us);
            self.schedule_after(wait, Event::ClassRequest);
        }
    }

    /// Sends a command of another class to a random node.
    pub(super) fn send_class_request(&mut self) {
        if !self.fault_state.faults_go_on() {
            return;
        }
        self.plan_class_request();
        if self.waits_for_level() {
            return;
        }
        let node = self.fault_state.class_dice.index(self.nodes.len());
        let process = &self.nodes[node];
        if process.running.is_none() {
            return;
        }
        self.counts.class_requests += 1;
        let number = self.counts.class_requests;
        let losses = self.losses_max();
        self.node_checkers.classes().register_request(hash(&class_command(number)), losses);
        let early = self.settings.class == Class::Durable;
        let life = self.nodes[node].start_count;
        self.deliver_arrival_to(
            node,
            life,
            Arrival::ClassRequest { number, acknowledge_in_memory: early },
        );
    }

    /// Returns whether faults are suspended until the feature level supports commands of another
    /// class.
    pub(super) fn waits_for_level(&mut self) -> bool {
        self.settings.class_request_interval_us.is_some()
            && !self.node_checkers.levels().was_used(Level::NEWEST)
    }

    /// Returns an upper bound for the number of times that a memory or a disk lost contents.
    pub(super) const fn losses_max(&self) -> u64 {
        let counts = &self.counts;
        counts.kills
            + counts.kills_at_start
            + counts.clean_stops
            + counts.disk_errors
            + counts.rotted_blocks
            + counts.stray_writes
            + counts.data_losses
            + counts.new_incarnations
    }

    /// Checks the acknowledgements of commands of another class that a node sent in this turn.
    pub(super) fn check_class_events(&mut self, node: usize) -> Verdict {
        let losses = self.losses_max();
        let Some(running) = &mut self.nodes[node].running else {
            return Ok(());
        };
        let told = running.host.front_mut().classes.take_class_events();
        let running = self.nodes[node].running.as_ref().expect("it runs");
        let replica = running.host.replica();
        let snapshot = replica.snapshot().map_or(Slot(0), |own| own.slot);
        self.node_checkers.classes().record_snapshot(node, snapshot);
        for told in told {
            match told {
                ClassEvent::InMemory(number, slot) => {
                    self.counts.class_in_memory += 1;
                    let command = hash(&class_command(number));
                    let configuration = replica.node().configuration();
                    let vote = replica.node().acceptor().vote(slot).map(|vote| vote.value);
                    let has = |voter: &Voter| {
                        let running = self.nodes[index(voter)].running.as_ref();
                        running.map(|running| running.replica().node()).is_some_and(|node| {
                            let same = node.acceptor().vote(slot).map(|vote| vote.value) == vote;
                            node.decided_to() > slot || same
                        })
                    };
                    // Once this node has decided the slot, a quorum has voted for it.
                    let decided = replica.node().decided_to() > slot;
                    let quorum = decided || is_quorum(configuration, has);
                    let classes = self.node_checkers.classes();
                    classes.check_in_memory(command, slot, quorum, losses)?;
                }
                ClassEvent::Executed(number) if self.settings.class == Class::Volatile => {
                    self.counts.class_on_disk += 1;
                    let command = hash(&class_command(number));
                    let configuration = replica.node().configuration();
                    self.node_checkers.classes().check_on_disk(command, configuration)?;
                }
                ClassEvent::Executed(_) => {}
            }
        }
        Ok(())
    }
}
