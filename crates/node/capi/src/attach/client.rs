//! The program's side: one connection at a time to one of several nodes, kept up by a thread.
//!
//! What has no answer when a connection ends is asked for again on the next, under its number in the program's
//! session, so that it is done once. Delivery goes on behind what was received.

use std::{
    collections::VecDeque,
    io::{self, BufReader, Write as _},
    net::{Shutdown, TcpStream, ToSocketAddrs as _},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{RecvTimeoutError, sync_channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::{
    frames::{
        Answer, Ask, FRAME_OVERHEAD, NO_SESSION, TEXT_BYTES_MAX, VERSION, WINDOW_BYTES, read_frame,
    },
    pending::{End, Pending, Wanted},
};
use crate::{
    bell::Bell,
    border::block_signals,
    error::{Code, Failed},
    options::{Options, VALUE_BYTES_MAX},
    source::{Cursor, Done, Read, Source, forgotten},
};

/// How long a connection may take to be made.
const CONNECT_WAIT: Duration = Duration::from_secs(2);
/// A node that says nothing for so long is gone; it says that it lives each second.
const SILENCE_MAX: Duration = Duration::from_secs(4);
/// Between two attempts to connect.
const BACK_OFF: Duration = Duration::from_millis(50);
/// About so many bytes are sent at a time.
const BATCH_BYTES: usize = 256 << 10;
/// Largest frame of a node.
const FRAME_BYTES_MAX: usize = {
    let value = VALUE_BYTES_MAX;
    let largest = if value > TEXT_BYTES_MAX {
        value
    } else {
        TEXT_BYTES_MAX
    };
    largest + FRAME_OVERHEAD
};

/// A program that is attached.
pub struct Client {
    inner: Arc<Inner>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Inner {
    options: Options,
    state: Mutex<State>,
    /// Wakes the thread of the connection.
    work: Bell,
    /// Wakes the program.
    news: Arc<Bell>,
}

#[derive(Default)]
struct State {
    pending: Pending,
    delivery: Delivery,
    /// The cluster, once one was met.
    cluster: Option<u128>,
    /// Largest value that it takes.
    value_bytes_max: Option<usize>,
    /// Counts connections; 0 while there was none.
    link: u64,
    linked: bool,
    node: u32,
    /// Why the last connection ended, or was not made.
    obstacle: String,
    /// It cannot go on.
    fatal: Option<Failed>,
    closed: bool,
}

/// Values that were received and not read yet.
#[derive(Default)]
struct Delivery {
    epoch: u32,
    /// From where values are wanted, behind those that are here.
    wanted: Option<Cursor>,
    /// On which connection that was said.
    asked_on: u64,
    received: VecDeque<(u64, Arc<[u8]>)>,
    /// Values are wanted from the end on, which is being asked for.
    ending: bool,
    /// What was forgotten, and the first slot that is held instead.
    forgotten: Option<(Option<u64>, u64)>,
    taken: Option<u64>,
    /// Bytes that were taken and not reported.
    unreported: usize,
}

impl Delivery {
    fn seek(&mut self, cursor: Cursor) {
        let ending = cursor == Cursor::End;
        *self = Self {
            epoch: self.epoch.wrapping_add(1),
            wanted: (!ending).then_some(cursor),
            ending,
            ..Self::default()
        };
    }

    /// What is to be said on this connection.
    fn frames(&mut self, link: u64, to: &mut Vec<u8>) {
        if self.ending && self.asked_on != link {
            self.asked_on = link;
            Ask::Sync { id: self.end_id() }.encode(to);
        }
        let Some(wanted) = self.wanted else { return };
        if self.asked_on != link {
            self.asked_on = link;
            (self.unreported, self.taken) = (0, None);
            // What is here was received on another connection, whose room is no matter any more.
            self.epoch = self.epoch.wrapping_add(1);
            let (epoch, from) = (self.epoch, wanted);
            Ask::Deliver { epoch, from }.encode(to);
        }
        if self.unreported >= WINDOW_BYTES / 4 || (self.unreported > 0 && self.received.is_empty())
        {
            let epoch = self.epoch;
            if let Some(slot) = self.taken {
                Ask::Taken { epoch, slot }.encode(to);
            }
            self.unreported = 0;
        }
    }

    /// Of the question where the end is: none that a request has.
    fn end_id(&self) -> u64 {
        1 << 63 | u64::from(self.epoch)
    }

    /// The answer to that.
    fn at_end(&mut self, id: u64, code: Code, next: u64) {
        if self.ending && id == self.end_id() {
            self.asked_on = 0;
            if code == Code::Ok {
                self.ending = false;
                self.wanted = Some(Cursor::At(next));
            }
        }
    }

    /// A value came. `Err`: it is not the one that was asked for.
    fn receive(&mut self, epoch: u32, slot: u64, value: &[u8]) -> Result<(), &'static str> {
        if epoch != self.epoch {
            return Ok(());
        }
        match self.wanted {
            Some(Cursor::Oldest) => {}
            Some(Cursor::At(wanted)) if slot == wanted => {}
            _ => return Err("a value of another slot than was asked for"),
        }
        let next = slot.checked_add(1).ok_or("a slot that cannot be")?;
        self.wanted = Some(Cursor::At(next));
        self.received.push_back((slot, value.into()));
        Ok(())
    }
}

impl Client {
    /// Begins to attach; `news` rings for whoever reads values.
    pub fn start(options: Options, news: &Arc<Bell>) -> Result<Self, Failed> {
        if options.attach.is_empty() {
            return Err(Failed::new(Code::Invalid, "no node is named")
                .hint("set the option attach to the listen addresses of nodes"));
        }
        let work = Bell::new();
        let refused = |error: io::Error| Failed::new(Code::Refused, error.to_string());
        let inner = Arc::new(Inner {
            options,
            state: Mutex::default(),
            work: work.map_err(refused)?,
            news: Arc::clone(news),
        });
        let own = Arc::clone(&inner);
        let thread = thread::Builder::new().name("quorate-client".to_owned());
        let thread = thread.spawn(move || own.run()).map_err(refused)?;
        Ok(Self {
            inner,
            thread: Mutex::new(Some(thread)),
        })
    }

    fn push(&self, wanted: Wanted, done: Option<Done>, within: Duration) -> Result<(), Failed> {
        {
            let mut state = self.inner.state();
            if let Some(fatal) = &state.fatal {
                return Err(fatal.clone());
            }
            if state.closed {
                return Err(Failed::new(Code::Stopped, "the handle is closed"));
            }
            state.pending.push(wanted, done, Instant::now() + within);
        }
        self.inner.work.ring();
        Ok(())
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        block_signals();
        let nodes = self.options.attach.iter().cycle();
        for node in nodes {
            if let Err(error) = self.serve(node) {
                let mut state = self.state();
                state.obstacle = format!("{node}: {error}");
                let why = state.obstacle.clone();
                state.pending.unlinked(&why);
            }
            let seen = {
                let mut state = self.state();
                state.linked = false;
                if state.closed || state.fatal.is_some() {
                    break;
                }
                self.work.rung()
            };
            self.tell(|pending| pending.expire(Instant::now()));
            self.work.wait(seen, Some(Instant::now() + BACK_OFF));
        }
        self.tell(Pending::abandon);
        self.news.ring();
    }

    /// Tells those whose requests end so.
    fn tell(&self, ends: impl FnOnce(&mut Pending) -> Vec<End>) {
        let ends = ends(&mut self.state().pending);
        ends.into_iter().for_each(|end| end());
    }

    /// One connection, from its beginning to its end.
    fn serve(&self, node: &str) -> io::Result<()> {
        let mut connected = Err(io::Error::other("the name has no address"));
        for address in node.to_socket_addrs()? {
            connected = TcpStream::connect_timeout(&address, CONNECT_WAIT);
            if connected.is_ok() {
                break;
            }
        }
        let socket = connected?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(SILENCE_MAX))?;
        socket.set_write_timeout(Some(SILENCE_MAX))?;
        let mut bytes = Vec::new();
        Ask::Hello { version: VERSION }.encode(&mut bytes);
        (&socket).write_all(&bytes)?;
        let mut reader = BufReader::with_capacity(64 << 10, &socket);
        let mut frame = Vec::new();
        read_frame(&mut reader, FRAME_OVERHEAD, &mut frame)?;
        let link = self.welcome(&frame)?;
        self.news.ring();
        thread::scope(|scope| {
            let thread = thread::Builder::new().name("quorate-client".to_owned());
            let writer = thread.spawn_scoped(scope, || {
                let written = self.write(&socket, link);
                let _ = socket.shutdown(Shutdown::Both);
                written
            })?;
            let read = self.read(&mut reader, frame);
            self.state().linked = false;
            self.work.ring();
            let written = writer.join().unwrap_or(Ok(()));
            written.and(read)
        })
    }

    /// The number of the connection, if it is to a node of our cluster.
    fn welcome(&self, frame: &[u8]) -> io::Result<u64> {
        let Some(Answer::Welcome {
            version,
            cluster,
            node,
            value_bytes_max,
        }) = Answer::decode(frame)
        else {
            return Err(nonsense(
                "what answers there is no node that programs attach to",
            ));
        };
        let mut state = self.state();
        let refused = if version != VERSION {
            Some(format!(
                "the node speaks version {version}, and this library {VERSION}"
            ))
        } else if state.cluster.is_some_and(|known| known != cluster) {
            Some("the node belongs to another cluster than before".to_owned())
        } else {
            None
        };
        if let Some(what) = refused {
            let hint = "attach to nodes of one cluster, of this version";
            state.fatal = Some(Failed::new(Code::Refused, what.clone()).hint(hint));
            return Err(nonsense(&what));
        }
        state.cluster = Some(cluster);
        state.value_bytes_max = usize::try_from(value_bytes_max).ok();
        state.node = node;
        state.link += 1;
        state.linked = true;
        Ok(state.link)
    }

    fn write(&self, mut socket: &TcpStream, link: u64) -> io::Result<()> {
        let mut bytes = Vec::new();
        loop {
            let seen = self.work.hush();
            let now = Instant::now();
            self.tell(|pending| pending.expire(now));
            let due = {
                let mut state = self.state();
                if state.closed || !state.linked {
                    return Ok(());
                }
                state.delivery.frames(link, &mut bytes);
                // What is appended behind the end that is asked for must not get a slot before the answer.
                if !state.delivery.ending {
                    state.pending.frames(link, now, BATCH_BYTES, &mut bytes);
                }
                let patience = self.options.request / 3;
                let impatient = state.pending.impatient(link, patience);
                if impatient.is_some_and(|at| at <= now) {
                    let millis = patience.as_millis();
                    return Err(io::Error::other(format!("no answer within {millis} ms")));
                }
                state.pending.due(now).into_iter().chain(impatient).min()
            };
            if bytes.is_empty() {
                self.work.wait(seen, due);
                continue;
            }
            socket.write_all(&bytes)?;
            bytes.clear();
            bytes.shrink_to(BATCH_BYTES);
        }
    }

    fn read(&self, reader: &mut BufReader<&TcpStream>, mut frame: Vec<u8>) -> io::Result<()> {
        loop {
            read_frame(reader, FRAME_BYTES_MAX, &mut frame)?;
            let answer =
                Answer::decode(&frame).ok_or_else(|| nonsense("an answer makes no sense"))?;
            if let Some(end) = self.hear(&answer)? {
                end();
            }
        }
    }

    fn hear(&self, answer: &Answer<'_>) -> io::Result<Option<End>> {
        let mut state = self.state();
        if state.closed {
            return Err(io::ErrorKind::Interrupted.into());
        }
        match *answer {
            Answer::Welcome { .. } => return Err(nonsense("a second greeting")),
            Answer::Alive => return Ok(None),
            Answer::Registered { session, .. } => {
                state.pending.registered(session);
                self.work.ring();
            }
            // The answer to a registration.
            Answer::Done { id: 0, .. } => {
                state.pending.not_registered();
                self.work.ring();
            }
            Answer::Done {
                id,
                code: NO_SESSION,
                ..
            } => {
                let end = state.pending.no_session(id);
                self.work.ring();
                return Ok(end);
            }
            Answer::Done {
                id,
                code,
                slot,
                text,
            } => {
                let code = Code::of(code.into()).ok_or_else(|| nonsense("an unknown code"))?;
                state.delivery.at_end(id, code, slot);
                let end = state.pending.answered(id, code, slot, text);
                self.work.ring();
                if matches!(code, Code::Unavailable | Code::Stopped) {
                    // Another node may do better.
                    return Err(io::Error::other(text.to_owned()));
                }
                return Ok(end);
            }
            Answer::Value { epoch, slot, value } => {
                state
                    .delivery
                    .receive(epoch, slot, value)
                    .map_err(nonsense)?;
                self.news.ring();
            }
            Answer::Forgotten { epoch, first } => {
                let delivery = &mut state.delivery;
                if epoch == delivery.epoch {
                    let slot = match delivery.wanted.take() {
                        Some(Cursor::At(slot)) => Some(slot),
                        Some(Cursor::Oldest | Cursor::End) | None => None,
                    };
                    delivery.forgotten = Some((slot, first));
                    self.news.ring();
                }
            }
        }
        Ok(None)
    }
}

fn nonsense(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl Source for Client {
    fn append(&self, value: &[u8], done: Done) -> Result<(), Failed> {
        let most = self.value_bytes_max();
        if value.len() > most {
            let detail = format!("the value has {} bytes, and may have {most}", value.len());
            return Err(Failed::new(Code::Size, detail)
                .hint("raise value-max and held-max on all nodes, or send it in parts"));
        }
        self.push(
            Wanted::Append(value.into()),
            Some(done),
            self.inner.options.request,
        )
    }

    fn trim(&self, below: u64, done: Done) -> Result<(), Failed> {
        self.push(Wanted::Trim(below), Some(done), self.inner.options.request)
    }

    fn sync(&self, done: Done) -> Result<(), Failed> {
        self.push(Wanted::Sync, Some(done), self.inner.options.request)
    }

    fn seek(&self, cursor: Cursor) -> Result<Cursor, Failed> {
        self.inner.state().delivery.seek(cursor);
        self.inner.work.ring();
        Ok(cursor)
    }

    fn read(&self, cursor: &mut Cursor) -> Read {
        let state = self.inner.state();
        if let Some((slot, value)) = state.delivery.received.front()
            && (!matches!(cursor, Cursor::At(_)) || *cursor == Cursor::At(*slot))
        {
            return Read::Value(*slot, Arc::clone(value));
        }
        match (&state.fatal, state.delivery.forgotten) {
            (Some(fatal), _) => Read::Ended(fatal.clone()),
            (None, Some((slot, first))) => Read::Ended(forgotten(slot.unwrap_or(first), first)),
            (None, None) if state.closed => {
                Read::Ended(Failed::new(Code::Stopped, "the handle is closed"))
            }
            (None, None) => Read::Ahead,
        }
    }

    fn peek(&self, _: u64) -> Result<Read, Failed> {
        let detail = "an attached program holds no values";
        Err(Failed::new(Code::Invalid, detail).hint("be delivered it, with quorate_recover"))
    }

    fn taken(&self, slot: u64) {
        let mut state = self.inner.state();
        let delivery = &mut state.delivery;
        while let Some((taken, value)) = delivery.received.pop_front_if(|(at, _)| *at <= slot) {
            delivery.unreported += value.len() + FRAME_OVERHEAD;
            delivery.taken = Some(taken);
        }
        if delivery.received.is_empty() || delivery.unreported >= WINDOW_BYTES / 4 {
            self.inner.work.ring();
        }
    }

    fn ready(&self, wait: Duration) -> Result<(), Failed> {
        let until = Instant::now() + wait;
        loop {
            let seen = self.inner.news.rung();
            {
                let state = self.inner.state();
                if let Some(fatal) = &state.fatal {
                    return Err(fatal.clone());
                }
                if state.linked {
                    return Ok(());
                }
            }
            if !self.inner.news.wait(seen, Some(until)) {
                let obstacle = self.inner.state().obstacle.clone();
                let detail = format!("no node was reached; last: {obstacle}");
                return Err(Failed::new(Code::Timeout, detail).hint(
                    "check that nodes run with the option listen, at the addresses of attach",
                ));
            }
        }
    }

    fn status(&self, wait: Duration) -> Result<String, Failed> {
        let (tell, told) = sync_channel(1);
        self.push(Wanted::Status(tell), None, wait)?;
        let text = match told.recv_timeout(wait + Duration::from_millis(100)) {
            Ok(said) => said?,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                return Err(Failed::new(Code::Timeout, "no node answers"));
            }
        };
        let nonsense = |error| Failed::new(Code::Refused, format!("the node's answer: {error}"));
        let mut view: serde_json::Value = serde_json::from_str(&text).map_err(nonsense)?;
        let state = self.inner.state();
        if let Some(view) = view.as_object_mut() {
            let attached = serde_json::json!({ "to": state.node, "connections": state.link });
            view.insert("attached".to_owned(), attached);
        }
        Ok(view.to_string())
    }

    fn value_bytes_max(&self) -> usize {
        let own = self.inner.options.largest_value();
        self.inner.state().value_bytes_max.unwrap_or(own)
    }

    fn close(&self) -> Result<(), Failed> {
        self.inner.state().closed = true;
        self.inner.work.ring();
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
        self.inner.news.ring();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_in_the_order_that_was_asked_for_or_not_at_all() {
        let mut delivery = Delivery::default();
        assert_eq!(
            delivery.receive(0, 1, b"x"),
            Err("a value of another slot than was asked for")
        );
        delivery.seek(Cursor::At(5));
        let mut bytes = Vec::new();
        delivery.frames(1, &mut bytes);
        let before = delivery.epoch;
        assert!(delivery.receive(before, 6, b"x").is_err(), "a gap");
        assert_eq!(delivery.receive(before, 5, b"x"), Ok(()));
        assert!(delivery.receive(before, 5, b"x").is_err(), "again");
        // On the next connection delivery goes on behind what is here.
        bytes.clear();
        delivery.frames(2, &mut bytes);
        let from = Cursor::At(6);
        let epoch = delivery.epoch;
        assert_eq!(Ask::decode(&bytes[4..]), Some(Ask::Deliver { epoch, from }));
        assert_eq!(
            delivery.receive(before, 6, b"late"),
            Ok(()),
            "of an earlier wish"
        );
        assert_eq!(delivery.receive(epoch, 6, b"x"), Ok(()));
        let slots: Vec<u64> = delivery.received.iter().map(|(slot, _)| *slot).collect();
        assert_eq!(slots, [5, 6]);
        delivery.seek(Cursor::Oldest);
        delivery.frames(2, &mut bytes);
        assert!(
            delivery.receive(delivery.epoch, u64::MAX, b"x").is_err(),
            "no slot follows"
        );
        assert_eq!(
            delivery.receive(delivery.epoch, 9, b"x"),
            Ok(()),
            "any is the first"
        );
        assert!(delivery.receive(delivery.epoch, 11, b"x").is_err());
    }
}
