//! Marks packet numbers of a channel as finished: delivered, or given up along with their message.

use std::ops::Range;

use crate::receive::{
    ChannelEvent, Delivery, InboundChannel, MemoryQuota, waiting::WaitingMessages,
};

impl InboundChannel {
    /// [pkt-4] Charges the quota for a message that begins at `first`. If necessary, gives up
    /// messages of the same sender, newest first. Returns false if that does not suffice.
    pub(super) fn charge_quota(
        &mut self,
        first: u64,
        partials: usize,
        bytes: usize,
        quota: &mut MemoryQuota,
        happened: &mut Vec<ChannelEvent>,
    ) -> bool {
        loop {
            if quota.charge(partials, bytes) {
                return true;
            }
            let partial = self.partials.last_key_value().map(|(first, _)| *first);
            let last = partial.max(self.waiting_messages.last_start()).filter(|last| *last > first);
            let Some(last) = last else {
                return false;
            };
            self.give_up(last..last + 1, quota, happened);
        }
    }

    /// Delivers a complete message, or keeps it until earlier ones are finished.
    pub(super) fn complete_message(
        &mut self,
        message: Range<u64>,
        bytes: Vec<u8>,
        quota: &mut MemoryQuota,
        happened: &mut Vec<ChannelEvent>,
    ) {
        if self.delivery == Delivery::AsCompleted || message.start == self.floor {
            self.finished_above_floor.add(message.clone());
            happened.push(ChannelEvent::Message { numbers: message, bytes });
        } else if self.charge_quota(
            message.start,
            0,
            WaitingMessages::charged_bytes(&bytes),
            quota,
            happened,
        ) {
            self.waiting_messages.add(&message, bytes);
        } else {
            self.give_up(message, quota, happened);
            return;
        }
        self.advance_floor(quota, happened);
    }

    /// Advances the floor, and delivers the messages that it reaches.
    fn advance_floor(&mut self, quota: &mut MemoryQuota, happened: &mut Vec<ChannelEvent>) {
        loop {
            if let Some(end) = self.finished_above_floor.take_first(self.floor) {
                self.floor = self.floor.max(end);
            } else if let Some((numbers, bytes)) =
                self.waiting_messages.remove_at(self.floor, quota)
            {
                self.floor = numbers.end;
                happened.push(ChannelEvent::Message { numbers, bytes });
            } else {
                return;
            }
        }
    }

    /// Gives up these ranges. Giving up one may include others, if they belong to the same message.
    pub(super) fn give_up_all(
        &mut self,
        ranges: Vec<Range<u64>>,
        quota: &mut MemoryQuota,
        happened: &mut Vec<ChannelEvent>,
    ) {
        for range in ranges {
            for part in self.finished_above_floor.missing_in(range.start.max(self.floor)..range.end)
            {
                self.give_up(part, quota, happened);
            }
        }
    }

    /// Gives up numbers, along with the entire messages that they belong to.
    pub(super) fn give_up(
        &mut self,
        range: Range<u64>,
        quota: &mut MemoryQuota,
        happened: &mut Vec<ChannelEvent>,
    ) {
        let mut all = range;
        while let Some((&first, partial)) = self.partials.range(..all.end).next_back()
            && partial.numbers(first).end > all.start
        {
            let numbers = partial.numbers(first);
            quota.release(1, partial.held_bytes());
            self.partials.remove(&first);
            all = all.start.min(first)..all.end.max(numbers.end.min(self.known_end));
        }
        while let Some(numbers) = self.waiting_messages.last_overlapping(&all) {
            self.waiting_messages.remove_at(numbers.start, quota);
            all = all.start.min(numbers.start)..all.end.max(numbers.end);
        }
        self.gaps.remove_found(all.clone());
        self.finished_above_floor.add(all.clone());
        happened.push(ChannelEvent::GivenUp(all));
        self.advance_floor(quota, happened);
    }
}
