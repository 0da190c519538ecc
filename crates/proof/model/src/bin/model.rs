//! Command line of the explorer: `model run PROFILE|all [--from N] [--runs N] [--seconds N] [--only
//! PROPERTY,…] [--no-heal] [--go-on]`, `model replay PROFILE SEED`, `model exhaust [deep|ACTIONS]`.
#![allow(clippy::print_stdout, reason = "a command line")]

use std::{process::ExitCode, time::Instant};

use quorate_model::{
    exhaustive::{self, Bounds},
    explore::{Mode, run},
    observer::{Property, Watched},
    profile::Profile,
    seen::Seen,
};
use rustix::time::{ClockId, clock_gettime};

struct Arguments {
    words: Vec<String>,
    from: u64,
    runs: u64,
    seconds: u32,
    mode: Mode,
    go_on: bool,
}

fn arguments() -> Result<Arguments, String> {
    let mut parsed = Arguments {
        words: Vec::new(),
        from: 0,
        runs: 10_000,
        seconds: u32::MAX,
        mode: Mode::FULL,
        go_on: false,
    };
    let mut list = std::env::args().skip(1);
    while let Some(word) = list.next() {
        let mut value = || list.next().ok_or(format!("{word} needs a value"));
        let number = |text: String| text.parse::<u64>().map_err(|e| format!("{text}: {e}"));
        match word.as_str() {
            "--from" => parsed.from = number(value()?)?,
            "--runs" => parsed.runs = number(value()?)?,
            "--seconds" => parsed.seconds = number(value()?)?.try_into().unwrap_or(u32::MAX),
            "--no-heal" => parsed.mode.heal = false,
            "--go-on" => parsed.go_on = true,
            "--only" => {
                let names = value()?;
                let named = |name| Property::named(name).ok_or(format!("no property {name}"));
                let list: Result<Vec<_>, _> = names.split(',').map(named).collect();
                parsed.mode.watched = Watched::only(&list?);
            }
            _ => parsed.words.push(word),
        }
    }
    Ok(parsed)
}

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(|_| {}));
    let arguments = match arguments() {
        Ok(arguments) => arguments,
        Err(message) => {
            println!("{message}");
            return ExitCode::from(2);
        }
    };
    let words: Vec<&str> = arguments.words.iter().map(String::as_str).collect();
    match words[..] {
        ["replay", profile, seed] => replay(profile, seed, arguments.mode),
        ["run", profile] => explore(profile, &arguments),
        ["exhaust"] => exhaust(exhaustive::small()),
        ["exhaust", "deep"] => exhaust(exhaustive::deep()),
        ["exhaust", depth] if depth.parse::<usize>().is_ok() => {
            exhaust(exhaustive::to_depth(depth.parse().unwrap_or_default()))
        }
        _ => {
            println!(
                "model run PROFILE|all [--from N] [--runs N] [--seconds N] [--only PROPERTY,...] \
                 [--no-heal] [--go-on]\nmodel replay PROFILE SEED\nmodel exhaust [deep|ACTIONS]"
            );
            ExitCode::from(2)
        }
    }
}

fn exhaust(list: Vec<Bounds>) -> ExitCode {
    for bounds in list {
        let started = Instant::now();
        let report = bounds.check();
        println!("{report:?} {:.1} s", started.elapsed().as_secs_f64());
    }
    ExitCode::SUCCESS
}

fn replay(profile: &str, seed: &str, mode: Mode) -> ExitCode {
    let (Some(profile), Ok(seed)) = (Profile::named(profile), seed.parse()) else {
        println!("no such profile, or not a seed");
        return ExitCode::from(2);
    };
    let outcome = run(profile, seed, Mode { trace: true, ..mode });
    for line in &outcome.trace {
        println!("{line}");
    }
    match outcome.violation {
        Some(violation) => {
            println!("{violation}");
            ExitCode::from(4)
        }
        None => ExitCode::SUCCESS,
    }
}

/// Returns the processor time that this process has used, in seconds. Unlike a limit on elapsed
/// time, a limit on processor time does not shorten a run on a busy machine.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    #[expect(clippy::cast_precision_loss, reason = "seconds, to be shown")]
    let seconds = time.tv_sec as f64 + time.tv_nsec as f64 / 1e9;
    seconds
}

fn explore(profile: &str, arguments: &Arguments) -> ExitCode {
    let profiles: Vec<Profile> = match profile {
        "all" => Profile::ALL.to_vec(),
        name => Profile::named(name).into_iter().collect(),
    };
    let started = cpu_seconds();
    let (mut runs, mut events, mut chosen, mut healed) = (0u64, 0u64, 0u64, 0u64);
    let (mut leased, mut seen) = (0, Seen::default());
    let mut eras = [0u64; 6];
    let mut found = false;
    'seeds: for seed in arguments.from..arguments.from.saturating_add(arguments.runs) {
        for profile in &profiles {
            if cpu_seconds() - started >= f64::from(arguments.seconds) {
                break 'seeds;
            }
            let outcome = run(*profile, seed, arguments.mode);
            runs += 1;
            events += outcome.events as u64;
            chosen += outcome.chosen;
            leased += outcome.leased;
            seen = seen.plus(outcome.seen);
            healed += u64::from(outcome.healed);
            eras[(outcome.era as usize).min(5)] += 1;
            if let Some(violation) = outcome.violation {
                println!(
                    "{violation}\n  run {runs}, {:.1} s; replay: model replay {} {seed}",
                    cpu_seconds() - started,
                    profile.name()
                );
                found = true;
                if !arguments.go_on {
                    break 'seeds;
                }
            }
        }
    }
    println!(
        "{runs} runs, {events} events, {chosen} slots chosen, {leased} reads by leases, {healed} healed, eras {eras:?}, {:.1} s",
        cpu_seconds() - started
    );
    println!("{seen:?}");
    if found { ExitCode::from(4) } else { ExitCode::SUCCESS }
}
