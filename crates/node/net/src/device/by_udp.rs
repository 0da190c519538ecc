//! A device by datagrams at the address for peers: for machines without rights, and for members on
//! one machine.

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

use super::{CELLS, ROOM_BYTES, Refused, TAP_FRAMES, group_of};
use crate::plane::Wanted;

/// A socket that waits for its device's start.
#[derive(Debug)]
pub(super) struct ByUdp {
    own: SocketAddrV4,
    /// Until its device takes it.
    udp: Option<Udp>,
    members: Members,
}

impl ByUdp {
    /// Returns the address of the device: the port of the listener for peers.
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

    /// Binds the socket there.
    pub(super) fn bind(at: SocketAddrV4, members: &Members) -> Result<Self, Refused> {
        let udp =
            Udp::bind(at, members.clone()).map_err(|error| Refused::Bind(at.into(), error))?;
        Ok(Self { own: udp.own(), udp: Some(udp), members: members.clone() })
    }

    /// Returns the same place, for a device that binds it when it starts.
    pub(super) fn later(&self) -> Self {
        Self { own: self.own, udp: None, members: self.members.clone() }
    }

    /// Closes the socket; nothing is received there until it is bound again.
    pub(super) fn free(&mut self) {
        self.udp = None;
    }

    /// Returns the device's address.
    pub(super) const fn own(&self) -> SocketAddrV4 {
        self.own
    }

    /// Returns the socket, and the settings of its device.
    pub(super) fn open(&mut self, cluster: u128) -> io::Result<(Settings, Udp)> {
        let own = self.own;
        let udp = self.udp.take();
        let udp = udp.map_or_else(|| Udp::bind(own, self.members.clone()), Ok)?;
        let all = all_hosts(own.port());
        let settings = Settings {
            group: group_of(cluster),
            cells: CELLS,
            room: ROOM_BYTES,
            form: Form::Udp,
            own: address(own),
            all_hosts: all,
            decisions: all,
            tap_frames: TAP_FRAMES,
        };
        Ok((settings, udp))
    }
}
