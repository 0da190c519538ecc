//! Whether the specification allows what nodes were seen to do.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
    time::Instant,
};

use super::{
    FOLDER,
    bounds::{Check, Expected, Size},
    tlc::{self, Outcome},
    tools::Tools,
    trace::{self, Trace},
};
use crate::shell::{Failed, cargo, profile, program, root, target};

/// Events of each seed, as `cargo xtask hunt` has them.
const EVENTS: &str = "20000";
/// What a trace cannot do without: what comes later hangs on it.
const NEEDED: [&str; 4] = ["round", "promise", "proposes", "vote"];
/// Traces that TLC is given at once.
const AT_ONCE: usize = 16;
const BOUNDS: &str = "SPECIFICATION Spec\nCHECK_DEADLOCK FALSE";

/// Traces that were written to files.
pub(super) fn files(names: &[&str]) -> Result<(), Failed> {
    let Some(tools) = Tools::get()? else {
        return Ok(());
    };
    let mut traces = Vec::new();
    for name in names {
        let text = fs::read_to_string(name).map_err(|error| Failed(format!("{name}: {error}")))?;
        match trace::read(&text)? {
            Ok(trace) => traces.push(((*name).to_owned(), trace, text)),
            Err(why) => return Err(Failed(format!("{name} cannot be checked: {why}"))),
        }
    }
    judge(&tools, &traces)
}

/// Traces of seeds of the simulator, run for this.
pub(super) fn seeds(count: &str, from: &str) -> Result<(), Failed> {
    let number = |word: &str| word.parse::<u64>().map_err(|_| Failed(super::USAGE.to_owned()));
    let (count, from) = (number(count)?, number(from)?);
    let Some(tools) = Tools::get()? else {
        return Ok(());
    };
    cargo(&[&["build", "--quiet", "-p", "quorate-sim", "--example", "steps"], profile()].concat())?;
    let simulator = program("examples/steps");
    let (mut traces, mut passed_over, mut steps, mut checked) = (Vec::new(), 0, 0, 0);
    let mut longest: Option<(String, u64, String)> = None;
    let begin = Instant::now();
    for seed in from..from.saturating_add(count) {
        let output = Command::new(&simulator)
            .args([&seed.to_string(), EVENTS])
            .stdin(Stdio::null())
            .output()?;
        if !output.status.success() {
            return Err(Failed(format!("the simulator, seed {seed}: {}", output.status)));
        }
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        match trace::read(&text)? {
            Ok(trace) => {
                steps += trace.steps;
                checked += 1;
                if longest.as_ref().is_none_or(|(_, most, _)| *most < trace.steps) {
                    longest = Some((format!("seed-{seed}"), trace.steps, text.clone()));
                }
                traces.push((format!("seed-{seed}"), trace, text));
            }
            // [class-1] What its nodes hold is in memory, where nobody sees it.
            Err(_) => passed_over += 1,
        }
        if traces.len() == AT_ONCE {
            judge(&tools, &traces)?;
            traces.clear();
        }
    }
    judge(&tools, &traces)?;
    if let Some((name, _, text)) = &longest {
        misses_what_is_left_out(&tools, name, text)?;
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!(
        "{checked} traces, {steps} steps, {passed_over} of volatile groups passed over, {seconds:.1} s"
    );
    Ok(())
}

/// All of them in one run of TLC; one by one if something is not allowed.
fn judge(tools: &Tools, traces: &[(String, Trace, String)]) -> Result<(), Failed> {
    let begin = Instant::now();
    let names: Vec<&str> = traces.iter().map(|(name, ..)| name.as_str()).collect();
    let all: Vec<&Trace> = traces.iter().map(|(_, trace, _)| trace).collect();
    let wanted: u64 = all.iter().map(|trace| trace.steps + 1).sum();
    if names.is_empty() || states(tools, &all)? == wanted {
        let (seconds, names) = (begin.elapsed().as_secs_f64(), names.join(" "));
        println!("{seconds:>6.1} s  allowed, {wanted} states: {names}");
        return Ok(());
    }
    for (name, trace, text) in traces {
        let taken = states(tools, &[trace])?;
        if taken <= trace.steps {
            let path = place().join("refused.jsonl");
            fs::write(&path, text)?;
            let (line, at) = refused(text, taken);
            let path = path.display();
            return Err(Failed(format!(
                "{name}: the specification does not allow line {at}:\n{line}\nthe trace is {path}"
            )));
        }
    }
    Err(Failed("traces are not allowed together, but one by one".to_owned()))
}

/// A check that allows everything would allow a trace, too, in which nobody wrote down a promise.
fn misses_what_is_left_out(tools: &Tools, name: &str, text: &str) -> Result<(), Failed> {
    for kind in NEEDED {
        let begin = format!("{{\"do\":\"{kind}\"");
        let left: Vec<&str> = text.lines().filter(|line| !line.starts_with(&begin)).collect();
        if left.len() == text.lines().count() {
            return Err(Failed(format!("{name} has no {kind}: simulate more seeds")));
        }
        let without = trace::read(&left.join("\n"))?.map_err(|why| Failed(why.to_owned()))?;
        let taken = states(tools, &[&without])?;
        if taken > without.steps {
            return Err(Failed(format!("{name} without any {kind} is allowed, too")));
        }
        println!("without any {kind}, {name} is refused at line {}", taken + 1);
    }
    Ok(())
}

fn place() -> PathBuf {
    target().join("tla").join("trace")
}

/// How many states TLC finds: as each trace has one way on, one more than steps that are allowed.
fn states(tools: &Tools, traces: &[&Trace]) -> Result<u64, Failed> {
    fs::create_dir_all(place())?;
    fs::write(place().join("Recorded.tla"), trace::module(traces))?;
    let check = Check {
        module: "Trace".to_owned(),
        name: "Trace".to_owned(),
        mutant: None,
        size: Size::Large,
        expected: Expected::Holds,
        text: BOUNDS.to_owned(),
    };
    match tlc::run(tools, &root().join(FOLDER), &check, &place())? {
        Outcome::Holds { states } => Ok(states),
        Outcome::Broken { said, .. } | Outcome::Other { said } => {
            Err(Failed(format!("TLC said:\n{said}")))
        }
    }
}

/// The first line that was not allowed, and its number: the first line of a trace founds the group,
/// and has no state.
fn refused(text: &str, states: u64) -> (&str, usize) {
    let at = usize::try_from(states).unwrap_or(usize::MAX);
    (text.lines().nth(at).unwrap_or_default(), at.saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_found_that_was_not_allowed() {
        // One state of the beginning, one behind the first step.
        assert_eq!(refused("founds\nfirst\nsecond", 2), ("second", 3));
    }
}
