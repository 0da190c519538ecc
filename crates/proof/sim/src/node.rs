//! A simulated node. Part of its state outlives its processes; each process runs the real replica
//! on a simulated disk.

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
    boot::{BootError, BootStep, MemoryRequest, NodeParts, Starter, boot},
    founding::{
        FirstStartRole, FoundingSettings, Joined, JoiningError, JoiningNode, Newcomer,
        found_cluster,
    },
    host::{Founded, Host as _, JoinRefusal, TurnTimes},
    identity::{ExpectedIdentity, IdentityError},
    listener::EventListener,
};
use quorate_replica::{
    Clock as ReplicaClock,
    counters::Counters,
    events::Event,
    front::ConnectionId,
    group::{MemberRole, asking::GroupRequest},
    limits::Limits,
    open::{ReplicaOptions, Timeouts},
    replica::Replica,
    rising::RaisePolicy,
    scrubbing::{ScrubOptions, report::ScrubStatus},
    service::{CommandId, Health, Imaged, LoadError, MetaChange, Scrubbed, StateMachine},
    stream_front::StreamTag,
    tuner::SettingChange,
};
use quorate_stream::store::Layout;
use quorate_wire::{Join, RefusalCode};

use crate::ids::hash;
pub use crate::ids::id;
use crate::{
    clock::NodeClock,
    device::Device,
    dice::Dice,
    faults::RunSettings,
    front::{Fronts, StreamRequest as StreamAsk},
    side::PacketEndpoint,
    workload::frame_client::{FrameRequest as DeskAsk, NodeAnswer as DeskAnswer},
};

/// Time for which a starting node waits for connections from peers before it leads alone. It
/// exceeds any pause between attempts to connect, plus a handshake.
const LEAD_ALONE_AFTER_US: u64 = 150_000;

/// Maximum length of a command in the simulator. It is so small that clients exceed it.
pub const COMMAND_BYTES_MAX: usize = 2048;

/// Layout of streams on disk. Chunks and files are so small that they fill up.
const STREAM_LAYOUT: Layout =
    Layout { unit_bytes: 4 << 10, chunk_bytes: 16 << 10, chunks_per_file: 8 };

/// Event of a service, recorded for the checkers.
#[derive(Clone, Copy, Debug)]
pub enum ServiceEvent {
    /// A command was executed. Contains hashes of the command and the reply.
    Executed(CommandId, u64, u64),
    /// All slots below this one are applied. Contains a digest of the state if one was computed.
    Applied(Slot, Option<u128>),
}

/// Simulated disk of a service with its faults. It outlives the processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreDisk {
    /// Set if the disk has no space for writes.
    pub is_full: bool,
    /// Set if the disk cannot be opened.
    pub is_missing: bool,
    /// Number of commands that the service executes before the disk becomes unreadable; `None` if
    /// the disk does not fail.
    pub fails_after: Option<u32>,
}

/// Wrapper of the real service. It records events for the checkers, and loses all state when the
/// disk fails.
pub struct RecordingService {
    service: Service,
    service_events: Rc<RefCell<Vec<ServiceEvent>>>,
    disk: Rc<Cell<StoreDisk>>,
    log_end: Slot,
    /// End of the slots that the disk of a persistent service may already contain.
    disk_kept_to: Rc<Cell<Slot>>,
    /// Set if the service lost its state, so that its last reply is void and it must start over.
    has_lost_state: bool,
    /// Set if a file of the service is damaged in a part that has not been read since.
    has_unread_damage: Rc<Cell<bool>>,
    /// Set if a scrub is currently reading the files of the service.
    is_scrubbing: bool,
}

impl StateMachine for RecordingService {
    fn apply(&mut self, id: CommandId, command: &[u8], reply: &mut Vec<u8>) {
        let start = reply.len();
        let mut disk = self.disk.get();
        if let Some(left) = disk.fails_after {
            disk.fails_after = left.checked_sub(1);
            self.has_lost_state |= left == 0;
            self.disk.set(disk);
        }
        if self.has_lost_state {
            // If a node accepts this reply, the checkers report a violation.
            reply.extend_from_slice(b":-666\r\n");
            return;
        }
        self.service.apply(id, command, reply);
        let told = ServiceEvent::Executed(id, hash(command), hash(&reply[start..]));
        self.service_events.borrow_mut().push(told);
    }

    fn grows(&self, command: &[u8]) -> bool {
        self.service.grows(command)
    }

    fn query(&self, query: &[u8], wall_ms: u64, reply: &mut Vec<u8>) {
        if self.has_lost_state {
            reply.extend_from_slice(b":-666\r\n");
            return;
        }
        self.service.query(query, wall_ms, reply);
    }

    fn health(&mut self) -> Health {
        let disk = self.disk.get();
        if disk.is_missing {
            self.has_lost_state = true;
        }
        match (self.has_lost_state, disk.is_missing, disk.is_full) {
            (true, true, _) => Health::Down("its disk is gone".to_owned()),
            (true, false, _) => {
                self.has_lost_state = false;
                self.service = Service::new(Box::new(MemoryStore::default()));
                Health::Back(Some("it lost what it had".to_owned()))
            }
            (false, _, true) => Health::Stuck("its disk is full".to_owned()),
            (false, _, false) => Health::Well,
        }
    }

    fn has_failed(&self) -> bool {
        self.has_lost_state
    }

    fn commit(&mut self, applied_to: Slot, meta: &[MetaChange]) {
        assert!(!self.has_lost_state, "what counts for nothing is not committed");
        self.service.commit(applied_to, meta);
        if applied_to <= self.log_end {
            self.disk_kept_to.set(applied_to.max(self.disk_kept_to.get()));
        }
        let digest = applied_to.0.is_multiple_of(4).then(|| self.service.digest());
        self.service_events.borrow_mut().push(ServiceEvent::Applied(applied_to, digest));
    }

    fn logged(&mut self, to: Slot) {
        self.log_end = to;
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
        !self.has_lost_state && !self.has_unread_damage.get() && self.service.begin_image()
    }

    fn next_image(&mut self, bytes: usize, each: &mut dyn FnMut(&[u8])) -> Imaged {
        if self.has_lost_state || self.has_unread_damage.get() {
            return Imaged::Failed;
        }
        self.service.next_image(bytes, each)
    }

    fn end_image(&mut self) {
        self.service.end_image();
    }

    fn begin_load(&mut self) -> Result<(), LoadError> {
        self.check_loadable()?;
        self.service.begin_load()
    }

    fn load(&mut self, item: &[u8]) -> Result<(), LoadError> {
        self.check_loadable()?;
        self.service.load(item)
    }

    fn finish_load(&mut self, at: Slot, meta: &[MetaChange]) -> Result<(), LoadError> {
        self.check_loadable()?;
        self.service.finish_load(at, meta)?;
        let digest = Some(self.service.digest());
        self.service_events.borrow_mut().push(ServiceEvent::Applied(at, digest));
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
        self.is_scrubbing = true;
    }

    fn take_scrubbed(&mut self) -> Scrubbed {
        let mut scrubbed = self.service.take_scrubbed();
        if std::mem::take(&mut self.is_scrubbing) && self.has_unread_damage.get() {
            scrubbed.damaged.push("a file of the store".to_owned());
        }
        scrubbed
    }

    fn renew(&mut self) -> Result<(), String> {
        self.check_loadable().map_err(|error| error.to_string())?;
        self.has_lost_state = true;
        self.has_unread_damage.set(false);
        Ok(())
    }

    fn kept_bytes(&self) -> u64 {
        self.service.kept_bytes()
    }
}

impl RecordingService {
    fn check_loadable(&self) -> Result<(), LoadError> {
        if self.has_lost_state {
            return Err(LoadError::Storage("its disk is gone".to_owned()));
        }
        Ok(())
    }

    pub fn state_digest(&self) -> u128 {
        self.service.digest()
    }
}

/// Input to a process, in order of arrival.
#[derive(Debug)]
pub enum Arrival {
    /// The handshake with a peer is complete.
    PeerUp {
        peer: usize,
        connection: u64,
        member: Member,
        /// Start number of the peer's process.
        boot: u32,
        /// Feature levels that the peer's release supports.
        levels: Levels,
    },
    /// The connection to a peer is broken.
    PeerDown {
        peer: usize,
        connection: u64,
    },
    /// A client opened a connection.
    ClientOpened(ConnectionId),
    /// Bytes arrived from a client.
    ClientBytes(ConnectionId, Vec<u8>),
    /// A client closed its connection.
    ClientClosed(ConnectionId),
    /// Operator request to hand over the leadership to a node, or to any node if `None`.
    TransferRequest(Option<NodeId>),
    StopRequest,
    /// Operator request to scrub with a rate limit, or with the node's own limit if `None`.
    ScrubRequest(Option<u64>),
    /// Request from a stream client.
    StreamRequest(ConnectionId, StreamTag, StreamAsk),
    /// Request about the group from an operator or a joining node.
    GroupRequest(u64, GroupRequest),
    /// Request to execute the command with this number under a class other than the group's.
    ClassRequest {
        number: u64,
        /// If true, the command is acknowledged once a quorum has it in memory, otherwise once a
        /// quorum has it on disk.
        acknowledge_in_memory: bool,
    },
    /// Request from the device client with this index.
    DeskRequest(usize, DeskAsk),
}

pub struct RunningProcess {
    /// Node host, which the reactor runs in production.
    pub host: Host,
    /// Arrivals that the process has not handled yet.
    pub inbox: VecDeque<Arrival>,
    /// Numbers of the connections known to the process, by peer index.
    pub peer_connections: BTreeMap<usize, u64>,
    /// Bytes of incomplete frames, by peer index and lane.
    pub partial_frames: BTreeMap<(usize, usize), Vec<u8>>,
    /// Requests that the front has not accepted yet.
    pub unaccepted_requests: BTreeMap<ConnectionId, Vec<u8>>,
    /// Service events that were not checked yet.
    pub service_events: Rc<RefCell<Vec<ServiceEvent>>>,
    /// Answers to device clients from the current turn.
    pub(crate) desk_answers: Vec<(usize, DeskAnswer)>,
    /// Packet plane of the process; `None` unless the run's carrier is packets.
    pub(crate) packets: Option<PacketEndpoint>,
    /// State at the time of the previous trace line, used to detect changes.
    pub traced_state: TracedState,
}

/// The node host used in production, on a simulated disk.
pub type Host = NodeHost<MemoryDisk, RecordingService, Fronts>;

impl RunningProcess {
    fn new(host: Host, told: Rc<RefCell<Vec<ServiceEvent>>>) -> Self {
        Self {
            host,
            inbox: VecDeque::new(),
            peer_connections: BTreeMap::new(),
            partial_frames: BTreeMap::new(),
            unaccepted_requests: BTreeMap::new(),
            service_events: told,
            desk_answers: Vec::new(),
            packets: None,
            traced_state: TracedState::default(),
        }
    }

    pub fn replica(&self) -> &Replica<MemoryDisk, RecordingService> {
        self.host.replica()
    }
}

/// State of a replica at the time of its last trace line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TracedState {
    /// Role of the replica, and its leader.
    pub role: String,
    pub ballot: Ballot,
    pub decided_to: Slot,
    /// Position up to which the stream table was checked.
    pub streams_checked_to: Slot,
    /// Counters of the node's device: slots assigned, decisions counted, withdrawals of slot
    /// assignment, values too long for the device, and values offered to other nodes' devices.
    pub device_counters: [u64; 5],
    pub counters: Counters,
    /// Reason why the replica does not serve; `None` if it serves.
    pub error: Option<String>,
    /// A scrub is in progress, and the number of damaged places that all scrubs found.
    pub scrub_state: (bool, u64),
}

/// A node. Most of its state outlives its processes.
pub struct Node {
    pub index: usize,
    /// Disk with the node's data folder. Handles opened before a crash no longer work.
    pub disk: MemoryDisk,
    pub clock: NodeClock,
    /// Number of process starts. Events meant for an earlier process are ignored.
    pub start_count: u64,
    /// Device of the node, which outlives the process; `None` in runs without devices.
    pub device: Option<Device>,
    /// Running process; `None` while the node is down.
    pub running: Option<RunningProcess>,
    /// Set if the node joined after the cluster was founded.
    pub joined_later: bool,
    /// Set if the node was removed from the group and switched off permanently.
    pub is_retired: bool,
    pub is_paused: bool,
    /// Time that the host reads from its clock within a turn.
    pub clock_reading: Arc<AtomicU64>,
    /// Clock readings at the beginning of the current turn, while the process is stalled within the
    /// turn.
    pub stalled_turn: Option<TurnTimes>,
    /// World time of the node's next turn.
    pub next_turn_at: Option<Time>,
    /// Numbers of the disk operations whose completion is scheduled.
    pub scheduled_operations: BTreeSet<u64>,
    /// Factor by which the node's disk is currently slowed down.
    pub disk_slowdown: u64,
    /// Set if the next write to the disk fails.
    pub next_write_fails: bool,
    /// Set if a bit on the node's disk was flipped in this run.
    pub has_rotted: bool,
    /// Set if the disk loses acknowledged data at the next start.
    pub loses_data_at_start: bool,
    /// Copies of identity and address book from earlier starts of the current incarnation.
    pub(crate) folder_copies: Vec<FolderCopy>,
    /// Set if a test replaced the node's folder with an old copy, which peers cannot detect when
    /// the node starts.
    pub was_set_back: bool,
    /// Small file that was most recently damaged.
    pub(crate) damaged_file: Option<DamagedFile>,
    /// Number of scrubs that were completed.
    pub completed_scrubs: u64,
    pub last_scrub_status: ScrubStatus,
    /// Number of disk changes after which the next process is killed.
    pub dies_after_changes: Option<u64>,
    pub store_disk: Rc<Cell<StoreDisk>>,
    /// Set if a file of the node's service is damaged in a part that has not been read since. A
    /// starting process rebuilds every file.
    pub store_has_unread_damage: Rc<Cell<bool>>,
    /// End of the slots that the disk of a persistent service may already contain.
    pub disk_kept_to: Rc<Cell<Slot>>,
    /// Highest feature level that the installed release supports.
    pub installed_release: Level,
    /// Highest feature level that the release of the current or last process supports.
    pub running_release: Level,
    /// Set if a process of the newest release has run on this node.
    pub ran_newest_release: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct DamagedFile {
    pub(crate) name: &'static str,
    pub(crate) sound_contents: Vec<u8>,
    pub(crate) damaged_contents: Vec<u8>,
}

/// Copy of the small files in a folder.
#[derive(Clone, Debug)]
pub(crate) struct FolderCopy {
    /// Incarnation and feature level of the folder at the time of the copy.
    pub(crate) version: (Incarnation, Level),
    pub(crate) files: Vec<(&'static str, Option<Vec<u8>>)>,
}

/// Outcome of a process start.
pub enum StartOutcome {
    Started(Box<StartDetails>),
    /// The start cannot complete yet, for the reason given. Repeating the start is safe.
    NotYet(&'static str),
    /// The release is too old for the data folder.
    TooOld,
    /// The process was killed during the start.
    Killed,
}

/// Details of a successful start.
pub struct StartDetails {
    /// Result of reading the log.
    pub recovery: Recovery,
    /// Reasons why the node may have forgotten votes.
    pub lost_reasons: Vec<String>,
}

impl Node {
    pub fn new(index: usize, clock: NodeClock) -> Self {
        let disk = MemoryDisk::new();
        disk.set_manual_completion(true);
        Self {
            index,
            disk,
            clock,
            start_count: 0,
            device: None,
            running: None,
            joined_later: false,
            is_retired: false,
            is_paused: false,
            clock_reading: Arc::default(),
            stalled_turn: None,
            next_turn_at: None,
            scheduled_operations: BTreeSet::new(),
            disk_slowdown: 1,
            next_write_fails: false,
            has_rotted: false,
            loses_data_at_start: false,
            folder_copies: Vec::new(),
            was_set_back: false,
            damaged_file: None,
            completed_scrubs: 0,
            last_scrub_status: ScrubStatus::default(),
            dies_after_changes: None,
            store_disk: Rc::default(),
            store_has_unread_damage: Rc::default(),
            disk_kept_to: Rc::default(),
            installed_release: Level::NEWEST,
            running_release: Level::NEWEST,
            ran_newest_release: false,
        }
    }

    pub fn id(&self) -> NodeId {
        id(self.index)
    }

    /// Returns the identity on the node's disk, even if no process is running; `None` before the
    /// first start is complete.
    pub fn identity(&self) -> Option<Identity<MemoryDisk>> {
        Identity::open(self.disk.reopen_after_crash(), &ExpectedIdentity::default()).ok()
    }

    /// Returns whether the node's disk records that the node was removed from the group.
    pub fn is_removed(&self) -> bool {
        let opened = Identity::open(self.disk.reopen_after_crash(), &ExpectedIdentity::default());
        matches!(opened, Err(IdentityError::Removed { .. }))
    }

    /// Returns whether the node's folder requires a newer release than the installed one.
    fn is_too_old(&self) -> bool {
        let expected = ExpectedIdentity {
            supported_level: Some(self.installed_release),
            ..ExpectedIdentity::default()
        };
        let opened = Identity::open(self.disk.clone(), &expected);
        matches!(opened, Err(IdentityError::LevelUnsupported { .. }))
    }

    pub fn member(&self) -> Member {
        let running = self.running.as_ref();
        running
            .map(|running| running.host.identity().member())
            .or_else(|| self.identity().map(|identity| identity.member()))
            .unwrap_or_else(|| Member::first(self.id().0))
    }

    /// Records the assigned id of a joining node on its disk.
    pub fn record_join(
        &mut self,
        nonce: u64,
        role: MemberRole,
        joined: Joined,
    ) -> Result<(), JoiningError> {
        let newcomer = Newcomer::prepare(self.disk.reopen_after_crash(), nonce)?;
        newcomer.finish(&FoundingSettings::default(), role, joined)?;
        self.joined_later = true;
        Ok(())
    }

    /// Returns the reading of the node's monotonic clock.
    pub fn monotonic_time(&self, world: Time) -> Time {
        self.clock.monotonic_time(world)
    }

    /// Starts a process as in production: at its first start the node obtains an identity from the
    /// founder, through `ask`, and then boots. `recalled` contains the records of its log on other
    /// nodes. Fails if the process refuses to start.
    pub fn start(
        &mut self,
        world: Time,
        settings: &RunSettings,
        dice: &mut Dice,
        ask: &mut dyn FnMut(Join) -> Option<Result<Founded, JoinRefusal>>,
        recalled: Vec<(NodeId, Memory)>,
    ) -> Result<StartOutcome, String> {
        self.start_count += 1;
        self.clock.restart(world);
        self.disk = self.disk.reopen_after_crash();
        self.disk.set_out_of_descriptors(false);
        self.store_has_unread_damage.set(false);
        let dies_after = self.dies_after_changes.take();
        if let Some(steps) = dies_after {
            self.disk.die_after_changes(steps);
        }
        self.scheduled_operations.clear();
        self.is_paused = false;
        let outcome = self.start_as(settings, dice, ask, recalled);
        if self.disk.is_alive() {
            if matches!(outcome, Ok(StartOutcome::NotYet(_))) {
                // The next start repeats these disk changes, and dies at the same one.
                self.dies_after_changes = dies_after;
            }
            return outcome;
        }
        // The process was killed, so the result of its start is dropped.
        self.running = None;
        Ok(StartOutcome::Killed)
    }

    fn start_as(
        &mut self,
        settings: &RunSettings,
        dice: &mut Dice,
        ask: &mut dyn FnMut(Join) -> Option<Result<Founded, JoinRefusal>>,
        recalled: Vec<(NodeId, Memory)>,
    ) -> Result<StartOutcome, String> {
        if self.is_too_old() {
            return Ok(StartOutcome::TooOld);
        }
        let Some(identity) = self.obtain_identity(settings, dice, ask)? else {
            return Ok(StartOutcome::NotYet("the founder"));
        };
        let told = Rc::new(RefCell::new(Vec::new()));
        let service = RecordingService {
            service: Service::new(Box::new(MemoryStore::default())),
            service_events: Rc::clone(&told),
            disk: Rc::clone(&self.store_disk),
            log_end: Slot(0),
            disk_kept_to: Rc::clone(&self.disk_kept_to),
            has_lost_state: false,
            has_unread_damage: Rc::clone(&self.store_has_unread_damage),
            is_scrubbing: false,
        };
        let parts = NodeParts {
            service,
            stored_to: |tap: &mut RecordingService| tap.disk_kept_to.get(),
            front: Fronts::new(RespFront::new(FrontSettings {
                version: "sim".into(),
                store: "memory".into(),
                client_bytes_max: settings.client_memory_bytes,
                ..FrontSettings::default()
            })),
            listener: Box::new(NullListener),
        };
        let mut starter = SimulatedEnvironment {
            settings,
            release: self.installed_release,
            remembered_logs: recalled,
            recovery: None,
            lost_reasons: Vec::new(),
        };
        let host = match boot(identity, parts, &mut starter) {
            Ok(host) => host,
            Err(BootError::NoRoom) => return Ok(StartOutcome::NotYet("room")),
            Err(error) => return Err(error.to_string()),
        };
        let (reading, mut host) = (Arc::clone(&self.clock_reading), host);
        host.set_clock(ReplicaClock::new(move || Time(reading.load(Ordering::Relaxed))));
        self.running = Some(RunningProcess::new(host, told));
        self.running_release = self.installed_release;
        self.ran_newest_release |= self.installed_release == Level::NEWEST;
        Ok(StartOutcome::Started(Box::new(StartDetails {
            recovery: starter.recovery.ok_or("the boot recovered nothing")?,
            lost_reasons: starter.lost_reasons,
        })))
    }

    /// Returns the identity in the data folder, creating it if needed; `None` if the founder does
    /// not answer, or fails to admit the node.
    fn obtain_identity(
        &self,
        settings: &RunSettings,
        dice: &mut Dice,
        ask: &mut dyn FnMut(Join) -> Option<Result<Founded, JoinRefusal>>,
    ) -> Result<Option<Identity<MemoryDisk>>, String> {
        let wanted = start_parameters(settings, self.id());
        let home = self.disk.clone();
        match Identity::open(home.clone(), &wanted.expected) {
            Err(IdentityError::Missing { .. }) => {}
            opened => return opened.map(Some).map_err(|error| error.to_string()),
        }
        let (word, nonce) = (u128::from(dice.word()), dice.word());
        let settled = match wanted.role() {
            Some(FirstStartRole::Founder { node }) => {
                found_cluster(home, &wanted, node, "", word, nonce)
                    .map_err(|error| error.to_string())?
            }
            Some(FirstStartRole::Joiner { node, .. }) => {
                let joining =
                    JoiningNode::prepare(home, node, nonce).map_err(|error| error.to_string())?;
                match ask(joining.request(&wanted)) {
                    Some(Ok(founded)) => {
                        joining.finish(&wanted, founded).map_err(|error| error.to_string())?
                    }
                    Some(Err(refused)) if refused.code != RefusalCode::Other(0) => {
                        return Err(refused.reason);
                    }
                    // The start is retried later.
                    Some(Err(_)) | None => return Ok(None),
                }
            }
            None => return Err("it does not know which node it is".to_owned()),
        };
        Ok(Some(settled))
    }

    /// Kills the process. Its memory is lost, and the disk retains only what it guarantees.
    pub fn kill(&mut self, dice: &mut Dice) {
        self.running = None;
        self.stalled_turn = None;
        self.start_count += 1;
        self.next_turn_at = None;
        self.is_paused = false;
        self.disk.crash(dice.word());
        self.scheduled_operations.clear();
    }
}

/// Environment for starting a node with the settings for the run.
struct SimulatedEnvironment<'a> {
    settings: &'a RunSettings,
    release: Level,
    /// Records of this node's log on other nodes.
    remembered_logs: Vec<(NodeId, Memory)>,
    recovery: Option<Recovery>,
    lost_reasons: Vec<String>,
}

impl Starter for SimulatedEnvironment<'_> {
    fn choose_log(&self, options: &mut LogOptions, class: Class) {
        options.segment_bytes = self.settings.segment_bytes;
        options.write_bytes_max = 16 << 10;
        options.writes_in_flight_max = self.settings.inflight_writes_max;
        options.spare_segments = self.settings.spare_segment_count();
        if class == Class::Volatile {
            options.linger_bytes = 2 << 10;
        }
    }

    fn choose_replica(&self, options: &mut ReplicaOptions) {
        let settings = self.settings;
        options.supported_level = self.release;
        options.raise_policy = settings
            .release_changes
            .map(|releases| releases.raise_delay_ms)
            .or(settings.class_request_interval_us.or(settings.leases.map(|_| 0)).map(|_| 0))
            .map_or(RaisePolicy::OnRequest, RaisePolicy::AfterDelay);
        options.timeouts = Timeouts::default();
        options.command_bytes_max = COMMAND_BYTES_MAX;
        options.client_timeout_ms = settings.client_timeout_ms;
        options.inflight_max = settings.inflight_max;
        options.is_thrifty = settings.is_thrifty;
        options.vote_route =
            quorate_replica::routing::VoteRoute::Fixed(settings.vote_route.clone());
        options.window_slots = settings.window_slots;
        options.limits = queue_limits(settings);
        options.tuning = settings.batch_tuning;
        options.snapshots = settings.snapshot_options;
        options.leases = settings.leases;
        options.lead_alone_after_us = LEAD_ALONE_AFTER_US;
        if let Some(scrubs) = &settings.scrub_settings {
            options.scrub = ScrubOptions {
                interval_ms: scrubs.interval_ms,
                bytes_per_second: scrubs.bytes_per_second,
            };
        }
        options.clock_drift_ppm = settings.clock_drift_ppm.max(options.clock_drift_ppm);
        if let Some(streams) = &settings.stream_load {
            options.stream_layout = STREAM_LAYOUT;
            options.stream_limits.dirty_bytes_max = streams.dirty_bytes_max;
            options.stream_limits.gathered_bytes_max = streams.dirty_bytes_max / 2;
            options.limits.stream_window_bytes = streams.window_bytes;
        }
    }

    fn report_step(&mut self, step: BootStep<'_>) {
        match step {
            BootStep::LostVotes(places) => self.lost_reasons = places.to_vec(),
            BootStep::LogRecovered(recovery) => self.recovery = Some(recovery.clone()),
            BootStep::DiskOpened(_)
            | BootStep::ReadingLog(_)
            | BootStep::MayHaveForgotten(_)
            | BootStep::NewIncarnation(_) => {}
        }
    }

    fn request_memories(&mut self, _: &MemoryRequest<'_>) -> Vec<(NodeId, Memory)> {
        self.remembered_logs.clone()
    }

    /// Never waits, because the world repeats the whole start later.
    fn wait_for_room(&mut self, _: &BootError) -> bool {
        false
    }
}

/// Listener that ignores all events, because the trace inspects the replica directly.
struct NullListener;

impl EventListener for NullListener {
    fn on_notice(&mut self, _: &str) {}

    fn on_tuning_change(&mut self, _: &SettingChange) {}

    fn on_event(&mut self, _: Time, _: &Event, _: Option<&str>) {}

    fn end_turn(&mut self, _: Time) {}
}

/// Returns the start parameters of a node, including the full member list.
pub fn start_parameters(settings: &RunSettings, node: NodeId) -> FoundingSettings {
    let member = |index| (id(index), format!("n{}:1", index + 1));
    FoundingSettings {
        expected: ExpectedIdentity {
            node: Some(node),
            class: Some(settings.class),
            store: Some("memory".to_owned()),
            supported_level: None,
        },
        cluster: (0..settings.founding_member_count).map(member).collect(),
        store_default: "memory".to_owned(),
        terms: settings.founding_terms.clone(),
    }
}

/// Returns the capacities of a replica's queues.
pub fn queue_limits(settings: &RunSettings) -> Limits {
    if !settings.has_tiny_queues {
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
