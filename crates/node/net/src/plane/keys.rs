//! File of one or two datagram keys, each on a line with a number and 64 hex digits ([pkt-3]).
//!
//! The last line is the newest key. The file is read at start and whenever it has changed. Every
//! node accepts a new key and announces it to its peers before any node sends with it. A key
//! removed from the file is accepted until it is no longer used for sending.

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use quorate_packets::trust::{Key, KeyRing, keys::KeyId};
use thiserror::Error;

/// Maximum size of the file in bytes, enough for two keys and comments.
const FILE_BYTES_MAX: u64 = 4096;

/// Contents of the key file, with its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyFile {
    path: PathBuf,
    /// One or two keys, with the newest last.
    keys: Vec<(KeyId, Key)>,
}

/// Reason why the key file cannot be used.
#[derive(Debug, Error)]
pub enum BadKeys {
    /// The operating system failed to read the file.
    #[error("cannot read the keys of --plane-key {path}: {source}", path = path.display())]
    Io { path: PathBuf, source: io::Error },
    /// A line of the file, counted from 1, is not a key.
    #[error("--plane-key {path}, line {line}: {what}", path = path.display())]
    Line { path: PathBuf, line: usize, what: &'static str },
    /// The file has no key, or more than two.
    #[error("--plane-key {path} has {count} keys, and needs one, or two while they are exchanged", path = path.display())]
    Count { path: PathBuf, count: usize },
}

impl BadKeys {
    /// Returns advice for the operator on how to fix the problem.
    pub const fn hint(&self) -> &'static str {
        "it is a file with a line for each key, a number from 1 to 255 and 64 hexadecimal digits; docs/operate/planes.md has a command that makes one"
    }
}

impl KeyFile {
    pub fn read(path: &Path) -> Result<Self, BadKeys> {
        let failed = |source| BadKeys::Io { path: path.to_owned(), source };
        let mut text = String::new();
        let file = File::open(path).map_err(failed)?;
        file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
        Self::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> Result<Self, BadKeys> {
        let mut keys: Vec<(KeyId, Key)> = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let refuse = |what| BadKeys::Line { path: path.to_owned(), line: at + 1, what };
            let (number, digits) = line
                .split_once(char::is_whitespace)
                .ok_or_else(|| refuse("not a number and a key"))?;
            let number: KeyId = number
                .parse()
                .ok()
                .filter(|number| *number > 0)
                .ok_or_else(|| refuse("the number is not from 1 to 255"))?;
            if keys.iter().any(|(known, _)| *known == number) {
                return Err(refuse("the number is in use by another line"));
            }
            let key = parse_key(digits.trim())
                .ok_or_else(|| refuse("the key is not 64 hexadecimal digits"))?;
            keys.push((number, key));
        }
        if !(1..=2).contains(&keys.len()) {
            return Err(BadKeys::Count { path: path.to_owned(), count: keys.len() });
        }
        Ok(Self { path: path.to_owned(), keys })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the keys for a starting node, which sends with the first key and accepts both.
    pub fn keys(&self) -> KeyRing {
        let mut held = self.keys.iter().cloned();
        let first = held.next().and_then(|(id, key)| KeyRing::one(id, key).ok());
        let mut keys = first.unwrap_or_default();
        for (id, key) in held {
            // A second key is always accepted.
            let _ = keys.add(id, key);
        }
        keys
    }

    pub fn has(&self, id: KeyId) -> bool {
        self.keys.iter().any(|(known, _)| *known == id)
    }

    pub fn newest(&self) -> Option<&(KeyId, Key)> {
        self.keys.last()
    }
}

fn parse_key(digits: &str) -> Option<Key> {
    let digits = digits.as_bytes();
    let mut key = [0; 32];
    if digits.len() != 2 * key.len() {
        return None;
    }
    for (byte, pair) in key.iter_mut().zip(digits.chunks(2)) {
        let digit = |at: usize| char::from(pair[at]).to_digit(16);
        *byte = u8::try_from(digit(0)? * 16 + digit(1)?).ok()?;
    }
    Some(Key::new(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<KeyFile, String> {
        KeyFile::parse(Path::new("keys"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn key_file_has_one_or_two_keys_and_comments() {
        let (one, two) = ("0123456789abcdef".repeat(4), "F".repeat(64));
        let file = parse(&format!("# ours\n\n 7  {one} # the first\n")).unwrap();
        assert_eq!(file.newest().unwrap().0, 7);
        let keys = file.keys();
        assert_eq!((keys.current().0, keys.newest_id()), (7, 7));
        let file = parse(&format!("7 {one}\n8\t{two}")).unwrap();
        assert_eq!(file.newest().unwrap(), &(8, Key::new([255; 32])));
        let keys = file.keys();
        assert_eq!((keys.current().0, keys.newest_id()), (7, 8), "no peer has named the new one");
    }

    #[test]
    fn invalid_key_is_an_error_with_its_line() {
        let key = "0".repeat(64);
        let refused = |text: &str| parse(text).unwrap_err();
        assert_eq!(
            refused(""),
            "--plane-key keys has 0 keys, and needs one, or two while they are exchanged"
        );
        assert!(refused(&format!("1 {key}\n2 {key}\n3 {key}")).contains("has 3 keys"));
        assert_eq!(
            refused(&format!("#\n{key}")),
            "--plane-key keys, line 2: not a number and a key"
        );
        assert!(refused(&format!("0 {key}")).ends_with("line 1: the number is not from 1 to 255"));
        assert!(
            refused(&format!("256 {key}")).ends_with("line 1: the number is not from 1 to 255")
        );
        assert!(
            refused(&format!("1 {key}\n1 {key}"))
                .ends_with("line 2: the number is in use by another line")
        );
        for bad in [&key[1..], &format!("{key}0"), &key.replace('0', "g"), &key.replace('0', "é")]
        {
            let text = refused(&format!("1 {bad}"));
            assert!(text.ends_with("the key is not 64 hexadecimal digits"), "{text}");
        }
    }

    #[test]
    fn missing_key_file_is_named() {
        let error = KeyFile::read(Path::new("/nonexistent/keys")).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("cannot read the keys of --plane-key /nonexistent/keys: ")
        );
    }
}
