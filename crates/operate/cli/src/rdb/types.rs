//! Contents of a file as the reader reports them, and the errors of reading.

use std::{fmt, io};

use crate::output::Problem;

/// Type of a key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    String,
    List,
    Set,
    SortedSet,
    Hash,
    Stream,
    /// Value of a module, with the module's name. It has no elements.
    Module(String),
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::String => f.write_str("string"),
            Self::List => f.write_str("list"),
            Self::Set => f.write_str("set"),
            Self::SortedSet => f.write_str("sorted set"),
            Self::Hash => f.write_str("hash"),
            Self::Stream => f.write_str("stream"),
            Self::Module(name) => write!(f, "module {name}"),
        }
    }
}

/// Key before its elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) database: u64,
    pub(crate) name: Vec<u8>,
    pub(crate) kind: Kind,
    /// Moment of expiry in milliseconds since 1970.
    pub(crate) expires_ms: Option<u64>,
}

/// Id of a stream's entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EntryId {
    pub(crate) ms: u64,
    pub(crate) sequence: u64,
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.sequence)
    }
}

/// State of a stream apart from its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamState {
    pub(crate) length: u64,
    pub(crate) last_id: EntryId,
    /// Highest deleted id, and the number of entries ever added. `None` before version 10.
    pub(crate) counters: Option<(EntryId, u64)>,
}

/// Element of the last key.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Element<'a> {
    /// Value of a string.
    Value(&'a [u8]),
    Item(&'a [u8]),
    Member(&'a [u8]),
    Scored(&'a [u8], f64),
    /// Field, value, and the field's own moment of expiry.
    Field(&'a [u8], &'a [u8], Option<u64>),
    /// Entry of a stream: fields and values in turn.
    Entry(EntryId, &'a [Vec<u8>]),
    /// Follows all entries of a stream.
    State(StreamState),
    /// Group of the stream, its last delivered id, and how many entries it has read if known.
    Group(&'a [u8], EntryId, Option<u64>),
    /// Consumer of the last group.
    Consumer(&'a [u8]),
    Pending(Pending),
}

/// Entry that was delivered to the last consumer and not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pending {
    pub(crate) id: EntryId,
    pub(crate) delivered_ms: u64,
    pub(crate) deliveries: u64,
}

/// Receiver of a file's contents, in the order of the file.
pub(crate) trait RdbVisitor {
    /// Begins a key. `at` is the position in the file.
    fn key(&mut self, key: &Key, at: u64) -> Result<(), Problem>;
    fn visit_element(&mut self, element: Element<'_>) -> Result<(), Problem>;
    fn end_key(&mut self) -> Result<(), Problem>;
    /// Receives a fact about the file, such as the version of its server.
    fn visit_aux(&mut self, _name: &[u8], _value: &[u8]) {}
    /// Receives a library of functions.
    fn visit_function(&mut self, _text: &[u8]) {}
    /// Receives the name of a module with data outside of keys.
    fn visit_module_data(&mut self, _module: &str) {}
}

/// Reason why a file cannot be read to its end.
#[derive(Debug)]
pub(crate) enum ReadError {
    Io(io::Error),
    NotRdb,
    /// Version beyond those that are known.
    UnknownVersion(String),
    /// Damage, with its position.
    Malformed(u64, &'static str),
    /// Type or section that is not known, with its position and code.
    UnknownCode(u64, &'static str, u8),
    WrongChecksum,
    /// The visitor failed.
    VisitorFailed(Problem),
}

impl From<Problem> for ReadError {
    fn from(problem: Problem) -> Self {
        Self::VisitorFailed(problem)
    }
}

/// Compact encoding that makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed(pub(super) &'static str);
