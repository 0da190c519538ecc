//! Checks the TLA+ specification (`docs/spec/tla`) with TLC: each module within its bounds, and
//! again without each of its rules, which must break an invariant.

mod bounds;
mod seen;
mod tlc;
mod tools;
mod trace;

use std::{
    collections::BTreeSet,
    fs,
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use bounds::{CheckSize, ExpectedResult, TlcCheck};
use tlc::TlcOutcome;
use tools::TlaTools;

use crate::shell::{Failed, build_folder, workspace_root};

/// Folder of the modules.
const MODULES_FOLDER: &str = "docs/spec/tla";
const USAGE: &str = "tla [--large] [MODULE…], tla --trace FILE…, or tla --seeds COUNT [FROM]";

/// Checks all modules, or the named ones.
pub(crate) fn run(words: &[&str]) -> Result<(), Failed> {
    match words {
        ["--trace", files @ ..] if !files.is_empty() => return seen::check_files(files),
        ["--seeds", count] => return seen::check_seeds(count, "1"),
        ["--seeds", count, from] => return seen::check_seeds(count, from),
        _ => {}
    }
    let (flags, names): (Vec<&str>, Vec<&str>) =
        words.iter().partition(|word| word.starts_with("--"));
    let size = match flags.as_slice() {
        [] => CheckSize::Small,
        ["--large"] => CheckSize::Large,
        _ => return Err(Failed(USAGE.to_owned())),
    };
    let modules = bounded_modules()?;
    if let Some(name) = names.iter().find(|name| !modules.contains(**name)) {
        let all: Vec<&str> = modules.iter().map(String::as_str).collect();
        return Err(Failed(format!("no module is called {name}, but {}", all.join(", "))));
    }
    let mut checks = Vec::new();
    for module in &modules {
        if names.is_empty() || names.contains(&module.as_str()) {
            checks.extend(bounds::parse_checks(module, &text(&format!("{module}.cfg"))?)?);
        }
    }
    checks.retain(|check| check.size == size);
    match TlaTools::get()? {
        Some(tools) => run_checks(&tools, checks),
        None => Ok(()),
    }
}

/// Returns all modules that have bounds.
fn bounded_modules() -> Result<BTreeSet<String>, Failed> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(workspace_root().join(MODULES_FOLDER))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        names.extend(name.strip_suffix(".cfg").map(str::to_owned));
    }
    Ok(names)
}

fn text(name: &str) -> Result<String, Failed> {
    let path = workspace_root().join(MODULES_FOLDER).join(name);
    fs::read_to_string(&path).map_err(|error| Failed(format!("{}: {error}", path.display())))
}

/// Runs all checks, one per processor, and reports their results.
fn run_checks(tools: &TlaTools, checks: Vec<TlcCheck>) -> Result<(), Failed> {
    let begin = Instant::now();
    let count = checks.len();
    let queue = Mutex::new(checks.into_iter().enumerate());
    let wrong = Mutex::new(0);
    let next = || queue.lock().ok()?.next();
    let processors = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..processors.min(count) {
            scope.spawn(|| {
                while let Some((number, check)) = next() {
                    if !run_check(tools, number, &check)
                        && let Ok(mut wrong) = wrong.lock()
                    {
                        *wrong += 1;
                    }
                }
            });
        }
    });
    println!("{count} checks in {:.1} s", begin.elapsed().as_secs_f64());
    match wrong.into_inner() {
        Ok(0) => Ok(()),
        wrong => Err(Failed(format!("{} went otherwise than expected", wrong.unwrap_or(count)))),
    }
}

/// Runs one check. Returns whether it had the expected result.
fn run_check(tools: &TlaTools, number: usize, check: &TlcCheck) -> bool {
    let begin = Instant::now();
    let place = build_folder().join("tla").join(number.to_string());
    let outcome = tlc::run(tools, &workspace_root().join(MODULES_FOLDER), check, &place);
    let line = format_line(check, &outcome, begin.elapsed());
    match (&check.expected, &outcome) {
        (ExpectedResult::Holds, Ok(TlcOutcome::Holds { .. })) => println!("{line}"),
        (ExpectedResult::Breaks(wanted), Ok(TlcOutcome::Broken { invariant, .. }))
            if wanted == invariant =>
        {
            println!("{line}");
        }
        (_, Ok(TlcOutcome::Broken { output: said, .. } | TlcOutcome::Failed { output: said })) => {
            println!("{line}\n{said}");
            return false;
        }
        (_, Err(Failed(why))) => {
            println!("{line}\n{why}");
            return false;
        }
        (ExpectedResult::Breaks(_), Ok(TlcOutcome::Holds { .. })) => {
            println!("{line}");
            return false;
        }
    }
    true
}

fn format_line(check: &TlcCheck, outcome: &Result<TlcOutcome, Failed>, time: Duration) -> String {
    let came = match outcome {
        Ok(TlcOutcome::Holds { states }) => format!("holds, {states} states"),
        Ok(TlcOutcome::Broken { invariant, depth, .. }) => {
            format!("breaks {invariant}, step {depth}")
        }
        Ok(TlcOutcome::Failed { .. }) | Err(_) => "FAILED".to_owned(),
    };
    let wanted = match (&check.expected, outcome) {
        (ExpectedResult::Breaks(invariant), Ok(TlcOutcome::Holds { .. })) => {
            format!(", NOT FOUND: {invariant} should break")
        }
        _ => String::new(),
    };
    format!("{:>6.1} s  {:<34} {came}{wanted}", time.as_secs_f64(), check.name)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, path::PathBuf};

    use super::*;

    /// Every rule that a module can leave out is left out by a check of the module or of one that
    /// extends it, and no check leaves out an unknown rule.
    #[test]
    fn each_rule_that_can_be_omitted_has_a_check() {
        let sources = sources();
        let of = |module: &str| {
            let found = sources.iter().find(|(name, _)| name == module);
            found.map_or("", |(_, text)| text.as_str())
        };
        let builds_on = |module: &str| {
            let list = of(module).lines().find_map(|line| line.strip_prefix("EXTENDS "));
            let names = list.unwrap_or_default().split(", ").map(str::to_owned);
            names.collect::<BTreeSet<String>>()
        };
        let modules = bounded_modules().unwrap();
        let mut left_out = BTreeMap::new();
        for module in &modules {
            let checks =
                bounds::parse_checks(module, &text(&format!("{module}.cfg")).unwrap()).unwrap();
            let rules = checks.into_iter().filter_map(|check| check.omitted_rule);
            left_out.insert(module, rules.collect::<BTreeSet<String>>());
        }
        for module in &modules {
            let own = rules(of(module));
            assert!(!own.is_empty(), "{module}: nothing can be left out");
            let mut known = own.clone();
            for base in builds_on(module) {
                known.extend(rules(of(&base)));
            }
            let unknown: Vec<_> = left_out[module].difference(&known).collect();
            assert!(unknown.is_empty(), "{module}.cfg leaves out {unknown:?}, which is not known");
            let above = modules.iter().filter(|above| builds_on(above).contains(module));
            let found: BTreeSet<String> =
                above.chain([module]).flat_map(|name| left_out[name].clone()).collect();
            let kept: Vec<_> = own.difference(&found).collect();
            assert!(kept.is_empty(), "{module}: no check leaves out {kept:?}");
        }
    }

    /// Returns the text of all modules, by name.
    fn sources() -> Vec<(String, String)> {
        let files = fs::read_dir(workspace_root().join(MODULES_FOLDER)).unwrap();
        let paths = files.map(|entry| entry.unwrap().path());
        let paths = paths.filter(|path| path.extension().is_some_and(|kind| kind == "tla"));
        let name = |path: &PathBuf| path.file_stem().unwrap().to_string_lossy().into_owned();
        paths.map(|path| (name(&path), fs::read_to_string(&path).unwrap())).collect()
    }

    fn rules(text: &str) -> BTreeSet<String> {
        let parts = text.split("Keeps(\"").skip(1);
        parts.filter_map(|part| part.split_once('"').map(|(rule, _)| rule.to_owned())).collect()
    }
}
