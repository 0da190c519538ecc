//! The I/O threads as seen by the reactor: their sockets, records and load.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, atomic::Ordering, mpsc},
    thread::JoinHandle,
};

use quorate_replica::front::ConnectionId;

use super::{
    ring::{HEADER_BYTES, Receiver, Sender, ring},
    worker::{self, Calls, ThreadChannels, down, up},
};
use crate::{bell::Bell, tcp::socket::Socket, wake::Wake};

/// Record from a thread to the reactor. `written` is the number of bytes that the socket has
/// accepted since the previous record.
#[derive(Debug)]
pub(crate) enum ThreadRecord {
    /// The client sent bytes, this many of which are in the buffer.
    Input {
        id: ConnectionId,
        written: usize,
        count: usize,
    },
    Written {
        id: ConnectionId,
        written: usize,
    },
    /// The thread returned the socket.
    Returned {
        id: ConnectionId,
        written: usize,
        why: ReturnReason,
        socket: Socket,
    },
    /// The thread ended, and its sockets are closed.
    Ended(usize),
}

/// Reason for which a thread returned a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReturnReason {
    /// The reactor recalled the socket, or the thread cannot watch it.
    Recalled,
    /// The client has ended its input.
    Ended,
    Broken,
}

/// A thread, as the reactor sees it.
#[derive(Debug)]
struct ThreadHandle {
    to_thread: Sender,
    from_thread: Receiver,
    sockets: mpsc::Sender<(ConnectionId, Socket)>,
    returned: mpsc::Receiver<(ConnectionId, Socket)>,
    /// Control records that wait for space in the ring. Output waits until they are sent.
    waiting_controls: VecDeque<(u8, ConnectionId)>,
    /// Number of bytes of records still to be taken in this turn.
    record_bytes_left: usize,
    /// Number of connections that the thread has.
    clients: usize,
    calls: Arc<Calls>,
    bell: Arc<Bell>,
    thread: Option<JoinHandle<()>>,
    has_ended: bool,
}

#[derive(Debug)]
pub(crate) struct Threads {
    threads: Vec<ThreadHandle>,
    bell: Arc<Bell>,
    /// Number of threads to start.
    threads_to_start: usize,
}

impl Threads {
    pub(crate) fn new(wanted: usize) -> io::Result<Self> {
        Ok(Self { threads: Vec::new(), bell: Arc::new(Bell::new()?), threads_to_start: wanted })
    }

    pub(crate) fn wake(&self) -> &Wake {
        self.bell.wake()
    }

    /// Returns whether there are threads or may be some later.
    pub(crate) const fn are_enabled(&self) -> bool {
        self.threads_to_start > 0
    }

    /// Returns the number of running threads, and the number of their connections.
    pub(crate) fn thread_and_connection_counts(&self) -> (usize, usize) {
        let running = self.threads.iter().filter(|far| !far.has_ended);
        running.fold((0, 0), |(threads, clients), far| (threads + 1, clients + far.clients))
    }

    /// Returns the counts of system calls of all threads: reads, writes, waits.
    pub(crate) fn call_counts(&self) -> [u64; 3] {
        self.threads.iter().fold([0; 3], |[reads, writes, waits], far| {
            [
                reads + far.calls.reads.load(Ordering::Relaxed),
                writes + far.calls.writes.load(Ordering::Relaxed),
                waits + far.calls.waits.load(Ordering::Relaxed),
            ]
        })
    }

    pub(crate) fn start(&mut self) -> io::Result<()> {
        while self.threads.len() < self.threads_to_start {
            let far = ThreadHandle::start(self.threads.len() + 1, &self.bell)?;
            self.threads.push(far);
        }
        Ok(())
    }

    /// Returns the thread with the fewest connections; `None` if there is none.
    pub(crate) fn least_used(&self) -> Option<usize> {
        let running = self.threads.iter().enumerate().filter(|(_, far)| !far.has_ended);
        running.min_by_key(|(_, far)| far.clients).map(|(index, _)| index)
    }

    /// Passes a socket to a thread, which starts reading it. If the thread has ended,
    /// [`ThreadRecord::Ended`] follows.
    pub(crate) fn hand_over_socket(&mut self, thread: usize, id: ConnectionId, socket: Socket) {
        let far = &mut self.threads[thread];
        let _ = far.sockets.send((id, socket));
        far.clients += 1;
        far.send_control(down::CONTROL_ADOPT, id);
    }

    pub(crate) fn set_reading(&mut self, thread: usize, id: ConnectionId, reads: bool) {
        let kind = if reads { down::CONTROL_RESUME } else { down::CONTROL_PAUSE };
        self.threads[thread].send_control(kind, id);
    }

    pub(crate) fn recall_socket(&mut self, thread: usize, id: ConnectionId) {
        self.threads[thread].send_control(down::CONTROL_RECALL, id);
    }

    /// Passes output to a connection. Returns `false` if it does not fit at present.
    pub(crate) fn pass_output(&mut self, thread: usize, id: ConnectionId, bytes: &[u8]) -> bool {
        let far = &mut self.threads[thread];
        far.waiting_controls.is_empty() && far.to_thread.push(down::CONTROL_OUTPUT, id, 0, bytes)
    }

    /// [io-7] Begins a turn, and returns the number of threads. In this turn, [`Self::next_record`]
    /// returns only the records that are present now.
    pub(crate) fn begin_turn(&mut self) -> usize {
        for far in &mut self.threads {
            far.record_bytes_left = far.from_thread.bytes();
        }
        self.threads.len()
    }

    /// Returns the next record of a thread. Input is copied to the start of `into`.
    pub(crate) fn next_record(&mut self, thread: usize, into: &mut [u8]) -> Option<ThreadRecord> {
        let far = &mut self.threads[thread];
        if far.record_bytes_left == 0 {
            far.from_thread.wake_sender_if_space();
            if far.from_thread.is_abandoned() && far.from_thread.is_empty() && !far.has_ended {
                (far.has_ended, far.clients) = (true, 0);
                far.waiting_controls.clear();
                return Some(ThreadRecord::Ended(thread));
            }
            return None;
        }
        let record = far.from_thread.next_record()?;
        far.record_bytes_left = far.record_bytes_left.saturating_sub(HEADER_BYTES + record.length);
        let count = record.length.min(into.len());
        far.from_thread.take_bytes(&mut into[..count]);
        let (id, written) = (record.connection, record.written_bytes as usize);
        let why = match record.kind {
            up::RECORD_INPUT => return Some(ThreadRecord::Input { id, written, count }),
            up::RECORD_WRITTEN => return Some(ThreadRecord::Written { id, written }),
            up::RECORD_ENDED => ReturnReason::Ended,
            up::RECORD_BROKEN => ReturnReason::Broken,
            _ => ReturnReason::Recalled,
        };
        far.clients -= 1;
        // The thread sends the socket before the record.
        let (of, socket) = far.returned.try_recv().ok()?;
        assert_eq!(of, id, "sockets come in the order of their records");
        Some(ThreadRecord::Returned { id, written, why, socket })
    }

    /// Sends the waiting control records, and wakes the threads that have work.
    pub(crate) fn flush(&mut self) {
        for far in &mut self.threads {
            far.flush();
            far.to_thread.wake_receiver();
        }
    }

    /// Returns whether a thread has sent records, or its ring has space again for waiting ones.
    pub(crate) fn has_work(&self) -> bool {
        self.threads.iter().any(|far| {
            !far.has_ended
                && (!far.from_thread.is_empty()
                    || far.from_thread.is_abandoned()
                    || far.to_thread.has_regained_space())
        })
    }

    /// Announces that the reactor will sleep, unless there is news.
    pub(crate) fn may_sleep(&self) -> bool {
        self.threads.is_empty() || self.bell.may_sleep(|| self.has_work())
    }

    pub(crate) fn mark_awake(&self) {
        if !self.threads.is_empty() {
            self.bell.mark_awake();
        }
    }
}

impl ThreadHandle {
    fn start(number: usize, reactor: &Arc<Bell>) -> io::Result<Self> {
        let bell = Arc::new(Bell::new()?);
        let (down, received) = ring(Arc::clone(&bell), Arc::clone(reactor));
        let (sender, up) = ring(Arc::clone(reactor), Arc::clone(&bell));
        let (sockets, adopted) = mpsc::channel();
        let (give, returned) = mpsc::channel();
        let calls = Arc::new(Calls::default());
        let ends = ThreadChannels {
            from_reactor: received,
            to_reactor: sender,
            sockets: adopted,
            returned: give,
            bell: Arc::clone(&bell),
            reactor_bell: Arc::clone(reactor),
            calls: Arc::clone(&calls),
        };
        let thread = std::thread::Builder::new().name(format!("io-{number}"));
        let thread = thread.spawn(move || {
            if let Err(error) = worker::run_worker(ends) {
                tracing::warn!(%error, "an I/O thread failed");
            }
        })?;
        Ok(Self {
            to_thread: down,
            from_thread: up,
            sockets,
            returned,
            waiting_controls: VecDeque::new(),
            record_bytes_left: 0,
            clients: 0,
            calls,
            bell,
            thread: Some(thread),
            has_ended: false,
        })
    }

    fn send_control(&mut self, kind: u8, id: ConnectionId) {
        if !self.waiting_controls.is_empty() || !self.to_thread.push(kind, id, 0, &[]) {
            self.waiting_controls.push_back((kind, id));
        }
    }

    fn flush(&mut self) {
        while let Some(&(kind, id)) = self.waiting_controls.front() {
            if !self.to_thread.push(kind, id, 0, &[]) {
                return;
            }
            self.waiting_controls.pop_front();
        }
    }
}

impl Drop for Threads {
    /// Ends the threads, which close their sockets.
    fn drop(&mut self) {
        for ThreadHandle {
            to_thread: down,
            from_thread: up,
            sockets,
            returned,
            bell,
            thread,
            ..
        } in self.threads.drain(..)
        {
            drop((down, up, sockets, returned));
            bell.wake().signal();
            if let Some(thread) = thread {
                // A panic of the thread has already been reported.
                let _ = thread.join();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        os::{fd::OwnedFd, unix::net::UnixStream},
        time::{Duration, Instant},
    };

    use super::*;

    const ID: ConnectionId = ConnectionId(5);

    fn connection() -> (UnixStream, Socket) {
        let (client, socket) = UnixStream::pair().unwrap();
        client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        socket.set_nonblocking(true).unwrap();
        (client, OwnedFd::from(socket).into())
    }

    /// Returns the next record, with the input.
    fn next(threads: &mut Threads) -> (ThreadRecord, Vec<u8>) {
        let began = Instant::now();
        let mut into = vec![0; worker::READ_BYTES];
        loop {
            threads.flush();
            threads.begin_turn();
            if let Some(up) = threads.next_record(0, &mut into) {
                into.truncate(if let ThreadRecord::Input { count, .. } = up { count } else { 0 });
                return (up, into);
            }
            assert!(began.elapsed() < Duration::from_secs(60), "no record comes");
            std::thread::yield_now();
        }
    }

    /// [io-4] [io-6] [io-8] A socket is handed over, served by a thread, and returned.
    #[test]
    fn socket_is_handed_over_served_and_returned() {
        let mut threads = Threads::new(1).unwrap();
        threads.start().unwrap();
        let (mut client, socket) = connection();
        client.write_all(b"one").unwrap();
        threads.hand_over_socket(0, ID, socket);
        let (up, input) = next(&mut threads);
        assert!(
            matches!(up, ThreadRecord::Input { id: ID, written: 0, .. }) && input == b"one",
            "{up:?}"
        );
        assert!(threads.pass_output(0, ID, b"answer"));
        threads.flush();
        let mut answer = [0; 6];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"answer");
        // The thread sleeps, so it reports what it wrote.
        let (up, _) = next(&mut threads);
        assert!(matches!(up, ThreadRecord::Written { id: ID, written: 6 }), "{up:?}");
        threads.set_reading(0, ID, false);
        threads.recall_socket(0, ID);
        let (up, _) = next(&mut threads);
        let ThreadRecord::Returned { id: ID, written: 0, why: ReturnReason::Recalled, mut socket } =
            up
        else {
            panic!("{up:?}");
        };
        client.write_all(b"two").unwrap();
        let mut two = [0; 3];
        assert_eq!(socket.read(&mut two), crate::tcp::socket::TransferOutcome::Transferred(3));
        assert_eq!(threads.thread_and_connection_counts(), (1, 0));
    }

    /// [io-7] [io-12] A panicking thread is noticed after its last record.
    #[test]
    fn a_thread_that_panics_is_noticed_after_its_last_record() {
        let mut threads = Threads::new(1).unwrap();
        threads.start().unwrap();
        let (mut client, socket) = connection();
        client.write_all(b"last").unwrap();
        threads.hand_over_socket(0, ID, socket);
        while threads.threads[0].from_thread.is_empty() {
            threads.flush();
            std::thread::yield_now();
        }
        // A socket that is not the record's.
        threads.threads[0].sockets.send((ConnectionId(6), connection().1)).unwrap();
        threads.threads[0].send_control(down::CONTROL_ADOPT, ConnectionId(7));
        threads.flush();
        while !threads.threads[0].from_thread.is_abandoned() {
            std::thread::yield_now();
        }
        assert!(threads.has_work() && !threads.may_sleep());
        let (up, input) = next(&mut threads);
        assert!(matches!(up, ThreadRecord::Input { .. }) && input == b"last", "{up:?}");
        let (up, _) = next(&mut threads);
        assert!(matches!(up, ThreadRecord::Ended(0)), "{up:?}");
        assert!(threads.least_used().is_none() && threads.may_sleep());
        assert!(client.read(&mut [0]).is_ok_and(|count| count == 0), "its sockets are closed");
    }
}
