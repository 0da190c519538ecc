//! Settings of a device in user space.

use quorate_offload::{Address, Form, Routes, Setup, port::Shape};

/// Settings, fixed for the life of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Hash of cluster, generation and number of the group.
    pub group: u32,
    /// Number of cells of each program: a power of two.
    pub cells: u32,
    /// Size of the value field of a frame in bytes: whole words, at most
    /// [`quorate_offload::header::ROOM_BYTES_MAX`].
    pub room: usize,
    /// Headers that frames have before the device's own header.
    pub form: Form,
    /// Address at which it receives frames from others and from its owner.
    pub own: Address,
    /// Multicast address of all devices of the group, this one included.
    pub all_hosts: Address,
    /// Destination of decisions: all devices, or a multicast group that also includes clients.
    pub decisions: Address,
    /// Maximum number of queued frames for the owner, per program. Further votes and decisions are
    /// dropped and counted.
    pub tap_frames: usize,
}

impl Settings {
    /// Returns the owner's address. It is never used on the network: frames to it go to the owner's
    /// queue.
    pub fn owner(&self) -> Address {
        let mut owner = self.own;
        // A locally administered unicast address, different from the device's.
        owner.mac[0] ^= 4;
        owner
    }

    /// Returns the settings as the owner needs them.
    pub fn shape(&self) -> Shape {
        Shape {
            group: self.group,
            cells: self.cells,
            room: self.room,
            form: self.form,
            own: self.own,
            owner: self.owner(),
            all_hosts: self.all_hosts,
        }
    }

    /// Returns the settings as the programs need them.
    pub(crate) fn setup(&self) -> Setup {
        Setup {
            group: self.group,
            room: self.room,
            own: self.own,
            heard: self.all_hosts.mac,
            owner: self.owner(),
        }
    }

    /// Returns the routes of proposals and votes: to all devices, since each of them may lead next.
    pub(crate) fn routes(&self) -> Routes {
        Routes::of(&[self.all_hosts]).expect("one route")
    }

    /// Returns the routes of decisions.
    pub(crate) fn decisions(&self) -> Routes {
        Routes::of(&[self.decisions]).expect("one route")
    }

    /// Returns the length of a frame in bytes.
    pub fn frame_bytes(&self) -> usize {
        self.form.room_at() + self.room
    }
}
