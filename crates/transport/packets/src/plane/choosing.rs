//! Chooses the path of frames for several nodes from recent traffic, reachability, and cost
//! ([plane-3]).
//!
//! A group that most nodes do not receive is left for a chain, and tried again later, when the
//! chain is idle.

use crate::limits::Limits;
use quorate_core::{node_id::NodeId, time::Time};
use quorate_tuner::{Choice, Moment};

use crate::plane::{
    packets::{GROUP, Packets, Reach},
    predict::{Carrier, Demand, latency_ns},
};

/// Weight of a sample relative to all earlier ones.
const NEWEST: f64 = 0.3;
/// A loss is remembered: so much of it is left a look later.
const LOSS_KEPT: f64 = 0.99;
/// For how long most nodes do not hear the group before it is given up.
const DEAF_US: u64 = 1_000_000;
/// When it is tried again: after this, and after twice as long each further time.
const AGAIN_US: (u64, u64) = (2_000_000, 60_000_000);
/// Before anything is known of the path.
const USUAL_RTT_US: u64 = 300;

/// The same time on the tuner's clock.
const fn moment(now: Time) -> Moment {
    Moment(now.0.saturating_mul(1000))
}

/// The state of choosing.
pub(crate) struct Choosing {
    choice: Choice<Carrier>,
    /// There is a group, as far as this machine is concerned.
    has_group: bool,
    /// Since the last look.
    frames: u64,
    bytes: u64,
    receivers: usize,
    looked_at: Time,
    demand: Demand,
    /// Cost of each path as of the last look, in nanoseconds.
    costs: Vec<(Carrier, u64)>,
    deaf_since: Option<Time>,
    again_at: Time,
    again_us: u64,
}

impl Choosing {
    /// Over a link of these capacities, with the group if there is one.
    pub(crate) fn new((limits, reach): (&Limits, Reach), now: Time) -> Self {
        Self {
            choice: Choice::new(Carrier::Connections, moment(now)),
            has_group: reach == Reach::Group,
            frames: 0,
            bytes: 0,
            receivers: 0,
            looked_at: now,
            demand: Demand {
                frames_s: 0.0,
                frame_bytes: 0.0,
                receivers: 0,
                hearing: 0,
                link_bytes_s: limits.link_bytes_s as f64,
                payload_bytes: limits.payload_bytes() as f64,
                rtt_us: USUAL_RTT_US as f64,
                loss: 0.0,
            },
            costs: Vec::new(),
            deaf_since: None,
            again_at: now,
            again_us: AGAIN_US.0,
        }
    }

    pub(crate) const fn chosen(&self) -> Carrier {
        self.choice.chosen()
    }

    /// A frame for so many nodes is sent.
    pub(crate) fn sent(&mut self, receivers: usize, bytes: usize) {
        if receivers >= 2 {
            self.frames += 1;
            self.bytes += bytes as u64;
            self.receivers = self.receivers.max(receivers);
        }
    }

    /// Adds what was sent since the last look.
    fn look(&mut self, hearing: usize, rtt_us: Option<u64>, loss: f64, now: Time) {
        let seconds = now.since_us(self.looked_at).max(1) as f64 / 1e6;
        self.looked_at = now;
        let (frames, bytes) = (self.frames as f64, self.bytes as f64);
        let demand = &mut self.demand;
        let faded = |before: f64, new: f64| before * (1.0 - NEWEST) + new * NEWEST;
        demand.frames_s = faded(demand.frames_s, frames / seconds);
        if self.frames > 0 {
            demand.frame_bytes = faded(demand.frame_bytes, bytes / frames);
            demand.receivers = u32::try_from(self.receivers).unwrap_or(u32::MAX);
        }
        demand.hearing = u32::try_from(hearing).unwrap_or(u32::MAX);
        demand.rtt_us = rtt_us.unwrap_or(USUAL_RTT_US) as f64;
        demand.loss = loss.max(demand.loss * LOSS_KEPT);
        (self.frames, self.bytes, self.receivers) = (0, 0, 0);
    }

    /// Why frames leave as they do, for people.
    pub(crate) fn why(&self) -> String {
        let chosen = self.chosen();
        let costs = self.costs.iter().map(|(carrier, ns)| {
            let us = *ns as f64 / 1e3;
            format!("{} {us:.0} µs", carrier.name())
        });
        let costs: Vec<String> = costs.collect();
        let Demand { frames_s, frame_bytes, receivers, loss, .. } = self.demand;
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
}

impl Packets {
    /// Why frames for several nodes leave as they do, if that is chosen ([plane-3]).
    pub fn why(&self) -> Option<String> {
        self.choosing.as_ref().map(Choosing::why)
    }

    /// Looks at what was sent and who is reached, and chooses.
    pub(crate) fn choose(&mut self, now: Time) {
        let up = self.links.values().filter(|link| link.one.is_up());
        let (reached, hearing) =
            (up.clone().count(), up.clone().filter(|link| link.group.is_up()).count());
        let rtt_us = up.filter_map(|link| link.one.rtt_us()).max();
        let channels = self.links.values().map(|link| link.channel);
        let losses = channels.chain([GROUP]);
        let losses = losses.filter_map(|channel| self.endpoint.loss_ppm(channel));
        let loss = losses.max().unwrap_or(0) as f64 / 1e6;
        let reach = self.reach;
        let Some(choosing) = &mut self.choosing else {
            return;
        };
        choosing.look(hearing, rtt_us, loss, now);
        let once = match reach {
            _ if hearing < 2 => None,
            Reach::Each => None,
            Reach::Group => Some(Carrier::Group),
            Reach::Chain => Some(Carrier::Chain),
        };
        let each = (reached > 0).then_some(Carrier::Each);
        let works = [Some(Carrier::Connections), each, once];
        let demand = choosing.demand;
        let costs = works.into_iter().flatten();
        choosing.costs = costs.map(|carrier| (carrier, latency_ns(carrier, &demand))).collect();
        if choosing.choice.judge(moment(now), &choosing.costs) {
            self.counters.changes += 1;
        }
        if let Some(reach) = choosing.next_reach(reach, reached, hearing, now) {
            self.reach_by(reach, now);
        }
    }

    /// Takes this way now, whatever is predicted: tests go through all of them.
    pub fn force(&mut self, carrier: Carrier, now: Time) {
        let reach = match carrier {
            Carrier::Group => Reach::Group,
            Carrier::Chain => Reach::Chain,
            Carrier::Connections | Carrier::Each => self.reach,
        };
        if let Some(choosing) = &mut self.choosing {
            choosing.choice = Choice::new(carrier, moment(now));
            self.counters.changes += 1;
        }
        if reach != self.reach {
            self.reach_by(reach, now);
        }
    }

    /// Nodes whose way by the group is up, for tests and people.
    pub fn hearing(&self) -> impl Iterator<Item = NodeId> {
        let hearing = self.links.values().filter(|link| link.group.is_up());
        hearing.map(|link| link.member.node)
    }
}

impl Choosing {
    /// Returns the path for frames to all, if it should change.
    fn next_reach(
        &mut self,
        reach: Reach,
        reached: usize,
        hearing: usize,
        now: Time,
    ) -> Option<Reach> {
        match reach {
            Reach::Group if reached >= 2 && 2 * hearing < reached => {
                let since = *self.deaf_since.get_or_insert(now);
                if now.since_us(since) < DEAF_US {
                    return None;
                }
                self.deaf_since = None;
                self.again_at = now.plus_us(self.again_us);
                self.again_us = (2 * self.again_us).min(AGAIN_US.1);
                Some(Reach::Chain)
            }
            Reach::Chain if self.has_group && self.chosen() != Carrier::Chain => {
                (now >= self.again_at).then_some(Reach::Group)
            }
            _ => {
                self.deaf_since = None;
                None
            }
        }
    }
}
