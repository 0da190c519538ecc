//! State shared by all clients of a load, and the observations of each client.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use quorate_core::dice::Dice;

use super::history::{HistoryClock, Operation};

/// Time after which a new set of keys is used. Short histories can be checked quickly.
const KEY_SET_LIFETIME: Duration = Duration::from_millis(2500);
/// Maximum pause of a client between two operations, in microseconds.
const THINK_TIME_US_MAX: u64 = 3000;
/// Counter that all sessions increment during the whole run.
pub const TOTAL_COUNTER: &str = "total";

/// State that all clients of a load share.
#[derive(Debug)]
pub struct Shared {
    pub addresses: Vec<String>,
    pub(crate) clock: HistoryClock,
    stop: AtomicBool,
    first_violation: Mutex<Option<String>>,
    /// Number of operations with a known outcome.
    known_outcomes: AtomicU64,
}

impl Shared {
    /// Creates the state for nodes with the given client addresses.
    pub fn new(addresses: Vec<String>) -> Self {
        Self {
            addresses,
            clock: HistoryClock::start(),
            stop: AtomicBool::new(false),
            first_violation: Mutex::default(),
            known_outcomes: AtomicU64::new(0),
        }
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Records a reply that violates the protocol, unless another one was recorded before.
    pub(crate) fn record_violation(&self, what: String) {
        let mut strange = self.first_violation.lock().unwrap_or_else(PoisonError::into_inner);
        strange.get_or_insert(what);
    }

    pub(crate) fn count_known(&self) {
        self.known_outcomes.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of the current set of keys.
    pub(crate) fn key_set_number(&self) -> u128 {
        u128::from(self.clock.nanos_now()) / KEY_SET_LIFETIME.as_nanos()
    }

    pub(super) fn take_violation(&self) -> Option<String> {
        let mut strange = self.first_violation.lock().unwrap_or_else(PoisonError::into_inner);
        strange.take()
    }

    pub(super) fn known_outcomes(&self) -> u64 {
        self.known_outcomes.load(Ordering::Relaxed)
    }

    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }
}

/// Key that is written only once, with the outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Insert {
    pub key: String,
    pub outcome: CommandOutcome,
}

/// Outcome of a command, to the client's knowledge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandOutcome {
    Acknowledged,
    /// The command was not executed and will not be.
    Refused,
    /// The command may have been executed, or may still be executed.
    Unknown,
}

/// Increments of the counter that all sessions share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IncrementTotals {
    /// Number of acknowledged increments.
    pub acknowledged: u64,
    /// Number of increments that may have been executed.
    pub unknown: u64,
}

/// Observations of one client, or of all clients of a load.
#[derive(Debug, Default)]
pub struct Observations {
    /// Operations on keys that several clients use.
    pub operations: Vec<Operation>,
    /// Inserted keys, each written only once.
    pub inserts: Vec<Insert>,
    /// Increments that sessions executed.
    pub increments: IncrementTotals,
    /// Number of requests that were certainly not executed.
    pub refused_count: u64,
    /// First reply that violates the protocol.
    pub first_violation: Option<String>,
}

impl Observations {
    /// Returns the inserted keys whose insertion had a given outcome.
    pub fn inserts_with(&self, fate: CommandOutcome) -> Vec<&str> {
        let of = self.inserts.iter().filter(|one| one.outcome == fate);
        of.map(|one| one.key.as_str()).collect()
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.operations.extend(other.operations);
        self.inserts.extend(other.inserts);
        self.increments.acknowledged += other.increments.acknowledged;
        self.increments.unknown += other.increments.unknown;
        self.refused_count += other.refused_count;
    }
}

/// Pauses a client for a random time before its next operation.
pub(crate) fn pause_randomly(dice: &mut Dice) {
    thread::sleep(Duration::from_micros(dice.below(THINK_TIME_US_MAX)));
}
