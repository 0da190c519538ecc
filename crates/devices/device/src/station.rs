//! Claims that limit a machine to one device per address: locks in the network namespace, which the
//! kernel releases when the process ends.
//!
//! All devices at an interface have the same address, so two devices of the same group would
//! receive each other's frames. The lock is a socket name, because socket names belong to a network
//! namespace, as interfaces do. Files belong to a mount namespace, which containers on the host's
//! network may not share.

use std::{
    fmt, io,
    os::{linux::net::SocketAddrExt as _, unix::net},
};

/// A claim to a device's address, valid until it is dropped or the process ends.
#[derive(Debug)]
pub struct StationClaim(#[allow(dead_code, reason = "it is held")] net::UnixDatagram);

#[derive(Debug)]
pub enum ClaimError {
    /// Another process has claimed the address.
    AlreadyClaimed,
    /// The check whether the address is claimed failed.
    Io(io::Error),
}

impl fmt::Display for ClaimError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AlreadyClaimed => to.write_str("another process drives a device there"),
            Self::Io(error) => write!(to, "the lock of its station: {error}"),
        }
    }
}

impl std::error::Error for ClaimError {}

impl StationClaim {
    /// Claims a group's frames at an interface, given by its index in the thread's network
    /// namespace.
    pub fn of_group(interface: u32, group: u32) -> Result<Self, ClaimError> {
        Self::claim_name(&format!("quorate/device/{interface}/{group:08x}"))
    }

    /// Claims the right to have kernel programs at an interface. An interface can have only one
    /// such device, whatever its group.
    pub fn of_programs(interface: u32) -> Result<Self, ClaimError> {
        Self::claim_name(&format!("quorate/device/{interface}/kernel"))
    }

    fn claim_name(name: &str) -> Result<Self, ClaimError> {
        let address = net::SocketAddr::from_abstract_name(name).map_err(ClaimError::Io)?;
        match net::UnixDatagram::bind_addr(&address) {
            Ok(socket) => Ok(Self(socket)),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                Err(ClaimError::AlreadyClaimed)
            }
            Err(error) => Err(ClaimError::Io(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A claim is exclusive until it is dropped. No interfaces with the indexes used here exist.
    #[test]
    fn station_claim_is_exclusive_until_dropped() {
        let of = |group| StationClaim::of_group(u32::MAX, group);
        let (one, other) = (of(1).unwrap(), of(2).unwrap());
        assert!(matches!(of(1), Err(ClaimError::AlreadyClaimed)));
        let kernel = StationClaim::of_programs(u32::MAX).unwrap();
        assert!(StationClaim::of_programs(u32::MAX - 1).is_ok());
        drop((one, kernel));
        assert!(of(1).is_ok() && matches!(of(2), Err(ClaimError::AlreadyClaimed)));
        drop(other);
    }
}
