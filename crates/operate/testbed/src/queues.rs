//! Lists used as queues: clients push, move and take elements while nodes fail, and the operations
//! are recorded.
//!
//! The first queue is one list. Elements of the second are moved to another list before they are
//! taken. No command is sent twice. [`judge`] checks the history.

pub mod judge;

use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use quorate_core::dice::Dice;

use self::judge::{History, Push, Take};
use crate::{
    nodes::START_TIMEOUT,
    resp::{Reply, RespConnection},
    wait,
};

/// Lists of each queue: the one to push to, and the one to take from.
pub const QUEUE_LISTS: [[&str; 2]; 2] = [["queue", "queue"], ["queue:new", "queue:moved"]];
/// Pause before reconnecting to a node that refused the connection.
const RECONNECT_PAUSE: Duration = Duration::from_millis(20);
/// Maximum pause of a client between two commands, in microseconds.
const THINK_TIME_US_MAX: u64 = 4000;
/// Timeouts of blocking commands in seconds. They are shorter than the client's own timeout.
const BLOCKING_TIMEOUTS_S: [&str; 3] = ["0.05", "0.4", "1"];

/// Kind of work that a client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientWork {
    Push,
    /// Moves elements of the second queue from its first list to its second list.
    MoveElements,
    /// Takes elements from the queue at this index.
    TakeFrom(usize),
}

/// Work of the clients of each node. Most of them take, so that takers usually wait.
const CLIENT_WORK: [ClientWork; 6] = [
    ClientWork::Push,
    ClientWork::TakeFrom(0),
    ClientWork::TakeFrom(0),
    ClientWork::MoveElements,
    ClientWork::TakeFrom(1),
    ClientWork::TakeFrom(1),
];

#[derive(Debug)]
struct Shared {
    addresses: Vec<String>,
    started_at: Instant,
    is_pushing: AtomicBool,
    is_working: AtomicBool,
    taken_count: AtomicU64,
    first_violation: Mutex<Option<String>>,
}

impl Shared {
    fn now_nanos(&self) -> u64 {
        u64::try_from(self.started_at.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Running clients that use the queues.
#[derive(Debug)]
pub struct QueueLoad {
    shared: Arc<Shared>,
    clients: Vec<JoinHandle<History>>,
}

impl QueueLoad {
    /// Starts clients for every node. `seed` determines their random choices.
    pub fn start(addresses: Vec<String>, seed: u64) -> io::Result<Self> {
        let nodes = addresses.len();
        let shared = Arc::new(Shared {
            addresses,
            started_at: Instant::now(),
            is_pushing: AtomicBool::new(true),
            is_working: AtomicBool::new(true),
            taken_count: AtomicU64::new(0),
            first_violation: Mutex::default(),
        });
        let mut load = Self { shared: Arc::clone(&shared), clients: Vec::new() };
        for node in 0..nodes {
            for work in CLIENT_WORK {
                let number = load.clients.len() as u64;
                let mut client = QueueClient {
                    client_id: number,
                    node_index: node,
                    pushed_count: 0,
                    link: None,
                    random: Dice::new(seed ^ (number << 32)),
                    history: History::new(QUEUE_LISTS.len()),
                    shared: Arc::clone(&shared),
                };
                let run = move || {
                    client.run(work);
                    client.history
                };
                load.clients.push(thread::Builder::new().spawn(run)?);
            }
        }
        Ok(load)
    }

    pub fn taken_count(&self) -> u64 {
        self.shared.taken_count.load(Ordering::Relaxed)
    }

    /// Stops pushing, waits until the queues are empty, then stops the clients. Returns their
    /// history, including the remaining contents.
    pub fn finish(mut self) -> io::Result<History> {
        self.shared.is_pushing.store(false, Ordering::SeqCst);
        let emptied = wait::wait_at_most(START_TIMEOUT, "all that was pushed to be taken", || {
            let left = self.remaining_elements().ok()?;
            left.iter().all(Vec::is_empty).then_some(())
        });
        self.stop();
        let mut all = History::new(QUEUE_LISTS.len());
        for client in self.clients.drain(..) {
            let seen = client.join();
            all.merge(seen.map_err(|_| io::Error::other("a client of a queue panicked"))?);
        }
        emptied?;
        let strange = self.shared.first_violation.lock();
        if let Some(what) = &*strange.unwrap_or_else(PoisonError::into_inner) {
            return Err(io::Error::other(what.clone()));
        }
        // A push without a reply may still have taken effect.
        all.remaining = self.remaining_elements()?;
        Ok(all)
    }

    /// Reads the contents of all queues in one transaction, oldest element first.
    fn remaining_elements(&self) -> io::Result<Vec<Vec<String>>> {
        let address = self.shared.addresses.first().map_or("", String::as_str);
        let mut link = RespConnection::connect(address)?;
        let lists = QUEUE_LISTS.map(|[new, old]| [old, new]);
        let lists = lists.iter().flatten().copied();
        let reads: Vec<[&str; 4]> = lists.map(|list| ["LRANGE", list, "0", "-1"]).collect();
        let mut commands: Vec<&[&str]> = vec![&["MULTI"]];
        commands.extend(reads.iter().map(<[&str; 4]>::as_slice));
        commands.push(&["EXEC"]);
        link.send_commands(&commands)?;
        let mut last = Reply::Null;
        for _ in 0..commands.len() {
            last = link.receive_reply()?;
        }
        let strange = || io::Error::other("no lists");
        let Reply::Array(lists) = last else {
            return Err(strange());
        };
        let lists = lists.into_iter().map(reply_texts).collect::<Option<Vec<_>>>();
        let lists = lists.ok_or_else(strange)?;
        let queues = lists.chunks(2).zip(QUEUE_LISTS);
        let one = |(pair, [new, old]): (&[Vec<String>], [&str; 2])| {
            // The transaction reads a queue with a single list twice.
            let lists = if new == old { 1 } else { 2 };
            let rows = pair.iter().take(lists).flat_map(|list| list.iter().rev());
            rows.cloned().collect()
        };
        Ok(queues.map(one).collect())
    }

    fn stop(&self) {
        self.shared.is_pushing.store(false, Ordering::SeqCst);
        self.shared.is_working.store(false, Ordering::SeqCst);
    }
}

impl Drop for QueueLoad {
    fn drop(&mut self) {
        self.stop();
    }
}

fn reply_texts(reply: Reply) -> Option<Vec<String>> {
    match reply {
        Reply::Array(replies) => replies.into_iter().map(Reply::text).collect(),
        _ => None,
    }
}

/// A client that is connected to one node.
#[derive(Debug)]
struct QueueClient {
    client_id: u64,
    node_index: usize,
    pushed_count: u64,
    link: Option<RespConnection>,
    random: Dice,
    history: History,
    shared: Arc<Shared>,
}

/// Outcome of a command, to the client's knowledge.
enum Outcome {
    Done(Reply),
    /// The command was not executed.
    Refused,
    Unknown,
}

impl QueueClient {
    fn run(&mut self, work: ClientWork) {
        while self.shared.is_working.load(Ordering::SeqCst) {
            match work {
                ClientWork::Push if !self.shared.is_pushing.load(Ordering::SeqCst) => return,
                ClientWork::Push => self.push(),
                ClientWork::MoveElements => self.move_element(),
                ClientWork::TakeFrom(queue) => self.take_element(queue),
            }
            let pause = self.random.below(THINK_TIME_US_MAX);
            thread::sleep(Duration::from_micros(pause));
        }
    }

    fn run_command(&mut self, command: &[&str]) -> Outcome {
        if self.link.is_none() {
            self.link = RespConnection::connect(&self.shared.addresses[self.node_index]).ok();
        }
        let Some(link) = &mut self.link else {
            thread::sleep(RECONNECT_PAUSE);
            return Outcome::Refused;
        };
        let text = match link.run_command(command) {
            Ok(Reply::Error(text)) => text,
            Ok(reply) => return Outcome::Done(reply),
            Err(_) => {
                // A late reply must not be mistaken for the reply to a later command.
                self.link = None;
                return Outcome::Unknown;
            }
        };
        match text.split(' ').next() {
            Some("BUSY" | "NOQUORUM" | "DISKFULL") => Outcome::Refused,
            Some("UNKNOWN") => Outcome::Unknown,
            _ => {
                self.record_violation(&format!("{text} for {command:?}"));
                Outcome::Unknown
            }
        }
    }

    fn record_violation(&self, what: &str) {
        let strange = self.shared.first_violation.lock();
        let mut strange = strange.unwrap_or_else(PoisonError::into_inner);
        strange.get_or_insert_with(|| what.to_owned());
    }

    fn push(&mut self) {
        self.pushed_count += 1;
        let element = format!("{}.{}", self.client_id, self.pushed_count);
        let queue = self.random.index(QUEUE_LISTS.len());
        let call = self.shared.now_nanos();
        let outcome = self.run_command(&["LPUSH", QUEUE_LISTS[queue][0], &element]);
        let end = match outcome {
            Outcome::Refused => return,
            Outcome::Unknown => None,
            Outcome::Done(Reply::Number(_)) => Some(self.shared.now_nanos()),
            Outcome::Done(reply) => return self.record_violation(&format!("{reply:?} for LPUSH")),
        };
        self.history.pushes.push(Push {
            queue_index: queue,
            element,
            called_at: call,
            acknowledged_at: end,
        });
    }

    fn move_element(&mut self) {
        let [from, to] = QUEUE_LISTS[1];
        let wait = self.random.pick(&BLOCKING_TIMEOUTS_S);
        match self.run_command(&["BLMOVE", from, to, "RIGHT", "LEFT", wait]) {
            // In either case, the element is in one of the two lists.
            Outcome::Done(Reply::Bulk(_) | Reply::Null) | Outcome::Refused | Outcome::Unknown => {}
            Outcome::Done(reply) => self.record_violation(&format!("{reply:?} for BLMOVE")),
        }
    }

    fn take_element(&mut self, queue: usize) {
        let list = QUEUE_LISTS[queue][1];
        let call = self.shared.now_nanos();
        let outcome = match self.random.below(4) {
            0 => self.run_command(&["RPOP", list]),
            _ => {
                let wait = self.random.pick(&BLOCKING_TIMEOUTS_S);
                self.run_command(&["BRPOP", list, wait])
            }
        };
        let element = match outcome {
            Outcome::Refused | Outcome::Done(Reply::Null) => return,
            Outcome::Unknown => {
                self.history.unanswered_takes[queue] += 1;
                return;
            }
            Outcome::Done(Reply::Bulk(element)) => element,
            Outcome::Done(reply) => match reply_texts(reply).and_then(|mut both| both.pop()) {
                Some(element) => element,
                None => return self.record_violation("a reply to BRPOP without an element"),
            },
        };
        self.shared.taken_count.fetch_add(1, Ordering::Relaxed);
        let end = self.shared.now_nanos();
        self.history.takes.push(Take {
            queue_index: queue,
            element,
            called_at: call,
            returned_at: end,
        });
    }
}
