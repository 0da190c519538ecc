//! `cargo xtask papers` as its users see it: rows, published figures, exit codes. Checks counts,
//! never times.

#![allow(clippy::unwrap_used, reason = "a test may fail by panic")]

mod experiments;
mod segment;

use std::{
    path::Path,
    process::{Command, Output},
};

use quorate_testbed::{nodes::START_TIMEOUT, wait};
use serde_json::Value as Json;

/// Runs the program without settings of the caller's environment.
fn papers(arguments: &[&str]) -> Output {
    let program = Path::new(env!("CARGO_BIN_EXE_compare-papers"));
    let nodes = program.with_file_name("quorate");
    assert!(nodes.exists(), "run `cargo xtask papers check`, which builds it first");
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("QUORATE_") {
            command.env_remove(name);
        }
    }
    command.args(arguments).output().unwrap()
}

/// Runs the program. Returns the exit code, and standard output as JSON.
fn papers_json(arguments: &[&str]) -> (i32, Json) {
    let output = papers(arguments);
    let text = String::from_utf8(output.stdout).unwrap();
    let json = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text:?}"));
    (output.status.code().unwrap(), json)
}

/// Returns the result of the first run in which every row had a reply in every repetition: the disk
/// of a shared machine may stall for longer than a short repetition.
fn once_answered(mut run: impl FnMut() -> (i32, Json)) -> (i32, Json) {
    let silent: Json = ["a repetition without any reply"].into();
    let answered =
        wait::wait_at_most(START_TIMEOUT, "a run in which the machine did not stall", || {
            let (code, document) = run();
            let mut rows = document["rows"].as_array().into_iter().flatten();
            let is_silent = rows.any(|row| row["why_not"] == silent);
            (!is_silent).then_some((code, document))
        });
    answered.unwrap_or_else(|error| panic!("{error}"))
}

fn of_system<'a>(document: &'a Json, system: &str) -> Vec<&'a Json> {
    let rows = document["rows"].as_array().unwrap().iter();
    rows.filter(|row| row["system"] == system).collect()
}
