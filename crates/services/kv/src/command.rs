//! Client requests and the entries of the command table.

use std::borrow::Cow;

use crate::{
    encode::Encoder,
    key::{FIELD_BYTES_MAX, FIELD_TOO_LONG, KEY_TOO_LONG, Key, TooLong},
    resp::{integer::parse_integer, request::Arguments},
};

/// Reason why a request is not turned into a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Wrong number of arguments. It aborts a transaction.
    Arity,
    /// A key that is too long. It aborts a transaction too.
    KeyTooLong,
    /// Error to reply with.
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

/// Redis' error for arguments that do not fit together.
pub const SYNTAX: &str = "ERR syntax error";
/// Redis' error for text that is not a 64-bit integer.
pub const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";

/// A client's request, to be encoded as a command.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The command's name in lower case.
    pub name: &'static str,
    /// Arguments after the name.
    pub arguments: Arguments<'a>,
    /// Wall clock of the front: Unix time in milliseconds.
    pub wall_ms: u64,
    /// Largest value that this node lets a command build.
    pub value_bytes_max: usize,
    /// Random seed, different for each request. It travels in the command, so every node makes the
    /// same random choices.
    pub seed: u64,
}

impl<'a> Request<'a> {
    /// Returns an argument by its index; 0 is the first after the name.
    pub fn at(&self, index: usize) -> &'a [u8] {
        self.arguments.at(index)
    }

    /// Returns an argument as the name of a field or member, or refuses it if it is too long.
    pub fn field(&self, index: usize) -> Result<&'a [u8], Refusal> {
        let field = self.at(index);
        if field.len() > FIELD_BYTES_MAX {
            return Err(FIELD_TOO_LONG.into());
        }
        Ok(field)
    }

    /// Parses an argument as an integer.
    pub fn integer(&self, index: usize) -> Result<i64, Refusal> {
        parse_integer(self.at(index)).ok_or(Refusal::from(NOT_AN_INTEGER))
    }

    /// Returns whether an argument equals this word, ignoring case.
    pub fn is(&self, index: usize, word: &str) -> bool {
        self.at(index).eq_ignore_ascii_case(word.as_bytes())
    }

    /// Returns Redis' error "invalid expire time" for this command.
    pub fn invalid_expire(&self) -> Refusal {
        Refusal::Text(format!("ERR invalid expire time in '{}' command", self.name).into())
    }
}

/// Function that encodes a request as a command or query.
pub type Encode = fn(&Request<'_>, &mut Encoder<'_>) -> Result<(), Refusal>;

/// Commands answered by the connection itself.
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
    /// Channel.
    Channel,
    /// Pattern: all channels with matching names.
    Pattern,
    /// Shard channel (SSUBSCRIBE).
    Shard,
}

/// Forms in which a client names a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptBy {
    /// By its text (EVAL).
    Text,
    /// By its hash (EVALSHA).
    Hash,
}

/// Component that handles a command.
#[derive(Clone, Copy, Debug)]
pub enum Handler {
    /// Every node, in log order; for a query, one node.
    Data(Encode),
    /// Like `Data`, but the encoding depends on a script, given as text or hash.
    Script(ScriptBy),
    /// The connection.
    Local(Local),
}

/// Positions of the keys among the arguments as in COMMAND INFO: first, last, step.
pub type Keys = (i8, i8, i8);

/// Documentation of a command, as in COMMAND DOCS.
#[derive(Clone, Copy, Debug)]
pub struct Doc {
    /// Redis' group of the command.
    pub group: &'static str,
    /// First version of Redis or Valkey with the command.
    pub since: &'static str,
    /// Time complexity.
    pub complexity: &'static str,
    /// Summary in a sentence or two.
    pub summary: &'static str,
    /// Difference from Redis, for docs/commands.md.
    pub differs: Option<&'static str>,
}

impl Doc {
    /// Creates the documentation from group, first version, complexity and summary.
    pub const fn new(
        group: &'static str,
        since: &'static str,
        complexity: &'static str,
        summary: &'static str,
    ) -> Self {
        Self { group, since, complexity, summary, differs: None }
    }

    /// Adds the difference from Redis.
    pub const fn differs(self, how: &'static str) -> Self {
        Self { differs: Some(how), ..self }
    }
}

/// Entry of the command table.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// Name in lower case.
    pub name: &'static str,
    /// Number of arguments, the name included. If negative, its magnitude is the minimum.
    pub arity: i8,
    /// Flags as in COMMAND INFO.
    pub flags: &'static [&'static str],
    pub keys: Keys,
    pub handler: Handler,
    /// Documentation as in COMMAND DOCS.
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

    /// Returns the positions of the keys among `count` arguments, the name included.
    pub fn key_places(&self, count: usize) -> impl Iterator<Item = usize> + Clone + use<> {
        let (first, last, step) = self.keys;
        let last = if last < 0 {
            // -1 is the last argument.
            count.saturating_sub(usize::from(last.unsigned_abs()))
        } else {
            usize::from(last.unsigned_abs())
        };
        // Commands without keys have 0 for all three.
        let first = match first {
            0 => usize::MAX,
            first => usize::from(first.unsigned_abs()),
        };
        (first..=last).step_by(usize::from(step.unsigned_abs()).max(1))
    }

    /// Checks what the table specifies: the number of arguments and the lengths of keys.
    pub fn check(&self, arguments: &Arguments<'_>) -> Result<(), Refusal> {
        if !self.takes(arguments.len()) {
            return Err(Refusal::Arity);
        }
        for place in self.key_places(arguments.len()) {
            Key::new(arguments.at(place))?;
        }
        Ok(())
    }

    /// Returns whether the command reads or changes data, so that a session can number it.
    pub const fn can_be_numbered(&self) -> bool {
        match self.handler {
            Handler::Data(_) | Handler::Script(_) => true,
            Handler::Local(_) => false,
        }
    }

    /// Returns whether the command accepts `count` arguments, the name included.
    pub fn takes(&self, count: usize) -> bool {
        let least = usize::from(self.arity.unsigned_abs());
        if self.arity < 0 { count >= least } else { count == least }
    }
}

/// Flags of read-only commands.
pub const READS: &[&str] = &["readonly", "fast"];
/// Flags of commands that write.
pub const WRITES: &[&str] = &["write", "denyoom"];
