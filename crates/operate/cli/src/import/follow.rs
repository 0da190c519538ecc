//! Applies the stream of a server's commands, in order and each once.

use std::sync::Arc;

use quorate_admin::{
    progress::{Progress, ProgressReport},
    units::bytes as size,
};
use quorate_client::{Client, Reply, Transaction};
use serde::Serialize;

use super::server::Incoming;
use crate::{
    kv,
    output::{Exit, Problem},
};

/// Size at which a transaction is sent.
const BATCH_BYTES: usize = 64 << 10;
/// Maximum number of commands in a transaction, unless the server sent more in one of its own.
const BATCH_COMMANDS: usize = 1024;
/// Maximum length of a word, as of a server by default, and number of words of a command.
const WORD_BYTES_MAX: usize = 512 << 20;
const WORDS_MAX: usize = 1 << 20;

/// Result of following a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Followed {
    /// Number of commands that were applied.
    pub(crate) commands: u64,
    /// Number of commands in other databases, which were not.
    pub(crate) other_databases: u64,
    /// Position of the server up to which everything is applied.
    pub(crate) position: u64,
    /// Bytes that had arrived and were not applied.
    pub(crate) lag: u64,
}

impl Followed {
    pub(super) fn human(&self) -> String {
        let Self { commands, other_databases, position, lag } = self;
        let mut text = format!("\nthen applied {commands} commands up to position {position}");
        if *other_databases > 0 {
            text += &format!("; {other_databases} in other databases were not");
        }
        if *lag > 0 {
            text += &format!("; {} had arrived and were not applied", size(*lag));
        }
        text
    }
}

/// Follower of a server.
pub(super) struct Follow<'c> {
    client: &'c mut Client,
    incoming: Arc<Incoming>,
    database: u64,
    /// Database of the stream.
    selected: u64,
    /// Set within a transaction of the server.
    is_within: bool,
    batch: Transaction,
    /// Name of each command in the batch, with its position.
    sent: Vec<(String, u64)>,
    /// Position after the last parsed command.
    position: u64,
    followed: Followed,
}

impl<'c> Follow<'c> {
    pub(super) fn new(client: &'c mut Client, incoming: Arc<Incoming>, database: u64) -> Self {
        let position = incoming.applied();
        Self {
            client,
            incoming,
            database,
            selected: 0,
            is_within: false,
            batch: Transaction::default(),
            sent: Vec::new(),
            position,
            followed: Followed { position, ..Followed::default() },
        }
    }

    /// Applies commands until `stops` returns `true` or, with `until_caught_up`, until none waits.
    pub(super) fn run(
        mut self,
        stops: &dyn Fn() -> bool,
        until_caught_up: bool,
    ) -> Result<Followed, Problem> {
        let mut bytes = Vec::new();
        let mut progress = Progress::start();
        loop {
            let before = bytes.len();
            self.incoming.take(&mut bytes)?;
            let is_idle = bytes.len() == before;
            let mut used = 0;
            while let Some((words, length)) = parse(&bytes[used..]).map_err(|why| {
                let what = format_args!("position {}: {why}", self.position);
                Problem::new(Exit::Failed, "bad_stream", what).hint("import again from the start")
            })? {
                self.position += length as u64;
                self.add(&words)?;
                used += length;
                let is_full =
                    self.batch.bytes() >= BATCH_BYTES || self.sent.len() >= BATCH_COMMANDS;
                if is_full && !self.is_within {
                    self.apply()?;
                }
                if stops() && !self.is_within {
                    break;
                }
            }
            bytes.drain(..used);
            if !self.is_within {
                self.apply()?;
            }
            let (lag, done) = (bytes.len() as u64, &self.followed);
            progress.report(|| {
                let (commands, position) = (done.commands, done.position);
                let text = format!(
                    "{commands} commands, position {position}, lag {} (Ctrl-C ends)",
                    size(lag)
                );
                ProgressReport::text(text)
            });
            let is_caught_up = until_caught_up && is_idle && lag == 0;
            if !self.is_within && (stops() || is_caught_up) {
                self.followed.lag = lag;
                return Ok(self.followed);
            }
        }
    }

    fn add(&mut self, words: &[&[u8]]) -> Result<(), Problem> {
        let Some(name) = words.first() else { return Ok(()) };
        let name = String::from_utf8_lossy(name).to_ascii_uppercase();
        match (&*name, words) {
            ("PING" | "REPLCONF", _) => {}
            ("SELECT", [_, database]) => {
                let database =
                    std::str::from_utf8(database).ok().and_then(|text| text.parse().ok());
                self.selected = database.ok_or_else(|| self.unknown(&name))?;
            }
            ("MULTI", _) => self.is_within = true,
            ("EXEC", _) => self.is_within = false,
            // These two concern all databases.
            ("FLUSHALL" | "SWAPDB", _) => self.push(name, words)?,
            _ if self.selected != self.database => self.followed.other_databases += 1,
            _ => self.push(name, words)?,
        }
        Ok(())
    }

    fn push(&mut self, name: String, words: &[&[u8]]) -> Result<(), Problem> {
        if !kv::changes(name.as_bytes()) {
            return Err(self.unknown(&name));
        }
        self.batch.push(words);
        self.sent.push((name, self.position));
        Ok(())
    }

    fn unknown(&self, name: &str) -> Problem {
        let (position, applied) = (self.position, self.followed.position);
        let what = format_args!(
            "the server sent {name} at position {position}, which the cluster does not have; \
             everything up to position {applied} is applied"
        );
        Problem::new(Exit::Failed, "unknown_command", what)
            .hint("change the programs that use it, then import again from the start")
    }

    /// Applies the batch, and waits for it: a later batch must not be executed before.
    fn apply(&mut self) -> Result<(), Problem> {
        let sent = std::mem::take(&mut self.sent);
        if !self.batch.is_empty() {
            let batch = std::mem::take(&mut self.batch);
            let outcome = self.client.send_transaction(batch).and_then(|()| self.client.receive());
            let reply = outcome.map_err(|error| {
                let mut problem = kv::client_problem(&error);
                let applied = self.followed.position;
                problem.message += &format!("; applied up to position {applied}");
                problem
            })?;
            let Reply::Array(replies) = reply else {
                let what = format_args!("unexpected reply of the cluster: {reply}");
                return Err(Problem::new(Exit::Failed, "bad_answer", what)
                    .hint("check that the nodes run this version"));
            };
            for ((name, position), reply) in sent.iter().zip(&replies) {
                if let Reply::Error(text) = reply {
                    let what = format_args!("{name} at position {position} was refused: {text}");
                    return Err(Problem::new(Exit::Failed, "refused", what)
                        .hint("remove the cause, then import again from the start"));
                }
            }
            self.followed.commands += sent.len() as u64;
        }
        self.followed.position = self.position;
        self.incoming.set_applied(self.position);
        Ok(())
    }
}

/// Words of a command, with its length in bytes.
type Parsed<'a> = (Vec<&'a [u8]>, usize);

/// Parses the first command. Returns `None` if it has not arrived whole.
fn parse(bytes: &[u8]) -> Result<Option<Parsed<'_>>, &'static str> {
    if bytes.first() == Some(&b'\n') {
        return Ok(Some((Vec::new(), 1)));
    }
    let mut at = 0;
    let Some(count) = header(bytes, &mut at, b'*', WORDS_MAX)? else { return Ok(None) };
    let mut words = Vec::new();
    for _ in 0..count {
        let Some(length) = header(bytes, &mut at, b'$', WORD_BYTES_MAX)? else { return Ok(None) };
        let Some(word) = bytes.get(at..at + length + 2) else { return Ok(None) };
        words.push(word.strip_suffix(b"\r\n").ok_or("a word has no end")?);
        at += length + 2;
    }
    Ok(Some((words, at)))
}

/// Parses a line with a number.
fn header(
    bytes: &[u8],
    at: &mut usize,
    kind: u8,
    most: usize,
) -> Result<Option<usize>, &'static str> {
    let rest = &bytes[*at..];
    let Some(end) = rest.iter().take(32).position(|byte| *byte == b'\n') else {
        return if rest.len() < 32 { Ok(None) } else { Err("not a command") };
    };
    let digits = rest[..end].strip_suffix(b"\r").and_then(|line| line.strip_prefix(&[kind]));
    let number = digits.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    *at += end + 1;
    number.filter(|number| *number <= most).map(Some).ok_or("not a command")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_parsed_whole_or_not_at_all() {
        let bytes = b"*2\r\n$3\r\nDEL\r\n$1\r\nk\r\n*1";
        let whole = bytes.len() - 2;
        for cut in 0..whole {
            assert_eq!(parse(&bytes[..cut]), Ok(None), "{cut}");
        }
        assert_eq!(parse(bytes), Ok(Some((vec![&b"DEL"[..], b"k"], whole))));
        assert_eq!(parse(b"\n*1"), Ok(Some((Vec::new(), 1))));
        for wrong in [&b"+OK\r\n"[..], b"*9999999999\r\n", b"*1\r\n$1\r\nabc", b"*1\r\n:1\r\n"] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
