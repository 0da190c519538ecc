//! The rate of a channel: up by steps, down on common loss, and back if that changed nothing
//! ([rate-2]).

use quorate_core::time::Time;

use crate::rate::{
    Bucket, Period,
    trial::{Next, Recent, Trial},
};

/// Period of the rate control.
const PERIOD_US: u64 = 10_000;
/// Each period without common loss adds 2 %.
const UP_PERCENT: u64 = 102;
/// Common loss takes 15 %.
const DOWN_PERCENT: u64 = 85;
/// No channel is paced below this part of the link.
const FLOOR_DIVISOR: u64 = 100;
/// Never more than 97 % of the link.
const CAP_PERCENT: u64 = 97;
/// Burst that may leave at once, in microseconds of the rate.
const BURST_US: u64 = 500;
/// And at least this, so that a kernel gets more than one datagram in a call.
const BURST_BYTES_MIN: u64 = 64 << 10;
/// No loss above is taken for one that no rate changes: with more there is a trial again and again.
const BASELINE_PPM_MAX: u64 = 400_000;
/// A baseline that is not reached falls by this part of the difference in a period.
const BASELINE_FADE: u64 = 64;

/// Rate control of a channel.
#[derive(Clone, Debug)]
pub struct Pacer {
    link_bytes_s: u64,
    rate_bytes_s: u64,
    bucket: Bucket,
    period_end: Time,
    /// Own queue drops in this period.
    dropped: bool,
    /// Loss that lowering the rate did not change: no sign of a full link. In millionths per
    /// receiver.
    baseline_ppm: u64,
    recent: Recent,
    trial: Option<Trial>,
}

impl Pacer {
    /// Begins at half of the link.
    pub fn new(link_bytes_s: u64, now: Time) -> Self {
        let rate = link_bytes_s / 2;
        Self {
            link_bytes_s,
            rate_bytes_s: rate,
            bucket: Bucket::new(rate, burst(rate), now),
            period_end: now.plus_us(PERIOD_US),
            dropped: false,
            baseline_ppm: 0,
            recent: Recent::default(),
            trial: None,
        }
    }

    /// The link is another one, or shared with others.
    pub const fn set_link(&mut self, bytes_s: u64) {
        self.link_bytes_s = bytes_s;
    }

    /// Returns the recent loss of a receiver, in millionths.
    pub fn loss_ppm(&self) -> u64 {
        self.recent.ppm()
    }

    /// The rate.
    pub const fn rate_bytes_s(&self) -> u64 {
        self.rate_bytes_s
    }

    /// Bytes that may leave in this time, no more than may leave at once.
    pub fn bytes_in(&self, us: u64) -> usize {
        let bytes = self.rate_bytes_s.saturating_mul(us) / 1_000_000;
        let at_once = burst(self.rate_bytes_s);
        usize::try_from(bytes.min(at_once)).unwrap_or(usize::MAX)
    }

    /// Bytes that may leave now.
    pub fn level(&mut self, now: Time) -> usize {
        self.bucket.level(now)
    }

    /// These bytes left.
    pub fn sent(&mut self, bytes: usize, now: Time) {
        // A single datagram may be longer than what is left.
        let left = self.bucket.level(now);
        self.bucket.take(bytes.min(left), now);
    }

    /// These bytes did not leave, after all.
    pub fn take_back(&mut self, bytes: usize) {
        self.bucket.give_back(bytes);
    }

    /// When this many bytes may leave.
    pub fn due(&self, bytes: usize) -> Time {
        self.bucket.due(bytes)
    }

    /// The kernel or the device had no room for a datagram of this node.
    pub const fn own_drop(&mut self) {
        self.dropped = true;
    }

    /// When the rate moves next.
    pub const fn period_end(&self) -> Time {
        self.period_end
    }

    /// Moves the rate if a period is over; `observed` says what was lost in it.
    pub fn poll(&mut self, now: Time, observed: impl FnOnce() -> Period) {
        if now < self.period_end {
            return;
        }
        self.period_end = now.plus_us(PERIOD_US);
        let period = observed();
        let rate = self.next_rate(period);
        let floor = self.link_bytes_s / FLOOR_DIVISOR;
        let cap = self.link_bytes_s.saturating_mul(CAP_PERCENT) / 100;
        self.rate_bytes_s = rate.clamp(floor.max(1), cap.max(1));
        self.bucket.set_rate(self.rate_bytes_s, now);
        self.dropped = false;
    }

    fn next_rate(&mut self, period: Period) -> u64 {
        let lower = self.rate_bytes_s.saturating_mul(DOWN_PERCENT) / 100;
        self.recent.add(period);
        if self.dropped {
            self.trial = None;
            return lower;
        }
        // What is lost at every rate gets less when its cause is gone.
        let loss = self.recent.ppm();
        let below = self.baseline_ppm.saturating_sub(loss);
        self.baseline_ppm -= below.div_ceil(BASELINE_FADE);
        if self.trial.is_none() && period.common > 0 && self.recent.is_above(self.baseline_ppm) {
            self.trial = Some(Trial::new(self.rate_bytes_s, loss, DOWN_PERCENT));
        }
        let Some(trial) = &mut self.trial else {
            return self.rate_bytes_s.saturating_mul(UP_PERCENT) / 100 + 1;
        };
        let restore = trial.restore_bytes_s;
        match trial.next(period) {
            Next::Lower => lower,
            Next::Wait => self.rate_bytes_s,
            Next::Helped => {
                self.trial = None;
                self.recent = Recent::default();
                self.rate_bytes_s
            }
            // [rate-2] Loss did not fall by a third: the rate is not its cause.
            Next::InVain(after) => {
                self.trial = None;
                self.baseline_ppm = self.baseline_ppm.max(after).min(BASELINE_PPM_MAX);
                restore
            }
        }
    }
}

fn burst(rate_bytes_s: u64) -> u64 {
    (rate_bytes_s.saturating_mul(BURST_US) / 1_000_000).max(BURST_BYTES_MIN)
}

#[cfg(test)]
mod tests {
    use quorate_core::dice::Dice;
    use quorate_core::node_id::NodeId;

    use super::*;
    use crate::rate::{Losses, losses::MILLION};

    const LINK: u64 = 12_500_000;
    const PACKET: u64 = 1_500;
    const YOUNG: u64 = 800;

    /// A link and the losses of its receivers.
    struct World {
        /// Capacity of the common link.
        bottleneck_bytes_s: u64,
        /// Lost by chance at each receiver, in millionths.
        chance_ppm: Vec<u64>,
    }

    /// The rate after `seconds`, as a mean over the second half.
    fn mean_rate(world: &World, seed: u64, seconds: u64) -> u64 {
        let mut dice = Dice::new(seed);
        let nodes: Vec<NodeId> = (1..).take(world.chance_ppm.len()).map(NodeId).collect();
        let mut losses = Losses::default();
        losses.listen_to(&nodes);
        let mut lost = vec![0; nodes.len()];
        let mut pacer = Pacer::new(LINK, Time(0));
        let (mut next, mut sum, mut periods) = (1, 0, 0);
        for period in 0..seconds * 100 {
            let now = Time((period + 1) * PERIOD_US);
            let rate = pacer.rate_bytes_s();
            let packets = rate * PERIOD_US / MILLION / PACKET;
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
            losses.sent(next, now);
            for (at, node) in nodes.iter().enumerate() {
                losses.report(*node, &missed[at], lost[at], now, YOUNG);
            }
            pacer.poll(now, || losses.take());
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

    /// [rate-2] Loss by chance, alike at all, is no reason to lower: it would stop the group.
    #[test]
    fn loss_by_chance_does_not_lower_the_rate() {
        for (receivers, ppm) in [(1, 10_000), (2, 50_000), (25, 10_000), (25, 50_000)] {
            let world = World { bottleneck_bytes_s: LINK, chance_ppm: vec![ppm; receivers] };
            check(&world, 85..=97);
        }
    }

    /// [rate-2] A single loser lowers nothing: it is moved out of the way.
    #[test]
    fn one_bad_receiver_does_not_lower_the_rate() {
        let mut chance_ppm = vec![0; 5];
        chance_ppm[3] = 400_000;
        let world = World { bottleneck_bytes_s: LINK, chance_ppm };
        check(&world, 95..=97);
    }

    /// [rate-2] A link that is too full lowers it, however much too full it is, and with loss by
    /// chance too. At 8 % of the link a period has seven packets: the estimate is rough, and so is
    /// the rate.
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

    /// [rate-2] A trial that changed nothing gives the rate back as it was; one that helped does
    /// not.
    #[test]
    fn what_was_lowered_in_vain_is_restored() {
        for (lost_below, restored) in [(50, true), (0, false)] {
            let mut pacer = Pacer::new(1_000_000, Time(0));
            let period = |lost| Period { common: lost, judged: 1_000, lost };
            pacer.poll(Time(10_000), || period(50));
            assert_eq!(pacer.rate_bytes_s(), 500_000 * 85 / 100);
            for turn in 2..=4 {
                pacer.poll(Time(turn * 10_000), || period(lost_below));
            }
            let expected = if restored { 500_000 } else { 425_000 };
            assert_eq!(pacer.rate_bytes_s(), expected);
        }
    }

    /// [rate-2] Up by 2 % a period to 97 %; down by 15 % at once when the own queue drops.
    #[test]
    fn the_rate_moves_by_its_steps() {
        let mut pacer = Pacer::new(1_000_000, Time(0));
        pacer.poll(Time(9_999), || unreachable!("the period is not over"));
        pacer.poll(Time(10_000), Period::default);
        assert_eq!(pacer.rate_bytes_s(), 510_001);
        pacer.own_drop();
        pacer.poll(Time(20_000), Period::default);
        assert_eq!(pacer.rate_bytes_s(), 510_001 * 85 / 100);
        for period in 3..100 {
            pacer.poll(Time(period * 10_000), Period::default);
        }
        assert_eq!(pacer.rate_bytes_s(), 970_000);
    }
}
