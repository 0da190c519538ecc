//! Losses shared by several receivers, which indicate an overloaded link ([rate-2]).

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Range,
};

use quorate_core::{node_id::NodeId, time::Time};

/// Maximum number of receivers whose losses are distinguished.
const RECEIVERS_MAX: u32 = u128::BITS;
/// Maximum number of lost packets to remember.
const LOST_PACKETS_MAX: usize = 8192;
/// Maximum number of entries in `send_times`.
const SEND_TIMES_MAX: usize = 1024;
/// Denominator of loss rates, which are in parts per million.
pub(crate) const MILLION: u64 = 1_000_000;

/// Losses on one channel, as reported by its receivers.
#[derive(Clone, Debug, Default)]
pub struct LossTracker {
    receivers: BTreeMap<NodeId, Receiver>,
    /// For each lost packet, the set of receivers that lost it, one bit each.
    lost_packets: BTreeMap<u64, u128>,
    /// Times, each with the channel's next number at that time. Lower numbers had been sent before.
    send_times: VecDeque<(Time, u64)>,
    /// Number of recently sent packets lost by enough receivers in this period to indicate
    /// overload.
    common_losses: u64,
    /// Current next number. `period_start_number` is the next number at the start of the period.
    next: u64,
    period_start_number: u64,
}

#[derive(Clone, Copy, Debug)]
struct Receiver {
    bit: u32,
    /// Loss count in the receiver's last report.
    last_loss_count: Option<u64>,
    lost_in_period: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeriodLosses {
    /// Number of packets whose loss was common to enough receivers.
    pub common_losses: u64,
    /// Number of packets sent, counted once for each receiver.
    pub expected_receptions: u64,
    /// Number of packets reported as lost in the first transmission. A receiver without a report
    /// counts as having no losses.
    pub reported_lost: u64,
}

impl LossTracker {
    /// Sets the receivers whose losses count. Receivers that are already in the set keep their
    /// counts.
    pub fn set_receivers(&mut self, receivers: &[NodeId]) {
        self.receivers.retain(|node, _| receivers.contains(node));
        for &node in receivers.iter().take(RECEIVERS_MAX as usize) {
            if self.receivers.contains_key(&node) {
                continue;
            }
            let taken = |bit: &u32| self.receivers.values().any(|known| known.bit == *bit);
            let Some(bit) = (0..RECEIVERS_MAX).find(|bit| !taken(bit)) else {
                return;
            };
            let lost_by_another = !(1u128 << bit);
            self.lost_packets.values_mut().for_each(|who| *who &= lost_by_another);
            let fresh = Receiver { bit, last_loss_count: None, lost_in_period: 0 };
            self.receivers.insert(node, fresh);
        }
    }

    /// Records the channel's next number at time `now`.
    pub fn record_sent(&mut self, next: u64, now: Time) {
        self.next = next;
        if self.send_times.back().is_some_and(|(_, last)| *last == next) {
            return;
        }
        if self.send_times.len() == SEND_TIMES_MAX {
            self.send_times.pop_front();
        }
        self.send_times.push_back((now, next));
    }

    /// Forgets that the numbers from `next` on were sent, because the socket returned them.
    pub fn forget_sent_from(&mut self, next: u64) {
        self.next = next.max(self.period_start_number).min(self.next);
        self.send_times.retain(|(_, noted)| *noted <= next);
    }

    /// Returns the first number that was sent within the last `young_us` microseconds.
    fn first_sent_within(&self, now: Time, young_us: u64) -> u64 {
        let old = |(at, _): &&(Time, u64)| now.since_us(*at) > young_us;
        self.send_times.iter().take_while(old).last().map_or(0, |(_, next)| *next)
    }

    /// Returns how many receivers must lose a packet for the loss to be common: max(2, n/4, 3·n·p̂
    /// + 1), or 1 if there is one receiver.
    fn common_loss_threshold(&self) -> u64 {
        let n = self.receivers.len() as u64;
        if n <= 1 {
            return 1;
        }
        let so_far = self.period_totals();
        let expected = 3 * n * so_far.reported_lost.min(so_far.expected_receptions)
            / so_far.expected_receptions.max(1)
            + 1;
        // A loss at all receivers is always common. If the link drops a third, 3·n·p̂ equals n.
        2.max(n.div_ceil(4)).max(expected).min(n)
    }

    fn period_totals(&self) -> PeriodLosses {
        PeriodLosses {
            common_losses: self.common_losses,
            expected_receptions: (self.next - self.period_start_number)
                .saturating_mul(self.receivers.len() as u64),
            reported_lost: self.receivers.values().map(|one| one.lost_in_period).sum(),
        }
    }

    /// Handles a receiver's report. Ignores packets sent more than `young_us` ago, because they do
    /// not reflect the current state of the link. If the loss count decreases, as it does after a
    /// restart, counting starts over.
    pub fn record_report(
        &mut self,
        from: NodeId,
        missed: &[Range<u64>],
        lost: u64,
        now: Time,
        young_us: u64,
    ) {
        let young = self.first_sent_within(now, young_us);
        let Some(one) = self.receivers.get_mut(&from) else {
            return;
        };
        let before = one.last_loss_count.replace(lost).unwrap_or(0);
        let more = lost.checked_sub(before).unwrap_or(lost);
        one.lost_in_period = one.lost_in_period.saturating_add(more);
        let bit = 1u128 << one.bit;
        let threshold = self.common_loss_threshold();
        let mut room = LOST_PACKETS_MAX;
        for range in missed {
            for number in range.start.max(young)..range.end {
                if room == 0 {
                    return;
                }
                room -= 1;
                self.record_loss(number, bit, threshold);
            }
        }
    }

    fn record_loss(&mut self, number: u64, bit: u128, threshold: u64) {
        let who = self.lost_packets.entry(number).or_default();
        let before = u64::from(who.count_ones());
        *who |= bit;
        let after = u64::from(who.count_ones());
        if before < threshold && after >= threshold {
            self.common_losses += 1;
        }
        if self.lost_packets.len() > LOST_PACKETS_MAX {
            self.lost_packets.pop_first();
        }
    }

    /// Ends a period and returns the losses observed in it.
    pub fn end_period(&mut self) -> PeriodLosses {
        let period = self.period_totals();
        self.common_losses = 0;
        self.period_start_number = self.next;
        self.receivers.values_mut().for_each(|one| one.lost_in_period = 0);
        period
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "a report is a list of ranges, often of one")]
mod tests {
    use super::*;

    const YOUNG: u64 = 400;

    fn with_receivers(receivers: u32) -> LossTracker {
        let mut losses = LossTracker::default();
        let nodes: Vec<NodeId> = (1..=receivers).map(NodeId).collect();
        losses.set_receivers(&nodes);
        losses.record_sent(1, Time(0));
        losses.end_period();
        losses.record_sent(1001, Time(0));
        losses
    }

    /// [rate-2] A loss is common if enough receivers have it. The threshold depends on the number
    /// of receivers.
    #[test]
    fn a_loss_is_common_when_enough_receivers_have_it() {
        for (receivers, needed) in [(1, 1), (2, 2), (8, 2), (9, 3), (25, 7)] {
            for losing in 1..=receivers.min(10) {
                let mut losses = with_receivers(receivers);
                for node in 1..=losing {
                    losses.record_report(NodeId(node), &[5..6], 1, Time(50), YOUNG);
                }
                let expected = u64::from(losing >= needed);
                assert_eq!(losses.end_period().common_losses, expected, "{losing} of {receivers}");
            }
        }
    }

    /// [rate-2] At 5 % random loss, two of 25 receivers often miss the same packet. Eight do not.
    #[test]
    fn random_loss_raises_the_threshold() {
        let mut losses = with_receivers(25);
        for node in 1..=25 {
            losses.record_report(NodeId(node), &[], 100, Time(50), YOUNG);
        }
        // Ten in a hundred give 3 · 25 · 0.1 + 1.
        assert_eq!(losses.common_loss_threshold(), 8);
        for node in 1..=25 {
            losses.record_report(NodeId(node), &[], 1000, Time(50), YOUNG);
        }
        assert_eq!(losses.common_loss_threshold(), 25);
        let period = losses.end_period();
        assert_eq!((period.reported_lost, period.expected_receptions), (25_000, 25_000));
    }

    /// Datagrams returned by a full socket are not counted until they are sent again.
    #[test]
    fn withdrawn_datagrams_do_not_count_as_sent() {
        let mut losses = with_receivers(2);
        losses.end_period();
        losses.record_sent(1101, Time(10));
        losses.forget_sent_from(1051);
        assert_eq!(losses.end_period().expected_receptions, 100);
        losses.record_sent(1201, Time(2000));
        for node in 1..=2 {
            losses.record_report(NodeId(node), &[1060..1061], 1, Time(2100), YOUNG);
        }
        assert_eq!(losses.end_period().common_losses, 1, "it is young");
    }

    /// [rate-2] Packets sent four round trips ago do not reflect the current link.
    #[test]
    fn old_packets_do_not_count() {
        let mut losses = LossTracker::default();
        losses.set_receivers(&[NodeId(1), NodeId(2)]);
        losses.record_sent(10, Time(100));
        losses.record_sent(20, Time(500));
        for node in 1..=2 {
            losses.record_report(NodeId(node), &[8..12], 4, Time(501), YOUNG);
        }
        assert_eq!(losses.end_period().common_losses, 2);
    }

    #[test]
    fn unknown_receivers_do_not_count_and_memory_is_bounded() {
        let mut losses = with_receivers(2);
        losses.record_report(NodeId(9), &[1..2], 1, Time(1), YOUNG);
        losses.record_report(NodeId(1), &[1..u64::MAX], 1, Time(1), YOUNG);
        assert!(losses.lost_packets.len() <= LOST_PACKETS_MAX);
        for number in 2_000..5_000 {
            losses.record_sent(number, Time(number));
        }
        assert_eq!(losses.send_times.len(), SEND_TIMES_MAX);
        // A new receiver does not inherit its predecessor's losses.
        losses.set_receivers(&[NodeId(2), NodeId(3)]);
        assert!(losses.lost_packets.values().all(|who| *who == 0));
    }
}
