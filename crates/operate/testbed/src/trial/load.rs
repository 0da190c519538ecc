//! Clients that send all kinds of operations on a few keys while faults are injected.

use std::{
    io,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use quorate_core::dice::Dice;

use super::{
    client::Client,
    seen::{Observations, Shared, pause_randomly},
    session::Session,
};

/// Number of clients per node, for each kind of client: mixed operations on shared keys, reads
/// only, inserts of new keys, and sessions.
const MIXED_CLIENTS: usize = 2;
const READING_CLIENTS: usize = 1;
const INSERTING_CLIENTS: usize = 1;
const SESSION_CLIENTS: usize = 1;
/// Pause of a reading client between two pipelines.
const READ_PAUSE: Duration = Duration::from_millis(4);
const REGISTER_COUNT: u64 = 4;
const COUNTER_COUNT: u64 = 2;

#[derive(Debug)]
pub struct ClientLoad {
    /// State that all clients share.
    pub shared: Arc<Shared>,
    clients: Vec<JoinHandle<Observations>>,
}

impl ClientLoad {
    /// Starts clients of every kind for every node. `seed` determines their random choices.
    pub fn start(addresses: Vec<String>, seed: u64) -> io::Result<Self> {
        let shared = Arc::new(Shared::new(addresses));
        let mut load = Self { shared: Arc::clone(&shared), clients: Vec::new() };
        for node in 0..shared.addresses.len() {
            for kind in 0..MIXED_CLIENTS + READING_CLIENTS + INSERTING_CLIENTS + SESSION_CLIENTS {
                let number = load.clients.len() + 1;
                let dice = Dice::new(seed ^ ((number as u64) << 32));
                let shared = Arc::clone(&shared);
                let run = move || match kind {
                    0..MIXED_CLIENTS => run_mixed(Client::new(number, node, shared), dice),
                    MIXED_CLIENTS => run_reading(Client::new(number, node, shared)),
                    kind if kind == MIXED_CLIENTS + READING_CLIENTS => {
                        run_inserting(Client::new(number, node, shared), dice)
                    }
                    _ => Session::new(number, node, shared).run(dice),
                };
                load.clients.push(thread::Builder::new().spawn(run)?);
            }
        }
        Ok(load)
    }

    /// Returns the number of operations with a known outcome.
    pub fn known_outcomes(&self) -> u64 {
        self.shared.known_outcomes()
    }

    /// Stops the clients once they have all replies, and returns their observations.
    pub fn finish(mut self) -> io::Result<Observations> {
        self.stop();
        let mut all = Observations::default();
        for client in self.clients.drain(..) {
            let seen = client.join();
            all.merge(seen.map_err(|_| io::Error::other("a client of the load panicked"))?);
        }
        all.first_violation = self.shared.take_violation();
        Ok(all)
    }

    fn stop(&self) {
        self.shared.stop();
    }
}

impl Drop for ClientLoad {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Sends reads, writes, transactions and counter operations on keys that all clients share.
fn run_mixed(mut client: Client, mut dice: Dice) -> Observations {
    while !client.shared.is_stopping() {
        let generation = client.shared.key_set_number();
        let register = format!("r{generation}.{}", dice.below(REGISTER_COUNT));
        let counter = format!("c{generation}.{}", dice.below(COUNTER_COUNT));
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
        pause_randomly(&mut dice);
    }
    client.observations
}

/// Reads all keys in one pipeline, repeatedly. So a node that resumes or is cut off always has
/// reads to answer, none of which may return an old value.
fn run_reading(mut client: Client) -> Observations {
    while !client.shared.is_stopping() {
        let generation = client.shared.key_set_number();
        let registers = (0..REGISTER_COUNT).map(|number| format!("r{generation}.{number}"));
        let counters = (0..COUNTER_COUNT).map(|number| format!("c{generation}.{number}"));
        let keys: Vec<String> = registers.chain(counters).collect();
        client.read_all(&keys);
        thread::sleep(READ_PAUSE);
    }
    client.observations
}

/// Inserts keys that no other client uses, each only once, to find out whether any are lost.
fn run_inserting(mut client: Client, mut dice: Dice) -> Observations {
    while !client.shared.is_stopping() {
        client.insert();
        pause_randomly(&mut dice);
    }
    client.observations
}
