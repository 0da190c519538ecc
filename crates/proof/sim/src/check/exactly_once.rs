//! Acknowledged commands are executed exactly once, all other commands at most as often as they
//! were sent.

use std::collections::{BTreeMap, BTreeSet};

use super::{Verdict, Violation};

/// Acknowledged and unknown increments of one counter.
#[derive(Debug, Default)]
struct CounterIncrements {
    acknowledged: u64,
    unknown: u64,
    returned_values: BTreeSet<i64>,
}

/// Increments of all counters, including those numbered by sessions.
#[derive(Debug, Default)]
pub struct ExactlyOnce {
    counters: BTreeMap<String, CounterIncrements>,
    /// Number of completed commands per session, by the key of its counter.
    session_commands: BTreeMap<String, i64>,
}

impl ExactlyOnce {
    /// Checks that no other INCR returned the number `number`.
    pub fn record_acknowledged(&mut self, key: &str, number: i64) -> Verdict {
        let counter = self.counters.entry(key.to_owned()).or_default();
        counter.acknowledged += 1;
        if !counter.returned_values.insert(number) {
            return Err(Violation::new(
                "exactly_once",
                format!("two increments of {key} gave {number}"),
            ));
        }
        Ok(())
    }

    /// Records an INCR that received no reply.
    pub fn record_unknown(&mut self, key: &str) {
        self.counters.entry(key.to_owned()).or_default().unknown += 1;
    }

    /// Checks the reply to command `sequence` of the only session that increments `key`. Any other
    /// number means that the command, which may have been sent several times, was executed twice or
    /// never.
    pub fn check_sequence(&mut self, key: &str, sequence: i64, number: i64) -> Verdict {
        self.session_commands.insert(key.to_owned(), sequence);
        if number == sequence {
            return Ok(());
        }
        let detail = format!("sequence {sequence} of the session on {key} made it {number}");
        Err(Violation::new("exactly_once", detail))
    }

    /// Checks that a counter's final value lies between the increments acknowledged and those sent.
    pub fn check_final_value(&self, key: &str, value: i64) -> Verdict {
        let wrong = |detail: String| Err(Violation::new("exactly_once", detail));
        if let Some(sequence) = self.session_commands.get(key)
            && value != *sequence
            && value != sequence + 1
        {
            return wrong(format!("{key} is {value} after {sequence} sequences"));
        }
        if let Some(counter) = self.counters.get(key) {
            let value = u64::try_from(value).unwrap_or(0);
            if value < counter.acknowledged {
                return wrong(format!(
                    "{key} is {value}, {} were acknowledged",
                    counter.acknowledged
                ));
            }
            if value > counter.acknowledged + counter.unknown {
                let tried = counter.acknowledged + counter.unknown;
                return wrong(format!("{key} is {value}, {tried} were tried"));
            }
        }
        Ok(())
    }

    pub fn counter_keys(&self) -> Vec<String> {
        self.counters.keys().chain(self.session_commands.keys()).cloned().collect()
    }
}
