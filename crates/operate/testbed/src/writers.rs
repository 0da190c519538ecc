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
    nodes::{NodeCluster, START_TIMEOUT},
    resp::{Reply, RespConnection},
};

/// Number of turns in which a writer writes large values. By then the state is so large that
/// sending a snapshot takes noticeable time.
const GROWING_TURNS: u64 = 4096;
/// Number of keys that each writer overwrites in turn.
const OVERWRITTEN_KEYS: u64 = 4;

/// Sizes and pauses of a writer's writes.
#[derive(Clone, Copy, Debug)]
struct WritePace {
    /// Size in bytes of a value that is written once, in the first turns.
    new_value_bytes: usize,
    later_value_bytes: usize,
    /// Size in bytes of a value that is overwritten.
    overwrite_bytes: usize,
    /// Pause between two turns, because the nodes share their CPUs with the tests.
    pause: Duration,
}

/// Pace at which logs are trimmed and sending a snapshot takes noticeable time.
const BUSY_PACE: WritePace = WritePace {
    new_value_bytes: 4 << 10,
    later_value_bytes: 64,
    overwrite_bytes: 64 << 10,
    pause: Duration::from_millis(4),
};
/// Pace that a cluster can sustain for days.
const CALM_PACE: WritePace = WritePace {
    new_value_bytes: 256,
    later_value_bytes: 256,
    overwrite_bytes: 4 << 10,
    pause: Duration::from_millis(10),
};

/// Time without a response after which a retrying client leaves a node.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(1);

/// Running writers and the state that they share.
#[derive(Debug)]
pub struct Writers {
    threads: Vec<JoinHandle<WriteOutcomes>>,
    stop: Arc<AtomicBool>,
    acknowledged_count: Arc<AtomicU64>,
}

/// Last known state of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct KeyState {
    /// Number of the last acknowledged write.
    last_acknowledged: Option<u64>,
    /// Numbers of the writes that may take effect at any time, or never.
    unknown_writes: BTreeSet<u64>,
}

impl KeyState {
    fn allows(&self, found: Option<u64>) -> bool {
        found == self.last_acknowledged
            || found.is_some_and(|found| self.unknown_writes.contains(&found))
    }
}

/// Outcome of all writes of a run.
#[derive(Debug, Default)]
pub struct WriteOutcomes {
    keys: BTreeMap<String, KeyState>,
    /// First reply that violates the protocol.
    first_violation: Option<String>,
}

impl Writers {
    /// Starts one writer per address, which moves on if its node does not respond.
    pub fn start(addresses: &[String]) -> Self {
        Self::start_unretried(addresses.len(), addresses)
    }

    /// Starts `count` writers that never retry, distributed over the addresses in order.
    pub fn start_unretried(count: usize, addresses: &[String]) -> Self {
        Self::start_with(count, addresses, BUSY_PACE, |addresses| RespTarget {
            link: None,
            addresses,
            next: 0,
        })
    }

    /// Starts `count` writers that retry. [`Self::end`] returns an error if one of them fails.
    pub fn start_retrying(count: usize, addresses: &[String]) -> Self {
        Self::start_with(count, addresses, BUSY_PACE, retrying_client)
    }

    /// Starts one retrying writer per address, at a pace that a cluster can sustain for days.
    pub fn start_calm(addresses: &[String]) -> Self {
        Self::start_with(addresses.len(), addresses, CALM_PACE, retrying_client)
    }

    /// Starts one slow writer per address, which uses etcd's JSON gateway and does not retry.
    pub fn start_calm_etcd(addresses: &[String]) -> Self {
        Self::start_etcd(addresses, CALM_PACE)
    }

    /// Starts one fast writer per address, which uses etcd's JSON gateway and does not retry.
    pub fn start_busy_etcd(addresses: &[String]) -> Self {
        Self::start_etcd(addresses, BUSY_PACE)
    }

    fn start_etcd(addresses: &[String], pace: WritePace) -> Self {
        Self::start_with(addresses.len(), addresses, pace, |addresses| EtcdTarget {
            addresses,
            next: 0,
        })
    }

    fn start_with<T: WriteTarget + Send + 'static>(
        count: usize,
        addresses: &[String],
        pace: WritePace,
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
            thread::spawn(move || write_until_end(writer, &mut target, pace, &stop, &acknowledged))
        });
        Self { threads: threads.collect(), stop, acknowledged_count: acknowledged }
    }

    pub fn acknowledged_count(&self) -> u64 {
        self.acknowledged_count.load(Ordering::Relaxed)
    }

    /// Stops the writers and compares acknowledged writes on every node. Returns the keys compared.
    pub fn compare(self, nodes: &mut NodeCluster) -> io::Result<usize> {
        let written = self.end()?;
        nodes.wait_until_all_serve()?;
        nodes.wait_until_equal()?;
        let mut keys = 0;
        for address in nodes.client_addresses() {
            keys = match nodes.uses_etcd() {
                true => written.compare_with(&address, |name| etcd::value(&address, name))?,
                false => written.compare(&address)?,
            };
        }
        Ok(keys)
    }

    /// Stops the writers and returns the outcome of their writes.
    pub fn end(mut self) -> io::Result<WriteOutcomes> {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = WriteOutcomes::default();
        for thread in self.threads.drain(..) {
            let written = thread.join();
            let mut written = written.map_err(|_| io::Error::other("a writer panicked"))?;
            all.keys.append(&mut written.keys);
            all.first_violation = all.first_violation.or(written.first_violation);
        }
        match &all.first_violation {
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

impl WriteOutcomes {
    /// Compares every key with the local state of the node at `address`. Returns the number of
    /// keys.
    pub fn compare(&self, address: &str) -> io::Result<usize> {
        let mut link = RespConnection::connect(address)?;
        link.run_command(&["READONLY"])?;
        self.compare_with(address, |name| match link.run_command(&["GET", name])? {
            Reply::Bulk(text) => Ok(Some(text)),
            Reply::Null => Ok(None),
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
            let found = read(name)?.map(|text| write_number(name, &text)).transpose()?;
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
fn write_number(name: &str, text: &str) -> io::Result<u64> {
    let number = text.split_once(':').and_then(|(head, _)| head.parse().ok());
    let whole = number.filter(|number| *text == value(*number, text.len()));
    whole.ok_or_else(|| io::Error::other(format!("{name} is of no write: {} bytes", text.len())))
}

/// Outcome of a write, to the client's knowledge.
enum WriteOutcome {
    Done,
    /// The write may take effect at any time, or never.
    Unknown,
    /// The reply violates the protocol.
    ProtocolViolation(String),
}

/// Destination of a writer's writes.
trait WriteTarget {
    /// Writes a value. Returns `None` if no node is reachable and nothing was sent.
    fn set(&mut self, name: &str, value: &str) -> Option<WriteOutcome>;
}

/// Target that tries one node after another but sends nothing twice.
struct RespTarget {
    link: Option<RespConnection>,
    addresses: Vec<String>,
    next: usize,
}

impl WriteTarget for RespTarget {
    fn set(&mut self, name: &str, value: &str) -> Option<WriteOutcome> {
        if self.link.is_none() {
            let address = &self.addresses[self.next % self.addresses.len()];
            self.next += 1;
            self.link = RespConnection::connect(address).ok();
        }
        let link = self.link.as_mut()?;
        Some(match link.run_command(&["SET", name, value]) {
            Ok(Reply::Simple(said)) if said == "OK" => WriteOutcome::Done,
            Ok(Reply::Error(_)) => WriteOutcome::Unknown,
            Ok(other) => WriteOutcome::ProtocolViolation(format!("SET: {other:?}")),
            Err(_) => {
                self.link = None;
                WriteOutcome::Unknown
            }
        })
    }
}

impl WriteTarget for Client {
    fn set(&mut self, name: &str, value: &str) -> Option<WriteOutcome> {
        Some(match self.run(&[b"SET", name.as_bytes(), value.as_bytes()]) {
            Ok(Answer::Simple(said)) if said == "OK" => WriteOutcome::Done,
            Ok(other) => WriteOutcome::ProtocolViolation(format!("SET: {other}")),
            Err(error) => WriteOutcome::ProtocolViolation(format!("SET: {error}")),
        })
    }
}

/// Target that uses etcd's JSON gateway. Tries one node after another but sends nothing twice.
struct EtcdTarget {
    addresses: Vec<String>,
    next: usize,
}

impl WriteTarget for EtcdTarget {
    fn set(&mut self, name: &str, value: &str) -> Option<WriteOutcome> {
        let address = &self.addresses[self.next % self.addresses.len()];
        Some(match etcd::put(address, name, value) {
            Ok(()) => WriteOutcome::Done,
            Err(_) => {
                self.next += 1;
                WriteOutcome::Unknown
            }
        })
    }
}

fn retrying_client(addresses: Vec<String>) -> Client {
    let options = Options {
        command_timeout: START_TIMEOUT,
        attempt_timeout: ATTEMPT_TIMEOUT,
        tls: crate::trust::certificate(),
        ..Options::default()
    };
    Client::new(&addresses, options)
}

fn write_until_end(
    writer: usize,
    target: &mut impl WriteTarget,
    pace: WritePace,
    stop: &AtomicBool,
    acknowledged: &AtomicU64,
) -> WriteOutcomes {
    let mut written = WriteOutcomes::default();
    let mut turn = 0;
    while !stop.load(Ordering::Relaxed) {
        thread::sleep(pace.pause);
        turn += 1;
        let bytes =
            if turn <= GROWING_TURNS { pace.new_value_bytes } else { pace.later_value_bytes };
        let once = (format!("once:{writer}:{turn}"), bytes);
        let over = (format!("over:{writer}:{}", turn % OVERWRITTEN_KEYS), pace.overwrite_bytes);
        for (name, bytes) in [once, over] {
            let Some(fate) = target.set(&name, &value(turn, bytes)) else {
                continue;
            };
            let key = written.keys.entry(name).or_default();
            match fate {
                WriteOutcome::Done => {
                    key.last_acknowledged = Some(turn);
                    acknowledged.fetch_add(1, Ordering::Relaxed);
                }
                WriteOutcome::Unknown => {
                    key.unknown_writes.insert(turn);
                }
                WriteOutcome::ProtocolViolation(what) => {
                    key.unknown_writes.insert(turn);
                    written.first_violation.get_or_insert(what);
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
        let key = KeyState { last_acknowledged: Some(5), unknown_writes: [3, 7].into() };
        let allowed = |found| key.allows(found);
        assert!([3, 5, 7].into_iter().all(|found| allowed(Some(found))));
        assert!(!allowed(None) && !allowed(Some(4)) && !allowed(Some(8)));
        let never = KeyState::default();
        assert!(never.allows(None) && !never.allows(Some(1)));
    }

    #[test]
    fn value_contains_the_number_of_its_write() {
        let text = value(17, BUSY_PACE.new_value_bytes);
        assert_eq!(
            (write_number("k", &text).unwrap(), text.len()),
            (17, BUSY_PACE.new_value_bytes)
        );
        let mixed = text.replacen('r', "s", 1);
        assert!(write_number("k", &mixed).is_err());
        assert!(write_number("k", "").is_err());
    }
}
