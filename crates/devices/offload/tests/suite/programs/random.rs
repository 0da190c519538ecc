//! Random operations in any order, compared with a plain model that keeps every vote and proposal
//! in a map.

use std::collections::{BTreeMap, BTreeSet};

use quorate_core::dice::Dice;
use quorate_offload::{
    Acceptor, Coordinator, Header, PackedBallot, Reason, Type, acceptor::ArmParameters,
    coordinator::StartParameters,
};

use crate::programs::desk::*;

const RUNS: u64 = 300;
const STEPS: u64 = 400;

#[derive(Default)]
struct Votes {
    armed: Option<u64>,
    last: u64,
    floor: u64,
    /// Votes by ballot and slot. Never forgotten.
    cast: BTreeMap<(u64, u64), u64>,
}

impl Votes {
    /// Returns the value that is voted for, or the reason of the refusal.
    fn ask(&mut self, ballot: u64, slot: u64, value: u64) -> Result<u64, Reason> {
        match self.armed {
            None => Err(Reason::Disarmed),
            Some(armed) if armed != ballot => Err(Reason::Ballot),
            _ if slot < self.floor => Err(Reason::Floor),
            _ if slot >= self.floor + CELLS => Err(Reason::Full),
            _ => Ok(*self.cast.entry((ballot, slot)).or_insert(value)),
        }
    }

    fn arm(&mut self, ballot: u64, floor: u64) -> Result<(), Reason> {
        match self.armed {
            Some(armed) if armed != ballot => Err(Reason::Armed),
            _ if ballot < self.last => Err(Reason::Ballot),
            _ if floor < self.floor => Err(Reason::Floor),
            _ => {
                (self.armed, self.last, self.floor) = (Some(ballot), ballot, floor);
                Ok(())
            }
        }
    }

    /// Returns the valid result of a read: the vote in the newest ballot, if the slot is not
    /// forgotten.
    fn newest(&self, slot: u64) -> Option<(u64, u64)> {
        let mut of = self.cast.iter().filter(|((_, voted), _)| *voted == slot);
        of.next_back().map(|((ballot, _), value)| (*ballot, *value))
    }
}

#[test]
fn an_acceptor_votes_as_the_model_does() {
    for seed in 0..RUNS {
        let mut dice = Dice::new(seed);
        let mut model = Votes::default();
        let mut acceptor = Acceptor::new(setup(), routes(FIRST_ROUTE), cells(CELLS));
        acceptor.set_boot(BOOT).unwrap();
        for counter in 1..STEPS {
            let ballot = 1 + model.last + dice.below(3) - dice.below(2).min(model.last);
            let slot = model.floor + dice.below(CELLS + 2);
            let slot = slot.saturating_sub(dice.below(2));
            match dice.below(20) {
                0 => {
                    let arm = ArmParameters {
                        ballot: PackedBallot(ballot),
                        position: 1,
                        floor: slot,
                        votes: routes(FIRST_ROUTE),
                    };
                    let armed = acceptor.arm(number(counter), arm);
                    assert_eq!(armed, model.arm(ballot, slot), "seed {seed}");
                }
                1 => {
                    acceptor.fence(number(counter)).unwrap();
                    model.armed = None;
                }
                2 => {
                    let floor = model.floor + dice.below(4);
                    acceptor.raise_floor(number(counter), floor).unwrap();
                    model.floor = floor;
                }
                3 | 4 => {
                    let held = acceptor.vote(slot);
                    let held = held.map(|(cell, _)| (cell.ballot.0, cell.value.counter));
                    // A cell below the floor may store another slot by now.
                    if slot >= model.floor || held.is_some() {
                        assert_eq!(held, model.newest(slot), "seed {seed}");
                    }
                }
                _ => {
                    let ballot = model.armed.filter(|_| dice.chance(7, 8)).unwrap_or(ballot);
                    let value = dice.below(3);
                    let expected = model.ask(ballot, slot, value);
                    let sent = send(&mut acceptor, &phase2a(ballot, slot, value), &room(value));
                    let header = &sent[0].header;
                    let got = match header.kind {
                        Type::Phase2b => Ok(header.value.counter),
                        _ => Err(Reason::ALL[usize::from(header.reason)]),
                    };
                    assert_eq!(got, expected, "seed {seed}, slot {slot}");
                    if let Ok(value) = got {
                        assert_eq!(sent[0].room, room(value));
                    }
                }
            }
        }
        assert!(model.cast.len() > 4, "seed {seed}: {}", model.cast.len());
    }
}

#[derive(Default)]
struct Proposals {
    started: Option<u64>,
    last: u64,
    first: u64,
    next: u64,
    floor: u64,
    limit: u64,
    /// By ballot and slot: value, voters, whether it is decided.
    made: BTreeMap<(u64, u64), (u64, BTreeSet<u8>, bool)>,
}

impl Proposals {
    fn submit(&mut self, value: u64) -> Result<u64, Reason> {
        let ballot = self.started.ok_or(Reason::Disarmed)?;
        let slot = self.next;
        if slot >= self.limit || slot >= self.floor + CELLS {
            return Err(Reason::Full);
        }
        self.next += 1;
        let before = self.made.insert((ballot, slot), (value, BTreeSet::new(), false));
        assert_eq!(before, None, "{slot} was given out twice in {ballot}");
        Ok(slot)
    }

    /// Counts a vote. Returns whether it decides.
    fn vote(&mut self, ballot: u64, slot: u64, value: u64, position: u8, quorum: usize) -> bool {
        if self.started != Some(ballot) || slot < self.floor || slot < self.first || position > 2 {
            return false;
        }
        let Some((proposed, voters, decided)) = self.made.get_mut(&(ballot, slot)) else {
            return false;
        };
        if *proposed != value || !voters.insert(position) || voters.len() < quorum || *decided {
            return false;
        }
        *decided = true;
        true
    }
}

#[test]
fn a_coordinator_gives_out_and_counts_as_the_model_does() {
    let mut decisions = 0;
    for seed in 0..RUNS {
        let mut dice = Dice::new(seed);
        let mut model = Proposals::default();
        let (proposals, routes) = (routes(FIRST_ROUTE), routes(SECOND_ROUTE));
        let mut coordinator = Coordinator::new(setup(), proposals, routes, cells(CELLS));
        coordinator.set_boot(BOOT).unwrap();
        let mut quorum = 2;
        for counter in 1..STEPS {
            let slot = (model.next + 1).saturating_sub(dice.below(6));
            match dice.below(24) {
                0 => {
                    let ballot =
                        (1 + model.last + dice.below(2)).saturating_sub(dice.below(3)).max(1);
                    let first = (model.next + dice.below(3)).saturating_sub(dice.below(2));
                    let drawn = 1 + dice.index(3);
                    let start = StartParameters {
                        ballot: PackedBallot(ballot),
                        first,
                        limit: first + 100,
                        quorum: u8::try_from(drawn).unwrap(),
                        members: 3,
                        hint: false,
                        proposals,
                        decisions: routes,
                    };
                    let expected = match model.started {
                        Some(_) => Err(Reason::Armed),
                        None if ballot < model.last => Err(Reason::Ballot),
                        None if first < model.floor => Err(Reason::Floor),
                        None if ballot == model.last && first < model.next => Err(Reason::Floor),
                        None => Ok(()),
                    };
                    assert_eq!(coordinator.start(number(counter), start), expected, "{seed}");
                    if expected.is_ok() {
                        (model.started, model.last, quorum) = (Some(ballot), ballot, drawn);
                        (model.first, model.next, model.floor) = (first, first, first);
                        model.limit = first + 100;
                    }
                }
                1 => {
                    coordinator.stop(number(counter)).unwrap();
                    model.started = None;
                }
                2 | 3 => {
                    let floor = model.floor + dice.below(5);
                    let expected = match model.started {
                        None => Err(Reason::Disarmed),
                        Some(_) if floor > model.next => Err(Reason::Floor),
                        Some(_) => Ok(()),
                    };
                    let limit = model.limit;
                    let raised = coordinator.raise_floor(number(counter), floor, limit);
                    assert_eq!(raised, expected, "seed {seed}");
                    if expected.is_ok() {
                        model.floor = floor;
                    }
                }
                4..10 => {
                    let value = dice.below(3);
                    let expected = model.submit(value);
                    let sent = send(&mut coordinator, &submit(value), &room(value));
                    let header = &sent[0].header;
                    let got = match header.kind {
                        Type::Phase2a => Ok(header.slot),
                        _ => Err(Reason::ALL[usize::from(header.reason)]),
                    };
                    assert_eq!(got, expected, "seed {seed}");
                    assert_eq!(coordinator.next(), model.next);
                }
                _ => {
                    let ballot = model.last + u64::from(dice.chance(1, 8));
                    let held =
                        coordinator.stored_proposal(slot).map(|(cell, _)| cell.value.counter);
                    let value = held.filter(|_| dice.chance(7, 8)).unwrap_or(1);
                    let position = u8::try_from(dice.below(4)).unwrap();
                    let expected = model.vote(ballot, slot, value, position, quorum);
                    let vote: Header = phase2b(ballot, slot, value, position);
                    let sent = send(&mut coordinator, &vote, &room(value));
                    assert_eq!(!sent.is_empty(), expected, "seed {seed}, {vote:?}");
                    decisions += u64::from(expected);
                }
            }
        }
    }
    assert!(decisions > 5 * RUNS, "{decisions}");
}
