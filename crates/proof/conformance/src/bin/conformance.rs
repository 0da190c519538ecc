//! Runs devices on the test vectors, and serves the tools around them: `conformance
//! run|target|generate|kernel|cores|groups|object|mutants`.
#![allow(clippy::print_stdout, reason = "a command line")]

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::Instant,
};

use quorate_conformance::{
    Device, Program, compare,
    device::Reference,
    frames::DeviceSize,
    group::{EVENT_COUNT, Group},
    mutant,
    p4::{Switch, committed_sources},
    random,
    rtl::{self, BusWidth},
    targets::{FrameSet, Outcome, Target, Vectors, serve_device},
    xdp::{self, KernelDevice},
};
use quorate_device::boxed::ROOM_SIZES;
use quorate_device::xdp::{EntryPoint, compile};

const HELP: &str = "conformance
  run [--require NAME,…] [--only NAME,…] [--target NAME=COMMAND] [--count N] [--seed N] [--folder PATH]
                   every target over every set, or those that are named; a target that must not be
                   skipped; one more target: words of a command, to which the program's name is added
  target reference|p4|rtl-64|rtl-512|xdp|tc acceptor|coordinator|host
                   events on standard input, answers on standard output
  generate acceptor|coordinator|host directed|random FOLDER
                   writes what goes in and what must come out
  kernel [N]       programs for the kernel, in this one and this process, over N random frames each
  cores FOLDER [--room N] [--cells N] [--bus 64|512]
                   builds the simulated cores for a cluster
  groups [N]       mixed groups of devices under faults, judged by what is chosen
  object           compiles the programs for kernels and writes what is committed of them
  mutants [--check|--lines] [NAME…]
                   plants faults, one at a time, and demands that each is found, or compiles; lines
                   are for programs: name, seconds and finder, with tabs between";

const RANDOM_EVENT_COUNT: usize = 200_000;
/// Targets in this repository. All but the first two require tools or permissions that a machine
/// may lack.
const OWN_TARGETS: [&str; 6] = ["reference", "p4", "rtl-64", "rtl-512", "xdp", "tc"];

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let well = match words.as_slice() {
        ["run", rest @ ..] => run(rest),
        ["target", kind, program] => run_target(kind, program),
        ["generate", program, set, folder] => generate_vectors(program, set, folder),
        ["kernel", rest @ ..] => test_kernel_programs(rest),
        ["cores", folder, rest @ ..] => build_cores(Path::new(folder), rest),
        ["groups", rest @ ..] => run_groups(rest),
        ["mutants", rest @ ..] => run_mutants(rest),
        ["object"] => compile_kernel_objects(),
        _ => {
            println!("{HELP}");
            Ok(false)
        }
    };
    match well {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("conformance: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether `QUORATE_NO_SKIPS` makes a missing tool an error. `./setup` installs all tools.
fn are_skips_errors() -> bool {
    env::var("QUORATE_NO_SKIPS").is_ok_and(|value| value == "true")
}

fn text(error: io::Error) -> String {
    error.to_string()
}

fn parse_program(name: &str) -> Result<Program, String> {
    Program::from_name(name)
        .ok_or_else(|| format!("{name} is neither acceptor nor coordinator nor host"))
}

fn run_target(kind: &str, name: &str) -> Result<bool, String> {
    let program = parse_program(name)?;
    if BusWidth::ALL.iter().any(|bus| bus.target_name() == kind) {
        // Runs the simulator that `run` has built on the standard input and output of this process.
        let simulator = rtl::simulator_path(&target_folder(kind), program);
        let status = Command::new(simulator).arg(name).status().map_err(text)?;
        return Ok(status.success());
    }
    let mut device: Box<dyn Device> = match kind {
        "reference" => Box::new(Reference::new(program)),
        "xdp" => Box::new(KernelDevice::new(program, EntryPoint::Network, None)?),
        "tc" => Box::new(KernelDevice::new(program, EntryPoint::NetworkByTc, None)?),
        "p4" => Box::new(Switch::new(&committed_sources(), program)?),
        _ => return Err(format!("there is no target {kind}")),
    };
    serve_device(&mut *device, io::stdin().lock(), io::stdout().lock()).map_err(text)?;
    Ok(true)
}

fn generate_vectors(name: &str, set: &str, folder: &str) -> Result<bool, String> {
    let set = match set {
        "directed" => FrameSet::Directed,
        "random" => FrameSet::Random { seed: 1, count: RANDOM_EVENT_COUNT },
        _ => return Err(format!("there is no set {set}")),
    };
    fs::create_dir_all(folder).map_err(text)?;
    let made = Vectors::write_files(Path::new(folder), parse_program(name)?, set).map_err(text)?;
    println!("{} events in {folder}", made.event_count);
    Ok(true)
}

/// Returns the folder for the intermediate files of a target.
fn target_folder(name: &str) -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../target");
    target.unwrap_or(root).join("offload").join(name)
}

/// Returns all targets. Includes those that cannot run on this machine, so that the report lists
/// them as skipped.
fn all_targets() -> Result<Vec<Target>, String> {
    let own = env::current_exe().map_err(text)?;
    let own = own.to_string_lossy().into_owned();
    let mine = |kind: &str| Target {
        name: kind.to_owned(),
        command: Ok(vec![own.clone(), "target".to_owned(), kind.to_owned()]),
        programs: match kind {
            "p4" | "rtl-64" | "rtl-512" => &Program::SINGLE,
            _ => &Program::ALL,
        },
    };
    let path = env::var_os("PATH").unwrap_or_default();
    let missing = ["p4c-bm2-ss", "simple_switch"]
        .into_iter()
        .find(|tool| !env::split_paths(&path).any(|folder| folder.join(tool).is_file()));
    let bmv2 = Target {
        name: "bmv2".to_owned(),
        command: Err(match missing {
            Some(tool) => format!("{tool} is not installed"),
            None => "frames are not sent to it yet".to_owned(),
        }),
        programs: &Program::SINGLE,
    };
    let mut cores = BusWidth::ALL.map(|bus| mine(&bus.target_name()));
    for (target, bus) in cores.iter_mut().zip(BusWidth::ALL) {
        for program in Program::SINGLE {
            let folder = target_folder(&target.name);
            let built =
                rtl::build(&rtl::cores_folder(), &folder, program, bus, DeviceSize::VECTORS);
            if let Err(why) = built {
                // A missing tool skips the target. A core that does not build is an error.
                if rtl::missing_tool().is_none() {
                    return Err(why);
                }
                target.command = Err(why);
            }
        }
    }
    let [narrow, wide] = cores;
    let (mut kernel, mut traffic) = (mine("xdp"), mine("tc"));
    if let Some(why) = xdp::unavailable_reason() {
        kernel.command = Err(why.clone());
        traffic.command = Err(why);
    }
    Ok(vec![mine("reference"), mine("p4"), narrow, wide, kernel, traffic, bmv2])
}

fn run(words: &[&str]) -> Result<bool, String> {
    let mut required: Vec<String> = Vec::new();
    if are_skips_errors() {
        required.extend(OWN_TARGETS.map(str::to_owned));
    }
    let (mut seed, mut count, mut folder) = (1, RANDOM_EVENT_COUNT, target_folder("vectors"));
    let mut targets = all_targets()?;
    let mut only: Vec<String> = Vec::new();
    for pair in words.chunks(2) {
        let [flag, value] = pair else {
            return Err(format!("{} wants a value", pair.join(" ")));
        };
        let number = || value.parse::<u64>().map_err(|_| format!("{value} is no number"));
        match *flag {
            "--require" => required.extend(value.split(',').map(str::to_owned)),
            "--only" => only.extend(value.split(',').map(str::to_owned)),
            "--count" => count = usize::try_from(number()?).map_err(|_| "too many")?,
            "--seed" => seed = number()?,
            "--folder" => folder = PathBuf::from(value),
            "--target" => {
                let (name, command) = value.split_once('=').ok_or("--target NAME=COMMAND")?;
                targets.push(Target {
                    name: name.to_owned(),
                    command: Ok(command.split_whitespace().map(str::to_owned).collect()),
                    programs: &Program::SINGLE,
                });
            }
            _ => return Err(format!("{flag} is no option")),
        }
    }
    let named = required.iter().chain(&only);
    if let Some(name) =
        named.into_iter().find(|name| targets.iter().all(|target| target.name != **name))
    {
        return Err(format!("there is no target {name}"));
    }
    if !only.is_empty() {
        targets.retain(|target| only.contains(&target.name));
        required.retain(|name| only.contains(name));
    }
    fs::create_dir_all(&folder).map_err(text)?;
    println!("{:<12} {:<12} {:<9} {:>8}  result", "target", "program", "set", "frames");
    let mut well = true;
    let mut differences = Vec::new();
    for program in Program::ALL {
        for set in [FrameSet::Directed, FrameSet::Random { seed, count }] {
            let have = |target: &&Target| target.programs.contains(&program);
            if !targets.iter().any(|target| have(&target)) {
                continue;
            }
            let vectors = Vectors::write_files(&folder, program, set).map_err(text)?;
            for target in targets.iter().filter(have) {
                let (outcome, seconds) = vectors.run(target, &folder).map_err(text)?;
                let must = required.contains(&target.name);
                let result = match &outcome {
                    Outcome::Pass => format!("PASS in {seconds:.1} s"),
                    Outcome::Fail(what) => {
                        differences.push(format!(
                            "{} {} {}: {what}",
                            target.name,
                            program.name(),
                            set.name()
                        ));
                        "FAIL".to_owned()
                    }
                    Outcome::Skipped(why) if must => format!("FAIL: {why}, and it is required"),
                    Outcome::Skipped(why) => format!("SKIPPED({why})"),
                };
                well &=
                    outcome == Outcome::Pass || (!must && matches!(outcome, Outcome::Skipped(_)));
                let (name, set) = (program.name(), set.name());
                println!(
                    "{:<12} {name:<12} {set:<9} {:>8}  {result}",
                    target.name, vectors.event_count
                );
            }
        }
    }
    for difference in differences {
        println!("\n{difference}");
    }
    Ok(well)
}

/// Tests only the kernel programs, on machines that have nothing but this binary. A program that
/// cannot be loaded is an error.
fn test_kernel_programs(words: &[&str]) -> Result<bool, String> {
    let count = match words {
        [] => RANDOM_EVENT_COUNT,
        [count] => count.parse().map_err(|_| format!("{count} is no number"))?,
        _ => return Err("kernel [N]".to_owned()),
    };
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").map_err(text)?;
    println!("kernel {}", release.trim());
    let mut well = true;
    for program in Program::ALL {
        let (events, expected) = random::random_events(program, 1, count);
        for (name, hook) in [("xdp", EntryPoint::Network), ("tc", EntryPoint::NetworkByTc)] {
            let mut device = KernelDevice::new(program, hook, None)?;
            let begun = Instant::now();
            let result = match compare::run(&mut device, &events, &expected) {
                Ok(()) => format!("PASS in {:.1} s", begun.elapsed().as_secs_f64()),
                Err(difference) => {
                    well = false;
                    format!("FAIL, event {}\n{}", difference.event_index, difference.description)
                }
            };
            println!("{:<12} {name:<4} {count:>8}  {result}", program.name());
        }
    }
    Ok(well)
}

/// Builds the cores of both programs for `quorate start --device rtl:FOLDER`.
fn build_cores(folder: &Path, words: &[&str]) -> Result<bool, String> {
    // The interpreter's switch programs use the same dimensions.
    let mut size = DeviceSize { room_bytes: 128, cell_count: 4096 };
    let mut bus = BusWidth::Narrow;
    for pair in words.chunks(2) {
        match pair {
            ["--bus", "64"] => bus = BusWidth::Narrow,
            ["--bus", "512"] => bus = BusWidth::Wide,
            ["--room", room] => size.room_bytes = parse_number(room)?,
            ["--cells", cells] => size.cell_count = parse_number(cells)?,
            _ => return Err("cores FOLDER [--room N] [--cells N] [--bus 64|512]".to_owned()),
        }
    }
    if !ROOM_SIZES.contains(&size.room_bytes) {
        return Err(format!("--room {}: a node tries one of {ROOM_SIZES:?}", size.room_bytes));
    }
    if !size.cell_count.is_power_of_two() || !(2..=1 << 20).contains(&size.cell_count) {
        return Err(format!(
            "--cells {}: a power of two, at least 2 and at most {}",
            size.cell_count,
            1 << 20
        ));
    }
    for program in Program::SINGLE {
        let simulator = rtl::build(&rtl::cores_folder(), folder, program, bus, size)?;
        println!("{}", simulator.display());
    }
    Ok(true)
}

fn parse_number(word: &str) -> Result<usize, String> {
    let number = word.parse();
    number.map_err(|_| format!("{word} is no number"))
}

/// Runs mixed groups, each with a different seed.
fn run_groups(words: &[&str]) -> Result<bool, String> {
    let count = match words {
        [] => 1_000,
        [count] => count.parse().map_err(|_| format!("{count} is no number"))?,
        _ => return Err("groups [N]".to_owned()),
    };
    let sources = committed_sources();
    let (mut slots, mut decisions, mut ballots) = (0, 0, 0);
    for seed in 0..count {
        let mut group = Group::new_mixed(seed, &sources, None)?;
        if let Err(why) = group.run(EVENT_COUNT) {
            println!("seed {seed}: {why}");
            return Ok(false);
        }
        slots += group.decided_to();
        decisions += group.decision_count;
        ballots += group.ballot_count;
    }
    println!(
        "{count} groups, {ballots} ballots, {slots} slots, {decisions} decisions by devices: what is chosen stays chosen"
    );
    Ok(true)
}

/// Compiles the kernel objects for machines without clang, and stores a hash of their sources.
fn compile_kernel_objects() -> Result<bool, String> {
    let clang = compile::find_clang().ok_or("clang is not installed")?;
    let sources = xdp::programs_folder().canonicalize().map_err(text)?;
    let folder = sources.join("../object");
    for program in compile::PROGRAMS {
        let object = folder.join(format!("{program}.o"));
        compile::compile(&clang, &sources, program, &object)?;
        compile::strip_debug_info(&object)?;
    }
    let hash = compile::hash_sources(&sources).map_err(text)?;
    fs::write(folder.join("sources.sha1"), format!("{hash}\n")).map_err(text)?;
    println!("sources {hash}");
    Ok(true)
}

fn run_mutants(words: &[&str]) -> Result<bool, String> {
    let (check, lines) = (words.contains(&"--check"), words.contains(&"--lines"));
    let names: Vec<&str> =
        words.iter().copied().filter(|word| !word.starts_with("--") && !word.is_empty()).collect();
    let mutants = mutant::read_all()?;
    if let Some(name) = names.iter().find(|name| mutants.iter().all(|mutant| mutant.name != **name))
    {
        return Err(format!("no mutant is called {name}"));
    }
    let mut well = true;
    if !lines {
        println!("| mutant | rules | found |");
        println!("|---|---|---|");
    }
    for mutant in
        mutants.iter().filter(|mutant| names.is_empty() || names.contains(&mutant.name.as_str()))
    {
        let lacking = match mutant.target {
            mutant::MutantTarget::Rtl => {
                rtl::missing_tool().map(|tool| format!("{tool} is not installed"))
            }
            mutant::MutantTarget::Xdp => xdp::unavailable_reason().or_else(|| {
                let lacks = compile::find_clang().is_none();
                lacks.then(|| "clang is not installed".to_owned())
            }),
            mutant::MutantTarget::P4 | mutant::MutantTarget::Reference => None,
        };
        if let Some(why) = lacking {
            if lines {
                return Err(format!("{}: {why}", mutant.name));
            }
            let rules = mutant.rules.join(" ");
            println!("| {} | {rules} | SKIPPED({why}) |", mutant.name);
            well &= !are_skips_errors();
            continue;
        }
        let begun = Instant::now();
        let found = mutant.judge(&target_folder("mutants"), check)?;
        if lines {
            let seconds = begun.elapsed().as_secs_f64();
            println!("{}\t{seconds:.1}\t{}", mutant.name, found.unwrap_or_default());
            continue;
        }
        well &= found.is_some();
        let found = found.unwrap_or_else(|| "**not found**".to_owned());
        let seconds = begun.elapsed().as_secs_f64();
        println!("| {} | {} | {found} ({seconds:.1} s) |", mutant.name, mutant.rules.join(" "));
    }
    Ok(well)
}
