//! Queue of replies, in slot order. Each is held until its executed command would survive a crash
//! of all nodes ([class-2]).
//!
//! The core determines which slots are durable ([`quorate_core::input::Input::AwaitDurable`]).
//! Commands that need just the group's class are not queued.

use std::collections::VecDeque;

use quorate_core::{level::Level, slot::Slot, time::Time};

use crate::ports::outcome::Tag;

/// First level at which members can be queried about their disks ([level-9]).
pub(crate) const DISK_QUERY_LEVEL: Level = Level(9);
/// First level at which members can be queried about their memory ([level-9]).
pub(crate) const MEMORY_QUERY_LEVEL: Level = Level(10);

/// Method of confirming a command at a class other than the group's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConfirmationMethod {
    /// The decision itself is the confirmation.
    ByDecision,
    /// The members must be queried.
    ByQuery,
    /// Confirmation is impossible, because some member might not understand a query.
    Impossible,
}

#[derive(Debug)]
struct HeldReply {
    tag: Tag,
    slot: Slot,
    deadline: Time,
    bytes: usize,
}

/// Replies held until they are durable, in the order of their slots.
#[derive(Debug, Default)]
pub(crate) struct HeldReplies {
    held_replies: VecDeque<HeldReply>,
    /// Bytes of all held replies, in order.
    reply_bytes: VecDeque<u8>,
    /// Slot below which everything is on stable storage at a quorum, as far as this process knows.
    durable_to: Slot,
    /// Slot below which the core was last queried.
    queried_to: Slot,
}

impl HeldReplies {
    /// Holds the reply to the command in this slot. Slots must not decrease from call to call.
    pub(crate) fn hold_reply(&mut self, tag: Tag, slot: Slot, until: Time, reply: &[u8]) {
        self.reply_bytes.extend(reply);
        self.held_replies.push_back(HeldReply { tag, slot, deadline: until, bytes: reply.len() });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.held_replies.is_empty()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.reply_bytes.len() + self.held_replies.len() * size_of::<HeldReply>()
    }

    /// Returns the slot below which to query the core, unless it was already queried.
    pub(crate) fn next_query(&mut self) -> Option<Slot> {
        let to = self.held_replies.back()?.slot.next();
        if to <= self.queried_to {
            return None;
        }
        self.queried_to = to;
        Some(to)
    }

    /// Records that all slots below `to` are on stable storage at a quorum.
    pub(crate) fn record_durable(&mut self, to: Slot) {
        self.durable_to = self.durable_to.max(to);
    }

    /// Takes the next reply whose slot is on stable storage at a quorum.
    pub(crate) fn next_durable(&mut self) -> Option<(Tag, Vec<u8>)> {
        let lasts_to = self.durable_to;
        let held = self.held_replies.pop_front_if(|held| held.slot < lasts_to)?;
        let reply = self.reply_bytes.drain(..held.bytes).collect();
        self.shrink_buffers();
        Some((held.tag, reply))
    }

    /// Drops the next held reply if its deadline has passed, and returns its tag.
    pub(crate) fn next_overdue(&mut self, now: Time) -> Option<Tag> {
        let held = self.held_replies.pop_front_if(|held| held.deadline <= now)?;
        self.reply_bytes.drain(..held.bytes);
        self.shrink_buffers();
        Some(held.tag)
    }

    pub(crate) fn deadline(&self) -> Option<Time> {
        self.held_replies.front().map(|held| held.deadline)
    }

    /// Shrinks the buffers after a burst.
    fn shrink_buffers(&mut self) {
        if self.held_replies.is_empty() {
            self.reply_bytes.shrink_to(1 << 16);
            self.held_replies.shrink_to(1 << 10);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_wait_for_their_slots_to_be_durable_in_order() {
        let mut queue = HeldReplies::default();
        assert_eq!((queue.next_query(), queue.deadline()), (None, None));
        for (tag, slot, reply) in [(1, 4, "one"), (2, 4, ""), (3, 6, "three")] {
            queue.hold_reply(Tag(tag), Slot(slot), Time(10 + tag), reply.as_bytes());
        }
        assert_eq!(queue.next_query(), Some(Slot(7)));
        assert_eq!(queue.next_query(), None, "asked for already");
        assert_eq!(queue.next_durable(), None);
        queue.record_durable(Slot(5));
        assert_eq!(queue.next_durable(), Some((Tag(1), b"one".to_vec())));
        assert_eq!(queue.next_durable(), Some((Tag(2), Vec::new())));
        assert_eq!(queue.next_durable(), None, "slot 6 is above");
        assert_eq!(queue.deadline(), Some(Time(13)));
        assert_eq!(queue.next_overdue(Time(12)), None);
        assert_eq!(queue.next_overdue(Time(13)), Some(Tag(3)));
        assert_eq!(queue.bytes(), 0);
    }
}
