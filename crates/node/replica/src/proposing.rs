//! Commands on their way to a slot: gathered, numbered as batches, offered to the leader.

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
    outcome::{Failure, Sequenced},
    payload::Payload,
    pressure::Pressure,
    proposing::{
        batch::{Entry, Kind},
        forwarded::Forwarded,
        gather::Waiter,
        origin::Origin,
    },
};

/// Interval at which the leader checks deadlines, and asks its service for housekeeping.
const DUE_MS: u64 = 10;
/// [time-1] Minimum interval of the leader's statements of the time.
const STAMP_MS: u64 = 50;
/// A stamp of time that was not applied after this long is lost.
const STAMP_LOST_MS: u64 = 1000;

/// Commands that are to be proposed: this node's own, and at the leader those of others.
pub(crate) struct Proposing {
    origin: Origin,
    forwarded: Forwarded,
    /// Maximum of bytes of batches of others that wait here.
    forwarded_bytes_max: usize,
    /// Largest command taken.
    command_bytes_max: usize,
    /// Time of the next check of the service for due work.
    due_at: Time,
    /// Last time that this leader stated, and when.
    stamped: Option<(u64, Time)>,
}

impl Proposing {
    /// Starts without accepted requests.
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
            due_at: now,
            stamped: None,
        }
    }

    /// Returns the requests accepted by this node, for the parts that complete, repeat or end them.
    pub(crate) fn origin(&mut self) -> &mut Origin {
        &mut self.origin
    }

    /// Returns the same, immutably.
    pub(crate) fn own(&self) -> &Origin {
        &self.origin
    }

    /// Returns the size of the largest accepted command, in bytes.
    pub(crate) fn command_bytes_max(&self) -> usize {
        self.command_bytes_max
    }

    /// Takes a command of a client.
    pub(crate) fn accept(
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
        self.origin.accept(now, waiter, &Entry { kind, command })?;
        if heavy {
            self.origin.set_apart();
        }
        Ok(())
    }

    /// Returns the pressure of the queue of commands.
    pub(crate) fn pressure(&self) -> Pressure {
        Pressure::of(self.origin.waiting_bytes(), self.origin.waiting_bound())
    }

    /// Returns the time at which a leader asks its service for due work.
    pub(crate) fn due_at(&self) -> Time {
        self.due_at
    }

    /// Returns whether the check is due, and schedules the next one.
    pub(crate) fn take_due(&mut self, now: Time) -> bool {
        let due = now >= self.due_at;
        if due {
            self.due_at = now.plus_ms(DUE_MS);
        }
        due
    }

    /// Returns whether a leader may state the time, given the group's time.
    pub(crate) fn may_stamp(&self, now: Time, group_ms: u64) -> bool {
        self.stamped.is_none_or(|(ms, at)| {
            let wait_ms = match ms <= group_ms {
                true => STAMP_MS,
                false => STAMP_LOST_MS,
            };
            now >= at.plus_ms(wait_ms)
        })
    }

    /// Records the stated time.
    pub(crate) fn stamped(&mut self, now: Time, ms: u64) {
        self.stamped = Some((ms, now));
    }

    /// Sets the ballot of the present leader, or none. `newly`: this node has just begun to lead.
    pub(crate) fn on_role(&mut self, now: Time, leader: Option<Ballot>, newly: bool) {
        self.forwarded.restart(leader);
        if newly {
            self.due_at = now;
            self.stamped = None;
        }
        if leader.is_some() {
            self.origin.on_new_ballot();
        }
    }

    /// Takes a value of another node that is to be proposed here; `false` if there is no room.
    pub(crate) fn take_forwarded(&mut self, value: Value, payload: Option<Payload>) -> bool {
        self.forwarded.push(value, payload, self.forwarded_bytes_max)
    }

    /// Returns whether proposing this value again would change nothing.
    pub(crate) fn knows(&self, value: &Value) -> bool {
        self.forwarded.knows(value)
    }

    /// Returns the size of the next value of another node.
    pub(crate) fn next_forwarded_bytes(&self) -> Option<usize> {
        self.forwarded.next_bytes()
    }

    /// Takes the next value of another node.
    pub(crate) fn pop_forwarded(&mut self) -> Option<Offer> {
        let (value, payload) = self.forwarded.pop()?;
        Some(Offer { value, payload })
    }

    /// Records that this node voted for the value in a ballot of its own.
    pub(crate) fn proposed(&mut self, ballot: Ballot, value: Value) {
        self.forwarded.proposed(ballot, value);
    }

    /// Records that the value is decided.
    pub(crate) fn decided(&mut self, value: &Value) {
        self.forwarded.decided(value);
    }

    /// Sends this node's batches to the leader whole: batching has two levels.
    pub(crate) fn forward(&mut self, now: Time, ways: &mut Ways<'_, '_>) {
        while let Some(late) = ways.devices.next_late(now) {
            // Without room it is as good as lost, and offered again with all others.
            ways.connect(&late);
        }
        while let Some(bytes) = self.origin.next_bytes(now) {
            // First the room, then the batch: one that was formed cannot be undone.
            if !ways.out.has_room(ways.leader, Lane::Control, HEADER_BYTES + bytes) {
                self.origin.hold(now.plus_ms(RETRY_MS));
                return;
            }
            let Some(offer) = self.origin.take_offer(now) else {
                return;
            };
            if !ways.devices.offer(now, ways.ballot, &offer) {
                ways.connect(&offer);
            }
            if let Offer { value, payload: Some(payload) } = offer {
                // The leader's proposal may arrive without the bytes: they are from here.
                ways.contents.offer(&value, payload);
            }
        }
    }
}

/// Paths of this node's batches to the leader.
pub(crate) struct Ways<'a, 'b> {
    /// Present leader.
    pub(crate) leader: NodeId,
    /// Ballot of the leader.
    pub(crate) ballot: Ballot,
    /// Path by frames, to its device.
    pub(crate) devices: &'a mut Devices,
    /// Bytes that the leader need not send back stay here.
    pub(crate) contents: &'a mut Contents,
    /// Path by its connection.
    pub(crate) out: &'a mut Outbox<'b>,
}

impl Ways<'_, '_> {
    fn connect(&mut self, Offer { value, payload }: &Offer) {
        let frame = Frame::Forward { value: *value, bytes: payload.as_deref().unwrap_or_default() };
        let to = NodeSet::one(self.leader);
        self.out.send_all(to, Lane::Control, &frame, payload.as_ref());
    }
}
