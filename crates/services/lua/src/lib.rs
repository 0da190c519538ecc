//! Lua 5.1 for scripts that every replica executes: the result depends on nothing but the script
//! and its input.
//!
//! Redis' own Lua, compiled to WebAssembly, runs in a machine that counts its instructions
//! ([`machine`]). Every run starts from the same memory ([`Interpreter`]), and the machine reaches
//! its host through five functions ([`imports`]). Decision 33 has the reasons. **Any change that a
//! script could observe, or that changes what a run costs, is a change of the replicated format**:
//! the test `costs` finds it.

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

/// Maximum length of a script.
pub const TEXT_BYTES_MAX: usize = 256 * 1024;
/// Maximum length of a run's keys and arguments together, with four bytes for each.
pub const INPUT_BYTES_MAX: usize = 16 << 20;
/// Memory of a run, with what Lua itself needs.
pub const MEMORY_BYTES_MAX: usize = 64 << 20;
/// Maximum length of a command's words together.
pub const COMMAND_BYTES_MAX: usize = 32 << 20;
/// Maximum depth of replies, those of commands and those of scripts.
pub const DEPTH_MAX: usize = 7;

/// One execution of a script.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// Text of the script.
    pub text: &'a [u8],
    /// Global table KEYS.
    pub keys: &'a [&'a [u8]],
    /// Global table ARGV.
    pub arguments: &'a [&'a [u8]],
    /// Seed of `math.random`.
    pub seed: u64,
    /// Visits that the script may cost; a visit is about a tenth of a microsecond.
    pub visits: u64,
}

/// Executor of a script's commands.
pub trait Host {
    /// Executes a command. Returns its reply and the visits that it cost.
    fn call(&mut self, words: &[&[u8]]) -> (Data, u64);
}

/// End of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The script returned.
    Returned(Data),
    /// The script failed. What it had written stays.
    Failed(String),
    /// The script reached a limit. What it had written stays.
    Stopped(&'static str),
}
