//! The service port: a deterministic state machine fed by the log.

use std::fmt;

use quorate_core::level::Level;
use quorate_core::slot::Slot;

/// One change to the data that a persistent service stores for the replica (its sessions), next to
/// its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaChange {
    /// Chosen by the replica; sorts.
    pub key: Vec<u8>,
    /// `None` deletes.
    pub value: Option<Vec<u8>>,
}

/// Keys and values that a persistent service stores for the replica.
pub type Metadata = Vec<(Vec<u8>, Vec<u8>)>;

/// Position of a command in the log: unique, the same on every node, growing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommandId {
    /// The slot of its batch.
    pub slot: Slot,
    /// Its place in the batch.
    pub index: u32,
}

/// Duration class of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// A batch may have many of them.
    Light,
    /// Some milliseconds or more.
    Heavy,
    /// Longer than a leader may be silent.
    TooHeavy,
}

/// Health of a service, as it reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// The service executes and answers.
    Well,
    /// The service still executes and answers, and will not permanently; the reason, for operators.
    Strained(String),
    /// The service answers, and takes no commands for a moment: its writing is behind.
    Behind,
    /// The service answers, and takes no commands until something changes; the reason.
    Stuck(String),
    /// The service neither answers nor takes commands until something changes; the reason.
    Down(String),
    /// The service was down and can go on from the position that [`StateMachine::recovered`]
    /// returns, which may be an earlier one than before; the log replays the rest. With a remark,
    /// if any. Reported once.
    Back(Option<String>),
}

/// Remainder of an image after some of its items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Imaged {
    /// More items follow.
    More,
    /// The image has ended: that was the last item, or there was none.
    End,
    /// The rest cannot be had: the image has ended, and its items are useless. Another one may be
    /// begun.
    Failed,
}

/// Result of a service's read of its own files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Bytes that were read.
    pub bytes: u64,
    /// Damage: the file, its fault, and the remedy, for operators.
    pub damaged: Vec<String>,
    /// There is more to read.
    pub goes_on: bool,
}

/// Reason why an image was not loaded. The load has ended; the loaded items are useless.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadError {
    /// This service cannot be loaded at all.
    Unsupported,
    /// No load is in progress: none was begun, or the service went back meanwhile, as
    /// [`Health::Back`] says. It can be begun again.
    NotLoading,
    /// The items do not make an image: damage, or another program's. Why, for people.
    Malformed(&'static str),
    /// This node's storage is in the way, as [`StateMachine::health`] says too. It can be begun
    /// again when that is over.
    Storage(String),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported => f.write_str("the service cannot load an image"),
            Self::NotLoading => f.write_str("no load is going on"),
            Self::Malformed(why) => write!(f, "the image makes no sense: {why}"),
            Self::Storage(why) => write!(f, "the image cannot be stored: {why}"),
        }
    }
}

impl std::error::Error for LoadError {}

/// A replicated service. Equal commands in equal order give equal states and equal replies on every
/// node: no clock, no randomness, no iteration order of a hash map may have an effect.
///
/// The service never sees a ballot. It is called from one thread.
///
/// **Input.** Any bytes may be committed: clients, other versions and other nodes have other ideas
/// of what a command is. A command that makes no sense gets a reply that says so, the same on every
/// node.
///
/// **Panics.** A panic in here ends the replica: the effects of a half-executed command are
/// unknown, so nothing catches it. A panic in [`StateMachine::apply`] ends it again at each start,
/// as the command is in the log, and all other replicas too. Disk failures are reported by
/// [`StateMachine::health`] and [`StateMachine::has_failed`].
///
/// **Sizes.** A reply may be as large as memory allows; it goes to one client and to no peer.
/// Replies to commands of sessions are kept until they are acknowledged, 64 MiB of all sessions
/// together; one that is larger is dropped immediately, and a repetition of its command gets an
/// error that says so.
///
/// **Images.** An image is the state as a sequence of items, each some bytes, which another node's
/// service, or this one after a restart, is loaded from. Equal states give equal items in equal
/// order on every node, whatever the service keeps them in: the digest of a snapshot rests on it
/// ([snap-1]). Everything that later commands and queries depend on is in it, or follows from it
/// and the position. A service without state has no items, and still says that it can be imaged.
pub trait StateMachine {
    /// Announces the commands that will be applied next, unless a session has a reply for them
    /// already. A chance to bring needed data near; the service's state must not change.
    fn prefetch(&mut self, commands: &mut dyn Iterator<Item = &[u8]>) {
        let _ = commands;
    }

    /// Returns the feature level that a command needs, with all its parts: a command above the
    /// group's level is neither accepted nor executed, on any node ([level-9]). A command that
    /// makes no sense needs none: its reply says so.
    ///
    /// A service that learns a new command, or a new use of an old one, answers with the level of
    /// its release. Then no node of the release before, which would do something else, meets it.
    fn level_of(&self, command: &[u8]) -> Level {
        let _ = command;
        Level::BASE
    }

    /// Returns the duration class of the command on the present state. A command that is too heavy
    /// is not accepted from clients; a heavy one has a batch of its own, so that no turn is longer
    /// for it.
    fn weigh(&self, command: &[u8]) -> Weight {
        let _ = command;
        Weight::Light
    }

    /// Executes one command and appends its reply.
    fn apply(&mut self, id: CommandId, command: &[u8], reply: &mut Vec<u8>);

    /// Answers a query on the present state, and appends the answer. `wall_ms` is this node's clock
    /// (Unix time), for showing the rest of a deadline; never for deciding.
    fn query(&self, query: &[u8], wall_ms: u64, reply: &mut Vec<u8>);

    /// Commits: every slot below `applied_to` has been applied since the last call. A persistent
    /// service commits its changes, this position and `meta` as one atomic unit.
    fn commit(&mut self, applied_to: Slot, meta: &[MetaChange]) {
        let _ = (applied_to, meta);
    }

    /// Records that every slot below is in the log of this node, on stable storage. A persistent
    /// service keeps no state of a later position: so a log that knows less than the service has
    /// lost something, and is found out at the next start ([volatile-1]). Not called where a commit
    /// does not wait for the disk.
    fn logged(&mut self, to: Slot) {
        let _ = to;
    }

    /// Returns the position of the last commit that survived, and the metadata stored with it. A
    /// service in memory starts at the first slot and is rebuilt from the log.
    fn recovered(&mut self) -> (Slot, Metadata) {
        (Slot::FIRST, Vec::new())
    }

    /// Returns the health of the service. Called before commands are applied, and in every turn: it
    /// must take no time.
    ///
    /// While it is stuck or down, the node goes on voting and keeping the log, redirects its
    /// clients to other nodes, and is not ready. A service without an implementation of its own is
    /// always well.
    fn health(&mut self) -> Health {
        Health::Well
    }

    /// Returns whether a call since the last commit met a failure of this node alone, such as a
    /// disk that cannot be read: then nothing that was executed or answered since counts, no client
    /// is notified of it, and nothing is called before [`Health::Back`]. Called after every command
    /// and query.
    fn has_failed(&self) -> bool {
        false
    }

    /// Takes the notices of commands since the last call, in their order: a subject and a message,
    /// for the clients that listen on this node. They are no part of the state, and are lost with
    /// the process. Notices that a service repeats after it went back are dropped.
    fn take_notices(&mut self, each: &mut dyn FnMut(&[u8], &[u8])) {
        let _ = each;
    }

    /// Sets the group's time ([time-1]) for all commands and queries from here on, Unix time in
    /// milliseconds: entries with a deadline up to it do not exist ([time-2]). Called before
    /// anything is applied or asked, and again with every change, also when the service went back
    /// or loaded an image.
    ///
    /// The replica keeps it; an image need not contain it.
    fn set_time(&mut self, group_ms: u64) {
        let _ = group_ms;
    }

    /// Returns the earliest deadline above the group's time and up to `until_ms`, if there is one:
    /// then a leader proposes that time has come. Called often, on the leader only.
    fn next_deadline(&self, until_ms: u64) -> Option<u64> {
        let _ = until_ms;
        None
    }

    /// Passes housekeeping commands that this node should propose, such as removing a few of the
    /// expired keys, to `each`; called on the leader only, and often. They must change no answer:
    /// they may be executed late, or never.
    fn due(&mut self, each: &mut dyn FnMut(&[u8])) {
        let _ = each;
    }

    /// Begins an image of the state as of the last commit; slots applied afterwards are not in it.
    /// There is one at a time: a new one ends the one before. Returns `false` if it cannot, ever or
    /// now; so it is while something was applied and not committed.
    ///
    /// It takes no time, and copies nothing that stays as it is. Commands go on being applied. The
    /// data that they overwrite is kept for the image, and bounded: when that is too much, the
    /// service is [`Health::Behind`] until [`StateMachine::next_image`] has moved on, and if one
    /// run of commands overwrites more than may be kept at all, the image has failed. So the caller
    /// goes on asking for items, also while the service is behind, or ends the image.
    fn begin_image(&mut self) -> bool {
        false
    }

    /// Passes the next items to `each`: about `bytes` of them, and at least one if any is left. An
    /// item that is larger is passed alone. Returns [`Imaged::Failed`] also if no image is in
    /// progress.
    fn next_image(&mut self, bytes: usize, each: &mut dyn FnMut(&[u8])) -> Imaged {
        let _ = (bytes, each);
        Imaged::Failed
    }

    /// Ends the image, if one is in progress, and frees the data kept for it.
    fn end_image(&mut self) {}

    /// Begins to load an image, which becomes the state; a load or image in progress ends.
    ///
    /// The old state may be dropped immediately. From here on until [`StateMachine::finish_load`]
    /// has succeeded nothing is applied, asked, committed or imaged, whatever fails in between; the
    /// only way forward is another load. A persistent service may go back on its own
    /// ([`Health::Back`]), to the position that [`StateMachine::recovered`] returns. After a crash
    /// within a load, `recovered` returns the old position, or an earlier one; never a state that
    /// is neither.
    ///
    /// The caller asks for [`StateMachine::health`] in every turn, and passes no items while it is
    /// not [`Health::Well`]: [`Health::Behind`] says that its writing is behind, as ever.
    fn begin_load(&mut self) -> Result<(), LoadError> {
        Err(LoadError::Unsupported)
    }

    /// Loads the next item of the image, as [`StateMachine::next_image`] returned it elsewhere. The
    /// bytes may be arbitrary.
    fn load(&mut self, item: &[u8]) -> Result<(), LoadError> {
        let _ = item;
        Err(LoadError::Unsupported)
    }

    /// Ends the load: the image is the state now, and every slot below `at` is in it. A persistent
    /// service makes the items, this position and `meta`, which replaces all the metadata that it
    /// had, one atomic unit.
    ///
    /// After it the service goes on as if it had applied every slot below `at` itself. At the first
    /// slot, without an item: it is empty, and begins with the log.
    fn finish_load(&mut self, at: Slot, meta: &[MetaChange]) -> Result<(), LoadError> {
        let _ = (at, meta);
        Err(LoadError::Unsupported)
    }

    /// Returns the position to which a persistent service returns at least after any loss of power
    /// ([store-1]), so that no slot below is needed for its sake. `None`: it is in memory, and
    /// every slot is needed.
    ///
    /// It never decreases in the life of a process, except for [`Health::Back`] and for a load.
    fn synced_to(&mut self) -> Option<Slot> {
        None
    }

    /// Begins to read all its data on this node's disk, to check whether it is what was written; at
    /// most this many bytes a second, and by a thread of its own. A scrub in progress is abandoned.
    /// A service in memory has nothing to read.
    fn start_scrub(&mut self, bytes_per_second: u64) {
        let _ = bytes_per_second;
    }

    /// Takes the results read since the last call. Called periodically: it must take no time.
    fn take_scrubbed(&mut self) -> Scrubbed {
        Scrubbed::default()
    }

    /// Returns whether an operation failed in a way that damage would explain: then the node reads
    /// all its files, as if an operator had asked for it. Called in every turn, until
    /// [`StateMachine::take_scrubbed`] reported that all was read.
    fn wants_scrub(&mut self) -> bool {
        false
    }

    /// Returns the approximate number of its bytes on this node's disk, as read by a scrub.
    fn kept_bytes(&self) -> u64 {
        0
    }

    /// [scrub-8] Drops the service's present state, and begins empty, as [`Health::Back`] says
    /// then: a part of its data on this node's disk is damaged, and a snapshot that replaces all of
    /// it is here. From now on [`StateMachine::synced_to`] counts for the replacement alone. On an
    /// error, which gives the reason, the service goes on as it is.
    fn renew(&mut self) -> Result<(), String> {
        Err("the service cannot be built anew".to_owned())
    }

    /// Brings [`StateMachine::synced_to`] up to the last commit, soon, and without waiting for it.
    /// If called while a sync is in flight, another one follows for later commits.
    fn start_sync(&mut self) {}
}

/// Returns the position at which the service goes on, and its metadata; `None` if it failed during
/// the call, so that the answer is not trusted.
pub fn position<S: StateMachine>(service: &mut S) -> Option<(Slot, Metadata)> {
    let said = service.recovered();
    (!service.has_failed()).then_some(said)
}
