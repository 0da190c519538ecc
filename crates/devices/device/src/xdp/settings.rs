//! Fixed settings with which a device is loaded into the kernel. The verifier treats them as
//! constants.

use quorate_offload::{Address, Routes, Setup, header::ROOM_BYTES_MAX};

use crate::xdp::XdpError;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Group, size of the value area, and addresses.
    pub setup: Setup,
    /// Destination of an acceptor's votes, unicast or multicast. There is only one because an XDP
    /// program can send only one frame for each that arrives; the network copies it.
    pub vote_address: Address,
    pub proposal_address: Address,
    pub decisions: Address,
    /// Number of cells in the ring of each program, a power of two up to 2^24 ([offload-14]).
    pub cells: u32,
    /// Size of the tap in bytes: a power of two, and a multiple of the page size.
    pub tap_bytes: u32,
}

/// Size of `struct setup` in `device.h`.
pub(crate) const SETUP_BYTES: usize = 84;

impl Settings {
    /// Derives the settings from the routes of the reference programs.
    pub fn from_routes(
        setup: Setup,
        votes: &Routes,
        proposals: &Routes,
        decisions: &Routes,
    ) -> Result<Self, XdpError> {
        let one = |routes: &Routes| {
            let mut routes = routes.iter();
            match (routes.next(), routes.next()) {
                (Some(one), None) => Ok(*one),
                _ => Err(XdpError::Routes),
            }
        };
        Ok(Self {
            setup,
            vote_address: one(votes)?,
            proposal_address: one(proposals)?,
            decisions: one(decisions)?,
            cells: 1 << 14,
            tap_bytes: 1 << 22,
        })
    }

    pub(crate) fn validate(&self) -> Result<(), XdpError> {
        let room = self.setup.room;
        if !room.is_multiple_of(8) || room == 0 || room > ROOM_BYTES_MAX {
            return Err(XdpError::InvalidRoom(room));
        }
        if !self.cells.is_power_of_two() || self.cells > 1 << 24 {
            return Err(XdpError::InvalidCells(self.cells));
        }
        Ok(())
    }

    /// Encodes the settings for the programs: addresses as in frames, numbers in native byte order.
    pub(crate) fn bytes(&self, cpus: u32) -> [u8; SETUP_BYTES] {
        let mut bytes = [0; SETUP_BYTES];
        let mut at = 0;
        let mut put = |part: &[u8]| {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        };
        let room = u32::try_from(self.setup.room).expect("checked: at most 1408");
        put(&self.setup.group.to_be_bytes());
        for number in [room, self.cells, cpus] {
            put(&number.to_ne_bytes());
        }
        for address in [
            &self.setup.own_address,
            &self.setup.owner,
            &self.vote_address,
            &self.proposal_address,
            &self.decisions,
        ] {
            put(&address.mac);
            put(&address.port.to_be_bytes());
            put(&address.ip);
        }
        put(&self.setup.heard_group);
        bytes
    }

    /// Decodes the settings of a device that another process loaded. The size of its tap is `tap`.
    pub(crate) fn decode(bytes: &[u8; SETUP_BYTES], tap: u32) -> Result<Self, XdpError> {
        let part = |at: usize| -> [u8; 4] { std::array::from_fn(|byte| bytes[at + byte]) };
        let mac = |at: usize| -> [u8; 6] { std::array::from_fn(|byte| bytes[at + byte]) };
        let address = |number: usize| {
            let at = 16 + 12 * number;
            Address {
                mac: mac(at),
                port: u16::from_be_bytes([bytes[at + 6], bytes[at + 7]]),
                ip: part(at + 8),
            }
        };
        let room = u32::from_ne_bytes(part(4));
        let settings = Self {
            setup: Setup {
                group: u32::from_be_bytes(part(0)),
                room: usize::try_from(room).unwrap_or(usize::MAX),
                own_address: address(0),
                heard_group: mac(76),
                owner: address(1),
            },
            vote_address: address(2),
            proposal_address: address(3),
            decisions: address(4),
            cells: u32::from_ne_bytes(part(8)),
            tap_bytes: tap,
        };
        settings.validate().map(|()| settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        let address =
            |last| Address { mac: [2, 0, 0, 0, 0, last], ip: [10, 0, 0, last], port: 0x1234 };
        let route = Routes::of(&[address(7)]).unwrap();
        let setup = Setup {
            group: 0x0a0b_0c0d,
            room: 64,
            own_address: address(1),
            heard_group: [3; 6],
            owner: address(2),
        };
        Settings::from_routes(setup, &route, &route, &Routes::of(&[address(8)]).unwrap()).unwrap()
    }

    #[test]
    fn encoded_fields_are_at_their_offsets() {
        let bytes = settings().bytes(3);
        assert_eq!(bytes[..4], [0x0a, 0x0b, 0x0c, 0x0d]);
        assert_eq!(bytes[4..8], 64_u32.to_ne_bytes());
        assert_eq!(bytes[12..16], 3_u32.to_ne_bytes());
        assert_eq!(bytes[16..28], [2, 0, 0, 0, 0, 1, 0x12, 0x34, 10, 0, 0, 1]);
        assert_eq!(bytes[33], 2);
        assert_eq!((bytes[45], bytes[57], bytes[69]), (7, 7, 8));
        assert_eq!(bytes[76..], [3, 3, 3, 3, 3, 3, 0, 0]);
    }

    #[test]
    fn encoded_settings_are_decoded_unchanged() {
        let settings = settings();
        assert_eq!(Settings::decode(&settings.bytes(3), settings.tap_bytes).unwrap(), settings);
        assert!(Settings::decode(&[0; SETUP_BYTES], settings.tap_bytes).is_err());
    }

    #[test]
    fn invalid_sizes_and_duplicate_routes_are_refused() {
        for room in [0, 12, 1416] {
            let mut settings = settings();
            settings.setup.room = room;
            assert!(settings.validate().is_err(), "{room}");
        }
        for cells in [0, 3, 1 << 25] {
            let settings = Settings { cells, ..settings() };
            assert!(settings.validate().is_err(), "{cells}");
        }
        assert!(settings().validate().is_ok());
        let two = Routes::of(&[settings().vote_address, settings().vote_address]).unwrap();
        assert!(Settings::from_routes(settings().setup, &two, &two, &two).is_err());
    }
}
