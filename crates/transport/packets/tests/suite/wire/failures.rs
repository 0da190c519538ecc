//! Failures of interfaces: errors are reported with advice, and temporary failures are survived.

use std::thread;

use quorate_packets::ethernet::{ETHER_TYPE, EthernetError, EthernetSocket, Mac, SendResult};
use quorate_testbed::namespace::run_ip;
use rustix::{
    event::PollFlags,
    io::Errno,
    thread::{CapabilitySet, capabilities, set_capabilities},
};

use crate::wire::cable::{
    A, B, RECEIVE_BYTES, alone, bind, create_cable, exchange_until_up, fails, pair, skip, wait,
    wait_for_datagrams,
};

fn refused(interface: &str, ether_type: u16, group: Option<Mac>) -> EthernetError {
    let bound = EthernetSocket::bind(interface, ether_type, group, RECEIVE_BYTES);
    bound.err().unwrap()
}

#[test]
fn what_cannot_be_bound_says_why() {
    alone("failures::what_cannot_be_bound_says_why", || {
        create_cable();
        for name in ["no-such-if", "a-name-of-16-byte", "", "../left", "left%d"] {
            let failed = refused(name, ETHER_TYPE, None);
            let text = format!("there is no interface {name}: ");
            assert!(matches!(failed, EthernetError::Interface { .. }), "{failed}");
            assert!(failed.to_string().starts_with(&text), "{failed}");
        }
        for ether_type in [0, 3, 0x05ff] {
            let failed = refused("left", ether_type, None);
            assert!(matches!(failed, EthernetError::InvalidEtherType(_)), "{failed}");
        }
        for address in [A, Mac::BROADCAST] {
            let failed = refused("left", ETHER_TYPE, Some(address));
            assert!(matches!(failed, EthernetError::NotMulticast(_)), "{failed}");
        }
    });
}

#[test]
fn an_interface_without_ethernet_is_refused() {
    alone("failures::an_interface_without_ethernet_is_refused", || {
        if let Err(why) = run_ip("tuntap add t mode tun") {
            return skip("an interface without Ethernet", &why.to_string());
        }
        let failed = refused("t", ETHER_TYPE, None);
        assert!(matches!(failed, EthernetError::NotEthernet { .. }), "{failed}");
        // Loopback has no wire, but uses the same frames.
        run_ip("link set lo up").unwrap();
        let mut lo = bind("lo");
        assert_eq!(lo.send(lo.local(), b"loop", 4).unwrap(), SendResult::All);
        assert_eq!(wait_for_datagrams(&mut lo, 1), [(Mac([0; 6]), b"loop".to_vec())]);
    });
}

/// Reports a missing capability. Capabilities belong to a thread, so dropping them affects only the
/// thread of this test.
#[test]
fn without_the_right_it_says_which() {
    let bind = || {
        let mut rights = capabilities(None).unwrap();
        rights.effective -= CapabilitySet::NET_RAW;
        set_capabilities(None, rights).unwrap();
        refused("lo", ETHER_TYPE, None)
    };
    let failed = thread::spawn(bind).join().unwrap();
    if let EthernetError::SocketOption { source, .. } = &failed
        && source.raw_os_error() == Some(Errno::AFNOSUPPORT.raw_os_error())
    {
        return skip("missing rights", &failed.to_string());
    }
    assert!(matches!(failed, EthernetError::NoPermission { .. }), "{failed}");
    assert!(failed.to_string().contains("setcap cap_net_raw+ep"));
}

/// Frames that arrived earlier are received first. Then the error is reported, once when receiving
/// and for each send. Then the socket works again, with its multicast group.
#[test]
fn an_interface_that_is_down_comes_back() {
    alone("failures::an_interface_that_is_down_comes_back", || {
        create_cable();
        let group = Mac([3, 0, 0, 0, 0, 9]);
        let join =
            |name| EthernetSocket::bind(name, ETHER_TYPE, Some(group), RECEIVE_BYTES).unwrap();
        let (mut a, mut b) = (join("left"), join("right"));
        exchange_until_up(&mut a, &mut b);
        for _ in 0..3 {
            assert_eq!(a.send(B, b"before", 6).unwrap(), SendResult::All);
            run_ip("link set right down").unwrap();
            assert!(wait(&b, 999).contains(PollFlags::ERR));
            assert_eq!(receive_one(&mut b), b"before");
            let failed = fails(&mut b);
            assert!(failed.is_temporary(), "{failed}");
            assert_eq!(
                failed.to_string(),
                "right is down: `ip link set right up`, and the socket goes on"
            );
            assert_eq!(b.receive(|_, _| ()).unwrap(), 0);
            assert!(wait(&b, 0).is_empty());
            for _ in 0..2 {
                let failed = b.send(A, b"lost", 4).err().unwrap();
                assert!(failed.is_temporary(), "{failed}");
            }
            // The other end has no carrier. What it sends is lost, and reported until the kernel
            // has noticed.
            let sent = a.send(B, b"lost", 4).unwrap();
            assert!(matches!(sent, SendResult::All | SendResult::Dropped(1)), "{sent:?}");
            run_ip("link set right up").unwrap();
            exchange_until_up(&mut a, &mut b);
            assert_eq!(a.send(group, b"group", 5).unwrap(), SendResult::All);
            assert_eq!(wait_for_datagrams(&mut b, 1), [(A, b"group".to_vec())]);
        }
        // An interface that was never up behaves the same.
        run_ip("link set left down").unwrap();
        let mut late = bind("left");
        assert!(fails(&mut late).is_temporary());
        run_ip("link set left up").unwrap();
        exchange_until_up(&mut late, &mut b);
    });
}

fn receive_one(socket: &mut EthernetSocket) -> Vec<u8> {
    let mut heard = Vec::new();
    let frames = socket.receive(|_, datagram| heard = datagram.to_vec());
    assert_eq!(frames.unwrap(), 1);
    heard
}

#[test]
fn an_interface_that_is_removed_is_gone() {
    alone("failures::an_interface_that_is_removed_is_gone", || {
        let (mut a, mut b) = pair();
        run_ip("link del left").unwrap();
        for (socket, name) in [(&mut a, "left"), (&mut b, "right")] {
            let failed = fails(socket);
            assert!(matches!(failed, EthernetError::InterfaceGone { .. }), "{failed}");
            assert!(!failed.is_temporary() && failed.to_string().starts_with(name));
            for _ in 0..2 {
                let failed = socket.send(A, b"lost", 4).err().unwrap();
                assert!(matches!(failed, EthernetError::InterfaceGone { .. }), "{failed}");
            }
        }
        // A new interface of the same name is another one.
        create_cable();
        let (mut new_a, mut new_b) = (bind("left"), bind("right"));
        exchange_until_up(&mut new_a, &mut new_b);
        let failed = a.send(B, b"lost", 4).err().unwrap();
        assert!(matches!(failed, EthernetError::InterfaceGone { .. }), "{failed}");
    });
}
