//! The store in memory, rebuilt from the log after a restart.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
};

use quorate_core::slot::Slot;
use quorate_replica::service::MetaChange;

use super::{Bytes, Entry, Metadata, Position, Store, Version, Visit};

/// One key's value.
#[derive(Debug)]
struct Item {
    value: Vec<u8>,
    version: Version,
    deadline: Option<u64>,
}

impl Item {
    fn entry(&self) -> Entry<'_> {
        Entry {
            value: Bytes::Borrowed(&self.value),
            version: self.version,
            deadline: self.deadline,
        }
    }
}

/// Keys at one position: nearly always one.
type Cell = BTreeMap<Box<[u8]>, Item>;

/// Keys by position. Comparing positions settles a search without touching the keys.
#[derive(Debug, Default)]
pub struct MemoryStore {
    cells: BTreeMap<Position, Slotted>,
    deadlines: BTreeSet<(u64, Box<[u8]>)>,
    keys: u64,
}

/// What stands at a position.
#[derive(Debug)]
enum Slotted {
    One(Box<[u8]>, Item),
    Many(Cell),
}

impl Slotted {
    fn get(&self, key: &[u8]) -> Option<&Item> {
        match self {
            Self::One(own, item) => (**own == *key).then_some(item),
            Self::Many(cell) => cell.get(key),
        }
    }

    fn get_mut(&mut self, key: &[u8]) -> Option<&mut Item> {
        match self {
            Self::One(own, item) => (**own == *key).then_some(item),
            Self::Many(cell) => cell.get_mut(key),
        }
    }

    /// Adds a key that is not there.
    fn add(&mut self, key: Box<[u8]>, item: Item) {
        let mut cell = match std::mem::replace(self, Self::Many(Cell::new())) {
            Self::One(other, held) => Cell::from([(other, held)]),
            Self::Many(cell) => cell,
        };
        cell.insert(key, item);
        *self = Self::Many(cell);
    }
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn set_deadline(&mut self, key: &[u8], old: Option<u64>, new: Option<u64>) {
        if old == new {
            return;
        }
        if let Some(old) = old {
            self.deadlines.remove(&(old, key.into()));
        }
        if let Some(new) = new {
            self.deadlines.insert((new, key.into()));
        }
    }
}

impl Store for MemoryStore {
    fn get(&self, key: &[u8]) -> Option<Entry<'_>> {
        self.cells
            .get(&Position::of(key))?
            .get(key)
            .map(Item::entry)
    }

    fn put(&mut self, key: &[u8], value: &[u8], version: Version, deadline: Option<u64>) {
        let fresh = || Item {
            value: value.to_vec(),
            version,
            deadline,
        };
        let old = match self.cells.entry(Position::of(key)) {
            std::collections::btree_map::Entry::Vacant(vacant) => {
                vacant.insert(Slotted::One(key.into(), fresh()));
                self.keys += 1;
                None
            }
            std::collections::btree_map::Entry::Occupied(occupied) => {
                let slotted = occupied.into_mut();
                if let Some(item) = slotted.get_mut(key) {
                    item.value.clear();
                    // A value that shrank for good must not keep its memory.
                    item.value.shrink_to(value.len() * 2);
                    item.value.extend_from_slice(value);
                    item.version = version;
                    std::mem::replace(&mut item.deadline, deadline)
                } else {
                    slotted.add(key.into(), fresh());
                    self.keys += 1;
                    None
                }
            }
        };
        self.set_deadline(key, old, deadline);
    }

    fn remove(&mut self, key: &[u8]) -> bool {
        let position = Position::of(key);
        let removed = match self.cells.get_mut(&position) {
            Some(Slotted::Many(cell)) if cell.len() > 1 => cell.remove(key),
            Some(slotted) if slotted.get(key).is_some() => match self.cells.remove(&position) {
                Some(Slotted::One(_, item)) => Some(item),
                Some(Slotted::Many(mut cell)) => cell.remove(key),
                None => None,
            },
            _ => None,
        };
        let Some(item) = removed else { return false };
        self.keys -= 1;
        self.set_deadline(key, item.deadline, None);
        true
    }

    fn clear(&mut self) {
        *self = Self::default();
    }

    fn len(&self) -> u64 {
        self.keys
    }

    fn scan(&self, from: Position, visit: &mut Visit<'_>) {
        for slotted in self.cells.range(from..).map(|(_, slotted)| slotted) {
            let flow = match slotted {
                Slotted::One(key, item) => visit(key, &item.entry()),
                Slotted::Many(cell) => cell
                    .iter()
                    .try_for_each(|(key, item)| visit(key, &item.entry())),
            };
            if flow.is_break() {
                return;
            }
        }
    }

    fn overdue(&self, wall_ms: u64, visit: &mut dyn FnMut(u64, &[u8]) -> ControlFlow<()>) {
        let due = self
            .deadlines
            .iter()
            .take_while(|(deadline, _)| *deadline <= wall_ms);
        for (deadline, key) in due {
            if visit(*deadline, key).is_break() {
                return;
            }
        }
    }

    fn commit(&mut self, _applied_to: Slot, _meta: &[MetaChange]) {}

    fn recovered(&mut self) -> (Slot, Metadata) {
        (Slot::FIRST, Vec::new())
    }
}
