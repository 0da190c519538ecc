//! A running system under comparison: three processes on loopback, or a single one.

use std::{
    fs,
    io::{self, BufRead as _, BufReader, Read as _},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use quorate_testbed::{
    interrupt,
    nodes::{NodeCluster, fetch},
    process::{free_port, loopback_cluster},
    resp,
};
use rustix::process::{Pid, Signal, kill_process};

use super::{
    build::BuiltPrograms,
    figures::{self, AppliedCommands},
    systems::{StartMethod, System},
};
use crate::{nodes::wait_for, shell::Failed};

const FOLDER_PREFIX: &str = "quorate-compare-";
const NODE_COUNT: usize = 3;
/// Time between SIGTERM and SIGKILL.
const KILL_AFTER: Duration = Duration::from_secs(5);
/// Time within which learners apply committed commands.
const LEARN_DELAY: Duration = Duration::from_millis(300);
const QUERY_TIMEOUT: Duration = Duration::from_secs(1);
/// Number of bytes of a log shown in an error message.
const LOG_BYTES_SHOWN: usize = 600;

/// A child process, killed when dropped, and its output so far.
pub(super) struct ChildProcess {
    child: Child,
    output_lines: Arc<Mutex<Vec<String>>>,
    reader_thread: Option<thread::JoinHandle<()>>,
}

impl ChildProcess {
    /// Wraps a process whose output the caller reads.
    pub(super) fn new(child: Child) -> Self {
        Self { child, output_lines: Arc::default(), reader_thread: None }
    }

    /// Spawns a process, captures its standard output, and writes its standard error to a file.
    fn spawn(command: &mut Command, log: &Path) -> Result<Self, Failed> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(log)?)
            .spawn()
            .map_err(|error| Failed(format!("{command:?}: {error}")))?;
        let stdout = child.stdout.take();
        let mut process = Self::new(child);
        if let Some(stdout) = stdout {
            let lines = Arc::clone(&process.output_lines);
            process.reader_thread = Some(thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
                    // Drain the pipe, but keep a bounded number of lines.
                    if lines.len() < 10_000 {
                        lines.push(line);
                    }
                }
            }));
        }
        Ok(process)
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the rest of the last line that begins with `word`.
    fn last_line_after(&self, word: &str) -> Option<String> {
        let lines = self.output_lines.lock().unwrap_or_else(PoisonError::into_inner);
        let rest = |line: &String| {
            let (first, rest) = line.split_once(' ')?;
            (first == word).then(|| rest.to_owned())
        };
        lines.iter().rev().find_map(rest)
    }

    /// Waits for the process to exit. Returns its error output, unless it was already taken.
    pub(super) fn wait_exit(&mut self) -> Result<String, Failed> {
        let mut said = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            stderr.read_to_string(&mut said)?;
        }
        let status = self.child.wait()?;
        if status.success() {
            Ok(said)
        } else {
            Err(Failed(format!("the load ended with {status}: {}", said.trim())))
        }
    }

    /// Sends SIGTERM, then SIGKILL. All output has been read when this returns.
    fn terminate(&mut self) -> io::Result<()> {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let until = Instant::now() + KILL_AFTER;
        while self.child.try_wait()?.is_none() {
            if Instant::now() > until {
                self.child.kill()?;
                self.child.wait()?;
                break;
            }
            thread::sleep(Duration::from_millis(5));
        }
        if let Some(reader) = self.reader_thread.take() {
            let _ = reader.join();
        }
        Ok(())
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A running system, in a folder that is deleted with it.
pub(super) struct RunningSystem {
    start: StartMethod,
    quorate_nodes: Option<NodeCluster>,
    other_processes: Vec<ChildProcess>,
    /// Client addresses, one per node.
    client_addresses: Vec<String>,
    leader_index: usize,
    /// Number of commands applied and the digest of their order, per node; empty for systems that
    /// do not report them.
    applied_by_node: Vec<(u64, u64)>,
    lines_read: usize,
    folder: tempfile::TempDir,
}

impl RunningSystem {
    /// Starts the system afresh and waits until it has a leader.
    pub(super) fn start(built: &BuiltPrograms, system: &System) -> Result<Self, Failed> {
        let folder = tempfile::Builder::new().prefix(FOLDER_PREFIX).tempdir()?;
        let mut cluster = Self {
            start: system.start,
            quorate_nodes: None,
            other_processes: Vec::new(),
            client_addresses: Vec::new(),
            leader_index: 0,
            applied_by_node: Vec::new(),
            lines_read: 0,
            folder,
        };
        let started = match system.start {
            StartMethod::Quorate(flags) => cluster.start_ours(built, flags),
            StartMethod::Etcd => cluster.start_etcd(built),
            StartMethod::Redis => cluster.start_redis(built),
            StartMethod::Library(program, more) => {
                cluster.start_library(built, program, system.class, more)
            }
        };
        match started {
            Ok(()) => Ok(cluster),
            Err(Failed(why)) => Err(Failed(format!("{why}{}", cluster.last_error_lines()))),
        }
    }

    fn start_ours(&mut self, built: &BuiltPrograms, flags: &[&str]) -> Result<(), Failed> {
        let program = built.program_path("quorate");
        let nodes = self.quorate_nodes.insert(NodeCluster::with_empty_folder(FOLDER_PREFIX)?);
        nodes.start(loopback_cluster(&program, nodes.data_folder(), 3, flags)?)?;
        self.client_addresses = nodes.client_addresses();
        let leader = nodes.agreed_leader()?;
        self.record_leader(usize::try_from(leader).unwrap_or(0))
    }

    fn start_library(
        &mut self,
        built: &BuiltPrograms,
        program: &str,
        class: &str,
        more: &[&str],
    ) -> Result<(), Failed> {
        let peers = free_addresses()?;
        self.client_addresses = free_addresses()?;
        for node in 0..NODE_COUNT {
            let data = self.node_folder(node)?;
            let mut command = Command::new(built.program_path(program));
            command
                .args(["--node", &(node + 1).to_string()])
                .args(["--peers", &peers.join(",")])
                .args(["--client", &self.client_addresses[node]])
                .args(["--class", class, "--folder"])
                .arg(data)
                .args(more);
            self.spawn(&mut command, node)?;
        }
        let leader = self.wait_for("a leader that all nodes know", |cluster| {
            let told = |process: &ChildProcess| {
                let leader: u64 = process.last_line_after("leader")?.trim().parse().ok()?;
                (leader > 0).then_some(leader)
            };
            common_value(cluster.other_processes.iter().map(told))
        })?;
        self.record_leader(usize::try_from(leader).unwrap_or(0))
    }

    fn start_etcd(&mut self, built: &BuiltPrograms) -> Result<(), Failed> {
        let url = |address: &String| format!("http://{address}");
        let peers: Vec<String> = free_addresses()?.iter().map(url).collect();
        self.client_addresses = free_addresses()?;
        let list: Vec<String> =
            (1..).zip(&peers).map(|(node, peer)| format!("n{node}={peer}")).collect();
        for (node, peer) in peers.iter().enumerate() {
            let client = url(&self.client_addresses[node]);
            let data = self.node_folder(node)?;
            let mut command = Command::new(built.program_path("etcd"));
            command.args(["--name", &format!("n{}", node + 1), "--data-dir"]);
            command.arg(data);
            for (flag, value) in [
                ("--listen-peer-urls", peer),
                ("--initial-advertise-peer-urls", peer),
                ("--listen-client-urls", &client),
                ("--advertise-client-urls", &client),
                ("--initial-cluster", &list.join(",")),
            ] {
                command.args([flag, value]);
            }
            self.spawn(&mut command, node)?;
        }
        self.wait_for("three healthy nodes", |cluster| {
            let healthy = |at: &String| fetch(at, "/health", QUERY_TIMEOUT).is_some();
            cluster.client_addresses.iter().all(healthy).then_some(())
        })
    }

    fn start_redis(&mut self, built: &BuiltPrograms) -> Result<(), Failed> {
        let port = free_port()?;
        self.client_addresses = vec![format!("127.0.0.1:{port}")];
        let data = self.node_folder(0)?;
        let mut command = Command::new(built.program_path("redis-server"));
        command
            .args(["--port", &port.to_string()])
            .args(["--bind", "127.0.0.1", "--save", ""])
            .args(["--appendonly", "yes", "--appendfsync", "always", "--dir"])
            .arg(data);
        self.spawn(&mut command, 0)?;
        self.wait_for("an answer", |cluster| {
            resp::answers_ping(&cluster.client_addresses[0]).then_some(())
        })
    }

    fn node_folder(&self, node: usize) -> io::Result<std::path::PathBuf> {
        let folder = self.folder.path().join(format!("data-{}", node + 1));
        fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    fn spawn(&mut self, command: &mut Command, node: usize) -> Result<(), Failed> {
        let log = self.folder.path().join(format!("{}.log", node + 1));
        self.other_processes.push(ChildProcess::spawn(command, &log)?);
        self.register_processes();
        Ok(())
    }

    fn register_processes(&self) {
        let others = self.other_processes.iter().map(ChildProcess::id);
        interrupt::register_cleanup(others.collect(), self.folder.path());
    }

    /// Waits for a condition while all processes are alive.
    fn wait_for<T>(
        &mut self,
        what: &str,
        mut condition: impl FnMut(&Self) -> Option<T>,
    ) -> Result<T, Failed> {
        wait_for(what, || match self.check_alive() {
            Ok(()) => condition(self).map(Ok),
            Err(gone) => Some(Err(gone)),
        })?
    }

    fn record_leader(&mut self, node: usize) -> Result<(), Failed> {
        self.leader_index = node.wrapping_sub(1);
        match self.client_addresses.get(self.leader_index) {
            Some(_) => Ok(()),
            None => Err(Failed(format!("there is no node {node}"))),
        }
    }

    /// Returns the address that clients use: the leader's. etcd's load finds the leader by itself.
    pub(super) fn load_address(&self) -> String {
        match self.start {
            StartMethod::Etcd => self.client_addresses.join(","),
            StartMethod::Quorate(_) | StartMethod::Redis | StartMethod::Library(..) => {
                self.client_addresses[self.leader_index].clone()
            }
        }
    }

    pub(super) fn process_ids(&self) -> Vec<u32> {
        let ours = self.quorate_nodes.iter().flat_map(NodeCluster::process_ids);
        ours.chain(self.other_processes.iter().map(ChildProcess::id)).collect()
    }

    pub(super) fn check_alive(&mut self) -> Result<(), Failed> {
        if let Some(ours) = &mut self.quorate_nodes {
            ours.check_alive()?;
        }
        for (process, node) in self.other_processes.iter_mut().zip(1..) {
            if let Some(status) = process.child.try_wait()? {
                return Err(Failed(format!("process {node} ended with {status}")));
            }
        }
        Ok(())
    }

    /// Records the numbers of commands that the nodes applied, as the load reports them.
    pub(super) fn record_applied(&mut self, words: &str) {
        let count = words.split(' ').next().and_then(|text| text.parse().ok());
        let node = self.lines_read % NODE_COUNT;
        self.lines_read += 1;
        self.applied_by_node.resize(NODE_COUNT, (0, 0));
        self.applied_by_node[node].0 += count.unwrap_or(0);
    }

    /// Stops the system. Checks that most nodes applied all acknowledged commands, in the same
    /// order. Returns `None` if the system does not report applied commands.
    pub(super) fn stop_and_check(
        mut self,
        acknowledged: u64,
    ) -> Result<Option<AppliedCommands>, Failed> {
        if let StartMethod::Library(..) = self.start {
            thread::sleep(LEARN_DELAY);
            for process in &mut self.other_processes {
                process.terminate()?;
            }
            let told = |process: &ChildProcess| {
                let words = process.last_line_after("applied")?;
                let (count, digest) = words.split_once(' ')?;
                let digest = u64::from_str_radix(digest.trim(), 16).ok()?;
                Some((count.parse().ok()?, digest))
            };
            self.applied_by_node = self.other_processes.iter().filter_map(told).collect();
        } else if self.applied_by_node.is_empty() {
            return Ok(None);
        }
        if self.applied_by_node.len() != NODE_COUNT {
            let words = self.last_error_lines();
            let what = format!(
                "{} of {NODE_COUNT} nodes told what they applied",
                self.applied_by_node.len()
            );
            return Err(Failed(what + &words));
        }
        let by_most = figures::majority_count(&self.applied_by_node).map_err(Failed)?;
        if by_most < acknowledged {
            return Err(Failed(format!(
                "{acknowledged} commands were acknowledged, and most nodes applied only {by_most}"
            )));
        }
        Ok(Some(AppliedCommands { acknowledged, applied_by_most: by_most }))
    }

    /// Returns the processes' last error messages.
    fn last_error_lines(&self) -> String {
        let mut all = String::new();
        for node in 1..=NODE_COUNT {
            let log = match &self.quorate_nodes {
                Some(ours) => ours.data_folder().join(format!("node-{node}.log")),
                None => self.folder.path().join(format!("{node}.log")),
            };
            let text = fs::read(log).unwrap_or_default();
            let text = String::from_utf8_lossy(&text[text.len().saturating_sub(LOG_BYTES_SHOWN)..])
                .into_owned();
            let text = text.trim();
            if !text.is_empty() {
                all += &format!("; node {node} said: {}", text.replace('\n', " | "));
            }
        }
        all
    }
}

impl Drop for RunningSystem {
    fn drop(&mut self) {
        self.other_processes.clear();
        // The folder is deleted next; register it in case of an interrupt before that.
        interrupt::register_cleanup(Vec::new(), self.folder.path());
    }
}

fn free_addresses() -> io::Result<Vec<String>> {
    let address = |_| Ok(format!("127.0.0.1:{}", free_port()?));
    (0..NODE_COUNT).map(address).collect()
}

/// Returns the value if all nodes report the same one.
fn common_value(mut told: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    let first = told.next()??;
    told.all(|other| other == Some(first)).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leader_counts_only_if_all_members_agree() {
        let all = |told: &[Option<u64>]| common_value(told.iter().copied());
        assert_eq!(all(&[Some(2), Some(2), Some(2)]), Some(2));
        assert_eq!(all(&[Some(2), None, Some(2)]), None);
        assert_eq!(all(&[Some(2), Some(1), Some(2)]), None);
        assert_eq!(all(&[]), None);
    }
}
