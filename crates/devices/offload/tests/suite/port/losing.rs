//! Failing devices: one that lost its memory, lies, or does not answer is never a silent success.

use quorate_core::dice::Dice;
use quorate_core::{slot::Slot, time::Time, value::Value};
use quorate_offload::owner::{Event, LossReason, Owner, SlotValue};
use quorate_offload::{
    Descriptor, Header, PackedBallot, Reason, Type,
    port::{Device, DeviceShape, Drained, FrameOrigin, Program},
};

use crate::port::{
    device::{Bad, Trouble},
    frames::{CELLS, ROOM, write},
    seeds,
    world::{DEVICE_BOOT, World, ballot, batch, packed, settings, trouble},
};

/// [offload-9] Whenever power fails, the outcome is `Lost`, and the votes reported earlier are
/// complete.
#[test]
fn a_device_that_forgets_is_lost() {
    seeds(1_500, |seed| {
        let mut world = World::new(seed, trouble(seed));
        world.arm(1, 1);
        world.start(1, 1, 9);
        for number in 0..6 {
            let (value, bytes) = batch(number);
            world.owner.submit(value, &bytes).unwrap();
        }
        let steps = world.device.dice.below(300);
        world.steps(steps);
        match seed % 3 {
            0 => world.owner.fence(),
            1 => world.owner.withdraw_coordinator(),
            _ => {}
        }
        let steps = world.device.dice.below(200);
        world.steps(steps);
        let votes = (1..=u64::from(CELLS)).filter_map(|slot| {
            world.device.acceptor.vote(slot).map(|(cell, _)| (slot, cell.value.counter))
        });
        let votes: Vec<_> = votes.collect();
        let given = world.device.coordinator.next();
        world.device.power_goes();
        let told_before = world.events.len();
        // A later request detects it, if nothing did earlier.
        world.steps(50);
        world.owner.fence();
        world.owner.withdraw_coordinator();
        let was_fenced = |event: &Event| matches!(event, Event::Fenced { .. });
        let (mut fences, mut ends) =
            (world.events.iter().take(told_before).filter(|event| was_fenced(event)).count(), 0);
        world.until(|world| {
            let lost = matches!(world.events.last(), Some(Event::Lost { .. }));
            lost.then_some(())
        });
        for event in world.events.drain(told_before..) {
            match event {
                Event::Fenced { votes: told, .. } => {
                    // Everything was read, and the boot checked, earlier.
                    let told: Vec<_> = told
                        .iter()
                        .map(|vote| {
                            let Value::Batch(name) = vote.value else { panic!() };
                            (vote.slot.0, name.counter)
                        })
                        .collect();
                    fences += usize::from(told == votes);
                    assert!(
                        told == votes || (told.is_empty() && fences > 0),
                        "seed {seed}: {told:?} {votes:?}"
                    );
                }
                Event::Withdrawn { next, .. } => {
                    ends += 1;
                    assert_eq!(next.0, given.max(1), "seed {seed}");
                }
                _ => {}
            }
        }
        assert!(fences <= 2 && ends <= 1, "seed {seed}");
        assert!(
            matches!(world.owner.loss(), Some(LossReason::Boot { .. })),
            "seed {seed}: {:?}",
            world.owner.loss()
        );
        // No event follows the loss.
        world.events.clear();
        world.owner.arm(ballot(9), 0, Slot(1));
        world.steps(100);
        assert!(world.events.is_empty() && world.owner.wake_at().is_none());
    });
}

/// A device with a different boot number, set by another owner, is lost.
#[test]
fn a_device_of_another_boot_is_lost() {
    let mut world = World::new(3, Trouble::default());
    world.device.acceptor.set_boot(8).unwrap();
    assert_eq!(world.lost(), LossReason::Boot { found: 8 });
}

/// [offload-17] An owner that a later process replaced gives up.
#[test]
fn an_owner_that_was_replaced_gives_up() {
    let mut world = World::new(3, Trouble::default());
    world.arm(1, 1);
    let mut newer = Owner::new(settings(2), world.device.shape());
    newer.fence();
    std::mem::swap(&mut newer, &mut world.owner);
    world.fenced();
    std::mem::swap(&mut newer, &mut world.owner);
    world.owner.fence();
    assert!(matches!(world.lost(), LossReason::OtherOwner | LossReason::Contradiction));
}

struct Dead(DeviceShape);

impl Device for Dead {
    fn shape(&self) -> DeviceShape {
        self.0
    }
    fn put_frame(&mut self, _: Program, _: &[u8]) {}
    fn send_to_devices(&mut self, _: &[u8]) {}
    fn take_frame(&mut self, _: &mut Vec<u8>) -> Option<(Program, FrameOrigin)> {
        None
    }
    fn begin_drain(&mut self) {}
    fn drain_progress(&mut self) -> Drained {
        Drained::Unknown
    }
    fn lost_frame_count(&self) -> u64 {
        0
    }
}

/// [offload-9] A device that does not answer is late, and lost once it has been late for the
/// configured time: here at once, or 320 ms later.
#[test]
fn a_device_that_does_not_answer_is_late_and_then_lost() {
    for (late_us, lost_ms) in [(0, 60..62), (320_000, 379..383)] {
        let mut device = Dead(Bad::new(1, Trouble::default()).shape());
        let mut owner = Owner::new(settings(1), device.shape());
        owner.set_late_timeout(late_us);
        let (mut events, mut last, mut was_late) = (Vec::new(), Time(0), false);
        while let Some(now) = owner.wake_at() {
            last = now.plus_us(1);
            was_late |= owner.is_late();
            owner.turn(last, &mut device, &mut events);
        }
        assert_eq!(events, [Event::Lost { why: LossReason::NoAnswer }]);
        assert!(lost_ms.contains(&(last.since_us(Time(0)) / 1_000)), "{last:?}");
        assert_eq!((was_late, owner.is_late()), (late_us > 0, false));
    }
}

/// [offload-9], [offload-8] A device that stops and continues has kept its memory. Its owner
/// reports that it is late, promises nothing meanwhile, and reads out all votes when it answers.
#[test]
fn a_device_that_is_late_is_read_out_when_it_answers() {
    seeds(200, |seed| {
        let mut world = World::new(seed, trouble(seed));
        world.arm(1, 1);
        world.start(1, 1, 9);
        world.started(1, 1);
        world.device.vote(packed(1), 3, 7);
        if seed % 2 == 0 {
            world.owner.fence();
            world.owner.withdraw_coordinator();
        }
        while !world.owner.is_late() {
            world.now = world.owner.wake_at().unwrap().max(world.now.plus_us(1));
            world.owner.turn(world.now, &mut world.device, &mut world.events);
        }
        assert_eq!(world.events, [], "seed {seed}");
        world.owner.fence();
        world.owner.withdraw_coordinator();
        let (of, votes) = world.fenced();
        let voted = votes.iter().map(|vote| vote.slot);
        assert_eq!(
            (of, voted.collect::<Vec<_>>()),
            (Some(ballot(1)), vec![Slot(3)]),
            "seed {seed}"
        );
        let is_end = |event: &Event| matches!(event, Event::Withdrawn { .. });
        world.until(|world| world.events.iter().any(is_end).then_some(()));
        assert!(!world.owner.is_late() && world.owner.loss().is_none(), "seed {seed}");
    });
}

/// A descriptor that is not a valid value.
const NONE: Descriptor = Descriptor { kind: 2, length: 8, crc: 1, ..Descriptor::NONE };

/// [offload-21] A vote for an invalid value is a no-op, both from the tap and after a fence.
#[test]
fn a_vote_for_what_is_no_value_is_one_for_a_no_op() {
    seeds(100, |seed| {
        let mut world = World::new(seed, trouble(seed));
        world.arm(1, 1);
        world.device.vote_for(packed(1), 2, NONE);
        let no_op = SlotValue { slot: Slot(2), value: Value::NoOp, bytes: Vec::new() };
        if trouble(seed).lost == 0 {
            let voted = Event::Voted(no_op.clone());
            world.until(|world| world.find(|event| (*event == voted).then_some(())));
            assert_eq!(world.owner.counts().invalid_votes, 1);
        }
        world.owner.fence();
        assert_eq!(world.fenced(), (Some(ballot(1)), vec![no_op]), "seed {seed}");
        assert_eq!(world.owner.loss(), None);
    });
}

/// [offload-21] A slot assigned to an invalid value is a no-op at the coordinator: assigned,
/// decided, followed by later slots, and withdrawn.
#[test]
fn a_slot_given_to_what_is_no_value_is_a_no_op() {
    seeds(200, |seed| {
        let mut world = World::new(seed, trouble(seed));
        world.arm(1, 1);
        world.start(1, 1, 9);
        world.started(1, 1);
        world.device.submit(NONE);
        let (value, bytes) = batch(7);
        world.owner.submit(value, &bytes).unwrap();
        let steps = if seed % 2 == 0 { 0 } else { 2_000 };
        world.steps(steps);
        world.owner.withdraw_coordinator();
        let mut given = Vec::new();
        world.until(|world| {
            world
                .find(|event| match event {
                    Event::Withdrawn { unreported_slots: given, .. } => Some(given.clone()),
                    _ => None,
                })
                .map(|rest| given = rest)
        });
        let told = world.events.iter().filter_map(|event| match event {
            Event::Assigned(held) => Some(held.clone()),
            _ => None,
        });
        let all: Vec<SlotValue> = told.chain(given).collect();
        assert_eq!(all[0].value, Value::NoOp, "seed {seed}");
        assert!(seed % 2 == 0 || all[1].value == value, "seed {seed}");
        assert_eq!(world.owner.loss(), None);
    });
}

/// [offload-21] Frames from the network cause no loss and answer no call, whatever address, boot
/// and number they contain. The device's votes and slots stay unchanged.
#[test]
fn nothing_from_the_network_is_the_devices_word() {
    seeds(200, |seed| {
        let mut world = World::new(seed, Trouble::default());
        let mut dice = Dice::new(seed ^ 0xbad);
        world.arm(1, 1);
        world.start(1, 1, 9);
        world.started(1, 1);
        for number in 0..6 {
            let (value, bytes) = batch(number);
            world.owner.submit(value, &bytes).unwrap();
            for _ in 0..20 {
                let mut header = Header::new_submit(0x0a0b_0c0d, NONE, 0);
                header.kind = dice.pick(&[
                    Type::Done,
                    Type::Refused,
                    Type::Cell,
                    Type::Phase1b,
                    Type::Phase2b,
                ]);
                header.slot = dice.below(12);
                header.ballot = dice.pick(&[packed(1), packed(2), PackedBallot::NONE]);
                header.voted = dice.pick(&[packed(1).0, 0, 5]);
                header.reason = dice.pick(&[0, 20, 21, 22]);
                header.flags = dice.pick(&[0, 8]);
                header.boot = dice.pick(&[DEVICE_BOOT, 0, 8]);
                header.value.origin = dice.pick(&[0, 31]);
                header.value.origin_boot = dice.pick(&[0, 1, 0x9e37_79b2]);
                header.value.counter = dice.below(40);
                let frame = write(&header, &[0; ROOM]);
                let program = dice.pick(&Program::ALL);
                world.device.say(program, FrameOrigin::Network, frame);
                world.steps(3);
            }
        }
        // This acceptor votes for another device's proposal in this ballot. No coordinator here
        // assigned that slot.
        world.device.vote_for(packed(1), 8, NONE);
        world.steps(300);
        world.owner.withdraw_coordinator();
        let (next, given) = world.until(|world| {
            world.find(|event| match event {
                Event::Withdrawn { next, unreported_slots: given, .. } => {
                    Some((*next, given.clone()))
                }
                _ => None,
            })
        });
        let told = world.events.iter().filter_map(|event| match event {
            Event::Assigned(held) => Some(held.clone()),
            _ => None,
        });
        let all: Vec<SlotValue> = told.chain(given).collect();
        // A value that was submitted again may have two slots.
        assert!(next >= Slot(7), "seed {seed}");
        let slots = all.iter().map(|held| held.slot.0);
        assert!(slots.eq(1..next.0), "seed {seed}");
        let given = |held: &SlotValue| matches!(held.value, Value::Batch(_));
        assert!(all.iter().all(given), "seed {seed}: {all:?}");
        assert_eq!(world.owner.loss(), None, "seed {seed}");
    });
}

/// A frame from the port is an answer or is ignored, at any time, whether or not it is valid and
/// has the right boot number.
#[test]
fn hostile_frames_do_not_panic() {
    seeds(400, |seed| {
        let mut world = World::new(seed, Trouble::default());
        let mut dice = Dice::new(seed ^ 0xbad);
        world.owner.arm(ballot(1), 0, Slot(1));
        world.start(1, 1, 9);
        for number in 0..300 {
            let (value, bytes) = batch(number);
            let _ = world.owner.submit(value, &bytes);
            match dice.below(60) {
                0 => world.owner.fence(),
                1 => world.owner.withdraw_coordinator(),
                2 => world.owner.stop(),
                3 => world.start(2, 5, u64::MAX),
                4 => world.owner.raise_floor(Slot(dice.word()), Slot(dice.word())),
                5 => world.owner.query_next_slot(number),
                6 => world.owner.arm(ballot(1), 0, Slot(u64::MAX - 2)),
                _ => {}
            }
            let small = |dice: &mut Dice| {
                let below = dice.below(20);
                dice.pick(&[below, u64::MAX, u64::MAX - below, dice.clone().word()])
            };
            let header = Header {
                kind: dice.pick(&Type::ALL),
                position: u8::try_from(dice.below(16)).unwrap(),
                group: 0x0a0b_0c0d,
                slot: small(&mut dice),
                ballot: dice.pick(&[packed(1), packed(2), PackedBallot::NONE]),
                voted: dice.pick(&[packed(1).0, 0, 5, u64::MAX]),
                reason: u8::try_from(dice.below(30)).unwrap(),
                flags: u16::try_from(dice.below(16)).unwrap(),
                boot: if dice.chance(1, 200) { dice.word() as u32 } else { DEVICE_BOOT },
                value: Descriptor {
                    kind: u8::try_from(dice.below(10)).unwrap(),
                    origin: dice.pick(&[0, 31, 5]),
                    origin_boot: dice.pick(&[0, 1, 0x9e37_79b2]),
                    counter: small(&mut dice),
                    length: dice.pick(&[0, 8, 32, 33, u16::MAX]),
                    crc: dice.pick(&[0, CELLS]),
                },
                sum: 0,
            };
            let mut frame = write(&header, &[0; ROOM]);
            if dice.chance(1, 4) {
                let at = dice.index(frame.len());
                frame[at] ^= 1 << dice.below(8);
                frame.truncate(dice.index(frame.len() + 1));
            }
            let came = dice.pick(&[
                FrameOrigin::Network,
                FrameOrigin::NetworkResponse,
                FrameOrigin::LocalResponse,
            ]);
            world.device.say(dice.pick(&Program::ALL), came, frame);
            world.steps(3);
        }
        let _ = Reason::ALL;
    });
}
