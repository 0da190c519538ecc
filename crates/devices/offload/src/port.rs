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
    /// Gives out slots, and counts.
    Coordinator,
}

impl Program {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Acceptor, Self::Coordinator];
}

/// What a frame for the owner was made of: how far it can be believed ([offload-21]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Came {
    /// From the network, and handed on as it was: nobody here knows who made it, whatever address
    /// it names.
    Network,
    /// One of the programs says it, about a frame from the network.
    Asked,
    /// One of the programs says it, about what its owner or the other program asked.
    Inside,
}

/// What a device can hold; fixed as long as it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Hash of cluster, generation and number.
    pub group: u32,
    /// Cells of each program: a power of two.
    pub cells: u32,
    /// Bytes of a value's room: whole words, at most [`crate::header::ROOM_BYTES_MAX`].
    pub room: usize,
    /// What is around the header of frames at the owner's port.
    pub form: Form,
    /// Where the device hears its owner.
    pub own: crate::Address,
    /// Where the owner hears the device.
    pub owner: crate::Address,
    /// Where all devices of the group hear each other.
    pub everybody: crate::Address,
}

/// How far a drain is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// A step may still run that began before it was asked for.
    NotYet,
    /// None does.
    Over,
    /// It cannot be known: the device is as good as gone.
    Unknown,
}

/// Whether a device hears the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hearing {
    /// As far as can be known here.
    Well,
    /// Not now; it will again by itself. Why, for people.
    Paused(String),
    /// Not any more: somebody took it from its place. Its owner can still ask it, and reads it out.
    /// Why, for people.
    Over(String),
}

/// A device, to its owner. No call blocks.
pub trait Device {
    /// What it can hold.
    fn shape(&self) -> Shape;

    /// Puts a frame into the owner's port of a program, if the device is there.
    fn put(&mut self, program: Program, frame: &[u8]);

    /// Sends a frame of the owner's to other devices, past the own programs: lost as on any wire.
    fn send(&mut self, frame: &[u8]);

    /// The oldest frame for the owner, in place of what was in the buffer; the program that it
    /// comes from, and what that made it of.
    fn take(&mut self, frame: &mut alloc::vec::Vec<u8>) -> Option<(Program, Came)>;

    /// [offload-8] Begins to wait until no step runs that began before now.
    ///
    /// Once it is over, what those steps answered is lost, or among what [`Device::take`] gives
    /// before its next `None`. Cells have no number: one that was read before votes were cast, and
    /// came after, would hide them.
    fn drain(&mut self);

    /// How far the last drain is.
    fn drained(&mut self) -> Drained;

    /// How many frames for the owner were lost for lack of room ([offload-14]); never falls.
    fn lost(&self) -> u64;

    /// How often it is known to have lost its memory since its port was opened ([offload-9]); never
    /// falls. Most devices cannot know, and their owners learn it from what they answer, or do not.
    fn forgot(&self) -> u64 {
        0
    }

    /// Whether it hears the network; some system calls, so for now and then. Most devices cannot
    /// know.
    fn hearing(&mut self) -> Hearing {
        Hearing::Well
    }

    /// What its interface is called now, if that is another name than the one that it was found by.
    fn moved(&mut self) -> Option<String> {
        None
    }

    /// Frames by what became of them ([offload-16]), of both programs together, by number of
    /// [`crate::Reason`]; some system calls, so for now and then. What is not known is zero.
    fn refused(&mut self) -> [u64; COUNTERS] {
        [0; COUNTERS]
    }
}
