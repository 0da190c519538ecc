//! The channel to one peer: measures its round-trip time and its throughput.

use std::collections::VecDeque;

use crate::{
    fit::{Estimate, LINE_SAMPLES, Line},
    guard::Guard,
    time::Moment,
};

/// Maximum number of recent batches stored per peer.
const RING: usize = 128;
/// Minimum length of a rate sample in nanoseconds. A sample lasts one round trip if that is longer.
const RATE_NS: u64 = 20_000_000;
/// Number of rate samples before the rate is trusted. The first sample includes the delay of the
/// link.
const RATES: u64 = 2;
/// Maximum number of stored heartbeats in flight.
const ASKED: usize = 64;
/// Minimum round trip in nanoseconds for which bytes in flight indicate a queue. With a shorter
/// round trip, they may be waiting for the disk.
const QUEUE_NS: f64 = 10e6;
/// Time after which a minimum expires, in nanoseconds.
const FLOOR_NS: u64 = 5_000_000_000;
/// Number of recent heartbeats that must all show a longer round trip before the minimum is
/// replaced.
const RECENT: usize = 6;

/// Throughput of a channel, as measured by its votes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drained {
    /// Throughput in bytes per second.
    pub(crate) rate: f64,
    /// Number of bytes that have been sent and not voted for yet, except for one batch at either
    /// end.
    pub(crate) ahead: f64,
    /// Number of rate samples behind the rate.
    pub(crate) samples: u64,
}

/// Measurements of the channel to one peer.
#[derive(Clone, Debug)]
pub(crate) struct Channel {
    /// Slot of each recent batch, and the total number of bytes sent up to the end of that batch.
    ring: VecDeque<(u64, u64)>,
    sent: u64,
    acknowledged: u64,
    /// Heartbeats in flight: the time of sending, the mark, and the number of bytes in flight ahead
    /// of the heartbeat.
    asked: VecDeque<(Moment, u64, u64)>,
    trips: Line,
    /// Minimum round trip, that of a heartbeat without bytes ahead of it.
    least: Floor,
    /// Recent round trips. If all of them are much longer than the minimum, the round-trip time has
    /// risen and the old minimum no longer counts.
    recent_least: VecDeque<f64>,
    /// Start of the current rate sample, and the number of bytes acknowledged by then.
    rate_from: Option<(Moment, u64)>,
    rate: f64,
    /// Number of completed rate samples.
    rates: u64,
    /// Size of the largest recent batch in bytes. The value decays over time.
    batch: f64,
    /// Smoothed number of bytes in flight, except for one batch at either end.
    queued: f64,
}

impl Channel {
    pub(crate) fn new() -> Self {
        Self {
            ring: VecDeque::with_capacity(RING),
            sent: 0,
            acknowledged: 0,
            asked: VecDeque::with_capacity(ASKED),
            trips: Line::new(0.96),
            least: Floor::default(),
            recent_least: VecDeque::with_capacity(RECENT),
            rate_from: None,
            rate: 0.0,
            rates: 0,
            batch: 0.0,
            queued: 0.0,
        }
    }

    pub(crate) fn on_sent(&mut self, now: Moment, slot: u64, bytes: usize) {
        if self.ring.back().is_some_and(|&(last, _)| last >= slot) {
            // The batch is being sent again after a loss, or by another leader, so start over.
            self.ring.clear();
            self.acknowledged = self.sent;
        }
        if self.ring.len() == RING {
            self.ring.pop_front();
        }
        if self.rate_from.is_none() {
            self.rate_from = Some((now, self.acknowledged));
        }
        self.sent += bytes as u64;
        self.batch = (bytes as f64).max(self.batch * 0.9);
        self.ring.push_back((slot, self.sent));
    }

    pub(crate) fn on_voted(&mut self, now: Moment, to: u64, guard: &Guard) {
        while let Some((_, sent)) = self.ring.pop_front_if(|(slot, _)| *slot < to) {
            self.acknowledged = sent;
        }
        let Some((from, bytes)) = self.rate_from else {
            return;
        };
        // A sample spans at least one round trip, and enough time to include more than one vote.
        let least = self.least.least().unwrap_or(0.0) as u64;
        if now.since(from) < least.max(RATE_NS) {
            return;
        }
        if guard.is_clean(from, now) {
            self.on_rate((self.acknowledged - bytes) as f64 * 1e9 / now.since(from) as f64);
        }
        self.rate_from = Some((now, self.acknowledged));
    }

    pub(crate) fn on_asked(&mut self, now: Moment, mark: u64) {
        if self.asked.len() == ASKED {
            self.asked.pop_front();
        }
        self.asked.push_back((now, mark, self.ahead()));
    }

    pub(crate) fn on_answered(&mut self, now: Moment, mark: u64, guard: &Guard) {
        // Replies arrive in order, so the replies to earlier heartbeats have been lost.
        while self.asked.pop_front_if(|asked| asked.1 < mark).is_some() {}
        let Some((at, _, ahead)) = self.asked.pop_front_if(|asked| asked.1 == mark) else {
            return;
        };
        if !guard.is_clean(at, now) {
            return;
        }
        let took = now.since(at) as f64;
        self.least.add(now, took);
        if self.recent_least.len() == RECENT {
            self.recent_least.pop_front();
        }
        self.recent_least.push_back(took);
        self.trips.add(ahead as f64, took);
    }

    /// Returns the measured throughput; `None` before there are enough samples.
    pub(crate) fn drained(&self) -> Option<Drained> {
        (self.rates >= RATES).then(|| Drained {
            rate: self.rate,
            ahead: self.behind(),
            samples: self.rates,
        })
    }

    fn ahead(&self) -> u64 {
        self.sent - self.acknowledged
    }

    /// Updates the rate. Peaks decay slowly, because a lull does not make the channel slower.
    fn on_rate(&mut self, rate: f64) {
        self.rate = rate.max(self.rate * 0.93);
        self.rates += 1;
        self.queued += 0.3 * (self.behind() - self.queued);
    }

    /// Returns the number of bytes queued in the channel. A batch at either end is not a queue,
    /// however large it is.
    fn behind(&self) -> f64 {
        (self.ahead() as f64 - 2.0 * self.batch).max(0.0)
    }

    /// Returns the minimum round trip in nanoseconds, and the number of samples behind it.
    pub(crate) fn round_trip(&self) -> Option<(f64, f64)> {
        let samples = self.least.samples;
        let trip = self.trip().filter(|_| samples >= 1.0)?;
        Some((trip, samples))
    }

    fn trip(&self) -> Option<f64> {
        let least = self.least.least()?;
        // All recent round trips are far above the old minimum, so the round trip has become
        // longer.
        let recent = self.recent_least.iter().copied().fold(f64::INFINITY, f64::min);
        if self.recent_least.len() == RECENT && recent > least * 2.0 && self.by_trips().is_none() {
            return Some(recent);
        }
        Some(least)
    }

    /// Returns the minimum of the recent round trips.
    fn recent(&self) -> f64 {
        let trips = self.recent_least.iter().copied();
        trips.fold(f64::INFINITY, f64::min)
    }

    /// Returns the bandwidth in bytes per second; `None` if it is unknown.
    pub(crate) fn bandwidth(&self, flush_ns: f64) -> Option<Estimate> {
        self.by_trips().or_else(|| self.by_queue(flush_ns))
    }

    /// Estimates the bandwidth from the delay that bytes in flight add to the heartbeats sent after
    /// them.
    fn by_trips(&self) -> Option<Estimate> {
        let law = self.trips.law(LINE_SAMPLES)?;
        let slope = law.slope;
        let sure = slope.value > 0.0 && slope.error < slope.value * 0.25 && law.explained > 0.7;
        if !sure {
            return None;
        }
        // Nanoseconds per byte.
        let value = 1e9 / slope.value;
        // A channel that never reaches 40 % of that rate is not a bottleneck.
        (self.rate > value * 0.4).then_some(Estimate {
            value: value.max(self.rate),
            error: value * slope.error / slope.value,
            samples: slope.samples,
        })
    }

    /// Estimates the bandwidth of a link with a high round-trip time. If more bytes are in flight
    /// than delay and disk explain, the link transmits as fast as it can.
    fn by_queue(&self, flush_ns: f64) -> Option<Estimate> {
        let round_trip = self.least.least()?;
        let explained = self.rate * (round_trip + 2.0 * flush_ns) / 1e9;
        let long = round_trip > QUEUE_NS && self.rates > 4;
        // Heartbeats wait only for bytes ahead of them, not for the disk.
        let waits = self.recent_least.len() == RECENT
            && (round_trip * 1.3..round_trip * 2.0).contains(&self.recent());
        (long && (waits || self.queued > 1.4 * explained)).then_some(Estimate {
            value: self.rate,
            error: self.rate * 0.1,
            samples: self.rates as f64,
        })
    }
}

/// Minimum of the samples of the last seconds.
#[derive(Clone, Copy, Debug, Default)]
struct Floor {
    now: Option<f64>,
    before: Option<f64>,
    since: Moment,
    samples: f64,
}

impl Floor {
    fn add(&mut self, at: Moment, value: f64) {
        if at.since(self.since) > FLOOR_NS {
            (self.before, self.now, self.since) = (self.now, None, at);
            self.samples = (self.samples * 0.5).floor();
        }
        self.samples += 1.0;
        self.now = Some(self.now.map_or(value, |now| now.min(value)));
    }

    fn least(&self) -> Option<f64> {
        match (self.now, self.before) {
            (Some(now), Some(before)) => Some(now.min(before)),
            (now, before) => now.or(before),
        }
    }
}
