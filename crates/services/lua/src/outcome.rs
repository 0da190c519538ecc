//! Outcome of a run, as reported to the client.

use sha1_smol::Sha1;

use crate::{
    Outcome,
    data::OutputReader,
    machine::{Output, Trap},
};

/// Status of a compilation or execution (`enum Status` in `machine.h`).
const STATUS_DONE: u32 = 0;
const STATUS_FAILED: u32 = 1;
const STATUS_BROKEN: u32 = 2;
const STATUS_MALFORMED: u32 = 3;
const STATUS_TOO_LARGE: u32 = 4;
const STATUS_TOO_DEEP: u32 = 5;

/// Maximum number of characters of an error that is not a table created by the script.
const ERROR_CHARS_MAX: usize = 100;

pub(crate) const WORK_LIMIT_TEXT: &str = "its limit of work, 1048576 visits of a tenth of a microsecond; do less \
                               in one script, or go step by step as with SCAN";
const DEPTH_LIMIT_TEXT: &str = "the limits of its machine: nested calls of a pattern, or memory of a library; use simpler ones";

impl Trap {
    pub(crate) const fn to_outcome(self) -> Outcome {
        Outcome::Stopped(match self {
            Self::OutOfFuel => WORK_LIMIT_TEXT,
            Self::Other => DEPTH_LIMIT_TEXT,
        })
    }
}

/// Returns the text of an error as a single line.
fn single_line(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace(['\r', '\n'], " ")
}

impl Output<'_> {
    /// Returns the compilation error, if there is one.
    pub(crate) fn compilation_error(&self) -> Option<String> {
        (self.status != STATUS_DONE).then(|| single_line(self.bytes))
    }

    /// Returns the outcome of executing this script.
    pub(crate) fn outcome(&self, script: &[u8]) -> Outcome {
        self.decode_outcome(script).unwrap_or_else(|| Trap::Other.to_outcome())
    }

    fn decode_outcome(&self, script: &[u8]) -> Option<Outcome> {
        let mut reader = OutputReader::new(self.bytes, self.resp_version);
        Some(match self.status {
            STATUS_DONE => {
                let reply = reader.value(0)?;
                reader.is_empty().then_some(Outcome::Returned(reply))?
            }
            STATUS_FAILED => {
                let (text, place) = (single_line(reader.text()?), single_line(reader.text()?));
                Outcome::Failed(match place.is_empty() {
                    true => text,
                    false => format!("{text} script: {}, on {place}.", script_hash(script)),
                })
            }
            STATUS_BROKEN => {
                let text: String = single_line(self.bytes).chars().take(ERROR_CHARS_MAX).collect();
                Outcome::Failed(format!("ERR Error running script {}, {text}", script_hash(script)))
            }
            STATUS_MALFORMED => Outcome::Failed(compilation_message(&single_line(self.bytes))),
            STATUS_TOO_LARGE => Outcome::Failed(
                "TOOBIG the reply of the script would be larger than 32 MiB; return less"
                    .to_owned(),
            ),
            STATUS_TOO_DEEP => Outcome::Failed(format!(
                "ERR the reply of the script is nested too deeply: at most {} levels",
                crate::REPLY_DEPTH_MAX
            )),
            _ => return None,
        })
    }
}

fn script_hash(script: &[u8]) -> String {
    Sha1::from(script).digest().to_string()
}

/// Returns the error for a client, given that of the compilation.
pub(crate) fn compilation_message(text: &str) -> String {
    format!("ERR Error compiling script (new function): {text}")
}
