//! Coordinator tests: each value is assigned a slot once, in order, and assignments can be revoked.

use std::collections::BTreeMap;

use quorate_core::{
    slot::Slot,
    value::{StreamName, Value},
};
use quorate_offload::owner::{Event, NotOffloadable, NotSubmitted, SlotValue};
use quorate_offload::{PackedBallot, Reason};

use crate::port::{
    device::Trouble,
    frames::CELLS,
    seeds,
    world::{World, ballot, batch, packed, trouble},
};

fn number(held: &SlotValue) -> u64 {
    let Value::Batch(name) = held.value else {
        panic!("{} was not submitted", held.value);
    };
    assert_eq!(held.bytes, name.counter.to_be_bytes());
    name.counter
}

/// The leader's replica while its coordinator works, with the events reported to it, in order.
struct Leader {
    round: u32,
    first: u64,
    floor: u64,
    given: Vec<SlotValue>,
}

impl Leader {
    fn begin(world: &mut World, round: u32, first: u64) -> Self {
        world.arm(round, first);
        world.start(round, first, first + u64::from(CELLS));
        Self { round, first, floor: first, given: Vec::new() }
    }

    /// Handles the events, and raises the floor to the end of the decided slots.
    fn hear(&mut self, world: &mut World) {
        for event in world
            .events
            .extract_if(.., |event| matches!(event, Event::Assigned(_) | Event::Decided { .. }))
        {
            match event {
                Event::Assigned(held) => {
                    let next = self.first + self.given.len() as u64;
                    assert_eq!(held.slot, Slot(next), "seed {}: in order", world.seed);
                    self.given.push(held);
                }
                Event::Decided { slot, value, .. } => {
                    let key = (packed(self.round).0, slot.0);
                    let named = world.device.given[&key].expect("decided what was proposed");
                    assert!(matches!(value, Value::Batch(name) if name.counter == named.counter));
                    assert!(world.device.decided_to(packed(self.round), slot.0) > slot.0);
                }
                _ => {}
            }
        }
        let decided = world.device.decided_to(packed(self.round), self.floor);
        // A decision may become known by other means before the slot is reported as assigned.
        if decided > self.floor && world.device.dice.chance(1, 20) {
            self.floor = decided;
            world.device.raise_others(decided);
            world.owner.raise_floor(Slot(decided), Slot(decided + u64::from(CELLS)));
        }
    }

    /// Returns the slots that the coordinator really assigned.
    fn truth(&self, world: &World) -> BTreeMap<u64, Option<u64>> {
        let ballot = packed(self.round).0;
        let range = world.device.given.range((ballot, self.first)..=(ballot, u64::MAX));
        range.map(|((_, slot), named)| (*slot, named.map(|named| named.counter))).collect()
    }
}

/// Every value gets a slot in order, over three laps of a ring. Ticks are needed, because proposals
/// and votes are lost.
#[test]
fn every_value_is_given_a_slot_in_order() {
    let (ticks, more) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    seeds(1_000, |seed| {
        let mut world = World::new(seed, trouble(seed));
        let mut leader = Leader::begin(&mut world, 1, 4);
        let mut submitted = 0;
        world.until(|world| {
            leader.hear(world);
            while submitted < 24 && world.device.dice.chance(1, 10) {
                let (value, bytes) = batch(submitted);
                match world.owner.submit(value, &bytes) {
                    Ok(()) => submitted += 1,
                    Err(NotSubmitted::Full) => break,
                    Err(other) => panic!("{other:?}"),
                }
            }
            let all = submitted == 24 && world.owner.waiting_value_count() == 0;
            // All are decided as well.
            let next = world.device.coordinator.next();
            let decided = world.device.decided_to(packed(1), 4);
            (all && decided == next && leader.given.len() as u64 == next - 4).then_some(())
        });
        let truth = leader.truth(&world);
        let told = leader.given.iter().map(|held| (held.slot.0, Some(number(held))));
        assert_eq!(told.collect::<BTreeMap<_, _>>(), truth, "seed {seed}");
        for submitted in 0..24 {
            assert!(truth.values().any(|number| *number == Some(submitted)), "seed {seed}");
        }
        ticks.set(ticks.get() + world.device.ticks);
        more.set(more.get() + truth.len() as u64 - 24);
    });
    assert!(ticks.get() > 1_000, "{} ticks", ticks.get());
    println!("{} ticks, {} values twice", ticks.get(), more.get());
}

/// [offload-15] A value that another member offers is assigned a slot like the leader's own, or
/// lost.
#[test]
fn what_others_offer_is_given_a_slot() {
    seeds(200, |seed| {
        let mut world = World::new(seed, trouble(seed));
        let mut leader = Leader::begin(&mut world, 1, 4);
        let (value, bytes) = batch(7);
        let other = world.owner.send_unacknowledged(&mut world.device, &value, b"other");
        assert_eq!(other, Err(NotOffloadable::Bytes));
        world.until(|world| {
            leader.hear(world);
            if leader.given.is_empty() && world.device.dice.chance(1, 10) {
                world.owner.send_unacknowledged(&mut world.device, &value, &bytes).unwrap();
            }
            leader.given.first().map(|held| assert_eq!(number(held), 7))
        });
    });
}

/// [offload-12] A withdrawal returns all assigned slots, including holes, and none is assigned
/// after it.
#[test]
fn taken_back_is_exactly_what_was_given_out() {
    let (given_late, empty) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    seeds(1_500, |seed| {
        let holes = [0, 0, 25][usize::try_from(seed % 3).unwrap()];
        let mut world = World::new(seed, Trouble { holes, ..trouble(seed) });
        let mut first = 4;
        for round in 1..3 {
            let mut leader = Leader::begin(&mut world, round, first);
            for number in 0..8 {
                let (value, bytes) = batch(u64::from(round) * 100 + number);
                world.owner.submit(value, &bytes).unwrap();
            }
            for _ in 0..world.device.dice.below(500) {
                world.step();
                leader.hear(&mut world);
            }
            world.owner.withdraw_coordinator();
            let taken_back = world.until(|world| {
                leader.hear(world);
                world.find(|event| match event {
                    Event::Withdrawn {
                        ballot,
                        next,
                        unreported_slots: given,
                        slots_without_value: holes,
                    } => Some(Some((*ballot, *next, given.clone(), holes.clone()))),
                    Event::Stopped => Some(None),
                    _ => None,
                })
            });
            // The withdrawal was requested before the start was sent.
            let nothing = || (ballot(round), Slot(first), Vec::new(), Vec::new());
            let (of, next, late, holes) = taken_back.unwrap_or_else(nothing);
            world.steps(200);
            world.until(|world| (!world.device.is_busy()).then_some(()));
            leader.hear(&mut world);
            let truth = leader.truth(&world);
            let told = leader.given.iter().chain(&late);
            let mut told: BTreeMap<_, _> =
                told.map(|held| (held.slot.0, Some(number(held)))).collect();
            told.extend(holes.iter().map(|slot| (slot.0, None)));
            assert_eq!(told, truth, "seed {seed}");
            assert_eq!((of, next.0), (ballot(round), first + truth.len() as u64), "seed {seed}");
            // Assigned values no longer wait, and the others are returned to the leader.
            let rest: Vec<u64> = world
                .owner
                .take_unassigned_values()
                .iter()
                .map(|(value, _)| match value {
                    Value::Batch(name) => name.counter,
                    other => panic!("{other}"),
                })
                .collect();
            for submitted in (0..8).map(|number| u64::from(round) * 100 + number) {
                let given = truth.values().any(|number| *number == Some(submitted));
                assert!(given != rest.contains(&submitted), "seed {seed}: {submitted}");
            }
            given_late.set(given_late.get() + late.len());
            empty.set(empty.get() + holes.len());
            first = next.0 + 1;
            world.owner.fence();
            world.fenced();
            world.events.clear();
        }
    });
    assert!(given_late.get() > 500 && empty.get() > 100, "{given_late:?} {empty:?}");
}

/// A stop reads nothing. A later start waits until the stop is complete.
#[test]
fn a_stop_ends_a_start_and_a_take_back() {
    seeds(500, |seed| {
        let mut world = World::new(seed, trouble(seed));
        Leader::begin(&mut world, 1, 1);
        let (value, bytes) = batch(1);
        world.owner.submit(value, &bytes).unwrap();
        let steps = world.device.dice.below(100);
        world.steps(steps);
        if seed % 2 == 0 {
            world.owner.withdraw_coordinator();
            let steps = world.device.dice.below(40);
            world.steps(steps);
        }
        world.owner.stop();
        world.until(|world| world.find(|event| (*event == Event::Stopped).then_some(())));
        assert_eq!(world.device.coordinator.state().ballot, PackedBallot::NONE, "seed {seed}");
        let first = world.device.coordinator.next() + 1;
        world.start(2, first, first + 8);
        world.started(2, first);
    });
}

/// [offload-14] A full ring causes backpressure: waiting values are visible, and sent when there is
/// space.
#[test]
fn a_full_ring_keeps_values_waiting() {
    seeds(300, |seed| {
        let mut world = World::new(seed, trouble(seed));
        world.arm(1, 1);
        world.start(1, 1, 4);
        world.started(1, 1);
        for number in 0..u64::from(CELLS) {
            let (value, bytes) = batch(number);
            world.owner.submit(value, &bytes).unwrap();
        }
        let (value, bytes) = batch(99);
        assert_eq!(world.owner.submit(value, &bytes), Err(NotSubmitted::Full));
        world.steps(2_000);
        assert!(world.owner.waiting_value_count() >= 5, "seed {seed}");
        assert_eq!(world.device.coordinator.next(), 4, "seed {seed}");
        world.owner.raise_floor(Slot(1), Slot(5));
        world.until(|world| (world.device.coordinator.next() == 5).then_some(()));
    });
}

/// [offload-18] The reported slot was loaded after the query.
#[test]
fn a_read_gets_a_slot_that_is_not_older_than_its_question() {
    seeds(500, |seed| {
        let mut world = World::new(seed, trouble(seed));
        world.arm(1, 1);
        world.owner.query_next_slot(0);
        let none = Event::NextSlot { token: 0, next: None };
        world.until(|world| world.find(|event| (*event == none).then_some(())));
        let mut leader = Leader::begin(&mut world, 1, 1);
        world.started(1, 1);
        for token in 1..10 {
            let (value, bytes) = batch(token);
            let _ = world.owner.submit(value, &bytes);
            let steps = world.device.dice.below(60);
            world.steps(steps);
            let before = world.device.coordinator.next();
            world.owner.query_next_slot(token);
            let next = world.until(|world| {
                leader.hear(world);
                world.find(|event| match event {
                    Event::NextSlot { token: of, next } if *of == token => Some(*next),
                    _ => None,
                })
            });
            let next = next.expect("it is started");
            assert!(next.0 >= before && next.0 <= world.device.coordinator.next(), "seed {seed}");
        }
        world.owner.query_next_slot(77);
        world.owner.withdraw_coordinator();
        let none = Event::NextSlot { token: 77, next: None };
        world.until(|world| world.find(|event| (*event == none).then_some(())));
    });
}

#[test]
fn what_is_not_carried_is_refused_at_once() {
    let mut world = World::new(1, Trouble::default());
    let content = Value::Content { stream: StreamName::default(), offset: 0 };
    let refused = |why| Err(NotSubmitted::NotOffloadable(why));
    assert_eq!(world.owner.submit(content, b""), refused(NotOffloadable::Kind));
    let (value, _) = batch(1);
    assert_eq!(world.owner.submit(value, b"other by"), refused(NotOffloadable::Bytes));
    assert_eq!(world.owner.waiting_value_count(), 0);
}

#[test]
fn a_start_that_cannot_be_is_refused() {
    let mut world = World::new(1, Trouble::default());
    let refused = |world: &mut World, round, reason| {
        let refused = Event::StartRefused { ballot: ballot(round), reason };
        world.until(|world| world.find(|event| (*event == refused).then_some(())));
    };
    world.start(1, 0, 9);
    refused(&mut world, 1, Reason::Range);
    world.start(2, 5, 9);
    world.started(2, 5);
    world.start(2, 5, 9);
    refused(&mut world, 2, Reason::Armed);
    world.owner.stop();
    world.start(1, 9, 20);
    refused(&mut world, 1, Reason::Ballot);
}
