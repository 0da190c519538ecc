//! Rules of the protocol book that no code, or no test, speaks of: a report, not a gate.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use crate::shell::{Failed, root};

/// Runs the task.
pub(crate) fn run() -> Result<(), Failed> {
    let root = root();
    let rules = rules(&fs::read_to_string(root.join("docs/spec/protocol.md"))?);
    let mut cited: BTreeMap<String, Places> = BTreeMap::new();
    let mut files = Vec::new();
    sources(&root.join("crates"), &mut files)?;
    for file in files {
        count(&file, &fs::read_to_string(&file)?, &rules, &mut cited);
    }
    let none = Places::default();
    let places = |rule: &String| cited.get(rule).unwrap_or(&none);
    report(
        "without code or test",
        rules.iter().filter(|rule| places(rule) == &none),
    );
    report(
        "without a test",
        rules
            .iter()
            .filter(|rule| places(rule).code && !places(rule).test),
    );
    println!("{} rules", rules.len());
    Ok(())
}

/// Where a rule is cited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Places {
    code: bool,
    test: bool,
}

fn report<'a>(what: &str, rules: impl Iterator<Item = &'a String>) {
    let rules: Vec<&str> = rules.map(String::as_str).collect();
    println!("{what} ({}): {}", rules.len(), rules.join(" "));
}

/// A rule begins a list item with its id in brackets.
fn rules(text: &str) -> BTreeSet<String> {
    let id = |line: &str| {
        let (id, _) = line.trim_start().strip_prefix("- [")?.split_once(']')?;
        let (name, number) = id.rsplit_once('-')?;
        let plain = name.chars().all(|letter| letter.is_ascii_alphanumeric());
        (plain && number.chars().all(|digit| digit.is_ascii_digit())).then(|| id.to_owned())
    };
    text.lines().filter_map(id).collect()
}

fn sources(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), Failed> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            sources(&path, files)?;
        } else if path
            .extension()
            .is_some_and(|ending| ending == "rs" || ending == "txt" || ending == "toml")
        {
            files.push(path);
        }
    }
    Ok(())
}

/// A file of tests, or what stands behind `#[cfg(test)]`, is test; so is a mutant, which lists the
/// rules that it takes out.
fn count(file: &Path, text: &str, rules: &BTreeSet<String>, cited: &mut BTreeMap<String, Places>) {
    let name = file.to_string_lossy();
    let all_tests = [
        "/tests/",
        "/testdata/",
        "_tests.rs",
        "quorate-sim/",
        "quorate-model/",
    ];
    let mut test = all_tests.iter().any(|part| name.contains(part));
    for line in text.lines() {
        test |= line.trim() == "#[cfg(test)]";
        if let Some(list) = line.strip_prefix("rules = [") {
            for id in list.split('"').filter(|id| rules.contains(*id)) {
                cited.entry(id.to_owned()).or_default().test = true;
            }
        }
        for part in line.split('[').skip(1) {
            let Some((id, _)) = part.split_once(']') else {
                continue;
            };
            if rules.contains(id) {
                let places = cited.entry(id.to_owned()).or_default();
                places.test |= test;
                places.code |= !test;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_found_with_their_places() {
        let rules =
            rules("- [disk-1] The log…\n- [p1-6]† x\n- [see](a.md)\ntext [disk-2] inside\n");
        assert_eq!(rules.iter().collect::<Vec<_>>(), ["disk-1", "p1-6"]);
        let mut cited = BTreeMap::new();
        let text = "// [p1-6] why\n#[cfg(test)]\nmod tests { // [disk-1]\n}";
        count(Path::new("crates/a/src/b.rs"), text, &rules, &mut cited);
        let mutant = "rules = [\"p1-6\", \"none-1\"]";
        count(
            Path::new("crates/a/mutants/b.toml"),
            mutant,
            &rules,
            &mut cited,
        );
        assert_eq!(
            cited["p1-6"],
            Places {
                code: true,
                test: true
            }
        );
        assert_eq!(
            cited["disk-1"],
            Places {
                code: false,
                test: true
            }
        );
    }
}
