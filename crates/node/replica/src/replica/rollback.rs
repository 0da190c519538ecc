//! Messages between nodes about their logs and starts, and handling of a data folder that contains
//! less than the node had stated ([lie-1] to [lie-5]).

use quorate_core::{
    node_id::{Member, NodeId},
    slot::Slot,
    witness::{Memory, RollbackDetector, Written},
};
use quorate_log::disk::Disk;
use quorate_wire::{Frame, Lane};

use super::Replica;
use crate::{
    outbox::Outbox,
    ports::{plane::Plane, service::StateMachine},
};

/// Evidence that the log of this node or another one was set back.
#[derive(Debug, Default)]
pub(super) struct Rollback {
    /// Statements that other nodes made about their logs.
    detector: RollbackDetector,
    /// Reminders to be sent to nodes that just connected ([lie-3]).
    reminders: Vec<(NodeId, Memory)>,
    /// Earlier statement of this node that its log does not fulfil ([lie-5]).
    fell_behind: Option<Memory>,
    /// End of the slots that were searched for names assigned by a later process of this node
    /// ([lie-7]).
    names_seen_to: Slot,
}

impl<D: Disk, S: StateMachine> Replica<D, S> {
    /// [lie-1] Returns the end of this node's log to state in frames. While a connected node would
    /// not understand such a statement, returns 0, which states nothing.
    pub(super) fn says_of_log(&self) -> u64 {
        match self.rising.all_witness() {
            true => self.storing.log().whole_to(),
            false => 0,
        }
    }

    /// [lie-3] Handles a new connection to a node. Queues a reminder of that node's statements over
    /// earlier connections. The reminder is sent before any other frame.
    pub(super) fn meet(&mut self, member: Member, boot: u32) {
        self.forget_strangers();
        let memory = self.rollback.detector.meet(member, boot);
        if self.rising.may_remind(member.node) && memory != Memory::default() {
            self.rollback.reminders.push((member.node, memory));
        }
    }

    /// Sends the reminders that are due.
    pub(super) fn remind(&mut self, plane: &mut dyn Plane) {
        for (node, memory) in std::mem::take(&mut self.rollback.reminders) {
            let mut out = Outbox::new(self.member, plane, &mut self.counters);
            out.send(node, Lane::Control, &Frame::Recalled(memory));
        }
    }

    /// [lie-2] Records the end of a peer's log. Returns whether the statement counts. It does not
    /// count if the peer stated a longer log before; the peer is then reminded of the longer log
    /// ([lie-5]).
    pub(super) fn believes(&mut self, from: Member, to: u64, plane: &mut dyn Plane) -> bool {
        if !self.peers.has_member(from) {
            return true;
        }
        self.forget_strangers();
        let Err(memory) = self.rollback.detector.hear(from, to) else {
            return true;
        };
        self.counters.frames_mismatched += 1;
        self.rollback.reminders.push((from.node, memory));
        self.remind(plane);
        false
    }

    fn forget_strangers(&mut self) {
        let (peers, table) = (&self.peers, self.applying.membership().table());
        self.rollback.detector.keep(|node| peers.has(node) || table.known(node).is_some());
    }

    /// [lie-3] Returns what this node remembers about another node's log and starts.
    pub fn recall(&self, node: NodeId) -> Memory {
        self.rollback.detector.recall(node)
    }

    /// Returns the log end and start number of this node's folder, as far as this process knows.
    fn own_memory(&self) -> Memory {
        let to = self.storing.log().whole_to();
        let written = Written { incarnation: self.member.incarnation, to };
        Memory { written, boot: self.boot }
    }

    /// [lie-5] Handles another node's memory of this node's starts, and of its statements about its
    /// log over an earlier connection. The other node belongs to this cluster, whether it is known
    /// here or not.
    pub(super) fn on_recalled(&mut self, by: NodeId, remembered: Memory) {
        let own = self.own_memory();
        if own.fell_behind(remembered) {
            let why = format!("node {by} remembers {remembered}, and this node has {own}");
            self.fall_behind(remembered, &why);
        }
    }

    /// [lie-7] Searches for names assigned by a later process of this node. If there are any, this
    /// folder is an old copy, whether or not another node remembers its log.
    pub(super) fn look_for_later_names(&mut self) {
        let applied_to = self.applying.applied_to();
        if std::mem::replace(&mut self.rollback.names_seen_to, applied_to) == applied_to {
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
        // [lie-4] The next process checks again, and refuses to start if a node still remembers
        // more.
        let passed = if own.may_pass(remembered) { remembered } else { own };
        let before = self.rollback.fell_behind.unwrap_or(own);
        self.rollback.fell_behind = Some(before.max(passed));
        self.fail_storage(format!(
            "the disk lost the end of it, or the folder is an old copy: {why}. Restart this node: it \
             will learn without a vote"
        ));
    }

    /// Takes the statement about its log that this node cannot fulfil, if any. The next process is
    /// another incarnation. The folder must record this durably.
    pub fn take_fell_behind(&mut self) -> Option<Memory> {
        self.rollback.fell_behind.take()
    }
}
