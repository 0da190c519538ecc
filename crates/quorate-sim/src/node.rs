//! One simulated process: the real replica on a simulated disk, and what outlives the process.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet, VecDeque},
    rc::Rc,
};

use quorate_core::{
    ballot::Ballot,
    configuration::Configuration,
    node_id::{Incarnation, Member, NodeId},
    record::Class,
    slot::Slot,
    time::Time,
};
use quorate_disk::MemoryDisk;
use quorate_kv::{
    front::{RespFront, Settings as FrontSettings},
    service::Service,
    store::memory::MemoryStore,
};
use quorate_log::{Log, LogError, LogOptions, Recovery};
use quorate_node::identity::LastStop;
use quorate_replica::{
    front::ConnectionId,
    limits::Limits,
    open::{ReplicaOptions, Timeouts},
    replica::Replica,
    service::{CommandId, Health, MetaChange, StateMachine},
};

use crate::{clock::Clock, dice::Dice, faults::Settings};

/// The cluster that all simulated nodes belong to.
pub const CLUSTER: u128 = 0x5eed;
/// Largest command in the simulator: small, so that "too big" happens.
pub const COMMAND_BYTES_MAX: usize = 2048;

/// What the service was told, for the checkers.
#[derive(Clone, Copy, Debug)]
pub enum Told {
    /// A command was executed: hashes of it and of its reply.
    Executed(CommandId, u64, u64),
    /// Everything below is applied; the state's digest, where one was taken.
    Applied(Slot, Option<u128>),
}

/// What is wrong with the disk of a service; outlives its processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreDisk {
    /// It takes no writes.
    pub full: bool,
    /// It cannot be opened.
    pub gone: bool,
    /// So many commands are executed before it turns out that nothing can be read.
    pub fails_after: Option<u32>,
}

/// The real service, overheard; and, where its disk fails, one that loses all it has.
pub struct Tap {
    service: Service,
    told: Rc<RefCell<Vec<Told>>>,
    disk: Rc<Cell<StoreDisk>>,
    logged_to: Slot,
    /// What it might have kept, if it kept anything.
    kept_to: Rc<Cell<Slot>>,
    /// What it said last is worthless, and it has to begin again.
    lost: bool,
}

fn hash(bytes: &[u8]) -> u64 {
    let mut state = bytes.len() as u64;
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        state = crate::dice::mix(state ^ u64::from_le_bytes(word)).wrapping_add(1);
    }
    state
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
            // Whoever believes this is caught.
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
        let digest = applied_to
            .0
            .is_multiple_of(4)
            .then(|| self.service.digest());
        self.told
            .borrow_mut()
            .push(Told::Applied(applied_to, digest));
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

    fn due(&mut self, wall_ms: u64, limit: usize, each: &mut dyn FnMut(&[u8])) {
        self.service.due(wall_ms, limit, each);
    }
}

impl Tap {
    /// Fingerprint of the whole state.
    pub fn digest(&self) -> u128 {
        self.service.digest()
    }
}

/// What the identity file holds: replaced as a whole, durably, before the first message
/// ([volatile-1], [volatile-4]). Mirrors `quorate_node::identity`, which needs a real folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Counts process starts.
    pub boot: u32,
    /// Counts losses of memory.
    pub incarnation: Incarnation,
    /// The last process wrote everything down and said so.
    pub clean: bool,
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
        /// Who it is now.
        member: Member,
        /// Which of its process starts.
        boot: u32,
    },
    /// A connection broke.
    PeerDown {
        /// With whom.
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
}

/// A living process.
pub struct Running {
    /// The replica.
    pub replica: Replica<MemoryDisk, Tap>,
    /// Its client protocol.
    pub front: RespFront,
    /// What has arrived and was not looked at yet.
    pub inbox: VecDeque<Arrival>,
    /// Connections to peers that the process knows of, by index of the peer.
    pub up: BTreeMap<usize, u64>,
    /// Beginnings of frames, by peer and lane.
    pub partial: BTreeMap<(usize, usize), Vec<u8>>,
    /// Requests that the front has not taken yet.
    pub requests: BTreeMap<ConnectionId, Vec<u8>>,
    /// What the service was told since the last look.
    pub told: Rc<RefCell<Vec<Told>>>,
    /// As of the last look, to see changes.
    pub seen: Seen,
}

/// What the trace has told of a replica.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Role and leader.
    pub role: String,
    /// Ballot.
    pub ballot: Ballot,
    /// Decided prefix.
    pub decided_to: Slot,
    /// Why it does not serve.
    pub error: Option<String>,
}

/// A node: what outlives its processes, and the process that runs, if one does.
pub struct Node {
    /// Position in the world's list.
    pub index: usize,
    /// The disk; handles of before a crash are dead.
    pub disk: MemoryDisk,
    /// The identity file.
    pub identity: Identity,
    /// The clocks.
    pub clock: Clock,
    /// Counts process starts, for events that are meant for one of them.
    pub life: u64,
    /// The process.
    pub running: Option<Running>,
    /// It stands still.
    pub paused: bool,
    /// When its next turn is, in the world's time.
    pub turn_at: Option<Time>,
    /// Disk operations whose end is planned.
    pub planned: BTreeSet<u64>,
    /// How many times longer its disk takes at the moment.
    pub disk_factor: u64,
    /// The next write fails.
    pub disk_error: bool,
    /// It may have forgotten votes: it is a learner now.
    pub forgot: bool,
    /// The disk of its service.
    pub store: Rc<Cell<StoreDisk>>,
    /// The latest position that a persistent service could have on its disk.
    pub kept_to: Rc<Cell<Slot>>,
}

/// What a start found.
pub struct Started {
    /// What the log gave back.
    pub recovery: Recovery,
    /// Who it is now.
    pub member: Member,
    /// It comes back as a new member, without a vote ([volatile-1]).
    pub forgot: bool,
}

impl Node {
    /// A node that was never started.
    pub fn new(index: usize, clock: Clock) -> Self {
        let disk = MemoryDisk::new();
        disk.set_manual(true);
        Self {
            index,
            disk,
            identity: Identity::default(),
            clock,
            life: 0,
            running: None,
            paused: false,
            turn_at: None,
            planned: BTreeSet::new(),
            disk_factor: 1,
            disk_error: false,
            forgot: false,
            store: Rc::default(),
            kept_to: Rc::default(),
        }
    }

    /// Its id.
    pub fn id(&self) -> NodeId {
        NodeId(u32::try_from(self.index + 1).expect("a handful of nodes"))
    }

    /// Who it is.
    pub fn member(&self) -> Member {
        Member {
            node: self.id(),
            incarnation: self.identity.incarnation,
        }
    }

    /// What the node's clock shows.
    pub fn time(&self, world: Time) -> Time {
        self.clock.time(world)
    }

    /// A process starts, as `quorate start` does it: count the boot and consume the mark of a clean
    /// stop, durably; decide whether votes may be forgotten; open the log; open the replica.
    ///
    /// # Errors
    /// The log cannot be opened.
    pub fn start(
        &mut self,
        world: Time,
        settings: &Settings,
        dice: &mut Dice,
    ) -> Result<Started, String> {
        self.life += 1;
        self.clock.restart(world);
        self.disk = self.disk.attach();
        self.disk.set_out_of_descriptors(false);
        self.planned.clear();
        self.paused = false;
        let last = match (self.identity.boot, self.identity.clean) {
            (0, _) => LastStop::Never,
            (_, true) => LastStop::Clean,
            (_, false) => LastStop::Unclean,
        };
        self.identity.boot += 1;
        self.identity.clean = false;
        if last.forgets(settings.class) {
            self.forget();
        }
        let mut options = LogOptions::new(CLUSTER, self.id(), self.identity.incarnation);
        options.segment_bytes = settings.segment_bytes;
        options.batch_bytes_max = 16 << 10;
        options.depth = settings.depth;
        options.spare_segments = settings.spare_segments();
        if settings.class == Class::Volatile {
            options.linger_bytes = 2 << 10;
        }
        options.used = last != LastStop::Never;
        options.stored_to = self.kept_to.get();
        let disk = self.disk.attach();
        let open =
            |options| Log::open(disk.clone(), options).map_err(|error: LogError| error.to_string());
        let (mut log, mut recovery) = open(options)?;
        let forgotten = recovery.damage.as_ref().is_some_and(|d| d.forgotten);
        if forgotten {
            drop(log);
            disk.close();
            self.forget();
            options.incarnation = self.identity.incarnation;
            options.owns_up = true;
            (log, recovery) = open(options)?;
        }
        let told = Rc::new(RefCell::new(Vec::new()));
        let service = Service::new(Box::new(MemoryStore::default()));
        let tap = Tap {
            service,
            told: Rc::clone(&told),
            disk: Rc::clone(&self.store),
            logged_to: Slot(0),
            kept_to: Rc::clone(&self.kept_to),
            lost: false,
        };
        let options = self.replica_options(settings, dice);
        let now = self.clock.time(world);
        let replica = Replica::open(options, log, recovery.clone(), tap, now)
            .map_err(|error| error.to_string())?;
        self.running = Some(Running {
            replica,
            front: RespFront::new(FrontSettings {
                version: "sim".into(),
                store: "memory".into(),
                client_bytes_max: settings.client_memory,
                ..FrontSettings::default()
            }),
            inbox: VecDeque::new(),
            up: BTreeMap::new(),
            partial: BTreeMap::new(),
            requests: BTreeMap::new(),
            told,
            seen: Seen::default(),
        });
        Ok(Started {
            recovery,
            member: self.member(),
            forgot: self.forgot,
        })
    }

    fn forget(&mut self) {
        self.identity.incarnation.0 += 1;
        self.forgot = true;
    }

    fn replica_options(&self, settings: &Settings, dice: &mut Dice) -> ReplicaOptions {
        let mut options = ReplicaOptions::new(
            CLUSTER,
            self.member(),
            self.identity.boot,
            founding(settings),
        );
        options.timeouts = Timeouts {
            heartbeat_ms: 20,
            election_min_ms: 100,
            election_max_ms: 200,
        };
        options.seed = dice.word();
        options.command_bytes_max = COMMAND_BYTES_MAX;
        options.client_timeout_ms = settings.client_timeout_ms;
        options.inflight_max = settings.inflight_max;
        options.window_slots = settings.window_slots;
        options.limits = limits(settings);
        options.tuning = settings.tuning;
        options
    }

    /// The process dies: its memory is gone, the disk keeps what it promised to keep.
    pub fn kill(&mut self, dice: &mut Dice) {
        self.running = None;
        self.life += 1;
        self.turn_at = None;
        self.paused = false;
        self.disk.crash(dice.word());
        self.planned.clear();
    }
}

/// The founding configuration: everybody with weight 1.
pub fn founding(settings: &Settings) -> Configuration {
    let count = u32::try_from(settings.nodes).expect("a handful of nodes");
    Configuration::simple((1..=count).map(Member::first), settings.class)
        .expect("weights of 1 are a configuration")
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
        forwarded_bytes: 4 << 10,
        log_backlog_bytes: 32 << 10,
        decided_entries: 8,
        log_read_bytes: 2 << 10,
        apply_bytes: 2 << 10,
        serve_bytes: 2 << 10,
        serve_requests: 4,
        due_commands: 2,
    }
}
