//! What nodes tell each other about their logs, and what a node does whose log has less than it
//! said ([lie-1] to [lie-5]).

use quorate_core::{
    node_id::{Member, NodeId},
    witness::Written,
};
use quorate_log::disk::Disk;
use quorate_wire::{Frame, Lane};

use super::Replica;
use crate::{outbox::Outbox, plane::Plane, service::StateMachine};

impl<D: Disk, S: StateMachine> Replica<D, S> {
    /// [lie-1] What frames say of this node's log; 0, nothing, while somebody is connected who
    /// would not understand.
    pub(super) fn says_of_log(&self) -> u64 {
        match self.rising.all_witness() {
            true => self.storing.log().whole_to(),
            false => 0,
        }
    }

    /// [lie-2] A peer's log is that far. Whether what it says counts: not if it said before that it
    /// has more, which it is told ([lie-5]).
    pub(super) fn believes(&mut self, from: Member, to: u64, plane: &mut dyn Plane) -> bool {
        if !self.peers.has_member(from) {
            return true;
        }
        let (peers, table) = (&self.peers, self.applying.membership().table());
        self.witness.keep(|node| peers.has(node) || table.known(node).is_some());
        let Err(written) = self.witness.hear(from, to) else {
            return true;
        };
        self.counters.frames_mismatched += 1;
        let frame = Frame::Recalled { written };
        let mut out = Outbox::new(self.member, plane, &mut self.counters);
        out.send(from.node, Lane::Control, &frame);
        false
    }

    /// [lie-3] What this node said of its log, as far as this one remembers.
    pub fn recall(&self, node: NodeId) -> Written {
        self.witness.recall(node).unwrap_or_default()
    }

    /// [lie-5] A peer remembers what this node said of its log over an earlier connection.
    pub(super) fn on_recalled(&mut self, by: NodeId, remembered: Written) {
        let own =
            Written { incarnation: self.member.incarnation, to: self.storing.log().whole_to() };
        let table = self.applying.membership().table();
        // Guests have heard nothing of this node.
        if !own.fell_behind(remembered) || table.known(by).is_none() {
            return;
        }
        self.fell_behind = self.fell_behind.max(Some(remembered));
        self.fail_storage(format!(
            "the disk lost the end of it: node {by} remembers write {} of incarnation {}, and the log of incarnation {} \
             ends with write {}. Restart this node: it will learn without a vote",
            remembered.to, remembered.incarnation.0, own.incarnation.0, own.to
        ));
    }

    /// What this node said of its log and has not: the next process is another incarnation, and the
    /// folder has to say so, durably.
    pub fn take_fell_behind(&mut self) -> Option<Written> {
        self.fell_behind.take()
    }
}
