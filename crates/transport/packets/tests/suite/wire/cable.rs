//! Test network, and waits that end with a condition.

use std::{env, process::Stdio, sync::OnceLock};

use quorate_packets::ethernet::{ETHER_TYPE, EthernetError, EthernetSocket, Mac, SendResult};
use quorate_testbed::namespace::{self, run_ip};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};

/// Set in the process of a single test inside a namespace.
const INSIDE: &str = "QUORATE_ETHERNET_INSIDE";
/// Size of receive rings, unless a test is about them.
pub(crate) const RECEIVE_BYTES: usize = 1 << 20;
pub(crate) const A: Mac = Mac([2, 0, 0, 0, 0, 0xa]);
pub(crate) const B: Mac = Mac([2, 0, 0, 0, 0, 0xb]);

/// Prints what is not tested, and why. With `QUORATE_NO_SKIPS=true` nothing may be skipped.
pub(crate) fn skip(what: &str, why: &str) {
    let all = env::var("QUORATE_NO_SKIPS").is_ok_and(|value| value == "true");
    assert!(!all, "{what} is not tested: {why}");
    eprintln!("skipped: {what}: {why}");
}

/// Runs the test named `name` in a process and a network namespace of its own.
pub(crate) fn alone(name: &str, test: fn()) {
    static MISSING: OnceLock<Option<String>> = OnceLock::new();
    if namespace::is_inside(INSIDE) {
        stay_here();
        return test();
    }
    let missing = MISSING.get_or_init(|| {
        let why = namespace::check_support("ip link add left type veth peer name right");
        why.map(|why| why.to_string())
    });
    if let Some(why) = missing {
        return skip(name, why);
    }
    let output = namespace::unshare_command()
        .arg(env::current_exe().unwrap())
        .args(["--exact", &format!("wire::{name}"), "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    // A name without a test would also succeed.
    let ran = output.status.success() && said.contains("1 passed");
    assert!(ran, "{name}: {}\n{said}", output.status);
    for line in said.lines().filter(|line| line.starts_with("skipped: ")) {
        eprintln!("{line}");
    }
}

/// Pins this thread to one processor, because a cable preserves the order only of frames that one
/// processor sends.
fn stay_here() {
    let allowed = sched_getaffinity(None).unwrap();
    let first = (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu));
    let mut one = CpuSet::new();
    one.set(first.unwrap());
    sched_setaffinity(None, &one).unwrap();
}

/// Creates two interfaces, `left` and `right`, joined by a cable.
pub(crate) fn create_cable() {
    run_ip(&format!("link add left address {A} type veth peer name right address {B}")).unwrap();
    run_ip("link set left up").unwrap();
    run_ip("link set right up").unwrap();
}

/// Opens a socket of the default EtherType, without a multicast group.
pub(crate) fn bind(interface: &str) -> EthernetSocket {
    EthernetSocket::bind(interface, ETHER_TYPE, None, RECEIVE_BYTES).unwrap()
}

/// Returns sockets at both ends of a cable that works in both directions.
pub(crate) fn pair() -> (EthernetSocket, EthernetSocket) {
    create_cable();
    let (mut a, mut b) = (bind("left"), bind("right"));
    exchange_until_up(&mut a, &mut b);
    (a, b)
}

/// Sends in both directions until frames arrive, because an interface that went up loses some until
/// the kernel has noticed. No frames wait afterwards.
pub(crate) fn exchange_until_up(a: &mut EthernetSocket, b: &mut EthernetSocket) {
    send_until_received(a, b);
    send_until_received(b, a);
}

/// Sends until the other socket receives a frame.
fn send_until_received(from: &mut EthernetSocket, to: &mut EthernetSocket) {
    for _ in 0..1000 {
        assert_ne!(from.send(to.local(), b"hello", 5).unwrap(), SendResult::TooLong);
        wait_any(to, 10);
        let mut heard = 0;
        drain(to, |_, datagram| heard += usize::from(datagram == b"hello"));
        if heard > 0 {
            return;
        }
    }
    panic!("{} does not hear {}", to.local(), from.local());
}

/// Waits until a socket is ready, or some milliseconds have passed. Returns its readiness.
pub(crate) fn wait(socket: &EthernetSocket, ms: i64) -> PollFlags {
    let mut polled = [PollFd::new(socket, PollFlags::IN)];
    let timeout = Timespec { tv_sec: 0, tv_nsec: ms * 1_000_000 };
    poll(&mut polled, Some(&timeout)).unwrap();
    polled[0].revents()
}

/// Waits until any of the socket's descriptors is ready.
pub(crate) fn wait_any(socket: &EthernetSocket, ms: i64) {
    let more: Vec<_> = socket.xdp_sockets().collect();
    let mut polled = vec![PollFd::new(socket, PollFlags::IN)];
    polled.extend(more.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
    let timeout = Timespec { tv_sec: 0, tv_nsec: ms * 1_000_000 };
    poll(&mut polled, Some(&timeout)).unwrap();
}

/// Receives all waiting frames. A ring holds a finite number.
pub(crate) fn drain(socket: &mut EthernetSocket, mut take: impl FnMut(Mac, &[u8])) {
    let ended = (0..1000).any(|_| socket.receive(&mut take).unwrap() == 0);
    assert!(ended, "{} gives the same again and again", socket.local());
}

/// Waits for this many datagrams. Returns those that arrived, with their sources.
pub(crate) fn wait_for_datagrams(
    socket: &mut EthernetSocket,
    wanted: usize,
) -> Vec<(Mac, Vec<u8>)> {
    let mut heard = Vec::new();
    for _ in 0..1000 {
        drain(socket, |from, datagram| heard.push((from, datagram.to_vec())));
        if heard.len() >= wanted {
            break;
        }
        wait_any(socket, 10);
    }
    heard
}

/// Waits until a call returns an error.
pub(crate) fn fails(socket: &mut EthernetSocket) -> EthernetError {
    for _ in 0..1000 {
        match socket.receive(|_, _| ()) {
            Ok(0) => {
                wait(socket, 10);
            }
            Ok(_) => {}
            Err(failed) => return failed,
        }
    }
    panic!("nothing went wrong");
}

/// Returns bytes that depend on their position.
pub(crate) fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 7 + at) as u8).collect()
}
