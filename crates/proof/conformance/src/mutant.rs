//! Injects faults one at a time. The tests must detect each of them.
//!
//! The vectors find faults in P4 programs, cores and kernel programs. The tests of the reference's
//! own crate find faults in a reference program, because the vectors are generated from the
//! reference.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use quorate_device::xdp::{EntryPoint, compile};
use serde::Deserialize;

use crate::{
    Program,
    compare::run,
    device::Reference,
    directed,
    frames::DeviceSize,
    p4::{Sources, Switch, committed_sources},
    random,
    rtl::{self, BusWidth},
    xdp::{self, KernelDevice},
};

/// Sources in which a fault is planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MutantTarget {
    /// Sources in `crates/devices/offload`.
    Reference,
    /// Sources in `crates/devices/programs/p4`.
    P4,
    /// Sources in `crates/devices/programs/rtl`.
    Rtl,
    /// Sources in `crates/devices/programs/xdp/bpf`.
    Xdp,
}

/// Text replacement in one file.
#[derive(Clone, Debug, Deserialize)]
pub struct Edit {
    /// Name of the file in the folder of the target.
    pub file: String,
    /// Text to replace. It must occur exactly once.
    pub find: String,
    pub replace: String,
}

/// Planted fault, as described in a file.
#[derive(Clone, Debug, Deserialize)]
pub struct Mutant {
    /// Name of the description's file, without its extension.
    #[serde(skip)]
    pub name: String,
    /// Description of the fault, for people.
    pub about: String,
    /// Ids of the rules that the fault violates.
    pub rules: Vec<String>,
    /// Sources in which the fault is planted.
    pub target: MutantTarget,
    /// Program to run. Absent for a fault in a reference program.
    pub program: Option<String>,
    /// Set if the fault is in the 512-bit core instead of the 64-bit one.
    #[serde(default)]
    pub wide: bool,
    #[serde(rename = "edit")]
    pub edits: Vec<Edit>,
}

/// Number of random frames used to search for a fault.
const RANDOM_FRAME_COUNT: usize = 200_000;

fn crate_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the root folder of the workspace.
fn workspace_root() -> PathBuf {
    crate_folder().join("../../..")
}

/// Reads the descriptions of all faults, sorted by name.
pub fn read_all() -> Result<Vec<Mutant>, String> {
    let mut mutants = Vec::new();
    let folder = crate_folder().join("mutants");
    let list = fs::read_dir(&folder).map_err(|error| error.to_string())?;
    for entry in list {
        let path = entry.map_err(|error| error.to_string())?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).map_err(|error| error.to_string())?;
        let mutant = toml::from_str(&text).map_err(|error| format!("{name}: {error}"))?;
        mutants.push(Mutant { name, ..mutant });
    }
    mutants.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(mutants)
}

impl Mutant {
    /// Applies the edits and returns the changed files. Fails unless each `find` text occurs
    /// exactly once.
    fn apply_edits(
        &self,
        read: impl Fn(&str) -> Option<String>,
    ) -> Result<Vec<(String, String)>, String> {
        let mut texts: Vec<(String, String)> = Vec::new();
        for edit in &self.edits {
            let known = texts.iter().position(|(file, _)| *file == edit.file);
            let at = match known {
                Some(at) => at,
                None => {
                    let text = read(&edit.file);
                    let text = text.ok_or_else(|| format!("{}: no {}", self.name, edit.file))?;
                    texts.push((edit.file.clone(), text));
                    texts.len() - 1
                }
            };
            let text = &mut texts[at].1;
            let find = edit.find.trim_matches('\n');
            let times = text.matches(find).count();
            if times != 1 {
                let (name, file) = (&self.name, &edit.file);
                return Err(format!("{name}: {times} places in {file} for {find:?}"));
            }
            *text = text.replace(find, edit.replace.trim_matches('\n'));
        }
        Ok(texts)
    }

    /// Plants the fault and searches for it. Returns where the fault was found, or `None`. With
    /// `check`, only builds the sources.
    pub fn judge(&self, folder: &Path, check: bool) -> Result<Option<String>, String> {
        match self.target {
            MutantTarget::P4 => self.judge_p4(check),
            MutantTarget::Rtl => self.judge_core(&folder.join("rtl"), check),
            MutantTarget::Xdp => self.judge_kernel(&folder.join("xdp"), check),
            MutantTarget::Reference => self.judge_reference(folder, check),
        }
    }

    /// Returns the sources of the switch programs with the fault planted.
    pub fn mutated_sources(&self) -> Result<Sources, String> {
        let mut sources = committed_sources();
        for (file, text) in self.apply_edits(|file| sources.get(file).map(str::to_owned))? {
            sources.set_text(&file, text);
        }
        Ok(sources)
    }

    fn judge_p4(&self, check: bool) -> Result<Option<String>, String> {
        let sources = self.mutated_sources()?;
        let program = self.program()?;
        if check {
            Switch::new(&sources, program)?;
            return Ok(Some("it compiles".to_owned()));
        }
        find_difference(program, || Switch::new(&sources, program))
    }

    /// Tests a kernel program in a copy of its sources. Later mutants reuse the copy.
    fn judge_kernel(&self, folder: &Path, check: bool) -> Result<Option<String>, String> {
        let text = |error: io::Error| error.to_string();
        let program = self.program()?;
        let clang = compile::find_clang().ok_or("clang is not installed")?;
        let copied = folder.join("bpf");
        fs::create_dir_all(&copied).map_err(text)?;
        copy_folder(&xdp::programs_folder(), &copied).map_err(text)?;
        let read = |file: &str| fs::read_to_string(xdp::programs_folder().join(file)).ok();
        for (file, changed) in self.apply_edits(read)? {
            fs::write(copied.join(file), changed).map_err(text)?;
        }
        let made = folder.join(format!("{}.o", program.name()));
        compile::compile(&clang, &copied, program.name(), &made)?;
        let object = fs::read(&made).map_err(text)?;
        let device = || KernelDevice::new(program, EntryPoint::Network, Some(object.clone()));
        if check {
            device()?;
            return Ok(Some("it compiles, and the kernel takes it".to_owned()));
        }
        find_difference(program, device)
    }

    fn program(&self) -> Result<Program, String> {
        let program = self.program.as_deref().and_then(Program::from_name);
        program.ok_or_else(|| format!("{}: which program?", self.name))
    }

    /// Tests a core in a copy of its sources. Later mutants reuse the copy.
    fn judge_core(&self, folder: &Path, check: bool) -> Result<Option<String>, String> {
        let text = |error: io::Error| error.to_string();
        let copied = folder.join("sources");
        fs::create_dir_all(&copied).map_err(text)?;
        copy_folder(&rtl::cores_folder(), &copied).map_err(text)?;
        let read = |file: &str| fs::read_to_string(rtl::cores_folder().join(file)).ok();
        for (file, changed) in self.apply_edits(read)? {
            fs::write(copied.join(file), changed).map_err(text)?;
        }
        let program = self.program()?;
        let bus = if self.wide { BusWidth::Wide } else { BusWidth::Narrow };
        let folder = folder.join(bus.target_name());
        let simulator = rtl::build(&copied, &folder, program, bus, DeviceSize::VECTORS)?;
        if check {
            return Ok(Some("it compiles".to_owned()));
        }
        let mut reference = Reference::new(program);
        let directed = directed::events(program);
        let expected = directed.iter().map(|event| crate::Device::step(&mut reference, event));
        let expected = expected.collect::<Result<Vec<_>, _>>()?;
        let random = random::random_events(program, 1, RANDOM_FRAME_COUNT);
        for (name, events, expected) in
            [("directed", &directed, &expected), ("random", &random.0, &random.1)]
        {
            let Some(found) = rtl::run(&simulator, events)? else {
                return Ok(Some(format!("{name}, it gives up")));
            };
            let differs = found.iter().zip(expected).position(|(a, b)| a != b);
            if let Some(at) = differs {
                return Ok(Some(format!("{name}, event {at}")));
            }
        }
        Ok(None)
    }

    /// Tests the reference in a copy of its crate. Later mutants reuse the copy.
    fn judge_reference(&self, folder: &Path, check: bool) -> Result<Option<String>, String> {
        copy_crates(folder).map_err(|error| error.to_string())?;
        let sources = workspace_root().join("crates/devices/offload/src");
        for (file, text) in self.apply_edits(|file| fs::read_to_string(sources.join(file)).ok())? {
            let place = folder.join("crates/devices/offload/src").join(file);
            fs::write(place, text).map_err(|error| error.to_string())?;
        }
        let (built, said) = run_cargo(folder, &["--no-run"])?;
        if !built {
            return Err(format!("{} does not compile\n{said}", self.name));
        }
        if check {
            return Ok(Some("it compiles".to_owned()));
        }
        let (passed, said) = run_cargo(folder, &[])?;
        let failed = said.lines().filter_map(|line| {
            let test = line.strip_prefix("test ")?;
            test.strip_suffix(" ... FAILED")
        });
        let failed: Vec<&str> = failed.collect();
        Ok((!passed).then(|| match failed.as_slice() {
            [] => "the tests ended".to_owned(),
            [one] => (*one).to_owned(),
            [one, rest @ ..] => format!("{one}, and {} more", rest.len()),
        }))
    }
}

/// Searches the directed set for a difference between a device and the reference, then the random
/// set on a new device. Returns the location of the first difference.
fn find_difference<D: crate::Device>(
    program: Program,
    device: impl Fn() -> Result<D, String>,
) -> Result<Option<String>, String> {
    let events = directed::events(program);
    let mut reference = Reference::new(program);
    let expected = events.iter().map(|event| crate::Device::step(&mut reference, event));
    let expected = expected.collect::<Result<Vec<_>, _>>()?;
    if let Err(difference) = run(&mut device()?, &events, &expected) {
        return Ok(Some(format!("directed, event {}", difference.event_index)));
    }
    let (events, expected) = random::random_events(program, 1, RANDOM_FRAME_COUNT);
    let found = run(&mut device()?, &events, &expected).err();
    Ok(found.map(|difference| format!("random, event {}", difference.event_index)))
}

const COPIED_CRATES: [&str; 3] = ["devices/offload", "protocol/core", "protocol/wire"];

/// Copies the crate and its dependencies. Does not write files whose contents are equal.
fn copy_crates(folder: &Path) -> io::Result<()> {
    let manifest = fs::read_to_string(workspace_root().join("Cargo.toml"))?;
    let members = COPIED_CRATES.map(|name| format!("\"crates/{name}\"")).join(", ");
    let from = manifest.find("members = [").unwrap_or(0);
    let to = manifest[from..].find("\n]").map_or(from, |at| from + at + 2);
    let manifest = format!("{}members = [{members}]{}", &manifest[..from], &manifest[to..]);
    write_if_changed(&folder.join("Cargo.toml"), &manifest)?;
    write_if_changed(
        &folder.join("Cargo.lock"),
        &fs::read_to_string(workspace_root().join("Cargo.lock"))?,
    )?;
    for name in COPIED_CRATES {
        copy_folder(
            &workspace_root().join("crates").join(name),
            &folder.join("crates").join(name),
        )?;
    }
    Ok(())
}

fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
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

fn write_if_changed(path: &Path, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    if fs::read(path).is_ok_and(|known| known == bytes.as_ref()) {
        return Ok(());
    }
    fs::create_dir_all(path.parent().unwrap_or(path))?;
    fs::write(path, bytes)
}

/// Runs cargo with the arguments `words`. Returns whether it succeeded, and its output.
fn run_cargo(folder: &Path, words: &[&str]) -> Result<(bool, String), String> {
    // Use the compiler next to this cargo, even if the folder of a dependency selects another one.
    let cargo = Path::new(env!("CARGO"));
    let output = Command::new(cargo)
        .args([
            "test",
            "--offline",
            "--package",
            "quorate-offload",
            "--lib",
            "--tests",
            "--no-fail-fast",
        ])
        .args(words)
        .env("RUSTC", cargo.with_file_name("rustc"))
        .env("CARGO_TARGET_DIR", folder.join("target"))
        .env("RUSTFLAGS", "-Awarnings")
        .current_dir(folder)
        .output()
        .map_err(|error| error.to_string())?;
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !words.is_empty() {
        text.push_str(&String::from_utf8_lossy(&output.stderr));
    }
    Ok((output.status.success(), text))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that every mutant applies. `cargo xtask mutants` checks that each is found.
    #[test]
    fn every_mutant_applies_to_its_source() {
        let mutants = read_all().unwrap();
        for target in
            [MutantTarget::P4, MutantTarget::Rtl, MutantTarget::Xdp, MutantTarget::Reference]
        {
            let count = mutants.iter().filter(|mutant| mutant.target == target).count();
            assert!(count >= 5, "{target:?}: {count}");
        }
        let sources = committed_sources();
        let reference = workspace_root().join("crates/devices/offload/src");
        for mutant in &mutants {
            let changed = match mutant.target {
                MutantTarget::P4 => mutant.apply_edits(|file| sources.get(file).map(str::to_owned)),
                MutantTarget::Rtl => mutant
                    .apply_edits(|file| fs::read_to_string(rtl::cores_folder().join(file)).ok()),
                MutantTarget::Xdp => mutant
                    .apply_edits(|file| fs::read_to_string(xdp::programs_folder().join(file)).ok()),
                MutantTarget::Reference => {
                    mutant.apply_edits(|file| fs::read_to_string(reference.join(file)).ok())
                }
            };
            assert!(changed.is_ok(), "{changed:?}");
            assert!(!mutant.about.is_empty() && !mutant.rules.is_empty(), "{}", mutant.name);
        }
    }

    /// All mutants of the P4 programs are found, which needs no compiler.
    #[test]
    fn every_mutant_of_the_p4_programs_is_found() {
        for mutant in read_all().unwrap().iter().filter(|mutant| mutant.target == MutantTarget::P4)
        {
            let found = mutant.judge_p4(false).unwrap();
            assert!(found.is_some(), "{} is not found", mutant.name);
        }
    }
}
