//! Fake host driven by a real reactor on loopback, and raw sockets for disturbing it.
#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "a test may fail by panic")]

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    io::{Read, Write},
    net::TcpStream,
    os::fd::{AsFd, BorrowedFd},
    os::unix::net::UnixStream,
    path::PathBuf,
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use quorate_access::Users;
use quorate_core::{
    ballot::{Ballot, Era},
    effect::{Refusal, Role},
    level::{Level, Levels},
    message::Message,
    node_id::{Member, NodeId},
    node_set::NodeSet,
    record::Class,
    slot::Slot,
    time::Time,
    value::{BatchName, Value},
    witness::Memory,
};
use quorate_net::{
    Backup, ClientHost, Founded, Handle, Host, Identity, JoinData, JoinRefusal, Limits, Listeners,
    OperatorHost, OperatorOutcome, OperatorRequest, PeerAddress, PeerHost, PeerUp, Reactor,
    Settings, TurnTimes, plane::PlaneSettings,
};
use quorate_replica::{
    Payload, ProbeOutcome, StreamHold,
    front::{Completion, ConnectionId, Endpoints, Front, ListenerKind, Requests},
    group::asking::{GroupAnswer, GroupRefusal as Denied, GroupRequest, MemberList, PeerTable},
    plane::{FrameBody, Plane, ReceivedFrame, TooLarge, Turn},
    pressure::Pressure,
    status::{Addresses, DiskUse, Peer, PeerPlane, Snapshot, Status, TuningReport},
};
use quorate_testbed::asked::FakeReplica;
use quorate_tls::Protection;
use quorate_wire::{
    BODY_BYTES_MAX, Decoded, Frame, Hello, Join, Lane, RefusalCode, checksum, decode, encode,
    encode_parts,
};

/// Upper bound on the duration of any step. Only a failing test waits that long.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

pub(crate) const CLUSTER: u128 = 0x0123_4567_89ab_cdef;

/// Event that the fake host has seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Up(NodeId, u32),
    Down(NodeId),
    Forwarded(NodeId, Lane, Vec<u8>),
    Read(NodeId, u64),
    ClientClosed(u64),
    Removed,
    Stop,
}

/// Task that the fake host performs in its next `poll`.
pub(crate) enum Task {
    /// Send these bytes in a `Forward` frame.
    Forward(NodeId, Lane, Vec<u8>),
    /// Send these bytes in one `Forward` frame to each node, by reference.
    Share(Vec<NodeId>, Payload),
    /// Send a `ReadRequest` with this id.
    Ask(NodeId, u64),
    /// Send a `ReadRequest` with this id, and run the closure in the `submit_records` of the same
    /// turn.
    AskThen(NodeId, u64, OnSubmit),
    EndTransfer(Result<NodeId, Refusal>),
    EndProbe(ProbeOutcome),
    EndSnapshot(Result<Snapshot, String>),
    EndGroup(u64, Result<GroupAnswer, Denied>),
}

/// Closure called once, in `submit_records`.
pub(crate) type OnSubmit = Box<dyn FnOnce() + Send>;

/// State shared by the test and the fake host.
#[derive(Default)]
pub(crate) struct World {
    pub(crate) events: Vec<Event>,
    pub(crate) tasks: VecDeque<Task>,
    /// Number of frames to each node that the plane has accepted.
    pub(crate) accepted_frames: BTreeMap<NodeId, u64>,
    pub(crate) lost: BTreeMap<NodeId, u64>,
    pub(crate) clients: BTreeSet<u64>,
    /// Doors by which clients connected, in order.
    pub(crate) doors: Vec<ListenerKind>,
    /// Clients that half-closed their connection, with the number of bytes consumed by then.
    pub(crate) half_closed: Vec<(u64, usize)>,
    /// The front accepts no input.
    pub(crate) hold: bool,
    /// Time that the front works on each request, in microseconds.
    pub(crate) busy_us: u64,
    /// Pressure that the host reports, if not its own.
    pub(crate) pressure: Option<Pressure>,
    /// Requests for "slow" are not answered.
    pub(crate) hold_slow: bool,
    pub(crate) slow: VecDeque<u64>,
    pub(crate) peers: BTreeMap<NodeId, PeerUp>,
    pub(crate) admit: Option<Result<Founded, JoinRefusal>>,
    pub(crate) on_submit: Option<OnSubmit>,
    pub(crate) received: usize,
    pub(crate) transfers: Vec<Option<NodeId>>,
    pub(crate) probes: usize,
    pub(crate) snapshots: Vec<Option<Slot>>,
    pub(crate) operator_requests: Vec<(u64, GroupRequest, bool)>,
    /// Peer table that the reactor receives in the next turn.
    pub(crate) table: Option<PeerTable>,
    /// The group uses the newest level.
    pub(crate) raised: bool,
}

pub(crate) struct Shared {
    pub(crate) world: Mutex<World>,
    changed: Condvar,
    wake: UnixStream,
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    /// Changes the state and wakes the reactor.
    pub(crate) fn change(&self, change: impl FnOnce(&mut World)) {
        change(&mut self.lock());
        let _ = (&self.wake).write(&[1]);
    }

    /// Waits until the state satisfies a condition.
    pub(crate) fn wait_until(&self, what: &str, mut holds: impl FnMut(&World) -> bool) {
        let world = self.lock();
        let (world, timeout) =
            self.changed.wait_timeout_while(world, DEADLINE, |world| !holds(world)).unwrap();
        let count = world.events.len();
        let tail = &world.events[count.saturating_sub(5)..];
        assert!(!timeout.timed_out(), "waited in vain: {what}; {count} events, last {tail:?}");
    }

    fn event(&self, event: Event) {
        self.lock().events.push(event);
        self.changed.notify_all();
    }

    pub(crate) fn has_event(&self, event: &Event) -> bool {
        self.lock().events.contains(event)
    }

    pub(crate) fn wait_event(&self, event: &Event) {
        self.wait_until(&format!("{event:?}"), |world| world.events.contains(event));
    }
}

/// The fake host, which echoes lines to clients and performs the test's tasks with peers.
pub(crate) struct Fake {
    member: Member,
    shared: Arc<Shared>,
    wake: UnixStream,
    front: Lines,
    stopping: bool,
    outcomes: VecDeque<OperatorOutcome>,
}

/// The fake front, whose protocol consists of lines.
pub(crate) struct Lines {
    shared: Arc<Shared>,
    outputs: BTreeMap<u64, Vec<u8>>,
    closing: BTreeSet<u64>,
    broken_clients: BTreeSet<u64>,
    dirty: VecDeque<u64>,
}

/// Returns a batch value that names these bytes.
pub(crate) fn batch(bytes: &[u8]) -> Value {
    let length = u32::try_from(bytes.len()).unwrap();
    Value::Batch(BatchName { length, checksum: checksum(bytes), ..BatchName::default() })
}

impl Fake {
    /// Returns the peers that were connected, as listed in a status.
    fn connected_peers(&self) -> Vec<Peer> {
        let peer = |peer: &PeerUp| Peer {
            member: peer.member,
            weight: 1,
            auxiliary: false,
            connected: true,
            lag: None,
            payload_bytes_sent: 0,
            engaged: None,
            addresses: peer.addresses.clone(),
            plane: PeerPlane::default(),
        };
        self.shared.lock().peers.values().map(peer).collect()
    }

    fn send(&self, to: NodeId, lane: Lane, frame: &Frame<'_>, plane: &mut dyn Plane) {
        let encoded = encode_parts(self.member, frame).unwrap();
        let body = FrameBody::Borrowed(&encoded.body);
        self.count(plane.send(NodeSet::one(to), lane, &encoded.header, body), &[to]);
    }

    /// Sends a batch to several peers by reference.
    fn share(&self, to: &[NodeId], payload: &Payload, plane: &mut dyn Plane) {
        let frame = Frame::Forward { value: batch(payload), bytes: payload };
        let encoded = encode_parts(self.member, &frame).unwrap();
        let mut set = NodeSet::default();
        for node in to {
            assert!(set.insert(*node));
        }
        let body = FrameBody::Shared(payload);
        self.count(plane.send(set, Lane::Control, &encoded.header, body), to);
    }

    fn count(&self, sent: Result<NodeSet, TooLarge>, to: &[NodeId]) {
        let sent = sent.expect("streams carry frames of any length");
        let mut world = self.shared.lock();
        for node in to {
            let counts =
                if sent.contains(*node) { &mut world.accepted_frames } else { &mut world.lost };
            *counts.entry(*node).or_default() += 1;
        }
    }

    fn ask(&self, to: NodeId, id: u64, plane: &mut dyn Plane) {
        let message = Message::ReadRequest { id };
        let frame = Frame::Protocol { message, bytes: None };
        self.send(to, Lane::Control, &frame, plane);
    }
}

impl Lines {
    fn reply(&mut self, client: u64, bytes: &[u8]) {
        self.outputs.get_mut(&client).unwrap().extend_from_slice(bytes);
        self.dirty.push_back(client);
    }

    fn line(&mut self, client: u64, line: &[u8]) {
        match line {
            b"bye\n" => {
                self.reply(client, b"error: bye\n");
                self.closing.insert(client);
            }
            b"break\n" => {
                self.dirty.push_back(client);
                self.closing.insert(client);
                self.broken_clients.insert(client);
            }
            b"slow\n" => self.shared.lock().slow.push_back(client),
            b"big\n" => self.reply(client, &vec![b'x'; 3 << 20]),
            other => self.reply(client, other),
        }
        self.shared.changed.notify_all();
    }
}

impl Front for Lines {
    fn handle_opened(&mut self, client: ConnectionId, ends: Endpoints, _: &mut dyn Requests) {
        assert!(!ends.peer.is_empty() && !ends.local.is_empty(), "{ends:?}");
        self.outputs.insert(client.0, Vec::new());
        let mut world = self.shared.lock();
        world.clients.insert(client.0);
        world.doors.push(ends.door);
        drop(world);
        self.shared.changed.notify_all();
    }

    fn receive_bytes(&mut self, client: ConnectionId, bytes: &[u8], _: &mut dyn Requests) -> usize {
        let mut used = 0;
        while let Some(end) = bytes[used..].iter().position(|byte| *byte == b'\n') {
            if !self.accepts_input(client) || self.closing.contains(&client.0) {
                break;
            }
            let line = bytes[used..=used + end].to_vec();
            used += line.len();
            let (began, busy) = (Instant::now(), Duration::from_micros(self.shared.lock().busy_us));
            while began.elapsed() < busy {
                std::hint::spin_loop();
            }
            self.line(client.0, &line);
        }
        self.shared.lock().received += used;
        used
    }

    fn half_closed(&mut self, client: ConnectionId, _: &mut dyn Requests) {
        let mut world = self.shared.lock();
        let received = world.received;
        world.half_closed.push((client.0, received));
        drop(world);
        self.shared.changed.notify_all();
    }

    fn reset_reason(&self, client: ConnectionId) -> Option<&str> {
        self.broken_clients.contains(&client.0).then_some("it said so")
    }

    fn accepts_input(&self, client: ConnectionId) -> bool {
        let held = self.shared.lock().hold;
        !held && self.outputs.get(&client.0).is_none_or(|output| output.len() < 1 << 20)
    }

    fn handle_completion(&mut self, completion: Completion<'_>, _: &mut dyn Requests) {
        unreachable!("nothing was asked: {completion:?}")
    }

    fn next_dirty(&mut self) -> Option<ConnectionId> {
        self.dirty.pop_front().filter(|client| self.outputs.contains_key(client)).map(ConnectionId)
    }

    fn output(&mut self, client: ConnectionId) -> &[u8] {
        &self.outputs[&client.0]
    }

    fn record_sent(&mut self, client: ConnectionId, count: usize) {
        self.outputs.get_mut(&client.0).unwrap().drain(..count);
    }

    fn held_bytes(&self) -> usize {
        self.outputs.values().map(Vec::len).sum()
    }

    fn held_bytes_of(&self, client: ConnectionId) -> usize {
        self.outputs.get(&client.0).map_or(0, Vec::len)
    }

    fn should_close(&self, client: ConnectionId) -> bool {
        self.closing.contains(&client.0)
    }

    fn handle_closed(&mut self, client: ConnectionId, _: &mut dyn Requests) {
        self.outputs.remove(&client.0);
        self.shared.lock().clients.remove(&client.0);
        self.shared.event(Event::ClientClosed(client.0));
    }

    fn is_busy(&self, client: ConnectionId) -> bool {
        self.shared.lock().slow.contains(&client.0)
    }

    fn open_requests(&self) -> usize {
        0
    }

    fn connections(&self) -> usize {
        self.outputs.len()
    }
}

impl PeerHost for Fake {
    fn peer_up(&mut self, _: TurnTimes, peer: &PeerUp) {
        self.shared.lock().peers.insert(peer.member.node, peer.clone());
        self.shared.event(Event::Up(peer.member.node, peer.boot));
    }

    fn peer_down(&mut self, _: TurnTimes, node: NodeId) {
        self.shared.lock().peers.remove(&node);
        self.shared.event(Event::Down(node));
    }

    fn on_removal_claimed(&mut self, _: TurnTimes) {
        self.shared.event(Event::Removed);
    }

    fn handle_frame(&mut self, _: &mut Turn<'_>, lane: Lane, received: ReceivedFrame<'_>) {
        let from = received.from;
        match received.frame {
            Frame::Forward { bytes, .. } => {
                self.shared.event(Event::Forwarded(from.node, lane, bytes.to_vec()));
            }
            Frame::Protocol { message: Message::ReadRequest { id }, .. } => {
                self.shared.event(Event::Read(from.node, id));
            }
            other => panic!("unexpected {other:?}"),
        }
    }

    fn memory_of(&self, node: NodeId) -> Memory {
        Memory { boot: node.0, ..Memory::default() }
    }

    fn levels(&self) -> Levels {
        let raised = self.shared.lock().raised;
        let lowest = if raised { Level::NEWEST } else { Level::BASE };
        Levels { lowest, ..Levels::SUPPORTED }
    }

    fn take_peer_table(&mut self) -> Option<PeerTable> {
        let table = self.shared.lock().table.take();
        if table.is_some() {
            self.shared.changed.notify_all();
        }
        table
    }

    fn answer_join(&mut self, _: Join) -> Result<Founded, JoinRefusal> {
        self.shared.lock().admit.clone().unwrap_or_else(|| {
            Err(JoinRefusal { code: RefusalCode::NotFounded, reason: "not yet founded".to_owned() })
        })
    }
}

impl ClientHost for Fake {
    type Front = Lines;

    fn front(&self) -> &Lines {
        &self.front
    }

    fn front_mut(&mut self) -> &mut Lines {
        &mut self.front
    }

    fn front_and_requests(&mut self, _: TurnTimes) -> (&mut Lines, impl Requests) {
        // A front without a replica makes no requests.
        (&mut self.front, FakeReplica::busy())
    }

    fn pressure(&self) -> Pressure {
        self.shared.lock().pressure.unwrap_or(Pressure::Low)
    }
}

impl OperatorHost for Fake {
    fn status(&self) -> Status {
        Status {
            cluster: CLUSTER,
            member: self.member,
            role: Role::Follower,
            leader: None,
            era: Era(0),
            level: quorate_replica::status::LevelStatus::default(),
            plan: None,
            removed: false,
            ballot: Ballot::ZERO,
            decided_to: Slot::FIRST,
            applied_to: Slot::FIRST,
            durable_to: Slot::FIRST,
            class: Class::Durable,
            log_bytes: 0,
            log_start: Slot::FIRST,
            snapshot: None,
            snapshot_taking: None,
            scrub: quorate_replica::ScrubStatus::default(),
            ring: Vec::new(),
            choices: Vec::new(),
            device: None,
            disk: DiskUse::default(),
            streams: quorate_replica::status::Streams::default(),
            traffic: quorate_replica::status::Traffic::default(),
            reigns: Vec::new(),
            quorum: quorate_core::quorum::QuorumRule::Majority,
            progress: None,
            error: None,
            notices: Vec::new(),
            peers: self.connected_peers(),
        }
    }

    fn backup(&mut self) -> Option<Backup> {
        None
    }

    fn hold_streams(&mut self, _: TurnTimes, _: Option<StreamHold>) -> Result<StreamHold, String> {
        Err("it has none".to_owned())
    }

    fn join_data(&self) -> JoinData {
        unreachable!("no test asks")
    }

    fn tuning_report(&self) -> TuningReport {
        unreachable!("no test asks")
    }

    fn members(&self) -> MemberList {
        MemberList {
            era: Era(7),
            nodes: Vec::new(),
            plan: None,
            last_plan: None,
            removed_nodes: vec![NodeId(9)],
        }
    }

    fn users(&self) -> Option<Users> {
        Some(Users::NONE)
    }

    fn metrics(&self, out: &mut String) {
        out.push_str("fake_host 1\n");
    }

    fn start_request(&mut self, _: TurnTimes, order: OperatorRequest) {
        match order {
            OperatorRequest::Probe => self.shared.lock().probes += 1,
            OperatorRequest::Transfer(to) => self.shared.lock().transfers.push(to),
            OperatorRequest::Snapshot(at) => self.shared.lock().snapshots.push(at),
            OperatorRequest::FixSetting(..)
            | OperatorRequest::ReadHeldStream(_)
            | OperatorRequest::Scrub(_) => unreachable!("no test asks"),
            OperatorRequest::Group { request_number: asked, request: ask, dry_run } => {
                self.shared.lock().operator_requests.push((asked, ask, dry_run))
            }
        }
        self.shared.changed.notify_all();
    }

    fn next_outcome(&mut self) -> Option<OperatorOutcome> {
        self.outcomes.pop_front()
    }
}

impl Host for Fake {
    fn poll(&mut self, turn: &mut Turn<'_>) {
        let _ = self.wake.read(&mut [0; 64]);
        let tasks = std::mem::take(&mut self.shared.lock().tasks);
        for task in tasks {
            match task {
                Task::Forward(to, lane, bytes) => {
                    let frame = Frame::Forward { value: batch(&bytes), bytes: &bytes };
                    self.send(to, lane, &frame, turn.plane);
                }
                Task::Share(to, payload) => self.share(&to, &payload, turn.plane),
                Task::Ask(to, id) => self.ask(to, id, turn.plane),
                Task::AskThen(to, id, on_submit) => {
                    self.ask(to, id, turn.plane);
                    self.shared.lock().on_submit = Some(on_submit);
                }
                Task::EndTransfer(outcome) => {
                    self.outcomes.push_back(OperatorOutcome::Transferred(outcome));
                }
                Task::EndSnapshot(end) => self.outcomes.push_back(OperatorOutcome::Snapshot(end)),
                Task::EndGroup(asked, end) => {
                    self.outcomes.push_back(OperatorOutcome::Group(asked, end))
                }
                Task::EndProbe(probed) => self.outcomes.push_back(OperatorOutcome::Probed(probed)),
            }
        }
        let mut world = self.shared.lock();
        let answered =
            if world.hold_slow { VecDeque::new() } else { std::mem::take(&mut world.slow) };
        drop(world);
        for client in answered {
            if self.front.outputs.contains_key(&client) {
                self.front.reply(client, b"slow answer\n");
            }
        }
        self.shared.changed.notify_all();
    }

    fn submit_records(&mut self, _: TurnTimes) {
        let once = self.shared.lock().on_submit.take();
        if let Some(on_submit) = once {
            on_submit();
        }
    }

    fn end_turn(&mut self, _: Time) -> Option<Time> {
        None
    }

    fn wake_fds(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.wake.as_fd()]
    }

    fn stop(&mut self, _: TurnTimes) {
        self.stopping = true;
        self.shared.event(Event::Stop);
    }

    fn is_stopped(&self) -> bool {
        self.stopping && self.shared.lock().slow.is_empty()
    }
}

/// Parameters for starting a node; the defaults suit most tests.
pub(crate) struct Start {
    pub(crate) node: u32,
    pub(crate) boot: u32,
    pub(crate) cluster: u128,
    pub(crate) limits: Limits,
    pub(crate) socket: Option<PathBuf>,
    pub(crate) peer: String,
    pub(crate) plane: PlaneSettings,
    pub(crate) protection: Protection,
}

impl Start {
    pub(crate) fn node(node: u32) -> Self {
        Self {
            node,
            boot: 1,
            cluster: CLUSTER,
            limits: Limits::default(),
            socket: None,
            peer: "127.0.0.1:0".to_owned(),
            plane: PlaneSettings::default(),
            protection: Protection::Loopback,
        }
    }

    pub(crate) fn bind(self) -> Bound {
        let listeners = Listeners::bind(
            &self.peer,
            "127.0.0.1:0",
            self.socket.as_deref(),
            self.protection.clone(),
        );
        let mut listeners = listeners.unwrap();
        listeners.bind_streams("127.0.0.1:0").unwrap();
        listeners.bind_raw_streams("127.0.0.1:0").unwrap();
        listeners.bind_datagrams(&self.plane).unwrap();
        Bound { start: self, listeners }
    }
}

/// A node that is bound to its ports but not running.
pub(crate) struct Bound {
    start: Start,
    pub(crate) listeners: Listeners,
}

impl Bound {
    pub(crate) fn peer_address(&self) -> PeerAddress {
        let address = self.listeners.peer_address().to_string();
        PeerAddress { node: NodeId(self.start.node), address }
    }

    pub(crate) fn run(self, peers: &[PeerAddress]) -> Node {
        let Self { start, listeners } = self;
        let member = Member::first(start.node);
        let (wake, woken) = UnixStream::pair().unwrap();
        wake.set_nonblocking(true).unwrap();
        woken.set_nonblocking(true).unwrap();
        let shared = Arc::new(Shared { world: Mutex::default(), changed: Condvar::new(), wake });
        let peer = listeners.peer_address().to_string();
        let client = listeners.client_address().expect("bound above").to_string();
        let stream = listeners.stream_address().expect("bound above").to_string();
        let raw = listeners.raw_stream_address().expect("bound above");
        let fake = Fake {
            member,
            shared: shared.clone(),
            wake: woken,
            front: Lines {
                shared: shared.clone(),
                outputs: BTreeMap::new(),
                closing: BTreeSet::new(),
                broken_clients: BTreeSet::new(),
                dirty: VecDeque::new(),
            },
            stopping: false,
            outcomes: VecDeque::new(),
        };
        let addresses = Addresses {
            peer: peer.clone(),
            client: client.clone(),
            admin: "admin".to_owned(),
            stream: stream.clone(),
        };
        let settings = Settings {
            identity: Identity { cluster: start.cluster, member, boot: start.boot, addresses },
            peers: peers.to_vec(),
            limits: start.limits,
            seed: u64::from(start.node),
        };
        let (reactor, handle) = Reactor::new(settings, listeners, fake).unwrap();
        let thread = std::thread::spawn(move || drop(reactor.run().unwrap()));
        Node { shared, handle, thread: Some(thread), peer, client, stream, raw: raw.to_string() }
    }
}

/// A running reactor.
pub(crate) struct Node {
    pub(crate) shared: Arc<Shared>,
    pub(crate) handle: Handle,
    thread: Option<JoinHandle<()>>,
    pub(crate) peer: String,
    pub(crate) client: String,
    pub(crate) stream: String,
    pub(crate) raw: String,
}

impl Node {
    pub(crate) fn client(&self) -> TcpStream {
        patient(TcpStream::connect(&self.client).unwrap())
    }

    /// Stops the node and waits until its thread has ended.
    pub(crate) fn stop(mut self) {
        self.handle.stop();
        self.thread.take().unwrap().join().unwrap();
    }

    pub(crate) fn wait_ended(mut self) {
        self.thread.take().unwrap().join().unwrap();
    }

    /// Waits until the metrics satisfy a condition.
    pub(crate) fn wait_stats(&self, what: &str, holds: impl Fn(&quorate_net::Stats) -> bool) {
        let start = Instant::now();
        while !holds(&self.handle.metrics().unwrap().stats) {
            assert!(start.elapsed() < DEADLINE, "waited in vain: {what}");
            std::thread::yield_now();
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.handle.stop();
    }
}

/// Starts node 1 alone. The nodes in `others` are known but not running.
pub(crate) fn lone(limits: Limits, others: &[u32]) -> Node {
    let bound = Start { limits, ..Start::node(1) }.bind();
    let mut peers = vec![bound.peer_address()];
    let absent =
        |node: &u32| PeerAddress { node: NodeId(*node), address: "127.0.0.1:1".to_owned() };
    peers.extend(others.iter().map(absent));
    bound.run(&peers)
}

/// Sets timeouts on a stream, so that a test fails instead of hanging.
pub(crate) fn patient(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.set_write_timeout(Some(DEADLINE)).unwrap();
    stream
}

/// Returns a hello from `node` to node 1.
pub(crate) fn hello(node: u32) -> Hello<'static> {
    Hello {
        levels: Levels::SUPPORTED,
        cluster: CLUSTER,
        from: Member::first(node),
        boot: 1,
        to: NodeId(1),
        lane: Lane::Control,
        client: "client",
        admin: "admin",
        stream: "stream",
    }
}

/// A peer that consists of a raw socket.
pub(crate) struct Raw {
    pub(crate) stream: TcpStream,
    bytes: Vec<u8>,
}

impl Raw {
    pub(crate) fn connect(node: &Node) -> Self {
        Self { stream: patient(TcpStream::connect(&node.peer).unwrap()), bytes: Vec::new() }
    }

    pub(crate) fn from_stream(stream: TcpStream) -> Self {
        Self { stream, bytes: Vec::new() }
    }

    /// Connects to a node and completes the handshake.
    pub(crate) fn connect_as(node: &Node, hello: Hello<'_>) -> Self {
        let mut raw = Self::connect(node);
        raw.send_hello(&hello);
        assert_eq!(raw.next_answer(), "welcome");
        raw
    }

    pub(crate) fn send_hello(&mut self, hello: &Hello<'_>) {
        self.send(hello.from, &Frame::Hello(*hello));
    }

    pub(crate) fn send(&mut self, from: Member, frame: &Frame<'_>) {
        let mut bytes = Vec::new();
        encode(from, frame, &mut bytes).unwrap();
        self.stream.write_all(&bytes).unwrap();
    }

    /// Returns a short form of the next frame, or `end` if the connection was closed.
    pub(crate) fn next_answer(&mut self) -> String {
        let mut chunk = [0; 65536];
        loop {
            if let Decoded::Frame { frame, used_bytes: used, .. } =
                decode(&self.bytes, BODY_BYTES_MAX).unwrap()
            {
                let text = match frame {
                    Frame::Welcome(_) => "welcome".to_owned(),
                    Frame::Refused(code, reason) => format!("{code:?}: {reason}"),
                    Frame::Forward { bytes, .. } => format!("forward of {}", bytes.len()),
                    other => format!("{other:?}"),
                };
                self.bytes.drain(..used);
                return text;
            }
            match self.stream.read(&mut chunk) {
                Ok(0) => return "end".to_owned(),
                Ok(count) => self.bytes.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                    return "end".to_owned();
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}
