//! SETs of one node: as many as it accepts, or at a given rate.

use std::{
    collections::VecDeque,
    io::{Read as _, Write as _},
    net::TcpStream,
    ops::Range,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use quorate_core::dice::Dice;

use super::float;
use crate::shell::Failed;

/// Bytes of a value.
pub(super) const VALUE: usize = 1024;
const PATIENCE: Duration = Duration::from_secs(60);
const REPLY: &[u8] = b"+OK\r\n";
const OUTSTANDING: u64 = 256;

fn request(key: u64, out: &mut Vec<u8>) {
    let head = format!("*3\r\n$3\r\nSET\r\n$16\r\n{key:016}\r\n${VALUE}\r\n");
    out.extend_from_slice(head.as_bytes());
    out.resize(out.len() + VALUE, b'a' + (key % 26) as u8);
    out.extend_from_slice(b"\r\n");
}

/// A connection, and its replies.
struct Replies {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// Bytes of the reply that has not come as a whole.
    begun: usize,
}

impl Replies {
    fn of(stream: TcpStream) -> Self {
        Self { stream, buffer: vec![0; 64 << 10], begun: 0 }
    }

    /// Reads replies and returns their number; each must report success.
    fn read(&mut self) -> Result<u64, Failed> {
        let count = self.stream.read(&mut self.buffer)?;
        let read = &self.buffer[..count];
        let expected = REPLY.iter().cycle().skip(self.begun);
        if count == 0 || !read.iter().eq(expected.take(count)) {
            let said = String::from_utf8_lossy(&read[..count.min(200)]);
            return Err(Failed(format!("a write was not done: {said:?}")));
        }
        let bytes = self.begun + count;
        self.begun = bytes % REPLY.len();
        Ok((bytes / REPLY.len()) as u64)
    }
}

fn connect(address: &str) -> Result<TcpStream, Failed> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Writes these keys, one after the other, a fixed number outstanding. Returns the rate per second.
pub(super) fn fill(address: &str, keys: Range<u64>) -> Result<f64, Failed> {
    let (end, mut next) = (keys.end, keys.start);
    let mut key = move || {
        next += 1;
        (next <= end).then_some(next - 1)
    };
    closed(address, f64::INFINITY, &mut key)
}

/// Writes any of `keys` keys until stopped, at most `rate` per second. Returns the rate per second.
pub(super) fn until(
    address: &str,
    keys: u64,
    rate: f64,
    seed: u64,
    stop: &AtomicBool,
) -> Result<f64, Failed> {
    let mut dice = Dice::new(seed);
    let mut key = || (!stop.load(Ordering::Relaxed)).then(|| dice.below(keys));
    closed(address, rate, &mut key)
}

fn closed(address: &str, rate: f64, key: &mut dyn FnMut() -> Option<u64>) -> Result<f64, Failed> {
    let mut replies = Replies::of(connect(address)?);
    let began = Instant::now();
    let (mut open, mut done, mut ended) = (0, 0, false);
    let mut out = Vec::new();
    loop {
        out.clear();
        let elapsed = began.elapsed().as_secs_f64();
        let may = |sent| float(sent) <= rate * elapsed;
        while !ended && open < OUTSTANDING && may(done + open) {
            match key() {
                Some(key) => {
                    request(key, &mut out);
                    open += 1;
                }
                None => ended = true,
            }
        }
        replies.stream.write_all(&out)?;
        if open == 0 && ended {
            return Ok(float(done) / began.elapsed().as_secs_f64());
        }
        if open == 0 {
            thread::sleep(Duration::from_micros(100));
            continue;
        }
        let answered = replies.read()?;
        open -= answered;
        done += answered;
    }
}

/// Writes any of `keys` keys, `outstanding` at a time, until stopped; reports the latency of each
/// reply.
pub(super) fn steadily(
    address: &str,
    keys: u64,
    outstanding: usize,
    seed: u64,
    stop: &AtomicBool,
    on_reply: &mut dyn FnMut(Duration),
) -> Result<(), Failed> {
    let mut replies = Replies::of(connect(address)?);
    let mut dice = Dice::new(seed);
    let mut sent: VecDeque<Instant> = VecDeque::new();
    let mut out = Vec::new();
    while !stop.load(Ordering::Relaxed) || !sent.is_empty() {
        out.clear();
        while !stop.load(Ordering::Relaxed) && sent.len() < outstanding {
            request(dice.below(keys), &mut out);
            sent.push_back(Instant::now());
        }
        replies.stream.write_all(&out)?;
        let answered = replies.read()?;
        let now = Instant::now();
        for at in sent.drain(..(answered as usize).min(sent.len())) {
            on_reply(now - at);
        }
    }
    Ok(())
}

/// Latencies of a load at fixed moments.
pub(super) struct Latencies {
    /// Latencies from the moment at which a command was meant to be sent to its reply; in order.
    sorted_us: Vec<f64>,
    /// The longest time by which one was sent late.
    pub(super) late_ms: f64,
}

impl Latencies {
    /// Returns the smallest that `part` of a thousand do not exceed.
    pub(super) fn per_mille(&self, part: usize) -> f64 {
        let at = self.sorted_us.len() * part / 1000;
        self.sorted_us.get(at).copied().unwrap_or(f64::NAN)
    }
}

/// Writes any of `keys` keys, `rate` per second whatever becomes of them, for `time`.
pub(super) fn paced(
    address: &str,
    keys: u64,
    seed: u64,
    rate: u32,
    time: Duration,
) -> Result<Latencies, Failed> {
    let stream = connect(address)?;
    let mut replies = Replies::of(stream.try_clone()?);
    let count = u64::from(rate) * time.as_secs();
    let began = Instant::now();
    let due = move |number: u64| began + Duration::from_secs(1) * number as u32 / rate;
    let sender = thread::spawn(move || send(stream, count, due, Dice::new(seed), keys));
    let mut latencies = Vec::new();
    while (latencies.len() as u64) < count {
        let answered = replies.read()?;
        let now = Instant::now();
        for _ in 0..answered {
            let meant = due(latencies.len() as u64);
            latencies.push((now - meant).as_secs_f64() * 1e6);
        }
    }
    let late = sender.join().expect("the sender does not panic")?;
    latencies.sort_by(f64::total_cmp);
    Ok(Latencies { sorted_us: latencies, late_ms: late.as_secs_f64() * 1e3 })
}

fn send(
    mut stream: TcpStream,
    count: u64,
    due: impl Fn(u64) -> Instant,
    mut dice: Dice,
    keys: u64,
) -> Result<Duration, Failed> {
    let (mut sent, mut late) = (0, Duration::ZERO);
    let mut out = Vec::new();
    while sent < count {
        let now = Instant::now();
        out.clear();
        late = late.max(now.saturating_duration_since(due(sent)));
        while sent < count && due(sent) <= now {
            request(dice.below(keys), &mut out);
            sent += 1;
        }
        stream.write_all(&out)?;
        thread::sleep(due(sent).saturating_duration_since(Instant::now()));
    }
    Ok(late)
}
