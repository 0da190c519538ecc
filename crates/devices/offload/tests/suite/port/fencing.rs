//! Acceptor tests: arming, reports of its votes, fencing, reading its votes.

use quorate_core::{slot::Slot, value::Value};
use quorate_offload::owner::{Event, Owner, SlotValue};
use quorate_offload::{PackedBallot, Reason};

use crate::port::{
    device::Trouble,
    frames::CELLS,
    seeds,
    world::{World, ballot, batch, packed, settings, trouble},
};

/// Returns the acceptor's votes in a ballot, read without a port.
fn cells(world: &World, of: PackedBallot) -> Vec<(u64, u64)> {
    let floor = world.device.acceptor.state().floor;
    let votes = (floor..floor + u64::from(CELLS)).filter_map(|slot| {
        let (cell, _) = world.device.acceptor.vote(slot)?;
        (cell.ballot == of).then_some((slot, cell.value.counter))
    });
    votes.collect()
}

fn numbers(votes: &[SlotValue]) -> Vec<(u64, u64)> {
    let of = |vote: &SlotValue| {
        let Value::Batch(name) = vote.value else {
            panic!("{} was not submitted", vote.value);
        };
        assert_eq!(vote.bytes, name.counter.to_be_bytes());
        (vote.slot.0, name.counter)
    };
    votes.iter().map(of).collect()
}

#[test]
fn arming_reaches_armed() {
    seeds(1_000, |seed| {
        let mut world = World::new(seed, trouble(seed));
        world.arm(1, 3);
        let state = world.device.acceptor.state();
        assert_eq!((state.ballot, state.floor), (packed(1), 3));
        // A retry, as after an answer lost on TCP.
        world.arm(1, 3);
    });
}

/// [offload-8] A fence returns exactly the device's votes, whatever the tap lost, and the device no
/// longer votes.
#[test]
fn a_fence_returns_exactly_the_acceptors_cells() {
    let voted = std::cell::Cell::new(0);
    seeds(1_500, |seed| {
        let mut world = World::new(seed, trouble(seed));
        let mut floor = 5;
        for round in [20, 40, 60] {
            world.arm(round, floor);
            world.start(round, floor, floor + u64::from(CELLS));
            for number in 0..8 {
                let (value, bytes) = batch(u64::from(round) * 100 + number);
                let _ = world.owner.submit(value, &bytes);
            }
            let steps = world.device.dice.below(400);
            world.steps(steps);
            let raised = floor + world.device.dice.below(4);
            world.owner.raise_floor(Slot(raised), Slot(0));
            world.owner.fence();
            // The request to arm again is made at once, but carried out only after the fence.
            world.owner.arm(ballot(round + 10), 0, Slot(floor));
            let (of, votes) = world.until(|world| {
                world.find(|event| match event {
                    Event::Fenced { ballot, votes } => Some((*ballot, votes.clone())),
                    Event::Armed { ballot } => {
                        panic!("seed {seed}: armed in {ballot} while fenced")
                    }
                    _ => None,
                })
            });
            assert_eq!(of, Some(ballot(round)), "seed {seed}");
            assert_eq!(numbers(&votes), cells(&world, packed(round)), "seed {seed}");
            voted.set(voted.get() + votes.len());
            // Votes reported earlier are among them, or below the device's floor.
            let now_floor = world.device.acceptor.state().floor;
            for event in world.events.drain(..) {
                if let Event::Voted(vote) = event
                    && vote.slot.0 >= now_floor
                {
                    assert!(votes.contains(&vote), "seed {seed}");
                }
            }
            world.owner.fence();
            world.owner.stop();
            assert_eq!(world.fenced(), (Some(ballot(round + 10)), Vec::new()), "seed {seed}");
            // No frame still in flight arms it again ([offload-17]), and it casts no votes.
            world.steps(300);
            world.until(|world| (!world.device.is_busy()).then_some(()));
            assert_eq!(world.device.acceptor.state().ballot, PackedBallot::NONE, "seed {seed}");
            assert_eq!(numbers(&votes), cells(&world, packed(round)), "seed {seed}");
            world.events.clear();
            world.owner.take_unassigned_values();
            floor = world.device.coordinator.next().max(now_floor) + 1;
        }
    });
    assert!(voted.get() > 1_000, "{} votes are too few to tell", voted.get());
}

/// [offload-8] A fence also reads votes after holes, but not the cells of an older ballot.
#[test]
fn what_is_behind_a_hole_is_read_too() {
    seeds(300, |seed| {
        let mut world = World::new(seed, trouble(seed));
        world.arm(1, 1);
        for slot in [1, 3, 8] {
            world.device.vote(packed(1), slot, slot);
        }
        world.owner.fence();
        let (of, votes) = world.fenced();
        assert_eq!(of, Some(ballot(1)), "seed {seed}");
        assert_eq!(numbers(&votes), [(1, 1), (3, 3), (8, 8)], "seed {seed}");
        world.arm(2, 1);
        world.device.vote(packed(2), 3, 33);
        world.owner.fence();
        assert_eq!(numbers(&world.fenced().1), [(3, 33)], "seed {seed}");
    });
}

/// A device that is armed again in the same ballot reports its earlier votes again.
#[test]
fn armed_again_in_its_ballot_it_has_its_older_votes() {
    let mut world = World::new(1, Trouble::default());
    world.arm(1, 1);
    world.device.vote(packed(1), 2, 2);
    world.owner.fence();
    assert_eq!(world.fenced().1.len(), 1);
    world.arm(1, 1);
    world.device.vote(packed(1), 4, 4);
    world.owner.fence();
    assert_eq!(numbers(&world.fenced().1), [(2, 2), (4, 4)]);
}

/// [offload-8] An arm that waited for a fence is not sent after the next one.
#[test]
fn a_fence_ends_an_arm_that_was_not_sent() {
    seeds(300, |seed| {
        let mut world = World::new(seed, trouble(seed));
        world.arm(1, 1);
        world.owner.fence();
        world.owner.arm(ballot(2), 0, Slot(1));
        world.owner.fence();
        assert_eq!(world.fenced().0, Some(ballot(1)), "seed {seed}");
        world.steps(300);
        assert_eq!(world.device.acceptor.state().ballot, PackedBallot::NONE, "seed {seed}");
        let armed = Event::Armed { ballot: ballot(2) };
        assert!(!world.events.contains(&armed), "seed {seed}");
    });
}

/// An election without an armed device costs no calls.
#[test]
fn a_second_fence_asks_nothing() {
    let mut world = World::new(1, Trouble::default());
    world.owner.fence();
    assert_eq!(world.fenced(), (None, Vec::new()));
    world.steps(200);
    let calls = world.owner.counts().calls_sent;
    world.owner.fence();
    assert_eq!(world.fenced(), (None, Vec::new()));
    assert_eq!(world.owner.counts().calls_sent, calls);
}

/// [offload-10] If votes are only hints, a fence disarms the device without reading them, whatever
/// is lost. A fence requested in the meantime that needs the votes gets them.
#[test]
fn a_fence_without_reading_out_disarms_all_the_same() {
    seeds(500, |seed| {
        let mut world = World::new(seed, trouble(seed));
        world.arm(20, 5);
        world.start(20, 5, 9);
        for number in 0..4 {
            let (value, bytes) = batch(number);
            world.owner.submit(value, &bytes).unwrap();
        }
        let steps = world.device.dice.below(400);
        world.steps(steps);
        world.owner.disarm();
        let after_all = world.device.dice.chance(1, 2);
        if after_all {
            world.owner.fence();
        }
        world.owner.stop();
        let (of, votes) = world.fenced();
        assert_eq!(of, Some(ballot(20)), "seed {seed}");
        let read = cells(&world, packed(20));
        let expected = if after_all { &read[..] } else { &[] };
        assert_eq!(numbers(&votes), expected, "seed {seed}");
        assert_eq!(world.device.acceptor.state().ballot, PackedBallot::NONE);
        // Votes that were not read out can still be read, as long as no owner arms it again.
        world.owner.fence();
        let (of, votes) = world.fenced();
        let of_before = (!after_all && !read.is_empty()).then_some(ballot(20));
        assert_eq!(of, of_before, "seed {seed}");
        if !after_all {
            assert_eq!(numbers(&votes), read, "seed {seed}");
        }
    });
}

/// [offload-9] A process that restarts fences first, and receives its predecessor's votes.
#[test]
fn a_process_that_starts_again_finds_the_votes_of_the_one_before() {
    seeds(300, |seed| {
        let mut world = World::new(seed, trouble(seed));
        world.arm(3, 1);
        world.device.vote(packed(3), 2, 2);
        world.owner = Owner::new(settings(2), quorate_offload::port::Device::shape(&world.device));
        world.owner.fence();
        let (of, votes) = world.fenced();
        assert_eq!(of, Some(ballot(3)), "seed {seed}");
        assert_eq!(numbers(&votes), [(2, 2)], "seed {seed}");
        world.steps(200);
        assert_eq!(world.device.acceptor.state().ballot, PackedBallot::NONE);
    });
}

/// Votes lost by the tap are read, including the last ones once a loss is known.
#[test]
fn what_the_tap_lost_is_read() {
    seeds(300, |seed| {
        let mut world = World::new(seed, trouble(seed));
        world.arm(1, 1);
        world.device.overflows = 4;
        for slot in 1..=6 {
            world.device.vote(packed(1), slot, slot);
        }
        for slot in 1..=6 {
            let told =
                |event: &Event| matches!(event, Event::Voted(vote) if vote.slot == Slot(slot));
            world.until(|world| world.find(|event| told(event).then_some(())));
        }
        assert!(world.owner.counts().frames_lost > 0 || world.device.overflows > 0);
    });
}

/// [offload-14] Floors are raised rarely while values are in flight, and at once when there are
/// none.
#[test]
fn floors_are_raised() {
    seeds(300, |seed| {
        let mut world = World::new(seed, trouble(seed));
        world.arm(1, 1);
        world.owner.raise_floor(Slot(4), Slot(0));
        world.until(|world| (world.device.acceptor.state().floor == 4).then_some(()));
    });
}

/// Repeating the same request in every turn does not keep a reactor awake.
#[test]
fn an_idle_owner_sleeps() {
    let mut world = World::new(1, Trouble::default());
    world.arm(1, 1);
    world.steps(2_000);
    world.owner.raise_floor(Slot(1), Slot(9));
    world.steps(2_000);
    world.owner.raise_floor(Slot(1), Slot(9));
    let (now, probe_us) = (world.now, settings(1).timeouts.probe_interval_us);
    let due = world.owner.wake_at().unwrap();
    assert!(due > now && due <= now.plus_us(probe_us), "{due:?} {now:?}");
}

#[test]
fn what_fits_into_no_frame_is_refused() {
    let mut world = World::new(1, Trouble::default());
    let mut wide = ballot(1);
    wide.node.0 = 0x1_0000;
    for (ballot, position) in [(wide, 0), (ballot(1), 16), (quorate_core::ballot::Ballot::ZERO, 0)]
    {
        world.owner.arm(ballot, position, Slot(1));
        let refused = Event::ArmRefused { ballot, reason: Reason::Range };
        world.until(|world| world.find(|event| (*event == refused).then_some(())));
    }
    world.arm(2, 5);
    // Another ballot needs a fence. The device itself refuses a lower ballot or floor.
    for (of, floor, reason, fence) in [
        (ballot(3), 5, Reason::Armed, false),
        (ballot(1), 5, Reason::Ballot, true),
        (ballot(3), 4, Reason::Floor, true),
    ] {
        if fence {
            world.owner.fence();
        }
        world.owner.arm(of, 0, Slot(floor));
        let refused = Event::ArmRefused { ballot: of, reason };
        world.until(|world| world.find(|event| (*event == refused).then_some(())));
    }
}
