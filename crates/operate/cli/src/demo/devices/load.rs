//! Clients of the demo with devices. They write increasing numbers, measure latency, and check that
//! no acknowledged write is lost.
//!
//! Each writer has one write in flight, so that batches fit into device frames. It cycles through a
//! fixed set of keys, so that memory and stores stay small however long the demo runs.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use quorate_client::{Client, Error, Options, Reply};
use serde::Serialize;

/// Number of keys per writer.
const KEYS_PER_WRITER: usize = 64;
/// Prefix of the keys reserved for the writers.
pub(super) const KEY_PREFIX: &str = "load:";
/// Deadline of a write. It is longer than any failover.
const WRITE_TIMEOUT: Duration = Duration::from_secs(20);
/// Time without a reply after which a writer tries another node.
const ATTEMPT_TIMEOUT: Duration = Duration::from_millis(300);
/// Pause after an error before the next attempt.
const ERROR_PAUSE: Duration = Duration::from_millis(20);
/// Interval between two reads.
const READ_INTERVAL: Duration = Duration::from_millis(10);
/// Length of the time window that one point of a curve represents.
const WINDOW_MS: u64 = 500;
/// Number of points in a curve, which covers one minute.
const WINDOW_COUNT: usize = 120;
/// Number of recent points averaged for the current figures.
const AVERAGED_WINDOWS: usize = 4;
/// Maximum number of latencies recorded per window. These clusters do not reach it.
const LATENCIES_MAX: usize = 1 << 16;
/// Maximum number of recorded writes with an unknown outcome. A writer adds at most one per
/// [`WRITE_TIMEOUT`].
const DOUBTFUL_WRITES_MAX: usize = 1 << 16;

/// Running clients of the demo.
pub(super) struct Load {
    pub(super) observations: Arc<Observations>,
    threads: Vec<JoinHandle<()>>,
}

/// Observations shared by the clients.
pub(super) struct Observations {
    stop: AtomicBool,
    /// Incremented to make the clients return to their first nodes.
    return_count: AtomicU64,
    started_at: Instant,
    /// Last acknowledged number for each key of each writer, or 0 if no write was acknowledged.
    acknowledged_numbers: Vec<[AtomicU64; KEYS_PER_WRITER]>,
    acknowledged_count: AtomicU64,
    /// Time of the last acknowledgement, in microseconds since the start.
    last_acknowledged_us: AtomicU64,
    /// Number of reads compared with acknowledged writes. `lost` counts the reads that returned an
    /// older value.
    checked_reads: AtomicU64,
    lost_reads: AtomicU64,
    /// Writes with an unknown outcome, as pairs of writer and number.
    doubtful_writes: Mutex<BTreeSet<(usize, u64)>>,
    windows: Mutex<LatencyWindows>,
    last_failure: Mutex<Option<MeasuredFailure>>,
}

/// A failure whose effect on writes is being measured.
#[derive(Clone, Copy)]
struct MeasuredFailure {
    started_us: u64,
    /// Time at which the failing action ended. Writes sent earlier do not count.
    ended_us: u64,
    first_write_us: Option<u64>,
}

/// Figures shown on the page.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Figures {
    acknowledged: u64,
    checked: u64,
    lost: u64,
    doubtful: usize,
    /// Time since the last acknowledged write, in milliseconds.
    silent_ms: u64,
    per_second: u64,
    p50_us: u64,
    p99_us: u64,
    window_ms: u64,
    /// Index of the newest point.
    window: u64,
    points: Vec<Point>,
}

/// Number and latencies of the writes in one window. The latencies are absent if there were no
/// writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Point {
    writes: u64,
    p50_us: Option<u64>,
    p99_us: Option<u64>,
}

/// Points of the last minute, with the latencies of the current window.
#[derive(Debug, Default)]
struct LatencyWindows {
    /// Index of the current, incomplete window.
    open: u64,
    current_latencies: Vec<u64>,
    /// Latencies of the last few completed windows, newest last.
    recent_latencies: VecDeque<Vec<u64>>,
    points: VecDeque<Point>,
}

impl LatencyWindows {
    /// Completes all windows before `window`.
    fn advance_to(&mut self, window: u64) {
        // Windows missed during a suspend have no points.
        self.open = self.open.max(window.saturating_sub(WINDOW_COUNT as u64));
        while self.open < window {
            let mut times = std::mem::take(&mut self.current_latencies);
            times.sort_unstable();
            let at = |percent| latency_percentile(&times, percent);
            self.points.push_back(Point {
                writes: times.len() as u64,
                p50_us: at(50),
                p99_us: at(99),
            });
            self.recent_latencies.push_back(times);
            while self.points.len() > WINDOW_COUNT {
                self.points.pop_front();
            }
            while self.recent_latencies.len() > AVERAGED_WINDOWS {
                self.recent_latencies.pop_front();
            }
            self.open += 1;
        }
    }

    fn push(&mut self, window: u64, time_us: u64) {
        self.advance_to(window);
        if self.current_latencies.len() < LATENCIES_MAX {
            self.current_latencies.push(time_us);
        }
    }

    /// Returns writes per second, and median and 99th percentile of latency in microseconds.
    fn current_figures(&self) -> (u64, u64, u64) {
        let mut times: Vec<u64> = self.recent_latencies.iter().flatten().copied().collect();
        times.sort_unstable();
        let ms = (self.recent_latencies.len() as u64 * WINDOW_MS).max(1);
        let at = |percent| latency_percentile(&times, percent).unwrap_or(0);
        (times.len() as u64 * 1000 / ms, at(50), at(99))
    }
}

/// Returns a percentile of a sorted list of times.
fn latency_percentile(times: &[u64], percent: usize) -> Option<u64> {
    let last = times.len().checked_sub(1)?;
    times.get(last * percent / 100).copied()
}

impl Load {
    /// Starts one writer for each list of addresses, and one reader.
    pub(super) fn start(addresses: Vec<Vec<String>>) -> Self {
        let observations = Arc::new(Observations::new(addresses.len()));
        let mut threads = Vec::new();
        if let Some(first) = addresses.first().cloned() {
            let seen = Arc::clone(&observations);
            threads.push(thread::spawn(move || read_until_end(&first, &seen)));
        }
        for (writer, addresses) in addresses.into_iter().enumerate() {
            let seen = Arc::clone(&observations);
            threads.push(thread::spawn(move || write_until_end(writer, &addresses, &seen)));
        }
        Self { observations, threads }
    }

    /// Stops the clients once they have received all outstanding replies.
    pub(super) fn finish(self) -> Arc<Observations> {
        self.observations.stop.store(true, Ordering::SeqCst);
        for thread in self.threads {
            let _ = thread.join();
        }
        self.observations
    }
}

impl Observations {
    fn new(writers: usize) -> Self {
        let keys = || std::array::from_fn(|_| AtomicU64::new(0));
        Self {
            stop: AtomicBool::new(false),
            return_count: AtomicU64::new(0),
            started_at: Instant::now(),
            acknowledged_numbers: (0..writers).map(|_| keys()).collect(),
            acknowledged_count: AtomicU64::new(0),
            last_acknowledged_us: AtomicU64::new(0),
            checked_reads: AtomicU64::new(0),
            lost_reads: AtomicU64::new(0),
            doubtful_writes: Mutex::default(),
            windows: Mutex::default(),
            last_failure: Mutex::default(),
        }
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.started_at.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    pub(super) fn acknowledged_count(&self) -> u64 {
        self.acknowledged_count.load(Ordering::SeqCst)
    }

    pub(super) fn checked_reads(&self) -> u64 {
        self.checked_reads.load(Ordering::SeqCst)
    }

    /// Returns the number of reads that did not return an acknowledged write.
    pub(super) fn lost_reads(&self) -> u64 {
        self.lost_reads.load(Ordering::SeqCst)
    }

    pub(super) fn doubtful_count(&self) -> u64 {
        lock(&self.doubtful_writes).len() as u64
    }

    fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Makes the clients return to their first nodes after a part has been restored.
    pub(super) fn return_to_first_nodes(&self) {
        self.return_count.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn figures(&self) -> Figures {
        let now = self.now_us();
        let mut windows = lock(&self.windows);
        windows.advance_to(now / 1000 / WINDOW_MS);
        let (per_second, p50_us, p99_us) = windows.current_figures();
        let last = self.last_acknowledged_us.load(Ordering::SeqCst);
        Figures {
            acknowledged: self.acknowledged_count(),
            checked: self.checked_reads(),
            lost: self.lost_reads(),
            doubtful: lock(&self.doubtful_writes).len(),
            silent_ms: now.saturating_sub(last) / 1000,
            per_second,
            p50_us,
            p99_us,
            window_ms: WINDOW_MS,
            window: windows.open,
            points: windows.points.iter().copied().collect(),
        }
    }

    /// Runs an action that fails a part, and measures how long it interrupts writes.
    pub(super) fn measure_failure<T>(&self, fail: impl FnOnce() -> T) -> T {
        let from_us = self.now_us();
        let result = fail();
        *lock(&self.last_failure) = Some(MeasuredFailure {
            started_us: from_us,
            ended_us: self.now_us(),
            first_write_us: None,
        });
        result
    }

    /// Returns the length of the last interruption and clears it, once the interruption is over.
    pub(super) fn take_interruption(&self) -> Option<Duration> {
        let mut failure = lock(&self.last_failure);
        let first = failure.as_ref()?.first_write_us?;
        let from = failure.take()?.started_us;
        Some(Duration::from_micros(first.saturating_sub(from)))
    }

    fn record_acknowledged(&self, writer: usize, number: u64, sent_us: u64) {
        let now = self.now_us();
        if let Some(key) =
            self.acknowledged_numbers.get(writer).map(|keys| &keys[key_index(number)])
        {
            key.store(number, Ordering::SeqCst);
        }
        self.acknowledged_count.fetch_add(1, Ordering::SeqCst);
        self.last_acknowledged_us.fetch_max(now, Ordering::SeqCst);
        let window = now / 1000 / WINDOW_MS;
        lock(&self.windows).push(window, now.saturating_sub(sent_us));
        if let Some(failure) = &mut *lock(&self.last_failure)
            && sent_us >= failure.ended_us
        {
            failure.first_write_us.get_or_insert(now);
        }
    }

    /// Records a write with an unknown outcome.
    fn record_doubtful(&self, writer: usize, number: u64) {
        let mut doubtful = lock(&self.doubtful_writes);
        if doubtful.len() < DOUBTFUL_WRITES_MAX {
            doubtful.insert((writer, number));
        }
    }

    /// Returns whether a read value is consistent with the acknowledged writes. It may be the
    /// acknowledged value, a newer one, or one with an unknown outcome.
    fn is_consistent(&self, writer: usize, acknowledged: u64, value: Option<&[u8]>) -> bool {
        let found =
            value.and_then(|value| std::str::from_utf8(value).ok()?.parse().ok()).unwrap_or(0);
        found >= acknowledged || lock(&self.doubtful_writes).contains(&(writer, found))
    }

    /// Counts the keys for which a node lacks the acknowledged value. With `stale`, reads the
    /// node's own state without involving the leader. The writers must have ended.
    pub(super) fn count_missing(&self, address: &str, stale: bool) -> Result<u64, Error> {
        let options = Options { allow_stale_reads: stale, ..Options::default() };
        let mut client = Client::new(&[address], options);
        let mut missing = 0;
        for (writer, numbers) in self.acknowledged_numbers.iter().enumerate() {
            let keys: Vec<String> = (0..KEYS_PER_WRITER).map(|key| name(writer, key)).collect();
            let mut question: Vec<&[u8]> = vec![b"MGET"];
            question.extend(keys.iter().map(String::as_bytes));
            let Reply::Array(values) = client.read(&question)? else {
                return Err(Error::Refused("MGET did not answer with a list".to_owned()));
            };
            for (key, number) in numbers.iter().enumerate() {
                let value = values.get(key).and_then(Reply::bytes);
                let kept = self.is_consistent(writer, number.load(Ordering::SeqCst), value);
                missing += u64::from(!kept);
            }
        }
        Ok(missing)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn key_index(number: u64) -> usize {
    usize::try_from(number % KEYS_PER_WRITER as u64).unwrap_or(0)
}

fn name(writer: usize, key: usize) -> String {
    format!("{KEY_PREFIX}{writer}:{key}")
}

fn client_options() -> Options {
    Options {
        command_timeout: WRITE_TIMEOUT,
        attempt_timeout: ATTEMPT_TIMEOUT,
        backoff_max: Duration::from_millis(20),
        ..Options::default()
    }
}

fn write_until_end(writer: usize, addresses: &[String], seen: &Observations) {
    let mut client = Client::new(addresses, client_options());
    let (mut number, mut gone_home) = (0_u64, 0);
    while !seen.is_stopping() {
        number += 1;
        let homeward = seen.return_count.load(Ordering::SeqCst);
        if homeward != gone_home {
            (client, gone_home) = (Client::new(addresses, client_options()), homeward);
        }
        let (key, value) = (name(writer, key_index(number)), number.to_string());
        let sent_us = seen.now_us();
        match client.run(&[b"SET", key.as_bytes(), value.as_bytes()]) {
            Ok(_) => seen.record_acknowledged(writer, number, sent_us),
            Err(_) => {
                seen.record_doubtful(writer, number);
                thread::sleep(ERROR_PAUSE);
            }
        }
    }
}

/// Reads all keys in turn and compares each value with the acknowledged one.
fn read_until_end(addresses: &[String], seen: &Observations) {
    let mut client = Client::new(addresses, client_options());
    let all = seen.acknowledged_numbers.len() * KEYS_PER_WRITER;
    for at in (0..all).cycle() {
        if seen.is_stopping() {
            return;
        }
        thread::sleep(READ_INTERVAL);
        let (writer, key) =
            (at % seen.acknowledged_numbers.len(), at / seen.acknowledged_numbers.len());
        let acknowledged = seen.acknowledged_numbers[writer][key].load(Ordering::SeqCst);
        if acknowledged == 0 {
            continue;
        }
        let Ok(reply) = client.read(&[b"GET", name(writer, key).as_bytes()]) else {
            continue;
        };
        if !seen.is_consistent(writer, acknowledged, reply.bytes()) {
            seen.lost_reads.fetch_add(1, Ordering::SeqCst);
        }
        seen.checked_reads.fetch_add(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_cover_the_last_minute() {
        let mut windows = LatencyWindows::default();
        for time in [30, 10, 20] {
            windows.push(0, time);
        }
        windows.push(2, 5);
        windows.advance_to(3);
        let point = |writes, p50_us, p99_us| Point { writes, p50_us, p99_us };
        let expected =
            [point(3, Some(20), Some(20)), point(0, None, None), point(1, Some(5), Some(5))];
        assert_eq!(windows.points, expected);
        // Four writes in one and a half seconds.
        assert_eq!(windows.current_figures(), (2, 10, 20));
        windows.advance_to(10_000_000);
        assert_eq!((windows.points.len(), windows.open), (WINDOW_COUNT, 10_000_000));
        assert_eq!(windows.current_figures(), (0, 0, 0));
    }

    #[test]
    fn older_value_is_a_loss_unless_it_was_in_doubt() {
        let seen = Observations::new(2);
        seen.record_acknowledged(1, 70, 0);
        assert_eq!(seen.acknowledged_count(), 1);
        for (value, kept) in [
            (Some(&b"70"[..]), true),
            (Some(b"134"), true),
            (Some(b"6"), false),
            (Some(b"x"), false),
            (None, false),
        ] {
            assert_eq!(seen.is_consistent(1, 70, value), kept, "{value:?}");
        }
        seen.record_doubtful(1, 6);
        assert!(seen.is_consistent(1, 70, Some(b"6")), "executed late");
        assert!(!seen.is_consistent(0, 70, Some(b"6")), "another writer's");
        assert!(seen.is_consistent(0, 0, None), "nothing was promised");
    }

    /// An interruption lasts from the start of the failure to the first acknowledgement of a write
    /// sent after it.
    #[test]
    fn interruption_ends_with_a_write_sent_after_the_failure() {
        let seen = Observations::new(1);
        assert_eq!(seen.measure_failure(|| 7), 7);
        let failure = MeasuredFailure { started_us: 0, ended_us: 1000, first_write_us: None };
        *lock(&seen.last_failure) = Some(failure);
        seen.record_acknowledged(0, 1, 999);
        assert_eq!(seen.take_interruption(), None);
        seen.record_acknowledged(0, 2, 1000);
        assert!(seen.take_interruption().is_some());
        assert_eq!(seen.take_interruption(), None, "said once");
    }
}
