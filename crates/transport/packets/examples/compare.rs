//! Compares raw Ethernet with UDP over one `veth` pair between two namespaces, alternating: round
//! trips and runs.
//!
//! `cargo run --release -p quorate-packets --example compare`. The figures are only indicative:
//! because the machine does other work, each is the best of several rounds.

#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a measurement for people, with a clock"
)]

use std::{
    env,
    net::SocketAddr,
    process::Child,
    time::{Duration, Instant},
};

use quorate_packets::ethernet::{AllowedModes, ETHER_TYPE, EthernetSocket, Mac, SendResult};
use quorate_packets::socket::Udp;
use quorate_testbed::{
    namespace::{self, run_ip},
    usage::ResourceUsage,
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::{AsFd as _, BorrowedFd},
    thread::{CpuSet, sched_setaffinity},
};

const CHILD_VARIABLE: &str = "QUORATE_COMPARE_INSIDE";
const MACS: [Mac; 2] = [Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2])];
const INTERFACES: [&str; 2] = ["left", "right"];
const RECEIVE_BYTES: usize = 4 << 20;
/// Kinds of sockets to compare: UDP, packet socket, AF_XDP.
const SOCKET_KINDS: [&str; 3] = ["udp", "ethernet", "xdp"];
const ROUNDS: usize = 6;
/// Duration of each measurement.
const MEASURE_TIME: Duration = Duration::from_millis(500);
const SHORT_BYTES: usize = 64;
const LONG_BYTES: usize = 1400;
/// Number of datagrams per call, within the 64 KiB that UDP_SEGMENT accepts.
const RUN_DATAGRAMS: usize = 40;
/// Number of runs in flight.
const RUNS_IN_FLIGHT: usize = 8;
/// Time that a receiver spends on each datagram if `work` is set.
const WORK_PER_DATAGRAM: Duration = Duration::from_nanos(1500);

enum Wire {
    Udp(Udp, SocketAddr),
    Ethernet(EthernetSocket, Mac),
}

impl Wire {
    /// Opens a socket of kind `kind` at one end, 0 or 1.
    fn new(kind: &str, end: usize) -> Self {
        let address = |end: usize| format!("10.213.78.{}:7000", end + 1).parse().unwrap();
        if kind == "udp" {
            let udp = Udp::bind(address(end), RECEIVE_BYTES).unwrap();
            return Self::Udp(udp, address(1 - end));
        }
        let mut ethernet =
            EthernetSocket::bind(INTERFACES[end], ETHER_TYPE, None, RECEIVE_BYTES).unwrap();
        if kind != "ethernet" {
            // A closed socket keeps its queue for a moment.
            while let Err(why) = ethernet.try_xdp(RECEIVE_BYTES, AllowedModes::WithCopies) {
                assert!(why.is_temporary(), "{why}");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        Self::Ethernet(ethernet, MACS[1 - end])
    }

    fn send(&mut self, bytes: &[u8], segment_bytes: usize) -> SendResult {
        match self {
            Self::Udp(udp, to) => udp.send(*to, bytes, segment_bytes).unwrap(),
            Self::Ethernet(ethernet, to) => ethernet.send(*to, bytes, segment_bytes).unwrap(),
        }
    }

    /// Receives the waiting datagrams, and returns how many there were.
    fn receive_waiting(&mut self) -> usize {
        let mut datagrams = 0;
        match self {
            Self::Udp(udp, _) => udp.receive(|_, _| datagrams += 1).unwrap(),
            Self::Ethernet(ethernet, _) => ethernet.receive(|_, _| datagrams += 1).unwrap(),
        };
        datagrams
    }

    /// Receives datagrams, and returns how many there were. Waits for at least one, up to a second
    /// unless it spins.
    fn receive(&mut self, spin: bool) -> usize {
        loop {
            let datagrams = self.receive_waiting();
            if datagrams > 0 || !self.wait(spin) {
                return datagrams;
            }
        }
    }

    /// Waits for a datagram, and returns whether one arrived.
    fn wait(&self, spin: bool) -> bool {
        let second = Timespec { tv_sec: 1, tv_nsec: 0 };
        let ready = |sockets: &[BorrowedFd<'_>]| {
            let mut polled: Vec<_> =
                sockets.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
            poll(&mut polled, Some(&second)).unwrap() > 0
        };
        spin || match self {
            Self::Udp(udp, _) => ready(&[udp.as_fd()]),
            Self::Ethernet(ethernet, _) => {
                let mut all = vec![ethernet.as_fd()];
                all.extend(ethernet.xdp_sockets());
                ready(&all)
            }
        }
    }
}

fn pin_to_cpu(cpu: usize) {
    let mut one = CpuSet::new();
    one.set(cpu);
    sched_setaffinity(None, &one).unwrap();
}

/// Answers each datagram, or each run.
fn answer_datagrams(kind: &str, per_answer: usize, spin: bool, work: bool) -> ! {
    let mut wire = Wire::new(kind, 1);
    let mut waiting = 0;
    loop {
        let datagrams = wire.receive(spin);
        let began = Instant::now();
        while work && began.elapsed() < WORK_PER_DATAGRAM * u32::try_from(datagrams).unwrap() {}
        waiting += datagrams;
        while waiting >= per_answer {
            wire.send(&[1; SHORT_BYTES], SHORT_BYTES);
            waiting -= per_answer;
        }
    }
}

/// The other end, on another processor or the same one.
struct Responder(Child);

impl Responder {
    fn start(words: &[&str], cpu: usize) -> Self {
        let mut command = namespace::namespace_command(1);
        command.arg(env::current_exe().unwrap()).args(words);
        pin_to_cpu(cpu);
        let child = command.env(CHILD_VARIABLE, "1").spawn().unwrap();
        pin_to_cpu(0);
        Self(child)
    }

    fn usage(&self) -> ResourceUsage {
        ResourceUsage::of_process(self.0.id()).unwrap()
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Exchanges runs until the other end answers and no run is in flight.
fn exchange_until_idle(wire: &mut Wire, run: usize) {
    loop {
        for _ in 0..run {
            wire.send(&[0; SHORT_BYTES], SHORT_BYTES);
        }
        if wire.wait(false) {
            break;
        }
    }
    std::thread::sleep(Duration::from_millis(50));
    while wire.receive_waiting() > 0 {}
}

/// Returns the median and the 99th percentile of round trips, and the processor time per direction,
/// in µs.
fn measure_round_trips(kind: &str, spin: bool, cpu: usize) -> [f64; 3] {
    let spins = if spin { "spin" } else { "block" };
    let other = Responder::start(&["answer", kind, "1", spins, "idle"], cpu);
    let mut wire = Wire::new(kind, 0);
    exchange_until_idle(&mut wire, 1);
    let me = || ResourceUsage::of_process(std::process::id()).unwrap();
    let before = me().plus(other.usage());
    let (mut took, start) = (Vec::new(), Instant::now());
    while start.elapsed() < MEASURE_TIME {
        let began = Instant::now();
        wire.send(&[0; SHORT_BYTES], SHORT_BYTES);
        assert!(wire.receive(spin) > 0, "{kind}: a datagram was lost");
        took.push(began.elapsed().as_secs_f64() * 1e6);
    }
    let used = me().plus(other.usage()).since(before).cpu_s();
    let ways = 2.0 * took.len() as f64;
    took.sort_by(f64::total_cmp);
    let part = |of: usize| took[took.len() * of / 100];
    [part(50), part(99), used * 1e6 / ways]
}

/// Returns thousands of datagrams per second, negated, and the processor time per datagram at the
/// sender and at the receiver, in µs.
fn measure_throughput(kind: &str, work: bool) -> [f64; 3] {
    let works = if work { "work" } else { "idle" };
    let run = RUN_DATAGRAMS.to_string();
    let other = Responder::start(&["answer", kind, &run, "block", works], 1);
    let mut wire = Wire::new(kind, 0);
    exchange_until_idle(&mut wire, RUN_DATAGRAMS);
    let bytes = vec![7; RUN_DATAGRAMS * LONG_BYTES];
    let me = || ResourceUsage::of_process(std::process::id()).unwrap();
    let (mine, others, began) = (me(), other.usage(), Instant::now());
    let (mut sent, mut answered) = (0, 0);
    while began.elapsed() < MEASURE_TIME || answered < sent {
        while began.elapsed() < MEASURE_TIME && sent - answered < RUNS_IN_FLIGHT {
            assert_eq!(wire.send(&bytes, LONG_BYTES), SendResult::All);
            sent += 1;
        }
        let answers = wire.receive(false);
        assert!(answers > 0, "{kind}: a datagram was lost");
        answered += answers;
    }
    let datagrams = (answered * RUN_DATAGRAMS) as f64;
    let rate = datagrams / began.elapsed().as_secs_f64() / 1e3;
    let each = |usage: ResourceUsage| usage.cpu_s() * 1e6 / datagrams;
    [-rate, each(me().since(mine)), each(other.usage().since(others))]
}

/// Returns the round with the best first figure.
fn best_round(rounds: &[[f64; 3]]) -> [f64; 3] {
    let better = |a: &&[f64; 3], b: &&[f64; 3]| a[0].total_cmp(&b[0]);
    *rounds.iter().min_by(better).unwrap()
}

fn create_interfaces() {
    namespace::mount_private().unwrap();
    let [left, right] = MACS;
    for words in [
        "netns add n1".to_owned(),
        format!("link add left address {left} type veth peer name right address {right} netns n1"),
        "addr add 10.213.78.1/24 dev left".to_owned(),
        "-n n1 addr add 10.213.78.2/24 dev right".to_owned(),
        "link set left up".to_owned(),
        "-n n1 link set right up".to_owned(),
    ] {
        run_ip(&words).unwrap();
    }
}

fn main() {
    let words: Vec<String> = env::args().skip(1).collect();
    if !namespace::is_inside(CHILD_VARIABLE) {
        panic!("{}", namespace::reenter(CHILD_VARIABLE));
    }
    if let [role, kind, per_answer, spins, works] = &words[..]
        && role == "answer"
    {
        let per_answer = per_answer.parse().unwrap();
        answer_datagrams(kind, per_answer, spins == "spin", works == "work");
    }
    create_interfaces();
    type Measure = fn(&str) -> [f64; 3];
    let measures: [(&str, Measure); 5] = [
        ("round trip, one CPU: p50, p99, CPU/way µs", |kind| measure_round_trips(kind, false, 0)),
        ("round trip, two CPUs: p50, p99, CPU/way µs", |kind| measure_round_trips(kind, false, 1)),
        ("round trip, two CPUs that spin: p50, p99, CPU/way µs", |kind| {
            measure_round_trips(kind, true, 1)
        }),
        ("runs of 40: k/s, CPU µs of sender, receiver", |kind| measure_throughput(kind, false)),
        ("runs of 40, 1.5 µs of work each: k/s, CPU µs of sender, receiver", |kind| {
            measure_throughput(kind, true)
        }),
    ];
    for (name, measure) in measures {
        let mut all = SOCKET_KINDS.map(|_| Vec::new());
        for _ in 0..ROUNDS {
            for (kind, rounds) in SOCKET_KINDS.iter().zip(&mut all) {
                rounds.push(measure(kind));
            }
        }
        for (kind, rounds) in SOCKET_KINDS.iter().zip(&all) {
            let [first, second, third] = best_round(rounds);
            println!("{kind:<8} {name}: {:.2}, {second:.2}, {third:.2}", first.abs());
        }
    }
}
