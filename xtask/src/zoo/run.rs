//! Reintroduces the zoo's bugs one at a time, as mutants or by tests, and reports which check finds
//! each and how long that takes.

use std::{collections::BTreeSet, time::Instant};

use super::bugs::{self, Bug, RecordedFinding};
use crate::{
    mutants::{self, MutantFinding},
    shell::{self, Failed},
};

/// Runs the mutants and tests named in `words`, or all of them. A name is that of a bug, a mutant
/// or a test.
pub(super) fn run(words: &[&str]) -> Result<(), Failed> {
    let (flags, names): (Vec<&str>, Vec<&str>) =
        words.iter().partition(|word| word.starts_with("--"));
    let keep = match flags.as_slice() {
        [] => false,
        ["--record"] => true,
        _ => return Err(Failed(super::USAGE.to_owned())),
    };
    let bugs = bugs::read_bugs()?;
    let chosen = chosen_tests(&bugs, &names)?;
    let mut record = bugs::read_record()?;
    let mut missed = 0;
    println!("| planted or played | found by | seconds |\n|---|---|--:|");
    for (name, is_mutant) in chosen {
        let finding = match is_mutant {
            true => mutants::find_mutant(&name)?,
            false => run_test(&name)?,
        };
        let by = finding.found_by.as_deref();
        missed += usize::from(by.is_none());
        println!("| {name} | {} | {:.1} |", by.unwrap_or("**nothing**"), finding.seconds);
        if keep {
            let found = RecordedFinding {
                by: finding.found_by.filter(|_| is_mutant),
                seconds: (finding.seconds * 10.0).round() / 10.0,
                earlier: false,
            };
            record.insert(name, found);
            bugs::write_record(&record)?;
        }
    }
    if keep {
        super::write_page(&bugs, &record)?;
    }
    match missed {
        0 => Ok(()),
        missed => Err(Failed(format!("{missed} were not found, or failed"))),
    }
}

/// Returns the mutants and tests for `names`, each once. The flag is set for a mutant.
fn chosen_tests(bugs: &[Bug], names: &[&str]) -> Result<BTreeSet<(String, bool)>, Failed> {
    let mut chosen = BTreeSet::new();
    let mut known = BTreeSet::new();
    for bug in bugs {
        let is = |name: &str| names.is_empty() || names.contains(&name);
        known.insert(bug.name.as_str());
        for name in bug.mutants_and_tests() {
            known.insert(name);
            if is(&bug.name) || is(name) {
                let is_mutant = bug.mutants.iter().any(|mutant| mutant == name);
                chosen.insert((name.to_owned(), is_mutant));
            }
        }
    }
    match names.iter().find(|name| !known.contains(*name)) {
        Some(name) => Err(Failed(format!(
            "{} has no bug, mutant or test {name}; cargo xtask zoo lists them",
            bugs::BUGS_FILE
        ))),
        None => Ok(chosen),
    }
}

/// Runs a test named `crate::name`, which finds its bug if it passes.
fn run_test(name: &str) -> Result<MutantFinding, Failed> {
    let (package, function) = super::locate_test(name)?;
    let words = ["test", "--quiet", "--package", &package];
    let cargo = |more: &[&str]| shell::read_output(shell::cargo_command(&words).args(more));
    // Build first, so that building does not count.
    cargo(&["--no-run"])?;
    let begin = Instant::now();
    let said = cargo(&[function])?;
    let seconds = begin.elapsed().as_secs_f64();
    match said.lines().any(is_test_passed) {
        true => Ok(MutantFinding { found_by: Some(format!("test {function}")), seconds }),
        false => Err(Failed(format!("{name} did not run: {said}"))),
    }
}

/// Returns whether the line is `test result: ok. 1 passed; …`, with at least one test.
fn is_test_passed(line: &str) -> bool {
    let passed = line.strip_prefix("test result: ok. ");
    passed.is_some_and(|rest| !rest.starts_with("0 passed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_select_what_runs() {
        let bugs = bugs::parse_bugs(super::super::tests::SAMPLE).unwrap();
        let all = chosen_tests(&bugs, &[]).unwrap();
        assert_eq!(all.len(), 2, "{all:?}");
        let one = chosen_tests(&bugs, &["one-bug"]).unwrap();
        assert_eq!(Vec::from_iter(one), [("p2-1-vote-below-promise".to_owned(), true)]);
        let test = chosen_tests(&bugs, &["log::a_failed_write_is_final"]).unwrap();
        assert_eq!(test.len(), 1);
        let Failed(why) = chosen_tests(&bugs, &["no-such"]).unwrap_err();
        assert!(why.contains("no-such"), "{why}");
    }

    #[test]
    fn test_that_did_not_run_has_not_passed() {
        assert!(is_test_passed("test result: ok. 1 passed; 0 failed; 0 ignored"));
        assert!(!is_test_passed("test result: ok. 0 passed; 0 failed; 0 ignored"));
        assert!(!is_test_passed("test result: FAILED. 1 passed; 1 failed"));
    }
}
