//! Byte stream clients. Writers open, write, close, disconnect, take over and return; readers read
//! any position on any node.
//!
//! A writer acts as the owner of a piece until a reply denies it. Several writers use the same
//! stream names.

use std::collections::VecDeque;

use quorate_core::{time::Time, value::StreamName};
use quorate_replica::{front::ConnectionId, stream_front::StreamTag, testing::DeliveredEvent};
use quorate_stream::{Denied, Name, OpenMode, StreamOutcome, Writer, table::LocateError};

use crate::{
    check::{Verdict, Violation},
    dice::Dice,
    front::StreamRequest,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamLoad {
    pub writer_count: usize,
    pub reader_count: usize,
    pub name_count: u64,
    /// Maximum number of bytes in a write.
    pub write_bytes_max: u64,
    /// Number of bytes after which a writer only finishes its stream.
    pub writer_bytes_max: u64,
    /// Maximum number of undecided bytes in a piece ([stream-8]).
    pub window_bytes: usize,
    /// Memory limit of the stream store, in bytes.
    pub dirty_bytes_max: usize,
    /// Maximum time between two requests from a client.
    pub think_us_max: u64,
}

impl StreamLoad {
    /// Draws the load from separate dice, so that seeds without streams replay unchanged.
    pub fn draw(seed: u64) -> Option<Self> {
        let dice = &mut Dice::new(seed ^ 0x5374_7265_616d_7321);
        dice.chance(1, 3).then(|| Self {
            writer_count: dice.pick(&[1, 2, 4]),
            reader_count: dice.pick(&[1, 2]),
            name_count: dice.pick(&[1, 2, 3]),
            write_bytes_max: dice.pick(&[100, 10_000, 200_000]),
            writer_bytes_max: dice.pick(&[200_000, 1_000_000]),
            window_bytes: dice.pick(&[1 << 10, 64 << 10, 1 << 20]),
            dirty_bytes_max: dice.pick(&[32 << 10, 32 << 20]),
            think_us_max: dice.pick(&[1_000, 20_000]),
        })
    }

    /// Returns a load without clients of its own, for scenarios.
    pub fn scripted_only() -> Self {
        Self {
            writer_count: 0,
            reader_count: 0,
            name_count: 1,
            write_bytes_max: 0,
            writer_bytes_max: 0,
            window_bytes: 64 << 10,
            dirty_bytes_max: 32 << 20,
            think_us_max: 1_000,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Writes until [`StreamClient::is_done`] is set, then finishes its stream.
    Writer,
    /// Reads parts of existing streams.
    Reader,
    /// Writes a new stream on one node; only in act two.
    OneWriter,
    /// Reads all streams on one node; only in act two.
    FullReader,
    /// Sends requests chosen by a scenario.
    Scripted,
}

/// A piece that a writer owns, as far as replies show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Name of the inner stream that contains the piece.
    pub stream: StreamName,
    /// Position of the piece's first byte in the named stream.
    pub first_position: u64,
    /// End of the bytes written by the client, as a position in the named stream.
    pub written_to: u64,
    /// End of the acknowledged bytes, as a position in the named stream.
    pub acknowledged_to: u64,
}

#[derive(Debug)]
pub struct StreamClient {
    pub index: usize,
    pub role: Role,
    /// Current connection, with the index of the node; `None` while disconnected.
    pub connection: Option<(ConnectionId, usize)>,
    /// Index of the only node to which the client connects; `None` for any node.
    pub only_node: Option<usize>,
    /// Tag of the request that the client is waiting for.
    pub awaited_tag: Option<StreamTag>,
    /// Time at which the client gives up on the node if no answer has arrived.
    pub reply_deadline: Option<Time>,
    /// Set if the client opens no new pieces and finishes its stream.
    pub is_done: bool,
    /// Piece to which the client is writing.
    pub piece: Option<Piece>,
    /// Replies to a scenario's requests; `None` marks a broken connection.
    pub replies: VecDeque<Option<DeliveredEvent>>,
    dice: Dice,
    load: StreamLoad,
    name: Name,
    writer_id: Writer,
    open_mode: OpenMode,
    /// Set if the client opened a piece of the stream and has not ended the stream yet.
    must_end_stream: bool,
    is_closing: bool,
    written_to: u64,
    /// Streams that an auditor has not read completely, with the next position of each.
    streams_to_read: VecDeque<(Name, u64)>,
    /// Set if a visitor or an auditor has completed its work.
    has_finished: bool,
}

impl StreamClient {
    pub fn new(index: usize, role: Role, load: StreamLoad, mut dice: Dice) -> Self {
        let writer = Writer(u128::from(dice.word()) << 64 | u128::from(dice.word()));
        let mut streamer = Self {
            index,
            role,
            connection: None,
            only_node: None,
            awaited_tag: None,
            reply_deadline: None,
            is_done: false,
            piece: None,
            replies: VecDeque::new(),
            name: numbered_name("s", 0),
            writer_id: writer,
            open_mode: OpenMode::Create,
            must_end_stream: false,
            is_closing: false,
            written_to: 0,
            streams_to_read: VecDeque::new(),
            has_finished: false,
            dice,
            load,
        };
        streamer.name = streamer.draw_name();
        streamer
    }

    /// Returns a client that writes a new stream on this node and then stops.
    pub fn new_one_writer(index: usize, load: StreamLoad, dice: Dice, node: usize) -> Self {
        Self {
            only_node: Some(node),
            name: numbered_name("v", index as u64),
            ..Self::new(index, Role::OneWriter, load, dice)
        }
    }

    /// Returns a client that reads the given streams from their beginnings on one node and then
    /// stops.
    pub fn new_full_reader(
        index: usize,
        load: StreamLoad,
        dice: Dice,
        node: usize,
        audits: VecDeque<(Name, u64)>,
    ) -> Self {
        Self {
            only_node: Some(node),
            streams_to_read: audits,
            ..Self::new(index, Role::FullReader, load, dice)
        }
    }

    /// Returns the client's current writer id, which no other writer ever uses.
    pub fn current_writer(&self) -> Writer {
        self.writer_id
    }

    /// Returns whether the client still has work in act two.
    pub fn is_busy(&self) -> bool {
        match self.role {
            Role::Writer => self.must_end_stream || self.awaited_tag.is_some(),
            Role::Reader => self.awaited_tag.is_some(),
            Role::OneWriter | Role::FullReader => !self.has_finished,
            Role::Scripted => false,
        }
    }

    /// Draws the pause before the client's next request.
    pub fn draw_pause(&mut self) -> u64 {
        let most = self.load.think_us_max;
        self.dice.between(20, most)
    }

    /// Chooses the node to which the client connects next.
    pub fn choose_node(&mut self, nodes: usize) -> usize {
        self.only_node.unwrap_or_else(|| self.dice.index(nodes))
    }

    fn draw_name(&mut self) -> Name {
        numbered_name("s", self.dice.below(self.load.name_count))
    }

    /// Returns the client's next request; `None` if it has none.
    pub fn next_request(&mut self) -> Option<StreamRequest> {
        match self.role {
            Role::Writer => self.next_write_request(),
            Role::Reader => (!self.is_done).then(|| self.read_request()),
            Role::OneWriter => self.next_visit_request(),
            Role::FullReader => self.next_audit_request(),
            Role::Scripted => None,
        }
    }

    fn open_request(&self) -> StreamRequest {
        StreamRequest::Open(self.name.clone(), self.open_mode, self.writer_id)
    }

    fn next_write_request(&mut self) -> Option<StreamRequest> {
        let Some(piece) = self.piece else {
            if self.is_done {
                return self.must_end_stream.then(|| self.open_request());
            }
            if !self.must_end_stream && self.dice.chance(1, 4) {
                // The client continues as another writer, or with another stream.
                self.writer_id = Writer(self.writer_id.0 ^ u128::from(self.dice.word()));
                self.name = self.draw_name();
                self.open_mode =
                    self.dice.pick(&[OpenMode::Create, OpenMode::Append, OpenMode::Takeover]);
            }
            if !self.must_end_stream && self.dice.chance(1, 10) {
                // A finished stream can be removed.
                return Some(StreamRequest::Remove(self.name.clone()));
            }
            return Some(self.open_request());
        };
        if self.is_closing {
            return None;
        }
        if self.is_done || self.written_to >= self.load.writer_bytes_max {
            return Some(self.close_request(piece, true));
        }
        match self.dice.below(40) {
            0 => Some(self.close_request(piece, true)),
            1..3 => Some(self.close_request(piece, false)),
            // The client disconnects, and may or may not return to the piece.
            3..6 => Some(StreamRequest::Disconnect),
            6..8 => Some(StreamRequest::Trim(
                self.name.clone(),
                piece.acknowledged_to - self.dice.below(1 + piece.acknowledged_to / 4),
            )),
            8 => Some(StreamRequest::Remove(self.name.clone())),
            9..16 => None,
            _ => {
                let most = self.load.write_bytes_max;
                let most = self.dice.pick(&[1, most / 10 + 1, most]);
                Some(self.write_request(piece, most))
            }
        }
    }

    fn write_request(&mut self, mut piece: Piece, most: u64) -> StreamRequest {
        let bytes = self.dice.between(1, most);
        piece.written_to += bytes;
        self.written_to += bytes;
        self.piece = Some(piece);
        StreamRequest::Write(piece.stream, bytes)
    }

    fn close_request(&mut self, piece: Piece, finish: bool) -> StreamRequest {
        self.is_closing = true;
        StreamRequest::Close(piece.stream, finish)
    }

    fn next_visit_request(&mut self) -> Option<StreamRequest> {
        match self.piece {
            None => (!self.has_finished).then(|| self.open_request()),
            Some(piece) if piece.written_to == piece.first_position => {
                let most = 70_000.min(16 * self.load.window_bytes as u64);
                Some(self.write_request(piece, most))
            }
            Some(piece) if !self.is_closing => Some(self.close_request(piece, true)),
            Some(_) => None,
        }
    }

    fn next_audit_request(&mut self) -> Option<StreamRequest> {
        let Some((name, position)) = self.streams_to_read.front() else {
            self.has_finished = true;
            return None;
        };
        Some(StreamRequest::Read(name.clone(), *position, 100_000))
    }

    fn read_request(&mut self) -> StreamRequest {
        let name = self.draw_name();
        // The client usually continues where it stopped reading, but sometimes reads elsewhere.
        let position = match self.dice.below(4) {
            0 => self.dice.below(1 + self.written_to),
            1 => {
                let scale = self.dice.below(21);
                self.dice.below(1 << scale)
            }
            _ => self.written_to,
        };
        self.written_to = position;
        match self.dice.below(8) {
            0 => StreamRequest::WaitForTable,
            1 => StreamRequest::WaitForData(name, position),
            _ => {
                let most = self.dice.pick(&[1, 1000, 100_000]);
                StreamRequest::Read(name, position, most)
            }
        }
    }

    /// Handles a broken connection. The client no longer owns its piece.
    pub fn handle_disconnect(&mut self) {
        self.connection = None;
        if self.piece.take().is_some() {
            self.open_mode = OpenMode::Continue;
            // The client decides at random whether to return to its stream.
            self.must_end_stream = self.must_end_stream && (self.is_done || self.dice.chance(3, 4));
        }
        self.is_closing = false;
        self.awaited_tag = None;
        self.reply_deadline = None;
        if self.role == Role::Scripted {
            self.replies.push_back(None);
        }
    }

    /// Handles a reply. Fails if it contradicts an earlier one.
    pub fn receive_reply(&mut self, heard: DeliveredEvent) -> Verdict {
        match &heard {
            DeliveredEvent::Durable(stream, position) => {
                if let Some(piece) = &mut self.piece
                    && piece.stream == *stream
                {
                    let sound = (piece.acknowledged_to..=piece.written_to).contains(position);
                    if !sound {
                        let detail = format!("client {} hears {heard:?}, {piece:?}", self.index);
                        return Err(Violation::new("streams", detail));
                    }
                    piece.acknowledged_to = *position;
                }
                return Ok(());
            }
            DeliveredEvent::Ended(stream, _) => {
                if self.piece.is_some_and(|piece| piece.stream == *stream) {
                    self.piece = None;
                    self.is_closing = false;
                    self.open_mode = OpenMode::Continue;
                    if self.role == Role::Scripted {
                        self.replies.push_back(Some(heard));
                    }
                }
                return Ok(());
            }
            DeliveredEvent::Executed(tag, _)
            | DeliveredEvent::Refused(tag, _)
            | DeliveredEvent::Failed(tag, _)
            | DeliveredEvent::UpToDate(tag)
            | DeliveredEvent::Bytes(tag, _)
            | DeliveredEvent::NoBytes(tag, _) => {
                if self.awaited_tag != Some(*tag) {
                    let detail = format!("client {} hears {heard:?}, unasked", self.index);
                    return Err(Violation::new("streams", detail));
                }
            }
        }
        self.awaited_tag = None;
        self.reply_deadline = None;
        match &heard {
            DeliveredEvent::Executed(_, StreamOutcome::Opened { stream, start_position: at }) => {
                self.piece = Some(Piece {
                    stream: *stream,
                    first_position: *at,
                    written_to: *at,
                    acknowledged_to: *at,
                });
                self.must_end_stream = true;
                self.open_mode = OpenMode::Continue;
            }
            DeliveredEvent::Executed(_, StreamOutcome::Closed { end_position: at }) => {
                if let Some(piece) = self.piece.take()
                    && *at != piece.written_to
                {
                    let detail = format!("client {} hears {heard:?}, {piece:?}", self.index);
                    return Err(Violation::new("streams", detail));
                }
                self.is_closing = false;
                self.must_end_stream = false;
                self.has_finished = true;
                self.open_mode =
                    self.dice.pick(&[OpenMode::Continue, OpenMode::Append, OpenMode::Create]);
            }
            DeliveredEvent::Refused(_, denied) => self.handle_refusal(*denied),
            DeliveredEvent::Bytes(_, bytes) => {
                self.written_to += bytes.len() as u64;
                if let Some((_, position)) = self.streams_to_read.front_mut() {
                    *position += bytes.len() as u64;
                }
            }
            DeliveredEvent::NoBytes(_, nowhere) => self.handle_locate_error(*nowhere)?,
            // The outcome is unknown, so the piece may or may not exist.
            DeliveredEvent::Failed(..) if self.is_closing => {
                self.piece = None;
                self.is_closing = false;
            }
            _ => {}
        }
        if self.role == Role::Scripted {
            self.replies.push_back(Some(heard));
        }
        Ok(())
    }

    fn handle_refusal(&mut self, denied: Denied) {
        match denied {
            Denied::Exists | Denied::InUse if self.role == Role::OneWriter => {}
            Denied::Exists => {
                self.open_mode = self.dice.pick(&[OpenMode::Append, OpenMode::Takeover])
            }
            Denied::InUse => {
                self.open_mode =
                    self.dice.pick(&[OpenMode::Append, OpenMode::Append, OpenMode::Takeover])
            }
            Denied::Unknown if self.piece.is_none() && self.role == Role::Writer => {
                self.must_end_stream = false;
                self.open_mode = OpenMode::Create;
            }
            Denied::Fenced | Denied::Finished if self.piece.is_none() => {
                self.must_end_stream = false;
                self.has_finished = true;
                self.open_mode = OpenMode::Create;
                self.writer_id = Writer(self.writer_id.0.wrapping_add(1));
                self.name = self.draw_name();
            }
            // The client no longer owns the piece.
            Denied::Fenced | Denied::Unknown if self.is_closing => {
                self.piece = None;
                self.is_closing = false;
            }
            _ => {}
        }
    }

    fn handle_locate_error(&mut self, nowhere: LocateError) -> Verdict {
        if self.role != Role::FullReader {
            match nowhere {
                LocateError::Trimmed { start } => self.written_to = start,
                LocateError::PastEnd { end, .. } => self.written_to = end,
                LocateError::Unknown => self.written_to = 0,
            }
            return Ok(());
        }
        let (name, position) = self.streams_to_read.front().expect("it asked");
        match nowhere {
            LocateError::PastEnd { end, .. } if end == *position => {
                self.streams_to_read.pop_front();
                Ok(())
            }
            // A read may be as old as the state of its node ([read-6]), and a restarted node may
            // not have reached its earlier state yet. The auditor retries for as long as a cluster
            // may take to recover.
            LocateError::Unknown => Ok(()),
            LocateError::PastEnd { end, .. } if end < *position => Ok(()),
            _ => {
                let detail = format!("{name} is read to {position}, and there is {nowhere:?}");
                Err(Violation::new("streams", detail))
            }
        }
    }
}

/// Returns a short stream name made of a letter and a number.
fn numbered_name(letter: &str, number: u64) -> Name {
    let text = format!("{letter}{number}");
    text.parse().expect("it is a name")
}
