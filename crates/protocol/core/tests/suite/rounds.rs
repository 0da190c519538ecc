//! [ballot-2] A node never uses a ballot in two incarnations, even if its log lost the record of
//! it.

use quorate_core::{
    ballot::{Ballot, Era},
    configuration::{Change, Configuration, Voter},
    effect::{Effect, Effects},
    input::Input,
    laying::Route,
    message::{Extent, Message},
    node::{Node, Options, Recovered},
    node_id::{Incarnation, Member, NodeId},
    quorum::QuorumRule,
    record::{Class, Record},
    slot::{Slot, SlotRange},
    time::Time,
    value::Value,
};

/// Returns a node that is alone in its group, has forgotten everything, and waits `alone_us` for
/// other nodes.
fn alone(incarnation: u32, alone_us: u64) -> Node {
    let member = Member { node: NodeId(1), incarnation: Incarnation(incarnation) };
    let configuration = Configuration::majority_of([member], Class::Durable).expect("one member");
    opened(member, alone_us, Recovered::for_new_node(configuration))
}

/// Returns a node with this log.
fn opened(member: Member, alone_us: u64, log: Recovered) -> Node {
    let options = Options {
        member,
        heartbeat_ms: 20,
        election_min_ms: 100,
        election_max_ms: 200,
        inflight_max: 16,
        window_slots: 1 << 20,
        leases: None,
        earlier_lease_us: 0,
        lead_alone_wait_us: alone_us,
        thrifty: false,
        route: Route::Star,
        seed: 1,
    };
    Node::new(options, log)
}

/// Returns the round of the node's first ballot.
fn first_round(incarnation: u32) -> Option<u32> {
    round_of(&mut alone(incarnation, 0), Time(0), Input::Tick)
}

/// Returns the round that a node starts in a step; `None` if it starts none.
fn round_of(node: &mut Node, now: Time, input: Input) -> Option<u32> {
    let mut effects = Effects::default();
    node.step(now, input, &mut effects);
    effects.drain().find_map(|effect| match effect {
        Effect::Persist { record: Record::Round { ballot }, .. } => Some(ballot.round),
        _ => None,
    })
}

#[test]
fn incarnations_do_not_share_rounds() {
    let rounds: Vec<u32> = (0..4).filter_map(first_round).collect();
    assert_eq!(rounds[0], 1);
    assert!(rounds.windows(2).all(|pair| pair[1] - pair[0] >= 1 << 20), "{rounds:?}");
}

/// [lie-6] A quorum of one that starts from an existing folder waits for nodes that may know more,
/// and does not lead while one of them has shown that it lacks a slot.
#[test]
fn a_node_alone_waits_for_who_may_know_more() {
    let wait = Time(2_000_000);
    let mut node = alone(0, wait.0);
    for now in [Time(0), Time(300_000), Time(wait.0 - 1)] {
        assert_eq!(round_of(&mut node, now, Input::Tick), None);
    }
    assert_eq!(round_of(&mut node, wait, Input::Tick), Some(1));

    // The node's own lateness neither shortens nor extends the wait.
    let mut node = alone(0, wait.0);
    for ms in 0..100 {
        let now = Time(0).plus_ms(ms);
        assert_eq!(round_of(&mut node, now, Input::Tick), None);
        assert_eq!(round_of(&mut node, now, Input::LateTurn { delay_us: 100_000 }), None);
    }
    assert_eq!(round_of(&mut node, wait, Input::Tick), Some(1));

    let mut node = alone(0, wait.0);
    let other = Member::first(2);
    let ballot = Ballot { era: Era(1), round: 1, node: other.node };
    let message = Message::PreVote { ballot };
    let inputs = [
        Input::Tick,
        Input::Connected(other),
        Input::Message { from: other, message, bytes_held: false },
    ];
    for input in inputs {
        assert_eq!(round_of(&mut node, Time(0), input), None);
    }
    for now in [wait, wait.plus_ms(1_000), wait.plus_ms(60_000)] {
        assert_eq!(round_of(&mut node, now, Input::Tick), None);
    }
}

/// [lie-6] Connected nodes may be silent, because a group without a leader is. So a quorum of one
/// asks them for decided slots before it leads, and again as long as their answers contain more.
#[test]
fn a_node_alone_asks_who_connected() {
    let other = Member::first(2);
    let mut node = alone(0, 2_000_000);
    let mut step = |us: u64, input: Input| {
        let mut effects = Effects::default();
        node.step(Time(us), input, &mut effects);
        let mut campaigns = false;
        let mut asked = None;
        for effect in effects.drain() {
            match effect {
                Effect::Persist { record: Record::Round { .. }, .. } => campaigns = true,
                Effect::Send { message: Message::CatchupRequest { range }, .. } => {
                    asked = Some(range.from);
                }
                _ => {}
            }
        }
        (campaigns, asked)
    };
    let value = Value::NoOp;
    let learn = |slot| Message::Learn { range: SlotRange::one(Slot(slot)), value };
    let learned = |slot| Input::Message { from: other, message: learn(slot), bytes_held: false };
    assert_eq!(step(0, Input::Tick), (false, None));
    assert_eq!(step(0, Input::Connected(other)), (false, None));
    assert_eq!(step(2_000_000, Input::Tick), (false, Some(Slot(1))));
    assert_eq!(step(2_000_001, learned(1)), (false, None));
    assert_eq!(step(2_079_999, Input::Tick), (false, None));
    assert_eq!(step(2_080_000, Input::Tick), (false, Some(Slot(2))));
    assert_eq!(step(2_159_999, Input::Tick), (false, None));
    assert_eq!(step(2_160_000, Input::Tick), (true, None));
}

/// [lie-6] A node that is a phase-1 quorum by itself takes a ballot of a later era for a sign that
/// its log was set back, unless its votes from the first undecided slot on, without a hole, contain
/// the change that began that era.
#[test]
fn a_node_alone_leads_with_the_votes_that_began_a_later_era() {
    let change = |era| Value::Reconfigure { era: Era(era), change: Change::Multiply(2) };
    let votes = [
        (&[(1, change(0))][..], 1, true),
        (&[(1, Value::NoOp), (2, change(0))], 1, true),
        (&[(1, change(0)), (2, change(1))], 2, true),
        (&[], 1, false),
        (&[(1, Value::NoOp)], 1, false),
        (&[(1, Value::NoOp), (2, Value::NoOp)], 1, false),
        (&[(2, change(0))], 1, false),
        (&[(1, Value::NoOp), (3, change(0))], 1, false),
        (&[(1, change(0))], 2, false),
        (&[(1, change(0)), (2, change(0))], 2, false),
        (&[(1, change(1))], 1, false),
    ];
    for (voted, shown, leads) in votes {
        let [own, other] = [1, 2].map(Member::first);
        let voter = |member, weight| Voter { member, weight, auxiliary: false };
        let voters = vec![voter(own, 3), voter(other, 1)];
        let configuration = Configuration::new(voters, QuorumRule::Majority, Class::Durable);
        let mut log = Recovered::for_new_node(configuration.expect("two members"));
        let ballot = Ballot { era: Era(0), round: 1, node: other.node };
        log.hard_state.promised = ballot;
        log.hard_state.voted_to = voted.last().map_or(Slot::FIRST, |(slot, _)| Slot(slot + 1));
        let vote = |(slot, value): &(u64, Value)| {
            let range = SlotRange::one(Slot(*slot));
            Extent { range, ballot, value: *value, class: Class::Durable }
        };
        log.votes = voted.iter().map(vote).collect();
        let mut node = opened(own, 0, log);
        let message = Message::PreVote { ballot: Ballot { era: Era(shown), ..ballot } };
        let input = Input::Message { from: other, message, bytes_held: false };
        assert_eq!(round_of(&mut node, Time(0), input), None);
        let round = round_of(&mut node, Time(0).plus_ms(60_000), Input::Tick);
        assert_eq!(round.is_some(), leads, "{voted:?} shown {shown}");
    }
}

/// [ballot-1] A node whose rounds are used up stops campaigning instead of starting over.
#[test]
fn a_node_out_of_rounds_does_not_campaign() {
    assert!(first_round((1 << 12) - 1).is_some());
    assert_eq!(first_round(1 << 12), None);
}
