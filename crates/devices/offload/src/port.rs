//! The port: a device as its owner has it ([offload-17]). Kernel, switch, FPGA, a thread and the
//! simulator's are of one kind behind it.
//!
//! It is frames, and little else: what an owner asks is a frame into the owner's port of one of
//! both programs, and answers, what was voted for and what was decided are frames that come out of
//! it. A device may lose, repeat and reorder them; calls have numbers, and an owner repeats what it
//! needs an answer to.

use alloc::string::String;

use crate::{Form, reason::COUNTERS};

/// The two programs of a device. Every device here has both; a device that votes only has a
/// coordinator that no owner starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Program {
    /// Votes.
    Acceptor,
    /// Assigns slots, and counts.
    Coordinator,
}

impl Program {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Acceptor, Self::Coordinator];
}

/// Origin of a frame for the owner, and so its credibility ([offload-21]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Came {
    /// From the network, and handed on unchanged: its origin is unknown, whatever address it names.
    Network,
    /// One of the programs says it, about a frame from the network.
    Asked,
    /// One of the programs says it, about what its owner or the other program asked.
    Inside,
}

/// Capacity and addresses of a device; fixed for its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Hash of cluster, generation and number.
    pub group: u32,
    /// Cells of each program: a power of two.
    pub cells: u32,
    /// Bytes of a value's room: whole words, at most [`crate::header::ROOM_BYTES_MAX`].
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
    /// A step may still run that began before it was asked for.
    NotYet,
    /// None does.
    Over,
    /// The state cannot be known: the device is as good as gone.
    Unknown,
}

/// Connection of a device to the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hearing {
    /// As far as can be known here.
    Well,
    /// Not now; it will again by itself. Why, for people.
    Paused(String),
    /// Permanently lost: the device was removed from its place. Its owner can still query it, and
    /// reads it out. With the reason, for people.
    Over(String),
}

/// A device, to its owner. No call blocks.
pub trait Device {
    /// Returns its capacity and addresses.
    fn shape(&self) -> Shape;

    /// Puts a frame into the owner's port of a program, if the device is there.
    fn put(&mut self, program: Program, frame: &[u8]);

    /// Sends a frame of the owner's to other devices, past the own programs: lost as on any wire.
    fn send(&mut self, frame: &[u8]);

    /// Takes the oldest frame for the owner, in place of the buffer's contents. Returns the program
    /// that it comes from, and its origin.
    fn take(&mut self, frame: &mut alloc::vec::Vec<u8>) -> Option<(Program, Came)>;

    /// [offload-8] Begins to wait until no step runs that began before now.
    ///
    /// Once it is over, what those steps answered is lost, or among what [`Device::take`] gives
    /// before its next `None`. Cells have no number: one that was read before votes were cast, and
    /// came after, would hide them.
    fn drain(&mut self);

    /// Returns the progress of the last drain.
    fn drained(&mut self) -> Drained;

    /// Returns the number of frames for the owner that were lost for lack of room ([offload-14]);
    /// never decreases.
    fn lost(&self) -> u64;

    /// Returns how often it is known to have lost its memory since its port was opened
    /// ([offload-9]); never decreases. Most devices cannot know, and their owners learn it from
    /// their answers, or not at all.
    fn forgot(&self) -> u64 {
        0
    }

    /// Returns its connection to the network; some system calls, so for now and then. Most devices
    /// cannot know.
    fn hearing(&mut self) -> Hearing {
        Hearing::Well
    }

    /// Returns the present name of its interface, if it was renamed since it was found.
    fn moved(&mut self) -> Option<String> {
        None
    }

    /// Frames by what became of them ([offload-16]), of both programs together, by number of
    /// [`crate::Reason`]; some system calls, so for now and then. What is not known is zero.
    fn refused(&mut self) -> [u64; COUNTERS] {
        [0; COUNTERS]
    }
}
