//! Device that receives datagrams at the peer address, for machines without raw sockets and for
//! several members on one machine.

use std::{
    io,
    net::{SocketAddr, SocketAddrV4},
};

use quorate_device::{
    Members, Settings, Udp,
    udp::{address, all_hosts},
};
use quorate_offload::Form;
use quorate_replica::status::Way;

use super::{CELLS, PAYLOAD_BYTES_MAX, Refused, TAP_FRAMES, group_of};
use crate::plane::Wanted;

/// A UDP socket reserved for a device, with its address and the members.
#[derive(Debug)]
pub(super) struct UdpCandidate {
    own: SocketAddrV4,
    /// The bound socket, until the device takes it.
    udp: Option<Udp>,
    members: Members,
}

impl UdpCandidate {
    /// Returns the device's address, the same as the peer listener's.
    pub(super) fn place(wanted: &Wanted, peers: SocketAddr) -> Result<SocketAddrV4, Refused> {
        if !matches!(wanted.way, Way::Tcp | Way::Ethernet) {
            return Err(Refused::PortTaken(wanted.way.name()));
        }
        let SocketAddr::V4(at) = peers else {
            return Err(Refused::Address(peers));
        };
        if at.ip().is_unspecified() {
            return Err(Refused::Address(peers));
        }
        Ok(at)
    }

    pub(super) fn bind(at: SocketAddrV4, members: &Members) -> Result<Self, Refused> {
        let udp =
            Udp::bind(at, members.clone()).map_err(|error| Refused::Bind(at.into(), error))?;
        Ok(Self { own: udp.own(), udp: Some(udp), members: members.clone() })
    }

    /// Returns a copy without a socket, for a device that binds the address when it starts.
    pub(super) fn later(&self) -> Self {
        Self { own: self.own, udp: None, members: self.members.clone() }
    }

    /// Closes the socket. Datagrams are lost until the address is bound again.
    pub(super) fn close(&mut self) {
        self.udp = None;
    }

    pub(super) const fn own(&self) -> SocketAddrV4 {
        self.own
    }

    /// Returns the socket and the settings for the device that will use it.
    pub(super) fn open(&mut self, cluster: u128) -> io::Result<(Settings, Udp)> {
        let own = self.own;
        let udp = self.udp.take();
        let udp = udp.map_or_else(|| Udp::bind(own, self.members.clone()), Ok)?;
        let all = all_hosts(own.port());
        let settings = Settings {
            group: group_of(cluster),
            cells: CELLS,
            room: PAYLOAD_BYTES_MAX,
            form: Form::Udp,
            own: address(own),
            all_hosts: all,
            decisions: all,
            tap_frames: TAP_FRAMES,
        };
        Ok((settings, udp))
    }
}
