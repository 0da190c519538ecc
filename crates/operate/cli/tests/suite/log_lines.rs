//! A node starts, serves and stops even if its standard error is not read or cannot be written.

use std::{
    fs::OpenOptions,
    io::{Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};

use crate::common::{NodeProcess, Signal, http, signal, single, wait_end, wait_for};
use quorate_client::{Client, Options, Reply};

fn start(folder: &Path, stderr: &Path) -> NodeProcess {
    let mut spec = single(&folder.join("node"), &[]);
    spec.stderr = stderr.to_owned();
    spec.variables.push(("QUORATE_LOG".to_owned(), "info".to_owned()));
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
