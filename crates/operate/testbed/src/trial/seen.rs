//! State shared by all clients of a load, and the observations of each.

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

/// Lifetime of a set of keys; short histories are cheap to check.
const GENERATION: Duration = Duration::from_millis(2500);
/// Longest pause of a client between two operations, in microseconds.
const THINKING_US: u64 = 3000;
/// Counter incremented by all sessions during the whole run.
pub const TOTAL: &str = "total";

/// State shared by clients.
#[derive(Debug)]
pub struct Shared {
    /// Client addresses, one per node.
    pub addresses: Vec<String>,
    pub(crate) clock: Clock,
    stop: AtomicBool,
    strange: Mutex<Option<String>>,
    /// Number of operations with a known outcome.
    known: AtomicU64,
}

impl Shared {
    /// Creates the state for nodes at these addresses.
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

    /// Records a reply that violates the protocol, unless one was recorded before.
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

/// A key that is written once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Insert {
    pub key: String,
    pub fate: Fate,
}

/// Outcome of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Acknowledged,
    /// Definitely not executed, now or later.
    Refused,
    /// The command may have been executed, or may still be.
    Unknown,
}

/// Increments of the counter shared by all sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Total {
    /// Increments that were acknowledged.
    pub acknowledged: u64,
    /// Increments that may have been executed.
    pub unknown: u64,
}

/// All observations of a client or a load.
#[derive(Debug, Default)]
pub struct Seen {
    /// Operations on keys shared by clients.
    pub operations: Vec<Operation>,
    /// Inserts of keys that are written once.
    pub inserts: Vec<Insert>,
    /// Increments by sessions.
    pub total: Total,
    /// Requests that were definitely not executed.
    pub refused: u64,
    /// First reply that violates the protocol.
    pub strange: Option<String>,
}

impl Seen {
    /// Returns the inserted keys with this outcome.
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
