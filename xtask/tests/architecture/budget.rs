//! Checks `docs/budget.toml`: upper limits on the size of each group, and counts that may only
//! fall.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use crate::{circles, root};

/// Words that no model codebase uses, split so that this file does not count itself.
const BANNED: [&str; 6] = [
    concat!("no", "body"),
    concat!("some", "body"),
    concat!("every", "body"),
    concat!("who", "ever"),
    concat!("be", "side"),
    concat!("under ", "way"),
];
/// First words that a doc comment should not begin with.
const OPENINGS: [&str; 12] =
    ["What", "Whether", "Who", "Whom", "Of", "It", "They", "How", "Where", "That", "Those", "So"];
/// Groups whose lines count as measuring or proof, tests included.
const PROOF: [&str; 2] = ["proof", "xtask"];

/// Returns the tracked files with their text.
fn tracked() -> Vec<(String, String)> {
    let mut git = Command::new("git");
    let list = git.args(["ls-files", "*.rs", "*.md"]).current_dir(root()).output().unwrap();
    let names = String::from_utf8(list.stdout).unwrap();
    let text = |name: &str| fs::read_to_string(root().join(name)).ok();
    names.lines().filter_map(|name| Some((name.to_owned(), text(name)?))).collect()
}

fn group(name: &str) -> &str {
    let path = name.strip_prefix("crates/").unwrap_or(name);
    path.split('/').next().unwrap_or_default()
}

fn is_generated(name: &str) -> bool {
    name.contains("/proto/")
}

/// Returns the lines of product code and of tests. Tests in a source file come last.
pub(crate) fn lines(name: &str, text: &str) -> (u64, u64) {
    let all = text.lines().count() as u64;
    let path = Path::new(name);
    let apart = ["tests", "benches", "examples"];
    let folder = path.components().any(|part| apart.iter().any(|name| part.as_os_str() == *name));
    let file = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    if folder || file == "tests" || file.ends_with("_tests") {
        return (0, all);
    }
    let product = circles::product(text).lines().count() as u64;
    (product, all - product)
}

/// Counts doc comments, and those of them that open with a clause or a pronoun.
fn openings(text: &str) -> (u64, u64) {
    let (mut all, mut clauses, mut within) = (0, 0, false);
    for line in text.lines().map(str::trim_start) {
        let body = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
        if let (Some(body), false) = (body, within) {
            all += 1;
            let first = body.split_whitespace().next().unwrap_or_default();
            clauses += u64::from(OPENINGS.contains(&first));
        }
        within = body.is_some();
    }
    (all, clauses)
}

fn banned(text: &str) -> u64 {
    let text = text.to_lowercase();
    let whole = |at: usize, word: &str| {
        let letter = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        !letter(text[..at].chars().next_back()) && !letter(text[at + word.len()..].chars().next())
    };
    let of = |word: &&str| text.match_indices(*word).filter(|(at, _)| whole(*at, word)).count();
    BANNED.iter().map(|word| of(word) as u64).sum()
}

/// Measures every key of the budget file.
fn measured() -> BTreeMap<String, u64> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    let mut add = |key: String, count: u64| *counts.entry(key).or_default() += count;
    let (mut comments, mut clauses) = (0, 0);
    for (name, text) in tracked() {
        if name.ends_with(".md") {
            add("tree.markdown_words".to_owned(), text.split_whitespace().count() as u64);
            add("tree.banned_words_in_pages".to_owned(), banned(&text));
            continue;
        }
        if is_generated(&name) || !(name.starts_with("crates/") || name.starts_with("xtask/")) {
            continue;
        }
        add("tree.banned_words_in_code".to_owned(), banned(&text));
        let (all, unclear) = openings(&text);
        comments += all;
        clauses += unclear;
        let (product, tests) = lines(&name, &text);
        let group = group(&name);
        if PROOF.contains(&group) {
            add(format!("{group}.lines"), product + tests);
        } else {
            add(format!("{group}.product"), product);
            add(format!("{group}.tests"), tests);
        }
    }
    counts.insert("tree.clauses_per_1000_comments".to_owned(), clauses * 1000 / comments.max(1));
    let found = circles::of_all_crates();
    counts.insert("tree.circles".to_owned(), found.len() as u64);
    let largest = found.iter().map(Vec::len).max().unwrap_or_default();
    counts.insert("tree.largest_circle".to_owned(), largest as u64);
    counts
}

/// Returns budgets that are exceeded, missing, or too generous to bind.
fn faults(budget: &BTreeMap<String, u64>, measured: &BTreeMap<String, u64>) -> Vec<String> {
    let mut faults = Vec::new();
    for (key, count) in measured {
        match budget.get(key) {
            None => faults.push(format!("{key}: no budget; it is {count}")),
            Some(most) if count > most => {
                faults
                    .push(format!("{key}: {count}, the budget is {most}; raise it with a reason"));
            }
            Some(most) if count * 10 < most * 9 => {
                faults.push(format!("{key}: {count}, lower the budget of {most}"));
            }
            Some(_) => {}
        }
    }
    let gone = budget.keys().filter(|key| !measured.contains_key(*key));
    faults.extend(gone.map(|key| format!("{key}: nothing has this name")));
    faults
}

fn budget() -> BTreeMap<String, u64> {
    let text = fs::read_to_string(root().join("docs/budget.toml")).unwrap();
    let table: toml::Table = text.parse().unwrap();
    let mut flat = BTreeMap::new();
    for (group, values) in table {
        for (name, value) in values.as_table().unwrap() {
            let value = u64::try_from(value.as_integer().unwrap()).unwrap();
            flat.insert(format!("{group}.{name}"), value);
        }
    }
    flat
}

#[test]
fn the_house_stays_within_its_budget() {
    let measured = measured();
    for (key, count) in &measured {
        println!("{key:38} {count:8}");
    }
    assert_eq!(faults(&budget(), &measured), Vec::<String>::new());
}

#[test]
fn counts_are_of_whole_words_first_words_and_last_lines() {
    let text = format!("{} and {}s; {}.", BANNED[0], BANNED[4], BANNED[5]);
    assert_eq!(banned(&text), 2);
    let comments = "/// Whether it is.\n/// It goes on.\nfn a() {}\n/// Returns it.\nfn b() {}\n";
    assert_eq!(openings(comments), (2, 1));
    let source = "fn a() {}\n#[cfg(test)]\nmod tests {\n    use super::*;\n}\n";
    assert_eq!(lines("crates/a/b/src/c.rs", source), (1, 4));
    assert_eq!(lines("crates/a/b/tests/suite/c.rs", source), (0, 5));
}

#[test]
fn a_budget_binds_from_both_sides() {
    let of = |pairs: &[(&str, u64)]| pairs.iter().map(|(key, n)| ((*key).to_owned(), *n)).collect();
    let budget = of(&[("a.x", 100), ("a.y", 100), ("a.z", 100), ("a.gone", 1)]);
    let measured = of(&[("a.x", 101), ("a.y", 89), ("a.z", 90), ("a.new", 1)]);
    assert_eq!(
        faults(&budget, &measured),
        [
            "a.new: no budget; it is 1",
            "a.x: 101, the budget is 100; raise it with a reason",
            "a.y: 89, lower the budget of 100",
            "a.gone: nothing has this name"
        ]
    );
}
