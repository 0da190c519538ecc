//! Unmodified etcd clients against a fresh cluster of three nodes: `etcdctl`, and the Go client
//! with its locks, elections and transactions. Also checks histories recorded by that client while
//! members are killed. The programs are built from their modules; without Go or a network the task
//! is skipped.

pub(crate) mod kubernetes;
pub(crate) mod suite;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use quorate_testbed::interrupt;
use serde::Deserialize;

use crate::{
    go::{GoToolchain, NO_GO_MESSAGE},
    nodes,
    shell::{self, Failed, read_output, report_skip, workspace_root},
};

/// Number of members killed during a history, one after the other.
const KILL_COUNT: u32 = 9;
/// Pause between faults, and downtime of a member.
const FAULT_PAUSE: Duration = Duration::from_millis(1500);
const MEMBER_DOWNTIME: Duration = Duration::from_millis(700);

/// Output of `go mod download`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct GoModule {
    dir: String,
}

/// Returns a modifiable copy of a Go module, `NAME@VERSION`, in this folder.
fn copy_module(go: &GoToolchain, module: &str, folder: &Path) -> Result<PathBuf, Failed> {
    let fetched =
        read_output(go.go_command_in(&env::temp_dir()).args(["mod", "download", "-json", module]))?;
    let fetched: GoModule = serde_json::from_str(&fetched)
        .map_err(|error| Failed(format!("what Go says of {module}: {error}")))?;
    fs::create_dir_all(folder)?;
    // Go's module cache is read-only, and an earlier copy may have been changed.
    let fetched = Path::new(&fetched.dir);
    let source = folder.join(fetched.file_name().unwrap_or_default());
    if source.exists() {
        fs::remove_dir_all(&source)?;
    }
    shell::copy_folder(fetched, &source)?;
    Ok(source)
}

/// Runs `cargo xtask etcd`.
pub(crate) fn run() -> Result<(), Failed> {
    let Some(go) = GoToolchain::find() else {
        return report_skip("etcd", NO_GO_MESSAGE);
    };
    let program = shell::build_folder().join("tools/etcdclient");
    let here = || go.go_command_in(&workspace_root().join("tools/etcdclient"));
    if let Err(Failed(why)) = read_output(here().args(["mod", "download"])) {
        return report_skip("etcd", &format!("its clients cannot be fetched: {why}"));
    }
    read_output(here().args(["build", "-o"]).arg(&program).arg("."))?;
    shell::build_programs()?;
    interrupt::clean_up_on_signals()?;
    ["memory", "lsm"].into_iter().try_for_each(|store| {
        run_clients_against(&program, store)?;
        check_history(&program, store)
    })
}

/// Runs all clients against a cluster with this store.
fn run_clients_against(program: &Path, store: &str) -> Result<(), Failed> {
    println!("--store {store}");
    let nodes = nodes::start_ready(3, &["--service", "etcd", "--store", store])?;
    let ports = nodes.client_ports();
    let endpoints: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    check_etcdctl(program, &endpoints)?;
    println!("done: etcdctl");
    check_snapshot_restore(program, &endpoints)?;
    println!("done: a snapshot by etcdctl, restored by quorate");
    let text = read_output(Command::new(program).args(&endpoints))?;
    text.lines().for_each(|line| println!("  {line}"));
    println!("done: the Go client");
    Ok(())
}

/// Runs writers and watchers at every member, and kills one member after the other. The program
/// checks that all acknowledged writes are in the common history, and that all watchers saw them.
fn check_history(program: &Path, store: &str) -> Result<(), Failed> {
    let mut nodes = nodes::start_ready(3, &["--service", "etcd", "--store", store])?;
    let ports = nodes.client_ports();
    let seconds = (FAULT_PAUSE + MEMBER_DOWNTIME).as_secs_f64() * f64::from(KILL_COUNT) + 3.0;
    let mut command = Command::new(program);
    command.args(["history", &format!("{seconds:.0}")]);
    command.args(ports.iter().map(|port| format!("127.0.0.1:{port}")));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let failed = |error: std::io::Error| Failed(error.to_string());
    let running = command.spawn().map_err(failed)?;
    for kill in 0..KILL_COUNT {
        thread::sleep(FAULT_PAUSE);
        let victim = kill % 3 + 1;
        nodes.kill(&[victim])?;
        thread::sleep(MEMBER_DOWNTIME);
        nodes.restart(&[victim])?;
    }
    let ended = running.wait_with_output().map_err(failed)?;
    let said = String::from_utf8_lossy(&ended.stdout).trim().to_owned();
    if !ended.status.success() {
        let place = shell::build_folder().join("etcd-history");
        let place = nodes.keep_for_inspection(&place);
        let place = place.display();
        return Err(Failed(format!("{said}; the nodes are in {place}")));
    }
    println!("done: {KILL_COUNT} kills: {said}");
    Ok(())
}

/// Checks the exact output of `etcdctl`.
fn check_etcdctl(program: &Path, endpoints: &[String]) -> Result<(), Failed> {
    let all = endpoints.join(",");
    let ctl = |words: &[&str]| {
        let mut command = Command::new(program);
        command.args(["ctl", "--endpoints", &all]).args(words);
        let text = read_output(&mut command)?;
        Ok::<_, Failed>(text.trim().to_owned())
    };
    let expect = |words: &[&str], expected: &str| {
        let got = ctl(words)?;
        match got == expected {
            true => Ok(()),
            false => Err(Failed(format!("etcdctl {words:?}: {got:?}, not {expected:?}"))),
        }
    };
    expect(&["put", "a", "1"], "OK")?;
    expect(&["put", "b", "2"], "OK")?;
    expect(&["get", "a"], "a\n1")?;
    expect(&["get", "a", "--consistency", "s", "--print-value-only"], "1")?;
    expect(&["get", "a", "c", "--keys-only"], "a\n\nb")?;
    expect(&["get", "", "--from-key", "--order", "DESCEND", "--limit", "1"], "b\n2")?;
    expect(&["put", "a", "3", "--prev-kv"], "OK\na\n1")?;
    expect(&["get", "a", "--rev", "2"], "a\n1")?;
    expect(&["del", "b", "--prev-kv"], "1\nb\n2")?;
    expect(&["compaction", "4", "--physical"], "compacted revision 4")?;
    let lease = ctl(&["lease", "grant", "100"])?;
    let id = lease.split(' ').nth(1).unwrap_or_default().to_owned();
    expect(&["put", "leased", "x", "--lease", &id], "OK")?;
    let revoked = format!("lease {id} revoked");
    expect(&["lease", "revoke", &id], &revoked)?;
    expect(&["get", "leased"], "")?;
    // A node may lag behind the others for a moment.
    nodes::wait_for("equal hashes", || {
        let text = ctl(&["endpoint", "hashkv"]).ok()?;
        let mut hashes = text.lines().map(|line| line.split(", ").nth(1));
        let first = hashes.next().flatten()?;
        hashes.all(|hash| hash == Some(first)).then_some(())
    })?;
    for words in [
        &["endpoint", "status"][..],
        &["endpoint", "health"],
        &["member", "list"],
        &["alarm", "list"],
        &["defrag"],
    ] {
        ctl(words)?;
    }
    Ok(())
}

/// Checks that `quorate restore` makes a node from a snapshot saved by `etcdctl`.
fn check_snapshot_restore(program: &Path, endpoints: &[String]) -> Result<(), Failed> {
    let folder = shell::build_folder().join("etcd-snapshot");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(|error| Failed(error.to_string()))?;
    let file = folder.join("saved.db");
    let mut command = Command::new(program);
    command.args(["ctl", "--endpoints", endpoints.first().map_or("", String::as_str)]);
    read_output(command.args(["snapshot", "save"]).arg(&file))?;
    let mut command = Command::new(shell::program_path("quorate"));
    command.args(["restore"]).arg(&file);
    read_output(command.arg("--data").arg(folder.join("data")))?;
    let _ = fs::remove_dir_all(&folder);
    Ok(())
}
