//! The commit that published figures name is recorded at build time by `build.rs`.

use std::{fs, process::Command};

use serde_json::Value as Json;

/// The program does not run git. It reports the same commit if git is not on its path.
#[test]
fn the_program_knows_its_commit_without_the_source_tree() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report.json");
    let output = Command::new(crate::common::program())
        .args(["bench", "log", "--outstanding", "1", "--duration", "50ms", "--warmup", "10ms"])
        .args(["--repeat", "1", "--json"])
        .arg(&report)
        .current_dir(folder.path())
        .env("PATH", "")
        .output()
        .unwrap();
    let document: Json = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
    let wanted = Json::from(quorate_cli::COMMIT);
    assert_eq!(document["environment"]["commit"], wanted);
    assert_eq!(document["rows"][0]["commit"], wanted);
    let table = String::from_utf8(output.stdout).unwrap();
    let shown = quorate_cli::COMMIT.unwrap_or("unknown");
    assert!(table.starts_with(&format!("commit {shown}, ")), "{table}");
}
