//! Flat hash table in position order. A lookup touches one place in memory.
//!
//! A position is a hash, so its upper bits determine the home slot of an item. The table uses open
//! addressing with linear probing, and runs are kept sorted. It is divided into shards by position,
//! so that it grows a small part at a time. A client that chooses keys by their hashes could build
//! runs of any length, so an item further than [`DISTANCE_MAX`] from its home slot is spilled to a
//! tree.

mod record;

use std::{cmp::Ordering, collections::BTreeMap, hint::black_box, iter, mem};

pub(super) use self::record::Record;
use super::{
    entry::{ReplacedEntry, Stamp},
    places::Position,
};

const SHARD_BITS: u32 = 10;
/// Base-2 logarithm of the smallest non-zero number of home slots in a shard.
const SHARD_BITS_MIN: u32 = 3;
/// Maximum distance of an item from its home slot. At the load factor [`GROW_AT_LOAD`], fewer than
/// one item in a million would be further away.
const DISTANCE_MAX: usize = 128;
/// Number of slots by which a shard is extended at its end.
const TAIL_SLOTS: usize = 4;
/// Load factor above which a shard doubles.
const GROW_AT_LOAD: (usize, usize) = (5, 8);
/// Load factor below which a shard halves.
const SHRINK_AT_LOAD: (usize, usize) = (1, 8);
/// Approximate number of keys in the sample for an estimate of memory.
const COUNTED_MAX: u64 = 1 << 16;
/// Approximate number of records freed per step.
const FREED_MAX: usize = 4096;
/// Maximum sampling interval, in shards: at least every 64th shard is sampled.
const STEP_MAX: u64 = 64;

#[derive(Debug)]
pub(super) struct Table {
    shards: Vec<Shard>,
    keys: u64,
}

/// Keys in one of the equal ranges into which positions are divided.
#[derive(Debug, Default)]
struct Shard {
    /// Items sorted by ⟨position, key⟩, with no empty slot between an item and its home slot. The
    /// vector has more than 2^bits slots if the last run needs them.
    slots: Vec<Option<Item>>,
    bits: u32,
    /// Number of items in slots, without spilled ones.
    items: usize,
    spilled: BTreeMap<Position, Spilled>,
}

type Spilled = BTreeMap<Box<[u8]>, Record>;

#[derive(Debug)]
struct Item {
    position: Position,
    record: Record,
}

impl Item {
    fn compare(&self, position: Position, key: &[u8]) -> Ordering {
        // Positions decide nearly every comparison without access to the record.
        let by_position = self.position.cmp(&position);
        by_position.then_with(|| self.record.key().cmp(key))
    }
}

impl Default for Table {
    fn default() -> Self {
        Self { shards: (0..1 << SHARD_BITS).map(|_| Shard::default()).collect(), keys: 0 }
    }
}

impl Table {
    pub(super) fn len(&self) -> u64 {
        self.keys
    }

    pub(super) fn get(&self, position: Position, key: &[u8]) -> Option<&Record> {
        self.shards[shard_of(position)].get(position, key)
    }

    /// Sets the record of `key` and returns its previous data.
    pub(super) fn put(
        &mut self,
        position: Position,
        key: &[u8],
        value: &[u8],
        stamp: Stamp,
    ) -> Option<ReplacedEntry> {
        let shard = &mut self.shards[shard_of(position)];
        let known = match shard.find(position, key) {
            Ok(at) => shard.slots[at].as_mut().map(|item| &mut item.record),
            Err(_) => shard.spilled_mut(position, key),
        };
        if let Some(record) = known {
            let old = record.replaced_entry();
            record.set(value, stamp);
            return Some(old);
        }
        let record = Record::new(key, value, stamp);
        shard.add(Item { position, record });
        self.keys += 1;
        None
    }

    pub(super) fn remove(&mut self, position: Position, key: &[u8]) -> Option<Record> {
        let removed = self.shards[shard_of(position)].remove(position, key)?;
        self.keys -= 1;
        Some(removed)
    }

    pub(super) fn from(&self, from: Position) -> impl Iterator<Item = (Position, &Record)> {
        let (first, rest) =
            self.shards[shard_of(from)..].split_first().expect("every position has a shard");
        let rest = rest.iter().flat_map(|shard| shard.from(Position::START));
        first.from(from).chain(rest)
    }

    /// Estimates the size of all records. A large table is sampled: positions are hashes, so shards
    /// are alike.
    pub(super) fn bytes_about(&self) -> u64 {
        let step = (self.keys / COUNTED_MAX).clamp(1, STEP_MAX);
        let looked_at = self.shards.iter().step_by(usize::try_from(step).unwrap_or(1));
        let bytes: usize = looked_at.flat_map(Shard::records).map(Record::bytes).sum();
        (bytes as u64).saturating_mul(step)
    }

    /// Returns the number of shards entirely before `position`.
    pub(super) const fn shards_before(position: Position) -> usize {
        shard_of(position)
    }

    /// Frees the shards before `position`, except the first `freed` ones. Returns the number of
    /// freed records and their size in bytes.
    pub(super) fn free_before(&mut self, position: Position, freed: usize) -> (usize, usize) {
        let (mut records, mut bytes) = (0, 0);
        let passed = freed..Self::shards_before(position).max(freed);
        for shard in &mut self.shards[passed] {
            let shard = mem::take(shard);
            for record in shard.records() {
                records += 1;
                bytes += record.bytes();
            }
        }
        self.keys = self.keys.saturating_sub(records as u64);
        (records, bytes)
    }

    /// Frees some records of a discarded table. Returns whether any are left.
    pub(super) fn free_some_records(&mut self) -> bool {
        let mut freed = 0;
        while freed < FREED_MAX
            && let Some(shard) = self.shards.pop()
        {
            freed += 1 + shard.records().count();
        }
        !self.shards.is_empty()
    }

    /// Loads the records at `positions` into the processor caches. Within each loop the loads are
    /// independent, so cache misses overlap; commands executed in sequence would wait for each.
    pub(super) fn prefetch_records(&self, positions: &[Position]) {
        let place = |position: &Position| {
            let shard = &self.shards[shard_of(*position)];
            shard.slots.get(shard.home_slot(*position))?.as_ref()
        };
        let slots = positions.iter().filter(|position| place(position).is_some());
        black_box(slots.count());
        let records = positions.iter().filter_map(|position| {
            let shard = &self.shards[shard_of(*position)];
            shard.first(*position).map(|item| item.record.prefetch_lines())
        });
        black_box(records.fold(0, |sum, byte| sum ^ byte));
    }
}

const fn shard_of(position: Position) -> usize {
    (position.cursor() >> (Position::BITS - SHARD_BITS)) as usize
}

impl Shard {
    /// Returns the home slot of a position.
    fn home_slot(&self, position: Position) -> usize {
        let in_shard = position.cursor() << (u64::BITS - Position::BITS + SHARD_BITS);
        // With no slots, `bits` is 0 and the only home slot is 0.
        in_shard.checked_shr(u64::BITS - self.bits).unwrap_or(0) as usize
    }

    fn first(&self, position: Position) -> Option<&Item> {
        let run = self.slots.get(self.home_slot(position)..)?.iter().map_while(Option::as_ref);
        let mut rest = run.skip_while(|item| item.position < position);
        rest.next().filter(|item| item.position == position)
    }

    /// Returns the index of a key, or the index at which to insert it as the error.
    fn find(&self, position: Position, key: &[u8]) -> Result<usize, usize> {
        let mut at = self.home_slot(position);
        while let Some(Some(item)) = self.slots.get(at) {
            match item.compare(position, key) {
                Ordering::Less => at += 1,
                Ordering::Equal => return Ok(at),
                Ordering::Greater => break,
            }
        }
        Err(at)
    }

    fn get(&self, position: Position, key: &[u8]) -> Option<&Record> {
        match self.find(position, key) {
            Ok(at) => self.slots[at].as_ref().map(|item| &item.record),
            Err(_) if self.spilled.is_empty() => None,
            Err(_) => self.spilled.get(&position)?.get(key),
        }
    }

    fn spilled_mut(&mut self, position: Position, key: &[u8]) -> Option<&mut Record> {
        if self.spilled.is_empty() {
            return None;
        }
        self.spilled.get_mut(&position)?.get_mut(key)
    }

    fn add(&mut self, item: Item) {
        if (self.items + 1) * GROW_AT_LOAD.1 > self.capacity() * GROW_AT_LOAD.0 {
            self.resize((self.bits + 1).max(SHARD_BITS_MIN));
        }
        self.insert(item);
    }

    fn insert(&mut self, item: Item) {
        let place = self.home_slot(item.position);
        let (Ok(at) | Err(at)) = self.find(item.position, item.record.key());
        let run = self.slots[at..].iter().take_while(|slot| slot.is_some());
        let end = at + run.count();
        // The home slot of each moved item is at or after that of the new item, so none ends up
        // further from home than the new item would.
        if end - place > DISTANCE_MAX {
            return self.spill_item(item);
        }
        if end == self.slots.len() {
            // A plain push would double the capacity of the vector.
            self.slots.reserve_exact(TAIL_SLOTS);
            self.slots.push(None);
        }
        self.slots[at..=end].rotate_right(1);
        self.slots[at] = Some(item);
        self.items += 1;
    }

    fn spill_item(&mut self, item: Item) {
        let at = self.spilled.entry(item.position).or_default();
        at.insert(item.record.key().into(), item.record);
    }

    fn remove(&mut self, position: Position, key: &[u8]) -> Option<Record> {
        let Ok(at) = self.find(position, key) else {
            let keys = self.spilled.get_mut(&position)?;
            let removed = keys.remove(key);
            if keys.is_empty() {
                self.spilled.remove(&position);
            }
            return removed;
        };
        let removed = self.slots[at].take();
        // Items that the removed one displaced move back.
        let behind = self.slots[at + 1..].iter().zip(at + 1..);
        let moving = behind.take_while(|(slot, now_at)| {
            let place = slot.as_ref().map(|item| self.home_slot(item.position));
            place.is_some_and(|place| place < *now_at)
        });
        let end = at + moving.count();
        self.slots[at..=end].rotate_left(1);
        self.items -= 1;
        if self.bits > SHARD_BITS_MIN
            && self.items * SHRINK_AT_LOAD.1 < self.capacity() * SHRINK_AT_LOAD.0
        {
            self.resize(self.bits - 1);
        }
        removed.map(|item| item.record)
    }

    fn records(&self) -> impl Iterator<Item = &Record> {
        let slots = self.slots.iter().flatten().map(|item| &item.record);
        slots.chain(self.spilled.values().flat_map(BTreeMap::values))
    }

    fn capacity(&self) -> usize {
        if self.slots.is_empty() { 0 } else { 1 << self.bits }
    }

    /// Changes the number of slots. Spilled items stay spilled: a client that chose their keys must
    /// not be able to have them moved at will.
    fn resize(&mut self, bits: u32) {
        let capacity = 1 << bits;
        self.bits = bits;
        let old = mem::replace(&mut self.slots, Vec::with_capacity(capacity + TAIL_SLOTS));
        self.items = 0;
        // Items arrive in order, so each goes to its home slot or next to its predecessor.
        for item in old.into_iter().flatten() {
            let place = self.home_slot(item.position);
            if self.slots.len() > place + DISTANCE_MAX {
                self.spill_item(item);
                continue;
            }
            let at = place.max(self.slots.len());
            self.slots.resize_with(at, || None);
            self.slots.push(Some(item));
            self.items += 1;
        }
        let length = self.slots.len().max(capacity);
        self.slots.resize_with(length, || None);
    }

    fn from(&self, from: Position) -> impl Iterator<Item = (Position, &Record)> {
        let slots = self.slots.get(self.home_slot(from)..).unwrap_or_default();
        let items = slots.iter().flatten();
        let mut items = items.skip_while(move |item| item.position < from).peekable();
        let spilled = self
            .spilled
            .range(from..)
            .flat_map(|(position, keys)| keys.values().map(|record| (*position, record)));
        let mut spilled = spilled.peekable();
        iter::from_fn(move || {
            let item = items.next_if(|item| {
                let other = spilled.peek();
                other.is_none_or(|(at, record)| item.compare(*at, record.key()).is_lt())
            });
            match item {
                Some(item) => Some((item.position, &item.record)),
                None => spilled.next(),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Model = BTreeMap<(Position, Vec<u8>), Vec<u8>>;

    struct Draws(u64);

    impl Draws {
        fn below(&mut self, end: u64) -> u64 {
            // xorshift64*
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) % end
        }
    }

    fn put(table: &mut Table, model: &mut Model, position: Position, key: &[u8], value: &[u8]) {
        table.put(position, key, value, Stamp::ABSENT);
        model.insert((position, key.to_vec()), value.to_vec());
    }

    fn remove(table: &mut Table, model: &mut Model, position: Position, key: &[u8]) {
        let removed = table.remove(position, key);
        let expected = model.remove(&(position, key.to_vec()));
        let value = removed.map(|record| record.entry().value.to_vec());
        assert_eq!(value, expected);
    }

    /// Checks the invariants and compares the table with the model, also when read from the middle.
    fn compare(table: &Table, model: &Model, from: Position) {
        assert_eq!(table.len(), model.len() as u64);
        for start in [Position::START, from] {
            let mut seen = Vec::new();
            for (_, record) in table.from(start) {
                seen.push((record.key().to_vec(), record.entry().value.to_vec()));
            }
            let expected = model.range((start, Vec::new())..);
            let expected: Vec<_> =
                expected.map(|((_, key), value)| (key.clone(), value.clone())).collect();
            assert_eq!(seen, expected);
        }
        for shard in &table.shards {
            let mut items = 0;
            for (at, item) in shard.slots.iter().enumerate() {
                let Some(item) = item else { continue };
                let place = shard.home_slot(item.position);
                assert!(place <= at && at - place <= DISTANCE_MAX, "{place} {at}");
                assert!(shard.slots[place..at].iter().all(Option::is_some));
                items += 1;
            }
            assert_eq!(items, shard.items);
            assert!(
                items * GROW_AT_LOAD.1 <= shard.capacity() * GROW_AT_LOAD.0,
                "{items} of {}",
                shard.capacity()
            );
        }
    }

    /// Adds, replaces and removes keys until none is left. Returns the most spilled items seen.
    fn lives(mut draw: impl FnMut(&mut Draws) -> Position, seed: u64) -> usize {
        let (mut draws, mut table, mut model) = (Draws(seed), Table::default(), Model::new());
        let mut spilled = 0;
        for round in 0..8_u64 {
            for _ in 0..1500 {
                let (position, name) = (draw(&mut draws), draws.below(4));
                let value = vec![b'v'; usize::try_from(draws.below(3)).unwrap()];
                let key = name.to_le_bytes();
                assert_eq!(
                    table.get(position, &key).map(|record| record.entry().value.to_vec()),
                    model.get(&(position, key.to_vec())).cloned()
                );
                // The table grows in the first rounds and shrinks in the last.
                if draws.below(8) < round {
                    remove(&mut table, &mut model, position, &key);
                } else {
                    put(&mut table, &mut model, position, &key, &value);
                }
            }
            compare(&table, &model, draw(&mut draws));
            spilled = spilled.max(table.shards.iter().map(|shard| shard.spilled.len()).sum());
        }
        let mut left: Vec<_> = model.keys().cloned().collect();
        while !left.is_empty() {
            let at = usize::try_from(draws.below(left.len() as u64)).unwrap();
            let (position, key) = left.swap_remove(at);
            table.prefetch_records(&[position]);
            remove(&mut table, &mut model, position, &key);
            if left.len().is_multiple_of(500) {
                compare(&table, &model, position);
            }
        }
        assert!(table.shards.iter().all(|shard| shard.slots.len() <= 8 + DISTANCE_MAX));
        spilled
    }

    fn at(number: u64) -> Position {
        Position::from_cursor(number).unwrap()
    }

    const END: u64 = 1 << Position::BITS;

    #[test]
    fn hashed_positions_stay_near_their_slots() {
        assert_eq!(lives(|draws| at(draws.below(END)), 1), 0);
        // All keys in one shard.
        let shard = END >> SHARD_BITS;
        assert_eq!(lives(|draws| at(shard * 5 + draws.below(shard)), 2), 0);
        // All keys at the end of the last shard.
        lives(|draws| at(END - 1 - draws.below(shard / 4)), 3);
    }

    #[test]
    fn keys_chosen_to_collide_spill() {
        assert!(lives(|draws| at(draws.below(900)), 4) > 500, "one place");
        let step = END >> (SHARD_BITS + 10);
        let far_and_wide = |draws: &mut Draws| at(draws.below(40) * step + draws.below(30));
        lives(far_and_wide, 5);
    }

    /// When a table shrinks, adjacent home slots are merged, and keys too far from their home slots
    /// spill.
    #[test]
    fn a_run_that_no_longer_fits_when_a_shard_shrinks_spills() {
        let (mut table, mut model) = (Table::default(), Model::new());
        let (shard, slots) = (END >> SHARD_BITS, 1 << 12);
        let mut draws = Draws(6);
        // These keys make the table large. Then every slot is filled, starting with the first.
        let behind = (0..1500).map(|_| at(shard / 8 + draws.below(shard - shard / 8)));
        let spread: Vec<_> = behind.collect();
        for position in &spread {
            put(&mut table, &mut model, *position, b"spread", b"v");
        }
        for place in 0..400 {
            let position = at(place * (shard / slots));
            put(&mut table, &mut model, position, b"dense", b"v");
        }
        assert!(table.shards[0].spilled.is_empty());
        for position in &spread {
            remove(&mut table, &mut model, *position, b"spread");
            compare(&table, &model, at(shard / 100));
        }
        assert!(!table.shards[0].spilled.is_empty());
    }

    #[test]
    fn one_position_can_hold_many_keys() {
        let (mut table, mut model) = (Table::default(), Model::new());
        for key in 0..1000_u64 {
            put(&mut table, &mut model, at(77), &key.to_be_bytes(), b"v");
        }
        compare(&table, &model, at(77));
        compare(&table, &model, at(78));
        for key in 0..1000_u64 {
            assert!(table.get(at(77), &key.to_be_bytes()).is_some());
            remove(&mut table, &mut model, at(77), &key.to_be_bytes());
        }
        compare(&table, &model, Position::START);
    }
}
