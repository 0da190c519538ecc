//! The commit that the build records for source trees of all kinds, and the changes that update it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::SystemTime,
};

#[expect(clippy::module_inception, reason = "the module under test has that name")]
#[path = "../../build/stamp.rs"]
mod stamp;

const SOURCE: &str = "crates/group/one/src/lib.rs";

fn git(root: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .args(["-c", "user.name=a", "-c", "user.email=a@b"])
        .args(["-c", "init.defaultBranch=main", "-c", "commit.gpgSign=false"])
        .args(arguments)
        .current_dir(root)
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Creates a source tree without a repository.
fn tree() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    for path in ["Cargo.toml", "crates/group/one/Cargo.toml", SOURCE, "docs/a.md"] {
        write(&root, path, path);
    }
    (folder, root)
}

/// Creates a folder with a repository and a commit.
fn repository() -> (tempfile::TempDir, PathBuf) {
    let (folder, root) = tree();
    git(&root, &["init", "--quiet"]);
    git(&root, &["add", "--all"]);
    git(&root, &["commit", "--quiet", "--message", "one"]);
    (folder, root)
}

fn has_git() -> bool {
    let has = Command::new("git").arg("--version").output().is_ok();
    if !has {
        eprintln!("skipped: no git");
    }
    has
}

#[test]
fn a_commit_is_named_with_changes_of_what_the_program_is_made_of() {
    if !has_git() {
        return;
    }
    let (_folder, root) = repository();
    let first = git(&root, &["rev-parse", "--short=10", "HEAD"]);
    let changed = Some(format!("{first}+changes"));
    assert_eq!(stamp::source_commit(&root), Some(first.clone()));
    let today = git(&root, &["log", "--max-count=1", "--date=short", "--format=%cd"]);
    assert_eq!(stamp::commit_date(&root), Some(today));
    write(&root, "docs/a.md", "other");
    write(&root, "docs/b.md", "new");
    assert_eq!(stamp::source_commit(&root), Some(first.clone()), "no part of it");
    write(&root, SOURCE, "other");
    assert_eq!(stamp::source_commit(&root), changed);
    git(&root, &["add", "--all"]);
    assert_eq!(stamp::source_commit(&root), changed, "the index is no commit");
    git(&root, &["commit", "--quiet", "--message", "two"]);
    let second = git(&root, &["rev-parse", "--short=10", "HEAD"]);
    assert_eq!(stamp::source_commit(&root), Some(second.clone()));
    write(&root, "crates/group/one/src/more.rs", "a file that was not added");
    assert_eq!(stamp::source_commit(&root), Some(format!("{second}+changes")));
    fs::remove_file(root.join("crates/group/one/src/more.rs")).unwrap();
    git(&root, &["checkout", "--quiet", "HEAD~1"]);
    assert_eq!(stamp::source_commit(&root), Some(first));
}

#[test]
fn a_tarball_has_no_commit_wherever_it_lies() {
    let (_folder, alone) = tree();
    assert_eq!(stamp::source_commit(&alone), None);
    if !has_git() {
        return;
    }
    let (_folder, other) = repository();
    let within = other.join("vendor/quorate");
    write(&within, SOURCE, "x");
    assert_eq!(stamp::source_commit(&within), None, "that commit is of something else");
    let (_folder, packed) = tree();
    let noted = "{\n  \"git\": {\n    \"sha1\": \"0123456789abcdef\"\n  },\n";
    write(&packed, ".cargo_vcs_info.json", noted);
    assert_eq!(stamp::packaged_commit(&packed).as_deref(), Some("0123456789"));
    assert_eq!(stamp::packaged_commit(&alone), None);
    let (_folder, unborn) = tree();
    git(&unborn, &["init", "--quiet"]);
    assert_eq!(stamp::source_commit(&unborn), None);
}

/// The files that Cargo watches exist and change with every commit. If one did not exist, Cargo
/// would run the script at every build.
#[test]
fn what_is_watched_exists_and_changes_with_the_commit() {
    if !has_git() {
        return;
    }
    let (_folder, root) = repository();
    let commit_is_seen = |what: &str| {
        let all = stamp::watched_paths(&root);
        assert!(all.iter().all(|path| path.exists()), "{all:?}");
        assert!(all.contains(&root.join("crates/group/one/src")), "{all:?}");
        assert!(!all.iter().any(|path| path.ends_with("index")), "{all:?}");
        let before = newest(&all);
        git(&root, &["commit", "--quiet", "--allow-empty", "--message", "x"]);
        assert!(newest(&all) > before, "{what}");
    };
    commit_is_seen("a branch with a file");
    git(&root, &["pack-refs", "--all"]);
    commit_is_seen("a branch that was packed");
    git(&root, &["checkout", "--quiet", "--detach"]);
    commit_is_seen("no branch");
}

/// Returns the newest modification time as Cargo determines it. For a folder, includes everything
/// in the folder.
fn newest(paths: &[PathBuf]) -> SystemTime {
    let mut all = paths.to_vec();
    let mut next = 0;
    while let Some(path) = all.get(next).cloned() {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        all.extend(entries.map(|entry| entry.path()));
        next += 1;
    }
    let times = all.iter().map(|path| path.metadata().unwrap().modified().unwrap());
    times.max().unwrap()
}
