//! Frames that no honest peer sends are counted and dropped, never executed, without a panic.

use quorate_core::{
    ballot::{Ballot, Era},
    effect::Refusal,
    level::Level,
    message::{Message, Phase2a},
    node_id::{Member, NodeId},
    node_set::NodeSet,
    record::Class,
    slot::{Slot, SlotRange},
    value::{BatchName, StreamName, Value},
};
use quorate_replica::{
    plane::{FrameBody, Plane, ReceivedFrame, TooLarge},
    service::{CommandId, StateMachine},
    testing::{Cluster, Outcome},
};
use quorate_wire::{Frame, Lane, checksum};

/// Counts commands.
#[derive(Default)]
struct Tally(u64);

impl StateMachine for Tally {
    fn apply(&mut self, _id: CommandId, _command: &[u8], _reply: &mut Vec<u8>) {
        self.0 += 1;
    }

    fn query(&self, _query: &[u8], _wall_ms: u64, _reply: &mut Vec<u8>) {}
}

/// Drops all frames.
struct Sink;

impl Plane for Sink {
    fn has_room(&self, _: NodeId, _: Lane, _: usize) -> bool {
        true
    }

    fn send(
        &mut self,
        to: NodeSet,
        _: Lane,
        _: &[u8],
        _: FrameBody<'_>,
    ) -> Result<NodeSet, TooLarge> {
        Ok(to)
    }
}

fn name(origin: u32, bytes: &[u8]) -> BatchName {
    BatchName {
        origin: NodeId(origin),
        boot: 1,
        counter: 1,
        length: u32::try_from(bytes.len()).unwrap(),
        checksum: checksum(bytes),
    }
}

fn deliver_frame(cluster: &mut Cluster<Tally>, node: NodeId, from: u32, frame: Frame<'_>) {
    let now = cluster.now();
    let replica = cluster.replica_mut(node);
    let received = ReceivedFrame::without_attributes(Member::first(from), frame);
    replica.on_frame(now, 0, received, &mut Sink);
    // The cluster runs the node's next turn.
    cluster.run_ms(0);
}

fn cluster() -> (Cluster<Tally>, NodeId) {
    let mut cluster = Cluster::new(3, Class::Durable, 1, |_| Tally::default());
    assert!(cluster.run_until(1_000, |cluster| cluster.leader().is_some()));
    let leader = cluster.leader().unwrap();
    (cluster, leader)
}

/// [value-2] A batch name that arrives with different bytes is dropped.
#[test]
fn name_bound_to_other_bytes_is_dropped() {
    let (mut cluster, leader) = cluster();
    let other = 1 + leader.0 % 3;
    let value = Value::Batch(name(other, b"abc"));
    let before = cluster.replica(leader).counters().frames_mismatched;
    deliver_frame(&mut cluster, leader, other, Frame::Forward { value, bytes: b"abd" });
    deliver_frame(&mut cluster, leader, other, Frame::Forward { value, bytes: b"abcd" });
    let foreign = Value::Batch(name(leader.0, b"abc"));
    deliver_frame(&mut cluster, leader, other, Frame::Forward { value: foreign, bytes: b"abc" });
    deliver_frame(&mut cluster, leader, other, Frame::Forward { value: Value::NoOp, bytes: b"" });
    assert_eq!(cluster.replica(leader).counters().frames_mismatched, before + 4);
}

/// [session-4] A batch that cannot be decoded, or is of an unregistered session, is decided like
/// any other and executed nowhere.
#[test]
fn garbage_that_is_decided_is_executed_nowhere() {
    let (mut cluster, leader) = cluster();
    let other = 1 + leader.0 % 3;
    let unregistered = [&[1][..], &99_u64.to_le_bytes(), &1_u64.to_le_bytes()].concat();
    for bytes in [&b"garbage"[..], b"", &unregistered] {
        let value = Value::Batch(name(other, bytes));
        deliver_frame(&mut cluster, leader, other, Frame::Forward { value, bytes });
    }
    let tag = cluster.write(leader, b"honest");
    assert!(cluster.run_until(1_000, |cluster| cluster.outcome(leader, tag).is_some()));
    assert_eq!(cluster.outcome(leader, tag), Some(&Outcome::Written(Vec::new())));
    cluster.run_ms(100);
    for node in [1, 2, 3].map(NodeId) {
        let replica = cluster.replica(node);
        assert_eq!(replica.service().0, 1, "node {node}");
        assert_eq!(replica.counters().batches_malformed, 2);
        assert_eq!(replica.counters().batches_unknown_session, 1);
    }
}

#[test]
fn impossible_frames_change_nothing() {
    let (mut cluster, leader) = cluster();
    let other = 1 + leader.0 % 3;
    let stream = StreamName { owner: NodeId(9), boot: 1, number: 1 };
    let batch = Value::Batch(name(9, b"abc"));
    let values = [
        batch,
        Value::NoOp,
        Value::Content { stream, offset: u64::MAX },
        Value::CloseStream(stream),
        Value::RegisterSession { origin: NodeId(9), boot: 0, number: u64::MAX },
        Value::ExpireSession { session: u64::MAX },
        Value::AllocateNode { nonce: 0 },
        Value::Now { ms: 0 },
        Value::Raise { era: Era(9), nodes: 0, to: Level(9) },
    ];
    let ranges = [(0, 0), (0, u64::MAX), (1, 3), (5, 2), (u64::MAX - 1, u64::MAX), (u64::MAX, 0)];
    for value in values {
        for (from, to) in ranges {
            let range = SlotRange::new(Slot(from), Slot(to));
            let proposal = Phase2a {
                ballot: Ballot { round: 1, node: NodeId(9), ..Ballot::ZERO },
                range,
                value,
                prefix: 3,
                decided_to: Slot(0),
                own_volatile_to: Slot(u64::MAX),
                own_durable_to: Slot(u64::MAX),
                with_bytes: true,
            };
            for bytes in [None, Some(&b"abc"[..]), Some(&b"other"[..])] {
                for message in [
                    Message::Phase2a(proposal),
                    Message::CatchupRequest { range },
                    // Learned values are trusted ([model-1]), so only absurd ones are sent here.
                    Message::Learn { range: SlotRange::new(Slot(u64::MAX), Slot(to)), value },
                ] {
                    deliver_frame(&mut cluster, leader, other, Frame::Protocol { message, bytes });
                }
            }
            deliver_frame(
                &mut cluster,
                leader,
                other,
                Frame::FetchRequest { value, slot: Slot(from) },
            );
            deliver_frame(
                &mut cluster,
                leader,
                other,
                Frame::FetchReply { value, bytes: Some(b"abc") },
            );
            deliver_frame(&mut cluster, leader, other, Frame::FetchReply { value, bytes: None });
            let stream = StreamName::default();
            for below in [0, 1, u64::MAX] {
                let from = Slot(from);
                deliver_frame(&mut cluster, leader, other, Frame::Needless { stream, below, from });
            }
            let to = Slot(u64::MAX);
            deliver_frame(&mut cluster, leader, other, Frame::Applied { to, state_digest: 7 });
            let why = Refusal::Busy;
            deliver_frame(
                &mut cluster,
                leader,
                other,
                Frame::NotTaken { value, why, leader: None },
            );
        }
    }
    deliver_frame(&mut cluster, leader, leader.0, Frame::Forward { value: batch, bytes: b"abc" });
    cluster.run_ms(2_000);
    assert!(cluster.run_until(1_000, |cluster| cluster.leader().is_some()));
    let leader = cluster.leader().unwrap();
    let tag = cluster.write(leader, b"honest");
    assert!(cluster.run_until(1_000, |cluster| cluster.outcome(leader, tag).is_some()));
    assert_eq!(cluster.outcome(leader, tag), Some(&Outcome::Written(Vec::new())));
    assert_eq!(cluster.replica(leader).service().0, 1);
}

/// [ballot-5] An intruder gets no promise in an era that does not exist. A vote cannot be refused,
/// and binds permanently: the node reports that, and the others continue.
#[test]
fn promise_to_an_era_that_nobody_knows_is_told() {
    let (mut cluster, leader) = cluster();
    let victim = NodeId(1 + leader.0 % 3);
    let other = 1 + victim.0 % 3;
    let ballot = Ballot { era: Era(1 << 31), round: 1, node: NodeId(other) };
    let say = |cluster: &mut Cluster<Tally>, message| {
        let bytes = None;
        let frame = Frame::Protocol { message, bytes };
        deliver_frame(cluster, victim, other, frame);
    };
    let from = Slot(1);
    say(&mut cluster, Message::Phase1a { ballot, from });
    cluster.run_ms(2_000);
    let promised = cluster.replica(victim).node().acceptor().promised();
    assert!(promised < ballot, "{promised}");

    let slot = cluster.replica(victim).node().decided_to();
    let proposal = Phase2a {
        ballot,
        range: SlotRange::one(slot),
        value: Value::NoOp,
        prefix: 0,
        decided_to: slot,
        own_volatile_to: Slot(0),
        own_durable_to: Slot(0),
        with_bytes: false,
    };
    say(&mut cluster, Message::Phase2a(proposal));
    let notices = |cluster: &Cluster<Tally>, node: NodeId| {
        let now = cluster.now();
        cluster.replica(node).status(now).notices
    };
    let told = |cluster: &mut Cluster<Tally>| {
        let is_told = |cluster: &mut Cluster<Tally>| !notices(cluster, victim).is_empty();
        assert!(cluster.run_until(10_000, is_told), "it is noticed");
        let notice = notices(cluster, victim).remove(0);
        assert!(notice.contains("2147483648.1."), "{notice}");
        for node in [leader, NodeId(6 - leader.0 - victim.0)] {
            assert_eq!(notices(cluster, node), [] as [&str; 0], "it is in order");
        }
    };
    assert!(notices(&cluster, victim).is_empty(), "it may lag behind");
    told(&mut cluster);
    let tag = cluster.write(leader, b"1");
    let done = |cluster: &mut Cluster<Tally>| cluster.outcome(leader, tag).is_some();
    assert!(cluster.run_until(10_000, done), "the others go on");
    assert!(matches!(cluster.outcome(leader, tag), Some(Outcome::Written(_))));
    cluster.crash(victim);
    cluster.start(victim);
    told(&mut cluster);
}
