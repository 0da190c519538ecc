//! The client's raw socket, with a filter for the frames that a client needs.

use std::os::fd::{AsFd, BorrowedFd};

use quorate_offload::{
    Form, Type,
    header::ROOM_BYTES_MAX,
    link::{ETHER_TYPE, stations},
};
use quorate_packets::ethernet::{
    Failed, Mac, Raw,
    raw::{Bits, ReceiveFilter},
};

/// Offset of the byte of a raw frame whose upper half is the frame type.
const TYPE_AT: u32 = 19;

/// Raw socket that receives only decisions and refusals.
#[derive(Debug)]
pub(super) struct Station {
    socket: Raw,
    bytes: Box<[u8]>,
}

impl Station {
    /// Opens a socket for the decisions of a group and the refusals to this client.
    pub(super) fn open(interface: &str, group: u32) -> Result<Self, Failed> {
        let socket = Raw::open(interface, ReceiveFilter::EtherType(ETHER_TYPE), None)?;
        let upper = |kind: Type| (kind as u8) << 4;
        socket.filter_frames(Bits {
            at: TYPE_AT,
            mask: 0xf0,
            either: [upper(Type::Decided), upper(Type::Refused)],
        })?;
        socket.join(Mac(stations(group)[1].mac))?;
        Ok(Self { socket, bytes: vec![0; Form::Raw.room_at() + ROOM_BYTES_MAX + 1].into() })
    }

    pub(super) const fn own(&self) -> [u8; 6] {
        self.socket.local().0
    }

    /// Sends a frame. Without buffer space the frame is lost, as it might be on the network.
    pub(super) fn send(&self, frame: &[u8]) -> Result<(), Failed> {
        self.socket.send(frame).map(drop)
    }

    /// Returns the oldest received frame, if any.
    pub(super) fn receive(&mut self) -> Result<Option<&[u8]>, Failed> {
        self.socket.try_receive(&mut self.bytes)
    }
}

impl AsFd for Station {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
