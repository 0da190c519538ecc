//! This node's own channels: accepts messages, and sends paced datagrams followed by tails.

use quorate_core::{
    ballot::Ballot,
    node_id::{Member, NodeId},
    slot::Slot,
    time::Time,
};

use crate::{
    body::{Body, Tail},
    buffer::DatagramRun,
    endpoint::{Destination, Endpoint, Event},
    header::CONTROL_CHANNEL,
    limits::OWN_CHANNELS_MAX,
    rate::{LossTracker, Pacer},
    send::{OutboundChannel, PushError, PushedNumbers, RepairRequests, TailTimer},
    trust::{GroupIdentity, KeyRing, TagContext, TagKey},
};

/// Batching period of a paced channel, in microseconds of sending at the current rate.
const BATCHING_US: u64 = 200;

pub(super) struct OwnChannel {
    tag_context: TagContext,
    pub(super) outbound: OutboundChannel,
    key: u8,
    tag_key: TagKey,
    pub(super) repair_requests: RepairRequests,
    pub(super) losses: LossTracker,
    pub(super) pacer: Pacer,
    pub(super) tail: TailTimer,
    /// Ballot and decided slot that tails announce.
    announced_decided: (Ballot, Slot),
    /// [rate-3] The higher ballot, once a frame from its leader has arrived on the group.
    stopped_by_ballot: Option<Ballot>,
}

impl OwnChannel {
    pub(super) fn rekey(&mut self, keys: &KeyRing, group: GroupIdentity) {
        self.tag_context.group = group;
        let (key, with) = keys.current();
        (self.key, self.tag_key) = (key, TagKey::new(with, &self.tag_context));
    }
}

/// Returns the number of bytes that a paced channel collects before it sends: all that are
/// queued, but at most one batching period's worth, and at least a datagram. Waking up for each
/// datagram would cost more than sending it.
fn batch_threshold(pacer: &Pacer, outbound: &OutboundChannel) -> usize {
    let moment = pacer.bytes_allowed_in(BATCHING_US);
    outbound.unsent_bytes_within(moment).max(outbound.datagram_bytes())
}

/// Error for a channel that cannot be opened: its number is [`CONTROL_CHANNEL`] or in use, or
/// [`OWN_CHANNELS_MAX`] are open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelUnavailable;

impl Endpoint {
    /// Opens a channel to the multicast group or to one member. Handshakes announce it to its
    /// listeners.
    pub fn open(
        &mut self,
        channel: u8,
        to: Option<Member>,
        now: Time,
    ) -> Result<(), ChannelUnavailable> {
        let full = self.channels.len() >= OWN_CHANNELS_MAX;
        if channel == CONTROL_CHANNEL || self.channels.contains_key(&channel) || full {
            return Err(ChannelUnavailable);
        }
        let place =
            TagContext { group: self.group, sender: self.own_member, boot: self.boot, channel };
        let (key, with) = self.gate.keys().current();
        let opened = OwnChannel {
            outbound: OutboundChannel::new(
                self.control.header_template(channel, to),
                to,
                self.closed_channels.remove(&channel).unwrap_or(1),
                &self.limits,
            ),
            key,
            tag_key: TagKey::new(with, &place),
            tag_context: place,
            repair_requests: RepairRequests::default(),
            losses: LossTracker::default(),
            pacer: Pacer::new(self.limits.link_bytes_s, now),
            tail: TailTimer::new(
                self.limits.first_tail_us,
                match to {
                    Some(_) => self.limits.unicast_tail_interval_us_max,
                    None => self.limits.tail_interval_us_max,
                },
            ),
            announced_decided: (Ballot::ZERO, Slot(0)),
            stopped_by_ballot: None,
        };
        self.channels.insert(channel, opened);
        Ok(())
    }

    /// Closes a channel and drops its unsent datagrams. Sent ones are no longer repaired. If the
    /// channel number is reopened, for any receiver, sequence numbers continue ([pkt-1]).
    pub fn close(&mut self, channel: u8) {
        if let Some(ended) = self.channels.remove(&channel) {
            self.closed_channels.insert(channel, ended.outbound.sent_to());
        }
    }

    /// Sets the receivers whose losses affect the rate of a channel ([rate-2]).
    pub fn set_loss_receivers(&mut self, channel: u8, receivers: &[NodeId]) {
        if let Some(channel) = self.channels.get_mut(&channel) {
            channel.losses.set_receivers(receivers);
        }
    }

    /// Queues a message, whose datagrams [`Self::next_data_run`] returns. The channel must be open.
    pub fn send(&mut self, channel: u8, message: &[u8]) -> Result<PushedNumbers, PushError> {
        self.send_pieces(channel, &[message])
    }

    /// Queues a message that consists of several slices. The channel must be open.
    pub fn send_pieces(
        &mut self,
        channel: u8,
        message: &[&[u8]],
    ) -> Result<PushedNumbers, PushError> {
        let channel = self.channels.get_mut(&channel).expect("the channel is open");
        if channel.stopped_by_ballot.is_some() {
            return Err(PushError::Stopped);
        }
        channel.outbound.push(message, channel.key, &channel.tag_key)
    }

    /// Returns how many more message bytes a channel accepts before its window of undecided
    /// messages is full ([rate-1]).
    pub fn window_bytes_left(&self, channel: u8) -> usize {
        self.channels.get(&channel).map_or(0, |channel| channel.outbound.window_bytes_left())
    }

    /// Returns the number of a channel's next datagram, which heartbeats contain ([gap-2]).
    pub fn next_number(&self, channel: u8) -> Option<u64> {
        self.channels.get(&channel).map(|channel| channel.outbound.next_number())
    }

    /// Returns one past the number of the last datagram sent on a channel. No higher number can be
    /// missing yet.
    pub fn sent_to(&self, channel: u8) -> Option<u64> {
        self.channels.get(&channel).map(|channel| channel.outbound.sent_to())
    }

    /// [pkt-8] Releases all messages of a channel below `number`, because they are decided and
    /// announced.
    pub fn release_to(&mut self, channel: u8, number: u64) {
        if let Some(channel) = self.channels.get_mut(&channel) {
            channel.outbound.release_to(number);
        }
    }

    /// Sets the decided slot that tails announce, with the ballot of its values ([told-2]).
    pub fn set_announced_decided(
        &mut self,
        channel: u8,
        ballot: Ballot,
        decided_to: Slot,
        now: Time,
    ) {
        let Some(channel) = self.channels.get_mut(&channel) else {
            return;
        };
        if channel.announced_decided == (ballot, decided_to) {
            return;
        }
        channel.stopped_by_ballot = channel.stopped_by_ballot.filter(|by| ballot <= *by);
        channel.announced_decided = (ballot, decided_to);
        if !channel.outbound.has_unsent() {
            channel.tail.restart(now);
        }
    }

    /// [rate-3] Handles a frame from the leader of `ballot`, received by multicast. If this node
    /// sends proposals of a lower ballot by multicast, it stops at once and drops what it has not
    /// sent.
    pub fn on_leader_frame(&mut self, ballot: Ballot) {
        for channel in self.channels.values_mut() {
            let lower =
                channel.announced_decided.0 < ballot && channel.announced_decided.0 > Ballot::ZERO;
            if channel.outbound.to().is_none() && lower && channel.stopped_by_ballot < Some(ballot)
            {
                channel.stopped_by_ballot = Some(ballot);
                channel.outbound.withdraw_unsent();
                channel.tail.stop();
                self.events.push(Event::MulticastStopped(ballot));
            }
        }
    }

    /// Returns the next datagrams of a channel, for one system call, if the rate permits sending
    /// now. They count as sent.
    pub fn next_data_run(
        &mut self,
        channel: u8,
        now: Time,
    ) -> Option<(Destination, DatagramRun<'_>)> {
        let channel = self.channels.get_mut(&channel)?;
        let OwnChannel { outbound, losses, pacer, tail, .. } = channel;
        pacer.poll(now, || losses.end_period());
        let level = pacer.available_bytes(now);
        if !outbound.has_unsent() || level < batch_threshold(pacer, outbound) {
            return None;
        }
        let next = outbound.next_number();
        let to = outbound.to().map_or(Destination::Group, |to| Destination::Node(to.node));
        let run = outbound.next_run(level)?;
        losses.record_sent(run.numbers.end, now);
        pacer.record_sent(run.bytes.len(), now);
        if run.numbers.end == next {
            tail.restart(now);
        }
        Some((to, run))
    }

    /// Requeues the datagrams of the last [`Self::next_data_run`] from `number` on, `bytes` in
    /// total, because the socket was full.
    pub fn requeue_unsent(&mut self, channel: u8, number: u64, bytes: usize) {
        if let Some(channel) = self.channels.get_mut(&channel) {
            channel.outbound.unsend_from(number);
            channel.losses.forget_sent_from(number);
            channel.pacer.credit_unsent(bytes);
        }
    }

    /// Returns when [`Self::next_data_run`] will have datagrams, or `None` if none are queued.
    pub fn next_data_at(&self, channel: u8) -> Option<Time> {
        let channel = self.channels.get(&channel)?;
        let waits = channel.outbound.has_unsent();
        waits.then(|| channel.pacer.sendable_at(batch_threshold(&channel.pacer, &channel.outbound)))
    }

    /// Records that the kernel or the device dropped a datagram on `channel` ([rate-2]).
    pub fn record_local_drop(&mut self, channel: u8) {
        if let Some(channel) = self.channels.get_mut(&channel) {
            channel.pacer.record_local_drop();
        }
    }

    /// Sets the speed of the link that the multicast channels use.
    pub(super) fn set_group_link_speed(&mut self, bytes_s: u64) {
        for channel in self.channels.values_mut() {
            if channel.outbound.to().is_none() {
                channel.pacer.set_link_speed(bytes_s);
            }
        }
    }

    /// Returns the mean recent loss of a channel's receivers, in millionths.
    pub fn loss_ppm(&self, channel: u8) -> Option<u64> {
        self.channels.get(&channel).map(|channel| channel.pacer.loss_ppm())
    }

    pub fn rate_bytes_s(&self, channel: u8) -> Option<u64> {
        self.channels.get(&channel).map(|channel| channel.pacer.rate_bytes_s())
    }

    /// [told-2] Sends the tails that are due on channels with nothing left to send.
    pub(super) fn send_due_tails(&mut self, now: Time) {
        for (&number, channel) in &mut self.channels {
            if channel.outbound.has_unsent() || !channel.tail.poll(now) {
                continue;
            }
            let (ballot, decided_to) = channel.announced_decided;
            let tail =
                Tail { channel: number, next: channel.outbound.sent_to(), ballot, decided_to };
            self.control.queue_datagram(channel.outbound.to(), &Body::Tail(tail));
        }
    }
}
