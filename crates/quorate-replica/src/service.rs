//! The service port: a deterministic state machine fed by the log.

use quorate_core::slot::Slot;

/// One change to what a persistent service keeps for the replica (its sessions), next to its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaChange {
    /// Chosen by the replica; sorts.
    pub key: Vec<u8>,
    /// `None` deletes.
    pub value: Option<Vec<u8>>,
}

/// What a persistent service keeps for the replica: keys with their values.
pub type Metadata = Vec<(Vec<u8>, Vec<u8>)>;

/// Where a command stands in the log: unique, the same on every node, growing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommandId {
    /// The slot of its batch.
    pub slot: Slot,
    /// Its place in the batch.
    pub index: u32,
}

/// A replicated service. Equal commands in equal order give equal states and equal replies on
/// every node: no clock, no randomness, no iteration order of a hash map may reach either.
///
/// The service never sees a ballot. It is called from one thread.
pub trait StateMachine {
    /// These commands will be applied next, unless a session has a reply for them already. A chance
    /// to bring what they need near; what the service holds must not change.
    fn foresee(&mut self, commands: &mut dyn Iterator<Item = &[u8]>) {
        let _ = commands;
    }

    /// Executes one command and appends its reply.
    fn apply(&mut self, id: CommandId, command: &[u8], reply: &mut Vec<u8>);

    /// Answers a question about the state as it stands, and appends the answer. `wall_ms` is this
    /// node's clock (Unix time), for showing what is left of a deadline; never for deciding.
    fn query(&self, query: &[u8], wall_ms: u64, reply: &mut Vec<u8>);

    /// Every slot below `applied_to` has been applied since the last call. A persistent service
    /// commits what it changed, this position and `meta` as one atomic unit.
    fn commit(&mut self, applied_to: Slot, meta: &[MetaChange]) {
        let _ = (applied_to, meta);
    }

    /// The position of the last commit that survived, and the metadata stored with it. A service
    /// in memory starts at the first slot and is rebuilt from the log.
    fn recovered(&mut self) -> (Slot, Metadata) {
        (Slot::FIRST, Vec::new())
    }

    /// Takes what commands told since the last call, in their order: a subject and a message, for
    /// whoever listens on this node. It is no part of the state, and is lost with the process.
    fn take_notices(&mut self, each: &mut dyn FnMut(&[u8], &[u8])) {
        let _ = each;
    }

    /// Commands that this node should propose because time passed, such as deletions of expired
    /// keys; asked for on the leader only. At most `limit`; each is passed to `each`.
    fn due(&mut self, wall_ms: u64, limit: usize, each: &mut dyn FnMut(&[u8])) {
        let _ = (wall_ms, limit, each);
    }
}
