//! Generates byte-stream writes over sockets, in one thread with epoll. Each write, or each group
//! of writes that are due together, takes one system call.

use std::{
    io::{self, ErrorKind, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use quorate_client::stream::{Keep, Options, Streams};
use quorate_testbed::relay::alarm::Alarm;
use rustix::{
    event::epoll::{self, CreateFlags, EventData, EventFlags},
    thread::{CpuSet, sched_setaffinity},
};

use super::{Acknowledged, Written, progress::Progress, speech::Speech};
use crate::{
    generator::{RunningLoad, Shared, since},
    load::{Answer, Load, Plan},
    schedule::{Nanos, SECOND},
};

/// Timeout for connecting and for opening and closing a stream.
const WAIT: Duration = Duration::from_secs(10);
const EVENTS_MAX: usize = 256;
/// Maximum number of writes between two reads of acknowledgements, unless writes are gathered.
const TURN_WRITES: usize = 64;
const TURN_BYTES: usize = 256 << 10;
/// Maximum number of gathered writes between two reads, so that there is roughly one system call
/// per acknowledgement.
const GATHERED_WRITES: usize = 4096;
/// Maximum number of bytes that gathered writes put into one system call. A single write may be
/// larger.
const GATHERED_BYTES: usize = 64 << 10;
/// Number of bytes waiting for one full socket at which all other writers wait too.
const WAITING_BYTES_MAX: usize = 1 << 20;
const READ_BYTES: usize = 64 << 10;

/// Settings for the writers, and the node that they write to.
#[derive(Clone, Debug)]
pub struct Writers {
    pub speech: Speech,
    /// Address to which each stream connects.
    pub address: SocketAddr,
    pub write_bytes: usize,
    /// Set if writes that are due at the same time share a system call.
    pub gather: bool,
    /// CPUs on which the writers run; `None` for those of the caller.
    pub cpus: Option<CpuSet>,
    /// Prefix of the stream names. At the raw port, nodes choose the names instead.
    pub prefix: String,
    /// Settings that limit retention and by which the streams are removed at the end; `None` for a
    /// bare program, which retains no bytes.
    pub keeper: Option<Keeper>,
}

/// Settings that limit the disk space of the streams.
#[derive(Clone, Debug)]
pub struct Keeper {
    /// Address at which a node supports the framed protocol.
    pub address: String,
    /// Minimum number of bytes retained in each stream.
    pub bytes: u64,
}

impl Writers {
    /// Opens a stream for each connection of the plan and starts to write.
    pub fn start(self, plan: Plan) -> io::Result<RunningLoad<Written>> {
        RunningLoad::spawn(move |shared| {
            if let Some(cpus) = &self.cpus {
                sched_setaffinity(None, cpus)?;
            }
            let mut generator = Generator::open(&self, plan)?;
            self.keep()?;
            let written = generator.run(plan, shared)?;
            if written.samples.lost == 0 {
                generator.close()?;
                self.remove()?;
            }
            Ok(written)
        })
    }

    /// Returns a stream client, the names of the streams, and the number of bytes to retain in
    /// each; `None` without a keeper.
    fn kept(&self) -> io::Result<Option<(Streams, Vec<String>, u64)>> {
        let Some(keeper) = &self.keeper else {
            return Ok(None);
        };
        let mut streams = Streams::new(&[keeper.address.as_str()], Options::default());
        let prefix = match self.speech {
            Speech::Framed => &self.prefix,
            Speech::Raw => "raw-",
        };
        let all = streams.list().map_err(io::Error::other)?;
        let names = all.into_iter().map(|stream| stream.name);
        let names = names.filter(|name| name.starts_with(prefix)).collect();
        Ok(Some((streams, names, keeper.bytes)))
    }

    fn keep(&self) -> io::Result<()> {
        if let Some((mut streams, names, bytes)) = self.kept()? {
            let keep = Keep { bytes: Some(bytes), age_ms: None };
            for name in names {
                streams.retain(&name, keep).map_err(io::Error::other)?;
            }
        }
        Ok(())
    }

    fn remove(&self) -> io::Result<()> {
        if let Some((mut streams, names, _)) = self.kept()? {
            for name in names {
                streams.remove(&name).map_err(io::Error::other)?;
            }
        }
        Ok(())
    }
}

struct Generator {
    speech: Speech,
    calls: Calls,
    /// Indices of the writers with due writes that may still be gathered.
    dirty: Vec<usize>,
    epoll: OwnedFd,
    alarm: Alarm,
    writers: Vec<Option<Writer>>,
    /// Index of the writer whose full socket makes all others wait.
    full: Option<usize>,
    acknowledged: Acknowledged,
    scratch: Vec<u8>,
}

/// Buffer for system calls. All writes have the same content.
struct Calls {
    /// Encoded writes, as many as may share a system call.
    bytes: Vec<u8>,
    /// Length of an encoded write, in bytes.
    write: usize,
}

/// A system call of which the socket accepted only a part.
#[derive(Clone, Copy)]
struct Call {
    taken: usize,
    bytes: usize,
}

struct Writer {
    socket: TcpStream,
    progress: Progress,
    /// Number of due writes that no system call includes yet.
    waiting: usize,
    /// System call of which the socket accepted only a part.
    call: Option<Call>,
    /// Received bytes of an incomplete message.
    input: Vec<u8>,
}

impl Generator {
    fn open(wanted: &Writers, plan: Plan) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let mut writers = Vec::new();
        for index in 0..plan.connections_used() {
            let writer = Writer::open(wanted, index)?;
            epoll::add(&epoll, &writer.socket, token(index), EventFlags::IN)?;
            writers.push(Some(writer));
        }
        let write = wanted.speech.write(wanted.write_bytes);
        let together = if wanted.gather { (GATHERED_BYTES / write.len().max(1)).max(1) } else { 1 };
        Ok(Self {
            speech: wanted.speech,
            calls: Calls { write: write.len(), bytes: write.repeat(together) },
            dirty: Vec::new(),
            alarm: Alarm::join(&epoll)?,
            epoll,
            writers,
            full: None,
            acknowledged: Acknowledged::default(),
            scratch: vec![0; READ_BYTES],
        })
    }

    fn run(&mut self, plan: Plan, shared: &Shared) -> io::Result<Written> {
        let started = shared.begin();
        let mut load = Load::new(plan, 0);
        let mut events = Vec::with_capacity(EVENTS_MAX);
        while !shared.is_stopped() {
            let now = since(started);
            if now >= plan.sending() {
                load.stop();
            }
            if load.is_over(now) {
                break;
            }
            let more = self.issue(&mut load, started);
            // This thread wakes when the full socket becomes writable again.
            let due = if self.full.is_some() {
                plan.sending().max(now + SECOND / 10)
            } else {
                load.next_wakeup()
            };
            let wait = if more { 0 } else { due.saturating_sub(now) };
            // Wakes at least ten times a second to check for a stop.
            let wait = wait.min(SECOND / 10);
            self.alarm.wait(&self.epoll, &mut events, wait)?;
            for event in &events {
                self.on_event(event, &mut load, started);
            }
            shared.publish_progress(load.completed());
        }
        Ok(Written { samples: load.finish(), acknowledged: std::mem::take(&mut self.acknowledged) })
    }

    /// Queues the writes that are due. Returns whether more may be due immediately.
    fn issue(&mut self, load: &mut Load, started: Instant) -> bool {
        let write = self.calls.write;
        let gathers = self.calls.bytes.len() > write;
        let writes = if gathers { GATHERED_WRITES } else { TURN_WRITES };
        let writes = writes.min((TURN_BYTES / write.max(1)).max(1));
        let mut issued = 0;
        while issued < writes && self.full.is_none() {
            let Some(issue) = load.take_due_command(since(started)) else {
                break;
            };
            issued += 1;
            let index = issue.connection;
            let Some(writer) = &mut self.writers[index] else {
                continue;
            };
            writer.waiting += 1;
            if writer.is_full(write) {
                self.full = Some(index);
            }
            if writer.call.is_some() {
                continue;
            }
            if !gathers {
                self.send(index, load, started);
            } else if writer.waiting == 1 {
                self.dirty.push(index);
            }
        }
        for index in std::mem::take(&mut self.dirty) {
            self.send(index, load, started);
        }
        issued == writes
    }

    fn send(&mut self, index: usize, load: &mut Load, started: Instant) {
        let Some(writer) = &mut self.writers[index] else {
            return;
        };
        let was_blocked = writer.call.is_some();
        let sent = writer.send(&self.calls, started).and_then(|()| {
            if self.full == Some(index) && !writer.is_full(self.calls.write) {
                self.full = None;
            }
            let is_blocked = writer.call.is_some();
            if is_blocked == was_blocked {
                return Ok(());
            }
            let mut flags = EventFlags::IN;
            flags.set(EventFlags::OUT, is_blocked);
            let modified = epoll::modify(&self.epoll, &writer.socket, token(index), flags);
            modified.map_err(io::Error::from)
        });
        if let Err(error) = sent {
            self.lose(index, &error.to_string(), load);
        }
    }

    fn on_event(&mut self, event: &epoll::Event, load: &mut Load, started: Instant) {
        let index = usize::try_from(event.data.u64()).expect("tokens are indices");
        let flags = event.flags;
        if flags.contains(EventFlags::OUT) {
            self.send(index, load, started);
        }
        let news = EventFlags::IN | EventFlags::HUP | EventFlags::ERR;
        if flags.intersects(news)
            && let Err(why) = self.receive(index, load, started)
        {
            self.lose(index, &why, load);
        }
    }

    fn receive(&mut self, index: usize, load: &mut Load, started: Instant) -> Result<(), String> {
        let Some(writer) = &mut self.writers[index] else {
            return Ok(());
        };
        let received = writer.receive(&mut self.scratch);
        received.map_err(|error| error.to_string())?;
        let now = since(started);
        while let Some(position) = writer.hear(self.speech)? {
            let news = writer.progress.acknowledge(position);
            let news = news.map_err(|malformed| malformed.to_string())?;
            if load.is_measured(now) && news.bytes > 0 {
                self.acknowledged.count += 1;
                self.acknowledged.bytes += news.bytes;
            }
            for call in news.calls {
                load.replied(now, index, Answer::Done);
                if load.is_measured(call) {
                    let latency = now.saturating_sub(call);
                    self.acknowledged.from_call.record(latency);
                }
            }
        }
        Ok(())
    }

    fn lose(&mut self, index: usize, why: &str, load: &mut Load) {
        self.writers[index] = None;
        if self.full == Some(index) {
            self.full = None;
        }
        load.lost(index, why);
    }

    /// Closes all streams permanently. By then, all writes are durable.
    fn close(&mut self) -> io::Result<()> {
        let mut writers: Vec<Writer> = self.writers.drain(..).flatten().collect();
        for writer in &mut writers {
            writer.socket.set_nonblocking(false)?;
            self.speech.close(&mut writer.socket)?;
        }
        writers
            .into_iter()
            .try_for_each(|mut writer| writer.wait_closed(self.speech, &mut self.scratch))
    }
}

impl Writer {
    fn open(wanted: &Writers, index: usize) -> io::Result<Self> {
        let named = |error: io::Error| {
            let what = format!("a stream at {}: {error}", wanted.address);
            io::Error::new(error.kind(), what)
        };
        let open = || {
            let mut socket = TcpStream::connect_timeout(&wanted.address, WAIT)?;
            socket.set_nodelay(true)?;
            socket.set_read_timeout(Some(WAIT))?;
            socket.set_write_timeout(Some(WAIT))?;
            // The id only needs to be unique among the writers of this cluster, all of which belong
            // to this process.
            let writer = u128::from(std::process::id()) << 64 | index as u128;
            let name = format!("{}{index}", wanted.prefix);
            wanted.speech.open(&mut socket, &name, writer)?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        Ok(Self {
            socket: open().map_err(named)?,
            progress: Progress::new(wanted.write_bytes),
            waiting: 0,
            call: None,
            input: Vec::new(),
        })
    }

    fn is_full(&self, write: usize) -> bool {
        self.waiting > 1 && self.waiting.saturating_mul(write) >= WAITING_BYTES_MAX
    }

    /// Sends queued writes until the socket is full.
    fn send(&mut self, calls: &Calls, started: Instant) -> io::Result<()> {
        loop {
            let call = match self.call {
                Some(call) => call,
                None if self.waiting == 0 => return Ok(()),
                None => self.begin(calls, since(started)),
            };
            self.call = Some(call);
            match self.socket.write(&calls.bytes[call.taken..call.bytes]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => {
                    let taken = call.taken + count;
                    self.call = (taken < call.bytes).then_some(Call { taken, ..call });
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Starts the next system call, which includes as many queued writes as possible.
    fn begin(&mut self, calls: &Calls, now: Nanos) -> Call {
        let writes = self.waiting.min(calls.bytes.len() / calls.write);
        self.waiting -= writes;
        (0..writes).for_each(|_| self.progress.begin(now));
        Call { taken: 0, bytes: writes * calls.write }
    }

    /// Reads from the socket once.
    fn receive(&mut self, scratch: &mut [u8]) -> io::Result<()> {
        match self.socket.read(scratch) {
            Ok(0) => {
                Err(io::Error::new(ErrorKind::UnexpectedEof, "the system closed the connection"))
            }
            Ok(count) => {
                self.input.extend_from_slice(&scratch[..count]);
                Ok(())
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the durable position in the next message; `None` if no message is complete.
    fn hear(&mut self, speech: Speech) -> Result<Option<u64>, String> {
        let heard = speech.hear(&self.input, self.progress.durable())?;
        let Some(heard) = heard else {
            return Ok(None);
        };
        if heard.closed {
            return Err("the stream was closed".to_owned());
        }
        self.input.drain(..heard.used);
        Ok(Some(heard.position))
    }

    /// Waits until the node has closed the stream. Ignores acknowledgements, because all writes are
    /// already durable.
    fn wait_closed(&mut self, speech: Speech, scratch: &mut [u8]) -> io::Result<()> {
        let until = Instant::now() + WAIT;
        while Instant::now() < until {
            let durable = self.progress.durable();
            let heard = speech.hear(&self.input, durable);
            if let Some(heard) = heard.map_err(io::Error::other)? {
                if heard.closed {
                    return Ok(());
                }
                self.input.drain(..heard.used);
                continue;
            }
            match self.receive(scratch) {
                Err(error) if error.kind() == ErrorKind::UnexpectedEof && speech == Speech::Raw => {
                    return Ok(());
                }
                other => other?,
            }
        }
        let what = "a stream was not closed in time";
        Err(io::Error::new(ErrorKind::TimedOut, what))
    }
}

fn token(index: usize) -> EventData {
    EventData::new_u64(index as u64)
}
