//! The channel to one peer: measures its round-trip time and its throughput.

use std::collections::VecDeque;

use crate::{
    fit::{Estimate, LINE_SAMPLES_MIN, LineFit},
    guard::InterruptionGuard,
    time::Moment,
};

/// Maximum number of recent batches stored per peer.
const RECENT_BATCHES_MAX: usize = 128;
/// Minimum length of a rate sample in nanoseconds. A sample lasts one round trip if that is longer.
const RATE_SAMPLE_NS_MIN: u64 = 20_000_000;
/// Number of rate samples before the rate is trusted. The first sample includes the delay of the
/// link.
const RATE_SAMPLES_MIN: u64 = 2;
/// Maximum number of stored heartbeats in flight.
const HEARTBEATS_MAX: usize = 64;
/// Minimum round trip in nanoseconds for which bytes in flight indicate a queue. With a shorter
/// round trip, they may be waiting for the disk.
const QUEUE_ROUND_TRIP_NS_MIN: f64 = 10e6;
/// Time after which a minimum expires, in nanoseconds.
const MINIMUM_EXPIRES_NS: u64 = 5_000_000_000;
/// Number of recent heartbeats that must all show a longer round trip before the minimum is
/// replaced.
const RECENT_ROUND_TRIPS: usize = 6;

/// Throughput of a channel, as measured by its votes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChannelThroughput {
    /// Throughput in bytes per second.
    pub(crate) bytes_per_s: f64,
    /// Number of bytes that have been sent and not voted for yet, except for one batch at either
    /// end.
    pub(crate) bytes_in_flight: f64,
    /// Number of rate samples behind the rate.
    pub(crate) samples: u64,
}

/// Measurements of the channel to one peer.
#[derive(Clone, Debug)]
pub(crate) struct Channel {
    /// Slot of each recent batch, and the total number of bytes sent up to the end of that batch.
    recent_batches: VecDeque<(u64, u64)>,
    bytes_sent: u64,
    bytes_acknowledged: u64,
    /// Heartbeats in flight: the time of sending, the mark, and the number of bytes in flight ahead
    /// of the heartbeat.
    heartbeats_in_flight: VecDeque<(Moment, u64, u64)>,
    round_trip_line: LineFit,
    /// Minimum round trip, that of a heartbeat without bytes ahead of it.
    min_round_trip: RecentMinimum,
    /// Recent round trips. If all of them are much longer than the minimum, the round-trip time has
    /// risen and the old minimum no longer counts.
    recent_round_trips: VecDeque<f64>,
    /// Start of the current rate sample, and the number of bytes acknowledged by then.
    rate_sample_start: Option<(Moment, u64)>,
    bytes_per_s: f64,
    /// Number of completed rate samples.
    rate_samples: u64,
    /// Size of the largest recent batch in bytes. The value decays over time.
    largest_batch_bytes: f64,
    /// Smoothed number of bytes in flight, except for one batch at either end.
    queued_bytes: f64,
}

impl Channel {
    pub(crate) fn new() -> Self {
        Self {
            recent_batches: VecDeque::with_capacity(RECENT_BATCHES_MAX),
            bytes_sent: 0,
            bytes_acknowledged: 0,
            heartbeats_in_flight: VecDeque::with_capacity(HEARTBEATS_MAX),
            round_trip_line: LineFit::new(0.96),
            min_round_trip: RecentMinimum::default(),
            recent_round_trips: VecDeque::with_capacity(RECENT_ROUND_TRIPS),
            rate_sample_start: None,
            bytes_per_s: 0.0,
            rate_samples: 0,
            largest_batch_bytes: 0.0,
            queued_bytes: 0.0,
        }
    }

    pub(crate) fn on_sent(&mut self, now: Moment, slot: u64, bytes: usize) {
        if self.recent_batches.back().is_some_and(|&(last, _)| last >= slot) {
            // The batch is being sent again after a loss, or by another leader, so start over.
            self.recent_batches.clear();
            self.bytes_acknowledged = self.bytes_sent;
        }
        if self.recent_batches.len() == RECENT_BATCHES_MAX {
            self.recent_batches.pop_front();
        }
        if self.rate_sample_start.is_none() {
            self.rate_sample_start = Some((now, self.bytes_acknowledged));
        }
        self.bytes_sent += bytes as u64;
        self.largest_batch_bytes = (bytes as f64).max(self.largest_batch_bytes * 0.9);
        self.recent_batches.push_back((slot, self.bytes_sent));
    }

    pub(crate) fn on_voted(&mut self, now: Moment, to: u64, guard: &InterruptionGuard) {
        while let Some((_, sent)) = self.recent_batches.pop_front_if(|(slot, _)| *slot < to) {
            self.bytes_acknowledged = sent;
        }
        let Some((from, bytes)) = self.rate_sample_start else {
            return;
        };
        // A sample spans at least one round trip, and enough time to include more than one vote.
        let least = self.min_round_trip.least().unwrap_or(0.0) as u64;
        if now.since(from) < least.max(RATE_SAMPLE_NS_MIN) {
            return;
        }
        if guard.is_uninterrupted(from, now) {
            self.update_rate(
                (self.bytes_acknowledged - bytes) as f64 * 1e9 / now.since(from) as f64,
            );
        }
        self.rate_sample_start = Some((now, self.bytes_acknowledged));
    }

    pub(crate) fn on_heartbeat_sent(&mut self, now: Moment, mark: u64) {
        if self.heartbeats_in_flight.len() == HEARTBEATS_MAX {
            self.heartbeats_in_flight.pop_front();
        }
        self.heartbeats_in_flight.push_back((now, mark, self.bytes_unacknowledged()));
    }

    pub(crate) fn on_heartbeat_reply(&mut self, now: Moment, mark: u64, guard: &InterruptionGuard) {
        // Replies arrive in order, so the replies to earlier heartbeats have been lost.
        while self.heartbeats_in_flight.pop_front_if(|asked| asked.1 < mark).is_some() {}
        let Some((at, _, ahead)) = self.heartbeats_in_flight.pop_front_if(|asked| asked.1 == mark)
        else {
            return;
        };
        if !guard.is_uninterrupted(at, now) {
            return;
        }
        let took = now.since(at) as f64;
        self.min_round_trip.add(now, took);
        if self.recent_round_trips.len() == RECENT_ROUND_TRIPS {
            self.recent_round_trips.pop_front();
        }
        self.recent_round_trips.push_back(took);
        self.round_trip_line.add(ahead as f64, took);
    }

    /// Returns the measured throughput; `None` before there are enough samples.
    pub(crate) fn throughput(&self) -> Option<ChannelThroughput> {
        (self.rate_samples >= RATE_SAMPLES_MIN).then(|| ChannelThroughput {
            bytes_per_s: self.bytes_per_s,
            bytes_in_flight: self.bytes_queued(),
            samples: self.rate_samples,
        })
    }

    fn bytes_unacknowledged(&self) -> u64 {
        self.bytes_sent - self.bytes_acknowledged
    }

    /// Updates the rate. Peaks decay slowly, because a lull does not make the channel slower.
    fn update_rate(&mut self, rate: f64) {
        self.bytes_per_s = rate.max(self.bytes_per_s * 0.93);
        self.rate_samples += 1;
        self.queued_bytes += 0.3 * (self.bytes_queued() - self.queued_bytes);
    }

    /// Returns the number of bytes queued in the channel. A batch at either end is not a queue,
    /// however large it is.
    fn bytes_queued(&self) -> f64 {
        (self.bytes_unacknowledged() as f64 - 2.0 * self.largest_batch_bytes).max(0.0)
    }

    /// Returns the minimum round trip in nanoseconds, and the number of samples behind it.
    pub(crate) fn round_trip(&self) -> Option<(f64, f64)> {
        let samples = self.min_round_trip.samples;
        let trip = self.current_round_trip().filter(|_| samples >= 1.0)?;
        Some((trip, samples))
    }

    fn current_round_trip(&self) -> Option<f64> {
        let least = self.min_round_trip.least()?;
        // All recent round trips are far above the old minimum, so the round trip has become
        // longer.
        let recent = self.recent_round_trips.iter().copied().fold(f64::INFINITY, f64::min);
        if self.recent_round_trips.len() == RECENT_ROUND_TRIPS
            && recent > least * 2.0
            && self.bandwidth_by_round_trips().is_none()
        {
            return Some(recent);
        }
        Some(least)
    }

    /// Returns the minimum of the recent round trips.
    fn min_recent_round_trip(&self) -> f64 {
        let trips = self.recent_round_trips.iter().copied();
        trips.fold(f64::INFINITY, f64::min)
    }

    /// Returns the bandwidth in bytes per second; `None` if it is unknown.
    pub(crate) fn bandwidth(&self, flush_ns: f64) -> Option<Estimate> {
        self.bandwidth_by_round_trips().or_else(|| self.bandwidth_by_queue(flush_ns))
    }

    /// Estimates the bandwidth from the delay that bytes in flight add to the heartbeats sent after
    /// them.
    fn bandwidth_by_round_trips(&self) -> Option<Estimate> {
        let law = self.round_trip_line.coefficients(LINE_SAMPLES_MIN)?;
        let slope = law.slope;
        let sure =
            slope.value > 0.0 && slope.error < slope.value * 0.25 && law.explained_fraction > 0.7;
        if !sure {
            return None;
        }
        // Nanoseconds per byte.
        let value = 1e9 / slope.value;
        // A channel that never reaches 40 % of that rate is not a bottleneck.
        (self.bytes_per_s > value * 0.4).then_some(Estimate {
            value: value.max(self.bytes_per_s),
            error: value * slope.error / slope.value,
            sample_weight: slope.sample_weight,
        })
    }

    /// Estimates the bandwidth of a link with a high round-trip time. If more bytes are in flight
    /// than delay and disk explain, the link transmits as fast as it can.
    fn bandwidth_by_queue(&self, flush_ns: f64) -> Option<Estimate> {
        let round_trip = self.min_round_trip.least()?;
        let explained = self.bytes_per_s * (round_trip + 2.0 * flush_ns) / 1e9;
        let long = round_trip > QUEUE_ROUND_TRIP_NS_MIN && self.rate_samples > 4;
        // Heartbeats wait only for bytes ahead of them, not for the disk.
        let waits = self.recent_round_trips.len() == RECENT_ROUND_TRIPS
            && (round_trip * 1.3..round_trip * 2.0).contains(&self.min_recent_round_trip());
        (long && (waits || self.queued_bytes > 1.4 * explained)).then_some(Estimate {
            value: self.bytes_per_s,
            error: self.bytes_per_s * 0.1,
            sample_weight: self.rate_samples as f64,
        })
    }
}

/// Minimum of the samples of the last seconds.
#[derive(Clone, Copy, Debug, Default)]
struct RecentMinimum {
    current_minimum: Option<f64>,
    previous_minimum: Option<f64>,
    period_start: Moment,
    samples: f64,
}

impl RecentMinimum {
    fn add(&mut self, at: Moment, value: f64) {
        if at.since(self.period_start) > MINIMUM_EXPIRES_NS {
            (self.previous_minimum, self.current_minimum, self.period_start) =
                (self.current_minimum, None, at);
            self.samples = (self.samples * 0.5).floor();
        }
        self.samples += 1.0;
        self.current_minimum = Some(self.current_minimum.map_or(value, |now| now.min(value)));
    }

    fn least(&self) -> Option<f64> {
        match (self.current_minimum, self.previous_minimum) {
            (Some(now), Some(before)) => Some(now.min(before)),
            (now, before) => now.or(before),
        }
    }
}
