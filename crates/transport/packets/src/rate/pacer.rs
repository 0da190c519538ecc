//! Send rate of a channel. It rises in steps, drops on common loss, and is restored if the drop had
//! no effect ([rate-2]).

use quorate_core::time::Time;

use crate::rate::{
    PeriodLosses, TokenBucket,
    trial::{RateTrial, RecentLosses, TrialStep},
};

/// Interval between adjustments of the rate, in microseconds.
const ADJUST_INTERVAL_US: u64 = 10_000;
/// Factor for the rate after a period without common loss, in percent.
const INCREASE_PERCENT: u64 = 102;
/// Factor for the rate after common loss, in percent.
const DECREASE_PERCENT: u64 = 85;
/// Divisor of the link's speed that gives the minimum rate.
const RATE_MIN_DIVISOR: u64 = 100;
/// Maximum rate, in percent of the link's speed.
const RATE_MAX_PERCENT: u64 = 97;
/// Burst size, expressed as microseconds of sending at the current rate.
const BURST_US: u64 = 500;
/// Minimum size of a burst in bytes, so that a system call sends more than one datagram.
const BURST_BYTES_MIN: u64 = 64 << 10;
/// Maximum loss that may be attributed to a lossy link, in millionths. Higher losses cause repeated
/// trials.
const BASELINE_PPM_MAX: u64 = 400_000;
/// Divisor for the decay of the baseline: in each period, a baseline above the current loss falls
/// by the difference divided by this.
const BASELINE_DECAY_DIVISOR: u64 = 64;

/// Rate control for a channel.
#[derive(Clone, Debug)]
pub struct Pacer {
    link_bytes_s: u64,
    rate_bytes_s: u64,
    bucket: TokenBucket,
    period_end: Time,
    /// Set if this node's own queue dropped datagrams in this period.
    has_local_drop: bool,
    /// Loss per receiver that persists at a lower rate and so does not indicate an overloaded link,
    /// in millionths.
    baseline_loss_ppm: u64,
    recent_losses: RecentLosses,
    rate_trial: Option<RateTrial>,
}

impl Pacer {
    /// Creates a pacer that begins at half of the link's speed.
    pub fn new(link_bytes_s: u64, now: Time) -> Self {
        let rate = link_bytes_s / 2;
        Self {
            link_bytes_s,
            rate_bytes_s: rate,
            bucket: TokenBucket::new(rate, burst_bytes(rate), now),
            period_end: now.plus_us(ADJUST_INTERVAL_US),
            has_local_drop: false,
            baseline_loss_ppm: 0,
            recent_losses: RecentLosses::default(),
            rate_trial: None,
        }
    }

    /// Sets the link's speed, for instance because the link is shared.
    pub const fn set_link_speed(&mut self, bytes_s: u64) {
        self.link_bytes_s = bytes_s;
    }

    /// Returns the mean recent loss of a receiver, in millionths.
    pub fn loss_ppm(&self) -> u64 {
        self.recent_losses.mean_loss_ppm()
    }

    pub const fn rate_bytes_s(&self) -> u64 {
        self.rate_bytes_s
    }

    /// Returns the number of bytes that may be sent within `us` microseconds, at most a burst.
    pub fn bytes_allowed_in(&self, us: u64) -> usize {
        let bytes = self.rate_bytes_s.saturating_mul(us) / 1_000_000;
        let at_once = burst_bytes(self.rate_bytes_s);
        usize::try_from(bytes.min(at_once)).unwrap_or(usize::MAX)
    }

    /// Returns the number of bytes that may be sent now.
    pub fn available_bytes(&mut self, now: Time) -> usize {
        self.bucket.available_bytes(now)
    }

    /// Records that bytes were sent.
    pub fn record_sent(&mut self, bytes: usize, now: Time) {
        // A single datagram may be longer than the remaining budget.
        let left = self.bucket.available_bytes(now);
        self.bucket.take_bytes(bytes.min(left), now);
    }

    /// Credits bytes that were recorded as sent but were not.
    pub fn credit_unsent(&mut self, bytes: usize) {
        self.bucket.return_bytes(bytes);
    }

    /// Returns when `bytes` bytes may be sent.
    pub fn sendable_at(&self, bytes: usize) -> Time {
        self.bucket.available_at(bytes)
    }

    /// Records that the kernel or the device dropped a datagram for lack of space.
    pub const fn record_local_drop(&mut self) {
        self.has_local_drop = true;
    }

    /// Returns when the rate is next adjusted.
    pub const fn end_period(&self) -> Time {
        self.period_end
    }

    /// Adjusts the rate if a period is over. `observed` returns the losses in the period.
    pub fn poll(&mut self, now: Time, observed: impl FnOnce() -> PeriodLosses) {
        if now < self.period_end {
            return;
        }
        self.period_end = now.plus_us(ADJUST_INTERVAL_US);
        let period = observed();
        let rate = self.next_rate(period);
        let floor = self.link_bytes_s / RATE_MIN_DIVISOR;
        let cap = self.link_bytes_s.saturating_mul(RATE_MAX_PERCENT) / 100;
        self.rate_bytes_s = rate.clamp(floor.max(1), cap.max(1));
        self.bucket.set_rate(self.rate_bytes_s, now);
        self.has_local_drop = false;
    }

    fn next_rate(&mut self, period: PeriodLosses) -> u64 {
        let lower = self.rate_bytes_s.saturating_mul(DECREASE_PERCENT) / 100;
        self.recent_losses.add(period);
        if self.has_local_drop {
            self.rate_trial = None;
            return lower;
        }
        // Loss that does not depend on the rate decreases when its cause disappears.
        let loss = self.recent_losses.mean_loss_ppm();
        let below = self.baseline_loss_ppm.saturating_sub(loss);
        self.baseline_loss_ppm -= below.div_ceil(BASELINE_DECAY_DIVISOR);
        if self.rate_trial.is_none()
            && period.common_losses > 0
            && self.recent_losses.is_above_baseline(self.baseline_loss_ppm)
        {
            self.rate_trial = Some(RateTrial::new(self.rate_bytes_s, loss, DECREASE_PERCENT));
        }
        let Some(trial) = &mut self.rate_trial else {
            return self.rate_bytes_s.saturating_mul(INCREASE_PERCENT) / 100 + 1;
        };
        let restore = trial.restore_bytes_s;
        match trial.end_period(period) {
            TrialStep::LowerFurther => lower,
            TrialStep::Wait => self.rate_bytes_s,
            TrialStep::LossReduced => {
                self.rate_trial = None;
                self.recent_losses = RecentLosses::default();
                self.rate_bytes_s
            }
            // [rate-2] The loss did not fall by a third, so the rate is not its cause.
            TrialStep::NoEffect(after) => {
                self.rate_trial = None;
                self.baseline_loss_ppm = self.baseline_loss_ppm.max(after).min(BASELINE_PPM_MAX);
                restore
            }
        }
    }
}

fn burst_bytes(rate_bytes_s: u64) -> u64 {
    (rate_bytes_s.saturating_mul(BURST_US) / 1_000_000).max(BURST_BYTES_MIN)
}

#[cfg(test)]
mod tests {
    use quorate_core::dice::Dice;
    use quorate_core::node_id::NodeId;

    use super::*;
    use crate::rate::{LossTracker, losses::MILLION};

    const LINK: u64 = 12_500_000;
    const PACKET: u64 = 1_500;
    const YOUNG: u64 = 800;

    /// A link and the losses of its receivers.
    struct World {
        bottleneck_bytes_s: u64,
        /// Random loss at each receiver, in millionths.
        chance_ppm: Vec<u64>,
    }

    /// Returns the mean rate over the second half of `seconds`.
    fn mean_rate(world: &World, seed: u64, seconds: u64) -> u64 {
        let mut dice = Dice::new(seed);
        let nodes: Vec<NodeId> = (1..).take(world.chance_ppm.len()).map(NodeId).collect();
        let mut losses = LossTracker::default();
        losses.set_receivers(&nodes);
        let mut lost = vec![0; nodes.len()];
        let mut pacer = Pacer::new(LINK, Time(0));
        let (mut next, mut sum, mut periods) = (1, 0, 0);
        for period in 0..seconds * 100 {
            let now = Time((period + 1) * ADJUST_INTERVAL_US);
            let rate = pacer.rate_bytes_s();
            let packets = rate * ADJUST_INTERVAL_US / MILLION / PACKET;
            let passed_ppm = (world.bottleneck_bytes_s * MILLION / rate).min(MILLION);
            let mut missed = vec![Vec::new(); nodes.len()];
            for number in next..next + packets {
                let common = !dice.chance(passed_ppm, MILLION);
                for (at, chance) in world.chance_ppm.iter().enumerate() {
                    if common || dice.chance(*chance, MILLION) {
                        lost[at] += 1;
                        missed[at].push(number..number + 1);
                    }
                }
            }
            next += packets;
            losses.record_sent(next, now);
            for (at, node) in nodes.iter().enumerate() {
                losses.record_report(*node, &missed[at], lost[at], now, YOUNG);
            }
            pacer.poll(now, || losses.end_period());
            if period > seconds * 50 {
                sum += pacer.rate_bytes_s();
                periods += 1;
            }
        }
        sum / periods
    }

    fn check(world: &World, percent: std::ops::RangeInclusive<u64>) {
        for seed in 0..5 {
            let part = mean_rate(world, seed, 10) * 100 / LINK;
            assert!(percent.contains(&part), "seed {seed}: {part} % of the link");
        }
    }

    /// [rate-2] Random loss that is equal at all receivers does not lower the rate, which would
    /// stop multicast.
    #[test]
    fn random_loss_does_not_lower_the_rate() {
        for (receivers, ppm) in [(1, 10_000), (2, 50_000), (25, 10_000), (25, 50_000)] {
            let world = World { bottleneck_bytes_s: LINK, chance_ppm: vec![ppm; receivers] };
            check(&world, 85..=97);
        }
    }

    /// [rate-2] A single receiver with losses does not lower the rate. It is taken out of the
    /// multicast group.
    #[test]
    fn one_bad_receiver_does_not_lower_the_rate() {
        let mut chance_ppm = vec![0; 5];
        chance_ppm[3] = 400_000;
        let world = World { bottleneck_bytes_s: LINK, chance_ppm };
        check(&world, 95..=97);
    }

    /// [rate-2] An overloaded link lowers the rate, however overloaded it is, even with random
    /// loss. At 8 % of the link a period has seven packets, so the estimate and the rate are rough.
    #[test]
    fn a_full_link_lowers_the_rate() {
        for (part, expected, ppm) in [(50, 40..=55, 0), (8, 5..=16, 0), (50, 40..=60, 5_000)] {
            for receivers in [1, 5, 25] {
                let world = World {
                    bottleneck_bytes_s: LINK * part / 100,
                    chance_ppm: vec![ppm; receivers],
                };
                check(&world, expected.clone());
            }
        }
    }

    /// [rate-2] A trial without effect restores the rate exactly. One that helped does not.
    #[test]
    fn lowering_without_effect_is_undone() {
        for (lost_below, restored) in [(50, true), (0, false)] {
            let mut pacer = Pacer::new(1_000_000, Time(0));
            let period = |lost| PeriodLosses {
                common_losses: lost,
                expected_receptions: 1_000,
                reported_lost: lost,
            };
            pacer.poll(Time(10_000), || period(50));
            assert_eq!(pacer.rate_bytes_s(), 500_000 * 85 / 100);
            for turn in 2..=4 {
                pacer.poll(Time(turn * 10_000), || period(lost_below));
            }
            let expected = if restored { 500_000 } else { 425_000 };
            assert_eq!(pacer.rate_bytes_s(), expected);
        }
    }

    /// [rate-2] The rate rises by 2 % per period up to 97 %, and falls by 15 % at once when the
    /// node's own queue drops.
    #[test]
    fn the_rate_moves_by_its_steps() {
        let mut pacer = Pacer::new(1_000_000, Time(0));
        pacer.poll(Time(9_999), || unreachable!("the period is not over"));
        pacer.poll(Time(10_000), PeriodLosses::default);
        assert_eq!(pacer.rate_bytes_s(), 510_001);
        pacer.record_local_drop();
        pacer.poll(Time(20_000), PeriodLosses::default);
        assert_eq!(pacer.rate_bytes_s(), 510_001 * 85 / 100);
        for period in 3..100 {
            pacer.poll(Time(period * 10_000), PeriodLosses::default);
        }
        assert_eq!(pacer.rate_bytes_s(), 970_000);
    }
}
