//! An Ethernet interface of this machine, found by its name.

use std::io;

use rustix::{
    fd::BorrowedFd,
    io::Errno,
    net::netdevice::{index_to_name, name_to_index},
};

use crate::ethernet::{
    EthernetError, Mac,
    system::{self, InterfaceName},
};

/// `ARPHRD_ETHER` of linux/if_arp.h.
const ETHERNET: u16 = 1;
/// `ARPHRD_LOOPBACK`. Such an interface also uses Ethernet headers.
const LOOPBACK: u16 = 772;

/// Properties of an interface that a socket needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) index: u32,
    pub(crate) mac: Mac,
    /// Maximum length of a frame without its Ethernet header, in bytes.
    pub(crate) mtu: usize,
}

impl Interface {
    /// Looks up an interface by name. `socket` is only used for the ioctl.
    pub(crate) fn look_up(name: &str, socket: BorrowedFd<'_>) -> Result<Self, EthernetError> {
        let failed = |source: io::Error| EthernetError::Interface { name: name.to_owned(), source };
        let invalid = || failed(io::ErrorKind::InvalidInput.into());
        let checked = InterfaceName::new(name).ok_or_else(invalid)?;
        let index = name_to_index(socket, name).map_err(|error| failed(error.into()))?;
        let (hardware, mac) = system::hardware(socket, checked).map_err(failed)?;
        if hardware != ETHERNET && hardware != LOOPBACK {
            return Err(EthernetError::NotEthernet { name: name.to_owned(), hardware });
        }
        let mtu = system::mtu(socket, checked).map_err(failed)?;
        Ok(Self { name: name.to_owned(), index, mac, mtu })
    }

    /// Converts an error of a socket on this interface.
    pub(crate) fn failed(&self, error: Errno, socket: BorrowedFd<'_>) -> EthernetError {
        let interface = self.name.clone();
        match error {
            // An interface that is being removed is first reported as down.
            Errno::NETDOWN if index_to_name(socket, self.index).is_ok() => {
                EthernetError::InterfaceDown { interface }
            }
            Errno::NETDOWN | Errno::NXIO | Errno::NODEV => {
                EthernetError::InterfaceGone { interface }
            }
            error => EthernetError::Io { interface, source: error.into() },
        }
    }
}
