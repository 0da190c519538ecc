//! Second pass: writes keys through the client, many in one transaction.
//!
//! A key that fits into one transaction is written there, if none of its commands can fail. Others
//! are built under a temporary name, which expires if the import is killed, and renamed in a later
//! transaction: one with a failed command still executes the commands after it.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use quorate_admin::{
    progress::{Progress, ProgressReport},
    units::format_bytes as size,
};
use quorate_client::{Client, Reply, Transaction};
use rustix::rand::{GetRandomFlags, getrandom};
use serde::Serialize;

use super::{
    args::{Existing, ImportArgs},
    commands::{
        Command, ExpectedReply, KeyCommands, expected_reply, publish_commands, string_command,
    },
    survey::UnsupportedOrdinals,
};
use crate::{
    kv,
    naming::printable_key,
    output::{Exit, Problem},
    rdb::types::{Element, Key, Kind, RdbVisitor},
};

/// Maximum size of a transaction of several keys, if the cluster takes as much.
const BATCH_BYTES_MAX: usize = 64 << 10;
/// Maximum number of commands in a transaction.
const BATCH_COMMANDS_MAX: usize = 1024;
/// Size of the elements of a key beyond which it is written in chunks, if the cluster takes as
/// much. Commands of this size stay far below the maximum number of arguments.
const CHUNK_BYTES_MAX: usize = 128 << 10;
/// Maximum number of transactions in flight. A node reads no more than 1 MiB from a connection.
const IN_FLIGHT_MAX: usize = 16;
/// Time in milliseconds after which the temporary key of a killed import is gone.
const TEMPORARY_KEY_TTL_MS: &[u8] = b"3600000";

/// Result of the second pass.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Loaded {
    pub(crate) keys: u64,
    /// Number of keys that the cluster had and kept.
    pub(crate) existed: u64,
    /// Number of keys that expired before they were written.
    pub(crate) expired: u64,
    /// Number of deliveries that were pending for deleted entries of streams. They end.
    pub(crate) deliveries_dropped: u64,
}

impl Loaded {
    pub(super) fn human(&self, seconds: f64) -> String {
        let Self { keys, existed, expired, deliveries_dropped } = self;
        let mut text = format!("imported {keys} keys in {seconds:.1} s");
        for (count, what) in [
            (existed, "keys existed and were kept"),
            (expired, "keys expired meanwhile"),
            (deliveries_dropped, "deliveries of deleted stream entries ended"),
        ] {
            if *count > 0 {
                text += &format!("; {count} {what}");
            }
        }
        text
    }
}

/// Visitor of the second pass.
pub(super) struct LoadVisitor<'c> {
    client: &'c mut Client,
    database: u64,
    replaces_existing: bool,
    batch_bytes: usize,
    chunk_bytes: usize,
    now_ms: u64,
    unsupported_keys: UnsupportedOrdinals,
    temporary_name: Vec<u8>,
    /// Number of keys before the current one.
    key_ordinal: u64,
    current_key: Option<CurrentKey>,
    batch: TransactionBatch,
    in_flight: VecDeque<TransactionBatch>,
    totals: Loaded,
    written_keys: Arc<AtomicU64>,
    progress_pace: ProgressPace,
    /// Advice after a failure.
    retry_advice: &'static str,
}

/// Key whose elements arrive.
struct CurrentKey {
    key: Key,
    gathered: KeyCommands,
    /// Set if the key must be complete before a transaction renames it.
    needs_temporary: bool,
    /// Set if a part is in the cluster, under the temporary name.
    has_written_part: bool,
}

/// Commands of one transaction, and what is expected of them.
#[derive(Default)]
struct TransactionBatch {
    commands: Transaction,
    key_names: Vec<Vec<u8>>,
    /// Expected reply to each command, and the index of its key.
    expected_replies: Vec<(ExpectedReply, usize)>,
}

impl TransactionBatch {
    fn begin_key(&mut self, name: &[u8]) {
        self.key_names.push(name.to_vec());
    }

    fn push(&mut self, command: &Command, expect: ExpectedReply) {
        let words: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
        self.commands.push(&words);
        self.expected_replies.push((expect, self.key_names.len() - 1));
    }
}

impl<'c> LoadVisitor<'c> {
    pub(super) fn new(
        client: &'c mut Client,
        args: &ImportArgs,
        (now_ms, command_max): (u64, usize),
        unsupported: UnsupportedOrdinals,
        bytes: u64,
        (done, again): (Arc<AtomicU64>, &'static str),
    ) -> Result<Self, Problem> {
        let mut random = [0; 8];
        getrandom(&mut random, GetRandomFlags::empty())
            .map_err(|error| Problem::io_error("random numbers", &error.into()))?;
        let temporary = format!("quorate:import:{:016x}", u64::from_ne_bytes(random));
        Ok(Self {
            retry_advice: again,
            client,
            database: args.database,
            replaces_existing: args.existing == Existing::Replace,
            batch_bytes: BATCH_BYTES_MAX.min(command_max / 4),
            chunk_bytes: CHUNK_BYTES_MAX.min(command_max / 4),
            now_ms,
            unsupported_keys: unsupported,
            temporary_name: temporary.into_bytes(),
            key_ordinal: 0,
            current_key: None,
            batch: TransactionBatch::default(),
            in_flight: VecDeque::new(),
            totals: Loaded::default(),
            written_keys: done,
            progress_pace: ProgressPace {
                began_at: Instant::now(),
                file_position: 0,
                bytes,
                progress: Progress::start(),
            },
        })
    }

    /// Waits until everything is written.
    pub(super) fn finish(mut self) -> Result<Loaded, Problem> {
        self.drain_in_flight()?;
        Ok(self.totals)
    }

    fn drain_in_flight(&mut self) -> Result<(), Problem> {
        self.send_batch()?;
        while !self.in_flight.is_empty() {
            self.receive_reply()?;
        }
        Ok(())
    }

    fn send_batch(&mut self) -> Result<(), Problem> {
        let mut batch = std::mem::take(&mut self.batch);
        if batch.commands.is_empty() {
            return Ok(());
        }
        if self.in_flight.len() == IN_FLIGHT_MAX {
            self.receive_reply()?;
        }
        let commands = std::mem::take(&mut batch.commands);
        self.client.send_transaction(commands).map_err(|error| self.client_problem(&error))?;
        self.in_flight.push_back(batch);
        Ok(())
    }

    fn receive_reply(&mut self) -> Result<(), Problem> {
        let reply = self.client.receive().map_err(|error| self.client_problem(&error))?;
        let batch = self.in_flight.pop_front().unwrap_or_default();
        self.check_reply(&batch, &reply)?;
        self.written_keys.store(self.totals.keys, Ordering::SeqCst);
        self.progress_pace.report(self.totals.keys);
        Ok(())
    }

    fn client_problem(&self, error: &quorate_client::Error) -> Problem {
        let problem = kv::client_problem(error);
        let Problem { exit, code, message, hint } = problem;
        let keys = self.totals.keys;
        let what = format_args!("{message}; at least {keys} keys are imported, each of them whole");
        let hint = match &*hint {
            "" => self.retry_advice.to_owned(),
            hint => format!("{hint}; then {}", self.retry_advice),
        };
        Problem::new(exit, code, what).with_hint(hint)
    }

    fn check_reply(&mut self, batch: &TransactionBatch, reply: &Reply) -> Result<(), Problem> {
        let replies = match reply {
            Reply::Array(replies) if replies.len() == batch.expected_replies.len() => replies,
            other => {
                let what = format_args!("unexpected reply of the cluster: {other}");
                return Err(Problem::new(Exit::Failed, "bad_answer", what)
                    .with_hint("check that the nodes run this version"));
            }
        };
        for ((expect, name), reply) in batch.expected_replies.iter().zip(replies) {
            match (expect, reply) {
                (ExpectedReply::KeyWritten, Reply::Error(text)) if text.contains("no such key") => {
                    self.totals.expired += 1;
                }
                (_, Reply::Error(text)) => {
                    return Err(self.refused_problem(&batch.key_names[*name], text));
                }
                (ExpectedReply::KeyKept, Reply::Integer(0)) => {
                    let text = "its temporary key expired while it was built";
                    return Err(self.refused_problem(&batch.key_names[*name], text));
                }
                (ExpectedReply::KeyWritten, Reply::Nil | Reply::Integer(0)) => {
                    self.totals.existed += 1
                }
                (ExpectedReply::KeyWritten, _) => self.totals.keys += 1,
                (ExpectedReply::ClaimedIds(count), Reply::Array(claimed)) => {
                    self.totals.deliveries_dropped += count.saturating_sub(claimed.len()) as u64;
                }
                (
                    ExpectedReply::NoError | ExpectedReply::KeyKept | ExpectedReply::ClaimedIds(_),
                    _,
                ) => {}
            }
        }
        Ok(())
    }

    fn refused_problem(&self, name: &[u8], text: &str) -> Problem {
        let (name, keys) = (printable_key(name), self.totals.keys);
        let what =
            format_args!("key {name} was refused: {text}; at least {keys} keys are imported");
        Problem::new(Exit::Failed, "refused", what)
            .with_hint(format!("remove the cause, then {}", self.retry_advice))
    }

    /// Sends the batch if `bytes` more bytes would make it too large.
    fn make_room(&mut self, bytes: usize) -> Result<(), Problem> {
        let is_full = self.batch.commands.bytes() + bytes > self.batch_bytes
            || self.batch.commands.len() >= BATCH_COMMANDS_MAX;
        if is_full { self.send_batch() } else { Ok(()) }
    }

    /// Writes the gathered elements under the temporary name, after all that was sent before, and
    /// waits until they are there without an error.
    fn write_chunk(&mut self, current: &mut CurrentKey) -> Result<(), Problem> {
        self.drain_in_flight()?;
        self.batch.begin_key(&current.key.name);
        let expiry = [&b"PEXPIRE"[..], &self.temporary_name, TEMPORARY_KEY_TTL_MS]
            .map(<[u8]>::to_vec)
            .to_vec();
        if current.has_written_part {
            self.batch.push(&expiry, ExpectedReply::KeyKept);
        }
        for command in current.gathered.take_commands() {
            self.batch.push(&command, expected_reply(&command));
        }
        if !current.has_written_part {
            self.batch.push(&expiry, ExpectedReply::NoError);
        }
        (current.needs_temporary, current.has_written_part) = (true, true);
        self.drain_in_flight()
    }

    fn finish_key(&mut self, mut current: CurrentKey) -> Result<(), Problem> {
        if current.needs_temporary && !current.gathered.is_empty() {
            self.write_chunk(&mut current)?;
        }
        let CurrentKey { key, needs_temporary: is_apart, .. } = &current;
        let how = (self.replaces_existing, *is_apart);
        let publish = publish_commands(&self.temporary_name, &key.name, key.expires_ms, how);
        self.make_room(current.gathered.bytes() + key.name.len())?;
        self.batch.begin_key(&key.name);
        for command in current.gathered.take_commands() {
            self.batch.push(&command, expected_reply(&command));
        }
        for (command, expect) in publish {
            self.batch.push(&command, expect);
        }
        Ok(())
    }
}

impl RdbVisitor for LoadVisitor<'_> {
    fn key(&mut self, key: &Key, at: u64) -> Result<(), Problem> {
        self.progress_pace.file_position = at;
        let is_left_out = key.database != self.database
            || matches!(key.kind, Kind::Module(_))
            || self.unsupported_keys.contains(&self.key_ordinal);
        self.key_ordinal += 1;
        let is_expired = key.expires_ms.is_some_and(|ms| ms <= self.now_ms);
        self.current_key = (!is_left_out && !is_expired).then(|| CurrentKey {
            key: key.clone(),
            gathered: KeyCommands::default(),
            needs_temporary: key.kind == Kind::Stream,
            has_written_part: false,
        });
        Ok(())
    }

    fn visit_element(&mut self, element: Element<'_>) -> Result<(), Problem> {
        let Some(mut current) = self.current_key.take() else {
            return Ok(());
        };
        match element {
            Element::Value(value) => {
                let Key { name, expires_ms, .. } = &current.key;
                let (command, expect) =
                    string_command(name, value, *expires_ms, self.replaces_existing);
                self.make_room(name.len() + value.len())?;
                self.batch.begin_key(name);
                self.batch.push(&command, expect);
                return Ok(());
            }
            Element::Field(_, _, Some(ms)) if ms <= self.now_ms => {}
            _ => {
                if !current.gathered.has_room(&element, self.chunk_bytes) {
                    self.write_chunk(&mut current)?;
                }
                current.needs_temporary |= matches!(element, Element::Field(_, _, Some(_)));
                current.gathered.add_element(&self.temporary_name, &element);
            }
        }
        self.current_key = Some(current);
        Ok(())
    }

    fn end_key(&mut self) -> Result<(), Problem> {
        match self.current_key.take() {
            Some(current) if current.has_written_part || !current.gathered.is_empty() => {
                self.finish_key(current)
            }
            // Every field of the hash has expired.
            Some(_) => {
                self.totals.expired += 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

/// Progress of the second pass.
struct ProgressPace {
    began_at: Instant,
    file_position: u64,
    bytes: u64,
    progress: Progress,
}

impl ProgressPace {
    fn report(&mut self, keys: u64) {
        let Self { began_at: began, file_position: at, bytes, progress } = self;
        progress.report(|| {
            let seconds = began.elapsed().as_secs_f64().max(0.001);
            let per_second = |count: u64| (count as f64 / seconds) as u64;
            let rate = per_second(*at).max(1);
            let rest = format!(
                "{keys} keys, {} of {}, {}/s, {} keys/s, about {} s left",
                size(*at),
                size(*bytes),
                size(rate),
                per_second(keys),
                bytes.saturating_sub(*at) / rate
            );
            ProgressReport::with_share("import: ", (*at, *bytes), rest)
        });
    }
}
