//! Command line of the explorer: `model run PROFILE|all [--from N] [--runs N] [--seconds N] [--only
//! PROPERTY,…] [--no-heal] [--go-on]`, `model replay PROFILE SEED`, `model exhaust [deep|ACTIONS]`.
#![allow(clippy::print_stdout, reason = "a command line")]

use std::{process::ExitCode, time::Instant};

use quorate_model::{
    exhaustive::{self, Bounds},
    explore::{RunMode, run},
    observer::{Property, WatchedProperties},
    profile::Profile,
    seen::SituationCounts,
};
use rustix::time::{ClockId, clock_gettime};

struct Arguments {
    free_words: Vec<String>,
    from: u64,
    run_count: u64,
    time_limit_seconds: u32,
    mode: RunMode,
    continue_after_violation: bool,
}

fn parse_arguments() -> Result<Arguments, String> {
    let mut parsed = Arguments {
        free_words: Vec::new(),
        from: 0,
        run_count: 10_000,
        time_limit_seconds: u32::MAX,
        mode: RunMode::FULL,
        continue_after_violation: false,
    };
    let mut list = std::env::args().skip(1);
    while let Some(word) = list.next() {
        let mut value = || list.next().ok_or(format!("{word} needs a value"));
        let number = |text: String| text.parse::<u64>().map_err(|e| format!("{text}: {e}"));
        match word.as_str() {
            "--from" => parsed.from = number(value()?)?,
            "--runs" => parsed.run_count = number(value()?)?,
            "--seconds" => {
                parsed.time_limit_seconds = number(value()?)?.try_into().unwrap_or(u32::MAX)
            }
            "--no-heal" => parsed.mode.with_second_act = false,
            "--go-on" => parsed.continue_after_violation = true,
            "--only" => {
                let names = value()?;
                let named = |name| Property::from_name(name).ok_or(format!("no property {name}"));
                let list: Result<Vec<_>, _> = names.split(',').map(named).collect();
                parsed.mode.watched_properties = WatchedProperties::only(&list?);
            }
            _ => parsed.free_words.push(word),
        }
    }
    Ok(parsed)
}

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(|_| {}));
    let arguments = match parse_arguments() {
        Ok(arguments) => arguments,
        Err(message) => {
            println!("{message}");
            return ExitCode::from(2);
        }
    };
    let words: Vec<&str> = arguments.free_words.iter().map(String::as_str).collect();
    match words[..] {
        ["replay", profile, seed] => replay(profile, seed, arguments.mode),
        ["run", profile] => explore(profile, &arguments),
        ["exhaust"] => explore_exhaustively(exhaustive::small_bounds()),
        ["exhaust", "deep"] => explore_exhaustively(exhaustive::deep_bounds()),
        ["exhaust", depth] if depth.parse::<usize>().is_ok() => explore_exhaustively(
            exhaustive::small_bounds_to_depth(depth.parse().unwrap_or_default()),
        ),
        _ => {
            println!(
                "model run PROFILE|all [--from N] [--runs N] [--seconds N] [--only PROPERTY,...] \
                 [--no-heal] [--go-on]\nmodel replay PROFILE SEED\nmodel exhaust [deep|ACTIONS]"
            );
            ExitCode::from(2)
        }
    }
}

fn explore_exhaustively(list: Vec<Bounds>) -> ExitCode {
    for bounds in list {
        let started = Instant::now();
        let report = bounds.explore();
        println!("{report:?} {:.1} s", started.elapsed().as_secs_f64());
    }
    ExitCode::SUCCESS
}

fn replay(profile: &str, seed: &str, mode: RunMode) -> ExitCode {
    let (Some(profile), Ok(seed)) = (Profile::from_name(profile), seed.parse()) else {
        println!("no such profile, or not a seed");
        return ExitCode::from(2);
    };
    let outcome = run(profile, seed, RunMode { record_trace: true, ..mode });
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
        name => Profile::from_name(name).into_iter().collect(),
    };
    let started = cpu_seconds();
    let (mut runs, mut events, mut chosen, mut healed) = (0u64, 0u64, 0u64, 0u64);
    let (mut leased, mut seen) = (0, SituationCounts::default());
    let mut eras = [0u64; 6];
    let mut found = false;
    'seeds: for seed in arguments.from..arguments.from.saturating_add(arguments.run_count) {
        for profile in &profiles {
            if cpu_seconds() - started >= f64::from(arguments.time_limit_seconds) {
                break 'seeds;
            }
            let outcome = run(*profile, seed, arguments.mode);
            runs += 1;
            events += outcome.first_act_events as u64;
            chosen += outcome.chosen_slots;
            leased += outcome.lease_reads;
            seen = seen.sum(outcome.situations);
            healed += u64::from(outcome.second_act_completed);
            eras[(outcome.final_era as usize).min(5)] += 1;
            if let Some(violation) = outcome.violation {
                println!(
                    "{violation}\n  run {runs}, {:.1} s; replay: model replay {} {seed}",
                    cpu_seconds() - started,
                    profile.name()
                );
                found = true;
                if !arguments.continue_after_violation {
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
