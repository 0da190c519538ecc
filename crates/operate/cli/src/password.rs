//! Reads passwords from a file, standard input or the terminal, but never from the command line,
//! which other users of the machine can see.

use std::{
    fs,
    io::{self, BufRead as _, IsTerminal as _, Read as _, Write as _},
    path::Path,
};

use quorate_access::password::PASSWORD_BYTES_MAX;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

use crate::output::{Exit, Problem};

/// Reads the password from a file, or from standard input if the file is `-`. Without a file,
/// prompts for `what` at the terminal.
pub(crate) fn read_password(file: Option<&Path>, what: &str) -> Result<String, Problem> {
    let text = match file {
        Some(path) if path == Path::new("-") => read_limited(io::stdin().lock()),
        Some(path) => fs::File::open(path).and_then(read_limited),
        None if io::stdin().is_terminal() => prompt_password(what),
        None => {
            let hint = "give a file, or `-` for standard input";
            return Err(Problem::usage_error(format_args!(
                "{what}: there is no terminal to ask on"
            ))
            .with_hint(hint));
        }
    };
    let text = text.map_err(|error| {
        let from = file.map_or("the terminal".to_owned(), |path| path.display().to_string());
        Problem::new(Exit::Usage, "password", format_args!("{what}, from {from}: {error}"))
    })?;
    // Editors add a line break at the end of a file.
    let text = text.trim_end_matches(['\n', '\r']);
    match text.len() {
        1..=PASSWORD_BYTES_MAX => Ok(text.to_owned()),
        0 => Err(Problem::new(Exit::Usage, "password", format_args!("{what}: it is empty"))),
        _ => {
            let what = format_args!("{what}: it is longer than {PASSWORD_BYTES_MAX} bytes");
            Err(Problem::new(Exit::Usage, "password", what))
        }
    }
}

/// Reads the input, up to slightly more than the maximum length of a password.
fn read_limited(from: impl io::Read) -> io::Result<String> {
    let mut text = String::new();
    from.take(PASSWORD_BYTES_MAX as u64 + 3).read_to_string(&mut text)?;
    Ok(text)
}

/// Prompts for a password at the terminal without echoing it.
fn prompt_password(what: &str) -> io::Result<String> {
    let stdin = io::stdin();
    let before = tcgetattr(&stdin)?;
    let mut quiet = before.clone();
    quiet.local_modes.remove(LocalModes::ECHO);
    eprint!("{what}: ");
    io::stderr().flush()?;
    tcsetattr(&stdin, OptionalActions::Flush, &quiet)?;
    let mut line = String::new();
    let typed = stdin.lock().read_line(&mut line);
    tcsetattr(&stdin, OptionalActions::Flush, &before)?;
    eprintln!();
    typed.map(|_| line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn password_file_has_exactly_one_password() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        let written = |text: &str| {
            fs::write(&path, text).unwrap();
            read_password(Some(&path), "password").map_err(|problem| problem.message)
        };
        for text in ["open sesame", "open sesame\n", "open sesame\r\n"] {
            assert_eq!(written(text), Ok("open sesame".to_owned()));
        }
        let longest = "x".repeat(PASSWORD_BYTES_MAX);
        assert_eq!(written(&format!("{longest}\n")), Ok(longest.clone()));
        for (text, why) in [("", "empty"), ("\n", "empty"), (&*format!("{longest}x"), "longer")] {
            let problem = written(text).unwrap_err();
            assert!(problem.contains(why), "{problem}");
        }
        let missing = read_password(Some(&folder.path().join("none")), "password").unwrap_err();
        assert!(missing.message.contains("none"), "{}", missing.message);
    }
}
