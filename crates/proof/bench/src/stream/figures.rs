//! Figures that only byte stream rows have.

use serde::Serialize;

use super::{AcknowledgementCounts, speech::StreamProtocol};
use crate::{
    figure::{median, round_to_four_digits},
    load::OfferedLoad,
    repetition::{GENERATOR_ROLE, Repetition, RoleCost},
};

/// Delivered share below which the load counts as too high for the system or the generator.
pub const DELIVERED_SHARE_MIN: f64 = 0.99;

/// Figures for a row whose commands are stream writes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StreamFigures {
    /// `framed` or `raw`.
    pub protocol: String,
    /// Set if writes that were due at the same time shared a system call.
    pub gathered: bool,
    /// Set if the writer ran on a CPU that the bench and its processes did not otherwise use.
    pub pinned: bool,
    /// Target rate in bytes per second over all streams; null for unlimited.
    pub target_bytes_per_s: Option<u64>,
    /// Bytes per second that became durable.
    pub bytes_per_s: f64,
    /// Delivered share of the target rate; null without a target.
    pub delivered: Option<f64>,
    /// Mean number of bytes that became durable per acknowledgement.
    pub acknowledged_bytes: f64,
    /// Median latency from the write call to the acknowledgement. In contrast, the row's own
    /// latencies start when a write was due, so that under overload they include the generator's
    /// delay.
    pub from_call_p50_us: f64,
    /// 99th percentile of the latency from the write call to the acknowledgement.
    pub from_call_p99_us: f64,
    /// CPU time of a node in each role.
    pub cpu: Vec<NodeCost>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeCost {
    /// Named as in the field `roles` of the row.
    pub role: String,
    /// Seconds in user mode per 10⁹ durable bytes.
    pub user_s_per_gb: f64,
    /// Seconds in the kernel per 10⁹ durable bytes.
    pub system_s_per_gb: f64,
}

/// Load that was requested for a row.
#[derive(Clone, Copy, Debug)]
pub struct StreamSetting {
    pub protocol: StreamProtocol,
    pub write_bytes: usize,
    /// Offered load, in writes.
    pub offer: OfferedLoad,
    /// Set if writes due at the same time share a system call.
    pub gathers_writes: bool,
}

impl StreamSetting {
    /// Returns the target rate in bytes per second; `None` in a closed loop.
    pub fn target_bytes_per_s(&self) -> Option<u64> {
        match self.offer {
            OfferedLoad::Open { per_second } => {
                Some(per_second.saturating_mul(self.write_bytes as u64))
            }
            OfferedLoad::Closed { .. } => None,
        }
    }
}

impl StreamFigures {
    /// Returns the medians over the repetitions.
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    pub fn new(
        asked: StreamSetting,
        all: &[Repetition],
        acknowledged: &[AcknowledgementCounts],
    ) -> Self {
        let middle = |figure: &dyn Fn(&AcknowledgementCounts) -> f64| {
            round_to_four_digits(median(acknowledged.iter().map(figure)))
        };
        let call =
            |share| move |one: &AcknowledgementCounts| one.latencies_from_call.quantile_us(share);
        let writes = all.iter().map(|one| one.samples.completed_per_second());
        let bytes_per_s = round_to_four_digits(median(writes) * asked.write_bytes as f64);
        let target = asked.target_bytes_per_s();
        Self {
            protocol: asked.protocol.name().to_owned(),
            gathered: asked.gathers_writes,
            pinned: false,
            target_bytes_per_s: target,
            bytes_per_s,
            delivered: target
                .map(|target| round_to_four_digits(bytes_per_s / target.max(1) as f64)),
            acknowledged_bytes: middle(&AcknowledgementCounts::mean_bytes_each),
            from_call_p50_us: middle(&call(0.5)),
            from_call_p99_us: middle(&call(0.99)),
            cpu: Vec::new(),
        }
    }

    /// Returns whether the offered load was delivered in full; true without a target rate.
    pub fn is_delivered(&self) -> bool {
        self.delivered.is_none_or(|share| share >= DELIVERED_SHARE_MIN)
    }

    /// Sets the CPU time per byte of the nodes in each role. `nodes` returns the number of nodes in
    /// a role.
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    pub fn set_cpu(
        &mut self,
        roles: &[RoleCost],
        write_bytes: usize,
        nodes: impl Fn(&str) -> usize,
    ) {
        let of = |role: &RoleCost| {
            let share = 1000.0 / write_bytes.max(1) as f64 / nodes(&role.role).max(1) as f64;
            NodeCost {
                role: role.role.clone(),
                user_s_per_gb: round_to_four_digits(role.user_us_per_op * share),
                system_s_per_gb: round_to_four_digits(role.system_us_per_op * share),
            }
        };
        self.cpu = roles.iter().map(of).collect();
    }

    pub fn cpu_of(&self, role: &str) -> Option<&NodeCost> {
        self.cpu.iter().find(|cost| cost.role == role)
    }

    /// Returns the description of the load used in rows.
    pub fn describe_load(&self, outstanding: Option<u32>, streams: u32) -> String {
        let load = match (self.target_bytes_per_s, outstanding) {
            (Some(target), _) => format_rate(target),
            (None, Some(outstanding)) => format!("{outstanding} outstanding"),
            (None, None) => "none".to_owned(),
        };
        if streams == 1 { load } else { format!("{load}, {streams} streams") }
    }

    /// Describes the CPU time of a node in each role, in user mode and in the kernel.
    pub fn describe_cpu(&self) -> String {
        let nodes = self.cpu.iter().filter(|cost| cost.role != GENERATOR_ROLE);
        let shown = nodes.map(|cost| {
            let NodeCost { role, user_s_per_gb, system_s_per_gb } = cost;
            format!("{role} {user_s_per_gb} + {system_s_per_gb}")
        });
        shown.collect::<Vec<_>>().join(", ")
    }
}

/// Formats a rate such as `5 MB/s`.
#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
pub fn format_rate(bytes_per_s: u64) -> String {
    format!("{} MB/s", round_to_four_digits(bytes_per_s as f64 / 1e6))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::SECOND;

    fn figures(offer: OfferedLoad, writes: &[u64]) -> StreamFigures {
        let repetition = |writes: &u64| {
            let mut repetition = Repetition::default();
            repetition.samples.completed = *writes;
            repetition.samples.measured_ns = SECOND;
            repetition
        };
        let acknowledged = |writes: &u64| AcknowledgementCounts {
            count: 4,
            bytes: writes * 100,
            ..AcknowledgementCounts::default()
        };
        let all: Vec<Repetition> = writes.iter().map(repetition).collect();
        let acknowledged: Vec<AcknowledgementCounts> = writes.iter().map(acknowledged).collect();
        StreamFigures::new(asked(offer), &all, &acknowledged)
    }

    fn asked(offer: OfferedLoad) -> StreamSetting {
        StreamSetting {
            protocol: StreamProtocol::Framed,
            write_bytes: 100,
            offer,
            gathers_writes: false,
        }
    }

    #[test]
    fn delivered_share_is_relative_to_the_target() {
        let offer = OfferedLoad::Open { per_second: 1000 };
        let good = figures(offer, &[990, 500, 1000]);
        let far = |one: f64, other: f64| (one - other).abs() > 1e-9;
        assert_eq!(good.target_bytes_per_s, Some(100_000));
        assert!(!far(good.bytes_per_s, 99_000.0) && good.delivered == Some(0.99));
        assert!(!far(good.acknowledged_bytes, 24_750.0));
        assert!(good.is_delivered() && !figures(offer, &[500]).is_delivered());
        assert_eq!(good.describe_load(None, 1), "0.1 MB/s");
        let closed = figures(OfferedLoad::Closed { outstanding: 8 }, &[990]);
        assert_eq!((closed.target_bytes_per_s, closed.delivered), (None, None));
        assert_eq!(closed.describe_load(Some(8), 3), "8 outstanding, 3 streams");
    }

    #[test]
    fn cpu_time_is_per_node_and_byte() {
        let role = |role: &str| RoleCost {
            role: role.to_owned(),
            user_us_per_op: 2.0,
            system_us_per_op: 4.0,
            switches_per_op: 0.0,
            switches_per_s: 0.0,
            cpus_busy: 0.0,
        };
        let mut figures = figures(OfferedLoad::Closed { outstanding: 8 }, &[10]);
        let roles = [role("leader"), role("followers"), role(GENERATOR_ROLE)];
        figures.set_cpu(&roles, 100, |role| if role == "followers" { 2 } else { 1 });
        // 2 µs per 100 B is 20 s per 10⁹ B.
        let cost = |role| {
            let cost = figures.cpu_of(role).unwrap();
            format!("{} {}", cost.user_s_per_gb, cost.system_s_per_gb)
        };
        assert_eq!([cost("leader"), cost("followers")], ["20 40", "10 20"]);
        assert_eq!(figures.describe_cpu(), "leader 20 + 40, followers 10 + 20");
    }
}
