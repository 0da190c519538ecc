//! Predicts the cost of a path: the time from sending a proposal until its last receiver has it.
//! The model consists of a link and a processor, each with a queue.
//!
//! The constants were measured on the reference machine (`docs/performance.md`). They are only used
//! to choose between paths.

/// Cap on a prediction, in nanoseconds.
const LONGEST_NS: f64 = 3.6e12;

/// Path of frames for several nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Carrier {
    /// Frames are sent over the connection to each node.
    Connections,
    /// Frames are sent as datagrams to each node separately.
    Each,
    /// Frames are sent once, as datagrams to the multicast address.
    Group,
    /// Frames are sent once, as datagrams that are forwarded from node to node ([chain-1]).
    Chain,
}

impl Carrier {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connections => "tcp",
            Self::Each => "udp",
            Self::Group => "multicast",
            Self::Chain => "chain",
        }
    }
}

/// Recent traffic to several nodes, and properties of the link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// Number of frames for several nodes, per second.
    pub frames_s: f64,
    /// Mean length of those frames, in bytes.
    pub frame_bytes: f64,
    /// Mean number of receivers of a frame.
    pub receivers: u32,
    /// Mean number of those receivers that receive multicast datagrams.
    pub hearing: u32,
    /// Speed of this node's link, in bytes per second.
    pub link_bytes_s: f64,
    /// Payload of a datagram, in bytes.
    pub payload_bytes: f64,
    /// Longest round trip to a receiver, in microseconds.
    pub rtt_us: f64,
    /// Share of datagrams that a receiver loses, from 0 to 1.
    pub loss: f64,
}

/// Maximum utilization assumed for a queue.
const BUSY_MAX: f64 = 0.98;
/// Overhead of a packet in bytes: Ethernet with the inter-frame gap, IP, and UDP or TCP.
const AROUND_BYTES: f64 = 66.0;
const HEADER_BYTES: f64 = 44.0;
/// Payload of a TCP packet on Ethernet, in bytes.
const SEGMENT_BYTES: f64 = 1448.0;
/// Cost of a system call, in microseconds. The next constant is the cost per byte.
const CALL_US: f64 = 5.0;
const BYTE_US: f64 = 0.0005;
/// Cost of each additional datagram in a system call at the sender, in microseconds.
const DATAGRAM_US: f64 = 1.1;
/// Share of the rate that a chain may use. The rest is left to votes and repairs of the forwarding
/// nodes.
const CHAIN_SHARE: f64 = 0.93;
/// Delay caused by a lost TCP packet, in microseconds, in addition to a round trip.
const TCP_REPAIR_US: f64 = 3_000.0;
/// Delay caused by a lost datagram, in microseconds: the grace period before it is requested.
const REPAIR_US: f64 = 400.0;
/// Constant from Mathis, Semke, Mahdavi and Ott, The macroscopic behavior of the TCP congestion
/// avoidance algorithm, 1997: at loss p, TCP's rate is 1.22 segments per round trip, divided by the
/// square root of p.
const MATHIS: f64 = 1.22;

/// Returns the predicted time until the last receiver has a frame, in nanoseconds.
pub fn latency_ns(carrier: Carrier, demand: &Demand) -> u64 {
    let Demand { frames_s, frame_bytes, rtt_us, loss, .. } = *demand;
    let receivers = f64::from(demand.receivers.max(1));
    let once = matches!(carrier, Carrier::Group | Carrier::Chain);
    // Nodes that do not receive group datagrams get copies of their own.
    let copies = match once {
        true if demand.hearing >= 2 => {
            1.0 + receivers - f64::from(demand.hearing.min(demand.receivers))
        }
        _ => receivers,
    };
    let tcp = carrier == Carrier::Connections;
    let (packet, around) = match tcp {
        true => (SEGMENT_BYTES, AROUND_BYTES),
        false => (demand.payload_bytes.max(1.0), AROUND_BYTES + HEADER_BYTES),
    };
    let packets = (frame_bytes / packet).ceil().max(1.0);
    let wire_bytes = frame_bytes + packets * around;
    let share = if carrier == Carrier::Chain { CHAIN_SHARE } else { 1.0 };
    let one_us = wire_bytes / (demand.link_bytes_s.max(1.0) * share) * 1e6;
    let link_us = copies * one_us;
    let datagrams_us = if tcp { 0.0 } else { packets * DATAGRAM_US };
    let work_us = copies * (CALL_US + datagrams_us + frame_bytes * BYTE_US);
    let held_us = match tcp && loss > 0.0 {
        true => frame_bytes / (MATHIS * SEGMENT_BYTES / (rtt_us.max(1.0) * loss.sqrt())),
        false => 0.0,
    };
    let service_us = link_us.max(work_us).max(held_us);
    let busy = (frames_s * service_us / 1e6).clamp(0.0, BUSY_MAX);
    // A node forwards the first packets before the whole frame has arrived.
    let hops = match carrier {
        Carrier::Chain => receivers * (rtt_us / 2.0 + one_us / packets),
        _ => rtt_us / 2.0,
    };
    let repair_us = if tcp { TCP_REPAIR_US } else { REPAIR_US };
    let repairs_us = (loss * packets).min(1.0) * (rtt_us * 1.25 + repair_us);
    let us = hops + service_us / (1.0 - busy) + repairs_us;
    #[expect(clippy::cast_possible_truncation, reason = "bounded here")]
    let ns = (us * 1e3).min(LONGEST_NS) as u64;
    ns
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Carrier; 4] = [Carrier::Connections, Carrier::Each, Carrier::Group, Carrier::Chain];

    /// Four receivers on 100 Mbit/s, all of which receive multicast.
    const SEGMENT: Demand = Demand {
        frames_s: 1_000.0,
        frame_bytes: 8_400.0,
        receivers: 4,
        hearing: 4,
        link_bytes_s: 12.5e6,
        payload_bytes: 1_428.0,
        rtt_us: 300.0,
        loss: 0.0,
    };

    fn best(demand: &Demand) -> Carrier {
        let cost = |carrier: &Carrier| latency_ns(*carrier, demand);
        ALL.into_iter().min_by_key(cost).unwrap()
    }

    /// Returns whether [plane-3] would switch from one carrier to the other.
    fn is_worth_it(from: Carrier, to: Carrier, demand: &Demand) -> bool {
        latency_ns(from, demand) * 100 >= latency_ns(to, demand) * 120
    }

    /// On a full link, frames sent once fit, and separate copies take four times the space.
    #[test]
    fn on_a_full_link_frames_are_sent_only_once() {
        assert_eq!(best(&SEGMENT), Carrier::Group);
        assert!(is_worth_it(Carrier::Connections, Carrier::Group, &SEGMENT));
        assert!(is_worth_it(Carrier::Connections, Carrier::Chain, &SEGMENT));
        // The result is the same at the rate to which TCP is limited, so it does not depend on the
        // current path.
        let held = Demand { frames_s: 355.0, ..SEGMENT };
        assert!(is_worth_it(Carrier::Connections, Carrier::Group, &held));
        assert!(is_worth_it(Carrier::Connections, Carrier::Chain, &held));
        assert!(!is_worth_it(Carrier::Group, Carrier::Connections, &held));
    }

    /// Few and small frames on a fast link justify no change, whatever the current path.
    #[test]
    fn idle_links_justify_no_change() {
        let idle = Demand {
            frames_s: 50.0,
            frame_bytes: 200.0,
            link_bytes_s: 1.25e9,
            receivers: 2,
            hearing: 2,
            ..SEGMENT
        };
        for from in [Carrier::Connections, Carrier::Each, Carrier::Group] {
            for to in [Carrier::Connections, Carrier::Each, Carrier::Group] {
                assert!(!is_worth_it(from, to, &idle), "{from:?} to {to:?}");
            }
        }
        // Nor do they justify the hops of a chain.
        assert!(is_worth_it(Carrier::Chain, Carrier::Connections, &idle));
    }

    /// A multicast group that reaches no node is no better than datagrams to each node.
    #[test]
    fn group_without_receivers_has_no_advantage() {
        let deaf = Demand { hearing: 0, ..SEGMENT };
        assert_eq!(latency_ns(Carrier::Group, &deaf), latency_ns(Carrier::Each, &deaf));
        assert!(latency_ns(Carrier::Group, &SEGMENT) < latency_ns(Carrier::Group, &deaf));
    }

    /// Loss on a long path slows TCP down more than datagrams.
    #[test]
    fn loss_on_a_long_path_slows_connections_down() {
        let lossy = Demand {
            frames_s: 200.0,
            receivers: 2,
            hearing: 2,
            rtt_us: 20_000.0,
            loss: 0.02,
            ..SEGMENT
        };
        assert!(is_worth_it(Carrier::Connections, Carrier::Each, &lossy));
    }

    /// A prediction is a number, whatever the measurements.
    #[test]
    fn extreme_measurements_yield_finite_predictions() {
        for frames_s in [0.0, 1e9] {
            for frame_bytes in [0.0, 1.0, 1.7e7] {
                for link_bytes_s in [0.0, 1.0, 1e12] {
                    for loss in [0.0, 1.0] {
                        let demand = Demand {
                            frames_s,
                            frame_bytes,
                            link_bytes_s,
                            loss,
                            receivers: 0,
                            rtt_us: 0.0,
                            ..SEGMENT
                        };
                        for carrier in ALL {
                            assert!(latency_ns(carrier, &demand) < u64::MAX / 1000);
                        }
                    }
                }
            }
        }
    }
}
