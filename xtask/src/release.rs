//! Cuts a release: sets the version in every file that names it, closes the changelog's section,
//! commits, checks the packages, and creates a tag.
//!
//! Nothing is pushed; the last lines of output name the commands for it.

use std::{fs, process::Command};

use quorate_core::level::Level;

use crate::shell::{Failed, cargo, read, root, target};

/// Files with the version in commands that users type.
const NAMING: [&str; 2] = ["packaging/kubernetes/quorate.yaml", "docs/operate/packages.md"];
/// Folder with test vectors of frames and values. Those of released levels never change.
const FROZEN: &str = "crates/protocol/wire/vectors";
/// Heading of the changelog's unreleased section.
const COMING: &str = "## Unreleased";

/// Runs `cargo xtask release VERSION`. `--dry-run` changes nothing.
pub(crate) fn run(words: &[&str]) -> Result<(), Failed> {
    let (version, dry) = match words {
        [version] | [version, "--dry-run"] | ["--dry-run", version] => (*version, words.len() == 2),
        _ => return Err(Failed("usage: release VERSION [--dry-run]".to_owned())),
    };
    let old = env!("CARGO_PKG_VERSION");
    if numbers(version)? <= numbers(old)? {
        let why = format!("{version} is not above {old}, the version of this tree");
        return Err(Failed(why));
    }
    let tag = format!("v{version}");
    let changed = git(&["status", "--porcelain"])?;
    if !changed.trim().is_empty() {
        let why =
            format!("these files are not committed; commit or put them aside first:\n{changed}");
        return Err(Failed(why));
    }
    if !git(&["tag", "--list", &tag])?.trim().is_empty() {
        return Err(Failed(format!("the tag {tag} is there already")));
    }
    let level = Level::NEWEST.0;
    if !root().join(FROZEN).join(level.to_string()).is_dir() {
        let why = format!(
            "level {level} has no frozen bytes: copy those in {FROZEN} to {FROZEN}/{level}, and name them in the test `frozen`"
        );
        return Err(Failed(why));
    }
    let date = read(Command::new("date").args(["--utc", "+%F"]))?;
    let path = root().join("CHANGELOG.md");
    let (changelog, section) = cut(&fs::read_to_string(&path)?, version, date.trim())?;
    println!("{version}, with this part of the changelog:\n\n{section}");
    if dry {
        return Ok(());
    }

    fs::write(path, changelog)?;
    for name in NAMING.into_iter().chain(["Cargo.toml"]) {
        let path = root().join(name);
        let text = fs::read_to_string(&path)?;
        fs::write(
            path,
            renamed(&text, old, version).ok_or_else(|| {
                Failed(format!(
                    "{name} does not name {old}; `git checkout .` takes back what was changed"
                ))
            })?,
        )?;
    }
    cargo(&["update", "--workspace", "--offline"])?;
    let message = format!("release: {version}");
    git(&["commit", "--quiet", "--all", "--message", &message])?;
    let to = target().join(&tag).display().to_string();
    // Use a new process: this one was built with the previous version.
    let packages = cargo(&["xtask", "package", "all", "--check", "--to", &to]);
    packages.map_err(|Failed(why)| {
        Failed(format!("{why}\nthe commit \"{message}\" stays and has no tag; `git reset --hard HEAD^` takes it back"))
    })?;
    git(&["tag", "--annotate", &tag, "--message", &format!("Quorate {version}\n\n{section}")])?;
    println!("tagged {tag}. Left to do: git push origin HEAD {tag}, and publish what is in {to}");
    Ok(())
}

/// Parses a version such as `1.2.3`.
fn numbers(version: &str) -> Result<[u32; 3], Failed> {
    let numbers: Vec<u32> = version.split('.').map_while(|part| part.parse().ok()).collect();
    let whole = numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(".") == version;
    let three = <[u32; 3]>::try_from(numbers).ok().filter(|_| whole);
    three.ok_or_else(|| Failed(format!("{version} is no version; three numbers such as 0.2.0 are")))
}

/// Turns the unreleased section into that of this version. Returns the changelog and the section.
fn cut(changelog: &str, version: &str, date: &str) -> Result<(String, String), Failed> {
    let (before, after) = changelog.split_once(&format!("{COMING}\n")).ok_or_else(|| {
        Failed(format!("CHANGELOG.md has no line `{COMING}`: there is nothing to release"))
    })?;
    let end = after.find("\n## ").map_or(after.len(), |at| at + 1);
    let section = after[..end].trim();
    if section.is_empty() {
        return Err(Failed(format!("nothing stands below `{COMING}` in CHANGELOG.md")));
    }
    Ok((format!("{before}## {version} ({date})\n{after}"), section.to_owned()))
}

/// Replaces the old version as a whole word; `None` if the text does not contain it.
fn renamed(text: &str, old: &str, new: &str) -> Option<String> {
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

fn git(words: &[&str]) -> Result<String, Failed> {
    read(Command::new("git").args(words).current_dir(root()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_three_numbers() {
        assert_eq!(numbers("0.2.10").ok(), Some([0, 2, 10]));
        assert!(numbers("0.10.0").unwrap() > numbers("0.9.9").unwrap());
        for wrong in ["0.2", "0.2.0.1", "v0.2.0", "0.2.x", "0.2.00", "0.+2.0", ""] {
            assert!(numbers(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_was_to_come_becomes_the_version() {
        let old = "# Changelog\n\n## Unreleased\n\n- new\n\n## 0.1.0 (2026-01-01)\n\n- first\n";
        let (new, section) = cut(old, "0.2.0", "2026-11-27").unwrap();
        assert_eq!(section, "- new");
        assert_eq!(new, old.replace("## Unreleased", "## 0.2.0 (2026-11-27)"));
        assert!(cut(&new, "0.3.0", "2026-12-01").is_err(), "nothing is to come");
        assert!(cut("## Unreleased\n\n## 0.1.0\n\n- first\n", "0.2.0", "").is_err());
    }

    #[test]
    fn a_version_within_another_stays() {
        let text = "quorate-0.1.0.tar 10.1.0 0.1.01 0.1.0";
        assert_eq!(
            renamed(text, "0.1.0", "0.2.0").unwrap(),
            "quorate-0.2.0.tar 10.1.0 0.1.01 0.2.0"
        );
        assert_eq!(renamed("0.1.01", "0.1.0", "0.2.0"), None);
    }

    /// Without this test, a release would fail half-way.
    #[test]
    fn files_that_name_the_version_do() {
        let old = env!("CARGO_PKG_VERSION");
        for name in NAMING.into_iter().chain(["Cargo.toml"]) {
            let text = fs::read_to_string(root().join(name)).unwrap();
            assert!(renamed(&text, old, "9.9.9").is_some(), "{name}");
        }
    }
}
