//! Setup of a device: its group, its place in the network, the destinations of its frames.

use crate::{Address, header::ROOM_BYTES_MAX};

/// Destinations of one kind of frame: addresses come from here, never from a frame, except for
/// refusals (§3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Routes {
    list: [Address; Self::MAX],
    count: usize,
}

impl Routes {
    /// One for each position.
    pub const MAX: usize = 16;

    /// Returns `None` if there are more than [`Routes::MAX`]. One address of a group of stations
    /// reaches them all.
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

/// Fixed for the life of a device. What belongs to a ballot is in the record that it is armed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Hash of cluster, generation and number.
    pub group: u32,
    /// Bytes of the room for a value: one size for all frames of a group.
    pub room: usize,
    /// Source of frames that leave here; its port is the one that is listened to.
    pub own: Address,
    /// The group of stations that is listened to, too.
    pub heard: [u8; 6],
    /// Address where the owner receives answers.
    pub owner: Address,
}

impl Setup {
    /// Returns whether the size of the room is valid for frames.
    pub(crate) const fn is_sound(&self) -> bool {
        self.room.is_multiple_of(8) && self.room <= ROOM_BYTES_MAX
    }
}
