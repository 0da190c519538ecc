//! Tests of the program `quorate-p4`, started as nodes start it.

use std::process::Command;

use quorate_device::DeviceProcesses;

const PROGRAM: &str = env!("CARGO_BIN_EXE_quorate-p4");

#[test]
fn a_node_owns_the_switch_programs() {
    for (options, room, cells) in [("", 128, 1024), (" --room 32 --cells 64", 32, 64)] {
        let words = format!("{PROGRAM} {{}}{options}");
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        let (boxed, settings) = DeviceProcesses::open(&words).unwrap();
        drop(boxed);
        assert_eq!((settings.room, settings.cells), (room, cells));
    }
}

#[test]
fn a_command_line_that_is_none_is_one_clear_error() {
    for line in ["", "host", "acceptor --cells", "acceptor --cells 3", "acceptor --room 48"] {
        let output = Command::new(PROGRAM).args(line.split_whitespace()).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{line}: {text}");
        assert!(text.starts_with("usage: quorate-p4 acceptor|coordinator"), "{line}: {text}");
    }
}
