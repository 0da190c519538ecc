//! Test cluster in one thread: real replicas and logs, with the network and disks in memory.
//!
//! Runs are deterministic: equal seeds and calls give equal runs. Time jumps between events.

pub mod backups;
mod front;
mod plane;

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use quorate_core::dice::Dice;
use quorate_core::{
    configuration::Configuration,
    node_id::{Incarnation, Member, NodeId},
    quorum::{MemberSet, Phase},
    record::Class,
    time::Time,
};
use quorate_log::disk::MemoryDisk;
use quorate_log::{Log, LogOptions};
use quorate_wire::{BODY_BYTES_MAX, Decoded, Lane, decode};

use self::{front::RecordingFront, plane::Buffers};
use crate::{
    RaisePolicy, ReplicaOptions,
    clock::Clock,
    group::asking::{GroupAnswer, GroupRefusal, GroupRequest},
    ports::{
        front::{Failure, Requests, Sequenced, Tag},
        plane::{Plane, ReceivedFrame},
        service::StateMachine,
        status::Addresses,
        stream_front::{StreamRequests, StreamTag},
    },
    replica::Replica,
};

pub use self::front::{DeliveredEvent, Outcome};

/// Duration in microseconds of each turn of a slow node, as shown by every reading of its clock.
const SLOW_TURN_US: u64 = 50_000;
/// Unix time of the simulated start, in milliseconds.
const WALL_START_MS: u64 = 1_700_000_000_000;
/// Maximum number of polls while time does not advance. A replica that needs more never becomes
/// idle.
const TURNS_MAX: u32 = 10_000;

/// Delays, faults and sizes of the simulated environment.
#[derive(Clone, Debug)]
pub struct SimulatedEnvironment {
    /// Minimum delay of a frame in microseconds.
    pub delay_min_us: u64,
    /// Maximum delay of a frame in microseconds. Frames of a lane stay in order.
    pub delay_max_us: u64,
    /// Number of lost frames per thousand.
    pub loss_per_mille: u64,
    /// Duration of a disk operation in microseconds.
    pub disk_us: u64,
    /// Capacity of a node's buffer towards one peer and lane, in bytes.
    pub plane_bytes: usize,
    /// Size in bytes of a log segment in later starts; `None` for the default.
    pub segment_bytes: Option<u64>,
}

impl Default for SimulatedEnvironment {
    fn default() -> Self {
        let plane_bytes = 2 * BODY_BYTES_MAX;
        Self {
            delay_min_us: 50,
            delay_max_us: 150,
            loss_per_mille: 0,
            disk_us: 100,
            plane_bytes,
            segment_bytes: None,
        }
    }
}

/// A node: the state that survives a crash, and its running replica.
struct SimulatedNode<S: StateMachine> {
    disk: MemoryDisk,
    boot: u32,
    incarnation: Incarnation,
    replica: Option<Replica<MemoryDisk, S>>,
    plane: Buffers,
    front: RecordingFront,
    /// Time in microseconds by which the next clock reading is ahead of the turn's start.
    clock_ahead_us: Arc<AtomicU64>,
    /// Time in microseconds by which the clock is ahead of the turn's start after the next query.
    stall_after_query_us: Arc<AtomicU64>,
    /// Every turn appears long on the clock.
    is_slow: Arc<AtomicBool>,
    /// Completion times of the disk operations in flight, by id.
    disk_done: BTreeMap<u64, Time>,
    dirty: bool,
}

impl<S: StateMachine> SimulatedNode<S> {
    fn new() -> Self {
        let disk = MemoryDisk::new();
        disk.set_manual_completion(true);
        Self {
            disk,
            boot: 0,
            incarnation: Incarnation(0),
            replica: None,
            plane: Buffers::default(),
            front: RecordingFront::default(),
            clock_ahead_us: Arc::default(),
            stall_after_query_us: Arc::default(),
            is_slow: Arc::default(),
            disk_done: BTreeMap::new(),
            dirty: false,
        }
    }
}

thread_local! {
    /// A query has run since a clock was last read.
    static QUERIED: Cell<bool> = const { Cell::new(false) };
}

/// Records that a query ran, for [`Cluster::set_stall_after_query`].
pub fn note_query() {
    QUERIED.set(true);
}

struct InFlight {
    boot: u32,
    to: NodeId,
    lane: Lane,
    bytes: Vec<u8>,
}

/// A whole group in one thread.
pub struct Cluster<S: StateMachine> {
    /// Environment of the nodes, which may be changed at any time.
    pub knobs: SimulatedEnvironment,
    /// Options of every node, except its identity.
    pub options: ReplicaOptions,
    make_service: Box<dyn FnMut(NodeId) -> S>,
    nodes: BTreeMap<NodeId, SimulatedNode<S>>,
    links: BTreeMap<(Time, u64), (NodeId, InFlight)>,
    /// Arrival time of the last frame on each link, since links preserve the order.
    last_arrivals: BTreeMap<(NodeId, NodeId, Lane), Time>,
    cut_links: BTreeSet<(NodeId, NodeId)>,
    now: Time,
    /// Current time, shared with the nodes' clocks.
    shown_time: Arc<AtomicU64>,
    frame_count: u64,
    last_tag: u64,
    dice: Dice,
}

impl<S: StateMachine> Cluster<S> {
    /// Creates nodes 1 to `count`, running and voting. `make` creates a service at each start.
    pub fn new(
        count: u32,
        class: Class,
        seed: u64,
        make: impl FnMut(NodeId) -> S + 'static,
    ) -> Self {
        let options = Self::options(count, class);
        let mut cluster = Self::with_options(options, seed, make);
        for node in 1..=count {
            cluster.start(NodeId(node));
        }
        cluster
    }

    /// Returns the options that [`Cluster::new`] uses. With them, no leader raises the feature
    /// level by itself.
    pub fn options(count: u32, class: Class) -> ReplicaOptions {
        let members = (1..=count).map(Member::first);
        let founding = Configuration::majority_of(members, class).expect("a few nodes of weight 1");
        let options = ReplicaOptions::new(7, Member::first(1), 0, founding);
        ReplicaOptions { raise_policy: RaisePolicy::OnRequest, ..options }
    }

    /// Creates a cluster with `options`, without starting any node.
    pub fn with_options(
        options: ReplicaOptions,
        seed: u64,
        make: impl FnMut(NodeId) -> S + 'static,
    ) -> Self {
        let seat = |node| (node, SimulatedNode::new());
        let nodes = options.founding.members().iter().map(|voter| voter.member.node);
        Self {
            knobs: SimulatedEnvironment::default(),
            make_service: Box::new(make),
            nodes: nodes.map(seat).collect(),
            options,
            links: BTreeMap::new(),
            last_arrivals: BTreeMap::new(),
            cut_links: BTreeSet::new(),
            // Not zero, since a replica must not depend on where time starts.
            now: Time(1_000_000),
            shown_time: Arc::new(AtomicU64::new(1_000_000)),
            frame_count: 0,
            last_tag: 0,
            dice: Dice::new(seed),
        }
    }

    /// Adds a node that is not a founding member, with an empty disk. It is not running yet.
    pub fn add_node(&mut self, node: NodeId) {
        let before = self.nodes.insert(node, SimulatedNode::new());
        assert!(before.is_none(), "node {node} exists already");
    }

    /// Replaces the disk of a stopped node, and the boot number of its last process.
    pub fn put_disk(&mut self, node: NodeId, disk: MemoryDisk, boot: u32) {
        assert!(!self.runs(node), "node {node} runs");
        disk.set_manual_completion(true);
        let seat = self.node_mut(node);
        (seat.disk, seat.boot) = (disk, boot);
    }

    /// Sends a request to the group at a node, and waits for the result.
    pub fn ask_group(
        &mut self,
        node: NodeId,
        ask: GroupRequest,
    ) -> Result<GroupAnswer, GroupRefusal> {
        self.last_tag += 1;
        let (now, asked) = (self.now, self.last_tag);
        self.replica_mut(node).ask_group(now, asked, ask, false);
        let mut answer = None;
        self.run_until(20_000, |cluster| {
            answer = cluster.replica_mut(node).take_group_answer();
            answer.is_some()
        });
        let (number, answer) = answer.expect("everything asked is answered in time");
        assert_eq!(number, asked);
        answer
    }

    /// Returns the clock that a node reads during its turns, with the delays of `set_slow` and of
    /// stalls.
    fn clock(&mut self, node: NodeId) -> Clock {
        let shown = Arc::clone(&self.shown_time);
        let ahead = Arc::clone(&self.node_mut(node).clock_ahead_us);
        let after_query = Arc::clone(&self.node_mut(node).stall_after_query_us);
        let slow = Arc::clone(&self.node_mut(node).is_slow);
        let read = move || {
            let slowly_us = if slow.load(Relaxed) { SLOW_TURN_US } else { 0 };
            let queried_us = if QUERIED.take() { after_query.swap(0, Relaxed) } else { 0 };
            Time(shown.load(Relaxed) + slowly_us + queried_us + ahead.swap(0, Relaxed))
        };
        Clock::new(read)
    }

    /// Makes all turns of this node appear long on its clock.
    pub fn set_slow(&mut self, node: NodeId, slow: bool) {
        self.node_mut(node).is_slow.store(slow, Relaxed);
    }

    /// Suspends this node for `stall_ms` between the start of a turn and the next reading.
    pub fn set_stall(&mut self, node: NodeId, stall_ms: u64) {
        self.node_mut(node).clock_ahead_us.store(stall_ms * 1000, Relaxed);
    }

    /// Suspends this node for `stall_ms` after the next query that [`note_query`] records.
    pub fn set_stall_after_query(&mut self, node: NodeId, stall_ms: u64) {
        self.node_mut(node).stall_after_query_us.store(stall_ms * 1000, Relaxed);
    }

    fn set_now(&mut self, now: Time) {
        self.now = now;
        self.shown_time.store(now.0, Relaxed);
    }

    fn node_mut(&mut self, node: NodeId) -> &mut SimulatedNode<S> {
        self.nodes.get_mut(&node).expect("a node of this cluster")
    }

    /// Starts a node as its next process.
    pub fn start(&mut self, node: NodeId) {
        let service = (self.make_service)(node);
        let (now, segment_bytes) = (self.now, self.knobs.segment_bytes);
        let clock = self.clock(node);
        let mut options = self.options.clone();
        let seat = self.node_mut(node);
        assert!(seat.replica.is_none(), "node {node} runs already");
        seat.boot += 1;
        seat.disk = seat.disk.reopen_after_crash();
        options.member = Member { node, incarnation: seat.incarnation };
        options.boot = seat.boot;
        options.seed = u64::from(node.0) << 32 | u64::from(seat.boot);
        let mut log_options = LogOptions::new(options.cluster, node, seat.incarnation);
        // Small, so that starting a node is cheap; larger records get a write of their own.
        log_options.write_bytes_max = 32 << 10;
        log_options.segment_bytes = segment_bytes.unwrap_or(log_options.segment_bytes);
        if options.founding.class() == Class::Volatile {
            log_options.linger_bytes = 2 << 10;
        }
        let (log, recovery) = Log::open(seat.disk.clone(), log_options).expect("the log opens");
        let replica = Replica::open(options, log, recovery, service, now);
        let mut replica = replica.unwrap_or_else(|error| panic!("node {node}: {error}"));
        replica.set_clock(clock);
        seat.replica = Some(replica);
        seat.dirty = true;
        self.connect_all();
    }

    /// Makes the node's next start use its next incarnation ([volatile-1]).
    pub fn forget_votes(&mut self, node: NodeId) {
        self.node_mut(node).incarnation.0 += 1;
    }

    /// Cuts a node's power. Each unflushed write is then complete, torn or lost.
    pub fn crash(&mut self, node: NodeId) {
        let seed = self.random_number();
        self.node_mut(node).disk.crash(seed);
        self.end_process(node);
    }

    /// Ends only the process of a node; its writes survive.
    pub fn kill(&mut self, node: NodeId) {
        self.node_mut(node).disk.complete_all();
        self.end_process(node);
    }

    fn end_process(&mut self, node: NodeId) {
        let seat = self.node_mut(node);
        seat.replica = None;
        seat.disk_done.clear();
        seat.front = RecordingFront::default();
        seat.plane.clear();
        self.connect_all();
    }

    pub fn runs(&self, node: NodeId) -> bool {
        self.nodes[&node].replica.is_some()
    }

    /// Cuts all connections between two nodes, or restores them.
    pub fn set_cut(&mut self, one: NodeId, other: NodeId, cut: bool) {
        for pair in [(one, other), (other, one)] {
            if cut {
                self.cut_links.insert(pair);
            } else {
                self.cut_links.remove(&pair);
            }
        }
        self.connect_all();
    }

    /// Cuts a node off from all others, or reconnects it.
    pub fn isolate(&mut self, node: NodeId, cut: bool) {
        let others: Vec<_> = self.nodes.keys().copied().filter(|other| *other != node).collect();
        for other in others {
            self.set_cut(node, other, cut);
        }
    }

    fn connect_all(&mut self) {
        let nodes: Vec<_> = self.nodes.keys().copied().collect();
        let bytes_max = self.knobs.plane_bytes;
        for &node in &nodes {
            self.node_mut(node).plane.set_bytes_max(bytes_max);
            for &peer in nodes.iter().filter(|peer| **peer != node) {
                self.connect(node, peer);
            }
        }
    }

    fn connect(&mut self, node: NodeId, peer: NodeId) {
        let other = &self.nodes[&peer];
        let member = Member { node: peer, incarnation: other.incarnation };
        let boot = other.boot;
        let newest = other.replica.as_ref().map(|replica| replica.levels().newest);
        let newest = newest.unwrap_or_default();
        let up =
            other.replica.is_some() && self.runs(node) && !self.cut_links.contains(&(node, peer));
        let now = self.now;
        let seat = self.node_mut(node);
        let was = seat.plane.set_connected(peer, up);
        let Some(replica) = &mut seat.replica else {
            seat.plane.disconnect_all();
            return;
        };
        seat.dirty = true;
        match (was, up) {
            (false, true) => replica.peer_up(now, member, boot, newest, Addresses::default()),
            (true, false) => replica.peer_down(now, peer),
            _ => {}
        }
    }

    /// Returns a pseudo-random number that depends on the seed and the earlier calls.
    pub fn random_number(&mut self) -> u64 {
        self.dice.word()
    }

    pub fn now(&self) -> Time {
        self.now
    }

    fn wall_ms(&self) -> u64 {
        WALL_START_MS + self.now.0 / 1000
    }

    pub fn replica(&self, node: NodeId) -> &Replica<MemoryDisk, S> {
        self.nodes[&node].replica.as_ref().expect("the node runs")
    }

    pub fn replica_mut(&mut self, node: NodeId) -> &mut Replica<MemoryDisk, S> {
        let seat = self.node_mut(node);
        seat.dirty = true;
        seat.replica.as_mut().expect("the node runs")
    }

    pub fn poll_over(&mut self, node: NodeId, plane: &mut dyn Plane) {
        let now = self.now;
        let seat = self.node_mut(node);
        let replica = seat.replica.as_mut().expect("the node runs");
        replica.poll(now, 0, plane, &mut seat.front);
    }

    /// Returns a node's disk, to inject faults.
    pub fn disk(&self, node: NodeId) -> &MemoryDisk {
        &self.nodes[&node].disk
    }

    /// Returns a leader that a quorum follows.
    pub fn leader(&self) -> Option<NodeId> {
        let follows = |leader: NodeId, node: NodeId| {
            let replica = self.nodes.get(&node).and_then(|seat| seat.replica.as_ref());
            replica.is_some_and(|replica| replica.node().leader() == Some(leader))
        };
        let leads = |leader: NodeId| {
            let node = self.replica(leader).node();
            let configuration = node.configuration();
            let members = configuration.members().iter().enumerate();
            let following = members.filter(|(_, voter)| follows(leader, voter.member.node));
            let following = following.fold(MemberSet::default(), |set, (at, _)| set.with(at));
            node.can_propose() && configuration.is_quorum(Phase::Two, following)
        };
        let mut nodes = self.nodes.keys().copied();
        nodes.find(|node| self.runs(*node) && leads(*node))
    }

    /// Makes a request as a node's front.
    pub fn request(
        &mut self,
        node: NodeId,
        ask: impl FnOnce(&mut dyn Requests, Tag) -> Result<(), Failure>,
    ) -> Tag {
        self.last_tag += 1;
        let (tag, now, wall_ms) = (Tag(self.last_tag), self.now, self.wall_ms());
        let seat = self.node_mut(node);
        seat.dirty = true;
        let replica = seat.replica.as_mut().expect("the node runs");
        if let Err(failure) = ask(&mut replica.requests(now, wall_ms), tag) {
            seat.front.record_refusal(tag, failure);
        }
        tag
    }

    /// Makes a request on streams at a node, under a new tag.
    pub fn streams<T>(
        &mut self,
        node: NodeId,
        ask: impl FnOnce(&mut dyn StreamRequests, StreamTag) -> T,
    ) -> (StreamTag, T) {
        self.last_tag += 1;
        let (tag, now, wall_ms) = (StreamTag(self.last_tag), self.now, self.wall_ms());
        let seat = self.node_mut(node);
        seat.dirty = true;
        let replica = seat.replica.as_mut().expect("the node runs");
        let mut requests = replica.requests(now, wall_ms);
        let streams = requests.streams().expect("a replica has streams");
        (tag, ask(streams, tag))
    }

    /// Takes the stream events of a node's front since the last call.
    pub fn take_stream_events(&mut self, node: NodeId) -> Vec<DeliveredEvent> {
        self.node_mut(node).front.take_heard()
    }

    /// Returns the messages of the notices that a node's front has received.
    pub fn notices(&self, node: NodeId) -> &[Vec<u8>] {
        self.nodes[&node].front.notices()
    }

    /// Starts a read at `node` with bounded staleness.
    pub fn read_bounded(&mut self, node: NodeId, most_ms: u64, query: &[u8]) -> Tag {
        let tag = self.request(node, |requests, tag| requests.read_within(tag, most_ms));
        self.node_mut(node).front.store_query(tag, query);
        tag
    }

    pub fn write(&mut self, node: NodeId, command: &[u8]) -> Tag {
        self.request(node, |requests, tag| requests.write(tag, command))
    }

    /// Starts a write at `node` within a client's session.
    pub fn write_once(&mut self, node: NodeId, at: Sequenced, command: &[u8]) -> Tag {
        self.request(node, |requests, tag| requests.write_once(tag, at, command))
    }

    /// Starts a write that is answered once the command is on stable storage at a quorum.
    pub fn write_lasting(&mut self, node: NodeId, command: &[u8]) -> Tag {
        self.request(node, |requests, tag| requests.write_lasting(tag, None, command))
    }

    /// Starts a write at `node` that is answered once the command is in memory at a quorum.
    pub fn write_early(&mut self, node: NodeId, command: &[u8]) -> Tag {
        self.request(node, |requests, tag| requests.write_early(tag, command))
    }

    pub fn register(&mut self, node: NodeId) -> Tag {
        self.request(node, |requests, tag| requests.register(tag))
    }

    pub fn read(&mut self, node: NodeId, query: &[u8]) -> Tag {
        let tag = self.request(node, |requests, tag| requests.read(tag));
        self.node_mut(node).front.store_query(tag, query);
        tag
    }

    /// Starts a read at `node` that runs between the writes requested before and after it.
    pub fn read_in_order(&mut self, node: NodeId, query: &[u8]) -> Tag {
        let tag = self.request(node, |requests, tag| requests.queue_read(tag));
        self.node_mut(node).front.store_query(tag, query);
        tag
    }

    /// Returns the result of a request at `node`, if it has completed.
    pub fn outcome(&self, node: NodeId, tag: Tag) -> Option<&Outcome> {
        self.nodes[&node].front.outcome(tag)
    }

    /// Runs until `done` returns `true`, for at most `ms` milliseconds. Returns whether it did.
    pub fn run_until(&mut self, ms: u64, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.now.plus_ms(ms);
        self.run_until_idle();
        loop {
            if done(self) {
                return true;
            }
            match self.next_event().filter(|at| *at <= end) {
                Some(at) => self.advance(at),
                None => {
                    self.set_now(end);
                    self.run_until_idle();
                    return done(self);
                }
            }
        }
    }

    pub fn run_ms(&mut self, ms: u64) {
        self.run_until(ms, |_| false);
    }

    fn next_event(&self) -> Option<Time> {
        let wakes = self.nodes.values().filter_map(|seat| seat.replica.as_ref()?.wake_at(self.now));
        let disks = self.nodes.values().flat_map(|seat| seat.disk_done.values().copied());
        let frames = self.links.keys().next().map(|(at, _)| *at);
        wakes.chain(disks).chain(frames).min()
    }

    fn advance(&mut self, to: Time) {
        self.set_now(self.now.max(to));
        self.complete_disks();
        self.deliver_frames();
        let now = self.now;
        for seat in self.nodes.values_mut() {
            let wake = seat.replica.as_ref().and_then(|replica| replica.wake_at(now));
            seat.dirty |= wake.is_some_and(|at| at <= now);
        }
        self.run_until_idle();
    }

    fn complete_disks(&mut self) {
        for seat in self.nodes.values_mut() {
            let due: Vec<_> = seat.disk_done.iter().filter(|(_, at)| **at <= self.now).collect();
            let due: Vec<_> = due.into_iter().map(|(id, _)| *id).collect();
            for id in due {
                seat.disk_done.remove(&id);
                seat.disk.complete(id);
                seat.dirty = true;
            }
        }
    }

    fn deliver_frames(&mut self) {
        while let Some(first) = self.links.first_entry()
            && first.key().0 <= self.now
        {
            let (from, frame) = first.remove();
            let lost = self.random_number() % 1000 < self.knobs.loss_per_mille;
            let gone = self.nodes[&from].boot != frame.boot || !self.runs(from);
            if lost || gone || self.cut_links.contains(&(from, frame.to)) || !self.runs(frame.to) {
                continue;
            }
            let (now, wall_ms) = (self.now, self.wall_ms());
            let seat = self.node_mut(frame.to);
            let Ok(Decoded::Frame { from, frame, .. }) = decode(&frame.bytes, BODY_BYTES_MAX)
            else {
                panic!("a replica sent what cannot be decoded");
            };
            let replica = seat.replica.as_mut().expect("just checked");
            let received = ReceivedFrame::without_attributes(from, frame);
            replica.on_frame(now, wall_ms, received, &mut seat.plane);
            seat.dirty = true;
        }
    }

    /// Runs turns of all nodes that have work, until none has.
    fn run_until_idle(&mut self) {
        let mut turns = 0;
        while let Some(node) = self.nodes.iter().find(|(_, seat)| seat.dirty).map(|(node, _)| *node)
        {
            turns += 1;
            if turns == TURNS_MAX {
                let why = self.nodes[&node]
                    .replica
                    .as_ref()
                    .map(|replica| replica.wake_sources(self.now));
                panic!("node {node} does not come to rest at {:?}: {why:?}", self.now);
            }
            self.run_turn(node);
        }
    }

    /// Runs one turn of a node, as the reactor does after an event.
    fn run_turn(&mut self, node: NodeId) {
        let (now, wall_ms, disk_us) = (self.now, self.wall_ms(), self.knobs.disk_us);
        let seat = self.node_mut(node);
        seat.dirty = false;
        let Some(replica) = &mut seat.replica else {
            return;
        };
        replica.poll(now, wall_ms, &mut seat.plane, &mut seat.front);
        let told = replica.deliver_completions(now, wall_ms, &mut seat.front);
        let boot = seat.boot;
        let sent = seat.plane.take_frames();
        replica.submit_records(now);
        let wake = replica.end_turn(now);
        for pending in seat.disk.pending() {
            seat.disk_done.entry(pending.id).or_insert(now.plus_us(disk_us));
        }
        seat.dirty = told || wake.is_some_and(|at| at <= now);
        for ((to, lane), bytes) in sent {
            self.post_frames(node, boot, to, lane, &bytes);
        }
    }

    /// Puts each frame of a buffer on its link.
    fn post_frames(&mut self, from: NodeId, boot: u32, to: NodeId, lane: Lane, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let Ok(Decoded::Frame { used_bytes: used, .. }) = decode(bytes, BODY_BYTES_MAX) else {
                panic!("a replica sent what cannot be decoded");
            };
            let (frame, rest) = bytes.split_at(used);
            bytes = rest;
            let spread = self.knobs.delay_max_us.saturating_sub(self.knobs.delay_min_us) + 1;
            let delay = self.knobs.delay_min_us + self.random_number() % spread;
            let busy = self.last_arrivals.entry((from, to, lane)).or_default();
            let at = self.now.plus_us(delay).max(*busy);
            *busy = at;
            self.frame_count += 1;
            let frame = InFlight { boot, to, lane, bytes: frame.to_vec() };
            self.links.insert((at, self.frame_count), (from, frame));
        }
    }

    pub fn frames_sent(&self) -> u64 {
        self.frame_count
    }

    /// Drops the frames in flight, on one lane or on all.
    pub fn lose_in_flight(&mut self, lane: Option<Lane>) {
        self.links.retain(|_, (_, frame)| lane.is_some_and(|lane| lane != frame.lane));
    }
}
