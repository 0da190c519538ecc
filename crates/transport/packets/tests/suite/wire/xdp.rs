//! AF_XDP receives the same frames as the packet socket, which takes over when AF_XDP is removed.

use std::process::Command;

use quorate_packets::ethernet::{
    AllowedModes, ETHER_TYPE, EthernetSocket, FrameRefusal, Mac, ReceiveMode, SendResult, XdpError,
};
use quorate_testbed::{namespace::run_ip, run::read_output};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::wire::cable::{
    A, B, RECEIVE_BYTES, alone, bind, create_cable, drain, exchange_until_up, pattern, skip, wait,
    wait_for_datagrams,
};

const GROUP: Mac = Mac([3, 0, 0, 0, 0, 9]);
const QUEUE_BYTES: usize = 1 << 20;

/// Returns a pair whose right end receives by AF_XDP. If this kernel does not support it, prints
/// the reason and returns `None`.
fn pair(what: &str) -> Option<(EthernetSocket, EthernetSocket)> {
    create_cable();
    let mut a = bind("left");
    let mut b = EthernetSocket::bind("right", ETHER_TYPE, Some(GROUP), RECEIVE_BYTES).unwrap();
    match take(&mut b, AllowedModes::WithCopies) {
        Ok(mode) => assert_eq!(mode, ReceiveMode::XdpCopy, "veth has no other"),
        Err(why @ (XdpError::NoPermission { .. } | XdpError::Unsupported { .. })) => {
            skip(what, &why.to_string());
            return None;
        }
        Err(why) => panic!("{why}"),
    }
    exchange_until_up(&mut a, &mut b);
    Some((a, b))
}

/// Enables AF_XDP, with retries: a closed socket keeps its queue for a moment.
fn take(socket: &mut EthernetSocket, ways: AllowedModes) -> Result<ReceiveMode, XdpError> {
    for _ in 0..500 {
        match socket.try_xdp(QUEUE_BYTES, ways) {
            Err(why) if why.is_temporary() => drop(wait(socket, 10)),
            tried => return tried,
        }
    }
    socket.try_xdp(QUEUE_BYTES, ways)
}

fn is_ready(socket: &EthernetSocket, ms: i64) -> bool {
    let sockets: Vec<_> = socket.xdp_sockets().collect();
    let mut polled: Vec<_> = sockets.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    let timeout = Timespec { tv_sec: 0, tv_nsec: ms * 1_000_000 };
    poll(&mut polled, Some(&timeout)).unwrap() > 0
}

#[test]
fn frames_of_any_length_come_and_go_by_xdp() {
    alone("xdp::frames_of_any_length_come_and_go_by_xdp", || {
        let Some((mut a, mut b)) = pair("AF_XDP") else {
            return;
        };
        for length in [1, 2, 44, 45, 64, 1000, 1497, 1498] {
            let bytes = pattern(length);
            assert_eq!(a.send(B, &bytes, 1500).unwrap(), SendResult::All);
            assert!(is_ready(&b, 999), "{length}");
            assert!(wait(&b, 0).is_empty(), "the packet socket has none");
            assert_eq!(wait_for_datagrams(&mut b, 1), [(A, bytes.clone())]);
            assert_eq!(b.send(A, &bytes, length).unwrap(), SendResult::All);
            assert_eq!(wait_for_datagrams(&mut a, 1), [(B, bytes)]);
        }
        // [pkt-4] Nothing is fragmented.
        assert_eq!(b.send(A, &pattern(1499), 1499).unwrap(), SendResult::TooLong);
        // More frames than a call accepts and than the rings have, so each place is used several
        // times.
        let run = pattern(100 * 1400 + 7);
        for _ in 0..50 {
            assert_eq!(b.send(A, &run, 1400).unwrap(), SendResult::All);
            let heard = wait_for_datagrams(&mut a, 101);
            let bytes: Vec<u8> = heard.into_iter().flat_map(|(_, bytes)| bytes).collect();
            assert!(bytes == run);
            assert_eq!(a.send(B, &run, 1400).unwrap(), SendResult::All);
            let heard = wait_for_datagrams(&mut b, 101);
            let bytes: Vec<u8> = heard.into_iter().flat_map(|(_, bytes)| bytes).collect();
            assert!(bytes == run);
        }
        assert_eq!((b.lost_frame_count().unwrap(), b.refusal_counts().sum()), (0, 0));
        assert_eq!(b.mode(), ReceiveMode::XdpCopy);
    });
}

/// Frames for others are counted and dropped, although the program does not check the destination.
/// Frames of other kinds pass.
#[test]
fn what_is_for_others_is_refused_and_other_kinds_pass() {
    alone("xdp::what_is_for_others_is_refused_and_other_kinds_pass", || {
        let Some((mut a, mut b)) = pair("AF_XDP") else {
            return;
        };
        let other = |name| EthernetSocket::bind(name, ETHER_TYPE + 1, None, RECEIVE_BYTES).unwrap();
        let (mut left, mut right) = (other("left"), other("right"));
        exchange_until_up(&mut left, &mut right);
        let refused = b.refusal_counts().count_of(FrameRefusal::Elsewhere);
        for to in [Mac([2, 0, 0, 0, 0, 0xc]), Mac([3, 0, 0, 0, 0, 8]), Mac::BROADCAST] {
            assert_eq!(a.send(to, b"other", 5).unwrap(), SendResult::All);
        }
        assert_eq!(a.send(GROUP, b"group", 5).unwrap(), SendResult::All);
        assert_eq!(wait_for_datagrams(&mut b, 1), [(A, b"group".to_vec())]);
        assert_eq!(b.refusal_counts().count_of(FrameRefusal::Elsewhere) - refused, 3);
    });
}

#[test]
fn a_full_ring_counts_what_is_lost_and_goes_on() {
    alone("xdp::a_full_ring_counts_what_is_lost_and_goes_on", || {
        let Some((mut a, mut b)) = pair("AF_XDP") else {
            return;
        };
        let lost = b.lost_frame_count().unwrap();
        let sent = pattern(1024);
        assert_eq!(a.send(B, &sent, 1).unwrap(), SendResult::All);
        let heard = wait_for_datagrams(&mut b, 512);
        assert_eq!(heard.len(), 512, "as many as its chunks");
        assert_eq!(b.lost_frame_count().unwrap() - lost, 512);
        assert_eq!(a.send(B, b"end", 3).unwrap(), SendResult::All);
        assert_eq!(wait_for_datagrams(&mut b, 1), [(A, b"end".to_vec())]);
    });
}

/// An interface serves one socket, and is free again a moment after the socket is closed.
#[test]
fn the_second_is_refused_until_the_first_is_gone() {
    alone("xdp::the_second_is_refused_until_the_first_is_gone", || {
        let Some((mut a, b)) = pair("AF_XDP") else {
            return;
        };
        let mut second = bind("right");
        let refused = second.try_xdp(QUEUE_BYTES, AllowedModes::WithCopies).unwrap_err();
        assert!(refused.is_temporary(), "{refused}");
        assert_eq!(second.mode(), ReceiveMode::PacketSocket);
        drop(b);
        assert_eq!(take(&mut second, AllowedModes::WithCopies).unwrap(), ReceiveMode::XdpCopy);
        exchange_until_up(&mut a, &mut second);
    });
}

/// Unless requested, AF_XDP is not used where the device does not write the frames itself or where
/// they do not fit.
#[test]
fn it_is_not_taken_where_it_would_be_no_gain() {
    alone("xdp::it_is_not_taken_where_it_would_be_no_gain", || {
        let Some((_a, b)) = pair("AF_XDP") else {
            return;
        };
        drop(b);
        let mut b = bind("right");
        let refused = take(&mut b, AllowedModes::ZeroCopy).unwrap_err();
        assert!(matches!(refused, XdpError::ZeroCopyUnsupported { .. }), "{refused}");
        run_ip("link set right mtu 9000").unwrap();
        let mut long = bind("right");
        let refused = long.try_xdp(QUEUE_BYTES, AllowedModes::WithCopies).unwrap_err();
        assert!(matches!(refused, XdpError::Mtu { mtu: 9000 }), "{refused}");
    });
}

/// If the operator detaches the program, frames continue on the usual path.
#[test]
fn it_goes_on_without_a_program_that_was_taken_away() {
    alone("xdp::it_goes_on_without_a_program_that_was_taken_away", || {
        let Some((mut a, mut b)) = pair("AF_XDP") else {
            return;
        };
        let links = read_output(Command::new("bpftool").args(["link", "show"]));
        let links = match links {
            Ok(links) => links,
            Err(why) => return skip("a program that is taken away", &why.to_string()),
        };
        let id = id_of_link(&links).expect("a link of this namespace");
        read_output(Command::new("bpftool").args(["link", "detach", "id", &id])).unwrap();
        assert_eq!(a.send(B, b"usual", 5).unwrap(), SendResult::All);
        assert_eq!(wait_for_datagrams(&mut b, 1), [(A, b"usual".to_vec())]);
        assert_eq!(b.mode(), ReceiveMode::PacketSocket);
        assert_eq!(b.xdp_sockets().count(), 0);
        exchange_until_up(&mut a, &mut b);
    });
}

fn id_of_link(links: &str) -> Option<String> {
    let shown = read_output(Command::new("ip").args(["link", "show", "right"])).unwrap();
    let (_, rest) = shown.split_once("prog/xdp id ")?;
    let program = rest.split_whitespace().next()?;
    let of_program = format!("prog {program} ");
    let line = links.lines().find(|line| format!("{line} ").contains(&of_program))?;
    Some(line.split(':').next()?.to_owned())
}

#[test]
fn an_interface_that_is_down_comes_back() {
    alone("xdp::an_interface_that_is_down_comes_back", || {
        let Some((mut a, mut b)) = pair("AF_XDP") else {
            return;
        };
        for _ in 0..3 {
            run_ip("link set right down").unwrap();
            let failed = b.send(A, b"lost", 4).err().unwrap();
            assert!(failed.is_temporary(), "{failed}");
            run_ip("link set right up").unwrap();
            // Frames that were not sent may leave now.
            drain_until_quiet(&mut b);
            exchange_until_up(&mut a, &mut b);
            assert_eq!(b.mode(), ReceiveMode::XdpCopy);
            assert_eq!(a.send(GROUP, b"group", 5).unwrap(), SendResult::All);
            assert_eq!(wait_for_datagrams(&mut b, 1), [(A, b"group".to_vec())]);
        }
        run_ip("link del left").unwrap();
        let gone = (0..1000).any(|_| {
            wait(&b, 10);
            b.receive(|_, _| ()).is_err_and(|failed| !failed.is_temporary())
        });
        assert!(gone && b.mode() == ReceiveMode::PacketSocket);
    });
}

/// Receives until no frames wait. The interface's failure is reported once.
fn drain_until_quiet(socket: &mut EthernetSocket) {
    while socket.receive(|_, _| ()).is_err() {}
    drain(socket, |_, _| ());
}
