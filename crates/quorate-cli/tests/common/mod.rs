//! A cluster of real processes for a test: short to set up, gone when dropped.

#![allow(dead_code)] // Each test uses its part of it.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Output},
    thread,
    time::{Duration, Instant},
};

use quorate_client::{Client, Options, Reply};
use quorate_testbed::process;
pub(crate) use quorate_testbed::process::{NodeProcess, Spec};
pub(crate) use rustix::process::Signal;
use serde_json::Value as Json;

/// A step that takes longer has failed; the machine may be busy with other tests.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(10);

/// The binary under test.
pub(crate) fn program() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_quorate"))
}

/// Runs a command of the binary to its end.
pub(crate) fn quorate(arguments: &[&str]) -> Output {
    run(&program(), arguments)
}

fn run(program: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("QUORATE_") {
            command.env_remove(name);
        }
    }
    command.args(arguments).output().unwrap()
}

/// Exit code, and standard output as JSON.
pub(crate) fn quorate_json(arguments: &[&str]) -> (i32, Json) {
    let output = quorate(arguments);
    let text = String::from_utf8(output.stdout).unwrap();
    let json = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text:?}"));
    (output.status.code().unwrap(), json)
}

/// Waits for a condition; says what was waited for if it does not come.
pub(crate) fn wait_for<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(met) = condition() {
            return met;
        }
        assert!(Instant::now() < until, "waited for {what}");
        thread::sleep(PAUSE);
    }
}

/// Nodes in one folder.
pub(crate) struct Cluster {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) nodes: Vec<NodeProcess>,
}

impl Cluster {
    /// Starts `nodes` nodes with these flags for all of them, and waits until all serve.
    pub(crate) fn start(nodes: u32, flags: &[&str]) -> Self {
        Self::start_program(&program(), nodes, flags)
    }

    /// The same with another binary, or what starts it.
    pub(crate) fn start_program(program: &Path, nodes: u32, flags: &[&str]) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("quorate-test-")
            .tempdir()
            .unwrap();
        let specs = process::cluster(program, folder.path(), nodes, true, flags).unwrap();
        let mut nodes: Vec<_> = specs
            .into_iter()
            .map(|spec| NodeProcess::spawn(spec).unwrap())
            .collect();
        for node in &mut nodes {
            node.wait_ready().unwrap_or_else(|error| panic!("{error}"));
        }
        let cluster = Self { folder, nodes };
        cluster.wait_until_all_serve();
        cluster
    }

    pub(crate) fn wait_until_all_serve(&self) {
        for node in &self.nodes {
            wait_for("a node that serves", || {
                (http(&node.ready.admin, "/ready")?.0 == 200).then_some(())
            });
        }
    }

    pub(crate) fn node(&mut self, id: u32) -> &mut NodeProcess {
        let node = self.nodes.iter_mut().find(|node| node.ready.node == id);
        node.expect("a node of this cluster")
    }

    /// What a node says about itself, if it answers.
    pub(crate) fn status(&self, id: u32) -> Option<Json> {
        let node = self.nodes.iter().find(|node| node.ready.node == id)?;
        let (code, body) = http(&node.ready.admin, "/status")?;
        (code == 200).then(|| serde_json::from_str(&body).unwrap())
    }

    /// Whom the first node that answers calls the leader.
    pub(crate) fn leader(&self) -> u32 {
        wait_for("a leader", || {
            let mut views = self
                .nodes
                .iter()
                .filter_map(|node| self.status(node.ready.node));
            let leader = views.find_map(|view| view["leader"].as_u64())?;
            u32::try_from(leader).ok()
        })
    }

    pub(crate) fn clients(&self) -> Vec<String> {
        self.nodes
            .iter()
            .map(|node| node.ready.client.clone())
            .collect()
    }

    /// A client that begins at node `id` and may go on to the others.
    pub(crate) fn client_from(&self, id: u32) -> Client {
        let mut addresses = self.clients();
        let first = self
            .nodes
            .iter()
            .position(|node| node.ready.node == id)
            .unwrap();
        addresses.rotate_left(first);
        Client::new(&addresses, patient())
    }

    /// A client of one node only.
    pub(crate) fn client_of(&self, id: u32) -> Client {
        let node = self
            .nodes
            .iter()
            .find(|node| node.ready.node == id)
            .unwrap();
        Client::new(std::slice::from_ref(&node.ready.client), patient())
    }

    /// SIGKILL for all of them before any is waited for.
    pub(crate) fn kill_all_at_once(&mut self) {
        for node in &self.nodes {
            signal(node, Signal::KILL);
        }
        for node in &mut self.nodes {
            wait_end(node);
        }
    }

    pub(crate) fn restart_all(&mut self) {
        let specs: Vec<Spec> = self.nodes.drain(..).map(|node| node.spec.clone()).collect();
        self.nodes = specs
            .into_iter()
            .map(|spec| NodeProcess::spawn(spec).unwrap())
            .collect();
        for node in &mut self.nodes {
            node.wait_ready().unwrap_or_else(|error| panic!("{error}"));
        }
    }

    /// All nodes have the same contents at the same position.
    pub(crate) fn wait_until_equal(&self) {
        let stale = Options {
            stale_reads: true,
            ..patient()
        };
        wait_for("equal contents", || {
            let digest = |address: String| {
                Client::new(&[address], stale.clone())
                    .ask(&[b"QUORATE", b"DIGEST"])
                    .ok()
            };
            let digests: Vec<Reply> = self
                .clients()
                .into_iter()
                .map(digest)
                .collect::<Option<_>>()?;
            digests
                .windows(2)
                .all(|pair| pair[0] == pair[1])
                .then_some(())
        });
    }
}

/// What a failing test leaves to look at.
impl Drop for Cluster {
    fn drop(&mut self) {
        if thread::panicking() {
            for node in &self.nodes {
                let text = fs::read_to_string(&node.spec.stderr).unwrap_or_default();
                eprintln!("--- node {}\n{text}", node.ready.node);
            }
        }
    }
}

pub(crate) fn patient() -> Options {
    Options {
        deadline: PATIENCE,
        attempt: Duration::from_secs(2),
        ..Options::default()
    }
}

pub(crate) fn signal(node: &NodeProcess, signal: Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_child(&node.child), signal).unwrap();
}

pub(crate) fn wait_end(node: &mut NodeProcess) -> ExitStatus {
    wait_for("a process that ends", || node.child.try_wait().unwrap())
}

/// Status code and body.
pub(crate) fn http(address: &str, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
}

/// A node alone with this folder; all ports are free ones.
pub(crate) fn single(data: &Path, flags: &[&str]) -> Spec {
    let ports = [
        "--client",
        "127.0.0.1:0",
        "--peer",
        "127.0.0.1:0",
        "--admin",
        "127.0.0.1:0",
    ];
    Spec {
        program: program(),
        data: data.to_owned(),
        flags: ports
            .iter()
            .chain(flags)
            .map(|flag| (*flag).to_owned())
            .collect(),
        stderr: data.with_extension("log"),
        tied: true,
    }
}

/// The same with another value for a flag that it has already.
pub(crate) fn with(mut spec: Spec, flag: &str, value: &str) -> Spec {
    let at = spec.flags.iter().position(|known| known == flag).unwrap();
    value.clone_into(&mut spec.flags[at + 1]);
    spec
}

/// A port that was free just now.
pub(crate) fn free_port() -> u16 {
    process::free_port().unwrap()
}

/// Starts it and expects it to end at once: exit code and standard error.
pub(crate) fn refused(spec: &Spec) -> (i32, String) {
    let mut arguments = vec!["start", "--data", spec.data.to_str().unwrap()];
    arguments.extend(spec.flags.iter().map(String::as_str));
    let output = run(&spec.program, &arguments);
    assert!(
        output.stdout.is_empty(),
        "a refused node printed {:?}",
        output.stdout
    );
    (
        output.status.code().unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

/// Processes with a path in this folder among their arguments.
pub(crate) fn processes_in(folder: &Path) -> Vec<u32> {
    let folder = folder.to_str().unwrap();
    let all = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let id: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let line = fs::read(format!("/proc/{id}/cmdline")).ok()?;
        String::from_utf8_lossy(&line)
            .contains(folder)
            .then_some(id)
    });
    all.collect()
}
