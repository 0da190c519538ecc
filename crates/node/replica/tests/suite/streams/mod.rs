//! Byte streams through a whole group: acknowledged bytes are on every node, in order, each once,
//! whatever happens to nodes ([stream-4] to [stream-10]).

mod scrub;

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use quorate_core::{
    node_id::{Member, NodeId},
    node_set::NodeSet,
    record::Class,
    slot::Slot,
    value::{StreamName, Value},
};
use quorate_log::disk::Family;
use quorate_replica::{
    ReplicaOptions, SnapshotOptions,
    front::Failure,
    plane::{FrameBody, Plane, ReceivedFrame, TooLarge},
    service::Health,
    stream_front::StreamTag,
    testing::DeliveredEvent,
};
use quorate_stream::{
    Denied, Name, OpenMode, Retention, StreamOutcome, Writer, store::Layout, table::LocateError,
};
use quorate_wire::{BODY_BYTES_MAX, Decoded, Frame, Lane, decode};

use crate::snapshots::shelf::{Shelf, Shelves as Group, StoredPosition};

const ALL: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];

fn name() -> Name {
    "s".parse().unwrap()
}

/// Returns the byte at a position, chosen so that misplaced bytes are detected.
fn byte(position: u64) -> u8 {
    let [a, b, c, ..] = position.to_le_bytes();
    a ^ b.wrapping_mul(7) ^ c.wrapping_mul(31)
}

fn bytes(from: u64, to: u64) -> Vec<u8> {
    (from..to).map(byte).collect()
}

fn options(class: Class) -> ReplicaOptions {
    let mut options = Group::options(3, class);
    options.stream_layout =
        Layout { unit_bytes: 4 << 10, chunk_bytes: 16 << 10, chunks_per_file: 8 };
    options
}

fn group(class: Class, seed: u64) -> Group {
    let mut group = Group::with_options(options(class), seed, |_| Shelf::default());
    for node in ALL {
        group.start(node);
    }
    assert!(group.run_until(10_000, |group| group.leader().is_some()));
    group
}

fn leader(group: &mut Group) -> NodeId {
    assert!(group.run_until(20_000, |group| group.leader().is_some()));
    group.leader().unwrap()
}

fn follower(group: &mut Group) -> NodeId {
    let leader = leader(group);
    ALL.into_iter().find(|node| *node != leader).unwrap()
}

/// A client that writes a stream with the bytes of [`byte`], through one node after another.
struct Client {
    token: u128,
    mode: OpenMode,
    at: Option<(NodeId, StreamName)>,
    /// Position of the piece's first byte in the named stream.
    first: u64,
    given_to: u64,
    acknowledged: u64,
    events: BTreeMap<StreamTag, DeliveredEvent>,
}

impl Client {
    fn new(token: u128) -> Self {
        Self {
            token,
            mode: OpenMode::Create,
            at: None,
            first: 0,
            given_to: 0,
            acknowledged: 0,
            events: BTreeMap::new(),
        }
    }

    /// Processes the events of the node.
    fn process_events(&mut self, group: &mut Group, node: NodeId) {
        for heard in group.take_stream_events(node) {
            match heard {
                DeliveredEvent::Durable(piece, position) if self.at == Some((node, piece)) => {
                    assert!(position >= self.acknowledged, "a position went back");
                    assert!(position <= self.given_to, "more than was given");
                    self.acknowledged = position;
                }
                DeliveredEvent::Ended(piece, _) if self.at == Some((node, piece)) => self.at = None,
                DeliveredEvent::Durable(..) | DeliveredEvent::Ended(..) => {}
                DeliveredEvent::Executed(tag, _)
                | DeliveredEvent::Refused(tag, _)
                | DeliveredEvent::Failed(tag, _)
                | DeliveredEvent::UpToDate(tag)
                | DeliveredEvent::Bytes(tag, _)
                | DeliveredEvent::NoBytes(tag, _) => drop(self.events.insert(tag, heard)),
            }
        }
    }

    /// Returns the result of a request.
    fn wait_for_result(
        &mut self,
        group: &mut Group,
        node: NodeId,
        tag: StreamTag,
    ) -> DeliveredEvent {
        let came = group.run_until(30_000, |group| {
            self.process_events(group, node);
            self.events.contains_key(&tag)
        });
        assert!(came, "no answer for {tag:?}");
        self.events.remove(&tag).unwrap()
    }

    fn try_open(&mut self, group: &mut Group, node: NodeId) -> DeliveredEvent {
        let (how, writer) = (self.mode, Writer(self.token));
        let (tag, asked) =
            group.streams(node, |streams, tag| streams.open(tag, &name(), how, writer));
        match asked {
            Ok(()) => self.wait_for_result(group, node, tag),
            Err(failure) => DeliveredEvent::Failed(tag, failure),
        }
    }

    /// Opens the stream through this node, and continues at the exact position.
    fn open_stream(&mut self, group: &mut Group, node: NodeId) {
        let opened = group.run_until(60_000, |group| {
            if !group.runs(node) {
                return false;
            }
            match self.try_open(group, node) {
                DeliveredEvent::Executed(
                    _,
                    StreamOutcome::Opened { stream, start_position: at },
                ) => {
                    assert!(at >= self.acknowledged, "{at}: acknowledged bytes are lost");
                    assert!(at <= self.given_to, "{at}: bytes that no client gave");
                    (self.at, self.first, self.given_to) = (Some((node, stream)), at, at);
                    self.acknowledged = at;
                    true
                }
                DeliveredEvent::Failed(..) => {
                    self.mode = if self.mode == OpenMode::Create {
                        OpenMode::Create
                    } else {
                        OpenMode::Continue
                    };
                    false
                }
                other => panic!("{other:?}"),
            }
        });
        assert!(opened, "node {node} does not open the stream");
        self.mode = OpenMode::Continue;
    }

    /// Puts as many bytes as are allowed, up to this position.
    fn give_bytes(&mut self, group: &mut Group, to: u64) {
        let Some((node, piece)) = self.at else {
            return;
        };
        let more = bytes(self.given_to, to.max(self.given_to));
        let (_, taken) = group.streams(node, |streams, _| streams.put_bytes(piece, &more));
        self.given_to += taken as u64;
    }

    /// Writes up to stream position `to`, in as many pieces as necessary, and waits for completion.
    fn write_to(&mut self, group: &mut Group, to: u64, through: NodeId) {
        let done = group.run_until(120_000, |group| {
            if let Some((node, _)) = self.at {
                if !group.runs(node) {
                    self.at = None;
                } else {
                    self.process_events(group, node);
                }
            }
            if self.at.is_none() {
                self.open_stream(group, through);
            }
            self.give_bytes(group, to);
            self.acknowledged >= to
        });
        assert!(done, "{} of {to} are acknowledged", self.acknowledged);
    }

    fn finish_stream(&mut self, group: &mut Group) -> u64 {
        let (node, piece) = self.at.unwrap();
        let (tag, asked) = group.streams(node, |streams, tag| streams.close(tag, piece, true));
        asked.unwrap();
        match self.wait_for_result(group, node, tag) {
            DeliveredEvent::Executed(_, StreamOutcome::Closed { end_position: at }) => at,
            other => panic!("{other:?}"),
        }
    }
}

/// Reads the stream from a node, up to its end there.
fn read(group: &mut Group, node: NodeId, from: u64) -> Result<Vec<u8>, LocateError> {
    let mut reader = Client::new(0);
    let mut read = Vec::new();
    let mut refused = 0;
    loop {
        let position = from + read.len() as u64;
        let (tag, asked) =
            group.streams(node, |streams, tag| streams.read(tag, &name(), position, 50_000));
        asked.unwrap();
        match reader.wait_for_result(group, node, tag) {
            DeliveredEvent::Bytes(_, mut bytes) => read.append(&mut bytes),
            DeliveredEvent::NoBytes(_, LocateError::PastEnd { end, .. }) if end == position => {
                return Ok(read);
            }
            DeliveredEvent::NoBytes(_, nowhere) => return Err(nowhere),
            DeliveredEvent::Failed(_, Failure::Unavailable) => {
                refused += 1;
                assert!(refused < 6000, "node {node} never has {position}");
                group.run_ms(10);
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Checks that every node has exactly the stream's bytes below `to`.
fn check_all(group: &mut Group, to: u64) {
    let level = group.run_until(60_000, |group| {
        ALL.into_iter().all(|node| {
            let (_, info) = group.streams(node, |streams, _| streams.stream_info(&name()));
            info.is_some_and(|info| info.end >= to)
        })
    });
    assert!(level, "a node does not have {to} bytes");
    for node in ALL {
        let found = read(group, node, 0).unwrap();
        assert_eq!(found.len() as u64, to, "node {node}");
        assert!(found == bytes(0, to), "node {node} has other bytes");
    }
}

#[test]
fn what_is_acknowledged_is_on_every_node() {
    for class in [Class::Volatile, Class::Durable] {
        let mut group = group(class, 1);
        let mut client = Client::new(7);
        let owner = follower(&mut group);
        client.write_to(&mut group, 1, owner);
        client.write_to(&mut group, 300_000, owner);
        let skipped = group.replica(owner).counters().stream_slots_skipped;
        assert_eq!(skipped, 0, "in health nothing is a no-op");
        assert_eq!(client.finish_stream(&mut group), 300_000);
        check_all(&mut group, 300_000);
        assert!(matches!(
            client.try_open(&mut group, owner),
            DeliveredEvent::Refused(_, Denied::Finished)
        ));
    }
}

/// [stream-5] Any node may own a piece; commands and streams share one log.
#[test]
fn leader_and_follower_own_streams_beside_commands() {
    let mut group = group(Class::Durable, 2);
    let owner = leader(&mut group);
    let other = follower(&mut group);
    let mut client = Client::new(7);
    for round in 1..=20 {
        client.write_to(&mut group, round * 5000, owner);
        let tag = group.write(other, b"page");
        assert!(group.run_until(5000, |group| group.outcome(other, tag).is_some()));
    }
    assert_eq!(client.finish_stream(&mut group), 100_000);
    check_all(&mut group, 100_000);
}

/// [stream-10] The first writer learns where its piece ended, and never writes again.
#[test]
fn second_writer_is_refused_or_takes_over() {
    let mut group = group(Class::Durable, 3);
    let [one, two, _] = ALL;
    let mut first = Client::new(1);
    first.write_to(&mut group, 10_000, one);
    let mut second = Client::new(2);
    assert!(matches!(second.try_open(&mut group, two), DeliveredEvent::Refused(_, Denied::Exists)));
    second.mode = OpenMode::Append;
    assert!(matches!(second.try_open(&mut group, two), DeliveredEvent::Refused(_, Denied::InUse)));
    // Bytes in flight at the takeover may be lost, but no answer is wrong.
    first.give_bytes(&mut group, 60_000);
    second.mode = OpenMode::Takeover;
    second.given_to = 60_000;
    second.open_stream(&mut group, two);
    let at = second.given_to;
    assert!((10_000..=60_000).contains(&at));
    assert!(group.run_until(5000, |group| {
        first.process_events(group, one);
        first.at.is_none()
    }));
    assert!(first.acknowledged <= at);
    first.mode = OpenMode::Continue;
    assert!(matches!(first.try_open(&mut group, one), DeliveredEvent::Refused(_, Denied::Fenced)));
    second.write_to(&mut group, 80_000, two);
    assert_eq!(second.finish_stream(&mut group), 80_000);
    check_all(&mut group, 80_000);
}

/// A piece survives the death of a leader other than its owner: ballots bind no bytes ([stream-3]).
#[test]
fn piece_outlives_a_leader() {
    for seed in 0..10 {
        let mut group = group(Class::Durable, 100 + seed);
        let owner = follower(&mut group);
        let mut client = Client::new(7);
        client.write_to(&mut group, 50_000, owner);
        let piece = client.at;
        client.give_bytes(&mut group, 400_000);
        group.run_ms(seed % 5);
        let dead = leader(&mut group);
        group.kill(dead);
        client.write_to(&mut group, 500_000, owner);
        assert_eq!(client.at, piece, "it is the same piece");
        group.start(dead);
        assert_eq!(client.finish_stream(&mut group), 500_000);
        check_all(&mut group, 500_000);
    }
}

/// A new leader proposes a stream's inherited part as one run, longer than a log write.
#[test]
fn inherited_runs_are_recorded_in_parts() {
    for seed in 0..5 {
        let mut group =
            Group::with_options(options(Class::Durable), 500 + seed, |_| Shelf::default());
        group.knobs.segment_bytes = Some(128 << 10);
        for node in ALL {
            group.start(node);
        }
        let owner = follower(&mut group);
        let mut client = Client::new(7);
        client.write_to(&mut group, 50_000, owner);
        let dead = leader(&mut group);
        // The followers' votes no longer arrive.
        client.give_bytes(&mut group, 900_000);
        group.run_until(1_000, |group| {
            let voted_to = group.replica(owner).node().acceptor().voted_to();
            voted_to.0 > 500_000
        });
        group.kill(dead);
        client.write_to(&mut group, 1_000_000, owner);
        group.start(dead);
        assert_eq!(client.finish_stream(&mut group), 1_000_000);
        check_all(&mut group, 1_000_000);
        let failed = ALL.map(|node| group.replica(node).error());
        assert_eq!(failed, [None, None, None]);
    }
}

/// When the owner dies, the client continues elsewhere, exactly after the decided bytes.
#[test]
fn client_of_a_dead_owner_continues_elsewhere() {
    for seed in 0..10 {
        let mut group = group(Class::Durable, 200 + seed);
        let owner = leader(&mut group);
        let other = follower(&mut group);
        let mut client = Client::new(7);
        client.write_to(&mut group, 50_000, owner);
        client.give_bytes(&mut group, 400_000);
        group.run_ms(seed % 5);
        client.process_events(&mut group, owner);
        group.crash(owner);
        client.write_to(&mut group, 500_000, other);
        group.start(owner);
        assert_eq!(client.finish_stream(&mut group), 500_000);
        check_all(&mut group, 500_000);
    }
}

/// [stream-6] If the owner does not return, the leader closes its open streams.
#[test]
fn stream_of_a_lost_owner_is_closed() {
    let mut group = group(Class::Durable, 4);
    let owner = follower(&mut group);
    let mut client = Client::new(7);
    client.write_to(&mut group, 50_000, owner);
    group.kill(owner);
    let alive = leader(&mut group);
    let writing = |group: &mut Group| {
        let (_, info) = group.streams(alive, |streams, _| streams.stream_info(&name()));
        info.unwrap().open_stream
    };
    assert!(writing(&mut group).is_some());
    assert!(group.run_until(60_000, |group| writing(group).is_none()));
    let mut second = Client::new(8);
    second.mode = OpenMode::Append;
    second.given_to = 50_000;
    second.open_stream(&mut group, alive);
    assert_eq!(second.given_to, 50_000);
}

/// [stream-5] The streams of an owner are closed even if its next process starts immediately.
#[test]
fn owner_that_came_back_is_another_one() {
    let mut group = group(Class::Durable, 5);
    let owner = follower(&mut group);
    let mut client = Client::new(7);
    client.write_to(&mut group, 50_000, owner);
    group.kill(owner);
    group.start(owner);
    let alive = leader(&mut group);
    assert!(group.run_until(60_000, |group| {
        let (_, info) = group.streams(alive, |streams, _| streams.stream_info(&name()));
        info.unwrap().open_stream.is_none()
    }));
}

/// [disk-5] Acknowledged bytes survive power cuts of all nodes at once.
#[test]
fn nothing_acknowledged_is_lost_when_all_lose_power() {
    for seed in 0..10 {
        let mut group = group(Class::Durable, 300 + seed);
        let mut client = Client::new(7);
        for round in 1..=3 {
            let owner = ALL[usize::try_from((seed + round) % 3).unwrap()];
            client.write_to(&mut group, round * 100_000, owner);
            client.give_bytes(&mut group, round * 100_000 + 70_000);
            let before = client.acknowledged;
            // At any moment, or as soon as some bytes are acknowledged.
            let patience_ms = if seed < 5 { seed } else { 5000 };
            group.run_until(patience_ms, |group| {
                client.process_events(group, owner);
                client.acknowledged > before
            });
            for node in ALL {
                group.crash(node);
            }
            client.at = None;
            for node in ALL {
                group.start(node);
            }
        }
        client.write_to(&mut group, 400_000, ALL[0]);
        assert_eq!(client.finish_stream(&mut group), 400_000);
        check_all(&mut group, 400_000);
    }
}

/// [catch-1] A node that was away gets the bytes from memory or from logs.
#[test]
fn follower_that_was_away_gets_the_bytes() {
    let mut group = group(Class::Durable, 6);
    let owner = leader(&mut group);
    let away = follower(&mut group);
    let mut client = Client::new(7);
    client.write_to(&mut group, 50_000, owner);
    group.isolate(away, true);
    client.write_to(&mut group, 2_000_000, owner);
    group.isolate(away, false);
    client.write_to(&mut group, 2_100_000, owner);
    assert_eq!(client.finish_stream(&mut group), 2_100_000);
    check_all(&mut group, 2_100_000);
}

/// Creates a group in which the test controls the service of node 1.
fn ailing(seed: u64) -> (Group, Rc<RefCell<Health>>) {
    ailing_and_keeping(seed, None)
}

/// Creates a group in which the test controls the service of node 1, and `kept`, if set, preserves
/// that service's position when its process ends.
fn ailing_and_keeping(
    seed: u64,
    kept: Option<Rc<RefCell<StoredPosition>>>,
) -> (Group, Rc<RefCell<Health>>) {
    let mut options = options(Class::Durable);
    // The state that the service loses is replayed from the log.
    options.snapshots.log_bytes_min = u64::MAX;
    ailing_with(options, seed, kept)
}

fn ailing_with(
    options: ReplicaOptions,
    seed: u64,
    kept: Option<Rc<RefCell<StoredPosition>>>,
) -> (Group, Rc<RefCell<Health>>) {
    let health = Rc::new(RefCell::new(Health::Well));
    let given = Rc::clone(&health);
    let mut group = Group::with_options(options, seed, move |node| {
        let ails = node == ALL[0];
        Shelf {
            health: ails.then(|| Rc::clone(&given)),
            kept: kept.clone().filter(|_| ails),
            ..Shelf::default()
        }
    });
    for node in ALL {
        group.start(node);
    }
    leader(&mut group);
    (group, health)
}

/// The owner's service loses its state and replays the log: the clients' pieces continue.
#[test]
fn piece_outlives_the_state_of_the_service() {
    for seed in 0..5 {
        let (mut group, health) = ailing(800 + seed);
        let mut client = Client::new(7);
        client.write_to(&mut group, 50_000, ALL[0]);
        let piece = client.at;
        client.give_bytes(&mut group, 200_000);
        group.run_ms(seed % 3);
        *health.borrow_mut() = Health::Down("it is gone".into());
        group.run_ms(20);
        *health.borrow_mut() = Health::Back(Some("with nothing".into()));
        client.write_to(&mut group, 400_000, ALL[0]);
        assert_eq!(client.at, piece, "it is the same piece");
        assert_eq!(client.finish_stream(&mut group), 400_000);
        check_all(&mut group, 400_000);
    }
}

/// [stream-6] The owner's service continues from a snapshot in which the piece was not open yet:
/// the piece is not lost, and no client is notified of an end.
#[test]
fn piece_outlives_a_snapshot_from_before_it_was_opened() {
    let mut options = options(Class::Durable);
    let mut snapshots = SnapshotOptions::default();
    snapshots.log_bytes_min = 200 << 10;
    snapshots.ratio = 1;
    options.snapshots = snapshots.in_files_of(4 << 10, 8);
    let (mut group, health) = ailing_with(options, 9, None);
    let owner = ALL[0];
    let mut client = Client::new(7);
    client.write_to(&mut group, 400_000, ALL[1]);
    let taken = |group: &Group| group.replica(owner).counters().snapshots_taken > 0;
    assert!(group.run_until(10_000, |group| taken(group)));
    client.at = None;
    client.write_to(&mut group, 420_000, owner);
    let piece = client.at;
    *health.borrow_mut() = Health::Down("it is gone".into());
    group.run_ms(20);
    *health.borrow_mut() = Health::Back(Some("with nothing".into()));
    client.write_to(&mut group, 500_000, owner);
    assert_eq!(client.at, piece, "it is the same piece");
    assert!(group.replica(owner).counters().snapshots_loaded > 0);
    assert_eq!(client.finish_stream(&mut group), 500_000);
    check_all(&mut group, 500_000);
}

/// [disk-8] A log loses content that the service has applied, and learns it again without its
/// bytes. When the service loses its state, too, they are needed, and fetched from peers.
#[test]
fn content_learned_again_without_bytes_is_fetched_when_the_service_loses_its_state() {
    let kept = Rc::new(RefCell::new(StoredPosition::default()));
    let (mut group, health) = ailing_and_keeping(7, Some(Rc::clone(&kept)));
    let owner = ALL[1];
    let mut client = Client::new(7);
    client.write_to(&mut group, 50_000, owner);
    client.write_to(&mut group, 300_000, owner);
    assert_eq!(client.finish_stream(&mut group), 300_000);
    check_all(&mut group, 300_000);
    group.run_ms(100);
    group.crash(ALL[0]);
    let mut log = group.disk(ALL[0]).written_blocks();
    log.retain(|at| at.file.family == Family::Log);
    assert!(group.disk(ALL[0]).flip_bit(log[log.len() / 2], 1_000));
    group.start(ALL[0]);
    let error = group.replica(ALL[0]).error().unwrap();
    let lost = "the log has lost the value of slot";
    assert!(error.starts_with(lost), "{error}");
    let ahead = kept.borrow().at;
    let learned =
        group.run_until(10_000, |group| group.replica(ALL[0]).node().decided_to() >= ahead);
    assert!(learned, "{:?}", group.replica(ALL[0]).error());
    group.run_ms(100);
    *health.borrow_mut() = Health::Back(Some("with nothing".into()));
    assert!(group.run_until(100, |group| group.replica(ALL[0]).applied_to() < ahead));
    let level = group.run_until(30_000, |group| group.replica(ALL[0]).applied_to() >= ahead);
    let replica = group.replica(ALL[0]);
    assert!(level, "{:?} at {:?}", replica.error(), replica.applied_to());
    check_all(&mut group, 300_000);
}

/// A node that learns but cannot apply has the bytes in its log first.
#[test]
fn bytes_that_are_learned_are_recorded_while_the_service_is_stuck() {
    let (mut group, health) = ailing(7);
    group.isolate(ALL[0], true);
    let owner = leader(&mut group);
    let mut client = Client::new(7);
    client.write_to(&mut group, 300_000, owner);
    *health.borrow_mut() = Health::Stuck("it is full".into());
    group.isolate(ALL[0], false);
    let learned = group.run_until(30_000, |group| {
        let node = group.replica(ALL[0]).node();
        node.decided_to().0 > 300_000
    });
    assert!(learned, "{:?}", group.replica(ALL[0]).error());
    *health.borrow_mut() = Health::Well;
    assert_eq!(client.finish_stream(&mut group), 300_000);
    check_all(&mut group, 300_000);
}

/// Streams make progress although frames are lost on all links.
#[test]
fn lost_frames_are_made_good() {
    for seed in 0..5 {
        let mut group = group(Class::Durable, 400 + seed);
        group.knobs.loss_per_mille = 30;
        let owner = follower(&mut group);
        let mut client = Client::new(7);
        client.write_to(&mut group, 1_000_000, owner);
        group.knobs.loss_per_mille = 0;
        assert_eq!(client.finish_stream(&mut group), 1_000_000);
        check_all(&mut group, 1_000_000);
    }
}

/// [trim-2], [snap-5] The log is trimmed below the end of the store. A node that was away then gets
/// a snapshot, and the bytes by position. Until it has them, it does not count as having them.
#[test]
fn bytes_outlive_the_log() {
    let mut options = options(Class::Durable);
    let mut snapshots = SnapshotOptions::default();
    snapshots.log_bytes_min = 200 << 10;
    snapshots.log_bytes_max = 300 << 10;
    snapshots.ratio = 1;
    options.snapshots = snapshots.in_files_of(4 << 10, 8);
    let mut group = Group::with_options(options, 7, |_| Shelf::default());
    group.knobs.segment_bytes = Some(128 << 10);
    for node in ALL {
        group.start(node);
    }
    let owner = leader(&mut group);
    let away = follower(&mut group);
    let mut client = Client::new(7);
    client.write_to(&mut group, 50_000, owner);
    group.isolate(away, true);
    client.write_to(&mut group, 3_000_000, owner);
    assert!(group.run_until(20_000, |group| { group.replica(owner).log().start().0 > 1_000_000 }));
    group.isolate(away, false);
    client.write_to(&mut group, 3_100_000, owner);
    assert_eq!(client.finish_stream(&mut group), 3_100_000);
    check_all(&mut group, 3_100_000);
    let installed = group.replica(away).counters().snapshots_installed;
    assert!(installed > 0, "it learned from the log, which proves nothing here");
    for node in ALL {
        group.crash(node);
    }
    for node in ALL {
        group.start(node);
    }
    check_all(&mut group, 3_100_000);
}

/// [trim-2] The leader proposes trims by its clock, and every node drops the same bytes.
#[test]
fn streams_are_kept_as_long_and_as_large_as_they_are_to_be() {
    let mut group = group(Class::Durable, 9);
    let owner = follower(&mut group);
    let mut client = Client::new(7);
    client.write_to(&mut group, 2_000_000, owner);
    let mut retain = |bytes, age_ms| {
        let keep = Retention { bytes, age_ms };
        let (tag, asked) =
            group.streams(owner, |streams, tag| streams.set_retention(tag, &name(), keep));
        asked.unwrap();
        let done = Client::new(0).wait_for_result(&mut group, owner, tag);
        assert_eq!(done, DeliveredEvent::Executed(tag, StreamOutcome::Retained));
        group.run_ms(30_000);
        ALL.map(|node| {
            let (_, info) = group.streams(node, |streams, _| streams.stream_info(&name()));
            info.unwrap().start
        })
    };
    assert_eq!(retain(Some(3_000_000), None), [0; 3]);
    assert_eq!(retain(Some(1_900_000), None), [0; 3], "not worth it");
    assert_eq!(retain(Some(1_000_000), None), [1_000_000; 3]);
    assert_eq!(retain(None, Some(60_000)), [1_000_000; 3], "not old enough");
    assert_eq!(retain(None, Some(20_000)), [2_000_000; 3]);
    client.write_to(&mut group, 2_000_001, owner);
    assert_eq!(read(&mut group, owner, 2_000_000), Ok(bytes(2_000_000, 2_000_001)));
}

/// [trim-2] Trimmed positions are an error, never a silent skip; a removed stream is unknown.
#[test]
fn trimmed_and_removed_bytes_are_not_there() {
    let mut group = group(Class::Durable, 8);
    let owner = leader(&mut group);
    let other = follower(&mut group);
    let mut client = Client::new(7);
    client.write_to(&mut group, 100_000, owner);
    let (tag, asked) = group.streams(other, |streams, tag| streams.trim(tag, &name(), 60_000));
    asked.unwrap();
    let done = Client::new(0).wait_for_result(&mut group, other, tag);
    assert_eq!(done, DeliveredEvent::Executed(tag, StreamOutcome::Trimmed { start: 60_000 }));
    assert_eq!(read(&mut group, other, 0), Err(LocateError::Trimmed { start: 60_000 }));
    assert_eq!(read(&mut group, other, 60_000), Ok(bytes(60_000, 100_000)));
    client.write_to(&mut group, 120_000, owner);
    let (tag, asked) = group.streams(other, |streams, tag| streams.remove(tag, &name()));
    asked.unwrap();
    let done = Client::new(0).wait_for_result(&mut group, other, tag);
    assert_eq!(done, DeliveredEvent::Executed(tag, StreamOutcome::Removed));
    assert_eq!(read(&mut group, other, 0), Err(LocateError::Unknown));
    assert!(group.run_until(5000, |group| {
        client.process_events(group, owner);
        client.at.is_none()
    }));
}

/// Stores the frames that a replica sends.
#[derive(Default)]
struct RecordedFrames(Vec<u8>);

impl Plane for RecordedFrames {
    fn has_room(&self, _: NodeId, _: Lane, _: usize) -> bool {
        true
    }

    fn send(
        &mut self,
        to: NodeSet,
        _: Lane,
        header: &[u8],
        body: FrameBody<'_>,
    ) -> Result<NodeSet, TooLarge> {
        self.0.extend_from_slice(header);
        self.0.extend_from_slice(body.bytes());
        Ok(to)
    }
}

/// [aux-5] A full replica states for future slots that closed streams, and positions below the next
/// one, need no bytes. It does not for slots that it has applied, in which the same content was
/// appended, nor for content that may still arrive.
#[test]
fn a_full_replica_says_what_is_needless_and_no_more() {
    let mut group = group(Class::Durable, 5);
    let node = leader(&mut group);
    let mut client = Client::new(1);
    client.open_stream(&mut group, node);
    client.write_to(&mut group, 10_000, node);
    let (_, stream) = client.at.expect("it writes");
    let asks = |group: &mut Group, value, slot| {
        let now = group.now();
        let mut said = RecordedFrames::default();
        let asker = ALL.into_iter().find(|other| *other != node).unwrap();
        let frame = Frame::FetchRequest { value, slot };
        let received = ReceivedFrame::without_attributes(Member::first(asker.0), frame);
        group.replica_mut(node).on_frame(now, 0, received, &mut said);
        match decode(&said.0, BODY_BYTES_MAX) {
            Ok(Decoded::Frame { frame: Frame::Needless { stream, below, from }, .. }) => {
                Some((stream, below, from))
            }
            _ => None,
        }
    };
    let applied = group.replica(node).applied_to();
    // Content with this position in this slot.
    let content = |slot: Slot, position: u64| Value::Content { stream, offset: slot.0 - position };
    let later = applied.plus(1000);
    assert_eq!(asks(&mut group, content(later, 10_000), later), None);
    let below = Some((stream, 10_000, applied));
    assert_eq!(asks(&mut group, content(later, 9_999), later), below);
    assert_eq!(asks(&mut group, content(applied, 9_999), applied), below);
    let unknown = Value::Content { stream: StreamName { number: 77, ..stream }, offset: later.0 };
    assert_eq!(asks(&mut group, unknown, later), None, "it may be opened");
    let before = Slot(applied.0 - 1);
    assert_eq!(asks(&mut group, content(before, 9_999), before), None);
    client.finish_stream(&mut group);
    let applied = group.replica(node).applied_to();
    let closed = Some((stream, u64::MAX, applied));
    assert_eq!(asks(&mut group, content(later, 10_000), later), closed);
    assert_eq!(asks(&mut group, content(before, 9_999), before), None);
}

/// [stream-8] A writer whose bytes are not decided waits, and its node reports this.
#[test]
fn what_clients_gave_and_nobody_decides_is_told() {
    let mut group = group(Class::Durable, 6);
    let node = leader(&mut group);
    let mut client = Client::new(1);
    client.open_stream(&mut group, node);
    client.write_to(&mut group, 5_000, node);
    let stopped = |group: &Group| {
        let status = group.replica(node).status(group.now());
        status.streams.stop_reason
    };
    group.run_ms(10_000);
    assert_eq!(stopped(&group), None, "no writer waits");
    let others = ALL.into_iter().filter(|other| *other != node);
    others.clone().for_each(|other| group.crash(other));
    client.give_bytes(&mut group, 6_000);
    group.run_ms(4_000);
    assert_eq!(stopped(&group), None, "it has not been long");
    group.run_ms(4_000);
    let why = stopped(&group).expect("it takes nothing in");
    assert!(why.contains("have waited for"), "{why}");
    others.for_each(|other| group.start(other));
    assert!(group.run_until(30_000, |group| stopped(group).is_none()));
}
