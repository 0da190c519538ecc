//! A node starts, serves and stops even if its standard error is not read or cannot be written.

use std::{
    collections::BTreeSet,
    fs::{self, File, OpenOptions},
    io::{Read as _, Write as _},
    net::TcpListener,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::Path,
};

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};

use serde_json::Value as Json;

use crate::common::{
    NodeProcess, NodeSpec, Signal, http, signal, single, wait_end, wait_for, with,
};
use quorate_client::{Client, Options, Reply};

fn spec(folder: &Path, stderr: &Path, flags: &[&str]) -> NodeSpec {
    let mut spec = single(&folder.join("node"), flags);
    spec.log_path = stderr.to_owned();
    spec.environment.push(("QUORATE_LOG".to_owned(), "info".to_owned()));
    spec
}

fn start(folder: &Path, stderr: &Path) -> NodeProcess {
    let spec = spec(folder, stderr, &[]);
    let mut node = NodeProcess::spawn(spec).unwrap();
    node.wait_ready().unwrap();
    node
}

/// Sends SIGHUP to the node, as the end of its terminal or a log rotation would, checks that it
/// responds, and stops it.
fn serve_and_stop(mut node: NodeProcess) {
    signal(&node, Signal::HUP);
    let mut client = Client::new(&[node.ready.client.clone()], Options::default());
    let reply = client.run(&[b"SET", b"a", b"1"]).unwrap();
    assert_eq!(reply, Reply::Simple("OK".to_owned()));
    signal(&node, Signal::TERM);
    assert!(wait_end(&mut node).success());
}

#[test]
fn a_full_pipe_holds_up_no_node_and_its_lines_wait_for_the_reader() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("pipe");
    mknodat(CWD, &place, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap();
    let pipe = OpenOptions::new().read(true).write(true).custom_flags(flags).open(&place);
    let mut pipe = pipe.unwrap();
    for bytes in [4096, 1] {
        while pipe.write(&vec![b'x'; bytes]).is_ok() {}
    }
    let node = start(folder.path(), &place);
    let mut read = Vec::new();
    wait_for("the lines", || {
        // Read until the pipe is empty.
        let _ = pipe.read_to_end(&mut read);
        String::from_utf8_lossy(&read).contains("node started").then_some(())
    });
    for bytes in [4096, 1] {
        while pipe.write(&vec![b'x'; bytes]).is_ok() {}
    }
    serve_and_stop(node);
}

#[test]
fn lines_that_cannot_be_written_are_counted_and_end_no_node() {
    let folder = tempfile::tempdir().unwrap();
    let node = start(folder.path(), Path::new("/dev/full"));
    wait_for("a dropped line", || {
        let (_, text) = http(&node.ready.admin, "/metrics")?;
        let lines = text.lines().filter_map(|line| line.split_once(' '));
        let mut dropped = lines.filter(|(name, _)| *name == "quorate_stderr_lines_dropped_total");
        dropped.any(|(_, count)| count != "0").then_some(())
    });
    serve_and_stop(node);
}

/// Runs a node, and then one that fails because its address is taken. Returns what they log.
fn logged(flags: &[&str], journal: bool) -> String {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let file = File::create(&log).unwrap().metadata().unwrap();
    let run = |client: &str| {
        let mut spec = with(spec(folder.path(), &log, flags), "--client", client);
        if journal {
            let stream = format!("{}:{}", file.dev(), file.ino());
            spec.environment.push(("JOURNAL_STREAM".to_owned(), stream));
        }
        NodeProcess::spawn(spec).unwrap()
    };
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut node = run("127.0.0.1:0");
    node.wait_ready().unwrap();
    serve_and_stop(node);
    assert_eq!(wait_end(&mut run(&taken.local_addr().unwrap().to_string())).code(), Some(1));
    fs::read_to_string(&log).unwrap()
}

#[test]
fn each_line_is_a_json_document_with_its_level() {
    let text = logged(&["--log-format", "json"], true);
    let mut levels = BTreeSet::new();
    for line in text.lines() {
        let line: Json = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
        let time = line["time"].as_str().unwrap();
        assert!(time.contains('T') && time.ends_with('Z'), "{time}");
        assert!(line["target"].as_str().unwrap().starts_with("quorate"), "{line}");
        if line["message"] == "node started" {
            assert_eq!(line["fields"]["boot"], 1, "a number: {line}");
        }
        levels.insert(line["level"].as_str().unwrap().to_owned());
    }
    assert!(levels.contains("info") && levels.contains("error"), "{text}");
}

#[test]
fn the_journal_gets_priorities_and_adds_the_time_itself() {
    let text = logged(&[], true);
    assert!(text.lines().all(|line| line.starts_with('<')), "{text}");
    assert!(text.contains("\n<6>INFO node started node=1"), "{text}");
    assert!(text.contains("\n<3>ERROR ") && text.contains("(hint: "), "{text}");
    let elsewhere = logged(&[], false);
    let begin = |line: &str| line.as_bytes()[4] == b'-' && line.contains("Z ");
    assert!(elsewhere.lines().all(begin), "{elsewhere}");
}
