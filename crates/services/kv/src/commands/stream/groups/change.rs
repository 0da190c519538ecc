//! Consumer group being changed: keeps the rows of pending entries and the counts in groups,
//! consumers and header equal.

use std::{collections::BTreeMap, ops::ControlFlow};

use super::{
    super::rows,
    rows::{Consumer, Group, Pending, name},
};
use crate::store::stream::EntryId;

/// Consumer group being changed. [`Change::close`] must write it.
pub(super) struct Change<'w, 'a, 'n> {
    pub(super) stream: rows::Change<'w, 'a>,
    name: &'n [u8],
    pub(super) group: Group,
    /// The group as it is stored.
    stored_group: Group,
    /// A pending entry has changed.
    is_changed: bool,
    /// Consumer that the command names.
    acting: Option<Acting<'n>>,
    /// Entries that other consumers lose, by number of the consumer.
    losses: BTreeMap<u64, Loss>,
    /// Entries removed from the group.
    removed: Loss,
}

struct Acting<'n> {
    name: &'n [u8],
    consumer: Consumer,
    is_new: bool,
    lost_entries: Loss,
}

/// Pending entries removed.
#[derive(Clone, Copy, Debug)]
struct Loss {
    count: u64,
    lowest: EntryId,
}

impl Default for Loss {
    fn default() -> Self {
        Self { count: 0, lowest: EntryId::MAX }
    }
}

impl Loss {
    fn add(&mut self, id: EntryId) {
        self.count += 1;
        self.lowest = self.lowest.min(id);
    }

    /// Returns whether the entries include the first one, given its former id.
    fn includes(&self, first: EntryId) -> bool {
        self.count > 0 && self.lowest <= first
    }
}

/// Returns a number that no group or consumer of the stream had before.
pub(super) const fn next_number(stream: &mut rows::Change<'_, '_>) -> u64 {
    let number = stream.log.next_number;
    stream.log.next_number += 1;
    number
}

impl<'w, 'a, 'n> Change<'w, 'a, 'n> {
    /// Opens a group, if it exists.
    pub(super) fn open(stream: rows::Change<'w, 'a>, name: &'n [u8]) -> Option<Self> {
        let group = stream.view().group(name)?;
        Some(Self {
            stream,
            name,
            group,
            stored_group: group,
            is_changed: false,
            acting: None,
            losses: BTreeMap::new(),
            removed: Loss::default(),
        })
    }

    /// Names the consumer that acts. Creates it if absent, and returns whether it was.
    pub(super) fn set_acting(&mut self, name: &'n [u8], now_ms: u64) -> bool {
        let found = self.stream.view().consumer(self.group.number, name);
        let is_new = found.is_none();
        let consumer = match found {
            Some(consumer) => Consumer { last_command_ms: now_ms, ..consumer },
            None => {
                self.group.consumers += 1;
                Consumer::new(next_number(&mut self.stream), now_ms)
            }
        };
        self.acting = Some(Acting { name, consumer, is_new, lost_entries: Loss::default() });
        is_new
    }

    /// Returns the acting consumer.
    pub(super) fn consumer(&self) -> Option<Consumer> {
        self.acting.as_ref().map(|acting| acting.consumer)
    }

    /// Records that entries were delivered to the acting consumer.
    pub(super) fn set_active(&mut self) {
        if let Some(Acting { consumer, .. }) = &mut self.acting {
            consumer.active_ms = Some(consumer.last_command_ms);
        }
    }

    pub(super) fn pending(&self, id: EntryId) -> Option<Pending> {
        self.stream.view().pending(self.group.number, id)
    }

    /// Makes an entry pending for the acting consumer. `old` is its stored state.
    pub(super) fn assign(
        &mut self,
        id: EntryId,
        old: Option<Pending>,
        (delivered_ms, deliveries): (u64, u64),
    ) {
        let Some(acting) = &mut self.acting else {
            return;
        };
        self.is_changed = true;
        let (group, consumer) = (self.group.number, acting.consumer.number);
        if old.is_none_or(|old| old.consumer != consumer) {
            acting.consumer.pending += 1;
            acting.consumer.first = acting.consumer.first.min(id);
            self.stream.put_group_row(&name::owned(group, consumer, id), &[], None);
        }
        match old {
            None => {
                self.group.pending += 1;
                self.group.first = self.group.first.min(id);
            }
            Some(old) if old.consumer != consumer => self.disown(old.consumer, id),
            Some(_) => {}
        }
        let value = Pending { consumer, delivered_ms, deliveries }.to_bytes();
        let stored = old.map(|_| Pending::BYTES);
        self.stream.put_group_row(&name::pending_row(group, id), &value, stored);
    }

    /// Removes a pending entry, whose stored state is `old`.
    pub(super) fn release(&mut self, id: EntryId, old: Pending) {
        self.is_changed = true;
        self.disown(old.consumer, id);
        self.group.pending = self.group.pending.saturating_sub(1);
        self.removed.add(id);
        let name = name::pending_row(self.group.number, id);
        self.stream.remove_group_row(&name, Pending::BYTES);
    }

    /// Removes an entry from a consumer's list.
    fn disown(&mut self, consumer: u64, id: EntryId) {
        match &mut self.acting {
            Some(acting) if acting.consumer.number == consumer => {
                acting.consumer.pending = acting.consumer.pending.saturating_sub(1);
                acting.lost_entries.add(id);
            }
            _ => self.losses.entry(consumer).or_default().add(id),
        }
        let name = name::owned(self.group.number, consumer, id);
        self.stream.remove_group_row(&name, 0);
    }

    /// Removes a consumer, which does not act, with its pending entries.
    pub(super) fn remove_consumer(&mut self, name: &[u8], consumer: Consumer) {
        let (group, number) = (self.group.number, consumer.number);
        let mut ids = Vec::new();
        let all = (consumer.first, EntryId::MAX);
        self.stream.view().each_owned((group, number), all, &mut |id| {
            ids.push(id);
            ControlFlow::Continue(())
        });
        for id in ids {
            self.release(id, Pending { consumer: number, delivered_ms: 0, deliveries: 0 });
        }
        self.losses.remove(&number);
        self.stream.remove_group_row(&name::consumer(group, name), Consumer::BYTES);
        self.stream.remove_group_row(&name::name(group, number), name.len());
        self.group.consumers = self.group.consumers.saturating_sub(1);
    }

    /// Returns the lowest id from `from` on that is pending for a consumer.
    fn first_owned(&self, consumer: u64, from: EntryId) -> EntryId {
        let mut first = EntryId::MAX;
        let of = (self.group.number, consumer);
        self.stream.view().each_owned(of, (from, EntryId::MAX), &mut |id| {
            first = id;
            ControlFlow::Break(())
        });
        first
    }

    fn first_pending(&self, from: EntryId) -> EntryId {
        let mut first = EntryId::MAX;
        let number = self.group.number;
        self.stream.view().each_pending(number, (from, EntryId::MAX), false, &mut |id, _| {
            first = id;
            ControlFlow::Break(())
        });
        first
    }

    fn put_consumer(&mut self, name: &[u8], consumer: Consumer, is_new: bool) {
        let group = self.group.number;
        let old = (!is_new).then_some(Consumer::BYTES);
        self.stream.put_group_row(&name::consumer(group, name), &consumer.to_bytes(), old);
    }

    /// Writes the acting consumer.
    fn close_acting(&mut self) {
        let Some(Acting { name, mut consumer, is_new, lost_entries: lost }) = self.acting.take()
        else {
            return;
        };
        if lost.includes(consumer.first) {
            consumer.first = self.first_owned(consumer.number, consumer.first);
        }
        self.put_consumer(name, consumer, is_new);
        if is_new {
            let number = name::name(self.group.number, consumer.number);
            self.stream.put_group_row(&number, name, None);
            self.stream.event("xgroup-createconsumer");
        }
    }

    /// Writes the consumers that lost entries to the acting one.
    fn close_losses(&mut self) {
        for (number, lost) in std::mem::take(&mut self.losses) {
            let view = self.stream.view();
            let Some(name) = view.consumer_name(self.group.number, number) else {
                continue;
            };
            let Some(mut consumer) = view.consumer(self.group.number, &name) else {
                continue;
            };
            consumer.pending = consumer.pending.saturating_sub(lost.count);
            if lost.includes(consumer.first) {
                consumer.first = self.first_owned(number, consumer.first);
            }
            self.put_consumer(&name, consumer, false);
        }
    }

    /// Writes consumers, group and header. If a consumer was seen and nothing else happened, leaves
    /// the header as it is: an attempt without effect neither ends a WATCH nor invalidates caches,
    /// as in Redis.
    pub(super) fn close(mut self) {
        let is_changed = self.is_changed || self.group != self.stored_group;
        self.close_acting();
        if !is_changed {
            return;
        }
        self.close_losses();
        if self.removed.includes(self.group.first) {
            self.group.first = self.first_pending(self.group.first);
        }
        let (name, value) = (name::group(self.name), self.group.to_bytes());
        self.stream.put_group_row(&name, &value, Some(Group::BYTES));
        self.stream.close();
    }
}
