//! Chooses how to send frames for several nodes, from recent traffic, reachability, and cost
//! ([plane-3]).
//!
//! If most nodes do not receive multicast, a chain replaces it. Multicast is tried again later,
//! when the chain is idle.

use crate::limits::Limits;
use quorate_core::time::Time;
use quorate_tuner::{DampedChoice, Moment};

use crate::plane::{
    port::GroupPath,
    predict::{Carrier, TrafficDemand, predicted_latency_ns},
};

/// Weight of the latest sample in a moving average.
const NEWEST_WEIGHT: f64 = 0.3;
/// Factor by which the remembered loss decays at each evaluation.
const LOSS_DECAY: f64 = 0.99;
/// Time for which most nodes must fail to receive multicast before it is abandoned, in
/// microseconds.
const UNREACHED_US_MAX: u64 = 1_000_000;
/// Minimum and maximum delay before multicast is tried again, in microseconds. The delay doubles
/// each time.
const GROUP_RETRY_US: (u64, u64) = (2_000_000, 60_000_000);
/// Round trip assumed before one has been measured, in microseconds.
const USUAL_RTT_US: u64 = 300;

/// Converts a time to the tuner's clock.
const fn moment_of(now: Time) -> Moment {
    Moment(now.0.saturating_mul(1000))
}

pub(crate) struct CarrierSelection {
    current_carrier: DampedChoice<Carrier>,
    /// Set if a multicast address is configured.
    has_group: bool,
    /// Number of frames since the last evaluation.
    frame_count: u64,
    bytes: u64,
    receivers: usize,
    last_review_at: Time,
    demand: TrafficDemand,
    /// Predicted cost of each path at the last evaluation, in nanoseconds.
    carrier_costs: Vec<(Carrier, u64)>,
    unreached_since: Option<Time>,
    group_retry_at: Time,
    retry_delay_us: u64,
}

impl CarrierSelection {
    /// Creates the state for a link with these limits. `reach` determines whether there is a group.
    pub(crate) fn new((limits, reach): (&Limits, GroupPath), now: Time) -> Self {
        Self {
            current_carrier: DampedChoice::new(Carrier::TcpConnections, moment_of(now)),
            has_group: reach == GroupPath::Multicast,
            frame_count: 0,
            bytes: 0,
            receivers: 0,
            last_review_at: now,
            demand: TrafficDemand {
                frames_s: 0.0,
                frame_bytes: 0.0,
                mean_receivers: 0,
                mean_reached: 0,
                link_bytes_s: limits.link_bytes_s as f64,
                payload_bytes: limits.payload_bytes() as f64,
                rtt_us: USUAL_RTT_US as f64,
                loss_fraction: 0.0,
            },
            carrier_costs: Vec::new(),
            unreached_since: None,
            group_retry_at: now,
            retry_delay_us: GROUP_RETRY_US.0,
        }
    }

    pub(crate) const fn carrier(&self) -> Carrier {
        self.current_carrier.chosen()
    }

    /// Records a frame of `bytes` bytes to `receivers` nodes.
    pub(crate) fn record_frame(&mut self, receivers: usize, bytes: usize) {
        if receivers >= 2 {
            self.frame_count += 1;
            self.bytes += bytes as u64;
            self.receivers = self.receivers.max(receivers);
        }
    }

    /// Evaluates recent traffic and reachability, and chooses a path. Returns whether the path
    /// changed, and how frames for all nodes are to be sent from now on if that changes.
    pub(crate) fn evaluate(
        &mut self,
        reach: GroupPath,
        (reached, hearing): (usize, usize),
        rtt_us: Option<u64>,
        loss: f64,
        now: Time,
    ) -> (bool, Option<GroupPath>) {
        self.update_demand(hearing, rtt_us, loss, now);
        let once = match reach {
            _ if hearing < 2 => None,
            GroupPath::Unicast => None,
            GroupPath::Multicast => Some(Carrier::MulticastDatagrams),
            GroupPath::Chain => Some(Carrier::Chain),
        };
        let each = (reached > 0).then_some(Carrier::UnicastDatagrams);
        let works = [Some(Carrier::TcpConnections), each, once];
        let demand = self.demand;
        let costs = works.into_iter().flatten();
        self.carrier_costs =
            costs.map(|carrier| (carrier, predicted_latency_ns(carrier, &demand))).collect();
        let changed = self.current_carrier.update(moment_of(now), &self.carrier_costs);
        (changed, self.next_group_path(reach, reached, hearing, now))
    }

    /// Switches to a path regardless of the prediction.
    pub(crate) fn set_carrier(&mut self, carrier: Carrier, now: Time) {
        self.current_carrier = DampedChoice::new(carrier, moment_of(now));
    }

    /// Updates the demand with the traffic since the last evaluation.
    fn update_demand(&mut self, hearing: usize, rtt_us: Option<u64>, loss: f64, now: Time) {
        let seconds = now.since_us(self.last_review_at).max(1) as f64 / 1e6;
        self.last_review_at = now;
        let (frames, bytes) = (self.frame_count as f64, self.bytes as f64);
        let demand = &mut self.demand;
        let faded = |before: f64, new: f64| before * (1.0 - NEWEST_WEIGHT) + new * NEWEST_WEIGHT;
        demand.frames_s = faded(demand.frames_s, frames / seconds);
        if self.frame_count > 0 {
            demand.frame_bytes = faded(demand.frame_bytes, bytes / frames);
            demand.mean_receivers = u32::try_from(self.receivers).unwrap_or(u32::MAX);
        }
        demand.mean_reached = u32::try_from(hearing).unwrap_or(u32::MAX);
        demand.rtt_us = rtt_us.unwrap_or(USUAL_RTT_US) as f64;
        demand.loss_fraction = loss.max(demand.loss_fraction * LOSS_DECAY);
        (self.frame_count, self.bytes, self.receivers) = (0, 0, 0);
    }

    /// Explains, for operators, why the current path was chosen.
    pub(crate) fn explain_choice(&self) -> String {
        let chosen = self.carrier();
        let costs = self.carrier_costs.iter().map(|(carrier, ns)| {
            let us = *ns as f64 / 1e3;
            format!("{} {us:.0} µs", carrier.name())
        });
        let costs: Vec<String> = costs.collect();
        let TrafficDemand {
            frames_s,
            frame_bytes,
            mean_receivers: receivers,
            loss_fraction: loss,
            ..
        } = self.demand;
        let lossy = match loss >= 0.001 {
            true => format!(", {:.1} % lost", loss * 100.0),
            false => String::new(),
        };
        format!(
            "auto: {} for {frames_s:.0} frames/s of {frame_bytes:.0} bytes to {receivers}{lossy}; predicted {}",
            chosen.name(),
            costs.join(", ")
        )
    }
    /// Returns how frames for all nodes should be sent from now on, or `None` if nothing should
    /// change.
    fn next_group_path(
        &mut self,
        reach: GroupPath,
        reached: usize,
        hearing: usize,
        now: Time,
    ) -> Option<GroupPath> {
        match reach {
            GroupPath::Multicast if reached >= 2 && 2 * hearing < reached => {
                let since = *self.unreached_since.get_or_insert(now);
                if now.since_us(since) < UNREACHED_US_MAX {
                    return None;
                }
                self.unreached_since = None;
                self.group_retry_at = now.plus_us(self.retry_delay_us);
                self.retry_delay_us = (2 * self.retry_delay_us).min(GROUP_RETRY_US.1);
                Some(GroupPath::Chain)
            }
            GroupPath::Chain if self.has_group && self.carrier() != Carrier::Chain => {
                (now >= self.group_retry_at).then_some(GroupPath::Multicast)
            }
            _ => {
                self.unreached_since = None;
                None
            }
        }
    }
}
