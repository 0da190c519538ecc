//! Parsing and handling of a client's input.

use quorate_access::Role;
use quorate_replica::{front::InputDecision, stream_front::StreamTag};
use quorate_stream::{BadName, Name, OpenMode, Retention, Writer};
use quorate_wire::streams::{
    ClientFrame, DecodedFrame, HEAD_BYTES, Malformed, NodeFrame, OpenMode as Said, VERSION,
    decode_client_frame, head,
};

use super::{Connection, ConnectionState, PendingRequest};
use crate::streams::{
    reading::ClientRead,
    refusal::Refusal,
    shared::{Cx, RequestOwner},
};

/// Minimum number of bytes worth a direct read. Fewer are copied, because a separate block of
/// memory, or another read for the end of a frame, costs more.
const DIRECT_READ_BYTES_MIN: usize = 16 << 10;
/// Maximum number of bytes in one direct read, because other clients wait until it is done.
const DIRECT_READ_BYTES_MAX: usize = 256 << 10;
/// Length in bytes of a data frame after which another long one is expected.
const LONG_FRAME_BYTES_MIN: usize = 128 << 10;

impl Connection {
    /// Consumes frames from `bytes` while input is accepted. Returns the number of bytes consumed.
    pub(crate) fn receive(&mut self, bytes: &[u8], cx: &mut Cx<'_>) -> usize {
        let mut used = 0;
        while !self.is_ending && used < bytes.len() {
            match self.consume_frame(&bytes[used..], cx) {
                0 => break,
                more => used += more,
            }
        }
        // Input after a malformed frame is ignored.
        if self.is_ending { bytes.len() } else { used }
    }

    /// Handles readable input. The bytes of a long data frame are read directly into the store, and
    /// the head of the next such frame alone, because bytes read with it would be copied.
    pub(crate) fn read_into_store(
        &mut self,
        cx: &mut Cx<'_>,
        read: &mut dyn FnMut(&mut [u8]) -> usize,
    ) -> InputDecision {
        const ANY: InputDecision = InputDecision::AtMost(usize::MAX);
        let ConnectionState::Writing(writing) = &self.state else {
            return ANY;
        };
        let piece = writing.piece;
        if writing.close_tag.is_some()
            || self.is_ending
            || cx.check_role(&self.login, Role::Writer).is_err()
        {
            return ANY;
        }
        if self.data_bytes_left == 0 && self.expects_long_frame {
            return InputDecision::AtMost(HEAD_BYTES);
        }
        let Ok(streams) = cx.stream_requests() else {
            return ANY;
        };
        let most =
            self.data_bytes_left.min(streams.available_bytes(piece)).min(DIRECT_READ_BYTES_MAX);
        if most < DIRECT_READ_BYTES_MIN {
            return ANY;
        }
        self.data_bytes_left -= streams.fill_from_reader(piece, most, read);
        InputDecision::AlreadyRead
    }

    /// Consumes one frame or part of a data frame. Returns the number of bytes consumed. If it
    /// returns 0, the same bytes must be passed again later.
    fn consume_frame(&mut self, bytes: &[u8], cx: &mut Cx<'_>) -> usize {
        if self.data_bytes_left > 0 {
            return self.store_data(&bytes[..bytes.len().min(self.data_bytes_left)], cx);
        }
        if self.awaits_answer() {
            self.has_unconsumed_input = true;
            return 0;
        }
        match self.handle_frame(bytes, cx) {
            Ok(used) => used,
            Err(malformed) => {
                self.end_with_error(malformed, cx);
                0
            }
        }
    }

    const fn awaits_answer(&self) -> bool {
        match &self.state {
            ConnectionState::AwaitingHello | ConnectionState::Idle { .. } => false,
            ConnectionState::Writing(writing) => writing.close_tag.is_some(),
            ConnectionState::CheckingPassword(..)
            | ConnectionState::AwaitingReplica(..)
            | ConnectionState::Reading(_)
            | ConnectionState::Listing(_) => true,
        }
    }

    fn handle_frame(&mut self, bytes: &[u8], cx: &mut Cx<'_>) -> Result<usize, Malformed> {
        match head(bytes)? {
            DecodedFrame::NeedMore(_) => Ok(0),
            // Data is consumed as it arrives.
            DecodedFrame::Frame(head, _) if head.is_data() => {
                match &self.state {
                    ConnectionState::Writing(_) | ConnectionState::Idle { piece_ended: true } => {
                        self.data_bytes_left = head.length;
                        self.expects_long_frame = head.length >= LONG_FRAME_BYTES_MIN;
                    }
                    _ => self
                        .end_with_error(Refusal::out_of_order("data, and no stream is open"), cx),
                }
                Ok(HEAD_BYTES)
            }
            DecodedFrame::Frame(..) => match decode_client_frame(bytes)? {
                DecodedFrame::NeedMore(_) => Ok(0),
                DecodedFrame::Frame(ask, used) => {
                    self.handle_request(ask, cx);
                    Ok(used)
                }
            },
        }
    }

    /// Stores the next bytes of the data frame. Returns the number of bytes consumed.
    fn store_data(&mut self, bytes: &[u8], cx: &mut Cx<'_>) -> usize {
        if matches!(self.state, ConnectionState::Writing(_))
            && let Err(refusal) = cx.check_role(&self.login, Role::Writer)
        {
            self.end_with_error(refusal, cx);
            return bytes.len();
        }
        let taken = match &mut self.state {
            ConnectionState::Writing(writing) => {
                let piece = writing.piece;
                let taken = cx.stream_requests().map_or(0, |streams| {
                    let room = streams.available_bytes(piece).min(bytes.len());
                    streams.put_bytes(piece, &bytes[..room])
                });
                if taken < bytes.len() {
                    writing.is_out_of_space = true;
                    cx.shared.waiting_writers.insert(self.id);
                }
                taken
            }
            // The piece was ended, so the data is void.
            _ => bytes.len(),
        };
        self.data_bytes_left -= taken;
        taken
    }

    fn handle_request(&mut self, ask: ClientFrame<'_>, cx: &mut Cx<'_>) {
        let out_of_order = match (&self.state, ask) {
            (ConnectionState::AwaitingHello, ClientFrame::Hello { version }) => {
                return self.handle_hello(version, cx);
            }
            (ConnectionState::AwaitingHello, _) => "the first frame is a hello",
            (_, ClientFrame::Hello { .. }) => "a second hello",
            (ConnectionState::Writing(_), ClientFrame::Close { finish }) => {
                return self.handle_close(finish, cx);
            }
            (ConnectionState::Writing(_), _) => "the connection writes a stream: close it first",
            (ConnectionState::Idle { piece_ended: true }, ClientFrame::Close { .. }) => {
                return self.become_ready();
            }
            (_, ClientFrame::Close { .. }) => "a close, and no stream is open",
            (_, ClientFrame::Login { name, password }) => {
                return self.start_password_check(name, password, cx);
            }
            _ => return self.handle_simple_request(ask, cx),
        };
        self.end_with_error(Refusal::out_of_order(out_of_order), cx);
    }

    fn handle_hello(&mut self, theirs: u32, cx: &mut Cx<'_>) {
        if theirs != VERSION {
            return self.end_with_error(Refusal::unsupported_version(theirs), cx);
        }
        let node = cx.requests.status().member.node;
        let leader = cx.stream_requests().ok().and_then(|streams| streams.leader());
        let welcome =
            NodeFrame::Welcome { version: VERSION, node, leader: leader.unwrap_or_default() };
        self.output.queue_answer(&welcome);
        self.become_ready();
    }

    fn handle_close(&mut self, finish: bool, cx: &mut Cx<'_>) {
        let ConnectionState::Writing(writing) = &mut self.state else {
            return;
        };
        let piece = writing.piece;
        let owner = RequestOwner::Connection(self.id);
        match cx.make_request(owner, |streams, tag| streams.close(tag, piece, finish)) {
            Ok(tag) => writing.close_tag = Some(tag),
            Err(failure) => {
                cx.abandon_piece(piece);
                self.refuse_pending(failure);
            }
        }
    }

    /// Handles a request that has a single response.
    fn handle_simple_request(&mut self, ask: ClientFrame<'_>, cx: &mut Cx<'_>) {
        if let Err(refusal) = self.start_request(ask, cx) {
            self.refuse_pending(refusal);
        }
    }

    fn start_request(&mut self, ask: ClientFrame<'_>, cx: &mut Cx<'_>) -> Result<(), Refusal> {
        cx.check_role(&self.login, required_role(&ask))?;
        let owner = RequestOwner::Connection(self.id);
        let look = |cx: &mut Cx<'_>| {
            cx.make_request(owner, |streams, tag| streams.request_table_read(tag))
        };
        let (tag, asked): (StreamTag, PendingRequest) = match ask {
            ClientFrame::Open { mode: how, writer, name } => {
                let name = name.parse()?;
                let (how, writer) = (open_mode(how), Writer(writer));
                let tag =
                    cx.make_request(owner, |streams, tag| streams.open(tag, &name, how, writer))?;
                (tag, PendingRequest::Open)
            }
            ClientFrame::Trim { retain_from: before, name } => {
                let name = name.parse()?;
                let tag =
                    cx.make_request(owner, |streams, tag| streams.trim(tag, &name, before))?;
                (tag, PendingRequest::Trim)
            }
            ClientFrame::Remove { name } => {
                let name = name.parse()?;
                let tag = cx.make_request(owner, |streams, tag| streams.remove(tag, &name))?;
                (tag, PendingRequest::Remove)
            }
            ClientFrame::Retain { keep, name } => {
                let name: Name = name.parse()?;
                let keep = Retention { bytes: keep.bytes, age_ms: keep.age_max_ms };
                let tag =
                    cx.make_request(owner, |streams, tag| streams.set_retention(tag, &name, keep))?;
                (tag, PendingRequest::Retain(name))
            }
            ClientFrame::Stat { name } => {
                let name = name.parse()?;
                (look(cx)?, PendingRequest::Stat(name))
            }
            ClientFrame::List { after_name: after } => {
                let after = parse_list_start(after)?;
                (look(cx)?, PendingRequest::List(after))
            }
            ClientFrame::Read { from, to, follow, name } => {
                let name = name.parse()?;
                let reading = ClientRead::new(name, from, to, follow, look(cx)?);
                self.state = ConnectionState::Reading(Box::new(reading));
                return Ok(());
            }
            ClientFrame::Hello { .. }
            | ClientFrame::Login { .. }
            | ClientFrame::Data(_)
            | ClientFrame::Close { .. } => {
                unreachable!("they have their own order")
            }
        };
        self.state = ConnectionState::AwaitingReplica(tag, asked);
        Ok(())
    }
}

const fn required_role(ask: &ClientFrame<'_>) -> Role {
    match ask {
        ClientFrame::Stat { .. }
        | ClientFrame::List { .. }
        | ClientFrame::Read { .. }
        | ClientFrame::Hello { .. }
        | ClientFrame::Login { .. } => Role::Reader,
        ClientFrame::Open { .. }
        | ClientFrame::Data(_)
        | ClientFrame::Close { .. }
        | ClientFrame::Trim { .. }
        | ClientFrame::Remove { .. }
        | ClientFrame::Retain { .. } => Role::Writer,
    }
}

/// Parses the stream name after which a list begins; `None` if the list begins at the first stream.
fn parse_list_start(after: &str) -> Result<Option<Name>, BadName> {
    if after.is_empty() {
        return Ok(None);
    }
    after.parse().map(Some)
}

const fn open_mode(said: Said) -> OpenMode {
    match said {
        Said::Create => OpenMode::Create,
        Said::Append => OpenMode::Append,
        Said::Takeover => OpenMode::Takeover,
        Said::Continue => OpenMode::Continue,
    }
}
