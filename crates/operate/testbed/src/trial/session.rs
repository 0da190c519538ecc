//! A client with a session, which retries a command on any node until the outcome is known.

use std::{sync::Arc, thread, time::Duration};

use crate::resp::{Reply, RespConnection};
use quorate_core::dice::Dice;

use super::{
    client::{Outcome, classify_reply, key_contents},
    history::{Operation, What},
    seen::{Observations, Shared, TOTAL_COUNTER, pause_randomly},
};

/// Pause before the next attempt, on another node.
const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// Maximum number of attempts after the end of the run, when all nodes serve again.
const FINAL_ATTEMPTS_MAX: u32 = 100;

/// A client whose commands are executed exactly once, even if nodes or connections fail.
pub(super) struct Session {
    client_id: usize,
    node_index: usize,
    id: Option<String>,
    next: u64,
    link: Option<RespConnection>,
    shared: Arc<Shared>,
    observations: Observations,
}

impl Session {
    pub(super) fn new(client: usize, node: usize, shared: Arc<Shared>) -> Self {
        Self {
            client_id: client,
            node_index: node,
            id: None,
            next: 1,
            link: None,
            shared,
            observations: Observations::default(),
        }
    }

    /// Increments counters and swaps values until the run ends. Returns the observations.
    pub(super) fn run(mut self, mut dice: Dice) -> Observations {
        while !self.shared.is_stopping() {
            let generation = self.shared.key_set_number();
            match dice.below(10) {
                0..4 => self.increment(&format!("c{generation}.{}", dice.below(2)), &mut dice),
                4..7 => self.swap(&format!("r{generation}.{}", dice.below(4))),
                _ => self.increment_total(),
            }
            pause_randomly(&mut dice);
        }
        self.observations
    }

    fn increment(&mut self, key: &str, dice: &mut Dice) {
        let by = 1 + dice.below(3);
        let call = self.shared.clock.nanos_now();
        let reply = self.retry_command(&["INCRBY", key, &by.to_string()]);
        let by = i64::try_from(by).unwrap_or(i64::MAX);
        let result = reply.as_ref().and_then(Reply::as_number);
        let what = What::Add { by, result: result.unwrap_or(0) };
        self.record_operation(key, call, what, reply, result.is_some());
    }

    fn swap(&mut self, key: &str) {
        let value = format!("{}.{}", self.client_id, self.next);
        let call = self.shared.clock.nanos_now();
        let reply = self.retry_command(&["SET", key, &value, "GET"]);
        let found = reply.clone().and_then(key_contents);
        let fits = found.is_some();
        let what = What::Swap { value: Some(value), found: found.flatten() };
        self.record_operation(key, call, what, reply, fits);
    }

    fn increment_total(&mut self) {
        match self.retry_command(&["INCR", TOTAL_COUNTER]) {
            Some(Reply::Number(_)) => {
                self.shared.count_known();
                self.observations.increments.acknowledged += 1;
            }
            Some(reply) => self.shared.record_violation(format!("{reply:?} for INCR")),
            None => self.observations.increments.unknown += 1,
        }
    }

    fn record_operation(
        &mut self,
        key: &str,
        call: u64,
        what: What,
        reply: Option<Reply>,
        fits: bool,
    ) {
        let end = reply.as_ref().map(|_| self.shared.clock.nanos_now());
        if let (Some(reply), false) = (&reply, fits) {
            self.shared.record_violation(format!("{reply:?} for {what:?} of {key}"));
            return;
        }
        if end.is_some() {
            self.shared.count_known();
        }
        self.observations.operations.push(Operation {
            client: self.client_id,
            key: key.to_owned(),
            what,
            call,
            end,
        });
    }

    /// Retries a command until it receives a reply. Returns `None` if the run ends first.
    fn retry_command(&mut self, command: &[&str]) -> Option<Reply> {
        let number = self.next;
        self.next += 1;
        let mut last = 0;
        while last < FINAL_ATTEMPTS_MAX {
            last += u32::from(self.shared.is_stopping());
            match self.try_command(number, command) {
                Outcome::Known(reply) => return Some(reply),
                Outcome::ProtocolViolation(text) => {
                    self.shared.record_violation(format!("{text} for {command:?} in a session"));
                    return None;
                }
                // Retry with the same sequence number on another node.
                Outcome::Refused | Outcome::Unknown => {
                    self.link = None;
                    self.node_index = (self.node_index + 1) % self.shared.addresses.len();
                    thread::sleep(RETRY_PAUSE);
                }
            }
        }
        None
    }

    fn try_command(&mut self, number: u64, command: &[&str]) -> Outcome {
        if self.link.is_none() {
            match self.attach_session() {
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
        let asked = link.send_commands(&[&["QUORATE", "ACK", &number], &words]);
        let replies = asked.and_then(|()| Ok([link.receive_reply()?, link.receive_reply()?]));
        match replies {
            Ok([_, reply]) => classify_reply(reply),
            Err(_) => Outcome::Unknown,
        }
    }

    /// Connects to a node and attaches to the session, which is registered first if necessary.
    fn attach_session(&mut self) -> Outcome {
        let asked = RespConnection::connect(&self.shared.addresses[self.node_index]).and_then(
            |mut link| {
                let mut words = vec!["QUORATE", "SESSION"];
                words.extend(self.id.as_deref());
                let reply = link.run_command(&words)?;
                Ok((link, reply))
            },
        );
        let Ok((link, reply)) = asked else {
            return Outcome::Refused;
        };
        let outcome = classify_reply(reply);
        if let Outcome::Known(reply) = &outcome {
            self.link = Some(link);
            // The first reply contains the id of the new session.
            self.id = self.id.take().or_else(|| reply.clone().text());
        }
        outcome
    }
}
