//! Commands of `quorate kv` that do not come as arguments: one per line, typed at a terminal or read
//! from a pipe.

use std::{
    env,
    io::{self, BufRead as _, IsTerminal as _},
    path::PathBuf,
};

use quorate_kv::resp::request;
use rustyline::{DefaultEditor, error::ReadlineError};

use crate::output::{Exit, Output, Problem};

/// File in the home folder that keeps the typed lines.
const HISTORY: &str = ".quorate_history";
/// Commands with a state that a new connection would lose.
const STATEFUL: [&str; 5] = ["MULTI", "EXEC", "DISCARD", "WATCH", "UNWATCH"];

/// Executes all lines of standard input. At a terminal, errors end nothing. Lines from a pipe go on
/// after a refused command only, and the first error sets the exit code.
pub(super) fn run(
    prompt: &str,
    output: Output,
    mut execute: impl FnMut(&[&[u8]]) -> Result<(), Problem>,
) -> Result<Exit, Problem> {
    let mut execute_line = |line: &[u8]| {
        let words = request::words(line).ok_or_else(|| Problem::usage("unbalanced quotes"))?;
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let Some(first) = words.first() else {
            return Ok(());
        };
        match STATEFUL.iter().find(|name| first.eq_ignore_ascii_case(name.as_bytes())) {
            None => execute(&words),
            Some(name) => Err(Problem::usage(format_args!("{name} needs a Redis client"))
                .hint("here a command may be repeated on another connection")),
        }
    };
    if io::stdin().is_terminal() {
        return type_lines(prompt, |line| {
            if let Err(problem) = execute_line(line.as_bytes()) {
                output.problem(&problem);
            }
        });
    }
    let mut exit = Exit::Done;
    for line in io::stdin().lock().split(b'\n') {
        let line = line.map_err(|error| Problem::io("read standard input", &error))?;
        match execute_line(&line) {
            Err(problem) if problem.exit == Exit::Failed => {
                output.problem(&problem);
                exit = Exit::Failed;
            }
            outcome => outcome?,
        }
    }
    Ok(exit)
}

/// Passes typed lines to `execute` until `quit`, `exit` or the end of the input.
fn type_lines(prompt: &str, mut execute: impl FnMut(&str)) -> Result<Exit, Problem> {
    let failed = |error| Problem::io("read the terminal", &io::Error::other(error));
    let mut editor = DefaultEditor::new().map_err(failed)?;
    let history = env::var_os("HOME").map(|home| PathBuf::from(home).join(HISTORY));
    let prompt = format!("{prompt}> ");
    if let Some(path) = &history {
        // There is none before the first time.
        let _ = editor.load_history(path);
    }
    loop {
        match editor.readline(&prompt) {
            Ok(line) if ["quit", "exit"].contains(&&*line.trim().to_lowercase()) => break,
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
        kept.map_err(|error| Problem::io(path.display(), &io::Error::other(error)))?;
    }
    Ok(Exit::Done)
}
