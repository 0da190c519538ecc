//! Detection of a data folder that was set back: nodes state to each other the ends of their logs
//! and their starts, and a folder that contains less than its node had stated is handled here
//! ([lie-1] to [lie-5]).

use quorate_core::{
    node_id::{Member, NodeId},
    slot::Slot,
    witness::{LogEnd, Memory, RollbackDetector},
};
use quorate_log::disk::Disk;
use quorate_wire::{Frame, Lane};

use crate::{
    ports::{plane::Plane, service::StateMachine},
    spine::Spine,
};

/// Evidence that this node's log, or another's, was set back.
#[derive(Debug, Default)]
pub(crate) struct Rollback {
    /// Statements that other nodes made about their logs.
    detector: RollbackDetector,
    /// Reminders to be sent to nodes that just connected ([lie-3]).
    reminders: Vec<(NodeId, Memory)>,
    /// Earlier statement by this node that its log does not fulfil ([lie-5]).
    lost_memory: Option<Memory>,
    /// Slot below which the log was searched for names of a later process of this node ([lie-7]).
    names_checked_to: Slot,
}

impl Rollback {
    /// [lie-3] Handles a new connection to a node. Queues a reminder of that node's earlier
    /// statements, if it `understands` reminders, to be sent before any other frame.
    pub(crate) fn handle_connection<D: Disk, S: StateMachine>(
        &mut self,
        spine: &Spine<D, S>,
        (member, boot): (Member, u32),
        understands: bool,
    ) {
        self.forget_non_members(spine);
        let memory = self.detector.record_connection(member, boot);
        if understands && memory != Memory::default() {
            self.reminders.push((member.node, memory));
        }
    }

    pub(crate) fn send_reminders<D: Disk, S: StateMachine>(
        &mut self,
        spine: &mut Spine<D, S>,
        plane: &mut dyn Plane,
    ) {
        for (node, memory) in std::mem::take(&mut self.reminders) {
            spine.outbox(plane).send(node, Lane::Control, &Frame::Recalled(memory));
        }
    }

    /// [lie-2] Records the log end that a peer stated. Returns `false`, and reminds the peer
    /// ([lie-5]), if it once stated a longer log.
    pub(crate) fn accept_log_statement<D: Disk, S: StateMachine>(
        &mut self,
        spine: &mut Spine<D, S>,
        (from, to): (Member, u64),
        plane: &mut dyn Plane,
    ) -> bool {
        if !spine.peers.has_member(from) {
            return true;
        }
        self.forget_non_members(spine);
        let Err(memory) = self.detector.record_log_end(from, to) else {
            return true;
        };
        spine.counters.frames_mismatched += 1;
        self.reminders.push((from.node, memory));
        self.send_reminders(spine, plane);
        false
    }

    fn forget_non_members<D: Disk, S: StateMachine>(&mut self, spine: &Spine<D, S>) {
        let (peers, table) = (&spine.peers, spine.group());
        self.detector
            .evict_unknown(|node| peers.is_connected(node) || table.entry_of(node).is_some());
    }

    pub(crate) fn memory_of(&self, node: NodeId) -> Memory {
        self.detector.memory_of(node)
    }

    /// [lie-5] Handles another node's memory of this node's starts, and of its statements about its
    /// log over earlier connections. The other node belongs to this cluster, whether it is known
    /// here or not. Returns the reason if this node must stop voting.
    pub(crate) fn on_recalled<D: Disk, S: StateMachine>(
        &mut self,
        spine: &Spine<D, S>,
        by: NodeId,
        remembered: Memory,
    ) -> Option<String> {
        let own = own_memory(spine);
        own.fell_behind(remembered).then(|| {
            let why = format!("node {by} remembers {remembered}, and this node has {own}");
            self.record_lost_memory(own, remembered, &why)
        })
    }

    /// [lie-7] Searches for names assigned by a later process of this node. If there are any, this
    /// folder is an old copy, even if no other node remembers its log. Returns the reason if this
    /// node must stop voting.
    pub(crate) fn find_later_names<D: Disk, S: StateMachine>(
        &mut self,
        spine: &Spine<D, S>,
    ) -> Option<String> {
        let applied_to = spine.applying.applied_to();
        if std::mem::replace(&mut self.names_checked_to, applied_to) == applied_to {
            return None;
        }
        let (node, own) = (spine.identity.member.node, spine.identity.boot);
        let given = spine.proposing.own_origin().registration_numbers();
        let found = spine.applying.sessions().last_registrations(node);
        let later = found
            .into_iter()
            .zip(given)
            .filter_map(|(found, given)| found.filter(|name| *name > (own, given)));
        let (boot, _) = later.max()?;
        let memory = own_memory(spine);
        let why = format!("start {boot} of this node registered sessions, and this is start {own}");
        Some(self.record_lost_memory(memory, Memory { boot, ..memory }, &why))
    }

    fn record_lost_memory(&mut self, own: Memory, remembered: Memory, why: &str) -> String {
        // [lie-4] The next process refuses to start if a node still remembers more.
        let passed = if own.may_skip_to(remembered) { remembered } else { own };
        let before = self.lost_memory.unwrap_or(own);
        self.lost_memory = Some(before.max(passed));
        format!(
            "the disk lost the end of it, or the folder is an old copy: {why}. Restart this node: it \
             will learn without a vote"
        )
    }

    pub(crate) fn take_lost_memory(&mut self) -> Option<Memory> {
        self.lost_memory.take()
    }
}

/// Returns the log end and boot number of this node's folder, as far as this process knows.
fn own_memory<D: Disk, S: StateMachine>(spine: &Spine<D, S>) -> Memory {
    let to = spine.storing.log().intact_to();
    let written = LogEnd { incarnation: spine.identity.member.incarnation, last_write: to };
    Memory { log_end: written, boot: spine.identity.boot }
}
