//! Commands to the table of users and their replies, with their encoding.

use std::fmt;

use crate::{
    fields::{FieldReader, put_text},
    role::Role,
};

/// Change of a user's password.
#[derive(Clone, PartialEq, Eq)]
pub enum Password {
    Keep,
    /// Remove the password: only a certificate lets the user in.
    None,
    /// Set this hash, in PHC format.
    Hash(String),
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A hash is no great secret, but it does not belong in a log.
        f.write_str(match self {
            Self::Keep => "Keep",
            Self::None => "None",
            Self::Hash(_) => "Hash(…)",
        })
    }
}

/// Change of the table of users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Creates or changes a user.
    Set {
        name: String,
        /// New role; `None` to keep the current one.
        role: Option<Role>,
        password: Password,
    },
    Remove {
        name: String,
    },
    /// Removes all users, which gives every caller all permissions again.
    Open,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Denied {
    Malformed = 16,
    InvalidName = 17,
    /// No user has this name.
    UnknownUser = 18,
    /// The new user has no role.
    NoRole = 19,
    /// [`USERS_MAX`](crate::users::USERS_MAX) is reached.
    Full = 20,
    /// No user that may change users would be left.
    LastAdmin = 21,
    /// The hash is not in a format that this version accepts.
    InvalidHash = 22,
}

pub type Reply = Result<(), Denied>;

const SET: u8 = 1;
const REMOVE: u8 = 2;
const OPEN: u8 = 3;
const DONE: u8 = 0;

impl Command {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Set { name, role, password } => {
                out.push(SET);
                put_text(name, &mut out);
                out.push(role.map_or(0, |role| role as u8));
                match password {
                    Password::Keep => out.push(0),
                    Password::None => out.push(1),
                    Password::Hash(hash) => {
                        out.push(2);
                        put_text(hash, &mut out);
                    }
                }
            }
            Self::Remove { name } => {
                out.push(REMOVE);
                put_text(name, &mut out);
            }
            Self::Open => out.push(OPEN),
        }
        out
    }

    /// Decodes a command that this version understands.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = FieldReader(bytes);
        let command = match fields.byte()? {
            SET => Self::Set {
                name: fields.text()?.to_owned(),
                role: match fields.byte()? {
                    0 => None,
                    number => Some(Role::from_number(number)?),
                },
                password: match fields.byte()? {
                    0 => Password::Keep,
                    1 => Password::None,
                    2 => Password::Hash(fields.text()?.to_owned()),
                    _ => return None,
                },
            },
            REMOVE => Self::Remove { name: fields.text()?.to_owned() },
            OPEN => Self::Open,
            _ => return None,
        };
        fields.0.is_empty().then_some(command)
    }
}

impl Denied {
    const ALL: [Self; 7] = [
        Self::Malformed,
        Self::InvalidName,
        Self::UnknownUser,
        Self::NoRole,
        Self::Full,
        Self::LastAdmin,
        Self::InvalidHash,
    ];
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "this version does not understand the request",
            Self::InvalidName => "a user's name is 1 to 63 small letters, digits and dashes",
            Self::UnknownUser => "there is no such user",
            Self::NoRole => "nothing says what the new user may do",
            Self::Full => "there are as many users as there may be",
            Self::LastAdmin => "no user would be left who may change users",
            Self::InvalidHash => "this is no hash of a password",
        })
    }
}

pub fn encode_reply(reply: Reply, out: &mut Vec<u8>) {
    out.push(reply.map_or_else(|denied| denied as u8, |()| DONE));
}

/// Decodes a reply that this version understands.
pub fn decode_reply(bytes: &[u8]) -> Option<Reply> {
    match *bytes {
        [DONE] => Some(Ok(())),
        [number] => {
            let denied = Denied::ALL.into_iter().find(|one| *one as u8 == number);
            denied.map(Err)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<Command> {
        let set = |role, password| Command::Set { name: "ann".to_owned(), role, password };
        vec![
            set(None, Password::Keep),
            set(Some(Role::Admin), Password::None),
            set(Some(Role::Reader), Password::Hash("$argon2id$x".to_owned())),
            Command::Remove { name: "ann".to_owned() },
            Command::Open,
        ]
    }

    /// The encoding of commands never changes, because logs contain it.
    #[test]
    fn command_encoding_is_stable() {
        let bytes: Vec<Vec<u8>> = samples().iter().map(Command::encode).collect();
        let expected: [&[u8]; 5] = [
            b"\x01\0\x03ann\0\0",
            b"\x01\0\x03ann\x04\x01",
            b"\x01\0\x03ann\x01\x02\0\x0b$argon2id$x",
            b"\x02\0\x03ann",
            b"\x03",
        ];
        assert_eq!(bytes, expected);
    }

    #[test]
    fn commands_and_replies_round_trip_and_truncation_is_refused() {
        for command in samples() {
            let bytes = command.encode();
            assert_eq!(Command::decode(&bytes), Some(command));
            for cut in 0..bytes.len() {
                assert_eq!(Command::decode(&bytes[..cut]), None, "cut at {cut}");
            }
            assert_eq!(Command::decode(&[&bytes[..], b"x"].concat()), None);
        }
        for bytes in [&b"\x01\0\x01a\x05\0"[..], b"\x01\0\x01a\0\x03", b"\x09", b""] {
            assert_eq!(Command::decode(bytes), None);
        }
        for reply in Denied::ALL.into_iter().map(Err).chain([Ok(())]) {
            let mut bytes = Vec::new();
            encode_reply(reply, &mut bytes);
            assert_eq!(decode_reply(&bytes), Some(reply));
        }
        assert_eq!(decode_reply(&[1]), None);
        assert_eq!(decode_reply(&[]), None);
    }

    #[test]
    fn a_hash_is_not_shown() {
        let shown = format!("{:?}", samples());
        assert!(!shown.contains("argon2id"), "{shown}");
    }
}
