//! Clients that ask for everything at once, on few keys, while faults happen.

use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use quorate_core::dice::Dice;

use super::{
    client::{Client, Fate, Insert},
    history::{Clock, Operation},
    session::Session,
};

/// Clients per node: of everything on shared keys; that only read; of new keys; with a session.
const MIXED: usize = 2;
const READING: usize = 1;
const INSERTING: usize = 1;
const SESSIONS: usize = 1;
/// How long keys are in use: short histories are cheap to check.
const GENERATION: Duration = Duration::from_millis(2500);
/// Longest pause of a client between two operations, microseconds.
const THINKING_US: u64 = 3000;
/// Pause of a client that asks for everything at once.
const BETWEEN_READS: Duration = Duration::from_millis(4);
const REGISTERS: u64 = 4;
const COUNTERS: u64 = 2;
/// The counter of all sessions, for the whole run.
pub const TOTAL: &str = "total";

/// What clients share.
#[derive(Debug)]
pub struct Shared {
    /// Where clients connect, per node.
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
}

/// Increments of the counter of all sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Total {
    /// That were executed.
    pub acknowledged: u64,
    /// That may have been.
    pub unknown: u64,
}

/// All that the clients saw.
#[derive(Debug, Default)]
pub struct Seen {
    /// On keys that clients share.
    pub operations: Vec<Operation>,
    /// Of keys that are written once.
    pub inserts: Vec<Insert>,
    /// Of the sessions.
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

    fn add(&mut self, other: Self) {
        self.operations.extend(other.operations);
        self.inserts.extend(other.inserts);
        self.total.acknowledged += other.total.acknowledged;
        self.total.unknown += other.total.unknown;
        self.refused += other.refused;
    }
}

/// Running clients.
#[derive(Debug)]
pub struct Load {
    /// What the clients share.
    pub shared: Arc<Shared>,
    clients: Vec<JoinHandle<Seen>>,
}

impl Load {
    /// Some of every kind on every node.
    pub fn start(addresses: Vec<String>, seed: u64) -> io::Result<Self> {
        let shared = Arc::new(Shared::new(addresses));
        let mut load = Self {
            shared: Arc::clone(&shared),
            clients: Vec::new(),
        };
        for node in 0..shared.addresses.len() {
            for kind in 0..MIXED + READING + INSERTING + SESSIONS {
                let number = load.clients.len() + 1;
                let dice = Dice::new(seed ^ ((number as u64) << 32));
                let shared = Arc::clone(&shared);
                let run = move || match kind {
                    0..MIXED => mixed(Client::new(number, node, shared), dice),
                    MIXED => reading(Client::new(number, node, shared)),
                    kind if kind == MIXED + READING => {
                        inserting(Client::new(number, node, shared), dice)
                    }
                    _ => Session::new(number, node, shared).run(dice),
                };
                load.clients.push(thread::Builder::new().spawn(run)?);
            }
        }
        Ok(load)
    }

    /// Operations with a known outcome so far.
    pub fn known(&self) -> u64 {
        self.shared.known.load(Ordering::Relaxed)
    }

    /// Ends the clients; what they sent before still gets its reply.
    pub fn finish(mut self) -> io::Result<Seen> {
        self.stop();
        let mut all = Seen::default();
        for client in self.clients.drain(..) {
            let seen = client.join();
            all.add(seen.map_err(|_| io::Error::other("a client of the load panicked"))?);
        }
        let mut strange = self
            .shared
            .strange
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        all.strange = strange.take();
        drop(strange);
        Ok(all)
    }

    fn stop(&self) {
        self.shared.stop.store(true, Ordering::SeqCst);
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A client's pause before it goes on.
pub(crate) fn think(dice: &mut Dice) {
    thread::sleep(Duration::from_micros(dice.below(THINKING_US)));
}

/// Reads, writes, transactions and counters on keys that all clients share.
fn mixed(mut client: Client, mut dice: Dice) -> Seen {
    while !client.shared.stopping() {
        let generation = client.shared.generation();
        let register = format!("r{generation}.{}", dice.below(REGISTERS));
        let counter = format!("c{generation}.{}", dice.below(COUNTERS));
        let pair = format!("p{generation}");
        match dice.below(100) {
            0..28 => client.read(&register),
            28..42 => client.write(&register),
            42..46 => client.delete(&register),
            46..52 => client.swap(&register),
            52..58 => client.swap_in_transaction(&register),
            58..70 => client.compare_and_set(&register, &mut dice),
            70..82 => client.add(&counter, 1 + dice.below(3)),
            82..88 => client.read(&counter),
            88..94 => client.write_pair(&pair, dice.chance(1, 2)),
            _ => client.read_pair(&pair),
        }
        think(&mut dice);
    }
    client.seen
}

/// Asks for all keys at once: a node that wakes up, or is cut off, always has reads to answer, and no
/// old value may be among the answers.
fn reading(mut client: Client) -> Seen {
    while !client.shared.stopping() {
        let generation = client.shared.generation();
        let registers = (0..REGISTERS).map(|number| format!("r{generation}.{number}"));
        let counters = (0..COUNTERS).map(|number| format!("c{generation}.{number}"));
        let keys: Vec<String> = registers.chain(counters).collect();
        client.read_all(&keys);
        thread::sleep(BETWEEN_READS);
    }
    client.seen
}

/// Keys that nobody else writes, each once: the plain question whether anything is lost.
fn inserting(mut client: Client, mut dice: Dice) -> Seen {
    while !client.shared.stopping() {
        client.insert();
        think(&mut dice);
    }
    client.seen
}
