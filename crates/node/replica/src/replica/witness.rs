//! Messages between nodes about their logs and starts, and handling of a data folder that has less
//! than the node had stated ([lie-1] to [lie-5]).

use quorate_core::{
    node_id::{Member, NodeId},
    witness::{Memory, Written},
};
use quorate_log::disk::Disk;
use quorate_wire::{Frame, Lane};

use super::Replica;
use crate::{outbox::Outbox, plane::Plane, service::StateMachine};

impl<D: Disk, S: StateMachine> Replica<D, S> {
    /// [lie-1] Returns the end of this node's log for frames; 0, which states nothing, while a node
    /// is connected that would not understand it.
    pub(super) fn says_of_log(&self) -> u64 {
        match self.rising.all_witness() {
            true => self.storing.log().whole_to(),
            false => 0,
        }
    }

    /// [lie-3] Handles a new connection to a node. Queues a reminder of its statements over earlier
    /// connections, which is sent before anything else.
    pub(super) fn meet(&mut self, member: Member, boot: u32) {
        self.forget_strangers();
        let memory = self.witness.meet(member, boot);
        if self.rising.may_remind(member.node) && memory != Memory::default() {
            self.reminders.push((member.node, memory));
        }
    }

    /// Sends the reminders that are due.
    pub(super) fn remind(&mut self, plane: &mut dyn Plane) {
        for (node, memory) in std::mem::take(&mut self.reminders) {
            let mut out = Outbox::new(self.member, plane, &mut self.counters);
            out.send(node, Lane::Control, &Frame::Recalled(memory));
        }
    }

    /// [lie-2] Records the end of a peer's log. Returns whether the statement counts: it does not
    /// if the peer stated a longer log before, of which it is reminded ([lie-5]).
    pub(super) fn believes(&mut self, from: Member, to: u64, plane: &mut dyn Plane) -> bool {
        if !self.peers.has_member(from) {
            return true;
        }
        self.forget_strangers();
        let Err(memory) = self.witness.hear(from, to) else {
            return true;
        };
        self.counters.frames_mismatched += 1;
        self.reminders.push((from.node, memory));
        self.remind(plane);
        false
    }

    fn forget_strangers(&mut self) {
        let (peers, table) = (&self.peers, self.applying.membership().table());
        self.witness.keep(|node| peers.has(node) || table.known(node).is_some());
    }

    /// [lie-3] Returns what this node remembers about another node's log and starts.
    pub fn recall(&self, node: NodeId) -> Memory {
        self.witness.recall(node)
    }

    /// Returns the log end and start of this node's folder, as far as this process knows.
    fn own_memory(&self) -> Memory {
        let to = self.storing.log().whole_to();
        let written = Written { incarnation: self.member.incarnation, to };
        Memory { written, boot: self.boot }
    }

    /// [lie-5] Handles another node's memory of this node's statements about its log over an
    /// earlier connection, and of its starts. The other node belongs to this cluster, whether it is
    /// known here or not.
    pub(super) fn on_recalled(&mut self, by: NodeId, remembered: Memory) {
        let own = self.own_memory();
        if own.fell_behind(remembered) {
            let why = format!("node {by} remembers {remembered}, and this node has {own}");
            self.fall_behind(remembered, &why);
        }
    }

    /// [lie-7] Searches for names assigned by a later process of this node. If there are any, its
    /// folder is an old copy, whether or not a node remembers its log.
    pub(super) fn look_for_later_names(&mut self) {
        let applied_to = self.applying.applied_to();
        if std::mem::replace(&mut self.names_seen_to, applied_to) == applied_to {
            return;
        }
        let node = self.member.node;
        let given = self.proposing.own().registered();
        let found = self.applying.sessions().last_of(node);
        let later = found
            .into_iter()
            .zip(given)
            .filter_map(|(found, given)| found.filter(|name| *name > (self.boot, given)));
        if let Some((boot, _)) = later.max() {
            let (own, remembered) = (self.boot, Memory { boot, ..self.own_memory() });
            let why =
                format!("start {boot} of this node registered sessions, and this is start {own}");
            self.fall_behind(remembered, &why);
        }
    }

    fn fall_behind(&mut self, remembered: Memory, why: &str) {
        let own = self.own_memory();
        // [lie-4] The next process asks again, and refuses to start if that is still remembered.
        let passed = if own.may_pass(remembered) { remembered } else { own };
        let before = self.fell_behind.unwrap_or(own);
        self.fell_behind = Some(before.max(passed));
        self.fail_storage(format!(
            "the disk lost the end of it, or the folder is an old copy: {why}. Restart this node: it \
             will learn without a vote"
        ));
    }

    /// Returns the statement about its log that this node cannot fulfil. The next process is
    /// another incarnation, which the folder must record durably.
    pub fn take_fell_behind(&mut self) -> Option<Memory> {
        self.fell_behind.take()
    }
}
