//! Outstanding commands, and transactions to send.

use std::time::Instant;

use crate::{database::is_selection, error::Error, link::encode_command, reply::Reply};

/// Commands that are executed together or not at all, as between `MULTI` and `EXEC`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    bytes: Vec<u8>,
    command_count: usize,
    /// Set if a command would change the database of the connection.
    selects: bool,
}

impl Transaction {
    /// Adds a command.
    pub fn push(&mut self, arguments: &[&[u8]]) {
        encode_command(arguments, &mut self.bytes);
        self.command_count += 1;
        self.selects |= is_selection(arguments);
    }

    /// Returns whether a command would change the database of the connection.
    pub(crate) const fn selects(&self) -> bool {
        self.selects
    }

    /// Returns the number of commands.
    pub const fn len(&self) -> usize {
        self.command_count
    }

    /// Returns whether there are no commands.
    pub const fn is_empty(&self) -> bool {
        self.command_count == 0
    }

    /// Returns the size of the commands in bytes.
    pub const fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

/// A command whose outcome the caller has not received.
#[derive(Debug)]
pub(crate) struct OpenCommand {
    pub(crate) arguments: Vec<Vec<u8>>,
    /// Commands to queue before the arguments, which are then `EXEC`.
    pub(crate) transaction: Option<Transaction>,
    /// First error of a queued command in this attempt.
    pub(crate) queueing_error: Option<String>,
    /// Number in the session. Reads have none, because they can be retried freely.
    pub(crate) command_number: Option<u64>,
    pub(crate) deadline: Instant,
    /// Set if a previous attempt may have executed the command.
    pub(crate) may_have_run: bool,
    pub(crate) state: CommandState,
    pub(crate) last_failure: String,
}

#[derive(Debug)]
pub(crate) enum CommandState {
    /// The command has to be sent, for the first time or again.
    Waiting,
    Sent,
    Done(Result<Reply, Error>),
}

/// Reply that a connection owes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwedReply {
    /// Reply that says nothing.
    Ignored,
    /// Reply to `MULTI` or to a queued command of the request with this id.
    Queued(u64),
    /// Outcome of the request with this id.
    Outcome(u64),
}

impl OpenCommand {
    pub(crate) const fn is_pending(&self) -> bool {
        !matches!(self.state, CommandState::Done(_))
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        if let Some(queued) = &self.transaction {
            encode_command(&[b"MULTI"], out);
            out.extend_from_slice(&queued.bytes);
        }
        let digits = self.command_number.map(|number| number.to_string());
        let mut arguments: Vec<&[u8]> = Vec::with_capacity(3 + self.arguments.len());
        if let Some(digits) = &digits {
            arguments.extend([&b"QUORATE"[..], b"SEQ", digits.as_bytes()]);
        }
        arguments.extend(self.arguments.iter().map(Vec::as_slice));
        encode_command(&arguments, out);
    }

    pub(crate) fn into_outcome(self) -> Result<Reply, Error> {
        match self.state {
            CommandState::Done(outcome) => outcome,
            CommandState::Sent if self.command_number.is_some() => {
                Err(Error::UnknownOutcome(self.last_failure))
            }
            CommandState::Waiting if self.may_have_run && self.command_number.is_some() => {
                Err(Error::UnknownOutcome(self.last_failure))
            }
            CommandState::Waiting | CommandState::Sent => {
                Err(Error::NotExecuted(self.last_failure))
            }
        }
    }

    /// Returns the number of replies that precede the outcome.
    pub(crate) fn preceding_reply_count(&self) -> usize {
        self.transaction.as_ref().map_or(0, |queued| queued.command_count + 1)
    }

    /// Returns whether the connection is between `MULTI` and `EXEC` after the last reply: a node
    /// refuses a forbidden `EXEC` without ending the transaction.
    pub(crate) fn leaves_multi_open(&self, reply: &Reply) -> bool {
        let is_forbidden = matches!(reply, Reply::Error(text) if text.starts_with("NOPERM"));
        self.transaction.is_some() && is_forbidden
    }

    /// Returns the reply that decides the outcome: the error of a queued command, if the
    /// transaction was discarded because of it.
    pub(crate) fn deciding_reply(&mut self, reply: Reply) -> Reply {
        match (&reply, self.queueing_error.take()) {
            (Reply::Error(text), Some(refusal)) if text.starts_with("EXECABORT") => {
                Reply::Error(refusal)
            }
            _ => reply,
        }
    }
}
