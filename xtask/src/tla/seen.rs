//! Checks that the specification allows the steps that nodes took in the simulator.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
    time::Instant,
};

use serde_json::{Value as Json, json};

use super::{
    MODULES_FOLDER,
    bounds::{CheckSize, ExpectedResult, TlcCheck},
    tlc::{self, TlcOutcome},
    tools::TlaTools,
    trace::{self, CheckableTrace},
};
use crate::shell::{
    Failed, build_folder, profile_arguments, program_path, run_cargo, workspace_root,
};

/// Number of events per seed, as in `cargo xtask hunt`.
const EVENTS_PER_SEED: &str = "20000";
/// Change of a trace line; `None` removes it.
type LineChange = fn(Json) -> Option<Json>;
/// Changes applied to all lines of a kind. A trace must be refused after each of them.
const ALTERATIONS: [(&str, &str, LineChange); 5] = [
    ("round", "without any", remove_step),
    ("promise", "without any", remove_step),
    ("vote", "without any", remove_step),
    // The owner's own vote may come first; it then also stands for its proposal.
    ("proposes", "with another value in each", change_value),
    ("answers", "with a vote that was never cast in each", add_vote),
];
/// Number of traces per run of TLC.
const TRACES_PER_RUN: usize = 16;
const TLC_CONFIG: &str = "SPECIFICATION Spec\nCHECK_DEADLOCK FALSE";

/// Checks traces in files.
pub(super) fn check_files(names: &[&str]) -> Result<(), Failed> {
    let Some(tools) = TlaTools::get()? else {
        return Ok(());
    };
    let mut traces = Vec::new();
    for name in names {
        let text = fs::read_to_string(name).map_err(|error| Failed(format!("{name}: {error}")))?;
        match trace::parse_trace(&text)? {
            Ok(trace) => traces.push(((*name).to_owned(), trace, text)),
            Err(why) => return Err(Failed(format!("{name} cannot be checked: {why}"))),
        }
    }
    check_traces(&tools, &traces)
}

/// Runs the simulator for a number of seeds and checks the traces.
pub(super) fn check_seeds(count: &str, from: &str) -> Result<(), Failed> {
    let number = |word: &str| word.parse::<u64>().map_err(|_| Failed(super::USAGE.to_owned()));
    let (count, from) = (number(count)?, number(from)?);
    let Some(tools) = TlaTools::get()? else {
        return Ok(());
    };
    run_cargo(
        &[&["build", "--quiet", "-p", "quorate-sim", "--example", "steps"], profile_arguments()]
            .concat(),
    )?;
    let simulator = program_path("examples/steps");
    let (mut traces, mut passed_over, mut steps, mut checked) = (Vec::new(), 0, 0, 0);
    let mut longest: Option<(String, u64, String)> = None;
    let begin = Instant::now();
    for seed in from..from.saturating_add(count) {
        let output = Command::new(&simulator)
            .args([&seed.to_string(), EVENTS_PER_SEED])
            .stdin(Stdio::null())
            .output()?;
        if !output.status.success() {
            return Err(Failed(format!("the simulator, seed {seed}: {}", output.status)));
        }
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        match trace::parse_trace(&text)? {
            Ok(trace) => {
                steps += trace.step_count;
                checked += 1;
                if longest.as_ref().is_none_or(|(_, most, _)| *most < trace.step_count) {
                    longest = Some((format!("seed-{seed}"), trace.step_count, text.clone()));
                }
                traces.push((format!("seed-{seed}"), trace, text));
            }
            // [class-1] These nodes store their state in memory, where it cannot be read.
            Err(_) => passed_over += 1,
        }
        if traces.len() == TRACES_PER_RUN {
            check_traces(&tools, &traces)?;
            traces.clear();
        }
    }
    check_traces(&tools, &traces)?;
    if let Some((name, _, text)) = &longest {
        check_altered_refused(&tools, name, text)?;
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!(
        "{checked} traces, {steps} steps, {passed_over} of volatile groups passed over, {seconds:.1} s"
    );
    Ok(())
}

/// Checks all traces in one run of TLC, and one by one if some step is not allowed.
fn check_traces(
    tools: &TlaTools,
    traces: &[(String, CheckableTrace, String)],
) -> Result<(), Failed> {
    let begin = Instant::now();
    let names: Vec<&str> = traces.iter().map(|(name, ..)| name.as_str()).collect();
    let all: Vec<&CheckableTrace> = traces.iter().map(|(_, trace, _)| trace).collect();
    let wanted: u64 = all.iter().map(|trace| trace.step_count + 1).sum();
    if names.is_empty() || count_states(tools, &all)? == wanted {
        let (seconds, names) = (begin.elapsed().as_secs_f64(), names.join(" "));
        println!("{seconds:>6.1} s  allowed, {wanted} states: {names}");
        return Ok(());
    }
    for (name, trace, text) in traces {
        let taken = count_states(tools, &[trace])?;
        if taken <= trace.step_count {
            let path = work_folder().join("refused.jsonl");
            fs::write(&path, text)?;
            let (line, at) = first_refused_line(text, taken);
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
fn check_altered_refused(tools: &TlaTools, name: &str, text: &str) -> Result<(), Failed> {
    for (kind, how, change) in ALTERATIONS {
        let Some(spoiled) = alter_trace(text, kind, change) else {
            return Err(Failed(format!("{name} has no {kind}: simulate more seeds")));
        };
        let spoiled = trace::parse_trace(&spoiled)?.map_err(|why| Failed(why.to_owned()))?;
        let taken = count_states(tools, &[&spoiled])?;
        if taken > spoiled.step_count {
            return Err(Failed(format!("{name} {how} {kind} is allowed, too")));
        }
        println!("{how} {kind}, {name} is refused at line {}", taken + 1);
    }
    Ok(())
}

/// Returns a trace with each line of a kind changed; `None` if there is no such line.
fn alter_trace(text: &str, kind: &str, change: LineChange) -> Option<String> {
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

fn remove_step(_: Json) -> Option<Json> {
    None
}

fn change_value(mut step: Json) -> Option<Json> {
    step["value"] = json!("another");
    Some(step)
}

fn add_vote(mut step: Json) -> Option<Json> {
    let from = step["from"].as_u64().max(step["floor"].as_u64())?;
    let vote = json!({"ballot": [0, 0, 0], "from": from, "to": from + 1, "value": "another"});
    step["extents"].as_array_mut()?.push(vote);
    Some(step)
}

fn work_folder() -> PathBuf {
    build_folder().join("tla").join("trace")
}

/// Returns the number of states found by TLC. A trace has only one continuation, so this is the
/// number of allowed steps, plus one per trace.
fn count_states(tools: &TlaTools, traces: &[&CheckableTrace]) -> Result<u64, Failed> {
    fs::create_dir_all(work_folder())?;
    fs::write(work_folder().join("Recorded.tla"), trace::render_module(traces))?;
    let check = TlcCheck {
        module: "Trace".to_owned(),
        name: "Trace".to_owned(),
        omitted_rule: None,
        size: CheckSize::Large,
        expected: ExpectedResult::Holds,
        text: TLC_CONFIG.to_owned(),
    };
    match tlc::run(tools, &workspace_root().join(MODULES_FOLDER), &check, &work_folder())? {
        TlcOutcome::Holds { states } => Ok(states),
        TlcOutcome::Broken { output: said, .. } | TlcOutcome::Failed { output: said } => {
            Err(Failed(format!("TLC said:\n{said}")))
        }
    }
}

/// Returns the first line that was not allowed, with its number. The first line of a trace founds
/// the group and has no state.
fn first_refused_line(text: &str, states: u64) -> (&str, usize) {
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
        let lines = |kind, change| alter_trace(text, kind, change).map(|text| text.lines().count());
        assert_eq!(lines("round", remove_step), Some(2));
        assert_eq!(lines("vote", remove_step), None);
        let bent = alter_trace(text, "proposes", change_value).unwrap();
        assert!(bent.contains(r#""value":"another""#) && !bent.contains(r#""x""#), "{bent}");
        let more = alter_trace(text, "answers", add_vote).unwrap();
        assert!(more.contains(r#""extents":[{"ballot":[0,0,0],"from":5,"to":6"#), "{more}");
    }

    #[test]
    fn refused_line_is_found() {
        // One initial state, and one after the first step.
        assert_eq!(first_refused_line("founds\nfirst\nsecond", 2), ("second", 3));
    }
}
