//! A node's endpoint of the packet protocol. Its inputs are datagrams and the time; its outputs are
//! datagrams, messages and losses.
//!
//! The caller owns sockets, clock and addresses. It passes every arriving datagram to
//! [`Endpoint::handle`], calls [`Endpoint::poll`] when [`Endpoint::next_poll_at`] is reached, and
//! then takes the results: [`Endpoint::take_events`], [`Endpoint::take_control`] and, channel by
//! channel, [`Endpoint::next_data_run`].

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
    body::{ChannelName, ChannelOpening, Report, Tail},
    envelope::IncompleteOriginals,
    header::CONTROL_CHANNEL,
    kept::RetainedDatagrams,
    limits::Limits,
    rate::TokenBucket,
    receive::{ChannelEvent, Delivery, InboundChannel, MemoryQuota},
    trust::{
        DatagramGate, GroupIdentity, Introduction, KeyRing, Refusals, gate::IntroductionOutcome,
    },
};

use control::ControlChannel;
use sending::OwnChannel;

/// Round-trip time assumed until the caller sets one, in microseconds.
const INITIAL_RTT_US: u64 = 200;

/// Identity and limits of an endpoint.
#[derive(Clone, Debug)]
pub struct Settings {
    pub own_member: Member,
    /// Durable number of this node's current boot ([pkt-1]).
    pub boot: u32,
    /// Group whose datagrams this endpoint accepts.
    pub group: GroupIdentity,
    /// Keys for sealing datagrams. Without keys, datagrams carry only a checksum, which is for
    /// loopback and trusted segments.
    pub keys: KeyRing,
    pub limits: Limits,
    pub delivery: Delivery,
    /// Set if received datagrams are retained for other nodes, as acceptors do.
    pub retains_datagrams: bool,
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
    pub destination: Destination,
    pub bytes: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A message was received. Each message is delivered once.
    Message {
        /// Channel on which the message was sent.
        channel: ChannelName,
        numbers: Range<u64>,
        bytes: Vec<u8>,
    },
    /// The messages with the given numbers will not arrive.
    GivenUp { channel: ChannelName, numbers: Range<u64> },
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
        is_group_probe: bool,
    },
    /// A receiver of this node's channel reported lost datagrams.
    Reported { node: NodeId, report: Report },
    /// [rate-3] Multicast has stopped, because a leader with this higher ballot sends to the
    /// multicast group.
    MulticastStopped(Ballot),
}

/// One node's endpoint of the packet protocol.
pub struct Endpoint {
    own_member: Member,
    boot: u32,
    group: GroupIdentity,
    limits: Limits,
    delivery: Delivery,
    retains_datagrams: bool,
    gate: DatagramGate,
    control: ControlChannel,
    /// Open channels of this node, by number.
    channels: BTreeMap<u8, OwnChannel>,
    /// Next sequence numbers of closed channels, by channel number.
    closed_channels: BTreeMap<u8, u64>,
    /// State of received channels, by node.
    received_channels: BTreeMap<NodeId, PeerState>,
    retained: RetainedDatagrams,
    /// Nodes to request repairs from before the owner.
    repair_acceptors: Vec<NodeId>,
    rtt_us: u64,
    /// [pkt-7] Rates of repairs: first those of this node's datagrams, then those of other nodes'
    /// datagrams.
    repair_rates: [TokenBucket; 2],
    /// Rate of answers to probes, and to NAKs for packets that are no longer available.
    answer_rate: TokenBucket,
    probes: BTreeMap<NodeId, OutstandingProbes>,
    group_probes: OutstandingProbes,
    dice: Dice,
    events: Vec<Event>,
    counters: Counters,
    chaining: chaining::ChainForwarding,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Number of ranges requested, including repeated requests.
    pub ranges_requested: u64,
    /// Number of datagrams retransmitted to one node.
    pub repaired_to_one: u64,
    /// Number of this node's datagrams retransmitted by multicast.
    pub repaired_to_group: u64,
    /// Number of datagrams forwarded along the chains of other nodes.
    pub forwarded: u64,
}

/// Nonces and send times of the newest outstanding probes.
#[derive(Default)]
struct OutstandingProbes(VecDeque<(u64, Time)>);

impl OutstandingProbes {
    /// Maximum number of outstanding probes. Several may be in flight on a slow path. Answers to
    /// evicted probes are ignored.
    const UNDER_WAY_MAX: usize = 8;

    fn record_sent(&mut self, nonce: u64, now: Time) {
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
    fn remove_answered(&mut self, nonce: u64) {
        if let Some(at) = self.0.iter().position(|(sent, _)| *sent == nonce) {
            self.0.drain(..=at);
        }
    }
}

/// State of the channels received from one node.
struct PeerState {
    boot: u32,
    quota: MemoryQuota,
    channels: BTreeMap<u8, ReceivedChannel>,
    /// Retransmitted datagrams of which parts are still missing.
    incomplete_repairs: IncompleteOriginals,
    /// Arrival time of the node's latest original datagram ([gap-4]).
    last_original_at: Option<Time>,
    /// This node's place in the other node's chain, if it is in one.
    chain_position: Option<chaining::ChainPosition>,
}

/// A channel that this node listens to.
struct ReceivedChannel {
    inbound: InboundChannel,
    is_unicast: bool,
    /// Time before which no further report is sent.
    next_report_at: Time,
}

impl Endpoint {
    pub fn new(settings: Settings, now: Time) -> Self {
        let Settings {
            own_member: me,
            boot,
            group,
            keys,
            limits,
            delivery,
            retains_datagrams: keeps,
            seed,
        } = settings;
        let repairs = limits.repair_percent.map(|percent| {
            let rate = limits.link_bytes_s / 100 * percent;
            TokenBucket::new(rate, (rate / 100).max(64 << 10), now)
        });
        Self {
            control: ControlChannel::new(me, boot, group, &keys),
            gate: DatagramGate::new(me, group, keys),
            own_member: me,
            boot,
            group,
            delivery,
            retains_datagrams: keeps,
            channels: BTreeMap::new(),
            closed_channels: BTreeMap::new(),
            received_channels: BTreeMap::new(),
            retained: RetainedDatagrams::new(&limits),
            repair_acceptors: Vec::new(),
            rtt_us: INITIAL_RTT_US,
            repair_rates: repairs,
            answer_rate: TokenBucket::new(
                limits.probe_answers_per_s,
                (limits.probe_answers_per_s / 2).max(1),
                now,
            ),
            probes: BTreeMap::new(),
            group_probes: OutstandingProbes::default(),
            dice: Dice::new(seed),
            events: Vec::new(),
            counters: Counters::default(),
            chaining: chaining::ChainForwarding::default(),
            limits,
        }
    }

    /// Returns the introduction for one peer, with the channels that it may listen to.
    pub fn introduction_for(&self, to: NodeId) -> Introduction {
        let control = ChannelOpening {
            channel: CONTROL_CHANNEL,
            is_unicast: false,
            from: self.control.next_number(),
        };
        let mut channels = vec![control];
        for (&channel, sending) in &self.channels {
            let one = sending.outbound.to();
            if one.is_none_or(|one| one.node == to) {
                channels.push(ChannelOpening {
                    channel,
                    is_unicast: one.is_some(),
                    from: sending.outbound.next_number(),
                });
            }
        }
        Introduction { member: self.own_member, boot: self.boot, channels }
    }

    /// Accepts a peer's introduction from a handshake.
    pub fn introduce(&mut self, introduction: &Introduction) -> IntroductionOutcome {
        let outcome = self.gate.introduce(introduction);
        let node = introduction.member.node;
        match outcome {
            IntroductionOutcome::Older | IntroductionOutcome::Full => return outcome,
            IntroductionOutcome::Known => {}
            // All state of an older boot is obsolete, including partial messages ([pkt-1]).
            IntroductionOutcome::New => {
                self.retained.drop_owner(node);
                let heard = PeerState {
                    boot: introduction.boot,
                    quota: MemoryQuota::new(&self.limits),
                    channels: BTreeMap::new(),
                    incomplete_repairs: IncompleteOriginals::default(),
                    last_original_at: None,
                    chain_position: None,
                };
                self.received_channels.insert(node, heard);
            }
        }
        let heard = self.received_channels.get_mut(&node).expect("introduced");
        for opening in &introduction.channels {
            if opening.channel == CONTROL_CHANNEL || !self.gate.may_listen(node, opening.channel) {
                continue;
            }
            let dice = self.dice.fork();
            heard.channels.entry(opening.channel).or_insert_with(|| {
                let mut inbound =
                    InboundChannel::new(opening.from.max(1), self.delivery, &self.limits, dice);
                inbound.set_rtt(self.rtt_us, &self.limits);
                ReceivedChannel { inbound, is_unicast: opening.is_unicast, next_report_at: Time(0) }
            });
        }
        outcome
    }

    /// Stops accepting datagrams from a node.
    pub fn remove_peer(&mut self, node: NodeId) {
        self.gate.remove_peer(node);
        self.received_channels.remove(&node);
        self.retained.drop_owner(node);
        self.probes.remove(&node);
    }

    /// Sets the nodes that may request an introduction: the members of the group, and its learners.
    pub fn set_allowed_members(&mut self, members: &[Member]) {
        self.gate.set_allowed_members(members);
    }

    /// Sets whether received datagrams are retained for other nodes. If not, drops the retained
    /// ones.
    pub fn set_retains_datagrams(&mut self, keeps: bool) {
        if self.retains_datagrams && !keeps {
            self.retained = RetainedDatagrams::new(&self.limits);
        }
        self.retains_datagrams = keeps;
    }

    /// Sets the nodes that retain datagrams. Repairs are requested from them before the owner.
    pub fn set_acceptors(&mut self, acceptors: &[NodeId]) {
        self.repair_acceptors = acceptors.to_vec();
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

    pub const fn keys(&self) -> &KeyRing {
        self.gate.keys()
    }

    /// Changes the keys: adds one, records a node's announcement, or switches ([pkt-3]).
    pub fn rekey<T>(&mut self, change: impl FnOnce(&mut KeyRing) -> T) -> T {
        let done = self.gate.change_keys(change);
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
    pub fn finished_to(&self, of: ChannelName) -> Option<u64> {
        let heard = self.received_channels.get(&of.owner).filter(|heard| heard.boot == of.boot)?;
        Some(heard.channels.get(&of.channel)?.inbound.finished_to())
    }

    /// [gap-2] Handles a heartbeat, received on any path, that contains the number of the channel's
    /// next datagram. Lower numbers that have not arrived are missing.
    pub fn on_next_number(&mut self, of: ChannelName, next: u64, now: Time) {
        self.with_channel(of, |inbound, quota, happened| {
            inbound.on_tail(next, now, quota, happened);
        });
    }

    /// Returns when a node's latest original datagram arrived. Repairs and answers sent by other
    /// nodes on its behalf do not prove that it is alive.
    pub fn last_original_at(&self, node: NodeId) -> Option<Time> {
        self.received_channels.get(&node)?.last_original_at
    }

    /// Returns the memory quota used by a sender's incomplete or waiting messages.
    pub fn quota(&self, node: NodeId) -> Option<&MemoryQuota> {
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

    /// Returns when [`Self::poll`] is due next. For paced data, see [`Self::next_data_at`].
    pub fn next_poll_at(&self) -> Option<Time> {
        // A tail waits until everything has been sent.
        let idle = self.channels.values().filter(|channel| !channel.outbound.has_unsent());
        let tails = idle.filter_map(|channel| channel.tail.next_tail_at());
        let heard = self.received_channels.values().flat_map(|heard| heard.channels.values());
        let waits = heard.flat_map(|listened| {
            let report =
                listened.inbound.has_unreported_losses().then_some(listened.next_report_at);
            [listened.inbound.next_due(), report]
        });
        tails.chain(waits.flatten()).min()
    }

    /// Requests and reports missing datagrams, and sends the tails that are due.
    pub fn poll(&mut self, now: Time) {
        self.send_due_requests(now);
        self.send_due_tails(now);
    }

    /// Reports the events of a channel to the caller, and answers nodes that wait for its packets.
    fn publish_events(&mut self, of: ChannelName, happened: Vec<ChannelEvent>) {
        for one in happened {
            self.events.push(match one {
                ChannelEvent::Message { numbers, bytes } => {
                    Event::Message { channel: of, numbers, bytes }
                }
                ChannelEvent::GivenUp(numbers) => {
                    self.retained.forget_waiting_nodes(of, &numbers);
                    Event::GivenUp { channel: of, numbers }
                }
            });
        }
    }
}
