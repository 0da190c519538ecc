//! Wire that exchanges raw frames on one interface through a packet socket. A frame for the
//! multicast group is sent once.
//!
//! It is for machines where programs may not be loaded into the kernel, and interoperates with
//! devices in the kernel.

use std::os::fd::{AsFd as _, BorrowedFd};

use quorate_offload::{Encapsulation, header::ROOM_BYTES_MAX, link::ETHER_TYPE};
use quorate_packets::ethernet::{
    EthernetError, Mac, RawSocket,
    raw::{ReceiveFilter, TAGGED_FRAME_BYTES},
};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;

use crate::{
    station::{ClaimError, StationClaim},
    wire::{ArrivedFrames, Wire},
};

/// Size of the kernel's receive buffer, in bytes.
const RECEIVE_BYTES: usize = 4 << 20;

/// EtherType of a VLAN tag.
const VLAN_ETHER_TYPE: [u8; 2] = [0x81, 0];

#[derive(Debug)]
pub struct PacketSocketWire {
    socket: RawSocket,
    bytes: Box<[u8]>,
    station_claim: Option<StationClaim>,
}

impl PacketSocketWire {
    /// Claims the interface for this group. While the wire exists, no other process on this machine
    /// can have a device of the group at the interface.
    pub fn claim_group(&mut self, group: u32) -> Result<(), ClaimError> {
        self.station_claim = Some(StationClaim::of_group(self.socket.index(), group)?);
        Ok(())
    }

    /// Opens a wire that receives frames for the interface's own address and for the given
    /// multicast groups.
    pub fn open(interface: &str, groups: &[Mac]) -> Result<Self, EthernetError> {
        let socket = RawSocket::open(interface, ReceiveFilter::Nothing, None)?;
        // [offload-16]
        socket.receive_tagged(ETHER_TYPE)?;
        for group in groups {
            socket.join_group(*group)?;
        }
        // Without the required capability, the socket keeps its default buffer size. Frames that do
        // not fit are lost and retransmitted by their owners.
        let _ = set_socket_recv_buffer_size_force(socket.as_fd(), RECEIVE_BYTES);
        Ok(Self {
            socket,
            bytes: vec![0; Encapsulation::Raw.room_offset() + ROOM_BYTES_MAX + 1].into(),
            station_claim: None,
        })
    }
}

impl Wire for PacketSocketWire {
    fn send(&mut self, frame: &[u8]) {
        // Without buffer space or an interface, the frame is lost, as on any network.
        let _ = self.socket.send(frame);
    }

    fn receive(&mut self, arrived: &mut ArrivedFrames) {
        while !arrived.is_full()
            && let Ok(Some(frame)) = self.socket.try_receive(&mut self.bytes)
        {
            let arrived = arrived.push();
            arrived.extend_from_slice(frame);
            if frame.len() == TAGGED_FRAME_BYTES {
                // [offload-16] The frame is counted as if it still had its tag.
                arrived.extend_from_slice(&VLAN_ETHER_TYPE);
            }
        }
    }

    fn readable_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
