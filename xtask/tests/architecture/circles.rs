//! Finds cycles of files that import one another within a crate. Full paths and `super::` count.
//! The root of a crate does not, since it lists and re-exports its modules.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use crate::manifests;

/// A module's path from the root of its crate.
type Module = Vec<String>;

/// Returns the text of a source file up to its own tests.
pub(crate) fn product(text: &str) -> &str {
    let tests = ["mod ", "pub(super) mod "].map(|of| text.find(&format!("\n#[cfg(test)]\n{of}")));
    match tests.into_iter().flatten().min() {
        Some(at) if text[at..].lines().nth(2).is_some_and(|line| line.ends_with('{')) => {
            &text[..=at]
        }
        _ => text,
    }
}

/// Splits source text into identifiers, `::` and other characters, without comments and strings.
fn tokens(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in text.lines() {
        let line = line.split("//").next().unwrap_or_default();
        let mut rest = line.trim_start();
        while let Some(first) = rest.chars().next() {
            let is_word = |c: char| c.is_alphanumeric() || c == '_';
            let length = if is_word(first) {
                rest.find(|c| !is_word(c)).unwrap_or(rest.len())
            } else if first == '"' {
                rest[1..].find('"').map_or(rest.len(), |end| end + 2)
            } else if rest.starts_with("::") {
                2
            } else {
                first.len_utf8()
            };
            if first != '"' {
                found.push(rest[..length].to_owned());
            }
            rest = rest[length..].trim_start();
        }
    }
    found
}

/// Parses the paths of a `use` tree, or a single path, starting at a token. Braces are expanded.
fn paths(tokens: &[String], at: &mut usize, prefix: &Module, found: &mut Vec<Module>) {
    let mut path = prefix.clone();
    while let Some(token) = tokens.get(*at) {
        if token == "{" {
            *at += 1;
            while tokens.get(*at).is_some_and(|token| token != "}") {
                paths(tokens, at, &path, found);
                // Skip a rename and the comma.
                while tokens.get(*at).is_some_and(|token| token != "," && token != "}") {
                    *at += 1;
                }
                *at += usize::from(tokens.get(*at).is_some_and(|token| token == ","));
            }
            *at += 1;
            return;
        }
        path.push(token.clone());
        *at += 1;
        if tokens.get(*at).is_none_or(|token| token != "::") {
            break;
        }
        *at += 1;
    }
    found.push(path);
}

/// Returns the module that a path leads to: the deepest one that is a file.
fn resolve(path: &[String], own: &Module, files: &BTreeMap<Module, String>) -> Option<Module> {
    let mut module = match path[0].as_str() {
        "crate" => Vec::new(),
        "self" | "super" => own.clone(),
        _ => return None,
    };
    for part in path {
        match part.as_str() {
            "super" => drop(module.pop()?),
            "crate" | "self" => {}
            _ => {
                module.push(part.clone());
                if !files.contains_key(&module) {
                    module.pop();
                    break;
                }
            }
        }
    }
    (!module.is_empty() && module != *own).then_some(module)
}

fn imports(text: &str, own: &Module, files: &BTreeMap<Module, String>) -> BTreeSet<Module> {
    let tokens = tokens(product(text));
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let begins = ["crate", "self", "super"].contains(&tokens[at].as_str())
            && tokens.get(at + 1).is_some_and(|next| next == "::");
        if begins {
            paths(&tokens, &mut at, &Vec::new(), &mut found);
        } else {
            at += 1;
        }
    }
    found.iter().filter_map(|path| resolve(path, own, files)).collect()
}

/// Collects source files by module, without the root and without tests.
fn modules(folder: &Path, prefix: &Module, files: &mut BTreeMap<Module, String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let mut module = prefix.clone();
        if path.is_dir() {
            module.push(name);
            modules(&path, &module, files);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let is_root = prefix.is_empty() && (name == "lib" || name == "main");
            if is_root || name == "tests" || name.ends_with("_tests") {
                continue;
            }
            if name != "mod" {
                module.push(name);
            }
            files.insert(module, fs::read_to_string(&path).unwrap());
        }
    }
}

/// Returns the sets of modules in which each reaches all others through imports.
pub(crate) fn circles(imports: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<Vec<Module>> {
    let reach = |from: &Module| {
        let mut seen = BTreeSet::new();
        let mut next: Vec<&Module> = imports.get(from).into_iter().flatten().collect();
        while let Some(module) = next.pop() {
            if seen.insert(module.clone()) {
                next.extend(imports.get(module).into_iter().flatten());
            }
        }
        seen
    };
    let reached: BTreeMap<_, _> = imports.keys().map(|module| (module, reach(module))).collect();
    let mut found = BTreeSet::new();
    for (module, of) in &reached {
        let circle: Vec<Module> = of
            .iter()
            .filter(|other| reached.get(other).is_some_and(|r| r.contains(*module)))
            .cloned()
            .collect();
        if circle.len() > 1 {
            found.insert(circle);
        }
    }
    found.into_iter().collect()
}

/// Returns the cycles of all crates.
pub(crate) fn of_all_crates() -> Vec<Vec<Module>> {
    let mut all = Vec::new();
    for (folder, _) in manifests() {
        let mut files = BTreeMap::new();
        modules(&folder.join("src"), &Vec::new(), &mut files);
        let of =
            |(module, text): (&Module, &String)| (module.clone(), imports(text, module, &files));
        let found = circles(&files.iter().map(of).collect());
        for circle in &found {
            let names: Vec<_> = circle.iter().map(|module| module.join("::")).collect();
            println!(
                "{}: {} files: {}",
                folder.file_name().unwrap().display(),
                names.len(),
                names.join(" ")
            );
        }
        all.extend(found);
    }
    all
}

#[test]
fn imports_of_every_form_count() {
    let module = |path: &str| -> Module { path.split("::").map(str::to_owned).collect() };
    let files = ["a", "a::b", "c", "d"].map(|name| (module(name), String::new()));
    let files = BTreeMap::from(files);
    let text =
        "use crate::{a::{self, b::X as Y}, Z};\nfn f() { super::c::g(\"crate::d\") } // crate::d\n";
    let found = imports(text, &module("d"), &files);
    assert_eq!(found, BTreeSet::from([module("a"), module("a::b"), module("c")]));
    let ring = [("a", "c"), ("c", "d"), ("d", "a"), ("a::b", "a")];
    let ring = ring.map(|(from, to)| (module(from), BTreeSet::from([module(to)])));
    assert_eq!(circles(&BTreeMap::from(ring)), [[module("a"), module("c"), module("d")]]);
}
