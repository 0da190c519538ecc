//! Generates load over sockets, in one thread with epoll and non-blocking I/O.

use std::{
    io,
    num::NonZeroU64,
    os::fd::OwnedFd,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use quorate_testbed::relay::alarm::EpollTimer;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use crate::{
    connection::{Connection, ReadBuffer},
    door::ClientAddress,
    load::{LoadDriver, LoadPlan},
    protocol::Protocol,
    samples::Samples,
    schedule::{Nanos, SECOND},
};

const EVENTS_MAX: usize = 256;
/// Maximum number of commands sent before the generator checks for replies.
const COMMANDS_PER_TURN_MAX: usize = 4096;

/// A repetition that runs in its own thread and produces its samples.
#[derive(Debug)]
pub struct RunningLoad<T = Samples> {
    shared: Arc<LoadState>,
    thread: JoinHandle<io::Result<T>>,
}

/// State of a running repetition, shared with the thread that controls it.
#[derive(Debug, Default)]
pub(crate) struct LoadState {
    started_at: OnceLock<Instant>,
    completed: AtomicU64,
    stop: AtomicBool,
}

impl LoadState {
    /// Starts the repetition's clock and returns its start time.
    pub(crate) fn begin(&self) -> Instant {
        let started = Instant::now();
        let _ = self.started_at.set(started);
        started
    }

    pub(crate) fn publish_progress(&self, completed: u64) {
        self.completed.store(completed, Ordering::Relaxed);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

impl RunningLoad {
    /// Connects to the doors in turn and starts the load. The clock starts once all connections are
    /// established.
    pub fn start<P: Protocol + Send + 'static>(
        plan: LoadPlan,
        doors: Vec<ClientAddress>,
        protocol: P,
    ) -> io::Result<Self> {
        Self::spawn(move |shared| {
            let generator = LoadGenerator::connect(plan, &doors, protocol)?;
            generator.run(plan, shared)
        })
    }
}

impl<T: Send + 'static> RunningLoad<T> {
    /// Runs a load in a thread of its own.
    pub(crate) fn spawn(
        load: impl FnOnce(&LoadState) -> io::Result<T> + Send + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(LoadState::default());
        let told = Arc::clone(&shared);
        let thread = thread::Builder::new().name("load".to_owned()).spawn(move || {
            // Without this, the kernel delays every wake-up by up to 50 µs.
            let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
            load(&told)
        })?;
        Ok(Self { shared, thread })
    }

    /// Waits until the repetition's clock starts, and returns the start time; `None` if the load
    /// fails first.
    pub fn wait_started(&self) -> Option<Instant> {
        loop {
            if let Some(started) = self.shared.started_at.get() {
                return Some(*started);
            }
            if self.thread.is_finished() {
                return self.shared.started_at.get().copied();
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Returns the current number of successful replies within the measured time.
    pub fn completed(&self) -> u64 {
        self.shared.completed.load(Ordering::Relaxed)
    }

    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Stops the repetition early. Outstanding commands count as lost.
    pub fn stop(&self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }

    /// Waits for the end of the repetition and returns its samples.
    pub fn finish(self) -> io::Result<T> {
        let gone = |_| Err(io::Error::other("the load generator detected an internal error"));
        self.thread.join().unwrap_or_else(gone)
    }
}

struct LoadGenerator<P> {
    epoll: OwnedFd,
    alarm: EpollTimer,
    connections: Vec<Option<Connection>>,
    /// Indices of connections with output to be sent.
    connections_with_output: Vec<usize>,
    scratch: ReadBuffer,
    protocol: P,
}

impl<P: Protocol> LoadGenerator<P> {
    fn connect(plan: LoadPlan, doors: &[ClientAddress], protocol: P) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let mut connections = Vec::new();
        for (index, door) in (0..plan.connections_used()).zip(doors.iter().cycle()) {
            let connection = Connection::connect_to(door).map_err(|error| {
                io::Error::new(error.kind(), format!("connect to {}: {error}", door.address()))
            })?;
            epoll::add(&epoll, &connection, event_token(index), EventFlags::IN)?;
            connections.push(Some(connection));
        }
        Ok(Self {
            alarm: EpollTimer::add_to_epoll(&epoll)?,
            epoll,
            connections,
            connections_with_output: Vec::new(),
            scratch: ReadBuffer::default(),
            protocol,
        })
    }

    fn run(mut self, plan: LoadPlan, shared: &LoadState) -> io::Result<Samples> {
        let started = shared.begin();
        let mut load = LoadDriver::new(plan, 0);
        let mut events = Vec::with_capacity(EVENTS_MAX);
        while !shared.is_stopped() {
            let now = nanos_since(started);
            if load.is_over(now) {
                break;
            }
            let more = self.send_due_commands(&mut load, now);
            let wait = if more { 0 } else { load.next_wakeup().saturating_sub(now) };
            self.wait_events(&mut events, wait)?;
            let now = nanos_since(started);
            for event in &events {
                self.on_event(event, &mut load, now);
            }
            shared.publish_progress(load.completed());
        }
        Ok(load.finish())
    }

    /// Sends the commands that are due. Returns whether more may be due immediately.
    fn send_due_commands(&mut self, load: &mut LoadDriver, now: Nanos) -> bool {
        let mut issued = 0;
        while issued < COMMANDS_PER_TURN_MAX && self.all_have_space() {
            let Some(issue) = load.take_due_command(now) else { break };
            if let Some(connection) = &mut self.connections[issue.connection] {
                let output = connection.output();
                if output.is_empty() {
                    self.connections_with_output.push(issue.connection);
                }
                self.protocol.encode_request(issue.number, output);
                issued += 1;
            }
        }
        for index in std::mem::take(&mut self.connections_with_output) {
            self.send_to_connection(index, load);
        }
        issued == COMMANDS_PER_TURN_MAX
    }

    /// Returns whether every output buffer has space. An open loop does not prefer fast
    /// connections, so one full buffer delays all commands.
    fn all_have_space(&self) -> bool {
        let mut blocked = self.connections.iter().flatten();
        blocked.all(|connection| !connection.is_blocked() || connection.has_output_space())
    }

    fn send_to_connection(&mut self, index: usize, load: &mut LoadDriver) {
        let Some(connection) = &mut self.connections[index] else {
            return;
        };
        let was_blocked = connection.is_blocked();
        let sent = connection.send().and_then(|()| {
            if connection.is_blocked() == was_blocked {
                return Ok(());
            }
            let mut flags = EventFlags::IN;
            flags.set(EventFlags::OUT, connection.is_blocked());
            Ok(epoll::modify(&self.epoll, &*connection, event_token(index), flags)?)
        });
        if let Err(error) = sent {
            self.close_connection(index, &error.to_string(), load);
        }
    }

    fn on_event(&mut self, event: &epoll::Event, load: &mut LoadDriver, now: Nanos) {
        let index = usize::try_from(event.data.u64()).expect("tokens are indices");
        let flags = event.flags;
        if flags.contains(EventFlags::OUT) {
            self.send_to_connection(index, load);
        }
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR)
            && let Err(why) = self.receive_replies(index, load, now)
        {
            self.close_connection(index, &why, load);
        }
    }

    fn receive_replies(
        &mut self,
        index: usize,
        load: &mut LoadDriver,
        now: Nanos,
    ) -> Result<(), String> {
        let Some(connection) = &mut self.connections[index] else {
            return Ok(());
        };
        let received = connection.receive(&mut self.scratch);
        received.map_err(|error| error.to_string())?;
        let mut used = 0;
        let input = connection.unread_input();
        let parsed = loop {
            match self.protocol.decode_reply(&input[used..]) {
                Ok(Some((bytes, answer))) => {
                    used += bytes;
                    load.handle_reply(now, index, answer);
                }
                Ok(None) => break Ok(()),
                Err(malformed) => break Err(malformed.to_string()),
            }
        };
        connection.consume(used);
        parsed
    }

    fn close_connection(&mut self, index: usize, why: &str, load: &mut LoadDriver) {
        self.connections[index] = None;
        load.handle_connection_loss(index, why);
    }

    fn wait_events(&self, events: &mut Vec<epoll::Event>, nanos: Nanos) -> io::Result<()> {
        // Wakes at least ten times a second to check for a stop.
        self.alarm.wait(&self.epoll, events, nanos.min(SECOND / 10))
    }
}

fn event_token(index: usize) -> EventData {
    EventData::new_u64(index as u64)
}

pub(crate) fn nanos_since(started: Instant) -> Nanos {
    u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
