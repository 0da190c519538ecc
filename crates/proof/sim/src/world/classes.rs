//! Clients that request a class other than the group's ([class-2]). A durable group acknowledges
//! their commands once a quorum has them in memory, a volatile group once a quorum has them on
//! disk. Every command is unique, and only the node that received it retries it.

use quorate_core::{configuration::Voter, level::Level, record::Class, slot::Slot};
use quorate_node::host::ClientSide as _;

use super::{Event, World};
use crate::{
    check::{Verdict, classes::index, is_quorum},
    front::{ClassEvent, class_command},
    ids::hash,
    node::Arrival,
};

impl World {
    /// Schedules the next command of another class, if the run has any.
    pub(super) fn plan_class(&mut self) {
        if let Some(mean_us) = self.settings.classes_us {
            let wait = self.chaos.class_dice.interval(mean_us);
            self.schedule_after(wait, Event::Class);
        }
    }

    /// Sends a command of another class to a random node.
    pub(super) fn ask_class(&mut self) {
        if !self.chaos.goes_on() {
            return;
        }
        self.plan_class();
        if self.waits_for_level() {
            return;
        }
        let node = self.chaos.class_dice.index(self.nodes.len());
        let process = &self.nodes[node];
        if process.running.is_none() {
            return;
        }
        self.counts.class_asked += 1;
        let number = self.counts.class_asked;
        let losses = self.losses();
        self.watch.classes().register_request(hash(&class_command(number)), losses);
        let early = self.settings.class == Class::Durable;
        let life = self.nodes[node].life;
        self.arrive(node, life, Arrival::Class { number, early });
    }

    /// Returns whether faults are suspended until the feature level supports commands of another
    /// class.
    pub(super) fn waits_for_level(&mut self) -> bool {
        self.settings.classes_us.is_some() && !self.watch.levels().has_seen(Level::NEWEST)
    }

    /// Returns an upper bound for the number of times that a memory or a disk lost contents.
    pub(super) const fn losses(&self) -> u64 {
        let counts = &self.counts;
        counts.kills
            + counts.start_kills
            + counts.stops
            + counts.disk_errors
            + counts.rotted
            + counts.strays
            + counts.lies
            + counts.forgot
    }

    /// Checks the acknowledgements of commands of another class that a node sent in this turn.
    pub(super) fn check_classes(&mut self, node: usize) -> Verdict {
        let losses = self.losses();
        let Some(running) = &mut self.nodes[node].running else {
            return Ok(());
        };
        let told = running.host.front_mut().classes.take_told();
        let running = self.nodes[node].running.as_ref().expect("it runs");
        let replica = running.host.replica();
        let snapshot = replica.snapshot().map_or(Slot(0), |own| own.at);
        self.watch.classes().snapshot(node, snapshot);
        for told in told {
            match told {
                ClassEvent::InMemory(number, slot) => {
                    self.counts.class_early += 1;
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
                    let classes = self.watch.classes();
                    classes.in_memory(command, slot, quorum, losses)?;
                }
                ClassEvent::Executed(number) if self.settings.class == Class::Volatile => {
                    self.counts.class_lasting += 1;
                    let command = hash(&class_command(number));
                    let configuration = replica.node().configuration();
                    self.watch.classes().lasts(command, configuration)?;
                }
                ClassEvent::Executed(_) => {}
            }
        }
        Ok(())
    }
}
