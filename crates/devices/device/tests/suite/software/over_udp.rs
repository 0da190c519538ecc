//! Tests of devices over UDP on 127.0.0.1.

use std::net::{SocketAddr, UdpSocket};

use quorate_device::{GroupMembers, Udp, udp};
use quorate_offload::owner::Event;

use crate::software::group::{Group, batch, check_all, settings};

/// Creates devices without members. Returns them with their member lists and all addresses.
fn group() -> (Group, Vec<GroupMembers>, Vec<std::net::SocketAddrV4>) {
    let bound: Vec<(GroupMembers, Udp)> = (0..3)
        .map(|_| {
            let members = GroupMembers::default();
            let udp = Udp::bind("127.0.0.1:0".parse().unwrap(), members.clone()).unwrap();
            (members, udp)
        })
        .collect();
    let (members, wires): (Vec<_>, Vec<_>) = bound.into_iter().unzip();
    let all: Vec<_> = wires.iter().map(Udp::own_address).collect();
    let group = Group::new(
        wires
            .into_iter()
            .map(|wire| {
                let own = udp::address(wire.own_address());
                (settings(own, udp::all_hosts(own.port)), wire)
            })
            .collect(),
    );
    (group, members, all)
}

#[test]
fn a_thousand_values_are_given_out_and_decided() {
    let (mut group, members, all) = group();
    members.iter().for_each(|list| list.set(all.clone()));
    group.begin();
    check_all(&group.decide(1000), 1000);
}

/// Members may be set while devices work. Earlier proposals are then retransmitted.
#[test]
fn members_may_be_told_later() {
    let (mut group, members, all) = group();
    group.begin();
    let (value, bytes) = batch(0);
    group.nodes[0].owner.submit(value, &bytes).unwrap();
    group.until(|group| group.find(0, |event| matches!(event, Event::Assigned(_)).then_some(())));
    assert!(group.find(0, |event| matches!(event, Event::Decided { .. }).then_some(())).is_none());
    members.iter().for_each(|list| list.set(all.clone()));
    group
        .until(|group| group.find(0, |event| matches!(event, Event::Decided { .. }).then_some(())));
    // A follower also learns of votes.
    group.until(|group| group.find(1, |event| matches!(event, Event::Voted(_)).then_some(())));
}

/// Datagrams of strangers, of any length, are dropped.
#[test]
fn what_strangers_send_is_dropped() {
    let (mut group, members, all) = group();
    members.iter().for_each(|list| list.set(all.clone()));
    group.begin();
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    for length in 0..200 {
        let mut bytes = vec![0xb1; length];
        for to in &all {
            stranger.send_to(&bytes, SocketAddr::V4(*to)).unwrap();
            bytes.fill(u8::try_from(length).unwrap());
        }
    }
    check_all(&group.decide(50), 50);
}
