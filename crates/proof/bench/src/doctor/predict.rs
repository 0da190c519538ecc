//! Predicts the performance of a plane with the analytical model of `quorate-tuner` and the figures
//! of this machine.
//!
//! The prediction is for the bare commit that [`crate::doctor::measure`] can measure: a leader
//! receives 64-byte commands from a client on its machine, sends them to all followers, writes and
//! flushes them as the followers do, and replies when all have done so. One batch is in flight at a
//! time. A protocol should come close to that rate; a full node does not reach it.

use quorate_tuner::model::{Bandwidth, Bytes, Disk, LinearCost, Micros, Model, Network, Workload};
use serde::Serialize;

use crate::doctor::{
    figures::{Figures, name},
    plane::Plane,
};

pub const COMMAND_BYTES: usize = 64;
/// Number of outstanding commands when throughput is measured. Latency is measured with one.
pub const OUTSTANDING_COMMANDS: u32 = 64;
/// Size in bytes of a reply, a vote and a batch header.
const SMALL_BYTES: f64 = 8.0;
const BATCH_BYTES: f64 = (1 << 20) as f64;

/// Predicted performance, or the reason why there is no prediction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlanePrediction {
    /// Commands per second, with [`OUTSTANDING_COMMANDS`] commands in flight.
    pub throughput_per_s: Option<f64>,
    /// Latency in microseconds from command to reply, with one command in flight.
    pub latency_us: Option<f64>,
    /// `durable` if every command is flushed, otherwise `volatile`.
    pub class: Option<&'static str>,
    pub nodes: Option<u32>,
    /// Basis of the prediction, or the reason why there is none.
    pub why: String,
}

impl PlanePrediction {
    pub fn unknown(why: impl Into<String>) -> Self {
        Self { throughput_per_s: None, latency_us: None, class: None, nodes: None, why: why.into() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodePlacement {
    /// All nodes run on this machine and communicate over loopback.
    SameMachine,
    /// Nodes run on separate machines. Their network may have been measured only in part.
    SeparateMachines,
}

/// Predicts the performance of a group of `nodes` members on a plane.
pub fn predict(
    plane: Plane,
    nodes: u32,
    place: NodePlacement,
    figures: &Figures,
) -> PlanePrediction {
    ModelInputs::from_figures(plane, nodes, place, figures)
        .map_or_else(PlanePrediction::unknown, |ground| ground.predict(plane))
}

/// Measured inputs of the model.
#[derive(Clone, Debug, PartialEq)]
struct ModelInputs {
    nodes: u32,
    /// Round trip between two nodes.
    node_round_trip_us: f64,
    /// Round trip between the leader and its client.
    client_round_trip_us: f64,
    flush_us: Option<f64>,
    /// The leader's processor time for sending and receiving one message.
    exchange_cpu_us: f64,
    /// Processor time of a full node per command and per batch.
    node_cpu_us: Option<(f64, f64)>,
    basis: String,
}

impl ModelInputs {
    fn from_figures(
        plane: Plane,
        nodes: u32,
        place: NodePlacement,
        figures: &Figures,
    ) -> Result<Self, String> {
        let need = |name| figures.get(name).ok_or_else(|| figures.unknown_reason(name));
        let (trip, cpu) = match plane {
            Plane::Tcp => (name::TRIP_TCP, name::CPU_TCP),
            Plane::Udp | Plane::Multicast | Plane::Chain => (name::TRIP_UDP, name::CPU_UDP),
            // The cost of datagrams is an upper bound for raw frames.
            Plane::Ethernet => (name::TRIP_ETHERNET, name::CPU_UDP),
        };
        let here = need(trip)?;
        // The Ethernet figure was already measured between members.
        let apart = place == NodePlacement::SeparateMachines && plane != Plane::Ethernet;
        let far = |name| figures.get(name).filter(|_| apart);
        // The leader's figure includes all delays. The figure from connecting to peers does not
        // include waking a process, because kernels reply; loopback's round trip accounts for it.
        let (trip_us, from) = match (far(name::TRIP_LEADER), far(name::TRIP_PEERS)) {
            (Some(trip), _) if plane == Plane::Tcp => (trip, "the leader's round trip"),
            (_, Some(trip)) => {
                (trip + here, "the round trip to peers, and loopback's for what processes add")
            }
            (Some(trip), None) => (trip, "the leader's round trip, which is over TCP"),
            (None, None) if plane == Plane::Ethernet => (here, "the round trip between members"),
            (None, None) => {
                (here, "the round trip of loopback, as if all nodes were on this machine")
            }
        };
        let flush = far(name::FLUSH_LEADER).filter(|_| figures.get(name::FLUSH).is_none());
        let flush_us = figures.get(name::FLUSH).or(flush);
        let node = far(name::CPU_COMMAND).zip(far(name::CPU_BATCH)).filter(|_| plane == Plane::Tcp);
        let of_node = if node.is_some() {
            ", a node's processor time"
        } else {
            ", a bare program's processor time"
        };
        let disk = if flush_us.is_some() { ", a flush" } else { ", no flush: none is known" };
        Ok(Self {
            nodes: nodes.max(2),
            node_round_trip_us: trip_us,
            client_round_trip_us: need(name::TRIP_TCP)?,
            flush_us,
            exchange_cpu_us: need(cpu)?,
            node_cpu_us: node,
            basis: format!("{from}{of_node}{disk}"),
        })
    }

    fn predict(self, plane: Plane) -> PlanePrediction {
        let one = self.batch_wall_us(plane, 1.0);
        let many = self.batch_wall_us(plane, f64::from(OUTSTANDING_COMMANDS));
        let throughput = f64::from(OUTSTANDING_COMMANDS) * 1e6 / (many + self.client_round_trip_us);
        let latency = one + self.client_round_trip_us;
        let sensible = throughput.is_finite() && latency.is_finite() && latency > 0.0;
        PlanePrediction {
            throughput_per_s: sensible.then_some(throughput.round()),
            latency_us: sensible.then_some((latency * 10.0).round() / 10.0),
            class: Some(if self.flush_us.is_some() { "durable" } else { "volatile" }),
            nodes: Some(self.nodes),
            why: self.basis,
        }
    }

    /// Returns the time from sending a single batch to receiving all replies to it.
    fn batch_wall_us(&self, plane: Plane, commands: f64) -> f64 {
        let nodes = f64::from(self.nodes);
        let others = nodes - 1.0;
        let quorum = (nodes / 2.0).floor() + 1.0;
        let fixed = |us| LinearCost { fixed: Micros(us), per_byte: Micros(0.0) };
        // A bare program receives all commands of a batch in one message, and replies with one.
        let command =
            self.node_cpu_us.map_or(self.exchange_cpu_us / commands, |(command, _)| command);
        let batch = self.node_cpu_us.map_or(self.exchange_cpu_us, |(_, batch)| batch / others);
        let (batch, hops) = match plane {
            // The leader sends one message to all followers and receives a reply from each, which
            // is half an exchange per message.
            Plane::Multicast => (batch * 0.5 * (1.0 + 1.0 / others), 2.0),
            // The leader sends one message to the first follower and receives one from the last of
            // a quorum.
            Plane::Chain => (batch / others, quorum),
            Plane::Tcp | Plane::Udp | Plane::Ethernet => (batch, 2.0),
        };
        // Link speeds are unknown, but small commands do not saturate links.
        let unbounded = Bandwidth(f64::INFINITY);
        let mut model = Model::from_paper(
            nodes,
            Network::Lan,
            unbounded,
            Micros(self.node_round_trip_us / 2.0 * hops / 2.0),
            fixed(command),
            fixed(batch),
        );
        model.disk = self.flush_us.map(|us| Disk {
            flush: Micros(us),
            bandwidth: unbounded,
            writes_in_flight_max: 1.0,
            write_max: Bytes(BATCH_BYTES),
        });
        #[expect(clippy::cast_precision_loss, reason = "a size")]
        let load = Workload {
            request: Bytes(COMMAND_BYTES as f64),
            answer: Bytes(SMALL_BYTES),
            batch_header: Bytes(SMALL_BYTES),
            vote: Bytes(SMALL_BYTES),
            execute: Micros(0.0),
            outstanding: None,
        };
        model.predict_instance(&load, commands, 1.0).duration.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here() -> Figures {
        let mut figures = Figures::default();
        figures.record_value(name::TRIP_TCP, 20.0, "");
        figures.record_value(name::CPU_TCP, 5.0, "");
        figures.record_value(name::TRIP_UDP, 16.0, "");
        figures.record_value(name::CPU_UDP, 4.0, "");
        figures
    }

    fn latency(plane: Plane, nodes: u32, place: NodePlacement, figures: &Figures) -> f64 {
        let predicted = predict(plane, nodes, place, figures);
        predicted.latency_us.unwrap_or_else(|| panic!("{predicted:?}"))
    }

    #[test]
    fn commit_latency_is_client_plus_round_trip_plus_flush() {
        let mut figures = here();
        assert_eq!(latency(Plane::Tcp, 3, NodePlacement::SameMachine, &figures), 40.0);
        assert_eq!(latency(Plane::Udp, 3, NodePlacement::SameMachine, &figures), 36.0);
        let predicted = predict(Plane::Tcp, 3, NodePlacement::SameMachine, &figures);
        assert_eq!((predicted.class, predicted.nodes), (Some("volatile"), Some(3)));
        assert_eq!(predicted.throughput_per_s, Some(1.6e6), "64 in 40 µs");
        figures.record_value(name::FLUSH, 1000.0, "");
        assert_eq!(latency(Plane::Tcp, 3, NodePlacement::SameMachine, &figures), 1040.0);
        let predicted = predict(Plane::Tcp, 3, NodePlacement::SameMachine, &figures);
        assert_eq!(predicted.class, Some("durable"));
    }

    /// With many peers the leader's processor takes longer than a message and its reply, except
    /// where one message reaches all.
    #[test]
    fn many_peers_cost_the_leader_except_with_multicast() {
        let figures = here();
        assert_eq!(
            latency(Plane::Tcp, 9, NodePlacement::SameMachine, &figures),
            20.0 + 5.0 + 8.0 * 5.0
        );
        let multicast = latency(Plane::Multicast, 9, NodePlacement::SameMachine, &figures);
        assert_eq!(multicast, 20.0 + 4.0 + 8.0 * 2.25);
        // In a chain the hops dominate: five to reach a quorum and return.
        assert_eq!(latency(Plane::Chain, 9, NodePlacement::SameMachine, &figures), 20.0 + 40.0);
        assert_eq!(latency(Plane::Chain, 3, NodePlacement::SameMachine, &figures), 36.0);
    }

    #[test]
    fn peer_round_trips_apply_only_between_machines() {
        let mut figures = here();
        figures.record_value(name::TRIP_PEERS, 100.0, "");
        assert_eq!(latency(Plane::Tcp, 3, NodePlacement::SameMachine, &figures), 40.0);
        assert_eq!(latency(Plane::Tcp, 3, NodePlacement::SeparateMachines, &figures), 140.0);
        assert_eq!(latency(Plane::Udp, 3, NodePlacement::SeparateMachines, &figures), 136.0);
        figures.record_value(name::TRIP_LEADER, 150.0, "");
        assert_eq!(latency(Plane::Tcp, 3, NodePlacement::SeparateMachines, &figures), 170.0);
        figures.record_value(name::FLUSH_LEADER, 50.0, "");
        assert_eq!(latency(Plane::Tcp, 3, NodePlacement::SeparateMachines, &figures), 220.0);
        assert_eq!(latency(Plane::Tcp, 3, NodePlacement::SameMachine, &figures), 40.0);
        figures.record_value(name::CPU_COMMAND, 3.0, "");
        figures.record_value(name::CPU_BATCH, 300.0, "");
        let of_node = predict(Plane::Tcp, 3, NodePlacement::SeparateMachines, &figures);
        assert_eq!(of_node.latency_us, Some(20.0 + 3.0 + 300.0 + 50.0));
        assert!(of_node.why.contains("a node's processor time"), "{of_node:?}");
    }

    #[test]
    fn unknown_figures_yield_no_prediction() {
        let nothing = predict(Plane::Tcp, 3, NodePlacement::SameMachine, &Figures::default());
        assert_eq!(
            (nothing.latency_us, nothing.throughput_per_s, nothing.class),
            (None, None, None)
        );
        assert!(nothing.why.contains("round_trip_tcp is unknown"), "{nothing:?}");
        let ethernet = predict(Plane::Ethernet, 3, NodePlacement::SameMachine, &here());
        assert_eq!(ethernet.latency_us, None);
        assert!(ethernet.why.contains("was not measured"), "{ethernet:?}");
    }

    /// [plane-1] The round trip is the one that members probe, whatever the time to connect.
    #[test]
    fn ethernet_is_predicted_from_probed_round_trips() {
        let mut figures = here();
        figures.record_value(name::TRIP_ETHERNET, 50.0, "");
        figures.record_value(name::TRIP_PEERS, 900.0, "");
        let expected = 20.0 + 50.0;
        for place in [NodePlacement::SameMachine, NodePlacement::SeparateMachines] {
            assert_eq!(latency(Plane::Ethernet, 3, place, &figures), expected);
        }
    }
}
