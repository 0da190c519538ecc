//! The front port of byte streams: a client protocol's requests on streams, and their events. It
//! shares connections and failures with [`crate::front`].

use quorate_core::value::StreamName;
use quorate_log::disk::Blocks;
use quorate_stream::{Denied, Done, How, Info, Name, Retention, Writer, table::Nowhere};

use crate::outcome::Failure;
pub use crate::outcome::StreamTag;

/// Result of a request, or event of a piece that this node owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEvent<'a> {
    /// The command was executed; this was done.
    Done(StreamTag, Done),
    /// The command was executed, and changed nothing.
    Refused(StreamTag, Denied),
    /// Not done, or not known to be.
    Failed(StreamTag, Failure),
    /// The table here has everything that was acknowledged anywhere before the question, or the
    /// position waited for.
    Looked(StreamTag),
    /// Bytes of a stream, from the position asked for on; not empty.
    Bytes(StreamTag, &'a Blocks),
    /// There are no bytes at that position.
    Nowhere(StreamTag, Nowhere),
    /// [stream-7] All bytes of the stream below this position are decided, by the class of the
    /// group; the position is that of the named stream.
    Durable(StreamName, u64),
    /// The piece ended at this position of the named stream without a request from here: another
    /// writer took over, the stream was removed, or this node was thought to be lost. Bytes given
    /// beyond are void.
    Ended(StreamName, u64),
}

/// Requests that a front can make. All calls return immediately.
pub trait StreamRequests {
    /// Orders that the stream is opened for writing, with this node as the owner of the new piece.
    /// [`Done::Opened`] names the piece.
    fn open(
        &mut self,
        tag: StreamTag,
        name: &Name,
        how: How,
        writer: Writer,
    ) -> Result<(), Failure>;

    /// Returns the number of bytes of the piece that may be given now ([stream-8]).
    fn room(&self, piece: StreamName) -> usize;

    /// Returns the number of bytes that all pieces together may be given now, in addition to the
    /// few that each may always be given.
    fn shared_room(&self) -> usize;

    /// Adds the next bytes of the piece, at most [`StreamRequests::room`]. Returns the number
    /// taken.
    fn put(&mut self, piece: StreamName, bytes: &[u8]) -> usize;

    /// Like [`StreamRequests::put`], but `read` writes the bytes to their buffer, and returns their
    /// number: at most `bytes_max`, in the room that it is given. It is called once at most.
    fn fill(
        &mut self,
        piece: StreamName,
        bytes_max: usize,
        read: &mut dyn FnMut(&mut [u8]) -> usize,
    ) -> usize;

    /// Ends the input of a piece; once all bytes are decided the piece is closed, and with `finish`
    /// the stream. [`Done::Closed`] has the position.
    fn close(&mut self, tag: StreamTag, piece: StreamName, finish: bool) -> Result<(), Failure>;

    /// Ends a piece whose client is gone. Its bytes may be decided still; then the piece is closed.
    fn abandon(&mut self, piece: StreamName);

    /// Orders that the stream starts at this position.
    fn trim(&mut self, tag: StreamTag, name: &Name, before: u64) -> Result<(), Failure>;

    /// Orders how much of the stream is kept from now on.
    fn retain(&mut self, tag: StreamTag, name: &Name, keep: Retention) -> Result<(), Failure>;

    /// Orders that the stream is removed.
    fn remove(&mut self, tag: StreamTag, name: &Name) -> Result<(), Failure>;

    /// Requests [`StreamEvent::Looked`] for the time when [`StreamRequests::info`] and
    /// [`StreamRequests::infos`] show everything that was acknowledged before.
    fn look(&mut self, tag: StreamTag) -> Result<(), Failure>;

    /// Returns a stream's entry, as applied here.
    fn info(&self, name: &Name) -> Option<Info>;

    /// Passes the entries of the streams after `after` to `each`, in order of their names, until it
    /// returns `false`.
    fn infos(&self, after: Option<&Name>, each: &mut dyn FnMut(Info) -> bool);

    /// Reads at most `bytes_max` bytes from this position on, as applied here.
    fn read(
        &mut self,
        tag: StreamTag,
        name: &Name,
        position: u64,
        bytes_max: usize,
    ) -> Result<(), Failure>;

    /// Requests [`StreamEvent::Looked`] for the time when there are bytes to read at this position,
    /// or never will be.
    fn wait(&mut self, tag: StreamTag, name: &Name, position: u64) -> Result<(), Failure>;

    /// Drops interest in the request under this tag; it may be executed all the same.
    fn forget(&mut self, tag: StreamTag);

    /// Returns the leader's address for streams, if that is another node and known.
    fn leader(&self) -> Option<&str>;
}
