//! The group under test: kinds of devices, addresses, ballot.

use std::net::{Ipv4Addr, SocketAddrV4};

use quorate_device::xdp::{Hook, Settings};
use quorate_offload::{Address, PackedBallot, Routes, Setup};

use crate::Fallible;

/// Kind of host, which determines how the programs run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The programs run in the kernel, at this hook. An owner reads the tap.
    Kernel(Hook),
    /// The programs run in a process, as a device of `quorate-device` over packet sockets.
    Packet,
    /// The programs run in a process, as a device of `quorate-device` over UDP, with a datagram to
    /// each member.
    Udp,
    /// A loop that only receives, steps and sends, over packet sockets.
    BarePacket,
    /// A loop that only receives, steps and sends, over UDP multicast.
    BareUdp,
}

impl Kind {
    pub(crate) const ALL: [Self; 6] = [
        Self::Kernel(Hook::Native),
        Self::Kernel(Hook::Traffic),
        Self::BarePacket,
        Self::Packet,
        Self::BareUdp,
        Self::Udp,
    ];

    /// Returns the name in commands.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Kernel(Hook::Native) => "xdp",
            Self::Kernel(Hook::Generic) => "generic",
            Self::Kernel(Hook::Traffic) => "tc",
            Self::Packet => "packet",
            Self::Udp => "udp",
            Self::BarePacket => "bare-packet",
            Self::BareUdp => "bare-udp",
        }
    }

    /// Returns the name in the table.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Kernel(Hook::Native) => "kernel, native XDP",
            Self::Kernel(Hook::Generic) => "kernel, generic XDP",
            Self::Kernel(Hook::Traffic) => "kernel, tc",
            Self::Packet => "`quorate-device`, AF_PACKET",
            Self::Udp => "`quorate-device`, UDP",
            Self::BarePacket => "bare loop, AF_PACKET",
            Self::BareUdp => "bare loop, UDP",
        }
    }

    pub(crate) fn of(word: &str) -> Fallible<Self> {
        let generic = Self::Kernel(Hook::Generic);
        let mut all = Self::ALL.into_iter().chain([generic]);
        let found = all.find(|kind| kind.word() == word);
        found.ok_or_else(|| format!("there is no kind {word}").into())
    }

    pub(crate) const fn is_kernel(self) -> bool {
        matches!(self, Self::Kernel(_))
    }

    /// Returns whether hosts and the client communicate over IP.
    pub(crate) const fn is_udp(self) -> bool {
        matches!(self, Self::Udp | Self::BareUdp)
    }
}

pub(crate) const INTERFACE: &str = "wire";
/// Machine of the client. Hosts are 1, 2 and 3, and 1 leads.
pub(crate) const CLIENT: u8 = 9;
pub(crate) const HOSTS: u8 = 3;
pub(crate) const LEADER: u8 = 1;
pub(crate) const PORT: u16 = 47_100;
pub(crate) const BALLOT: PackedBallot = PackedBallot(0x0001_0000_0002_0001);
pub(crate) const BOOT: u32 = 77;
/// Number of cells of each program.
pub(crate) const CELLS: u32 = 1 << 14;
/// Returns the size of a kernel device's tap. It suffices for an owner that polls every few
/// milliseconds; a larger one would not fit into the processor's cache.
const fn tap_bytes(room: usize) -> u32 {
    if room <= 64 { 1 << 20 } else { 1 << 22 }
}

/// Makes the receive buffer large enough for 32 outstanding values, regardless of the machine's
/// default.
pub(crate) fn make_roomy(socket: impl std::os::fd::AsFd) -> Fallible<()> {
    const BYTES: usize = 4 << 20;
    Ok(rustix::net::sockopt::set_socket_recv_buffer_size_force(socket, BYTES)?)
}

pub(crate) fn ip(machine: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 9, 0, machine)
}

pub(crate) fn socket(machine: u8) -> SocketAddrV4 {
    SocketAddrV4::new(ip(machine), PORT)
}

pub(crate) const fn address(machine: u8) -> Address {
    Address { mac: [2, 0, 0, 0, 0, machine], ip: [10, 9, 0, machine], port: PORT }
}

/// Destination of proposals and votes: a multicast group of all hosts.
pub(crate) const ALL_HOSTS: Address =
    Address { mac: [0x03, 0, 0, 0, 0, 0x55], ip: [239, 9, 0, 1], port: PORT };

/// Destination of decisions: a multicast group that includes clients. Devices of `quorate-device`
/// over UDP send them to all hosts instead.
pub(crate) const DECISIONS: Address =
    Address { mac: [0x03, 0, 0, 0, 0, 0x56], ip: [239, 9, 0, 2], port: PORT };

pub(crate) fn setup(host: u8, room: usize) -> Setup {
    let mut owner = address(host);
    owner.mac[0] ^= 4;
    Setup { group: 5, room, own_address: address(host), heard_group: ALL_HOSTS.mac, owner }
}

pub(crate) fn routes() -> Routes {
    Routes::of(&[ALL_HOSTS]).expect("one")
}

pub(crate) fn decisions() -> Routes {
    Routes::of(&[DECISIONS]).expect("one")
}

/// If set, followers send their votes only to the leader, as if the parameters that armed them
/// named it. Measures the cost of the addressing scheme.
pub(crate) const VOTES: &str = "QUORATE_DEVICES_VOTES_TO_LEADER";

pub(crate) fn votes(host: u8) -> Routes {
    if host == LEADER || std::env::var_os(VOTES).is_none() {
        return routes();
    }
    Routes::of(&[address(LEADER)]).expect("one")
}

pub(crate) fn settings(host: u8, room: usize) -> Fallible<Settings> {
    let to = routes();
    Ok(Settings {
        cells: CELLS,
        tap_bytes: tap_bytes(room),
        ..Settings::from_routes(setup(host, room), &votes(host), &to, &decisions())?
    })
}

/// Returns the settings of a device in user space.
pub(crate) fn software(
    host: u8,
    room: usize,
    form: quorate_offload::Encapsulation,
    udp: bool,
) -> quorate_device::Settings {
    let own = if udp { quorate_device::udp::address(socket(host)) } else { address(host) };
    quorate_device::Settings {
        group: 5,
        cells: CELLS,
        room,
        form,
        own_address: own,
        all_hosts: if udp { quorate_device::udp::all_hosts(PORT) } else { ALL_HOSTS },
        decision_address: if udp { quorate_device::udp::all_hosts(PORT) } else { DECISIONS },
        tap_frames: 1 << 14,
    }
}
