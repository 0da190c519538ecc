//! The port: a device from its owner's point of view ([offload-17]). It is the same for a kernel, a
//! switch, an FPGA, a thread and the simulator.
//!
//! A port does little more than exchange frames. An owner sends a request as a frame to the owner's
//! port of one of the two programs, and receives responses, votes and decisions as frames. A device
//! may lose, duplicate and reorder them. Calls are numbered, and an owner repeats those whose
//! responses it needs.

use alloc::string::String;

use crate::{Encapsulation, reason::COUNTERS};

/// The two programs of a device. Every device in this crate has both; in one that only votes, the
/// coordinator is never started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Program {
    Acceptor,
    Coordinator,
}

impl Program {
    pub const ALL: [Self; 2] = [Self::Acceptor, Self::Coordinator];
}

/// Origin of a frame for the owner, which determines how far the owner trusts it ([offload-21]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FrameOrigin {
    /// The network. The device passed the frame on unchanged, so its sender is unauthenticated.
    Network,
    /// One of the programs, responding to a frame from the network.
    NetworkResponse,
    /// One of the programs, responding to its owner or to the other program.
    LocalResponse,
}

/// Fixed capacity and addresses of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceShape {
    /// Hash of the cluster, generation and number of the group.
    pub group: u32,
    /// Number of cells of each program, a power of two.
    pub cells: u32,
    /// Size of the value area in bytes: a multiple of 8, at most [`crate::header::ROOM_BYTES_MAX`].
    pub room: usize,
    /// Encapsulation of frames at the owner's port.
    pub form: Encapsulation,
    /// Device address used by the owner.
    pub device_address: crate::Address,
    /// Owner address used by the device.
    pub owner_address: crate::Address,
    /// Multicast address of all devices of the group.
    pub all_hosts: crate::Address,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// A step that began before the drain may still run.
    InProgress,
    /// All steps that began before the drain have ended.
    Complete,
    /// The progress cannot be determined. The device must be treated as lost.
    Unknown,
}

/// Network connection of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Connectivity {
    /// Connected, to the device's knowledge.
    Connected,
    /// Interrupted, but expected to recover without intervention. Contains the reason, for
    /// operators.
    Interrupted(String),
    /// Permanently lost, because the device was detached from its interface. Its owner can still
    /// query it and read it out. Contains the reason, for operators.
    Detached(String),
}

/// A device as its owner sees it. No call blocks.
pub trait Device {
    fn shape(&self) -> DeviceShape;

    /// Delivers a frame to the owner's port of a program. The frame may be lost.
    fn put_frame(&mut self, program: Program, frame: &[u8]);

    /// Sends a frame to the other devices, bypassing this device's programs. The frame may be lost.
    fn send_to_devices(&mut self, frame: &[u8]);

    /// Removes the oldest frame for the owner and writes it to `frame`, replacing its contents.
    /// Returns the program that sent it and its origin.
    fn take_frame(&mut self, frame: &mut alloc::vec::Vec<u8>) -> Option<(Program, FrameOrigin)>;

    /// [offload-8] Starts waiting until all steps that are running now have ended.
    ///
    /// Once the drain is over, the responses of those steps are either lost or among the frames
    /// that [`Device::take_frame`] returns before its next `None`. This matters because cell
    /// reports have no number: a cell read before a vote but received after it would hide the vote.
    fn begin_drain(&mut self);

    /// Returns the progress of the latest drain.
    fn drain_progress(&mut self) -> Drained;

    /// Returns the number of frames for the owner that were lost for lack of space ([offload-14]).
    /// Never decreases.
    fn lost_frame_count(&self) -> u64;

    /// Returns how often the device has reported the loss of its memory since the port was opened
    /// ([offload-9]). Never decreases. Most devices cannot detect a loss; their owners notice it in
    /// the responses, or not at all.
    fn memory_loss_count(&self) -> u64 {
        0
    }

    /// Returns the state of the device's network connection, which most devices cannot determine.
    /// Takes some system calls, so it should be called only occasionally.
    fn connectivity(&mut self) -> Connectivity {
        Connectivity::Connected
    }

    /// Returns the current name of the device's interface if it was renamed after it was opened.
    fn renamed_interface(&mut self) -> Option<String> {
        None
    }

    /// Returns the number of frames for each [`crate::Reason`], summed over both programs
    /// ([offload-16]). Takes some system calls, so it should be called only occasionally. Counters
    /// that a device lacks are zero.
    fn reason_counts(&mut self) -> [u64; COUNTERS] {
        [0; COUNTERS]
    }
}
