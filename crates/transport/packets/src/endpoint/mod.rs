//! A node's endpoint of the packet protocol. Its inputs are datagrams and the time; its outputs are
//! datagrams, messages and losses.
//!
//! The caller owns sockets, clock and addresses. It passes every arriving datagram to
//! [`Endpoint::handle`], calls [`Endpoint::poll`] when [`Endpoint::next_due`] is reached, and then
//! takes the results: [`Endpoint::take_events`], [`Endpoint::take_control`] and, channel by
//! channel, [`Endpoint::take_data`].

mod asking;
mod chaining;
mod control;
mod handling;
mod sending;

use std::{
    collections::{BTreeMap, VecDeque},
    mem,
    ops::Range,
};

use quorate_core::dice::Dice;
use quorate_core::{
    ballot::Ballot,
    node_id::{Member, NodeId},
    time::Time,
};

use crate::{
    body::{ChannelName, Opening, Report, Tail},
    envelope::Joins,
    header::CONTROL,
    kept::RetainedDatagrams,
    limits::Limits,
    rate::Bucket,
    receive::{ChannelEvent, Delivery, Inbound, Quota},
    trust::{Gate, Group, Introduction, Keys, Refusals, gate::Introduced},
};

use control::Control;
use sending::Channel;

/// Round-trip time assumed until the caller sets one, in microseconds.
const RTT_US_FIRST: u64 = 200;

/// Identity and limits of an endpoint.
#[derive(Clone, Debug)]
pub struct Settings {
    pub me: Member,
    /// Durable number of this node's current boot ([pkt-1]).
    pub boot: u32,
    /// Group whose datagrams this endpoint accepts.
    pub group: Group,
    /// Keys for sealing datagrams. Without keys, datagrams carry only a checksum, which is for
    /// loopback and trusted segments.
    pub keys: Keys,
    pub limits: Limits,
    pub delivery: Delivery,
    /// Set if received datagrams are retained for other nodes, as acceptors do.
    pub keeps: bool,
    /// Seed for the random numbers that spread requests over time.
    pub seed: u64,
}

/// Destination of an outgoing datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Destination {
    /// The group's address.
    Group,
    /// The node's address, as learned from its handshake ([pkt-5]).
    Node(NodeId),
}

/// A sealed datagram to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    pub to: Destination,
    pub bytes: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A message was received. Each message is delivered once.
    Message {
        /// Channel on which the message was sent.
        of: ChannelName,
        numbers: Range<u64>,
        bytes: Vec<u8>,
    },
    /// The messages with the given numbers will not arrive.
    GivenUp { of: ChannelName, numbers: Range<u64> },
    /// A tail arrived: the end of the sender's channel, and a decision that applies only to values
    /// of exactly the tail's ballot ([told-2]).
    TailReceived { from: NodeId, tail: Tail },
    /// A node answered a challenge. Its datagrams are accepted from now on.
    Introduced(Introduction),
    Answered {
        node: NodeId,
        /// Round trip of the probe, in microseconds.
        rtt_us: u64,
        /// Set if the probe was multicast, which proves that the node receives this node's
        /// multicast datagrams.
        by_group: bool,
    },
    /// A receiver of this node's channel reported lost datagrams.
    Reported { node: NodeId, report: Report },
    /// [rate-3] Multicast has stopped, because a leader with this higher ballot sends to the
    /// multicast group.
    Stopped(Ballot),
}

/// One node's endpoint of the packet protocol.
pub struct Endpoint {
    me: Member,
    boot: u32,
    group: Group,
    limits: Limits,
    delivery: Delivery,
    keeps: bool,
    gate: Gate,
    control: Control,
    /// Open channels of this node, by number.
    channels: BTreeMap<u8, Channel>,
    /// Next sequence numbers of closed channels, by channel number.
    closed_channels: BTreeMap<u8, u64>,
    /// State of received channels, by node.
    received_channels: BTreeMap<NodeId, PeerState>,
    retained: RetainedDatagrams,
    /// Nodes to request repairs from before the owner.
    acceptors: Vec<NodeId>,
    rtt_us: u64,
    /// [pkt-7] Rates of repairs: first those of this node's datagrams, then those of other nodes'
    /// datagrams.
    repairs: [Bucket; 2],
    /// Rate of answers to probes, and to NAKs for packets that are no longer available.
    answers: Bucket,
    probes: BTreeMap<NodeId, Probes>,
    group_probes: Probes,
    dice: Dice,
    events: Vec<Event>,
    counters: Counters,
    chaining: chaining::Chaining,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Number of ranges requested, including repeated requests.
    pub asked: u64,
    /// Number of datagrams retransmitted to one node.
    pub repaired: u64,
    /// Number of this node's datagrams retransmitted by multicast.
    pub repeated: u64,
    /// Number of datagrams forwarded along the chains of other nodes.
    pub relayed: u64,
}

/// Nonces and send times of the newest outstanding probes.
#[derive(Default)]
struct Probes(VecDeque<(u64, Time)>);

impl Probes {
    /// Maximum number of outstanding probes. Several may be in flight on a slow path. Answers to
    /// evicted probes are ignored.
    const UNDER_WAY_MAX: usize = 8;

    fn sent(&mut self, nonce: u64, now: Time) {
        if self.0.len() == Self::UNDER_WAY_MAX {
            self.0.pop_front();
        }
        self.0.push_back((nonce, now));
    }

    /// Returns the time at which the probe with `nonce` was sent, or `None` if it is not
    /// outstanding.
    fn sent_at(&self, nonce: u64) -> Option<Time> {
        let probe = self.0.iter().find(|(sent, _)| *sent == nonce);
        probe.map(|(_, at)| *at)
    }

    /// Removes the probe with `nonce` and all older ones.
    fn answered(&mut self, nonce: u64) {
        if let Some(at) = self.0.iter().position(|(sent, _)| *sent == nonce) {
            self.0.drain(..=at);
        }
    }
}

/// State of the channels received from one node.
struct PeerState {
    boot: u32,
    quota: Quota,
    channels: BTreeMap<u8, Listened>,
    /// Retransmitted datagrams of which parts are still missing.
    joins: Joins,
    /// Arrival time of the node's latest original datagram ([gap-4]).
    alive: Option<Time>,
    /// This node's place in the other node's chain, if it is in one.
    place: Option<chaining::ChainPosition>,
}

/// A channel that this node listens to.
struct Listened {
    inbound: Inbound,
    to_one: bool,
    /// Time before which no further report is sent.
    report_at: Time,
}

impl Endpoint {
    pub fn new(settings: Settings, now: Time) -> Self {
        let Settings { me, boot, group, keys, limits, delivery, keeps, seed } = settings;
        let repairs = limits.repair_percent.map(|percent| {
            let rate = limits.link_bytes_s / 100 * percent;
            Bucket::new(rate, (rate / 100).max(64 << 10), now)
        });
        Self {
            control: Control::new(me, boot, group, &keys),
            gate: Gate::new(me, group, keys),
            me,
            boot,
            group,
            delivery,
            keeps,
            channels: BTreeMap::new(),
            closed_channels: BTreeMap::new(),
            received_channels: BTreeMap::new(),
            retained: RetainedDatagrams::new(&limits),
            acceptors: Vec::new(),
            rtt_us: RTT_US_FIRST,
            repairs,
            answers: Bucket::new(limits.answers_s, (limits.answers_s / 2).max(1), now),
            probes: BTreeMap::new(),
            group_probes: Probes::default(),
            dice: Dice::new(seed),
            events: Vec::new(),
            counters: Counters::default(),
            chaining: chaining::Chaining::default(),
            limits,
        }
    }

    /// Returns the introduction for one peer, with the channels that it may listen to.
    pub fn introduction(&self, to: NodeId) -> Introduction {
        let control = Opening { channel: CONTROL, to_one: false, from: self.control.next_number() };
        let mut channels = vec![control];
        for (&channel, sending) in &self.channels {
            let one = sending.outbound.to();
            if one.is_none_or(|one| one.node == to) {
                channels.push(Opening {
                    channel,
                    to_one: one.is_some(),
                    from: sending.outbound.next_number(),
                });
            }
        }
        Introduction { member: self.me, boot: self.boot, channels }
    }

    /// Accepts a peer's introduction from a handshake.
    pub fn introduce(&mut self, introduction: &Introduction) -> Introduced {
        let outcome = self.gate.introduce(introduction);
        let node = introduction.member.node;
        match outcome {
            Introduced::Older | Introduced::Full => return outcome,
            Introduced::Known => {}
            // All state of an older boot is obsolete, including partial messages ([pkt-1]).
            Introduced::New => {
                self.retained.drop_owner(node);
                let heard = PeerState {
                    boot: introduction.boot,
                    quota: Quota::new(&self.limits),
                    channels: BTreeMap::new(),
                    joins: Joins::default(),
                    alive: None,
                    place: None,
                };
                self.received_channels.insert(node, heard);
            }
        }
        let heard = self.received_channels.get_mut(&node).expect("introduced");
        for opening in &introduction.channels {
            if opening.channel == CONTROL || !self.gate.may_listen(node, opening.channel) {
                continue;
            }
            let dice = self.dice.fork();
            heard.channels.entry(opening.channel).or_insert_with(|| {
                let mut inbound =
                    Inbound::new(opening.from.max(1), self.delivery, &self.limits, dice);
                inbound.set_rtt(self.rtt_us, &self.limits);
                Listened { inbound, to_one: opening.to_one, report_at: Time(0) }
            });
        }
        outcome
    }

    /// Stops accepting datagrams from a node.
    pub fn part(&mut self, node: NodeId) {
        self.gate.part(node);
        self.received_channels.remove(&node);
        self.retained.drop_owner(node);
        self.probes.remove(&node);
    }

    /// Sets the nodes that may request an introduction: the members of the group, and its learners.
    pub fn set_allowed(&mut self, members: &[Member]) {
        self.gate.set_allowed(members);
    }

    /// Sets whether received datagrams are retained for other nodes. If not, drops the retained
    /// ones.
    pub fn set_keeps(&mut self, keeps: bool) {
        if self.keeps && !keeps {
            self.retained = RetainedDatagrams::new(&self.limits);
        }
        self.keeps = keeps;
    }

    /// Sets the nodes that retain datagrams. Repairs are requested from them before the owner.
    pub fn set_acceptors(&mut self, acceptors: &[NodeId]) {
        self.acceptors = acceptors.to_vec();
    }

    /// Sets the round-trip time to other nodes in microseconds, as measured by the caller.
    pub fn set_rtt(&mut self, rtt_us: u64) {
        self.rtt_us = rtt_us;
        for heard in self.received_channels.values_mut() {
            for listened in heard.channels.values_mut() {
                listened.inbound.set_rtt(rtt_us, &self.limits);
            }
        }
    }

    pub const fn keys(&self) -> &Keys {
        self.gate.keys()
    }

    /// Changes the keys: adds one, records a node's announcement, or switches ([pkt-3]).
    pub fn rekey<T>(&mut self, change: impl FnOnce(&mut Keys) -> T) -> T {
        let done = self.gate.rekey(change);
        self.control.rekey(self.gate.keys());
        for channel in self.channels.values_mut() {
            channel.rekey(self.gate.keys(), self.group);
        }
        done
    }

    pub const fn refusals(&self) -> &Refusals {
        self.gate.refusals()
    }

    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// [gap-2] Returns the number below which all of a channel's messages are delivered or given
    /// up.
    pub fn done_to(&self, of: ChannelName) -> Option<u64> {
        let heard = self.received_channels.get(&of.owner).filter(|heard| heard.boot == of.boot)?;
        Some(heard.channels.get(&of.channel)?.inbound.done_to())
    }

    /// [gap-2] Handles a heartbeat, received on any path, that contains the number of the channel's
    /// next datagram. Lower numbers that have not arrived are missing.
    pub fn handle_next_number(&mut self, of: ChannelName, next: u64, now: Time) {
        self.on_channel(of, |inbound, quota, happened| {
            inbound.on_tail(next, now, quota, happened);
        });
    }

    /// Returns when a node's latest original datagram arrived. Repairs and answers sent by other
    /// nodes on its behalf do not prove that it is alive.
    pub fn last_original_at(&self, node: NodeId) -> Option<Time> {
        self.received_channels.get(&node)?.alive
    }

    /// Returns the memory quota used by a sender's incomplete or waiting messages.
    pub fn quota(&self, node: NodeId) -> Option<&Quota> {
        self.received_channels.get(&node).map(|heard| &heard.quota)
    }

    /// Takes the events since the last call. Call it after each [`Self::handle`] and
    /// [`Self::poll`].
    pub fn take_events(&mut self) -> Vec<Event> {
        mem::take(&mut self.events)
    }

    /// Takes the datagrams of the control channel: requests, answers and repairs. The queue is
    /// bounded: if it is not drained in time, datagrams are dropped.
    pub fn take_control(&mut self) -> Vec<Outgoing> {
        self.control.take_outgoing()
    }

    /// Returns when [`Self::poll`] is due next. For paced data, see [`Self::data_due`].
    pub fn next_due(&self) -> Option<Time> {
        // A tail waits until everything has been sent.
        let idle = self.channels.values().filter(|channel| !channel.outbound.has_unsent());
        let tails = idle.filter_map(|channel| channel.tail.next_tail_at());
        let heard = self.received_channels.values().flat_map(|heard| heard.channels.values());
        let waits = heard.flat_map(|listened| {
            let report = listened.inbound.has_missed().then_some(listened.report_at);
            [listened.inbound.next_due(), report]
        });
        tails.chain(waits.flatten()).min()
    }

    /// Requests and reports missing datagrams, and sends the tails that are due.
    pub fn poll(&mut self, now: Time) {
        self.poll_heard(now);
        self.poll_tails(now);
    }

    /// Reports the events of a channel to the caller, and answers nodes that wait for its packets.
    fn publish(&mut self, of: ChannelName, happened: Vec<ChannelEvent>) {
        for one in happened {
            self.events.push(match one {
                ChannelEvent::Message { numbers, bytes } => Event::Message { of, numbers, bytes },
                ChannelEvent::GivenUp(numbers) => {
                    self.retained.forget_waiting(of, &numbers);
                    Event::GivenUp { of, numbers }
                }
            });
        }
    }
}
