//! Concurrency: two CPUs use the same cell while an owner fences. The reference implementation has
//! no such concurrency.

use std::{
    collections::BTreeMap,
    sync::{
        Barrier, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use quorate_device::xdp::{Device, EntryPoint, FrameFate, Role, XdpError};
use quorate_offload::{Encapsulation, Reason, Type};

use crate::kernel::desk::{
    descriptor, frame, number, of, parse, phase2a, phase2b, ready, room, submit,
};

const SLOTS: u64 = 20_000;
const CELLS: u32 = 32_768;

fn tapped(device: &mut Device, form: Encapsulation) -> Vec<(u64, u64)> {
    let mut seen = Vec::new();
    while device.read_tapped(|_, frame| {
        let (header, bytes) = parse(form, frame);
        assert_eq!(bytes, room(header.value.counter), "torn");
        seen.push((header.slot, header.value.counter));
    }) {}
    seen
}

/// [offload-6] Two threads propose different values for each slot at once. One value gets the vote,
/// and both threads learn which.
#[test]
fn a_slot_has_one_vote_whoever_asks_at_once() {
    let Some(device) = ready(Role::Acceptor, CELLS) else {
        return;
    };
    let device = Mutex::new(device);
    let mut device = device.into_inner().unwrap();
    let taps = Mutex::new(Vec::new());
    // The tap is too short for all votes at once.
    for round in 0..SLOTS / 2_000 {
        let begin = Barrier::new(2);
        let slots = round * 2_000..(round + 1) * 2_000;
        let votes = |which: u64| {
            let mut votes = Vec::new();
            begin.wait();
            for slot in slots.clone() {
                let mut bytes = frame(Encapsulation::Raw, &phase2a(slot, slot * 2 + which));
                let fate = device.run_program(EntryPoint::Network, &mut bytes).unwrap();
                assert_eq!(fate, FrameFate::ToNetwork);
                let (header, bytes) = parse(Encapsulation::Raw, &bytes);
                assert_eq!(header.kind, Type::Phase2b);
                assert_eq!(bytes, room(header.value.counter), "torn");
                votes.push(header.value);
            }
            votes
        };
        let (left, right) = thread::scope(|scope| {
            let left = scope.spawn(|| votes(0));
            let right = votes(1);
            (left.join().unwrap(), right)
        });
        assert_eq!(left, right, "two votes in one slot");
        taps.lock().unwrap().extend(tapped(&mut device, Encapsulation::Raw));
        for (slot, value) in slots.clone().zip(&left) {
            assert_eq!(of(&device).read_cell(slot).unwrap().unwrap().value, *value);
        }
    }
    let taps = taps.into_inner().unwrap();
    let distinct: BTreeMap<u64, u64> = taps.iter().copied().collect();
    assert_eq!((taps.len() as u64, distinct.len() as u64), (SLOTS, SLOTS));
    let firsts = taps.iter().filter(|(_, value)| value % 2 == 0).count();
    eprintln!("{firsts} of {SLOTS} votes went to the first thread");
}

/// [offload-8] An owner fences while votes are cast. Every vote that was sent can be read
/// afterwards.
#[test]
fn no_vote_is_cast_behind_a_fence() {
    let Some(device) = ready(Role::Acceptor, CELLS) else {
        return;
    };
    let mut counter = 1;
    for round in 0..50_u64 {
        let first = round * 400;
        let begun = AtomicBool::new(false);
        let heard = thread::scope(|scope| {
            let votes = scope.spawn(|| {
                let mut heard = Vec::new();
                for slot in first..first + 400 {
                    let mut bytes = frame(Encapsulation::Udp, &phase2a(slot, slot));
                    assert_eq!(
                        device.run_program(EntryPoint::Network, &mut bytes).unwrap(),
                        FrameFate::ToNetwork
                    );
                    begun.store(slot > first + 20, Ordering::Release);
                    if parse(Encapsulation::Udp, &bytes).0.kind == Type::Phase2b {
                        heard.push(slot);
                    }
                }
                heard
            });
            while !begun.load(Ordering::Acquire) && !votes.is_finished() {
                thread::yield_now();
            }
            counter += 1;
            of(&device).fence(number(counter)).unwrap();
            device.drain_blocking().unwrap();
            let read: Vec<u64> = (first..first + 400)
                .filter(|slot| of(&device).read_cell(*slot).unwrap().is_some())
                .collect();
            let heard = votes.join().unwrap();
            assert_eq!(heard, read, "a vote was heard and not read, or cast later");
            read
        });
        assert!(!heard.is_empty());
        counter += 1;
        let arm = crate::kernel::desk::arm();
        of(&device).arm(number(counter), arm).unwrap();
    }
}

/// [offload-14] [offload-10] Two threads submit: every slot is assigned once. Two threads count
/// votes: each slot is decided once.
#[test]
fn slots_are_given_out_once_and_decided_once() {
    let Some(mut device) = ready(Role::Coordinator, CELLS) else {
        return;
    };
    let submits = |which: u64| {
        (0..SLOTS / 2)
            .map(|at| {
                let mut bytes = frame(Encapsulation::Udp, &submit(at * 2 + which));
                assert_eq!(
                    device.run_program(EntryPoint::Network, &mut bytes).unwrap(),
                    FrameFate::ToNetwork
                );
                let (header, _) = parse(Encapsulation::Udp, &bytes);
                (header.slot, header.value.counter)
            })
            .collect::<Vec<_>>()
    };
    let given: BTreeMap<u64, u64> = thread::scope(|scope| {
        let left = scope.spawn(|| submits(0));
        let right = submits(1);
        left.join().unwrap().into_iter().chain(right).collect()
    });
    assert!(given.keys().copied().eq(0..SLOTS), "a slot was given out twice");
    assert_eq!(of(&device).query_state().unwrap().next, SLOTS);

    let mut decided = Vec::new();
    for chunk in given.iter().collect::<Vec<_>>().chunks(2_000) {
        let votes = |position: u8| {
            chunk
                .iter()
                .filter(|(slot, value)| {
                    let mut bytes = frame(Encapsulation::Udp, &phase2b(**slot, **value, position));
                    device.run_program(EntryPoint::Network, &mut bytes).unwrap()
                        == FrameFate::ToNetwork
                })
                .count()
        };
        let crossed = thread::scope(|scope| {
            let left = scope.spawn(|| votes(0));
            let right = votes(1);
            left.join().unwrap() + right
        });
        assert_eq!(crossed, chunk.len(), "decided twice, or never");
        decided.extend(tapped(&mut device, Encapsulation::Udp));
    }
    decided.sort_unstable();
    assert!(decided.into_iter().eq(given));
}

/// [offload-12] Submits race with a stop. Every proposal sent is in its cell, and `next` is beyond
/// it.
#[test]
fn what_left_before_a_stop_is_read() {
    let Some(device) = ready(Role::Coordinator, CELLS) else {
        return;
    };
    let begun = AtomicBool::new(false);
    thread::scope(|scope| {
        let submits = scope.spawn(|| {
            let mut left = Vec::new();
            for value in 0..5_000 {
                let mut bytes = frame(Encapsulation::Raw, &submit(value));
                assert_eq!(
                    device.run_program(EntryPoint::Network, &mut bytes).unwrap(),
                    FrameFate::ToNetwork
                );
                let (header, _) = parse(Encapsulation::Raw, &bytes);
                if header.kind == Type::Phase2a {
                    left.push((header.slot, value));
                }
                begun.store(value > 100, Ordering::Release);
            }
            left
        });
        while !begun.load(Ordering::Acquire) && !submits.is_finished() {
            thread::yield_now();
        }
        of(&device).fence(number(2)).unwrap();
        device.drain_blocking().unwrap();
        let next = of(&device).query_state().unwrap().next;
        let held = |slot| of(&device).read_cell(slot).unwrap();
        let found: Vec<_> = (0..next).map(held).collect();
        for (slot, value) in submits.join().unwrap() {
            assert!(slot < next);
            let held = found[usize::try_from(slot).unwrap()].as_ref().unwrap();
            assert_eq!(held.value, descriptor(value));
            assert_eq!(held.bytes, room(value));
        }
    });
}

/// [offload-14] A full tap loses no vote: the vote is counted, and its cell has it.
#[test]
fn what_the_tap_has_no_room_for_is_counted_and_kept() {
    let Some(mut device) = ready(Role::Acceptor, CELLS) else {
        return;
    };
    for slot in 0..SLOTS {
        let mut bytes = frame(Encapsulation::Raw, &phase2a(slot, slot));
        assert_eq!(
            device.run_program(EntryPoint::Network, &mut bytes).unwrap(),
            FrameFate::ToNetwork
        );
    }
    let lost = device.tap_lost_count().unwrap();
    let seen = tapped(&mut device, Encapsulation::Raw).len() as u64;
    assert!(lost > 0 && seen + lost == SLOTS, "{seen} seen, {lost} lost");
    for slot in (0..SLOTS).step_by(97) {
        let held = of(&device).read_cell(slot).unwrap().unwrap();
        assert_eq!((held.value, held.bytes), (descriptor(slot), room(slot).to_vec()));
    }
    assert!(matches!(
        of(&device).raise_floor(number(1), 5, 0),
        Err(XdpError::Refused(Reason::Order))
    ));
}
