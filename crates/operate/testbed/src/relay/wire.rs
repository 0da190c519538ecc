//! All links between a set of nodes, one per direction of each pair.
//!
//! "Each replica has a total of B bandwidth to every other replica" (Santos and Schiper, §4.1, the
//! WAN). Traffic to one peer therefore does not slow down traffic to another.

use std::collections::VecDeque;

use crate::relay::link::{Law, Link, Nanos};

/// Packet counts of one or more links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub packets: u64,
    pub bytes: u64,
    /// Number of packets dropped because the queue was full.
    pub dropped: u64,
}

#[derive(Clone, Debug)]
struct Path {
    link: Link,
    /// Packets in flight with arrival times, oldest first, bounded by the link's queue and delay.
    in_flight: VecDeque<(Nanos, Vec<u8>)>,
    counts: Counts,
}

/// A network of links, in virtual time.
#[derive(Clone, Debug)]
pub struct Wire {
    nodes: usize,
    /// Paths from each node to each node. The paths from a node to itself are unused.
    paths: Vec<Path>,
}

impl Wire {
    /// Creates links with the same law between all nodes.
    pub fn new(nodes: usize, law: Law) -> Self {
        let path =
            Path { link: Link::new(law), in_flight: VecDeque::new(), counts: Counts::default() };
        Self { nodes, paths: vec![path; nodes * nodes] }
    }

    /// Sends a packet between nodes, counted from 0. Calls must not go back in time.
    pub fn enter(&mut self, now: Nanos, from: usize, to: usize, packet: &[u8]) {
        let path = &mut self.paths[from * self.nodes + to];
        let bytes = packet.len() as u64;
        match path.link.take(now, bytes) {
            Some(at) => {
                path.counts.packets += 1;
                path.counts.bytes += bytes;
                path.in_flight.push_back((at, packet.to_vec()));
            }
            None => path.counts.dropped += 1,
        }
    }

    /// Takes the next packet that has arrived, with its destination, in order of arrival.
    pub fn leave(&mut self, now: Nanos) -> Option<(usize, Vec<u8>)> {
        let (at, index) = self.first()?;
        if at > now {
            return None;
        }
        let (_, packet) = self.paths[index].in_flight.pop_front()?;
        Some((index % self.nodes, packet))
    }

    /// Returns the arrival time of the next packet in flight.
    pub fn next_at(&self) -> Option<Nanos> {
        self.first().map(|(at, _)| at)
    }

    fn first(&self) -> Option<(Nanos, usize)> {
        let heads = self.paths.iter().enumerate();
        heads.filter_map(|(index, path)| Some((path.in_flight.front()?.0, index))).min()
    }

    pub fn counts(&self) -> Counts {
        let mut all = Counts::default();
        for path in &self.paths {
            all.packets += path.counts.packets;
            all.bytes += path.counts.bytes;
            all.dropped += path.counts.dropped;
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::link::SECOND;

    const MS: Nanos = 1_000_000;

    fn wire() -> Wire {
        let law = Law { bits_per_second: 10_000_000, one_way: 50 * MS, queue_bytes: 3000 };
        Wire::new(3, law)
    }

    #[test]
    fn packet_arrives_at_its_destination_after_the_delay() {
        let mut wire = wire();
        wire.enter(0, 0, 2, &[7; 1250]);
        assert_eq!(wire.next_at(), Some(51 * MS));
        assert_eq!(wire.leave(51 * MS - 1), None);
        assert_eq!(wire.leave(51 * MS), Some((2, vec![7; 1250])));
        assert_eq!((wire.leave(SECOND), wire.next_at()), (None, None));
    }

    #[test]
    fn each_pair_has_bandwidth_and_a_queue_of_its_own() {
        let mut wire = wire();
        for _ in 0..3 {
            wire.enter(0, 0, 1, &[0; 1500]);
            wire.enter(0, 0, 2, &[0; 1500]);
            wire.enter(0, 1, 0, &[0; 1500]);
        }
        assert_eq!(wire.counts().dropped, 3, "one on each link");
        let mut arrivals = Vec::new();
        while let Some(at) = wire.next_at() {
            let (to, _) = wire.leave(at).unwrap();
            arrivals.push((at, to));
        }
        let (first, second) = (51_200_000, 52_400_000);
        let wanted = [(first, 1), (first, 2), (first, 0), (second, 1), (second, 2), (second, 0)];
        assert_eq!(arrivals, wanted);
        let wanted = Counts { packets: 6, bytes: 9000, dropped: 3 };
        assert_eq!(wire.counts(), wanted);
    }
}
