//! Device that receives datagrams at the peer address, for machines without raw sockets and for
//! several members on one machine.

use std::{
    io,
    net::{SocketAddr, SocketAddrV4},
};

use quorate_device::{
    GroupMembers, Settings, Udp,
    udp::{address, all_hosts},
};
use quorate_offload::Encapsulation;
use quorate_replica::status::PlaneKind;

use super::{
    DEVICE_SLOT_COUNT, DeviceRefusal, PAYLOAD_BYTES_MAX, QUEUED_FRAMES_MAX, cluster_frame_number,
};
use crate::plane::PlaneSettings;

/// A UDP socket reserved for a device, with its address and the members.
#[derive(Debug)]
pub(super) struct UdpCandidate {
    own_address: SocketAddrV4,
    /// The bound socket, until the device takes it.
    socket: Option<Udp>,
    members: GroupMembers,
}

impl UdpCandidate {
    /// Returns the device's address, the same as the peer listener's.
    pub(super) fn device_address(
        wanted: &PlaneSettings,
        peers: SocketAddr,
    ) -> Result<SocketAddrV4, DeviceRefusal> {
        if !matches!(wanted.plane_kind, PlaneKind::Tcp | PlaneKind::Ethernet) {
            return Err(DeviceRefusal::PortInUse(wanted.plane_kind.name()));
        }
        let SocketAddr::V4(at) = peers else {
            return Err(DeviceRefusal::NotIpv4(peers));
        };
        if at.ip().is_unspecified() {
            return Err(DeviceRefusal::NotIpv4(peers));
        }
        Ok(at)
    }

    pub(super) fn bind(at: SocketAddrV4, members: &GroupMembers) -> Result<Self, DeviceRefusal> {
        let udp = Udp::bind(at, members.clone())
            .map_err(|error| DeviceRefusal::BindFailed(at.into(), error))?;
        Ok(Self { own_address: udp.own_address(), socket: Some(udp), members: members.clone() })
    }

    /// Returns a copy without a socket, for a device that binds the address when it starts.
    pub(super) fn without_socket(&self) -> Self {
        Self { own_address: self.own_address, socket: None, members: self.members.clone() }
    }

    /// Closes the socket. Datagrams are lost until the address is bound again.
    pub(super) fn close(&mut self) {
        self.socket = None;
    }

    pub(super) const fn own_address(&self) -> SocketAddrV4 {
        self.own_address
    }

    /// Returns the socket and the settings for the device that will use it.
    pub(super) fn open(&mut self, cluster: u128) -> io::Result<(Settings, Udp)> {
        let own = self.own_address;
        let udp = self.socket.take();
        let udp = udp.map_or_else(|| Udp::bind(own, self.members.clone()), Ok)?;
        let all = all_hosts(own.port());
        let settings = Settings {
            group: cluster_frame_number(cluster),
            cells: DEVICE_SLOT_COUNT,
            room: PAYLOAD_BYTES_MAX,
            form: Encapsulation::Udp,
            own_address: address(own),
            all_hosts: all,
            decision_address: all,
            tap_frames: QUEUED_FRAMES_MAX,
        };
        Ok((settings, udp))
    }
}
