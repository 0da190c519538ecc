//! EVAL, EVALSHA and SCRIPT. The log contains a script as one operation, which every node executes
//! ([decision 33](../../../../../../docs/decisions/0033-scripts-run-in-a-machine-that-counts.md)).

mod costs;
mod replies;
pub(crate) mod run;

pub(crate) use self::costs::Costs;

use crate::{
    command::{Doc, Handler, Local, Refusal, Request, ScriptForm, Spec},
    commands::{family::Family, operations::each_operation},
    encode::{Decoder, Encoder, List, Malformed},
    op::Op,
};

pub const FAMILY: Family = Family { commands: COMMANDS, operations: &[] };

const fn script(name: &'static str, by: ScriptForm, reads: bool, doc: Doc) -> Spec {
    Spec {
        flags: if reads { crate::command::READS } else { &["noscript", "movablekeys"] },
        handler: Handler::Script(by),
        ..Spec::local(name, -3, Local::Script, doc)
    }
}

const fn doc(since: &'static str, summary: &'static str) -> Doc {
    Doc::new("scripting", since, "Depends on the script that is executed.", summary)
}

const COMMANDS: &[Spec] = &[
    script(
        "eval",
        ScriptForm::Text { reads: false },
        false,
        doc("2.6.0", "Executes a server-side Lua script.").with_difference("limits: see above"),
    ),
    script(
        "evalsha",
        ScriptForm::Hash { reads: false },
        false,
        doc("2.6.0", "Executes a server-side Lua script by SHA1 digest.")
            .with_difference("as `EVAL`; each node knows the scripts that it was sent"),
    ),
    script(
        "eval_ro",
        ScriptForm::Text { reads: true },
        true,
        doc("7.0.0", "Executes a read-only server-side Lua script.").with_difference("as `EVAL`"),
    ),
    script(
        "evalsha_ro",
        ScriptForm::Hash { reads: true },
        true,
        doc("7.0.0", "Executes a read-only server-side Lua script by SHA1 digest.")
            .with_difference("as `EVALSHA`"),
    ),
    Spec::local(
        "script",
        -2,
        Local::Script,
        Doc::new(
            "scripting",
            "2.6.0",
            "Depends on subcommand.",
            "A container for Lua scripts management commands.",
        )
        .with_difference("of this node; nothing runs that `KILL` could end"),
    ),
    Spec::local(
        "function",
        -2,
        Local::Function,
        Doc::new(
            "scripting",
            "7.0.0",
            "Depends on subcommand.",
            "A container for function commands.",
        )
        .with_difference("there are none"),
    ),
];

/// Version of all that scripts can observe: the interpreter, its libraries, the limits. A node
/// without support for a version has not been upgraded, and never gets such a script ([level-9]).
const VERSION: u8 = 1;

/// Permissions of a script, as the front of its client has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScriptPermissions {
    /// True if the client may execute commands reserved to operators.
    pub(crate) operator: bool,
    /// True if the client may select databases: its front is not in cluster mode.
    pub(crate) databases: bool,
}

impl ScriptPermissions {
    const OPERATOR: u8 = 1;
    const DATABASES: u8 = 2;

    const fn bits(self) -> u8 {
        (self.operator as u8 * Self::OPERATOR) | (self.databases as u8 * Self::DATABASES)
    }

    const fn from_bits(bits: u8) -> Result<Self, Malformed> {
        if bits & !(Self::OPERATOR | Self::DATABASES) != 0 {
            return Err(Malformed);
        }
        let operator = bits & Self::OPERATOR != 0;
        Ok(Self { operator, databases: bits & Self::DATABASES != 0 })
    }
}

/// Script in the log. It is complete, so its execution depends on no cache.
pub(crate) struct Script<'a> {
    /// Time on the front's clock, for deadlines and TIME.
    wall_ms: u64,
    seed: u64,
    value_bytes_max: usize,
    permissions: ScriptPermissions,
    text: &'a [u8],
    keys: List<'a>,
    arguments: List<'a>,
}

impl<'a> Script<'a> {
    /// Decodes the bytes after the operation's number.
    fn decode(from: &mut Decoder<'a>) -> Result<Self, Malformed> {
        if from.byte()? != VERSION {
            return Err(Malformed);
        }
        let script = Self {
            wall_ms: from.word()?,
            seed: from.word()?,
            value_bytes_max: from.length()?,
            permissions: ScriptPermissions::from_bits(from.byte()?)?,
            text: from.bytes()?,
            keys: from.list()?,
            arguments: from.list()?,
        };
        from.end()?;
        Ok(script)
    }
}

/// Returns `numkeys`, given the arguments `numkeys key… argument…`.
pub(crate) fn key_count(request: &Request<'_>) -> Result<usize, Refusal> {
    let count = request.integer(0)?;
    match usize::try_from(count) {
        Err(_) => Err("ERR Number of keys can't be negative".into()),
        Ok(count) if count >= request.arguments.len() => {
            Err("ERR Number of keys can't be greater than number of args".into())
        }
        Ok(count) => Ok(count),
    }
}

/// Encodes a script's execution, given the arguments `numkeys key… argument…`.
pub(crate) fn encode(
    (text, reads): (&[u8], bool),
    permissions: ScriptPermissions,
    r: &Request<'_>,
    out: &mut Encoder<'_>,
) -> Result<(), Refusal> {
    let keys = key_count(r)?;
    let op = if reads { Op::ScriptRo } else { Op::Script };
    out.byte(op as u8).byte(VERSION).word(r.wall_ms).word(r.seed);
    out.length(r.value_bytes_max).byte(permissions.bits()).bytes(text);
    let words: Vec<&[u8]> = r.arguments.iter().skip(1).collect();
    let (keys, arguments) = words.split_at(keys);
    out.keys(keys).keys(arguments);
    Ok(())
}

/// Passes the text of each script in a command to `each`.
pub(crate) fn each_text(command: &[u8], mut each: impl FnMut(&[u8])) {
    each_operation(command, |op, mut from, _| {
        if op.is_script()
            && let Ok(script) = Script::decode(&mut from)
        {
            each(script.text);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_have_one_encoding() {
        for bits in 0..=u8::MAX {
            match ScriptPermissions::from_bits(bits) {
                Ok(permissions) => assert_eq!(permissions.bits(), bits),
                Err(_) => assert!(bits > 3, "{bits}"),
            }
        }
        let operator = ScriptPermissions { operator: true, databases: false };
        assert_eq!(ScriptPermissions::from_bits(1).ok(), Some(operator));
    }
}
