//! Outcome of a run, as reported to the client.

use sha1_smol::Sha1;

use crate::{
    Outcome,
    data::Reader,
    machine::{Output, Trap},
};

/// Status of a compilation or execution (`enum Status` in `machine.h`).
const DONE: u32 = 0;
const FAILED: u32 = 1;
const BROKEN: u32 = 2;
const MALFORMED: u32 = 3;
const TOO_LARGE: u32 = 4;
const TOO_DEEP: u32 = 5;

/// Maximum number of characters of an error that is not a table created by the script.
const BROKEN_TEXT_MAX: usize = 100;

pub(crate) const WORK: &str = "its limit of work, 1048576 visits of a tenth of a microsecond; do less \
                               in one script, or go step by step as with SCAN";
const DEPTH: &str = "the limits of its machine: nested calls of a pattern, or memory of a library; use simpler ones";

impl Trap {
    pub(crate) const fn outcome(self) -> Outcome {
        Outcome::Stopped(match self {
            Self::Fuel => WORK,
            Self::Other => DEPTH,
        })
    }
}

/// Returns the text of an error as a single line.
fn line(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace(['\r', '\n'], " ")
}

impl Output<'_> {
    /// Returns the compilation error, if there is one.
    pub(crate) fn malformed(&self) -> Option<String> {
        (self.status != DONE).then(|| line(self.bytes))
    }

    /// Returns the outcome of executing this script.
    pub(crate) fn outcome(&self, script: &[u8]) -> Outcome {
        self.read(script).unwrap_or_else(|| Trap::Other.outcome())
    }

    fn read(&self, script: &[u8]) -> Option<Outcome> {
        let mut reader = Reader::new(self.bytes, self.version);
        Some(match self.status {
            DONE => {
                let reply = reader.value(0)?;
                reader.is_empty().then_some(Outcome::Returned(reply))?
            }
            FAILED => {
                let (text, place) = (line(reader.text()?), line(reader.text()?));
                Outcome::Failed(match place.is_empty() {
                    true => text,
                    false => format!("{text} script: {}, on {place}.", hash(script)),
                })
            }
            BROKEN => {
                let text: String = line(self.bytes).chars().take(BROKEN_TEXT_MAX).collect();
                Outcome::Failed(format!("ERR Error running script {}, {text}", hash(script)))
            }
            MALFORMED => Outcome::Failed(compilation(&line(self.bytes))),
            TOO_LARGE => Outcome::Failed(
                "TOOBIG the reply of the script would be larger than 32 MiB; return less"
                    .to_owned(),
            ),
            TOO_DEEP => Outcome::Failed(format!(
                "ERR the reply of the script is nested too deeply: at most {} levels",
                crate::DEPTH_MAX
            )),
            _ => return None,
        })
    }
}

fn hash(script: &[u8]) -> String {
    Sha1::from(script).digest().to_string()
}

/// Returns the error for a client, given that of the compilation.
pub(crate) fn compilation(text: &str) -> String {
    format!("ERR Error compiling script (new function): {text}")
}
