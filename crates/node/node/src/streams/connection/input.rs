//! Parsing and handling of a client's input.

use quorate_access::Role;
use quorate_replica::{front::InputDecision, stream_front::StreamTag};
use quorate_stream::{BadName, Name, OpenMode, Retention, Writer};
use quorate_wire::streams::{
    Answer, Ask, Found, HEAD_BYTES, How as Said, Malformed, VERSION, decode_ask, head,
};

use super::{Connection, PendingRequest, State};
use crate::streams::{
    reading::ClientRead,
    refusal::Refusal,
    shared::{Cx, Owner},
};

/// Minimum number of bytes worth a direct read. Fewer are copied, because a separate block of
/// memory, or another read for the end of a frame, costs more.
const INTAKE_BYTES_MIN: usize = 16 << 10;
/// Maximum number of bytes in one direct read, because other clients wait until it is done.
const INTAKE_BYTES_MAX: usize = 256 << 10;
/// Length in bytes of a data frame after which another long one is expected.
const BULK_BYTES_MIN: usize = 128 << 10;

impl Connection {
    /// Consumes frames from `bytes` while input is accepted. Returns the number of bytes consumed.
    pub(crate) fn receive(&mut self, bytes: &[u8], cx: &mut Cx<'_>) -> usize {
        let mut used = 0;
        while !self.ending && used < bytes.len() {
            match self.consume_frame(&bytes[used..], cx) {
                0 => break,
                more => used += more,
            }
        }
        // Input after a malformed frame is ignored.
        if self.ending { bytes.len() } else { used }
    }

    /// Handles readable input. The bytes of a long data frame are read directly into the store, and
    /// the head of the next such frame alone, because bytes read with it would be copied.
    pub(crate) fn intake(
        &mut self,
        cx: &mut Cx<'_>,
        read: &mut dyn FnMut(&mut [u8]) -> usize,
    ) -> InputDecision {
        const ANY: InputDecision = InputDecision::AtMost(usize::MAX);
        let State::Writing(writing) = &self.state else {
            return ANY;
        };
        let piece = writing.piece;
        if writing.closing.is_some()
            || self.ending
            || cx.check_role(&self.login, Role::Writer).is_err()
        {
            return ANY;
        }
        if self.data_left == 0 && self.in_bulk {
            return InputDecision::AtMost(HEAD_BYTES);
        }
        let Ok(streams) = cx.streams() else {
            return ANY;
        };
        let most = self.data_left.min(streams.available_bytes(piece)).min(INTAKE_BYTES_MAX);
        if most < INTAKE_BYTES_MIN {
            return ANY;
        }
        self.data_left -= streams.fill_from_reader(piece, most, read);
        InputDecision::Done
    }

    /// Consumes one frame or part of a data frame. Returns the number of bytes consumed. If it
    /// returns 0, the same bytes must be passed again later.
    fn consume_frame(&mut self, bytes: &[u8], cx: &mut Cx<'_>) -> usize {
        if self.data_left > 0 {
            return self.data(&bytes[..bytes.len().min(self.data_left)], cx);
        }
        if self.owes_answer() {
            self.has_left_over = true;
            return 0;
        }
        match self.frame(bytes, cx) {
            Ok(used) => used,
            Err(malformed) => {
                self.end_with_error(malformed, cx);
                0
            }
        }
    }

    const fn owes_answer(&self) -> bool {
        match &self.state {
            State::AwaitingHello | State::Idle { .. } => false,
            State::Writing(writing) => writing.closing.is_some(),
            State::Checking(..) | State::Asked(..) | State::Reading(_) | State::Listing(_) => true,
        }
    }

    fn frame(&mut self, bytes: &[u8], cx: &mut Cx<'_>) -> Result<usize, Malformed> {
        match head(bytes)? {
            Found::NeedMore(_) => Ok(0),
            // Data is consumed as it arrives.
            Found::Frame(head, _) if head.is_data() => {
                match &self.state {
                    State::Writing(_) | State::Idle { piece_ended: true } => {
                        self.data_left = head.length;
                        self.in_bulk = head.length >= BULK_BYTES_MIN;
                    }
                    _ => self
                        .end_with_error(Refusal::out_of_order("data, and no stream is open"), cx),
                }
                Ok(HEAD_BYTES)
            }
            Found::Frame(..) => match decode_ask(bytes)? {
                Found::NeedMore(_) => Ok(0),
                Found::Frame(ask, used) => {
                    self.handle_request(ask, cx);
                    Ok(used)
                }
            },
        }
    }

    /// Stores the next bytes of the data frame. Returns the number of bytes consumed.
    fn data(&mut self, bytes: &[u8], cx: &mut Cx<'_>) -> usize {
        if matches!(self.state, State::Writing(_))
            && let Err(refusal) = cx.check_role(&self.login, Role::Writer)
        {
            self.end_with_error(refusal, cx);
            return bytes.len();
        }
        let taken = match &mut self.state {
            State::Writing(writing) => {
                let piece = writing.piece;
                let taken = cx.streams().map_or(0, |streams| {
                    let room = streams.available_bytes(piece).min(bytes.len());
                    streams.put_bytes(piece, &bytes[..room])
                });
                if taken < bytes.len() {
                    writing.full = true;
                    cx.shared.full.insert(self.id);
                }
                taken
            }
            // The piece was ended, so the data is void.
            _ => bytes.len(),
        };
        self.data_left -= taken;
        taken
    }

    fn handle_request(&mut self, ask: Ask<'_>, cx: &mut Cx<'_>) {
        let out_of_order = match (&self.state, ask) {
            (State::AwaitingHello, Ask::Hello { version }) => {
                return self.handle_hello(version, cx);
            }
            (State::AwaitingHello, _) => "the first frame is a hello",
            (_, Ask::Hello { .. }) => "a second hello",
            (State::Writing(_), Ask::Close { finish }) => return self.handle_close(finish, cx),
            (State::Writing(_), _) => "the connection writes a stream: close it first",
            (State::Idle { piece_ended: true }, Ask::Close { .. }) => return self.become_ready(),
            (_, Ask::Close { .. }) => "a close, and no stream is open",
            (_, Ask::Login { name, password }) => return self.log_in(name, password, cx),
            _ => return self.handle_simple_request(ask, cx),
        };
        self.end_with_error(Refusal::out_of_order(out_of_order), cx);
    }

    fn handle_hello(&mut self, theirs: u32, cx: &mut Cx<'_>) {
        if theirs != VERSION {
            return self.end_with_error(Refusal::version(theirs), cx);
        }
        let node = cx.requests.status().member.node;
        let leader = cx.streams().ok().and_then(|streams| streams.leader());
        let welcome =
            Answer::Welcome { version: VERSION, node, leader: leader.unwrap_or_default() };
        self.output.queue_answer(&welcome);
        self.become_ready();
    }

    fn handle_close(&mut self, finish: bool, cx: &mut Cx<'_>) {
        let State::Writing(writing) = &mut self.state else {
            return;
        };
        let piece = writing.piece;
        let owner = Owner::Connection(self.id);
        match cx.make_request(owner, |streams, tag| streams.close(tag, piece, finish)) {
            Ok(tag) => writing.closing = Some(tag),
            Err(failure) => {
                cx.abandon(piece);
                self.refuse_pending(failure);
            }
        }
    }

    /// Handles a request that has a single response.
    fn handle_simple_request(&mut self, ask: Ask<'_>, cx: &mut Cx<'_>) {
        if let Err(refusal) = self.start_request(ask, cx) {
            self.refuse_pending(refusal);
        }
    }

    fn start_request(&mut self, ask: Ask<'_>, cx: &mut Cx<'_>) -> Result<(), Refusal> {
        cx.check_role(&self.login, required_role(&ask))?;
        let owner = Owner::Connection(self.id);
        let look = |cx: &mut Cx<'_>| {
            cx.make_request(owner, |streams, tag| streams.request_table_read(tag))
        };
        let (tag, asked): (StreamTag, PendingRequest) = match ask {
            Ask::Open { how, writer, name } => {
                let name = name.parse()?;
                let (how, writer) = (opened_how(how), Writer(writer));
                let tag =
                    cx.make_request(owner, |streams, tag| streams.open(tag, &name, how, writer))?;
                (tag, PendingRequest::Open)
            }
            Ask::Trim { before, name } => {
                let name = name.parse()?;
                let tag =
                    cx.make_request(owner, |streams, tag| streams.trim(tag, &name, before))?;
                (tag, PendingRequest::Trim)
            }
            Ask::Remove { name } => {
                let name = name.parse()?;
                let tag = cx.make_request(owner, |streams, tag| streams.remove(tag, &name))?;
                (tag, PendingRequest::Remove)
            }
            Ask::Retain { keep, name } => {
                let name: Name = name.parse()?;
                let keep = Retention { bytes: keep.bytes, age_ms: keep.age_ms };
                let tag =
                    cx.make_request(owner, |streams, tag| streams.set_retention(tag, &name, keep))?;
                (tag, PendingRequest::Retain(name))
            }
            Ask::Stat { name } => {
                let name = name.parse()?;
                (look(cx)?, PendingRequest::Stat(name))
            }
            Ask::List { after } => {
                let after = parse_list_start(after)?;
                (look(cx)?, PendingRequest::List(after))
            }
            Ask::Read { from, to, follow, name } => {
                let name = name.parse()?;
                let reading = ClientRead::new(name, from, to, follow, look(cx)?);
                self.state = State::Reading(Box::new(reading));
                return Ok(());
            }
            Ask::Hello { .. } | Ask::Login { .. } | Ask::Data(_) | Ask::Close { .. } => {
                unreachable!("they have their own order")
            }
        };
        self.state = State::Asked(tag, asked);
        Ok(())
    }
}

const fn required_role(ask: &Ask<'_>) -> Role {
    match ask {
        Ask::Stat { .. }
        | Ask::List { .. }
        | Ask::Read { .. }
        | Ask::Hello { .. }
        | Ask::Login { .. } => Role::Reader,
        Ask::Open { .. }
        | Ask::Data(_)
        | Ask::Close { .. }
        | Ask::Trim { .. }
        | Ask::Remove { .. }
        | Ask::Retain { .. } => Role::Writer,
    }
}

/// Parses the stream name after which a list begins; `None` if the list begins at the first stream.
fn parse_list_start(after: &str) -> Result<Option<Name>, BadName> {
    if after.is_empty() {
        return Ok(None);
    }
    after.parse().map(Some)
}

const fn opened_how(said: Said) -> OpenMode {
    match said {
        Said::Create => OpenMode::Create,
        Said::Append => OpenMode::Append,
        Said::Takeover => OpenMode::Takeover,
        Said::Continue => OpenMode::Continue,
    }
}
