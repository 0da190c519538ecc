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
    naming::{NameExamples, format_counts},
    output::Problem,
    rdb::types::{Element, Key, Kind, RdbVisitor},
};

/// Maximum length of a key.
const KEY_BYTES_MAX: usize = 65_520;
/// Maximum length of a field of a hash, a member of a set or sorted set, a group and a consumer.
const NAME_BYTES_MAX: usize = 65_472;
/// Bytes of a transaction next to an element and the names of its key.
const TRANSACTION_OVERHEAD_BYTES: usize = 768;
/// Number of names of a key in the commands that write it.
const NAMES_PER_KEY: usize = 4;
/// Number of keys in one question to the cluster.
const KEYS_PER_QUESTION: usize = 256;
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
    pub(crate) unsupported: BTreeMap<String, NameExamples>,
    /// Keys that the cluster already has; null if it was not asked.
    pub(crate) existing: Option<NameExamples>,
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
            _ => writeln!(text, " ({}); {} expire", format_counts(&self.keys), self.expiring),
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
pub(super) type UnsupportedOrdinals = BTreeSet<u64>;

/// Visitor of the first pass.
pub(super) struct SurveyVisitor<'c> {
    database: u64,
    command_bytes_max: usize,
    now_ms: u64,
    /// Set if an unreachable cluster is no error.
    allows_unreachable: bool,
    client: Option<&'c mut Client>,
    contents: Surveyed,
    unsupported: UnsupportedOrdinals,
    /// Number of keys before the current one.
    key_ordinal: u64,
    current_key: Option<CurrentKey>,
    unasked_keys: Vec<Vec<u8>>,
    unasked_bytes: usize,
}

/// Key whose elements arrive.
struct CurrentKey {
    key: Key,
    element_count: u64,
    /// Length of the last group's name, which other elements repeat.
    group_name_bytes: usize,
    /// Reason why the key cannot be taken over.
    obstacle: Option<String>,
}

impl<'c> SurveyVisitor<'c> {
    /// Creates a survey that asks the cluster which keys it has, if there is a client.
    pub(super) fn new(
        args: &ImportArgs,
        (now_ms, command_max): (u64, usize),
        client: Option<&'c mut Client>,
    ) -> Result<Self, Problem> {
        let mut survey = Self {
            database: args.database,
            command_bytes_max: command_max,
            now_ms,
            allows_unreachable: args.dry_run,
            client,
            contents: Surveyed::default(),
            unsupported: UnsupportedOrdinals::new(),
            key_ordinal: 0,
            current_key: None,
            unasked_keys: Vec::new(),
            unasked_bytes: 0,
        };
        if survey.client.is_some() {
            survey.contents.existing = Some(NameExamples::default());
            // An empty cluster needs no further questions.
            if survey.query_cluster(&[b"DBSIZE"])? == Some(Reply::Integer(0)) {
                survey.client = None;
            }
        }
        Ok(survey)
    }

    fn query_cluster(&mut self, words: &[&[u8]]) -> Result<Option<Reply>, Problem> {
        let Some(client) = &mut self.client else { return Ok(None) };
        match client.read(words) {
            Ok(reply) => Ok(Some(reply)),
            Err(error @ Error::NotExecuted(_)) if self.allows_unreachable => {
                (self.client, self.contents.existing) = (None, None);
                self.contents.cluster = Some(error.to_string());
                Ok(None)
            }
            Err(error) => Err(kv::client_problem(&error)),
        }
    }

    fn query_existing(&mut self) -> Result<(), Problem> {
        let asked = std::mem::take(&mut self.unasked_keys);
        self.unasked_bytes = 0;
        let words: Vec<&[u8]> =
            std::iter::once(&b"EXISTS"[..]).chain(asked.iter().map(Vec::as_slice)).collect();
        let Some(Reply::Integer(mut left @ 1..)) = self.query_cluster(&words)? else {
            return Ok(());
        };
        for name in &asked {
            let is_enough = |found: &Surveyed| {
                found.existing.as_ref().is_none_or(|existing| existing.examples.len() >= 5)
            };
            if left > 0
                && !is_enough(&self.contents)
                && self.query_cluster(&[b"EXISTS", name])? == Some(Reply::Integer(1))
            {
                left -= 1;
                self.contents.existing.get_or_insert_default().add_name(name);
            }
        }
        let existing = self.contents.existing.get_or_insert_default();
        existing.count += u64::try_from(left).unwrap_or_default();
        Ok(())
    }

    /// Returns the contents, and the numbers of the keys that cannot be taken over.
    pub(super) fn finish(mut self) -> Result<(Surveyed, UnsupportedOrdinals), Problem> {
        if !self.unasked_keys.is_empty() {
            self.query_existing()?;
        }
        Ok((self.contents, self.unsupported))
    }

    fn mark_unsupported(&mut self, what: &str) {
        self.contents.unsupported.entry(what.to_owned()).or_default().count += 1;
    }
}

/// Returns why an element cannot be taken over, if so.
fn too_large_reason(
    element: &Element<'_>,
    current: &CurrentKey,
    command_max: usize,
) -> Option<String> {
    let name = match element {
        Element::Member(name) | Element::Scored(name, _) | Element::Field(name, ..) => name.len(),
        Element::Group(name, ..) | Element::Consumer(name) => name.len(),
        _ => 0,
    };
    let bytes = commands::command_size(element) + current.group_name_bytes;
    match element {
        _ if name > NAME_BYTES_MAX => {
            Some(format!("field, member, group or consumer longer than {NAME_BYTES_MAX} bytes"))
        }
        _ if bytes + NAMES_PER_KEY * current.key.name.len() + TRANSACTION_OVERHEAD_BYTES
            > command_max =>
        {
            Some(format!("value larger than a command (--command-max {command_max})"))
        }
        Element::Entry(_, words) if words.len() > ENTRY_WORDS_MAX => {
            Some(format!("stream entry of more than {ENTRY_WORDS_MAX} words"))
        }
        _ => None,
    }
}

impl RdbVisitor for SurveyVisitor<'_> {
    fn key(&mut self, key: &Key, _at: u64) -> Result<(), Problem> {
        let obstacle = match &key.kind {
            _ if key.database != self.database => Some(format!("database {}", key.database)),
            Kind::Module(_) => Some(format!("{}", key.kind)),
            _ if key.name.len() > KEY_BYTES_MAX => {
                Some(format!("key longer than {KEY_BYTES_MAX} bytes"))
            }
            _ => None,
        };
        self.current_key =
            Some(CurrentKey { key: key.clone(), element_count: 0, group_name_bytes: 0, obstacle });
        Ok(())
    }

    fn visit_element(&mut self, element: Element<'_>) -> Result<(), Problem> {
        if let Some(current) = &mut self.current_key {
            current.element_count += 1;
            if current.obstacle.is_none() {
                current.obstacle = too_large_reason(&element, current, self.command_bytes_max);
            }
            if let Element::Group(name, ..) = element {
                current.group_name_bytes = name.len();
            }
        }
        Ok(())
    }

    fn end_key(&mut self) -> Result<(), Problem> {
        let ordinal = self.key_ordinal;
        self.key_ordinal += 1;
        let Some(CurrentKey { key, element_count: elements, obstacle, .. }) =
            self.current_key.take()
        else {
            return Ok(());
        };
        if key.database == self.database && key.expires_ms.is_some_and(|ms| ms <= self.now_ms) {
            self.contents.expired += 1;
        } else if let Some(obstacle) = obstacle {
            self.contents.unsupported.entry(obstacle).or_default().add_name(&key.name);
            self.unsupported.insert(ordinal);
        } else {
            *self.contents.keys.entry(key.kind.to_string()).or_default() += 1;
            self.contents.elements += elements;
            self.contents.expiring += u64::from(key.expires_ms.is_some());
            if self.client.is_some() {
                self.unasked_bytes += key.name.len();
                self.unasked_keys.push(key.name);
                // A name takes at most a quarter, too, of what the nodes take ([`NAMES_PER_KEY`]).
                if self.unasked_keys.len() == KEYS_PER_QUESTION
                    || self.unasked_bytes > self.command_bytes_max / 4
                {
                    self.query_existing()?;
                }
            }
        }
        Ok(())
    }

    fn visit_function(&mut self, _text: &[u8]) {
        self.mark_unsupported("libraries of functions (use EVAL)");
    }

    fn visit_module_data(&mut self, module: &str) {
        self.mark_unsupported(&format!("data of module {module} apart from keys"));
    }
}
