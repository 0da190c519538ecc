//! Builds each mutant in a copy of the core, runs the explorer on it, and prints a table: `mutants
//! [--check|--lines] [FILTER]`. `--check` only checks that each mutant compiles, because a mutant
//! that does not compile proves nothing. `--lines` prints machine-readable lines: name, seconds and
//! finder of each mutant, separated by tabs. The finder is empty if the mutant was not found.
#![allow(clippy::print_stdout, reason = "a command line")]

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Output},
    time::Instant,
};

use quorate_model::mutant::{self, Mutant};

/// A copy of the workspace in which mutants are built. The copy is kept between runs, so that only
/// changes recompile.
struct WorkspaceCopy {
    folder: PathBuf,
    crates_folder: PathBuf,
}

/// Crates that mutants change, and their dependencies within the workspace.
const COPIED_CRATES: [&str; 4] = ["protocol/core", "proof/model", "storage/log", "storage/stream"];

impl WorkspaceCopy {
    fn new() -> io::Result<Self> {
        let crates = mutant::crates_folder();
        let root = crates.join("..");
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        let folder = target.join("mutants");
        let shop = Self { folder, crates_folder: crates };
        fs::create_dir_all(&shop.folder)?;
        let manifest = fs::read_to_string(root.join("Cargo.toml"))?;
        let members = format!(
            "members = [{}]",
            COPIED_CRATES.map(|name| format!("\"crates/{name}\"")).join(", ")
        );
        let from = manifest.find("members = [").unwrap_or(0);
        let to = manifest[from..].find("\n]").map_or(from, |at| from + at + 2);
        let manifest = format!("{}{members}{}", &manifest[..from], &manifest[to..]);
        write_if_changed(&shop.folder.join("Cargo.toml"), &manifest)?;
        let lock = fs::read_to_string(root.join("Cargo.lock"))?;
        write_if_changed(&shop.folder.join("Cargo.lock"), &lock)?;
        shop.synchronise()?;
        Ok(shop)
    }

    /// Synchronises the copy with the source tree. Unchanged files are not touched.
    fn synchronise(&self) -> io::Result<()> {
        for name in COPIED_CRATES {
            copy_folder(&self.crates_folder.join(name), &self.folder.join("crates").join(name))?;
        }
        Ok(())
    }

    fn run_cargo(&self, arguments: &[&str]) -> io::Result<Output> {
        // Uses the compiler of this cargo, even if a dependency's folder has a toolchain file.
        let cargo = Path::new(env!("CARGO"));
        Command::new(cargo)
            .env("RUSTC", cargo.with_file_name("rustc"))
            .args(arguments)
            .args(["--offline", "--quiet"])
            .current_dir(&self.folder)
            .env("CARGO_TARGET_DIR", self.folder.join("target"))
            .env("CARGO_PROFILE_RELEASE_LTO", "off")
            .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
            .env("CARGO_PROFILE_RELEASE_DEBUG", "0")
            .env("RUSTFLAGS", "-Awarnings")
            .output()
    }

    /// Runs one test of the core, which must fail with the planted mutant.
    fn run_test(&self, kind: &str, name: &str, place: &[&str]) -> Result<Judgement, String> {
        let words = [&["test", "--package", "quorate-core"], place, &[name]].concat();
        // Build first, so that only the search is timed.
        let built = self.run_cargo(&[&words[..], &["--no-run"]].concat());
        built.map_err(|e| e.to_string())?;
        let started = Instant::now();
        let output = self.run_cargo(&words).map_err(|e| e.to_string())?;
        let text = String::from_utf8_lossy(&output.stdout);
        let ran = text.contains(name) || text.contains("1 passed");
        if !ran {
            return Err(format!("{kind} {name} did not run\n{text}"));
        }
        Ok(Judgement {
            is_caught: !output.status.success(),
            report: format!("{kind} {name}"),
            seconds: started.elapsed().as_secs_f64(),
        })
    }

    /// Applies a mutant to the copy. Fails if it does not compile.
    fn plant(&self, mutant: &Mutant) -> Result<(), String> {
        let changed = mutant.changed_files(&self.crates_folder)?;
        self.synchronise().map_err(|e| e.to_string())?;
        for (file, text) in &changed {
            let path = self.folder.join("crates").join(file);
            write_if_changed(&path, text).map_err(|e| e.to_string())?;
        }
        let words = ["check", "--package", "quorate-model", "--bin", "model"];
        let output = self.run_cargo(&words).map_err(|e| e.to_string())?;
        if output.status.success() {
            return Ok(());
        }
        let why = String::from_utf8_lossy(&output.stderr);
        Err(format!("{} does not compile\n{why}", mutant.name))
    }

    /// Searches for the planted mutant with its own test or with the explorer.
    fn judge(&self, mutant: &Mutant) -> Result<Judgement, String> {
        let test = match (&mutant.unit_test, &mutant.transcript) {
            (Some(name), _) => Some(("unit test", name, &["--lib"][..])),
            (None, Some(name)) => Some(("transcript", name, &["--test", "suite"][..])),
            (None, None) => None,
        };
        if let Some((kind, name, place)) = test {
            return self.run_test(kind, name, place);
        }
        let output =
            self.run_cargo(&["build", "--release", "--package", "quorate-model", "--bin", "model"]);
        let output = output.map_err(|e| e.to_string())?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        let started = Instant::now();
        let seconds = mutant.time_limit_seconds.to_string();
        let properties = mutant.properties.join(",");
        let mut command = Command::new(self.folder.join("target/release/model"));
        command.args(["run", &mutant.profile, "--runs", "1000000000"]);
        command.args(["--seconds", &seconds, "--only", &properties]);
        if !mutant.with_second_act {
            command.arg("--no-heal");
        }
        let output = command.output().map_err(|e| e.to_string())?;
        let text = String::from_utf8_lossy(&output.stdout);
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        Ok(Judgement {
            is_caught: output.status.code() == Some(4),
            report: lines.join(" | "),
            seconds: started.elapsed().as_secs_f64(),
        })
    }
}

struct Judgement {
    is_caught: bool,
    report: String,
    seconds: f64,
}

impl Judgement {
    /// Returns a short description of the test or run that found the mutant; empty if none did.
    fn finder(&self, mutant: &Mutant) -> String {
        if !self.is_caught {
            return String::new();
        }
        if mutant.unit_test.is_some() || mutant.transcript.is_some() {
            return self.report.clone();
        }
        // The first line of the report begins with the property, and the next line names the run.
        let property = self.report.split([':', ' ']).next().unwrap_or_default();
        let run = self.report.split("| run ").nth(1);
        let run = run.and_then(|rest| rest.split(',').next());
        let run = run.map_or_else(String::new, |run| format!(", run {run}"));
        format!("explorer, {}: {property}{run}", mutant.profile)
    }
}

fn write_if_changed(path: &Path, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    if fs::read(path).is_ok_and(|known| known == bytes.as_ref()) {
        return Ok(());
    }
    fs::write(path, bytes)
}

fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            write_if_changed(&target, fs::read(entry.path())?)?;
        }
    }
    Ok(())
}

fn has_flag(words: &[String], flag: &str) -> bool {
    words.iter().any(|word| word == flag)
}

/// Processes the mutants selected by `words`. Returns whether all results are as expected.
fn run(words: &[String]) -> Result<bool, String> {
    let (check, lines) = (has_flag(words, "--check"), has_flag(words, "--lines"));
    let filter = words.iter().find(|word| !word.starts_with("--"));
    let filter = filter.map_or("", String::as_str);
    let all = mutant::read_all()?;
    // An exact name selects only that mutant, even if others contain it.
    let exact = all.iter().any(|mutant| mutant.name == filter);
    let wanted = |mutant: &&Mutant| match exact {
        true => mutant.name == filter,
        false => mutant.name.contains(filter),
    };
    let shop = WorkspaceCopy::new().map_err(|e| e.to_string())?;
    let mut well = true;
    if !check && !lines {
        println!("| mutant | rules | expected | found | run, seconds |");
        println!("|---|---|---|---|---|");
    }
    for mutant in all.iter().filter(wanted) {
        if let Err(why) = shop.plant(mutant) {
            well = false;
            println!("{why}");
            continue;
        }
        if check {
            continue;
        }
        let judgement = shop.judge(mutant)?;
        if lines {
            let (name, seconds) = (&mutant.name, judgement.seconds);
            println!("{name}\t{seconds:.1}\t{}", judgement.finder(mutant));
            continue;
        }
        let as_expected = judgement.is_caught == mutant.must_be_caught;
        well &= as_expected;
        println!(
            "| {} | {} | {} | {}{} | {} ({:.1} s) |",
            mutant.name,
            mutant.rules.join(" "),
            if mutant.must_be_caught { "violation" } else { "none" },
            if judgement.is_caught { "violation" } else { "none" },
            if as_expected { "" } else { " **UNEXPECTED**" },
            judgement.report,
            judgement.seconds,
        );
    }
    Ok(well)
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(4),
        Err(message) => {
            println!("{message}");
            ExitCode::FAILURE
        }
    }
}
