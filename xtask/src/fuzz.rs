//! Fuzzing of all code that parses bytes from a socket or a disk.
//!
//! With cargo-fuzz and a nightly compiler, libFuzzer searches for inputs. Otherwise the driver of
//! `cargo test` mutates the corpora for the requested time. Inputs found by libFuzzer are stored in
//! `fuzz/target`, failing inputs in `fuzz/artifacts`; neither is committed.

use std::{fs, path::PathBuf, process::Command};

use crate::shell::{Failed, is_installed, run, run_cargo_with, workspace_root};

/// Fuzz targets and the equivalent tests. Each entry consists of the target, the package and a part
/// of the test's name.
const FUZZ_TARGETS: [(&str, &str, &str); 19] = [
    ("wire", "quorate-wire", "no_bytes_of_a_peer"),
    ("streams", "quorate-wire", "no_bytes_of_a_streams_client"),
    ("stream-front", "quorate-node", "no_bytes_of_a_client_of_streams"),
    ("resp", "quorate-kv", "no_bytes_of_a_client"),
    ("frames", "quorate-bench", "no_bytes_of_a_client_or"),
    ("frames-client", "quorate-frame-client", "no_bytes_for_a_client_of_devices"),
    ("log", "quorate-log", "no_bytes_of_a_disk"),
    ("identity", "quorate-node", "no_bytes_of_a_file"),
    ("book", "quorate-node", "no_bytes_of_a_book"),
    ("backup", "quorate-node", "no_bytes_of_a_backup"),
    ("catalogue", "quorate-stream", "no_bytes_of_a_catalogue"),
    ("datagrams", "quorate-packets", "no_bytes_of_a_network"),
    ("reach", "quorate-packets", "no_bytes_of_a_group"),
    ("reassembly", "quorate-packets", "no_parts_of_a_sender"),
    ("ethernet", "quorate-packets", "no_frame_of_a_segment"),
    ("devices", "quorate-conformance", "no_events_of_a_stream"),
    ("values", "quorate-capi", "no_bytes_of_a_program_or"),
    ("libpaxos", "quorate-capi", "no_bytes_of_a_program_of"),
    ("users", "quorate-access", "no_bytes_of_a_table"),
];
/// Default duration per target, in seconds.
const SECONDS_PER_TARGET: u64 = 60;
/// Memory limit of libFuzzer's process, in MB. Valid inputs need far less.
const MEMORY_MB_MAX: u32 = 1024;

/// Runs all targets, or the named one.
pub(crate) fn run_all(words: &[&str]) -> Result<(), Failed> {
    let (chosen, seconds) = parse(words)?;
    let libfuzzer = check_libfuzzer();
    match &libfuzzer {
        Ok(()) => println!("libFuzzer searches; {seconds} s for each target"),
        Err(why) => println!("mutations without a search, as {why}; {seconds} s for each target"),
    }
    for (target, package, test) in FUZZ_TARGETS {
        if chosen.is_some_and(|chosen| chosen != target) {
            continue;
        }
        match libfuzzer {
            Ok(()) => run_libfuzzer(target, seconds)?,
            Err(_) => run_mutation_test(package, test, seconds)?,
        }
    }
    Ok(())
}

fn parse<'a>(words: &[&'a str]) -> Result<(Option<&'a str>, u64), Failed> {
    let usage = || {
        let names: Vec<&str> = FUZZ_TARGETS.iter().map(|(name, ..)| *name).collect();
        Failed(format!("fuzz [{}] [--seconds N]", names.join("|")))
    };
    let (target, rest) = match words {
        [target, rest @ ..] if !target.starts_with("--") => (Some(*target), rest),
        rest => (None, rest),
    };
    let known = |target| FUZZ_TARGETS.iter().any(|(name, ..)| *name == target);
    let seconds = match rest {
        [] => SECONDS_PER_TARGET,
        ["--seconds", seconds] => seconds.parse().map_err(|_| usage())?,
        _ => return Err(usage()),
    };
    if target.is_some_and(|target| !known(target)) {
        return Err(usage());
    }
    Ok((target, seconds))
}

/// Checks whether libFuzzer is available, and returns the reason if it is not.
fn check_libfuzzer() -> Result<(), &'static str> {
    if !is_installed("cargo-fuzz") {
        return Err("cargo-fuzz is not installed");
    }
    let nightly = Command::new("rustup").args(["run", "nightly", "rustc", "--version"]).output();
    if nightly.is_ok_and(|output| output.status.success()) {
        Ok(())
    } else {
        Err("there is no nightly compiler")
    }
}

fn run_libfuzzer(target: &str, seconds: u64) -> Result<(), Failed> {
    let fuzz = workspace_root().join("fuzz");
    // libFuzzer writes to the first folder.
    let found = fuzz.join("target/found").join(target);
    let corpus = fuzz.join("corpus").join(target);
    fs::create_dir_all(&found)?;
    let (found, corpus) = (found.display().to_string(), corpus.display().to_string());
    let (time, memory) =
        (format!("-max_total_time={seconds}"), format!("-rss_limit_mb={MEMORY_MB_MAX}"));
    let words = ["run", "nightly", "cargo", "fuzz", "run", target, &found, &corpus, "--"];
    let limits = [&*time, &*memory, "-print_final_stats=1", "-verbosity=0"];
    run(&PathBuf::from("rustup"), &[&words[..], &limits].concat())
}

fn run_mutation_test(package: &str, test: &str, seconds: u64) -> Result<(), Failed> {
    let words = ["test", "--release", "--quiet", "--package", package, "--test", "suite", test];
    let seconds = seconds.to_string();
    let shown = [&words[..], &["--", "--nocapture"]].concat();
    run_cargo_with(&shown, &[("QUORATE_FUZZ_SECONDS", &seconds)])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every target is a program of the fuzz workspace. Without cargo-fuzz, only this test reads
    /// that manifest.
    #[test]
    fn every_target_is_a_program_of_the_fuzz_workspace() {
        let manifest = workspace_root().join("fuzz/Cargo.toml");
        let output = Command::new(env!("CARGO"))
            .args(["metadata", "--no-deps", "--offline", "--format-version=1"])
            .arg("--manifest-path")
            .arg(manifest)
            .output()
            .expect("cargo runs");
        let why = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{why}");
        let described: serde_json::Value =
            serde_json::from_slice(&output.stdout).expect("cargo writes JSON");
        let programs = &described["packages"][0]["targets"];
        let programs = programs.as_array().expect("a package has targets");
        let programs: Vec<_> =
            programs.iter().filter_map(|program| program["name"].as_str()).collect();
        for (target, ..) in FUZZ_TARGETS {
            assert!(programs.contains(&target), "{target} is none of {programs:?}");
        }
    }
}
