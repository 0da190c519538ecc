//! Tests of one inbound channel against the messages that were sent: in any order, with losses and
//! within bounds.

use std::ops::Range;

use quorate_core::dice::Dice;
use quorate_core::time::Time;

use super::{ChannelEvent, Delivery, InboundChannel};
use crate::{limits::Limits, receive::MemoryQuota, spans::NumberSet};

/// A channel with its quota, and the events that it produced.
struct Channel {
    inbound: InboundChannel,
    quota: MemoryQuota,
    happened: Vec<ChannelEvent>,
    now: Time,
}

impl Channel {
    fn new(delivery: Delivery, limits: &Limits) -> Self {
        Self {
            inbound: InboundChannel::new(1, delivery, limits, Dice::new(1)),
            quota: MemoryQuota::new(limits),
            happened: Vec::new(),
            now: Time(0),
        }
    }

    fn receive(&mut self, number: u64, index: u16, count: u16, part: &[u8]) {
        let place = (number, index, count);
        let Self { inbound, quota, happened, now } = self;
        inbound.receive_part(place, part, *now, quota, happened);
        inbound.check(quota);
    }

    /// Returns all requests, as ranges, until no more are due.
    fn wait_for_all(&mut self) -> Vec<(Range<u64>, u32)> {
        let mut asks = Vec::new();
        while let Some(due) = self.inbound.next_due() {
            self.now = due;
            let Self { inbound, quota, happened, now } = self;
            asks.extend(inbound.poll(*now, quota, happened));
            inbound.check(quota);
        }
        asks
    }

    fn take_events(&mut self) -> Vec<ChannelEvent> {
        std::mem::take(&mut self.happened)
    }
}

fn limits() -> Limits {
    Limits::for_mtu(1500)
}

fn message(numbers: Range<u64>, bytes: &[u8]) -> ChannelEvent {
    let bytes = bytes.to_vec();
    ChannelEvent::Message { numbers, bytes }
}

#[test]
fn in_order_delivery_waits_and_as_completed_does_not() {
    for delivery in [Delivery::InOrder, Delivery::AsCompleted] {
        let mut channel = Channel::new(delivery, &limits());
        channel.receive(2, 0, 1, b"b");
        channel.receive(4, 1, 2, b"d");
        channel.receive(3, 0, 2, b"c");
        let late = vec![message(2..3, b"b"), message(3..5, b"cd")];
        let at_once = channel.take_events();
        channel.receive(1, 0, 1, b"a");
        let rest = channel.take_events();
        let first = vec![message(1..2, b"a")];
        match delivery {
            Delivery::InOrder => {
                assert_eq!((at_once, rest), (vec![], [first, late].concat()));
            }
            Delivery::AsCompleted => assert_eq!((at_once, rest), (late, first)),
        }
        assert_eq!((channel.inbound.finished_to(), channel.quota.bytes()), (5, 0));
        // Any repetition is too late.
        channel.receive(3, 0, 2, b"c");
        assert!(channel.take_events().is_empty());
    }
}

/// [pkt-4] [told-2] If a part of a message is given up, the whole message is, by its numbers, and
/// none of its parts is retained.
#[test]
fn given_up_part_gives_up_the_whole_message() {
    let mut channel = Channel::new(Delivery::InOrder, &limits());
    channel.receive(1, 0, 3, b"aa");
    channel.receive(3, 2, 3, b"a");
    channel.receive(4, 0, 1, b"b");
    assert_eq!(channel.quota.partials(), 1);
    let asks = channel.wait_for_all();
    assert_eq!(asks.len(), 5);
    assert!(asks.iter().zip(0..).all(|((range, tries), n)| (range, *tries) == (&(2..3), n)));
    assert_eq!(channel.take_events(), [ChannelEvent::GivenUp(1..4), message(4..5, b"b")]);
    assert_eq!((channel.quota.partials(), channel.quota.bytes()), (0, 0));
    // Parts that arrive now are ignored.
    channel.receive(2, 1, 3, b"aa");
    assert!(channel.take_events().is_empty());
    assert_eq!(channel.inbound.requested_total(), 1);
}

/// A part after the end of a given-up range belongs to that range, and so does one from before the
/// handshake.
#[test]
fn later_parts_of_a_given_up_message_are_given_up() {
    let mut channel = Channel::new(Delivery::AsCompleted, &limits());
    channel.receive(2, 1, 4, b"aa");
    channel.wait_for_all();
    assert_eq!(channel.take_events(), [ChannelEvent::GivenUp(1..3)]);
    channel.receive(3, 2, 4, b"aa");
    channel.receive(4, 3, 4, b"aa");
    let seen = channel.take_events();
    assert_eq!(seen, [ChannelEvent::GivenUp(3..4), ChannelEvent::GivenUp(4..5)]);
    channel.receive(5, 0, 1, b"b");
    assert_eq!(channel.take_events(), [message(5..6, b"b")]);
    let mut channel = Channel::new(Delivery::InOrder, &limits());
    channel.receive(1, 0, 1, b"");
    channel.receive(2, 7, 9, b"x");
    assert_eq!(channel.take_events(), [message(1..2, b""), ChannelEvent::GivenUp(2..3)]);
}

/// [told-2] A tail reveals that the last packets are missing, since no later packet does.
#[test]
fn tail_reveals_that_the_last_packets_are_missing() {
    let mut channel = Channel::new(Delivery::InOrder, &limits());
    let Channel { inbound, quota, happened, .. } = &mut channel;
    inbound.on_tail(4, Time(0), quota, happened);
    inbound.on_tail(2, Time(0), quota, happened);
    assert_eq!(channel.inbound.missing(&(0..9)), vec![1..4; 1]);
    channel.receive(2, 0, 1, b"b");
    let asks = channel.wait_for_all();
    assert_eq!(asks[..2], [(1..2, 0), (3..4, 0)]);
}

/// [pkt-7] However many other nodes need a packet, the owner is asked once out of turn. A node that
/// replied *gone* is not waited for, and a repeated reply changes nothing.
#[test]
fn requests_of_other_nodes_cause_one_early_request() {
    let mut channel = Channel::new(Delivery::InOrder, &limits());
    channel.receive(2, 0, 1, b"b");
    let mut asked_by_others = |now| {
        let Channel { inbound, quota, happened, .. } = &mut channel;
        inbound.request_from_owner(&(1..2), Time(now), quota, happened);
        inbound.poll(Time(now), quota, happened)
    };
    assert_eq!(asked_by_others(10), [(1..2, 1)]);
    assert_eq!(asked_by_others(11), []);
    assert_eq!(asked_by_others(12), []);

    let mut channel = Channel::new(Delivery::InOrder, &limits());
    channel.receive(2, 0, 1, b"b");
    let mut gone_elsewhere = |now| {
        let Channel { inbound, quota, happened, .. } = &mut channel;
        inbound.on_gone(&(1..2), false, Time(now), quota, happened);
        inbound.poll(Time(now), quota, happened)
    };
    // Within the grace period no node was asked.
    assert_eq!(gone_elsewhere(10), []);
    assert_eq!(gone_elsewhere(400), [(1..2, 0)]);
    assert_eq!(gone_elsewhere(401), [(1..2, 1)]);
    assert_eq!(gone_elsewhere(402), []);
    assert!(channel.take_events().is_empty());
}

/// [pkt-4] Both the 256 incomplete messages and their bytes are bounded. The newest message is
/// given up first.
#[test]
fn a_sender_fills_its_quota_and_no_more() {
    let mut channel = Channel::new(Delivery::AsCompleted, &limits());
    for at in 0..300 {
        channel.receive(1 + 2 * at, 0, 2, b"a");
        assert!(channel.quota.partials() <= 256);
    }
    assert_eq!(channel.quota.partials(), 256);
    assert!(
        channel
            .take_events()
            .iter()
            .all(|one| matches!(one, ChannelEvent::GivenUp(range) if range.start > 512))
    );
    // The oldest ones are still there.
    channel.receive(2, 1, 2, b"b");
    assert_eq!(channel.take_events(), [message(1..3, b"ab")]);

    let small = Limits { partial_bytes_max: 1000, ..limits() };
    let mut channel = Channel::new(Delivery::InOrder, &small);
    channel.receive(11, 0, 1, &[1; 500]);
    channel.receive(12, 0, 1, &[2; 500]);
    // Two do not fit with their overhead, so the later one is given up.
    assert_eq!(channel.take_events(), [ChannelEvent::GivenUp(12..13)]);
    // An older message evicts a newer one.
    channel.receive(2, 1, 3, &[3; 300]);
    assert_eq!(channel.take_events(), [ChannelEvent::GivenUp(11..12)]);
    // A message that can never fit is given up by its numbers.
    channel.receive(4, 0, 9, &[3; 300]);
    assert_eq!(channel.take_events(), [ChannelEvent::GivenUp(4..5)]);
    channel.inbound.close(&mut channel.quota);
    assert_eq!((channel.quota.partials(), channel.quota.bytes()), (0, 0));
}

/// A jump in numbers costs a bounded amount of work, and the skipped numbers are reported.
#[test]
fn jump_in_numbers_costs_bounded_work() {
    let mut channel = Channel::new(Delivery::InOrder, &limits());
    channel.receive(3, 0, 1, b"c");
    let far = u64::MAX - 1;
    channel.receive(far, 0, 1, b"z");
    let window = far + 1 - channel.inbound.finished_to();
    assert_eq!(window, 1 << 16);
    let floor = channel.inbound.finished_to();
    let given_up =
        [ChannelEvent::GivenUp(1..3), message(3..4, b"c"), ChannelEvent::GivenUp(4..floor)];
    assert_eq!(channel.take_events(), given_up);
}

/// The last number that a tail can contain costs a bounded amount of work.
#[test]
fn a_tail_at_the_end_of_numbers_is_bounded() {
    let mut channel = Channel::new(Delivery::InOrder, &limits());
    let Channel { inbound, quota, happened, .. } = &mut channel;
    inbound.on_tail(u64::MAX, Time(0), quota, happened);
    inbound.check(quota);
    assert_eq!(channel.take_events(), [ChannelEvent::GivenUp(1..u64::MAX - 65_536)]);
}

/// Parts that contradict one another, from a faulty sender or on a segment without keys, are given
/// up.
#[test]
fn contradictory_parts_are_given_up() {
    let mut channel = Channel::new(Delivery::AsCompleted, &limits());
    channel.receive(1, 0, 3, b"aa");
    channel.receive(2, 1, 4, b"aa");
    assert_eq!(channel.take_events(), [ChannelEvent::GivenUp(1..3)]);
    channel.receive(4, 0, 3, b"aa");
    channel.receive(5, 1, 3, b"aaa");
    channel.receive(7, 0, 1, b"q");
    assert_eq!(channel.take_events(), [ChannelEvent::GivenUp(4..6), message(7..8, b"q")]);
    assert_eq!(channel.inbound.contradicting_parts(), 2);
}

/// Random messages arrive in random order, some parts never. Lost messages are reported by their
/// numbers, and all others delivered once, bit for bit.
#[test]
fn every_message_is_delivered_once_or_given_up() {
    for seed in 0..300 {
        let mut dice = Dice::new(seed);
        let delivery = dice.pick(&[Delivery::InOrder, Delivery::AsCompleted]);
        let small = Limits {
            partials_max: dice.pick(&[2, 256]),
            partial_bytes_max: dice.pick(&[300, 1 << 20]),
            gaps_max: dice.pick(&[4, 1024]),
            ..limits()
        };
        let mut channel = Channel::new(delivery, &small);
        let (mut sent, mut parts, mut next) = (Vec::new(), Vec::new(), 1);
        for _ in 0..60 {
            let count = u16::try_from(dice.pick(&[1, 1, 2, 5])).unwrap();
            let bytes: Vec<u8> = (0..count).flat_map(|_| dice.word().to_le_bytes()).collect();
            for (part, index) in bytes.chunks(8).zip(0..count) {
                parts.push((next + u64::from(index), index, count, part.to_vec()));
            }
            sent.push((next..next + u64::from(count), bytes));
            next += u64::from(count);
        }
        // Parts arrive close to one another, some twice, some never.
        for at in 0..parts.len() {
            let with = (at + dice.index(6)).min(parts.len() - 1);
            parts.swap(at, with);
        }
        for (number, index, count, part) in parts {
            let times = dice.pick(&[0, 1, 1, 1, 1, 1, 2]);
            for _ in 0..times {
                channel.receive(number, index, count, &part);
            }
        }
        let Channel { inbound, quota, happened, now } = &mut channel;
        inbound.on_tail(next, *now, quota, happened);
        channel.wait_for_all();
        let (mut done, mut last) = (NumberSet::default(), 0);
        for one in channel.take_events() {
            let numbers = match one {
                ChannelEvent::GivenUp(numbers) => numbers,
                ChannelEvent::Message { numbers, bytes } => {
                    let is = sent.iter().find(|(of, _)| *of == numbers);
                    assert_eq!(is.map(|(_, bytes)| bytes), Some(&bytes), "seed {seed}");
                    if delivery == Delivery::InOrder {
                        assert!(numbers.start > last, "seed {seed}: {numbers:?} behind {last}");
                        last = numbers.start;
                    }
                    numbers
                }
            };
            assert!(!done.intersects(numbers.clone()), "seed {seed}: {numbers:?} twice");
            done.add(numbers);
        }
        assert_eq!(done.iter().collect::<Vec<_>>(), vec![1..next; 1], "seed {seed}");
        assert_eq!((channel.quota.partials(), channel.quota.bytes()), (0, 0));
    }
}
