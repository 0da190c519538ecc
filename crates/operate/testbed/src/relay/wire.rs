//! All links between a set of nodes, one per direction of each pair.
//!
//! "Each replica has a total of B bandwidth to every other replica" (Santos and Schiper, §4.1, the
//! WAN). Traffic to one peer therefore does not slow down traffic to another.

use std::collections::VecDeque;

use crate::relay::link::{LinkParameters, LinkQueue, Nanos};

/// Packet counts of one or more links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketCounts {
    pub packet_count: u64,
    pub bytes: u64,
    /// Number of packets dropped because the queue was full.
    pub dropped_count: u64,
}

#[derive(Clone, Debug)]
struct DirectedLink {
    link: LinkQueue,
    /// Packets in flight with arrival times, oldest first, bounded by the link's queue and delay.
    in_flight: VecDeque<(Nanos, Vec<u8>)>,
    packet_counts: PacketCounts,
}

/// A network of links, in virtual time.
#[derive(Clone, Debug)]
pub struct LinkNetwork {
    node_count: usize,
    /// Paths from each node to each node. The paths from a node to itself are unused.
    links: Vec<DirectedLink>,
}

impl LinkNetwork {
    /// Creates links with the same law between all nodes.
    pub fn new(nodes: usize, law: LinkParameters) -> Self {
        let path = DirectedLink {
            link: LinkQueue::new(law),
            in_flight: VecDeque::new(),
            packet_counts: PacketCounts::default(),
        };
        Self { node_count: nodes, links: vec![path; nodes * nodes] }
    }

    /// Sends a packet between nodes, counted from 0. Calls must not go back in time.
    pub fn send_packet(&mut self, now: Nanos, from: usize, to: usize, packet: &[u8]) {
        let path = &mut self.links[from * self.node_count + to];
        let bytes = packet.len() as u64;
        match path.link.offer(now, bytes) {
            Some(at) => {
                path.packet_counts.packet_count += 1;
                path.packet_counts.bytes += bytes;
                path.in_flight.push_back((at, packet.to_vec()));
            }
            None => path.packet_counts.dropped_count += 1,
        }
    }

    /// Takes the next packet that has arrived, with its destination, in order of arrival.
    pub fn take_arrived(&mut self, now: Nanos) -> Option<(usize, Vec<u8>)> {
        let (at, index) = self.next_arrival()?;
        if at > now {
            return None;
        }
        let (_, packet) = self.links[index].in_flight.pop_front()?;
        Some((index % self.node_count, packet))
    }

    /// Returns the arrival time of the next packet in flight.
    pub fn next_arrival_at(&self) -> Option<Nanos> {
        self.next_arrival().map(|(at, _)| at)
    }

    fn next_arrival(&self) -> Option<(Nanos, usize)> {
        let heads = self.links.iter().enumerate();
        heads.filter_map(|(index, path)| Some((path.in_flight.front()?.0, index))).min()
    }

    pub fn packet_counts(&self) -> PacketCounts {
        let mut all = PacketCounts::default();
        for path in &self.links {
            all.packet_count += path.packet_counts.packet_count;
            all.bytes += path.packet_counts.bytes;
            all.dropped_count += path.packet_counts.dropped_count;
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::link::NANOS_PER_SECOND;

    const MS: Nanos = 1_000_000;

    fn wire() -> LinkNetwork {
        let law = LinkParameters { bits_per_second: 10_000_000, delay: 50 * MS, queue_bytes: 3000 };
        LinkNetwork::new(3, law)
    }

    #[test]
    fn packet_arrives_at_its_destination_after_the_delay() {
        let mut wire = wire();
        wire.send_packet(0, 0, 2, &[7; 1250]);
        assert_eq!(wire.next_arrival_at(), Some(51 * MS));
        assert_eq!(wire.take_arrived(51 * MS - 1), None);
        assert_eq!(wire.take_arrived(51 * MS), Some((2, vec![7; 1250])));
        assert_eq!((wire.take_arrived(NANOS_PER_SECOND), wire.next_arrival_at()), (None, None));
    }

    #[test]
    fn each_pair_has_bandwidth_and_a_queue_of_its_own() {
        let mut wire = wire();
        for _ in 0..3 {
            wire.send_packet(0, 0, 1, &[0; 1500]);
            wire.send_packet(0, 0, 2, &[0; 1500]);
            wire.send_packet(0, 1, 0, &[0; 1500]);
        }
        assert_eq!(wire.packet_counts().dropped_count, 3, "one on each link");
        let mut arrivals = Vec::new();
        while let Some(at) = wire.next_arrival_at() {
            let (to, _) = wire.take_arrived(at).unwrap();
            arrivals.push((at, to));
        }
        let (first, second) = (51_200_000, 52_400_000);
        let wanted = [(first, 1), (first, 2), (first, 0), (second, 1), (second, 2), (second, 0)];
        assert_eq!(arrivals, wanted);
        let wanted = PacketCounts { packet_count: 6, bytes: 9000, dropped_count: 3 };
        assert_eq!(wire.packet_counts(), wanted);
    }
}
