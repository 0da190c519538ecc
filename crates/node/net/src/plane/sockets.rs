//! Opens the sockets of a plane: the configured kind, or the best kind that this machine supports,
//! with the reason for any fallback.

use std::{
    fmt, fs,
    net::{IpAddr, SocketAddr},
    thread,
    time::Duration,
};

use quorate_core::dice::Dice;
use quorate_packets::ethernet::{AllowedModes, ETHER_TYPE, EthernetSocket};
use quorate_packets::{
    limits::{DATAGRAM_BYTES_MIN, IPV4_UDP_HEADER_BYTES, IPV6_EXTRA_BYTES, Limits},
    socket::{
        Interface, ReceiveBufferSize, SocketError, Udp,
        interface::{interface_having, interface_towards},
    },
};
use quorate_replica::status::PlaneKind;
use thiserror::Error;

use super::{
    keys::KeyFile,
    losing::SimulatedLoss,
    wanted::{FrameAccess, GROUP_ADDRESS, GROUP_ADDRESS_V6, PlaneSettings},
    wire::Wire,
};

/// Default size in bytes of the kernel's receive buffer for datagrams.
const DEFAULT_RECEIVE_BYTES: usize = 16 << 20;
/// Receive buffer size in bytes for each AF_XDP queue of an interface.
const XDP_QUEUE_BYTES: usize = 8 << 20;
/// Maximum number of attempts to acquire a queue that is in use, over 0.8 s in total.
const XDP_ATTEMPTS_MAX: u32 = 40;
const XDP_RETRY_INTERVAL: Duration = Duration::from_millis(20);
/// MTU assumed for an interface that does not report one.
const DEFAULT_MTU: usize = 1500;
/// Speed in Mbit/s assumed for an interface that does not report one.
const DEFAULT_MEGABITS: u64 = 10_000;
const BYTES_PER_MEGABIT: u64 = 125_000;
pub(crate) const LOOPBACK_INTERFACE: &str = "lo";
/// Speed in Mbit/s assumed within a machine.
const LOOPBACK_MEGABITS: u64 = 40_000;

/// Datagram sockets of this node, with their settings.
pub struct Sockets {
    pub(crate) wire: Wire,
    /// Limits derived from the interface's capacity.
    pub(crate) limits: Limits,
    /// Reason for a fallback from the configured transport; `None` if there was no fallback.
    pub(crate) fallback_reason: Option<String>,
    pub(crate) keys: Option<KeyFile>,
    /// Simulated loss of received datagrams, for tests.
    pub(crate) simulated_loss: SimulatedLoss,
    /// Frames to all peers are passed along a chain of nodes ([chain-1]).
    pub(crate) uses_chain: bool,
    /// The transport is chosen while the node runs ([plane-3]).
    pub(crate) chooses_plane: bool,
}

impl fmt::Debug for Sockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sockets")
            .field("way", &self.plane_kind())
            .field("address", &self.wire.address())
            .finish_non_exhaustive()
    }
}

/// Reason for refusing the settings of a plane.
#[derive(Debug, Error)]
pub enum PlaneRefusal {
    /// Without a key, any sender that reaches the address could impersonate a member.
    #[error(
        "--plane {0} at an address that others reach needs a key: anybody there could speak in a member's name"
    )]
    Untrusted(&'static str),
    /// No interface, or more than one, has the peer address.
    #[error(
        "--plane {0} needs --plane-interface: no interface of this machine has the address {1}"
    )]
    NoInterface(&'static str, SocketAddr),
    /// The address is not a multicast group.
    #[error("--plane-group {0} is no multicast group")]
    NoGroup(SocketAddr),
    /// The multicast group and the peer address are of different address families.
    #[error("--plane-group {0} and --peer {1} are of two families of addresses")]
    FamilyMismatch(SocketAddr, SocketAddr),
}

impl PlaneRefusal {
    /// Returns advice for the operator on how to fix the problem.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Untrusted(_) => {
                "give all nodes the same --plane-key FILE, or --plane-trusted where no other machines are on the network"
            }
            Self::NoInterface(..) => "name the interface, as `ip link` shows it",
            Self::NoGroup(_) => {
                "groups are 224.0.0.0 to 239.255.255.255, or those of ff00::/8; leave the flag out for 239.81.84.69:7455, \
                 or [ff15::5152:5445]:7455 where --peer is of IPv6"
            }
            Self::FamilyMismatch(..) => {
                "a group of IPv4 for peers of IPv4, such as 239.81.84.69:7455; one of IPv6 for peers of IPv6, such as \
                 [ff15::5152:5445]:7455"
            }
        }
    }
}

impl Sockets {
    /// Opens the configured sockets for a peer listener at address `peers`. If this machine does
    /// not support the configured transport, logs a warning and uses the next best: raw Ethernet or
    /// multicast, then datagrams to each peer, then connections only.
    pub fn open(wanted: &PlaneSettings, peers: SocketAddr) -> Result<Option<Self>, PlaneRefusal> {
        let name = wanted.plane_kind.name();
        if wanted.plane_kind == PlaneKind::Tcp {
            return Ok(None);
        }
        let chooses = wanted.plane_kind == PlaneKind::Auto;
        let loopback = peers.ip().is_loopback();
        if chooses && !loopback && wanted.keys.is_none() && !wanted.trusted {
            tracing::warn!(
                "--plane auto: using TCP only, since neither --plane-key nor --plane-trusted is given"
            );
            return Ok(None);
        }
        if !loopback && wanted.keys.is_none() && !wanted.trusted {
            return Err(PlaneRefusal::Untrusted(name));
        }
        let usual = if peers.is_ipv6() { GROUP_ADDRESS_V6 } else { GROUP_ADDRESS };
        let group = wanted.group.unwrap_or(usual);
        if !group.ip().is_multicast() {
            return Err(PlaneRefusal::NoGroup(group));
        }
        if group.is_ipv6() != peers.is_ipv6() {
            return Err(PlaneRefusal::FamilyMismatch(group, peers));
        }
        let found = interface_of(wanted, peers);
        let interface = found.as_deref();
        if interface.is_none()
            && matches!(wanted.plane_kind, PlaneKind::Multicast | PlaneKind::Ethernet)
        {
            return Err(PlaneRefusal::NoInterface(name, peers));
        }
        let losing = SimulatedLoss::new(wanted.drops_per_10000, Dice::new(u64::from(peers.port())));
        let receive_bytes = wanted.receive_bytes.unwrap_or(DEFAULT_RECEIVE_BYTES);
        let mut instead = None;
        if let (PlaneKind::Ethernet, Some(interface)) = (wanted.plane_kind, interface) {
            match open_ethernet(interface, wanted.frames, receive_bytes) {
                Ok((wire, limits, without)) => {
                    return Ok(Some(Self {
                        wire,
                        limits: with_link_speed(limits, wanted.megabits),
                        fallback_reason: without,
                        keys: wanted.keys.clone(),
                        simulated_loss: losing,
                        uses_chain: false,
                        chooses_plane: false,
                    }));
                }
                Err(error) => instead = Some(log_fallback("raw Ethernet", &error)),
            }
        }
        let one = match Udp::bind(peers, receive_bytes) {
            Ok(one) => one,
            Err(error) => {
                tracing::warn!(%error, "--plane {name} is not possible here: using TCP");
                return Ok(None);
            }
        };
        let limits = limit_to_receive_buffer(
            with_link_speed(limits(interface, &one), wanted.megabits),
            one.buffered(),
        );
        let mut joined = None;
        if let (PlaneKind::Multicast | PlaneKind::Auto, Some(interface)) =
            (wanted.plane_kind, interface)
        {
            match join_multicast_group(&one, (group, interface), receive_bytes) {
                Ok((socket, group)) => joined = Some((socket, group)),
                Err(error) => instead = Some(log_fallback("multicast", &error)),
            }
        }
        let chain = wanted.plane_kind == PlaneKind::Chain || chooses && joined.is_none();
        Ok(Some(Self {
            wire: Wire::Udp { unicast: one, group: joined },
            limits,
            fallback_reason: instead,
            keys: wanted.keys.clone(),
            simulated_loss: losing,
            uses_chain: chain,
            chooses_plane: chooses,
        }))
    }

    pub(crate) const fn plane_kind(&self) -> PlaneKind {
        match self.wire {
            Wire::Udp { .. } if self.uses_chain => PlaneKind::Chain,
            Wire::Ethernet(_) => PlaneKind::Ethernet,
            Wire::Udp { group: Some(_), .. } => PlaneKind::Multicast,
            Wire::Udp { group: None, .. } => PlaneKind::Udp,
        }
    }
}

/// Returns the configured interface, or the only interface that has the peer address.
pub(crate) fn interface_of(wanted: &PlaneSettings, peers: SocketAddr) -> Option<String> {
    match (&wanted.interface, peers.ip()) {
        (Some(name), _) => Some(name.clone()),
        (None, ip) if ip.is_loopback() => Some(LOOPBACK_INTERFACE.to_owned()),
        (None, IpAddr::V4(ip)) if !ip.is_unspecified() => {
            let routes = fs::read_to_string("/proc/net/route").ok()?;
            interface_towards(ip, &routes).map(str::to_owned)
        }
        (None, IpAddr::V6(ip)) if !ip.is_unspecified() => {
            let addresses = fs::read_to_string("/proc/net/if_inet6").ok()?;
            interface_having(ip, &addresses).map(str::to_owned)
        }
        (None, _) => None,
    }
}

/// Replaces the interface's speed with the operator's setting, if there is one.
fn with_link_speed(mut limits: Limits, megabits: Option<u64>) -> Limits {
    if let Some(megabits) = megabits {
        limits.link_bytes_s = megabits * BYTES_PER_MEGABIT;
    }
    limits
}

/// Minimum number of datagrams that a receive buffer must hold; datagrams lost together are
/// repaired one by one.
const BUFFERED_DATAGRAMS_MIN: usize = 32;

/// Limits the rate so that receive buffers can absorb it, assuming that peers have buffers of the
/// same size as this node ([rate-1]).
fn limit_to_receive_buffer(mut limits: Limits, buffered: ReceiveBufferSize) -> Limits {
    let ReceiveBufferSize { bytes, requested_bytes: wanted } = buffered;
    let (link, most) = (limits.link_bytes_s, buffered.fill_rate_bytes_s());
    if most < link {
        let [most, link] = [most, link].map(|bytes_s| bytes_s / BYTES_PER_MEGABIT);
        tracing::warn!(
            "datagrams leave at {most} Mbit/s at most, on a link of {link}: the kernel grants a receive buffer of {bytes} \
             bytes; set net.core.rmem_max to {wanted}, or give the process CAP_NET_ADMIN"
        );
    }
    limits.link_bytes_s = limits.link_bytes_s.min(buffered.fill_rate_bytes_s());
    let most = (bytes / BUFFERED_DATAGRAMS_MIN).max(DATAGRAM_BYTES_MIN);
    limits.datagram_bytes = limits.datagram_bytes.min(most);
    limits
}

fn log_fallback(what: &str, error: &dyn fmt::Display) -> String {
    let why = format!("{what} is not possible here: {error}");
    tracing::warn!("{why}; using UDP to each peer");
    why
}

/// Opens raw Ethernet on an interface. Also returns why AF_XDP is not used although it was
/// requested.
fn open_ethernet(
    interface: &str,
    frames: FrameAccess,
    receive_bytes: usize,
) -> Result<(Wire, Limits, Option<String>), String> {
    if interface == LOOPBACK_INTERFACE {
        return Err(
            "a machine does not hear its own frames, and this interface has no others".to_owned()
        );
    }
    let group = Some(Wire::ETHERNET_GROUP);
    let socket = EthernetSocket::bind(interface, ETHER_TYPE, group, receive_bytes);
    let mut socket = socket.map_err(|failed| failed.to_string())?;
    let without = switch_to_xdp(&mut socket, frames);
    let mut limits = Limits::for_mtu(socket.datagram_bytes_max() + IPV4_UDP_HEADER_BYTES);
    limits.link_bytes_s = bytes_per_second(Interface::look_up(interface, &socket).ok().as_ref());
    Ok((Wire::Ethernet(socket), limits, without))
}

/// Switches to AF_XDP if it is configured and available. Returns the reason if it was requested
/// explicitly but is unavailable.
fn switch_to_xdp(socket: &mut EthernetSocket, frames: FrameAccess) -> Option<String> {
    let ways = match frames {
        FrameAccess::Packet => return None,
        FrameAccess::Auto => AllowedModes::ZeroCopy,
        FrameAccess::Xdp => AllowedModes::WithCopies,
    };
    let mut tries = 1;
    let tried = loop {
        match socket.try_xdp(XDP_QUEUE_BYTES, ways) {
            // An earlier process of this node may still hold the queue.
            Err(why) if why.is_temporary() && tries < XDP_ATTEMPTS_MAX => {
                thread::sleep(XDP_RETRY_INTERVAL)
            }
            tried => break tried,
        }
        tries += 1;
    };
    match tried {
        Ok(mode) => {
            tracing::info!("raw Ethernet: using {mode}");
            None
        }
        Err(why) if frames == FrameAccess::Auto => {
            tracing::info!("raw Ethernet: using packet sockets: {why}");
            None
        }
        Err(why) => {
            tracing::warn!("{why}; using packet sockets");
            Some(why.to_string())
        }
    }
}

/// Opens a socket that receives from the multicast group. Also returns the group's address.
fn join_multicast_group(
    one: &Udp,
    (group, interface): (SocketAddr, &str),
    receive_bytes: usize,
) -> Result<(Udp, SocketAddr), SocketError> {
    let socket = Udp::join(group, interface, receive_bytes)?;
    let interface = one.set_group_interface(interface)?;
    Ok((socket, interface.with_scope_id(group)))
}

/// Returns limits derived from an interface's capacity, with defaults for values that it does not
/// report.
fn limits(interface: Option<&str>, socket: &Udp) -> Limits {
    let found = interface.and_then(|name| Interface::look_up(name, socket).ok());
    let mtu = found.as_ref().and_then(|interface| interface.mtu);
    // [pkt-4] Datagrams are never fragmented, so they must also fit after the longer header.
    let more = if socket.local().is_ipv6() { IPV6_EXTRA_BYTES } else { 0 };
    let mut limits = Limits::for_mtu(mtu.unwrap_or(DEFAULT_MTU).saturating_sub(more));
    limits.link_bytes_s = bytes_per_second(found.as_ref());
    limits
}

fn bytes_per_second(interface: Option<&Interface>) -> u64 {
    let megabits = match interface {
        Some(interface) if interface.name == LOOPBACK_INTERFACE => LOOPBACK_MEGABITS,
        interface => {
            interface.and_then(|interface| interface.speed_mbit_s).unwrap_or(DEFAULT_MEGABITS)
        }
    };
    megabits * BYTES_PER_MEGABIT
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(way: PlaneKind) -> PlaneSettings {
        PlaneSettings { plane_kind: way, ..PlaneSettings::default() }
    }

    fn open(wanted: &PlaneSettings, peers: &str) -> Result<Option<Sockets>, String> {
        Sockets::open(wanted, peers.parse().unwrap()).map_err(|refused| refused.to_string())
    }

    #[test]
    fn no_socket_is_opened_for_tcp() {
        assert!(open(&wanted(PlaneKind::Tcp), "10.0.0.1:7451").unwrap().is_none());
    }

    /// [pkt-2] Beyond loopback a key or a trusted network is required, because any sender that
    /// reaches the port could impersonate a member.
    #[test]
    fn non_loopback_address_needs_a_key_or_a_trusted_network() {
        let mut wanted = wanted(PlaneKind::Udp);
        let refused = open(&wanted, "0.0.0.0:0").unwrap_err();
        assert!(refused.starts_with("--plane udp at an address that others reach needs a key"));
        wanted.trusted = true;
        assert_eq!(open(&wanted, "0.0.0.0:0").unwrap().unwrap().plane_kind(), PlaneKind::Udp);
        wanted.plane_kind = PlaneKind::Multicast;
        let refused = open(&wanted, "0.0.0.0:0").unwrap_err();
        assert!(refused.contains("needs --plane-interface"), "{refused}");
    }

    #[test]
    fn group_must_be_multicast_and_of_the_same_family() {
        let mut wanted = wanted(PlaneKind::Multicast);
        for group in ["10.0.0.1:7455", "[fd00::1]:7455"] {
            wanted.group = Some(group.parse().unwrap());
            let refused = open(&wanted, "127.0.0.1:0").unwrap_err();
            assert_eq!(refused, format!("--plane-group {group} is no multicast group"));
        }
        for (group, peers) in
            [("[ff15::1]:7455", "127.0.0.1:7451"), ("239.1.2.3:7455", "[::1]:7451")]
        {
            wanted.group = Some(group.parse().unwrap());
            let refused = open(&wanted, peers).unwrap_err();
            let text = format!("--plane-group {group} and --peer {peers} are of two families");
            assert!(refused.starts_with(&text), "{refused}");
        }
    }

    /// [pkt-4] Datagrams are shorter over IPv6, whose header is longer than IPv4's.
    #[test]
    fn datagrams_are_shorter_over_ipv6() {
        let bytes = |peers| {
            let sockets = open(&wanted(PlaneKind::Udp), peers).unwrap().unwrap();
            sockets.limits.datagram_bytes
        };
        if fs::read_to_string("/proc/net/if_inet6").is_ok_and(|text| text.contains(" lo")) {
            // The MTU of loopback is 64 KiB, which UDP cannot fill.
            let (four, six) = (bytes("127.0.0.1:0"), bytes("[::1]:0"));
            assert!(six < four && six <= 65_536 - IPV4_UDP_HEADER_BYTES - IPV6_EXTRA_BYTES);
        } else {
            eprintln!("skipped: peers of IPv6: this machine has none");
        }
    }

    /// [rate-1] Without privileges, the buffer is at most net.core.rmem_max, and bursts are limited
    /// to it.
    #[test]
    fn small_receive_buffer_limits_the_send_rate() {
        let of = |receive_bytes, megabits| {
            let wanted = PlaneSettings {
                receive_bytes: Some(receive_bytes),
                megabits,
                ..wanted(PlaneKind::Udp)
            };
            open(&wanted, "127.0.0.1:0").unwrap().unwrap().limits.link_bytes_s
        };
        assert_eq!(of(200_000, None), 100_000_000);
        assert_eq!(of(200_000, Some(100_000)), 100_000_000, "whatever the link carries");
        assert_eq!(of(200_000, Some(100)), 12_500_000);
    }

    #[test]
    fn impossible_plane_falls_back_to_the_next_best() {
        let mut wanted = wanted(PlaneKind::Multicast);
        wanted.interface = Some("nosuch0".to_owned());
        let sockets = open(&wanted, "127.0.0.1:0").unwrap().unwrap();
        assert_eq!(sockets.plane_kind(), PlaneKind::Udp);
        let why = sockets.fallback_reason.unwrap();
        assert!(
            why.starts_with("multicast is not possible here: there is no interface nosuch0"),
            "{why}"
        );
        // The port is in use by another socket.
        let taken = open(&self::wanted(PlaneKind::Udp), "127.0.0.1:0").unwrap().unwrap();
        let again = open(&self::wanted(PlaneKind::Udp), &taken.wire.address());
        assert!(again.unwrap().is_none());
        let sockets = open(&self::wanted(PlaneKind::Ethernet), "127.0.0.1:0");
        let sockets = sockets.unwrap().unwrap();
        assert_eq!(sockets.plane_kind(), PlaneKind::Udp);
        let why = sockets.fallback_reason.unwrap();
        assert!(why.starts_with("raw Ethernet is not possible here: a machine"), "{why}");
    }
}
