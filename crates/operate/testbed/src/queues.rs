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
    nodes::PATIENCE,
    resp::{Link, Reply},
    wait,
};

/// Lists of each queue: the one to push to, and the one to take from.
pub const QUEUES: [[&str; 2]; 2] = [["queue", "queue"], ["queue:new", "queue:moved"]];
/// Pause before reconnecting to a node that refused the connection.
const RETRY: Duration = Duration::from_millis(20);
/// Maximum pause of a client between two commands, in microseconds.
const THINKING_US: u64 = 4000;
/// Timeouts of blocking commands in seconds. They are shorter than the client's own timeout.
const WAITS: [&str; 3] = ["0.05", "0.4", "1"];

/// Kind of work that a client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Push,
    /// Moves elements of the second queue from its first list to its second list.
    Move,
    /// Takes elements from the queue at this index.
    Take(usize),
}

/// Work of the clients of each node. Most of them take, so that takers usually wait.
const WORKS: [Work; 6] =
    [Work::Push, Work::Take(0), Work::Take(0), Work::Move, Work::Take(1), Work::Take(1)];

#[derive(Debug)]
struct Shared {
    addresses: Vec<String>,
    began: Instant,
    pushing: AtomicBool,
    working: AtomicBool,
    taken: AtomicU64,
    strange: Mutex<Option<String>>,
}

impl Shared {
    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Running clients that use the queues.
#[derive(Debug)]
pub struct Load {
    shared: Arc<Shared>,
    clients: Vec<JoinHandle<History>>,
}

impl Load {
    /// Starts clients for every node. `seed` determines their random choices.
    pub fn start(addresses: Vec<String>, seed: u64) -> io::Result<Self> {
        let nodes = addresses.len();
        let shared = Arc::new(Shared {
            addresses,
            began: Instant::now(),
            pushing: AtomicBool::new(true),
            working: AtomicBool::new(true),
            taken: AtomicU64::new(0),
            strange: Mutex::default(),
        });
        let mut load = Self { shared: Arc::clone(&shared), clients: Vec::new() };
        for node in 0..nodes {
            for work in WORKS {
                let number = load.clients.len() as u64;
                let mut client = Client {
                    number,
                    node,
                    pushed: 0,
                    link: None,
                    dice: Dice::new(seed ^ (number << 32)),
                    seen: History::new(QUEUES.len()),
                    shared: Arc::clone(&shared),
                };
                let run = move || {
                    client.run(work);
                    client.seen
                };
                load.clients.push(thread::Builder::new().spawn(run)?);
            }
        }
        Ok(load)
    }

    pub fn taken(&self) -> u64 {
        self.shared.taken.load(Ordering::Relaxed)
    }

    /// Stops pushing, waits until the queues are empty, then stops the clients. Returns their
    /// history, including the remaining contents.
    pub fn finish(mut self) -> io::Result<History> {
        self.shared.pushing.store(false, Ordering::SeqCst);
        let emptied = wait::at_most(PATIENCE, "all that was pushed to be taken", || {
            let left = self.left().ok()?;
            left.iter().all(Vec::is_empty).then_some(())
        });
        self.stop();
        let mut all = History::new(QUEUES.len());
        for client in self.clients.drain(..) {
            let seen = client.join();
            all.add(seen.map_err(|_| io::Error::other("a client of a queue panicked"))?);
        }
        emptied?;
        let strange = self.shared.strange.lock();
        if let Some(what) = &*strange.unwrap_or_else(PoisonError::into_inner) {
            return Err(io::Error::other(what.clone()));
        }
        // A push without a reply may still have taken effect.
        all.left = self.left()?;
        Ok(all)
    }

    /// Reads the contents of all queues in one transaction, oldest element first.
    fn left(&self) -> io::Result<Vec<Vec<String>>> {
        let address = self.shared.addresses.first().map_or("", String::as_str);
        let mut link = Link::connect(address)?;
        let lists = QUEUES.map(|[new, old]| [old, new]);
        let lists = lists.iter().flatten().copied();
        let reads: Vec<[&str; 4]> = lists.map(|list| ["LRANGE", list, "0", "-1"]).collect();
        let mut commands: Vec<&[&str]> = vec![&["MULTI"]];
        commands.extend(reads.iter().map(<[&str; 4]>::as_slice));
        commands.push(&["EXEC"]);
        link.send(&commands)?;
        let mut last = Reply::Nothing;
        for _ in 0..commands.len() {
            last = link.receive()?;
        }
        let strange = || io::Error::other("no lists");
        let Reply::Array(lists) = last else {
            return Err(strange());
        };
        let lists = lists.into_iter().map(texts).collect::<Option<Vec<_>>>();
        let lists = lists.ok_or_else(strange)?;
        let queues = lists.chunks(2).zip(QUEUES);
        let one = |(pair, [new, old]): (&[Vec<String>], [&str; 2])| {
            // The transaction reads a queue with a single list twice.
            let lists = if new == old { 1 } else { 2 };
            let rows = pair.iter().take(lists).flat_map(|list| list.iter().rev());
            rows.cloned().collect()
        };
        Ok(queues.map(one).collect())
    }

    fn stop(&self) {
        self.shared.pushing.store(false, Ordering::SeqCst);
        self.shared.working.store(false, Ordering::SeqCst);
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop();
    }
}

fn texts(reply: Reply) -> Option<Vec<String>> {
    match reply {
        Reply::Array(replies) => replies.into_iter().map(Reply::text).collect(),
        _ => None,
    }
}

/// A client that is connected to one node.
#[derive(Debug)]
struct Client {
    number: u64,
    node: usize,
    pushed: u64,
    link: Option<Link>,
    dice: Dice,
    seen: History,
    shared: Arc<Shared>,
}

/// Outcome of a command, to the client's knowledge.
enum Outcome {
    Done(Reply),
    /// The command was not executed.
    Refused,
    Unknown,
}

impl Client {
    fn run(&mut self, work: Work) {
        while self.shared.working.load(Ordering::SeqCst) {
            match work {
                Work::Push if !self.shared.pushing.load(Ordering::SeqCst) => return,
                Work::Push => self.push(),
                Work::Move => self.pass_on(),
                Work::Take(queue) => self.take(queue),
            }
            let pause = self.dice.below(THINKING_US);
            thread::sleep(Duration::from_micros(pause));
        }
    }

    fn ask(&mut self, command: &[&str]) -> Outcome {
        if self.link.is_none() {
            self.link = Link::connect(&self.shared.addresses[self.node]).ok();
        }
        let Some(link) = &mut self.link else {
            thread::sleep(RETRY);
            return Outcome::Refused;
        };
        let text = match link.ask(command) {
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
                self.strange(&format!("{text} for {command:?}"));
                Outcome::Unknown
            }
        }
    }

    fn strange(&self, what: &str) {
        let strange = self.shared.strange.lock();
        let mut strange = strange.unwrap_or_else(PoisonError::into_inner);
        strange.get_or_insert_with(|| what.to_owned());
    }

    fn push(&mut self) {
        self.pushed += 1;
        let element = format!("{}.{}", self.number, self.pushed);
        let queue = self.dice.index(QUEUES.len());
        let call = self.shared.now();
        let outcome = self.ask(&["LPUSH", QUEUES[queue][0], &element]);
        let end = match outcome {
            Outcome::Refused => return,
            Outcome::Unknown => None,
            Outcome::Done(Reply::Number(_)) => Some(self.shared.now()),
            Outcome::Done(reply) => return self.strange(&format!("{reply:?} for LPUSH")),
        };
        self.seen.pushes.push(Push { queue, element, call, end });
    }

    fn pass_on(&mut self) {
        let [from, to] = QUEUES[1];
        let wait = self.dice.pick(&WAITS);
        match self.ask(&["BLMOVE", from, to, "RIGHT", "LEFT", wait]) {
            // In either case, the element is in one of the two lists.
            Outcome::Done(Reply::Bulk(_) | Reply::Nothing)
            | Outcome::Refused
            | Outcome::Unknown => {}
            Outcome::Done(reply) => self.strange(&format!("{reply:?} for BLMOVE")),
        }
    }

    fn take(&mut self, queue: usize) {
        let list = QUEUES[queue][1];
        let call = self.shared.now();
        let outcome = match self.dice.below(4) {
            0 => self.ask(&["RPOP", list]),
            _ => {
                let wait = self.dice.pick(&WAITS);
                self.ask(&["BRPOP", list, wait])
            }
        };
        let element = match outcome {
            Outcome::Refused | Outcome::Done(Reply::Nothing) => return,
            Outcome::Unknown => {
                self.seen.unanswered[queue] += 1;
                return;
            }
            Outcome::Done(Reply::Bulk(element)) => element,
            Outcome::Done(reply) => match texts(reply).and_then(|mut both| both.pop()) {
                Some(element) => element,
                None => return self.strange("a reply to BRPOP without an element"),
            },
        };
        self.shared.taken.fetch_add(1, Ordering::Relaxed);
        let end = self.shared.now();
        self.seen.takes.push(Take { queue, element, call, end });
    }
}
