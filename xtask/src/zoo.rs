//! The zoo: bugs of other systems, listed in `docs/zoo.toml`, and the checks that find each of them
//! here.

mod bugs;
mod page;
mod run;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use bugs::{Bug, FindingRecord};
use page::PAGE_PATH;

use crate::{
    mutants::MutantRunner,
    shell::{Failed, workspace_root},
    spec,
};

const USAGE: &str = "zoo [--json], or zoo run [--record] [NAME…]";

/// Runs `cargo xtask zoo`.
pub(crate) fn run(words: &[&str]) -> Result<(), Failed> {
    match words {
        ["run", rest @ ..] => run::run(rest),
        [] | ["--json"] => {
            let (bugs, record) = (bugs::read_bugs()?, bugs::read_record()?);
            let faults = list_faults(&bugs, &record)?;
            if words.is_empty() {
                write_page(&bugs, &record)?;
                print!("{}", page::render_page(&bugs, &record));
            } else {
                let all = serde_json::json!({ "bugs": bugs, "found": record });
                println!("{all:#}");
            }
            faults.iter().for_each(|fault| eprintln!("{fault}"));
            match faults.len() {
                0 => Ok(()),
                count => Err(Failed(format!("{count} faults in {}", bugs::BUGS_FILE))),
            }
        }
        _ => Err(Failed(USAGE.to_owned())),
    }
}

/// Writes the page of the zoo.
fn write_page(bugs: &[Bug], record: &FindingRecord) -> Result<(), Failed> {
    fs::write(workspace_root().join(PAGE_PATH), page::render_page(bugs, record))?;
    Ok(())
}

/// Lists the faults in the entries.
fn list_faults(bugs: &[Bug], record: &FindingRecord) -> Result<Vec<String>, Failed> {
    let rules = spec::read_rules()?;
    let (mut names, mut runs) = (BTreeSet::new(), BTreeSet::new());
    let mut faults = Vec::new();
    for bug in bugs {
        let mut fault = |what: String| faults.push(format!("{}: {what}", bug.name));
        if !names.insert(&bug.name) {
            fault("two bugs have this name".to_owned());
        }
        if !bug.link.starts_with("https://") {
            fault(format!("{} is no link", bug.link));
        }
        for text in [&bug.what, &bug.here] {
            if !text.ends_with('.') || text.contains(['|', '\n', '[']) {
                fault(format!("no sentence for a table: {text}"));
            }
        }
        for rule in bug.rules.iter().filter(|rule| !rules.contains(*rule)) {
            fault(format!("{rule} is no rule"));
        }
        for mutant in &bug.mutants {
            if MutantRunner::for_mutant(mutant).is_none() {
                fault(format!("no mutant is called {mutant}"));
            }
        }
        for test in bug.planted.iter().chain(&bug.tests) {
            match has_test(test) {
                Ok(true) => {}
                Ok(false) => fault(format!("no test is called {test}")),
                Err(Failed(why)) => fault(why),
            }
        }
        runs.extend(bug.mutants_and_tests());
    }
    let stale = record.keys().filter(|name| !runs.contains(name.as_str()));
    faults.extend(stale.map(|name| format!("{name} was found for no bug any more")));
    Ok(faults)
}

/// Returns the package and the function of a test named `crate::name`.
fn locate_test(test: &str) -> Result<(String, &str), Failed> {
    match test.split_once("::") {
        Some((package, function)) => Ok((format!("quorate-{package}"), function)),
        None => Err(Failed(format!("{test} is not CRATE::TEST"))),
    }
}

/// Returns whether the named crate has this test.
fn has_test(test: &str) -> Result<bool, Failed> {
    let (package, function) = locate_test(test)?;
    let short = package.trim_start_matches("quorate-");
    let wanted = format!("fn {function}(");
    for group in fs::read_dir(workspace_root().join("crates"))? {
        let folder = group?.path().join(short);
        if !folder.is_dir() {
            continue;
        }
        let mut files = Vec::new();
        for part in ["src", "tests"] {
            collect_sources(&folder.join(part), &mut files)?;
        }
        for file in files {
            if fs::read_to_string(file)?.contains(&wanted) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn collect_sources(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), Failed> {
    if !folder.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect_sources(&path, files)?;
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) const SAMPLE: &str = r#"
[[bug]]
name = "one-bug"
area = "votes"
system = "Vendor"
link = "https://example.org/1"
place = "issue 1"
what = "Something was lost."
here = "It is kept."
rules = ["p2-1"]
mutants = ["p2-1-vote-below-promise"]

[[bug]]
name = "other-bug"
area = "disks"
system = "Vendor"
link = "https://example.org/2"
place = "issue 2"
what = "A disk failed."
here = "It is final."
rules = ["disk-9"]
tests = ["log::a_failed_write_is_final"]
"#;

    #[test]
    fn page_is_up_to_date_with_the_rows() {
        let (bugs, record) = (bugs::read_bugs().unwrap(), bugs::read_record().unwrap());
        assert_eq!(list_faults(&bugs, &record).unwrap(), Vec::<String>::new());
        let written = fs::read_to_string(workspace_root().join(PAGE_PATH)).unwrap();
        let same = written == page::render_page(&bugs, &record);
        assert!(same, "{PAGE_PATH} is not up to date: cargo xtask zoo");
        let planted = bugs.iter().filter(|bug| bug.is_planted()).count();
        assert!(bugs.len() >= 60, "{} bugs", bugs.len());
        assert!(planted >= 40, "{planted} are planted");
    }

    fn said(text: &str) -> Vec<String> {
        list_faults(&bugs::parse_bugs(text).unwrap(), &FindingRecord::new()).unwrap()
    }

    #[test]
    fn invalid_rows_are_reported() {
        assert_eq!(said(SAMPLE), Vec::<String>::new());
        for (from, to, why) in [
            ("p2-1-vote-below-promise", "p2-1-nothing", "no mutant is called"),
            ("a_failed_write_is_final", "a_failed_write_is_fine", "no test is called"),
            ("log::", "nowhere::", "no test is called"),
            ("disk-9", "disk-99", "is no rule"),
            ("https://example.org/1", "ftp://example.org", "is no link"),
            ("was lost.", "was lost", "no sentence"),
            ("other-bug", "one-bug", "two bugs"),
        ] {
            let faults = said(&SAMPLE.replace(from, to));
            assert!(faults.len() == 1 && faults[0].contains(why), "{why}: {faults:?}");
        }
        assert!(bugs::parse_bugs("[[bug]]\nname = \"x\"").is_err());
    }

    #[test]
    fn findings_without_a_bug_are_reported() {
        let bugs = bugs::parse_bugs(SAMPLE).unwrap();
        let found = bugs::RecordedFinding { by: None, seconds: 1.0, earlier: false };
        let record = FindingRecord::from([("gone".to_owned(), found)]);
        let faults = list_faults(&bugs, &record).unwrap();
        assert_eq!(faults, ["gone was found for no bug any more"]);
    }

    #[test]
    fn page_names_the_finder_of_each_bug() {
        let bugs = bugs::parse_bugs(SAMPLE).unwrap();
        let mutant = bugs[0].mutants[0].clone();
        let found = |by: Option<&str>| bugs::RecordedFinding {
            by: by.map(str::to_owned),
            seconds: 0.25,
            earlier: false,
        };
        let none = page::render_page(&bugs, &FindingRecord::new());
        assert!(none.contains("2 bugs of 1 systems") && none.contains("1 are planted"), "{none}");
        assert!(none.contains("| `p2-1-vote-below-promise` | – |"), "{none}");
        let well = page::render_page(
            &bugs,
            &FindingRecord::from([(mutant.clone(), found(Some("explorer")))]),
        );
        assert!(well.contains("| `p2-1-vote-below-promise`: explorer | 0.2 |"), "{well}");
        let badly = page::render_page(&bugs, &FindingRecord::from([(mutant, found(None))]));
        assert!(badly.contains("**nothing** so far: `one-bug`"), "{badly}");
    }
}
