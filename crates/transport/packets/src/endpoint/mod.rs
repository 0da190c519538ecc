//! One node's end of a plane of packets: datagrams and the time in; datagrams, messages and losses
//! out.
//!
//! The caller owns sockets, clock and addresses. It gives every datagram that arrives to
//! [`Endpoint::handle`], calls [`Endpoint::poll`] when [`Endpoint::next_due`] says so, and takes
//! what came of it: [`Endpoint::take_events`], [`Endpoint::take_control`] and, channel by channel,
//! [`Endpoint::take_data`].

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
    kept::Kept,
    limits::Limits,
    rate::Bucket,
    receive::{Delivery, Happened, Inbound, Quota},
    trust::{Gate, Group, Introduction, Keys, Refusals, gate::Introduced},
};

use control::Control;
use sending::Channel;

/// The round trip until the caller says another.
const RTT_US_FIRST: u64 = 200;

/// Identity and limits of an endpoint.
#[derive(Clone, Debug)]
pub struct Settings {
    /// This node.
    pub me: Member,
    /// Its boot, which is durable ([pkt-1]).
    pub boot: u32,
    /// The group whose datagrams count.
    pub group: Group,
    /// None: datagrams carry a checksum, for loopback and trusted segments.
    pub keys: Keys,
    /// Bounds and waits.
    pub limits: Limits,
    /// When messages are given to the caller.
    pub delivery: Delivery,
    /// Datagrams that were heard are kept for others: acceptors do that.
    pub keeps: bool,
    /// Seed of the dice that spread requests in time.
    pub seed: u64,
}

/// Destination of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum To {
    /// The group's address.
    Group,
    /// The address of the handshake with this node ([pkt-5]).
    Node(NodeId),
}

/// A datagram, sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    pub to: To,
    /// All of it.
    pub bytes: Vec<u8>,
}

/// Event for the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A message came, once.
    Message {
        /// On which channel.
        of: ChannelName,
        /// Its numbers.
        numbers: Range<u64>,
        bytes: Vec<u8>,
    },
    /// The messages with these numbers will not arrive.
    GivenUp {
        /// On which channel.
        of: ChannelName,
        /// Which.
        numbers: Range<u64>,
    },
    /// End of the sender's channel, and a decision ([told-2]) about values of exactly that ballot.
    Told {
        from: NodeId,
        /// What.
        tail: Tail,
    },
    /// A node answered a challenge; its datagrams are taken from now on.
    Introduced(Introduction),
    /// A node answered a probe.
    Answered {
        /// Who.
        node: NodeId,
        /// Round trip.
        rtt_us: u64,
        /// The probe went to the group: the node receives this node's group traffic.
        by_group: bool,
    },
    /// A receiver of this node's channel lost something.
    Reported {
        /// Who.
        node: NodeId,
        /// What.
        report: Report,
    },
    /// [rate-3] Sending to the group has stopped: this ballot's leader was heard there.
    Stopped(Ballot),
}

/// One node's end of a plane of packets.
pub struct Endpoint {
    me: Member,
    boot: u32,
    group: Group,
    limits: Limits,
    delivery: Delivery,
    keeps: bool,
    gate: Gate,
    control: Control,
    /// This node's channels.
    channels: BTreeMap<u8, Channel>,
    /// The next numbers of channels that were closed.
    closed: BTreeMap<u8, u64>,
    /// State of received channels, by node.
    heard: BTreeMap<NodeId, Heard>,
    kept: Kept,
    /// Nodes asked for repairs before the owner.
    acceptors: Vec<NodeId>,
    rtt_us: u64,
    /// [pkt-7] Repairs have their own rate: of own datagrams, and of others'.
    repairs: [Bucket; 2],
    /// Answers to probes, and to NAKs for what is gone.
    answers: Bucket,
    /// Probes that wait for an answer.
    probes: BTreeMap<NodeId, Probes>,
    /// Probes sent to the group.
    group_probes: Probes,
    dice: Dice,
    events: Vec<Event>,
    counters: Counters,
    chaining: chaining::Chaining,
}

/// Counts of losses and repairs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Ranges that this node asked for, again ones too.
    pub asked: u64,
    /// Datagrams that it sent once more to one node.
    pub repaired: u64,
    /// Datagrams of its own that it sent once more to the group.
    pub repeated: u64,
    /// Datagrams of others that it handed on along their chains.
    pub relayed: u64,
}

/// The newest probes: nonces, and when they went out.
#[derive(Default)]
struct Probes(VecDeque<(u64, Time)>);

impl Probes {
    /// A path may hold some of them; what is answered later than that is no answer.
    const UNDER_WAY_MAX: usize = 8;

    fn sent(&mut self, nonce: u64, now: Time) {
        if self.0.len() == Self::UNDER_WAY_MAX {
            self.0.pop_front();
        }
        self.0.push_back((nonce, now));
    }

    /// When the probe with this nonce went out.
    fn sent_at(&self, nonce: u64) -> Option<Time> {
        let probe = self.0.iter().find(|(sent, _)| *sent == nonce);
        probe.map(|(_, at)| *at)
    }

    /// This one, and older ones, wait no more.
    fn answered(&mut self, nonce: u64) {
        if let Some(at) = self.0.iter().position(|(sent, _)| *sent == nonce) {
            self.0.drain(..=at);
        }
    }
}

/// Received channels of one node.
struct Heard {
    boot: u32,
    quota: Quota,
    channels: BTreeMap<u8, Listened>,
    /// Repairs that lack a part.
    joins: Joins,
    /// The last original of its own ([gap-4]).
    alive: Option<Time>,
    /// This node's place in the other node's chain.
    place: Option<chaining::Place>,
}

/// One channel that is listened to.
struct Listened {
    inbound: Inbound,
    to_one: bool,
    /// No report before.
    report_at: Time,
}

impl Endpoint {
    /// At this moment.
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
            closed: BTreeMap::new(),
            heard: BTreeMap::new(),
            kept: Kept::new(&limits),
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

    /// Returns the introduction for one peer: the channels that it may listen to.
    pub fn introduction(&self, to: NodeId) -> Introduction {
        let control = Opening { channel: CONTROL, to_one: false, from: self.control.next() };
        let mut channels = vec![control];
        for (&channel, sending) in &self.channels {
            let one = sending.outbound.to();
            if one.is_none_or(|one| one.node == to) {
                channels.push(Opening {
                    channel,
                    to_one: one.is_some(),
                    from: sending.outbound.next(),
                });
            }
        }
        Introduction { member: self.me, boot: self.boot, channels }
    }

    /// Takes a peer's introduction from a handshake.
    pub fn introduce(&mut self, introduction: &Introduction) -> Introduced {
        let outcome = self.gate.introduce(introduction);
        let node = introduction.member.node;
        match outcome {
            Introduced::Older | Introduced::Full => return outcome,
            Introduced::Known => {}
            // State of an older boot is void, its partial messages included ([pkt-1]).
            Introduced::New => {
                self.kept.forget(node);
                let heard = Heard {
                    boot: introduction.boot,
                    quota: Quota::new(&self.limits),
                    channels: BTreeMap::new(),
                    joins: Joins::default(),
                    alive: None,
                    place: None,
                };
                self.heard.insert(node, heard);
            }
        }
        let heard = self.heard.get_mut(&node).expect("introduced");
        for opening in &introduction.channels {
            if opening.channel == CONTROL || !self.gate.hears(node, opening.channel) {
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

    /// Nothing of this node is taken any more.
    pub fn part(&mut self, node: NodeId) {
        self.gate.part(node);
        self.heard.remove(&node);
        self.kept.forget(node);
        self.probes.remove(&node);
    }

    /// Sets the nodes that may ask for an introduction: the members of the group, and its learners.
    pub fn allow(&mut self, members: &[Member]) {
        self.gate.allow(members);
    }

    /// Sets whether received datagrams are kept for others; drops those kept so far if not.
    pub fn set_keeps(&mut self, keeps: bool) {
        if self.keeps && !keeps {
            self.kept = Kept::new(&self.limits);
        }
        self.keeps = keeps;
    }

    /// Sets the nodes that keep datagrams, and are asked for them before their owner.
    pub fn set_acceptors(&mut self, acceptors: &[NodeId]) {
        self.acceptors = acceptors.to_vec();
    }

    /// The round trip to others, as the caller takes it to be.
    pub fn set_rtt(&mut self, rtt_us: u64) {
        self.rtt_us = rtt_us;
        for heard in self.heard.values_mut() {
            for listened in heard.channels.values_mut() {
                listened.inbound.set_rtt(rtt_us, &self.limits);
            }
        }
    }

    /// The keys.
    pub const fn keys(&self) -> &Keys {
        self.gate.keys()
    }

    /// Changes the keys: adds one, hears that a node named one, or switches ([pkt-3]).
    pub fn rekey<T>(&mut self, change: impl FnOnce(&mut Keys) -> T) -> T {
        let done = self.gate.rekey(change);
        self.control.rekey(self.gate.keys());
        for channel in self.channels.values_mut() {
            channel.rekey(self.gate.keys(), self.group);
        }
        done
    }

    /// Datagrams that were not taken, by reason.
    pub const fn refusals(&self) -> &Refusals {
        self.gate.refusals()
    }

    /// Returns the counts of losses and repairs.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// [gap-2] All numbers of a channel below are delivered or given up.
    pub fn done_to(&self, of: ChannelName) -> Option<u64> {
        let heard = self.heard.get(&of.owner).filter(|heard| heard.boot == of.boot)?;
        Some(heard.channels.get(&of.channel)?.inbound.done_to())
    }

    /// [gap-2] A heartbeat, by whatever way, named the number of a channel's next datagram: what is
    /// below and not here is missing.
    pub fn hear_next(&mut self, of: ChannelName, next: u64, now: Time) {
        self.on_channel(of, |inbound, quota, happened| {
            inbound.on_tail(next, now, quota, happened);
        });
    }

    /// When the last original of this node's own came: repairs and answers for others are no sign
    /// of life.
    pub fn alive(&self, node: NodeId) -> Option<Time> {
        self.heard.get(&node)?.alive
    }

    /// Returns the memory held for a sender's incomplete or waiting messages.
    pub fn quota(&self, node: NodeId) -> Option<&Quota> {
        self.heard.get(&node).map(|heard| &heard.quota)
    }

    /// Takes the events since the last call; due after each [`Self::handle`] and [`Self::poll`].
    pub fn take_events(&mut self) -> Vec<Event> {
        mem::take(&mut self.events)
    }

    /// Datagrams that ask, answer and repair. What is not taken in time is dropped, as a network
    /// would.
    pub fn take_control(&mut self) -> Vec<Outgoing> {
        self.control.take()
    }

    /// When [`Self::poll`] has something to do. Data that waits for its pace is
    /// [`Self::data_due`]'s.
    pub fn next_due(&self) -> Option<Time> {
        // A tail waits behind what is not sent yet.
        let idle = self.channels.values().filter(|channel| !channel.outbound.has_unsent());
        let tails = idle.filter_map(|channel| channel.tail.due());
        let heard = self.heard.values().flat_map(|heard| heard.channels.values());
        let waits = heard.flat_map(|listened| {
            let report = listened.inbound.has_missed().then_some(listened.report_at);
            [listened.inbound.next_due(), report]
        });
        tails.chain(waits.flatten()).min()
    }

    /// Asks for what is missing, reports it, says how far this node's channels went.
    pub fn poll(&mut self, now: Time) {
        self.poll_heard(now);
        self.poll_tails(now);
    }

    /// Reports events of a channel to the caller, and to nodes that wait for its packets.
    fn publish(&mut self, of: ChannelName, happened: Vec<Happened>) {
        for one in happened {
            self.events.push(match one {
                Happened::Message { numbers, bytes } => Event::Message { of, numbers, bytes },
                Happened::GivenUp(numbers) => {
                    self.kept.give_up(of, &numbers);
                    Event::GivenUp { of, numbers }
                }
            });
        }
    }
}
