//! A device that forgot, lies, or is not there: never a silent success.

use quorate_core::dice::Dice;
use quorate_core::slot::Slot;
use quorate_offload::owner::{Event, Loss, Owner};
use quorate_offload::{
    Descriptor, Header, PackedBallot, Reason, Type,
    port::{Device, Drained, Program, Shape},
};

use crate::port::{
    device::{Bad, Trouble},
    frames::{CELLS, ROOM, write},
    seeds,
    world::{DEVICE_BOOT, World, ballot, batch, packed, settings, trouble},
};

/// [offload-9] Whenever power goes, the end is `Lost`; and what is told of votes before is all of them.
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
            1 => world.owner.take_back(),
            _ => {}
        }
        let steps = world.device.dice.below(200);
        world.steps(steps);
        let votes = (1..=u64::from(CELLS)).filter_map(|slot| {
            world
                .device
                .acceptor
                .vote(slot)
                .map(|(cell, _)| (slot, cell.value.counter))
        });
        let votes: Vec<_> = votes.collect();
        let given = world.device.coordinator.next();
        world.device.power_goes();
        let told_before = world.events.len();
        // A later wish finds it, if nothing before does.
        world.steps(50);
        world.owner.fence();
        world.owner.take_back();
        let was_fenced = |event: &Event| matches!(event, Event::Fenced { .. });
        let (mut fences, mut ends) = (
            world
                .events
                .iter()
                .take(told_before)
                .filter(|event| was_fenced(event))
                .count(),
            0,
        );
        world.until(|world| {
            let lost = matches!(world.events.last(), Some(Event::Lost { .. }));
            lost.then_some(())
        });
        for event in world.events.drain(told_before..) {
            match event {
                Event::Fenced { votes: told, .. } => {
                    // Everything was read, and the boot looked at, before.
                    let told: Vec<_> = told
                        .iter()
                        .map(|vote| {
                            let quorate_core::value::Value::Batch(name) = vote.value else {
                                panic!()
                            };
                            (vote.slot.0, name.counter)
                        })
                        .collect();
                    fences += usize::from(told == votes);
                    assert!(
                        told == votes || (told.is_empty() && fences > 0),
                        "seed {seed}: {told:?} {votes:?}"
                    );
                }
                Event::TakenBack { next, .. } => {
                    ends += 1;
                    assert_eq!(next.0, given.max(1), "seed {seed}");
                }
                _ => {}
            }
        }
        assert!(fences <= 2 && ends <= 1, "seed {seed}");
        assert!(
            matches!(world.owner.lost(), Some(Loss::Boot { .. })),
            "seed {seed}: {:?}",
            world.owner.lost()
        );
        // It is the last word.
        world.events.clear();
        world.owner.arm(ballot(9), 0, Slot(1));
        world.steps(100);
        assert!(world.events.is_empty() && world.owner.wake_at().is_none());
    });
}

/// A device that another owner gave another boot.
#[test]
fn a_device_of_another_boot_is_lost() {
    let mut world = World::new(3, Trouble::default());
    world.device.acceptor.begin(8).unwrap();
    assert_eq!(world.lost(), Loss::Boot { found: 8 });
}

/// [offload-17] A process that is not the last one any more.
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
    assert!(matches!(
        world.lost(),
        Loss::OtherOwner | Loss::Contradiction
    ));
}

/// A port that nothing comes out of.
struct Dead(Shape);

impl Device for Dead {
    fn shape(&self) -> Shape {
        self.0
    }
    fn put(&mut self, _: Program, _: &[u8]) {}
    fn send(&mut self, _: &[u8]) {}
    fn take(&mut self, _: &mut Vec<u8>) -> Option<Program> {
        None
    }
    fn drain(&mut self) {}
    fn drained(&mut self) -> Drained {
        Drained::Unknown
    }
    fn lost(&self) -> u64 {
        0
    }
}

#[test]
fn a_device_that_does_not_answer_is_lost() {
    let mut device = Dead(Bad::new(1, Trouble::default()).shape());
    let mut owner = Owner::new(settings(1), device.shape());
    let mut events = Vec::new();
    while let Some(now) = owner.wake_at() {
        owner.turn(now.plus_us(1), &mut device, &mut events);
    }
    assert_eq!(
        events,
        [Event::Lost {
            why: Loss::NoAnswer
        }]
    );
}

/// A value that is none was voted for: it cannot be imported, and must not be forgotten.
#[test]
fn a_vote_that_cannot_be_said_is_a_loss() {
    let mut world = World::new(3, Trouble::default());
    world.arm(1, 1);
    world.device.vote_for(
        packed(1),
        2,
        Descriptor {
            kind: 2,
            length: 8,
            crc: 1,
            ..Descriptor::NONE
        },
    );
    world.steps(500);
    assert!(world.owner.counts().unbelieved > 0);
    world.owner.fence();
    assert_eq!(world.lost(), Loss::Unreadable { slot: Slot(2) });
}

/// Any frame off the port, whole and of the right boot or not, at any time: an answer, or nothing.
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
                1 => world.owner.take_back(),
                2 => world.owner.stop(),
                3 => world.start(2, 5, u64::MAX),
                4 => world
                    .owner
                    .raise_floor(Slot(dice.word()), Slot(dice.word())),
                5 => world.owner.look_next(number),
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
                boot: if dice.chance(1, 200) {
                    dice.word() as u32
                } else {
                    DEVICE_BOOT
                },
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
            world.device.say(dice.pick(&Program::ALL), frame);
            world.steps(3);
        }
        let _ = Reason::ALL;
    });
}
