//! Completion scripts are accepted by the shells, and manual pages cover everything in the help.

use std::{fs, process::Command};

use crate::common::quorate;

/// Returns the exit code with standard output, or with standard error if standard output is empty.
fn said(arguments: &[&str]) -> (i32, String) {
    let output = quorate(arguments);
    let text = match output.stdout.is_empty() {
        true => output.stderr,
        false => output.stdout,
    };
    let text = String::from_utf8_lossy(&text).into_owned();
    (output.status.code().unwrap(), text)
}

#[test]
fn every_shell_gets_a_script_with_all_commands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let (code, script) = said(&["completions", shell]);
        assert_eq!(code, 0, "{shell}");
        for word in ["transfer", "snapshot", "member", "--", "auxiliary"] {
            assert!(script.contains(word), "{shell}: no {word}");
        }
    }
    let (_, script) = said(&["completions", "bash"]);
    for values in ["\"lsm memory\"", "\"reader writer operator admin\""] {
        assert!(script.contains(values), "no {values}");
    }
    let (code, text) = said(&["completions", "tcsh"]);
    assert_eq!(code, 2, "{text}");
}

/// Every installed shell accepts its own script.
#[test]
fn shells_take_their_scripts() {
    let folder = tempfile::tempdir().unwrap();
    let mut taken = 0;
    for shell in ["bash", "zsh", "fish"] {
        let file = folder.path().join(shell);
        fs::write(&file, said(&["completions", shell]).1).unwrap();
        match Command::new(shell).arg("-n").arg(&file).output() {
            Ok(output) => {
                let text = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{shell}: {text}");
                taken += 1;
            }
            Err(_) => eprintln!("SKIPPED: {shell} is not installed"),
        }
    }
    assert!(taken > 0, "not even bash is installed");
}

#[test]
fn pages_of_all_commands_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("share/man1");
    let (code, text) = said(&["man", "--to", to.to_str().unwrap()]);
    assert_eq!(code, 0, "{text}");
    let page = |name: &str| fs::read_to_string(to.join(format!("{name}.1"))).unwrap();
    let first = page("quorate");
    assert!(first.contains(".TH quorate 1") && first.contains("quorate\\-start(1)"), "{first}");
    assert!(page("quorate-start").contains("\\-\\-durability"));
    assert!(page("quorate-member-add").contains("quorate\\-member\\-add"));
    assert!(!to.join("quorate-box.1").exists(), "hidden ones have no page");
    // Without a folder the page itself is printed.
    let (code, printed) = said(&["man"]);
    assert_eq!((code, printed.trim_end()), (0, first.trim_end()));
}

#[test]
fn a_folder_that_cannot_be_written_is_one_clear_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let to = file.join("man1");
    let (code, text) = said(&["man", "--to", to.to_str().unwrap()]);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("write to "), "{text}");
}
