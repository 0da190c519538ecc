//! Applies each mutant in `mutants/` to a copy of the workspace and tries to detect it: with its
//! own tests if it names any, otherwise by simulating seeds. Usage:
//! `mutants [--check|--lines] [NAME…]`. `--check` only checks that each mutant compiles. `--lines`
//! prints one machine-readable line per mutant: name, seconds and finder, separated by tabs; the
//! finder is empty if the mutant was not detected. Environment: `MUTANT_SEEDS` (2000),
//! `MUTANT_STEPS` (8000), `MUTANT_DIR`.
#![allow(clippy::print_stdout, reason = "an example talks to a person")]

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Output},
    time::Instant,
};

/// A mutant, defined by a file, the text to find in it, and its replacement.
struct Mutant {
    name: String,
    rule: String,
    file: String,
    find: String,
    replace: String,
    /// Arguments of the `cargo test` that detects the mutant; empty if simulated clusters detect
    /// it.
    test_arguments: String,
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(4),
        Err(error) => {
            println!("mutants: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> io::Result<bool> {
    let (flags, wanted): (Vec<String>, Vec<String>) =
        env::args().skip(1).partition(|word| word.starts_with("--"));
    let check = flags.iter().any(|flag| flag == "--check");
    let lines = flags.iter().any(|flag| flag == "--lines");
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = home.join("../../..");
    let work = env::var_os("MUTANT_DIR")
        .map_or_else(|| env::temp_dir().join("quorate-mutants"), PathBuf::from);
    let tree = work.join("tree");
    let mut all = true;
    if !lines {
        println!("{:<42} {:<11} found by", "mutant", "rule");
    }
    for mutant in read_mutants(&home.join("mutants"))? {
        if !wanted.is_empty() && !wanted.contains(&mutant.name) {
            continue;
        }
        copy_tree(&root, &tree)?;
        let file = tree.join(&mutant.file);
        let text = fs::read_to_string(&file)?;
        if text.matches(&mutant.find).count() != 1 {
            println!("{:<42} {:<11} does not apply", mutant.name, mutant.rule);
            all = false;
            continue;
        }
        fs::write(&file, text.replacen(&mutant.find, &mutant.replace, 1))?;
        let target = work.join("target");
        if let Some(why) = compile_errors(&tree, &target, &mutant)? {
            println!("{:<42} {:<11} does not compile", mutant.name, mutant.rule);
            println!("{why}");
            all = false;
            continue;
        }
        if check {
            println!("{:<42} {:<11} compiles", mutant.name, mutant.rule);
            continue;
        }
        let mut seconds = 0.0;
        let found = if mutant.test_arguments.is_empty() {
            find_detection(&tree, &target, &mut seconds)?
        } else {
            let found = failing_test(&tree, &target, &mutant.test_arguments, &mut seconds)?;
            found.map(|name| format!("test {name}"))
        };
        if lines {
            let found = found.unwrap_or_default();
            println!("{}\t{seconds:.1}\t{found}", mutant.name);
            continue;
        }
        all &= found.is_some();
        let found = found.unwrap_or_else(|| "NOT FOUND".into());
        println!("{:<42} {:<11} {found} ({seconds:.1} s)", mutant.name, mutant.rule);
    }
    Ok(all)
}

/// Runs Cargo in the copy.
fn run_cargo(tree: &Path, target: &Path, words: &[&str]) -> io::Result<Output> {
    Command::new("cargo").current_dir(tree).env("CARGO_TARGET_DIR", target).args(words).output()
}

/// Builds, then runs Cargo in the copy. Adds the duration of the run, without the build, to
/// `seconds`.
#[expect(
    clippy::disallowed_methods,
    reason = "how long a person waits; no simulated world is in sight"
)]
fn run_timed(
    (tree, target): (&Path, &Path),
    building: &[&str],
    words: &[&str],
    seconds: &mut f64,
) -> io::Result<Output> {
    run_cargo(tree, target, building)?;
    let begun = Instant::now();
    let output = run_cargo(tree, target, words)?;
    *seconds += begun.elapsed().as_secs_f64();
    Ok(output)
}

fn read_mutants(folder: &Path) -> io::Result<Vec<Mutant>> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder)?.map(|entry| entry.map(|e| e.path())).collect::<Result<_, _>>()?;
    files.sort();
    let mut list = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file)?;
        let line = |key: &str| {
            let start = format!("{key} = \"");
            let value = text.lines().find_map(|line| line.strip_prefix(&start)).unwrap_or_default();
            value.trim_end_matches('"').to_owned()
        };
        let block = |key: &str| {
            let start = format!("{key} = '''\n");
            let rest = text.split_once(&start).map_or("", |(_, rest)| rest);
            rest.split_once("\n'''").map_or("", |(body, _)| body).to_owned()
        };
        list.push(Mutant {
            name: file.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
            rule: line("rule"),
            file: line("file"),
            find: block("find"),
            replace: block("replace"),
            test_arguments: line("test"),
        });
    }
    Ok(list)
}

/// Copies the files that a build needs. Does not touch files that are equal, so that little is
/// recompiled.
fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    remove_deleted(from, to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        let (source, target) = (entry.path(), to.join(&name));
        // The documentation is included, because tests compare its pages with the code.
        if [".git", "target"].iter().any(|skipped| name == *skipped) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            copy_tree(&source, &target)?;
        } else {
            let bytes = fs::read(&source)?;
            if fs::read(&target).ok().as_deref() != Some(&bytes) {
                fs::write(&target, bytes)?;
            }
        }
    }
    Ok(())
}

/// Removes files that no longer exist in the original, because a module that moved would otherwise
/// exist twice.
fn remove_deleted(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(to)? {
        let entry = entry?;
        if from.join(entry.file_name()).exists() {
            continue;
        }
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Returns the compiler's errors for the crate of the mutant; `None` if it compiles. A mutant that
/// does not compile proves nothing.
fn compile_errors(tree: &Path, target: &Path, mutant: &Mutant) -> io::Result<Option<String>> {
    let manifest = Path::new(&mutant.file)
        .ancestors()
        .map(|folder| folder.join("Cargo.toml"))
        .find(|manifest| tree.join(manifest).exists())
        .ok_or_else(|| io::Error::other(format!("{}: in no crate", mutant.file)))?;
    let manifest = manifest.to_string_lossy();
    let output = run_cargo(tree, target, &["check", "--quiet", "--manifest-path", &manifest])?;
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok((!output.status.success()).then_some(why))
}

/// Returns the property and seed, or otherwise the scenario, that detect the mutant; `None` if
/// neither seeds nor scenarios do.
fn find_detection(tree: &Path, target: &Path, seconds: &mut f64) -> io::Result<Option<String>> {
    let number = |name: &str, default: &str| env::var(name).unwrap_or_else(|_| default.to_owned());
    let (seeds, steps) = (number("MUTANT_SEEDS", "2000"), number("MUTANT_STEPS", "8000"));
    let example = ["--quiet", "-p", "quorate-sim", "--example", "hunt"];
    let building = [&["build"], &example[..]].concat();
    let words = [&["run"], &example[..], &["--", "1", &seeds, &steps, "0", "1"]].concat();
    let output = run_timed((tree, target), &building, &words, seconds)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let violated = text.lines().find_map(|line| line.strip_prefix("violated "));
    let replay = text.lines().find_map(|line| line.strip_prefix("replay: quorate sim "));
    match (output.status.code(), violated, replay) {
        (Some(4), Some(violated), Some(replay)) => {
            let property = violated.split(':').next().unwrap_or_default();
            Ok(Some(format!("{property}, {replay}")))
        }
        (Some(0), ..) => failing_scenario(tree, target, seconds),
        _ => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned())),
    }
}

/// Returns the named scenario that detects the mutant, for mutants that no seed detects.
fn failing_scenario(tree: &Path, target: &Path, seconds: &mut f64) -> io::Result<Option<String>> {
    let found = failing_test(
        tree,
        target,
        "-p quorate-sim --no-fail-fast --test suite -- scenarios:: streams::",
        seconds,
    )?;
    Ok(found.map(|name| format!("scenario {name}")))
}

/// Returns the first of the tests named in `words` that fails; `None` if all pass.
fn failing_test(
    tree: &Path,
    target: &Path,
    words: &str,
    seconds: &mut f64,
) -> io::Result<Option<String>> {
    let words: Vec<&str> = words.split_whitespace().collect();
    // Arguments after the dashes are for the tests, not for the build.
    let end = words.iter().position(|word| *word == "--");
    let building =
        [&["test", "--quiet", "--no-run"], &words[..end.unwrap_or(words.len())]].concat();
    let words = [&["test", "--quiet"], &words[..]].concat();
    let output = run_timed((tree, target), &building, &words, seconds)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let failed =
        text.lines().find_map(|line| line.strip_prefix("---- ")?.strip_suffix(" stdout ----"));
    if failed.is_none() && !output.status.success() {
        // The build failed, or no test ran.
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(io::Error::other(why));
    }
    Ok(failed.map(str::to_owned))
}
