//! History of clients' operations: one JSON object a line, for the checker.

use std::{
    fs,
    io::{self, BufWriter, Write as _},
    path::Path,
    time::Instant,
};

use serde::{Serialize, Serializer};

/// Contents of a key; `None` if it is absent.
pub type Held = Option<String>;

/// One operation of a client. What it found or gave means something only if it returned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum What {
    /// Gives what is there.
    Read {
        /// The value found.
        #[serde(serialize_with = "held")]
        found: Held,
    },
    /// Sets or deletes.
    Write {
        /// The new value.
        #[serde(serialize_with = "held")]
        value: Held,
    },
    /// Writes, and gives what was there.
    Swap {
        /// The new value.
        #[serde(serialize_with = "held")]
        value: Held,
        /// The value found.
        #[serde(serialize_with = "held")]
        found: Held,
    },
    /// Writes if the expected value is there.
    Cas {
        /// The expected value.
        #[serde(serialize_with = "held")]
        expected: Held,
        /// The new value, if it succeeds.
        #[serde(serialize_with = "held")]
        value: Held,
        /// It succeeded.
        done: bool,
    },
    /// Counts, and gives the sum.
    Add {
        /// Amount.
        by: i64,
        /// The sum.
        result: i64,
    },
}

/// An operation on one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Operation {
    pub client: usize,
    /// For what.
    pub key: String,
    /// The operation and its result.
    #[serde(flatten)]
    pub what: What,
    /// When, in nanoseconds on the clock of the history.
    pub call: u64,
    /// When the reply came. Without one it may take effect at any later time, or never.
    #[serde(rename = "return")]
    pub end: Option<u64>,
}

/// Values are words of the clients; what else a broken node makes up is none of the checker's.
fn plain(text: &str) -> String {
    let plain = |letter: char| {
        let is_plain = letter.is_ascii_graphic() && letter != '"' && letter != '\\';
        if is_plain { letter } else { '?' }
    };
    text.chars().map(plain).collect()
}

fn held<S: Serializer>(held: &Held, serializer: S) -> Result<S::Ok, S::Error> {
    held.as_deref().map(plain).serialize(serializer)
}

/// Writes all operations, one a line.
pub fn save(operations: &[Operation], place: &Path) -> io::Result<()> {
    let mut lines = BufWriter::new(fs::File::create(place)?);
    for operation in operations {
        serde_json::to_writer(&mut lines, operation)?;
        lines.write_all(b"\n")?;
    }
    lines.flush()
}

/// One monotonic clock for all clients.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// Starts the clock.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Nanoseconds since it began.
    pub fn now(self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// The same history with a lie at its end: a checker that takes it is worthless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// A read of a value that was overwritten before.
    StaleRead,
    /// An acknowledged write that the next read does not see.
    LostWrite,
    /// A counter that gives the same sum twice.
    CountedOnce,
}

impl Lie {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::StaleRead, Self::LostWrite, Self::CountedOnce];

    /// `None` if the history has nothing that could be twisted this way.
    pub fn told_in(self, operations: &[Operation]) -> Option<Vec<Operation>> {
        let last = operations.iter().filter_map(|one| one.end.max(Some(one.call))).max()?;
        let after = |key: &str, what, step| Operation {
            client: usize::MAX >> 32,
            key: key.to_owned(),
            what,
            call: last + step,
            end: Some(last + step + 1),
        };
        let returned = || operations.iter().filter(|one| one.end.is_some());
        let more = match self {
            Self::StaleRead => {
                let (key, old, new) = returned().find_map(|one| {
                    let What::Write { value: Some(old) } = &one.what else {
                        return None;
                    };
                    let later =
                        |other: &&Operation| other.key == one.key && Some(other.call) > one.end;
                    let new = returned().filter(later).find_map(|other| match &other.what {
                        What::Write { value: Some(new) } => Some(new),
                        _ => None,
                    })?;
                    Some((&one.key, old, new))
                })?;
                // Whatever the key holds by now, these are two writes in this order.
                vec![
                    after(key, What::Write { value: Some(new.clone() + "!") }, 2),
                    after(key, What::Read { found: Some(old.clone()) }, 4),
                ]
            }
            Self::LostWrite => {
                let (key, found) = returned().find_map(|one| match &one.what {
                    What::Read { found: Some(found) } => Some((&one.key, found)),
                    _ => None,
                })?;
                vec![
                    after(key, What::Write { value: Some(found.clone() + "!") }, 2),
                    after(key, What::Read { found: Some(found.clone()) }, 4),
                ]
            }
            Self::CountedOnce => {
                let (key, by, result) = returned().find_map(|one| match one.what {
                    What::Add { by, result } => Some((&one.key, by, result)),
                    _ => None,
                })?;
                // Both give one sum: the second did not count.
                let add = What::Add { by, result: result + (1 << 40) };
                vec![
                    after(
                        key,
                        What::Write { value: Some((result + (1 << 40) - by).to_string()) },
                        2,
                    ),
                    after(key, add.clone(), 4),
                    after(key, add, 6),
                ]
            }
        };
        let mut twisted = operations.to_vec();
        twisted.extend(more);
        Some(twisted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_one_line_of_json() {
        let operation = Operation {
            client: 7,
            key: "r1.2".to_owned(),
            what: What::Cas { expected: None, value: Some("a\"b\n".to_owned()), done: true },
            call: 5,
            end: None,
        };
        assert_eq!(
            serde_json::to_string(&operation).unwrap(),
            r#"{"client":7,"key":"r1.2","op":"cas","expected":null,"value":"a?b?","done":true,"call":5,"return":null}"#
        );
    }

    #[test]
    fn a_lie_comes_after_everything_else() {
        let write = |value: &str, call| Operation {
            client: 1,
            key: "k".to_owned(),
            what: What::Write { value: Some(value.to_owned()) },
            call,
            end: Some(call + 1),
        };
        let history = [write("a", 1), write("b", 3)];
        let twisted = Lie::StaleRead.told_in(&history).unwrap();
        assert!(twisted[2..].iter().all(|one| one.call > 4));
        assert_eq!(twisted[3].what, What::Read { found: Some("a".to_owned()) });
        assert_eq!(Lie::CountedOnce.told_in(&history), None);
    }
}
