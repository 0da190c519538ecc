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
    units::bytes as size,
};
use quorate_client::{Client, Reply, Transaction};
use rustix::rand::{GetRandomFlags, getrandom};
use serde::Serialize;

use super::{
    args::{Existing, ImportArgs},
    commands::{Command, Expect, Gathered, expected, publish, string},
    survey::Unsupported,
};
use crate::{
    kv,
    naming::shown,
    output::{Exit, Problem},
    rdb::types::{Element, Key, Kind, Visitor},
};

/// Maximum size of a transaction of several keys, if the cluster takes as much.
const BATCH_BYTES: usize = 64 << 10;
/// Maximum number of commands in a transaction.
const BATCH_COMMANDS: usize = 1024;
/// Size of the elements of a key beyond which it is written in chunks, if the cluster takes as
/// much. Commands of this size stay far below the maximum number of arguments.
const CHUNK_BYTES: usize = 128 << 10;
/// Maximum number of transactions in flight. A node reads no more than 1 MiB from a connection.
const IN_FLIGHT_MAX: usize = 16;
/// Time in milliseconds after which the temporary key of a killed import is gone.
const TEMPORARY_MS: &[u8] = b"3600000";

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
pub(super) struct Load<'c> {
    client: &'c mut Client,
    database: u64,
    replaces: bool,
    batch_bytes: usize,
    chunk_bytes: usize,
    now_ms: u64,
    unsupported: Unsupported,
    temporary: Vec<u8>,
    /// Number of keys before the current one.
    ordinal: u64,
    current: Option<Current>,
    batch: Batch,
    in_flight: VecDeque<Batch>,
    loaded: Loaded,
    done: Arc<AtomicU64>,
    pace: Pace,
    /// Advice after a failure.
    again: &'static str,
}

/// Key whose elements arrive.
struct Current {
    key: Key,
    gathered: Gathered,
    /// Set if the key must be complete before a transaction renames it.
    is_apart: bool,
    /// Set if a part is in the cluster, under the temporary name.
    is_begun: bool,
}

/// Commands of one transaction, and what is expected of them.
#[derive(Default)]
struct Batch {
    commands: Transaction,
    names: Vec<Vec<u8>>,
    /// Expected reply to each command, and the index of its key.
    expected: Vec<(Expect, usize)>,
}

impl Batch {
    fn begin_key(&mut self, name: &[u8]) {
        self.names.push(name.to_vec());
    }

    fn push(&mut self, command: &Command, expect: Expect) {
        let words: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
        self.commands.push(&words);
        self.expected.push((expect, self.names.len() - 1));
    }
}

impl<'c> Load<'c> {
    pub(super) fn new(
        client: &'c mut Client,
        args: &ImportArgs,
        (now_ms, command_max): (u64, usize),
        unsupported: Unsupported,
        bytes: u64,
        (done, again): (Arc<AtomicU64>, &'static str),
    ) -> Result<Self, Problem> {
        let mut random = [0; 8];
        getrandom(&mut random, GetRandomFlags::empty())
            .map_err(|error| Problem::io("random numbers", &error.into()))?;
        let temporary = format!("quorate:import:{:016x}", u64::from_ne_bytes(random));
        Ok(Self {
            again,
            client,
            database: args.database,
            replaces: args.existing == Existing::Replace,
            batch_bytes: BATCH_BYTES.min(command_max / 4),
            chunk_bytes: CHUNK_BYTES.min(command_max / 4),
            now_ms,
            unsupported,
            temporary: temporary.into_bytes(),
            ordinal: 0,
            current: None,
            batch: Batch::default(),
            in_flight: VecDeque::new(),
            loaded: Loaded::default(),
            done,
            pace: Pace { began: Instant::now(), at: 0, bytes, progress: Progress::start() },
        })
    }

    /// Waits until everything is written.
    pub(super) fn finish(mut self) -> Result<Loaded, Problem> {
        self.drain()?;
        Ok(self.loaded)
    }

    fn drain(&mut self) -> Result<(), Problem> {
        self.send()?;
        while !self.in_flight.is_empty() {
            self.receive()?;
        }
        Ok(())
    }

    fn send(&mut self) -> Result<(), Problem> {
        let mut batch = std::mem::take(&mut self.batch);
        if batch.commands.is_empty() {
            return Ok(());
        }
        if self.in_flight.len() == IN_FLIGHT_MAX {
            self.receive()?;
        }
        let commands = std::mem::take(&mut batch.commands);
        self.client.send_transaction(commands).map_err(|error| self.failed(&error))?;
        self.in_flight.push_back(batch);
        Ok(())
    }

    fn receive(&mut self) -> Result<(), Problem> {
        let reply = self.client.receive().map_err(|error| self.failed(&error))?;
        let batch = self.in_flight.pop_front().unwrap_or_default();
        self.check(&batch, &reply)?;
        self.done.store(self.loaded.keys, Ordering::SeqCst);
        self.pace.report(self.loaded.keys);
        Ok(())
    }

    fn failed(&self, error: &quorate_client::Error) -> Problem {
        let problem = kv::client_problem(error);
        let Problem { exit, code, message, hint } = problem;
        let keys = self.loaded.keys;
        let what = format_args!("{message}; at least {keys} keys are imported, each of them whole");
        let hint = match &*hint {
            "" => self.again.to_owned(),
            hint => format!("{hint}; then {}", self.again),
        };
        Problem::new(exit, code, what).hint(hint)
    }

    fn check(&mut self, batch: &Batch, reply: &Reply) -> Result<(), Problem> {
        let replies = match reply {
            Reply::Array(replies) if replies.len() == batch.expected.len() => replies,
            other => {
                let what = format_args!("unexpected reply of the cluster: {other}");
                return Err(Problem::new(Exit::Failed, "bad_answer", what)
                    .hint("check that the nodes run this version"));
            }
        };
        for ((expect, name), reply) in batch.expected.iter().zip(replies) {
            match (expect, reply) {
                (Expect::Verdict, Reply::Error(text)) if text.contains("no such key") => {
                    self.loaded.expired += 1;
                }
                (_, Reply::Error(text)) => return Err(self.refused(&batch.names[*name], text)),
                (Expect::Kept, Reply::Integer(0)) => {
                    let text = "its temporary key expired while it was built";
                    return Err(self.refused(&batch.names[*name], text));
                }
                (Expect::Verdict, Reply::Nil | Reply::Integer(0)) => self.loaded.existed += 1,
                (Expect::Verdict, _) => self.loaded.keys += 1,
                (Expect::Claim(count), Reply::Array(claimed)) => {
                    self.loaded.deliveries_dropped += count.saturating_sub(claimed.len()) as u64;
                }
                (Expect::Success | Expect::Kept | Expect::Claim(_), _) => {}
            }
        }
        Ok(())
    }

    fn refused(&self, name: &[u8], text: &str) -> Problem {
        let (name, keys) = (shown(name), self.loaded.keys);
        let what =
            format_args!("key {name} was refused: {text}; at least {keys} keys are imported");
        Problem::new(Exit::Failed, "refused", what)
            .hint(format!("remove the cause, then {}", self.again))
    }

    /// Sends the batch if `bytes` more bytes would make it too large.
    fn make_room(&mut self, bytes: usize) -> Result<(), Problem> {
        let is_full = self.batch.commands.bytes() + bytes > self.batch_bytes
            || self.batch.commands.len() >= BATCH_COMMANDS;
        if is_full { self.send() } else { Ok(()) }
    }

    /// Writes the gathered elements under the temporary name, after all that was sent before, and
    /// waits until they are there without an error.
    fn write_chunk(&mut self, current: &mut Current) -> Result<(), Problem> {
        self.drain()?;
        self.batch.begin_key(&current.key.name);
        let expiry = [&b"PEXPIRE"[..], &self.temporary, TEMPORARY_MS].map(<[u8]>::to_vec).to_vec();
        if current.is_begun {
            self.batch.push(&expiry, Expect::Kept);
        }
        for command in current.gathered.take() {
            self.batch.push(&command, expected(&command));
        }
        if !current.is_begun {
            self.batch.push(&expiry, Expect::Success);
        }
        (current.is_apart, current.is_begun) = (true, true);
        self.drain()
    }

    fn write_end(&mut self, mut current: Current) -> Result<(), Problem> {
        if current.is_apart && !current.gathered.is_empty() {
            self.write_chunk(&mut current)?;
        }
        let Current { key, is_apart, .. } = &current;
        let how = (self.replaces, *is_apart);
        let publish = publish(&self.temporary, &key.name, key.expires_ms, how);
        self.make_room(current.gathered.bytes() + key.name.len())?;
        self.batch.begin_key(&key.name);
        for command in current.gathered.take() {
            self.batch.push(&command, expected(&command));
        }
        for (command, expect) in publish {
            self.batch.push(&command, expect);
        }
        Ok(())
    }
}

impl Visitor for Load<'_> {
    fn key(&mut self, key: &Key, at: u64) -> Result<(), Problem> {
        self.pace.at = at;
        let is_left_out = key.database != self.database
            || matches!(key.kind, Kind::Module(_))
            || self.unsupported.contains(&self.ordinal);
        self.ordinal += 1;
        let is_expired = key.expires_ms.is_some_and(|ms| ms <= self.now_ms);
        self.current = (!is_left_out && !is_expired).then(|| Current {
            key: key.clone(),
            gathered: Gathered::default(),
            is_apart: key.kind == Kind::Stream,
            is_begun: false,
        });
        Ok(())
    }

    fn element(&mut self, element: Element<'_>) -> Result<(), Problem> {
        let Some(mut current) = self.current.take() else {
            return Ok(());
        };
        match element {
            Element::Value(value) => {
                let Key { name, expires_ms, .. } = &current.key;
                let (command, expect) = string(name, value, *expires_ms, self.replaces);
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
                current.is_apart |= matches!(element, Element::Field(_, _, Some(_)));
                current.gathered.add(&self.temporary, &element);
            }
        }
        self.current = Some(current);
        Ok(())
    }

    fn key_end(&mut self) -> Result<(), Problem> {
        match self.current.take() {
            Some(current) if current.is_begun || !current.gathered.is_empty() => {
                self.write_end(current)
            }
            // Every field of the hash has expired.
            Some(_) => {
                self.loaded.expired += 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

/// Progress of the second pass.
struct Pace {
    began: Instant,
    at: u64,
    bytes: u64,
    progress: Progress,
}

impl Pace {
    fn report(&mut self, keys: u64) {
        let Self { began, at, bytes, progress } = self;
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
            ProgressReport::share("import: ", (*at, *bytes), rest)
        });
    }
}
