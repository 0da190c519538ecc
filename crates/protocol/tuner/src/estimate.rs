//! The quantities of the model, estimated from what a reactor observes anyway.
//!
//! | Quantity | From | How |
//! |---|---|---|
//! | 2L, the round trip | heartbeats and their replies | the minimum of the last seconds |
//! | B, of the channel to a peer | round trips, against the bytes ahead of the heartbeat | slope of a line; trusted when it explains the round trips and the channel was busy |
//! | φcli + φexec, φrep | durations of turns, against their commands, batches and bytes | three-part fit |
//! | flush, disk bandwidth | writes of the log, against their bytes | a line |
//! | `S_req`, requests per batch | batches | means |
//!
//! φcli and φexec are one number here (both are per command), and the fixed part of φrep is per
//! batch and peer. The leader's turns do not distinguish the per-byte parts of φcli and φrep, so
//! these are one number per byte.
//!
//! No value is made up: each quantity is an [`Estimate`] or unknown. Samples affected by a pause of
//! the process or a step of the clock are dropped (`guard`).
//!
//! Cost: one entry in a ring and a few additions per batch and peer; one line (about 30 flops) per
//! heartbeat; four additions per turn, and one three-part sample (about 40 flops) per 16 turns. For
//! each batch in a group of three that is about 150 instructions, compared with at least 50 000
//! for the batch itself. Laws are solved only on request.

use crate::{
    channel::{Channel, ChannelThroughput},
    fit::{DecayingMean, Estimate, LINE_SAMPLES_MIN, LineFit, SumFit},
    guard::InterruptionGuard,
    time::Moment,
};

/// Maximum number of peers that are measured. Further peers are ignored.
pub const PEERS_MAX: usize = 16;
/// Number of turns in one sample of processor time.
const TURNS_PER_SAMPLE: u32 = 16;
/// Time span in nanoseconds after which fewer turns are enough for a sample.
const SAMPLE_NS: u64 = 10_000_000;
/// Number of samples before the breakdown of processor time is trusted.
const BREAKDOWN_SAMPLES_MIN: f64 = 6.0;

/// One turn of the reactor's event loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReactorTurn {
    /// Time at which the reactor woke up.
    pub woke_at: Moment,
    /// Time at which the reactor is about to sleep.
    pub ended: Moment,
    /// Latest time at which the reactor will wake; `None` if unknown.
    pub next_wake_by: Option<Moment>,
    /// Number of commands accepted from clients.
    pub commands: u32,
    /// Number of batches that this node formed in the turn.
    pub batches: u32,
    /// Total size of the completed batches in bytes.
    pub batch_bytes: usize,
    /// Number of commands in the completed batches.
    pub batch_commands: u32,
    /// Number of commands that still wait to be put into a batch.
    pub waiting_commands: usize,
    /// Number of this node's batches in flight.
    pub in_flight: usize,
}

/// Costs of several turns, accumulated into one sample.
#[derive(Clone, Copy, Debug, Default)]
struct TurnSample {
    turns: u32,
    since: Option<Moment>,
    busy_ns: u64,
    commands: u64,
    batches: u64,
    bytes: u64,
}

/// Measured parameters of the model; `None` while unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Parameters {
    /// Round trip, 2L, to the peer whose vote completes a majority, in nanoseconds.
    pub round_trip_ns: Option<Estimate>,
    /// Throughput B of a channel to one peer in bytes per second. It is measured while the other
    /// channels are in use too, so that a shared link is accounted for. Known only if the channel
    /// has been busy enough.
    pub channel_bytes_per_s: Option<Estimate>,
    /// Processor time per command, φcli + φexec, in nanoseconds.
    pub command_ns: Option<Estimate>,
    /// Processor time per batch, in nanoseconds: the fixed part of (n−1)·φrep, and any other cost.
    pub batch_ns: Option<Estimate>,
    /// Processor time per byte, in nanoseconds.
    pub byte_ns: Option<Estimate>,
    /// Duration of a log write without the time for its bytes, in nanoseconds.
    pub flush_ns: Option<Estimate>,
    /// Write bandwidth of the disk in bytes per second.
    pub disk_bandwidth: Option<Estimate>,
    /// Size of a command in a batch, in bytes.
    pub command_bytes: Option<Estimate>,
    /// Time from forming a batch to the replies to its commands, in nanoseconds.
    pub batch_duration_ns: Option<Estimate>,
    /// Number of pauses of the process and steps of the clock. The samples that they affected were
    /// dropped.
    pub interruptions: u64,
}

/// Continuously measures the parameters of the model.
#[derive(Clone, Debug)]
pub(crate) struct Estimator {
    interruption_guard: InterruptionGuard,
    channels: Vec<Channel>,
    gathered: TurnSample,
    processor_fit: SumFit,
    flush_line: LineFit,
    /// Time at which the last write reached stable storage.
    last_flushed_at: Moment,
    command_bytes: DecayingMean,
    batch_duration: DecayingMean,
}

impl Estimator {
    pub(crate) fn new() -> Self {
        Self {
            interruption_guard: InterruptionGuard::default(),
            channels: Vec::new(),
            gathered: TurnSample::default(),
            processor_fit: SumFit::new(0.985),
            flush_line: LineFit::new(0.97),
            last_flushed_at: Moment(0),
            command_bytes: DecayingMean::new(0.95),
            batch_duration: DecayingMean::new(0.9),
        }
    }

    pub(crate) fn interruptions(&self) -> u64 {
        self.interruption_guard.interruptions()
    }

    /// Drops everything that depends on the leader, so that all channels start over.
    pub(crate) fn forget_peers(&mut self) {
        self.channels.clear();
    }

    fn channel(&mut self, peer: usize) -> Option<&mut Channel> {
        if peer >= PEERS_MAX {
            return None;
        }
        while self.channels.len() <= peer {
            self.channels.push(Channel::new());
        }
        self.channels.get_mut(peer)
    }

    pub(crate) fn on_turn(&mut self, turn: &ReactorTurn) {
        if !self.interruption_guard.record_turn(turn.woke_at, turn.ended, turn.next_wake_by) {
            self.gathered = TurnSample::default();
            return;
        }
        let sum = &mut self.gathered;
        sum.turns += 1;
        let since = *sum.since.get_or_insert(turn.woke_at);
        sum.busy_ns += turn.ended.since(turn.woke_at);
        sum.commands += u64::from(turn.commands);
        sum.batches += u64::from(turn.batches);
        sum.bytes += turn.batch_bytes as u64;
        let enough = sum.turns >= TURNS_PER_SAMPLE || turn.ended.since(since) > SAMPLE_NS;
        if !enough || sum.batches == 0 {
            return;
        }
        let x = [sum.commands as f64, sum.batches as f64, sum.bytes as f64];
        let y = sum.busy_ns as f64;
        self.gathered = TurnSample::default();
        self.processor_fit.add(x, y);
    }

    pub(crate) fn on_sent(&mut self, now: Moment, peer: usize, slot: u64, bytes: usize) {
        if let Some(channel) = self.channel(peer) {
            channel.on_sent(now, slot, bytes);
        }
    }

    pub(crate) fn on_voted(&mut self, now: Moment, peer: usize, to: u64) {
        let guard = self.interruption_guard;
        if let Some(channel) = self.channel(peer) {
            channel.on_voted(now, to, &guard);
        }
    }

    pub(crate) fn on_heartbeat_sent(&mut self, now: Moment, peer: usize, mark: u64) {
        if let Some(channel) = self.channel(peer) {
            channel.on_heartbeat_sent(now, mark);
        }
    }

    pub(crate) fn on_heartbeat_reply(&mut self, now: Moment, peer: usize, mark: u64) {
        let guard = self.interruption_guard;
        if let Some(channel) = self.channel(peer) {
            channel.on_heartbeat_reply(now, mark, &guard);
        }
    }

    pub(crate) fn on_flush(&mut self, began: Moment, now: Moment, bytes: usize) {
        // A write that began while another one was in flight first had to wait for the other one.
        let alone = began.max(self.last_flushed_at.min(now));
        self.last_flushed_at = now;
        if self.interruption_guard.is_uninterrupted(began, now) && alone < now {
            self.flush_line.add(bytes as f64, now.since(alone) as f64);
        }
    }

    pub(crate) fn on_batch_done(
        &mut self,
        formed: Moment,
        now: Moment,
        commands: u32,
        bytes: usize,
    ) {
        if self.interruption_guard.is_uninterrupted(formed, now) && commands > 0 {
            self.command_bytes.add(bytes as f64 / f64::from(commands));
            self.batch_duration.add(now.since(formed) as f64);
        }
    }

    /// Returns the throughput of the channel to the peer that completes a majority, the bytes in
    /// flight to that peer, and the number of samples.
    pub(crate) fn majority_throughput(&self) -> Option<ChannelThroughput> {
        let drained = self.channels.iter().filter_map(Channel::throughput);
        let mut by_rate: Vec<ChannelThroughput> = drained.collect();
        by_rate.sort_by(|a, b| b.bytes_per_s.total_cmp(&a.bytes_per_s));
        let needed = self.channels.len().div_ceil(2);
        by_rate.get(needed.checked_sub(1)?).copied()
    }

    pub(crate) fn batch_duration_estimate(&self) -> Option<Estimate> {
        self.batch_duration.estimate()
    }

    pub(crate) fn parameters(&self) -> Parameters {
        let parts = self.processor_fit.coefficients(BREAKDOWN_SAMPLES_MIN);
        let part = |number: usize| parts.map(|parts| parts[number]);
        let (flush_ns, disk_bandwidth) = self.disk_estimates();
        Parameters {
            round_trip_ns: self.round_trip(),
            channel_bytes_per_s: self.bandwidth(flush_ns.map_or(0.0, |flush| flush.value)),
            command_ns: part(0),
            batch_ns: part(1),
            byte_ns: part(2),
            flush_ns,
            disk_bandwidth,
            command_bytes: self.command_bytes.estimate(),
            batch_duration_ns: self.batch_duration_estimate(),
            interruptions: self.interruption_guard.interruptions(),
        }
    }

    /// Returns the round trip to the peer that completes a majority. Of n − 1 peers sorted by round
    /// trip, ⌊n/2⌋ must reply.
    pub(crate) fn round_trip(&self) -> Option<Estimate> {
        let known = self.channels.iter().filter_map(Channel::round_trip);
        let mut trips: Vec<(f64, f64)> = known.collect();
        trips.sort_by(|a, b| a.0.total_cmp(&b.0));
        let needed = self.channels.len().div_ceil(2);
        let (value, samples) = *trips.get(needed.checked_sub(1)?)?;
        // The minimum of n samples exceeds the true value by about one part in n.
        let error = value / samples.max(1.0) * 0.5;
        Some(Estimate { value, error, sample_weight: samples })
    }

    fn bandwidth(&self, flush_ns: f64) -> Option<Estimate> {
        let of = |channel: &Channel| channel.bandwidth(flush_ns);
        let mut known: Vec<Estimate> = self.channels.iter().filter_map(of).collect();
        known.sort_by(|a, b| b.value.total_cmp(&a.value));
        let needed = self.channels.len().div_ceil(2);
        known.get(needed.checked_sub(1)?).copied()
    }

    fn disk_estimates(&self) -> (Option<Estimate>, Option<Estimate>) {
        let Some(law) = self.flush_line.coefficients(LINE_SAMPLES_MIN) else {
            return (None, None);
        };
        let slope = law.slope;
        let told = slope.value > 0.0 && slope.error < slope.value * 0.3;
        if !told {
            // The size makes no difference, or did not vary, so the mean is the flush time.
            let mean = law.intercept.value + slope.value * self.flush_line.x_mean();
            let flush = Estimate { value: mean, ..law.intercept };
            let error = if flush.error.is_finite() { flush.error } else { mean };
            return (Some(Estimate { error, ..flush }), None);
        }
        let bandwidth = Estimate {
            value: 1e9 / slope.value,
            error: 1e9 / slope.value * slope.error / slope.value,
            sample_weight: slope.sample_weight,
        };
        let flush = Estimate { value: law.intercept.value.max(0.0), ..law.intercept };
        (Some(flush), Some(bandwidth))
    }
}
