//! Test network: machines (network namespaces), a bridge between them, and a client.

use std::{
    env,
    fs::File,
    os::fd::AsFd as _,
    process::{Child, Command, Stdio},
    sync::OnceLock,
    thread,
    time::Duration,
};

use quorate_device::xdp::{PassProgram, Settings, XdpError};
use quorate_offload::{Address, Encapsulation, Header, Routes, Setup, link::ETHER_TYPE};
use quorate_packets::ethernet::{Mac, RawSocket, raw::ReceiveFilter};
use quorate_testbed::namespace::{self, run_ip};
use rustix::thread::{
    CpuSet, LinkNameSpaceType, move_into_link_name_space, sched_getaffinity, sched_setaffinity,
};

use crate::kernel::desk::{ROOM, address, room};

/// Set in the process of a single test inside its namespaces.
const INSIDE: &str = "QUORATE_XDP_INSIDE";
/// Name of each machine's interface.
pub(crate) const INTERFACE: &str = "wire";
/// Multicast group of all hosts.
pub(crate) const GROUP: Address =
    Address { mac: [3, 0, 0, 0, 0, 0x55], ip: [239, 0, 0, 0x55], port: 47_100 };
/// Destination of decisions: a multicast group that includes clients.
pub(crate) const DECISIONS: Address =
    Address { mac: [3, 0, 0, 0, 0, 0x56], ip: [239, 0, 0, 0x56], port: 47_100 };
/// Number of the client; hosts are 1, 2 and 3.
pub(crate) const CLIENT: u8 = 9;

/// Prints what is not tested, and why. With `QUORATE_NO_SKIPS=true` that is a failure.
pub(crate) fn skip(what: &str, why: &str) {
    let all = env::var("QUORATE_NO_SKIPS").is_ok_and(|value| value == "true");
    assert!(!all, "{what} is not tested: {why}");
    eprintln!("skipped: {what}: {why}");
}

/// Runs the test named `name` in a process and namespaces of its own.
pub(crate) fn alone(name: &str, test: fn()) {
    static MISSING: OnceLock<Option<String>> = OnceLock::new();
    if namespace::is_inside(INSIDE) {
        if word().is_none() {
            namespace::mount_private().unwrap();
        }
        stay_here();
        return test();
    }
    let missing = MISSING.get_or_init(|| {
        let trial = "ip link add switch type bridge && mount -t bpf bpf /sys/fs/bpf";
        let why = namespace::check_support(trial);
        why.map(|why| why.to_string()).or_else(may_not_load)
    });
    if let Some(why) = missing {
        return skip(name, why);
    }
    let output = namespace::unshare_command()
        .arg(env::current_exe().unwrap())
        .args(["--exact", &format!("kernel::{name}"), "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    // A name without a test would also succeed.
    let ran = output.status.success() && said.contains("1 passed");
    assert!(ran, "{name}: {}\n{said}", output.status);
}

fn may_not_load() -> Option<String> {
    let loaded = quorate_device::xdp::Device::load(
        quorate_device::xdp::Role::Acceptor,
        &crate::kernel::desk::settings(64),
    );
    let failed = loaded.err().filter(XdpError::is_unsupported);
    failed.map(|failed| failed.to_string())
}

/// Pins this thread and its children to one processor, because a bridge preserves order only per
/// processor.
fn stay_here() {
    let allowed = sched_getaffinity(None).unwrap();
    let first = (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu));
    let mut one = CpuSet::new();
    one.set(first.unwrap());
    sched_setaffinity(None, &one).unwrap();
}

/// Creates `hosts` hosts and a client, each on a machine of its own, and a bridge. Without the
/// returned guards, frames that hosts return by XDP are lost.
pub(crate) fn lay(hosts: u8) -> Vec<PassProgram> {
    run_ip("link add switch type bridge mcast_snooping 0").unwrap();
    run_ip("link set switch up").unwrap();
    (1..=hosts).chain([CLIENT]).map(wire).collect()
}

fn wire(machine: u8) -> PassProgram {
    let mac = Mac(address(machine).mac);
    let words = [
        format!("netns add n{machine}"),
        format!(
            "link add p{machine} type veth peer name {INTERFACE} address {mac} netns n{machine}"
        ),
        format!("link set p{machine} master switch up"),
        format!("-n n{machine} link set {INTERFACE} up"),
    ];
    words.iter().for_each(|words| run_ip(words).unwrap());
    PassProgram::attach(&format!("p{machine}")).unwrap()
}

/// Adds a VLAN interface to a machine. Returns whether the kernel supports it.
pub(crate) fn vlan(machine: u8, name: &str, id: u16) -> bool {
    let made =
        run_ip(&format!("-n n{machine} link add link {INTERFACE} name {name} type vlan id {id}"));
    if let Err(why) = made {
        skip(&format!("an interface of VLAN {id}"), &why.to_string());
        return false;
    }
    run_ip(&format!("-n n{machine} link set {name} up")).unwrap();
    true
}

/// Runs a closure on a machine. Descriptors opened there stay on that machine.
pub(crate) fn at<T: Send>(machine: u8, does: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let there = scope.spawn(|| {
            let place = File::open(format!("/run/netns/n{machine}")).unwrap();
            let network = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(place.as_fd(), network).unwrap();
            does()
        });
        there.join().unwrap()
    })
}

/// Returns the command that runs this test again in another process, on a machine, with a word that
/// selects its task.
pub(crate) fn again(name: &str, machine: u8, word: &str) -> Command {
    let mut command = namespace::namespace_command(machine.into());
    command
        .arg(env::current_exe().unwrap())
        .args(["--exact", &format!("kernel::{name}"), "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1")
        .env(WORD, word);
    command
}

const WORD: &str = "QUORATE_XDP_WORD";

/// Returns the word passed to this process, if it is a child.
pub(crate) fn word() -> Option<String> {
    env::var(WORD).ok()
}

pub(crate) fn settings(host: u8, cells: u32) -> Settings {
    let [route, decisions] = [GROUP, DECISIONS].map(|to| Routes::of(&[to]).unwrap());
    let setup = Setup {
        group: 5,
        room: ROOM,
        own_address: address(host),
        heard_group: GROUP.mac,
        owner: address(host + 100),
    };
    Settings {
        cells,
        tap_bytes: 1 << 22,
        ..Settings::from_routes(setup, &route, &route, &decisions).unwrap()
    }
}

/// Client that submits values from outside.
pub(crate) struct Client(RawSocket);

impl Client {
    pub(crate) fn new() -> Self {
        Self::on(INTERFACE)
    }

    /// Creates a client on another interface than the usual one.
    pub(crate) fn on(interface: &str) -> Self {
        let hears = ReceiveFilter::EtherType(ETHER_TYPE);
        let socket =
            at(CLIENT, || RawSocket::open(interface, hears, Some(Mac(DECISIONS.mac))).unwrap());
        socket.set_receive_timeout(Some(Duration::from_secs(5))).unwrap();
        Self(socket)
    }

    pub(crate) fn send(&self, host: u8, header: &Header) {
        self.send_from(&address(CLIENT), &address(host), header);
    }

    /// Sends to the group, which includes that host, with this host's address as the source.
    pub(crate) fn claim(&self, host: u8, header: &Header) {
        self.send_from(&address(host), &GROUP, header);
    }

    /// Sends a frame with a VLAN tag.
    pub(crate) fn send_tagged(&self, host: u8, vlan: u16, header: &Header) {
        let mut buffer = vec![0; 200];
        let room = room(header.value.counter);
        let (from, to) = (address(CLIENT), address(host));
        let frame = Encapsulation::Raw.write_frame(&mut buffer, &from, &to, header, &room);
        let (addresses, rest) = frame.unwrap().split_at(12);
        let tag = [[0x81, 0], vlan.to_be_bytes()].concat();
        let tagged = [addresses, &tag, rest].concat();
        assert!(self.0.send(&tagged).unwrap(), "no room on the wire");
    }

    fn send_from(&self, from: &Address, to: &Address, header: &Header) {
        let mut buffer = vec![0; 200];
        let room = room(header.value.counter);
        let frame = Encapsulation::Raw.write_frame(&mut buffer, from, to, header, &room);
        assert!(self.0.send(frame.unwrap()).unwrap(), "no room on the wire");
    }

    /// Returns a pending frame, if there is one.
    pub(crate) fn hear_at_once(&self) -> Option<(Header, Vec<u8>)> {
        let mut buffer = [0; 200];
        let frame = self.0.try_receive(&mut buffer).unwrap()?;
        let (header, room) = crate::kernel::desk::parse(Encapsulation::Raw, frame);
        Some((header, room.to_vec()))
    }

    /// Waits some seconds for the next frame.
    pub(crate) fn hear(&self) -> Option<(Header, Vec<u8>)> {
        let mut buffer = [0; 200];
        let frame = self.0.receive(&mut buffer).unwrap()?;
        let (header, room) = crate::kernel::desk::parse(Encapsulation::Raw, frame);
        Some((header, room.to_vec()))
    }
}

/// A child process that does not outlive its test.
pub(crate) struct Another(pub(crate) Child);

impl Drop for Another {
    fn drop(&mut self) {
        // The process may already have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
