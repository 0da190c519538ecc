//! Interrupted `quorate restore` and `quorate recover`: killed at any moment, the partial folder is
//! used by no node, and the same command completes the work.
//!
//! The commands run in time slices and are inspected while they are stopped between two slices.
//! Every intermediate state of the folder can thus be observed on any machine.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use crate::common::{
    Cluster, NodeProcess, Signal, free_port, program, quorate_json, refused, single, wait_for, with,
};
use quorate_testbed::resp::{Reply, RespConnection};
use rustix::process::{Pid, WaitOptions, kill_process, waitpid};
use serde_json::Value as Json;
use tempfile::TempDir;

/// Size of a value in bytes. Writing all values takes many slices.
const VALUE: usize = 256 << 10;
const VALUES: usize = 24;
/// Running time of a process between two inspections.
const SLICE: Duration = Duration::from_micros(200);

/// Name of an intermediate state, and the function that recognises it in the folder.
type Moment<'a> = (&'a str, &'a dyn Fn(&Path) -> bool);

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn value(number: usize) -> String {
    let letter = char::from(b'a' + (number % 26) as u8);
    format!("{number}-") + &letter.to_string().repeat(VALUE)
}

fn fill(address: &str) {
    let mut link = RespConnection::connect(address).unwrap();
    for number in 0..VALUES {
        let key = format!("key-{number}");
        let reply = link.run_command(&["SET", &key, &value(number)]).unwrap();
        assert_eq!(reply, Reply::Simple("OK".to_owned()));
    }
}

/// Starts the node of a folder and checks that it has all values. Returns the id of its cluster.
fn serves(data: &Path, peer: &str) -> String {
    let spec = with(single(data, &[]), "--peer", peer);
    let mut node = NodeProcess::spawn(spec).unwrap();
    node.wait_ready().unwrap_or_else(|error| panic!("{error}"));
    let mut link = wait_for("the node to serve", || {
        let mut link = RespConnection::connect(&node.ready.client).ok()?;
        matches!(link.run_command(&["GET", "key-0"]).ok()?, Reply::Bulk(_)).then_some(link)
    });
    for number in 0..VALUES {
        let found = link.run_command(&["GET", &format!("key-{number}")]).unwrap();
        assert!(found == Reply::Bulk(value(number)), "key-{number}");
    }
    let status = crate::common::http(&node.ready.admin, "/status").unwrap().1;
    let status: Json = serde_json::from_str(&status).unwrap();
    status["cluster"].as_str().unwrap().to_owned()
}

/// Runs the command in slices until the folder is in the given state, then kills the command.
/// Returns `false` if the command ended before.
fn killed_when(arguments: &[&str], mut shows: impl FnMut() -> bool) -> bool {
    let mut command = Command::new(program());
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let id = Pid::from_child(&child);
    loop {
        thread::sleep(SLICE);
        kill_process(id, Signal::STOP).unwrap();
        if !stands_still(&mut child) {
            return false;
        }
        if shows() {
            child.kill().unwrap();
            child.wait().unwrap();
            return true;
        }
        kill_process(id, Signal::CONT).unwrap();
    }
}

/// Waits until the process has stopped. Returns `false` if the process ended instead.
fn stands_still(child: &mut Child) -> bool {
    let status = waitpid(Some(Pid::from_child(child)), WaitOptions::UNTRACED).unwrap();
    let (_, status) = status.unwrap();
    assert!(status.stopped() || status.exited(), "{status:?}");
    status.stopped()
}

fn bytes_in(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else {
        return 0;
    };
    let entries = entries.map(|entry| entry.unwrap());
    entries
        .map(|entry| match entry.metadata() {
            Ok(data) if data.is_dir() => bytes_in(&entry.path()),
            Ok(data) => std::os::unix::fs::MetadataExt::blocks(&data) * 512,
            Err(_) => 0,
        })
        .sum()
}

/// [restore-1] No node uses the folder until the restore is complete, whenever it is interrupted.
#[test]
fn a_restore_that_was_killed_is_refused_and_begun_again() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("backup");
    {
        let cluster = Cluster::start(1, &["--store", "memory"]);
        fill(&cluster.clients()[0]);
        let admin = cluster.nodes.admin_addresses().remove(0);
        let (code, said) =
            quorate_json(&["backup", "--to", text(&file), "--json", "--admin", &admin]);
        assert_eq!(code, 0, "{said}");
    }
    let whole = fs::metadata(&file).unwrap().len();
    let moments: &[Moment<'_>] = &[
        ("its folder", &|data| data.is_dir()),
        ("its mark", &|data| data.join("restoring").exists()),
        ("some of the data", &|data| bytes_in(data) > whole / 8),
        ("half of the data", &|data| bytes_in(data) > whole / 2),
        ("all of the data", &|data| bytes_in(data) >= whole),
        ("where its log begins", &|data| data.join("base").exists()),
        ("its identity", &|data| data.join("identity").exists()),
    ];
    let (mut cut_off, mut refusals) = (0, 0);
    for (at, (name, shows)) in moments.iter().enumerate() {
        let data = folder.path().join(format!("data-{at}"));
        let peer = format!("127.0.0.1:{}", free_port());
        let restore = ["restore", text(&file), "--data", text(&data), "--peer", &peer];
        let killed = killed_when(&restore, || shows(&data));
        cut_off += u32::from(killed);
        let again = |expected: i32| {
            let (code, said) = quorate_json(&[&restore[..], &["--json"]].concat());
            assert_eq!(code, expected, "killed at {name}: {said}");
            said
        };
        if data.join("identity").exists() {
            // The folder belongs to a node, so no restore may overwrite it.
            assert_eq!(again(1)["error"]["code"], "node_exists", "killed at {name}");
        } else if data.join("restoring").exists() {
            let (code, said) = refused(&with(single(&data, &[]), "--peer", &peer));
            let why = "a backup was being restored into it, and not to the end";
            assert!(code == 1 && said.contains(why), "killed at {name}: {code}, {said}");
            refusals += 1;
            again(0);
        } else {
            again(0);
        }
        serves(&data, &peer);
    }
    assert!(cut_off >= 5 && refusals >= 4, "{cut_off} were killed, {refusals} refused");
}

/// [era-10] Before the switch, the node is unchanged. During the switch, no node uses the folder.
#[test]
fn a_recovery_that_was_killed_leaves_the_old_node_or_is_ended() {
    let mut cluster = Cluster::start(2, &["--store", "memory"]);
    fill(&cluster.clients()[0]);
    cluster.wait_until_equal();
    let id = cluster.status(1).unwrap()["cluster"].as_str().unwrap().to_owned();
    cluster.kill_all_at_once();
    let old = cluster.nodes.all()[0].spec.data_folder.clone();
    let folder = TempDir::new().unwrap();
    let moments: &[Moment<'_>] = &[
        ("its work", &|data| data.join("recover").exists()),
        ("some of the copy", &|data| bytes_in(&data.join("recover")) > 1 << 20),
        ("the new folder", &|data| data.join("recover/new").exists()),
        ("the new identity", &|data| data.join("recover/new/identity").exists()),
        ("the switch", &|data| data.join("recovering").exists()),
        ("no identity", &|data| !data.join("identity").exists()),
        ("the switch's second half", &|data| {
            fs::read(data.join("recovering")).is_ok_and(|said| said == b"in\n")
        }),
        ("the old files aside", &|data| data.join("before-recover-1").exists()),
    ];
    let (mut cut_off, mut as_it_was, mut refusals) = (0, 0, 0);
    for (at, (name, shows)) in moments.iter().enumerate() {
        let data = folder.path().join(format!("data-{at}"));
        copy(&old, &data);
        let peer = format!("127.0.0.1:{}", free_port());
        let recover = ["recover", "--data", text(&data), "--unsafe", "--yes", &id, "--peer", &peer];
        let killed = killed_when(&recover, || shows(&data));
        cut_off += u32::from(killed);
        if data.join("recovering").exists() {
            let (code, said) = refused(&with(single(&data, &[]), "--peer", &peer));
            let why = "it is being recovered, and not to the end";
            assert!(code == 1 && said.contains(why), "killed at {name}: {code}, {said}");
            refusals += 1;
        }
        let ended = !data.join("recovering").exists() && data.join("before-recover-1").exists();
        if !ended {
            if !data.join("recovering").exists() {
                // The old node has all its data, but no majority.
                assert_eq!(cluster_of(&data, &peer), id, "killed at {name}");
                as_it_was += 1;
            }
            let (code, said) = quorate_json(&[&recover[..], &["--json"]].concat());
            assert_eq!(code, 0, "killed at {name}: {said}");
        }
        assert_ne!(serves(&data, &peer), id, "killed at {name}");
        assert!(data.join("before-recover-1/identity").exists());
        assert!(!data.join("recover").exists() && !data.join("recovering").exists());
    }
    let kinds = (cut_off, as_it_was, refusals);
    assert!(
        cut_off >= 5 && as_it_was >= 3 && refusals >= 1,
        "killed, as before, within the switch: {kinds:?}"
    );
}

/// Returns the id of the cluster that the node of a folder reports. The node need not serve.
fn cluster_of(data: &Path, peer: &str) -> String {
    let spec = with(single(data, &[]), "--peer", peer);
    let mut node = NodeProcess::spawn(spec).unwrap();
    node.wait_ready().unwrap_or_else(|error| panic!("{error}"));
    let status: Json = wait_for("its status", || {
        let (code, status) = crate::common::http(&node.ready.admin, "/status")?;
        (code == 200).then(|| serde_json::from_str(&status).unwrap())
    });
    status["cluster"].as_str().unwrap().to_owned()
}

/// Copies a file, including its holes.
fn copy(from: &Path, to: &Path) {
    let mut command = Command::new("cp");
    command.args(["-r", "--sparse=always"]).args([from, to]);
    assert!(command.status().unwrap().success());
}
