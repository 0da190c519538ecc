//! Test fixture: a group of endpoints and a network with faults between them.

#![allow(dead_code, reason = "not every test uses all of it")]

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    ops::Range,
};

use quorate_core::dice::Dice;
use quorate_core::{
    node_id::{Member, NodeId},
    time::Time,
};
use quorate_packets::{
    body::ChannelName,
    endpoint::{Destination, Endpoint, Event, Settings},
    limits::Limits,
    rate::TokenBucket,
    receive::Delivery,
    trust::{GroupIdentity, Key, KeyRing},
};

/// The multicast channel of each node.
pub(crate) const CHANNEL: u8 = 1;

/// Maximum number of turns of one run: far more than any run that ends.
const TURNS_MAX: u32 = 200_000;

/// Network faults, per thousand datagrams.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) lost: u64,
    pub(crate) repeated: u64,
    /// Datagrams delayed by up to `late_ms` milliseconds.
    pub(crate) late: u64,
    pub(crate) late_ms: u64,
    pub(crate) cut: u64,
    pub(crate) changed: u64,
}

/// Arrival time, a counter, destination, bytes.
type Flight = (Time, u64, u32, Vec<u8>);

/// Sequence numbers and bytes.
pub(crate) type Message = (Range<u64>, Vec<u8>);

pub(crate) struct World {
    pub(crate) nodes: BTreeMap<u32, Endpoint>,
    pub(crate) faults: Faults,
    pub(crate) now: Time,
    dice: Dice,
    flying: BinaryHeap<Reverse<Flight>>,
    counter: u64,
    /// Messages sent by each node.
    pub(crate) sent: BTreeMap<u32, Vec<Message>>,
    pub(crate) events: BTreeMap<u32, Vec<Event>>,
    /// All datagrams ever sent, with their destinations, before any fault.
    pub(crate) recorded: Vec<(u32, Vec<u8>)>,
    /// Sender and receiver between which nothing arrives.
    pub(crate) cut_links: Vec<(u32, u32)>,
    /// Capacity of the common link for multicast. The excess is lost to all.
    pub(crate) bottleneck: Option<TokenBucket>,
    /// A node with additional losses, per thousand datagrams.
    pub(crate) loser: Option<(u32, u64)>,
    /// Number of multicast datagrams.
    pub(crate) to_group: usize,
    pub(crate) to_one: usize,
}

pub(crate) fn group() -> GroupIdentity {
    GroupIdentity { cluster: 0x1234, group: 1, generation: 0 }
}

pub(crate) fn settings(node: u32, boot: u32, delivery: Delivery) -> Settings {
    Settings {
        own_member: Member::first(node),
        boot,
        group: group(),
        keys: KeyRing::one(1, Key::new([7; 32])).unwrap(),
        limits: Limits { buffer_bytes: 4 << 20, ..Limits::for_mtu(1500) },
        delivery,
        retains_datagrams: true,
        seed: u64::from(node),
    }
}

pub(crate) fn name(owner: u32, boot: u32) -> ChannelName {
    ChannelName { owner: NodeId(owner), boot, channel: CHANNEL }
}

impl World {
    /// Creates nodes 1 to `count`, which know one another and are all acceptors.
    pub(crate) fn new(count: u32, delivery: Delivery, seed: u64) -> Self {
        Self::with(count, seed, |node| settings(node, 1, delivery))
    }

    pub(crate) fn with(count: u32, seed: u64, settings: impl Fn(u32) -> Settings) -> Self {
        let nodes = (1..=count).map(|node| (node, Endpoint::new(settings(node), Time(0))));
        let mut world = Self {
            nodes: nodes.collect(),
            faults: Faults::default(),
            now: Time(0),
            dice: Dice::new(seed),
            flying: BinaryHeap::new(),
            counter: 0,
            sent: BTreeMap::new(),
            events: BTreeMap::new(),
            recorded: Vec::new(),
            cut_links: Vec::new(),
            bottleneck: None,
            loser: None,
            to_group: 0,
            to_one: 0,
        };
        let ids: Vec<NodeId> = (1..=count).map(NodeId).collect();
        for node in world.nodes.values_mut() {
            node.set_acceptors(&ids);
            node.open(CHANNEL, None, Time(0)).unwrap();
            node.set_loss_receivers(CHANNEL, &ids);
        }
        world.greet_all();
        world
    }

    /// Performs a handshake between every two nodes.
    pub(crate) fn greet_all(&mut self) {
        let ids: Vec<u32> = self.nodes.keys().copied().collect();
        for &from in &ids {
            for &to in ids.iter().filter(|to| **to != from) {
                let introduction = self.nodes[&from].introduction_for(NodeId(to));
                self.node(to).introduce(&introduction);
            }
        }
    }

    /// Delivers heartbeats as TCP would: each node learns every other's next number.
    pub(crate) fn heartbeats(&mut self) {
        let next: Vec<(u32, u64)> =
            self.nodes.iter().map(|(id, node)| (*id, node.next_number(CHANNEL).unwrap())).collect();
        let now = self.now;
        for (id, node) in &mut self.nodes {
            for (owner, next) in next.iter().filter(|(owner, _)| owner != id) {
                node.on_next_number(name(*owner, 1), *next, now);
            }
        }
    }

    pub(crate) fn node(&mut self, node: u32) -> &mut Endpoint {
        self.nodes.get_mut(&node).unwrap()
    }

    /// Sends a message of random bytes.
    pub(crate) fn send(&mut self, node: u32, length: usize) {
        let message: Vec<u8> = (0..length.div_ceil(8))
            .flat_map(|_| self.dice.word().to_le_bytes())
            .take(length)
            .collect();
        let sent = self.node(node).send(CHANNEL, &message).unwrap();
        let entry = self.sent.entry(node).or_default();
        entry.push((sent.first..sent.end, message));
    }

    /// Puts one datagram to one node in flight, with faults.
    fn fly(&mut self, from: u32, to: u32, bytes: &[u8]) {
        if self.cut_links.contains(&(from, to)) {
            return;
        }
        self.recorded.push((to, bytes.to_vec()));
        let faults = self.faults;
        let dice = &mut self.dice;
        let own = self.loser.map_or(0, |(node, lost)| if node == to { lost } else { 0 });
        if dice.chance(faults.lost, 1000) || dice.chance(own, 1000) {
            return;
        }
        let times = if dice.chance(faults.repeated, 1000) { 2 } else { 1 };
        for _ in 0..times {
            let mut bytes = bytes.to_vec();
            if dice.chance(faults.cut, 1000) {
                bytes.truncate(dice.index(bytes.len()));
            }
            if dice.chance(faults.changed, 1000) && !bytes.is_empty() {
                let at = dice.index(bytes.len());
                bytes[at] ^= 1 << dice.below(8);
            }
            let mut delay = dice.between(20, 60);
            if dice.chance(faults.late, 1000) {
                delay += dice.below(faults.late_ms * 1000 + 1);
            }
            self.counter += 1;
            let flight = (self.now.plus_us(delay), self.counter, to, bytes);
            self.flying.push(Reverse(flight));
        }
    }

    /// Sends everything that the nodes have to send now.
    pub(crate) fn collect(&mut self) {
        let ids: Vec<u32> = self.nodes.keys().copied().collect();
        for from in ids.iter().copied() {
            let mut leaving: Vec<(Destination, Vec<u8>)> = Vec::new();
            let now = self.now;
            let node = self.node(from);
            while let Some((to, run)) = node.next_data_run(CHANNEL, now) {
                let segments = run.bytes.chunks(run.segment_bytes);
                leaving.extend(segments.map(|segment| (to, segment.to_vec())));
            }
            let control = node.take_control();
            leaving.extend(control.into_iter().map(|one| (one.destination, one.bytes)));
            for (to, bytes) in leaving {
                match to {
                    Destination::Node(node) => {
                        self.to_one += 1;
                        self.fly(from, node.0, &bytes);
                    }
                    // The group's loop returns it to its sender as well.
                    Destination::Group => {
                        self.to_group += 1;
                        let bottleneck = self.bottleneck.as_mut();
                        if bottleneck.is_some_and(|link| !link.take_bytes(bytes.len(), now)) {
                            continue;
                        }
                        ids.iter().for_each(|to| self.fly(from, *to, &bytes));
                    }
                }
            }
        }
        for (id, node) in &mut self.nodes {
            self.events.entry(*id).or_default().extend(node.take_events());
        }
    }

    /// Runs until nothing is in flight and no node waits for anything, or until `until`.
    pub(crate) fn run_to(&mut self, until: Time) {
        for turn in 0.. {
            assert!(turn < TURNS_MAX, "the group does not settle");
            self.collect();
            let flight = self.flying.peek().map(|Reverse((at, ..))| *at);
            let due = self.nodes.values().filter_map(Endpoint::next_poll_at).min();
            let data = self.nodes.values().filter_map(|node| node.next_data_at(CHANNEL)).min();
            let next = [flight, due, data].into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next <= until) else {
                return;
            };
            self.now = self.now.max(next);
            while let Some(Reverse((at, ..))) = self.flying.peek()
                && *at <= self.now
            {
                let Reverse((_, _, to, bytes)) = self.flying.pop().unwrap();
                let now = self.now;
                let _ = self.node(to).handle(&bytes, now);
            }
            let now = self.now;
            for node in self.nodes.values_mut() {
                node.poll(now);
            }
        }
    }

    pub(crate) fn run(&mut self) {
        self.run_to(Time(u64::MAX));
    }

    /// Checks a node's events about another's channel: messages are as sent, each number once.
    /// Returns the numbers that were given up.
    pub(crate) fn check_events(&self, node: u32, owner: u32, in_order: bool) -> Vec<u64> {
        let sent = &self.sent[&owner];
        let (mut over, mut done, mut last) = (Vec::new(), Vec::new(), 0);
        for event in self.events.get(&node).into_iter().flatten() {
            match event {
                Event::Message { channel: of, numbers, bytes } if of.owner == NodeId(owner) => {
                    let original = sent.iter().find(|(range, _)| range == numbers);
                    let original = original.unwrap_or_else(|| panic!("{numbers:?} was not sent"));
                    assert!(original.1 == *bytes, "{numbers:?} is not what was sent");
                    assert!(!in_order || numbers.start > last, "{numbers:?} behind {last}");
                    last = numbers.start;
                    done.extend(numbers.clone());
                }
                Event::GivenUp { channel: of, numbers } if of.owner == NodeId(owner) => {
                    done.extend(numbers.clone());
                    over.extend(numbers.clone());
                }
                _ => {}
            }
        }
        done.sort_unstable();
        let end = sent.last().map_or(1, |(range, _)| range.end);
        assert_eq!(done, (1..end).collect::<Vec<_>>(), "node {node}, channel of {owner}");
        over
    }
}
