//! Costs of scripts on this node, used for admission ([visit-3]). They are not part of the data.

use std::cell::Cell;

use quorate_replica::service::Weight;
use rustc_hash::FxHashMap;
use xxhash_rust::xxh3::xxh3_64;

use crate::commands::visits::{VISITS_MAX, weight_of_visits};

/// Maximum number of scripts with a stored cost.
const SCRIPTS_MAX: usize = 4096;
/// Maximum total visits of scripts that share a batch.
const LIGHT_VISITS_MAX: u64 = VISITS_MAX / 2;

#[derive(Debug, Default)]
pub(crate) struct Costs {
    /// Highest cost of each script, by the hash of its text. It decreases by up to an eighth with
    /// each execution, because the cost may depend on the arguments.
    highest: FxHashMap<u64, u64>,
    /// Visits of the scripts admitted since the last heavy one.
    light_visits: Cell<u64>,
}

impl Costs {
    /// Returns the weight of a script according to its cost. A script that was never executed here,
    /// or would make the shared batch too long, is heavy and gets its own batch.
    pub(crate) fn weigh_script(&self, text: &[u8]) -> Weight {
        let Some(&cost) = self.highest.get(&xxh3_64(text)) else {
            return Weight::Heavy;
        };
        let together = self.light_visits.get() + cost;
        let weight = if together > LIGHT_VISITS_MAX {
            Weight::Heavy
        } else {
            weight_of_visits(cost.min(VISITS_MAX))
        };
        self.light_visits.set(if weight == Weight::Heavy { 0 } else { together });
        weight
    }

    pub(crate) fn record_cost(&mut self, text: &[u8], cost: u64) {
        if self.highest.len() >= SCRIPTS_MAX {
            self.highest.clear();
        }
        let highest = self.highest.entry(xxh3_64(text)).or_default();
        *highest = cost.max(*highest - *highest / 8);
    }
}
