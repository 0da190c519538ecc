//! Raw frames arrive unchanged and whole.

use std::time::Duration;

use quorate_packets::ethernet::{EthernetError, Mac, RawSocket, raw::ReceiveFilter};
use quorate_testbed::namespace::run_ip;

use crate::wire::cable::{A, B, alone, create_cable, pattern};

const NUMBER: u16 = 0x88b6;
const GROUP: Mac = Mac([3, 0, 0, 0, 0, 1]);

fn frame(to: Mac, length: usize) -> Vec<u8> {
    let header = [&to.0[..], &A.0, &NUMBER.to_be_bytes()].concat();
    [header, pattern(length)].concat()
}

#[test]
fn frames_come_as_they_were_sent() {
    alone("raw::frames_come_as_they_were_sent", || {
        create_cable();
        let left = RawSocket::open("left", ReceiveFilter::Nothing, None).unwrap();
        let right =
            RawSocket::open("right", ReceiveFilter::EtherType(NUMBER), Some(GROUP)).unwrap();
        right.set_receive_timeout(Some(Duration::from_secs(5))).unwrap();
        assert_eq!((left.local(), right.local()), (A, B));
        let mut buffer = [0; 600];
        assert_eq!(right.try_receive(&mut buffer).unwrap(), None);
        // An interface that went up loses frames until the kernel has noticed.
        let hello = frame(B, 50);
        let heard = (0..1000).any(|_| {
            left.send(&hello).unwrap();
            right.set_receive_timeout(Some(Duration::from_millis(10))).unwrap();
            right.receive(&mut buffer).unwrap() == Some(&hello[..])
        });
        assert!(heard);
        while right.try_receive(&mut buffer).unwrap().is_some() {}
        right.set_receive_timeout(Some(Duration::from_secs(5))).unwrap();
        for sent in [frame(B, 46), frame(GROUP, 500)] {
            assert!(left.send(&sent).unwrap());
            assert_eq!(right.receive(&mut buffer).unwrap(), Some(&sent[..]));
        }
        // The frame is too long for the receiver's buffer. It is dropped, and the next one is
        // intact.
        assert!(left.send(&frame(B, 700)).unwrap());
        assert_eq!(right.receive(&mut buffer).unwrap(), None);
        assert!(left.send(&frame(B, 60)).unwrap());
        assert_eq!(right.receive(&mut buffer).unwrap(), Some(&frame(B, 60)[..]));
        // A send-only socket receives nothing, and no socket receives its own frames.
        let mut back = frame(A, 60);
        back[6..12].copy_from_slice(&B.0);
        assert!(right.send(&back).unwrap());
        assert_eq!(left.try_receive(&mut buffer).unwrap(), None);
        assert_eq!(right.try_receive(&mut buffer).unwrap(), None);
    });
}

#[test]
fn what_becomes_of_the_interface_is_known() {
    alone("raw::what_becomes_of_the_interface_is_known", || {
        create_cable();
        let left = RawSocket::open("left", ReceiveFilter::Nothing, None).unwrap();
        assert_eq!(left.is_up(), Some(true));
        run_ip("link set left down").unwrap();
        assert_eq!(left.is_up(), Some(false));
        assert!(matches!(left.send(&frame(B, 60)), Err(EthernetError::InterfaceDown { .. })));
        run_ip("link del left").unwrap();
        assert_eq!(left.is_up(), None);
        // Another interface of the same name is not this one.
        create_cable();
        assert_eq!(left.is_up(), None);
        assert!(matches!(left.send(&frame(B, 60)), Err(EthernetError::InterfaceGone { .. })));
        let no_group = RawSocket::open("left", ReceiveFilter::Nothing, Some(A));
        assert!(matches!(no_group, Err(EthernetError::NotMulticast(A))));
    });
}
