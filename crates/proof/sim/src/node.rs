//! One simulated process: the real replica on a simulated disk, and what outlives the process.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet, VecDeque},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use quorate_core::{
    ballot::Ballot,
    level::{Level, Levels},
    node_id::{Incarnation, Member, NodeId},
    record::Class,
    slot::Slot,
    time::Time,
    witness::Memory,
};
use quorate_kv::{
    front::{RespFront, Settings as FrontSettings},
    service::Service,
    store::memory::MemoryStore,
};
use quorate_log::disk::MemoryDisk;
use quorate_log::{LogOptions, Recovery};
use quorate_node::{
    Identity, NodeHost,
    boot::{BootError, Parts, Question, Starter, Step, boot},
    founding::{Joined, Joining, JoiningError, Newcomer, Role, Wanted, found},
    host::{Founded, Host as _, Now, Refused},
    identity::{Expected, IdentityError},
    listener::Listener,
};
use quorate_replica::{
    Clock as ReplicaClock,
    counters::Counters,
    events::Event,
    front::ConnectionId,
    group::{As, asking::Ask},
    limits::Limits,
    open::{ReplicaOptions, Timeouts},
    replica::Replica,
    rising::Raising,
    scrubbing::{ScrubOptions, report::ScrubStatus},
    service::{CommandId, Health, Imaged, LoadError, MetaChange, Scrubbed, StateMachine},
    stream_front::StreamTag,
    tuner::Change,
};
use quorate_stream::store::Layout;
use quorate_wire::{Join, RefusalCode};

use crate::ids::hash;
pub use crate::ids::id;
use crate::{
    clock::Clock,
    device::Device,
    dice::Dice,
    faults::Settings,
    front::{Ask as StreamAsk, Fronts},
    side::Side,
    workload::frame_client::{Answer as DeskAnswer, Ask as DeskAsk},
};

/// A node waits so long for those that dial it before it leads by itself: longer than any pause
/// between dials and a handshake.
const DIALLED_US: u64 = 150_000;

/// Largest command in the simulator: small, so that "too big" happens.
pub const COMMAND_BYTES_MAX: usize = 2048;

/// Layout of streams at nodes: small, so that chunks and files fill.
const STREAM_LAYOUT: Layout = Layout { unit_bytes: 4 << 10, chunk_bytes: 16 << 10, file_chunks: 8 };

/// Notifications of the service, for the checkers.
#[derive(Clone, Copy, Debug)]
pub enum Told {
    /// A command was executed: hashes of it and of its reply.
    Executed(CommandId, u64, u64),
    /// Everything below is applied; the state's digest, where one was taken.
    Applied(Slot, Option<u128>),
}

/// Faults of the disk of a service; outlives its processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreDisk {
    /// The disk takes no writes.
    pub full: bool,
    /// The disk cannot be opened.
    pub gone: bool,
    /// Commands executed before the disk turns out to be unreadable.
    pub fails_after: Option<u32>,
}

/// The real service, overheard; and, where its disk fails, one that loses all it has.
pub struct Tap {
    service: Service,
    told: Rc<RefCell<Vec<Told>>>,
    disk: Rc<Cell<StoreDisk>>,
    logged_to: Slot,
    /// Position that the service could have kept, if it kept anything.
    kept_to: Rc<Cell<Slot>>,
    /// Its last answer is void, and it has to begin again.
    lost: bool,
    /// A file of it is damaged, in a part not read yet.
    rotten: Rc<Cell<bool>>,
    /// A scrub reads its files.
    scrubbed: bool,
}

impl StateMachine for Tap {
    fn apply(&mut self, id: CommandId, command: &[u8], reply: &mut Vec<u8>) {
        let start = reply.len();
        let mut disk = self.disk.get();
        if let Some(left) = disk.fails_after {
            disk.fails_after = left.checked_sub(1);
            self.lost |= left == 0;
            self.disk.set(disk);
        }
        if self.lost {
            // A node that believes this is caught.
            reply.extend_from_slice(b":-666\r\n");
            return;
        }
        self.service.apply(id, command, reply);
        let told = Told::Executed(id, hash(command), hash(&reply[start..]));
        self.told.borrow_mut().push(told);
    }

    fn query(&self, query: &[u8], wall_ms: u64, reply: &mut Vec<u8>) {
        if self.lost {
            reply.extend_from_slice(b":-666\r\n");
            return;
        }
        self.service.query(query, wall_ms, reply);
    }

    fn health(&mut self) -> Health {
        let disk = self.disk.get();
        if disk.gone {
            self.lost = true;
        }
        match (self.lost, disk.gone, disk.full) {
            (true, true, _) => Health::Down("its disk is gone".to_owned()),
            (true, false, _) => {
                self.lost = false;
                self.service = Service::new(Box::new(MemoryStore::default()));
                Health::Back(Some("it lost what it had".to_owned()))
            }
            (false, _, true) => Health::Stuck("its disk is full".to_owned()),
            (false, _, false) => Health::Well,
        }
    }

    fn has_failed(&self) -> bool {
        self.lost
    }

    fn commit(&mut self, applied_to: Slot, meta: &[MetaChange]) {
        assert!(!self.lost, "what counts for nothing is not committed");
        self.service.commit(applied_to, meta);
        if applied_to <= self.logged_to {
            self.kept_to.set(applied_to.max(self.kept_to.get()));
        }
        let digest = applied_to.0.is_multiple_of(4).then(|| self.service.digest());
        self.told.borrow_mut().push(Told::Applied(applied_to, digest));
    }

    fn logged(&mut self, to: Slot) {
        self.logged_to = to;
    }

    fn recovered(&mut self) -> (Slot, Vec<(Vec<u8>, Vec<u8>)>) {
        self.service.recovered()
    }

    fn take_notices(&mut self, each: &mut dyn FnMut(&[u8], &[u8])) {
        self.service.take_notices(each);
    }

    fn set_time(&mut self, group_ms: u64) {
        self.service.set_time(group_ms);
    }

    fn next_deadline(&self, until_ms: u64) -> Option<u64> {
        self.service.next_deadline(until_ms)
    }

    fn due(&mut self, each: &mut dyn FnMut(&[u8])) {
        self.service.due(each);
    }

    fn begin_image(&mut self) -> bool {
        !self.lost && !self.rotten.get() && self.service.begin_image()
    }

    fn next_image(&mut self, bytes: usize, each: &mut dyn FnMut(&[u8])) -> Imaged {
        if self.lost || self.rotten.get() {
            return Imaged::Failed;
        }
        self.service.next_image(bytes, each)
    }

    fn end_image(&mut self) {
        self.service.end_image();
    }

    fn begin_load(&mut self) -> Result<(), LoadError> {
        self.may_load()?;
        self.service.begin_load()
    }

    fn load(&mut self, item: &[u8]) -> Result<(), LoadError> {
        self.may_load()?;
        self.service.load(item)
    }

    fn finish_load(&mut self, at: Slot, meta: &[MetaChange]) -> Result<(), LoadError> {
        self.may_load()?;
        self.service.finish_load(at, meta)?;
        let digest = Some(self.service.digest());
        self.told.borrow_mut().push(Told::Applied(at, digest));
        Ok(())
    }

    fn synced_to(&mut self) -> Option<Slot> {
        self.service.synced_to()
    }

    fn start_sync(&mut self) {
        self.service.start_sync();
    }

    fn start_scrub(&mut self, bytes_per_second: u64) {
        self.service.start_scrub(bytes_per_second);
        self.scrubbed = true;
    }

    fn take_scrubbed(&mut self) -> Scrubbed {
        let mut scrubbed = self.service.take_scrubbed();
        if std::mem::take(&mut self.scrubbed) && self.rotten.get() {
            scrubbed.damaged.push("a file of the store".to_owned());
        }
        scrubbed
    }

    fn renew(&mut self) -> Result<(), String> {
        self.may_load().map_err(|error| error.to_string())?;
        self.lost = true;
        self.rotten.set(false);
        Ok(())
    }

    fn kept_bytes(&self) -> u64 {
        self.service.kept_bytes()
    }
}

impl Tap {
    fn may_load(&self) -> Result<(), LoadError> {
        if self.lost {
            return Err(LoadError::Storage("its disk is gone".to_owned()));
        }
        Ok(())
    }

    /// Returns a fingerprint of the whole state.
    pub fn digest(&self) -> u128 {
        self.service.digest()
    }
}

/// Something that reaches a process from outside, in order.
#[derive(Debug)]
pub enum Arrival {
    /// A peer's handshake is done.
    PeerUp {
        /// Whose, by index.
        peer: usize,
        /// Number of the connection.
        connection: u64,
        /// Current identity of the peer.
        member: Member,
        /// Number of its process start.
        boot: u32,
        /// Levels that its release supports.
        levels: Levels,
    },
    /// A connection broke.
    PeerDown {
        /// The other side.
        peer: usize,
        /// Number of the connection.
        connection: u64,
    },
    /// A client connected.
    Opened(ConnectionId),
    /// A client sent something.
    Bytes(ConnectionId, Vec<u8>),
    /// A client is gone.
    Closed(ConnectionId),
    /// The operator asks for a hand-over, to this node or any.
    Transfer(Option<NodeId>),
    /// The operator asks for a stop.
    Stop,
    /// The operator asks for a scrub, at this pace or the node's own.
    Scrub(Option<u64>),
    /// A client of streams asks.
    Stream(ConnectionId, StreamTag, StreamAsk),
    /// An operator, or a node that wants to join, asks something of the group.
    Ask(u64, Ask),
    /// A client wants the command of this number executed, and to be notified `early`, or when it
    /// lasts.
    Class {
        /// Which.
        number: u64,
        /// When a quorum has it in memory.
        early: bool,
    },
    /// A client of devices, by index, asks.
    Desk(usize, DeskAsk),
}

/// A living process.
pub struct Running {
    /// The node itself, as the reactor has it.
    pub host: Host,
    /// Arrivals that were not looked at yet.
    pub inbox: VecDeque<Arrival>,
    /// Connections to peers that the process knows of, by index of the peer.
    pub up: BTreeMap<usize, u64>,
    /// Beginnings of frames, by peer and lane.
    pub partial: BTreeMap<(usize, usize), Vec<u8>>,
    /// Requests that the front has not taken yet.
    pub requests: BTreeMap<ConnectionId, Vec<u8>>,
    /// Notifications of the service since the last look.
    pub told: Rc<RefCell<Vec<Told>>>,
    /// Answers to clients of devices in this turn.
    pub(crate) desk_answers: Vec<(usize, DeskAnswer)>,
    /// Its plane of packets, where packets are the carrier.
    pub(crate) packets: Option<Side>,
    /// As of the last look, to see changes.
    pub seen: Seen,
}

/// The host that production drives, on a disk in memory.
pub type Host = NodeHost<MemoryDisk, Tap, Fronts>;

impl Running {
    fn new(host: Host, told: Rc<RefCell<Vec<Told>>>) -> Self {
        Self {
            host,
            inbox: VecDeque::new(),
            up: BTreeMap::new(),
            partial: BTreeMap::new(),
            requests: BTreeMap::new(),
            told,
            desk_answers: Vec::new(),
            packets: None,
            seen: Seen::default(),
        }
    }

    /// Its replica.
    pub fn replica(&self) -> &Replica<MemoryDisk, Tap> {
        self.host.replica()
    }
}

/// State of a replica as last traced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Role and leader.
    pub role: String,
    /// Ballot.
    pub ballot: Ballot,
    /// Decided prefix.
    pub decided_to: Slot,
    /// Position that the trace of its table of streams has reached.
    pub streams_to: Slot,
    /// Slots that its device assigned, decisions that it counted, times that it was withdrawn,
    /// values that were too long for it, and values that were offered to others'.
    pub device: [u64; 5],
    /// Counters of its replica.
    pub counters: Counters,
    /// Why it does not serve.
    pub error: Option<String>,
    /// A scrub is in progress, and the number of damaged places that its scrubs have met.
    pub scrubs: (bool, u64),
}

/// A node: what outlives its processes, and the process that runs, if one does.
pub struct Node {
    /// Position in the world's list.
    pub index: usize,
    /// The disk, with all that a node's home holds; handles from before a crash are dead.
    pub disk: MemoryDisk,
    /// The clocks.
    pub clock: Clock,
    /// Counts process starts, for events that are meant for one of them.
    pub life: u64,
    /// The device, if this run has any; it lives longer than the process.
    pub device: Option<Device>,
    /// The process.
    pub running: Option<Running>,
    /// The node was admitted after the founding.
    pub joined: bool,
    /// The node was removed from the group and switched off permanently.
    pub retired: bool,
    /// The process is paused.
    pub paused: bool,
    /// Clock that the host reads within a turn.
    pub reading: Arc<AtomicU64>,
    /// The process is stalled between two lines of a turn, which began then by its clocks.
    pub stalled: Option<Now>,
    /// When its next turn is, in the world's time.
    pub turn_at: Option<Time>,
    /// Disk operations whose end is planned.
    pub planned: BTreeSet<u64>,
    /// Current slowdown factor of its disk.
    pub disk_factor: u64,
    /// The next write fails.
    pub disk_error: bool,
    /// A bit of its disk flipped at some time.
    pub rotted: bool,
    /// Its disk loses the end of its log when it starts.
    pub lies: bool,
    /// Identity and address book as earlier starts of the same incarnation found them.
    pub(crate) copies: Vec<FolderCopy>,
    /// A test set its folder back where no node can report that to it when it starts.
    pub set_back: bool,
    /// A small file that rotted.
    pub(crate) spoiled: Option<Spoiled>,
    /// Scrubs that have ended.
    pub scrubs: u64,
    /// Result of the last of them.
    pub scrubbed: ScrubStatus,
    /// The next process dies when it has changed its disk this many times.
    pub dies_after: Option<u64>,
    /// The disk of its service.
    pub store: Rc<Cell<StoreDisk>>,
    /// A file of its service is damaged, in a part not read yet. A process that starts rebuilds all
    /// of it.
    pub store_rotten: Rc<Cell<bool>>,
    /// The latest position that a persistent service could have on its disk.
    pub kept_to: Rc<Cell<Slot>>,
    /// The newest level that the installed release supports.
    pub release: Level,
    /// The same of the process that runs, or ran last.
    pub release_running: Level,
    /// A process of the newest release ran here at some time.
    pub ran_newest: bool,
}

/// A small file that rotted.
#[derive(Clone, Debug)]
pub(crate) struct Spoiled {
    pub(crate) name: &'static str,
    pub(crate) sound: Vec<u8>,
    pub(crate) damaged: Vec<u8>,
}

/// Small files of a folder, as a copy of it has them.
#[derive(Clone, Debug)]
pub(crate) struct FolderCopy {
    /// Incarnation and level of the folder.
    pub(crate) of: (Incarnation, Level),
    pub(crate) files: Vec<(&'static str, Option<Vec<u8>>)>,
}

/// Outcome of a start.
pub enum Start {
    /// The process runs.
    Runs(Box<Started>),
    /// The start waits for what the text says, having done nothing that it would not repeat.
    Waits(&'static str),
    /// Its folder needs a newer release.
    TooOld,
    /// The process died.
    Died,
}

/// Findings of a start.
pub struct Started {
    /// Result of reading the log.
    pub recovery: Recovery,
    /// Why votes may be forgotten, if that was found.
    pub lost: Vec<String>,
}

impl Node {
    /// Returns a node that was never started.
    pub fn new(index: usize, clock: Clock) -> Self {
        let disk = MemoryDisk::new();
        disk.set_manual(true);
        Self {
            index,
            disk,
            clock,
            life: 0,
            device: None,
            running: None,
            joined: false,
            retired: false,
            paused: false,
            reading: Arc::default(),
            stalled: None,
            turn_at: None,
            planned: BTreeSet::new(),
            disk_factor: 1,
            disk_error: false,
            rotted: false,
            lies: false,
            copies: Vec::new(),
            set_back: false,
            spoiled: None,
            scrubs: 0,
            scrubbed: ScrubStatus::default(),
            dies_after: None,
            store: Rc::default(),
            store_rotten: Rc::default(),
            kept_to: Rc::default(),
            release: Level::NEWEST,
            release_running: Level::NEWEST,
            ran_newest: false,
        }
    }

    /// Its id.
    pub fn id(&self) -> NodeId {
        id(self.index)
    }

    /// Returns the identity on its disk, whether a process runs or not; `None` before its first
    /// start is done.
    pub fn identity(&self) -> Option<Identity<MemoryDisk>> {
        Identity::open(self.disk.attach(), &Expected::default()).ok()
    }

    /// Returns whether its disk says that it was removed from the group.
    pub fn is_removed(&self) -> bool {
        let opened = Identity::open(self.disk.attach(), &Expected::default());
        matches!(opened, Err(IdentityError::Removed { .. }))
    }

    /// Returns whether its folder needs a newer release than the installed one.
    fn is_too_old(&self) -> bool {
        let expected = Expected { supports: Some(self.release), ..Expected::default() };
        let opened = Identity::open(self.disk.clone(), &expected);
        matches!(opened, Err(IdentityError::Level { .. }))
    }

    /// Returns the node's member identity.
    pub fn member(&self) -> Member {
        let running = self.running.as_ref();
        running
            .map(|running| running.host.identity().member())
            .or_else(|| self.identity().map(|identity| identity.member()))
            .unwrap_or_else(|| Member::first(self.id().0))
    }

    /// Records on its disk the id of a node that joins.
    ///
    /// # Errors
    /// It cannot be written down.
    pub fn join(&mut self, nonce: u64, role: As, joined: Joined) -> Result<(), JoiningError> {
        let newcomer = Newcomer::prepare(self.disk.attach(), nonce)?;
        newcomer.finish(&Wanted::default(), role, joined)?;
        self.joined = true;
        Ok(())
    }

    /// Returns the reading of the node's clock.
    pub fn time(&self, world: Time) -> Time {
        self.clock.time(world)
    }

    /// Starts a process, as production does: it becomes a node's at its first start, asking the
    /// founder with `ask`, and boots; `recalled` are the answers of the others about its log.
    ///
    /// # Errors
    /// It refuses to start.
    pub fn start(
        &mut self,
        world: Time,
        settings: &Settings,
        dice: &mut Dice,
        ask: &mut dyn FnMut(Join) -> Option<Result<Founded, Refused>>,
        recalled: Vec<(NodeId, Memory)>,
    ) -> Result<Start, String> {
        self.life += 1;
        self.clock.restart(world);
        self.disk = self.disk.attach();
        self.disk.set_out_of_descriptors(false);
        self.store_rotten.set(false);
        let dies_after = self.dies_after.take();
        if let Some(steps) = dies_after {
            self.disk.die_after(steps);
        }
        self.planned.clear();
        self.paused = false;
        let outcome = self.start_as(settings, dice, ask, recalled);
        if self.disk.is_alive() {
            if matches!(outcome, Ok(Start::Waits(_))) {
                // All of it is done again.
                self.dies_after = dies_after;
            }
            return outcome;
        }
        // The process is dead: its answer is dropped.
        self.running = None;
        Ok(Start::Died)
    }

    fn start_as(
        &mut self,
        settings: &Settings,
        dice: &mut Dice,
        ask: &mut dyn FnMut(Join) -> Option<Result<Founded, Refused>>,
        recalled: Vec<(NodeId, Memory)>,
    ) -> Result<Start, String> {
        if self.is_too_old() {
            return Ok(Start::TooOld);
        }
        let Some(identity) = self.settle(settings, dice, ask)? else {
            return Ok(Start::Waits("the founder"));
        };
        let told = Rc::new(RefCell::new(Vec::new()));
        let service = Tap {
            service: Service::new(Box::new(MemoryStore::default())),
            told: Rc::clone(&told),
            disk: Rc::clone(&self.store),
            logged_to: Slot(0),
            kept_to: Rc::clone(&self.kept_to),
            lost: false,
            rotten: Rc::clone(&self.store_rotten),
            scrubbed: false,
        };
        let parts = Parts {
            service,
            stored_to: |tap: &mut Tap| tap.kept_to.get(),
            front: Fronts::new(RespFront::new(FrontSettings {
                version: "sim".into(),
                store: "memory".into(),
                client_bytes_max: settings.client_memory,
                ..FrontSettings::default()
            })),
            listener: Box::new(Deaf),
        };
        let mut starter = Simulated {
            settings,
            release: self.release,
            recalled,
            recovery: None,
            lost: Vec::new(),
        };
        let host = match boot(identity, parts, &mut starter) {
            Ok(host) => host,
            Err(BootError::NoRoom) => return Ok(Start::Waits("room")),
            Err(error) => return Err(error.to_string()),
        };
        let (reading, mut host) = (Arc::clone(&self.reading), host);
        host.lend_clock(ReplicaClock::new(move || Time(reading.load(Ordering::Relaxed))));
        self.running = Some(Running::new(host, told));
        self.release_running = self.release;
        self.ran_newest |= self.release == Level::NEWEST;
        Ok(Start::Runs(Box::new(Started {
            recovery: starter.recovery.ok_or("the boot recovered nothing")?,
            lost: starter.lost,
        })))
    }

    /// Returns the identity of the home, creating it if needed; `None` if the founder does not
    /// answer.
    fn settle(
        &self,
        settings: &Settings,
        dice: &mut Dice,
        ask: &mut dyn FnMut(Join) -> Option<Result<Founded, Refused>>,
    ) -> Result<Option<Identity<MemoryDisk>>, String> {
        let wanted = wanted(settings, self.id());
        let home = self.disk.clone();
        match Identity::open(home.clone(), &wanted.expected) {
            Err(IdentityError::Missing { .. }) => {}
            opened => return opened.map(Some).map_err(|error| error.to_string()),
        }
        let (word, nonce) = (u128::from(dice.word()), dice.word());
        let settled = match wanted.role() {
            Some(Role::Founder { node }) => {
                found(home, &wanted, node, "", word, nonce).map_err(|error| error.to_string())?
            }
            Some(Role::Joiner { node, .. }) => {
                let joining =
                    Joining::prepare(home, node, nonce).map_err(|error| error.to_string())?;
                match ask(joining.request(&wanted)) {
                    Some(Ok(founded)) => {
                        joining.finish(&wanted, founded).map_err(|error| error.to_string())?
                    }
                    Some(Err(refused)) if refused.code != RefusalCode::Other(0) => {
                        return Err(refused.reason);
                    }
                    // Worth another attempt.
                    Some(Err(_)) | None => return Ok(None),
                }
            }
            None => return Err("it does not know which node it is".to_owned()),
        };
        Ok(Some(settled))
    }

    /// Kills the process: its memory is gone, the disk keeps what it promised to keep.
    pub fn kill(&mut self, dice: &mut Dice) {
        self.running = None;
        self.stalled = None;
        self.life += 1;
        self.turn_at = None;
        self.paused = false;
        self.disk.crash(dice.word());
        self.planned.clear();
    }
}

/// A start with what the run's settings say.
struct Simulated<'a> {
    settings: &'a Settings,
    release: Level,
    /// Memories of other nodes of this node's log.
    recalled: Vec<(NodeId, Memory)>,
    recovery: Option<Recovery>,
    lost: Vec<String>,
}

impl Starter for Simulated<'_> {
    fn choose_log(&self, options: &mut LogOptions, class: Class) {
        options.segment_bytes = self.settings.segment_bytes;
        options.write_bytes_max = 16 << 10;
        options.depth = self.settings.depth;
        options.spare_segments = self.settings.spare_segments();
        if class == Class::Volatile {
            options.linger_bytes = 2 << 10;
        }
    }

    fn choose_replica(&self, options: &mut ReplicaOptions) {
        let settings = self.settings;
        options.supports = self.release;
        options.raising = settings
            .releases
            .map(|releases| releases.raise_ms)
            .or(settings.classes_us.map(|_| 0))
            .map_or(Raising::Hold, Raising::After);
        options.timeouts = Timeouts::default();
        options.command_bytes_max = COMMAND_BYTES_MAX;
        options.client_timeout_ms = settings.client_timeout_ms;
        options.inflight_max = settings.inflight_max;
        options.thrifty = settings.thrifty;
        options.votes = quorate_replica::routing::Votes::Set(settings.votes.clone());
        options.window_slots = settings.window_slots;
        options.limits = limits(settings);
        options.tuning = settings.tuning;
        options.snapshots = settings.snapshots;
        options.leases = settings.leases;
        options.alone_us = DIALLED_US;
        if let Some(scrubs) = &settings.scrubs {
            options.scrub = ScrubOptions {
                every_ms: scrubs.every_ms,
                bytes_per_second: scrubs.bytes_per_second,
            };
        }
        options.clock_drift_ppm = settings.drift_ppm.max(options.clock_drift_ppm);
        if let Some(streams) = &settings.streams {
            options.stream_layout = STREAM_LAYOUT;
            options.stream_limits.dirty_bytes_max = streams.dirty_bytes_max;
            options.stream_limits.gathered_bytes_max = streams.dirty_bytes_max / 2;
            options.limits.stream_window_bytes = streams.window_bytes;
        }
    }

    fn hear(&mut self, step: Step<'_>) {
        match step {
            Step::Lost(places) => self.lost = places.to_vec(),
            Step::Recovered(recovery) => self.recovery = Some(recovery.clone()),
            Step::Disk(_) | Step::Reading(_) | Step::Forgot(_) | Step::Replaced(_) => {}
        }
    }

    fn recall(&mut self, _: &Question<'_>) -> Vec<(NodeId, Memory)> {
        self.recalled.clone()
    }

    /// Never waits: the world has time, and tries the whole start again later.
    fn wait_for_room(&mut self, _: &BootError) -> bool {
        false
    }
}

/// The trace looks for itself.
struct Deaf;

impl Listener for Deaf {
    fn notice(&mut self, _: &str) {}

    fn change(&mut self, _: &Change) {}

    fn event(&mut self, _: Time, _: &Event, _: Option<&str>) {}

    fn end_turn(&mut self, _: Time) {}
}

/// Returns the start parameters of all nodes: the list of all of them.
pub fn wanted(settings: &Settings, node: NodeId) -> Wanted {
    let member = |index| (id(index), format!("n{}:1", index + 1));
    Wanted {
        expected: Expected {
            node: Some(node),
            class: Some(settings.class),
            store: Some("memory".to_owned()),
            supports: None,
        },
        cluster: (0..settings.nodes).map(member).collect(),
        store_default: "memory".to_owned(),
        terms: settings.terms.clone(),
    }
}

/// Capacities of the replica's queues.
pub fn limits(settings: &Settings) -> Limits {
    if !settings.tiny_queues {
        return Limits::default();
    }
    Limits {
        window_batches: 2,
        batch_bytes: 256,
        pending_bytes: 4 << 10,
        completion_bytes: 4 << 10,
        reply_bytes: 64 << 10,
        waiting_requests: 8,
        payload_bytes: 8 << 10,
        recent_bytes: 2 << 10,
        stream_bytes: 256 << 10,
        stream_window_bytes: 64 << 10,
        forwarded_bytes: 4 << 10,
        log_backlog_bytes: 32 << 10,
        decided_entries: 8,
        log_read_bytes: 2 << 10,
        apply_bytes: 2 << 10,
        serve_bytes: 2 << 10,
        serve_requests: 4,
    }
}
