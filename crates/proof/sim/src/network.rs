//! Network between nodes. Messages arrive late, in fragments, or never.
//!
//! There are three carriers. *Streams* are TCP-like connections: bytes arrive in order, in
//! fragments of any size, or the connection breaks and everything in flight is lost; a full
//! connection applies backpressure. *Datagrams* lose, duplicate and reorder single frames at will
//! ([model-1]). *Packets* are streams plus the production packet plane, whose datagrams `air`
//! simulates.

use std::collections::{BTreeMap, VecDeque};

use quorate_core::time::Time;
use quorate_packets::plane::GroupPath;
use quorate_wire::{Decoded, Lane};

use crate::dice::Dice;

/// Transport that carries frames between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// Ordered byte streams, in which frames arrive in order or not at all.
    Streams,
    /// Independent datagrams with one frame each.
    Datagrams,
    /// Packet plane for nodes that it reaches, and streams for all others.
    Packets {
        /// Transport by which the packet plane sends broadcast frames.
        broadcast_path: GroupPath,
    },
}

/// Network conditions of a run.
#[derive(Clone, Debug)]
pub struct NetworkConditions {
    pub carrier: Carrier,
    pub delay_min_us: u64,
    /// Maximum delay of a delivery that is not late.
    pub delay_max_us: u64,
    /// Deliveries per 1000 that are late, which multiplies their delay by ten.
    pub late_of_1000: u64,
    /// Datagrams lost per 1000.
    pub lost_of_1000: u64,
    /// Datagrams duplicated per 1000.
    pub repeated_of_1000: u64,
    /// Fragments in which a bit is flipped, per 100 000.
    pub corrupt_of_100k: u64,
    /// Capacity of the sender's queue for one lane, in bytes.
    pub queue_bytes_max: usize,
    /// Maximum number of bytes in flight on one lane of a stream.
    pub window_bytes: usize,
}

/// One direction of one lane between two nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LaneLink {
    pub from: usize,
    pub to: usize,
    /// 0 for the control lane, 1 for the bulk lane.
    pub lane: usize,
}

impl LaneLink {
    pub fn lane(self) -> Lane {
        Lane::ALL[self.lane]
    }
}

/// Contiguous bytes in flight that are delivered together.
#[derive(Clone, Debug)]
struct InFlightFragment {
    arrives_at: Time,
    bytes: Vec<u8>,
}

#[derive(Debug, Default)]
struct LinkPipe {
    /// Bytes that the sender wrote in this turn and that are not checked yet.
    unchecked_bytes: Vec<u8>,
    /// Queued bytes that are not in flight yet.
    queued_bytes: Vec<u8>,
    in_flight: VecDeque<InFlightFragment>,
    in_flight_bytes: usize,
    /// Set while no bytes are delivered.
    blocked: bool,
}

/// Links and connections between all nodes.
#[derive(Debug)]
pub struct Network {
    conditions: NetworkConditions,
    dice: Dice,
    pipes: BTreeMap<LaneLink, LinkPipe>,
    node_count: usize,
    /// Connection number of each connected pair of nodes (lower index, higher index).
    connections: BTreeMap<(usize, usize), u64>,
    next_connection: u64,
    /// Maximum length that any lane's queue ever had, in bytes.
    pub queue_bytes_peak: usize,
}

/// Returns the indices of two nodes, lower index first.
pub fn ordered_pair(a: usize, b: usize) -> (usize, usize) {
    (a.min(b), a.max(b))
}

impl Network {
    pub fn new(weather: NetworkConditions, nodes: usize, dice: Dice) -> Self {
        let mut pipes = BTreeMap::new();
        for from in 0..nodes {
            for to in (0..nodes).filter(|to| *to != from) {
                for lane in 0..Lane::ALL.len() {
                    pipes.insert(LaneLink { from, to, lane }, LinkPipe::default());
                }
            }
        }
        let connections = BTreeMap::new();
        Self {
            conditions: weather,
            dice,
            pipes,
            node_count: nodes,
            connections,
            next_connection: 0,
            queue_bytes_peak: 0,
        }
    }

    pub fn conditions(&self) -> &NetworkConditions {
        &self.conditions
    }

    /// Ends all faults, so that no more data is late, lost, duplicated or damaged.
    pub fn end_faults(&mut self) {
        let weather = &mut self.conditions;
        weather.late_of_1000 = 0;
        weather.lost_of_1000 = 0;
        weather.repeated_of_1000 = 0;
        weather.corrupt_of_100k = 0;
        for pipe in self.pipes.values_mut() {
            pipe.blocked = false;
        }
    }

    fn pipe_mut(&mut self, link: LaneLink) -> &mut LinkPipe {
        self.pipes.get_mut(&link).expect("links of all pairs exist")
    }

    /// Returns the number of the connection between two nodes; `None` if they are not connected.
    pub fn connection(&self, a: usize, b: usize) -> Option<u64> {
        self.connections.get(&ordered_pair(a, b)).copied()
    }

    pub fn is_blocked(&self, from: usize, to: usize) -> bool {
        self.pipes[&LaneLink { from, to, lane: 0 }].blocked
    }

    pub fn set_blocked(&mut self, from: usize, to: usize, blocked: bool) {
        for lane in 0..Lane::ALL.len() {
            self.pipe_mut(LaneLink { from, to, lane }).blocked = blocked;
        }
    }

    /// Returns whether the network allows two nodes to connect at present.
    pub fn can_connect(&self, a: usize, b: usize) -> bool {
        self.connection(a, b).is_none() && !self.is_blocked(a, b) && !self.is_blocked(b, a)
    }

    /// Connects two nodes and returns the number of the connection.
    pub fn connect(&mut self, a: usize, b: usize) -> u64 {
        self.clear(a, b);
        self.next_connection += 1;
        self.connections.insert(ordered_pair(a, b), self.next_connection);
        self.next_connection
    }

    /// Breaks the connection between two nodes and drops all bytes in flight. Returns whether the
    /// nodes were connected.
    pub fn disconnect(&mut self, a: usize, b: usize) -> bool {
        self.clear(a, b);
        self.connections.remove(&ordered_pair(a, b)).is_some()
    }

    fn clear(&mut self, a: usize, b: usize) {
        for (from, to) in [(a, b), (b, a)] {
            for lane in 0..Lane::ALL.len() {
                let pipe = self.pipe_mut(LaneLink { from, to, lane });
                pipe.unchecked_bytes.clear();
                pipe.queued_bytes.clear();
                pipe.in_flight.clear();
                pipe.in_flight_bytes = 0;
            }
        }
    }

    /// Returns the indices of the nodes connected to this node.
    pub fn peers(&self, node: usize) -> Vec<usize> {
        (0..self.node_count)
            .filter(|peer| *peer != node && self.connection(node, *peer).is_some())
            .collect()
    }

    /// Returns whether the sender's queue has space for `bytes` more bytes. An empty queue always
    /// has space for one frame.
    pub fn has_queue_space(&self, link: LaneLink, bytes: usize) -> bool {
        let Some(pipe) = self.pipes.get(&link) else {
            return false;
        };
        let waiting = pipe.queued_bytes.len() + pipe.unchecked_bytes.len();
        let fits = waiting == 0 || waiting + bytes <= self.conditions.queue_bytes_max;
        fits && self.connection(link.from, link.to).is_some()
    }

    /// Appends a frame to the sender's queue, which must have space for it.
    pub fn queue_frame(&mut self, link: LaneLink, header: &[u8], body: &[u8]) {
        let pipe = self.pipe_mut(link);
        pipe.unchecked_bytes.extend_from_slice(header);
        pipe.unchecked_bytes.extend_from_slice(body);
        let waiting = pipe.queued_bytes.len() + pipe.unchecked_bytes.len();
        self.queue_bytes_peak = self.queue_bytes_peak.max(waiting);
    }

    /// Takes the bytes written in this turn. The caller passes them to [`Network::send_frames`].
    pub fn take_unchecked(&mut self, link: LaneLink) -> Vec<u8> {
        std::mem::take(&mut self.pipe_mut(link).unchecked_bytes)
    }

    /// Queues complete frames and puts as much as possible in flight. Returns the arrival times.
    pub fn send_frames(&mut self, now: Time, link: LaneLink, frames: &[u8]) -> Vec<Time> {
        if self.connection(link.from, link.to).is_none() {
            return Vec::new();
        }
        self.pipe_mut(link).queued_bytes.extend_from_slice(frames);
        self.flush_link(now, link)
    }

    /// Puts as much of the queue in flight as possible. Returns the arrival times.
    pub fn flush_link(&mut self, now: Time, link: LaneLink) -> Vec<Time> {
        match self.conditions.carrier {
            Carrier::Streams | Carrier::Packets { .. } => self.flush_stream(now, link),
            Carrier::Datagrams => self.flush_datagrams(now, link),
        }
    }

    fn draw_delay(&mut self) -> u64 {
        let weather = &self.conditions;
        let delay = self.dice.between(weather.delay_min_us, weather.delay_max_us);
        if self.dice.chance(weather.late_of_1000, 1000) { delay * 10 } else { delay }
    }

    fn flush_stream(&mut self, now: Time, link: LaneLink) -> Vec<Time> {
        let window = self.conditions.window_bytes;
        let mut times = Vec::new();
        loop {
            let pipe = self.pipe_mut(link);
            let room = window.saturating_sub(pipe.in_flight_bytes);
            let waiting = pipe.queued_bytes.len();
            let most = waiting.min(room);
            if most == 0 {
                return times;
            }
            let cut = if self.dice.chance(1, 8) { 1 + self.dice.index(most) } else { most };
            let mut at = now.plus_us(self.draw_delay());
            let damaged = self.dice.chance(self.conditions.corrupt_of_100k, 100_000);
            let bit = self.dice.index(cut * 8);
            let pipe = self.pipe_mut(link);
            at = at.max(pipe.in_flight.back().map_or(Time(0), |last| last.arrives_at));
            let rest = pipe.queued_bytes.split_off(cut);
            let mut bytes = std::mem::replace(&mut pipe.queued_bytes, rest);
            if damaged {
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            pipe.in_flight_bytes += bytes.len();
            pipe.in_flight.push_back(InFlightFragment { arrives_at: at, bytes });
            times.push(at);
        }
    }

    fn flush_datagrams(&mut self, now: Time, link: LaneLink) -> Vec<Time> {
        let queue = std::mem::take(&mut self.pipe_mut(link).queued_bytes);
        let mut times = Vec::new();
        let mut rest = &queue[..];
        while !rest.is_empty() {
            let used = match quorate_wire::decode(rest, quorate_wire::BODY_BYTES_MAX) {
                Ok(Decoded::Frame { used_bytes: used, .. }) => used,
                other => unreachable!("a replica wrote a broken frame: {other:?}"),
            };
            let (frame, behind) = rest.split_at(used);
            rest = behind;
            let copies = if self.dice.chance(self.conditions.lost_of_1000, 1000) {
                0
            } else {
                1 + u64::from(self.dice.chance(self.conditions.repeated_of_1000, 1000))
            };
            for _ in 0..copies {
                let at = now.plus_us(self.draw_delay());
                let mut bytes = frame.to_vec();
                if self.dice.chance(self.conditions.corrupt_of_100k, 100_000) {
                    let bit = self.dice.index(bytes.len() * 8);
                    bytes[bit / 8] ^= 1 << (bit % 8);
                }
                let pipe = self.pipe_mut(link);
                let place = pipe.in_flight.partition_point(|piece| piece.arrives_at <= at);
                pipe.in_flight_bytes += bytes.len();
                pipe.in_flight.insert(place, InFlightFragment { arrives_at: at, bytes });
                times.push(at);
            }
        }
        times
    }

    /// Takes the next fragment, if its arrival time has come.
    pub fn take_arrived(&mut self, now: Time, link: LaneLink) -> Option<Vec<u8>> {
        let pipe = self.pipe_mut(link);
        if pipe.blocked {
            return None;
        }
        let piece = pipe.in_flight.pop_front_if(|piece| piece.arrives_at <= now)?;
        pipe.in_flight_bytes -= piece.bytes.len();
        Some(piece.bytes)
    }

    /// Returns the arrival time of the next fragment; `None` if nothing is in flight or the link is
    /// blocked.
    pub fn next_arrival(&self, link: LaneLink) -> Option<Time> {
        let pipe = &self.pipes[&link];
        pipe.in_flight.front().filter(|_| !pipe.blocked).map(|piece| piece.arrives_at)
    }

    /// Returns the number of bytes queued and in flight on `link`.
    pub fn backlog_bytes(&self, link: LaneLink) -> usize {
        let pipe = &self.pipes[&link];
        pipe.in_flight_bytes + pipe.queued_bytes.len()
    }
}
