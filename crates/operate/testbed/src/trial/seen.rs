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

use super::history::{Clock, Operation};

/// Time after which a new set of keys is used. Short histories can be checked quickly.
const GENERATION: Duration = Duration::from_millis(2500);
/// Maximum pause of a client between two operations, in microseconds.
const THINKING_US: u64 = 3000;
/// Counter that all sessions increment during the whole run.
pub const TOTAL: &str = "total";

/// State that all clients of a load share.
#[derive(Debug)]
pub struct Shared {
    pub addresses: Vec<String>,
    pub(crate) clock: Clock,
    stop: AtomicBool,
    strange: Mutex<Option<String>>,
    /// Number of operations with a known outcome.
    known: AtomicU64,
}

impl Shared {
    /// Creates the state for nodes with the given client addresses.
    pub fn new(addresses: Vec<String>) -> Self {
        Self {
            addresses,
            clock: Clock::start(),
            stop: AtomicBool::new(false),
            strange: Mutex::default(),
            known: AtomicU64::new(0),
        }
    }

    pub(crate) fn stopping(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Records a reply that violates the protocol, unless another one was recorded before.
    pub(crate) fn strange(&self, what: String) {
        let mut strange = self.strange.lock().unwrap_or_else(PoisonError::into_inner);
        strange.get_or_insert(what);
    }

    pub(crate) fn count(&self) {
        self.known.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of the current set of keys.
    pub(crate) fn generation(&self) -> u128 {
        u128::from(self.clock.now()) / GENERATION.as_nanos()
    }

    pub(super) fn take_strange(&self) -> Option<String> {
        let mut strange = self.strange.lock().unwrap_or_else(PoisonError::into_inner);
        strange.take()
    }

    pub(super) fn known(&self) -> u64 {
        self.known.load(Ordering::Relaxed)
    }

    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }
}

/// Key that is written only once, with the outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Insert {
    pub key: String,
    pub fate: Fate,
}

/// Outcome of a command, to the client's knowledge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Acknowledged,
    /// The command was not executed and will not be.
    Refused,
    /// The command may have been executed, or may still be executed.
    Unknown,
}

/// Increments of the counter that all sessions share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Total {
    /// Number of acknowledged increments.
    pub acknowledged: u64,
    /// Number of increments that may have been executed.
    pub unknown: u64,
}

/// Observations of one client, or of all clients of a load.
#[derive(Debug, Default)]
pub struct Seen {
    /// Operations on keys that several clients use.
    pub operations: Vec<Operation>,
    /// Inserted keys, each written only once.
    pub inserts: Vec<Insert>,
    /// Increments that sessions executed.
    pub total: Total,
    /// Number of requests that were certainly not executed.
    pub refused: u64,
    /// First reply that violates the protocol.
    pub strange: Option<String>,
}

impl Seen {
    /// Returns the inserted keys whose insertion had a given outcome.
    pub fn inserts(&self, fate: Fate) -> Vec<&str> {
        let of = self.inserts.iter().filter(|one| one.fate == fate);
        of.map(|one| one.key.as_str()).collect()
    }

    pub(super) fn add(&mut self, other: Self) {
        self.operations.extend(other.operations);
        self.inserts.extend(other.inserts);
        self.total.acknowledged += other.total.acknowledged;
        self.total.unknown += other.total.unknown;
        self.refused += other.refused;
    }
}

/// Pauses a client for a random time before its next operation.
pub(crate) fn think(dice: &mut Dice) {
    thread::sleep(Duration::from_micros(dice.below(THINKING_US)));
}
