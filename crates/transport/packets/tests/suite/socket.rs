//! Endpoints over real sockets: loopback, unicast and multicast. Where the network does not allow
//! it, prints the reason for a skip.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
    time::Instant,
};

use quorate_core::{
    node_id::{Member, NodeId},
    time::Time,
};
use quorate_packets::{
    endpoint::{Destination, Endpoint, Event, Settings},
    limits::Limits,
    receive::Delivery,
    socket::{SendResult, SocketError, Udp},
    trust::{GroupIdentity, Key, KeyRing},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::sockopt,
};

const RECEIVE_BYTES: usize = 4 << 20;

fn any_port() -> SocketAddr {
    SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))
}

/// Prints what is not tested, and why. With `QUORATE_NO_SKIPS=true` nothing may be skipped.
fn skip(what: &str, why: &str) {
    let all = std::env::var("QUORATE_NO_SKIPS").is_ok_and(|value| value == "true");
    assert!(!all, "{what} is not tested: {why}");
    eprintln!("skipped: {what}: {why}");
}

/// Waits until a socket is readable, or some milliseconds have passed.
fn wait(sockets: &[&Udp], ms: i64) {
    let mut polled: Vec<_> =
        sockets.iter().map(|socket| PollFd::new(*socket, PollFlags::IN)).collect();
    let timeout = Timespec { tv_sec: 0, tv_nsec: ms * 1_000_000 };
    poll(&mut polled, Some(&timeout)).unwrap();
}

fn receive_all(socket: &mut Udp, wanted: usize) -> Vec<Vec<u8>> {
    let mut seen = Vec::new();
    for _ in 0..1000 {
        while socket.receive(|_, datagram| seen.push(datagram.to_vec())).unwrap() > 0 {}
        if seen.len() >= wanted {
            break;
        }
        wait(&[socket], 10);
    }
    seen
}

/// A run of datagrams is sent in one call, and arrives as the same datagrams, bit for bit, wherever
/// it was split.
#[test]
fn a_run_arrives_as_its_datagrams() {
    let mut to = Udp::bind(any_port(), RECEIVE_BYTES).unwrap();
    let from = Udp::bind(any_port(), RECEIVE_BYTES).unwrap();
    eprintln!("{} segments in a call; {:?}", from.segments_max(), to.buffered());
    for (segments, last) in [(1, 1), (1, 1400), (6, 1400), (40, 77), (64, 1400), (100, 3)] {
        let length = (segments - 1) * 1400 + last;
        let bytes: Vec<u8> = (0..length).map(|at| (at / 7) as u8).collect();
        assert_eq!(from.send(to.local(), &bytes, 1400).unwrap(), SendResult::All);
        let seen = receive_all(&mut to, segments);
        assert_eq!(seen.len(), segments);
        assert!(seen.concat() == bytes && seen[..segments - 1].iter().all(|one| one.len() == 1400));
    }
    assert_eq!(to.receive(|_, _| unreachable!("nothing was sent")).unwrap(), 0);
}

/// [pkt-4] IP does not fragment: the sender refuses a datagram that is too long.
#[test]
fn nothing_is_cut_by_ip() {
    let socket = Udp::bind(any_port(), RECEIVE_BYTES).unwrap();
    let ban = sockopt::ip_mtu_discover(&socket).unwrap();
    assert_eq!(ban, sockopt::Ipv4PathMtuDiscovery::PROBE);
    let sent = socket.send(socket.local(), &[0; 65_508], 65_508).unwrap();
    assert_eq!(sent, SendResult::TooLong);
}

/// A receive buffer is larger than net.core.rmem_max where that is allowed, and otherwise as large.
#[test]
fn a_receive_buffer_is_as_large_as_may_be() {
    let wanted = 64 << 20;
    let buffered = Udp::bind(any_port(), wanted).unwrap().buffered();
    let most = fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap();
    let most: usize = most.trim().parse().unwrap();
    assert!([wanted, wanted.min(most)].contains(&buffered.bytes), "{buffered:?}");
}

#[test]
fn what_cannot_be_is_said() {
    let group = SocketAddr::from(([239, 7, 7, 7], 0));
    let no_group = SocketAddr::from(([10, 0, 0, 1], 7000));
    for (address, interface, text) in [
        (group, "no-such-if", "there is no interface no-such-if"),
        (group, "../lo", "there is no interface ../lo"),
        (no_group, "lo", "10.0.0.1:7000 is no multicast group"),
    ] {
        let failed = Udp::join(address, interface, 1).err().unwrap().to_string();
        assert!(failed.starts_with(text), "{failed}");
    }
    let taken = Udp::bind(any_port(), RECEIVE_BYTES).unwrap();
    let failed = Udp::bind(taken.local(), RECEIVE_BYTES).err().unwrap();
    assert!(matches!(failed, SocketError::Bind { address, .. } if address == taken.local()));
}

/// [pkt-4] Datagrams over IPv6 on loopback: to one node, and to a multicast group.
#[test]
fn datagrams_cross_loopback_by_ipv6() {
    let local = "[::1]:0".parse().unwrap();
    let (mut a, mut b) = match (Udp::bind(local, RECEIVE_BYTES), Udp::bind(local, RECEIVE_BYTES)) {
        (Ok(a), Ok(b)) => (a, b),
        (Err(why), _) | (_, Err(why)) => return skip("datagrams of IPv6", &why.to_string()),
    };
    assert_eq!(a.send(b.local(), &[7; 3000], 1000).unwrap(), SendResult::All);
    assert_eq!(receive_all(&mut b, 3).len(), 3);
    let group = format!("[ff15::5152:1]:{}", b.local().port());
    let group: SocketAddr = group.parse().unwrap();
    let joined = b
        .set_group_interface("lo")
        .and_then(|interface| Ok((Udp::join(group, "lo", RECEIVE_BYTES)?, interface)));
    let (mut heard, interface) = match joined {
        Ok(joined) => joined,
        Err(why) => return skip("multicast of IPv6 on loopback", &why.to_string()),
    };
    match b.send(interface.with_scope_id(group), &[8; 3000], 1000) {
        Ok(sent) => assert_eq!(sent, SendResult::All),
        Err(why) => return skip("multicast of IPv6 on loopback", &why.to_string()),
    }
    if receive_all(&mut heard, 3).is_empty() {
        skip("multicast of IPv6 on loopback", "what was sent did not come back");
    }
    assert_eq!(a.receive(|_, _| ()).unwrap(), 0, "it did not join");
}

struct Node {
    endpoint: Endpoint,
    socket: Udp,
    group: Option<Udp>,
    messages: Vec<Vec<u8>>,
}

impl Node {
    fn new(id: u32, mtu: usize, now: Time) -> Self {
        let settings = Settings {
            own_member: Member::first(id),
            boot: 1,
            group: GroupIdentity { cluster: 5, group: 1, generation: 0 },
            keys: KeyRing::one(1, Key::new([3; 32])).unwrap(),
            limits: Limits {
                // The machine may be slow, so nothing is given up.
                give_up_us_min: 2_000_000,
                ..Limits::for_mtu(mtu)
            },
            delivery: Delivery::InOrder,
            retains_datagrams: true,
            seed: u64::from(id),
        };
        Self {
            endpoint: Endpoint::new(settings, now),
            socket: Udp::bind(any_port(), RECEIVE_BYTES).unwrap(),
            group: None,
            messages: Vec::new(),
        }
    }

    /// Runs one turn: receives, does the work that is due, and sends.
    fn turn(&mut self, now: Time, address: impl Fn(Destination) -> SocketAddr) {
        let Self { endpoint, socket, group, messages } = self;
        let mut handle = |_, datagram: &[u8]| {
            let _ = endpoint.handle(datagram, now);
        };
        socket.receive(&mut handle).unwrap();
        if let Some(group) = group {
            group.receive(&mut handle).unwrap();
        }
        endpoint.poll(now);
        let mut drops = 0;
        while let Some((to, run)) = endpoint.next_data_run(1, now) {
            let sent = socket.send(address(to), run.bytes, run.segment_bytes).unwrap();
            drops += usize::from(sent != SendResult::All);
        }
        if drops > 0 {
            endpoint.record_local_drop(1);
        }
        for one in endpoint.take_control() {
            socket.send(address(one.destination), &one.bytes, one.bytes.len()).unwrap();
        }
        for event in endpoint.take_events() {
            match event {
                Event::Message { bytes, .. } => messages.push(bytes),
                Event::GivenUp { numbers, .. } => panic!("{numbers:?} was given up"),
                _ => {}
            }
        }
    }
}

fn introduce_all(nodes: &mut [Node]) {
    let ids: Vec<NodeId> = (1..).take(nodes.len()).map(NodeId).collect();
    for from in 0..nodes.len() {
        for to in 0..nodes.len() {
            let introduction = nodes[from].endpoint.introduction_for(ids[to]);
            if from != to {
                nodes[to].endpoint.introduce(&introduction);
            }
        }
        nodes[from].endpoint.set_acceptors(&ids);
    }
}

/// Runs turns until all receivers have `wanted` messages.
#[allow(clippy::disallowed_methods, reason = "the clock is the caller's, which is this test")]
fn run(nodes: &mut [Node], group: SocketAddr, wanted: usize) {
    let began = Instant::now();
    let addresses: Vec<SocketAddr> = nodes.iter().map(|node| node.socket.local()).collect();
    let address = |to| match to {
        Destination::Group => group,
        Destination::Node(node) => addresses[node.0 as usize - 1],
    };
    for _ in 0..100_000 {
        let us = u64::try_from(began.elapsed().as_micros()).unwrap();
        for node in &mut *nodes {
            node.turn(Time(us), address);
        }
        if nodes[1..].iter().all(|node| node.messages.len() >= wanted) {
            return;
        }
        let sockets: Vec<&Udp> = nodes
            .iter()
            .flat_map(|node| Some(&node.socket).into_iter().chain(&node.group))
            .collect();
        wait(&sockets, 1);
    }
    let counts: Vec<usize> = nodes.iter().map(|node| node.messages.len()).collect();
    panic!("{counts:?} of {wanted} messages");
}

fn messages() -> Vec<Vec<u8>> {
    let lengths = [0, 1, 1400, 8192, 100_000, 1 << 20];
    (0..60).map(|at| vec![at as u8; lengths[at % lengths.len()]]).collect()
}

#[test]
fn messages_cross_loopback_by_unicast() {
    let mut nodes: Vec<Node> = (1..=2).map(|id| Node::new(id, 1500, Time(0))).collect();
    let to = Member::first(2);
    nodes[0].endpoint.open(1, Some(to), Time(0)).unwrap();
    introduce_all(&mut nodes);
    let all = messages();
    for part in all.chunks(6) {
        for message in part {
            nodes[0].endpoint.send(1, message).unwrap();
        }
        let wanted = nodes[1].messages.len() + part.len();
        run(&mut nodes, any_port(), wanted);
        let next = nodes[0].endpoint.next_number(1).unwrap();
        nodes[0].endpoint.release_to(1, next);
    }
    assert!(nodes[1].messages == all);
    assert_eq!(nodes[1].endpoint.refusals().sum(), 0);
}

#[test]
fn messages_cross_loopback_by_multicast() {
    let mut nodes: Vec<Node> = (1..=3).map(|id| Node::new(id, 1500, Time(0))).collect();
    // Uses a separate port, so that groups of other tests on this machine are not received.
    let port = nodes[0].socket.local().port();
    let group = SocketAddr::from(([239, 255, 77, 77], port));
    for node in &mut nodes {
        let joined = node
            .socket
            .set_group_interface("lo")
            .and_then(|_| Udp::join(group, "lo", RECEIVE_BYTES));
        match joined {
            Ok(socket) => node.group = Some(socket),
            Err(why) => return skip("multicast on loopback", &why.to_string()),
        }
    }
    let heard = {
        let sent = nodes[0].socket.send(group, b"?", 1);
        let group = nodes[1].group.as_mut().unwrap();
        sent.map(|_| receive_all(group, 1).len())
    };
    match heard {
        Ok(0) => return skip("multicast on loopback", "what was sent did not come back"),
        Ok(_) => {}
        Err(why) => return skip("multicast on loopback", &why.to_string()),
    }
    nodes[0].endpoint.open(1, None, Time(0)).unwrap();
    introduce_all(&mut nodes);
    let all = messages();
    for part in all.chunks(6) {
        for message in part {
            nodes[0].endpoint.send(1, message).unwrap();
        }
        let wanted = nodes[1].messages.len() + part.len();
        run(&mut nodes, group, wanted);
        let next = nodes[0].endpoint.next_number(1).unwrap();
        nodes[0].endpoint.release_to(1, next);
    }
    assert!(nodes[1..].iter().all(|node| node.messages == all));
}

/// With two senders, two listeners count everything that was sent with their token, and nothing
/// else.
#[test]
fn what_is_sent_to_a_group_is_counted_by_each_listener() {
    use std::{sync::atomic::AtomicBool, time::Duration};

    use quorate_packets::socket::reach::{
        ReachListener, SenderCounts, parse_group, send_test_datagrams,
    };

    let free = Udp::bind(any_port(), 4096).unwrap().local().port();
    let group = parse_group(&format!("239.81.84.70:{free}")).unwrap();
    let join = |token| ReachListener::join(group, "lo", token);
    let (mut one, mut other, mut deaf) = match (join(7), join(7), join(8)) {
        (Ok(one), Ok(other), Ok(deaf)) => (one, other, deaf),
        (Err(why), ..) => return skip("counting what a group hears", &why.to_string()),
        (_, other, deaf) => panic!("{other:?} {deaf:?}"),
    };
    for sender in [1, 2] {
        let sent = send_test_datagrams(group, "lo", (7, sender), 20, |_| {});
        if let Err(why) = &sent {
            return skip("counting what a group hears", &why.to_string());
        }
        assert_eq!(sent.unwrap(), 20);
    }
    let heard = |sender| SenderCounts { sender, count: 20, repeated_count: 0 };
    // The end is already requested, but waiting datagrams are still counted.
    let (end, left) = (AtomicBool::new(true), || Duration::from_secs(60));
    for listener in [&mut one, &mut other] {
        listener.count_until(left, &end).unwrap();
        assert_eq!(listener.sender_counts(), [heard(1), heard(2)]);
        assert_eq!(listener.foreign_count(), 0);
    }
    deaf.count_until(left, &end).unwrap();
    assert_eq!((deaf.sender_counts(), deaf.foreign_count()), (Vec::new(), 40));
    assert!(matches!(
        ReachListener::join(group, "no-such-if", 7),
        Err(SocketError::Interface { .. })
    ));
}
