//! Client of a single node. Each method performs one operation, as recorded in the history.

use std::{sync::Arc, thread, time::Duration};

use crate::resp::{Reply, RespConnection};
use quorate_core::dice::Dice;

use super::{
    history::{KeyContents, Operation, What},
    seen::{CommandOutcome, Insert, Observations, Shared, pause_randomly},
};

/// Pause before reconnecting to a node that refused the connection.
const RECONNECT_PAUSE: Duration = Duration::from_millis(20);

/// Outcome of a command, according to its reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Known(Reply),
    Refused,
    /// The command may have been executed, or may still be executed.
    Unknown,
    /// The reply violates the protocol.
    ProtocolViolation(String),
}

/// Classifies a reply by the guarantees that docs/commands.md gives for errors.
pub(crate) fn classify_reply(reply: Reply) -> Outcome {
    let Reply::Error(text) = reply else {
        return Outcome::Known(reply);
    };
    match text.split(' ').next().unwrap_or_default() {
        "BUSY" | "NOQUORUM" | "DISKFULL" | "EXECABORT" => Outcome::Refused,
        "UNKNOWN" => Outcome::Unknown,
        _ => Outcome::ProtocolViolation(text),
    }
}

/// A client that never retries. The outcome of a command without a reply remains unknown.
#[derive(Debug)]
pub struct Client {
    client_id: usize,
    node_index: usize,
    written_count: u64,
    link: Option<RespConnection>,
    pub(crate) shared: Arc<Shared>,
    /// Observations recorded by the client.
    pub observations: Observations,
}

impl Client {
    /// Creates a client of one node, identified by `number` in the history.
    pub fn new(number: usize, node: usize, shared: Arc<Shared>) -> Self {
        Self {
            client_id: number,
            node_index: node,
            written_count: 0,
            link: None,
            shared,
            observations: Observations::default(),
        }
    }

    /// Returns a value that no other write uses.
    fn value(&mut self) -> String {
        self.written_count += 1;
        format!("{}.{}", self.client_id, self.written_count)
    }

    /// Sends all commands at once. Returns the last outcome, unknown if any reply is missing.
    fn run_commands(&mut self, commands: &[&[&str]]) -> Outcome {
        self.run_all(commands).pop().unwrap_or(Outcome::Unknown)
    }

    fn run_all(&mut self, commands: &[&[&str]]) -> Vec<Outcome> {
        if self.link.is_none() {
            self.link = RespConnection::connect(&self.shared.addresses[self.node_index]).ok();
        }
        let Some(link) = &mut self.link else {
            thread::sleep(RECONNECT_PAUSE);
            return vec![Outcome::Refused; commands.len()];
        };
        let answers = link.send_commands(commands).and_then(|()| {
            commands.iter().map(|_| link.receive_reply()).collect::<Result<Vec<_>, _>>()
        });
        match answers {
            Ok(replies) => replies.into_iter().map(classify_reply).collect(),
            Err(error) => {
                if error.kind() == std::io::ErrorKind::Other {
                    self.shared.record_violation(error.to_string());
                }
                // A late reply must not be mistaken for the reply to another command.
                self.link = None;
                vec![Outcome::Unknown; commands.len()]
            }
        }
    }

    /// Records an operation with its outcome. `known` fills in the result from the reply, or
    /// rejects the reply.
    fn record_operation(
        &mut self,
        key: &str,
        call: u64,
        outcome: Outcome,
        open: What,
        known: impl FnOnce(Reply) -> Option<What>,
    ) {
        let now = self.shared.clock.nanos_now();
        let (what, end) = match outcome {
            Outcome::Known(reply) => {
                let text = format!("{reply:?}");
                let Some(what) = known(reply) else {
                    self.shared.record_violation(format!("{text} for {open:?} of {key}"));
                    return;
                };
                self.shared.count_known();
                (what, Some(now))
            }
            Outcome::Refused => {
                self.observations.refused_count += 1;
                return;
            }
            Outcome::Unknown => (open, None),
            Outcome::ProtocolViolation(text) => {
                self.shared.record_violation(format!("{text} for {open:?} of {key}"));
                return;
            }
        };
        self.observations.operations.push(Operation {
            client: self.client_id,
            key: key.to_owned(),
            what,
            call,
            end,
        });
    }

    pub(crate) fn read(&mut self, key: &str) {
        self.try_read(key);
    }

    /// Reads a key. Returns whether the node answered.
    pub fn try_read(&mut self, key: &str) -> bool {
        let call = self.shared.clock.nanos_now();
        let outcome = self.run_commands(&[&["GET", key]]);
        let answered = matches!(outcome, Outcome::Known(_));
        let open = What::Read { found: None };
        self.record_operation(key, call, outcome, open, |reply| {
            key_contents(reply).map(|found| What::Read { found })
        });
        answered
    }

    /// Reads several keys in one pipeline. Each read is a separate operation.
    pub(crate) fn read_all(&mut self, keys: &[String]) {
        let commands: Vec<[&str; 2]> = keys.iter().map(|key| ["GET", key]).collect();
        let commands: Vec<&[&str]> = commands.iter().map(<[&str; 2]>::as_slice).collect();
        let call = self.shared.clock.nanos_now();
        let outcomes = self.run_all(&commands);
        for (key, outcome) in keys.iter().zip(outcomes) {
            let open = What::Read { found: None };
            self.record_operation(key, call, outcome, open, |reply| {
                key_contents(reply).map(|found| What::Read { found })
            });
        }
    }

    pub(crate) fn write(&mut self, key: &str) {
        let value = self.value();
        let call = self.shared.clock.nanos_now();
        let outcome = self.run_commands(&[&["SET", key, &value]]);
        let what = What::Write { value: Some(value) };
        self.record_operation(key, call, outcome, what.clone(), |reply| {
            is_ok(&reply).then_some(what)
        });
    }

    pub(crate) fn delete(&mut self, key: &str) {
        let call = self.shared.clock.nanos_now();
        let outcome = self.run_commands(&[&["GETDEL", key]]);
        let open = What::Swap { value: None, found: None };
        self.record_operation(key, call, outcome, open, |reply| {
            key_contents(reply).map(|found| What::Swap { value: None, found })
        });
    }

    pub(crate) fn swap(&mut self, key: &str) {
        let value = self.value();
        let call = self.shared.clock.nanos_now();
        let outcome = self.run_commands(&[&["SET", key, &value, "GET"]]);
        let swap = |found| What::Swap { value: Some(value.clone()), found };
        self.record_operation(key, call, outcome, swap(None), |reply| {
            key_contents(reply).map(swap)
        });
    }

    /// Swaps the value of a key with two commands in one transaction.
    pub(crate) fn swap_in_transaction(&mut self, key: &str) {
        let value = self.value();
        let call = self.shared.clock.nanos_now();
        let commands: [&[&str]; 4] = [&["MULTI"], &["GET", key], &["SET", key, &value], &["EXEC"]];
        let outcome = self.run_commands(&commands);
        let swap = |found| What::Swap { value: Some(value.clone()), found };
        self.record_operation(key, call, outcome, swap(None), |reply| match reply {
            Reply::Array(replies) => match <[Reply; 2]>::try_from(replies).ok()? {
                [found, set] => is_ok(&set).then(|| key_contents(found).map(swap)).flatten(),
            },
            _ => None,
        });
    }

    /// Sends WATCH and GET, then a transaction that takes effect only if the key is unchanged.
    pub(crate) fn compare_and_set(&mut self, key: &str, dice: &mut Dice) {
        let call = self.shared.clock.nanos_now();
        let outcomes = self.run_all(&[&["WATCH", key], &["GET", key]]);
        let Ok([watch, get]) = <[Outcome; 2]>::try_from(outcomes) else {
            return;
        };
        let expected = match &get {
            Outcome::Known(reply) => key_contents(reply.clone()),
            _ => None,
        };
        let open = What::Read { found: None };
        self.record_operation(key, call, get, open, |reply| {
            key_contents(reply).map(|found| What::Read { found })
        });
        let (Outcome::Known(_), Some(expected)) = (watch, expected) else {
            // Remove a watch whose reply was missing or incomplete.
            self.run_commands(&[&["UNWATCH"]]);
            return;
        };
        pause_randomly(dice);
        let value = Some(self.value());
        let call = self.shared.clock.nanos_now();
        let word = value.clone().unwrap_or_default();
        let outcome = self.run_commands(&[&["MULTI"], &["SET", key, &word], &["EXEC"]]);
        if expected.is_none() && matches!(outcome, Outcome::Known(Reply::Null)) {
            // A transaction that expects an absent key may fail spuriously ([watch-3]), so this
            // proves nothing about the key.
            return;
        }
        let cas = |done| What::Cas { expected, value, done };
        self.record_operation(key, call, outcome, cas.clone()(false), |reply| match reply {
            Reply::Null => Some(cas(false)),
            Reply::Array(replies) => matches!(&replies[..], [set] if is_ok(set)).then(|| cas(true)),
            _ => None,
        });
    }

    pub(crate) fn add(&mut self, key: &str, by: u64) {
        let call = self.shared.clock.nanos_now();
        let outcome = self.run_commands(&[&["INCRBY", key, &by.to_string()]]);
        let by = i64::try_from(by).unwrap_or(i64::MAX);
        let add = |result| What::Add { by, result };
        self.record_operation(key, call, outcome, add(0), |reply| reply.as_number().map(add));
    }

    /// Writes the same value to two keys. In the history, both are a single key.
    pub(crate) fn write_pair(&mut self, pair: &str, in_transaction: bool) {
        let value = self.value();
        let (a, b) = (format!("{pair}a"), format!("{pair}b"));
        let call = self.shared.clock.nanos_now();
        let outcome = if in_transaction {
            self.run_commands(&[&["MULTI"], &["SET", &a, &value], &["SET", &b, &value], &["EXEC"]])
        } else {
            self.run_commands(&[&["MSET", &a, &value, &b, &value]])
        };
        let what = What::Write { value: Some(value) };
        self.record_operation(pair, call, outcome, what.clone(), |reply| {
            let done = match &reply {
                Reply::Array(replies) => replies.len() == 2 && replies.iter().all(is_ok),
                other => is_ok(other),
            };
            done.then_some(what)
        });
    }

    pub(crate) fn read_pair(&mut self, pair: &str) {
        self.try_read_pair(pair);
    }

    /// Reads a pair of keys. Returns whether the node answered. If the values differ, records a
    /// value that was never written.
    pub fn try_read_pair(&mut self, pair: &str) -> bool {
        let call = self.shared.clock.nanos_now();
        let outcome = self.run_commands(&[&["MGET", &format!("{pair}a"), &format!("{pair}b")]]);
        let answered = matches!(outcome, Outcome::Known(_));
        let open = What::Read { found: None };
        self.record_operation(pair, call, outcome, open, |reply| {
            let Reply::Array(replies) = reply else {
                return None;
            };
            let [a, b] = <[Reply; 2]>::try_from(replies).ok()?;
            let (a, b) = (key_contents(a)?, key_contents(b)?);
            let found = if a == b { a } else { Some(format!("torn:{a:?}|{b:?}")) };
            Some(What::Read { found })
        });
        answered
    }

    pub(crate) fn insert(&mut self) {
        let value = self.value();
        let key = format!("i{value}");
        // With NX, the reply reveals whether the command was executed twice.
        let fate = match self.run_commands(&[&["SET", &key, &value, "NX"]]) {
            Outcome::Known(reply) if is_ok(&reply) => {
                self.shared.count_known();
                CommandOutcome::Acknowledged
            }
            Outcome::Known(reply) => {
                self.shared.record_violation(format!("{reply:?} for a new key: executed twice?"));
                CommandOutcome::Unknown
            }
            Outcome::Refused => CommandOutcome::Refused,
            Outcome::Unknown => CommandOutcome::Unknown,
            Outcome::ProtocolViolation(text) => {
                self.shared.record_violation(text);
                CommandOutcome::Unknown
            }
        };
        self.observations.inserts.push(Insert { key, outcome: fate });
    }

    /// Returns the values of several keys, if the node answers.
    pub fn read_values(&mut self, keys: &[&str]) -> Option<Vec<KeyContents>> {
        let command: Vec<&str> = std::iter::once("MGET").chain(keys.iter().copied()).collect();
        match self.run_commands(&[&command]) {
            Outcome::Known(Reply::Array(replies)) => {
                replies.into_iter().map(key_contents).collect()
            }
            _ => None,
        }
    }
}

pub fn is_ok(reply: &Reply) -> bool {
    *reply == Reply::Simple("OK".to_owned())
}

/// Returns the contents of a key from the reply to a read; `None` if the reply is of another kind.
#[allow(clippy::option_option, reason = "no reply of this kind is not an absent key")]
pub(crate) fn key_contents(reply: Reply) -> Option<KeyContents> {
    match reply {
        Reply::Null => Some(None),
        Reply::Bulk(text) => Some(Some(text)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_replies_map_to_outcomes() {
        let error = |text: &str| classify_reply(Reply::Error(text.to_owned()));
        assert_eq!(error("NOQUORUM no leader"), Outcome::Refused);
        assert_eq!(error("BUSY"), Outcome::Refused);
        assert_eq!(error("UNKNOWN it may be executed"), Outcome::Unknown);
        assert_eq!(error("ERR no"), Outcome::ProtocolViolation("ERR no".to_owned()));
        assert_eq!(classify_reply(Reply::Null), Outcome::Known(Reply::Null));
    }
}
