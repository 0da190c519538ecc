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

/// Lifetime of a set of keys: short histories are cheap to check.
const GENERATION: Duration = Duration::from_millis(2500);
/// Longest pause of a client between two operations, microseconds.
const THINKING_US: u64 = 3000;
/// The counter of all sessions, for the whole run.
pub const TOTAL: &str = "total";

/// State shared by clients.
#[derive(Debug)]
pub struct Shared {
    /// Client addresses, per node.
    pub addresses: Vec<String>,
    pub(crate) clock: Clock,
    stop: AtomicBool,
    strange: Mutex<Option<String>>,
    /// Operations with a known outcome.
    known: AtomicU64,
}

impl Shared {
    /// For nodes at these addresses.
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

    /// An answer that no rule allows.
    pub(crate) fn strange(&self, what: String) {
        let mut strange = self.strange.lock().unwrap_or_else(PoisonError::into_inner);
        strange.get_or_insert(what);
    }

    pub(crate) fn count(&self) {
        self.known.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of the keys that are in use now.
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
    /// The key.
    pub key: String,
    pub fate: Fate,
}

/// Knowledge about a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Acknowledged,
    /// Certainly not executed, now or ever.
    Refused,
    /// It may have been executed, or may still be.
    Unknown,
}

/// Increments of the counter of all sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Total {
    /// Executed.
    pub acknowledged: u64,
    /// Possibly executed.
    pub unknown: u64,
}

/// All that the clients saw.
#[derive(Debug, Default)]
pub struct Seen {
    /// On keys that clients share.
    pub operations: Vec<Operation>,
    /// Inserts of keys that are written once.
    pub inserts: Vec<Insert>,
    /// Operations of sessions.
    pub total: Total,
    /// Requests that were certainly not executed.
    pub refused: u64,
    /// The first answer that no rule allows.
    pub strange: Option<String>,
}

impl Seen {
    /// Inserts that ended so.
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

/// A client's pause before it goes on.
pub(crate) fn think(dice: &mut Dice) {
    thread::sleep(Duration::from_micros(dice.below(THINKING_US)));
}
