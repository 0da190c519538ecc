//! Properties that hold for any parts that a sender may send: each number once, within the quota.

use crate::driver::Seed;
use quorate_core::dice::Dice;
use quorate_core::time::Time;
use quorate_packets::{
    limits::Limits,
    receive::{ChannelEvent, Delivery, InboundChannel, MemoryQuota},
    spans::NumberSet,
};

/// Length of one step of an input: kind, number, index, count, length, and time that passes.
const STEP_BYTES: usize = 8;

/// Checks two channels of one sender that share a quota. Each step is a part, a tail, or elapsed
/// time.
pub(crate) fn check(bytes: &[u8]) {
    let limits =
        Limits { partials_max: 4, partial_bytes_max: 4000, gaps_max: 8, ..Limits::for_mtu(1500) };
    let mut quota = MemoryQuota::new(&limits);
    let channel = |delivery, seed| InboundChannel::new(5, delivery, &limits, Dice::new(seed));
    let mut channels = [
        (channel(Delivery::InOrder, 1), NumberSet::default()),
        (channel(Delivery::AsCompleted, 2), NumberSet::default()),
    ];
    let mut now = Time(0);
    for step in bytes.chunks_exact(STEP_BYTES) {
        let [what, low, high, index, count, length, scale, wait] = *step else {
            return;
        };
        now = now.plus_us(u64::from(wait) * 8);
        let (inbound, done) = &mut channels[usize::from(what & 1)];
        // Close to known numbers, or far away.
        let number = u64::from(u16::from_le_bytes([low, high])) << (scale & 15).saturating_sub(8);
        let number = inbound.finished_to().saturating_add(number).saturating_sub(8).max(1);
        let mut happened = Vec::new();
        match what >> 1 & 3 {
            0 => inbound.on_tail(number, now, &mut quota, &mut happened),
            1 => drop(inbound.poll(now, &mut quota, &mut happened)),
            2 => {
                let range = number..number + u64::from(length);
                inbound.on_gone(&range, what & 8 != 0, now, &mut quota, &mut happened);
            }
            _ if index < count => {
                let part = vec![length; usize::from(length) * 8];
                let place = (number + u64::from(index), index.into(), count.into());
                inbound.receive_part(place, &part, now, &mut quota, &mut happened);
            }
            _ => {}
        }
        for one in happened {
            let numbers = match one {
                ChannelEvent::GivenUp(numbers) => numbers,
                ChannelEvent::Message { numbers, bytes } => {
                    assert!(!bytes.is_empty() || numbers.end - numbers.start == 1);
                    numbers
                }
            };
            assert!(!numbers.is_empty() && !done.intersects(numbers.clone()), "{numbers:?} twice");
            done.add(numbers);
        }
        assert!(inbound.finished_to() <= inbound.known_end());
        assert!(!done.has(inbound.finished_to()), "the floor is below what is done");
        assert!(quota.partials() <= 4 && quota.bytes() <= 4000);
    }
    for (inbound, _) in channels {
        inbound.close(&mut quota);
    }
    assert_eq!((quota.partials(), quota.bytes()), (0, 0));
}

/// Returns random inputs that reach all code.
pub(crate) fn seeds() -> Vec<Seed> {
    let seed = |number: u64| {
        let mut dice = Dice::new(number);
        let mut bytes = Vec::new();
        for _ in 0..40 {
            let count = dice.pick(&[1, 1, 2, 3, 7]);
            let index = dice.below(count) as u8;
            let what = dice.pick(&[6, 6, 6, 7, 7, 7, 0, 2, 3, 4, 12]);
            let scale = if dice.chance(1, 50) { 15 } else { 0 };
            let near = dice.below(24) as u8;
            let wait = dice.pick(&[0, 0, 1, 20, 255]);
            bytes.extend([
                what,
                near,
                0,
                index,
                count as u8,
                dice.pick(&[1, 4, 4, 90]),
                scale,
                wait,
            ]);
        }
        Seed { name: format!("{number:02}-steps"), bytes }
    };
    (0..8).map(seed).collect()
}
