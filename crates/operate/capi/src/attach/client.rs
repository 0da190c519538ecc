//! The program's side of an attachment; it is connected to one of several nodes at a time.
//!
//! Requests are sent on the caller's thread, and the thread that handles events reads from the
//! connection, so values need no hand-off to a thread of the library. The library's only thread,
//! the *keeper*, connects, enforces timeouts, completes partial writes, and reads while the program
//! does not.
//!
//! When a connection ends, its unanswered requests are repeated on the next one under the same
//! numbers in the program's session, so that each is executed once. Delivery continues after the
//! last value received.

use std::{
    io::{self, Write as _},
    net::{TcpStream, ToSocketAddrs as _},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{RecvTimeoutError, sync_channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, epoll};

use super::{
    delivery::Delivery,
    frames::{
        Answer, Ask, FRAME_OVERHEAD, NO_SESSION, TEXT_BYTES_MAX, VERSION, read_frame, split_frame,
    },
    line::{Line, Moved},
    pending::{End, Pending, Wanted},
};
use crate::{
    bell::{Bell, wait_ready},
    border::block_signals,
    error::{Code, Failed},
    options::{Options, VALUE_BYTES_MAX},
    source::{Cursor, Done, Read, Source, Values, forgotten},
    submits::Submits,
};

/// Time limit for connecting, and separately for receiving the node's greeting.
const CONNECT_WAIT: Duration = Duration::from_secs(2);
/// Time without input or output progress after which the client gives up on a node. A live node
/// sends at least once a second.
const SILENCE_MAX: Duration = Duration::from_secs(4);
/// Delay between two attempts to connect.
const BACK_OFF: Duration = Duration::from_millis(50);
/// Time after handling events for which the program still counts as reading.
const READS_WITHIN: Duration = Duration::from_millis(100);
/// Interval at which an idle keeper checks the connection.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Approximate maximum number of bytes to send at a time.
const BATCH_BYTES: usize = 256 << 10;
/// Maximum size in bytes of a frame from a node.
const FRAME_BYTES_MAX: usize = {
    let value = VALUE_BYTES_MAX;
    let largest = if value > TEXT_BYTES_MAX { value } else { TEXT_BYTES_MAX };
    largest + FRAME_OVERHEAD
};

/// A connection of a program to remote nodes, shared with the keeper.
pub struct Client {
    inner: Arc<Inner>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Inner {
    options: Options,
    state: Mutex<State>,
    submits: Arc<Submits>,
    /// Set if the program has handled events recently and is reading from the connection.
    reads: AtomicBool,
    /// Set while the keeper waits for input because the program is not reading.
    keeper_reads: AtomicBool,
    /// Bell that wakes the keeper.
    work: Bell,
    /// Bell that wakes the program.
    news: Arc<Bell>,
    /// Descriptor for the caller to poll. Readable when `news` has rung or the connection is
    /// readable.
    readable: OwnedFd,
}

#[derive(Default)]
struct State {
    pending: Pending,
    delivery: Delivery,
    link: Option<Link>,
    /// Number of connections made.
    links: u64,
    /// Id of the cluster, from the first node that sent a greeting.
    cluster: Option<u128>,
    node: u32,
    /// Reason for the failure or end of the last connection.
    obstacle: String,
    /// Permanent failure; the client has given up.
    fatal: Option<Failed>,
    closed: bool,
    /// Earliest time at which the keeper's next check is due.
    looks_at: Option<Instant>,
}

/// A connection on which a node has sent its greeting.
struct Link {
    at: String,
    line: Line,
    number: u64,
    heard_at: Instant,
    /// Time since when the connection has accepted no output, or `None` while it accepts output.
    stuck_since: Option<Instant>,
}

/// Notifications to send once the state has been unlocked.
#[derive(Default)]
struct Told {
    ends: Vec<End>,
    news: bool,
}

impl Told {
    fn end(&mut self, end: Option<End>) {
        self.ends.extend(end);
    }
}

impl Client {
    /// Starts attaching to one of the nodes in `options`. Sends the values gathered in `submits`,
    /// and rings `news` for readers of values.
    pub fn start(
        options: Options,
        news: &Arc<Bell>,
        submits: &Arc<Submits>,
    ) -> Result<Self, Failed> {
        if options.attach.is_empty() {
            return Err(Failed::new(Code::Invalid, "no node is named")
                .hint("set the option attach to the listen addresses of nodes"));
        }
        let refused = |error: io::Error| Failed::new(Code::Refused, error.to_string());
        let readable = epoll::create(epoll::CreateFlags::CLOEXEC);
        let readable = readable.map_err(|errno| refused(errno.into()))?;
        let (data, flags) = (epoll::EventData::new_u64(0), epoll::EventFlags::IN);
        epoll::add(&readable, news.descriptor(), data, flags)
            .map_err(|errno| refused(errno.into()))?;
        let inner = Arc::new(Inner {
            options,
            state: Mutex::default(),
            submits: Arc::clone(submits),
            reads: AtomicBool::new(false),
            keeper_reads: AtomicBool::new(false),
            work: Bell::new().map_err(refused)?,
            news: Arc::clone(news),
            readable,
        });
        let own = Arc::clone(&inner);
        let thread = thread::Builder::new().name("quorate-client".to_owned());
        let thread = thread.spawn(move || own.keep()).map_err(refused)?;
        Ok(Self { inner, thread: Mutex::new(Some(thread)) })
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
            let now = Instant::now();
            state.pending.push(wanted, done, now, now + within);
        }
        self.inner.send();
        Ok(())
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends as much pending output as the connection accepts.
    fn send(&self) {
        let mut told = Told::default();
        self.write(&mut self.state(), &mut told);
        if self.tell(told) {
            self.news.ring();
        }
    }

    /// Reads pending input and sends pending output. Returns whether there are events for the
    /// program.
    fn hear(&self) -> bool {
        let mut told = Told::default();
        {
            let mut state = self.state();
            self.read(&mut state, &mut told);
            self.write(&mut state, &mut told);
        }
        self.tell(told)
    }

    fn tell(&self, told: Told) -> bool {
        let tell = |anything, end: End| end.tell(&self.submits) || anything;
        told.ends.into_iter().fold(told.news, tell)
    }

    /// Writes pending output to the connection, if there is one.
    fn write(&self, state: &mut State, told: &mut Told) {
        let State { pending, delivery, link: Some(link), looks_at, .. } = state else {
            return;
        };
        let now = Instant::now();
        loop {
            // While enough bundles are in flight, newly gathered values wait, so that the next
            // bundle is larger.
            while pending.has_room()
                && let Some((bundle, _)) = self.submits.take()
            {
                let until = bundle.since + self.options.request;
                // The keeper's next check must be earlier than planned.
                let patience = until.min(now + self.patience());
                if looks_at.is_some_and(|at| patience < at) {
                    *looks_at = Some(patience);
                    self.work.ring();
                }
                pending.push(Wanted::Append(bundle), None, now, until);
            }
            let output = link.line.output();
            if output.is_empty() {
                // Values appended after a request for the end of the log must not get a slot before
                // the end is known.
                if !delivery.ending {
                    pending.frames(link.number, now, BATCH_BYTES, output);
                }
                delivery.frames(link.number, output);
            }
            if output.is_empty() {
                return;
            }
            match link.line.send() {
                Ok(Moved::All) => link.stuck_since = None,
                Ok(Moved::Some) => {
                    if link.stuck_since.is_none() {
                        link.stuck_since = Some(now);
                        // The keeper waits until the connection accepts output again.
                        self.work.ring();
                    }
                    return;
                }
                Err(error) => return self.unlink(state, &error, told),
            }
        }
    }

    /// Reads pending input from the connection, if there is one.
    fn read(&self, state: &mut State, told: &mut Told) {
        if let Err(error) = receive(state, told) {
            self.unlink(state, &error, told);
        }
    }

    /// Closes the connection because of `error`.
    fn unlink(&self, state: &mut State, error: &io::Error, told: &mut Told) {
        let Some(link) = state.link.take() else {
            return;
        };
        let _ = epoll::delete(&self.readable, link.line.socket());
        link.line.shut();
        if !state.closed {
            state.obstacle = format!("{}: {error}", link.at);
            state.pending.unlinked(&state.obstacle);
        }
        // The program must learn of the failure even if it is not waiting for values.
        told.news |= state.fatal.is_some();
        self.work.ring();
    }

    /// Returns how long to wait for an answer before trying another node.
    fn patience(&self) -> Duration {
        self.options.request / 3
    }

    /// Main loop of the keeper.
    fn keep(&self) {
        block_signals();
        for node in self.options.attach.iter().cycle() {
            if let Err(error) = self.connect(node) {
                let mut state = self.state();
                state.obstacle = format!("{node}: {error}");
                let why = state.obstacle.clone();
                state.pending.unlinked(&why);
            }
            while self.look() {}
            let (seen, over) = {
                let mut state = self.state();
                // Gathered values also time out while there is no connection.
                while let Some((bundle, _)) = self.submits.take() {
                    let until = bundle.since + self.options.request;
                    let now = bundle.since;
                    state.pending.push(Wanted::Append(bundle), None, now, until);
                }
                (self.work.rung(), state.closed || state.fatal.is_some())
            };
            if over {
                break;
            }
            self.expire();
            self.work.wait(seen, Some(Instant::now() + BACK_OFF));
        }
        let why = self.state().fatal.clone();
        let why = why.unwrap_or_else(|| Failed::new(Code::Stopped, "the handle is closed"));
        self.submits.close(&why);
        let ends = self.state().pending.abandon();
        self.tell(Told { ends, news: true });
        self.news.ring();
    }

    /// Fails the requests that have timed out.
    fn expire(&self) {
        let ends = self.state().pending.expire(Instant::now());
        if self.tell(Told { ends, news: false }) {
            self.news.ring();
        }
    }

    fn connect(&self, node: &str) -> io::Result<()> {
        let mut connected = Err(io::Error::other("the name has no address"));
        for address in node.to_socket_addrs()? {
            connected = TcpStream::connect_timeout(&address, CONNECT_WAIT);
            if connected.is_ok() {
                break;
            }
        }
        let mut socket = connected?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(CONNECT_WAIT))?;
        socket.set_write_timeout(Some(CONNECT_WAIT))?;
        let mut bytes = Vec::new();
        Ask::Hello { version: VERSION }.encode(&mut bytes);
        socket.write_all(&bytes)?;
        let mut frame = Vec::new();
        read_frame(&mut socket, FRAME_OVERHEAD, &mut frame)?;
        socket.set_nonblocking(true)?;
        {
            let mut state = self.state();
            if state.closed {
                return Ok(());
            }
            self.welcome(&mut state, &frame)?;
            let (data, flags) = (epoll::EventData::new_u64(1), epoll::EventFlags::IN);
            epoll::add(&self.readable, &socket, data, flags)?;
            state.links += 1;
            state.link = Some(Link {
                at: node.to_owned(),
                line: Line::new(socket),
                number: state.links,
                heard_at: Instant::now(),
                stuck_since: None,
            });
        }
        self.news.ring();
        Ok(())
    }

    /// Checks the greeting of a node and accepts the connection.
    fn welcome(&self, state: &mut State, frame: &[u8]) -> io::Result<()> {
        let Some(Answer::Welcome { version, cluster, node, value_bytes_max }) =
            Answer::decode(frame)
        else {
            return Err(nonsense("what answers there is no node that programs attach to"));
        };
        let refused = if version != VERSION {
            Some(format!("the node speaks version {version}, and this library {VERSION}"))
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
        let value_bytes_max = usize::try_from(value_bytes_max).unwrap_or(usize::MAX);
        self.submits.take_values_of(value_bytes_max.min(VALUE_BYTES_MAX));
        state.node = node;
        Ok(())
    }

    /// Waits until the keeper has work, and does it. Returns `false` if there is no connection.
    fn look(&self) -> bool {
        self.work.hush();
        // The order matters: a program that stops reading between the two steps wakes the keeper.
        self.keeper_reads.store(false, Ordering::SeqCst);
        let reads = self.reads.swap(false, Ordering::SeqCst);
        self.keeper_reads.store(!reads, Ordering::SeqCst);
        if self.hear() {
            self.news.ring();
        }
        self.expire();
        let now = Instant::now();
        let mut told = Told::default();
        let waits_for = {
            let mut state = self.state();
            self.check(&mut state, now, &mut told);
            let State { pending, link: Some(link), .. } = &*state else {
                drop(state);
                self.tell(told);
                return false;
            };
            let impatient = pending.impatient(link.number, self.patience());
            let every = if reads { READS_WITHIN } else { LOOK_EVERY };
            let times = [pending.due(now), impatient, Some(now + every)];
            let until = times.into_iter().flatten().min();
            let stuck = link.stuck_since.is_some();
            let socket = link.line.socket().try_clone();
            state.looks_at = until;
            (socket, stuck, until)
        };
        let (Ok(socket), stuck, until) = waits_for else {
            // No descriptor is free, so check again soon.
            thread::sleep(Duration::from_millis(1));
            return true;
        };
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, !reads);
        flags.set(PollFlags::OUT, stuck);
        let work = PollFd::from_borrowed_fd(self.work.descriptor(), PollFlags::IN);
        let socket = PollFd::from_borrowed_fd(socket.as_fd(), flags);
        // The end of the connection is reported even without any flags.
        let mut both = [work, socket];
        let count = if flags.is_empty() { 1 } else { 2 };
        wait_ready(&mut both[..count], until);
        true
    }

    /// Closes the connection if it is silent or stuck, or if answers take too long.
    fn check(&self, state: &mut State, now: Instant, told: &mut Told) {
        let Some(link) = &state.link else { return };
        let silent = now.duration_since(link.heard_at) >= SILENCE_MAX;
        let since = link.stuck_since.map(|since| now.duration_since(since));
        let stuck = since.is_some_and(|since| since >= SILENCE_MAX);
        let impatient = state.pending.impatient(link.number, self.patience());
        let why = if state.closed {
            io::ErrorKind::Interrupted.into()
        } else if silent || stuck {
            io::ErrorKind::TimedOut.into()
        } else if impatient.is_some_and(|at| at <= now) {
            let millis = self.patience().as_millis();
            io::Error::other(format!("no answer within {millis} ms"))
        } else {
            return;
        };
        self.unlink(state, &why, told);
    }
}

/// Reads input from the connection and applies it to the state.
fn receive(state: &mut State, told: &mut Told) -> io::Result<()> {
    let Some(link) = &mut state.link else {
        return Ok(());
    };
    if link.line.receive()? > 0 {
        link.heard_at = Instant::now();
    }
    let input = link.line.take_input();
    let mut rest = input.bytes();
    while let Some((frame, more)) = split_frame(rest, FRAME_BYTES_MAX)? {
        let answer = Answer::decode(frame).ok_or_else(|| nonsense("an answer makes no sense"))?;
        hear(state, &answer, told)?;
        rest = more;
    }
    let used = input.bytes().len() - rest.len();
    if let Some(link) = &mut state.link {
        link.line.put_back(input, used);
    }
    Ok(())
}

/// Applies an answer from the node to the state.
fn hear(state: &mut State, answer: &Answer<'_>, told: &mut Told) -> io::Result<()> {
    if state.closed {
        return Err(io::ErrorKind::Interrupted.into());
    }
    let State { pending, delivery, .. } = state;
    match *answer {
        Answer::Welcome { .. } => return Err(nonsense("a second greeting")),
        Answer::Alive => {}
        Answer::Registered { session, .. } => pending.registered(session),
        // Id 0 belongs to the registration of a session.
        Answer::Done { id: 0, .. } => pending.not_registered(),
        Answer::Done { id, code: NO_SESSION, .. } => told.end(pending.no_session(id)),
        Answer::Done { id, code, slot, text } => {
            let code = Code::of(code.into()).ok_or_else(|| nonsense("an unknown code"))?;
            delivery.at_end(id, code, slot);
            told.end(pending.answered(id, code, slot, text));
            if matches!(code, Code::Unavailable | Code::Stopped) {
                // Another node may be able to serve the request.
                return Err(io::Error::other(text.to_owned()));
            }
        }
        Answer::Appended { id, slot, count, text } => {
            told.end(pending.appended(id, slot, count, text).map_err(nonsense)?)
        }
        Answer::Value { epoch, slot, value } => {
            delivery.receive(epoch, slot, value).map_err(nonsense)?;
            told.news = true;
        }
        Answer::Forgotten { epoch, first } => told.news |= delivery.forget(epoch, first),
    }
    Ok(())
}

fn nonsense(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl Source for Client {
    fn gathered(&self) {
        self.inner.send();
    }

    fn attend(&self) {
        self.inner.reads.store(false, Ordering::SeqCst);
        if !self.inner.keeper_reads.load(Ordering::SeqCst) {
            self.inner.work.ring();
        }
    }

    fn trim(&self, below: u64, done: Done) -> Result<(), Failed> {
        self.push(Wanted::Trim(below), Some(done), self.inner.options.request)
    }

    fn sync(&self, done: Done) -> Result<(), Failed> {
        self.push(Wanted::Sync, Some(done), self.inner.options.request)
    }

    fn seek(&self, cursor: Cursor) -> Result<Cursor, Failed> {
        self.inner.state().delivery.seek(cursor);
        self.inner.send();
        Ok(cursor)
    }

    fn read(&self, cursor: &mut Cursor, to: &mut Values) -> Option<Read> {
        let state = self.inner.state();
        state.delivery.read(*cursor, to);
        if !to.is_empty() {
            return None;
        }
        Some(match (&state.fatal, state.delivery.forgotten) {
            (Some(fatal), _) => Read::Ended(fatal.clone()),
            (None, Some((slot, first))) => Read::Ended(forgotten(slot.unwrap_or(first), first)),
            (None, None) if state.closed => {
                Read::Ended(Failed::new(Code::Stopped, "the handle is closed"))
            }
            (None, None) => Read::Ahead,
        })
    }

    fn peek(&self, _: u64) -> Result<Read, Failed> {
        let detail = "an attached program holds no values";
        Err(Failed::new(Code::Invalid, detail).hint("be delivered it, with quorate_recover"))
    }

    fn taken(&self, slot: u64) {
        if self.inner.state().delivery.take(slot) {
            self.inner.send();
        }
    }

    fn hear(&self) {
        self.inner.reads.store(true, Ordering::Relaxed);
        self.inner.hear();
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.inner.readable.as_fd())
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
                if state.link.is_some() {
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
        self.attend();
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
            let attached = serde_json::json!({ "to": state.node, "connections": state.links });
            view.insert("attached".to_owned(), attached);
        }
        Ok(view.to_string())
    }

    fn close(&self) -> Result<(), Failed> {
        self.inner.state().closed = true;
        self.inner.work.ring();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
        self.inner.news.ring();
        Ok(())
    }
}
