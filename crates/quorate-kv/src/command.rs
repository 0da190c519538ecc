//! What can be asked: operations as the log and queries carry them, and the table of commands.

use std::borrow::Cow;

use crate::{
    commands,
    encode::{Decoder, Encoder, Malformed},
    key::{KEY_TOO_LONG, Key, TooLong},
    resp::request::{Arguments, parse_integer},
};

/// Most bytes that one reply with several values may have. A constant, since the replies to
/// replicated commands must be equal on every node.
pub const REPLY_BYTES_MAX: usize = 32 * 1024 * 1024;

/// The first byte of a command or query. Numbers are never used for anything else: the log keeps
/// them. Below [`Op::FIRST_WRITE`] are the reads, which may be queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "named after the commands; docs/commands.md has them"
)]
#[repr(u8)]
pub enum Op {
    Literal = 1,
    Get = 2,
    Strlen = 3,
    GetRange = 4,
    Mget = 5,
    Exists = 6,
    Type = 7,
    Ttl = 8,
    Keys = 9,
    Scan = 10,
    Dbsize = 11,
    RandomKey = 12,
    Versions = 13,
    Digest = 14,
    ValueDigest = 15,
    LockHolder = 16,
    ErrorIfPresent = 17,
    Keyspace = 18,
    Set = 64,
    GetDel = 65,
    GetEx = 66,
    Append = 67,
    SetRange = 68,
    IncrBy = 69,
    IncrByFloat = 70,
    Mset = 71,
    Del = 72,
    Rename = 73,
    Copy = 74,
    Expire = 75,
    Persist = 76,
    Flush = 77,
    Exec = 78,
    Expired = 79,
    DelIf = 80,
    ExpireEqual = 81,
    DelEqual = 82,
    SetAll = 83,
    Lock = 84,
    Unlock = 85,
    RenewLocks = 86,
    BreakLock = 87,
    Publish = 88,
}

impl Op {
    /// All of them.
    pub const ALL: [Self; 43] = [
        Self::Literal,
        Self::Get,
        Self::Strlen,
        Self::GetRange,
        Self::Mget,
        Self::Exists,
        Self::Type,
        Self::Ttl,
        Self::Keys,
        Self::Scan,
        Self::Dbsize,
        Self::RandomKey,
        Self::Versions,
        Self::Digest,
        Self::ValueDigest,
        Self::LockHolder,
        Self::ErrorIfPresent,
        Self::Keyspace,
        Self::Set,
        Self::GetDel,
        Self::GetEx,
        Self::Append,
        Self::SetRange,
        Self::IncrBy,
        Self::IncrByFloat,
        Self::Mset,
        Self::Del,
        Self::Rename,
        Self::Copy,
        Self::Expire,
        Self::Persist,
        Self::Flush,
        Self::Exec,
        Self::Expired,
        Self::DelIf,
        Self::ExpireEqual,
        Self::DelEqual,
        Self::SetAll,
        Self::Lock,
        Self::Unlock,
        Self::RenewLocks,
        Self::BreakLock,
        Self::Publish,
    ];
    /// The first operation that changes something.
    pub const FIRST_WRITE: u8 = 64;

    /// The operation with this number.
    pub fn from_byte(byte: u8) -> Option<Self> {
        let index = match byte {
            1..=18 => byte - 1,
            64..=88 => byte - 64 + 18,
            _ => return None,
        };
        Self::ALL.get(usize::from(index)).copied()
    }

    /// Whether it changes nothing.
    pub const fn is_read(self) -> bool {
        (self as u8) < Self::FIRST_WRITE
    }
}

/// How an encoded command has to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A query.
    Read,
    /// Through the log.
    Write,
    /// Through the log, and its reply may be as large as a value or larger.
    WriteReturning,
}

impl Kind {
    /// The kind of an encoded command.
    pub fn of(command: &[u8]) -> Self {
        let mut decoder = Decoder(command);
        match decoder.byte().ok().and_then(Op::from_byte) {
            Some(op) if op.is_read() => Self::Read,
            Some(Op::GetDel | Op::GetEx | Op::Exec) => Self::WriteReturning,
            Some(Op::Set) if decoder.byte().is_ok_and(|flags| flags & set_flag::GET != 0) => {
                Self::WriteReturning
            }
            _ => Self::Write,
        }
    }
}

/// Flags of [`Op::Set`].
pub mod set_flag {
    /// Only if the key is absent.
    pub const NX: u8 = 1;
    /// Only if the key is present.
    pub const XX: u8 = 2;
    /// Keep the key's deadline.
    pub const KEEP_TTL: u8 = 4;
    /// Reply with the old value.
    pub const GET: u8 = 8;
    /// Reply 1 or 0 (SETNX).
    pub const COUNTED: u8 = 16;
    /// A condition follows the value.
    pub const IF: u8 = 32;
}

/// What becomes of a key's deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// The key has none.
    Never,
    /// Unix time in milliseconds.
    At(u64),
    /// It had passed when the front looked: the key goes at once.
    Past,
}

impl Deadline {
    /// Writes it.
    pub fn encode(self, out: &mut Encoder<'_>) {
        match self {
            Self::Never => out.byte(0),
            Self::At(at) => out.byte(1).word(at),
            Self::Past => out.byte(2),
        };
    }

    /// Reads it.
    pub fn decode(from: &mut Decoder<'_>) -> Result<Self, Malformed> {
        match from.byte()? {
            0 => Ok(Self::Never),
            1 => match from.word()? {
                // Stores may write "none" so.
                u64::MAX => Err(Malformed),
                at => Ok(Self::At(at)),
            },
            2 => Ok(Self::Past),
            _ => Err(Malformed),
        }
    }
}

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
    /// What the client is told.
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
}

impl<'a> Request<'a> {
    /// The argument with this number, the first behind the name being 0.
    pub fn at(&self, index: usize) -> &'a [u8] {
        self.arguments.at(index)
    }

    /// An argument as a number.
    pub fn integer(&self, index: usize) -> Result<i64, Refusal> {
        parse_integer(self.at(index)).ok_or(Refusal::from(NOT_AN_INTEGER))
    }

    /// Whether an argument is this word, in any case.
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

/// What a connection answers by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "named after the commands; docs/commands.md has them"
)]
pub enum Local {
    Ping,
    Echo,
    Hello,
    Select,
    Quit,
    Reset,
    Auth,
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
    Subscribe,
    Unsubscribe,
}

/// How a script is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptBy {
    /// EVAL.
    Text,
    /// EVALSHA.
    Hash,
}

/// Who deals with a command.
#[derive(Clone, Copy, Debug)]
pub enum Handler {
    /// Every node, in the order of the log, or one node as a query.
    Data(Encode),
    /// The same; what is encoded hangs on a script, which is given as a text or by its hash.
    Script(ScriptBy),
    /// The connection.
    Local(Local),
}

/// Where the keys are among the arguments, as COMMAND INFO tells it: first, last, step.
pub type Keys = (i8, i8, i8);

/// One command of the table.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// In lower case.
    pub name: &'static str,
    /// Number of arguments with the name; negative: at least so many.
    pub arity: i8,
    /// As COMMAND INFO tells them.
    pub flags: &'static [&'static str],
    /// Where the keys are.
    pub keys: Keys,
    /// Who deals with it.
    pub handler: Handler,
}

impl Spec {
    /// A command that the service executes.
    pub const fn data(
        name: &'static str,
        arity: i8,
        flags: &'static [&'static str],
        keys: Keys,
        encode: Encode,
    ) -> Self {
        Self {
            name,
            arity,
            flags,
            keys,
            handler: Handler::Data(encode),
        }
    }

    /// A command that the connection answers.
    pub const fn local(name: &'static str, arity: i8, local: Local) -> Self {
        let flags: &[&str] = &["loading", "stale", "fast"];
        Self {
            name,
            arity,
            flags,
            keys: (0, 0, 0),
            handler: Handler::Local(local),
        }
    }

    /// Where keys are among `count` arguments, the name included.
    pub fn key_places(&self, count: usize) -> impl Iterator<Item = usize> + Clone + use<> {
        let (first, last, step) = self.keys;
        let last = if last < 0 {
            count.saturating_sub(1)
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

    /// Whether arguments, the name included, can be right as far as the table knows: their number,
    /// and the lengths of keys.
    pub fn check(&self, arguments: &Arguments<'_>) -> Result<(), Refusal> {
        if !self.takes(arguments.len()) {
            return Err(Refusal::Arity);
        }
        for place in self.key_places(arguments.len()) {
            Key::new(arguments.at(place))?;
        }
        Ok(())
    }

    /// Whether `count` arguments, the name included, can be right.
    pub fn takes(&self, count: usize) -> bool {
        let least = usize::from(self.arity.unsigned_abs());
        if self.arity < 0 {
            count >= least
        } else {
            count == least
        }
    }
}

/// The families of commands.
pub const FAMILIES: [&[Spec]; 10] = [
    commands::strings::COMMANDS,
    commands::conditions::COMMANDS,
    commands::locks::COMMANDS,
    commands::channels::COMMANDS,
    commands::scripts::COMMANDS,
    commands::counters::COMMANDS,
    commands::expiry::COMMANDS,
    commands::keys::COMMANDS,
    commands::server::COMMANDS,
    commands::transactions::COMMANDS,
];

/// Flags of commands that only read.
pub const READS: &[&str] = &["readonly", "fast"];
/// Flags of commands that change something.
pub const WRITES: &[&str] = &["write", "denyoom"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_keep_their_numbers() {
        for op in Op::ALL {
            assert_eq!(Op::from_byte(op as u8), Some(op));
        }
        for byte in [0, 19, 63, 89, 255] {
            assert_eq!(Op::from_byte(byte), None);
        }
    }
}
