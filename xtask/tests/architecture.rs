//! A newcomer's walk: what the tables of ARCHITECTURE.md name is there, and each story is short.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Tables that follow something through the code, by their headings.
const STORIES: [&str; 2] = ["## Life of a command", "## Life of a peer's frame"];
/// A newcomer opens at most as many files to follow one.
const FILES_MAX: usize = 15;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// What a section's rows name in their third column: files with the functions behind each.
fn named(page: &str, heading: &str) -> Vec<(String, Vec<String>)> {
    let section = page.split("\n## ").find(|section| {
        let title = heading.trim_start_matches("## ");
        section.lines().next() == Some(title)
    });
    let section = section.unwrap_or_else(|| panic!("no section {heading}"));
    let mut files: Vec<(String, Vec<String>)> = Vec::new();
    for row in section.lines().filter(|line| line.starts_with('|')) {
        let Some(places) = row.split('|').nth(3) else {
            continue;
        };
        for name in places.split('`').skip(1).step_by(2) {
            match files.last_mut() {
                _ if name.ends_with(".rs") => files.push((name.to_owned(), Vec::new())),
                Some((_, functions)) => functions.push(name.to_owned()),
                None => panic!("{heading}: {name} belongs to no file"),
            }
        }
    }
    files
}

/// What a story names and the code has not.
fn faults(root: &Path, story: &[(String, Vec<String>)]) -> Vec<String> {
    let mut faults = Vec::new();
    for (file, functions) in story {
        let Ok(text) = fs::read_to_string(root.join("crates").join(file)) else {
            faults.push(format!("there is no crates/{file}"));
            continue;
        };
        let missing = functions.iter().filter(|name| {
            !text.contains(&format!("fn {name}(")) && !text.contains(&format!("fn {name}<"))
        });
        faults.extend(missing.map(|name| format!("crates/{file} has no fn {name}")));
    }
    let distinct: BTreeSet<&String> = story.iter().map(|(file, _)| file).collect();
    if distinct.len() > FILES_MAX {
        faults.push(format!("{} files, more than {FILES_MAX}", distinct.len()));
    }
    faults
}

#[test]
fn stories_name_what_exists_and_are_short() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    for heading in STORIES {
        let story = named(&page, heading);
        assert!(story.len() > 4, "{heading} names too little to follow");
        let functions = story.iter().filter(|(_, functions)| !functions.is_empty());
        assert!(functions.count() > 4, "{heading} names too few functions");
        assert_eq!(faults(&root(), &story), Vec::<String>::new(), "{heading}");
    }
}

/// The table of crates has a row for each crate, and for nothing else.
#[test]
fn every_crate_has_its_row() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let section = page.split("\n## The crates").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows: BTreeSet<String> = section
        .lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .filter_map(|row| row.split('`').next())
        .map(str::to_owned)
        .collect();
    let groups = fs::read_dir(root().join("crates")).unwrap();
    let mut crates: BTreeSet<String> = groups
        .flat_map(|group| fs::read_dir(group.unwrap().path()).unwrap())
        .filter_map(|entry| fs::read_to_string(entry.unwrap().path().join("Cargo.toml")).ok())
        .map(|manifest| {
            let name = manifest
                .lines()
                .find_map(|line| line.strip_prefix("name = "));
            name.unwrap().trim_matches('"').to_owned()
        })
        .collect();
    crates.insert("xtask".to_owned());
    assert_eq!(rows, crates);
}

#[test]
fn what_is_not_there_is_seen() {
    let page = "# T\n\n## A\n\n| # | What | Where |\n|--:|---|---|\n\
                | 1 | x | `quorate-core/src/slot.rs` (`plus`, `nope`), `nowhere/src/a.rs` |\n";
    let story = named(page, "## A");
    assert_eq!(
        faults(&root(), &story),
        [
            "crates/protocol/core/src/slot.rs has no fn nope",
            "there is no crates/nowhere/src/a.rs"
        ]
    );
    let long: Vec<_> = (0..=FILES_MAX)
        .map(|number| (format!("none/{number}.rs"), Vec::new()))
        .collect();
    assert_eq!(
        faults(&root(), &long).last().unwrap(),
        "16 files, more than 15"
    );
}
