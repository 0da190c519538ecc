//! Full rings and queues: frames for which there is no space are counted, and later ones pass.

use quorate_packets::ethernet::{ETHER_TYPE, EthernetSocket, SendResult};
use quorate_testbed::{namespace::run_ip, run::read_output};
use rustix::{
    event::PollFlags,
    process::{Resource, Rlimit, getrlimit, setrlimit},
};

use crate::wire::cable::{
    A, B, alone, bind, create_cable, exchange_until_up, pair, pattern, skip, wait,
    wait_for_datagrams,
};

#[test]
fn a_full_ring_loses_what_is_newest_and_counts_it() {
    alone("rings::a_full_ring_loses_what_is_newest_and_counts_it", || {
        create_cable();
        let (mut a, mut b) =
            (bind("left"), EthernetSocket::bind("right", ETHER_TYPE, None, 1).unwrap());
        exchange_until_up(&mut a, &mut b);
        let frames = b.receive_buffer_size().frames_max;
        assert!((1..100).contains(&frames), "{}", b.receive_buffer_size());
        let lost = b.lost_frame_count().unwrap();
        // Goes round more than once, to use every place of the ring.
        for round in 0..100 {
            let sent: Vec<u8> = (0..frames + 7).map(|at| (at + round) as u8).collect();
            assert_eq!(a.send(B, &sent, 1).unwrap(), SendResult::All);
            let heard = wait_for_datagrams(&mut b, frames);
            let heard: Vec<u8> = heard.into_iter().map(|(_, bytes)| bytes[0]).collect();
            assert_eq!(heard, sent[..frames]);
            assert_eq!(b.lost_frame_count().unwrap() - lost, 7 * (round as u64 + 1));
        }
        assert_eq!(a.send(B, b"end", 3).unwrap(), SendResult::All);
        assert_eq!(wait_for_datagrams(&mut b, 1), [(A, b"end".to_vec())]);
    });
}

/// [rate-2] Frames refused by the interface's queue are reported, and the socket continues when
/// there is space.
#[test]
fn a_full_queue_drops_the_rest_of_a_run() {
    alone("rings::a_full_queue_drops_the_rest_of_a_run", || {
        let (mut a, mut b) = pair();
        // Some frames at once, then 8 Mbit/s.
        let shape = "qdisc add dev left root tbf rate 8mbit burst 3000 limit 9000";
        let tc = read_output(std::process::Command::new("tc").args(shape.split(' ')));
        if let Err(why) = tc {
            return skip("a full queue", &why.to_string());
        }
        let run = pattern(64 * 1000);
        let SendResult::Dropped(dropped) = a.send(B, &run, 1000).unwrap() else {
            panic!("nothing was dropped");
        };
        assert!((1..64).contains(&dropped), "{dropped}");
        let heard = wait_for_datagrams(&mut b, 64 - dropped);
        let bytes: Vec<u8> = heard.into_iter().flat_map(|(_, bytes)| bytes).collect();
        assert!(bytes == run[..(64 - dropped) * 1000], "{dropped}");
        assert_eq!(a.send(B, b"end", 3).unwrap(), SendResult::All);
        assert_eq!(wait_for_datagrams(&mut b, 1), [(A, b"end".to_vec())]);
    });
}

/// A socket is ready while a frame waits, and no longer once the frame has been received.
#[test]
fn a_frame_wakes_who_waits_for_it() {
    alone("rings::a_frame_wakes_who_waits_for_it", || {
        let (mut a, mut b) = pair();
        for _ in 0..2000 {
            assert!(wait(&b, 0).is_empty());
            assert_eq!(a.send(B, b"wake", 4).unwrap(), SendResult::All);
            assert_eq!(wait(&b, 999), PollFlags::IN);
            assert_eq!(wait_for_datagrams(&mut b, 1).len(), 1);
        }
    });
}

/// A ring that cannot be mapped is halved until it can.
#[test]
fn a_ring_is_as_large_as_memory_allows() {
    alone("rings::a_ring_is_as_large_as_memory_allows", || {
        create_cable();
        let mut a = bind("left");
        let status = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: u64 = status.split(' ').next().unwrap().parse().unwrap();
        let used = pages * rustix::param::page_size() as u64;
        let before = getrlimit(Resource::As);
        let limit = |more: u64| Rlimit { current: Some(used + more), ..before };
        setrlimit(Resource::As, limit(20 << 20)).unwrap();
        let mut b = EthernetSocket::bind("right", ETHER_TYPE, None, 64 << 20).unwrap();
        setrlimit(Resource::As, before).unwrap();
        assert_eq!(b.receive_buffer_size().bytes, 16 << 20);
        assert!(b.receive_buffer_size().is_far_below_request());
        exchange_until_up(&mut a, &mut b);
        drop(b);
        setrlimit(Resource::As, limit(1 << 10)).unwrap();
        let failed = EthernetSocket::bind("right", ETHER_TYPE, None, 64 << 20).err().unwrap();
        setrlimit(Resource::As, before).unwrap();
        assert!(failed.to_string().contains("ring of 65536 bytes"), "{failed}");
    });
}

/// A ring belongs to its socket: a frame taken from one is still in another, possibly on another
/// thread.
#[test]
fn two_sockets_of_an_interface_hear_everything() {
    alone("rings::two_sockets_of_an_interface_hear_everything", || {
        let (mut a, mut b) = pair();
        let mut too = bind("right");
        assert_eq!(a.send(B, b"both", 4).unwrap(), SendResult::All);
        let all = vec![(A, b"both".to_vec())];
        assert_eq!(wait_for_datagrams(&mut b, 1), all);
        let other = std::thread::spawn(move || wait_for_datagrams(&mut too, 1));
        assert_eq!(other.join().unwrap(), all);
        run_ip("link set left down").unwrap();
    });
}
