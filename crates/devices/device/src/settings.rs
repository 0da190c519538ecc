//! Fixed settings of a device in user space.

use quorate_offload::{Address, Encapsulation, Routes, Setup, port::DeviceShape};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Hash of the cluster, generation and number of the group.
    pub group: u32,
    /// Number of cells of each program, a power of two.
    pub cells: u32,
    /// Size of the value area of a frame in bytes: a multiple of 8, at most
    /// [`quorate_offload::header::ROOM_BYTES_MAX`].
    pub room: usize,
    /// Encapsulation of frames in front of the device's own header.
    pub form: Encapsulation,
    /// Address at which the device receives frames from others and from its owner.
    pub own_address: Address,
    /// Multicast address of all devices of the group, including this one.
    pub all_hosts: Address,
    /// Address to which decisions are sent: all devices, or a multicast group that also includes
    /// clients.
    pub decision_address: Address,
    /// Maximum number of frames queued for the owner, per program. Further votes and decisions are
    /// dropped and counted.
    pub tap_frames: usize,
}

impl Settings {
    /// Returns the owner's address. It never appears on the network, because frames for it go to
    /// the owner's queue.
    pub fn owner(&self) -> Address {
        let mut owner = self.own_address;
        // The address must be locally administered unicast and differ from the device's.
        owner.mac[0] ^= 4;
        owner
    }

    /// Returns the subset of the settings that the owner needs.
    pub fn shape(&self) -> DeviceShape {
        DeviceShape {
            group: self.group,
            cells: self.cells,
            room: self.room,
            form: self.form,
            device_address: self.own_address,
            owner_address: self.owner(),
            all_hosts: self.all_hosts,
        }
    }

    /// Returns the subset of the settings that the programs need.
    pub(crate) fn setup(&self) -> Setup {
        Setup {
            group: self.group,
            room: self.room,
            own_address: self.own_address,
            heard_group: self.all_hosts.mac,
            owner: self.owner(),
        }
    }

    /// Returns the destinations of proposals and votes, which are all devices, because any of them
    /// may lead next.
    pub(crate) fn peer_routes(&self) -> Routes {
        Routes::of(&[self.all_hosts]).expect("one route")
    }

    pub(crate) fn decision_routes(&self) -> Routes {
        Routes::of(&[self.decision_address]).expect("one route")
    }

    pub fn frame_bytes(&self) -> usize {
        self.form.room_offset() + self.room
    }
}
