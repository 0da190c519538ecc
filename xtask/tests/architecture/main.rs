//! Checks ARCHITECTURE.md for newcomers: it names only things that exist, its stories are short,
//! and crates depend on one another in the order of its table.

#![expect(clippy::print_stdout, reason = "a test that fails shows what it measured")]
#![allow(clippy::unwrap_used, reason = "a test may fail by panic")]

mod budget;
mod circles;
mod spine;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// Headings of the tables that follow something through the code.
const STORIES: [&str; 4] = [
    "Life of a command",
    "Life of a peer's frame",
    "Life of a stream's chunk",
    "Life of a device's vote",
];
/// Maximum number of files in a story.
const FILES_MAX: usize = 15;
const GROUPS_MAX: usize = 8;
const CRATES_MAX: usize = 30;
/// Maximum number of lines of a group's README.md.
const README_LINES_MAX: usize = 20;
/// Test programs other than `suite`, by crate. They need per-process state: a certificate for admin
/// addresses, or the limit of file descriptors.
const SECOND_PROGRAMS: [(&str, &str); 3] = [
    ("crates/node/net", "descriptors"),
    ("crates/operate/cli", "tls"),
    ("crates/storage/log", "descriptors"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn page() -> String {
    fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap()
}

fn rows<'a>(page: &'a str, title: &str) -> impl Iterator<Item = &'a str> {
    let mut sections = page.split("\n## ");
    let section = sections.find(|section| section.lines().next() == Some(title));
    let section = section.unwrap_or_else(|| panic!("no section {title}"));
    section.lines().filter(|line| line.starts_with('|'))
}

/// Returns the link at the beginning of a text, `[text](target)`, and the remaining text.
fn link(text: &str) -> Option<(&str, &str, &str)> {
    let (shown, rest) = text.strip_prefix('[')?.split_once("](")?;
    let (target, rest) = rest.split_once(')')?;
    Some((shown, target, rest))
}

/// Returns the links of a story, with the functions named for each link.
fn named(page: &str, title: &str) -> Vec<(String, Vec<String>)> {
    let places = rows(page, title).filter_map(|row| row.split('|').nth(3));
    let mut files = Vec::new();
    for cell in places {
        for (at, _) in cell.match_indices('[') {
            let Some((shown, target, rest)) = link(&cell[at..]) else {
                continue;
            };
            assert_eq!(
                target.strip_prefix("crates/"),
                Some(shown),
                "a link is called what it leads to"
            );
            let behind = rest.split('[').next().unwrap_or_default();
            let functions = behind.split('`').skip(1).step_by(2);
            files.push((target.to_owned(), functions.map(str::to_owned).collect()));
        }
    }
    files
}

/// Lists the names in a story that do not exist in the code, and reports a story with too many
/// files.
fn faults(root: &Path, story: &[(String, Vec<String>)]) -> Vec<String> {
    let mut faults = Vec::new();
    for (file, functions) in story {
        let Ok(text) = fs::read_to_string(root.join(file)) else {
            faults.push(format!("there is no {file}"));
            continue;
        };
        // Functions in C files have no keyword before their name.
        let word = if file.ends_with(".rs") { "fn " } else { "" };
        let missing = functions.iter().filter(|name| {
            !text.contains(&format!("{word}{name}(")) && !text.contains(&format!("{word}{name}<"))
        });
        faults.extend(missing.map(|name| format!("{file} has no fn {name}")));
    }
    let distinct: BTreeSet<&String> = story.iter().map(|(file, _)| file).collect();
    if distinct.len() > FILES_MAX {
        faults.push(format!("{} files, more than {FILES_MAX}", distinct.len()));
    }
    faults
}

#[test]
fn stories_name_what_exists_and_are_short() {
    let page = page();
    for title in STORIES {
        let story = named(&page, title);
        assert!(story.len() > 4, "{title} names too little to follow");
        let functions = story.iter().filter(|(_, functions)| !functions.is_empty());
        assert!(functions.count() > 4, "{title} names too few functions");
        assert_eq!(faults(&root(), &story), Vec::<String>::new(), "{title}");
    }
}

/// Returns the workspace crates that a manifest depends on, and whether each is optional. Test
/// dependencies are excluded.
fn dependencies(manifest: &str) -> Vec<(String, bool)> {
    let mut section = "";
    let mut found = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line;
        }
        let counts = section.ends_with("dependencies]") && !section.ends_with("dev-dependencies]");
        let name = line.split(['.', ' ', '=']).next().unwrap_or_default();
        if counts && (name == "quorate" || name.starts_with("quorate-")) {
            found.push((name.to_owned(), line.contains("optional = true")));
        }
    }
    found
}

fn name_of(manifest: &str) -> String {
    let mut lines = manifest.lines();
    let name = lines.find_map(|line| line.strip_prefix("name = "));
    name.unwrap().trim_matches('"').to_owned()
}

/// Returns the groups in `crates/`, with the folder and manifest of each crate.
fn groups() -> BTreeMap<String, Vec<(PathBuf, String)>> {
    let mut groups = BTreeMap::new();
    for group in fs::read_dir(root().join("crates")).unwrap() {
        let group = group.unwrap();
        let folders = fs::read_dir(group.path()).unwrap();
        let folders = folders.map(|entry| entry.unwrap().path());
        let with_manifest = folders.filter_map(|folder| {
            let manifest = fs::read_to_string(folder.join("Cargo.toml")).ok()?;
            Some((folder, manifest))
        });
        let name = group.file_name().into_string().unwrap();
        groups.insert(name, with_manifest.collect());
    }
    groups
}

fn manifests() -> Vec<(PathBuf, String)> {
    groups().into_values().flatten().collect()
}

/// Returns the crates of the table with their folders, from the top.
fn table(page: &str) -> Vec<(String, String)> {
    let cells = rows(page, "Crates").filter_map(|row| row.strip_prefix("| "));
    let links = cells.filter_map(link);
    links
        .map(|(shown, target, _)| (shown.trim_matches('`').to_owned(), target.to_owned()))
        .collect()
}

/// Returns the dependencies on crates that are not above their dependents in the table.
fn upward(order: &[String], crates: &[(String, Vec<(String, bool)>)]) -> Vec<String> {
    let place = |name: &String| order.iter().position(|other| other == name);
    let mut faults = Vec::new();
    for (name, dependencies) in crates {
        for (on, _) in dependencies {
            if place(on) >= place(name) || place(on).is_none() {
                faults.push(format!("{name} stands above {on}, which it depends on"));
            }
        }
    }
    faults
}

/// Returns the dependencies on a group that is below the dependent's in the table of groups.
fn downward(
    floors: &[String],
    crates: &[(String, Vec<(String, bool)>)],
    of: &[(String, String)],
) -> Vec<String> {
    let floor = |name: &String| {
        let (_, folder) = of.iter().find(|(other, _)| other == name)?;
        let group = folder.strip_prefix("crates/")?.split('/').next()?;
        floors.iter().position(|floor| floor == group)
    };
    let mut faults = Vec::new();
    for (name, dependencies) in crates {
        // Crates outside of all groups, which are automation, may depend on any of them.
        let Some(own) = floor(name) else { continue };
        for (on, _) in dependencies {
            if floor(on).is_none_or(|other| other > own) {
                faults.push(format!("{name} depends on {on}, which is of a later floor"));
            }
        }
    }
    faults
}

/// Returns the groups in the order of their table.
fn floors(page: &str) -> Vec<String> {
    let cells = rows(page, "Groups").filter_map(|row| link(row.strip_prefix("| ")?));
    cells.map(|(shown, _, _)| shown.to_owned()).collect()
}

#[test]
fn the_table_of_crates_is_the_tree_in_order_of_dependencies() {
    let table = table(&page());
    let mut crates = Vec::new();
    let mut folders = BTreeSet::new();
    let xtask = root().join("xtask");
    let manifest = fs::read_to_string(xtask.join("Cargo.toml")).unwrap();
    for (folder, manifest) in manifests().into_iter().chain([(xtask, manifest)]) {
        let name = name_of(&manifest);
        let folder = folder.strip_prefix(root()).unwrap().to_str().unwrap();
        folders.insert((name.clone(), folder.to_owned()));
        crates.push((name, dependencies(&manifest)));
    }
    let listed: BTreeSet<_> = table.iter().cloned().collect();
    let apart: Vec<_> = listed.symmetric_difference(&folders).collect();
    assert!(apart.is_empty(), "in the table or the tree alone: {apart:?}");
    assert_eq!(table.len(), folders.len(), "one row for each");
    let order: Vec<String> = table.into_iter().map(|(name, _)| name).collect();
    assert_eq!(upward(&order, &crates), Vec::<String>::new());
    let folders: Vec<_> = folders.into_iter().collect();
    assert_eq!(downward(&floors(&page()), &crates, &folders), Vec::<String>::new());
}

#[test]
fn groups_are_few_and_say_what_they_are() {
    let groups = groups();
    assert!(groups.len() <= GROUPS_MAX, "{} groups", groups.len());
    let crates = groups.values().map(Vec::len).sum::<usize>();
    assert!(crates <= CRATES_MAX, "{crates} crates, more than {CRATES_MAX}");
    let linked: BTreeSet<String> = rows(&page(), "Groups")
        .filter_map(|row| link(row.strip_prefix("| ")?))
        .map(|(_, target, _)| target.to_owned())
        .collect();
    let readmes = groups.keys().map(|group| format!("crates/{group}/README.md"));
    assert_eq!(linked, readmes.collect());
    for readme in linked {
        let text = fs::read_to_string(root().join(&readme));
        let lines = text.unwrap_or_else(|why| panic!("{readme}: {why}")).lines().count();
        assert!(lines <= README_LINES_MAX, "{readme} has {lines} lines");
    }
}

/// Returns the test programs of a crate: files directly in its `tests`, and folders with a
/// `main.rs`.
fn test_programs(folder: &Path) -> Vec<String> {
    let tests = folder.join("tests");
    let Ok(entries) = fs::read_dir(&tests) else {
        return Vec::new();
    };
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut programs: Vec<String> = names
        .filter(|name| name.ends_with(".rs") || tests.join(name).join("main.rs").is_file())
        .collect();
    programs.sort();
    programs
}

#[test]
fn tests_of_a_crate_are_one_program() {
    for (folder, _) in manifests() {
        let shown = folder.strip_prefix(root()).unwrap().to_str().unwrap();
        let mut programs = test_programs(&folder);
        for (of, second) in SECOND_PROGRAMS.iter().filter(|(of, _)| *of == shown) {
            let at = programs.iter().position(|program| program == second);
            programs.remove(at.unwrap_or_else(|| panic!("{of} needs no exception: {second}")));
        }
        let one = programs == ["suite"] || !folder.join("tests").is_dir();
        assert!(one, "{shown}: {programs:?}");
    }
}

#[test]
fn what_is_not_there_is_seen() {
    let page = "# T\n\n## A\n\n| # | What | Where |\n|--:|---|---|\n\
                | 1 | x | [protocol/core/src/slot.rs](crates/protocol/core/src/slot.rs) (`plus`, `nope`), \
                [nowhere/src/a.rs](crates/nowhere/src/a.rs) |\n";
    let story = named(page, "A");
    assert_eq!(
        faults(&root(), &story),
        ["crates/protocol/core/src/slot.rs has no fn nope", "there is no crates/nowhere/src/a.rs"]
    );
    let long: Vec<_> =
        (0..=FILES_MAX).map(|number| (format!("none/{number}.rs"), Vec::new())).collect();
    assert_eq!(faults(&root(), &long).last().unwrap(), "16 files, more than 15");
}

#[test]
fn a_wrong_dependency_is_seen() {
    let manifest = "[dependencies]\nquorate.workspace = true\nserde = \"1\"\n\
                    quorate-sim = { workspace = true, optional = true }\n\
                    [dev-dependencies]\nquorate-testbed.workspace = true\n\
                    [target.'cfg(unix)'.dependencies]\nquorate-bench.workspace = true\n";
    let found = dependencies(manifest);
    let name = |name: &str| name.to_owned();
    assert_eq!(
        found,
        [(name("quorate"), false), (name("quorate-sim"), true), (name("quorate-bench"), false)]
    );
    let crates = [(name("quorate-cli"), found)];
    let order = ["quorate", "quorate-cli", "quorate-sim", "quorate-bench"];
    assert_eq!(
        upward(&order.map(str::to_owned), &crates),
        [
            "quorate-cli stands above quorate-sim, which it depends on",
            "quorate-cli stands above quorate-bench, which it depends on"
        ]
    );
    let of = ["node/quorate", "operate/cli", "operate/sim", "proof/bench"].map(|folder| {
        let crate_name = folder.split_once('/').unwrap().1;
        let crate_name = format!("quorate-{crate_name}").replace("quorate-quorate", "quorate");
        (crate_name, format!("crates/{folder}"))
    });
    let floors = ["node", "operate", "proof"].map(str::to_owned);
    assert_eq!(
        downward(&floors, &crates, &of),
        ["quorate-cli depends on quorate-bench, which is of a later floor"]
    );
}

#[test]
fn a_second_test_program_is_seen() {
    let folder = tempfile::tempdir().unwrap();
    assert!(test_programs(folder.path()).is_empty());
    for file in ["tests/suite/main.rs", "tests/data/a.rs", "tests/b.rs"] {
        let file = folder.path().join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "").unwrap();
    }
    assert_eq!(test_programs(folder.path()), ["b.rs", "suite"]);
}
