//! A client with a session, which retries a command on any node until the outcome is known.

use std::{sync::Arc, thread, time::Duration};

use crate::resp::{Link, Reply};
use quorate_core::dice::Dice;

use super::{
    client::{Outcome, held, outcome},
    history::{Operation, What},
    seen::{Seen, Shared, TOTAL, think},
};

/// Pause before the next attempt, on another node.
const RETRY: Duration = Duration::from_millis(20);
/// Maximum number of attempts after the end of the run, when all nodes serve again.
const LAST_ATTEMPTS: u32 = 100;

/// A client whose commands are executed exactly once, even if nodes or connections fail.
pub(super) struct Session {
    client: usize,
    node: usize,
    id: Option<String>,
    next: u64,
    link: Option<Link>,
    shared: Arc<Shared>,
    seen: Seen,
}

impl Session {
    pub(super) fn new(client: usize, node: usize, shared: Arc<Shared>) -> Self {
        Self { client, node, id: None, next: 1, link: None, shared, seen: Seen::default() }
    }

    /// Increments counters and swaps values until the run ends. Returns the observations.
    pub(super) fn run(mut self, mut dice: Dice) -> Seen {
        while !self.shared.stopping() {
            let generation = self.shared.generation();
            match dice.below(10) {
                0..4 => self.count(&format!("c{generation}.{}", dice.below(2)), &mut dice),
                4..7 => self.swap(&format!("r{generation}.{}", dice.below(4))),
                _ => self.count_total(),
            }
            think(&mut dice);
        }
        self.seen
    }

    fn count(&mut self, key: &str, dice: &mut Dice) {
        let by = 1 + dice.below(3);
        let call = self.shared.clock.now();
        let reply = self.repeat(&["INCRBY", key, &by.to_string()]);
        let by = i64::try_from(by).unwrap_or(i64::MAX);
        let result = reply.as_ref().and_then(Reply::number);
        let what = What::Add { by, result: result.unwrap_or(0) };
        self.note(key, call, what, reply, result.is_some());
    }

    fn swap(&mut self, key: &str) {
        let value = format!("{}.{}", self.client, self.next);
        let call = self.shared.clock.now();
        let reply = self.repeat(&["SET", key, &value, "GET"]);
        let found = reply.clone().and_then(held);
        let fits = found.is_some();
        let what = What::Swap { value: Some(value), found: found.flatten() };
        self.note(key, call, what, reply, fits);
    }

    fn count_total(&mut self) {
        match self.repeat(&["INCR", TOTAL]) {
            Some(Reply::Number(_)) => {
                self.shared.count();
                self.seen.total.acknowledged += 1;
            }
            Some(reply) => self.shared.strange(format!("{reply:?} for INCR")),
            None => self.seen.total.unknown += 1,
        }
    }

    fn note(&mut self, key: &str, call: u64, what: What, reply: Option<Reply>, fits: bool) {
        let end = reply.as_ref().map(|_| self.shared.clock.now());
        if let (Some(reply), false) = (&reply, fits) {
            self.shared.strange(format!("{reply:?} for {what:?} of {key}"));
            return;
        }
        if end.is_some() {
            self.shared.count();
        }
        self.seen.operations.push(Operation {
            client: self.client,
            key: key.to_owned(),
            what,
            call,
            end,
        });
    }

    /// Retries a command until it receives a reply. Returns `None` if the run ends first.
    fn repeat(&mut self, command: &[&str]) -> Option<Reply> {
        let number = self.next;
        self.next += 1;
        let mut last = 0;
        while last < LAST_ATTEMPTS {
            last += u32::from(self.shared.stopping());
            match self.attempt(number, command) {
                Outcome::Known(reply) => return Some(reply),
                Outcome::Strange(text) => {
                    self.shared.strange(format!("{text} for {command:?} in a session"));
                    return None;
                }
                // Retry with the same sequence number on another node.
                Outcome::Refused | Outcome::Unknown => {
                    self.link = None;
                    self.node = (self.node + 1) % self.shared.addresses.len();
                    thread::sleep(RETRY);
                }
            }
        }
        None
    }

    fn attempt(&mut self, number: u64, command: &[&str]) -> Outcome {
        if self.link.is_none() {
            match self.attach() {
                Outcome::Known(_) => {}
                other => return other,
            }
        }
        let Some(link) = &mut self.link else {
            return Outcome::Refused;
        };
        let number = number.to_string();
        let mut words = vec!["QUORATE", "SEQ", &number];
        words.extend(command);
        let asked = link.send(&[&["QUORATE", "ACK", &number], &words]);
        let replies = asked.and_then(|()| Ok([link.receive()?, link.receive()?]));
        match replies {
            Ok([_, reply]) => outcome(reply),
            Err(_) => Outcome::Unknown,
        }
    }

    /// Connects to a node and attaches to the session, which is registered first if necessary.
    fn attach(&mut self) -> Outcome {
        let asked = Link::connect(&self.shared.addresses[self.node]).and_then(|mut link| {
            let mut words = vec!["QUORATE", "SESSION"];
            words.extend(self.id.as_deref());
            let reply = link.ask(&words)?;
            Ok((link, reply))
        });
        let Ok((link, reply)) = asked else {
            return Outcome::Refused;
        };
        let outcome = outcome(reply);
        if let Outcome::Known(reply) = &outcome {
            self.link = Some(link);
            // The first reply contains the id of the new session.
            self.id = self.id.take().or_else(|| reply.clone().text());
        }
        outcome
    }
}
