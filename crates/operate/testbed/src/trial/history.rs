//! History of client operations for the checker, with one JSON object per line.

use std::{
    fs,
    io::{self, BufWriter, Write as _},
    path::Path,
    time::Instant,
};

use serde::{Serialize, Serializer};

/// Contents of a key; `None` if the key is absent.
pub type KeyContents = Option<String>;

/// An operation of a client. The result is valid only if the operation returned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum What {
    /// Returns the value of the key.
    Read {
        #[serde(serialize_with = "held")]
        found: KeyContents,
    },
    /// Sets or deletes the key.
    Write {
        #[serde(serialize_with = "held")]
        value: KeyContents,
    },
    /// Writes a value and returns the previous one as `found`.
    Swap {
        #[serde(serialize_with = "held")]
        value: KeyContents,
        #[serde(serialize_with = "held")]
        found: KeyContents,
    },
    /// Writes `value` if the current value equals `expected`, and reports whether it did as `done`.
    Cas {
        #[serde(serialize_with = "held")]
        expected: KeyContents,
        #[serde(serialize_with = "held")]
        value: KeyContents,
        done: bool,
    },
    /// Adds `by` to a counter and returns the sum.
    Add { by: i64, result: i64 },
}

/// An operation of a client on one key, with its start and end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Operation {
    pub client: usize,
    pub key: String,
    #[serde(flatten)]
    pub what: What,
    /// Time at which the operation was started, in nanoseconds on the clock of the history.
    pub call: u64,
    /// Time of the reply. An operation without a reply may take effect at any later time, or never.
    #[serde(rename = "return")]
    pub end: Option<u64>,
}

/// Replaces characters that clients never write. A faulty node may return anything, but the input
/// of the checker must remain valid.
fn without_special(text: &str) -> String {
    let plain = |letter: char| {
        let is_plain = letter.is_ascii_graphic() && letter != '"' && letter != '\\';
        if is_plain { letter } else { '?' }
    };
    text.chars().map(plain).collect()
}

fn held<S: Serializer>(held: &KeyContents, serializer: S) -> Result<S::Ok, S::Error> {
    held.as_deref().map(without_special).serialize(serializer)
}

/// Writes all operations to a file, one per line.
pub fn save_operations(operations: &[Operation], place: &Path) -> io::Result<()> {
    let mut lines = BufWriter::new(fs::File::create(place)?);
    for operation in operations {
        serde_json::to_writer(&mut lines, operation)?;
        lines.write_all(b"\n")?;
    }
    lines.flush()
}

/// Monotonic clock that all clients share.
#[derive(Clone, Copy, Debug)]
pub struct HistoryClock(Instant);

impl HistoryClock {
    /// Creates a clock that starts now.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Returns the nanoseconds since the clock started.
    pub fn nanos_now(self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// A fault that can be injected into a history. A checker that accepts the result is useless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Falsification {
    /// A read returns a value that was already overwritten.
    StaleRead,
    /// A read does not return the last acknowledged write.
    LostWrite,
    /// Two additions to a counter return the same sum.
    DuplicateSum,
}

impl Falsification {
    pub const ALL: [Self; 3] = [Self::StaleRead, Self::LostWrite, Self::DuplicateSum];

    /// Returns a copy of the history with the fault injected, unless no operation is suitable.
    pub fn inject_into(self, operations: &[Operation]) -> Option<Vec<Operation>> {
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
                // The current value does not matter, because these two writes are ordered.
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
            Self::DuplicateSum => {
                let (key, by, result) = returned().find_map(|one| match one.what {
                    What::Add { by, result } => Some((&one.key, by, result)),
                    _ => None,
                })?;
                // Both additions return the same sum, so one of them did not count.
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
    fn falsified_operations_come_last() {
        let write = |value: &str, call| Operation {
            client: 1,
            key: "k".to_owned(),
            what: What::Write { value: Some(value.to_owned()) },
            call,
            end: Some(call + 1),
        };
        let history = [write("a", 1), write("b", 3)];
        let twisted = Falsification::StaleRead.inject_into(&history).unwrap();
        assert!(twisted[2..].iter().all(|one| one.call > 4));
        assert_eq!(twisted[3].what, What::Read { found: Some("a".to_owned()) });
        assert_eq!(Falsification::DuplicateSum.inject_into(&history), None);
    }
}
