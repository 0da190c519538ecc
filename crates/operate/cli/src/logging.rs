//! Log lines on standard error, filtered by `QUORATE_LOG`. Messages are lower-case fragments with
//! fields.

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    io::{self, IsTerminal as _, Write as _},
    panic, thread,
    time::Duration,
};

use quorate::stderr::{self, Stderr};
use quorate_admin::progress;
use tracing_subscriber::EnvFilter;

use crate::output::Problem;

/// Environment variable that contains the log filter.
pub(crate) const VARIABLE: &str = "QUORATE_LOG";
/// Log levels in the order of increasing verbosity.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
/// Common prefix of the crates for which a filter may set a level.
const OURS: &str = "quorate";

/// Starts logging to standard error with the given filter, else the default.
pub(crate) fn start(wanted: Option<&str>) -> Result<(), Problem> {
    let filter = filter(wanted.unwrap_or_default())?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| Stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false)
        .init();
    Ok(())
}

/// Maximum time that the process waits at exit for its output to be read.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Sends all output, including panic messages, through the queue of [`stderr`]. A stalled or closed
/// standard error can then neither block nor end this process.
pub(crate) fn detach() -> Result<(), Problem> {
    stderr::detach().map_err(|error| Problem::io("start a thread", &error))?;
    // A write to the queue cannot fail.
    progress::divert(|text| drop(Stderr.write_all(text.as_bytes())));
    panic::set_hook(Box::new(|info| {
        let thread = thread::current();
        let name = thread.name().unwrap_or("<unnamed>");
        let trace = Backtrace::capture();
        progress::line(&match trace.status() {
            BacktraceStatus::Captured => format!("thread '{name}' {info}\n{trace}"),
            _ => format!("thread '{name}' {info}"),
        });
        finish();
    }));
    Ok(())
}

/// Writes the queued output. Gives up after a second if the output is not read.
pub(crate) fn finish() {
    stderr::drain(LAST_WORDS);
}

/// Parses a filter and rejects unknown words. The library would take such a word for a crate name,
/// and then log nothing.
fn filter(wanted: &str) -> Result<EnvFilter, Problem> {
    let wanted = match wanted.trim() {
        "" => "info",
        wanted => wanted,
    };
    let known = |part: &str| match part.split_once('=') {
        None => is_level(part),
        Some((target, level)) => is_target(target) && is_level(level),
    };
    let refused = |detail: &str| {
        Problem::usage(format_args!("{VARIABLE}={wanted}: {detail}")).hint(format!(
            "use one of {}; a module can have its own level, as in info,quorate_net=debug",
            LEVELS.join(", ")
        ))
    };
    if let Some(part) = wanted.split(',').map(str::trim).find(|part| !known(part)) {
        return Err(refused(&format!("{part:?} is not a level")));
    }
    let wanted = wanted.replace(' ', "");
    EnvFilter::try_new(&wanted).map_err(|error| refused(&error.to_string()))
}

fn is_level(word: &str) -> bool {
    LEVELS.iter().any(|level| word.eq_ignore_ascii_case(level))
}

fn is_target(word: &str) -> bool {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "_:".contains(letter);
    word.starts_with(OURS) && word.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_understood_alone_and_for_a_part() {
        for (wanted, expected) in [
            ("", "info"),
            ("warn", "warn"),
            ("DEBUG", "debug"),
            ("off", "off"),
            ("info, quorate_net=debug", "quorate_net=debug,info"),
            ("quorate::journal=trace", "quorate::journal=trace"),
        ] {
            assert_eq!(filter(wanted).unwrap().to_string(), expected, "{wanted}");
        }
    }

    #[test]
    fn anything_else_is_one_clear_error() {
        for wanted in [
            "verbose",
            "inf",
            "1",
            "info,",
            "info;debug",
            "net=debug",
            "quorate_net=loud",
            "quorate[x]=info",
        ] {
            let problem = filter(wanted).unwrap_err();
            assert_eq!(problem.exit, crate::output::Exit::Usage);
            let begin = format!("QUORATE_LOG={wanted}: ");
            assert!(problem.message.starts_with(&begin), "{problem}");
            assert!(problem.hint.contains("off, error, warn, info, debug, trace"));
        }
    }
}
