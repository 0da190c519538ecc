//! Receiver of one channel from one sender. Each message is delivered once, or its numbers are
//! given up.

use std::{collections::BTreeMap, mem, ops::Range};

use quorate_core::dice::Dice;
use quorate_core::time::Time;

use crate::{
    body::RANGES_MAX,
    limits::Limits,
    receive::{
        gaps::{DueAction, Gaps, RequestTiming},
        partial::PartialMessage,
        quota::MemoryQuota,
        waiting::WaitingMessages,
    },
    spans::NumberSet,
    trust::gate::DATA_WINDOW_NUMBERS,
};

/// Order in which messages are delivered to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Deliver each message after all messages with lower numbers, except those given up.
    InOrder,
    /// Deliver each message as soon as it is complete.
    AsCompleted,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChannelEvent {
    /// A message was received. Each message is delivered once.
    Message { numbers: Range<u64>, bytes: Vec<u8> },
    /// Messages with the given numbers will not arrive, so catch-up has to fetch their contents
    /// ([told-2]).
    GivenUp(Range<u64>),
}

/// An incoming channel of one sender.
///
/// Invariant: each number from `floor` to `known_end` is finished, missing, in a complete message
/// that waits for its turn, or part of an incomplete message.
pub struct InboundChannel {
    pub(super) delivery: Delivery,
    /// Number below which all messages are delivered or given up.
    pub(super) floor: u64,
    /// One past the highest number known to be sent.
    pub(super) known_end: u64,
    /// Numbers at or above `floor` that are delivered or given up.
    pub(super) finished_above_floor: NumberSet,
    pub(super) gaps: Gaps,
    pub(super) partials: BTreeMap<u64, PartialMessage>,
    pub(super) waiting_messages: WaitingMessages,
    patience: RequestTiming,
    jitter_us: u64,
    dice: Dice,
    gaps_max: usize,
    /// Number of sequence numbers ever requested. `unreported_losses` contains those that have not
    /// been reported yet.
    requested_total: u64,
    unreported_losses: Vec<Range<u64>>,
    /// Number of parts that contradicted others. It is zero unless the sender is faulty or, on a
    /// segment without keys, forged datagrams arrive.
    contradicting_parts: u64,
}

impl InboundChannel {
    /// Creates a channel that begins at `from`, the number in the handshake. `dice` spreads
    /// requests over time.
    pub fn new(from: u64, delivery: Delivery, limits: &Limits, dice: Dice) -> Self {
        let mut inbound = Self {
            delivery,
            floor: from,
            known_end: from,
            finished_above_floor: NumberSet::default(),
            gaps: Gaps::default(),
            partials: BTreeMap::new(),
            waiting_messages: WaitingMessages::default(),
            patience: RequestTiming {
                grace_us: limits.reorder_grace_us,
                retry_us: 1,
                tries_max: limits.requests_max,
            },
            jitter_us: limits.jitter_us,
            dice,
            gaps_max: limits.gaps_max,
            requested_total: 0,
            unreported_losses: Vec::new(),
            contradicting_parts: 0,
        };
        inbound.set_rtt(0, limits);
        inbound
    }

    /// [pkt-7] Sets the round-trip time. The first request waits a round trip and a quarter. All
    /// requests together wait at least T_giveup: with 5 tries, 31 times the first wait.
    pub fn set_rtt(&mut self, rtt_us: u64, limits: &Limits) {
        let waits = (1 << limits.requests_max.min(20)) - 1;
        let share = limits.give_up_us_min.div_ceil(waits);
        self.patience.retry_us = share.max(rtt_us.saturating_mul(5) / 4).max(1);
    }

    /// Sets the grace period before a missing packet is requested, in case it was only reordered.
    pub const fn set_grace_us(&mut self, grace_us: u64) {
        self.patience.grace_us = grace_us;
    }

    /// [gap-2] Returns the number below which all messages are delivered or given up.
    pub const fn finished_to(&self) -> u64 {
        self.floor
    }

    pub const fn known_end(&self) -> u64 {
        self.known_end
    }

    /// Returns whether the datagram with this number has not been received yet.
    pub fn is_missing(&self, number: u64) -> bool {
        number >= self.known_end || self.gaps.has(number)
    }

    pub fn missing(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        self.gaps.ranges_within(range)
    }

    /// Returns how many numbers have been requested since the channel was opened.
    pub const fn requested_total(&self) -> u64 {
        self.requested_total
    }

    /// Returns how many parts have contradicted others.
    pub const fn contradicting_parts(&self) -> u64 {
        self.contradicting_parts
    }

    /// Returns whether there are losses that have not been reported.
    pub const fn has_unreported_losses(&self) -> bool {
        !self.unreported_losses.is_empty()
    }

    /// Removes and returns unreported losses, at most [`RANGES_MAX`] ranges.
    pub fn take_unreported_losses(&mut self) -> Vec<Range<u64>> {
        mem::take(&mut self.unreported_losses)
    }

    /// Handles a tail: the sender announces that it has sent everything below `next` ([told-2]).
    pub fn on_tail(
        &mut self,
        next: u64,
        now: Time,
        quota: &mut MemoryQuota,
        happened: &mut Vec<ChannelEvent>,
    ) {
        if next > self.known_end {
            self.advance_sent_to(next, now, quota, happened);
            self.limit_gaps(quota, happened);
        }
    }

    /// Handles one part of a message, received from any node.
    pub fn receive_part(
        &mut self,
        (number, index, count): (u64, u16, u16),
        part: &[u8],
        now: Time,
        quota: &mut MemoryQuota,
        happened: &mut Vec<ChannelEvent>,
    ) {
        if !self.is_missing(number) {
            return;
        }
        if number >= self.known_end {
            self.advance_sent_to(number, now, quota, happened);
            self.known_end = number + 1;
        } else {
            self.gaps.remove_found(number..number + 1);
        }
        let first = number.saturating_sub(index.into());
        let message = first..first + u64::from(count);
        if self.was_given_up(&message) {
            self.give_up(number..number + 1, quota, happened);
        } else if self.overlaps_other_split(&message, count) {
            self.contradicting_parts += 1;
            self.give_up(message.start..self.known_end.min(message.end), quota, happened);
        } else if count == 1 {
            self.complete_message(message, part.to_vec(), quota, happened);
        } else {
            self.add_part(message, (index, count), part, quota, happened);
        }
        self.limit_gaps(quota, happened);
    }

    /// Handles a reply that a node no longer has packets with the given numbers. If the node is the
    /// owner, they are given up; otherwise the next node is tried.
    pub fn on_gone(
        &mut self,
        range: &Range<u64>,
        by_owner: bool,
        now: Time,
        quota: &mut MemoryQuota,
        happened: &mut Vec<ChannelEvent>,
    ) {
        if by_owner {
            let missing = self.gaps.ranges_within(range);
            self.give_up_all(missing, quota, happened);
        } else {
            // Requests alternate between acceptors and the owner, beginning with an acceptor. An
            // odd count means that the last request went to an acceptor, whose reply this is.
            self.gaps.make_due_if(range, |tries| tries % 2 == 1, now);
            self.limit_gaps(quota, happened);
        }
    }

    /// Requests numbers from the owner at once, because another node requests them from this one.
    /// Skips numbers already requested from the owner.
    pub fn request_from_owner(
        &mut self,
        range: &Range<u64>,
        now: Time,
        quota: &mut MemoryQuota,
        happened: &mut Vec<ChannelEvent>,
    ) {
        self.gaps.make_due_if(range, |tries| tries < 2, now);
        self.limit_gaps(quota, happened);
    }

    pub fn next_due(&self) -> Option<Time> {
        self.gaps.next_due()
    }

    /// Returns the ranges to request now, each with the number of earlier requests.
    pub fn poll(
        &mut self,
        now: Time,
        quota: &mut MemoryQuota,
        happened: &mut Vec<ChannelEvent>,
    ) -> Vec<(Range<u64>, u32)> {
        let (mut asks, mut over) = (Vec::new(), Vec::new());
        for due in self.gaps.take_due_actions(now, &self.patience) {
            match due {
                DueAction::Request(range, tries) => asks.push((range, tries)),
                DueAction::GiveUp(range) => over.push(range),
            }
        }
        self.give_up_all(over, quota, happened);
        asks.retain(|(range, _)| self.gaps.has(range.start));
        for (range, _) in asks.iter().filter(|(_, tries)| *tries == 0) {
            self.requested_total += range.end - range.start;
            if self.unreported_losses.len() < RANGES_MAX {
                self.unreported_losses.push(range.clone());
            }
        }
        asks
    }

    /// Closes the channel and credits the quota that it uses.
    pub fn close(self, quota: &mut MemoryQuota) {
        for partial in self.partials.values() {
            quota.release(1, partial.held_bytes());
        }
        quota.release(0, self.waiting_messages.total_charged_bytes());
    }

    /// Records that everything below `number` has been sent. Numbers that fall out of the window
    /// are given up.
    fn advance_sent_to(
        &mut self,
        number: u64,
        now: Time,
        quota: &mut MemoryQuota,
        happened: &mut Vec<ChannelEvent>,
    ) {
        let from = mem::replace(&mut self.known_end, number);
        let patience = RequestTiming {
            grace_us: self.patience.grace_us + self.dice.below(self.jitter_us + 1),
            ..self.patience
        };
        self.gaps.add_missing(from..number, now, &patience);
        let oldest = number.saturating_add(1).saturating_sub(DATA_WINDOW_NUMBERS);
        while self.floor < oldest {
            // The number at the floor is missing or part of an incomplete message; otherwise the
            // floor would be higher.
            let missing = self.gaps.ranges_within(&(self.floor..oldest));
            let missing = missing.into_iter().next().filter(|gap| gap.start == self.floor);
            self.give_up(missing.unwrap_or(self.floor..self.floor + 1), quota, happened);
        }
        self.limit_gaps(quota, happened);
    }

    fn limit_gaps(&mut self, quota: &mut MemoryQuota, happened: &mut Vec<ChannelEvent>) {
        while self.gaps.len() > self.gaps_max {
            let first = self.gaps.first_range().expect("there are more than the bound");
            self.give_up(first, quota, happened);
        }
    }

    /// Returns whether any part of the message was given up or preceded the handshake.
    fn was_given_up(&self, message: &Range<u64>) -> bool {
        message.start < self.floor || self.finished_above_floor.intersects(message.clone())
    }

    /// Returns whether the message overlaps one that was split differently.
    fn overlaps_other_split(&self, message: &Range<u64>, count: u16) -> bool {
        let partial = self.partials.range(..message.end).next_back();
        let partial = partial.is_some_and(|(&first, partial)| {
            let same = first == message.start && partial.part_count() == count;
            !same && partial.numbers(first).end > message.start
        });
        partial || self.waiting_messages.last_overlapping(message).is_some()
    }

    fn add_part(
        &mut self,
        message: Range<u64>,
        (index, count): (u16, u16),
        part: &[u8],
        quota: &mut MemoryQuota,
        happened: &mut Vec<ChannelEvent>,
    ) {
        let first = message.start;
        let known = self.partials.remove(&first);
        let is_new = known.is_none();
        let mut partial = known.unwrap_or_else(|| PartialMessage::new(count));
        let needs = partial.bytes_to_add(index, part);
        let agreed = needs
            .ok()
            .filter(|bytes| self.charge_quota(first, usize::from(is_new), *bytes, quota, happened));
        if agreed.is_none() {
            self.contradicting_parts += u64::from(needs.is_err());
            if !is_new {
                quota.release(1, partial.held_bytes());
            }
            let known = first..self.known_end.min(message.end);
            self.give_up(known, quota, happened);
            return;
        }
        partial.add(index, part);
        if !partial.is_whole() {
            self.partials.insert(first, partial);
            return;
        }
        quota.release(1, partial.held_bytes());
        self.complete_message(message, partial.into_message(), quota, happened);
    }

    /// Asserts the invariants that hold between any two calls.
    #[cfg(test)]
    pub(crate) fn check(&self, quota: &MemoryQuota) {
        let mut all = self.finished_above_floor.clone();
        let mut disjoint = |range: Range<u64>| {
            assert!(!all.intersects(range.clone()), "{range:?} is in two states");
            all.add(range);
        };
        self.gaps.iter().for_each(&mut disjoint);
        self.waiting_messages.numbers().for_each(&mut disjoint);
        for (&first, partial) in &self.partials {
            for index in (0..partial.part_count()).filter(|index| partial.has(*index)) {
                let number = first + u64::from(index);
                disjoint(number..number + 1);
            }
        }
        let expected: Vec<_> = Some(self.floor..self.known_end).into_iter().collect();
        let expected = if self.floor == self.known_end { Vec::new() } else { expected };
        assert_eq!(all.iter().collect::<Vec<_>>(), expected);
        assert!(
            self.gaps.len() <= self.gaps_max && self.known_end - self.floor <= DATA_WINDOW_NUMBERS
        );
        let held: usize = self.partials.values().map(PartialMessage::held_bytes).sum();
        assert_eq!(
            (quota.partials(), quota.bytes()),
            (self.partials.len(), held + self.waiting_messages.total_charged_bytes())
        );
    }
}

#[cfg(test)]
#[path = "inbound_tests.rs"]
mod tests;
