//! Output of commands: results, errors and exit codes.

use std::{
    fmt,
    io::{self, IsTerminal as _, Write as _},
    process::ExitCode,
    time::{Duration, Instant},
};

use quorate_admin::error::error_json;
use quorate_admin::problem::{self, Kind};
pub use quorate_admin::progress::write_line as progress;
use rustix::event::{PollFd, PollFlags, Timespec};
use serde::Serialize;

/// Exit code of the process. Scripts rely on the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The request was executed.
    Done = 0,
    /// The request was refused or failed.
    Failed = 1,
    /// The command line or the configuration is invalid.
    Usage = 2,
    /// Nodes are unreachable, have no quorum, or did not respond in time.
    Unreachable = 3,
    /// A check found damage, loss of data or a violated rule.
    Violation = 4,
    /// The user interrupted the command.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Error for the user, with a suggested remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Exit code of a process that ends because of the problem.
    pub exit: Exit,
    /// Machine-readable code: lower-case words joined by `_`.
    pub code: &'static str,
    /// Human-readable message.
    pub message: String,
    /// Suggested remedy. May be empty.
    pub hint: String,
}

impl Problem {
    /// Creates a problem without a hint. `code` is the machine-readable code.
    pub fn new(exit: Exit, code: &'static str, message: impl fmt::Display) -> Self {
        Self { exit, code, message: message.to_string(), hint: String::new() }
    }

    /// Creates a problem for an invalid flag, environment variable or configuration key.
    pub fn usage_error(message: impl fmt::Display) -> Self {
        problem::Problem::usage_error(message).into()
    }

    /// Creates a problem for an I/O error. `what` describes the failed operation.
    pub fn io_error(what: impl fmt::Display, error: &io::Error) -> Self {
        problem::Problem::io_error(what, error).into()
    }

    /// Creates a problem for an address at which no node responds.
    pub fn unreachable_node(address: &str, error: impl fmt::Display) -> Self {
        problem::Problem::unreachable_node(address, error).into()
    }

    /// Returns the problem as a JSON document.
    pub fn to_json(&self) -> String {
        error_json(self.code, &self.message, &self.hint)
    }

    /// Sets the suggested remedy.
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }
}

impl From<quorate::Error> for Problem {
    fn from(error: quorate::Error) -> Self {
        let usage = error.code == "bad_configuration";
        let exit = if usage { Exit::Usage } else { Exit::Failed };
        Self::new(exit, error.code, error.message).with_hint(error.hint)
    }
}

impl From<problem::Problem> for Problem {
    fn from(problem: problem::Problem) -> Self {
        let exit = match problem.kind {
            Kind::Usage => Exit::Usage,
            Kind::Failed => Exit::Failed,
            Kind::Unreachable => Exit::Unreachable,
        };
        Self::new(exit, problem.code, problem.message).with_hint(problem.hint)
    }
}

impl From<quorate_tls::TlsFilesError> for Problem {
    fn from(bad: quorate_tls::TlsFilesError) -> Self {
        let hint = bad.hint();
        Self::new(Exit::Usage, "tls", bad).with_hint(hint)
    }
}

impl From<quorate_admin::look::NoResponse> for Problem {
    fn from(silent: quorate_admin::look::NoResponse) -> Self {
        problem::Problem::from(silent).into()
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if self.hint.is_empty() { Ok(()) } else { write!(f, " (hint: {})", self.hint) }
    }
}

/// Output format of a command.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// Set if `--json` was given.
    pub json: bool,
}

impl Output {
    /// Prints a result, either as a JSON document or as the text returned by `human`.
    pub fn print_result<T: Serialize>(self, document: &T, human: impl FnOnce() -> String) {
        if self.json {
            let text = serde_json::to_string(document).expect("results are plain data");
            print_line(&text);
        } else {
            print_line(human().trim_end());
        }
    }

    /// Prints an error, either as JSON on standard output or as text on standard error. Returns its
    /// exit code.
    pub fn print_problem(self, problem: &Problem) -> Exit {
        if self.json {
            print_line(&problem.to_json());
        } else {
            let (red, plain) =
                if io::stderr().is_terminal() { ("\x1b[31m", "\x1b[0m") } else { ("", "") };
            progress(&format!("{red}error:{plain} {}", problem.message));
            if !problem.hint.is_empty() {
                progress(&format!("  hint: {}", problem.hint));
            }
        }
        problem.exit
    }
}

/// Returns whether the value of a switch means "on".
pub fn is_switched_on(text: &str) -> bool {
    let on = ["1", "t", "true", "y", "yes", "on", "-"];
    on.contains(&text.to_ascii_lowercase().as_str())
}

/// Returns whether the value of a switch means "off".
pub fn is_switched_off(text: &str) -> bool {
    let off = ["", "0", "f", "false", "n", "no", "off"];
    off.contains(&text.to_ascii_lowercase().as_str())
}

/// Prints a line to standard output. A closed pipe is not an error, because its reader needs no
/// more output.
pub fn print_line(line: &str) {
    let _ = print_unless_closed(line);
}

/// Prints a line of continuous output. Returns `false` once the reader has closed standard output.
pub fn print_unless_closed(line: &str) -> bool {
    quorate_admin::progress::clear();
    let mut out = io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).is_ok()
}

/// Waits up to `wait` for the reader of standard output to close it. Returns whether it did.
pub fn wait_for_reader_end(wait: Duration) -> bool {
    let out = io::stdout();
    // `poll` reports a closed pipe even if no events are requested.
    let mut polled = [PollFd::new(&out, PollFlags::empty())];
    let until = Instant::now() + wait;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).ok();
        match rustix::event::poll(&mut polled, left.as_ref()) {
            Ok(0) => return false,
            Ok(_) => return true,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// Formats a table, padding every column to its widest cell.
pub fn format_table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(&format!("{cell:width$}  "));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_as_wide_as_its_cells() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        assert_eq!(
            format_table(&[row(["a", "role"]), row(["node", "b"])]),
            "a     role\nnode  b\n"
        );
    }
}
