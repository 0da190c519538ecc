//! Clients of the demo with devices: writes with increasing numbers, their latency, and a check
//! that none is lost.
//!
//! Each writer has one write in flight, so that batches fit into the frames of devices. A writer
//! cycles through its keys: memory and store stay small however long the demo is watched.

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

/// Keys of each writer.
const KEYS: usize = 64;
/// Prefix of the writers' keys; only they write those.
pub(super) const PREFIX: &str = "load:";
/// Longer than any failover takes.
const DEADLINE: Duration = Duration::from_secs(20);
/// Time without a reply after which a writer asks another node.
const ATTEMPT: Duration = Duration::from_millis(300);
/// Pause before a retry after a failure.
const REST: Duration = Duration::from_millis(20);
/// Interval of the reader's looks.
const LOOK: Duration = Duration::from_millis(10);
/// A point of the curves.
const WINDOW_MS: u64 = 500;
/// The last minute.
const WINDOWS: usize = 120;
/// Windows that the present figures are made of.
const PRESENT: usize = 4;
/// Writes of a window whose time is kept: more than any cluster here does.
const TIMES_MAX: usize = 1 << 16;
/// Writes of unknown outcome that are remembered; there is one for each writer whose deadline
/// passed.
const DOUBTFUL_MAX: usize = 1 << 16;

/// Running clients.
pub(super) struct Load {
    pub(super) seen: Arc<Seen>,
    threads: Vec<JoinHandle<()>>,
}

/// Results of the clients.
pub(super) struct Seen {
    stop: AtomicBool,
    /// Number of times clients had to return to their first node.
    homeward: AtomicU64,
    started: Instant,
    /// The number that was acknowledged last, for each key of each writer; 0 before the first.
    numbers: Vec<[AtomicU64; KEYS]>,
    acknowledged: AtomicU64,
    /// Time of the last acknowledgement, in microseconds since the start.
    last_us: AtomicU64,
    /// Reads that were compared with what had been acknowledged, and those that had less.
    checked: AtomicU64,
    lost: AtomicU64,
    /// Writes that may have been executed, or may yet be: writer and number.
    doubtful: Mutex<BTreeSet<(usize, u64)>>,
    windows: Mutex<Windows>,
    failure: Mutex<Option<Failure>>,
}

/// An interruption of writes.
#[derive(Clone, Copy)]
struct Failure {
    from_us: u64,
    /// Writes sent earlier say nothing about the time after the failure.
    done_us: u64,
    first_us: Option<u64>,
}

/// Figures shown on the page.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Figures {
    acknowledged: u64,
    checked: u64,
    lost: u64,
    doubtful: usize,
    /// Time since the last acknowledged write.
    silent_ms: u64,
    per_second: u64,
    p50_us: u64,
    p99_us: u64,
    window_ms: u64,
    /// Index of the last point's window.
    window: u64,
    points: Vec<Point>,
}

/// Writes in a window, and how long they took; no time if there was none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Point {
    writes: u64,
    p50_us: Option<u64>,
    p99_us: Option<u64>,
}

/// The last minute, in windows.
#[derive(Debug, Default)]
struct Windows {
    /// Number of the window that is open.
    open: u64,
    times: Vec<u64>,
    /// Times of the last few that are closed, the youngest last.
    recent: VecDeque<Vec<u64>>,
    points: VecDeque<Point>,
}

impl Windows {
    /// Closes all windows before this one.
    fn go_to(&mut self, window: u64) {
        // A machine that slept has no points of that time.
        self.open = self.open.max(window.saturating_sub(WINDOWS as u64));
        while self.open < window {
            let mut times = std::mem::take(&mut self.times);
            times.sort_unstable();
            let at = |percent| percentile(&times, percent);
            self.points.push_back(Point {
                writes: times.len() as u64,
                p50_us: at(50),
                p99_us: at(99),
            });
            self.recent.push_back(times);
            while self.points.len() > WINDOWS {
                self.points.pop_front();
            }
            while self.recent.len() > PRESENT {
                self.recent.pop_front();
            }
            self.open += 1;
        }
    }

    fn push(&mut self, window: u64, time_us: u64) {
        self.go_to(window);
        if self.times.len() < TIMES_MAX {
            self.times.push(time_us);
        }
    }

    /// Writes per second, and their times in the middle and of the slowest in a hundred.
    fn present(&self) -> (u64, u64, u64) {
        let mut times: Vec<u64> = self.recent.iter().flatten().copied().collect();
        times.sort_unstable();
        let ms = (self.recent.len() as u64 * WINDOW_MS).max(1);
        let at = |percent| percentile(&times, percent).unwrap_or(0);
        (times.len() as u64 * 1000 / ms, at(50), at(99))
    }
}

/// Returns a percentile of sorted times.
fn percentile(times: &[u64], percent: usize) -> Option<u64> {
    let last = times.len().checked_sub(1)?;
    times.get(last * percent / 100).copied()
}

impl Load {
    /// Starts one writer for each list of addresses, and one reader.
    pub(super) fn start(addresses: Vec<Vec<String>>) -> Self {
        let seen = Arc::new(Seen::new(addresses.len()));
        let mut threads = Vec::new();
        if let Some(first) = addresses.first().cloned() {
            let seen = Arc::clone(&seen);
            threads.push(thread::spawn(move || read(&first, &seen)));
        }
        for (writer, addresses) in addresses.into_iter().enumerate() {
            let seen = Arc::clone(&seen);
            threads.push(thread::spawn(move || write(writer, &addresses, &seen)));
        }
        Self { seen, threads }
    }

    /// Ends the clients; what they sent before still gets its reply.
    pub(super) fn finish(self) -> Arc<Seen> {
        self.seen.stop.store(true, Ordering::SeqCst);
        for thread in self.threads {
            let _ = thread.join();
        }
        self.seen
    }
}

impl Seen {
    fn new(writers: usize) -> Self {
        let keys = || std::array::from_fn(|_| AtomicU64::new(0));
        Self {
            stop: AtomicBool::new(false),
            homeward: AtomicU64::new(0),
            started: Instant::now(),
            numbers: (0..writers).map(|_| keys()).collect(),
            acknowledged: AtomicU64::new(0),
            last_us: AtomicU64::new(0),
            checked: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            doubtful: Mutex::default(),
            windows: Mutex::default(),
            failure: Mutex::default(),
        }
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    pub(super) fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::SeqCst)
    }

    pub(super) fn checked(&self) -> u64 {
        self.checked.load(Ordering::SeqCst)
    }

    /// Returns the number of reads that missed an acknowledged write.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::SeqCst)
    }

    pub(super) fn doubtful(&self) -> u64 {
        lock(&self.doubtful).len() as u64
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Something is back: clients that left it go back to it, each to a node of its own.
    pub(super) fn go_home(&self) {
        self.homeward.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns the current figures.
    pub(super) fn figures(&self) -> Figures {
        let now = self.now_us();
        let mut windows = lock(&self.windows);
        windows.go_to(now / 1000 / WINDOW_MS);
        let (per_second, p50_us, p99_us) = windows.present();
        let last = self.last_us.load(Ordering::SeqCst);
        Figures {
            acknowledged: self.acknowledged(),
            checked: self.checked(),
            lost: self.lost(),
            doubtful: lock(&self.doubtful).len(),
            silent_ms: now.saturating_sub(last) / 1000,
            per_second,
            p50_us,
            p99_us,
            window_ms: WINDOW_MS,
            window: windows.open,
            points: windows.points.iter().copied().collect(),
        }
    }

    /// Runs an action that fails or restores something, and measures the interruption of writes
    /// from then on.
    pub(super) fn while_failing<T>(&self, fail: impl FnOnce() -> T) -> T {
        let from_us = self.now_us();
        let result = fail();
        *lock(&self.failure) = Some(Failure { from_us, done_us: self.now_us(), first_us: None });
        result
    }

    /// Returns the length of the interruption; once only.
    pub(super) fn stood_still(&self) -> Option<Duration> {
        let mut failure = lock(&self.failure);
        let first = failure.as_ref()?.first_us?;
        let from = failure.take()?.from_us;
        Some(Duration::from_micros(first.saturating_sub(from)))
    }

    fn acknowledge(&self, writer: usize, number: u64, sent_us: u64) {
        let now = self.now_us();
        if let Some(key) = self.numbers.get(writer).map(|keys| &keys[key_of(number)]) {
            key.store(number, Ordering::SeqCst);
        }
        self.acknowledged.fetch_add(1, Ordering::SeqCst);
        self.last_us.fetch_max(now, Ordering::SeqCst);
        let window = now / 1000 / WINDOW_MS;
        lock(&self.windows).push(window, now.saturating_sub(sent_us));
        if let Some(failure) = &mut *lock(&self.failure)
            && sent_us >= failure.done_us
        {
            failure.first_us.get_or_insert(now);
        }
    }

    /// Records a write of unknown outcome, which was not acknowledged.
    fn doubt(&self, writer: usize, number: u64) {
        let mut doubtful = lock(&self.doubtful);
        if doubtful.len() < DOUBTFUL_MAX {
            doubtful.insert((writer, number));
        }
    }

    /// Returns whether a value is the acknowledged one or newer.
    fn is_kept(&self, writer: usize, acknowledged: u64, value: Option<&[u8]>) -> bool {
        let found =
            value.and_then(|value| std::str::from_utf8(value).ok()?.parse().ok()).unwrap_or(0);
        found >= acknowledged || lock(&self.doubtful).contains(&(writer, found))
    }

    /// Counts the keys that a node does not have as they were acknowledged. `stale`: from its own
    /// state, without asking the leader. The writers have ended.
    pub(super) fn missing(&self, address: &str, stale: bool) -> Result<u64, Error> {
        let options = Options { stale_reads: stale, ..Options::default() };
        let mut client = Client::new(&[address], options);
        let mut missing = 0;
        for (writer, numbers) in self.numbers.iter().enumerate() {
            let keys: Vec<String> = (0..KEYS).map(|key| name(writer, key)).collect();
            let mut question: Vec<&[u8]> = vec![b"MGET"];
            question.extend(keys.iter().map(String::as_bytes));
            let Reply::Array(values) = client.ask(&question)? else {
                return Err(Error::Refused("MGET did not answer with a list".to_owned()));
            };
            for (key, number) in numbers.iter().enumerate() {
                let value = values.get(key).and_then(Reply::bytes);
                let kept = self.is_kept(writer, number.load(Ordering::SeqCst), value);
                missing += u64::from(!kept);
            }
        }
        Ok(missing)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn key_of(number: u64) -> usize {
    usize::try_from(number % KEYS as u64).unwrap_or(0)
}

fn name(writer: usize, key: usize) -> String {
    format!("{PREFIX}{writer}:{key}")
}

fn options() -> Options {
    Options {
        deadline: DEADLINE,
        attempt: ATTEMPT,
        backoff_max: Duration::from_millis(20),
        ..Options::default()
    }
}

fn write(writer: usize, addresses: &[String], seen: &Seen) {
    let mut client = Client::new(addresses, options());
    let (mut number, mut gone_home) = (0_u64, 0);
    while !seen.is_over() {
        number += 1;
        let homeward = seen.homeward.load(Ordering::SeqCst);
        if homeward != gone_home {
            (client, gone_home) = (Client::new(addresses, options()), homeward);
        }
        let (key, value) = (name(writer, key_of(number)), number.to_string());
        let sent_us = seen.now_us();
        match client.run(&[b"SET", key.as_bytes(), value.as_bytes()]) {
            Ok(_) => seen.acknowledge(writer, number, sent_us),
            Err(_) => {
                seen.doubt(writer, number);
                thread::sleep(REST);
            }
        }
    }
}

/// Reads what was acknowledged, a key after the other.
fn read(addresses: &[String], seen: &Seen) {
    let mut client = Client::new(addresses, options());
    let all = seen.numbers.len() * KEYS;
    for at in (0..all).cycle() {
        if seen.is_over() {
            return;
        }
        thread::sleep(LOOK);
        let (writer, key) = (at % seen.numbers.len(), at / seen.numbers.len());
        let acknowledged = seen.numbers[writer][key].load(Ordering::SeqCst);
        if acknowledged == 0 {
            continue;
        }
        let Ok(reply) = client.ask(&[b"GET", name(writer, key).as_bytes()]) else {
            continue;
        };
        if !seen.is_kept(writer, acknowledged, reply.bytes()) {
            seen.lost.fetch_add(1, Ordering::SeqCst);
        }
        seen.checked.fetch_add(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_is_kept_in_windows() {
        let mut windows = Windows::default();
        for time in [30, 10, 20] {
            windows.push(0, time);
        }
        windows.push(2, 5);
        windows.go_to(3);
        let point = |writes, p50_us, p99_us| Point { writes, p50_us, p99_us };
        let expected =
            [point(3, Some(20), Some(20)), point(0, None, None), point(1, Some(5), Some(5))];
        assert_eq!(windows.points, expected);
        // Four writes in a second and a half.
        assert_eq!(windows.present(), (2, 10, 20));
        windows.go_to(10_000_000);
        assert_eq!((windows.points.len(), windows.open), (WINDOWS, 10_000_000));
        assert_eq!(windows.present(), (0, 0, 0));
    }

    #[test]
    fn an_older_value_is_a_loss_and_a_doubtful_one_is_not() {
        let seen = Seen::new(2);
        seen.acknowledge(1, 70, 0);
        assert_eq!(seen.acknowledged(), 1);
        for (value, kept) in [
            (Some(&b"70"[..]), true),
            (Some(b"134"), true),
            (Some(b"6"), false),
            (Some(b"x"), false),
            (None, false),
        ] {
            assert_eq!(seen.is_kept(1, 70, value), kept, "{value:?}");
        }
        seen.doubt(1, 6);
        assert!(seen.is_kept(1, 70, Some(b"6")), "executed late");
        assert!(!seen.is_kept(0, 70, Some(b"6")), "another writer's");
        assert!(seen.is_kept(0, 0, None), "nothing was promised");
    }

    /// The interruption lasts from the beginning of the failure to the first write that was sent
    /// after it.
    #[test]
    fn what_was_sent_before_a_failure_says_nothing_of_it() {
        let seen = Seen::new(1);
        assert_eq!(seen.while_failing(|| 7), 7);
        let failure = Failure { from_us: 0, done_us: 1000, first_us: None };
        *lock(&seen.failure) = Some(failure);
        seen.acknowledge(0, 1, 999);
        assert_eq!(seen.stood_still(), None);
        seen.acknowledge(0, 2, 1000);
        assert!(seen.stood_still().is_some());
        assert_eq!(seen.stood_still(), None, "said once");
    }
}
