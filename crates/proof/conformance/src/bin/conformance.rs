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
    frames::Size,
    group::{EVENTS, Group},
    mutant,
    p4::{Switch, committed},
    random,
    rtl::{self, Bus},
    targets::{Outcome, Set, Target, Vectors, serve},
    xdp::{self, Kernel},
};
use quorate_device::boxed::ROOMS;
use quorate_device::xdp::{Entry, compile};

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

const COUNT: usize = 200_000;
/// Targets in this repository. All but the first two require tools or permissions that a machine
/// may lack.
const OURS: [&str; 6] = ["reference", "p4", "rtl-64", "rtl-512", "xdp", "tc"];

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let well = match words.as_slice() {
        ["run", rest @ ..] => run(rest),
        ["target", kind, program] => target(kind, program),
        ["generate", program, set, folder] => generate(program, set, folder),
        ["kernel", rest @ ..] => kernel(rest),
        ["cores", folder, rest @ ..] => cores(Path::new(folder), rest),
        ["groups", rest @ ..] => groups(rest),
        ["mutants", rest @ ..] => mutants(rest),
        ["object"] => object(),
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
fn no_skips() -> bool {
    env::var("QUORATE_NO_SKIPS").is_ok_and(|value| value == "true")
}

fn text(error: io::Error) -> String {
    error.to_string()
}

fn program(name: &str) -> Result<Program, String> {
    Program::of(name).ok_or_else(|| format!("{name} is neither acceptor nor coordinator nor host"))
}

fn target(kind: &str, name: &str) -> Result<bool, String> {
    let program = program(name)?;
    if Bus::ALL.iter().any(|bus| bus.target() == kind) {
        // Runs the simulator that `run` has built on the standard input and output of this process.
        let simulator = rtl::simulator(&workplace(kind), program);
        let status = Command::new(simulator).arg(name).status().map_err(text)?;
        return Ok(status.success());
    }
    let mut device: Box<dyn Device> = match kind {
        "reference" => Box::new(Reference::new(program)),
        "xdp" => Box::new(Kernel::new(program, Entry::Network, None)?),
        "tc" => Box::new(Kernel::new(program, Entry::Traffic, None)?),
        "p4" => Box::new(Switch::new(&committed(), program)?),
        _ => return Err(format!("there is no target {kind}")),
    };
    serve(&mut *device, io::stdin().lock(), io::stdout().lock()).map_err(text)?;
    Ok(true)
}

fn generate(name: &str, set: &str, folder: &str) -> Result<bool, String> {
    let set = match set {
        "directed" => Set::Directed,
        "random" => Set::Random { seed: 1, count: COUNT },
        _ => return Err(format!("there is no set {set}")),
    };
    fs::create_dir_all(folder).map_err(text)?;
    let made = Vectors::make(Path::new(folder), program(name)?, set).map_err(text)?;
    println!("{} events in {folder}", made.count);
    Ok(true)
}

/// Returns the folder for the intermediate files of a target.
fn workplace(name: &str) -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../target");
    target.unwrap_or(root).join("offload").join(name)
}

/// Returns all targets. Includes those that cannot run on this machine, so that the report lists
/// them as skipped.
fn targets() -> Result<Vec<Target>, String> {
    let own = env::current_exe().map_err(text)?;
    let own = own.to_string_lossy().into_owned();
    let mine = |kind: &str| Target {
        name: kind.to_owned(),
        command: Ok(vec![own.clone(), "target".to_owned(), kind.to_owned()]),
        programs: match kind {
            "p4" | "rtl-64" | "rtl-512" => &Program::APART,
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
        programs: &Program::APART,
    };
    let mut cores = Bus::ALL.map(|bus| mine(&bus.target()));
    for (target, bus) in cores.iter_mut().zip(Bus::ALL) {
        for program in Program::APART {
            let folder = workplace(&target.name);
            let built = rtl::build(&rtl::sources(), &folder, program, bus, Size::VECTORS);
            if let Err(why) = built {
                // A missing tool skips the target. A core that does not build is an error.
                if rtl::missing().is_none() {
                    return Err(why);
                }
                target.command = Err(why);
            }
        }
    }
    let [narrow, wide] = cores;
    let (mut kernel, mut traffic) = (mine("xdp"), mine("tc"));
    if let Some(why) = xdp::missing() {
        kernel.command = Err(why.clone());
        traffic.command = Err(why);
    }
    Ok(vec![mine("reference"), mine("p4"), narrow, wide, kernel, traffic, bmv2])
}

fn run(words: &[&str]) -> Result<bool, String> {
    let mut required: Vec<String> = Vec::new();
    if no_skips() {
        required.extend(OURS.map(str::to_owned));
    }
    let (mut seed, mut count, mut folder) = (1, COUNT, workplace("vectors"));
    let mut targets = targets()?;
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
                    programs: &Program::APART,
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
        for set in [Set::Directed, Set::Random { seed, count }] {
            let have = |target: &&Target| target.programs.contains(&program);
            if !targets.iter().any(|target| have(&target)) {
                continue;
            }
            let vectors = Vectors::make(&folder, program, set).map_err(text)?;
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
                println!("{:<12} {name:<12} {set:<9} {:>8}  {result}", target.name, vectors.count);
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
fn kernel(words: &[&str]) -> Result<bool, String> {
    let count = match words {
        [] => COUNT,
        [count] => count.parse().map_err(|_| format!("{count} is no number"))?,
        _ => return Err("kernel [N]".to_owned()),
    };
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").map_err(text)?;
    println!("kernel {}", release.trim());
    let mut well = true;
    for program in Program::ALL {
        let (events, expected) = random::events(program, 1, count);
        for (name, hook) in [("xdp", Entry::Network), ("tc", Entry::Traffic)] {
            let mut device = Kernel::new(program, hook, None)?;
            let begun = Instant::now();
            let result = match compare::run(&mut device, &events, &expected) {
                Ok(()) => format!("PASS in {:.1} s", begun.elapsed().as_secs_f64()),
                Err(difference) => {
                    well = false;
                    format!("FAIL, event {}\n{}", difference.at, difference.what)
                }
            };
            println!("{:<12} {name:<4} {count:>8}  {result}", program.name());
        }
    }
    Ok(well)
}

/// Builds the cores of both programs for `quorate start --device rtl:FOLDER`.
fn cores(folder: &Path, words: &[&str]) -> Result<bool, String> {
    // The interpreter's switch programs use the same dimensions.
    let mut size = Size { room: 128, cells: 4096 };
    let mut bus = Bus::Narrow;
    for pair in words.chunks(2) {
        match pair {
            ["--bus", "64"] => bus = Bus::Narrow,
            ["--bus", "512"] => bus = Bus::Wide,
            ["--room", room] => size.room = number(room)?,
            ["--cells", cells] => size.cells = number(cells)?,
            _ => return Err("cores FOLDER [--room N] [--cells N] [--bus 64|512]".to_owned()),
        }
    }
    if !ROOMS.contains(&size.room) {
        return Err(format!("--room {}: a node tries one of {ROOMS:?}", size.room));
    }
    if !size.cells.is_power_of_two() || !(2..=1 << 20).contains(&size.cells) {
        return Err(format!(
            "--cells {}: a power of two, at least 2 and at most {}",
            size.cells,
            1 << 20
        ));
    }
    for program in Program::APART {
        let simulator = rtl::build(&rtl::sources(), folder, program, bus, size)?;
        println!("{}", simulator.display());
    }
    Ok(true)
}

fn number(word: &str) -> Result<usize, String> {
    let number = word.parse();
    number.map_err(|_| format!("{word} is no number"))
}

/// Runs mixed groups, each with a different seed.
fn groups(words: &[&str]) -> Result<bool, String> {
    let count = match words {
        [] => 1_000,
        [count] => count.parse().map_err(|_| format!("{count} is no number"))?,
        _ => return Err("groups [N]".to_owned()),
    };
    let sources = committed();
    let (mut slots, mut decisions, mut ballots) = (0, 0, 0);
    for seed in 0..count {
        let mut group = Group::mixed(seed, &sources, None)?;
        if let Err(why) = group.run(EVENTS) {
            println!("seed {seed}: {why}");
            return Ok(false);
        }
        slots += group.decided_to();
        decisions += group.decisions;
        ballots += group.ballots;
    }
    println!(
        "{count} groups, {ballots} ballots, {slots} slots, {decisions} decisions by devices: what is chosen stays chosen"
    );
    Ok(true)
}

/// Compiles the kernel objects for machines without clang, and stores a hash of their sources.
fn object() -> Result<bool, String> {
    let clang = compile::clang().ok_or("clang is not installed")?;
    let sources = xdp::sources().canonicalize().map_err(text)?;
    let folder = sources.join("../object");
    for program in compile::PROGRAMS {
        let object = folder.join(format!("{program}.o"));
        compile::compile(&clang, &sources, program, &object)?;
        compile::strip(&object)?;
    }
    let hash = compile::hash(&sources).map_err(text)?;
    fs::write(folder.join("sources.sha1"), format!("{hash}\n")).map_err(text)?;
    println!("sources {hash}");
    Ok(true)
}

fn mutants(words: &[&str]) -> Result<bool, String> {
    let (check, lines) = (words.contains(&"--check"), words.contains(&"--lines"));
    let names: Vec<&str> =
        words.iter().copied().filter(|word| !word.starts_with("--") && !word.is_empty()).collect();
    let mutants = mutant::all()?;
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
                rtl::missing().map(|tool| format!("{tool} is not installed"))
            }
            mutant::MutantTarget::Xdp => xdp::missing().or_else(|| {
                let lacks = compile::clang().is_none();
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
            well &= !no_skips();
            continue;
        }
        let begun = Instant::now();
        let found = mutant.judge(&workplace("mutants"), check)?;
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
