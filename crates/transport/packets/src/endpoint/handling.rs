//! Handling of incoming datagrams.

use std::ops::Range;

use quorate_core::{node_id::NodeId, time::Time};

use crate::{
    body::{Answer, Body, ChannelName, Numbers, RANGES_MAX},
    endpoint::{Endpoint, Event, PeerState},
    header::Header,
    receive::{ChannelEvent, Inbound, Quota},
    send::Verdict,
    spans::Spans,
    trust::{Refusal, gate::Introduced},
};

/// Maximum number of packets sent in response to one NAK. The receiver can request more later.
const ANSWERED_MAX: usize = 4096;

/// Maximum age of a lost packet, in round trips, for the loss to affect the rate.
const YOUNG_RTTS: u64 = 4;

/// Path by which a datagram arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arrival {
    /// The datagram arrived directly. Other nodes may have received it, too.
    Original,
    /// The datagram arrived in an envelope.
    Repaired,
}

impl Endpoint {
    /// Handles a datagram. If it is refused, increments the counter of the reason and returns it.
    pub fn handle(&mut self, datagram: &[u8], now: Time) -> Result<(), Refusal> {
        let admitted = self.gate.admit(datagram)?;
        let (header, from) = (admitted.header, admitted.header.sender);
        if let Some(introduction) = admitted.introduced
            && let Introduced::New | Introduced::Known = self.introduce(&introduction)
        {
            self.events.push(Event::Introduced(introduction));
        }
        if let (Some(heard), Body::Fragment(_) | Body::Tail(_)) =
            (self.received_channels.get_mut(&from), &admitted.body)
        {
            heard.alive = Some(now);
        }
        self.forward_datagram(&header, datagram);
        match admitted.body {
            Body::Chain(chain) => self.on_chain(from, &chain),
            Body::Fragment(part) => {
                self.on_fragment(&header, part, datagram, Arrival::Original, now)
            }
            Body::Tail(tail) => {
                let of = name(&header, tail.channel);
                self.on_channel(of, |inbound, quota, happened| {
                    inbound.on_tail(tail.next, now, quota, happened);
                });
                if tail.ballot.node == from {
                    self.handle_leader_frame(tail.ballot);
                }
                self.events.push(Event::TailReceived { from, tail });
            }
            Body::Nak(numbers) => self.on_nak(from, &numbers, now),
            Body::Gone(numbers) => {
                let by_owner = numbers.of.owner == from;
                for range in &numbers.ranges {
                    self.on_channel(numbers.of, |inbound, quota, happened| {
                        inbound.on_gone(range, by_owner, now, quota, happened);
                    });
                }
            }
            Body::Report(report) => {
                let own =
                    report.missed.of.owner == self.me.node && report.missed.of.boot == self.boot;
                // [rate-2] Four round trips, and the time to produce a report.
                let limits = &self.limits;
                let grace_us = match self.first_of_chain() {
                    Some(_) => limits.chain_grace_us,
                    None => limits.reorder_grace_us,
                };
                let young_us =
                    YOUNG_RTTS * self.rtt_us + limits.report_us + grace_us + limits.jitter_us;
                let channel = self.channels.get_mut(&report.missed.of.channel);
                if let (true, Some(channel)) = (own, channel) {
                    let missed = &report.missed.ranges;
                    channel.losses.report(from, missed, report.lost, now, young_us);
                    self.events.push(Event::Reported { node: from, report });
                }
            }
            Body::Repair(part) => {
                let heard = self.received_channels.get_mut(&from);
                let place = (header.index, header.count);
                let original = heard.and_then(|heard| heard.joins.add(header.first(), place, part));
                if let Some(original) = original {
                    self.on_repair(&original, now)?;
                }
            }
            Body::Probe(nonce) => self.on_probe(from, nonce, now),
            Body::Answer(answer) => {
                let probes = self.probes.get_mut(&from);
                let own = probes.and_then(|probes| {
                    let at = probes.sent_at(answer.nonce)?;
                    probes.answered(answer.nonce);
                    Some(at)
                });
                // A probe to the group gets an answer from each receiver.
                let at = own.or_else(|| self.group_probes.sent_at(answer.nonce));
                if let Some(at) = at {
                    self.events.push(Event::Answered {
                        node: from,
                        rtt_us: now.since_us(at),
                        by_group: own.is_none(),
                    });
                }
            }
        }
        Ok(())
    }

    /// Probes whether a peer is reachable. The caller must draw the nonce from a secure source. If
    /// no handshake has introduced the peer, its answer to the probe does ([pkt-2]).
    pub fn probe(&mut self, node: NodeId, nonce: u64, now: Time) {
        let Some(member) = self.gate.peer(node).or_else(|| self.gate.member(node)) else {
            return;
        };
        self.gate.challenge(node, nonce);
        self.probes.entry(node).or_default().sent(nonce, now);
        self.control.queue_datagram(Some(member), &Body::Probe(nonce));
    }

    /// Finds by probes which nodes receive this node's multicast datagrams. Answers do not
    /// introduce them.
    pub fn probe_group(&mut self, nonce: u64, now: Time) {
        self.group_probes.sent(nonce, now);
        self.control.queue_datagram(None, &Body::Probe(nonce));
    }

    fn on_probe(&mut self, from: NodeId, nonce: u64, now: Time) {
        let member = self.gate.peer(from).or_else(|| self.gate.member(from));
        if let Some(member) = member.filter(|_| self.answers.take_bytes(1, now)) {
            let channels = self.introduction(from).channels;
            let answer = Answer { nonce, channels };
            self.control.queue_datagram(Some(member), &Body::Answer(answer));
        }
    }

    /// Runs `work` on a channel of another node's current boot, if this node listens to it.
    pub(super) fn on_channel(
        &mut self,
        of: ChannelName,
        work: impl FnOnce(&mut Inbound, &mut Quota, &mut Vec<ChannelEvent>),
    ) {
        let heard = self.received_channels.get_mut(&of.owner).filter(|heard| heard.boot == of.boot);
        let Some(PeerState { channels, quota, .. }) = heard else {
            return;
        };
        if let Some(listened) = channels.get_mut(&of.channel) {
            let mut happened = Vec::new();
            work(&mut listened.inbound, quota, &mut happened);
            self.publish(of, happened);
        }
    }

    fn on_fragment(
        &mut self,
        header: &Header,
        part: &[u8],
        datagram: &[u8],
        way: Arrival,
        now: Time,
    ) {
        let of = name(header, header.channel);
        if self.keeps && !header.to_one {
            self.retained.store_datagram(of, header.number, datagram);
        }
        // [pkt-7] A datagram sent to the group has also reached the nodes that wait for it, but a
        // repair has reached only this node.
        for node in self.retained.take_waiting(of, header.number) {
            if let (Arrival::Repaired, Some(to)) = (way, self.gate.peer(node))
                && self.repairs[1].take_bytes(datagram.len(), now)
            {
                self.counters.repaired += 1;
                self.control.repair(to, datagram, self.limits.datagram_bytes);
            }
        }
        let place = (header.number, header.index, header.count);
        self.on_channel(of, |inbound, quota, happened| {
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
            self.on_fragment(&admitted.header, part, original, Arrival::Repaired, now);
        }
        Ok(())
    }

    /// Handles a node's request for packets of this node or of another one.
    fn on_nak(&mut self, from: NodeId, numbers: &Numbers, now: Time) {
        let of = numbers.of;
        let gone = if of.owner == self.me.node {
            self.repair_own(from, numbers, now)
        } else {
            self.repair_others(from, numbers, now)
        };
        let ranges: Vec<Range<u64>> = gone.iter().take(RANGES_MAX).collect();
        if let Some(to) = self.gate.peer(from)
            && !ranges.is_empty()
            && self.answers.take_bytes(1, now)
        {
            self.control.queue_datagram(Some(to), &Body::Gone(Numbers { of, ranges }));
        }
    }

    /// Retransmits this node's own packets. Returns the numbers that are no longer available, which
    /// is all of them if they belong to an older boot ([pkt-1]).
    fn repair_own(&mut self, from: NodeId, numbers: &Numbers, now: Time) -> Spans {
        let mut gone = Spans::default();
        let channel = self.channels.get_mut(&numbers.of.channel);
        let (Some(to), Some(channel), true) =
            (self.gate.peer(from), channel, numbers.of.boot == self.boot)
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
        for number in sent.flatten().take(ANSWERED_MAX) {
            let Some(datagram) = channel.outbound.datagram(number) else {
                gone.add(number..number + 1);
                continue;
            };
            let verdict = if to_group {
                channel.repair_requests.decide_response(number, from, now, self.rtt_us)
            } else {
                Verdict::One
            };
            if verdict == Verdict::Silence {
                continue;
            }
            if !self.repairs[0].take_bytes(datagram.len(), now) {
                channel.repair_requests.undo(number);
                break;
            }
            match verdict {
                Verdict::One => {
                    self.counters.repaired += 1;
                    self.control.repair(to, datagram, self.limits.datagram_bytes);
                }
                Verdict::Group => {
                    self.counters.repeated += 1;
                    self.control.queue_retransmission(datagram);
                }
                Verdict::Silence => {}
            }
        }
        gone
    }

    /// Retransmits another node's packets. Returns the numbers that this node neither has nor has
    /// requested.
    fn repair_others(&mut self, from: NodeId, numbers: &Numbers, now: Time) -> Spans {
        let of = numbers.of;
        let (mut gone, mut missing) = (Spans::default(), Vec::new());
        let Some(to) = self.gate.peer(from) else {
            return gone;
        };
        let known = self.received_channels.get(&of.owner).filter(|heard| heard.boot == of.boot);
        let inbound = known.and_then(|heard| heard.channels.get(&of.channel));
        for number in numbers.ranges.iter().cloned().flatten().take(ANSWERED_MAX) {
            if let Some(datagram) = self.retained.datagram(of, number) {
                if !self.repairs[1].take_bytes(datagram.len(), now) {
                    break;
                }
                self.counters.repaired += 1;
                self.control.repair(to, datagram, self.limits.datagram_bytes);
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
            self.on_channel(of, |inbound, quota, happened| {
                inbound.request_at_once(&(number..number + 1), now, quota, happened);
            });
        }
        gone
    }
}

const fn name(header: &Header, channel: u8) -> ChannelName {
    ChannelName { owner: header.sender, boot: header.boot, channel }
}
