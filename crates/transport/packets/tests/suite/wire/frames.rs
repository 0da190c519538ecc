//! Raw Ethernet between two interfaces: every frame that is sent arrives, and no others do.

use std::process::Command;

use quorate_packets::ethernet::{ETHER_TYPE, EthernetSocket, FrameRefusal, Mac, SendResult};
use quorate_testbed::{namespace::run_ip, run::read_output};

use crate::wire::cable::{
    A, B, RECEIVE_BYTES, alone, bind, create_cable, drain, exchange_until_up, pair, pattern,
    wait_for_datagrams,
};

const GROUP: Mac = Mac([3, 0, 0, 0, 0, 9]);

/// Covers frames that Ethernet pads: the shortest datagram, and those around the shortest frame.
#[test]
fn datagrams_of_every_length_go_both_ways() {
    alone("frames::datagrams_of_every_length_go_both_ways", || {
        let (mut a, mut b) = pair();
        assert_eq!((a.local(), b.local(), a.mtu()), (A, B, 1500));
        for length in [1, 2, 43, 44, 45, 46, 1400, a.datagram_bytes_max()] {
            let bytes = pattern(length);
            assert_eq!(a.send(B, &bytes, 1500).unwrap(), SendResult::All);
            assert_eq!(wait_for_datagrams(&mut b, 1), [(A, bytes.clone())]);
            assert_eq!(b.send(A, &bytes, length).unwrap(), SendResult::All);
            assert_eq!(wait_for_datagrams(&mut a, 1), [(B, bytes)]);
        }
        assert_eq!(a.refusal_counts().sum() + b.refusal_counts().sum(), 0);
    });
}

/// A run is split as its sender specified, whether it takes one call or several.
#[test]
fn a_run_arrives_as_its_datagrams() {
    alone("frames::a_run_arrives_as_its_datagrams", || {
        let (mut a, mut b) = pair();
        for (segments, last) in [(1, 1), (2, 1400), (64, 1400), (64, 77), (65, 1), (200, 9)] {
            let bytes = pattern((segments - 1) * 1400 + last);
            assert_eq!(a.send(B, &bytes, 1400).unwrap(), SendResult::All);
            let heard: Vec<_> =
                wait_for_datagrams(&mut b, segments).into_iter().map(|(_, one)| one).collect();
            let lengths: Vec<_> = heard.iter().map(Vec::len).collect();
            let expected: Vec<_> = bytes.chunks(1400).map(<[u8]>::len).collect();
            assert_eq!(lengths, expected);
            assert!(heard.concat() == bytes);
        }
        // An empty run sends nothing.
        assert_eq!(a.send(B, &[], 1400).unwrap(), SendResult::All);
        assert_eq!(a.send(B, b"x", 0).unwrap(), SendResult::All);
        assert_eq!(wait_for_datagrams(&mut b, 1), [(A, b"x".to_vec())]);
        assert_eq!(b.lost_frame_count().unwrap(), 0);
    });
}

/// [pkt-4] Nothing is fragmented: the sender refuses a datagram one byte longer than the MTU
/// allows.
#[test]
fn what_is_too_long_is_refused() {
    alone("frames::what_is_too_long_is_refused", || {
        let (mut a, mut b) = pair();
        let bytes = pattern(1499);
        assert_eq!(a.send(B, &bytes, 1499).unwrap(), SendResult::TooLong);
        assert_eq!(a.send(B, &pattern(70_000), 70_000).unwrap(), SendResult::TooLong);
        assert_eq!(a.send(B, &pattern(70_000), 66_000).unwrap(), SendResult::TooLong);
        // The MTU may shrink, so the interface is queried each time.
        run_ip("link set left mtu 1400").unwrap();
        assert_eq!(a.send(B, &bytes, 1399).unwrap(), SendResult::TooLong);
        assert_eq!(a.send(B, &bytes[..1398], 1398).unwrap(), SendResult::All);
        assert_eq!(wait_for_datagrams(&mut b, 1), [(A, bytes[..1398].to_vec())]);
    });
}

#[test]
fn longer_frames_need_a_longer_mtu() {
    alone("frames::longer_frames_need_a_longer_mtu", || {
        let (mut old_a, mut old_b) = pair();
        run_ip("link set left mtu 9000").unwrap();
        run_ip("link set right mtu 9000").unwrap();
        let (mut a, mut b) = (bind("left"), bind("right"));
        assert_eq!((a.mtu(), a.datagram_bytes_max()), (9000, 8998));
        exchange_until_up(&mut old_a, &mut old_b);
        wait_for_datagrams(&mut b, 1);
        let bytes = pattern(8998);
        assert_eq!(a.send(B, &bytes, 8998).unwrap(), SendResult::All);
        assert_eq!(a.send(B, b"end", 3).unwrap(), SendResult::All);
        let end = (A, b"end".to_vec());
        assert_eq!(wait_for_datagrams(&mut b, 2), [(A, bytes), end.clone()]);
        // A ring that was created for shorter frames does not return a truncated one.
        assert_eq!(wait_for_datagrams(&mut old_b, 1), [end]);
        assert_eq!(old_b.refusal_counts().count_of(FrameRefusal::Cut), 1);
    });
}

/// On a bridge with three cables, hosts that joined receive the multicast group, others do not, and
/// none receives its own frames.
#[test]
fn a_group_reaches_all_who_joined() {
    alone("frames::a_group_reaches_all_who_joined", || {
        run_ip("link add br0 type bridge").unwrap();
        run_ip("link set br0 up").unwrap();
        for node in ["n1", "n2", "n3"] {
            run_ip(&format!("link add {node} type veth peer name {node}-port")).unwrap();
            run_ip(&format!("link set {node}-port master br0 up")).unwrap();
            run_ip(&format!("link set {node} up")).unwrap();
        }
        let join = |node, group| {
            EthernetSocket::bind(node, ETHER_TYPE, Some(group), RECEIVE_BYTES).unwrap()
        };
        let mut members = ["n1", "n2", "n3"].map(|node| join(node, GROUP));
        let (mut single, mut other) = (bind("n2"), join("n2", Mac([3, 0, 0, 0, 0, 8])));
        let [one, two, three] = &mut members;
        exchange_until_up(one, two);
        exchange_until_up(one, three);
        exchange_until_up(two, three);
        for socket in [&mut single, &mut other] {
            drain(socket, |_, _| ());
        }
        let run = pattern(64 * 1000);
        assert_eq!(one.send(GROUP, &run, 1000).unwrap(), SendResult::All);
        for member in [&mut *two, three] {
            let heard = wait_for_datagrams(member, 64);
            assert!(heard.iter().all(|(from, _)| *from == one.local()));
            let parts: Vec<_> = heard.into_iter().map(|(_, part)| part).collect();
            assert!(parts.len() == 64 && parts.concat() == run);
        }
        // All others receive only the frame after it.
        assert_eq!(two.send(one.local(), b"end", 3).unwrap(), SendResult::All);
        assert_eq!(wait_for_datagrams(one, 1), [(two.local(), b"end".to_vec())]);
        assert_eq!(one.send(two.local(), b"end", 3).unwrap(), SendResult::All);
        for socket in [two, &mut single, &mut other] {
            assert_eq!(wait_for_datagrams(socket, 1), [(one.local(), b"end".to_vec())]);
        }
        assert_eq!(single.refusal_counts().count_of(FrameRefusal::Elsewhere), 64);
        assert_eq!(other.refusal_counts().count_of(FrameRefusal::Elsewhere), 64);
    });
}

/// A cable carries every multicast group, so the test checks the kernel's list, which determines
/// what a device passes.
#[test]
fn a_group_is_joined_as_long_as_its_socket_is_open() {
    alone("frames::a_group_is_joined_as_long_as_its_socket_is_open", || {
        create_cable();
        let joined = || {
            let list = read_output(Command::new("ip").args(["maddr", "show", "dev", "left"]));
            list.unwrap().contains(&GROUP.to_string())
        };
        assert!(!joined());
        let socket = EthernetSocket::bind("left", ETHER_TYPE, Some(GROUP), RECEIVE_BYTES);
        assert!(joined());
        drop(socket);
        assert!(!joined());
    });
}

/// Frames for others are refused even if the interface receives everything.
#[test]
fn what_is_for_others_is_not_heard() {
    alone("frames::what_is_for_others_is_not_heard", || {
        let (mut a, mut b) = pair();
        run_ip("link set right promisc on").unwrap();
        let mut neighbour =
            EthernetSocket::bind("left", ETHER_TYPE + 1, None, RECEIVE_BYTES).unwrap();
        assert_eq!(neighbour.send(B, b"type", 4).unwrap(), SendResult::All);
        assert_eq!(a.send(Mac([2, 0, 0, 0, 0, 0xc]), b"c", 1).unwrap(), SendResult::All);
        assert_eq!(a.send(GROUP, b"group", 5).unwrap(), SendResult::All);
        assert_eq!(a.send(Mac::BROADCAST, b"all", 3).unwrap(), SendResult::All);
        assert_eq!(a.send(B, b"end", 3).unwrap(), SendResult::All);
        assert_eq!(wait_for_datagrams(&mut b, 1), [(A, b"end".to_vec())]);
        assert_eq!(b.refusal_counts().count_of(FrameRefusal::Elsewhere), 3);
        // The kernel never shows frames of another EtherType.
        assert_eq!(b.refusal_counts().sum(), 3);
    });
}

/// A frame whose length field is where a VLAN tag belongs is taken for a tagged frame, with a
/// priority or a VLAN. This lets the test send arbitrary tags.
#[test]
fn hostile_frames_are_refused_and_priorities_taken() {
    alone("frames::hostile_frames_are_refused_and_priorities_taken", || {
        let (_, mut b) = pair();
        let mut tagged = EthernetSocket::bind("left", 0x8100, None, RECEIVE_BYTES).unwrap();
        let mut send = |length: u16, data: &[u8], frame_bytes: usize| {
            let (kind, length) = (ETHER_TYPE.to_be_bytes(), length.to_le_bytes());
            let mut frame = [&kind[..], &length, data].concat();
            frame.resize(frame_bytes, 0);
            assert_eq!(tagged.send(B, &frame, frame_bytes).unwrap(), SendResult::All);
        };
        // 48 bytes: priority 1, no VLAN. The rest is padding.
        send(4, b"mine", 48);
        assert_eq!(wait_for_datagrams(&mut b, 1), [(A, b"mine".to_vec())]);
        send(44, &[7; 44], 48);
        assert_eq!(wait_for_datagrams(&mut b, 1), [(A, vec![7; 44])]);
        for length in [0, 45, 1498, u16::MAX] {
            send(length, b"lies", 48);
        }
        // 49 bytes: VLAN 256, priority 1.
        send(4, b"vlan", 49);
        send(4, b"end.", 48);
        assert_eq!(wait_for_datagrams(&mut b, 1), [(A, b"end.".to_vec())]);
        assert_eq!(b.refusal_counts().count_of(FrameRefusal::Length), 4);
        let vlan = [FrameRefusal::Vlan, FrameRefusal::Elsewhere]
            .map(|why| b.refusal_counts().count_of(why));
        assert_eq!(vlan.iter().sum::<u64>(), 1, "{vlan:?}");
        assert_eq!(b.refusal_counts().sum(), 5);
    });
}
