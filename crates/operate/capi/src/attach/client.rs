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
        Answer, FRAME_OVERHEAD, NO_SESSION, Request, TEXT_BYTES_MAX, VERSION, read_frame,
        split_frame,
    },
    line::{BufferedSocket, SendProgress},
    pending::{PendingRequests, RequestEnd, RequestKind},
};
use crate::{
    bell::{Bell, wait_ready},
    border::block_signals,
    error::{Code, Failed},
    options::{Options, VALUE_BYTES_MAX},
    source::{Cursor, DoneCallback, ReadResult, Source, Values, trimmed_error},
    submits::SubmitQueue,
};

/// Time limit for connecting, and separately for receiving the node's greeting.
const CONNECT_WAIT: Duration = Duration::from_secs(2);
/// Time without input or output progress after which the client gives up on a node. A live node
/// sends at least once a second.
const SILENCE_MAX: Duration = Duration::from_secs(4);
/// Delay between two attempts to connect.
const BACK_OFF: Duration = Duration::from_millis(50);
/// Time after handling events for which the program still counts as reading.
const PROGRAM_READS_WITHIN: Duration = Duration::from_millis(100);
/// Interval at which an idle keeper checks the connection.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Approximate maximum number of bytes to send at a time.
const BATCH_BYTES_TARGET: usize = 256 << 10;
/// Maximum size in bytes of a frame from a node.
const FRAME_BYTES_MAX: usize = {
    let value = VALUE_BYTES_MAX;
    let largest = if value > TEXT_BYTES_MAX { value } else { TEXT_BYTES_MAX };
    largest + FRAME_OVERHEAD
};

/// A connection of a program to remote nodes, shared with the keeper.
pub struct Client {
    inner: Arc<Inner>,
    keeper_thread: Mutex<Option<JoinHandle<()>>>,
}

struct Inner {
    options: Options,
    state: Mutex<State>,
    submits: Arc<SubmitQueue>,
    /// Set if the program has handled events recently and is reading from the connection.
    program_reads: AtomicBool,
    /// Set while the keeper waits for input because the program is not reading.
    keeper_reads: AtomicBool,
    /// Bell that wakes the keeper.
    keeper_bell: Bell,
    /// Bell that wakes the program.
    program_bell: Arc<Bell>,
    /// Descriptor for the caller to poll. Readable when `program_bell` has rung or the connection
    /// is readable.
    poll_descriptor: OwnedFd,
}

#[derive(Default)]
struct State {
    pending: PendingRequests,
    delivery: Delivery,
    link: Option<Link>,
    /// Number of connections made.
    link_count: u64,
    /// Id of the cluster, from the first node that sent a greeting.
    cluster_id: Option<u128>,
    node_id: u32,
    /// Reason for the failure or end of the last connection.
    last_failure: String,
    /// Permanent failure; the client has given up.
    fatal_error: Option<Failed>,
    is_closed: bool,
    /// Earliest time at which the keeper's next check is due.
    next_check_at: Option<Instant>,
}

/// A connection on which a node has sent its greeting.
struct Link {
    address: String,
    line: BufferedSocket,
    link_number: u64,
    last_input_at: Instant,
    /// Time since when the connection has accepted no output, or `None` while it accepts output.
    stuck_since: Option<Instant>,
}

/// Notifications to send once the state has been unlocked.
#[derive(Default)]
struct Notifications {
    request_ends: Vec<RequestEnd>,
    wakes_program: bool,
}

impl Notifications {
    fn add_end(&mut self, end: Option<RequestEnd>) {
        self.request_ends.extend(end);
    }
}

impl Client {
    /// Starts attaching to one of the nodes in `options`. Sends the values gathered in `submits`,
    /// and rings `news` for readers of values.
    pub fn start(
        options: Options,
        news: &Arc<Bell>,
        submits: &Arc<SubmitQueue>,
    ) -> Result<Self, Failed> {
        if options.attach_addresses.is_empty() {
            return Err(Failed::new(Code::Invalid, "no node is named")
                .with_hint("set the option attach to the listen addresses of nodes"));
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
            program_reads: AtomicBool::new(false),
            keeper_reads: AtomicBool::new(false),
            keeper_bell: Bell::new().map_err(refused)?,
            program_bell: Arc::clone(news),
            poll_descriptor: readable,
        });
        let own = Arc::clone(&inner);
        let thread = thread::Builder::new().name("quorate-client".to_owned());
        let thread = thread.spawn(move || own.run_keeper()).map_err(refused)?;
        Ok(Self { inner, keeper_thread: Mutex::new(Some(thread)) })
    }

    fn push(
        &self,
        wanted: RequestKind,
        done: Option<DoneCallback>,
        within: Duration,
    ) -> Result<(), Failed> {
        {
            let mut state = self.inner.state();
            if let Some(fatal) = &state.fatal_error {
                return Err(fatal.clone());
            }
            if state.is_closed {
                return Err(Failed::new(Code::Stopped, "the handle is closed"));
            }
            let now = Instant::now();
            state.pending.push(wanted, done, now, now + within);
        }
        self.inner.send_pending();
        Ok(())
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends as much pending output as the connection accepts.
    fn send_pending(&self) {
        let mut told = Notifications::default();
        self.write_output(&mut self.state(), &mut told);
        if self.notify(told) {
            self.program_bell.ring();
        }
    }

    /// Reads pending input and sends pending output. Returns whether there are events for the
    /// program.
    fn receive_and_send(&self) -> bool {
        let mut told = Notifications::default();
        {
            let mut state = self.state();
            self.read_input(&mut state, &mut told);
            self.write_output(&mut state, &mut told);
        }
        self.notify(told)
    }

    fn notify(&self, told: Notifications) -> bool {
        let tell = |anything, end: RequestEnd| end.report(&self.submits) || anything;
        told.request_ends.into_iter().fold(told.wakes_program, tell)
    }

    /// Writes pending output to the connection, if there is one.
    fn write_output(&self, state: &mut State, told: &mut Notifications) {
        let State { pending, delivery, link: Some(link), next_check_at: looks_at, .. } = state
        else {
            return;
        };
        let now = Instant::now();
        loop {
            // While enough bundles are in flight, newly gathered values wait, so that the next
            // bundle is larger.
            while pending.has_bundle_room()
                && let Some((bundle, _)) = self.submits.take_bundle()
            {
                let until = bundle.first_added_at + self.options.request_timeout;
                // The keeper's next check must be earlier than planned.
                let patience = until.min(now + self.answer_timeout());
                if looks_at.is_some_and(|at| patience < at) {
                    *looks_at = Some(patience);
                    self.keeper_bell.ring();
                }
                pending.push(RequestKind::Append(bundle), None, now, until);
            }
            let output = link.line.output();
            if output.is_empty() {
                // Values appended after a request for the end of the log must not get a slot before
                // the end is known.
                if !delivery.awaits_end {
                    pending.add_frames(link.link_number, now, BATCH_BYTES_TARGET, output);
                }
                delivery.add_frames(link.link_number, output);
            }
            if output.is_empty() {
                return;
            }
            match link.line.send() {
                Ok(SendProgress::All) => link.stuck_since = None,
                Ok(SendProgress::Partly) => {
                    if link.stuck_since.is_none() {
                        link.stuck_since = Some(now);
                        // The keeper waits until the connection accepts output again.
                        self.keeper_bell.ring();
                    }
                    return;
                }
                Err(error) => return self.close_link(state, &error, told),
            }
        }
    }

    /// Reads pending input from the connection, if there is one.
    fn read_input(&self, state: &mut State, told: &mut Notifications) {
        if let Err(error) = receive_input(state, told) {
            self.close_link(state, &error, told);
        }
    }

    /// Closes the connection because of `error`.
    fn close_link(&self, state: &mut State, error: &io::Error, told: &mut Notifications) {
        let Some(link) = state.link.take() else {
            return;
        };
        let _ = epoll::delete(&self.poll_descriptor, link.line.socket());
        link.line.shut_down();
        if !state.is_closed {
            state.last_failure = format!("{}: {error}", link.address);
            state.pending.on_link_lost(&state.last_failure);
        }
        // The program must learn of the failure even if it is not waiting for values.
        told.wakes_program |= state.fatal_error.is_some();
        self.keeper_bell.ring();
    }

    /// Returns how long to wait for an answer before trying another node.
    fn answer_timeout(&self) -> Duration {
        self.options.request_timeout / 3
    }

    /// Main loop of the keeper.
    fn run_keeper(&self) {
        block_signals();
        for node in self.options.attach_addresses.iter().cycle() {
            if let Err(error) = self.connect(node) {
                let mut state = self.state();
                state.last_failure = format!("{node}: {error}");
                let why = state.last_failure.clone();
                state.pending.on_link_lost(&why);
            }
            while self.wait_and_work() {}
            let (seen, over) = {
                let mut state = self.state();
                // Gathered values also time out while there is no connection.
                while let Some((bundle, _)) = self.submits.take_bundle() {
                    let until = bundle.first_added_at + self.options.request_timeout;
                    let now = bundle.first_added_at;
                    state.pending.push(RequestKind::Append(bundle), None, now, until);
                }
                (self.keeper_bell.ring_count(), state.is_closed || state.fatal_error.is_some())
            };
            if over {
                break;
            }
            self.expire_requests();
            self.keeper_bell.wait_for_ring(seen, Some(Instant::now() + BACK_OFF));
        }
        let why = self.state().fatal_error.clone();
        let why = why.unwrap_or_else(|| Failed::new(Code::Stopped, "the handle is closed"));
        self.submits.close(&why);
        let ends = self.state().pending.abandon_all();
        self.notify(Notifications { request_ends: ends, wakes_program: true });
        self.program_bell.ring();
    }

    /// Fails the requests that have timed out.
    fn expire_requests(&self) {
        let ends = self.state().pending.expire_requests(Instant::now());
        if self.notify(Notifications { request_ends: ends, wakes_program: false }) {
            self.program_bell.ring();
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
        Request::Hello { version: VERSION }.encode(&mut bytes);
        socket.write_all(&bytes)?;
        let mut frame = Vec::new();
        read_frame(&mut socket, FRAME_OVERHEAD, &mut frame)?;
        socket.set_nonblocking(true)?;
        {
            let mut state = self.state();
            if state.is_closed {
                return Ok(());
            }
            self.accept_greeting(&mut state, &frame)?;
            let (data, flags) = (epoll::EventData::new_u64(1), epoll::EventFlags::IN);
            epoll::add(&self.poll_descriptor, &socket, data, flags)?;
            state.link_count += 1;
            state.link = Some(Link {
                address: node.to_owned(),
                line: BufferedSocket::new(socket),
                link_number: state.link_count,
                last_input_at: Instant::now(),
                stuck_since: None,
            });
        }
        self.program_bell.ring();
        Ok(())
    }

    /// Checks the greeting of a node and accepts the connection.
    fn accept_greeting(&self, state: &mut State, frame: &[u8]) -> io::Result<()> {
        let Some(Answer::Welcome { version, cluster_id: cluster, node_id: node, value_bytes_max }) =
            Answer::decode(frame)
        else {
            return Err(protocol_error("what answers there is no node that programs attach to"));
        };
        let refused = if version != VERSION {
            Some(format!("the node speaks version {version}, and this library {VERSION}"))
        } else if state.cluster_id.is_some_and(|known| known != cluster) {
            Some("the node belongs to another cluster than before".to_owned())
        } else {
            None
        };
        if let Some(what) = refused {
            let hint = "attach to nodes of one cluster, of this version";
            state.fatal_error = Some(Failed::new(Code::Refused, what.clone()).with_hint(hint));
            return Err(protocol_error(&what));
        }
        state.cluster_id = Some(cluster);
        let value_bytes_max = usize::try_from(value_bytes_max).unwrap_or(usize::MAX);
        self.submits.set_value_bytes_max(value_bytes_max.min(VALUE_BYTES_MAX));
        state.node_id = node;
        Ok(())
    }

    /// Waits until the keeper has work, and does it. Returns `false` if there is no connection.
    fn wait_and_work(&self) -> bool {
        self.keeper_bell.clear_readable();
        // The order matters: a program that stops reading between the two steps wakes the keeper.
        self.keeper_reads.store(false, Ordering::SeqCst);
        let reads = self.program_reads.swap(false, Ordering::SeqCst);
        self.keeper_reads.store(!reads, Ordering::SeqCst);
        if self.receive_and_send() {
            self.program_bell.ring();
        }
        self.expire_requests();
        let now = Instant::now();
        let mut told = Notifications::default();
        let waits_for = {
            let mut state = self.state();
            self.check_link(&mut state, now, &mut told);
            let State { pending, link: Some(link), .. } = &*state else {
                drop(state);
                self.notify(told);
                return false;
            };
            let impatient = pending.switch_node_at(link.link_number, self.answer_timeout());
            let every = if reads { PROGRAM_READS_WITHIN } else { IDLE_CHECK_INTERVAL };
            let times = [pending.next_due_at(now), impatient, Some(now + every)];
            let until = times.into_iter().flatten().min();
            let stuck = link.stuck_since.is_some();
            let socket = link.line.socket().try_clone();
            state.next_check_at = until;
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
        let work = PollFd::from_borrowed_fd(self.keeper_bell.descriptor(), PollFlags::IN);
        let socket = PollFd::from_borrowed_fd(socket.as_fd(), flags);
        // The end of the connection is reported even without any flags.
        let mut both = [work, socket];
        let count = if flags.is_empty() { 1 } else { 2 };
        wait_ready(&mut both[..count], until);
        true
    }

    /// Closes the connection if it is silent or stuck, or if answers take too long.
    fn check_link(&self, state: &mut State, now: Instant, told: &mut Notifications) {
        let Some(link) = &state.link else { return };
        let silent = now.duration_since(link.last_input_at) >= SILENCE_MAX;
        let since = link.stuck_since.map(|since| now.duration_since(since));
        let stuck = since.is_some_and(|since| since >= SILENCE_MAX);
        let impatient = state.pending.switch_node_at(link.link_number, self.answer_timeout());
        let why = if state.is_closed {
            io::ErrorKind::Interrupted.into()
        } else if silent || stuck {
            io::ErrorKind::TimedOut.into()
        } else if impatient.is_some_and(|at| at <= now) {
            let millis = self.answer_timeout().as_millis();
            io::Error::other(format!("no answer within {millis} ms"))
        } else {
            return;
        };
        self.close_link(state, &why, told);
    }
}

/// Reads input from the connection and applies it to the state.
fn receive_input(state: &mut State, told: &mut Notifications) -> io::Result<()> {
    let Some(link) = &mut state.link else {
        return Ok(());
    };
    if link.line.receive()? > 0 {
        link.last_input_at = Instant::now();
    }
    let input = link.line.take_input();
    let mut rest = input.bytes();
    while let Some((frame, more)) = split_frame(rest, FRAME_BYTES_MAX)? {
        let answer =
            Answer::decode(frame).ok_or_else(|| protocol_error("an answer makes no sense"))?;
        apply_answer(state, &answer, told)?;
        rest = more;
    }
    let used = input.bytes().len() - rest.len();
    if let Some(link) = &mut state.link {
        link.line.put_back(input, used);
    }
    Ok(())
}

/// Applies an answer from the node to the state.
fn apply_answer(
    state: &mut State,
    answer: &Answer<'_>,
    told: &mut Notifications,
) -> io::Result<()> {
    if state.is_closed {
        return Err(io::ErrorKind::Interrupted.into());
    }
    let State { pending, delivery, .. } = state;
    match *answer {
        Answer::Welcome { .. } => return Err(protocol_error("a second greeting")),
        Answer::Alive => {}
        Answer::Registered { session, .. } => pending.on_registered(session),
        // Id 0 belongs to the registration of a session.
        Answer::Done { id: 0, .. } => pending.on_registration_failed(),
        Answer::Done { id, code: NO_SESSION, .. } => told.add_end(pending.on_no_session(id)),
        Answer::Done { id, code, slot, text } => {
            let code =
                Code::from_number(code.into()).ok_or_else(|| protocol_error("an unknown code"))?;
            delivery.on_end_reply(id, code, slot);
            told.add_end(pending.on_answer(id, code, slot, text));
            if matches!(code, Code::Unavailable | Code::Stopped) {
                // Another node may be able to serve the request.
                return Err(io::Error::other(text.to_owned()));
            }
        }
        Answer::Appended { id, slot, count, text } => {
            told.add_end(pending.on_appended(id, slot, count, text).map_err(protocol_error)?)
        }
        Answer::Value { delivery_epoch: epoch, slot, value } => {
            delivery.receive_value(epoch, slot, value).map_err(protocol_error)?;
            told.wakes_program = true;
        }
        Answer::Forgotten { delivery_epoch: epoch, first_retained: first } => {
            told.wakes_program |= delivery.record_trimmed(epoch, first)
        }
    }
    Ok(())
}

fn protocol_error(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl Source for Client {
    fn on_values_gathered(&self) {
        self.inner.send_pending();
    }

    fn announce_waiter(&self) {
        self.inner.program_reads.store(false, Ordering::SeqCst);
        if !self.inner.keeper_reads.load(Ordering::SeqCst) {
            self.inner.keeper_bell.ring();
        }
    }

    fn trim(&self, below: u64, done: DoneCallback) -> Result<(), Failed> {
        self.push(RequestKind::Trim(below), Some(done), self.inner.options.request_timeout)
    }

    fn sync(&self, done: DoneCallback) -> Result<(), Failed> {
        self.push(RequestKind::Sync, Some(done), self.inner.options.request_timeout)
    }

    fn set_cursor(&self, cursor: Cursor) -> Result<Cursor, Failed> {
        self.inner.state().delivery.seek_to(cursor);
        self.inner.send_pending();
        Ok(cursor)
    }

    fn read_values(&self, cursor: &mut Cursor, to: &mut Values) -> Option<ReadResult> {
        let state = self.inner.state();
        state.delivery.read_values(*cursor, to);
        if !to.is_empty() {
            return None;
        }
        Some(match (&state.fatal_error, state.delivery.trimmed_at) {
            (Some(fatal), _) => ReadResult::SourceEnded(fatal.clone()),
            (None, Some((slot, first))) => {
                ReadResult::SourceEnded(trimmed_error(slot.unwrap_or(first), first))
            }
            (None, None) if state.is_closed => {
                ReadResult::SourceEnded(Failed::new(Code::Stopped, "the handle is closed"))
            }
            (None, None) => ReadResult::NotYetWritten,
        })
    }

    fn read_slot(&self, _: u64) -> Result<ReadResult, Failed> {
        let detail = "an attached program holds no values";
        Err(Failed::new(Code::Invalid, detail).with_hint("be delivered it, with quorate_recover"))
    }

    fn mark_taken(&self, slot: u64) {
        if self.inner.state().delivery.record_taken(slot) {
            self.inner.send_pending();
        }
    }

    fn process_input(&self) {
        self.inner.program_reads.store(true, Ordering::Relaxed);
        self.inner.receive_and_send();
    }

    fn input_descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.inner.poll_descriptor.as_fd())
    }

    fn wait_until_ready(&self, wait: Duration) -> Result<(), Failed> {
        let until = Instant::now() + wait;
        loop {
            let seen = self.inner.program_bell.ring_count();
            {
                let state = self.inner.state();
                if let Some(fatal) = &state.fatal_error {
                    return Err(fatal.clone());
                }
                if state.link.is_some() {
                    return Ok(());
                }
            }
            if !self.inner.program_bell.wait_for_ring(seen, Some(until)) {
                let obstacle = self.inner.state().last_failure.clone();
                let detail = format!("no node was reached; last: {obstacle}");
                return Err(Failed::new(Code::Timeout, detail).with_hint(
                    "check that nodes run with the option listen, at the addresses of attach",
                ));
            }
        }
    }

    fn status(&self, wait: Duration) -> Result<String, Failed> {
        let (tell, told) = sync_channel(1);
        self.push(RequestKind::Status(tell), None, wait)?;
        self.announce_waiter();
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
            let attached =
                serde_json::json!({ "to": state.node_id, "connections": state.link_count });
            view.insert("attached".to_owned(), attached);
        }
        Ok(view.to_string())
    }

    fn close(&self) -> Result<(), Failed> {
        self.inner.state().is_closed = true;
        self.inner.keeper_bell.ring();
        let thread = self.keeper_thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
        self.inner.program_bell.ring();
        Ok(())
    }
}
