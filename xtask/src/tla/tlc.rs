//! A TLC run and its result.

use std::{
    fs::{self, File},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::{
    bounds::{Check, Size},
    tools::Tools,
};
use crate::shell::Failed;

/// Timeout for small bounds, which normally take far less.
const SMALL_MAX: Duration = Duration::from_secs(60);
/// Interval at which a run is polled.
const PAUSE: Duration = Duration::from_millis(20);

/// Result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// All states within the bounds were explored without a violation.
    Holds { states: u64 },
    /// A state violates this invariant. It is the `depth`-th state of the counterexample.
    Broken { invariant: String, depth: usize, said: String },
    /// Any other failure, such as an unreadable module or too little memory.
    Other { said: String },
}

/// Runs a check. TLC writes its output to `place`, which no other check uses, and also looks for
/// modules there.
pub(super) fn run(
    tools: &Tools,
    modules: &Path,
    check: &Check,
    place: &Path,
) -> Result<Outcome, Failed> {
    fs::create_dir_all(place)?;
    let bounds = place.join(format!("{}.cfg", check.module));
    fs::write(&bounds, &check.text)?;
    let mut java = Command::new("java");
    // Recursive definitions, for example over the slots of a trace, need a deep stack.
    java.args(["-Xmx2g", "-Xss64m", "-XX:+UseSerialGC"]);
    java.arg(format!("-DTLA-Library={}", place.display()));
    if check.size == Size::Small {
        // The process lives only for seconds, so skip the optimising compiler.
        java.arg("-XX:TieredStopAtLevel=1");
    }
    java.arg("-cp").arg(&tools.jar);
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
        if check.size == Size::Small && begin.elapsed() > SMALL_MAX {
            child.kill()?;
            child.wait()?;
            break false;
        }
        thread::sleep(PAUSE);
    };
    let _ = fs::remove_dir_all(place.join("states"));
    if !in_time {
        let seconds = SMALL_MAX.as_secs();
        return Err(Failed(format!("not done after {seconds} s: smaller bounds are needed")));
    }
    Ok(outcome(fs::read_to_string(&file)?))
}

fn outcome(said: String) -> Outcome {
    let word = |line: &str, at: usize| line.split(' ').nth(at).map(str::to_owned);
    if said.contains("Model checking completed. No error has been found.") {
        let line = said.lines().rfind(|line| line.contains(" distinct states found"));
        let states = line.and_then(|line| word(line, 3)?.parse().ok());
        return Outcome::Holds { states: states.unwrap_or(0) };
    }
    let broken = said.lines().find_map(|line| {
        let name = line.strip_prefix("Error: Invariant ")?;
        name.split_once(" is violated").map(|(name, _)| name.to_owned())
    });
    match broken {
        Some(invariant) => {
            let depth = said.lines().filter(|line| line.starts_with("State ")).count();
            Outcome::Broken { invariant, depth, said }
        }
        None => Outcome::Other { said },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcome_is_parsed_from_the_output() {
        let said = "12 states generated, 7 distinct states found, 0 states left on queue.\n";
        let holds = format!("Model checking completed. No error has been found.\n  more\n{said}");
        assert_eq!(outcome(holds), Outcome::Holds { states: 7 });
        let broken =
            "Error: Invariant One is violated.\nState 1: <Initial predicate>\nState 2: <Next>\n";
        let invariant = "One".to_owned();
        let expected = Outcome::Broken { invariant, depth: 2, said: broken.to_owned() };
        assert_eq!(outcome(broken.to_owned()), expected);
        let said = said.to_owned();
        assert_eq!(outcome(said.clone()), Outcome::Other { said });
    }
}
