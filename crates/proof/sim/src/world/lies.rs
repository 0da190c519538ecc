//! A disk that lies: it acknowledged the end of a log, and has it no more when the node starts.
//! What is left is a sound, shorter log. It happens to one node of a run, and only as far as
//! somebody who can be asked then remembers more: of anything else [lie-4] promises nothing.

use quorate_core::{node_id::NodeId, record::Class, witness::Written};

use super::{Event, World, name};
use crate::disk::writes_from;

/// Log writes that are lost at most.
const LOST_MAX: u64 = 20;

impl World {
    /// The next time that a disk loses what it acknowledged, if any does in this run.
    pub(super) fn plan_lie(&mut self) {
        if let Some(mean_us) = self.settings.lies_us {
            let wait = self.chaos.lie_dice.interval(mean_us);
            self.after(wait, Event::Lie);
        }
    }

    /// The power of a node goes, and its disk lied.
    pub(super) fn lie(&mut self) {
        if !self.chaos.goes_on() {
            return;
        }
        self.plan_lie();
        let durable = self.settings.class == Class::Durable && self.settings.budget() > 0;
        let running = |node: &usize| durable && self.nodes[*node].running.is_some();
        let Some(node) = self.forgetful().filter(running) else {
            return;
        };
        self.kill(node, 100);
        self.nodes[node].lies = true;
        let down = self.chaos.lie_dice.between(500, 200_000);
        self.after(down, Event::Start(node));
    }

    /// A node that may forget its votes in this run.
    pub fn forgetful(&self) -> Option<usize> {
        (0..self.settings.nodes).find(|node| self.chaos.may_forget(*node))
    }

    /// A node starts, whose disk may have lied, and others answer that of its log.
    pub(super) fn lose_end(&mut self, node: usize, recalled: Option<(NodeId, Written)>) {
        let process = &mut self.nodes[node];
        // A start that does not come through is made again, when nobody may be there to be asked.
        if !std::mem::take(&mut process.lies) || process.dies_after.is_some() {
            return;
        }
        process.disk.set_capacity(None);
        let own = process.member().incarnation;
        // Of what nobody remembers nothing is promised.
        let heard = |remembered: &Written| remembered.incarnation == own && remembered.to > 0;
        let Some((_, remembered)) = recalled.filter(|(_, remembered)| heard(remembered)) else {
            return;
        };
        let lost = self.chaos.lie_dice.between(1, LOST_MAX).min(remembered.to);
        let from = remembered.to - lost + 1;
        self.forget_from(node, from);
    }

    /// The disk of this node has no log write from this one on.
    pub fn forget_from(&mut self, node: usize, from: u64) {
        let disk = self.nodes[node].disk.clone();
        for (place, bytes) in writes_from(&disk, from) {
            disk.put(place, &vec![0; bytes]);
        }
        self.counts.lies += 1;
        let what = format_args!("its disk has lost write {from} and all behind it");
        self.line(&name(node), "log", what);
    }
}
