//! Client of a single node. Each method performs one operation, as recorded in the history.

use std::{sync::Arc, thread, time::Duration};

use crate::resp::{Link, Reply};
use quorate_core::dice::Dice;

use super::{
    history::{KeyContents, Operation, What},
    seen::{Fate, Insert, Seen, Shared, think},
};

/// Pause before reconnecting to a node that refused the connection.
const RETRY: Duration = Duration::from_millis(20);

/// Outcome of a command, according to its reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Known(Reply),
    Refused,
    /// The command may have been executed, or may still be executed.
    Unknown,
    /// The reply violates the protocol.
    Strange(String),
}

/// Classifies a reply by the guarantees that docs/commands.md gives for errors.
pub(crate) fn outcome(reply: Reply) -> Outcome {
    let Reply::Error(text) = reply else {
        return Outcome::Known(reply);
    };
    match text.split(' ').next().unwrap_or_default() {
        "BUSY" | "NOQUORUM" | "DISKFULL" | "EXECABORT" => Outcome::Refused,
        "UNKNOWN" => Outcome::Unknown,
        _ => Outcome::Strange(text),
    }
}

/// A client that never retries. The outcome of a command without a reply remains unknown.
#[derive(Debug)]
pub struct Client {
    number: usize,
    node: usize,
    written: u64,
    link: Option<Link>,
    pub(crate) shared: Arc<Shared>,
    /// Observations recorded by the client.
    pub seen: Seen,
}

impl Client {
    /// Creates a client of one node, identified by `number` in the history.
    pub fn new(number: usize, node: usize, shared: Arc<Shared>) -> Self {
        Self { number, node, written: 0, link: None, shared, seen: Seen::default() }
    }

    /// Returns a value that no other write uses.
    fn value(&mut self) -> String {
        self.written += 1;
        format!("{}.{}", self.number, self.written)
    }

    /// Sends all commands at once. Returns the last outcome, unknown if any reply is missing.
    fn ask(&mut self, commands: &[&[&str]]) -> Outcome {
        self.ask_all(commands).pop().unwrap_or(Outcome::Unknown)
    }

    fn ask_all(&mut self, commands: &[&[&str]]) -> Vec<Outcome> {
        if self.link.is_none() {
            self.link = Link::connect(&self.shared.addresses[self.node]).ok();
        }
        let Some(link) = &mut self.link else {
            thread::sleep(RETRY);
            return vec![Outcome::Refused; commands.len()];
        };
        let answers = link
            .send(commands)
            .and_then(|()| commands.iter().map(|_| link.receive()).collect::<Result<Vec<_>, _>>());
        match answers {
            Ok(replies) => replies.into_iter().map(outcome).collect(),
            Err(error) => {
                if error.kind() == std::io::ErrorKind::Other {
                    self.shared.strange(error.to_string());
                }
                // A late reply must not be mistaken for the reply to another command.
                self.link = None;
                vec![Outcome::Unknown; commands.len()]
            }
        }
    }

    /// Records an operation with its outcome. `known` fills in the result from the reply, or
    /// rejects the reply.
    fn note(
        &mut self,
        key: &str,
        call: u64,
        outcome: Outcome,
        open: What,
        known: impl FnOnce(Reply) -> Option<What>,
    ) {
        let now = self.shared.clock.now();
        let (what, end) = match outcome {
            Outcome::Known(reply) => {
                let text = format!("{reply:?}");
                let Some(what) = known(reply) else {
                    self.shared.strange(format!("{text} for {open:?} of {key}"));
                    return;
                };
                self.shared.count();
                (what, Some(now))
            }
            Outcome::Refused => {
                self.seen.refused += 1;
                return;
            }
            Outcome::Unknown => (open, None),
            Outcome::Strange(text) => {
                self.shared.strange(format!("{text} for {open:?} of {key}"));
                return;
            }
        };
        self.seen.operations.push(Operation {
            client: self.number,
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
        let call = self.shared.clock.now();
        let outcome = self.ask(&[&["GET", key]]);
        let answered = matches!(outcome, Outcome::Known(_));
        let open = What::Read { found: None };
        self.note(key, call, outcome, open, |reply| held(reply).map(|found| What::Read { found }));
        answered
    }

    /// Reads several keys in one pipeline. Each read is a separate operation.
    pub(crate) fn read_all(&mut self, keys: &[String]) {
        let commands: Vec<[&str; 2]> = keys.iter().map(|key| ["GET", key]).collect();
        let commands: Vec<&[&str]> = commands.iter().map(<[&str; 2]>::as_slice).collect();
        let call = self.shared.clock.now();
        let outcomes = self.ask_all(&commands);
        for (key, outcome) in keys.iter().zip(outcomes) {
            let open = What::Read { found: None };
            self.note(key, call, outcome, open, |reply| {
                held(reply).map(|found| What::Read { found })
            });
        }
    }

    pub(crate) fn write(&mut self, key: &str) {
        let value = self.value();
        let call = self.shared.clock.now();
        let outcome = self.ask(&[&["SET", key, &value]]);
        let what = What::Write { value: Some(value) };
        self.note(key, call, outcome, what.clone(), |reply| is_ok(&reply).then_some(what));
    }

    pub(crate) fn delete(&mut self, key: &str) {
        let call = self.shared.clock.now();
        let outcome = self.ask(&[&["GETDEL", key]]);
        let open = What::Swap { value: None, found: None };
        self.note(key, call, outcome, open, |reply| {
            held(reply).map(|found| What::Swap { value: None, found })
        });
    }

    pub(crate) fn swap(&mut self, key: &str) {
        let value = self.value();
        let call = self.shared.clock.now();
        let outcome = self.ask(&[&["SET", key, &value, "GET"]]);
        let swap = |found| What::Swap { value: Some(value.clone()), found };
        self.note(key, call, outcome, swap(None), |reply| held(reply).map(swap));
    }

    /// Swaps the value of a key with two commands in one transaction.
    pub(crate) fn swap_in_transaction(&mut self, key: &str) {
        let value = self.value();
        let call = self.shared.clock.now();
        let commands: [&[&str]; 4] = [&["MULTI"], &["GET", key], &["SET", key, &value], &["EXEC"]];
        let outcome = self.ask(&commands);
        let swap = |found| What::Swap { value: Some(value.clone()), found };
        self.note(key, call, outcome, swap(None), |reply| match reply {
            Reply::Array(replies) => match <[Reply; 2]>::try_from(replies).ok()? {
                [found, set] => is_ok(&set).then(|| held(found).map(swap)).flatten(),
            },
            _ => None,
        });
    }

    /// Sends WATCH and GET, then a transaction that takes effect only if the key is unchanged.
    pub(crate) fn compare_and_set(&mut self, key: &str, dice: &mut Dice) {
        let call = self.shared.clock.now();
        let outcomes = self.ask_all(&[&["WATCH", key], &["GET", key]]);
        let Ok([watch, get]) = <[Outcome; 2]>::try_from(outcomes) else {
            return;
        };
        let expected = match &get {
            Outcome::Known(reply) => held(reply.clone()),
            _ => None,
        };
        let open = What::Read { found: None };
        self.note(key, call, get, open, |reply| held(reply).map(|found| What::Read { found }));
        let (Outcome::Known(_), Some(expected)) = (watch, expected) else {
            // Remove a watch whose reply was missing or incomplete.
            self.ask(&[&["UNWATCH"]]);
            return;
        };
        think(dice);
        let value = Some(self.value());
        let call = self.shared.clock.now();
        let word = value.clone().unwrap_or_default();
        let outcome = self.ask(&[&["MULTI"], &["SET", key, &word], &["EXEC"]]);
        if expected.is_none() && matches!(outcome, Outcome::Known(Reply::Nothing)) {
            // A transaction that expects an absent key may fail spuriously ([watch-3]), so this
            // proves nothing about the key.
            return;
        }
        let cas = |done| What::Cas { expected, value, done };
        self.note(key, call, outcome, cas.clone()(false), |reply| match reply {
            Reply::Nothing => Some(cas(false)),
            Reply::Array(replies) => matches!(&replies[..], [set] if is_ok(set)).then(|| cas(true)),
            _ => None,
        });
    }

    pub(crate) fn add(&mut self, key: &str, by: u64) {
        let call = self.shared.clock.now();
        let outcome = self.ask(&[&["INCRBY", key, &by.to_string()]]);
        let by = i64::try_from(by).unwrap_or(i64::MAX);
        let add = |result| What::Add { by, result };
        self.note(key, call, outcome, add(0), |reply| reply.number().map(add));
    }

    /// Writes the same value to two keys. In the history, both are a single key.
    pub(crate) fn write_pair(&mut self, pair: &str, in_transaction: bool) {
        let value = self.value();
        let (a, b) = (format!("{pair}a"), format!("{pair}b"));
        let call = self.shared.clock.now();
        let outcome = if in_transaction {
            self.ask(&[&["MULTI"], &["SET", &a, &value], &["SET", &b, &value], &["EXEC"]])
        } else {
            self.ask(&[&["MSET", &a, &value, &b, &value]])
        };
        let what = What::Write { value: Some(value) };
        self.note(pair, call, outcome, what.clone(), |reply| {
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
        let call = self.shared.clock.now();
        let outcome = self.ask(&[&["MGET", &format!("{pair}a"), &format!("{pair}b")]]);
        let answered = matches!(outcome, Outcome::Known(_));
        let open = What::Read { found: None };
        self.note(pair, call, outcome, open, |reply| {
            let Reply::Array(replies) = reply else {
                return None;
            };
            let [a, b] = <[Reply; 2]>::try_from(replies).ok()?;
            let (a, b) = (held(a)?, held(b)?);
            let found = if a == b { a } else { Some(format!("torn:{a:?}|{b:?}")) };
            Some(What::Read { found })
        });
        answered
    }

    pub(crate) fn insert(&mut self) {
        let value = self.value();
        let key = format!("i{value}");
        // With NX, the reply reveals whether the command was executed twice.
        let fate = match self.ask(&[&["SET", &key, &value, "NX"]]) {
            Outcome::Known(reply) if is_ok(&reply) => {
                self.shared.count();
                Fate::Acknowledged
            }
            Outcome::Known(reply) => {
                self.shared.strange(format!("{reply:?} for a new key: executed twice?"));
                Fate::Unknown
            }
            Outcome::Refused => Fate::Refused,
            Outcome::Unknown => Fate::Unknown,
            Outcome::Strange(text) => {
                self.shared.strange(text);
                Fate::Unknown
            }
        };
        self.seen.inserts.push(Insert { key, fate });
    }

    /// Returns the values of several keys, if the node answers.
    pub fn values(&mut self, keys: &[&str]) -> Option<Vec<KeyContents>> {
        let command: Vec<&str> = std::iter::once("MGET").chain(keys.iter().copied()).collect();
        match self.ask(&[&command]) {
            Outcome::Known(Reply::Array(replies)) => replies.into_iter().map(held).collect(),
            _ => None,
        }
    }
}

pub fn is_ok(reply: &Reply) -> bool {
    *reply == Reply::Simple("OK".to_owned())
}

/// Returns the contents of a key from the reply to a read; `None` if the reply is of another kind.
#[allow(clippy::option_option, reason = "no reply of this kind is not an absent key")]
pub(crate) fn held(reply: Reply) -> Option<KeyContents> {
    match reply {
        Reply::Nothing => Some(None),
        Reply::Bulk(text) => Some(Some(text)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_replies_map_to_outcomes() {
        let error = |text: &str| outcome(Reply::Error(text.to_owned()));
        assert_eq!(error("NOQUORUM no leader"), Outcome::Refused);
        assert_eq!(error("BUSY"), Outcome::Refused);
        assert_eq!(error("UNKNOWN it may be executed"), Outcome::Unknown);
        assert_eq!(error("ERR no"), Outcome::Strange("ERR no".to_owned()));
        assert_eq!(outcome(Reply::Nothing), Outcome::Known(Reply::Nothing));
    }
}
