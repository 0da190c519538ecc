//! Measurements of one setting while it is in force.
//!
//! Only batches formed under the setting count, and time runs from the end of the first of them, so
//! that batches left in flight by the previous setting do not distort the result.

use crate::{setting::Setting, time::Moment};

/// Minimum length of an epoch after its first batch, in nanoseconds.
const LEAST_NS: u64 = 12_000_000;
/// Bounds for an epoch's length as multiples of a batch's duration; within them it lasts
/// `WALLS_NS`. Batches that circulate together make the throughput of a few of them uneven, but if
/// a batch takes a long time, a few must be enough.
const WALLS: (f64, f64) = (3.0, 16.0);
const WALLS_NS: f64 = 60e6;
/// Minimum number of commands in an epoch with a latency goal, unless it has lasted
/// `PERCENTILE_NS`. With fewer commands, the 99th percentile is the maximum.
const COMMANDS_OF_PERCENTILE: u64 = 200;
const PERCENTILE_NS: u64 = 250_000_000;
/// Fraction of turns that end with commands waiting for space in the window, above which the
/// setting counts as delaying them.
const HELD_UP: f64 = 0.1;
/// Binary logarithm of the number of buckets per octave in the histogram of latencies. The
/// histogram starts at about a microsecond.
const EIGHTHS_BITS: u32 = 3;
const EIGHTHS: u64 = 1 << EIGHTHS_BITS;
/// Binary logarithm of the bucket width in the first octave, in nanoseconds.
const FINEST_BITS: u32 = 7;
const BUCKETS: usize = 256;

/// A batch that has been applied on this node and whose clients have received their replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Time at which the first command of the batch was accepted.
    pub accepted_first: Moment,
    /// Time at which the last command of the batch was accepted.
    pub accepted_last: Moment,
    pub formed: Moment,
    pub commands: u32,
    pub bytes: usize,
}

/// Measurements of one complete epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Score {
    /// Throughput in commands per second.
    pub(crate) rate: f64,
    /// Mean time from acceptance to reply, in nanoseconds.
    pub(crate) latency_ns: f64,
    /// 99th percentile of the time from acceptance to reply, in nanoseconds.
    pub(crate) p99_ns: f64,
    /// Mean time from forming a batch to its completion, in nanoseconds.
    pub(crate) wall_ns: f64,
    /// Size of the largest batch in bytes.
    pub(crate) bytes_most: usize,
    /// Fraction of batches without room for one more command.
    pub(crate) full: f64,
    /// Fraction of turns that ended with commands waiting for space in the window.
    pub(crate) blocked: f64,
    /// Maximum number of batches in flight.
    pub(crate) in_flight_most: usize,
}

impl Score {
    /// Returns whether commands wait for space in the window.
    pub(crate) fn holds_up(&self) -> bool {
        self.blocked >= HELD_UP
    }

    /// Returns whether commands wait much longer than their batches take, so that their queue
    /// grows.
    pub(crate) fn piles(&self) -> bool {
        self.latency_ns > 3.0 * self.wall_ns
    }
}

/// A period under one setting, and its measurements.
#[derive(Clone, Debug)]
pub(crate) struct Epoch {
    setting: Setting,
    pub(crate) since: Moment,
    /// End of the settling time, in which commands gathered under the previous setting still
    /// circulate.
    settles: Moment,
    /// Factor by which this epoch is longer than usual.
    stretch: f64,
    /// The 99th percentile is the goal, so the epoch must be long enough to measure it.
    percentile: bool,
    first: Option<Moment>,
    last: Moment,
    commands: u64,
    batches: u64,
    latency: f64,
    wall: f64,
    bytes_most: usize,
    full: u64,
    full_ever: bool,
    turns: u64,
    blocked: u64,
    in_flight_most: usize,
    latencies: Box<[u32; BUCKETS]>,
}

impl Epoch {
    pub(crate) fn new(setting: Setting, since: Moment) -> Self {
        Self {
            setting,
            since,
            settles: since,
            stretch: 1.0,
            percentile: false,
            first: None,
            last: since,
            commands: 0,
            batches: 0,
            latency: 0.0,
            wall: 0.0,
            bytes_most: 0,
            full: 0,
            full_ever: false,
            turns: 0,
            blocked: 0,
            in_flight_most: 0,
            latencies: Box::new([0; BUCKETS]),
        }
    }

    /// Restarts the epoch under a setting, without allocating again.
    pub(crate) fn restart(&mut self, setting: Setting, since: Moment) {
        self.setting = setting;
        self.since = since;
        self.settles = since;
        self.first = None;
        self.last = since;
        (self.commands, self.batches) = (0, 0);
        (self.latency, self.wall) = (0.0, 0.0);
        (self.bytes_most, self.full) = (0, 0);
        (self.turns, self.blocked) = (0, 0);
        self.in_flight_most = 0;
        self.full_ever = false;
        self.latencies.fill(0);
    }

    /// Lengthens this epoch and later ones, so that noise evens out.
    pub(crate) fn stretch(&mut self, times: f64) {
        self.stretch = times;
    }

    /// Makes this epoch and later ones long enough for a meaningful 99th percentile.
    pub(crate) fn last_for_percentile(&mut self) {
        self.percentile = true;
    }

    pub(crate) fn ignore_until(&mut self, until: Moment) {
        self.settles = until;
    }

    pub(crate) fn on_turn(&mut self, waiting: usize, in_flight: usize) {
        if self.first.is_none() {
            return;
        }
        self.turns += 1;
        let blocked = waiting > 0 && in_flight >= self.setting.window;
        self.blocked += u64::from(blocked);
        self.in_flight_most = self.in_flight_most.max(in_flight);
    }

    pub(crate) fn on_done(&mut self, now: Moment, done: &Done) {
        if done.formed < self.since || done.commands == 0 {
            return;
        }
        let command = done.bytes / done.commands as usize;
        let full = done.bytes + command > self.setting.batch_bytes;
        self.full_ever |= full;
        if self.first.is_none() {
            if now < self.settles {
                return;
            }
            self.first = Some(now);
            self.last = now;
            return;
        }
        self.last = now;
        let commands = f64::from(done.commands);
        self.commands += u64::from(done.commands);
        self.batches += 1;
        self.wall += now.since(done.formed) as f64;
        self.bytes_most = self.bytes_most.max(done.bytes);
        self.full += u64::from(full);
        let (oldest, youngest) = (now.since(done.accepted_first), now.since(done.accepted_last));
        self.latency += (oldest + youngest) as f64 * 0.5 * commands;
        // Acceptance times are assumed to be evenly spread between the first and the last.
        let quarter = done.commands / 4;
        let rest = done.commands - 3 * quarter;
        let third = oldest.saturating_sub(youngest) / 3;
        for (step, count) in (0..).zip([rest, quarter, quarter, quarter]) {
            let cell = &mut self.latencies[bucket(oldest - step * third)];
            *cell = cell.saturating_add(count);
        }
    }

    /// Returns the time measured so far, in nanoseconds.
    fn span_ns(&self) -> u64 {
        self.first.map_or(0, |first| self.last.since(first))
    }

    pub(crate) fn is_complete(&self) -> bool {
        let span = self.span_ns();
        if self.batches < 2 || (span as f64) < LEAST_NS as f64 * self.stretch {
            return false;
        }
        let few = self.percentile && self.commands < COMMANDS_OF_PERCENTILE;
        if few && span < PERCENTILE_NS {
            return false;
        }
        let wall = self.wall / self.batches as f64;
        let walls = (WALLS_NS / wall.max(1.0)).clamp(WALLS.0, WALLS.1);
        span as f64 >= walls * wall
    }

    /// Returns whether it is already clear that the epoch will miss `rate` by a wide margin.
    pub(crate) fn is_hopeless(&self, now: Moment, rate: f64, wall_ns: f64) -> bool {
        let patience = (wall_ns * 3.0).max(30e6);
        if self.first.is_none() {
            return now.since(self.since) as f64 > patience;
        }
        let stuck = now.since(self.last) as f64 > patience;
        let wall = self.wall / self.batches.max(1) as f64;
        let seen = self.batches >= 4 && self.span_ns() as f64 > wall.max(3e6) * 1.2;
        stuck || (seen && self.rate() < rate * 0.6)
    }

    /// Returns whether this setting makes commands wait that did not wait under `base`. If a fixed
    /// number of clients waits three times as long, only a third of the commands gets through. With
    /// an open load, commands queue up during the trial and wait even after it.
    pub(crate) fn makes_wait(&self, base: &Score) -> bool {
        let latency = self.latency / self.commands.max(1) as f64;
        self.batches >= 4 && !base.holds_up() && latency > base.latency_ns * 3.0
    }

    /// Returns whether any batch reached the maximum batch size.
    pub(crate) fn is_split(&self) -> bool {
        self.full_ever
    }

    fn rate(&self) -> f64 {
        self.commands as f64 * 1e9 / self.span_ns().max(1) as f64
    }

    pub(crate) fn score(&self) -> Score {
        let batches = self.batches.max(1) as f64;
        Score {
            rate: self.rate(),
            latency_ns: self.latency / self.commands.max(1) as f64,
            p99_ns: self.percentile(0.99),
            wall_ns: self.wall / batches,
            bytes_most: self.bytes_most,
            full: self.full as f64 / batches,
            blocked: self.blocked as f64 / self.turns.max(1) as f64,
            in_flight_most: self.in_flight_most,
        }
    }

    fn percentile(&self, part: f64) -> f64 {
        let total: u64 = self.latencies.iter().map(|&count| u64::from(count)).sum();
        let mut left = total as f64 * part;
        for (number, &count) in self.latencies.iter().enumerate() {
            left -= f64::from(count);
            if left <= 0.0 {
                return upper_edge(number);
            }
        }
        0.0
    }
}

/// Returns the histogram bucket of a latency from its leading bits. This runs for every batch, and
/// logarithms would cost more than everything else.
fn bucket(ns: u64) -> usize {
    let eighths = (ns >> FINEST_BITS).max(EIGHTHS);
    let octave = eighths.ilog2() - EIGHTHS_BITS;
    let eighth = (eighths >> octave) - EIGHTHS;
    (octave as usize * EIGHTHS as usize + eighth as usize).min(BUCKETS - 1)
}

/// Returns the lower edge of the next bucket, in nanoseconds.
fn upper_edge(bucket: usize) -> f64 {
    let (octave, eighth) = (bucket as u64 / EIGHTHS, bucket as u64 % EIGHTHS);
    (((EIGHTHS + eighth + 1) << octave) << FINEST_BITS) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_contain_their_values_and_span_at_most_an_eighth() {
        assert_eq!((bucket(0), bucket(1023), bucket(1152)), (0, 0, 1));
        let mut ns = 1024u64;
        while ns < 1 << 41 {
            let number = bucket(ns);
            let from = number.checked_sub(1).map_or(1024.0, upper_edge);
            let to = upper_edge(number);
            let value = ns as f64;
            assert!(from <= value && value < to, "{ns}: {from} to {to}");
            assert!(to <= from * 1.125 + 0.5, "{ns}: {from} to {to}");
            ns += ns / 37 + 1;
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }
}
