//! Service port: a deterministic state machine driven by the log.

use std::fmt;

use quorate_core::level::Level;
use quorate_core::slot::Slot;

/// Change of metadata, such as sessions, that a persistent service stores for the replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaChange {
    /// Key of the entry, chosen by the replica so that entries can be sorted by key.
    pub key: Vec<u8>,
    /// New value; `None` deletes the key.
    pub value: Option<Vec<u8>>,
}

/// Keys and values that a persistent service stores for the replica.
pub type Metadata = Vec<(Vec<u8>, Vec<u8>)>;

/// Position of a command in the log: unique, increasing, and the same on every node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommandId {
    /// Slot of the command's batch.
    pub slot: Slot,
    /// Index of the command in its batch.
    pub index: u32,
}

/// Duration class of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// The command is short, so a batch may contain many like it.
    Light,
    /// The command takes some milliseconds or more.
    Heavy,
    /// The command takes longer than a leader may be silent.
    TooHeavy,
}

/// Health of a service, as reported by the service itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// The service executes commands and answers queries.
    Well,
    /// The service works, but will eventually stop for this reason.
    Strained(String),
    /// The service answers queries but accepts no commands until its pending writes have caught up.
    Behind,
    /// The service answers queries but accepts no commands for now, for this reason.
    Stuck(String),
    /// The service answers no queries and accepts no commands for now, for this reason.
    Down(String),
    /// The service was down and can resume at the position that [`StateMachine::recovered`]
    /// returns, possibly an earlier one than before; the rest is replayed from the log. May contain
    /// a note for operators. Reported once.
    Back(Option<String>),
}

/// State of an image after a call that returned items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Imaged {
    /// More items follow.
    More,
    /// The image has ended with this item, or contains no items.
    End,
    /// The rest of the image is not available. The image has ended and its items must be discarded.
    /// The caller may start another one.
    Failed,
}

/// Result of a service's scrub of its own files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Number of bytes read.
    pub bytes: u64,
    /// Damage as text for operators: the file, the fault, and the remedy.
    pub damaged: Vec<String>,
    /// The scrub has more data to read.
    pub goes_on: bool,
}

/// Reason why an image was not loaded. The load has ended, and the items loaded so far are useless.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadError {
    /// This service does not support loading.
    Unsupported,
    /// No load is in progress: none was started, or the service has since gone back and reported
    /// [`Health::Back`]. The caller may start another one.
    NotLoading,
    /// The items are damaged or not an image of this service. The reason is for people.
    Malformed(&'static str),
    /// This node's storage prevents the load, as [`StateMachine::health`] also reports. The caller
    /// may start another one once the storage works.
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

/// A replicated service. The same commands in the same order must result in the same states and
/// replies on every node, without clocks, randomness or the iteration order of a hash map.
///
/// The service never sees a ballot. It is called from one thread.
///
/// **Input.** Any bytes may be committed, because clients, versions and nodes may disagree about
/// what a command is. A malformed command gets an error reply, the same on every node.
///
/// **Panics.** A panic in the service ends the replica: the effects of a half-executed command are
/// unknown, so no code catches it. A panic in [`StateMachine::apply`] ends the replica again at
/// each start, because the command is in the log, and it ends all other replicas, too. Disk
/// failures are reported by [`StateMachine::health`] and [`StateMachine::has_failed`].
///
/// **Sizes.** A reply goes to one client and to no peer, so it may be as large as memory allows.
/// Replies to commands of sessions are stored until acknowledged, up to 64 MiB for all sessions. A
/// larger reply is dropped at once, and a retry of its command gets an error that says so.
///
/// **Images.** An image is the state as a sequence of byte strings, the items. The service loads
/// its state from an image of another node, or from its own after a restart. Equal states must give
/// equal items in equal order on every node, whatever data structures the service uses: the digest
/// of a snapshot depends on it ([snap-1]). Everything that affects later commands and queries is in
/// the image, or follows from it and the position. A service without state supports images without
/// items.
pub trait StateMachine {
    /// Announces the commands that will be applied next, except those for which a session already
    /// has a reply. The service may prefetch data for them, but must not change its state.
    fn prefetch(&mut self, commands: &mut dyn Iterator<Item = &[u8]>) {
        let _ = commands;
    }

    /// Returns the feature level that a command needs, including all its parts. A command above the
    /// group's level is neither accepted nor executed, on any node ([level-9]). A malformed command
    /// needs no level, since its reply is an error.
    ///
    /// For a new command, or a new use of an old one, the service returns the level of the release
    /// that introduces it. An older release, which would execute the command differently, then
    /// never gets it.
    fn level_of(&self, command: &[u8]) -> Level {
        let _ = command;
        Level::BASE
    }

    /// Returns the duration class of the command in the current state. Clients' commands that are
    /// too heavy are not accepted. A heavy command gets a batch without other commands, to keep
    /// turns short.
    fn weigh(&self, command: &[u8]) -> Weight {
        let _ = command;
        Weight::Light
    }

    /// Returns whether a command may add data. While disks are full, such commands are not accepted
    /// ([room-2]).
    fn grows(&self, command: &[u8]) -> bool {
        let _ = command;
        true
    }

    /// Returns whether the command may change the answer to the query, in any state ([read-9]). A
    /// new leader that may not decide anything yet answers only queries that no command in flight
    /// may change. By default, every command may change every answer.
    fn may_change(&self, command: &[u8], query: &[u8]) -> bool {
        let _ = (command, query);
        true
    }

    /// Executes one command and appends its reply.
    fn apply(&mut self, id: CommandId, command: &[u8], reply: &mut Vec<u8>);

    /// Answers a query on the current state and appends the answer. `wall_ms` is this node's clock
    /// (Unix time in milliseconds). The service uses it only to show the time left until a
    /// deadline, never for decisions.
    fn query(&self, query: &[u8], wall_ms: u64, reply: &mut Vec<u8>);

    /// Returns the work of the last query in visits, each about a tenth of a microsecond; 0 if the
    /// service does not count them ([read-10]).
    fn query_visits(&self) -> u64 {
        0
    }

    /// Commits all changes. Every slot below `applied_to` has been applied since the last call. A
    /// persistent service commits its changes, this position and `meta` as one atomic unit.
    fn commit(&mut self, applied_to: Slot, meta: &[MetaChange]) {
        let _ = (applied_to, meta);
    }

    /// Reports that this node's log has every slot below `to` on stable storage. A persistent
    /// service must not store the state of a later position. A log that ends before the service's
    /// position has thus lost data, which the next start detects ([volatile-1]). Not called if
    /// commits do not wait for the disk.
    fn logged(&mut self, to: Slot) {
        let _ = to;
    }

    /// Returns the position of the last commit that survived, and the metadata stored with it. A
    /// service in memory starts at the first slot and is rebuilt from the log.
    fn recovered(&mut self) -> (Slot, Metadata) {
        (Slot::FIRST, Vec::new())
    }

    /// Returns the health of the service. Called before commands and in every turn, so it must be
    /// fast.
    ///
    /// While the service is stuck or down, the node votes and stores the log, redirects its
    /// clients, and is not ready. By default, a service is always well.
    fn health(&mut self) -> Health {
        Health::Well
    }

    /// Returns whether a call since the last commit failed on this node alone, for example because
    /// a disk could not be read. All results since that commit are then void and reported to no
    /// client, and no other call follows until [`Health::Back`]. Called after every command and
    /// query.
    fn has_failed(&self) -> bool {
        false
    }

    /// Passes to `each`, in order, the notices of commands since the last call: a subject and a
    /// message for the clients that subscribed to it on this node. Notices are not part of the
    /// state and are lost with the process. A service that went back repeats them, and the caller
    /// drops the repeats.
    fn take_notices(&mut self, each: &mut dyn FnMut(&[u8], &[u8])) {
        let _ = each;
    }

    /// Sets the group's time ([time-1]) for all further commands and queries, in Unix milliseconds.
    /// Entries whose deadline is not later than this time do not exist ([time-2]). Called before
    /// any command or query, at every change, and after the service went back or loaded an image.
    ///
    /// The replica stores the time, so an image need not contain it.
    fn set_time(&mut self, group_ms: u64) {
        let _ = group_ms;
    }

    /// Returns the earliest deadline after the group's time and not after `until_ms`, if there is
    /// one; the leader then proposes to advance the time. Called often, but only on the leader.
    fn next_deadline(&self, until_ms: u64) -> Option<u64> {
        let _ = until_ms;
        None
    }

    /// Passes to `each` the housekeeping commands that this node should propose, such as removals
    /// of some expired keys. Called often, but only on the leader. The commands must not change any
    /// answer, since they may be executed late or never.
    fn due(&mut self, each: &mut dyn FnMut(&[u8])) {
        let _ = each;
    }

    /// Starts an image of the state as of the last commit, which does not include slots applied
    /// later. Only one image is in progress: a new one ends the previous one. Returns `false` if
    /// the service cannot start an image, either now or ever. It cannot do so while applied
    /// commands are not committed.
    ///
    /// This must be fast, and copy data only when it changes. Commands continue to be applied. The
    /// data that they overwrite is retained for the image, within a limit. Above the limit the
    /// service is [`Health::Behind`] until [`StateMachine::next_image`] has made progress. If one
    /// run of commands overwrites more than the limit, the image fails. So the caller continues to
    /// request items even while the service is behind, or ends the image.
    fn begin_image(&mut self) -> bool {
        false
    }

    /// Passes the next items to `each`: about `bytes` bytes, and at least one item if any is left.
    /// Only an item on its own may be larger. Returns [`Imaged::Failed`] also if no image is in
    /// progress.
    fn next_image(&mut self, bytes: usize, each: &mut dyn FnMut(&[u8])) -> Imaged {
        let _ = (bytes, each);
        Imaged::Failed
    }

    /// Ends the image, if one is in progress, and frees the data retained for it.
    fn end_image(&mut self) {}

    /// Starts loading an image that will become the state. Ends any load or image in progress.
    ///
    /// The service may drop its old state immediately. Until [`StateMachine::finish_load`] has
    /// succeeded, nothing is applied, queried, committed or imaged; only another load can resume
    /// operation. A persistent service may go back by itself ([`Health::Back`]) to the position
    /// that [`StateMachine::recovered`] returns. After a crash during a load, that is the old
    /// position or an earlier one, never a mixture of states.
    ///
    /// The caller checks [`StateMachine::health`] in every turn, and passes no items unless it is
    /// [`Health::Well`]. [`Health::Behind`] means, as always, that the service's writes are behind.
    fn begin_load(&mut self) -> Result<(), LoadError> {
        Err(LoadError::Unsupported)
    }

    /// Loads the next item of the image, as another node's [`StateMachine::next_image`] returned
    /// it. The bytes may be arbitrary.
    fn load(&mut self, item: &[u8]) -> Result<(), LoadError> {
        let _ = item;
        Err(LoadError::Unsupported)
    }

    /// Ends the load: the image becomes the state, which contains every slot below `at`. A
    /// persistent service commits the items, this position and `meta`, which replaces all its
    /// metadata, as one atomic unit.
    ///
    /// The service then continues as if it had applied every slot below `at` itself. If `at` is the
    /// first slot and there was no item, the service is empty and starts at the beginning of the
    /// log.
    fn finish_load(&mut self, at: Slot, meta: &[MetaChange]) -> Result<(), LoadError> {
        let _ = (at, meta);
        Err(LoadError::Unsupported)
    }

    /// Returns the lowest position to which a persistent service can fall back after a power loss
    /// ([store-1]); `None` if the service is in memory and needs every slot.
    ///
    /// Within a process the position decreases only after [`Health::Back`] or a load.
    fn synced_to(&mut self) -> Option<Slot> {
        None
    }

    /// Starts reading all data of the service on this node's disk on a separate thread, at up to
    /// this rate, to verify that it is intact. A scrub in progress is abandoned. A service in
    /// memory has no data to read.
    fn start_scrub(&mut self, bytes_per_second: u64) {
        let _ = bytes_per_second;
    }

    /// Takes the results of the scrub since the last call. Called periodically, so it must be fast.
    fn take_scrubbed(&mut self) -> Scrubbed {
        Scrubbed::default()
    }

    /// Returns whether an operation failed in a way that suggests damage. If so, the node starts a
    /// scrub of all its data, as if an operator had requested it. Called in every turn until
    /// [`StateMachine::take_scrubbed`] has reported the end of a scrub.
    fn wants_scrub(&mut self) -> bool {
        false
    }

    /// Returns the approximate size in bytes of the service's data on disk, which a scrub reads.
    fn kept_bytes(&self) -> u64 {
        0
    }

    /// [scrub-8] Drops the service's state and starts empty, as [`Health::Back`] then reports.
    /// Called if part of its data on this node's disk is damaged and there is a snapshot that
    /// replaces all of it. After the call, [`StateMachine::synced_to`] refers to the replacement.
    /// Returns the reason on failure; the service then continues unchanged.
    fn renew(&mut self) -> Result<(), String> {
        Err("the service cannot be built anew".to_owned())
    }

    /// Starts a sync that brings [`StateMachine::synced_to`] up to the last commit, and returns
    /// without waiting for it. If a sync is in flight, another one follows for later commits.
    fn start_sync(&mut self) {}
}

/// Returns the position at which the service resumes, and its metadata; `None` if the service
/// failed during the call, so that its result cannot be trusted.
pub fn position<S: StateMachine>(service: &mut S) -> Option<(Slot, Metadata)> {
    let said = service.recovered();
    (!service.has_failed()).then_some(said)
}
