//! Parsed client requests, and the entries of the command table.

use std::borrow::Cow;

use crate::{
    encode::Encoder,
    key::{FIELD_BYTES_MAX, FIELD_TOO_LONG, KEY_TOO_LONG, Key, TooLong},
    resp::{integer::parse_integer, request::Arguments},
    store::places::Database,
};

/// Reason for refusing to encode a request as a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Wrong number of arguments. Aborts a transaction if the command table refuses the number.
    Arity,
    /// A key is too long. Aborts a transaction.
    KeyTooLong,
    /// Error text to reply with.
    Text(Cow<'static, str>),
}

impl Refusal {
    /// Returns the error text for the client.
    pub fn text(self, command: &str) -> Cow<'static, str> {
        match self {
            Self::Arity => format!("ERR wrong number of arguments for '{command}' command").into(),
            Self::KeyTooLong => KEY_TOO_LONG.into(),
            Self::Text(text) => text,
        }
    }
}

impl From<&'static str> for Refusal {
    fn from(text: &'static str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl From<TooLong> for Refusal {
    fn from(_: TooLong) -> Self {
        Self::KeyTooLong
    }
}

/// Redis' error for an invalid combination of arguments.
pub const SYNTAX: &str = "ERR syntax error";
/// Redis' error for text that is not a 64-bit integer.
pub const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";

/// Client request that is about to be encoded as a command.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The command's name in lower case.
    pub name: &'static str,
    /// Arguments without the name.
    pub arguments: Arguments<'a>,
    /// Database that the client has selected.
    pub database: Database,
    /// Clock of the front: Unix time in milliseconds.
    pub wall_ms: u64,
    /// Maximum size in bytes of a value that a command may build on this node.
    pub value_bytes_max: usize,
    /// Random seed, different for each request. The encoded command contains it, so all nodes make
    /// the same random choices.
    pub seed: u64,
}

impl<'a> Request<'a> {
    /// Returns an argument by its index; 0 is the first one after the name.
    pub fn at(&self, index: usize) -> &'a [u8] {
        self.arguments.at(index)
    }

    /// Returns an argument as the name of a field or member. Fails if it is too long.
    pub fn field(&self, index: usize) -> Result<&'a [u8], Refusal> {
        let field = self.at(index);
        if field.len() > FIELD_BYTES_MAX {
            return Err(FIELD_TOO_LONG.into());
        }
        Ok(field)
    }

    pub fn integer(&self, index: usize) -> Result<i64, Refusal> {
        parse_integer(self.at(index)).ok_or(Refusal::from(NOT_AN_INTEGER))
    }

    /// Returns whether an argument equals `word`, ignoring case.
    pub fn is(&self, index: usize, word: &str) -> bool {
        self.at(index).eq_ignore_ascii_case(word.as_bytes())
    }

    pub fn invalid_expire(&self) -> Refusal {
        Refusal::Text(format!("ERR invalid expire time in '{}' command", self.name).into())
    }
}

pub type Encode = fn(&Request<'_>, &mut Encoder<'_>) -> Result<(), Refusal>;

/// Commands that the connection answers by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after the commands; docs/commands.md has them")]
pub enum Local {
    Ping,
    Echo,
    Hello,
    Select,
    Quit,
    Reset,
    Auth,
    Acl,
    Client,
    Command,
    Info,
    Config,
    ReadOnly,
    ReadWrite,
    Wait,
    Role,
    Sentinel,
    Cluster,
    Asking,
    Time,
    Multi,
    Exec,
    Discard,
    Watch,
    Unwatch,
    Quorate,
    Script,
    Function,
    Slowlog,
    Latency,
    Monitor,
    Object,
    Memory,
    Subscribe(SubscriptionKind),
    Unsubscribe(SubscriptionKind),
    Pubsub,
}

/// Kinds of names that a connection can subscribe to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubscriptionKind {
    Channel,
    /// Pattern that selects all channels with matching names.
    Pattern,
    /// Shard channel, as in SSUBSCRIBE.
    Shard,
}

impl SubscriptionKind {
    /// Returns the number of the kind. Part of the format of [`crate::op::Op::Announce`].
    pub const fn number(self) -> u8 {
        match self {
            Self::Channel => 0,
            Self::Pattern => 1,
            Self::Shard => 2,
        }
    }

    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Channel),
            1 => Some(Self::Pattern),
            2 => Some(Self::Shard),
            _ => None,
        }
    }
}

/// Form in which a client names the script to execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptForm {
    /// By its text, as in EVAL, or as in EVAL_RO if it only reads.
    #[expect(missing_docs, reason = "see above")]
    Text { reads: bool },
    /// By its hash, as in EVALSHA and EVALSHA_RO.
    #[expect(missing_docs, reason = "see above")]
    Hash { reads: bool },
}

/// Component that executes a command.
#[derive(Clone, Copy, Debug)]
pub enum Handler {
    /// Executed by the service: on every node in log order, or on one node for a query.
    Data(Encode),
    /// Executed by the service, with an encoding determined by the script.
    Script(ScriptForm),
    /// Answered by the connection that received the command.
    Local(Local),
}

/// Positions of the keys among the arguments, in the format of COMMAND INFO: first, last and step.
pub type Keys = (i8, i8, i8);

/// Documentation of a command, in the format of COMMAND DOCS.
#[derive(Clone, Copy, Debug)]
pub struct Doc {
    /// Redis' group of the command.
    pub group: &'static str,
    /// First version of Redis or Valkey that has the command.
    pub since: &'static str,
    pub complexity: &'static str,
    pub summary: &'static str,
    /// Difference from Redis, as listed in docs/commands.md.
    pub redis_difference: Option<&'static str>,
}

impl Doc {
    pub const fn new(
        group: &'static str,
        since: &'static str,
        complexity: &'static str,
        summary: &'static str,
    ) -> Self {
        Self { group, since, complexity, summary, redis_difference: None }
    }

    pub const fn with_difference(self, how: &'static str) -> Self {
        Self { redis_difference: Some(how), ..self }
    }
}

/// Entry of the command table.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// Name in lower case.
    pub name: &'static str,
    /// Number of arguments, including the name. If negative, its magnitude is the minimum.
    pub arity: i8,
    /// Flags in the format of COMMAND INFO.
    pub flags: &'static [&'static str],
    pub keys: Keys,
    pub handler: Handler,
    pub doc: Doc,
}

impl Spec {
    /// Creates the entry of a command that the service executes.
    pub const fn data(
        name: &'static str,
        arity: i8,
        flags: &'static [&'static str],
        keys: Keys,
        encode: Encode,
        doc: Doc,
    ) -> Self {
        Self { name, arity, flags, keys, handler: Handler::Data(encode), doc }
    }

    /// Creates the entry of a command that the connection answers.
    pub const fn local(name: &'static str, arity: i8, local: Local, doc: Doc) -> Self {
        let flags: &[&str] = &["loading", "stale", "fast"];
        Self { name, arity, flags, keys: (0, 0, 0), handler: Handler::Local(local), doc }
    }

    /// Returns the positions of the keys in a request of `count` words, including the name.
    pub fn key_indexes(&self, count: usize) -> impl Iterator<Item = usize> + Clone + use<> {
        let (first, last, step) = self.keys;
        let last = if last < 0 {
            // -1 stands for the last argument.
            count.saturating_sub(usize::from(last.unsigned_abs()))
        } else {
            usize::from(last.unsigned_abs())
        };
        // Commands without keys have 0 in all three places.
        let first = match first {
            0 => usize::MAX,
            first => usize::from(first.unsigned_abs()),
        };
        (first..=last).step_by(usize::from(step.unsigned_abs()).max(1))
    }

    /// Checks the number of arguments and the lengths of keys against the table.
    pub fn check(&self, arguments: &Arguments<'_>) -> Result<(), Refusal> {
        if !self.accepts_count(arguments.len()) {
            return Err(Refusal::Arity);
        }
        for place in self.key_indexes(arguments.len()) {
            Key::new(arguments.at(place))?;
        }
        Ok(())
    }

    /// Returns whether the command reads or changes data. Sessions number only such commands.
    pub const fn can_be_numbered(&self) -> bool {
        match self.handler {
            Handler::Data(_) | Handler::Script(_) => true,
            Handler::Local(_) => false,
        }
    }

    /// Returns whether only operators may execute the command: it removes or moves the data of all
    /// clients.
    pub fn is_operator_command(&self) -> bool {
        matches!(self.name, "flushall" | "flushdb" | "swapdb")
    }

    pub fn accepts_count(&self, count: usize) -> bool {
        let least = usize::from(self.arity.unsigned_abs());
        if self.arity < 0 { count >= least } else { count == least }
    }
}

/// Flags of read-only commands.
pub const READS: &[&str] = &["readonly", "fast"];
/// Flags of a read-only command that may block its client, and whose keys are not at fixed places.
pub const READS_BLOCKING: &[&str] = &["readonly", "blocking", "movablekeys"];
/// Flags of commands that write but add no data, so that they are accepted on a full disk
/// ([room-2]).
pub const REMOVES: &[&str] = &["write"];
/// Flags of all other commands that write.
pub const WRITES: &[&str] = &["write", "denyoom"];
