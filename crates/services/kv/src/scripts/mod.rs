//! Scripts of lock libraries, each executed as one operation of the log.
//!
//! Lua is not executed. But common libraries release locks by a script, for which Redis long had no
//! command. Those scripts are recognised by the SHA-1 of their text (EVALSHA), or of their tokens,
//! which do not depend on blanks, comments and the kind of quotes (EVAL, SCRIPT LOAD). `table` maps
//! each to an operation. All others are refused.

use std::fmt::Write as _;

use rustc_hash::FxHashMap;
use sha1_smol::Sha1;

use crate::{
    command::{NOT_AN_INTEGER, Refusal, Request},
    encode::Encoder,
};

mod table;
mod words;

pub use table::Meaning;

/// Maximum number of script texts that a node remembers.
const LOADED_MAX: usize = 1024;
/// Maximum length of a script to examine; all known ones are much shorter.
const TEXT_BYTES_MAX: usize = 8192;

pub const UNKNOWN: &str = "ERR this script is unknown here: Lua is not executed, only the lock scripts of \
    redis-py, node-redlock and Redisson are known; see docs/commands.md";
/// Redis' error for an unknown hash, after which clients send the text.
pub const NO_SCRIPT: &str = "NOSCRIPT No matching script. Please use EVAL.";

/// Scripts that a node can execute.
#[derive(Debug, Default)]
pub struct Scripts {
    /// Operations of texts that clients sent, for hashes that are not in the table.
    loaded: FxHashMap<[u8; 20], Meaning>,
}

impl Scripts {
    /// Returns the operation of a script, and remembers it by the hash of the text.
    pub fn learn(&mut self, text: &[u8]) -> Option<Meaning> {
        if text.len() > TEXT_BYTES_MAX {
            return None;
        }
        let hash = Sha1::from(text).digest().bytes();
        if let Some(meaning) = self.by_hash(hash) {
            return Some(meaning);
        }
        let words = Sha1::from(words::canonical(text)).digest().bytes();
        let meaning = table::of_words(words)?;
        if self.loaded.len() < LOADED_MAX {
            self.loaded.insert(hash, meaning);
        }
        Some(meaning)
    }

    fn by_hash(&self, hash: [u8; 20]) -> Option<Meaning> {
        table::of_text(hash).or_else(|| self.loaded.get(&hash).copied())
    }

    /// Returns the operation of the script with this hexadecimal hash.
    pub fn find(&self, hex: &[u8]) -> Option<Meaning> {
        self.by_hash(parse_hash(hex)?)
    }

    /// Forgets the texts that clients sent.
    pub fn flush(&mut self) {
        self.loaded.clear();
    }
}

/// Returns the hash of a text in hexadecimal, the reply to SCRIPT LOAD.
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

/// Encodes `EVAL text numkeys key… argument…`, given what follows the text.
pub fn encode(
    meaning: Meaning,
    request: &Request<'_>,
    out: &mut Encoder<'_>,
) -> Result<(), Refusal> {
    let count = request.integer(0).map_err(|_| Refusal::from(NOT_AN_INTEGER))?;
    let Ok(count) = usize::try_from(count) else {
        return Err("ERR Number of keys can't be negative".into());
    };
    if count >= request.arguments.len() {
        return Err("ERR Number of keys can't be greater than number of args".into());
    }
    let rest = Request { arguments: request.arguments.from(1), ..*request };
    table::encode(meaning, &rest, count, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_known_by_its_words_and_then_by_its_hash() {
        let mut scripts = Scripts::default();
        let plain = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";
        let written = "-- Gives it back.\n if redis.call( \"get\" , KEYS[1] ) == ARGV[1]\n then\n\t\
            return redis.call(\"del\", KEYS[1]);\n else --[[ not\n ours ]] return 0\n end\n";
        let hash = hash_of(written.as_bytes());
        assert_eq!(scripts.find(hash.as_bytes()), None);
        assert_eq!(scripts.learn(written.as_bytes()), Some(Meaning::DeleteEqual));
        assert_eq!(scripts.find(hash.as_bytes()), Some(Meaning::DeleteEqual));
        assert_eq!(scripts.find(hash.to_uppercase().as_bytes()), Some(Meaning::DeleteEqual));
        assert_eq!(scripts.learn(plain.as_bytes()), Some(Meaning::DeleteEqual));
        scripts.flush();
        assert_eq!(scripts.find(hash.as_bytes()), None);
    }

    /// A script with a token more or less than a known one is unknown.
    #[test]
    fn what_says_something_else_is_unknown() {
        let mut scripts = Scripts::default();
        for text in [
            "",
            "return 1",
            "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[2]) else return 0 end",
            "if redis.call('get',KEYS[1])~=ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end",
            "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 1 end",
            "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end return 5",
            "if redis.call('get',KEYS[1])=='ARGV[1]' then return redis.call('del',KEYS[1]) else return 0 end",
            "ifredis.call('get',KEYS[1])==ARGV[1]thenreturn redis.call('del',KEYS[1])elsereturn 0end",
        ] {
            assert_eq!(scripts.learn(text.as_bytes()), None, "{text}");
        }
        assert_eq!(scripts.learn(&vec![b' '; TEXT_BYTES_MAX + 1]), None);
        assert_eq!(scripts.find(b"zz"), None);
        assert_eq!(scripts.find(&[b'g'; 40]), None);
    }

    #[test]
    fn strangers_cannot_fill_the_memory() {
        let mut scripts = Scripts::default();
        for blanks in 0..3000 {
            let text = format!(
                "{}if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end",
                " ".repeat(blanks)
            );
            assert!(scripts.learn(text.as_bytes()).is_some());
        }
        assert_eq!(scripts.loaded.len(), LOADED_MAX);
    }
}
