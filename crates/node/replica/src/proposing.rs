//! Commands before they have a slot: gathered, numbered as batches, and offered to the leader.

pub(crate) mod batch;
mod fitting;
mod forwarded;
pub(crate) mod gather;
mod in_flight;
pub(crate) mod origin;
mod registrations;

use quorate_core::{ballot::Ballot, node_id::NodeId, node_set::NodeSet, time::Time, value::Value};
use quorate_wire::{Frame, Lane, header::HEADER_BYTES};

use crate::{
    contents::Contents,
    devices::Devices,
    offers::Offer,
    outbox::{Outbox, RETRY_MS},
    ports::{
        outcome::{Failure, Sequenced},
        payload::Payload,
    },
    pressure::Pressure,
    proposing::{
        batch::{BatchEntry, Kind},
        forwarded::Forwarded,
        gather::Waiter,
        origin::Origin,
    },
};

/// Interval in milliseconds of the leader's checks for deadlines and housekeeping commands.
const DUE_CHECK_INTERVAL_MS: u64 = 10;
/// [time-1] Minimum interval in milliseconds between the leader's time stamps.
const STAMP_INTERVAL_MS: u64 = 50;
/// Time in milliseconds after which a time stamp that was not applied counts as lost.
const STAMP_TIMEOUT_MS: u64 = 1000;

/// Commands of this node that await a slot and, on the leader, those of other nodes.
pub(crate) struct Proposing {
    origin: Origin,
    forwarded: Forwarded,
    /// Maximum size of queued batches of other nodes, in bytes.
    forwarded_bytes_max: usize,
    /// Maximum size of a command, in bytes.
    command_bytes_max: usize,
    /// Time at which the leader next queries its service for due commands.
    next_due_check_at: Time,
    /// Last time stamp that this leader proposed, and the time of the proposal.
    last_stamp: Option<(u64, Time)>,
}

impl Proposing {
    /// Creates the state without accepted requests.
    pub(crate) fn new(
        now: Time,
        origin: Origin,
        command_bytes_max: usize,
        forwarded_bytes_max: usize,
    ) -> Self {
        Self {
            origin,
            forwarded: Forwarded::default(),
            forwarded_bytes_max,
            command_bytes_max,
            next_due_check_at: now,
            last_stamp: None,
        }
    }

    /// Returns the requests accepted by this node, for callers that complete, repeat or end them.
    pub(crate) fn origin_mut(&mut self) -> &mut Origin {
        &mut self.origin
    }

    pub(crate) fn own_origin(&self) -> &Origin {
        &self.origin
    }

    pub(crate) fn command_bytes_max(&self) -> usize {
        self.command_bytes_max
    }

    pub(crate) fn accept_command(
        &mut self,
        now: Time,
        waiter: Waiter,
        at: Option<Sequenced>,
        (command, heavy): (&[u8], bool),
    ) -> Result<(), Failure> {
        if command.len() > self.command_bytes_max {
            return Err(Failure::TooBig);
        }
        let kind = at.map_or(Kind::Plain, Kind::Sequenced);
        self.origin.accept_command(now, waiter, &BatchEntry { kind, command })?;
        if heavy {
            self.origin.mark_alone_in_batch();
        }
        Ok(())
    }

    pub(crate) fn pressure(&self) -> Pressure {
        Pressure::from_queued_bytes(self.origin.waiting_bytes(), self.origin.waiting_bytes_max())
    }

    pub(crate) fn next_due_check_at(&self) -> Time {
        self.next_due_check_at
    }

    pub(crate) fn take_due_check(&mut self, now: Time) -> bool {
        let due = now >= self.next_due_check_at;
        if due {
            self.next_due_check_at = now.plus_ms(DUE_CHECK_INTERVAL_MS);
        }
        due
    }

    /// Returns whether the leader may stamp the time now, given the group's time.
    pub(crate) fn can_stamp(&self, now: Time, group_ms: u64) -> bool {
        self.last_stamp.is_none_or(|(ms, at)| {
            let wait_ms = match ms <= group_ms {
                true => STAMP_INTERVAL_MS,
                false => STAMP_TIMEOUT_MS,
            };
            now >= at.plus_ms(wait_ms)
        })
    }

    pub(crate) fn record_stamp(&mut self, now: Time, ms: u64) {
        self.last_stamp = Some((ms, now));
    }

    /// Sets the ballot of the current leader; `None` if there is no leader. `newly` means that this
    /// node has just been elected.
    pub(crate) fn on_role(&mut self, now: Time, leader: Option<Ballot>, newly: bool) {
        self.forwarded.restart(leader);
        if newly {
            self.next_due_check_at = now;
            self.last_stamp = None;
        }
        if leader.is_some() {
            self.origin.on_new_ballot();
        }
    }

    /// Queues a value of another node to be proposed here. Returns `false` if the queue is full.
    pub(crate) fn take_forwarded(&mut self, value: Value, payload: Option<Payload>) -> bool {
        self.forwarded.push(value, payload, self.forwarded_bytes_max)
    }

    /// Returns whether the value is queued or in flight, so that it need not be proposed again.
    pub(crate) fn has_pending(&self, value: &Value) -> bool {
        self.forwarded.has_pending(value)
    }

    /// Returns the size of the next queued value of another node, in bytes.
    pub(crate) fn next_forwarded_bytes(&self) -> Option<usize> {
        self.forwarded.next_bytes()
    }

    pub(crate) fn pop_forwarded(&mut self) -> Option<Offer> {
        let (value, payload) = self.forwarded.pop()?;
        Some(Offer { value, payload })
    }

    /// Records that this node, as leader, voted for the value in its own ballot.
    pub(crate) fn record_proposed(&mut self, ballot: Ballot, value: Value) {
        self.forwarded.record_vote(ballot, value);
    }

    pub(crate) fn record_decided(&mut self, value: &Value) {
        self.forwarded.record_decided(value);
    }

    /// Sends this node's batches to the leader. The leader proposes each of them as one value.
    pub(crate) fn forward_batches(&mut self, now: Time, ways: &mut LeaderPaths<'_, '_>) {
        while let Some(late) = ways.devices.take_late_offer(now) {
            // A value that does not fit counts as lost, and is offered again together with all
            // others.
            ways.forward_to_leader(&late);
        }
        while let Some(bytes) = self.origin.next_bytes(now) {
            // Check the space before forming the batch, since forming one cannot be undone.
            if !ways.outbox.has_room(ways.leader, Lane::Control, HEADER_BYTES + bytes) {
                self.origin.hold_offers(now.plus_ms(RETRY_MS));
                return;
            }
            let Some(offer) = self.origin.take_offer(now) else {
                return;
            };
            if !ways.devices.offer_value(now, ways.ballot, &offer) {
                ways.forward_to_leader(&offer);
            }
            if let Offer { value, payload: Some(payload) } = offer {
                // The leader's proposal may arrive without the bytes, which originate here.
                ways.contents.store_offered(&value, payload);
            }
        }
    }
}

pub(crate) struct LeaderPaths<'a, 'b> {
    pub(crate) leader: NodeId,
    pub(crate) ballot: Ballot,
    /// This node's device, which can send frames directly to the leader's device.
    pub(crate) devices: &'a mut Devices,
    /// Store of the batches' bytes, so that the leader need not send them back.
    pub(crate) contents: &'a mut Contents,
    /// Connection to the leader.
    pub(crate) outbox: &'a mut Outbox<'b>,
}

impl LeaderPaths<'_, '_> {
    fn forward_to_leader(&mut self, Offer { value, payload }: &Offer) {
        let frame = Frame::Forward { value: *value, bytes: payload.as_deref().unwrap_or_default() };
        let to = NodeSet::one(self.leader);
        self.outbox.send_all(to, Lane::Control, &frame, payload.as_ref());
    }
}
