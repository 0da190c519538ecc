//! Cuts a release: sets the version in every file that names it, closes the changelog's section,
//! commits, checks the packages, creates a tag, and begins the next version in a second commit.
//!
//! Nothing is pushed; the last lines of output name the commands for it.

use std::{fs, process::Command};

use quorate_core::level::Level;

use crate::shell::{Failed, build_folder, read_output, run_cargo, workspace_root};

/// Files with the version in commands that users type.
const FILES_WITH_VERSION: [&str; 2] =
    ["packaging/kubernetes/quorate.yaml", "docs/operate/packages.md"];
/// Folder with test vectors of frames and values. Those of released levels never change.
const FROZEN_VECTORS_FOLDER: &str = "crates/protocol/wire/vectors";
/// Version of this source tree.
const TREE_VERSION: &str = env!("CARGO_PKG_VERSION");
/// Ending of the version between two releases.
const DEV_SUFFIX: &str = "-dev";
/// Heading of the changelog's unreleased section.
const UNRELEASED_HEADING: &str = "## Unreleased";

/// Runs `cargo xtask release VERSION`. `--dry-run` changes nothing.
pub(crate) fn run(words: &[&str]) -> Result<(), Failed> {
    let (version, dry) = match words {
        [version] | [version, "--dry-run"] | ["--dry-run", version] => (*version, words.len() == 2),
        _ => return Err(Failed("usage: release VERSION [--dry-run]".to_owned())),
    };
    if parse_version(version)? < parse_version(TREE_VERSION.trim_end_matches(DEV_SUFFIX))? {
        return Err(Failed(format!("{version} is below {TREE_VERSION}, the version of this tree")));
    }
    let tag = format!("v{version}");
    let changed = run_git(&["status", "--porcelain"])?;
    if !changed.trim().is_empty() {
        let why =
            format!("these files are not committed; commit or put them aside first:\n{changed}");
        return Err(Failed(why));
    }
    if !run_git(&["tag", "--list", &tag])?.trim().is_empty() {
        return Err(Failed(format!("the tag {tag} is there already")));
    }
    let level = Level::NEWEST.0;
    if !workspace_root().join(FROZEN_VECTORS_FOLDER).join(level.to_string()).is_dir() {
        let why = format!(
            "level {level} has no frozen bytes: copy those in {FROZEN_VECTORS_FOLDER} to {FROZEN_VECTORS_FOLDER}/{level}, and name them in the test `frozen`"
        );
        return Err(Failed(why));
    }
    let date = read_output(Command::new("date").args(["--utc", "+%F"]))?;
    let path = workspace_root().join("CHANGELOG.md");
    let old = fs::read_to_string(&path)?;
    let last = last_release(&old)?;
    let (changelog, section) = close_unreleased(&old, version, date.trim())?;
    println!("{version}, with this part of the changelog:\n\n{section}");
    if dry {
        return Ok(());
    }

    fs::write(&path, &changelog)?;
    for name in FILES_WITH_VERSION {
        replace_version(name, last, version)?;
    }
    let message = format!("release: {version}");
    commit_version(TREE_VERSION, version, &message)?;
    let to = build_folder().join(&tag).display().to_string();
    // Use a new process: this one was built with the previous version.
    let packages = run_cargo(&["xtask", "package", "all", "--check", "--to", &to]);
    packages.map_err(|Failed(why)| {
        Failed(format!("{why}\nthe commit \"{message}\" stays and has no tag; `git reset --hard HEAD^` takes it back"))
    })?;
    run_git(&["tag", "--annotate", &tag, "--message", &format!("Quorate {version}\n\n{section}")])?;
    let commit = run_git(&["rev-parse", "--short=10", "HEAD"])?;
    fs::write(path, add_commit(&changelog, version, commit.trim()))?;
    let [major, minor, _] = parse_version(version)?;
    let next = format!("{major}.{}.0{DEV_SUFFIX}", minor + 1);
    commit_version(version, &next, &format!("release: {next} begins"))?;
    println!("tagged {tag}. Left to do: git push origin HEAD {tag}, and publish what is in {to}");
    Ok(())
}

/// Sets the version of the workspace, also in Cargo.lock, and commits all changed files.
fn commit_version(old: &str, new: &str, message: &str) -> Result<(), Failed> {
    replace_version("Cargo.toml", old, new)?;
    run_cargo(&["update", "--workspace", "--offline"])?;
    run_git(&["commit", "--quiet", "--all", "--message", message]).map(drop)
}

/// Replaces the version in a file that names it.
fn replace_version(name: &str, old: &str, new: &str) -> Result<(), Failed> {
    let path = workspace_root().join(name);
    let text = replace_whole_word(&fs::read_to_string(&path)?, old, new);
    let text = text.ok_or_else(|| {
        Failed(format!("{name} does not name {old}; `git checkout .` takes back what was changed"))
    })?;
    Ok(fs::write(path, text)?)
}

/// Returns the most recent release that the changelog names.
fn last_release(changelog: &str) -> Result<&str, Failed> {
    let names = changelog.lines().filter_map(|line| line.strip_prefix("## "));
    let last = names.filter_map(|name| name.split_once(" (")).next();
    last.map(|(version, _)| version).ok_or_else(|| Failed("CHANGELOG.md has no release".to_owned()))
}

/// Adds the commit to a release's heading, and an unreleased section above it.
fn add_commit(changelog: &str, version: &str, commit: &str) -> String {
    let (before, after) = changelog.split_once(&format!("## {version} (")).expect("it was cut");
    let (date, after) = after.split_once(')').expect("it was cut");
    format!("{before}{UNRELEASED_HEADING}\n\n## {version} ({date}, {commit}){after}")
}

/// Parses a version such as `1.2.3`.
fn parse_version(version: &str) -> Result<[u32; 3], Failed> {
    let numbers: Vec<u32> = version.split('.').map_while(|part| part.parse().ok()).collect();
    let whole = numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(".") == version;
    let three = <[u32; 3]>::try_from(numbers).ok().filter(|_| whole);
    three.ok_or_else(|| Failed(format!("{version} is no version; three numbers such as 0.2.0 are")))
}

/// Turns the unreleased section into that of this version. Returns the changelog and the section.
fn close_unreleased(
    changelog: &str,
    version: &str,
    date: &str,
) -> Result<(String, String), Failed> {
    let (before, after) =
        changelog.split_once(&format!("{UNRELEASED_HEADING}\n")).ok_or_else(|| {
            Failed(format!(
                "CHANGELOG.md has no line `{UNRELEASED_HEADING}`: there is nothing to release"
            ))
        })?;
    let end = after.find("\n## ").map_or(after.len(), |at| at + 1);
    let section = after[..end].trim();
    if section.is_empty() {
        return Err(Failed(format!("nothing stands below `{UNRELEASED_HEADING}` in CHANGELOG.md")));
    }
    Ok((format!("{before}## {version} ({date})\n{after}"), section.to_owned()))
}

/// Replaces the old version as a whole word; `None` if the text does not contain it.
fn replace_whole_word(text: &str, old: &str, new: &str) -> Option<String> {
    let part_of_another = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_digit());
    let (mut out, mut rest, mut found) = (String::new(), text, false);
    while let Some(at) = rest.find(old) {
        let (before, after) = (&rest[..at], &rest[at + old.len()..]);
        out += before;
        let whole =
            !part_of_another(before.bytes().last()) && !part_of_another(after.bytes().next());
        found |= whole;
        out += if whole { new } else { old };
        rest = after;
    }
    found.then(|| out + rest)
}

fn run_git(words: &[&str]) -> Result<String, Failed> {
    read_output(Command::new("git").args(words).current_dir(workspace_root()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_three_numbers() {
        assert_eq!(parse_version("0.2.10").ok(), Some([0, 2, 10]));
        assert!(parse_version("0.10.0").unwrap() > parse_version("0.9.9").unwrap());
        for wrong in ["0.2", "0.2.0.1", "v0.2.0", "0.2.x", "0.2.00", "0.+2.0", ""] {
            assert!(parse_version(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn unreleased_section_becomes_the_version() {
        let old = "# Changelog\n\n## Unreleased\n\n- new\n\n## 0.1.0 (2026-01-01)\n\n- first\n";
        let (new, section) = close_unreleased(old, "0.2.0", "2026-11-27").unwrap();
        assert_eq!(section, "- new");
        assert_eq!(new, old.replace("## Unreleased", "## 0.2.0 (2026-11-27)"));
        assert!(close_unreleased(&new, "0.3.0", "2026-12-01").is_err(), "nothing is to come");
        assert_eq!(
            (last_release(old).ok(), last_release(&new).ok()),
            (Some("0.1.0"), Some("0.2.0"))
        );
        let next = add_commit(&new, "0.2.0", "0123456789");
        let heading = "## Unreleased\n\n## 0.2.0 (2026-11-27, 0123456789)\n";
        assert_eq!(next, new.replace("## 0.2.0 (2026-11-27)\n", heading));
        assert!(close_unreleased("## Unreleased\n\n## 0.1.0\n\n- first\n", "0.2.0", "").is_err());
    }

    #[test]
    fn version_inside_a_longer_one_is_not_replaced() {
        let text = "quorate-0.1.0.tar 10.1.0 0.1.01 0.1.0";
        assert_eq!(
            replace_whole_word(text, "0.1.0", "0.2.0").unwrap(),
            "quorate-0.2.0.tar 10.1.0 0.1.01 0.2.0"
        );
        assert_eq!(replace_whole_word("0.1.01", "0.1.0", "0.2.0"), None);
    }

    /// Without this test, a release would fail half-way.
    #[test]
    fn listed_files_contain_the_version() {
        let text = |name| fs::read_to_string(workspace_root().join(name)).unwrap();
        let changelog = text("CHANGELOG.md");
        let last = last_release(&changelog).unwrap();
        for (name, old) in FILES_WITH_VERSION
            .map(|name| (name, last))
            .into_iter()
            .chain([("Cargo.toml", TREE_VERSION)])
        {
            assert!(replace_whole_word(&text(name), old, "9.9.9").is_some(), "{name}");
        }
    }
}
