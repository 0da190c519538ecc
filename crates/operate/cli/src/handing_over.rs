//! Delegates some commands to the program `quorate-tools`, which implements them.

use std::{
    env,
    ffi::{OsStr, OsString},
    io,
    os::unix::process::CommandExt as _,
    process::Command,
};

use clap::Args;

use crate::output::{Exit, Problem};

/// Name of the program with the tools. It is looked up in this program's folder, then on the path.
const TOOLS_PROGRAM: &str = "quorate-tools";
/// Commands that `quorate-tools` implements.
const TOOLS_COMMANDS: [&str; 6] = ["bench", "completions", "doctor", "man", "sim", "tune"];
/// Global flags that take a value.
const FLAGS_WITH_VALUE: [&str; 3] = ["--login", "--login-file", "--tls"];

/// Remaining arguments, which the other program parses.
#[derive(Args, Clone, Debug)]
#[command(disable_help_flag = true)]
pub(crate) struct Words {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    words: Vec<OsString>,
}

/// Returns whether a command line runs a command of `quorate-tools` or requests help on one. The
/// first word is the program's name.
pub(crate) fn is_tools_command(words: &[OsString]) -> bool {
    let mut rest = words.iter().skip(1);
    let mut command = || {
        while let Some(word) = rest.next() {
            if FLAGS_WITH_VALUE.iter().any(|flag| word == flag) {
                rest.next();
            } else if !word.as_encoded_bytes().starts_with(b"-") {
                return Some(word);
            }
        }
        None
    };
    let is_theirs = |word: &OsString| TOOLS_COMMANDS.iter().any(|name| word == name);
    match command() {
        Some(word) if word == "help" => command().is_some_and(is_theirs),
        Some(word) => is_theirs(word),
        None => false,
    }
}

/// Replaces this process by `quorate-tools` with the same arguments. Returns only if that fails.
pub(crate) fn exec_tools(words: &[OsString]) -> Problem {
    let own = env::current_exe().unwrap_or_default();
    let sibling = own.with_file_name(TOOLS_PROGRAM);
    let program = if sibling.exists() { sibling.as_os_str() } else { OsStr::new(TOOLS_PROGRAM) };
    let error = Command::new(program).args(words.iter().skip(1)).exec();
    let what = format_args!(
        "this command needs the program {TOOLS_PROGRAM}, which cannot be started: {error}"
    );
    let problem = Problem::new(Exit::Failed, "no_tools", what);
    if error.kind() == io::ErrorKind::NotFound {
        let folder = own.parent().unwrap_or(&own).display().to_string();
        problem.with_hint(format!(
            "put it into {folder} or on the PATH; packages contain it, and 'cargo build --release' builds it"
        ))
    } else {
        problem
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_commands_are_recognized_in_any_position() {
        let asked = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            is_tools_command(&words)
        };
        for line in [
            "quorate bench kv",
            "quorate --json doctor",
            "quorate --tls bench tune",
            "quorate --tls=x sim --seed 1",
            "quorate help bench kv",
        ] {
            assert!(asked(line), "{line}");
        }
        for line in [
            "quorate",
            "quorate --help",
            "quorate help",
            "quorate start --store none",
            "quorate --tls bench status",
            "quorate stream put --name bench",
        ] {
            assert!(!asked(line), "{line}");
        }
    }
}
