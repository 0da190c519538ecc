//! One replica whose peers are simulated by the test. A proposal in flight belongs to its ballot:
//! the next ballot, even of the same leader, may decide other values in its slots. Messages about
//! slots that are far away, or were decided long ago, have no effect.

use std::cell::Cell;

use quorate_core::{
    ballot::{Ballot, Era},
    extents::Vote,
    leader::Phase2,
    lease::{Lease, LeaseRules},
    level::Level,
    message::{Extent, Heartbeat, HeartbeatReply, Message, Phase1b, Phase2a, Phase2b},
    node_id::{Member, NodeId},
    node_set::NodeSet,
    record::Class,
    slot::{Slot, SlotRange},
    time::Time,
    value::{BatchName, Value, range_check},
};
use quorate_replica::{
    ReplicaOptions,
    front::{Failure, Tag},
    plane::{FrameBody, Plane, ReceivedFrame, TooLarge},
    service::{CommandId, Health, Metadata, StateMachine},
    status::Addresses,
    testing::{Cluster, Outcome},
};
use quorate_wire::{BODY_BYTES_MAX, Decoded, Frame, Lane, decode};

thread_local! {
    /// The service of this test accepts commands.
    static TAKES: Cell<bool> = const { Cell::new(true) };
    /// Slot up to which the service of this test has applied everything when it starts.
    static KEPT_TO: Cell<Slot> = const { Cell::new(Slot::FIRST) };
}

/// Counts and stores commands.
#[derive(Default)]
struct Count(u64, Vec<String>);

impl StateMachine for Count {
    fn apply(&mut self, _id: CommandId, command: &[u8], reply: &mut Vec<u8>) {
        self.0 += 1;
        self.1.push(String::from_utf8(command.to_vec()).unwrap());
        reply.extend_from_slice(self.0.to_string().as_bytes());
    }

    fn query(&self, _query: &[u8], _wall_ms: u64, reply: &mut Vec<u8>) {
        reply.extend_from_slice(self.0.to_string().as_bytes());
    }

    fn health(&mut self) -> Health {
        if TAKES.get() { Health::Well } else { Health::Stuck("as the test wants".to_owned()) }
    }

    fn recovered(&mut self) -> (Slot, Metadata) {
        (KEPT_TO.get(), Metadata::new())
    }
}

/// Stores the replica's frames.
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
        for _ in to.iter() {
            self.0.extend_from_slice(header);
            self.0.extend_from_slice(body.bytes());
        }
        Ok(to)
    }
}

impl RecordedFrames {
    fn frames(&self) -> Vec<Frame<'_>> {
        let (mut frames, mut rest) = (Vec::new(), &self.0[..]);
        while !rest.is_empty() {
            let Ok(Decoded::Frame { frame, used_bytes: used, .. }) = decode(rest, BODY_BYTES_MAX)
            else {
                panic!("a replica wrote what is no frame");
            };
            frames.push(frame);
            rest = &rest[used..];
        }
        frames
    }
}

const ONE: NodeId = NodeId(1);
const PEERS: [u32; 2] = [2, 3];

fn ballot(round: u32, node: u32) -> Ballot {
    Ballot { era: Era(0), round, node: NodeId(node) }
}

/// Node 1 of a durable group of three.
struct Stage(Cluster<Count>);

impl Stage {
    fn new() -> Self {
        Self::with_leases(None)
    }

    fn with_leases(leases: Option<LeaseRules>) -> Self {
        let mut options = Cluster::<Count>::options(3, Class::Durable);
        options.leases = leases;
        Self::with_options(options)
    }

    fn with_options(mut options: ReplicaOptions) -> Self {
        // Values that are no longer needed are dropped immediately.
        options.limits.recent_bytes = 1;
        let mut cluster = Cluster::with_options(options, 1, |_| Count::default());
        cluster.start(ONE);
        let now = cluster.now();
        for peer in PEERS {
            let replica = cluster.replica_mut(ONE);
            replica.peer_up(now, Member::first(peer), 1, Level::NEWEST, Addresses::default());
        }
        Self(cluster)
    }

    /// Delivers a peer's frame. Returns the frames that the replica sends in response, to any node.
    fn deliver_frame(&mut self, from: u32, frame: Frame<'_>) -> RecordedFrames {
        let (now, mut heard) = (self.0.now(), RecordedFrames::default());
        let replica = self.0.replica_mut(ONE);
        let received = ReceivedFrame::without_attributes(Member::first(from), frame);
        replica.on_frame(now, 0, received, &mut heard);
        self.0.poll_over(ONE, &mut heard);
        heard
    }

    fn deliver_message(&mut self, from: u32, message: Message) -> RecordedFrames {
        let bytes = None;
        self.deliver_frame(from, Frame::Protocol { message, bytes })
    }

    /// Makes a peer follow the leader of `of`, with the promise `promised`.
    fn make_follow(&mut self, from: u32, of: Ballot, promised: Ballot, decided_to: Slot) {
        let reply = HeartbeatReply {
            ballot: of,
            promised,
            decided_to,
            held_to: decided_to,
            kept_to: decided_to,
            voted_to: Slot(0),
            sent_to: Slot(0),
            read_round: 0,
            lease: Lease::default(),
            unfit: false,
            clock_ms: 0,
            group_ms: 0,
            late_us: 0,
            disk_full: false,
        };
        self.deliver_message(from, Message::HeartbeatReply(reply));
    }

    /// Makes a peer vote for everything that node 1 has voted for.
    fn votes(&mut self, from: u32) {
        let run = *self.0.replica(ONE).node().newest_run();
        let vote = Phase2b {
            ballot: run.ballot,
            from: run.from,
            volatile_to: run.to,
            durable_to: run.to,
            check: run.check,
        };
        self.deliver_message(from, Message::Phase2b(vote));
    }

    fn promises(&mut self, from: u32, ballot: Ballot, at: Slot, extents: Vec<Extent>) {
        let promise = Phase1b {
            ballot,
            from: at,
            floor: at,
            log_start: Slot::FIRST,
            decided_to: at,
            extents,
        };
        self.deliver_message(from, Message::Phase1b(promise));
    }

    fn leading(&self) -> Option<&Phase2> {
        self.0.replica(ONE).node().phase2()
    }

    fn leads_in(&self) -> Option<Ballot> {
        self.leading().map(Phase2::ballot)
    }

    fn decided_to(&self) -> Slot {
        self.0.replica(ONE).node().decided_to()
    }

    /// Runs until node 1 leads in ballot 0.1.1, elected by node 2.
    fn elected(&mut self) {
        for _ in 0..100 {
            let granted = Message::PreVoteReply {
                ballot: ballot(1, 1),
                granted: true,
                promised: Ballot::ZERO,
            };
            self.deliver_message(2, granted);
            self.0.run_ms(10);
            self.promises(2, ballot(1, 1), Slot(1), Vec::new());
            if self.leads_in() == Some(ballot(1, 1)) {
                return;
            }
        }
        panic!("node 1 does not lead");
    }

    /// Makes node 1 lose a slot. Node 3 led 0.2.3 for a moment, with promises of 2 and 3, proposed
    /// a no-op in node 1's next slot, and voted for it. Then node 1 leads again, in a higher
    /// ballot. No other node voted.
    fn loses_a_slot(&mut self) {
        let at = self.decided_to();
        self.make_follow(2, ballot(1, 1), ballot(1, 1), at);
        self.make_follow(3, ballot(1, 1), ballot(2, 3), at);
        self.0.run_ms(30);
        let phase1 = self.0.replica(ONE).node().phase1();
        let next = phase1.expect("a leader takes a stray node in again").ballot;
        let extent = Extent {
            range: SlotRange::one(at),
            ballot: ballot(2, 3),
            value: Value::NoOp,
            class: Class::Durable,
        };
        self.promises(3, next, at, vec![extent]);
        self.0.run_ms(5);
        assert_eq!(self.leads_in(), Some(next));
    }

    /// Makes node 1 lead in a ballot that inherits this value from node 3, without its bytes.
    /// Returns the slot of the value.
    fn inherits(&mut self, value: Value) -> Slot {
        self.elected();
        let first = self.0.write(ONE, b"first");
        self.healthy_until(|stage| stage.ended(first).is_some());
        let at = self.decided_to();
        self.make_follow(2, ballot(1, 1), ballot(1, 1), at);
        self.make_follow(3, ballot(1, 1), ballot(2, 3), at);
        self.0.run_ms(30);
        let next = self.0.replica(ONE).node().phase1().unwrap().ballot;
        let extent = Extent {
            range: SlotRange::one(at),
            ballot: ballot(2, 3),
            value,
            class: Class::Durable,
        };
        self.promises(3, next, at, vec![extent]);
        self.0.run_ms(1);
        at
    }

    /// Makes both peers follow and vote until `done`.
    fn healthy_until(&mut self, done: impl Fn(&Self) -> bool) {
        for _ in 0..1000 {
            if done(self) {
                return;
            }
            self.0.run_ms(5);
            let (ballot, at) = (self.leads_in().expect("leads"), self.decided_to());
            for peer in PEERS {
                self.make_follow(peer, ballot, ballot, at);
                self.votes(peer);
            }
        }
        panic!("a healthy quorum gets nowhere");
    }

    fn ended(&self, tag: Tag) -> Option<&Outcome> {
        self.0.outcome(ONE, tag)
    }
}

#[test]
fn own_batch_that_lost_its_slot_is_proposed_again() {
    let mut stage = Stage::new();
    stage.elected();
    let first = stage.0.write(ONE, b"first");
    stage.healthy_until(|stage| stage.ended(first).is_some());
    let second = stage.0.write(ONE, b"second");
    let at = stage.decided_to();
    stage.0.run_ms(1);
    assert!(stage.leading().unwrap().tally.next() > at, "is proposed");
    stage.loses_a_slot();
    stage.healthy_until(|stage| stage.ended(second).is_some());
    let third = stage.0.write(ONE, b"third");
    stage.healthy_until(|stage| stage.ended(third).is_some());
    let written = |text: &str| Some(Outcome::Written(text.as_bytes().to_vec()));
    assert_eq!(stage.ended(second).cloned(), written("2"));
    assert_eq!(stage.ended(third).cloned(), written("3"));
}

/// A forwarded batch whose slot another value took must not count as known when it is repeated.
#[test]
fn forwarded_value_that_lost_its_slot_is_taken_again() {
    let mut stage = Stage::new();
    stage.elected();
    let first = stage.0.write(ONE, b"first");
    stage.healthy_until(|stage| stage.ended(first).is_some());
    let registration = Frame::Forward {
        value: Value::RegisterSession { origin: NodeId(2), boot: 1, number: 1 },
        bytes: &[],
    };
    stage.deliver_frame(2, registration.clone());
    stage.deliver_frame(2, registration.clone());
    let counted = |stage: &Stage| {
        let counters = stage.0.replica(ONE).counters();
        (counters.forwards_taken, counters.forwards_repeated)
    };
    assert_eq!(counted(&stage), (1, 1));
    stage.loses_a_slot();
    stage.deliver_frame(2, registration);
    assert_eq!(counted(&stage), (2, 1));
    let applied = |stage: &Stage| {
        let sessions = stage.0.replica(ONE).sessions();
        sessions.len()
    };
    let before = applied(&stage);
    stage.healthy_until(|stage| applied(stage) > before);
}

/// A confirmed read waits for slots that the leader of that time had proposed. If that leader dies,
/// these slots may never be proposed again, so the read needs another confirmation.
#[test]
fn confirmed_read_is_asked_again_when_another_leads() {
    let mut stage = Stage::new();
    let beat = |ballot, decided_to| {
        Message::Heartbeat(Heartbeat {
            ballot,
            decided_to,
            sent_to: decided_to,
            read_round: 0,
            held_by_all: Slot(0),
            held_by_quorum: Slot(0),
            lease: Lease::default(),
            auxiliary: false,
            clock_ms: 0,
            late_us: 0,
            full_disk: None,
        })
    };
    let question = |heard: &RecordedFrames| {
        heard.frames().into_iter().find_map(|frame| match frame {
            Frame::Protocol { message: Message::ReadRequest { id }, .. } => Some(id),
            _ => None,
        })
    };
    stage.deliver_message(2, beat(ballot(1, 2), Slot(1)));
    let read = stage.0.read(ONE, b"");
    let heard = stage.deliver_message(2, beat(ballot(1, 2), Slot(1)));
    let id = question(&heard).expect("the leader is asked");
    let slot = Slot(100);
    stage.deliver_message(2, Message::ReadReply { id, slot });
    stage.0.run_ms(1);
    assert_eq!(stage.ended(read), None, "it waits for slot 100");
    let heard = stage.deliver_message(3, beat(ballot(2, 3), Slot(1)));
    let id = question(&heard).expect("the next leader is asked");
    let slot = Slot(1);
    stage.deliver_message(3, Message::ReadReply { id, slot });
    stage.0.run_ms(1);
    assert_eq!(stage.ended(read), Some(&Outcome::Read(b"0".to_vec())));
}

/// An inherited batch is in flight as the new ballot begins, so it is not proposed twice.
#[test]
fn inherited_batch_is_not_proposed_twice() {
    let mut stage = Stage::new();
    stage.elected();
    let first = stage.0.write(ONE, b"first");
    stage.healthy_until(|stage| stage.ended(first).is_some());
    let second = stage.0.write(ONE, b"second");
    let at = stage.decided_to();
    stage.0.run_ms(1);
    stage.make_follow(2, ballot(1, 1), ballot(1, 1), at);
    stage.make_follow(3, ballot(1, 1), ballot(2, 3), at);
    stage.0.run_ms(30);
    let phase1 = stage.0.replica(ONE).node().phase1();
    let next = phase1.unwrap().ballot;
    stage.promises(3, next, at, Vec::new());
    stage.healthy_until(|stage| stage.ended(second).is_some());
    stage.healthy_until(|stage| stage.leading().is_some_and(|l| l.tally.is_empty()));
    let counters = stage.0.replica(ONE).counters();
    assert_eq!(counters.batches_skipped, 0);
    assert_eq!(counters.batches_applied, 2);
}

/// Returns a proposal of a leader that has decided everything below `decided_to`.
fn proposal(ballot: Ballot, range: SlotRange, value: Value, decided_to: Slot) -> Message {
    Message::Phase2a(Phase2a {
        ballot,
        range,
        value,
        prefix: 0,
        decided_to,
        own_volatile_to: range.to,
        own_durable_to: range.to,
        with_bytes: false,
    })
}

/// Returns the votes that the replica has, as ⟨first slot, one past the last, ballot⟩.
fn votes_held(stage: &Stage) -> Vec<(u64, u64, Ballot)> {
    let acceptor = stage.0.replica(ONE).node().acceptor();
    let run = |vote: Vote| (vote.range.from.0, vote.range.to.0, vote.ballot);
    acceptor.votes().map(run).collect()
}

/// Features G5, [p2-3]: an acceptor that lags by more than its window votes for nothing beyond it,
/// and overwrites nothing. The bound is exact, and survives a restart.
#[test]
fn slots_beyond_the_window_get_no_vote() {
    let mut stage = Stage::new();
    let window = Cluster::<Count>::options(3, Class::Durable).window_slots;
    let (first, second) = (ballot(1, 2), ballot(2, 3));
    stage.deliver_message(2, proposal(first, SlotRange::one(Slot(1)), Value::NoOp, Slot(1)));
    let voted = vec![(1, 2, first)];
    assert_eq!(votes_held(&stage), voted);
    // Nothing is decided here, so the window ends at this slot.
    let end = Slot(1 + window);
    let far = [
        SlotRange::one(end),
        SlotRange::new(Slot(end.0 - 1), end.next()),
        SlotRange::new(Slot(1), end.next()),
        SlotRange::one(Slot(1 + 2 * window)),
        SlotRange::one(Slot(u64::MAX - 2)),
    ];
    for range in far {
        let before = range.from;
        stage.deliver_message(3, proposal(second, range, Value::NoOp, before));
        assert_eq!(votes_held(&stage), voted, "{range}");
    }
    stage.0.run_ms(1);
    stage.0.crash(ONE);
    stage.0.start(ONE);
    assert_eq!(votes_held(&stage), voted);
    let last = SlotRange::one(Slot(end.0 - 1));
    stage.deliver_message(3, proposal(second, last, Value::NoOp, last.from));
    assert_eq!(votes_held(&stage), [(1, 2, first), (last.from.0, end.0, second)]);
}

/// Features G5: a late proposal for a decided slot gets no vote, whatever its ballot. Votes in such
/// slots are not reported, only where they end ([p1-3]).
#[test]
fn decided_slots_get_no_further_vote() {
    let mut stage = Stage::new();
    let (first, second) = (ballot(1, 2), ballot(2, 3));
    let other = Value::AllocateNode { nonce: 7 };
    let (ten, decided_to) = (SlotRange::new(Slot(1), Slot(11)), Slot(9));
    stage.deliver_message(2, proposal(first, ten, Value::NoOp, Slot(1)));
    stage.deliver_message(2, Message::Decided { ballot: first, decided_to });
    assert_eq!(stage.decided_to(), decided_to);
    let voted = vec![(9, 11, first)];
    assert_eq!(votes_held(&stage), voted);
    for slot in 1..9 {
        let late = SlotRange::one(Slot(slot));
        stage.deliver_message(2, proposal(first, late, Value::NoOp, Slot(1)));
        stage.deliver_message(3, proposal(second, late, other, Slot(1)));
        assert_eq!(votes_held(&stage), voted, "{late}");
    }
    // If only a part of the proposal is late, that part is ignored.
    stage.deliver_message(3, proposal(second, ten, Value::NoOp, Slot(1)));
    assert_eq!(votes_held(&stage), [(9, 11, second)]);
    let ballot = ballot(3, 2);
    stage.deliver_message(2, Message::Phase1a { ballot, from: Slot(1) });
    stage.0.run_ms(1);
    let heard = stage.deliver_message(2, Message::Phase1a { ballot, from: Slot(1) });
    let promise = heard.frames().into_iter().find_map(|frame| match frame {
        Frame::Protocol { message: Message::Phase1b(promise), .. } => Some(promise),
        _ => None,
    });
    let promise = promise.expect("a promise that is durable is repeated at once");
    assert_eq!(promise.floor, decided_to);
    let told: Vec<SlotRange> = promise.extents.iter().map(|extent| extent.range).collect();
    assert_eq!(told, [SlotRange::new(Slot(9), Slot(11))]);
}

/// Features G5: votes for slots never proposed or decided long ago, and decisions of distant slots,
/// decide nothing. A vote for another value raises an alarm ([count-1]).
#[test]
fn reports_of_far_and_decided_slots_decide_nothing() {
    let mut stage = Stage::new();
    stage.elected();
    let first = stage.0.write(ONE, b"first");
    stage.healthy_until(|stage| stage.ended(first).is_some());
    let (at, leads) = (stage.decided_to(), ballot(1, 1));
    let second = stage.0.write(ONE, b"second");
    stage.0.run_ms(1);
    let next = stage.leading().unwrap().tally.next();
    assert_eq!(next, at.next(), "one proposal is undecided");
    let check = stage.0.replica(ONE).node().newest_run().check;
    let alarms = |stage: &Stage| stage.0.replica(ONE).counters().alarms;
    let vote = |from, to| Phase2b { ballot: leads, from, volatile_to: to, durable_to: to, check };
    for late in [vote(Slot(1), at), vote(Slot(0), Slot(1)), vote(at, at), vote(next, at)] {
        stage.deliver_message(2, Message::Phase2b(late));
        assert_eq!((stage.decided_to(), alarms(&stage)), (at, 0), "{late:?}");
    }
    for (count, to) in (1..).zip([next.next(), Slot(1 << 40), Slot(u64::MAX)]) {
        stage.deliver_message(2, Message::Phase2b(vote(at, to)));
        assert_eq!((stage.decided_to(), alarms(&stage)), (at, count), "{to}");
    }
    for slot in [1, next.0, 1 << 40, u64::MAX - 2].map(Slot) {
        let range = SlotRange::one(slot);
        let value = Value::AllocateNode { nonce: 7 };
        stage.deliver_message(2, Message::Learn { range, value });
        assert_eq!(stage.decided_to(), at, "{range}");
    }
    assert_eq!(stage.leads_in(), Some(leads));
    stage.healthy_until(|stage| stage.ended(second).is_some());
    assert_eq!(stage.ended(second).cloned(), Some(Outcome::Written(b"2".to_vec())));
}

/// [value-3] A leader proposes after an inherited value whose bytes it lacks, so its votes wait.
/// Until they arrive, the bytes of its proposals are retained, whatever else arrives.
#[test]
fn bytes_of_proposals_stay_until_the_leader_votes_for_them() {
    let mut stage = Stage::new();
    let inherited = batch(3, 1, b"inherited");
    let at = stage.inherits(inherited.0);
    let second = stage.0.write(ONE, b"second");
    for counter in 1..=3 {
        let (value, bytes) = batch(2, counter, b"forwarded");
        let bytes = &bytes;
        stage.deliver_frame(2, Frame::Forward { value, bytes });
    }
    let proposed = stage.leading().unwrap().tally.next();
    assert!(proposed >= at.plus(5), "{proposed:?}");
    stage.deliver_frame(3, Frame::FetchReply { value: inherited.0, bytes: Some(&inherited.1) });
    stage.healthy_until(|stage| stage.decided_to() >= proposed);
    assert_eq!(stage.0.replica(ONE).error(), None);
    stage.healthy_until(|stage| stage.ended(second).is_some());
}

/// [value-4] A leader fetches the bytes of the first undecided slot while its later proposals use
/// up the memory. The bytes are accepted nevertheless: only they can free that memory.
#[test]
fn bytes_of_the_first_undecided_slot_are_taken_when_memory_is_full() {
    let mut options = Cluster::<Count>::options(3, Class::Durable);
    options.command_bytes_max = 1 << 10;
    options.limits.payload_bytes = 1;
    let mut stage = Stage::with_options(options);
    let inherited = batch(3, 1, &[b'i'; 1000]);
    let at = stage.inherits(inherited.0);
    let second = stage.0.write(ONE, &[b's'; 1000]);
    for counter in 1..=8 {
        let (value, bytes) = batch(2, counter, &[b'f'; 500]);
        let bytes = &bytes;
        stage.deliver_frame(2, Frame::Forward { value, bytes });
    }
    let behind = |stage: &Stage| stage.leading().unwrap().tally.next().0 - at.0 - 1;
    assert!((1..9).contains(&behind(&stage)), "they do not all fit");
    let (value, bytes) = (inherited.0, Some(&inherited.1[..]));
    stage.deliver_frame(3, Frame::FetchReply { value, bytes });
    stage.healthy_until(|stage| stage.ended(second).is_some());
    assert_eq!(stage.0.replica(ONE).error(), None);
}

/// [volatile-1] After a log has lost its end, slots that the service has applied need another vote.
/// Their proposals wait after a gap, and retain their bytes until it closes.
#[test]
fn proposals_in_slots_that_the_service_has_applied_keep_their_bytes() {
    KEPT_TO.set(Slot(50));
    let mut stage = Stage::with_options(Cluster::<Count>::options(3, Class::Volatile));
    assert_eq!(stage.decided_to(), Slot::FIRST);
    let (mut proposals, mut prefix) = (Vec::new(), 0);
    for slot in 1..=4 {
        let (value, bytes) = batch(2, slot, b"proposed");
        let range = SlotRange::one(Slot(slot));
        let Message::Phase2a(asked) = proposal(ballot(1, 2), range, value, Slot::FIRST) else {
            unreachable!("it is one")
        };
        // The leader's own vote does not count yet, so nothing is decided here.
        let message = Message::Phase2a(Phase2a {
            prefix,
            own_volatile_to: Slot::FIRST,
            own_durable_to: Slot::FIRST,
            with_bytes: true,
            ..asked
        });
        prefix = prefix.wrapping_add(range_check(range, &value));
        proposals.push((message, bytes));
    }
    proposals.rotate_left(1);
    for (message, bytes) in proposals {
        let bytes = Some(&bytes[..]);
        stage.deliver_frame(2, Frame::Protocol { message, bytes });
    }
    stage.0.run_ms(10);
    assert_eq!(stage.0.replica(ONE).error(), None);
    assert_eq!(votes_held(&stage).last().map(|vote| vote.1), Some(5));
    assert_eq!(stage.decided_to(), Slot::FIRST);
}

/// Returns a batch of an unknown origin: it is decided, and then skipped.
fn batch(origin: u32, counter: u64, command: &[u8]) -> (Value, Vec<u8>) {
    batch_of(77, origin, counter, command)
}

/// Returns a batch of the origin's session, which was registered in slot `session`.
fn batch_of(session: u64, origin: u32, counter: u64, command: &[u8]) -> (Value, Vec<u8>) {
    let length = u32::try_from(command.len()).unwrap();
    let mut bytes = vec![1];
    bytes.extend(session.to_le_bytes());
    bytes.extend(counter.to_le_bytes());
    bytes.push(0);
    bytes.extend(length.to_le_bytes());
    bytes.extend(command);
    let name = BatchName {
        origin: NodeId(origin),
        boot: 1,
        counter,
        length: u32::try_from(bytes.len()).unwrap(),
        checksum: quorate_wire::checksum(&bytes),
    };
    (Value::Batch(name), bytes)
}

/// [disk-3] Until a decision is written, the log's last record on a slot may be a vote for another
/// value, which is not applied when it is read from the log.
#[test]
fn last_record_on_a_slot_is_not_taken_for_the_decision() {
    let mut stage = Stage::new();
    let learn = |stage: &mut Stage, slot: u64, (value, bytes): (Value, Option<&[u8]>)| {
        let range = SlotRange::one(Slot(slot));
        let message = Message::Learn { range, value };
        stage.deliver_frame(3, Frame::Protocol { message, bytes });
    };
    let session = Value::RegisterSession { origin: NodeId(2), boot: 1, number: 1 << 63 | 1 };
    learn(&mut stage, 1, (session, None));
    stage.0.run_ms(10);
    assert_eq!(stage.0.replica(ONE).applied_to(), Slot(2));
    // A vote for one value is on disk.
    let voted = batch_of(1, 2, 1, b"voted for");
    let Message::Phase2a(asked) = proposal(ballot(1, 2), SlotRange::one(Slot(2)), voted.0, Slot(2))
    else {
        unreachable!("it is one")
    };
    let message = Message::Phase2a(Phase2a { with_bytes: true, ..asked });
    let bytes = Some(&voted.1[..]);
    stage.deliver_frame(2, Frame::Protocol { message, bytes });
    stage.0.run_ms(10);
    assert_eq!(votes_held(&stage), [(2, 3, ballot(1, 2))]);
    // Another value is decided while the service is stuck. Its bytes are dropped at once.
    TAKES.set(false);
    let decided = batch_of(1, 2, 1, b"decided");
    learn(&mut stage, 2, (decided.0, Some(&decided.1)));
    let next = batch_of(1, 2, 2, b"next");
    learn(&mut stage, 3, (next.0, Some(&next.1)));
    assert_eq!(stage.decided_to(), Slot(4));
    TAKES.set(true);
    let words = |stage: &Stage| stage.0.replica(ONE).service().1.clone();
    let mut heard = RecordedFrames::default();
    for _ in 0..10 {
        stage.0.poll_over(ONE, &mut heard);
        assert_eq!(words(&stage), [""; 0]);
    }
    stage.0.run_ms(200);
    assert_eq!(words(&stage), ["decided", "next"]);
}

/// [read-4] A node may have been suspended between the start of its turn and the arrival of the
/// request: it grants the lease from the arrival on.
#[test]
fn lease_is_granted_from_receipt_not_from_the_beginning_of_the_turn() {
    let mut stage = Stage::with_leases(Some(LeaseRules {
        duration_us: 90_000,
        drift_ppm: 10_000,
        promises: false,
    }));
    let lease = Lease { requested_at: Time(1), duration_us: 90_000 };
    stage.0.set_stall(ONE, 50);
    let heard = stage.deliver_message(2, beat(lease));
    let granted = heard.frames().into_iter().any(|frame| {
        matches!(frame, Frame::Protocol { message: Message::HeartbeatReply(reply), .. }
            if reply.lease == lease)
    });
    assert!(granted);
    let asked = Message::Phase1a { ballot: ballot(6, 3), from: Slot(1) };
    let promised = |stage: &Stage| stage.0.replica(ONE).node().acceptor().promised();
    stage.0.run_ms(100);
    stage.deliver_message(3, asked.clone());
    assert!(promised(&stage) < ballot(6, 3), "140 ms are not over");
    stage.0.run_ms(50);
    stage.deliver_message(3, asked);
    assert_eq!(promised(&stage), ballot(6, 3));
}

/// Returns a heartbeat of node 2 as the leader.
fn beat(lease: Lease) -> Message {
    Message::Heartbeat(Heartbeat {
        ballot: ballot(5, 2),
        decided_to: Slot(1),
        sent_to: Slot(1),
        read_round: 0,
        held_by_all: Slot(0),
        held_by_quorum: Slot(0),
        lease,
        auxiliary: false,
        clock_ms: 0,
        late_us: 0,
        full_disk: None,
    })
}

/// [read-6] A heartbeat is not evidence. Its sender may have been replaced before it was sent; and
/// even if not, other nodes may have acknowledged commands that it does not mention.
#[test]
fn heartbeats_are_no_evidence_of_freshness() {
    let mut stage = Stage::new();
    stage.deliver_message(2, beat(Lease::default()));
    let tag = stage.0.read_bounded(ONE, 200, b"");
    for _ in 0..30 {
        stage.0.run_ms(20);
        stage.deliver_message(2, beat(Lease::default()));
    }
    let refused = Outcome::Failed(Failure::Stale);
    assert_eq!(stage.0.outcome(ONE, tag), Some(&refused));
}
