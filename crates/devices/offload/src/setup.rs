//! Setup of a device: its group, its addresses, and the destinations of its frames.

use crate::{Address, header::ROOM_BYTES_MAX};

/// Destinations of one type of frame. All addresses come from the setup, never from a frame, except
/// for those of refusals (§3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Routes {
    addresses: [Address; Self::MAX],
    count: usize,
}

impl Routes {
    /// Maximum number of destinations, one for each position.
    pub const MAX: usize = 16;

    /// Creates routes, or returns `None` if there are more than [`Routes::MAX`] addresses. A
    /// multicast address counts once.
    pub fn of(addresses: &[Address]) -> Option<Self> {
        let mut list = [Address::default(); Self::MAX];
        list.get_mut(..addresses.len())?.copy_from_slice(addresses);
        let count = addresses.len();
        Some(Self { addresses: list, count })
    }

    pub fn iter(&self) -> impl Iterator<Item = &Address> {
        self.addresses[..self.count].iter()
    }
}

/// Permanent configuration of a device. Parameters that depend on a ballot are in the record that
/// arms it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Hash of the cluster, generation and number of the group.
    pub group: u32,
    /// Size of the value area in bytes, the same in all frames in a group.
    pub room: usize,
    /// Source address of the frames that the device sends. The device also receives on the port of
    /// this address.
    pub own_address: Address,
    /// MAC address of a group of stations whose frames the device also accepts.
    pub heard_group: [u8; 6],
    pub owner: Address,
}

impl Setup {
    /// Returns whether the value area is at most 1408 bytes long and a multiple of 8.
    pub(crate) const fn has_valid_room(&self) -> bool {
        self.room.is_multiple_of(8) && self.room <= ROOM_BYTES_MAX
    }
}
