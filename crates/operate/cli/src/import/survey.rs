//! First pass: counts what is in the file, and finds what cannot be taken over.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use quorate_client::{Client, Error, Reply};
use serde::Serialize;

use super::{args::ImportArgs, commands};
use crate::{
    kv,
    naming::{Named, counts},
    output::Problem,
    rdb::types::{Element, Key, Kind, Visitor},
};

/// Maximum length of a key.
const KEY_BYTES_MAX: usize = 65_520;
/// Maximum length of a field of a hash, a member of a set or sorted set, a group and a consumer.
const NAME_BYTES_MAX: usize = 65_472;
/// Bytes of a transaction next to an element and the names of its key.
const AROUND_BYTES: usize = 768;
/// Number of names of a key in the commands that write it.
const NAMES: usize = 4;
/// Number of keys in one question to the cluster.
const ASKED: usize = 256;
/// Maximum number of words of a stream's entry: a command has 262 144 arguments.
const ENTRY_WORDS_MAX: usize = 262_144 - 3;

/// Contents of a file.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Surveyed {
    /// Number of keys to write, by type.
    pub(crate) keys: BTreeMap<String, u64>,
    pub(crate) elements: u64,
    /// Number of keys to write that expire.
    pub(crate) expiring: u64,
    /// Number of keys whose expiry has passed. They are not written.
    pub(crate) expired: u64,
    pub(crate) unsupported: BTreeMap<String, Named>,
    /// Keys that the cluster already has; null if it was not asked.
    pub(crate) existing: Option<Named>,
    /// Reason why the cluster could not be asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cluster: Option<String>,
}

impl Surveyed {
    pub(super) fn unsupported_text(&self, between: &str) -> String {
        let texts = self.unsupported.iter().map(|(what, which)| match which.examples.is_empty() {
            true => what.clone(),
            false => format!("{what}, {}", which.text()),
        });
        texts.collect::<Vec<_>>().join(between)
    }

    pub(super) fn human(&self) -> String {
        let keys: u64 = self.keys.values().sum();
        let mut text = format!("to write: {keys} keys with {} elements", self.elements);
        let _ = match keys {
            0 => writeln!(text),
            _ => writeln!(text, " ({}); {} expire", counts(&self.keys), self.expiring),
        };
        if self.expired > 0 {
            let _ = writeln!(text, "expired already: {} keys", self.expired);
        }
        if !self.unsupported.is_empty() {
            let list = self.unsupported_text("\n  ");
            let _ = writeln!(text, "cannot be taken over:\n  {list}");
        }
        if let Some(existing) = self.existing.as_ref().filter(|existing| existing.count > 0) {
            let _ = writeln!(text, "in the cluster already: {}", existing.text());
        }
        if let Some(why) = &self.cluster {
            let _ = writeln!(text, "the cluster was not asked which keys it has: {why}");
        }
        text
    }
}

/// Keys that cannot be taken over, by their number in the file.
pub(super) type Unsupported = BTreeSet<u64>;

/// Visitor of the first pass.
pub(super) struct Survey<'c> {
    database: u64,
    command_max: usize,
    now_ms: u64,
    /// Set if an unreachable cluster is no error.
    is_tolerant: bool,
    client: Option<&'c mut Client>,
    found: Surveyed,
    unsupported: Unsupported,
    /// Number of keys before the current one.
    ordinal: u64,
    current: Option<Current>,
    asked: Vec<Vec<u8>>,
    asked_bytes: usize,
}

/// Key whose elements arrive.
struct Current {
    key: Key,
    elements: u64,
    /// Length of the last group's name, which other elements repeat.
    group: usize,
    /// Reason why the key cannot be taken over.
    obstacle: Option<String>,
}

impl<'c> Survey<'c> {
    /// Creates a survey that asks the cluster which keys it has, if there is a client.
    pub(super) fn new(
        args: &ImportArgs,
        (now_ms, command_max): (u64, usize),
        client: Option<&'c mut Client>,
    ) -> Result<Self, Problem> {
        let mut survey = Self {
            database: args.database,
            command_max,
            now_ms,
            is_tolerant: args.dry_run,
            client,
            found: Surveyed::default(),
            unsupported: Unsupported::new(),
            ordinal: 0,
            current: None,
            asked: Vec::new(),
            asked_bytes: 0,
        };
        if survey.client.is_some() {
            survey.found.existing = Some(Named::default());
            // An empty cluster needs no further questions.
            if survey.ask(&[b"DBSIZE"])? == Some(Reply::Integer(0)) {
                survey.client = None;
            }
        }
        Ok(survey)
    }

    fn ask(&mut self, words: &[&[u8]]) -> Result<Option<Reply>, Problem> {
        let Some(client) = &mut self.client else { return Ok(None) };
        match client.ask(words) {
            Ok(reply) => Ok(Some(reply)),
            Err(error @ Error::NotExecuted(_)) if self.is_tolerant => {
                (self.client, self.found.existing) = (None, None);
                self.found.cluster = Some(error.to_string());
                Ok(None)
            }
            Err(error) => Err(kv::client_problem(&error)),
        }
    }

    fn ask_existing(&mut self) -> Result<(), Problem> {
        let asked = std::mem::take(&mut self.asked);
        self.asked_bytes = 0;
        let words: Vec<&[u8]> =
            std::iter::once(&b"EXISTS"[..]).chain(asked.iter().map(Vec::as_slice)).collect();
        let Some(Reply::Integer(mut left @ 1..)) = self.ask(&words)? else {
            return Ok(());
        };
        for name in &asked {
            let is_enough = |found: &Surveyed| {
                found.existing.as_ref().is_none_or(|existing| existing.examples.len() >= 5)
            };
            if left > 0
                && !is_enough(&self.found)
                && self.ask(&[b"EXISTS", name])? == Some(Reply::Integer(1))
            {
                left -= 1;
                self.found.existing.get_or_insert_default().add(name);
            }
        }
        let existing = self.found.existing.get_or_insert_default();
        existing.count += u64::try_from(left).unwrap_or_default();
        Ok(())
    }

    /// Returns the contents, and the numbers of the keys that cannot be taken over.
    pub(super) fn finish(mut self) -> Result<(Surveyed, Unsupported), Problem> {
        if !self.asked.is_empty() {
            self.ask_existing()?;
        }
        Ok((self.found, self.unsupported))
    }

    fn refuse(&mut self, what: &str) {
        self.found.unsupported.entry(what.to_owned()).or_default().count += 1;
    }
}

/// Returns why an element cannot be taken over, if so.
fn too_large(element: &Element<'_>, current: &Current, command_max: usize) -> Option<String> {
    let name = match element {
        Element::Member(name) | Element::Scored(name, _) | Element::Field(name, ..) => name.len(),
        Element::Group(name, ..) | Element::Consumer(name) => name.len(),
        _ => 0,
    };
    let bytes = commands::size(element) + current.group;
    match element {
        _ if name > NAME_BYTES_MAX => {
            Some(format!("field, member, group or consumer longer than {NAME_BYTES_MAX} bytes"))
        }
        _ if bytes + NAMES * current.key.name.len() + AROUND_BYTES > command_max => {
            Some(format!("value larger than a command (--command-max {command_max})"))
        }
        Element::Entry(_, words) if words.len() > ENTRY_WORDS_MAX => {
            Some(format!("stream entry of more than {ENTRY_WORDS_MAX} words"))
        }
        _ => None,
    }
}

impl Visitor for Survey<'_> {
    fn key(&mut self, key: &Key, _at: u64) -> Result<(), Problem> {
        let obstacle = match &key.kind {
            _ if key.database != self.database => Some(format!("database {}", key.database)),
            Kind::Module(_) => Some(format!("{}", key.kind)),
            _ if key.name.len() > KEY_BYTES_MAX => {
                Some(format!("key longer than {KEY_BYTES_MAX} bytes"))
            }
            _ => None,
        };
        self.current = Some(Current { key: key.clone(), elements: 0, group: 0, obstacle });
        Ok(())
    }

    fn element(&mut self, element: Element<'_>) -> Result<(), Problem> {
        if let Some(current) = &mut self.current {
            current.elements += 1;
            if current.obstacle.is_none() {
                current.obstacle = too_large(&element, current, self.command_max);
            }
            if let Element::Group(name, ..) = element {
                current.group = name.len();
            }
        }
        Ok(())
    }

    fn key_end(&mut self) -> Result<(), Problem> {
        let ordinal = self.ordinal;
        self.ordinal += 1;
        let Some(Current { key, elements, obstacle, .. }) = self.current.take() else {
            return Ok(());
        };
        if key.database == self.database && key.expires_ms.is_some_and(|ms| ms <= self.now_ms) {
            self.found.expired += 1;
        } else if let Some(obstacle) = obstacle {
            self.found.unsupported.entry(obstacle).or_default().add(&key.name);
            self.unsupported.insert(ordinal);
        } else {
            *self.found.keys.entry(key.kind.to_string()).or_default() += 1;
            self.found.elements += elements;
            self.found.expiring += u64::from(key.expires_ms.is_some());
            if self.client.is_some() {
                self.asked_bytes += key.name.len();
                self.asked.push(key.name);
                // A name takes at most a quarter, too, of what the nodes take ([`NAMES`]).
                if self.asked.len() == ASKED || self.asked_bytes > self.command_max / 4 {
                    self.ask_existing()?;
                }
            }
        }
        Ok(())
    }

    fn function(&mut self, _text: &[u8]) {
        self.refuse("libraries of functions (use EVAL)");
    }

    fn module_data(&mut self, module: &str) {
        self.refuse(&format!("data of module {module} apart from keys"));
    }
}
