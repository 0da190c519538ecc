//! Predicts the cost of a path: the time of a proposal from its sender to its last receiver, by a
//! model of a link and of a processor that both have a queue.
//!
//! The constants are measured on the reference machine (`docs/performance.md`); they decide between
//! paths, and promise nothing.

/// Upper bound of a prediction.
const LONGEST_NS: f64 = 3.6e12;

/// Carrier of frames for several nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Carrier {
    /// By each node's connection.
    Connections,
    /// By datagrams, to each node alone.
    Each,
    /// By datagrams, once: to the group's address.
    Group,
    /// By datagrams, once: from node to node ([chain-1]).
    Chain,
}

impl Carrier {
    /// As operators know it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connections => "tcp",
            Self::Each => "udp",
            Self::Group => "multicast",
            Self::Chain => "chain",
        }
    }
}

/// Recent traffic to several nodes, and the link under it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// Frames for several nodes, each second.
    pub frames_s: f64,
    /// Their mean length in bytes.
    pub frame_bytes: f64,
    /// To so many nodes.
    pub receivers: u32,
    /// Those of them that receive one datagram sent to all.
    pub hearing: u32,
    /// Speed of the own link, in bytes per second.
    pub link_bytes_s: f64,
    /// Payload of a datagram.
    pub payload_bytes: f64,
    /// The longest round trip to one of them, in microseconds.
    pub rtt_us: f64,
    /// Share of datagrams lost at a receiver, from 0 to 1.
    pub loss: f64,
}

/// A queue is never taken for fuller than that.
const BUSY_MAX: f64 = 0.98;
/// Ethernet, its gap, IP and UDP or TCP around a packet.
const AROUND_BYTES: f64 = 66.0;
/// Header of a datagram.
const HEADER_BYTES: f64 = 44.0;
/// Payload of TCP's packets on Ethernet.
const SEGMENT_BYTES: f64 = 1448.0;
/// A call of the kernel, in microseconds, and what each byte adds.
const CALL_US: f64 = 5.0;
const BYTE_US: f64 = 0.0005;
/// A datagram in a run, as its sender has it.
const DATAGRAM_US: f64 = 1.1;
/// Share of its rate that a chain leaves for votes and repairs of the forwarding nodes.
const CHAIN_SHARE: f64 = 0.93;
/// Delay of a lost TCP packet, besides a round trip.
const TCP_REPAIR_US: f64 = 3_000.0;
/// And a datagram: the grace before it is asked for.
const REPAIR_US: f64 = 400.0;
/// Mathis, Semke, Mahdavi and Ott, The macroscopic behavior of the TCP congestion avoidance
/// algorithm, 1997: its rate at a loss p is 1.22 segments per round trip and root of p.
const MATHIS: f64 = 1.22;

/// Nanoseconds until the last of the receivers has a frame.
pub fn latency_ns(carrier: Carrier, demand: &Demand) -> u64 {
    let Demand { frames_s, frame_bytes, rtt_us, loss, .. } = *demand;
    let receivers = f64::from(demand.receivers.max(1));
    let once = matches!(carrier, Carrier::Group | Carrier::Chain);
    // Those who do not hear it get it alone.
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
    // Who hands on has begun to send before the whole frame came.
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

    /// Four receivers on 100 Mbit/s, all of which hear the group.
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

    /// Returns whether [plane-3] would switch from one to the other.
    fn is_worth_it(from: Carrier, to: Carrier, demand: &Demand) -> bool {
        latency_ns(from, demand) * 100 >= latency_ns(to, demand) * 120
    }

    /// A full link: what leaves once has room for all of it, and the others for a quarter.
    #[test]
    fn what_fills_the_link_leaves_once() {
        assert_eq!(best(&SEGMENT), Carrier::Group);
        assert!(is_worth_it(Carrier::Connections, Carrier::Group, &SEGMENT));
        assert!(is_worth_it(Carrier::Connections, Carrier::Chain, &SEGMENT));
        // At the rate that TCP is held to, too: the choice does not depend on what was chosen.
        let held = Demand { frames_s: 355.0, ..SEGMENT };
        assert!(is_worth_it(Carrier::Connections, Carrier::Group, &held));
        assert!(is_worth_it(Carrier::Connections, Carrier::Chain, &held));
        assert!(!is_worth_it(Carrier::Group, Carrier::Connections, &held));
    }

    /// Few and small frames on a fast link: nothing is worth a change, whatever it is now.
    #[test]
    fn idle_links_change_nothing() {
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
        // A chain's hops are not worth it for that.
        assert!(is_worth_it(Carrier::Chain, Carrier::Connections, &idle));
    }

    /// A group that reaches no node is no better than datagrams to each.
    #[test]
    fn a_group_that_nobody_hears_wins_nothing() {
        let deaf = Demand { hearing: 0, ..SEGMENT };
        assert_eq!(latency_ns(Carrier::Group, &deaf), latency_ns(Carrier::Each, &deaf));
        assert!(latency_ns(Carrier::Group, &SEGMENT) < latency_ns(Carrier::Group, &deaf));
    }

    /// Loss on a long path holds TCP back more than datagrams.
    #[test]
    fn loss_holds_connections_back() {
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

    /// Whatever is measured, a prediction is a number.
    #[test]
    fn predictions_of_extremes_are_numbers() {
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
