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
    Answer, Ask, Code, Found, HEAD_BYTES, How, Info, Malformed, VERSION, decode_ask, head,
};

use super::{Fault, Shared, Stream, World};

/// Interval at which a waiting read checks whether its client has disconnected.
const LOOK: Duration = Duration::from_millis(50);

/// Sending side of a connection. It injects the faults.
struct Out {
    socket: TcpStream,
    fault: Fault,
    frames: usize,
}

/// Error that ends the connection.
struct Gone;

impl From<io::Error> for Gone {
    fn from(_: io::Error) -> Self {
        Self
    }
}

impl From<Malformed> for Gone {
    fn from(_: Malformed) -> Self {
        Self
    }
}

#[derive(Clone)]
struct Connection {
    shared: Arc<Shared>,
    node: usize,
    out: Arc<Mutex<Out>>,
}

/// Piece to which the connection is writing.
struct Writing {
    name: String,
    piece: u64,
    offered: usize,
    fault: Fault,
}

pub(super) fn serve(shared: &Arc<Shared>, node: usize, socket: TcpStream, fault: Fault) {
    let (Ok(input), Ok(())) = (socket.try_clone(), socket.set_nodelay(true)) else {
        return;
    };
    let out = Out { socket, fault, frames: 0 };
    let connection =
        Connection { shared: Arc::clone(shared), node, out: Arc::new(Mutex::new(out)) };
    let mut writing = None;
    let _ = connection.take(&input, fault, &mut writing);
    let _ = input.shutdown(Shutdown::Both);
    if let Some(Writing { name, piece, .. }) = writing {
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
    fn take(
        &self,
        mut socket: &TcpStream,
        fault: Fault,
        writing: &mut Option<Writing>,
    ) -> Result<(), Gone> {
        let mut left = match fault {
            Fault::CutIn(bytes) => bytes,
            _ => usize::MAX,
        };
        let mut refusal = match fault {
            Fault::Refuse(code) => Some(code),
            _ => None,
        };
        let (mut input, mut piece) = (Vec::new(), vec![0; 64 << 10]);
        loop {
            let most = left.min(piece.len());
            let count = socket.read(&mut piece[..most])?;
            left -= count;
            input.extend_from_slice(&piece[..count]);
            let mut used = 0;
            while let Found::Frame(ask, length) = decode_ask(&input[used..])? {
                used += length;
                match ask {
                    Ask::Hello { .. } => self.welcome()?,
                    _ if refusal.is_some() => {
                        let code = refusal.take().expect("just looked at");
                        self.refuse(code, 0)?;
                    }
                    ask => self.answer(ask, fault, writing)?,
                }
            }
            input.drain(..used);
            if count == 0 {
                // A real node may already use the data of an incomplete frame.
                if let (Found::Frame(head, _), Some(writing)) = (head(&input)?, writing)
                    && head.is_data()
                {
                    self.offer(&input[HEAD_BYTES..], writing);
                }
                return Ok(());
            }
        }
    }

    fn say(&self, answer: Answer<'_>) -> Result<(), Gone> {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        let number = out.frames;
        out.frames += 1;
        match out.fault {
            Fault::CutOut(at) if number >= at => {
                out.socket.shutdown(Shutdown::Both)?;
                Err(Gone)
            }
            Fault::Mute(from) if number >= from => Ok(()),
            _ => {
                let mut bytes = Vec::new();
                answer.encode(&mut bytes);
                out.socket.write_all(&bytes)?;
                Ok(())
            }
        }
    }

    fn refuse(&self, code: Code, position: u64) -> Result<(), Gone> {
        self.say(Answer::Error {
            code: code.number(),
            position,
            detail: &format!("played: {code}"),
            hint: "played hint",
        })
    }

    fn welcome(&self) -> Result<(), Gone> {
        let world = self.shared.lock();
        let leader = world.leader.filter(|leader| *leader != self.node);
        let leader = leader.map(|leader| world.addresses[leader].clone());
        drop(world);
        self.say(Answer::Welcome {
            version: VERSION,
            node: node_id(self.node),
            leader: &leader.unwrap_or_default(),
        })
    }

    fn answer(
        &self,
        ask: Ask<'_>,
        fault: Fault,
        writing: &mut Option<Writing>,
    ) -> Result<(), Gone> {
        match (ask, writing.as_mut()) {
            (Ask::Data(bytes), Some(writing)) => {
                self.offer(bytes, writing);
                Ok(())
            }
            (Ask::Close { finish }, Some(open)) => {
                self.close(open, finish)?;
                *writing = None;
                Ok(())
            }
            (Ask::Open { how, writer, name }, None) => {
                *writing = self.open(how, writer, name, fault)?;
                Ok(())
            }
            (Ask::Stat { name }, None) => {
                let world = self.shared.lock();
                let Some(stream) = world.streams.get(name) else {
                    drop(world);
                    return self.refuse(Code::Unknown, 0);
                };
                let mut info = stream.info(name);
                drop(world);
                info.end = info.end.saturating_add_signed(fault.misplaced());
                self.say(Answer::Info(info))
            }
            (Ask::List { after }, None) => {
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
                    self.say(Answer::Info(info))?;
                }
                self.say(Answer::ListEnd)
            }
            (Ask::Trim { before, name }, None) => {
                let trimmed = self.shared.lock().trim(name, before);
                self.done(trimmed)
            }
            (Ask::Retain { keep, name }, None) => {
                let mut world = self.shared.lock();
                let stream = world.streams.get_mut(name);
                let kept = stream.map(|stream| {
                    stream.keep = keep;
                    stream.start
                });
                drop(world);
                self.done(kept.ok_or((Code::Unknown, 0)))
            }
            (Ask::Remove { name }, None) => {
                let removed = self.shared.lock().streams.remove(name);
                self.shared.changed.notify_all();
                self.done(removed.map(|_| 0).ok_or((Code::Unknown, 0)))
            }
            (Ask::Read { from, to, follow, name }, None) => {
                self.read(name, from, to, follow, fault)
            }
            // The client sent the request before it was notified that its piece had ended.
            (Ask::Data(_) | Ask::Close { .. }, None) => Ok(()),
            _ => {
                self.refuse(Code::OutOfOrder, 0)?;
                Err(Gone)
            }
        }
    }

    /// Returns whether the client of a read has disconnected.
    fn is_gone(&self) -> bool {
        let out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        let peeked = out.socket.set_nonblocking(true).and_then(|()| out.socket.peek(&mut [0]));
        let _ = out.socket.set_nonblocking(false);
        match peeked {
            Ok(count) => count == 0,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
    }

    fn done(&self, done: Result<u64, (Code, u64)>) -> Result<(), Gone> {
        match done {
            Ok(position) => self.say(Answer::Done { position }),
            Err((code, position)) => self.refuse(code, position),
        }
    }

    fn open(
        &self,
        how: How,
        writer: u128,
        name: &str,
        fault: Fault,
    ) -> Result<Option<Writing>, Gone> {
        let opened = self.shared.lock().open(self.node, name, how, writer);
        self.shared.changed.notify_all();
        let (piece, first) = match opened {
            Ok(opened) => opened,
            Err(code) => return self.refuse(code, 0).map(|()| None),
        };
        let writing = Writing { name: name.to_owned(), piece, offered: 0, fault };
        // The piece is open even if the client does not receive the response.
        let position = first.saturating_add_signed(fault.misplaced());
        if let Err(gone) = self.say(Answer::Opened { position }) {
            self.shared.lock().end_piece(name);
            return Err(gone);
        }
        let teller = self.clone();
        let name = name.to_owned();
        thread::spawn(move || {
            let _ = teller.tell(&name, piece, first, fault);
        });
        Ok(Some(writing))
    }

    /// Notifies the client of durable positions until the piece ends.
    fn tell(&self, name: &str, piece: u64, first: u64, fault: Fault) -> Result<(), Gone> {
        let beyond = match fault {
            Fault::Exaggerate(by) => by,
            _ => 0,
        };
        let mut told = first;
        let mut world = self.shared.lock();
        loop {
            let Some(stream) = world.streams.get(name) else {
                drop(world);
                return self.say(Answer::Ended { position: told });
            };
            let end = stream.end();
            if !world.is_writing(name, piece) {
                let ended = world.ended.get(&piece).copied();
                drop(world);
                // The handler of the close request responds.
                return match ended {
                    Some(position) => self.say(Answer::Ended { position }),
                    None => Ok(()),
                };
            }
            if end > told {
                told = end;
                drop(world);
                let position = told + beyond;
                self.say(Answer::Durable { position })?;
                world = self.shared.lock();
                continue;
            }
            let waited = self.shared.changed.wait(world);
            world = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn offer(&self, bytes: &[u8], writing: &mut Writing) {
        let mut world = self.shared.lock();
        if !world.is_writing(&writing.name, writing.piece) {
            return;
        }
        let ends_at = match writing.fault {
            Fault::End(at) | Fault::Fence(at) => at,
            _ => usize::MAX,
        };
        let taken = bytes.len().min(ends_at - writing.offered);
        writing.offered += taken;
        let stream = world.streams.get_mut(&writing.name);
        let stream = stream.expect("it is written");
        let piece = stream.piece.as_mut().expect("it is written");
        piece.offered.extend_from_slice(&bytes[..taken]);
        if writing.offered == ends_at {
            if matches!(writing.fault, Fault::Fence(_)) {
                stream.writer = !0;
            }
            world.end_by_others(&writing.name);
        }
        world.decide();
        drop(world);
        self.shared.changed.notify_all();
    }

    fn close(&self, writing: &Writing, finish: bool) -> Result<(), Gone> {
        let mut world = self.shared.lock();
        loop {
            if !world.is_writing(&writing.name, writing.piece) {
                return Ok(());
            }
            let stream = world.streams.get_mut(&writing.name);
            let stream = stream.expect("it is written");
            if stream.piece.as_ref().is_some_and(|piece| piece.offered.is_empty()) {
                stream.piece = None;
                stream.finished = finish;
                let position = stream.end();
                drop(world);
                self.shared.changed.notify_all();
                let short = match writing.fault {
                    Fault::Shorten(by) => by,
                    _ => 0,
                };
                let position = position - short;
                return self.say(Answer::Closed { position });
            }
            let waited = self.shared.changed.wait(world);
            world = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn read(&self, name: &str, from: u64, to: u64, follow: bool, fault: Fault) -> Result<(), Gone> {
        let (mut at, mut parts) = (from, 0);
        let mut world = self.shared.lock();
        loop {
            let Some(stream) = world.streams.get(name) else {
                drop(world);
                return self.refuse(Code::Unknown, 0);
            };
            let (start, end, finished) = (stream.start, stream.end(), stream.finished);
            let wrong = match at {
                _ if at < start => Some((Code::Trimmed, start)),
                _ if at > end && !follow => Some((Code::BehindEnd, end)),
                _ => None,
            };
            if let Some((code, position)) = wrong {
                drop(world);
                return self.refuse(code, position);
            }
            if at == to || (at == end && (finished || !follow)) {
                drop(world);
                let finished = finished && at == end;
                return self.say(Answer::End { position: at, finished });
            }
            if at >= end {
                if self.is_gone() {
                    return Err(Gone);
                }
                let waited = self.shared.changed.wait_timeout(world, LOOK);
                world = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            let range = usize::try_from(at).expect("in memory")
                ..usize::try_from(end.min(to)).expect("in memory");
            let mut bytes = world.streams[name].bytes[range].to_vec();
            let most = world.dice.pick(&[1, 100, 5000, 200 << 10]);
            bytes.truncate(most);
            drop(world);
            let position = match fault {
                Fault::Skip(by) if parts == 1 => at + by,
                _ => at,
            };
            self.say(Answer::Bytes { position, bytes: &bytes })?;
            at += bytes.len() as u64;
            parts += 1;
            world = self.shared.lock();
        }
    }
}

impl Fault {
    const fn misplaced(self) -> i64 {
        match self {
            Self::Misplace(by) => by,
            _ => 0,
        }
    }
}

impl World {
    fn is_writing(&self, name: &str, piece: u64) -> bool {
        let piece_of = |stream: &Stream| stream.piece.as_ref().map(|piece| piece.id);
        self.streams.get(name).and_then(piece_of) == Some(piece)
    }

    fn trim(&mut self, name: &str, before: u64) -> Result<u64, (Code, u64)> {
        let stream = self.streams.get_mut(name).ok_or((Code::Unknown, 0))?;
        if before > stream.end() {
            return Err((Code::BehindEnd, stream.end()));
        }
        stream.start = stream.start.max(before);
        Ok(stream.start)
    }
}

impl Stream {
    fn info<'a>(&self, name: &'a str) -> Info<'a> {
        Info {
            id: self.id,
            finished: self.finished,
            writing: self.piece.as_ref().map(|piece| StreamName {
                owner: node_id(piece.owner),
                boot: 1,
                number: self.pieces,
            }),
            start: self.start,
            end: self.end(),
            pieces: self.pieces,
            created_ms: 1_700_000_000_000,
            keep: self.keep,
            name,
        }
    }
}

fn node_id(node: usize) -> NodeId {
    NodeId(u32::try_from(node + 1).expect("few nodes"))
}
