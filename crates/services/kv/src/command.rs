//! Client requests, and the table entries that describe commands.

use std::borrow::Cow;

use crate::{
    encode::Encoder,
    key::{FIELD_BYTES_MAX, FIELD_TOO_LONG, KEY_TOO_LONG, Key, TooLong},
    resp::{integer::parse_integer, request::Arguments},
};

/// Why a request never becomes a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Too few arguments, or too many: a transaction does not survive it.
    Arity,
    /// A key that is too long: a transaction does not survive it either.
    KeyTooLong,
    /// The error to reply.
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

/// Redis' words for arguments that do not fit together.
pub const SYNTAX: &str = "ERR syntax error";
/// Redis' words for what is not a 64-bit number.
pub const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";

/// A request on its way to become a command.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The command's name in lower case.
    pub name: &'static str,
    /// Everything behind the name.
    pub arguments: Arguments<'a>,
    /// The front's clock, Unix time in milliseconds.
    pub wall_ms: u64,
    /// Largest value that this node lets a command build.
    pub value_bytes_max: usize,
    /// Different each time: what is left to chance hangs on it, and it travels in the command.
    pub seed: u64,
}

impl<'a> Request<'a> {
    /// The argument with this number, the first behind the name being 0.
    pub fn at(&self, index: usize) -> &'a [u8] {
        self.arguments.at(index)
    }

    /// An argument as the name of a field or member.
    pub fn field(&self, index: usize) -> Result<&'a [u8], Refusal> {
        let field = self.at(index);
        if field.len() > FIELD_BYTES_MAX {
            return Err(FIELD_TOO_LONG.into());
        }
        Ok(field)
    }

    /// An argument as a number.
    pub fn integer(&self, index: usize) -> Result<i64, Refusal> {
        parse_integer(self.at(index)).ok_or(Refusal::from(NOT_AN_INTEGER))
    }

    /// Returns whether an argument equals this word, in any case.
    pub fn is(&self, index: usize, word: &str) -> bool {
        self.at(index).eq_ignore_ascii_case(word.as_bytes())
    }

    /// "invalid expire time in this command".
    pub fn invalid_expire(&self) -> Refusal {
        Refusal::Text(format!("ERR invalid expire time in '{}' command", self.name).into())
    }
}

/// Turns a request into the bytes of a command or query.
pub type Encode = fn(&Request<'_>, &mut Encoder<'_>) -> Result<(), Refusal>;

/// Commands that a connection answers itself.
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
    Subscribe(Listening),
    Unsubscribe(Listening),
    Pubsub,
}

/// Kinds of names that a connection can subscribe to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listening {
    /// A channel.
    Channel,
    /// All channels whose names match.
    Pattern,
    /// A channel of those that Redis keeps in shards.
    Shard,
}

/// Ways to name a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptBy {
    /// EVAL.
    Text,
    /// EVALSHA.
    Hash,
}

/// The component that handles a command.
#[derive(Clone, Copy, Debug)]
pub enum Handler {
    /// Every node, in the order of the log, or one node as a query.
    Data(Encode),
    /// The same; what is encoded hangs on a script, which is given as a text or by its hash.
    Script(ScriptBy),
    /// The connection.
    Local(Local),
}

/// Positions of the keys among the arguments, as in COMMAND INFO: first, last, step.
pub type Keys = (i8, i8, i8);

/// Documentation of a command, as in COMMAND DOCS.
#[derive(Clone, Copy, Debug)]
pub struct Doc {
    /// Redis' group of the command.
    pub group: &'static str,
    /// The version of Redis, or of Valkey, that had it first.
    pub since: &'static str,
    /// The time it takes.
    pub complexity: &'static str,
    /// Summary of the command, in a sentence or two.
    pub summary: &'static str,
    /// In what it is not as in Redis, for docs/commands.md.
    pub differs: Option<&'static str>,
}

impl Doc {
    /// Group, first version, complexity, summary.
    pub const fn new(
        group: &'static str,
        since: &'static str,
        complexity: &'static str,
        summary: &'static str,
    ) -> Self {
        Self { group, since, complexity, summary, differs: None }
    }

    /// Sets the difference from Redis.
    pub const fn differs(self, how: &'static str) -> Self {
        Self { differs: Some(how), ..self }
    }
}

/// Entry of the table of commands.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// In lower case.
    pub name: &'static str,
    /// Number of arguments with the name. Negative: its magnitude is the minimum.
    pub arity: i8,
    /// Flags, as in COMMAND INFO.
    pub flags: &'static [&'static str],
    pub keys: Keys,
    pub handler: Handler,
    /// Documentation, as in COMMAND DOCS.
    pub doc: Doc,
}

impl Spec {
    /// A command that the service executes.
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

    /// A command that the connection answers.
    pub const fn local(name: &'static str, arity: i8, local: Local, doc: Doc) -> Self {
        let flags: &[&str] = &["loading", "stale", "fast"];
        Self { name, arity, flags, keys: (0, 0, 0), handler: Handler::Local(local), doc }
    }

    /// Returns the positions of keys among `count` arguments, the name included.
    pub fn key_places(&self, count: usize) -> impl Iterator<Item = usize> + Clone + use<> {
        let (first, last, step) = self.keys;
        let last = if last < 0 {
            // -1 is the last one.
            count.saturating_sub(usize::from(last.unsigned_abs()))
        } else {
            usize::from(last.unsigned_abs())
        };
        // Commands without keys say 0 of all three.
        let first = match first {
            0 => usize::MAX,
            first => usize::from(first.unsigned_abs()),
        };
        (first..=last).step_by(usize::from(step.unsigned_abs()).max(1))
    }

    /// Checks arguments, the name included, as far as the table allows: their number, and the
    /// lengths of keys.
    pub fn check(&self, arguments: &Arguments<'_>) -> Result<(), Refusal> {
        if !self.takes(arguments.len()) {
            return Err(Refusal::Arity);
        }
        for place in self.key_places(arguments.len()) {
            Key::new(arguments.at(place))?;
        }
        Ok(())
    }

    /// Returns whether the command changes or reads data, and so can be numbered.
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

/// Flags of commands that only read.
pub const READS: &[&str] = &["readonly", "fast"];
/// Flags of commands that change something.
pub const WRITES: &[&str] = &["write", "denyoom"];
