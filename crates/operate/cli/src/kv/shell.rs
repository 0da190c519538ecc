//! Runs commands of `quorate kv` that are not given as arguments: one per line, typed at a terminal
//! or read from a pipe.

use std::{
    env,
    io::{self, BufRead},
    path::PathBuf,
};

use quorate_kv::resp::request;
use rustyline::{DefaultEditor, error::ReadlineError};

use crate::output::{self, Exit, Output, Problem};

/// File in the home folder that stores the typed lines.
const HISTORY_FILE: &str = ".quorate_history";
/// Commands that depend on the state of a connection, which a new connection would lose.
const STATEFUL_COMMANDS: [&str; 7] =
    ["MULTI", "EXEC", "DISCARD", "WATCH", "UNWATCH", "SELECT", "RESET"];

const HELP_TEXT: &str = "\
Type a command of Redis, such as SET hello world, GET hello or SCAN 0; quote words with blanks.
SUBSCRIBE prints messages until Ctrl-C. The arrow keys recall lines; quit or Ctrl-D ends.
docs/commands.md lists all commands.";

/// Executes all lines of standard input. At a terminal, no error ends the loop.
pub(super) fn run(
    prompt: &str,
    is_typed: bool,
    output: Output,
    mut execute: impl FnMut(&[&[u8]]) -> Result<(), Problem>,
) -> Result<Exit, Problem> {
    let mut execute_line = |line: &[u8]| {
        let words = split_words(line)?;
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let Some(first) = words.first() else {
            return Ok(());
        };
        check_stateless(first)?;
        execute(&words)
    };
    if is_typed {
        return run_typed_lines(prompt, |line| {
            if let Err(problem) = execute_line(line.as_bytes()) {
                output.print_problem(&problem);
            }
        });
    }
    run_lines(io::stdin().lock(), execute_line, |problem| {
        output.print_problem(problem);
    })
}

/// Refuses a command whose effect a new connection would lose.
fn check_stateless(name: &[u8]) -> Result<(), Problem> {
    let hint = match STATEFUL_COMMANDS.iter().find(|one| name.eq_ignore_ascii_case(one.as_bytes()))
    {
        None => return Ok(()),
        Some(&"SELECT") => "'quorate kv --database N' runs commands in another database",
        Some(_) => "here a command may be repeated on another connection",
    };
    let name = String::from_utf8_lossy(name).to_uppercase();
    Err(Problem::usage_error(format_args!("{name} needs a Redis client")).with_hint(hint))
}

fn split_words(line: &[u8]) -> Result<Vec<Vec<u8>>, Problem> {
    let failed = || Problem::new(Exit::Failed, "malformed", "unbalanced quotes");
    request::words(line).ok_or_else(failed)
}

/// Executes all lines of a file or a pipe. Continues after a line that was rejected, but stops at
/// any other error, such as a lost connection, because later lines would then have another effect.
fn run_lines(
    input: impl BufRead,
    mut execute: impl FnMut(&[u8]) -> Result<(), Problem>,
    mut report: impl FnMut(&Problem),
) -> Result<Exit, Problem> {
    let mut exit = Exit::Done;
    for (number, line) in (1..).zip(input.split(b'\n')) {
        let line = line.map_err(|error| Problem::io_error("read standard input", &error))?;
        let Err(mut problem) = execute(&line) else {
            continue;
        };
        problem.message = format!("line {number}: {}", problem.message);
        if problem.exit != Exit::Failed {
            return Err(problem);
        }
        report(&problem);
        exit = Exit::Failed;
    }
    Ok(exit)
}

/// Passes typed lines to `execute` until `quit`, `exit` or the end of the input.
fn run_typed_lines(prompt: &str, mut execute: impl FnMut(&str)) -> Result<Exit, Problem> {
    let failed = |error| Problem::io_error("read the terminal", &io::Error::other(error));
    let mut editor = DefaultEditor::new().map_err(failed)?;
    let history = env::var_os("HOME").map(|home| PathBuf::from(home).join(HISTORY_FILE));
    let prompt = format!("{prompt}> ");
    if let Some(path) = &history {
        // The file does not exist before the first use.
        let _ = editor.load_history(path);
    }
    loop {
        match editor.readline(&prompt) {
            Ok(line) if ["quit", "exit"].contains(&&*line.trim().to_lowercase()) => break,
            Ok(line) if ["help", "?"].contains(&&*line.trim().to_lowercase()) => {
                output::print_line(HELP_TEXT)
            }
            Ok(line) => {
                let has_password = line.trim_start().to_lowercase().starts_with("auth");
                if !has_password {
                    editor.add_history_entry(&*line).map_err(failed)?;
                }
                execute(&line);
            }
            Err(ReadlineError::Interrupted) => {}
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(failed(error)),
        }
    }
    if let Some(path) = &history {
        let kept = editor.save_history(path);
        kept.map_err(|error| Problem::io_error(path.display(), &io::Error::other(error)))?;
    }
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [`run_lines`] ends at such a command, because later ones would have another effect.
    #[test]
    fn commands_that_a_new_connection_would_lose_are_refused() {
        for name in ["select", "RESET", "Multi", "watch"] {
            let problem = check_stateless(name.as_bytes()).unwrap_err();
            assert_eq!(problem.message, format!("{} needs a Redis client", name.to_uppercase()));
            assert_ne!(problem.exit, Exit::Failed, "{name}");
        }
        assert!(check_stateless(b"select").unwrap_err().hint.contains("--database"));
        for name in [&b"GET"[..], b"SELECTED", b"", b"\xff"] {
            assert_eq!(check_stateless(name), Ok(()));
        }
    }

    #[test]
    fn a_bad_line_of_a_pipe_is_named_and_the_others_run() {
        let (mut ran, mut told) = (Vec::new(), Vec::new());
        let mut run = |input: &str| {
            let execute = |line: &[u8]| {
                let words = split_words(line)?;
                ran.push(words.join(&b' '));
                match &*words[0] {
                    b"refused" => Err(Problem::new(Exit::Failed, "refused", "no")),
                    b"down" => Err(Problem::new(Exit::Unreachable, "not_executed", "down")),
                    _ => Ok(()),
                }
            };
            run_lines(input.as_bytes(), execute, |problem| told.push(problem.message.clone()))
        };
        assert_eq!(run("a\nb \"\nrefused\nc\n"), Ok(Exit::Failed));
        assert_eq!(run("d\n"), Ok(Exit::Done));
        assert_eq!(run("down\ne\n").unwrap_err().message, "line 1: down");
        assert_eq!(ran.join(&b','), b"a,refused,c,d,down");
        assert_eq!(told, ["line 2: unbalanced quotes", "line 3: no"]);
    }
}
