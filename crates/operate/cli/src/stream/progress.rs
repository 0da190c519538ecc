//! How far a writer is, on standard error: a line that is redrawn on a terminal, else one now and then.

use std::{
    collections::VecDeque,
    io::{self, IsTerminal as _, Write as _},
    sync::mpsc::{RecvTimeoutError, Sender, channel},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use quorate_admin::units::bytes;
use quorate_client::stream::Watch;

/// Between two drawings on a terminal, and anywhere else.
const EVERY: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(10)];
/// The rate is that of so much time.
const SPAN: Duration = Duration::from_secs(3);
/// Of a bar.
const WIDTH: usize = 24;
/// Clears the line of a terminal.
pub(super) const CLEAR: &str = "\r\x1b[K";

/// Draws until it is dropped.
#[derive(Debug)]
pub(super) struct Progress {
    end: Option<Sender<()>>,
    drawing: Option<JoinHandle<()>>,
}

/// What is drawn.
#[derive(Clone, Copy, Debug)]
struct Sample {
    /// Where the first byte of this writer is.
    first: u64,
    durable: u64,
    written: u64,
    /// Where the last one will be, if that is known.
    end: Option<u64>,
    bytes_per_second: u64,
}

impl Progress {
    /// `end`: behind the last byte that will be written, if that is known.
    pub(super) fn start(watch: Watch, end: Option<u64>) -> io::Result<Self> {
        let terminal = io::stderr().is_terminal();
        let (sender, ended) = channel::<()>();
        let every = EVERY[usize::from(!terminal)];
        let draw = move || {
            let first = watch.progress().durable;
            let mut seen = VecDeque::from([(Instant::now(), first)]);
            while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                let now = watch.progress();
                let sample = Sample {
                    first,
                    durable: now.durable,
                    written: now.written,
                    end,
                    bytes_per_second: rate(&mut seen, now.durable),
                };
                show(&sample, terminal);
            }
            if terminal {
                let _ = io::stderr().write_all(CLEAR.as_bytes());
            }
        };
        let drawing = thread::Builder::new()
            .name("progress".to_owned())
            .spawn(draw)?;
        Ok(Self {
            end: Some(sender),
            drawing: Some(drawing),
        })
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(drawing) = self.drawing.take() {
            // It has nothing to say that matters.
            let _ = drawing.join();
        }
    }
}

fn rate(seen: &mut VecDeque<(Instant, u64)>, durable: u64) -> u64 {
    let now = Instant::now();
    seen.push_back((now, durable));
    while seen.len() > 2 && now.duration_since(seen[1].0) >= SPAN {
        seen.pop_front();
    }
    let (since, before) = seen[0];
    per_second(durable - before, now.duration_since(since))
}

pub(super) fn per_second(count: u64, time: Duration) -> u64 {
    let all = u128::from(count) * 1_000_000 / time.as_micros().max(1);
    u64::try_from(all).unwrap_or(u64::MAX)
}

fn show(sample: &Sample, terminal: bool) {
    let text = match terminal {
        true => format!("{CLEAR}{}", sample.line(true)),
        false => format!("{}\n", sample.line(false)),
    };
    let mut out = io::stderr().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

impl Sample {
    fn line(&self, terminal: bool) -> String {
        let mut line = String::new();
        if let Some(end) = self.end {
            let all = (end - self.first).max(1);
            let done = (self.durable - self.first).min(all);
            let part = |of: u64| {
                let part = u128::from(done) * u128::from(of) / u128::from(all);
                usize::try_from(part).expect("at most `of`")
            };
            if terminal {
                let full = part(WIDTH as u64);
                line.push_str(&format!("[{:-<WIDTH$}] ", "#".repeat(full)));
            }
            line.push_str(&format!("{} %, ", part(100)));
        }
        let rate = bytes(self.bytes_per_second);
        let lag = bytes(self.written - self.durable);
        line.push_str(&format!("{rate}/s, durable {}, lag {lag}", self.durable));
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_needs_a_length_and_a_terminal() {
        let mut sample = Sample {
            first: 1000,
            durable: 3000,
            written: 3512,
            end: Some(5000),
            bytes_per_second: 2 << 20,
        };
        let rest = "2 MiB/s, durable 3000, lag 512 B";
        assert_eq!(
            sample.line(true),
            format!("[############------------] 50 %, {rest}")
        );
        assert_eq!(sample.line(false), format!("50 %, {rest}"));
        sample.end = None;
        assert_eq!(sample.line(true), rest);
        // What was a file of 5000 bytes may be longer when it is read.
        (sample.end, sample.durable) = (Some(2000), 3000);
        assert!(sample.line(false).starts_with("100 %"));
    }

    #[test]
    fn rates_are_of_time() {
        assert_eq!(per_second(500, Duration::from_millis(250)), 2000);
        assert_eq!(per_second(500, Duration::ZERO), 500_000_000);
    }
}
