//! A TLC run and its result.

use std::{
    fs::{self, File},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::{
    bounds::{CheckSize, TlcCheck},
    tools::TlaTools,
};
use crate::shell::Failed;

/// Timeout for small bounds, which normally take far less.
const SMALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval at which a run is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TlcOutcome {
    /// All states within the bounds were explored without a violation.
    Holds { states: u64 },
    /// A state violates this invariant. It is the `depth`-th state of the counterexample.
    Broken { invariant: String, depth: usize, output: String },
    /// Any other failure, such as an unreadable module or too little memory.
    Failed { output: String },
}

/// Runs a check. TLC writes its output to `place`, which no other check uses, and also looks for
/// modules there.
pub(super) fn run(
    tools: &TlaTools,
    modules: &Path,
    check: &TlcCheck,
    place: &Path,
) -> Result<TlcOutcome, Failed> {
    fs::create_dir_all(place)?;
    let bounds = place.join(format!("{}.cfg", check.module));
    fs::write(&bounds, &check.text)?;
    let mut java = Command::new("java");
    // Recursive definitions, for example over the slots of a trace, need a deep stack.
    java.args(["-Xmx2g", "-Xss64m", "-XX:+UseSerialGC"]);
    java.arg(format!("-DTLA-Library={}", place.display()));
    if check.size == CheckSize::Small {
        // The process lives only for seconds, so skip the optimising compiler.
        java.arg("-XX:TieredStopAtLevel=1");
    }
    java.arg("-cp").arg(&tools.jar_path);
    java.args(["tlc2.TLC", "-workers", "1", "-cleanup"]);
    java.arg("-metadir").arg(place.join("states"));
    java.arg("-config").arg(&bounds);
    java.arg(format!("{}.tla", check.module));
    let file = place.join("said");
    java.current_dir(modules).stdin(Stdio::null());
    java.stdout(File::create(&file)?).stderr(Stdio::inherit());
    let mut child = java.spawn()?;
    let begin = Instant::now();
    let in_time = loop {
        if child.try_wait()?.is_some() {
            break true;
        }
        if check.size == CheckSize::Small && begin.elapsed() > SMALL_TIMEOUT {
            child.kill()?;
            child.wait()?;
            break false;
        }
        thread::sleep(POLL_INTERVAL);
    };
    let _ = fs::remove_dir_all(place.join("states"));
    if !in_time {
        let seconds = SMALL_TIMEOUT.as_secs();
        return Err(Failed(format!("not done after {seconds} s: smaller bounds are needed")));
    }
    Ok(parse_outcome(fs::read_to_string(&file)?))
}

fn parse_outcome(said: String) -> TlcOutcome {
    let word = |line: &str, at: usize| line.split(' ').nth(at).map(str::to_owned);
    if said.contains("Model checking completed. No error has been found.") {
        let line = said.lines().rfind(|line| line.contains(" distinct states found"));
        let states = line.and_then(|line| word(line, 3)?.parse().ok());
        return TlcOutcome::Holds { states: states.unwrap_or(0) };
    }
    let broken = said.lines().find_map(|line| {
        let name = line.strip_prefix("Error: Invariant ")?;
        name.split_once(" is violated").map(|(name, _)| name.to_owned())
    });
    match broken {
        Some(invariant) => {
            let depth = said.lines().filter(|line| line.starts_with("State ")).count();
            TlcOutcome::Broken { invariant, depth, output: said }
        }
        None => TlcOutcome::Failed { output: said },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcome_is_parsed_from_the_output() {
        let said = "12 states generated, 7 distinct states found, 0 states left on queue.\n";
        let holds = format!("Model checking completed. No error has been found.\n  more\n{said}");
        assert_eq!(parse_outcome(holds), TlcOutcome::Holds { states: 7 });
        let broken =
            "Error: Invariant One is violated.\nState 1: <Initial predicate>\nState 2: <Next>\n";
        let invariant = "One".to_owned();
        let expected = TlcOutcome::Broken { invariant, depth: 2, output: broken.to_owned() };
        assert_eq!(parse_outcome(broken.to_owned()), expected);
        let said = said.to_owned();
        assert_eq!(parse_outcome(said.clone()), TlcOutcome::Failed { output: said });
    }
}
