//! A channel to one peer: its round-trip time, and what it carries.

use std::collections::VecDeque;

use crate::{
    fit::{Estimate, LINE_SAMPLES, Line},
    guard::Guard,
    time::Moment,
};

/// Batches towards a peer that are remembered.
const RING: usize = 128;
/// Minimum interval of a rate sample; one round trip if that is longer.
const RATE_NS: u64 = 20_000_000;
/// Samples of a rate before it is believed: the first one has the delay of the link in it.
const RATES: u64 = 2;
/// Heartbeats in flight that are remembered.
const ASKED: usize = 64;
/// With a shorter round trip, what is ahead may wait for the disk.
const QUEUE_NS: f64 = 10e6;
/// Lifetime of a minimum.
const FLOOR_NS: u64 = 5_000_000_000;
/// Heartbeats that a longer round trip must last.
const RECENT: usize = 6;

/// Measured throughput of a channel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drained {
    /// Bytes per second.
    pub(crate) rate: f64,
    /// Bytes sent and not yet voted for, apart from the batches at either end.
    pub(crate) ahead: f64,
    /// Grows with each look at the rate.
    pub(crate) samples: u64,
}

/// A channel to one peer.
#[derive(Clone, Debug)]
pub(crate) struct Channel {
    /// Slot, and bytes handed over with it and before.
    ring: VecDeque<(u64, u64)>,
    sent: u64,
    acknowledged: u64,
    /// Heartbeats in flight: when they left, their mark, and how many bytes were ahead.
    asked: VecDeque<(Moment, u64, u64)>,
    trips: Line,
    /// Round trips with nothing ahead.
    least: Floor,
    /// A round trip that is long and steady, after a step: the old least is not waited for.
    recent_least: VecDeque<f64>,
    /// Bytes acknowledged since, for the rate.
    rate_from: Option<(Moment, u64)>,
    rate: f64,
    /// Samples of it.
    rates: u64,
    /// The largest batch lately, fading.
    batch: f64,
    /// Smoothed bytes ahead, apart from the batches just leaving and arriving.
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
            // Sent again after a loss, or by another leader: begin again.
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
        // Over at least a round trip, and long enough to see more than one vote.
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
        // Answers come in order; what an earlier one would answer is lost.
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

    /// Returns the throughput, if enough samples support it.
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

    /// Peaks fade slowly: a lull is not a slower channel.
    fn on_rate(&mut self, rate: f64) {
        self.rate = rate.max(self.rate * 0.93);
        self.rates += 1;
        self.queued += 0.3 * (self.behind() - self.queued);
    }

    /// A batch at either end is not a queue, however large it is.
    fn behind(&self) -> f64 {
        (self.ahead() as f64 - 2.0 * self.batch).max(0.0)
    }

    /// In nanoseconds, and how many samples that rests on.
    pub(crate) fn round_trip(&self) -> Option<(f64, f64)> {
        let samples = self.least.samples;
        let trip = self.trip().filter(|_| samples >= 1.0)?;
        Some((trip, samples))
    }

    fn trip(&self) -> Option<f64> {
        let least = self.least.least()?;
        // All of the last ones are far above the least of before: the round trip has become longer.
        let recent = self.recent_least.iter().copied().fold(f64::INFINITY, f64::min);
        if self.recent_least.len() == RECENT && recent > least * 2.0 && self.by_trips().is_none() {
            return Some(recent);
        }
        Some(least)
    }

    /// The least of the last few round trips.
    fn recent(&self) -> f64 {
        let trips = self.recent_least.iter().copied();
        trips.fold(f64::INFINITY, f64::min)
    }

    /// Bytes per second.
    pub(crate) fn bandwidth(&self, flush_ns: f64) -> Option<Estimate> {
        self.by_trips().or_else(|| self.by_queue(flush_ns))
    }

    /// Heartbeats behind more bytes take longer.
    fn by_trips(&self) -> Option<Estimate> {
        let law = self.trips.law(LINE_SAMPLES)?;
        let slope = law.slope;
        let sure = slope.value > 0.0 && slope.error < slope.value * 0.25 && law.explained > 0.7;
        if !sure {
            return None;
        }
        // Nanoseconds per byte.
        let value = 1e9 / slope.value;
        // A channel that is never half full is not what anybody waits for.
        (self.rate > value * 0.4).then_some(Estimate {
            value: value.max(self.rate),
            error: value * slope.error / slope.value,
            samples: slope.samples,
        })
    }

    /// On a link with a high round-trip time, more is in flight all the time than delay and disk
    /// explain: it drains as fast as it can.
    fn by_queue(&self, flush_ns: f64) -> Option<Estimate> {
        let round_trip = self.least.least()?;
        let explained = self.rate * (round_trip + 2.0 * flush_ns) / 1e9;
        let long = round_trip > QUEUE_NS && self.rates > 4;
        // Heartbeats do not wait for the disk, only for what is ahead of them.
        let waits = self.recent_least.len() == RECENT
            && (round_trip * 1.3..round_trip * 2.0).contains(&self.recent());
        (long && (waits || self.queued > 1.4 * explained)).then_some(Estimate {
            value: self.rate,
            error: self.rate * 0.1,
            samples: self.rates as f64,
        })
    }
}

/// The least value of the last seconds.
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
