//! Devices over an in-memory network that loses, duplicates and reorders frames.

use quorate_core::slot::Slot;
use quorate_device::{Network, Settings, udp};
use quorate_offload::owner::{Event, LossReason};
use quorate_offload::{Reason, port::Device as _};

use crate::software::group::{CELLS, Group, batch, check_all, number, settings};

/// Creates a group with `members` members. `change` modifies the settings of their devices.
fn group(network: &Network, members: u8, change: impl Fn(&mut Settings)) -> Group {
    let members = (1..=members).map(|last| {
        let own = udp::address(format!("10.0.0.{last}:47100").parse().unwrap());
        let mut settings = settings(own, udp::all_hosts(47_100));
        change(&mut settings);
        (settings, network.join(own.mac).unwrap())
    });
    Group::new(members.collect())
}

#[test]
fn a_thousand_values_are_given_out_and_decided() {
    let mut group = group(&Network::new(1, 0, 0, 0), 3, |_| {});
    group.begin();
    let given = group.decide(1000);
    check_all(&given, 1000);
    // A coordinator's decisions reach the owners of other devices as well.
    let last = given[given.len() - 1].slot;
    for node in 1..3 {
        let told = |event: &Event| matches!(event, Event::Decided { slot, .. } if *slot == last);
        group.until(|group| group.find(node, |event| told(event).then_some(())));
    }
}

/// [offload-19] Ticks retransmit lost proposals and votes.
#[test]
fn ticks_repair_what_the_network_loses() {
    for seed in 0..4 {
        let mut group = group(&Network::new(seed, 15, 5, 20), 3, |_| {});
        group.begin();
        let given = group.decide(1000);
        check_all(&given, 1000);
    }
}

/// [offload-14] Frames that do not fit into the tap are counted, and their cells are read instead.
#[test]
fn what_the_queue_lost_is_read_from_cells() {
    let mut group = group(&Network::new(1, 0, 0, 0), 3, |settings| settings.tap_frames = 4);
    group.begin();
    let values = u64::from(CELLS) / 2;
    let done = |group: &Group| -> Vec<u64> {
        let nodes = group.nodes.iter();
        nodes.map(|node| node.device.counts_per_program().acceptor.count_of(Reason::None)).collect()
    };
    let before = done(&group);
    for value in 0..values {
        let (value, bytes) = batch(value);
        group.nodes[0].owner.submit(value, &bytes).unwrap();
    }
    group.turn();
    // Owners read no frames until all values have votes.
    while done(&group).iter().zip(&before).any(|(now, before)| now - before < values) {
        std::thread::yield_now();
    }
    assert!(group.nodes[0].device.lost_frame_count() > 0);
    let (mut given, mut voted) = (Vec::new(), Vec::new());
    group.until(|group| {
        for event in group.nodes[0].events.drain(..) {
            match event {
                Event::Assigned(held) => given.push(held),
                Event::Voted(held) => voted.push(held),
                _ => {}
            }
        }
        (given.len() as u64 >= values && voted.len() as u64 >= values).then_some(())
    });
    let slots = |held: &[quorate_offload::owner::SlotValue]| {
        held.iter().map(|held| held.slot.0).collect::<Vec<_>>()
    };
    assert_eq!(slots(&given), (1..=values).collect::<Vec<_>>());
    let mut seen = slots(&voted);
    seen.sort_unstable();
    assert_eq!(seen, slots(&given));
    assert!(group.nodes[0].owner.counts().frames_lost > 0);
}

/// [offload-8] [offload-12] After a fence the owner reads the device's contents, and the device
/// does nothing more.
#[test]
fn fences_and_take_backs_end_what_threads_do() {
    let mut group = group(&Network::new(3, 5, 5, 10), 3, |_| {});
    group.begin();
    for value in 0..20 {
        let (value, bytes) = batch(value);
        group.nodes[0].owner.submit(value, &bytes).unwrap();
    }
    group.turn();
    group.nodes[0].owner.withdraw_coordinator();
    let (next, late) = group.until(|group| {
        group.find(0, |event| match event {
            Event::Withdrawn {
                next, unreported_slots: given, slots_without_value: holes, ..
            } => {
                assert!(holes.is_empty());
                Some((*next, given.clone()))
            }
            _ => None,
        })
    });
    let mut told: Vec<_> = group.nodes[0]
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Assigned(held) => Some(held.clone()),
            _ => None,
        })
        .collect();
    told.extend(late);
    assert!(told.iter().map(|held| held.slot).eq((1..next.0).map(Slot)));
    assert_eq!(told.len() + group.nodes[0].owner.take_unassigned_values().len(), 20);
    for node in 0..3 {
        group.nodes[node].owner.fence();
        let votes = group.until(|group| {
            group.find(node, |event| match event {
                Event::Fenced { votes, ballot } if ballot.is_some() => Some(votes.clone()),
                _ => None,
            })
        });
        for vote in votes {
            let slot = usize::try_from(vote.slot.0).unwrap();
            assert_eq!(number(&vote), number(&told[slot - 1]));
        }
    }
}

/// [offload-9] A device that forgot everything is reported as lost.
#[test]
fn a_device_that_forgets_is_lost() {
    let mut group = group(&Network::new(3, 0, 0, 0), 3, |_| {});
    group.begin();
    group.nodes[1].device.clear_state();
    while group.nodes[1].owner.loss().is_none() {
        group.turn();
        group.wait();
    }
    assert_eq!(group.nodes[1].owner.loss(), Some(LossReason::Boot { found: 0 }));
}

/// In a group of one, all frames stay inside the device.
#[test]
fn a_device_alone_votes_for_its_own_proposals() {
    let mut group = group(&Network::new(3, 100, 0, 0), 1, |_| {});
    group.begin();
    check_all(&group.decide(100), 100);
}
