//! Checks that the specification allows the steps that nodes took in the simulator.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
    time::Instant,
};

use serde_json::{Value as Json, json};

use super::{
    FOLDER,
    bounds::{Check, Expected, Size},
    tlc::{self, Outcome},
    tools::Tools,
    trace::{self, Trace},
};
use crate::shell::{Failed, cargo, profile, program, root, target};

/// Number of events per seed, as in `cargo xtask hunt`.
const EVENTS: &str = "20000";
/// Change of a trace line; `None` removes it.
type Change = fn(Json) -> Option<Json>;
/// Changes applied to all lines of a kind. A trace must be refused after each of them.
const SPOILED: [(&str, &str, Change); 5] = [
    ("round", "without any", left_out),
    ("promise", "without any", left_out),
    ("vote", "without any", left_out),
    // The owner's own vote may come first; it then also stands for its proposal.
    ("proposes", "with another value in each", of_another_value),
    ("answers", "with a vote that was never cast in each", with_another_vote),
];
/// Number of traces per run of TLC.
const AT_ONCE: usize = 16;
const BOUNDS: &str = "SPECIFICATION Spec\nCHECK_DEADLOCK FALSE";

/// Checks traces in files.
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

/// Runs the simulator for a number of seeds and checks the traces.
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
            // [class-1] These nodes store their state in memory, where it cannot be read.
            Err(_) => passed_over += 1,
        }
        if traces.len() == AT_ONCE {
            judge(&tools, &traces)?;
            traces.clear();
        }
    }
    judge(&tools, &traces)?;
    if let Some((name, _, text)) = &longest {
        refuses_what_is_spoiled(&tools, name, text)?;
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!(
        "{checked} traces, {steps} steps, {passed_over} of volatile groups passed over, {seconds:.1} s"
    );
    Ok(())
}

/// Checks all traces in one run of TLC, and one by one if some step is not allowed.
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

/// Checks that altered traces are refused. A specification that allows everything would also accept
/// a trace without promises.
fn refuses_what_is_spoiled(tools: &Tools, name: &str, text: &str) -> Result<(), Failed> {
    for (kind, how, change) in SPOILED {
        let Some(spoiled) = spoil(text, kind, change) else {
            return Err(Failed(format!("{name} has no {kind}: simulate more seeds")));
        };
        let spoiled = trace::read(&spoiled)?.map_err(|why| Failed(why.to_owned()))?;
        let taken = states(tools, &[&spoiled])?;
        if taken > spoiled.steps {
            return Err(Failed(format!("{name} {how} {kind} is allowed, too")));
        }
        println!("{how} {kind}, {name} is refused at line {}", taken + 1);
    }
    Ok(())
}

/// Returns a trace with each line of a kind changed; `None` if there is no such line.
fn spoil(text: &str, kind: &str, change: Change) -> Option<String> {
    let begin = format!("{{\"do\":\"{kind}\"");
    let changed = |line: &str| {
        if !line.starts_with(&begin) {
            return Some(line.to_owned());
        }
        Some(change(serde_json::from_str(line).ok()?)?.to_string())
    };
    let lines = || text.lines().filter_map(changed).collect::<Vec<_>>().join("\n");
    text.contains(&begin).then(lines)
}

fn left_out(_: Json) -> Option<Json> {
    None
}

fn of_another_value(mut step: Json) -> Option<Json> {
    step["value"] = json!("another");
    Some(step)
}

fn with_another_vote(mut step: Json) -> Option<Json> {
    let from = step["from"].as_u64().max(step["floor"].as_u64())?;
    let vote = json!({"ballot": [0, 0, 0], "from": from, "to": from + 1, "value": "another"});
    step["extents"].as_array_mut()?.push(vote);
    Some(step)
}

fn place() -> PathBuf {
    target().join("tla").join("trace")
}

/// Returns the number of states found by TLC. A trace has only one continuation, so this is the
/// number of allowed steps, plus one per trace.
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

/// Returns the first line that was not allowed, with its number. The first line of a trace founds
/// the group and has no state.
fn refused(text: &str, states: u64) -> (&str, usize) {
    let at = usize::try_from(states).unwrap_or(usize::MAX);
    (text.lines().nth(at).unwrap_or_default(), at.saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_of_each_kind_is_corrupted() {
        let text = r#"{"do":"round"}
{"do":"proposes","value":"x"}
{"do":"answers","from":3,"floor":5,"extents":[]}"#;
        let lines = |kind, change| spoil(text, kind, change).map(|text| text.lines().count());
        assert_eq!(lines("round", left_out), Some(2));
        assert_eq!(lines("vote", left_out), None);
        let bent = spoil(text, "proposes", of_another_value).unwrap();
        assert!(bent.contains(r#""value":"another""#) && !bent.contains(r#""x""#), "{bent}");
        let more = spoil(text, "answers", with_another_vote).unwrap();
        assert!(more.contains(r#""extents":[{"ballot":[0,0,0],"from":5,"to":6"#), "{more}");
    }

    #[test]
    fn refused_line_is_found() {
        // One initial state, and one after the first step.
        assert_eq!(refused("founds\nfirst\nsecond", 2), ("second", 3));
    }
}
