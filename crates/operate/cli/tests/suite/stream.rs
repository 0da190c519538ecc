//! `quorate stream` with simulated nodes. Every byte that was put is in the stream despite faults,
//! and every refusal is clear.

use std::{
    fs,
    io::{Read as _, Write as _},
    path::Path,
    process::{Child, Command, Output, Stdio},
    thread,
};

use crate::common::{START_TIMEOUT, program, wait_for};
use quorate_core::dice::Dice;
use quorate_testbed::played::{Fault, SimulatedCluster};
use quorate_wire::streams::ErrorCode;
use rustix::{
    io::ioctl_fionread,
    process::{Pid, Signal, kill_process},
};
use serde_json::Value as Json;

fn bytes(count: usize) -> Vec<u8> {
    let mut dice = Dice::new(count as u64);
    let words = (0..count.div_ceil(8)).flat_map(|_| dice.word().to_le_bytes());
    words.take(count).collect()
}

fn stream(arguments: &[&str], nodes: &[String]) -> Command {
    let mut command = Command::new(program());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("QUORATE_") {
            command.env_remove(name);
        }
    }
    command.arg("stream").args(arguments);
    command.env("QUORATE_STREAM", nodes.join(","));
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(arguments: &[&str], nodes: &[String]) -> Output {
    stream(arguments, nodes).output().unwrap()
}

/// Runs a command. Returns the exit code and the document.
fn json(arguments: &[&str], nodes: &[String]) -> (i32, Json) {
    let output = run(&[arguments, &["--json"]].concat(), nodes);
    let text = String::from_utf8(output.stdout).unwrap();
    let json = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text:?}"));
    (output.status.code().unwrap(), json)
}

/// Runs a command with `input` as its standard input.
fn fed(arguments: &[&str], nodes: &[String], input: &[u8]) -> Output {
    let mut child = stream(arguments, nodes).stdin(Stdio::piped()).spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    let input = input.to_vec();
    let feeding = thread::spawn(move || pipe.write_all(&input));
    let output = child.wait_with_output().unwrap();
    // A command that refuses its input may end before it has read anything.
    let whole = feeding.join().unwrap().is_ok();
    assert!(whole || !output.status.success(), "it read a part of its input");
    output
}

#[track_caller]
fn refused(arguments: &[&str], nodes: &[String], exit: i32, code: &str) -> String {
    let (ended, said) = json(arguments, nodes);
    assert_eq!((ended, &said["error"]["code"]), (exit, &code.into()), "{said}");
    said["error"]["message"].as_str().unwrap().to_owned()
}

fn file(folder: &Path, data: &[u8]) -> String {
    let path = folder.join("file");
    fs::write(&path, data).unwrap();
    path.to_str().unwrap().to_owned()
}

fn interrupt(child: &Child) {
    kill_process(Pid::from_child(child), Signal::INT).unwrap();
}

#[test]
fn what_is_put_comes_out_again() {
    let played = SimulatedCluster::start(2, 1).unwrap();
    let nodes = played.addresses();
    let data = bytes(700_000);
    let output = fed(&["put", "--name", "a", "--json"], nodes, &data);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said: Json = serde_json::from_slice(&output.stdout).unwrap();
    let mut keys: Vec<&str> = said.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["bytes", "name", "position", "reconnects", "seconds"]);
    assert_eq!((&said["name"], &said["bytes"]), (&"a".into(), &700_000.into()));
    assert_eq!((&said["position"], &said["reconnects"]), (&700_000.into(), &0.into()));
    assert_eq!(played.decided_bytes("a"), Some((data.clone(), true)));

    for (arguments, expected) in [
        (&["cat", "a"][..], &data[..]),
        (&["cat", "a", "--follow"], &data),
        (&["cat", "a", "--from", "5"], &data[5..]),
        (&["cat", "a", "--from", "5", "--to", "300000"], &data[5..300_000]),
        (&["cat", "a", "--from", "700000"], &[]),
    ] {
        let output = run(arguments, nodes);
        assert_eq!(output.status.code(), Some(0), "{arguments:?} {:?}", output.stderr);
        assert!(output.stdout == expected, "{arguments:?}");
        assert!(output.stderr.is_empty(), "{arguments:?}");
    }
    // Standard output is reserved for the stream, so the document goes to standard error.
    let output = run(&["cat", "a", "--from", "699999", "--json"], nodes);
    assert_eq!(output.stdout, &data[699_999..]);
    let said: Json = serde_json::from_slice(&output.stderr).unwrap();
    let expected =
        serde_json::json!({"name": "a", "bytes": 1, "position": 700_000, "state": "closed"});
    assert_eq!(said, expected);
}

#[test]
fn a_file_is_put_through_lost_connections_and_nodes() {
    let played = SimulatedCluster::start(3, 5).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let data = bytes(500_000);
    let path = file(folder.path(), &data);
    played.queue_faults(&[
        Fault::CutInputAfter(100_000),
        Fault::CutBeforeFrame(1),
        Fault::CutInputAfter(77_777),
    ]);
    let (code, said) = json(&["put", &path, "--name", "a"], played.addresses());
    assert_eq!((code, &said["position"]), (0, &500_000.into()), "{said}");
    assert_eq!(said["reconnects"], 2, "{said}");
    assert!(played.decided_bytes("a") == Some((data, true)));
}

#[test]
fn a_name_is_made_and_said_where_none_is_given() {
    let played = SimulatedCluster::start(1, 1).unwrap();
    let output = fed(&["put"], played.addresses(), b"abc");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    let name = said.lines().next().unwrap().strip_prefix("stream ").unwrap();
    assert_eq!(played.decided_bytes(name), Some((b"abc".to_vec(), true)));
    let out = String::from_utf8(output.stdout).unwrap();
    assert!(out.starts_with(&format!("{name}: 3 B in ")), "{out}");
    assert!(out.contains("durable to position 3\n"), "{out}");
}

#[test]
fn an_existing_stream_is_written_only_as_the_user_says() {
    let played = SimulatedCluster::start(1, 1).unwrap();
    let nodes = played.addresses();
    let put = |arguments: &[&str], input: &[u8]| {
        let arguments = [&["put", "--name", "a", "--json"], arguments].concat();
        let output = fed(&arguments, nodes, input);
        let said: Json = serde_json::from_slice(&output.stdout).unwrap();
        let word = said["error"]["code"].as_str().unwrap_or("done").to_owned();
        (output.status.code().unwrap(), word)
    };
    let done = (0, "done".to_owned());
    assert_eq!(put(&["--append"], b""), (1, "unknown_stream".to_owned()));
    assert_eq!(put(&["--no-close"], b"abc"), done);
    assert_eq!(put(&[], b"x"), (1, "exists".to_owned()));
    assert_eq!(put(&["--append", "--no-close"], b"def"), done);
    assert_eq!(played.decided_bytes("a"), Some((b"abcdef".to_vec(), false)));

    // A writer has the stream open.
    let mut child =
        stream(&["put", "--name", "a", "--append"], nodes).stdin(Stdio::piped()).spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    pipe.write_all(b"ghi").unwrap();
    assert!(played.wait_for_bytes("a", 9, START_TIMEOUT));
    assert_eq!(put(&["--append"], b"x"), (1, "in_use".to_owned()));
    assert_eq!(put(&["--takeover"], b"jkl"), done);
    // The writer is fenced permanently and reports its durable position.
    drop(pipe);
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{said}");
    assert!(said.contains("stream a is durable to position 9"), "{said}");
    assert_eq!(played.decided_bytes("a"), Some((b"abcdefghijkl".to_vec(), true)));
    assert_eq!(put(&["--append"], b""), (1, "closed".to_owned()));
}

/// An interrupted command reports which position is durable, and the same file can be resumed from
/// there.
#[test]
fn an_interrupted_file_is_resumed_where_it_is_the_same() {
    let played = SimulatedCluster::start(1, 3).unwrap();
    let nodes = played.addresses();
    let folder = tempfile::tempdir().unwrap();
    let data = bytes(400_000);
    let path = file(folder.path(), &data);
    let arguments = ["put", &path, "--name", "a", "--resume"];
    played.stop_deciding_at(123_456);
    let slow = [&arguments[..], &["--buffer", "100000"]].concat();
    let child = stream(&slow, nodes).spawn().unwrap();
    // The command sends this many bytes only after earlier bytes were reported durable.
    assert!(played.wait_for_bytes("a", 223_456, START_TIMEOUT));
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("stream a is durable to position 123456"), "{said}");
    played.stop_deciding_at(u64::MAX);

    let (code, said) = json(&arguments, nodes);
    assert_eq!((code, &said["position"]), (0, &400_000.into()), "{said}");
    // Bytes sent before the interruption may have been decided afterwards.
    assert!(said["bytes"].as_u64().unwrap() <= 400_000 - 123_456, "{said}");
    assert!(played.decided_bytes("a") == Some((data.clone(), true)));
    let (code, said) = json(&arguments, nodes);
    assert_eq!((code, &said["bytes"]), (0, &0.into()), "{said}");

    let mut other = data.clone();
    other[200_000] ^= 1;
    let path = file(folder.path(), &other);
    let arguments = ["put", &path, "--name", "a", "--resume"];
    let message = refused(&arguments, nodes, 1, "differs");
    assert!(message.contains("at position 200000"), "{message}");
    file(folder.path(), &data[..300_000]);
    refused(&arguments, nodes, 1, "differs");
    played.put_stream("b", &data[..1000], false);
    file(folder.path(), &data);
    let (code, said) = json(&["put", &path, "--name", "b", "--resume", "--takeover"], nodes);
    assert_eq!((code, &said["bytes"]), (0, &399_000.into()), "{said}");
    assert!(played.decided_bytes("b") == Some((data, true)));
}

/// The previous writer may leave bytes above the compared position. They are compared as well.
#[test]
fn what_was_decided_after_the_comparison_is_compared_as_well() {
    let played = SimulatedCluster::start(1, 3).unwrap();
    let nodes = played.addresses();
    let folder = tempfile::tempdir().unwrap();
    let data = bytes(100_000);
    let path = file(folder.path(), &data);
    played.stop_deciding_at(50_000);
    let mut other = data.clone();
    other[50_000] ^= 1;
    let mut child = stream(&["put", "--name", "a"], nodes).stdin(Stdio::piped()).spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    pipe.write_all(&other).unwrap();
    assert!(played.wait_for_bytes("a", 100_000, START_TIMEOUT));
    // All offered bytes are decided when the piece ends.
    played.decide_all_at_end("a");
    let arguments = ["put", &path, "--name", "a", "--resume", "--takeover"];
    let message = refused(&arguments, nodes, 1, "differs");
    assert!(message.contains("at position 50000"), "{message}");
    drop(pipe);
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let (stream, finished) = played.decided_bytes("a").unwrap();
    assert!(stream == other && !finished);
}

#[test]
fn standard_input_is_not_read_past_what_the_buffer_holds() {
    const BUFFER: u64 = 100_000;
    let played = SimulatedCluster::start(1, 1).unwrap();
    played.stop_deciding_at(0);
    let arguments = ["put", "--name", "a", "--buffer", "100000"];
    let mut child = stream(&arguments, played.addresses()).stdin(Stdio::piped()).spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    let data = bytes(600_000);
    let mut given = 0;
    for held in [0, 3, 90_000, 200_000] {
        played.stop_deciding_at(held);
        // The length exceeds what the writer may send, but not by so much that it also fills the
        // pipe.
        let goal = usize::try_from(held + BUFFER).unwrap() + 30_000;
        pipe.write_all(&data[given..goal]).unwrap();
        given = goal;
        assert!(played.wait_for_bytes("a", held + BUFFER, START_TIMEOUT));
        let taken = given as u64 - ioctl_fionread(&pipe).unwrap();
        assert_eq!(taken, held + BUFFER);
    }
    played.stop_deciding_at(u64::MAX);
    pipe.write_all(&data[given..]).unwrap();
    drop(pipe);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(played.decided_bytes("a") == Some((data, true)));
}

#[test]
fn cat_gives_out_nothing_it_should_not() {
    let played = SimulatedCluster::start(2, 1).unwrap();
    let nodes = played.addresses();
    let data = bytes(5_000);
    played.put_stream("a", &data, false);
    played.trim("a", 1000);
    for (arguments, exit, code) in [
        (&["cat", "a", "--from", "999"][..], 1, "trimmed"),
        (&["cat", "a", "--to", "999"], 1, "trimmed"),
        (&["cat", "b"], 1, "unknown_stream"),
        (&["cat", "a", "--from", "5001"], 1, "behind_end"),
        (&["cat", "a", "--from", "9", "--to", "8"], 2, "bad_configuration"),
    ] {
        let output = run(&[arguments, &["--json"]].concat(), nodes);
        assert_eq!(output.status.code(), Some(exit), "{arguments:?}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        let said: Json = serde_json::from_slice(&output.stderr).unwrap();
        assert_eq!(said["error"]["code"], code, "{said}");
    }
    let output = run(&["cat", "a"], nodes);
    assert_eq!((output.status.code(), output.stdout), (Some(0), data[1000..].to_vec()));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said, "stream a: trimmed, so it starts at 1000\n");
    for (last, from) in [("2kB", 3000), ("1M", 1000)] {
        let output = run(&["cat", "a", "--last", last], nodes);
        assert_eq!((output.status.code(), output.stdout), (Some(0), data[from..].to_vec()));
    }
    // All existing bytes are printed, and the command reports that there are fewer than requested.
    let output = run(&["cat", "a", "--from", "1000", "--to", "6000"], nodes);
    assert_eq!((output.status.code(), output.stdout), (Some(1), data[1000..].to_vec()));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("it ends at 5000, before --to 6000"), "{said}");

    // Contact exactly the named node, leader or not.
    played.set_leader(0);
    let before = played.accepted_by().len();
    played.queue_faults(&[Fault::RefuseFirst(ErrorCode::Unavailable)]);
    let output = run(&["cat", "a", "--from", "1000"], &nodes[1..]);
    assert_eq!(output.stdout, &data[1000..]);
    assert_eq!(played.accepted_by()[before..], [1, 1]);
}

#[test]
fn cat_ends_quietly_when_nobody_reads_any_more() {
    let played = SimulatedCluster::start(1, 1).unwrap();
    let nodes = played.addresses();
    played.put_stream("a", &bytes(4 << 20), false);
    for arguments in [&["cat", "a"][..], &["cat", "a", "--follow"]] {
        let mut child = stream(arguments, nodes).spawn().unwrap();
        let mut some = [0; 1000];
        child.stdout.take().unwrap().read_exact(&mut some).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(output.stderr.is_empty(), "{output:?}");
    }
    // The command does not wait for a byte that may never arrive.
    let arguments = ["cat", "a", "--follow", "--from", "4194304"];
    let mut child = stream(&arguments, nodes).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn cat_follows_until_the_stream_is_closed() {
    let played = SimulatedCluster::start(1, 1).unwrap();
    played.put_stream("a", b"abc", false);
    let arguments = ["cat", "a", "--follow"];
    let mut child = stream(&arguments, played.addresses()).spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut some = [0; 3];
    out.read_exact(&mut some).unwrap();
    assert_eq!(&some, b"abc");
    assert_eq!(child.try_wait().unwrap(), None);
    played.append("a", b"def", false);
    out.read_exact(&mut some).unwrap();
    assert_eq!(&some, b"def");
    played.append("a", b"", true);
    let mut rest = Vec::new();
    out.read_to_end(&mut rest).unwrap();
    assert_eq!((rest, child.wait().unwrap().code()), (Vec::new(), Some(0)));
}

#[test]
fn streams_are_listed_looked_at_trimmed_and_removed() {
    let played = SimulatedCluster::start(1, 1).unwrap();
    let nodes = played.addresses();
    let none = String::from_utf8(run(&["ls"], nodes).stdout).unwrap();
    assert_eq!(none, "no streams\n");
    played.put_stream("b", b"abc", true);
    played.put_stream("a", b"abcdef", false);
    assert_eq!(json(&["trim", "a", "--before", "2"], nodes).1["start"], 2);
    refused(&["trim", "a", "--before", "7"], nodes, 1, "behind_end");
    let a = serde_json::json!({
        "name": "a", "state": "open", "start": 2, "durable": 6, "bytes": 4, "writer": null,
        "pieces": 1, "created": "2023-11-14T22:13:20Z",
        "keep_bytes": null, "keep_ms": null,
    });
    let (code, list) = json(&["ls"], nodes);
    let streams = list["streams"].as_array().unwrap();
    assert_eq!((code, streams.len(), &streams[0]), (0, 2, &a));
    assert_eq!((&streams[1]["name"], &streams[1]["state"]), (&"b".into(), &"closed".into()));
    assert_eq!(json(&["stat", "a"], nodes), (0, a));
    let table = String::from_utf8(run(&["ls"], nodes).stdout).unwrap();
    assert!(table.starts_with("name  state   start  durable"), "{table}");
    assert_eq!(json(&["rm", "a"], nodes), (0, serde_json::json!({"name": "a"})));
    refused(&["rm", "a"], nodes, 1, "unknown_stream");
    refused(&["stat", "a"], nodes, 1, "unknown_stream");
}

#[test]
fn how_much_is_kept_is_said_by_bytes_by_age_or_both() {
    let played = SimulatedCluster::start(1, 1).unwrap();
    let nodes = played.addresses();
    played.put_stream("a", b"abc", false);
    let kept = |name: &str| {
        let (_, said) = json(&["stat", name], nodes);
        (said["keep_bytes"].as_u64(), said["keep_ms"].as_u64())
    };
    let retain = |arguments: &[&str]| {
        let (code, _) = json(&[&["retain", "a"], arguments].concat(), nodes);
        assert_eq!(code, 0, "{arguments:?}");
        kept("a")
    };
    assert_eq!(kept("a"), (None, None));
    assert_eq!(retain(&["--bytes", "4096"]), (Some(4096), None));
    // Limits that are not given stay unchanged.
    assert_eq!(retain(&["--age", "2h"]), (Some(4096), Some(7_200_000)));
    assert_eq!(retain(&["--bytes", "7", "--age", "1d"]), (Some(7), Some(86_400_000)));
    let table = String::from_utf8(run(&["list"], nodes).stdout).unwrap();
    assert!(table.contains("7 B, 1d"), "{table}");
    let line = String::from_utf8(run(&["stat", "a"], nodes).stdout).unwrap();
    assert!(line.contains("retention 7 B, 1d"), "{line}");
    assert_eq!(retain(&["--bytes", "all"]), (None, Some(86_400_000)));
    assert_eq!(retain(&["--age", "forever"]), (None, None));
    refused(&["retain", "b", "--age", "1d"], nodes, 1, "unknown_stream");

    let put = ["put", "--quiet", "--name", "p", "--retain-age", "30m"];
    let output = fed(&put, nodes, b"abc");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
    assert_eq!(kept("p"), (None, Some(1_800_000)));
    let put = ["put", "--name", "q", "--retain-bytes", "100", "--no-close"];
    let output = fed(&put, nodes, b"abc");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(kept("q"), (Some(100), None));
}

#[test]
fn bad_usage_and_nobody_there_are_clear() {
    let closed = [format!("127.0.0.1:{}", crate::common::free_port())];
    for arguments in [
        &["put", "--resume", "--name", "a"][..],
        &["put", "--append"],
        &["put", "--append", "--takeover", "--name", "a"],
        &["put", "--buffer", "0"],
        &["put", "--limit", "0"],
        &["cat"],
        &["trim", "a"],
        &["retain", "a"],
        &["retain", "a", "--bytes", "1XiB"],
        &["retain", "a", "--age", "7"],
        &["ls", "--stream", "nonsense"],
    ] {
        let output = run(arguments, &closed);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?}");
    }
    let message = refused(&["ls"], &closed, 3, "unreachable");
    assert!(message.contains(&closed[0]), "{message}");
    refused(&["put", "--name", "a"], &closed, 3, "unreachable");
    let (code, _) = json(&["put", "/nowhere/at/all", "--name", "a"], &closed);
    assert_eq!(code, 1);
}

/// An interrupt before any node has responded is reported.
#[test]
fn an_interrupt_before_the_stream_is_open_says_so() {
    let played = SimulatedCluster::start(1, 1).unwrap();
    played.queue_faults(&[Fault::SilenceFromFrame(1)]);
    let child = stream(&["put", "--name", "a", "--json"], played.addresses()).spawn().unwrap();
    wait_for("the question", || played.decided_bytes("a"));
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let said: Json = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said["error"]["code"], "interrupted");
    let message = said["error"]["message"].as_str().unwrap();
    assert!(message.contains("before stream a was open"), "{message}");
}
