//! Writers whose acknowledged writes are compared afterwards on every node.
//!
//! In every turn, a writer writes a key that is never written again, and overwrites one of a few
//! keys. Logs therefore keep growing while the state remains small. A snapshot of an ever larger
//! state would take so long to send that the log would be trimmed before it arrived. Some writers
//! never retry, so a write without a reply has an unknown outcome. Others use `quorate-client`,
//! which retries until it receives a reply. For these writers any error is a failure.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use quorate_client::{Client, Options, Reply as Answer};

use crate::{
    etcd,
    nodes::{Nodes, PATIENCE},
    resp::{Link, Reply},
};

/// Number of turns in which a writer writes large values. By then the state is so large that
/// sending a snapshot takes noticeable time.
const GROWING_TURNS: u64 = 4096;
/// Number of keys that each writer overwrites in turn.
const PLACES: u64 = 4;

/// Sizes and pauses of a writer's writes.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// Size in bytes of a value that is written once, in the first turns.
    once: usize,
    once_later: usize,
    /// Size in bytes of a value that is overwritten.
    over: usize,
    /// Pause between two turns, because the nodes share their CPUs with the tests.
    pause: Duration,
}

/// Pace at which logs are trimmed and sending a snapshot takes noticeable time.
const BUSY: Pace =
    Pace { once: 4 << 10, once_later: 64, over: 64 << 10, pause: Duration::from_millis(4) };
/// Pace that a cluster can sustain for days.
const CALM: Pace =
    Pace { once: 256, once_later: 256, over: 4 << 10, pause: Duration::from_millis(10) };

/// Time without a response after which a retrying client leaves a node.
const ATTEMPT: Duration = Duration::from_secs(1);

/// Running writers and the state that they share.
#[derive(Debug)]
pub struct Writers {
    threads: Vec<JoinHandle<Written>>,
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
}

/// Last known state of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Key {
    /// Number of the last acknowledged write.
    acknowledged: Option<u64>,
    /// Numbers of the writes that may take effect at any time, or never.
    unknown: BTreeSet<u64>,
}

impl Key {
    fn allows(&self, found: Option<u64>) -> bool {
        found == self.acknowledged || found.is_some_and(|found| self.unknown.contains(&found))
    }
}

/// Outcome of all writes of a run.
#[derive(Debug, Default)]
pub struct Written {
    keys: BTreeMap<String, Key>,
    /// First reply that violates the protocol.
    strange: Option<String>,
}

impl Writers {
    /// Starts one writer per address, which moves on if its node does not respond.
    pub fn start(addresses: &[String]) -> Self {
        Self::few(addresses.len(), addresses)
    }

    /// Starts `count` writers that never retry, distributed over the addresses in order.
    pub fn few(count: usize, addresses: &[String]) -> Self {
        Self::of(count, addresses, BUSY, |addresses| Once { link: None, addresses, next: 0 })
    }

    /// Starts `count` writers that retry. [`Self::end`] returns an error if one of them fails.
    pub fn repeating(count: usize, addresses: &[String]) -> Self {
        Self::of(count, addresses, BUSY, repeating)
    }

    /// Starts one retrying writer per address, at a pace that a cluster can sustain for days.
    pub fn calm(addresses: &[String]) -> Self {
        Self::of(addresses.len(), addresses, CALM, repeating)
    }

    /// Starts one slow writer per address, which uses etcd's JSON gateway and does not retry.
    pub fn calm_etcd(addresses: &[String]) -> Self {
        Self::etcd(addresses, CALM)
    }

    /// Starts one fast writer per address, which uses etcd's JSON gateway and does not retry.
    pub fn busy_etcd(addresses: &[String]) -> Self {
        Self::etcd(addresses, BUSY)
    }

    fn etcd(addresses: &[String], pace: Pace) -> Self {
        Self::of(addresses.len(), addresses, pace, |addresses| Etcd { addresses, next: 0 })
    }

    fn of<T: Target + Send + 'static>(
        count: usize,
        addresses: &[String],
        pace: Pace,
        target: impl Fn(Vec<String>) -> T,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let acknowledged = Arc::new(AtomicU64::new(0));
        let threads = (0..count).map(|writer| {
            let (stop, acknowledged) = (Arc::clone(&stop), Arc::clone(&acknowledged));
            let mut addresses = addresses.to_vec();
            let first = writer % addresses.len();
            addresses.rotate_left(first);
            let mut target = target(addresses);
            thread::spawn(move || write(writer, &mut target, pace, &stop, &acknowledged))
        });
        Self { threads: threads.collect(), stop, acknowledged }
    }

    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// Stops the writers and compares acknowledged writes on every node. Returns the keys compared.
    pub fn compare(self, nodes: &mut Nodes) -> io::Result<usize> {
        let written = self.end()?;
        nodes.wait_until_all_serve()?;
        nodes.wait_until_equal()?;
        let mut keys = 0;
        for address in nodes.client_addresses() {
            keys = match nodes.speak_etcd() {
                true => written.compare_with(&address, |name| etcd::value(&address, name))?,
                false => written.compare(&address)?,
            };
        }
        Ok(keys)
    }

    /// Stops the writers and returns the outcome of their writes.
    pub fn end(mut self) -> io::Result<Written> {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Written::default();
        for thread in self.threads.drain(..) {
            let written = thread.join();
            let mut written = written.map_err(|_| io::Error::other("a writer panicked"))?;
            all.keys.append(&mut written.keys);
            all.strange = all.strange.or(written.strange);
        }
        match &all.strange {
            Some(what) => Err(io::Error::other(what.clone())),
            None => Ok(all),
        }
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Written {
    /// Compares every key with the local state of the node at `address`. Returns the number of
    /// keys.
    pub fn compare(&self, address: &str) -> io::Result<usize> {
        let mut link = Link::connect(address)?;
        link.ask(&["READONLY"])?;
        self.compare_with(address, |name| match link.ask(&["GET", name])? {
            Reply::Bulk(text) => Ok(Some(text)),
            Reply::Nothing => Ok(None),
            other => Err(io::Error::other(format!("{name}: {other:?}"))),
        })
    }

    /// Compares every key with the value that `read` returns for it.
    fn compare_with(
        &self,
        address: &str,
        mut read: impl FnMut(&str) -> io::Result<Option<String>>,
    ) -> io::Result<usize> {
        for (name, key) in &self.keys {
            let found = read(name)?.map(|text| number(name, &text)).transpose()?;
            if !key.allows(found) {
                let why = format!("{address} has {found:?} of {name}, and {key:?} was seen");
                return Err(io::Error::other(why));
            }
        }
        Ok(self.keys.len())
    }
}

fn value(number: u64, bytes: usize) -> String {
    let mut text = format!("{number}:");
    let letter = char::from(b'a' + (number % 26) as u8);
    text.extend(std::iter::repeat_n(letter, bytes - text.len()));
    text
}

/// Returns the number of the write that produced a value. Returns an error if the value is corrupt.
fn number(name: &str, text: &str) -> io::Result<u64> {
    let number = text.split_once(':').and_then(|(head, _)| head.parse().ok());
    let whole = number.filter(|number| *text == value(*number, text.len()));
    whole.ok_or_else(|| io::Error::other(format!("{name} is of no write: {} bytes", text.len())))
}

/// Outcome of a write, to the client's knowledge.
enum Fate {
    Done,
    /// The write may take effect at any time, or never.
    Unknown,
    /// The reply violates the protocol.
    Strange(String),
}

/// Destination of a writer's writes.
trait Target {
    /// Writes a value. Returns `None` if no node is reachable and nothing was sent.
    fn set(&mut self, name: &str, value: &str) -> Option<Fate>;
}

/// Target that tries one node after another but sends nothing twice.
struct Once {
    link: Option<Link>,
    addresses: Vec<String>,
    next: usize,
}

impl Target for Once {
    fn set(&mut self, name: &str, value: &str) -> Option<Fate> {
        if self.link.is_none() {
            let address = &self.addresses[self.next % self.addresses.len()];
            self.next += 1;
            self.link = Link::connect(address).ok();
        }
        let link = self.link.as_mut()?;
        Some(match link.ask(&["SET", name, value]) {
            Ok(Reply::Simple(said)) if said == "OK" => Fate::Done,
            Ok(Reply::Error(_)) => Fate::Unknown,
            Ok(other) => Fate::Strange(format!("SET: {other:?}")),
            Err(_) => {
                self.link = None;
                Fate::Unknown
            }
        })
    }
}

impl Target for Client {
    fn set(&mut self, name: &str, value: &str) -> Option<Fate> {
        Some(match self.run(&[b"SET", name.as_bytes(), value.as_bytes()]) {
            Ok(Answer::Simple(said)) if said == "OK" => Fate::Done,
            Ok(other) => Fate::Strange(format!("SET: {other}")),
            Err(error) => Fate::Strange(format!("SET: {error}")),
        })
    }
}

/// Target that uses etcd's JSON gateway. Tries one node after another but sends nothing twice.
struct Etcd {
    addresses: Vec<String>,
    next: usize,
}

impl Target for Etcd {
    fn set(&mut self, name: &str, value: &str) -> Option<Fate> {
        let address = &self.addresses[self.next % self.addresses.len()];
        Some(match etcd::put(address, name, value) {
            Ok(()) => Fate::Done,
            Err(_) => {
                self.next += 1;
                Fate::Unknown
            }
        })
    }
}

fn repeating(addresses: Vec<String>) -> Client {
    let options = Options {
        deadline: PATIENCE,
        attempt: ATTEMPT,
        tls: crate::trust::certificate(),
        ..Options::default()
    };
    Client::new(&addresses, options)
}

fn write(
    writer: usize,
    target: &mut impl Target,
    pace: Pace,
    stop: &AtomicBool,
    acknowledged: &AtomicU64,
) -> Written {
    let mut written = Written::default();
    let mut turn = 0;
    while !stop.load(Ordering::Relaxed) {
        thread::sleep(pace.pause);
        turn += 1;
        let bytes = if turn <= GROWING_TURNS { pace.once } else { pace.once_later };
        let once = (format!("once:{writer}:{turn}"), bytes);
        let over = (format!("over:{writer}:{}", turn % PLACES), pace.over);
        for (name, bytes) in [once, over] {
            let Some(fate) = target.set(&name, &value(turn, bytes)) else {
                continue;
            };
            let key = written.keys.entry(name).or_default();
            match fate {
                Fate::Done => {
                    key.acknowledged = Some(turn);
                    acknowledged.fetch_add(1, Ordering::Relaxed);
                }
                Fate::Unknown => {
                    key.unknown.insert(turn);
                }
                Fate::Strange(what) => {
                    key.unknown.insert(turn);
                    written.strange.get_or_insert(what);
                }
            }
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_acknowledged_or_unknown_values_are_allowed() {
        let key = Key { acknowledged: Some(5), unknown: [3, 7].into() };
        let allowed = |found| key.allows(found);
        assert!([3, 5, 7].into_iter().all(|found| allowed(Some(found))));
        assert!(!allowed(None) && !allowed(Some(4)) && !allowed(Some(8)));
        let never = Key::default();
        assert!(never.allows(None) && !never.allows(Some(1)));
    }

    #[test]
    fn value_contains_the_number_of_its_write() {
        let text = value(17, BUSY.once);
        assert_eq!((number("k", &text).unwrap(), text.len()), (17, BUSY.once));
        let mixed = text.replacen('r', "s", 1);
        assert!(number("k", &mixed).is_err());
        assert!(number("k", "").is_err());
    }
}
