//! Owner calls one by one: answers and refusals.

use quorate_device::xdp::{EntryPoint, FrameFate, Role, XdpError, control::ArmParameters};
use quorate_offload::{CallNumber, Encapsulation, PackedBallot, Reason, State, Type};

use crate::kernel::desk::{
    BALLOT, BOOT, address, arm, descriptor, frame, load, number, of, parse, phase2a, ready, room,
    settings, start, submit,
};

fn refused(what: Result<State, XdpError>) -> Reason {
    match what {
        Err(XdpError::Refused(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_acceptor_is_armed_fenced_and_read_out() {
    let Some(device) = load(Role::Acceptor, &settings(64)) else {
        return;
    };
    assert_eq!(refused(of(&device).arm(number(1), arm())), Reason::Boot);
    assert_eq!(of(&device).set_boot(BOOT).unwrap().boot, BOOT);
    assert_eq!(refused(of(&device).set_boot(BOOT + 1)), Reason::Boot);
    let state = of(&device).arm(number(1), ArmParameters { floor: 10, ..arm() }).unwrap();
    assert_eq!((state.ballot, state.position, state.floor), (BALLOT, 2, 10));
    // [offload-17] Calls must be ordered, and of this boot.
    assert_eq!(refused(of(&device).arm(number(1), arm())), Reason::Order);
    let other = CallNumber { device_boot: 1, ..number(9) };
    assert_eq!(refused(of(&device).fence(other)), Reason::Boot);
    // Only the owner may send calls.
    let mut call = phase2a(0, 1);
    call.kind = Type::Fence;
    let mut bytes = frame(Encapsulation::Raw, &call);
    assert_eq!(device.run_program(EntryPoint::Network, &mut bytes).unwrap(), FrameFate::Consumed);
    assert_eq!(device.counters().unwrap()[Reason::Port as usize], 1);

    for slot in 10..20 {
        let mut bytes = frame(Encapsulation::Udp, &phase2a(slot, slot));
        assert_eq!(
            device.run_program(EntryPoint::Network, &mut bytes).unwrap(),
            FrameFate::ToNetwork
        );
    }
    of(&device).fence(number(2)).unwrap();
    let mut draining = device.start_drain();
    while !draining.is_done().unwrap() {
        std::thread::yield_now();
    }
    assert!(draining.is_done().unwrap());
    assert_eq!(of(&device).query_state().unwrap().ballot, PackedBallot::NONE);
    for slot in 0..74 {
        let held = of(&device).read_cell(slot).unwrap();
        assert_eq!(held.is_some(), (10..20).contains(&slot), "{slot}");
        if let Some(held) = held {
            assert_eq!((held.ballot, held.value), (BALLOT, descriptor(slot)));
            assert_eq!(held.bytes, room(slot));
        }
    }
}

#[test]
fn a_coordinator_is_started_and_repeats_what_it_is_told() {
    let Some(device) = ready(Role::Coordinator, 64) else {
        return;
    };
    assert_eq!(refused(of(&device).start(number(2), start())), Reason::Armed);
    let mut bytes = frame(Encapsulation::Udp, &submit(3));
    assert_eq!(device.run_program(EntryPoint::Network, &mut bytes).unwrap(), FrameFate::ToNetwork);
    assert_eq!(of(&device).query_state().unwrap().next, 1);
    let again = of(&device).retransmission_frame(0, Encapsulation::Udp).unwrap();
    let (header, bytes) = parse(Encapsulation::Udp, &again);
    assert_eq!((header.kind, header.slot, header.value), (Type::Phase2a, 0, descriptor(3)));
    assert_eq!((bytes, &again[..6]), (&room(3)[..], &settings(64).proposal_address.mac[..]));
    assert!(matches!(
        of(&device).retransmission_frame(1, Encapsulation::Raw),
        Err(XdpError::Refused(Reason::Stale))
    ));
    assert_eq!(refused(of(&device).raise_floor(number(3), 2, u64::MAX)), Reason::Floor);
    assert_eq!(of(&device).raise_floor(number(4), 1, u64::MAX).unwrap().floor, 1);
    assert_eq!(of(&device).fence(number(5)).unwrap().next, 1);
}

/// A frame that is not for the device passes unchanged.
#[test]
fn what_is_not_ours_passes_unchanged() {
    let Some(device) = ready(Role::Acceptor, 64) else {
        return;
    };
    let mut other = frame(Encapsulation::Udp, &phase2a(0, 1));
    other[..6].copy_from_slice(&address(77).mac);
    for entry in EntryPoint::ALL {
        let mut bytes = other.clone();
        assert_eq!(device.run_program(entry, &mut bytes).unwrap(), FrameFate::PassedOn);
        assert_eq!(bytes, other);
    }
}
