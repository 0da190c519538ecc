//! Generates byte-stream writes over sockets, in one thread with epoll. Each write, or each group
//! of writes that are due together, takes one system call.

use std::{
    io::{self, ErrorKind, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use quorate_client::stream::{Options, Retention, Streams};
use quorate_testbed::relay::alarm::EpollTimer;
use rustix::{
    event::epoll::{self, CreateFlags, EventData, EventFlags},
    thread::{CpuSet, sched_setaffinity},
};

use super::{
    AcknowledgementCounts, StreamSamples, progress::WriteProgress, speech::StreamProtocol,
};
use crate::{
    generator::{LoadState, RunningLoad, nanos_since},
    load::{CommandOutcome, LoadDriver, LoadPlan},
    schedule::{Nanos, SECOND},
};

/// Timeout for connecting and for opening and closing a stream.
const SETUP_TIMEOUT: Duration = Duration::from_secs(10);
const EVENTS_MAX: usize = 256;
/// Maximum number of writes between two reads of acknowledgements, unless writes are gathered.
const WRITES_PER_TURN_MAX: usize = 64;
const BYTES_PER_TURN_MAX: usize = 256 << 10;
/// Maximum number of gathered writes between two reads, so that there is roughly one system call
/// per acknowledgement.
const GATHERED_WRITES_MAX: usize = 4096;
/// Maximum number of bytes that gathered writes put into one system call. A single write may be
/// larger.
const GATHERED_BYTES_MAX: usize = 64 << 10;
/// Number of bytes waiting for one full socket at which all other writers wait too.
const WAITING_BYTES_MAX: usize = 1 << 20;
const READ_BYTES: usize = 64 << 10;

/// Settings for the writers, and the node that they write to.
#[derive(Clone, Debug)]
pub struct WriterSettings {
    pub protocol: StreamProtocol,
    /// Address to which each stream connects.
    pub address: SocketAddr,
    pub write_bytes: usize,
    /// Set if writes that are due at the same time share a system call.
    pub gathers_writes: bool,
    /// CPUs on which the writers run; `None` for those of the caller.
    pub cpus: Option<CpuSet>,
    /// Prefix of the stream names. At the raw port, nodes choose the names instead.
    pub name_prefix: String,
    /// Settings that limit retention and by which the streams are removed at the end; `None` for a
    /// bare program, which retains no bytes.
    pub retention: Option<RetentionSettings>,
}

/// Settings that limit the disk space of the streams.
#[derive(Clone, Debug)]
pub struct RetentionSettings {
    /// Address at which a node supports the framed protocol.
    pub address: String,
    /// Minimum number of bytes retained in each stream.
    pub bytes: u64,
}

impl WriterSettings {
    /// Opens a stream for each connection of the plan and starts to write.
    pub fn start(self, plan: LoadPlan) -> io::Result<RunningLoad<StreamSamples>> {
        RunningLoad::spawn(move |shared| {
            if let Some(cpus) = &self.cpus {
                sched_setaffinity(None, cpus)?;
            }
            let mut generator = StreamGenerator::open(&self, plan)?;
            self.apply_retention()?;
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
    fn retention_limits(&self) -> io::Result<Option<(Streams, Vec<String>, u64)>> {
        let Some(keeper) = &self.retention else {
            return Ok(None);
        };
        let mut streams = Streams::new(&[keeper.address.as_str()], Options::default());
        let prefix = match self.protocol {
            StreamProtocol::Framed => &self.name_prefix,
            StreamProtocol::Raw => "raw-",
        };
        let all = streams.list().map_err(io::Error::other)?;
        let names = all.into_iter().map(|stream| stream.name);
        let names = names.filter(|name| name.starts_with(prefix)).collect();
        Ok(Some((streams, names, keeper.bytes)))
    }

    fn apply_retention(&self) -> io::Result<()> {
        if let Some((mut streams, names, bytes)) = self.retention_limits()? {
            let keep = Retention { bytes: Some(bytes), age_max_ms: None };
            for name in names {
                streams.set_retention(&name, keep).map_err(io::Error::other)?;
            }
        }
        Ok(())
    }

    fn remove(&self) -> io::Result<()> {
        if let Some((mut streams, names, _)) = self.retention_limits()? {
            for name in names {
                streams.remove(&name).map_err(io::Error::other)?;
            }
        }
        Ok(())
    }
}

struct StreamGenerator {
    protocol: StreamProtocol,
    call_buffer: CallBuffer,
    /// Indices of the writers with due writes that may still be gathered.
    writers_with_due: Vec<usize>,
    epoll: OwnedFd,
    alarm: EpollTimer,
    writers: Vec<Option<StreamWriter>>,
    /// Index of the writer whose full socket makes all others wait.
    full_writer: Option<usize>,
    acknowledged: AcknowledgementCounts,
    scratch: Vec<u8>,
}

/// Buffer for system calls. All writes have the same content.
struct CallBuffer {
    /// Encoded writes, as many as may share a system call.
    bytes: Vec<u8>,
    /// Length of an encoded write, in bytes.
    write_length: usize,
}

/// A system call of which the socket accepted only a part.
#[derive(Clone, Copy)]
struct PartialCall {
    accepted_bytes: usize,
    bytes: usize,
}

struct StreamWriter {
    socket: TcpStream,
    progress: WriteProgress,
    /// Number of due writes that no system call includes yet.
    due_writes: usize,
    /// System call of which the socket accepted only a part.
    partial_call: Option<PartialCall>,
    /// Received bytes of an incomplete message.
    partial_input: Vec<u8>,
}

impl StreamGenerator {
    fn open(wanted: &WriterSettings, plan: LoadPlan) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let mut writers = Vec::new();
        for index in 0..plan.connections_used() {
            let writer = StreamWriter::open(wanted, index)?;
            epoll::add(&epoll, &writer.socket, event_token(index), EventFlags::IN)?;
            writers.push(Some(writer));
        }
        let write = wanted.protocol.encode_write(wanted.write_bytes);
        let together = if wanted.gathers_writes {
            (GATHERED_BYTES_MAX / write.len().max(1)).max(1)
        } else {
            1
        };
        Ok(Self {
            protocol: wanted.protocol,
            call_buffer: CallBuffer { write_length: write.len(), bytes: write.repeat(together) },
            writers_with_due: Vec::new(),
            alarm: EpollTimer::add_to_epoll(&epoll)?,
            epoll,
            writers,
            full_writer: None,
            acknowledged: AcknowledgementCounts::default(),
            scratch: vec![0; READ_BYTES],
        })
    }

    fn run(&mut self, plan: LoadPlan, shared: &LoadState) -> io::Result<StreamSamples> {
        let started = shared.begin();
        let mut load = LoadDriver::new(plan, 0);
        let mut events = Vec::with_capacity(EVENTS_MAX);
        while !shared.is_stopped() {
            let now = nanos_since(started);
            if now >= plan.sending_ns() {
                load.stop();
            }
            if load.is_over(now) {
                break;
            }
            let more = self.queue_due_writes(&mut load, started);
            // This thread wakes when the full socket becomes writable again.
            let due = if self.full_writer.is_some() {
                plan.sending_ns().max(now + SECOND / 10)
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
        Ok(StreamSamples {
            samples: load.finish(),
            acknowledged: std::mem::take(&mut self.acknowledged),
        })
    }

    /// Queues the writes that are due. Returns whether more may be due immediately.
    fn queue_due_writes(&mut self, load: &mut LoadDriver, started: Instant) -> bool {
        let write = self.call_buffer.write_length;
        let gathers = self.call_buffer.bytes.len() > write;
        let writes = if gathers { GATHERED_WRITES_MAX } else { WRITES_PER_TURN_MAX };
        let writes = writes.min((BYTES_PER_TURN_MAX / write.max(1)).max(1));
        let mut issued = 0;
        while issued < writes && self.full_writer.is_none() {
            let Some(issue) = load.take_due_command(nanos_since(started)) else {
                break;
            };
            issued += 1;
            let index = issue.connection;
            let Some(writer) = &mut self.writers[index] else {
                continue;
            };
            writer.due_writes += 1;
            if writer.is_full(write) {
                self.full_writer = Some(index);
            }
            if writer.partial_call.is_some() {
                continue;
            }
            if !gathers {
                self.send_writes(index, load, started);
            } else if writer.due_writes == 1 {
                self.writers_with_due.push(index);
            }
        }
        for index in std::mem::take(&mut self.writers_with_due) {
            self.send_writes(index, load, started);
        }
        issued == writes
    }

    fn send_writes(&mut self, index: usize, load: &mut LoadDriver, started: Instant) {
        let Some(writer) = &mut self.writers[index] else {
            return;
        };
        let was_blocked = writer.partial_call.is_some();
        let sent = writer.send(&self.call_buffer, started).and_then(|()| {
            if self.full_writer == Some(index) && !writer.is_full(self.call_buffer.write_length) {
                self.full_writer = None;
            }
            let is_blocked = writer.partial_call.is_some();
            if is_blocked == was_blocked {
                return Ok(());
            }
            let mut flags = EventFlags::IN;
            flags.set(EventFlags::OUT, is_blocked);
            let modified = epoll::modify(&self.epoll, &writer.socket, event_token(index), flags);
            modified.map_err(io::Error::from)
        });
        if let Err(error) = sent {
            self.close_writer(index, &error.to_string(), load);
        }
    }

    fn on_event(&mut self, event: &epoll::Event, load: &mut LoadDriver, started: Instant) {
        let index = usize::try_from(event.data.u64()).expect("tokens are indices");
        let flags = event.flags;
        if flags.contains(EventFlags::OUT) {
            self.send_writes(index, load, started);
        }
        let news = EventFlags::IN | EventFlags::HUP | EventFlags::ERR;
        if flags.intersects(news)
            && let Err(why) = self.receive_acknowledgements(index, load, started)
        {
            self.close_writer(index, &why, load);
        }
    }

    fn receive_acknowledgements(
        &mut self,
        index: usize,
        load: &mut LoadDriver,
        started: Instant,
    ) -> Result<(), String> {
        let Some(writer) = &mut self.writers[index] else {
            return Ok(());
        };
        let received = writer.read_socket(&mut self.scratch);
        received.map_err(|error| error.to_string())?;
        let now = nanos_since(started);
        while let Some(position) = writer.next_durable_position(self.protocol)? {
            let news = writer.progress.acknowledge(position);
            let news = news.map_err(|malformed| malformed.to_string())?;
            if load.is_measured(now) && news.bytes > 0 {
                self.acknowledged.count += 1;
                self.acknowledged.bytes += news.bytes;
            }
            for call in news.write_starts {
                load.handle_reply(now, index, CommandOutcome::Done);
                if load.is_measured(call) {
                    let latency = now.saturating_sub(call);
                    self.acknowledged.latencies_from_call.record(latency);
                }
            }
        }
        Ok(())
    }

    fn close_writer(&mut self, index: usize, why: &str, load: &mut LoadDriver) {
        self.writers[index] = None;
        if self.full_writer == Some(index) {
            self.full_writer = None;
        }
        load.handle_connection_loss(index, why);
    }

    /// Closes all streams permanently. By then, all writes are durable.
    fn close(&mut self) -> io::Result<()> {
        let mut writers: Vec<StreamWriter> = self.writers.drain(..).flatten().collect();
        for writer in &mut writers {
            writer.socket.set_nonblocking(false)?;
            self.protocol.close(&mut writer.socket)?;
        }
        writers
            .into_iter()
            .try_for_each(|mut writer| writer.wait_closed(self.protocol, &mut self.scratch))
    }
}

impl StreamWriter {
    fn open(wanted: &WriterSettings, index: usize) -> io::Result<Self> {
        let named = |error: io::Error| {
            let what = format!("a stream at {}: {error}", wanted.address);
            io::Error::new(error.kind(), what)
        };
        let open = || {
            let mut socket = TcpStream::connect_timeout(&wanted.address, SETUP_TIMEOUT)?;
            socket.set_nodelay(true)?;
            socket.set_read_timeout(Some(SETUP_TIMEOUT))?;
            socket.set_write_timeout(Some(SETUP_TIMEOUT))?;
            // The id only needs to be unique among the writers of this cluster, all of which belong
            // to this process.
            let writer = u128::from(std::process::id()) << 64 | index as u128;
            let name = format!("{}{index}", wanted.name_prefix);
            wanted.protocol.open(&mut socket, &name, writer)?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        Ok(Self {
            socket: open().map_err(named)?,
            progress: WriteProgress::new(wanted.write_bytes),
            due_writes: 0,
            partial_call: None,
            partial_input: Vec::new(),
        })
    }

    fn is_full(&self, write: usize) -> bool {
        self.due_writes > 1 && self.due_writes.saturating_mul(write) >= WAITING_BYTES_MAX
    }

    /// Sends queued writes until the socket is full.
    fn send(&mut self, calls: &CallBuffer, started: Instant) -> io::Result<()> {
        loop {
            let call = match self.partial_call {
                Some(call) => call,
                None if self.due_writes == 0 => return Ok(()),
                None => self.begin_call(calls, nanos_since(started)),
            };
            self.partial_call = Some(call);
            match self.socket.write(&calls.bytes[call.accepted_bytes..call.bytes]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => {
                    let taken = call.accepted_bytes + count;
                    self.partial_call = (taken < call.bytes)
                        .then_some(PartialCall { accepted_bytes: taken, ..call });
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Starts the next system call, which includes as many queued writes as possible.
    fn begin_call(&mut self, calls: &CallBuffer, now: Nanos) -> PartialCall {
        let writes = self.due_writes.min(calls.bytes.len() / calls.write_length);
        self.due_writes -= writes;
        (0..writes).for_each(|_| self.progress.begin_write(now));
        PartialCall { accepted_bytes: 0, bytes: writes * calls.write_length }
    }

    /// Reads from the socket once.
    fn read_socket(&mut self, scratch: &mut [u8]) -> io::Result<()> {
        match self.socket.read(scratch) {
            Ok(0) => {
                Err(io::Error::new(ErrorKind::UnexpectedEof, "the system closed the connection"))
            }
            Ok(count) => {
                self.partial_input.extend_from_slice(&scratch[..count]);
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
    fn next_durable_position(&mut self, speech: StreamProtocol) -> Result<Option<u64>, String> {
        let heard = speech.decode_message(&self.partial_input, self.progress.durable_to())?;
        let Some(heard) = heard else {
            return Ok(None);
        };
        if heard.is_closed {
            return Err("the stream was closed".to_owned());
        }
        self.partial_input.drain(..heard.encoded_bytes);
        Ok(Some(heard.durable_to))
    }

    /// Waits until the node has closed the stream. Ignores acknowledgements, because all writes are
    /// already durable.
    fn wait_closed(&mut self, speech: StreamProtocol, scratch: &mut [u8]) -> io::Result<()> {
        let until = Instant::now() + SETUP_TIMEOUT;
        while Instant::now() < until {
            let durable = self.progress.durable_to();
            let heard = speech.decode_message(&self.partial_input, durable);
            if let Some(heard) = heard.map_err(io::Error::other)? {
                if heard.is_closed {
                    return Ok(());
                }
                self.partial_input.drain(..heard.encoded_bytes);
                continue;
            }
            match self.read_socket(scratch) {
                Err(error)
                    if error.kind() == ErrorKind::UnexpectedEof
                        && speech == StreamProtocol::Raw =>
                {
                    return Ok(());
                }
                other => other?,
            }
        }
        let what = "a stream was not closed in time";
        Err(io::Error::new(ErrorKind::TimedOut, what))
    }
}

fn event_token(index: usize) -> EventData {
    EventData::new_u64(index as u64)
}
