//! Predicts the cost of a path: the time from sending a proposal until its last receiver has it.
//! The model consists of a link and a processor, each with a queue.
//!
//! The constants were measured on the reference machine (`docs/performance.md`). They are only used
//! to choose between paths.

/// Cap on a prediction, in nanoseconds.
const PREDICTION_NS_MAX: f64 = 3.6e12;

/// Path of frames for several nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Carrier {
    /// Frames are sent over the connection to each node.
    TcpConnections,
    /// Frames are sent as datagrams to each node separately.
    UnicastDatagrams,
    /// Frames are sent once, as datagrams to the multicast address.
    MulticastDatagrams,
    /// Frames are sent once, as datagrams that are forwarded from node to node ([chain-1]).
    Chain,
}

impl Carrier {
    pub const fn name(self) -> &'static str {
        match self {
            Self::TcpConnections => "tcp",
            Self::UnicastDatagrams => "udp",
            Self::MulticastDatagrams => "multicast",
            Self::Chain => "chain",
        }
    }
}

/// Recent traffic to several nodes, and properties of the link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrafficDemand {
    /// Number of frames for several nodes, per second.
    pub frames_s: f64,
    /// Mean length of those frames, in bytes.
    pub frame_bytes: f64,
    /// Mean number of receivers of a frame.
    pub mean_receivers: u32,
    /// Mean number of those receivers that receive multicast datagrams.
    pub mean_reached: u32,
    /// Speed of this node's link, in bytes per second.
    pub link_bytes_s: f64,
    /// Payload of a datagram, in bytes.
    pub payload_bytes: f64,
    /// Longest round trip to a receiver, in microseconds.
    pub rtt_us: f64,
    /// Share of datagrams that a receiver loses, from 0 to 1.
    pub loss_fraction: f64,
}

/// Maximum utilization assumed for a queue.
const UTILIZATION_MAX: f64 = 0.98;
/// Overhead of a packet in bytes: Ethernet with the inter-frame gap, IP, and UDP or TCP.
const PACKET_OVERHEAD_BYTES: f64 = 66.0;
const HEADER_BYTES: f64 = 44.0;
/// Payload of a TCP packet on Ethernet, in bytes.
const TCP_SEGMENT_BYTES: f64 = 1448.0;
/// Cost of a system call, in microseconds. The next constant is the cost per byte.
const SYSTEM_CALL_US: f64 = 5.0;
const COST_PER_BYTE_US: f64 = 0.0005;
/// Cost of each additional datagram in a system call at the sender, in microseconds.
const EXTRA_DATAGRAM_US: f64 = 1.1;
/// Share of the rate that a chain may use. The rest is left to votes and repairs of the forwarding
/// nodes.
const CHAIN_RATE_SHARE: f64 = 0.93;
/// Delay caused by a lost TCP packet, in microseconds, in addition to a round trip.
const TCP_LOSS_DELAY_US: f64 = 3_000.0;
/// Delay caused by a lost datagram, in microseconds: the grace period before it is requested.
const DATAGRAM_LOSS_DELAY_US: f64 = 400.0;
/// Constant from Mathis, Semke, Mahdavi and Ott, The macroscopic behavior of the TCP congestion
/// avoidance algorithm, 1997: at loss p, TCP's rate is 1.22 segments per round trip, divided by the
/// square root of p.
const MATHIS_CONSTANT: f64 = 1.22;

/// Returns the predicted time until the last receiver has a frame, in nanoseconds.
pub fn predicted_latency_ns(carrier: Carrier, demand: &TrafficDemand) -> u64 {
    let TrafficDemand { frames_s, frame_bytes, rtt_us, loss_fraction: loss, .. } = *demand;
    let receivers = f64::from(demand.mean_receivers.max(1));
    let once = matches!(carrier, Carrier::MulticastDatagrams | Carrier::Chain);
    // Nodes that do not receive group datagrams get copies of their own.
    let copies = match once {
        true if demand.mean_reached >= 2 => {
            1.0 + receivers - f64::from(demand.mean_reached.min(demand.mean_receivers))
        }
        _ => receivers,
    };
    let tcp = carrier == Carrier::TcpConnections;
    let (packet, around) = match tcp {
        true => (TCP_SEGMENT_BYTES, PACKET_OVERHEAD_BYTES),
        false => (demand.payload_bytes.max(1.0), PACKET_OVERHEAD_BYTES + HEADER_BYTES),
    };
    let packets = (frame_bytes / packet).ceil().max(1.0);
    let wire_bytes = frame_bytes + packets * around;
    let share = if carrier == Carrier::Chain { CHAIN_RATE_SHARE } else { 1.0 };
    let one_us = wire_bytes / (demand.link_bytes_s.max(1.0) * share) * 1e6;
    let link_us = copies * one_us;
    let datagrams_us = if tcp { 0.0 } else { packets * EXTRA_DATAGRAM_US };
    let work_us = copies * (SYSTEM_CALL_US + datagrams_us + frame_bytes * COST_PER_BYTE_US);
    let held_us = match tcp && loss > 0.0 {
        true => {
            frame_bytes / (MATHIS_CONSTANT * TCP_SEGMENT_BYTES / (rtt_us.max(1.0) * loss.sqrt()))
        }
        false => 0.0,
    };
    let service_us = link_us.max(work_us).max(held_us);
    let busy = (frames_s * service_us / 1e6).clamp(0.0, UTILIZATION_MAX);
    // A node forwards the first packets before the whole frame has arrived.
    let hops = match carrier {
        Carrier::Chain => receivers * (rtt_us / 2.0 + one_us / packets),
        _ => rtt_us / 2.0,
    };
    let repair_us = if tcp { TCP_LOSS_DELAY_US } else { DATAGRAM_LOSS_DELAY_US };
    let repairs_us = (loss * packets).min(1.0) * (rtt_us * 1.25 + repair_us);
    let us = hops + service_us / (1.0 - busy) + repairs_us;
    #[expect(clippy::cast_possible_truncation, reason = "bounded here")]
    let ns = (us * 1e3).min(PREDICTION_NS_MAX) as u64;
    ns
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Carrier; 4] = [
        Carrier::TcpConnections,
        Carrier::UnicastDatagrams,
        Carrier::MulticastDatagrams,
        Carrier::Chain,
    ];

    /// Four receivers on 100 Mbit/s, all of which receive multicast.
    const SEGMENT: TrafficDemand = TrafficDemand {
        frames_s: 1_000.0,
        frame_bytes: 8_400.0,
        mean_receivers: 4,
        mean_reached: 4,
        link_bytes_s: 12.5e6,
        payload_bytes: 1_428.0,
        rtt_us: 300.0,
        loss_fraction: 0.0,
    };

    fn best(demand: &TrafficDemand) -> Carrier {
        let cost = |carrier: &Carrier| predicted_latency_ns(*carrier, demand);
        ALL.into_iter().min_by_key(cost).unwrap()
    }

    /// Returns whether [plane-3] would switch from one carrier to the other.
    fn is_worth_it(from: Carrier, to: Carrier, demand: &TrafficDemand) -> bool {
        predicted_latency_ns(from, demand) * 100 >= predicted_latency_ns(to, demand) * 120
    }

    /// On a full link, frames sent once fit, and separate copies take four times the space.
    #[test]
    fn on_a_full_link_frames_are_sent_only_once() {
        assert_eq!(best(&SEGMENT), Carrier::MulticastDatagrams);
        assert!(is_worth_it(Carrier::TcpConnections, Carrier::MulticastDatagrams, &SEGMENT));
        assert!(is_worth_it(Carrier::TcpConnections, Carrier::Chain, &SEGMENT));
        // The result is the same at the rate to which TCP is limited, so it does not depend on the
        // current path.
        let held = TrafficDemand { frames_s: 355.0, ..SEGMENT };
        assert!(is_worth_it(Carrier::TcpConnections, Carrier::MulticastDatagrams, &held));
        assert!(is_worth_it(Carrier::TcpConnections, Carrier::Chain, &held));
        assert!(!is_worth_it(Carrier::MulticastDatagrams, Carrier::TcpConnections, &held));
    }

    /// Few and small frames on a fast link justify no change, whatever the current path.
    #[test]
    fn idle_links_justify_no_change() {
        let idle = TrafficDemand {
            frames_s: 50.0,
            frame_bytes: 200.0,
            link_bytes_s: 1.25e9,
            mean_receivers: 2,
            mean_reached: 2,
            ..SEGMENT
        };
        for from in
            [Carrier::TcpConnections, Carrier::UnicastDatagrams, Carrier::MulticastDatagrams]
        {
            for to in
                [Carrier::TcpConnections, Carrier::UnicastDatagrams, Carrier::MulticastDatagrams]
            {
                assert!(!is_worth_it(from, to, &idle), "{from:?} to {to:?}");
            }
        }
        // Nor do they justify the hops of a chain.
        assert!(is_worth_it(Carrier::Chain, Carrier::TcpConnections, &idle));
    }

    /// A multicast group that reaches no node is no better than datagrams to each node.
    #[test]
    fn group_without_receivers_has_no_advantage() {
        let deaf = TrafficDemand { mean_reached: 0, ..SEGMENT };
        assert_eq!(
            predicted_latency_ns(Carrier::MulticastDatagrams, &deaf),
            predicted_latency_ns(Carrier::UnicastDatagrams, &deaf)
        );
        assert!(
            predicted_latency_ns(Carrier::MulticastDatagrams, &SEGMENT)
                < predicted_latency_ns(Carrier::MulticastDatagrams, &deaf)
        );
    }

    /// Loss on a long path slows TCP down more than datagrams.
    #[test]
    fn loss_on_a_long_path_slows_connections_down() {
        let lossy = TrafficDemand {
            frames_s: 200.0,
            mean_receivers: 2,
            mean_reached: 2,
            rtt_us: 20_000.0,
            loss_fraction: 0.02,
            ..SEGMENT
        };
        assert!(is_worth_it(Carrier::TcpConnections, Carrier::UnicastDatagrams, &lossy));
    }

    /// A prediction is a number, whatever the measurements.
    #[test]
    fn extreme_measurements_yield_finite_predictions() {
        for frames_s in [0.0, 1e9] {
            for frame_bytes in [0.0, 1.0, 1.7e7] {
                for link_bytes_s in [0.0, 1.0, 1e12] {
                    for loss in [0.0, 1.0] {
                        let demand = TrafficDemand {
                            frames_s,
                            frame_bytes,
                            link_bytes_s,
                            loss_fraction: loss,
                            mean_receivers: 0,
                            rtt_us: 0.0,
                            ..SEGMENT
                        };
                        for carrier in ALL {
                            assert!(predicted_latency_ns(carrier, &demand) < u64::MAX / 1000);
                        }
                    }
                }
            }
        }
    }
}
