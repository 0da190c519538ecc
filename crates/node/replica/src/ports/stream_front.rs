//! Front end port for byte streams: a client protocol's requests on streams, and stream events.
//! Connections and failures are shared with [`crate::front`].

use quorate_core::value::StreamName;
use quorate_log::disk::Blocks;
use quorate_stream::{
    Denied, Name, OpenMode, Retention, StreamInfo, StreamOutcome, Writer, table::LocateError,
};

use crate::ports::outcome::Failure;
pub use crate::ports::outcome::StreamTag;

/// Result of a request, or event of a piece that this node owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEvent<'a> {
    /// The command was executed, with this effect.
    Executed(StreamTag, StreamOutcome),
    /// The command was executed without effect, for this reason.
    Refused(StreamTag, Denied),
    /// The request failed, or its outcome is unknown.
    Failed(StreamTag, Failure),
    /// This node's table now has everything that was acknowledged before the request, or the
    /// awaited position now has bytes or never will.
    UpToDate(StreamTag),
    /// Bytes of a stream, starting at the requested position; never empty.
    Bytes(StreamTag, &'a Blocks),
    /// There are no bytes at the requested position.
    NoBytes(StreamTag, LocateError),
    /// [stream-7] All bytes of the named stream below this position are decided, with the
    /// guarantees of the group's class. The first field is the inner stream that this node owns.
    Durable(StreamName, u64),
    /// The piece ended at this position without a request by this node: another writer took over,
    /// the stream was removed, or this node was considered lost. Bytes put after it are void.
    Ended(StreamName, u64),
}

/// Requests on streams that a front can make. All calls return immediately.
pub trait StreamRequests {
    /// Proposes to open the stream for writing, with this node as owner of the new piece.
    /// [`StreamOutcome::Opened`] contains the piece's name.
    fn open(
        &mut self,
        tag: StreamTag,
        name: &Name,
        how: OpenMode,
        writer: Writer,
    ) -> Result<(), Failure>;

    /// Returns the number of bytes that may be put into the piece now ([stream-8]).
    fn available_bytes(&self, piece: StreamName) -> usize;

    /// Returns the number of bytes that may be put into all pieces together, beyond the small
    /// number that each may always have.
    fn shared_available_bytes(&self) -> usize;

    /// Adds bytes to the piece, at most [`StreamRequests::available_bytes`]. Returns the number
    /// accepted.
    fn put_bytes(&mut self, piece: StreamName, bytes: &[u8]) -> usize;

    /// Like [`StreamRequests::put_bytes`], but calls `read` at most once, which writes at most
    /// `bytes_max` bytes directly into the buffer that it receives, and returns how many.
    fn fill_from_reader(
        &mut self,
        piece: StreamName,
        bytes_max: usize,
        read: &mut dyn FnMut(&mut [u8]) -> usize,
    ) -> usize;

    /// Ends the input of a piece. Once all its bytes are decided, the piece is closed, and with
    /// `finish` the stream as well. [`StreamOutcome::Closed`] contains the final position.
    fn close(&mut self, tag: StreamTag, piece: StreamName, finish: bool) -> Result<(), Failure>;

    /// Ends a piece whose client disconnected. Its bytes may be decided before it is closed.
    fn abandon_piece(&mut self, piece: StreamName);

    /// Proposes to trim the stream so that it starts at position `before`.
    fn trim(&mut self, tag: StreamTag, name: &Name, before: u64) -> Result<(), Failure>;

    /// Proposes a new retention rule for the stream, which determines how many bytes are retained.
    fn set_retention(
        &mut self,
        tag: StreamTag,
        name: &Name,
        keep: Retention,
    ) -> Result<(), Failure>;

    fn remove(&mut self, tag: StreamTag, name: &Name) -> Result<(), Failure>;

    /// Requests [`StreamEvent::UpToDate`] as soon as [`StreamRequests::stream_info`] and
    /// [`StreamRequests::visit_infos`] show everything that was acknowledged before this call.
    fn request_table_read(&mut self, tag: StreamTag) -> Result<(), Failure>;

    /// Returns the entry of a stream in this node's table, if it exists.
    fn stream_info(&self, name: &Name) -> Option<StreamInfo>;

    /// Passes the entries of streams after `after` to `each`, by name, until it returns `false`.
    fn visit_infos(&self, after: Option<&Name>, each: &mut dyn FnMut(StreamInfo) -> bool);

    /// Requests at most `bytes_max` stream bytes starting at the given position, as of the applied
    /// slots. The answer is [`StreamEvent::Bytes`], or an event that states why there are none.
    fn read(
        &mut self,
        tag: StreamTag,
        name: &Name,
        position: u64,
        bytes_max: usize,
    ) -> Result<(), Failure>;

    /// Requests [`StreamEvent::UpToDate`] as soon as the stream has bytes at `position`, or
    /// certainly never will.
    fn wait_for_bytes(&mut self, tag: StreamTag, name: &Name, position: u64)
    -> Result<(), Failure>;

    /// Drops request `tag`. It may still be executed.
    fn drop_request(&mut self, tag: StreamTag);

    /// Returns the leader's address for streams, if another node leads and its address is known.
    fn leader(&self) -> Option<&str>;
}
