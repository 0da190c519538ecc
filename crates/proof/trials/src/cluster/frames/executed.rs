//! Executed batches of frame clients, according to a node's log. The batches of each name are in
//! the order of their numbers. Duplicates and batches that came too early are left out.

use std::{collections::BTreeMap, path::Path, process::Command};

use quorate_wire::frame_clients::{LENT_NAME_BIT, LentName};
use serde::Deserialize;

use crate::shell::{Failed, read_output};

/// Slots of executed batches, by name.
pub(super) struct ExecutedBatches {
    slot_values: BTreeMap<u64, String>,
    batch_slots: BTreeMap<(u32, u32), Vec<u64>>,
    /// Number of values in the log that belong to these names. `unexecuted_count` counts those that
    /// were not executed.
    pub(super) value_count: u64,
    pub(super) unexecuted_count: u64,
}

/// The part of `quorate log inspect --json` that is used here.
#[derive(Deserialize)]
struct Inspected {
    log: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    vote: Option<Held>,
    decided: Option<Held>,
}

#[derive(Deserialize)]
struct Held {
    slots: Slots,
    value: String,
}

#[derive(Deserialize)]
struct Slots {
    from: u64,
    to: u64,
}

impl ExecutedBatches {
    /// Reads the log in the folder of a stopped node.
    pub(super) fn read_log(program: &Path, folder: &Path) -> Result<Self, Failed> {
        let mut command = Command::new(program);
        let text = read_output(command.args(["log", "inspect", "--json"]).arg(folder))?;
        let inspected: Inspected = serde_json::from_str(&text)
            .map_err(|error| Failed(format!("quorate log inspect: {error}")))?;
        // The last vote for a slot counts, and a decision overrides all votes.
        let (mut slots, mut decided) = (BTreeMap::new(), BTreeMap::new());
        for item in inspected.log {
            for (held, into) in [(item.vote, &mut slots), (item.decided, &mut decided)] {
                let Some(held) = held else { continue };
                for slot in held.slots.from..held.slots.to {
                    into.insert(slot, held.value.clone());
                }
            }
        }
        slots.extend(decided);
        Ok(Self::from_slots(slots))
    }

    /// Finds the executed batches from the content of each slot.
    pub(super) fn from_slots(slots: BTreeMap<u64, String>) -> Self {
        let mut executed = Self {
            slot_values: BTreeMap::new(),
            batch_slots: BTreeMap::new(),
            value_count: 0,
            unexecuted_count: 0,
        };
        for (slot, value) in &slots {
            let Some((name, number)) = parse_batch(value) else {
                continue;
            };
            executed.value_count += 1;
            let done = executed.batch_slots.entry(name).or_default();
            if number == done.len() as u64 + 1 {
                done.push(*slot);
            } else {
                executed.unexecuted_count += 1;
            }
        }
        executed.slot_values = slots;
        executed
    }

    /// Returns the slots in which the name's batches were executed, in order.
    pub(super) fn slots_of(&self, name: LentName) -> &[u64] {
        let slots = self.batch_slots.get(&(name.origin, name.boot));
        slots.map_or(&[], |slots| slots)
    }

    pub(super) fn is_executed(&self, slot: u64) -> bool {
        self.slot_values.contains_key(&slot)
    }
}

/// Parses the name and the number of a batch, if the name was assigned to a client.
fn parse_batch(value: &str) -> Option<((u32, u32), u64)> {
    let mut numbers = value.strip_prefix("batch ")?.split('/');
    let origin = numbers.next()?.parse().ok()?;
    let name = (origin, numbers.next()?.parse().ok()?);
    let number = numbers.next()?.parse().ok()?;
    (origin & LENT_NAME_BIT != 0).then_some((name, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_execute_once_and_in_numerical_order() {
        let name = LentName { origin: LENT_NAME_BIT | 7, boot: 3 };
        let numbers = [1, 1, 3, 2, 3, 2];
        let value = |number| format!("batch {}/{}/{number}", name.origin, name.boot);
        let mut slots: BTreeMap<u64, String> = (10..).zip(numbers.map(value)).collect();
        slots.insert(4, "batch 1/3/1".to_owned());
        slots.insert(5, "noop".to_owned());
        let executed = ExecutedBatches::from_slots(slots);
        assert_eq!(executed.slots_of(name), [10, 13, 14]);
        assert_eq!((executed.value_count, executed.unexecuted_count), (6, 3));
        assert!(executed.is_executed(5) && !executed.is_executed(6));
        assert!(executed.slots_of(LentName { boot: 4, ..name }).is_empty());
    }
}
