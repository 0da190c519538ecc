//! This node's own channels: accepts messages, and sends paced datagrams followed by tails.

use quorate_core::{
    ballot::Ballot,
    node_id::{Member, NodeId},
    slot::Slot,
    time::Time,
};

use crate::{
    body::{Body, Tail},
    buffer::Run,
    endpoint::{Destination, Endpoint, Event},
    header::CONTROL,
    limits::OWN_CHANNELS_MAX,
    rate::{Losses, Pacer},
    send::{Outbound, PushError, RepairRequests, Sent, TailTimer},
    trust::{Group, Keys, Seal, TagContext},
};

/// Batching period of a paced channel, in microseconds of sending at the current rate.
const TOGETHER_US: u64 = 200;

pub(super) struct Channel {
    place: TagContext,
    pub(super) outbound: Outbound,
    key: u8,
    seal: Seal,
    pub(super) repair_requests: RepairRequests,
    pub(super) losses: Losses,
    pub(super) pacer: Pacer,
    pub(super) tail: TailTimer,
    /// Ballot and decided slot that tails announce.
    announced: (Ballot, Slot),
    /// [rate-3] The higher ballot, once a frame from its leader has arrived on the group.
    stopped_by: Option<Ballot>,
}

impl Channel {
    pub(super) fn rekey(&mut self, keys: &Keys, group: Group) {
        self.place.group = group;
        let (key, with) = keys.current();
        (self.key, self.seal) = (key, Seal::new(with, &self.place));
    }
}

/// Returns the number of bytes that a paced channel collects before it sends: all that are
/// queued, but at most one batching period's worth, and at least a datagram. Waking up for each
/// datagram would cost more than sending it.
fn batch_threshold(pacer: &Pacer, outbound: &Outbound) -> usize {
    let moment = pacer.bytes_in(TOGETHER_US);
    outbound.unsent_bytes_within(moment).max(outbound.datagram_bytes())
}

/// Error for a channel that cannot be opened: its number is [`CONTROL`] or in use, or
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
        if channel == CONTROL || self.channels.contains_key(&channel) || full {
            return Err(ChannelUnavailable);
        }
        let place = TagContext { group: self.group, sender: self.me, boot: self.boot, channel };
        let (key, with) = self.gate.keys().current();
        let opened = Channel {
            outbound: Outbound::new(
                self.control.template(channel, to),
                to,
                self.closed_channels.remove(&channel).unwrap_or(1),
                &self.limits,
            ),
            key,
            seal: Seal::new(with, &place),
            place,
            repair_requests: RepairRequests::default(),
            losses: Losses::default(),
            pacer: Pacer::new(self.limits.link_bytes_s, now),
            tail: TailTimer::new(
                self.limits.tail_us,
                match to {
                    Some(_) => self.limits.one_tail_us,
                    None => self.limits.heartbeat_us,
                },
            ),
            announced: (Ballot::ZERO, Slot(0)),
            stopped_by: None,
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
    pub fn set_receivers(&mut self, channel: u8, receivers: &[NodeId]) {
        if let Some(channel) = self.channels.get_mut(&channel) {
            channel.losses.listen_to(receivers);
        }
    }

    /// Queues a message, whose datagrams [`Self::take_data`] returns. The channel must be open.
    pub fn send(&mut self, channel: u8, message: &[u8]) -> Result<Sent, PushError> {
        self.send_pieces(channel, &[message])
    }

    /// Queues a message that consists of several slices. The channel must be open.
    pub fn send_pieces(&mut self, channel: u8, message: &[&[u8]]) -> Result<Sent, PushError> {
        let channel = self.channels.get_mut(&channel).expect("the channel is open");
        if channel.stopped_by.is_some() {
            return Err(PushError::Stopped);
        }
        channel.outbound.push(message, channel.key, &channel.seal)
    }

    /// Returns how many more message bytes a channel accepts before its window of undecided
    /// messages is full ([rate-1]).
    pub fn room(&self, channel: u8) -> usize {
        self.channels.get(&channel).map_or(0, |channel| channel.outbound.room())
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
    pub fn set_announced(&mut self, channel: u8, ballot: Ballot, decided_to: Slot, now: Time) {
        let Some(channel) = self.channels.get_mut(&channel) else {
            return;
        };
        if channel.announced == (ballot, decided_to) {
            return;
        }
        channel.stopped_by = channel.stopped_by.filter(|by| ballot <= *by);
        channel.announced = (ballot, decided_to);
        if !channel.outbound.has_unsent() {
            channel.tail.restart(now);
        }
    }

    /// [rate-3] Handles a frame from the leader of `ballot`, received by multicast. If this node
    /// sends proposals of a lower ballot by multicast, it stops at once and drops what it has not
    /// sent.
    pub fn handle_leader_frame(&mut self, ballot: Ballot) {
        for channel in self.channels.values_mut() {
            let lower = channel.announced.0 < ballot && channel.announced.0 > Ballot::ZERO;
            if channel.outbound.to().is_none() && lower && channel.stopped_by < Some(ballot) {
                channel.stopped_by = Some(ballot);
                channel.outbound.take_back_unsent();
                channel.tail.stop();
                self.events.push(Event::Stopped(ballot));
            }
        }
    }

    /// Returns the next datagrams of a channel, for one system call, if the rate permits sending
    /// now. They count as sent.
    pub fn take_data(&mut self, channel: u8, now: Time) -> Option<(Destination, Run<'_>)> {
        let channel = self.channels.get_mut(&channel)?;
        let Channel { outbound, losses, pacer, tail, .. } = channel;
        pacer.poll(now, || losses.end_period());
        let level = pacer.level(now);
        if !outbound.has_unsent() || level < batch_threshold(pacer, outbound) {
            return None;
        }
        let next = outbound.next_number();
        let to = outbound.to().map_or(Destination::Group, |to| Destination::Node(to.node));
        let run = outbound.take_run(level)?;
        losses.sent(run.numbers.end, now);
        pacer.sent(run.bytes.len(), now);
        if run.numbers.end == next {
            tail.restart(now);
        }
        Some((to, run))
    }

    /// Requeues the datagrams of the last [`Self::take_data`] from `number` on, `bytes` in total,
    /// because the socket was full.
    pub fn take_back(&mut self, channel: u8, number: u64, bytes: usize) {
        if let Some(channel) = self.channels.get_mut(&channel) {
            channel.outbound.take_back(number);
            channel.losses.take_back(number);
            channel.pacer.take_back(bytes);
        }
    }

    /// Returns when [`Self::take_data`] will have datagrams, or `None` if none are queued.
    pub fn data_due(&self, channel: u8) -> Option<Time> {
        let channel = self.channels.get(&channel)?;
        let waits = channel.outbound.has_unsent();
        waits.then(|| channel.pacer.send_at(batch_threshold(&channel.pacer, &channel.outbound)))
    }

    /// Records that the kernel or the device dropped a datagram on `channel` ([rate-2]).
    pub fn own_drop(&mut self, channel: u8) {
        if let Some(channel) = self.channels.get_mut(&channel) {
            channel.pacer.own_drop();
        }
    }

    /// Sets the speed of the link that the multicast channels use.
    pub(super) fn set_group_link(&mut self, bytes_s: u64) {
        for channel in self.channels.values_mut() {
            if channel.outbound.to().is_none() {
                channel.pacer.set_link(bytes_s);
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
    pub(super) fn poll_tails(&mut self, now: Time) {
        for (&number, channel) in &mut self.channels {
            if channel.outbound.has_unsent() || !channel.tail.poll(now) {
                continue;
            }
            let (ballot, decided_to) = channel.announced;
            let tail =
                Tail { channel: number, next: channel.outbound.sent_to(), ballot, decided_to };
            self.control.queue_datagram(channel.outbound.to(), &Body::Tail(tail));
        }
    }
}
