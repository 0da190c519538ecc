//! Cache of the scripts known to a node, by hash.
//!
//! The scripts of well-known lock libraries are not interpreted: each is executed as one built-in
//! operation, as before other scripts were supported. Locks held during an upgrade of the cluster
//! therefore keep their meaning, and can be released without an interpreter. Such a script is
//! recognized by the SHA-1 of its text (EVALSHA) or of its tokens, which ignores whitespace,
//! comments and quote style (EVAL, SCRIPT LOAD); `table` maps these hashes to operations. All other
//! scripts are run as Lua ([`crate::commands::scripts`]).

use std::{
    collections::VecDeque,
    fmt::{self, Write as _},
    rc::Rc,
};

use quorate_lua::Interpreter;
use rustc_hash::FxHashMap;
use sha1_smol::Sha1;

use crate::{
    command::{Refusal, Request, ScriptForm},
    commands::scripts::{ScriptPermissions, encode, key_count},
    encode::Encoder,
};

mod table;
mod words;

pub use quorate_lua::prepare;
pub use table::Meaning;

/// Maximum number of cached scripts, and of the bytes of their texts. The oldest are evicted first,
/// and their clients send the text again.
const LOADED_MAX: usize = 1024;
const LOADED_BYTES_MAX: usize = 16 << 20;
/// Maximum length of a script that is checked for a lock script. All known ones are much shorter.
const LOCK_BYTES_MAX: usize = 8192;

/// Redis' error for an unknown hash. In response, clients send the text.
pub const NO_SCRIPT: &str = "NOSCRIPT No matching script. Please use EVAL.";
pub(crate) const WRITES: &str = "ERR Write commands are not allowed from read-only scripts.";
const MAY_WRITE: &str = "ERR Can not execute a script with write flag using *_ro command.";
const TOO_LONG: &str = "ERR a script may have 256 KiB; pass data as arguments";

/// Script in executable form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KnownScript {
    /// Lock script, executed as one operation.
    Lock(Meaning),
    /// Text of a Lua script.
    Lua(Rc<[u8]>),
}

impl KnownScript {
    fn of(text: &[u8]) -> Result<Self, Refusal> {
        if text.len() > quorate_lua::TEXT_BYTES_MAX {
            return Err(TOO_LONG.into());
        }
        flags(text)?;
        let words = |text| Sha1::from(words::canonical_tokens(text)).digest().bytes();
        let lock = Some(text)
            .filter(|text| text.len() <= LOCK_BYTES_MAX)
            .map(words)
            .and_then(table::from_token_hash);
        Ok(lock.map_or_else(|| Self::Lua(text.into()), Self::Lock))
    }
}

/// Parses the flags in the first line of a script.
fn flags(text: &[u8]) -> Result<quorate_lua::Flags, Refusal> {
    quorate_lua::flags(text).map_err(|why| Refusal::Text(format!("ERR {why}").into()))
}

/// Cache of scripts, by the hashes of their texts.
#[derive(Default)]
pub struct Scripts {
    /// Texts sent by clients, or the operations of those that are lock scripts.
    by_hash: FxHashMap<[u8; 20], KnownScript>,
    /// Hashes of the texts, oldest first.
    order: VecDeque<[u8; 20]>,
    bytes: usize,
    /// Interpreter that compiles texts to find errors.
    interpreter: Interpreter,
}

impl fmt::Debug for Scripts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripts").field("loaded", &self.by_hash.len()).finish_non_exhaustive()
    }
}

impl Scripts {
    /// Returns a script and caches it by the hash of its text. Fails if the first line is malformed
    /// or the text is too long. Other errors occur at execution, which accounts for the work of
    /// compiling.
    pub fn add_script(&mut self, text: &[u8]) -> Result<KnownScript, Refusal> {
        let hash = Sha1::from(text).digest().bytes();
        if let Some(known) = self.by_hash(hash) {
            return Ok(known);
        }
        let known = KnownScript::of(text)?;
        self.bytes += size(&known);
        self.by_hash.insert(hash, known.clone());
        self.order.push_back(hash);
        while self.order.len() > LOADED_MAX || self.bytes > LOADED_BYTES_MAX {
            let oldest = self.order.pop_front().and_then(|hash| self.by_hash.remove(&hash));
            self.bytes -= oldest.as_ref().map_or(0, size);
        }
        Ok(known)
    }

    /// Caches a script as [`Self::add_script`] does, but fails if it does not compile.
    pub fn load(&mut self, text: &[u8]) -> Result<(), Refusal> {
        if let KnownScript::Lua(_) = KnownScript::of(text)? {
            let failed = |why| format!("ERR Error compiling script (new function): {why}");
            self.interpreter.check(text).map_err(|why| Refusal::Text(failed(why).into()))?;
        }
        self.add_script(text).map(drop)
    }

    fn by_hash(&self, hash: [u8; 20]) -> Option<KnownScript> {
        let lock = table::from_text_hash(hash).map(KnownScript::Lock);
        lock.or_else(|| self.by_hash.get(&hash).cloned())
    }

    /// Returns the script with hexadecimal hash `hex`.
    pub fn find(&self, hex: &[u8]) -> Option<KnownScript> {
        self.by_hash(parse_hash(hex)?)
    }

    /// Removes all cached scripts.
    pub fn flush(&mut self) {
        self.by_hash.clear();
        self.order.clear();
        self.bytes = 0;
    }

    /// Encodes `EVAL text …` or `EVALSHA hash …`. `request` has the arguments after `script`.
    pub(crate) fn encode(
        &mut self,
        by: ScriptForm,
        script: &[u8],
        permissions: ScriptPermissions,
        request: &Request<'_>,
        out: &mut Encoder<'_>,
    ) -> Result<(), Refusal> {
        let (known, reads) = match by {
            ScriptForm::Text { reads } => (self.add_script(script)?, reads),
            ScriptForm::Hash { reads } => {
                (self.find(script).ok_or(Refusal::from(NO_SCRIPT))?, reads)
            }
        };
        match known {
            KnownScript::Lock(_) if reads => Err(WRITES.into()),
            KnownScript::Lock(meaning) => encode_lock(meaning, request, out),
            KnownScript::Lua(text) => {
                let only_reads = flags(&text)?.no_writes;
                // A text without a `#!` line may be run either way, as before Redis 7.
                if reads && !only_reads && text.starts_with(b"#!") {
                    return Err(MAY_WRITE.into());
                }
                encode((&text, reads || only_reads), permissions, request, out)
            }
        }
    }
}

fn size(known: &KnownScript) -> usize {
    match known {
        KnownScript::Lock(_) => 0,
        KnownScript::Lua(text) => text.len(),
    }
}

/// Returns the hash of a text in hexadecimal, which is the reply to SCRIPT LOAD.
pub fn hash_of(text: &[u8]) -> String {
    let mut hex = String::with_capacity(40);
    for byte in Sha1::from(text).digest().bytes() {
        write!(hex, "{byte:02x}").expect("a string takes all text");
    }
    hex
}

fn parse_hash(hex: &[u8]) -> Option<[u8; 20]> {
    let mut hash = [0; 20];
    if hex.len() != 2 * hash.len() {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    for (byte, pair) in hash.iter_mut().zip(hex.chunks_exact(2)) {
        *byte = u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).ok()?;
    }
    Some(hash)
}

/// Encodes a lock script. `request` has the arguments after the text.
fn encode_lock(
    meaning: Meaning,
    request: &Request<'_>,
    out: &mut Encoder<'_>,
) -> Result<(), Refusal> {
    let count = key_count(request)?;
    let rest = Request { arguments: request.arguments.from(1), ..*request };
    table::encode(meaning, &rest, count, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_is_recognized_by_its_tokens_and_then_by_its_hash() {
        let mut scripts = Scripts::default();
        let plain = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";
        let written = "-- Gives it back.\n if redis.call( \"get\" , KEYS[1] ) == ARGV[1]\n then\n\t\
            return redis.call(\"del\", KEYS[1]);\n else --[[ not\n ours ]] return 0\n end\n";
        let hash = hash_of(written.as_bytes());
        assert_eq!(scripts.find(hash.as_bytes()), None);
        assert_eq!(
            scripts.add_script(written.as_bytes()).ok(),
            Some(KnownScript::Lock(Meaning::DeleteEqual))
        );
        assert_eq!(scripts.find(hash.as_bytes()), Some(KnownScript::Lock(Meaning::DeleteEqual)));
        assert_eq!(
            scripts.find(hash.to_uppercase().as_bytes()),
            Some(KnownScript::Lock(Meaning::DeleteEqual))
        );
        assert_eq!(
            scripts.add_script(plain.as_bytes()).ok(),
            Some(KnownScript::Lock(Meaning::DeleteEqual))
        );
        scripts.flush();
        assert_eq!(scripts.find(hash.as_bytes()), None);
    }

    /// A script that differs from a known one by a token is not a lock script.
    #[test]
    fn script_that_differs_by_a_token_runs_as_lua() {
        let mut scripts = Scripts::default();
        for text in [
            "",
            "return 1",
            "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[2]) else return 0 end",
            "if redis.call('get',KEYS[1])~=ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end",
            "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 1 end",
            "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end return 5",
            "if redis.call('get',KEYS[1])=='ARGV[1]' then return redis.call('del',KEYS[1]) else return 0 end",
        ] {
            assert_eq!(
                scripts.add_script(text.as_bytes()),
                Ok(KnownScript::Lua(text.as_bytes().into())),
                "{text}"
            );
        }
        let joined = "ifredis.call('get',KEYS[1])==ARGV[1]thenreturn redis.call('del',KEYS[1])elsereturn 0end";
        assert!(scripts.load(joined.as_bytes()).is_err(), "it does not compile");
        assert_eq!(scripts.find(hash_of(joined.as_bytes()).as_bytes()), None);
        assert!(
            scripts.add_script(joined.as_bytes()).is_ok(),
            "a node finds out when it executes it"
        );
        assert!(scripts.load(joined.as_bytes()).is_err(), "also of a text that is known");
        assert_eq!(
            scripts.add_script(&vec![b' '; quorate_lua::TEXT_BYTES_MAX + 1]),
            Err(TOO_LONG.into())
        );
        assert_eq!(scripts.find(b"zz"), None);
        assert_eq!(scripts.find(&[b'g'; 40]), None);
    }

    #[test]
    fn memory_of_loaded_scripts_is_bounded() {
        let mut scripts = Scripts::default();
        for blanks in 0..1100 {
            let text = format!(
                "{}if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end",
                " ".repeat(blanks)
            );
            assert!(scripts.add_script(text.as_bytes()).is_ok());
        }
        assert_eq!((scripts.by_hash.len(), scripts.bytes), (LOADED_MAX, 0));
        for count in 0..70 {
            let text = format!("return {count} --{}", "x".repeat(250_000));
            assert!(scripts.add_script(text.as_bytes()).is_ok());
            assert!(scripts.bytes <= LOADED_BYTES_MAX);
            assert!(scripts.find(hash_of(text.as_bytes()).as_bytes()).is_some());
        }
        assert!(scripts.by_hash.len() < 70 && scripts.by_hash.len() == scripts.order.len());
    }
}
