//! The port: a device from its owner's side ([offload-17]), the same for a kernel, a switch, an
//! FPGA, a thread and the simulator.
//!
//! It consists of little more than frames: an owner's request is a frame into the owner's port of
//! one of both programs, and answers, votes and decisions are frames out of it. A device may lose,
//! repeat and reorder them; calls have numbers, and an owner repeats those whose answers it needs.

use alloc::string::String;

use crate::{Form, reason::COUNTERS};

/// The two programs of a device. Every device here has both; the coordinator of a device that only
/// votes is never started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Program {
    /// Votes.
    Acceptor,
    /// Assigns slots, and counts votes.
    Coordinator,
}

impl Program {
    /// Both programs.
    pub const ALL: [Self; 2] = [Self::Acceptor, Self::Coordinator];
}

/// Origin of a frame for the owner, which determines how far it is trusted ([offload-21]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FrameOrigin {
    /// From the network, and passed on unchanged: its origin is unknown, whatever address it names.
    Network,
    /// From one of the programs, in response to a frame from the network.
    Asked,
    /// From one of the programs, in response to its owner or the other program.
    Inside,
}

/// Capacity and addresses of a device; fixed for its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Hash of cluster, generation and number.
    pub group: u32,
    /// Number of cells of each program: a power of two.
    pub cells: u32,
    /// Size of the value area in bytes: whole words, at most [`crate::header::ROOM_BYTES_MAX`].
    pub room: usize,
    /// Form of frames at the owner's port.
    pub form: Form,
    /// Address of the device for its owner.
    pub own: crate::Address,
    /// Address of the owner for the device.
    pub owner: crate::Address,
    /// Group address of all devices of the group.
    pub all_hosts: crate::Address,
}

/// Progress of a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// A step that began before the drain may still run.
    NotYet,
    /// No such step runs any more.
    Over,
    /// The state cannot be known: the device must be treated as gone.
    Unknown,
}

/// Connection of a device to the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Connectivity {
    /// Connected, as far as can be known here.
    Well,
    /// Interrupted, and expected to recover by itself. With the reason, for humans.
    Paused(String),
    /// Permanently lost: the device was removed from its place. Its owner can still query it, and
    /// reads it out. With the reason, for humans.
    Over(String),
}

/// A device, to its owner. No call blocks.
pub trait Device {
    /// Returns the device's capacity and addresses.
    fn shape(&self) -> Shape;

    /// Puts a frame into the owner's port of a program, if the device is there.
    fn put(&mut self, program: Program, frame: &[u8]);

    /// Sends an owner's frame to other devices, bypassing the device's programs; it may be lost as
    /// on any wire.
    fn send(&mut self, frame: &[u8]);

    /// Takes the oldest frame for the owner, replacing the buffer's contents. Returns the program
    /// that sent it, and its origin.
    fn take(&mut self, frame: &mut alloc::vec::Vec<u8>) -> Option<(Program, FrameOrigin)>;

    /// [offload-8] Begins to wait until no step runs that began before now.
    ///
    /// Once the drain is over, answers of those steps are lost, or among the frames that
    /// [`Device::take`] returns before its next `None`. Cells have no number: one that was read
    /// before votes were cast, and arrived afterwards, would hide them.
    fn drain(&mut self);

    /// Returns the progress of the last drain.
    fn drained(&mut self) -> Drained;

    /// Returns the number of frames for the owner that were lost for lack of space ([offload-14]);
    /// never decreases.
    fn lost(&self) -> u64;

    /// Returns how often the device is known to have lost its memory since its port was opened
    /// ([offload-9]); never decreases. Most devices cannot know, and their owners learn it from
    /// their answers, or not at all.
    fn memory_losses(&self) -> u64 {
        0
    }

    /// Returns the device's connection to the network. Takes some system calls, so call it only
    /// occasionally. Most devices cannot know.
    fn connectivity(&mut self) -> Connectivity {
        Connectivity::Well
    }

    /// Returns the current name of its interface, if it was renamed since it was found.
    fn renamed_interface(&mut self) -> Option<String> {
        None
    }

    /// Returns the counts of frames by outcome ([offload-16]), of both programs together, by number
    /// of [`crate::Reason`]. Takes some system calls, so call it only occasionally. Unknown counts
    /// are zero.
    fn refused(&mut self) -> [u64; COUNTERS] {
        [0; COUNTERS]
    }
}
