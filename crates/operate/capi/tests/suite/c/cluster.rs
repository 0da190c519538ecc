//! Test cluster that runs the replicated table written in C.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use quorate_testbed::process::free_port;
use tempfile::TempDir;

use crate::c::{build::Built, program::Program};

/// Processes, one per node. Nodes are counted from 0 here.
pub(crate) struct Cluster<'a> {
    built: &'a Built,
    folder: TempDir,
    cluster: String,
    listen: Vec<String>,
    nodes: Vec<Option<Program>>,
}

/// Returns the number in an answer of the form `ok NUMBER`.
pub(crate) fn number(answer: &str) -> u64 {
    let number = answer.strip_prefix("ok ").and_then(|number| number.parse().ok());
    number.unwrap_or_else(|| panic!("not ok: {answer}"))
}

pub(crate) fn ports(count: usize) -> Vec<String> {
    (0..count).map(|_| format!("127.0.0.1:{}", free_port().expect("a port"))).collect()
}

impl<'a> Cluster<'a> {
    /// Starts nodes to which no programs can attach.
    pub(crate) fn start(built: &'a Built, count: usize) -> Self {
        Self::new(built, count, Vec::new())
    }

    /// Starts nodes to which programs can attach.
    pub(crate) fn listening(built: &'a Built, count: usize) -> Self {
        Self::new(built, count, ports(count))
    }

    fn new(built: &'a Built, count: usize, listen: Vec<String>) -> Self {
        let peers = ports(count);
        let members: Vec<String> =
            (1..).zip(&peers).map(|(node, at)| format!("{node}={at}")).collect();
        let mut cluster = Self {
            built,
            folder: tempfile::tempdir().expect("a folder"),
            cluster: members.join(","),
            listen,
            nodes: (0..count).map(|_| None).collect(),
        };
        (0..count).for_each(|node| cluster.restart_later(node));
        (0..count).for_each(|node| cluster.wait_up(node));
        cluster
    }

    fn data(&self, node: usize) -> PathBuf {
        self.folder.path().join((node + 1).to_string())
    }

    /// Returns the addresses at which programs can attach.
    pub(crate) fn listen_addresses(&self) -> Vec<String> {
        self.listen.clone()
    }

    fn node(&mut self, node: usize) -> &mut Program {
        self.nodes[node].as_mut().expect("runs")
    }

    /// Sends a line to a node and returns its answer. Repeats a request that no node can serve at
    /// the moment, as during an election or a start.
    pub(crate) fn ask(&mut self, node: usize, line: &str) -> String {
        let node = self.node(node);
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            node.write(line);
            let answer = node.line();
            if !answer.starts_with("error QUORATE_UNAVAILABLE") || Instant::now() > until {
                return answer;
            }
        }
    }

    /// Kills a node without warning.
    pub(crate) fn kill(&mut self, node: usize) {
        self.node(node).kill();
        self.nodes[node] = None;
    }

    /// Restarts a node that is not running, without waiting for it.
    pub(crate) fn restart_later(&mut self, node: usize) {
        let data = self.data(node);
        let (number, data) = ((node + 1).to_string(), data.to_str().expect("a name"));
        let mut arguments = vec![&*number, data, &*self.cluster];
        arguments.extend(self.listen.get(node).map(|listen| &**listen));
        self.nodes[node] = Some(Program::start(self.built, &arguments));
    }

    pub(crate) fn wait_up(&mut self, node: usize) {
        assert_eq!(self.node(node).line(), format!("up {}", node + 1));
    }

    /// Restarts a node and waits until it runs.
    pub(crate) fn restart(&mut self, node: usize) {
        self.restart_later(node);
        self.wait_up(node);
    }

    pub(crate) fn quit(&mut self) {
        self.nodes.iter_mut().flatten().for_each(|node| node.write("quit"));
        for node in self.nodes.iter_mut().flatten() {
            assert!(node.wait(Duration::from_secs(30)).success());
        }
    }
}
