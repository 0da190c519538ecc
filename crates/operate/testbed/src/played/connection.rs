//! Connection handler of a fake stream node.

use std::{
    io::{self, Read as _, Write as _},
    net::{Shutdown, TcpStream},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use quorate_core::{node_id::NodeId, value::StreamName};
use quorate_wire::streams::{
    ClientFrame, DecodedFrame, ErrorCode, HEAD_BYTES, Info, Malformed, NodeFrame, OpenMode,
    VERSION, decode_client_frame, head,
};

use super::{ClusterState, Fault, Shared, Stream};

/// Interval at which a waiting read checks whether its client has disconnected.
const DISCONNECT_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Sending side of a connection. It injects the faults.
struct FaultySender {
    socket: TcpStream,
    fault: Fault,
    sent_frames: usize,
}

/// Error that ends the connection.
struct ConnectionEnded;

impl From<io::Error> for ConnectionEnded {
    fn from(_: io::Error) -> Self {
        Self
    }
}

impl From<Malformed> for ConnectionEnded {
    fn from(_: Malformed) -> Self {
        Self
    }
}

#[derive(Clone)]
struct Connection {
    shared: Arc<Shared>,
    node_index: usize,
    sender: Arc<Mutex<FaultySender>>,
}

/// Piece to which the connection is writing.
struct PieceWriter {
    name: String,
    piece_id: u64,
    offered_bytes: usize,
    fault: Fault,
}

pub(super) fn serve(shared: &Arc<Shared>, node: usize, socket: TcpStream, fault: Fault) {
    let (Ok(input), Ok(())) = (socket.try_clone(), socket.set_nodelay(true)) else {
        return;
    };
    let out = FaultySender { socket, fault, sent_frames: 0 };
    let connection = Connection {
        shared: Arc::clone(shared),
        node_index: node,
        sender: Arc::new(Mutex::new(out)),
    };
    let mut writing = None;
    let _ = connection.handle_requests(&input, fault, &mut writing);
    let _ = input.shutdown(Shutdown::Both);
    if let Some(PieceWriter { name, piece_id: piece, .. }) = writing {
        let mut world = shared.lock();
        if world.is_writing(&name, piece) {
            world.end_piece(&name);
        }
        drop(world);
        shared.changed.notify_all();
    }
}

impl Connection {
    /// Reads and handles requests until the client disconnects.
    fn handle_requests(
        &self,
        mut socket: &TcpStream,
        fault: Fault,
        writing: &mut Option<PieceWriter>,
    ) -> Result<(), ConnectionEnded> {
        let mut left = match fault {
            Fault::CutInputAfter(bytes) => bytes,
            _ => usize::MAX,
        };
        let mut refusal = match fault {
            Fault::RefuseFirst(code) => Some(code),
            _ => None,
        };
        let (mut input, mut piece) = (Vec::new(), vec![0; 64 << 10]);
        loop {
            let most = left.min(piece.len());
            let count = socket.read(&mut piece[..most])?;
            left -= count;
            input.extend_from_slice(&piece[..count]);
            let mut used = 0;
            while let DecodedFrame::Frame(ask, length) = decode_client_frame(&input[used..])? {
                used += length;
                match ask {
                    ClientFrame::Hello { .. } => self.send_welcome()?,
                    _ if refusal.is_some() => {
                        let code = refusal.take().expect("just looked at");
                        self.send_refusal(code, 0)?;
                    }
                    ask => self.handle_request(ask, fault, writing)?,
                }
            }
            input.drain(..used);
            if count == 0 {
                // A real node may already use the data of an incomplete frame.
                if let (DecodedFrame::Frame(head, _), Some(writing)) = (head(&input)?, writing)
                    && head.is_data()
                {
                    self.offer_bytes(&input[HEAD_BYTES..], writing);
                }
                return Ok(());
            }
        }
    }

    fn send_answer(&self, answer: NodeFrame<'_>) -> Result<(), ConnectionEnded> {
        let mut out = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        let number = out.sent_frames;
        out.sent_frames += 1;
        match out.fault {
            Fault::CutBeforeFrame(at) if number >= at => {
                out.socket.shutdown(Shutdown::Both)?;
                Err(ConnectionEnded)
            }
            Fault::SilenceFromFrame(from) if number >= from => Ok(()),
            _ => {
                let mut bytes = Vec::new();
                answer.encode(&mut bytes);
                out.socket.write_all(&bytes)?;
                Ok(())
            }
        }
    }

    fn send_refusal(&self, code: ErrorCode, position: u64) -> Result<(), ConnectionEnded> {
        self.send_answer(NodeFrame::Error {
            code: code.number(),
            position,
            detail: &format!("played: {code}"),
            hint: "played hint",
        })
    }

    fn send_welcome(&self) -> Result<(), ConnectionEnded> {
        let world = self.shared.lock();
        let leader = world.leader_index.filter(|leader| *leader != self.node_index);
        let leader = leader.map(|leader| world.addresses[leader].clone());
        drop(world);
        self.send_answer(NodeFrame::Welcome {
            version: VERSION,
            node: node_id(self.node_index),
            leader: &leader.unwrap_or_default(),
        })
    }

    fn handle_request(
        &self,
        ask: ClientFrame<'_>,
        fault: Fault,
        writing: &mut Option<PieceWriter>,
    ) -> Result<(), ConnectionEnded> {
        match (ask, writing.as_mut()) {
            (ClientFrame::Data(bytes), Some(writing)) => {
                self.offer_bytes(bytes, writing);
                Ok(())
            }
            (ClientFrame::Close { finish }, Some(open)) => {
                self.close(open, finish)?;
                *writing = None;
                Ok(())
            }
            (ClientFrame::Open { mode: how, writer, name }, None) => {
                *writing = self.open(how, writer, name, fault)?;
                Ok(())
            }
            (ClientFrame::Stat { name }, None) => {
                let world = self.shared.lock();
                let Some(stream) = world.streams.get(name) else {
                    drop(world);
                    return self.send_refusal(ErrorCode::Unknown, 0);
                };
                let mut info = stream.info(name);
                drop(world);
                info.next_position =
                    info.next_position.saturating_add_signed(fault.position_shift());
                self.send_answer(NodeFrame::Info(info))
            }
            (ClientFrame::List { after_name: after }, None) => {
                let world = self.shared.lock();
                let behind = world.streams.iter().filter(|(name, _)| name.as_str() > after);
                let names: Vec<_> = behind.map(|(name, _)| name.clone()).collect();
                drop(world);
                for name in names {
                    let world = self.shared.lock();
                    let Some(info) = world.streams.get(&name).map(|stream| stream.info(&name))
                    else {
                        continue;
                    };
                    drop(world);
                    self.send_answer(NodeFrame::Info(info))?;
                }
                self.send_answer(NodeFrame::ListEnd)
            }
            (ClientFrame::Trim { retain_from: before, name }, None) => {
                let trimmed = self.shared.lock().trim(name, before);
                self.send_result(trimmed)
            }
            (ClientFrame::Retain { keep, name }, None) => {
                let mut world = self.shared.lock();
                let stream = world.streams.get_mut(name);
                let kept = stream.map(|stream| {
                    stream.retention = keep;
                    stream.start
                });
                drop(world);
                self.send_result(kept.ok_or((ErrorCode::Unknown, 0)))
            }
            (ClientFrame::Remove { name }, None) => {
                let removed = self.shared.lock().streams.remove(name);
                self.shared.changed.notify_all();
                self.send_result(removed.map(|_| 0).ok_or((ErrorCode::Unknown, 0)))
            }
            (ClientFrame::Read { from, to, follow, name }, None) => {
                self.send_read(name, from, to, follow, fault)
            }
            // The client sent the request before it was notified that its piece had ended.
            (ClientFrame::Data(_) | ClientFrame::Close { .. }, None) => Ok(()),
            _ => {
                self.send_refusal(ErrorCode::OutOfOrder, 0)?;
                Err(ConnectionEnded)
            }
        }
    }

    /// Returns whether the client of a read has disconnected.
    fn is_disconnected(&self) -> bool {
        let out = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        let peeked = out.socket.set_nonblocking(true).and_then(|()| out.socket.peek(&mut [0]));
        let _ = out.socket.set_nonblocking(false);
        match peeked {
            Ok(count) => count == 0,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
    }

    fn send_result(&self, done: Result<u64, (ErrorCode, u64)>) -> Result<(), ConnectionEnded> {
        match done {
            Ok(position) => self.send_answer(NodeFrame::Done { position }),
            Err((code, position)) => self.send_refusal(code, position),
        }
    }

    fn open(
        &self,
        how: OpenMode,
        writer: u128,
        name: &str,
        fault: Fault,
    ) -> Result<Option<PieceWriter>, ConnectionEnded> {
        let opened = self.shared.lock().open(self.node_index, name, how, writer);
        self.shared.changed.notify_all();
        let (piece, first) = match opened {
            Ok(opened) => opened,
            Err(code) => return self.send_refusal(code, 0).map(|()| None),
        };
        let writing =
            PieceWriter { name: name.to_owned(), piece_id: piece, offered_bytes: 0, fault };
        // The piece is open even if the client does not receive the response.
        let position = first.saturating_add_signed(fault.position_shift());
        if let Err(gone) = self.send_answer(NodeFrame::Opened { position }) {
            self.shared.lock().end_piece(name);
            return Err(gone);
        }
        let teller = self.clone();
        let name = name.to_owned();
        thread::spawn(move || {
            let _ = teller.report_durable(&name, piece, first, fault);
        });
        Ok(Some(writing))
    }

    /// Notifies the client of durable positions until the piece ends.
    fn report_durable(
        &self,
        name: &str,
        piece: u64,
        first: u64,
        fault: Fault,
    ) -> Result<(), ConnectionEnded> {
        let beyond = match fault {
            Fault::RaiseAcknowledged(by) => by,
            _ => 0,
        };
        let mut told = first;
        let mut world = self.shared.lock();
        loop {
            let Some(stream) = world.streams.get(name) else {
                drop(world);
                return self.send_answer(NodeFrame::Ended { position: told });
            };
            let end = stream.end_position();
            if !world.is_writing(name, piece) {
                let ended = world.ended_pieces.get(&piece).copied();
                drop(world);
                // The handler of the close request responds.
                return match ended {
                    Some(position) => self.send_answer(NodeFrame::Ended { position }),
                    None => Ok(()),
                };
            }
            if end > told {
                told = end;
                drop(world);
                let position = told + beyond;
                self.send_answer(NodeFrame::Durable { position })?;
                world = self.shared.lock();
                continue;
            }
            let waited = self.shared.changed.wait(world);
            world = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn offer_bytes(&self, bytes: &[u8], writing: &mut PieceWriter) {
        let mut world = self.shared.lock();
        if !world.is_writing(&writing.name, writing.piece_id) {
            return;
        }
        let ends_at = match writing.fault {
            Fault::EndPieceAfter(at) | Fault::FenceAfter(at) => at,
            _ => usize::MAX,
        };
        let taken = bytes.len().min(ends_at - writing.offered_bytes);
        writing.offered_bytes += taken;
        let stream = world.streams.get_mut(&writing.name);
        let stream = stream.expect("it is written");
        let piece = stream.piece.as_mut().expect("it is written");
        piece.undecided.extend_from_slice(&bytes[..taken]);
        if writing.offered_bytes == ends_at {
            if matches!(writing.fault, Fault::FenceAfter(_)) {
                stream.writer = !0;
            }
            world.end_piece_externally(&writing.name);
        }
        world.decide_offered();
        drop(world);
        self.shared.changed.notify_all();
    }

    fn close(&self, writing: &PieceWriter, finish: bool) -> Result<(), ConnectionEnded> {
        let mut world = self.shared.lock();
        loop {
            if !world.is_writing(&writing.name, writing.piece_id) {
                return Ok(());
            }
            let stream = world.streams.get_mut(&writing.name);
            let stream = stream.expect("it is written");
            if stream.piece.as_ref().is_some_and(|piece| piece.undecided.is_empty()) {
                stream.piece = None;
                stream.is_finished = finish;
                let position = stream.end_position();
                drop(world);
                self.shared.changed.notify_all();
                let short = match writing.fault {
                    Fault::LowerClosed(by) => by,
                    _ => 0,
                };
                let position = position - short;
                return self.send_answer(NodeFrame::Closed { position });
            }
            let waited = self.shared.changed.wait(world);
            world = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn send_read(
        &self,
        name: &str,
        from: u64,
        to: u64,
        follow: bool,
        fault: Fault,
    ) -> Result<(), ConnectionEnded> {
        let (mut at, mut parts) = (from, 0);
        let mut world = self.shared.lock();
        loop {
            let Some(stream) = world.streams.get(name) else {
                drop(world);
                return self.send_refusal(ErrorCode::Unknown, 0);
            };
            let (start, end, finished) = (stream.start, stream.end_position(), stream.is_finished);
            let wrong = match at {
                _ if at < start => Some((ErrorCode::Trimmed, start)),
                _ if at > end && !follow => Some((ErrorCode::PastEnd, end)),
                _ => None,
            };
            if let Some((code, position)) = wrong {
                drop(world);
                return self.send_refusal(code, position);
            }
            if at == to || (at == end && (finished || !follow)) {
                drop(world);
                let finished = finished && at == end;
                return self.send_answer(NodeFrame::End { position: at, finished });
            }
            if at >= end {
                if self.is_disconnected() {
                    return Err(ConnectionEnded);
                }
                let waited = self.shared.changed.wait_timeout(world, DISCONNECT_CHECK_INTERVAL);
                world = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            let range = usize::try_from(at).expect("in memory")
                ..usize::try_from(end.min(to)).expect("in memory");
            let mut bytes = world.streams[name].bytes[range].to_vec();
            let most = world.random.pick(&[1, 100, 5000, 200 << 10]);
            bytes.truncate(most);
            drop(world);
            let position = match fault {
                Fault::SkipInRead(by) if parts == 1 => at + by,
                _ => at,
            };
            self.send_answer(NodeFrame::Bytes { position, bytes: &bytes })?;
            at += bytes.len() as u64;
            parts += 1;
            world = self.shared.lock();
        }
    }
}

impl Fault {
    const fn position_shift(self) -> i64 {
        match self {
            Self::ShiftPosition(by) => by,
            _ => 0,
        }
    }
}

impl ClusterState {
    fn is_writing(&self, name: &str, piece: u64) -> bool {
        let piece_of = |stream: &Stream| stream.piece.as_ref().map(|piece| piece.id);
        self.streams.get(name).and_then(piece_of) == Some(piece)
    }

    fn trim(&mut self, name: &str, before: u64) -> Result<u64, (ErrorCode, u64)> {
        let stream = self.streams.get_mut(name).ok_or((ErrorCode::Unknown, 0))?;
        if before > stream.end_position() {
            return Err((ErrorCode::PastEnd, stream.end_position()));
        }
        stream.start = stream.start.max(before);
        Ok(stream.start)
    }
}

impl Stream {
    fn info<'a>(&self, name: &'a str) -> Info<'a> {
        Info {
            id: self.id,
            finished: self.is_finished,
            open_stream: self.piece.as_ref().map(|piece| StreamName {
                owner: node_id(piece.owner_index),
                boot: 1,
                number: self.piece_count,
            }),
            start: self.start,
            next_position: self.end_position(),
            piece_count: self.piece_count,
            created_ms: 1_700_000_000_000,
            retention: self.retention,
            name,
        }
    }
}

fn node_id(node: usize) -> NodeId {
    NodeId(u32::try_from(node + 1).expect("few nodes"))
}
