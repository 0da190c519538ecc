//! Raw frames of an interface: nothing is added, interpreted, or buffered outside the kernel.
//!
//! It is for callers that build their own frames and rarely send them, such as the owner of a
//! device in the kernel.

use std::{io, time::Duration};

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    io::Errno,
    net::{
        self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType,
        netdevice::index_to_name,
        sockopt::{self, Timeout},
    },
};

use crate::ethernet::{
    EthernetError, Mac,
    datagrams::open_error,
    interface::Interface,
    system::{self, InterfaceName, SocketBinding},
};

pub use crate::ethernet::system::ByteCondition;

/// Number of bytes received of a frame whose tag was removed. They contain the frame's addresses
/// ([`RawSocket::receive_tagged`]).
pub const TAGGED_FRAME_BYTES: usize = 12;
/// `ETH_P_ALL` of linux/if_ether.h.
const ETHER_TYPE_ALL: u16 = 3;

/// A filter for the frames that a socket receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveFilter {
    /// No frames, for a socket that only sends.
    Nothing,
    /// Frames of this EtherType that other stations send, with any destination.
    EtherType(u16),
}

/// A packet socket without rings.
#[derive(Debug)]
pub struct RawSocket {
    socket: OwnedFd,
    interface: Interface,
}

impl RawSocket {
    /// Opens a socket on an interface. If `group` is set, the interface also receives that
    /// multicast group while the socket is open.
    pub fn open(
        interface: &str,
        hears: ReceiveFilter,
        group: Option<Mac>,
    ) -> Result<Self, EthernetError> {
        let socket =
            net::socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, None)
                .map_err(open_error)?;
        let interface = Interface::look_up(interface, socket.as_fd())?;
        let option = "PACKET_IGNORE_OUTGOING";
        system::ignore_outgoing(socket.as_fd())
            .map_err(|source| EthernetError::SocketOption { option, source })?;
        let ether_type = match hears {
            ReceiveFilter::Nothing => 0,
            ReceiveFilter::EtherType(number) => number,
        };
        let place = SocketBinding::new(interface.index, ether_type);
        net::bind(&socket, &place).map_err(|error| interface.failed(error, socket.as_fd()))?;
        let raw = Self { socket, interface };
        group.map_or(Ok(()), |group| raw.join_group(group))?;
        Ok(raw)
    }

    /// Makes the interface receive one more multicast group.
    pub fn join_group(&self, group: Mac) -> Result<(), EthernetError> {
        if !group.is_multicast() {
            return Err(EthernetError::NotMulticast(group));
        }
        let joined = system::join(self.socket.as_fd(), self.interface.index, group);
        joined.map_err(|source| EthernetError::Join {
            group,
            interface: self.interface.name.clone(),
            source,
        })
    }

    /// Restricts the socket to frames of the interface itself that match these bits, so that other
    /// frames wake no thread. VLAN frames are excluded: the kernel removes their tags before a
    /// socket sees them, whether or not they have interfaces of their own.
    pub fn filter_frames(&self, only: ByteCondition) -> Result<(), EthernetError> {
        let option = "SO_ATTACH_FILTER";
        system::filter_frames(self.socket.as_fd(), self.interface.index, only)
            .map_err(|source| EthernetError::SocketOption { option, source })
    }

    /// Makes the socket receive all frames of `ether_type`, including those from which the kernel
    /// removes a VLAN or priority tag. As on a socket for all types, such frames arrive before the
    /// kernel handles them. Only [`TAGGED_FRAME_BYTES`] of a tagged frame are received, for
    /// counting it.
    pub fn receive_tagged(&self, ether_type: u16) -> Result<(), EthernetError> {
        let option = "SO_ATTACH_FILTER";
        let bytes = u32::try_from(TAGGED_FRAME_BYTES).unwrap_or(u32::MAX);
        system::truncate_tagged(self.socket.as_fd(), ether_type, bytes)
            .map_err(|source| EthernetError::SocketOption { option, source })?;
        let place = SocketBinding::new(self.interface.index, ETHER_TYPE_ALL);
        net::bind(&self.socket, &place)
            .map_err(|error| self.interface.failed(error, self.socket.as_fd()))
    }

    /// Returns whether the interface removes VLAN tags before frames reach a socket, or `None` if
    /// the interface does not report it.
    pub fn strips_vlan_tags(&self) -> Option<bool> {
        let name = InterfaceName::new(&self.interface.name)?;
        system::takes_tags(self.socket.as_fd(), name).ok()
    }

    pub const fn index(&self) -> u32 {
        self.interface.index
    }

    /// Returns the current name of the interface, or `None` if it was removed.
    pub fn name(&self) -> Option<String> {
        index_to_name(&self.socket, self.interface.index).ok()
    }

    /// Returns the address that the interface had when the socket was opened.
    pub const fn local(&self) -> Mac {
        self.interface.mac
    }

    /// Sends a frame without waiting. Returns whether there was space for it.
    pub fn send(&self, frame: &[u8]) -> Result<bool, EthernetError> {
        match net::send(&self.socket, frame, SendFlags::DONTWAIT) {
            Ok(_) => Ok(true),
            Err(Errno::AGAIN | Errno::NOBUFS | Errno::INTR) => Ok(false),
            Err(error) => Err(self.interface.failed(error, self.socket.as_fd())),
        }
    }

    /// Sets how long [`RawSocket::receive`] waits for a frame. `None` means without limit.
    pub fn set_receive_timeout(&self, patience: Option<Duration>) -> Result<(), EthernetError> {
        let option = "SO_RCVTIMEO";
        let set = sockopt::set_socket_timeout(&self.socket, Timeout::Recv, patience);
        set.map_err(|error| EthernetError::SocketOption { option, source: io::Error::from(error) })
    }

    /// Receives the oldest frame into the buffer. Returns `None` if no frame arrived in time, or if
    /// it does not fit.
    pub fn receive<'a>(&self, buffer: &'a mut [u8]) -> Result<Option<&'a [u8]>, EthernetError> {
        self.receive_with_flags(buffer, RecvFlags::TRUNC)
    }

    /// Like [`Self::receive`], but does not wait.
    pub fn try_receive<'a>(&self, buffer: &'a mut [u8]) -> Result<Option<&'a [u8]>, EthernetError> {
        self.receive_with_flags(buffer, RecvFlags::TRUNC | RecvFlags::DONTWAIT)
    }

    fn receive_with_flags<'a>(
        &self,
        buffer: &'a mut [u8],
        flags: RecvFlags,
    ) -> Result<Option<&'a [u8]>, EthernetError> {
        match net::recv(&self.socket, &mut *buffer, flags) {
            Ok((_, length)) => Ok(buffer.get(..length)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(self.interface.failed(error, self.socket.as_fd())),
        }
    }

    /// Returns the maximum length of a frame without its Ethernet header, as of when the socket was
    /// opened.
    pub const fn mtu(&self) -> usize {
        self.interface.mtu
    }

    /// Returns the name of the interface's driver, or `None` if the driver does not report it.
    pub fn driver(&self) -> Option<String> {
        let name = InterfaceName::new(&self.interface.name)?;
        system::driver(self.socket.as_fd(), name).ok()
    }

    /// Returns whether the interface is up, or `None` if it was removed.
    pub fn is_up(&self) -> Option<bool> {
        let name = index_to_name(&self.socket, self.interface.index).ok()?;
        let name = InterfaceName::new(&name)?;
        // The interface may have been removed in the meantime.
        system::is_up(self.socket.as_fd(), name).ok()
    }
}

impl AsFd for RawSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
