//! The client's raw socket, with a filter for the frames that a client needs.

use std::os::fd::{AsFd, BorrowedFd};

use quorate_offload::{
    Encapsulation, Type,
    header::ROOM_BYTES_MAX,
    link::{ETHER_TYPE, multicast_addresses},
};
use quorate_packets::ethernet::{
    EthernetError, Mac, RawSocket,
    raw::{ByteCondition, ReceiveFilter},
};

/// Offset of the byte of a raw frame whose upper half is the frame type.
const FRAME_TYPE_OFFSET: u32 = 19;

/// Raw socket that receives only decisions and refusals.
#[derive(Debug)]
pub(super) struct FrameSocket {
    socket: RawSocket,
    bytes: Box<[u8]>,
}

impl FrameSocket {
    /// Opens a socket for the decisions of a group and the refusals to this client.
    pub(super) fn open(interface: &str, group: u32) -> Result<Self, EthernetError> {
        let socket = RawSocket::open(interface, ReceiveFilter::EtherType(ETHER_TYPE), None)?;
        let upper = |kind: Type| (kind as u8) << 4;
        socket.filter_frames(ByteCondition {
            byte_offset: FRAME_TYPE_OFFSET,
            mask: 0xf0,
            accepted: [upper(Type::Decided), upper(Type::Refused)],
        })?;
        socket.join_group(Mac(multicast_addresses(group)[1].mac))?;
        Ok(Self {
            socket,
            bytes: vec![0; Encapsulation::Raw.room_offset() + ROOM_BYTES_MAX + 1].into(),
        })
    }

    pub(super) const fn own_mac(&self) -> [u8; 6] {
        self.socket.local().0
    }

    /// Sends a frame. Without buffer space the frame is lost, as it might be on the network.
    pub(super) fn send(&self, frame: &[u8]) -> Result<(), EthernetError> {
        self.socket.send(frame).map(drop)
    }

    /// Returns the oldest received frame, if any.
    pub(super) fn receive(&mut self) -> Result<Option<&[u8]>, EthernetError> {
        self.socket.try_receive(&mut self.bytes)
    }
}

impl AsFd for FrameSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
