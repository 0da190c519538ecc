//! A cluster of real processes for tests. It is set up quickly and removed on drop.

#![allow(dead_code)] // Each test uses its part of it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Output},
    thread,
    time::Duration,
};

use quorate_client::{Client, Options};
pub(crate) use quorate_testbed::{
    nodes::START_TIMEOUT,
    process::{NodeProcess, NodeSpec},
};
use quorate_testbed::{
    nodes::{NodeCluster, fetch},
    process, wait,
};
pub(crate) use rustix::process::Signal;
use serde_json::Value as Json;

/// Returns the path of the binary under test. Cargo sets it only for tests of the binary's own
/// package. For tests of `quorate-tools`, the binary is in the same folder, because `cargo test` of
/// the workspace builds both.
pub(crate) fn program() -> PathBuf {
    let own = option_env!("CARGO_BIN_EXE_quorate").map(PathBuf::from);
    let program = own.unwrap_or_else(|| {
        let Some(tools) = option_env!("CARGO_BIN_EXE_quorate-tools") else {
            unreachable!("the tests of either");
        };
        Path::new(tools).with_file_name("quorate")
    });
    assert!(program.exists(), "build it first: cargo build --bin quorate");
    program
}

/// Runs a command of the binary until it ends.
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

/// Runs a command. Returns the exit code, and standard output as JSON.
pub(crate) fn quorate_json(arguments: &[&str]) -> (i32, Json) {
    let output = quorate(arguments);
    let text = String::from_utf8(output.stdout).unwrap();
    let json = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text:?}"));
    (output.status.code().unwrap(), json)
}

/// Waits for a condition. Panics on timeout with a description of the condition.
pub(crate) fn wait_for<T>(what: &str, condition: impl FnMut() -> Option<T>) -> T {
    wait::wait_at_most(START_TIMEOUT, what, condition).unwrap_or_else(|error| panic!("{error}"))
}

/// Waits for a condition with three times the usual timeout.
pub(crate) fn wait_long_for<T>(what: &str, condition: impl FnMut() -> Option<T>) -> T {
    wait::wait_at_most(3 * START_TIMEOUT, what, condition).unwrap_or_else(|error| panic!("{error}"))
}

/// Returns the result of the first run of a benchmark in which every row had a reply in every
/// repetition. The disk of a shared machine may stall for longer than a short repetition. The row
/// is then correctly invalid, but the benchmark is not at fault.
pub(crate) fn once_answered(mut run: impl FnMut() -> (i32, Json)) -> (i32, Json) {
    wait_for("a run in which the machine stood still nowhere", || {
        let (code, document) = run();
        (!is_silent(&document)).then_some((code, document))
    })
}

/// Returns whether a row is invalid only because no reply arrived in time.
fn is_silent(document: &Json) -> bool {
    let rows = document["rows"].as_array();
    let silent: Json = ["a repetition without any reply"].into();
    rows.is_some_and(|rows| rows.iter().any(|row| row["why_not"] == silent))
}

/// Running nodes that store their data in a common folder.
pub(crate) struct Cluster {
    pub(crate) nodes: NodeCluster,
}

impl Cluster {
    /// Starts nodes with additional flags and waits until all of them serve.
    pub(crate) fn start(nodes: u32, flags: &[&str]) -> Self {
        Self::start_program(&program(), nodes, flags)
    }

    /// Starts a cluster with another binary, or with a program that runs it.
    pub(crate) fn start_program(program: &Path, nodes: u32, flags: &[&str]) -> Self {
        let nodes = NodeCluster::start_on_loopback(program, "quorate-test-", nodes, flags);
        let nodes = nodes.unwrap_or_else(|error| panic!("{error}"));
        let cluster = Self { nodes };
        cluster.wait_until_all_serve();
        cluster
    }

    pub(crate) fn wait_until_all_serve(&self) {
        self.nodes.wait_until_all_ready().unwrap();
    }

    pub(crate) fn node(&mut self, id: u32) -> &mut NodeProcess {
        self.nodes.node(id).unwrap()
    }

    /// Returns the status of a node, if the node responds.
    pub(crate) fn status(&self, id: u32) -> Option<Json> {
        let admin = self.nodes.admin_addresses().swap_remove(id as usize - 1);
        let body = fetch(&admin, "/status", START_TIMEOUT)?;
        Some(serde_json::from_str(&body).unwrap())
    }

    /// Returns the leader reported by a majority of the nodes.
    pub(crate) fn leader(&self) -> u32 {
        self.nodes.leader().unwrap()
    }

    pub(crate) fn clients(&self) -> Vec<String> {
        self.nodes.client_addresses()
    }

    /// Returns a client that starts at node `id` and may switch to other nodes.
    pub(crate) fn client_from(&self, id: u32) -> Client {
        let mut addresses = self.clients();
        addresses.rotate_left(id as usize - 1);
        Client::new(&addresses, patient())
    }

    /// Returns a client that uses only node `id`.
    pub(crate) fn client_of(&self, id: u32) -> Client {
        let address = self.clients().swap_remove(id as usize - 1);
        Client::new(&[address], patient())
    }

    /// Sends SIGKILL to all nodes before waiting for any of them.
    pub(crate) fn kill_all_at_once(&mut self) {
        self.nodes.kill(&self.nodes.ids()).unwrap();
    }

    pub(crate) fn restart_all(&mut self) {
        let restarted = self.nodes.restart(&self.nodes.ids());
        restarted.unwrap_or_else(|error| panic!("{error}"));
    }

    /// Waits until all nodes have the same contents at the same position.
    pub(crate) fn wait_until_equal(&self) {
        self.nodes.wait_until_equal().unwrap();
    }
}

/// Prints the nodes' log lines if a test fails.
impl Drop for Cluster {
    fn drop(&mut self) {
        if thread::panicking() {
            for node in self.nodes.all() {
                let text = fs::read_to_string(&node.spec.log_path).unwrap_or_default();
                eprintln!("--- node {}\n{text}", node.ready.node);
            }
        }
    }
}

pub(crate) fn patient() -> Options {
    Options {
        command_timeout: START_TIMEOUT,
        attempt_timeout: Duration::from_secs(2),
        ..Options::default()
    }
}

pub(crate) fn signal(node: &NodeProcess, signal: Signal) {
    node.signal(signal).unwrap();
}

pub(crate) fn wait_end(node: &mut NodeProcess) -> ExitStatus {
    node.wait_for_exit().unwrap()
}

/// Sends `GET path` and returns the status code and the body.
pub(crate) fn http(address: &str, path: &str) -> Option<(u16, String)> {
    let response = quorate_admin::client::get(address, path, START_TIMEOUT).ok()?;
    Some((response.status, response.body))
}

/// Returns the spec of a single node in `data`, with free ports.
pub(crate) fn single(data: &Path, flags: &[&str]) -> NodeSpec {
    let ports = [
        "--client",
        "127.0.0.1:0",
        "--peer",
        "127.0.0.1:0",
        "--admin",
        "127.0.0.1:0",
        "--stream",
        "127.0.0.1:0",
    ];
    NodeSpec {
        program: program(),
        data_folder: data.to_owned(),
        flags: ports.iter().chain(flags).map(|flag| (*flag).to_owned()).collect(),
        environment: Vec::new(),
        log_path: data.with_extension("log"),
        dies_with_parent: true,
    }
}

/// Replaces the value of a flag that the spec contains.
pub(crate) fn with(mut spec: NodeSpec, flag: &str, value: &str) -> NodeSpec {
    let at = spec.flags.iter().position(|known| known == flag).unwrap();
    value.clone_into(&mut spec.flags[at + 1]);
    spec
}

/// Returns a port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    process::free_port().unwrap()
}

/// Starts a node that should end at once. Returns its exit code and standard error.
pub(crate) fn refused(spec: &NodeSpec) -> (i32, String) {
    let mut arguments = vec!["start", "--data", spec.data_folder.to_str().unwrap()];
    arguments.extend(spec.flags.iter().map(String::as_str));
    let output = run(&spec.program, &arguments);
    assert!(output.stdout.is_empty(), "a refused node printed {:?}", output.stdout);
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

/// Returns the ids of the processes that have a path in `folder` among their arguments.
pub(crate) fn processes_in(folder: &Path) -> Vec<u32> {
    let folder = folder.to_str().unwrap();
    let all = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let id: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let line = fs::read(format!("/proc/{id}/cmdline")).ok()?;
        String::from_utf8_lossy(&line).contains(folder).then_some(id)
    });
    all.collect()
}
