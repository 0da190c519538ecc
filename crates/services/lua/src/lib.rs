//! Lua 5.1 for scripts that every replica executes. Results depend only on the script and its
//! input.
//!
//! Redis' own Lua, compiled to WebAssembly, runs in a machine that meters its instructions
//! ([`machine`]). Every run starts with the same memory ([`Interpreter`]), and the machine reaches
//! its host only through five functions ([`imports`]). Decision 33 has the reasons. **Any change
//! that a script could observe, or that changes the cost of a run, is a change to the replicated
//! format**; the test `costs` detects it.

mod data;
mod fuel;
mod header;
mod host;
#[doc(hidden)]
pub mod hostile;
mod images;
mod imports;
mod input;
mod interpreter;
mod machine;
mod number;
mod outcome;
mod proof;

pub use self::{
    data::Data,
    header::{Flags, flags},
    interpreter::{Interpreter, prepare},
};

/// Maximum length of a script in bytes.
pub const TEXT_BYTES_MAX: usize = 256 * 1024;
/// Maximum total length in bytes of a run's keys and arguments, with four more bytes for each.
pub const INPUT_BYTES_MAX: usize = 16 << 20;
/// Maximum memory of a run in bytes, including the memory that Lua itself needs.
pub const MEMORY_BYTES_MAX: usize = 64 << 20;
/// Maximum total length in bytes of a command's words.
pub const COMMAND_BYTES_MAX: usize = 32 << 20;
/// Maximum nesting depth of the replies of commands and scripts.
pub const REPLY_DEPTH_MAX: usize = 7;

/// Script to execute, with its input and its limit.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    pub text: &'a [u8],
    /// Elements of the global table KEYS.
    pub keys: &'a [&'a [u8]],
    /// Elements of the global table ARGV.
    pub arguments: &'a [&'a [u8]],
    /// Seed of `math.random`.
    pub seed: u64,
    /// Maximum number of visits that the script may use. A visit is about a tenth of a microsecond.
    pub visits: u64,
}

/// Executor of the commands that a script calls.
pub trait Host {
    /// Executes a command. Returns its reply and the number of visits it used.
    fn call(&mut self, words: &[&[u8]]) -> (Data, u64);
}

/// Result of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The script returned this value.
    Returned(Data),
    /// The script failed with this error. Its earlier writes stay.
    Failed(String),
    /// The script reached this limit. Its earlier writes stay.
    Stopped(&'static str),
}
