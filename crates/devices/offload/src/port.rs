//! The port: a device as its owner sees it ([offload-17]). It is the same for a kernel, a switch,
//! an FPGA, a thread and the simulator.
//!
//! A port exchanges little more than frames. An owner sends a request as a frame to the owner's
//! port of one of the two programs, and receives responses, votes and decisions as frames. A device
//! may lose, repeat and reorder them. Calls have numbers, and an owner repeats those whose
//! responses it needs.

use alloc::string::String;

use crate::{Form, reason::COUNTERS};

/// The two programs of a device. Every device of this crate has both. If a device only votes, its
/// coordinator is never started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Program {
    Acceptor,
    Coordinator,
}

impl Program {
    pub const ALL: [Self; 2] = [Self::Acceptor, Self::Coordinator];
}

/// Origin of a frame for the owner. It determines how far the owner trusts the frame
/// ([offload-21]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FrameOrigin {
    /// The network. The device passed the frame on unchanged, so its real sender is unknown,
    /// whatever its source address.
    Network,
    /// One of the programs, responding to a frame from the network.
    Asked,
    /// One of the programs, responding to its owner or to the other program.
    Inside,
}

/// Capacity and addresses of a device, which never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Hash of the cluster, generation and number of the group.
    pub group: u32,
    /// Number of cells of each program, a power of two.
    pub cells: u32,
    /// Size of the value area in bytes: a multiple of 8, at most [`crate::header::ROOM_BYTES_MAX`].
    pub room: usize,
    /// Encapsulation of frames at the owner's port.
    pub form: Form,
    /// Device address used by the owner.
    pub own: crate::Address,
    /// Owner address used by the device.
    pub owner: crate::Address,
    /// Multicast address of all devices of the group.
    pub all_hosts: crate::Address,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// A step that began before the drain may still run.
    NotYet,
    /// All steps that began before the drain have ended.
    Over,
    /// The progress cannot be determined. The device must be treated as lost.
    Unknown,
}

/// Network connection of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Connectivity {
    /// Connected, as far as the device can tell.
    Well,
    /// Interrupted, but expected to recover by itself. Contains the reason, for humans.
    Paused(String),
    /// Permanently lost, because the device was detached from its interface. Its owner can still
    /// query it and read it out. Contains the reason, for humans.
    Over(String),
}

/// A device as its owner sees it. No call blocks.
pub trait Device {
    fn shape(&self) -> Shape;

    /// Delivers a frame to the owner's port of a program. The frame may be lost.
    fn put(&mut self, program: Program, frame: &[u8]);

    /// Sends a frame to the other devices, bypassing this device's programs. The frame may be lost.
    fn send(&mut self, frame: &[u8]);

    /// Removes the oldest frame for the owner and writes it to `frame`, replacing its contents.
    /// Returns the program that sent it and its origin.
    fn take(&mut self, frame: &mut alloc::vec::Vec<u8>) -> Option<(Program, FrameOrigin)>;

    /// [offload-8] Begins to wait until all steps that are running now have ended.
    ///
    /// Once the drain is over, the responses of those steps are either lost or among the frames
    /// that [`Device::take`] returns before its next `None`. This matters because cell reports have
    /// no number: a cell read before a vote but received after it would hide the vote.
    fn drain(&mut self);

    /// Returns the progress of the latest drain.
    fn drained(&mut self) -> Drained;

    /// Returns the number of frames for the owner that were lost for lack of space ([offload-14]).
    /// Never decreases.
    fn lost(&self) -> u64;

    /// Returns how often the device is known to have lost its memory since the port was opened
    /// ([offload-9]). Never decreases. Most devices cannot detect a loss; their owners notice it in
    /// the responses, or not at all.
    fn memory_losses(&self) -> u64 {
        0
    }

    /// Returns the state of the device's network connection. This takes some system calls, so call
    /// it only occasionally. Most devices cannot determine it.
    fn connectivity(&mut self) -> Connectivity {
        Connectivity::Well
    }

    /// Returns the current name of the device's interface if it was renamed after it was opened.
    fn renamed_interface(&mut self) -> Option<String> {
        None
    }

    /// Returns the number of frames for each [`crate::Reason`], summed over both programs
    /// ([offload-16]). This takes some system calls, so call it only occasionally. Counters that a
    /// device does not have are zero.
    fn refused(&mut self) -> [u64; COUNTERS] {
        [0; COUNTERS]
    }
}
