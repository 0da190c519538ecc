//! Settings of a device in user space.

use quorate_offload::{Address, Form, Routes, Setup, port::Shape};

/// Fixed for its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Hash of cluster, generation and number.
    pub group: u32,
    /// Cells of each program: a power of two.
    pub cells: u32,
    /// Bytes of a value's room: whole words, at most [`quorate_offload::header::ROOM_BYTES_MAX`].
    pub room: usize,
    /// Form of the bytes around the header.
    pub form: Form,
    /// Address where it receives from others, and from its owner.
    pub own: Address,
    /// Reaches every device of the group, this one included: a group of stations.
    pub all_hosts: Address,
    /// Destination of decisions: all devices, or a group that clients are in, too.
    pub decisions: Address,
    /// Frames of each program that wait for the owner at most; more votes and decisions are lost,
    /// and counted.
    pub tap_frames: usize,
}

impl Settings {
    /// Returns the owner's address. Nothing is sent there: such frames end in the owner's queue.
    pub fn owner(&self) -> Address {
        let mut owner = self.own;
        // Locally administered, one station, and not the device's.
        owner.mac[0] ^= 4;
        owner
    }

    /// As its owner sees it.
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

    /// As its programs see it.
    pub(crate) fn setup(&self) -> Setup {
        Setup {
            group: self.group,
            room: self.room,
            own: self.own,
            heard: self.all_hosts.mac,
            owner: self.owner(),
        }
    }

    /// Returns the routes of proposals and votes. They go to all devices, as any of them may lead
    /// next.
    pub(crate) fn routes(&self) -> Routes {
        Routes::of(&[self.all_hosts]).expect("one route")
    }

    /// Returns the routes of decisions.
    pub(crate) fn decisions(&self) -> Routes {
        Routes::of(&[self.decisions]).expect("one route")
    }

    /// Bytes of a frame.
    pub fn frame_bytes(&self) -> usize {
        self.form.room_at() + self.room
    }
}
