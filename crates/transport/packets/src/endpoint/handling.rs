//! Handling of incoming datagrams.

use std::ops::Range;

use quorate_core::{node_id::NodeId, time::Time};

use crate::{
    body::{Body, ChannelName, ChannelNumbers, ProbeAnswer, RANGES_MAX},
    endpoint::{Endpoint, Event, PeerState},
    header::Header,
    receive::{ChannelEvent, InboundChannel, MemoryQuota},
    send::RepairResponse,
    spans::NumberSet,
    trust::{Refusal, gate::IntroductionOutcome},
};

/// Maximum number of packets sent in response to one NAK. The receiver can request more later.
const REPAIRS_PER_NAK_MAX: usize = 4096;

/// Maximum age of a lost packet, in round trips, for the loss to affect the rate.
const LOSS_AGE_RTTS_MAX: u64 = 4;

/// Path by which a datagram arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ArrivalPath {
    /// The datagram arrived directly. Other nodes may have received it, too.
    Direct,
    /// The datagram arrived in an envelope.
    InEnvelope,
}

impl Endpoint {
    /// Handles a datagram. If it is refused, increments the counter of the reason and returns it.
    pub fn handle(&mut self, datagram: &[u8], now: Time) -> Result<(), Refusal> {
        let admitted = self.gate.admit_datagram(datagram)?;
        let (header, from) = (admitted.header, admitted.header.sender);
        if let Some(introduction) = admitted.introduced
            && let IntroductionOutcome::New | IntroductionOutcome::Known =
                self.introduce(&introduction)
        {
            self.events.push(Event::Introduced(introduction));
        }
        if let (Some(heard), Body::Fragment(_) | Body::Tail(_)) =
            (self.received_channels.get_mut(&from), &admitted.body)
        {
            heard.last_original_at = Some(now);
        }
        self.forward_datagram(&header, datagram);
        match admitted.body {
            Body::Chain(chain) => self.on_chain(from, &chain),
            Body::Fragment(part) => {
                self.on_fragment(&header, part, datagram, ArrivalPath::Direct, now)
            }
            Body::Tail(tail) => {
                let of = name(&header, tail.channel);
                self.with_channel(of, |inbound, quota, happened| {
                    inbound.on_tail(tail.next, now, quota, happened);
                });
                if tail.ballot.node == from {
                    self.on_leader_frame(tail.ballot);
                }
                self.events.push(Event::TailReceived { from, tail });
            }
            Body::Nak(numbers) => self.on_nak(from, &numbers, now),
            Body::Gone(numbers) => {
                let by_owner = numbers.channel.owner == from;
                for range in &numbers.ranges {
                    self.with_channel(numbers.channel, |inbound, quota, happened| {
                        inbound.on_gone(range, by_owner, now, quota, happened);
                    });
                }
            }
            Body::Report(report) => {
                let own = report.missed_numbers.channel.owner == self.own_member.node
                    && report.missed_numbers.channel.boot == self.boot;
                // [rate-2] Four round trips, and the time to produce a report.
                let limits = &self.limits;
                let grace_us = match self.first_chain_node() {
                    Some(_) => limits.chain_grace_us,
                    None => limits.reorder_grace_us,
                };
                let young_us = LOSS_AGE_RTTS_MAX * self.rtt_us
                    + limits.report_interval_us_min
                    + grace_us
                    + limits.jitter_us;
                let channel = self.channels.get_mut(&report.missed_numbers.channel.channel);
                if let (true, Some(channel)) = (own, channel) {
                    let missed = &report.missed_numbers.ranges;
                    channel.losses.record_report(from, missed, report.lost_total, now, young_us);
                    self.events.push(Event::Reported { node: from, report });
                }
            }
            Body::Repair(part) => {
                let heard = self.received_channels.get_mut(&from);
                let place = (header.index, header.part_count);
                let original = heard.and_then(|heard| {
                    heard.incomplete_repairs.add_part(header.first_number(), place, part)
                });
                if let Some(original) = original {
                    self.on_repair(&original, now)?;
                }
            }
            Body::Probe(nonce) => self.on_probe(from, nonce, now),
            Body::Answer(answer) => {
                let probes = self.probes.get_mut(&from);
                let own = probes.and_then(|probes| {
                    let at = probes.sent_at(answer.nonce)?;
                    probes.remove_answered(answer.nonce);
                    Some(at)
                });
                // A probe to the group gets an answer from each receiver.
                let at = own.or_else(|| self.group_probes.sent_at(answer.nonce));
                if let Some(at) = at {
                    self.events.push(Event::Answered {
                        node: from,
                        rtt_us: now.since_us(at),
                        is_group_probe: own.is_none(),
                    });
                }
            }
        }
        Ok(())
    }

    /// Probes whether a peer is reachable. The caller must draw the nonce from a secure source. If
    /// no handshake has introduced the peer, its answer to the probe does ([pkt-2]).
    pub fn send_probe(&mut self, node: NodeId, nonce: u64, now: Time) {
        let Some(member) = self.gate.peer(node).or_else(|| self.gate.member(node)) else {
            return;
        };
        self.gate.set_challenge(node, nonce);
        self.probes.entry(node).or_default().record_sent(nonce, now);
        self.control.queue_datagram(Some(member), &Body::Probe(nonce));
    }

    /// Finds by probes which nodes receive this node's multicast datagrams. Answers do not
    /// introduce them.
    pub fn send_group_probe(&mut self, nonce: u64, now: Time) {
        self.group_probes.record_sent(nonce, now);
        self.control.queue_datagram(None, &Body::Probe(nonce));
    }

    fn on_probe(&mut self, from: NodeId, nonce: u64, now: Time) {
        let member = self.gate.peer(from).or_else(|| self.gate.member(from));
        if let Some(member) = member.filter(|_| self.answer_rate.take_bytes(1, now)) {
            let channels = self.introduction_for(from).channels;
            let answer = ProbeAnswer { nonce, channels };
            self.control.queue_datagram(Some(member), &Body::Answer(answer));
        }
    }

    /// Runs `work` on a channel of another node's current boot, if this node listens to it.
    pub(super) fn with_channel(
        &mut self,
        of: ChannelName,
        work: impl FnOnce(&mut InboundChannel, &mut MemoryQuota, &mut Vec<ChannelEvent>),
    ) {
        let heard = self.received_channels.get_mut(&of.owner).filter(|heard| heard.boot == of.boot);
        let Some(PeerState { channels, quota, .. }) = heard else {
            return;
        };
        if let Some(listened) = channels.get_mut(&of.channel) {
            let mut happened = Vec::new();
            work(&mut listened.inbound, quota, &mut happened);
            self.publish_events(of, happened);
        }
    }

    fn on_fragment(
        &mut self,
        header: &Header,
        part: &[u8],
        datagram: &[u8],
        way: ArrivalPath,
        now: Time,
    ) {
        let of = name(header, header.channel);
        if self.retains_datagrams && !header.is_unicast {
            self.retained.store_datagram(of, header.number, datagram);
        }
        // [pkt-7] A datagram sent to the group has also reached the nodes that wait for it, but a
        // repair has reached only this node.
        for node in self.retained.take_waiting_nodes(of, header.number) {
            if let (ArrivalPath::InEnvelope, Some(to)) = (way, self.gate.peer(node))
                && self.repair_rates[1].take_bytes(datagram.len(), now)
            {
                self.counters.repaired_to_one += 1;
                self.control.queue_repair(to, datagram, self.limits.datagram_bytes);
            }
        }
        let place = (header.number, header.index, header.part_count);
        self.with_channel(of, |inbound, quota, happened| {
            inbound.receive_part(place, part, now, quota, happened);
        });
    }

    /// [pkt-5] Accepts an original in a repair from any node, if it is missing.
    fn on_repair(&mut self, original: &[u8], now: Time) -> Result<(), Refusal> {
        let heard = &self.received_channels;
        let wanted = |header: &Header| {
            let channels = heard.get(&header.sender).map(|heard| &heard.channels);
            let listened = channels.and_then(|channels| channels.get(&header.channel));
            listened.is_some_and(|listened| listened.inbound.is_missing(header.number))
        };
        let admitted = self.gate.admit_repaired(original, wanted)?;
        if let Body::Fragment(part) = admitted.body {
            self.on_fragment(&admitted.header, part, original, ArrivalPath::InEnvelope, now);
        }
        Ok(())
    }

    /// Handles a node's request for packets of this node or of another one.
    fn on_nak(&mut self, from: NodeId, numbers: &ChannelNumbers, now: Time) {
        let of = numbers.channel;
        let gone = if of.owner == self.own_member.node {
            self.retransmit_own(from, numbers, now)
        } else {
            self.retransmit_others(from, numbers, now)
        };
        let ranges: Vec<Range<u64>> = gone.iter().take(RANGES_MAX).collect();
        if let Some(to) = self.gate.peer(from)
            && !ranges.is_empty()
            && self.answer_rate.take_bytes(1, now)
        {
            self.control
                .queue_datagram(Some(to), &Body::Gone(ChannelNumbers { channel: of, ranges }));
        }
    }

    /// Retransmits this node's own packets. Returns the numbers that are no longer available, which
    /// is all of them if they belong to an older boot ([pkt-1]).
    fn retransmit_own(&mut self, from: NodeId, numbers: &ChannelNumbers, now: Time) -> NumberSet {
        let mut gone = NumberSet::default();
        let channel = self.channels.get_mut(&numbers.channel.channel);
        let (Some(to), Some(channel), true) =
            (self.gate.peer(from), channel, numbers.channel.boot == self.boot)
        else {
            numbers.ranges.iter().for_each(|range| gone.add(range.clone()));
            return gone;
        };
        if channel.outbound.to().is_some_and(|one| one != to) {
            return gone;
        }
        let to_group = channel.outbound.to().is_none();
        let sent = numbers
            .ranges
            .iter()
            .map(|range| range.start..range.end.min(channel.outbound.sent_to()));
        for number in sent.flatten().take(REPAIRS_PER_NAK_MAX) {
            let Some(datagram) = channel.outbound.datagram(number) else {
                gone.add(number..number + 1);
                continue;
            };
            let verdict = if to_group {
                channel.repair_requests.decide_response(number, from, now, self.rtt_us)
            } else {
                RepairResponse::ToRequester
            };
            if verdict == RepairResponse::NoResponse {
                continue;
            }
            if !self.repair_rates[0].take_bytes(datagram.len(), now) {
                channel.repair_requests.forget_request(number);
                break;
            }
            match verdict {
                RepairResponse::ToRequester => {
                    self.counters.repaired_to_one += 1;
                    self.control.queue_repair(to, datagram, self.limits.datagram_bytes);
                }
                RepairResponse::ToGroup => {
                    self.counters.repaired_to_group += 1;
                    self.control.queue_retransmission(datagram);
                }
                RepairResponse::NoResponse => {}
            }
        }
        gone
    }

    /// Retransmits another node's packets. Returns the numbers that this node neither has nor has
    /// requested.
    fn retransmit_others(
        &mut self,
        from: NodeId,
        numbers: &ChannelNumbers,
        now: Time,
    ) -> NumberSet {
        let of = numbers.channel;
        let (mut gone, mut missing) = (NumberSet::default(), Vec::new());
        let Some(to) = self.gate.peer(from) else {
            return gone;
        };
        let known = self.received_channels.get(&of.owner).filter(|heard| heard.boot == of.boot);
        let inbound = known.and_then(|heard| heard.channels.get(&of.channel));
        for number in numbers.ranges.iter().cloned().flatten().take(REPAIRS_PER_NAK_MAX) {
            if let Some(datagram) = self.retained.datagram(of, number) {
                if !self.repair_rates[1].take_bytes(datagram.len(), now) {
                    break;
                }
                self.counters.repaired_to_one += 1;
                self.control.queue_repair(to, datagram, self.limits.datagram_bytes);
            } else if inbound
                .is_some_and(|listened| !listened.inbound.missing(&(number..number + 1)).is_empty())
            {
                missing.push(number);
            } else {
                gone.add(number..number + 1);
            }
        }
        // [pkt-7] This node requests each missing packet only once itself, and forwards what
        // arrives.
        for number in missing {
            self.retained.add_waiting_node(of, number, from);
            self.with_channel(of, |inbound, quota, happened| {
                inbound.request_from_owner(&(number..number + 1), now, quota, happened);
            });
        }
        gone
    }
}

const fn name(header: &Header, channel: u8) -> ChannelName {
    ChannelName { owner: header.sender, boot: header.boot, channel }
}
