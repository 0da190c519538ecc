//! Setup of a device: its group, its place in the network, the destinations of its frames.

use crate::{Address, header::ROOM_BYTES_MAX};

/// Destinations of one kind of frame. Addresses are taken from here, never from a frame, except for
/// refusals (§3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Routes {
    list: [Address; Self::MAX],
    count: usize,
}

impl Routes {
    /// Maximum number of destinations: one for each position.
    pub const MAX: usize = 16;

    /// Creates routes; `None` if there are more than [`Routes::MAX`]. One address of a group of
    /// stations reaches them all.
    pub fn of(addresses: &[Address]) -> Option<Self> {
        let mut list = [Address::default(); Self::MAX];
        list.get_mut(..addresses.len())?.copy_from_slice(addresses);
        let count = addresses.len();
        Some(Self { list, count })
    }

    /// Returns all addresses.
    pub fn iter(&self) -> impl Iterator<Item = &Address> {
        self.list[..self.count].iter()
    }
}

/// Configuration for the life of a device. Everything specific to a ballot is in the record that it
/// is armed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Hash of cluster, generation and number.
    pub group: u32,
    /// Size of the value area in bytes, the same for all frames of a group.
    pub room: usize,
    /// Source address of frames sent; its port is the one that the device listens to.
    pub own: Address,
    /// Group of stations that the device also listens to.
    pub heard: [u8; 6],
    /// Address where the owner receives answers.
    pub owner: Address,
}

impl Setup {
    /// Returns whether the size of the value area is valid for frames.
    pub(crate) const fn is_sound(&self) -> bool {
        self.room.is_multiple_of(8) && self.room <= ROOM_BYTES_MAX
    }
}
