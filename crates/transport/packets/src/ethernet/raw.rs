//! Whole frames of an interface, as they are: nothing is added, looked at or buffered beyond what
//! the kernel keeps.
//!
//! For who makes frames of its own and rarely sends them, such as the owner of a device in the
//! kernel.

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
    Failed, Mac,
    datagrams::refused,
    interface::Interface,
    system::{self, Name, Place},
};

pub use crate::ethernet::system::Bits;

/// What is left of a frame whose tag was taken off: its addresses ([`Raw::hear_tagged`]).
pub const TAGGED_BYTES: usize = 12;
/// `ETH_P_ALL` of linux/if_ether.h.
const ALL_TYPES: u16 = 3;

/// What a socket hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hears {
    /// Nothing: it only sends.
    Nothing,
    /// Frames of this EtherType sent by others, whatever their destination.
    EtherType(u16),
}

/// A packet socket without rings.
#[derive(Debug)]
pub struct Raw {
    socket: OwnedFd,
    interface: Interface,
}

impl Raw {
    /// On an interface, which is in a group as long as the socket is open, if one is named.
    pub fn open(interface: &str, hears: Hears, group: Option<Mac>) -> Result<Self, Failed> {
        let socket =
            net::socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, None)
                .map_err(refused)?;
        let interface = Interface::named(interface, socket.as_fd())?;
        let option = "PACKET_IGNORE_OUTGOING";
        system::ignore_outgoing(socket.as_fd())
            .map_err(|source| Failed::Option { option, source })?;
        let ether_type = match hears {
            Hears::Nothing => 0,
            Hears::EtherType(number) => number,
        };
        let place = Place::new(interface.index, ether_type);
        net::bind(&socket, &place).map_err(|error| interface.failed(error, socket.as_fd()))?;
        let raw = Self { socket, interface };
        group.map_or(Ok(()), |group| raw.join(group))?;
        Ok(raw)
    }

    /// The interface is in one more group.
    pub fn join(&self, group: Mac) -> Result<(), Failed> {
        if !group.is_group() {
            return Err(Failed::NoGroup(group));
        }
        let joined = system::join(self.socket.as_fd(), self.interface.index, group);
        joined.map_err(|source| Failed::Join {
            group,
            interface: self.interface.name.clone(),
            source,
        })
    }

    /// From now on only frames of the interface itself with such bits: others wake no thread. Frames
    /// of VLANs are none, whose tags the kernel takes off before a socket sees them, whether they
    /// have interfaces of their own or not.
    pub fn hear_only(&self, only: Bits) -> Result<(), Failed> {
        let option = "SO_ATTACH_FILTER";
        system::hear_only(self.socket.as_fd(), self.interface.index, only)
            .map_err(|source| Failed::Option { option, source })
    }

    /// From now on all frames of this EtherType, as a socket of all types hears them: before the
    /// kernel sorts those that it takes the tag of a VLAN off, or of a priority. Of these
    /// [`TAGGED_BYTES`] are heard, so that they can be counted.
    pub fn hear_tagged(&self, ether_type: u16) -> Result<(), Failed> {
        let option = "SO_ATTACH_FILTER";
        let bytes = u32::try_from(TAGGED_BYTES).unwrap_or(u32::MAX);
        system::cut_tagged(self.socket.as_fd(), ether_type, bytes)
            .map_err(|source| Failed::Option { option, source })?;
        let place = Place::new(self.interface.index, ALL_TYPES);
        net::bind(&self.socket, &place)
            .map_err(|error| self.interface.failed(error, self.socket.as_fd()))
    }

    /// Returns whether the interface strips VLAN tags before frames reach a socket; not every one
    /// reports it.
    pub fn takes_tags(&self) -> Option<bool> {
        let name = Name::new(&self.interface.name)?;
        system::takes_tags(self.socket.as_fd(), name).ok()
    }

    /// The interface's number.
    pub const fn index(&self) -> u32 {
        self.interface.index
    }

    /// Returns the current name of the interface; `None`: it is gone.
    pub fn name(&self) -> Option<String> {
        index_to_name(&self.socket, self.interface.index).ok()
    }

    /// The address of the interface when this was opened.
    pub const fn local(&self) -> Mac {
        self.interface.mac
    }

    /// Sends a frame; whether there was room for it. It does not wait.
    pub fn send(&self, frame: &[u8]) -> Result<bool, Failed> {
        match net::send(&self.socket, frame, SendFlags::DONTWAIT) {
            Ok(_) => Ok(true),
            Err(Errno::AGAIN | Errno::NOBUFS | Errno::INTR) => Ok(false),
            Err(error) => Err(self.interface.failed(error, self.socket.as_fd())),
        }
    }

    /// Sets how long [`Raw::receive`] waits for a frame; `None`: without limit.
    pub fn set_patience(&self, patience: Option<Duration>) -> Result<(), Failed> {
        let option = "SO_RCVTIMEO";
        let set = sockopt::set_socket_timeout(&self.socket, Timeout::Recv, patience);
        set.map_err(|error| Failed::Option { option, source: io::Error::from(error) })
    }

    /// The oldest frame, as far as the buffer is long; `None` if none came in time, or one that is
    /// too long.
    pub fn receive<'a>(&self, buffer: &'a mut [u8]) -> Result<Option<&'a [u8]>, Failed> {
        self.receive_by(buffer, RecvFlags::TRUNC)
    }

    /// The same without waiting.
    pub fn try_receive<'a>(&self, buffer: &'a mut [u8]) -> Result<Option<&'a [u8]>, Failed> {
        self.receive_by(buffer, RecvFlags::TRUNC | RecvFlags::DONTWAIT)
    }

    fn receive_by<'a>(
        &self,
        buffer: &'a mut [u8],
        flags: RecvFlags,
    ) -> Result<Option<&'a [u8]>, Failed> {
        match net::recv(&self.socket, &mut *buffer, flags) {
            Ok((_, length)) => Ok(buffer.get(..length)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(self.interface.failed(error, self.socket.as_fd())),
        }
    }

    /// The longest frame that the interface took when this was opened, without Ethernet's header.
    pub const fn mtu(&self) -> usize {
        self.interface.mtu
    }

    /// The name of the driver behind the interface; not every one tells.
    pub fn driver(&self) -> Option<String> {
        let name = Name::new(&self.interface.name)?;
        system::driver(self.socket.as_fd(), name).ok()
    }

    /// Returns whether the interface that this was opened on is up; `None`: it is gone.
    pub fn is_up(&self) -> Option<bool> {
        let name = index_to_name(&self.socket, self.interface.index).ok()?;
        let name = Name::new(&name)?;
        // Gone in this moment.
        system::is_up(self.socket.as_fd(), name).ok()
    }
}

impl AsFd for Raw {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
