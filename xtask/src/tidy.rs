//! Checks on tracked files that clippy does not make: size, forbidden words, links, manifests,
//! missing module comments.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::shell::{Failed, read_output, workspace_root};

/// Maximum size of a file in bytes, except for generated files.
const FILE_BYTES_MAX: u64 = 200 << 10;

/// Maximum number of lines of the page on current performance.
const PERFORMANCE_LINES_MAX: usize = 160;

/// Prints the faults.
pub(crate) fn run() -> Result<(), Failed> {
    let faults = list_faults()?;
    faults.iter().for_each(|fault| println!("{fault}"));
    if faults.is_empty() { Ok(()) } else { Err(Failed(format!("{} faults", faults.len()))) }
}

fn list_faults() -> Result<Vec<String>, Failed> {
    let root = workspace_root();
    let mut faults = Vec::new();
    for path in tracked_files(&root)? {
        let name = path.display().to_string();
        let full = root.join(&path);
        let Ok(bytes) = fs::read(&full) else { continue };
        let is_generated = ["Cargo.lock", "crates/services/lua/machine/lua.wasm"]
            .contains(&name.as_str())
            || name.contains("/src/proto/");
        if bytes.len() as u64 > FILE_BYTES_MAX && !is_generated {
            faults.push(format!("{name}: {} bytes are too many for a source tree", bytes.len()));
        }
        let Ok(text) = String::from_utf8(bytes) else {
            continue;
        };
        check_text(&name, &text, &mut faults);
        check_length(&name, &text, &mut faults);
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("rs") => check_source(&name, &text, &mut faults),
            Some("md") => check_links(&full, &name, &text, &mut faults),
            _ => {}
        }
        if name.ends_with("/Cargo.toml") {
            check_manifest(&name, &text, &mut faults);
        }
    }
    Ok(faults)
}

fn tracked_files(root: &Path) -> Result<Vec<PathBuf>, Failed> {
    let list = read_output(Command::new("git").args(["ls-files", "-z"]).current_dir(root))?;
    Ok(list.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from).collect())
}

/// Checks for unwanted words. They are split here so that this file does not match itself.
fn check_text(name: &str, text: &str, faults: &mut Vec<String>) {
    // Search for the path of this checkout, unless it is a folder that every machine has, such as
    // /tmp.
    let here = format!("{}/", workspace_root().display());
    for (number, line) in (1..).zip(text.lines()) {
        if line.contains(&here) {
            faults.push(format!("{name}:{number}: a path of this machine"));
        }
        for word in [concat!("FIX", "ME"), concat!("XX", "X:")] {
            if line.contains(word) {
                faults.push(format!("{name}:{number}: {word}"));
            }
        }
        if name.ends_with(".rs") {
            for word in [
                concat!("TO", "DO"),
                concat!("dbg", "!("),
                concat!("todo", "!("),
                concat!("unimplemented", "!("),
            ] {
                if line.contains(word) {
                    faults.push(format!("{name}:{number}: {word}"));
                }
            }
        }
    }
}

/// Checks that the page on current performance stays short, because earlier figures belong in dated
/// files in `docs/notes`.
fn check_length(name: &str, text: &str, faults: &mut Vec<String>) {
    let lines = text.lines().count();
    if name == "docs/performance.md" && lines > PERFORMANCE_LINES_MAX {
        faults.push(format!(
            "{name}: {lines} lines, more than {PERFORMANCE_LINES_MAX}: move what is dated to docs/notes"
        ));
    }
}

/// Checks that a file begins with a comment on its purpose.
fn check_source(name: &str, text: &str, faults: &mut Vec<String>) {
    let first = text.lines().next().unwrap_or_default();
    if !first.starts_with("//! ") {
        faults.push(format!("{name}: the first line does not say what the file is for"));
    }
}

fn check_manifest(name: &str, text: &str, faults: &mut Vec<String>) {
    let package = text.contains("[package]") && !text.contains("[workspace]");
    if package && !text.contains("[lints]\nworkspace = true") {
        faults.push(format!("{name}: does not inherit the workspace's lints"));
    }
}

/// Checks that links to files of this tree have a target.
fn check_links(full: &Path, name: &str, text: &str, faults: &mut Vec<String>) {
    let folder = full.parent().unwrap_or(full);
    for target in link_targets(text) {
        let file = target.split('#').next().unwrap_or_default();
        let elsewhere = target.contains("://") || target.starts_with("mailto:") || file.is_empty();
        if !elsewhere && !folder.join(file).exists() {
            faults.push(format!("{name}: the link to {target} leads nowhere"));
        }
    }
}

/// Returns the targets in `](…)`, outside of code.
fn link_targets(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut fenced = false;
    for line in text.lines() {
        fenced ^= line.trim_start().starts_with("```");
        if fenced {
            continue;
        }
        for part in line.split("](").skip(1) {
            if let Some((target, _)) = part.split_once(')')
                && !target.contains(' ')
            {
                found.push(target);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_tidy() {
        assert_eq!(list_faults().unwrap(), Vec::<String>::new());
    }

    #[test]
    fn links_are_found_outside_of_code() {
        let text = "see [a](a.md) and [b](../b.md#c)\n```\n[no](no.md)\n```\n`x](y z)`";
        assert_eq!(link_targets(text), ["a.md", "../b.md#c"]);
    }

    #[test]
    fn each_fault_is_reported() {
        let mut faults = Vec::new();
        check_text("a.rs", concat!("// FIX", "ME later\nlet x = dbg", "!(1);"), &mut faults);
        check_source("a.rs", "fn main() {}", &mut faults);
        check_manifest("a/Cargo.toml", "[package]\n", &mut faults);
        check_length("docs/performance.md", &"x\n".repeat(161), &mut faults);
        check_links(Path::new("/nowhere/a.md"), "a.md", "[x](gone.md)", &mut faults);
        assert_eq!(faults.len(), 6, "{faults:?}");
    }
}
