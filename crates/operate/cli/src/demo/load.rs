//! Writers of the demo: they write unique keys and record which writes were acknowledged.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use quorate_client::{Client, Error, Options};

/// Number of commands that each writer keeps in flight.
pub(super) const IN_FLIGHT_PER_WRITER: usize = 8;
/// Deadline of a write. It is longer than any failover.
pub(super) const WRITE_TIMEOUT: Duration = Duration::from_secs(20);

/// Result of one writer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Written {
    pub(crate) writer: usize,
    /// Number of commands sent.
    pub(crate) sent_count: u64,
    /// Numbers of the acknowledged commands.
    pub(crate) acknowledged_numbers: Vec<u64>,
    /// Last error that the writer received, if any.
    pub(crate) error: Option<String>,
}

impl Written {
    /// Returns the key and the value of a writer's command.
    pub(crate) fn key_and_value(writer: usize, number: u64) -> (String, String) {
        (format!("demo:{writer}:{number}"), format!("value {number} of writer {writer}"))
    }
}

/// Running writers of the demo.
pub(crate) struct Load {
    shared: Arc<Shared>,
    writers: Vec<JoinHandle<Written>>,
}

/// Main loop of a writer. It returns once the demo stops.
pub(crate) type WriteLoop = fn(usize, &[String], &Shared) -> Written;

/// State shared by all writers.
pub(crate) struct Shared {
    stop: AtomicBool,
    acknowledged_count: AtomicU64,
    started_at: Instant,
    /// Time at which the kill began, in microseconds since the start.
    killed_us: AtomicU64,
    /// Time at which the leader was certainly dead, in microseconds since the start. 0 until then.
    leader_dead_us: AtomicU64,
    /// Time of the first acknowledgement of a command sent after `leader_dead_us`, in microseconds
    /// since the start.
    first_write_us: AtomicU64,
}

impl Load {
    /// Starts one writer for each list of addresses.
    pub(crate) fn start(addresses: Vec<Vec<String>>, write: WriteLoop) -> Self {
        let shared = Arc::new(Shared {
            stop: AtomicBool::new(false),
            acknowledged_count: AtomicU64::new(0),
            started_at: Instant::now(),
            killed_us: AtomicU64::new(0),
            leader_dead_us: AtomicU64::new(0),
            first_write_us: AtomicU64::new(u64::MAX),
        });
        let writers = addresses.into_iter().enumerate().map(|(writer, addresses)| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || write(writer, &addresses, &shared))
        });
        Self { writers: writers.collect(), shared }
    }

    pub(crate) fn acknowledged_count(&self) -> u64 {
        self.shared.acknowledged_count.load(Ordering::Relaxed)
    }

    /// Runs `kill`, which must return once the leader is dead. Commands sent before that do not
    /// count for the failover time, because the old leader may still acknowledge them.
    pub(crate) fn kill_leader<T>(&self, kill: impl FnOnce() -> T) -> T {
        self.shared.killed_us.store(self.shared.now_us(), Ordering::SeqCst);
        let result = kill();
        self.shared.leader_dead_us.store(self.shared.now_us(), Ordering::SeqCst);
        result
    }

    /// Returns the time from the kill to the first acknowledgement of a command sent after the
    /// leader was dead.
    pub(crate) fn failover_time(&self) -> Option<Duration> {
        let killed = self.shared.killed_us.load(Ordering::SeqCst);
        let first = self.shared.first_write_us.load(Ordering::SeqCst);
        (first != u64::MAX).then(|| Duration::from_micros(first.saturating_sub(killed)))
    }

    /// Stops the writers after they have received outstanding replies.
    pub(crate) fn finish(self) -> Vec<Written> {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.writers.into_iter().map(|writer| writer.join().unwrap_or_default()).collect()
    }
}

impl Shared {
    /// Returns whether the writers should stop.
    pub(super) fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Returns the time since the start, in microseconds.
    pub(super) fn now_us(&self) -> u64 {
        u64::try_from(self.started_at.elapsed().as_micros()).unwrap_or(u64::MAX).max(1)
    }

    /// Records the acknowledgement of a write sent at `sent_us`.
    pub(super) fn record_acknowledged(&self, sent_us: u64) {
        self.acknowledged_count.fetch_add(1, Ordering::Relaxed);
        let gone = self.leader_dead_us.load(Ordering::SeqCst);
        if gone > 0 && sent_us > gone {
            self.first_write_us.fetch_min(self.now_us(), Ordering::SeqCst);
        }
    }
}

/// Writes keys over the Redis protocol until stopped.
pub(crate) fn write_until_end(writer: usize, addresses: &[String], shared: &Shared) -> Written {
    let options = Options {
        command_timeout: WRITE_TIMEOUT,
        attempt_timeout: Duration::from_secs(1),
        backoff_max: Duration::from_millis(20),
        ..Options::default()
    };
    let mut client = Client::new(addresses, options);
    let mut done = Written { writer, ..Written::default() };
    let mut open = std::collections::VecDeque::new();
    loop {
        let stopping = shared.is_stopping();
        while !stopping && open.len() < IN_FLIGHT_PER_WRITER {
            let (key, value) = Written::key_and_value(writer, done.sent_count);
            if client.send(&[b"SET", key.as_bytes(), value.as_bytes()]).is_err() {
                break;
            }
            open.push_back((done.sent_count, shared.now_us()));
            done.sent_count += 1;
        }
        let Some((number, sent_us)) = open.pop_front() else {
            return done;
        };
        match client.receive() {
            Ok(_) => {
                done.acknowledged_numbers.push(number);
                shared.record_acknowledged(sent_us);
            }
            // The command was not acknowledged, so losing it would break no promise.
            Err(
                error @ (Error::UnknownOutcome(_)
                | Error::NotExecuted(_)
                | Error::SessionLost { .. }),
            ) => {
                done.error = Some(error.to_string());
            }
            Err(error) => {
                done.error = Some(error.to_string());
                return done;
            }
        }
    }
}
