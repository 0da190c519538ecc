//! I/O thread: reads and writes the sockets that the reactor handed over, and does nothing else.

use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
};

use quorate_replica::front::ConnectionId;
use rustc_hash::FxHashMap;
use rustix::event::{PollFd, PollFlags, poll};

use super::ring::{HEADER_BYTES, Receiver, Sender};
use crate::{
    bell::Bell,
    sources::{Events, Interest, Ready, Source, Sources, Token},
    tcp::socket::{Socket, TransferOutcome},
};

/// Maximum number of bytes of one read.
pub(super) const READ_BYTES: usize = 64 << 10;
/// Minimum free space in the ring for a read. With less, the thread waits for the reactor
/// ([io-10]).
const READ_BYTES_MIN: usize = 4 << 10;
/// [io-6] Number of written bytes of a connection that are reported at once. Fewer are reported
/// with its next record, or before the thread sleeps.
const REPORT_BYTES: u32 = 16 << 10;

/// Kinds of records from the reactor to a thread ([io-4]).
pub(super) mod down {
    /// Take the next socket from the channel, and start reading it.
    pub(in super::super) const CONTROL_ADOPT: u8 = 0;
    /// Write these bytes.
    pub(in super::super) const CONTROL_OUTPUT: u8 = 1;
    /// Stop reading.
    pub(in super::super) const CONTROL_PAUSE: u8 = 2;
    /// Resume reading.
    pub(in super::super) const CONTROL_RESUME: u8 = 3;
    /// Return the socket.
    pub(in super::super) const CONTROL_RECALL: u8 = 4;
}

/// Kinds of records from a thread to the reactor. A record's number is the count of bytes written
/// since the connection's previous record.
pub(super) mod up {
    /// The client sent these bytes.
    pub(in super::super) const RECORD_INPUT: u8 = 0;
    /// Bytes were written.
    pub(in super::super) const RECORD_WRITTEN: u8 = 1;
    /// The next socket in the channel is being returned.
    pub(in super::super) const RECORD_RETURNED: u8 = 2;
    /// Like [`RECORD_RETURNED`], and the client has ended its input.
    pub(in super::super) const RECORD_ENDED: u8 = 3;
    /// Like [`RECORD_RETURNED`], and the connection is broken.
    pub(in super::super) const RECORD_BROKEN: u8 = 4;
}

/// Counts of a thread's system calls.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    pub(super) reads: AtomicU64,
    pub(super) writes: AtomicU64,
    pub(super) waits: AtomicU64,
}

/// A thread's ends of its channels with the reactor.
#[derive(Debug)]
pub(super) struct ThreadChannels {
    pub(super) from_reactor: Receiver,
    pub(super) to_reactor: Sender,
    pub(super) sockets: mpsc::Receiver<(ConnectionId, Socket)>,
    pub(super) returned: mpsc::Sender<(ConnectionId, Socket)>,
    pub(super) bell: Arc<Bell>,
    /// Bell that wakes the reactor.
    pub(super) reactor_bell: Arc<Bell>,
    pub(super) calls: Arc<Calls>,
}

/// A connection whose socket the thread has.
#[derive(Debug)]
struct HeldConnection {
    socket: Socket,
    token: Token,
    interest: Interest,
    /// The reactor accepts input from this connection.
    is_reading: bool,
    /// The socket's send buffer is full.
    is_send_blocked: bool,
    /// Output that the socket has not accepted yet.
    output: Vec<u8>,
    /// Number of bytes written since the last record.
    unreported_bytes: u32,
    /// The connection is already in `unreported_connections`.
    is_unreported: bool,
}

#[derive(Debug)]
struct Worker {
    ends: ThreadChannels,
    sources: Sources,
    connections: FxHashMap<ConnectionId, HeldConnection>,
    read_buffer: Vec<u8>,
    output: Vec<u8>,
    /// Connections with written bytes that are not reported yet.
    unreported_connections: Vec<ConnectionId>,
    /// Connections to read although epoll reports nothing new, because the TLS session has more
    /// data.
    connections_to_read: Vec<ConnectionId>,
    /// Connections to return, each with its record, once the ring has space.
    connections_to_return: VecDeque<(ConnectionId, u8, u32, Socket)>,
}

/// Guard that wakes the reactor when the thread ends for any reason, so that the reactor notices.
struct EndGuard(Arc<Bell>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.0.wake().signal();
    }
}

/// Runs the thread until the reactor drops its end.
pub(super) fn run_worker(ends: ThreadChannels) -> io::Result<()> {
    let _guard = EndGuard(Arc::clone(&ends.reactor_bell));
    let mut sources = Sources::new()?;
    sources.add(ends.bell.wake(), Source::Mail, Interest::READ)?;
    let mut worker = Worker {
        ends,
        sources,
        connections: FxHashMap::default(),
        read_buffer: vec![0; READ_BYTES],
        output: Vec::new(),
        unreported_connections: Vec::new(),
        connections_to_read: Vec::new(),
        connections_to_return: VecDeque::new(),
    };
    let mut events = Events::new();
    loop {
        worker.process_controls();
        if worker.ends.from_reactor.is_abandoned() {
            return Ok(());
        }
        worker.read_more();
        worker.wait_for_work(&mut events)?;
        for ready in &events.ready {
            // A connection that was put on hold must not deliver another whole batch.
            worker.process_controls();
            worker.on_ready(*ready);
        }
        worker.return_sockets();
        worker.ends.to_reactor.wake_receiver();
    }
}

impl Worker {
    fn process_controls(&mut self) {
        let mut left = self.ends.from_reactor.bytes();
        while left > 0
            && let Some(record) = self.ends.from_reactor.next_record()
        {
            let mut output = std::mem::take(&mut self.output);
            output.resize(record.length, 0);
            self.ends.from_reactor.take_bytes(&mut output);
            left = left.saturating_sub(HEADER_BYTES + record.length);
            let id = record.connection;
            match record.kind {
                down::CONTROL_ADOPT => self.adopt(id),
                down::CONTROL_OUTPUT => self.write(id, &output),
                down::CONTROL_PAUSE => self.set_reading(id, false),
                down::CONTROL_RESUME => self.set_reading(id, true),
                _ => self.return_connection(id, up::RECORD_RETURNED),
            }
            self.output = output;
        }
        self.ends.from_reactor.wake_sender_if_space();
    }

    fn adopt(&mut self, id: ConnectionId) {
        // The socket is sent before the record.
        let Ok((of, socket)) = self.ends.sockets.recv() else {
            return;
        };
        assert_eq!(of, id, "sockets come in the order of their records");
        let holds_more = socket.has_buffered_input();
        let interest = Interest::READ;
        match self.sources.add(&socket, Source::Client(id), interest) {
            Ok(token) => {
                let held = HeldConnection {
                    socket,
                    token,
                    interest,
                    is_reading: true,
                    is_send_blocked: false,
                    output: Vec::new(),
                    unreported_bytes: 0,
                    is_unreported: false,
                };
                self.connections.insert(id, held);
                // Epoll does not see data that the TLS session has already decrypted.
                if holds_more {
                    self.connections_to_read.push(id);
                }
            }
            // Return the socket: the reactor may be able to watch it.
            Err(_) => self.connections_to_return.push_back((id, up::RECORD_RETURNED, 0, socket)),
        }
    }

    fn set_reading(&mut self, id: ConnectionId, reads: bool) {
        let Some(held) = self.connections.get_mut(&id) else {
            return;
        };
        held.is_reading = reads;
        if reads && held.socket.has_buffered_input() {
            self.connections_to_read.push(id);
        }
        self.register_interest(id);
    }

    fn on_ready(&mut self, ready: Ready) {
        match self.sources.source_of(ready) {
            Some(Source::Client(id)) => {
                if ready.is_writable
                    && let Some(held) = self.connections.get_mut(&id)
                {
                    held.is_send_blocked = false;
                    self.write(id, &[]);
                }
                // Epoll reports a broken connection even if it is not being read, so return it to
                // the reactor, after the input that it has sent.
                let reads = self.connections.get(&id).is_some_and(|held| held.is_reading);
                if ready.is_readable && reads {
                    self.read(id);
                } else if ready.is_broken {
                    self.return_connection(id, up::RECORD_RETURNED);
                }
            }
            _ => self.ends.bell.wake().drain(),
        }
    }

    fn read_more(&mut self) {
        for id in std::mem::take(&mut self.connections_to_read) {
            if self.connections.get(&id).is_some_and(|held| held.is_reading) {
                self.read(id);
            }
        }
    }

    /// Reads once, and again as long as the TLS session has more data.
    fn read(&mut self, id: ConnectionId) {
        let Some(held) = self.connections.get_mut(&id) else {
            return;
        };
        loop {
            let room = self.ends.to_reactor.next_record_bytes_max().min(READ_BYTES);
            if room < READ_BYTES_MIN {
                self.ends.to_reactor.request_space_wakeup();
                self.connections_to_read.push(id);
                break;
            }
            self.ends.calls.reads.fetch_add(1, Ordering::Relaxed);
            match held.socket.read(&mut self.read_buffer[..room]) {
                TransferOutcome::Transferred(count) => {
                    let written = std::mem::take(&mut held.unreported_bytes);
                    let pushed = self.ends.to_reactor.push(
                        up::RECORD_INPUT,
                        id,
                        written,
                        &self.read_buffer[..count],
                    );
                    debug_assert!(pushed, "there was room");
                }
                TransferOutcome::Blocked => break,
                TransferOutcome::Ended(None) => {
                    return self.return_connection(id, up::RECORD_ENDED);
                }
                TransferOutcome::Ended(Some(_)) => {
                    return self.return_connection(id, up::RECORD_BROKEN);
                }
            }
            if !held.socket.has_buffered_input() {
                break;
            }
        }
        if held.socket.has_unsent_output() {
            return self.write(id, &[]);
        }
        self.register_interest(id);
    }

    /// Writes the waiting output followed by `bytes`, as far as the socket accepts them.
    fn write(&mut self, id: ConnectionId, bytes: &[u8]) {
        let Some(held) = self.connections.get_mut(&id) else {
            return;
        };
        let waited = !held.output.is_empty();
        if waited {
            held.output.extend_from_slice(bytes);
        }
        let mut ended = held.socket.has_unsent_output()
            && matches!(held.socket.flush(), TransferOutcome::Ended(_));
        let all = if waited { &held.output[..] } else { bytes };
        let mut done = 0;
        while !ended && !held.is_send_blocked && done < all.len() {
            self.ends.calls.writes.fetch_add(1, Ordering::Relaxed);
            match held.socket.write(&all[done..]) {
                TransferOutcome::Transferred(count) => done += count,
                TransferOutcome::Blocked => held.is_send_blocked = true,
                TransferOutcome::Ended(_) => ended = true,
            }
        }
        if waited {
            held.output.drain(..done);
        } else {
            held.output.extend_from_slice(&bytes[done..]);
        }
        if held.output.is_empty() && held.output.capacity() > READ_BYTES {
            held.output = Vec::new();
        }
        // The sum cannot overflow: the reactor bounds the bytes in flight for a connection.
        held.unreported_bytes += u32::try_from(done).unwrap_or(u32::MAX);
        if done > 0 && !std::mem::replace(&mut held.is_unreported, true) {
            self.unreported_connections.push(id);
        }
        if held.unreported_bytes >= REPORT_BYTES
            && self.ends.to_reactor.push(up::RECORD_WRITTEN, id, held.unreported_bytes, &[])
        {
            held.unreported_bytes = 0;
        }
        if ended {
            return self.return_connection(id, up::RECORD_BROKEN);
        }
        self.register_interest(id);
    }

    fn register_interest(&mut self, id: ConnectionId) {
        let Some(held) = self.connections.get_mut(&id) else {
            return;
        };
        let write = held.socket.waits_to_write(held.is_send_blocked);
        let interest = Interest { read: held.is_reading, write };
        if interest == held.interest {
            return;
        }
        held.interest = interest;
        if self.sources.change(&held.socket, held.token, interest).is_err() {
            self.return_connection(id, up::RECORD_RETURNED);
        }
    }

    /// [io-8] Returns a connection to the reactor. Drops output that the socket has not accepted,
    /// which the front still has ([io-5]).
    fn return_connection(&mut self, id: ConnectionId, kind: u8) {
        if let Some(held) = self.connections.remove(&id) {
            self.sources.stop_watching(&held.socket, held.token);
            self.connections_to_return.push_back((id, kind, held.unreported_bytes, held.socket));
        }
    }

    fn return_sockets(&mut self) {
        while let Some((id, kind, written, socket)) = self.connections_to_return.pop_front() {
            if !self.ends.to_reactor.has_space() {
                self.ends.to_reactor.request_space_wakeup();
                return self.connections_to_return.push_front((id, kind, written, socket));
            }
            // The socket is sent before the record, so that the reactor finds both.
            let _ = self.ends.returned.send((id, socket));
            let pushed = self.ends.to_reactor.push(kind, id, written, &[]);
            debug_assert!(pushed, "there was room");
        }
    }

    /// Reports all written bytes, before the thread sleeps.
    fn report_written(&mut self) {
        while let Some(id) = self.unreported_connections.pop() {
            let Some(held) = self.connections.get_mut(&id) else {
                continue;
            };
            if held.unreported_bytes > 0
                && !self.ends.to_reactor.push(up::RECORD_WRITTEN, id, held.unreported_bytes, &[])
            {
                return self.unreported_connections.push(id);
            }
            (held.unreported_bytes, held.is_unreported) = (0, false);
        }
    }

    /// Waits for sockets and records. Sleeps only once nothing is left to do.
    fn wait_for_work(&mut self, events: &mut Events) -> io::Result<()> {
        self.return_sockets();
        self.ends.to_reactor.wake_receiver();
        let stalled = self.ends.to_reactor.is_stalled();
        if !stalled {
            self.ends.calls.waits.fetch_add(1, Ordering::Relaxed);
            self.sources.wait(Some(0), events)?;
            if !events.ready.is_empty() || !self.connections_to_read.is_empty() {
                return Ok(());
            }
            self.report_written();
            self.ends.to_reactor.wake_receiver();
        }
        let ThreadChannels { from_reactor: down, to_reactor: up, bell, calls, .. } = &self.ends;
        if !bell.may_sleep(|| !down.is_empty() || down.is_abandoned() || up.has_regained_space()) {
            events.ready.clear();
            return Ok(());
        }
        calls.waits.fetch_add(1, Ordering::Relaxed);
        if stalled {
            // Readable sockets would end the wait at once.
            events.ready.clear();
            let wake = bell.wake();
            if poll(&mut [PollFd::new(wake, PollFlags::IN)], None).is_ok() {
                wake.drain();
            }
        } else {
            self.sources.wait(None, events)?;
        }
        bell.mark_awake();
        Ok(())
    }
}
