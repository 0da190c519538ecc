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

/// How a service is, as it says itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It executes and answers.
    Well,
    /// It executes and answers still, and will not forever; why, for people.
    Strained(String),
    /// It answers, and takes no commands for a moment: its writing is behind.
    Behind,
    /// It answers, and takes no commands until something changes; what is wrong.
    Stuck(String),
    /// It neither answers nor takes commands until something changes; what is wrong.
    Down(String),
    /// It was down and can go on from the position that [`StateMachine::recovered`] says, which may
    /// be an earlier one than where it was; the log replays the rest. What there is to say about it.
    /// Said once.
    Back(Option<String>),
}

/// A replicated service. Equal commands in equal order give equal states and equal replies on
/// every node: no clock, no randomness, no iteration order of a hash map may reach either.
///
/// The service never sees a ballot. It is called from one thread.
///
/// **What it may meet.** Any bytes may be committed: clients, other versions and other nodes have
/// other ideas of what a command is. A command that makes no sense gets a reply that says so, the same
/// on every node.
///
/// **Panics.** A panic in here ends the replica: what a half-executed command left behind is known
/// to nobody, so nothing catches it. A panic in [`StateMachine::apply`] ends it again at each start, as
/// the command is in the log, and all other replicas too. What can go wrong with a disk is for
/// [`StateMachine::health`] and [`StateMachine::has_failed`] to say.
///
/// **Sizes.** A reply may be as large as memory allows; it goes to one client and to no peer. Replies
/// to commands of sessions are kept until they are acknowledged, 64 MiB of all sessions together; one
/// that is larger is forgotten at once, and a repetition of its command is told so.
pub trait StateMachine {
    /// These commands will be applied next, unless a session has a reply for them already. A chance
    /// to bring what they need near; what the service holds must not change.
    fn prefetch(&mut self, commands: &mut dyn Iterator<Item = &[u8]>) {
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

    /// Every slot below is in the log of this node, on stable storage. A persistent service keeps no
    /// state of a later position: so a log that knows less than the service has lost something, and
    /// is found out at the next start ([volatile-1]). Not called where a commit does not wait for the
    /// disk.
    fn logged(&mut self, to: Slot) {
        let _ = to;
    }

    /// The position of the last commit that survived, and the metadata stored with it. A service
    /// in memory starts at the first slot and is rebuilt from the log.
    fn recovered(&mut self) -> (Slot, Metadata) {
        (Slot::FIRST, Vec::new())
    }

    /// How the service is. Asked before commands are applied, and in every turn: it must take no time.
    ///
    /// While it is stuck or down, the node goes on voting and keeping the log, tells its clients to
    /// ask elsewhere, and is not ready. A service that says nothing here is always well.
    fn health(&mut self) -> Health {
        Health::Well
    }

    /// Whether a call since the last commit met a failure of this node alone, such as a disk that
    /// cannot be read: then nothing that was executed or answered since counts, nobody is told of it,
    /// and nothing is asked before [`Health::Back`]. Asked after every command and query.
    fn has_failed(&self) -> bool {
        false
    }

    /// Takes what commands told since the last call, in their order: a subject and a message, for
    /// the clients that listen on this node. It is no part of the state, and is lost with the
    /// process. What a service that went back tells once more is told to nobody.
    fn take_notices(&mut self, each: &mut dyn FnMut(&[u8], &[u8])) {
        let _ = each;
    }

    /// Commands that this node should propose because time passed, such as deletions of expired
    /// keys; asked for on the leader only. At most `limit`; each is passed to `each`.
    fn due(&mut self, wall_ms: u64, limit: usize, each: &mut dyn FnMut(&[u8])) {
        let _ = (wall_ms, limit, each);
    }
}

/// Where the service goes on, and its metadata; `None`: it failed over saying so, and is not believed.
pub fn position<S: StateMachine>(service: &mut S) -> Option<(Slot, Metadata)> {
    let said = service.recovered();
    (!service.has_failed()).then_some(said)
}
