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
    seen::{Seen, Shared, think},
    session::Session,
};

/// Number of clients per node, for each kind of client: mixed operations on shared keys, reads
/// only, inserts of new keys, and sessions.
const MIXED: usize = 2;
const READING: usize = 1;
const INSERTING: usize = 1;
const SESSIONS: usize = 1;
/// Pause of a reading client between two pipelines.
const BETWEEN_READS: Duration = Duration::from_millis(4);
const REGISTERS: u64 = 4;
const COUNTERS: u64 = 2;

#[derive(Debug)]
pub struct Load {
    /// State that all clients share.
    pub shared: Arc<Shared>,
    clients: Vec<JoinHandle<Seen>>,
}

impl Load {
    /// Starts clients of every kind for every node. `seed` determines their random choices.
    pub fn start(addresses: Vec<String>, seed: u64) -> io::Result<Self> {
        let shared = Arc::new(Shared::new(addresses));
        let mut load = Self { shared: Arc::clone(&shared), clients: Vec::new() };
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

    /// Returns the number of operations with a known outcome.
    pub fn known(&self) -> u64 {
        self.shared.known()
    }

    /// Stops the clients once they have all replies, and returns their observations.
    pub fn finish(mut self) -> io::Result<Seen> {
        self.stop();
        let mut all = Seen::default();
        for client in self.clients.drain(..) {
            let seen = client.join();
            all.add(seen.map_err(|_| io::Error::other("a client of the load panicked"))?);
        }
        all.strange = self.shared.take_strange();
        Ok(all)
    }

    fn stop(&self) {
        self.shared.stop();
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Sends reads, writes, transactions and counter operations on keys that all clients share.
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

/// Reads all keys in one pipeline, repeatedly. So a node that resumes or is cut off always has
/// reads to answer, none of which may return an old value.
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

/// Inserts keys that no other client uses, each only once, to find out whether any are lost.
fn inserting(mut client: Client, mut dice: Dice) -> Seen {
    while !client.shared.stopping() {
        client.insert();
        think(&mut dice);
    }
    client.seen
}
