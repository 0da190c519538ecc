//! Measurements of one setting while it is in force.
//!
//! Only batches formed under the setting count, and time runs from the end of the first of them, so
//! that batches left in flight by the previous setting do not distort the result.

use crate::{setting::Setting, time::Moment};

/// Minimum length of an epoch after its first batch, in nanoseconds.
const EPOCH_NS_MIN: u64 = 12_000_000;
/// Bounds for an epoch's length as multiples of a batch's duration; within them it lasts
/// `EPOCH_NS_TARGET`. Batches that circulate together make the throughput of a few of them uneven,
/// but if a batch takes a long time, a few must be enough.
const EPOCH_DURATIONS: (f64, f64) = (3.0, 16.0);
const EPOCH_NS_TARGET: f64 = 60e6;
/// Minimum number of commands in an epoch with a latency goal, unless it has lasted
/// `PERCENTILE_NS_MAX`. With fewer commands, the 99th percentile is the maximum.
const PERCENTILE_COMMANDS_MIN: u64 = 200;
const PERCENTILE_NS_MAX: u64 = 250_000_000;
/// Fraction of turns that end with commands waiting for space in the window, above which the
/// setting counts as delaying them.
const BLOCKED_TURNS_MAX: f64 = 0.1;
/// Binary logarithm of the number of buckets per octave in the histogram of latencies. The
/// histogram starts at about a microsecond.
const BUCKETS_PER_OCTAVE_BITS: u32 = 3;
const BUCKETS_PER_OCTAVE: u64 = 1 << BUCKETS_PER_OCTAVE_BITS;
/// Binary logarithm of the bucket width in the first octave, in nanoseconds.
const FIRST_BUCKET_BITS: u32 = 7;
const BUCKETS: usize = 256;

/// A batch that has been applied on this node and whose clients have received their replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletedBatch {
    /// Time at which the first command of the batch was accepted.
    pub first_accepted_at: Moment,
    /// Time at which the last command of the batch was accepted.
    pub last_accepted_at: Moment,
    pub formed_at: Moment,
    pub commands: u32,
    pub bytes: usize,
}

/// Measurements of one complete epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct EpochScore {
    /// Throughput in commands per second.
    pub(crate) commands_per_s: f64,
    /// Mean time from acceptance to reply, in nanoseconds.
    pub(crate) latency_ns: f64,
    /// 99th percentile of the time from acceptance to reply, in nanoseconds.
    pub(crate) p99_ns: f64,
    /// Mean time from forming a batch to its completion, in nanoseconds.
    pub(crate) batch_duration_ns: f64,
    /// Size of the largest batch in bytes.
    pub(crate) batch_bytes_max: usize,
    /// Fraction of batches without room for one more command.
    pub(crate) full_fraction: f64,
    /// Fraction of turns that ended with commands waiting for space in the window.
    pub(crate) blocked_fraction: f64,
    /// Maximum number of batches in flight.
    pub(crate) in_flight_max: usize,
}

impl EpochScore {
    /// Returns whether commands wait for space in the window.
    pub(crate) fn is_holding_up(&self) -> bool {
        self.blocked_fraction >= BLOCKED_TURNS_MAX
    }

    /// Returns whether commands wait much longer than their batches take, so that their queue
    /// grows.
    pub(crate) fn is_piling_up(&self) -> bool {
        self.latency_ns > 3.0 * self.batch_duration_ns
    }
}

/// A period under one setting, and its measurements.
#[derive(Clone, Debug)]
pub(crate) struct Epoch {
    setting: Setting,
    pub(crate) started_at: Moment,
    /// End of the settling time, in which commands gathered under the previous setting still
    /// circulate.
    settled_at: Moment,
    /// Factor by which this epoch is longer than usual.
    length_factor: f64,
    /// The 99th percentile is the goal, so the epoch must be long enough to measure it.
    for_percentile: bool,
    first: Option<Moment>,
    last: Moment,
    commands: u64,
    batches: u64,
    latency: f64,
    batch_durations: f64,
    bytes_most: usize,
    full_batches: u64,
    has_full_batch: bool,
    turns: u64,
    blocked_turns: u64,
    in_flight_most: usize,
    latency_counts: Box<[u32; BUCKETS]>,
}

impl Epoch {
    pub(crate) fn new(setting: Setting, since: Moment) -> Self {
        Self {
            setting,
            started_at: since,
            settled_at: since,
            length_factor: 1.0,
            for_percentile: false,
            first: None,
            last: since,
            commands: 0,
            batches: 0,
            latency: 0.0,
            batch_durations: 0.0,
            bytes_most: 0,
            full_batches: 0,
            has_full_batch: false,
            turns: 0,
            blocked_turns: 0,
            in_flight_most: 0,
            latency_counts: Box::new([0; BUCKETS]),
        }
    }

    /// Restarts the epoch under a setting, without allocating again.
    pub(crate) fn restart(&mut self, setting: Setting, since: Moment) {
        self.setting = setting;
        self.started_at = since;
        self.settled_at = since;
        self.first = None;
        self.last = since;
        (self.commands, self.batches) = (0, 0);
        (self.latency, self.batch_durations) = (0.0, 0.0);
        (self.bytes_most, self.full_batches) = (0, 0);
        (self.turns, self.blocked_turns) = (0, 0);
        self.in_flight_most = 0;
        self.has_full_batch = false;
        self.latency_counts.fill(0);
    }

    /// Lengthens this epoch and later ones, so that noise evens out.
    pub(crate) fn lengthen(&mut self, times: f64) {
        self.length_factor = times;
    }

    /// Makes this epoch and later ones long enough for a meaningful 99th percentile.
    pub(crate) fn require_percentile(&mut self) {
        self.for_percentile = true;
    }

    pub(crate) fn ignore_until(&mut self, until: Moment) {
        self.settled_at = until;
    }

    pub(crate) fn on_turn(&mut self, waiting: usize, in_flight: usize) {
        if self.first.is_none() {
            return;
        }
        self.turns += 1;
        let blocked = waiting > 0 && in_flight >= self.setting.window;
        self.blocked_turns += u64::from(blocked);
        self.in_flight_most = self.in_flight_most.max(in_flight);
    }

    pub(crate) fn on_done(&mut self, now: Moment, done: &CompletedBatch) {
        if done.formed_at < self.started_at || done.commands == 0 {
            return;
        }
        let command = done.bytes / done.commands as usize;
        let full = done.bytes + command > self.setting.batch_bytes;
        self.has_full_batch |= full;
        if self.first.is_none() {
            if now < self.settled_at {
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
        self.batch_durations += now.since(done.formed_at) as f64;
        self.bytes_most = self.bytes_most.max(done.bytes);
        self.full_batches += u64::from(full);
        let (oldest, youngest) =
            (now.since(done.first_accepted_at), now.since(done.last_accepted_at));
        self.latency += (oldest + youngest) as f64 * 0.5 * commands;
        // Acceptance times are assumed to be evenly spread between the first and the last.
        let quarter = done.commands / 4;
        let rest = done.commands - 3 * quarter;
        let third = oldest.saturating_sub(youngest) / 3;
        for (step, count) in (0..).zip([rest, quarter, quarter, quarter]) {
            let cell = &mut self.latency_counts[bucket_of(oldest - step * third)];
            *cell = cell.saturating_add(count);
        }
    }

    /// Returns the time measured so far, in nanoseconds.
    fn elapsed_ns(&self) -> u64 {
        self.first.map_or(0, |first| self.last.since(first))
    }

    pub(crate) fn is_complete(&self) -> bool {
        let span = self.elapsed_ns();
        if self.batches < 2 || (span as f64) < EPOCH_NS_MIN as f64 * self.length_factor {
            return false;
        }
        let few = self.for_percentile && self.commands < PERCENTILE_COMMANDS_MIN;
        if few && span < PERCENTILE_NS_MAX {
            return false;
        }
        let wall = self.batch_durations / self.batches as f64;
        let walls = (EPOCH_NS_TARGET / wall.max(1.0)).clamp(EPOCH_DURATIONS.0, EPOCH_DURATIONS.1);
        span as f64 >= walls * wall
    }

    /// Returns whether it is already clear that the epoch will miss `rate` by a wide margin.
    pub(crate) fn cannot_reach(&self, now: Moment, rate: f64, wall_ns: f64) -> bool {
        let patience = (wall_ns * 3.0).max(30e6);
        if self.first.is_none() {
            return now.since(self.started_at) as f64 > patience;
        }
        let stuck = now.since(self.last) as f64 > patience;
        let wall = self.batch_durations / self.batches.max(1) as f64;
        let seen = self.batches >= 4 && self.elapsed_ns() as f64 > wall.max(3e6) * 1.2;
        stuck || (seen && self.rate() < rate * 0.6)
    }

    /// Returns whether this setting makes commands wait that did not wait under `base`. If a fixed
    /// number of clients waits three times as long, only a third of the commands gets through. With
    /// an open load, commands queue up during the trial and wait even after it.
    pub(crate) fn adds_waiting(&self, base: &EpochScore) -> bool {
        let latency = self.latency / self.commands.max(1) as f64;
        self.batches >= 4 && !base.is_holding_up() && latency > base.latency_ns * 3.0
    }

    /// Returns whether any batch reached the maximum batch size.
    pub(crate) fn has_full_size_batch(&self) -> bool {
        self.has_full_batch
    }

    fn rate(&self) -> f64 {
        self.commands as f64 * 1e9 / self.elapsed_ns().max(1) as f64
    }

    pub(crate) fn score(&self) -> EpochScore {
        let batches = self.batches.max(1) as f64;
        EpochScore {
            commands_per_s: self.rate(),
            latency_ns: self.latency / self.commands.max(1) as f64,
            p99_ns: self.percentile(0.99),
            batch_duration_ns: self.batch_durations / batches,
            batch_bytes_max: self.bytes_most,
            full_fraction: self.full_batches as f64 / batches,
            blocked_fraction: self.blocked_turns as f64 / self.turns.max(1) as f64,
            in_flight_max: self.in_flight_most,
        }
    }

    fn percentile(&self, part: f64) -> f64 {
        let total: u64 = self.latency_counts.iter().map(|&count| u64::from(count)).sum();
        let mut left = total as f64 * part;
        for (number, &count) in self.latency_counts.iter().enumerate() {
            left -= f64::from(count);
            if left <= 0.0 {
                return bucket_upper_edge(number);
            }
        }
        0.0
    }
}

/// Returns the histogram bucket of a latency from its leading bits. This runs for every batch, and
/// logarithms would cost more than everything else.
fn bucket_of(ns: u64) -> usize {
    let eighths = (ns >> FIRST_BUCKET_BITS).max(BUCKETS_PER_OCTAVE);
    let octave = eighths.ilog2() - BUCKETS_PER_OCTAVE_BITS;
    let eighth = (eighths >> octave) - BUCKETS_PER_OCTAVE;
    (octave as usize * BUCKETS_PER_OCTAVE as usize + eighth as usize).min(BUCKETS - 1)
}

/// Returns the lower edge of the next bucket, in nanoseconds.
fn bucket_upper_edge(bucket: usize) -> f64 {
    let (octave, eighth) = (bucket as u64 / BUCKETS_PER_OCTAVE, bucket as u64 % BUCKETS_PER_OCTAVE);
    (((BUCKETS_PER_OCTAVE + eighth + 1) << octave) << FIRST_BUCKET_BITS) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_contain_their_values_and_span_at_most_an_eighth() {
        assert_eq!((bucket_of(0), bucket_of(1023), bucket_of(1152)), (0, 0, 1));
        let mut ns = 1024u64;
        while ns < 1 << 41 {
            let number = bucket_of(ns);
            let from = number.checked_sub(1).map_or(1024.0, bucket_upper_edge);
            let to = bucket_upper_edge(number);
            let value = ns as f64;
            assert!(from <= value && value < to, "{ns}: {from} to {to}");
            assert!(to <= from * 1.125 + 0.5, "{ns}: {from} to {to}");
            ns += ns / 37 + 1;
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }
}
