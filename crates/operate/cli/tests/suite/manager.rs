//! A node's notifications to a service manager, received on a socket of the test.

use std::{
    fs::{File, OpenOptions},
    io::{self, BufRead as _, BufReader, ErrorKind, PipeReader, Write as _},
    net::TcpStream,
    os::{
        fd::AsRawFd as _,
        linux::net::SocketAddrExt as _,
        unix::{
            fs::OpenOptionsExt as _,
            net::{SocketAddr, UnixDatagram},
        },
    },
    path::Path,
    process::{Child, ChildStdout, ExitStatus, Stdio},
    time::Instant,
};

use crate::common::{START_TIMEOUT, free_port, http};
use quorate_testbed::process;
use rustix::{
    fs::OFlags,
    process::{Pid, Signal, kill_process},
};

/// Watchdog timeout that the manager sets for the node.
const WATCHDOG_USEC: &str = "300000";

/// Service manager, from the node's point of view.
struct Manager {
    socket: UnixDatagram,
    place: String,
}

impl Manager {
    fn at_path(folder: &Path) -> Self {
        let path = folder.join("notify");
        Self::new(UnixDatagram::bind(&path).unwrap(), path.to_str().unwrap())
    }

    /// Binds an abstract socket name, as older versions of systemd and some container runtimes do.
    fn at_name(name: &str) -> Self {
        let address = SocketAddr::from_abstract_name(name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        Self::new(socket, &format!("@{name}"))
    }

    fn new(socket: UnixDatagram, place: &str) -> Self {
        socket.set_read_timeout(Some(START_TIMEOUT)).unwrap();
        let place = place.to_owned();
        Self { socket, place }
    }

    /// Receives the lines of the next message.
    fn hear(&self) -> io::Result<Vec<String>> {
        let mut buffer = [0; 4096];
        let length = self.socket.recv(&mut buffer)?;
        let text = String::from_utf8(buffer[..length].to_vec()).unwrap();
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// Receives messages until a line matches. Returns all lines up to that one.
    fn hear_until(&self, is_it: impl Fn(&str) -> bool) -> Vec<String> {
        let mut heard: Vec<String> = Vec::new();
        let begin = Instant::now();
        while !heard.iter().any(|line| is_it(line)) {
            match self.hear() {
                Ok(lines) if begin.elapsed() < START_TIMEOUT => heard.extend(lines),
                Ok(_) => panic!("something else only; heard {heard:#?}"),
                Err(error) => panic!("{error}; heard {heard:#?}"),
            }
        }
        heard
    }

    /// Returns the messages that have arrived but were not read.
    fn heard(&self) -> Vec<String> {
        self.socket.set_nonblocking(true).unwrap();
        let mut heard = Vec::new();
        loop {
            match self.hear() {
                Ok(lines) => heard.extend(lines),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        self.socket.set_nonblocking(false).unwrap();
        heard
    }
}

/// Node that the manager has started. It is killed on drop.
struct Managed {
    node: Child,
    admin: String,
    client: String,
    stdout: Option<BufReader<ChildStdout>>,
}

impl Managed {
    fn start(manager: &Manager, folder: &Path, flags: &[&str], stderr: impl Into<Stdio>) -> Self {
        let address = || format!("127.0.0.1:{}", free_port());
        let (admin, client) = (address(), address());
        let mut command = process::command_of(&crate::common::program());
        let mut node = command
            .args(["start", "--data", folder.join("node").to_str().unwrap()])
            .args(["--admin", &admin, "--client", &client])
            .args(["--stream", "127.0.0.1:0"])
            .args(flags)
            .env("NOTIFY_SOCKET", &manager.place)
            .env("WATCHDOG_USEC", WATCHDOG_USEC)
            .env_remove("WATCHDOG_PID")
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .unwrap();
        let stdout = node.stdout.take().map(BufReader::new);
        Self { node, admin, client, stdout }
    }

    /// Reads the line with the node's addresses.
    fn ready_line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.as_mut().unwrap().read_line(&mut line).unwrap();
        line
    }

    fn terminate(&mut self) -> ExitStatus {
        kill_process(Pid::from_child(&self.node), Signal::TERM).unwrap();
        self.node.wait().unwrap()
    }
}

impl Drop for Managed {
    fn drop(&mut self) {
        let _ = self.node.kill();
        let _ = self.node.wait();
    }
}

fn log(folder: &Path) -> File {
    File::create(folder.join("log")).unwrap()
}

#[test]
fn a_node_says_when_it_is_ready_what_it_is_and_that_it_stops() {
    let folder = tempfile::tempdir().unwrap();
    let manager = Manager::at_path(folder.path());
    let peer = ["--peer", "127.0.0.1:0"];
    let mut node = Managed::start(&manager, folder.path(), &peer, log(folder.path()));
    let heard = manager.hear_until(|line| line == "READY=1");
    assert!(node.ready_line().starts_with("ready node=1 "));
    assert!(heard.iter().any(|line| line == "STATUS=opening the log"), "{heard:#?}");
    // A start that makes progress extends its timeout.
    assert!(heard.iter().any(|line| line.starts_with("EXTEND_TIMEOUT_USEC=")), "{heard:#?}");
    let heard = manager.hear_until(|line| line == "STATUS=node 1 leads");
    assert!(!heard.iter().any(|line| line == "READY=1"), "{heard:#?}");
    manager.hear_until(|line| line == "WATCHDOG=1");
    assert!(node.terminate().success());
    let heard = manager.heard();
    let stopping = heard.iter().position(|line| line == "STOPPING=1");
    let after = heard.split_at(stopping.unwrap()).1;
    assert_eq!(after.len(), 2, "{after:#?}");
}

/// A node that waits for the founder of its cluster counts as ready and alive for as long as it
/// waits. The manager therefore neither waits for the start nor restarts the node.
#[test]
fn a_node_that_waits_for_another_is_ready_and_turns() {
    let folder = tempfile::tempdir().unwrap();
    let name = format!("quorate-test-{}", std::process::id());
    let manager = Manager::at_name(&name);
    let list = format!("1=127.0.0.1:{},2=127.0.0.1:{}", free_port(), free_port());
    let flags = ["--node", "2", "--cluster", &list];
    let mut node = Managed::start(&manager, folder.path(), &flags, log(folder.path()));
    let heard = manager.hear_until(|line| line == "READY=1");
    assert!(node.ready_line().starts_with("ready node=2 "), "{heard:#?}");
    // A separate thread prints the ready line, so the two lines may arrive in either order.
    let waits = |line: &str| line.starts_with("STATUS=waiting for the founder");
    if !heard.iter().any(|line| waits(line)) {
        manager.hear_until(waits);
    }
    for _ in 0..3 {
        manager.hear_until(|line| line == "WATCHDOG=1");
    }
    assert!(node.terminate().success());
}

/// A full standard error blocks neither the reactor nor the notifications to the manager.
#[test]
fn a_full_standard_error_does_not_stop_the_reactor() {
    let folder = tempfile::tempdir().unwrap();
    let manager = Manager::at_path(folder.path());
    let (unread, stderr) = io::pipe().unwrap();
    let peer = ["--peer", "127.0.0.1:0"];
    let node = Managed::start(&manager, folder.path(), &peer, stderr);
    manager.hear_until(|line| line == "STATUS=node 1 leads");

    fill(&unread);
    // An invalid request makes the reactor log a line.
    let mut stranger = TcpStream::connect(&node.client).unwrap();
    stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    manager.heard();
    for _ in 0..3 {
        manager.hear_until(|line| line == "WATCHDOG=1");
    }
    let (code, _) = http(&node.admin, "/health").unwrap();
    assert_eq!(code, 200);
}

/// Fills the pipe through another open file description, so that the node's description remains
/// blocking.
fn fill(pipe: &PipeReader) {
    let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).unwrap();
    let mut writer = OpenOptions::new()
        .write(true)
        .custom_flags(nonblocking)
        .open(format!("/proc/self/fd/{}", pipe.as_raw_fd()))
        .unwrap();
    for size in [4096, 1] {
        while writer.write_all(&[b'\n'; 4096][..size]).is_ok() {}
    }
}

/// A missing socket is reported, and the node runs without a manager.
#[test]
fn a_manager_that_is_gone_keeps_no_node_from_running() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = folder.path().join("nowhere");
    let mut node = process::command_of(&crate::common::program())
        .args(["start", "--data", folder.path().join("node").to_str().unwrap()])
        .args(["--admin", "127.0.0.1:0", "--client", "127.0.0.1:0", "--peer", "127.0.0.1:0"])
        .args(["--stream", "127.0.0.1:0"])
        .env("NOTIFY_SOCKET", &nowhere)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(node.stdout.take().unwrap()).read_line(&mut line).unwrap();
    kill_process(Pid::from_child(&node), Signal::TERM).unwrap();
    let output = node.wait_with_output().unwrap();
    assert!(line.starts_with("ready node=1 "), "{line}");
    assert!(output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    let expected = "cannot notify the service manager: NOTIFY_SOCKET=";
    assert!(said.contains(expected), "{said}");
}
