//! Source and destination of a handle's values: a node in this process, or a remote node.

use std::{collections::VecDeque, os::fd::BorrowedFd, sync::Arc, time::Duration};

use crate::error::Failed;

/// Outcome of a request: its slot, or the reason why it was not done.
pub type Outcome = Result<u64, Failed>;

/// Hears how a request ended: once, on a thread of the library, which it must not keep waiting.
pub type Done = Box<dyn FnOnce(Outcome) + Send>;

/// Position of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cursor {
    /// At the oldest value that is held when there is one.
    Oldest,
    /// At this slot.
    At(u64),
    /// At the next value that is given a slot.
    End,
}

/// Result of reading at a cursor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// This value, in this slot.
    Value(u64, Arc<[u8]>),
    /// Nothing yet.
    Ahead,
    /// Forgotten; the first slot that is held.
    Forgotten(u64),
    /// There will be nothing more.
    Ended(Failed),
}

/// Values with their slots, one behind the other.
pub type Values = VecDeque<(u64, Arc<[u8]>)>;

/// A node, here or elsewhere. All calls return at once, but [`Source::status`] and
/// [`Source::close`].
pub trait Source: Send + Sync {
    /// Announces the first of newly gathered values ([`crate::submits`]).
    fn gathered(&self);

    /// Announces a caller that waits for an answer, and takes no events meanwhile.
    fn attend(&self) {}

    /// Forgets all slots below; `done` hears the first slot that is held.
    fn trim(&self, below: u64, done: Done) -> Result<(), Failed>;

    /// Asks for the next slot to be given out, as of now or later, for the whole cluster.
    fn sync(&self, done: Done) -> Result<(), Failed>;

    /// Reading goes on here; an end is already the slot that it is if that is known. Values that
    /// are appended from here afterwards are not before an end. `Err`: that slot is known to be
    /// forgotten.
    fn seek(&self, cursor: Cursor) -> Result<Cursor, Failed>;

    /// Values from this cursor on, which is where reading went on last, or behind what was taken
    /// since: some of them go `to` the end of that. `Some`: why there is none. An end becomes a
    /// slot as soon as it is known which.
    fn read(&self, cursor: &mut Cursor, to: &mut Values) -> Option<Read>;

    /// The value in this slot, if it is held here; nothing is said of delivery.
    fn peek(&self, slot: u64) -> Result<Read, Failed>;

    /// The values up to this slot are not needed again.
    fn taken(&self, slot: u64);

    /// Hears what there is, on the thread that takes events.
    fn hear(&self) {}

    /// Readable while there may be something to take; `None`: whenever the bell rang, and only
    /// then.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Waits until it serves, or will not.
    fn ready(&self, wait: Duration) -> Result<(), Failed>;

    /// Returns the node's status, as JSON.
    fn status(&self, wait: Duration) -> Result<String, Failed>;

    /// Ends it; whatever was asked is answered first, with what is known.
    fn close(&self) -> Result<(), Failed>;
}

/// A slot that is not held any more.
pub fn forgotten(slot: u64, first: u64) -> Failed {
    Failed::new(
        crate::error::Code::Trimmed,
        format!("slot {slot} was trimmed; the first slot that is held is {first}"),
    )
    .hint("take over the state of a replica that has delivered it, and go on behind that state")
}
