//! One device for each station: a lock of the network namespace, which goes with its process,
//! however that ends.
//!
//! Devices at one interface have one address, so two of one group there would receive each other's
//! frames, and one of them none. The lock is a name among sockets, since those are of a network
//! namespace, as interfaces are; files are of a mount namespace, and containers that share the
//! network of their host need not share those.

use std::{
    fmt, io,
    os::{linux::net::SocketAddrExt as _, unix::net},
};

/// The right to be a station, until this goes or the process ends.
#[derive(Debug)]
pub struct Station(#[allow(dead_code, reason = "it is held")] net::UnixDatagram);

/// Why it is not ours.
#[derive(Debug)]
pub enum NotOurs {
    /// A process has it.
    Taken,
    /// The state cannot be known.
    Io(io::Error),
}

impl fmt::Display for NotOurs {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken => to.write_str("another process drives a device there"),
            Self::Io(error) => write!(to, "the lock of its station: {error}"),
        }
    }
}

impl std::error::Error for NotOurs {}

impl Station {
    /// Claims the frames of this group, at the interface of this number of the thread's network
    /// namespace.
    pub fn of_group(interface: u32, group: u32) -> Result<Self, NotOurs> {
        Self::named(&format!("quorate/device/{interface}/{group:08x}"))
    }

    /// Claims the programs in the kernel there: an interface has one device of these, whatever its
    /// group.
    pub fn of_programs(interface: u32) -> Result<Self, NotOurs> {
        Self::named(&format!("quorate/device/{interface}/kernel"))
    }

    fn named(name: &str) -> Result<Self, NotOurs> {
        let address = net::SocketAddr::from_abstract_name(name).map_err(NotOurs::Io)?;
        match net::UnixDatagram::bind_addr(&address) {
            Ok(socket) => Ok(Self(socket)),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(NotOurs::Taken),
            Err(error) => Err(NotOurs::Io(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No machine has an interface of these numbers.
    #[test]
    fn a_station_is_one_process_s_until_it_goes() {
        let of = |group| Station::of_group(u32::MAX, group);
        let (one, other) = (of(1).unwrap(), of(2).unwrap());
        assert!(matches!(of(1), Err(NotOurs::Taken)));
        let kernel = Station::of_programs(u32::MAX).unwrap();
        assert!(Station::of_programs(u32::MAX - 1).is_ok());
        drop((one, kernel));
        assert!(of(1).is_ok() && matches!(of(2), Err(NotOurs::Taken)));
        drop(other);
    }
}
