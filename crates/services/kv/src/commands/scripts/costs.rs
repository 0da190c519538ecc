//! Costs of scripts on this node, by which it admits them ([visit-3]). Not part of the data.

use std::cell::Cell;

use quorate_replica::service::Weight;
use rustc_hash::FxHashMap;
use xxhash_rust::xxh3::xxh3_64;

use crate::commands::visits::{VISITS_MAX, weigh};

/// Maximum number of scripts whose costs are remembered.
const SCRIPTS_MAX: usize = 4096;
/// Visits of the scripts that may share a batch.
const TOGETHER: u64 = VISITS_MAX / 2;

#[derive(Debug, Default)]
pub(crate) struct Costs {
    /// Highest costs, of which each later execution takes back an eighth: what a script costs may
    /// depend on its arguments.
    highest: FxHashMap<u64, u64>,
    /// Visits of the scripts admitted since the last heavy one.
    together: Cell<u64>,
}

impl Costs {
    /// Returns the weight of a script by its costs, or heavy if it has not been executed here. Also
    /// heavy, and so in a batch of its own, is the one that makes a batch too long.
    pub(crate) fn weigh(&self, text: &[u8]) -> Weight {
        let Some(&cost) = self.highest.get(&xxh3_64(text)) else {
            return Weight::Heavy;
        };
        let together = self.together.get() + cost;
        let weight = if together > TOGETHER { Weight::Heavy } else { weigh(cost.min(VISITS_MAX)) };
        self.together.set(if weight == Weight::Heavy { 0 } else { together });
        weight
    }

    pub(crate) fn learn(&mut self, text: &[u8], cost: u64) {
        if self.highest.len() >= SCRIPTS_MAX {
            self.highest.clear();
        }
        let highest = self.highest.entry(xxh3_64(text)).or_default();
        *highest = cost.max(*highest - *highest / 8);
    }
}
