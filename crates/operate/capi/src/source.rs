//! Source behind a handle: the node, in this process or remote, that accepts submitted values and
//! delivers values to read.

use std::{collections::VecDeque, os::fd::BorrowedFd, sync::Arc, time::Duration};

use crate::error::Failed;

/// Outcome of a request: the slot, or the error.
pub type Outcome = Result<u64, Failed>;

/// A callback that is called once with the outcome of a request, on a thread of the library. It
/// must not block.
pub type DoneCallback = Box<dyn FnOnce(Outcome) + Send>;

/// Position of a reader in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cursor {
    /// The oldest retained value, as soon as there is one.
    Oldest,
    /// The value in this slot.
    At(u64),
    /// The next value that is assigned a slot.
    End,
}

/// Result of reading at a cursor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadResult {
    /// A value, with its slot.
    Value(u64, Arc<[u8]>),
    /// The slot has no value yet.
    NotYetWritten,
    /// The slot was trimmed. Contains the first retained slot.
    Trimmed(u64),
    /// The source has ended for this reason, so no more values will follow.
    SourceEnded(Failed),
}

/// Values in consecutive slots.
pub type Values = VecDeque<(u64, Arc<[u8]>)>;

/// A node, local or remote. No call blocks, except [`Source::wait_until_ready`], [`Source::status`]
/// and [`Source::close`].
pub trait Source: Send + Sync {
    /// Notifies the source that values are waiting to be sent. Called when the first one is queued
    /// ([`crate::submits`]).
    fn on_values_gathered(&self);

    /// Announces a caller that is waiting for an answer and will not handle events until it
    /// arrives.
    fn announce_waiter(&self) {}

    /// Trims all slots below `below`. `done` gets the first retained slot.
    fn trim(&self, below: u64, done: DoneCallback) -> Result<(), Failed>;

    /// Requests the next slot that the cluster as a whole will assign.
    fn sync(&self, done: DoneCallback) -> Result<(), Failed>;

    /// Sets the reading position and returns it, with [`Cursor::End`] resolved to a slot if the end
    /// is known. Values that this program appends after the call are always at or after the end.
    /// Fails if the slot is known to be trimmed.
    fn set_cursor(&self, cursor: Cursor) -> Result<Cursor, Failed>;

    /// Appends some values, starting at the cursor, to `to`. The cursor must be the position set
    /// last, or the one after the values taken since then. If there are no values, returns the
    /// reason. [`Cursor::End`] is resolved to a slot once the end is known.
    fn read_values(&self, cursor: &mut Cursor, to: &mut Values) -> Option<ReadResult>;

    /// Returns the value in a slot, if this source retains it. Delivery is not affected.
    fn read_slot(&self, slot: u64) -> Result<ReadResult, Failed>;

    /// Reports that the values up to `slot` are no longer needed.
    fn mark_taken(&self, slot: u64);

    /// Processes pending input. Called on the thread that handles events.
    fn process_input(&self) {}

    /// Returns a descriptor that is readable while input may be pending; `None` if the bell
    /// announces all input.
    fn input_descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Waits until the node is ready. Fails if it never will be.
    fn wait_until_ready(&self, wait: Duration) -> Result<(), Failed>;

    /// Returns the status of the node as JSON.
    fn status(&self, wait: Duration) -> Result<String, Failed>;

    /// Closes the source, after completing unanswered requests whose outcome is known.
    fn close(&self) -> Result<(), Failed>;
}

/// Returns the error for a trimmed slot. `first` is the first retained slot.
pub fn trimmed_error(slot: u64, first: u64) -> Failed {
    Failed::new(
        crate::error::Code::Trimmed,
        format!("slot {slot} was trimmed; the first slot that is held is {first}"),
    )
    .with_hint(
        "take over the state of a replica that has delivered it, and go on behind that state",
    )
}
