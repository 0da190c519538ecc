//! Source and destination of a handle's values: a node in this process, or a remote node.

use std::{collections::VecDeque, os::fd::BorrowedFd, sync::Arc, time::Duration};

use crate::error::Failed;

/// Outcome of a request: its slot, or the reason why it was not done.
pub type Outcome = Result<u64, Failed>;

/// Called once with the outcome of a request, on a thread of the library, which it must not block.
pub type Done = Box<dyn FnOnce(Outcome) + Send>;

/// Position of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cursor {
    /// Oldest retained value, as soon as there is one.
    Oldest,
    /// This slot.
    At(u64),
    /// Next value that is assigned a slot.
    End,
}

/// Result of reading at a cursor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// A value with its slot.
    Value(u64, Arc<[u8]>),
    /// No value yet.
    Ahead,
    /// Trimmed; the first retained slot.
    Forgotten(u64),
    /// No further values will follow.
    Ended(Failed),
}

/// Values in consecutive slots.
pub type Values = VecDeque<(u64, Arc<[u8]>)>;

/// A node, local or remote. No call blocks, except [`Source::ready`], [`Source::status`] and
/// [`Source::close`].
pub trait Source: Send + Sync {
    /// Announces the first of newly gathered values ([`crate::submits`]).
    fn gathered(&self);

    /// Announces a caller that waits for an answer and does not handle events meanwhile.
    fn attend(&self) {}

    /// Forgets all slots below `below`; `done` gets the first retained slot.
    fn trim(&self, below: u64, done: Done) -> Result<(), Failed>;

    /// Requests the next slot that the whole cluster will assign, now or later.
    fn sync(&self, done: Done) -> Result<(), Failed>;

    /// Sets the position of reading, and returns it: [`Cursor::End`] is resolved to a slot if that
    /// is known. Values appended from here afterwards are always at or after the end. Fails if the
    /// slot is known to be trimmed.
    fn seek(&self, cursor: Cursor) -> Result<Cursor, Failed>;

    /// Appends some values from the cursor on to `to`. The cursor must be the last position, or
    /// after the values taken since. Returns the reason if there are none. [`Cursor::End`] is
    /// resolved to a slot as soon as that is known.
    fn read(&self, cursor: &mut Cursor, to: &mut Values) -> Option<Read>;

    /// Returns the value in a slot, if it is retained here. Delivery is not affected.
    fn peek(&self, slot: u64) -> Result<Read, Failed>;

    /// Reports that the values up to this slot are not needed again.
    fn taken(&self, slot: u64);

    /// Processes pending input, on the thread that handles events.
    fn hear(&self) {}

    /// Returns a descriptor that is readable while input may be pending; `None` if the bell
    /// announces all input.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Waits until the node is ready, or never will be.
    fn ready(&self, wait: Duration) -> Result<(), Failed>;

    /// Returns the node's status, as JSON.
    fn status(&self, wait: Duration) -> Result<String, Failed>;

    /// Closes the source. Open requests are answered first, with what is known of them.
    fn close(&self) -> Result<(), Failed>;
}

/// Returns the error for a trimmed slot.
pub fn forgotten(slot: u64, first: u64) -> Failed {
    Failed::new(
        crate::error::Code::Trimmed,
        format!("slot {slot} was trimmed; the first slot that is held is {first}"),
    )
    .hint("take over the state of a replica that has delivered it, and go on behind that state")
}
