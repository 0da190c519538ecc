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
    nodes::{Nodes, answer},
    process::{cluster, free_port},
    resp,
};
use rustix::process::{Pid, Signal, kill_process};

use super::{
    build::Built,
    figures::{self, Applied},
    systems::{Start, System},
};
use crate::{nodes::wait_for, shell::Failed};

const PREFIX: &str = "quorate-compare-";
const NODES: usize = 3;
/// Time between SIGTERM and SIGKILL.
const END: Duration = Duration::from_secs(5);
/// Time within which learners apply committed commands.
const SETTLE: Duration = Duration::from_millis(300);
const QUESTION: Duration = Duration::from_secs(1);
/// Number of bytes of a log shown in an error message.
const WORDS: usize = 600;

/// A child process, killed when dropped, and its output so far.
pub(super) struct Process {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    reader: Option<thread::JoinHandle<()>>,
}

impl Process {
    /// Wraps a process whose output the caller reads.
    pub(super) fn new(child: Child) -> Self {
        Self { child, lines: Arc::default(), reader: None }
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
            let lines = Arc::clone(&process.lines);
            process.reader = Some(thread::spawn(move || {
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
    fn last(&self, word: &str) -> Option<String> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let rest = |line: &String| {
            let (first, rest) = line.split_once(' ')?;
            (first == word).then(|| rest.to_owned())
        };
        lines.iter().rev().find_map(rest)
    }

    /// Waits for the process to exit. Returns its error output, unless it was already taken.
    pub(super) fn wait(&mut self) -> Result<String, Failed> {
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
    fn end(&mut self) -> io::Result<()> {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let until = Instant::now() + END;
        while self.child.try_wait()?.is_none() {
            if Instant::now() > until {
                self.child.kill()?;
                self.child.wait()?;
                break;
            }
            thread::sleep(Duration::from_millis(5));
        }
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A running system, in a folder that is deleted with it.
pub(super) struct Cluster {
    start: Start,
    ours: Option<Nodes>,
    other_processes: Vec<Process>,
    /// Client addresses, one per node.
    clients: Vec<String>,
    leader: usize,
    /// Number of commands applied and the digest of their order, per node; empty for systems that
    /// do not report them.
    reported_applied: Vec<(u64, u64)>,
    lines_read: usize,
    folder: tempfile::TempDir,
}

impl Cluster {
    /// Starts the system afresh and waits until it has a leader.
    pub(super) fn start(built: &Built, system: &System) -> Result<Self, Failed> {
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir()?;
        let mut cluster = Self {
            start: system.start,
            ours: None,
            other_processes: Vec::new(),
            clients: Vec::new(),
            leader: 0,
            reported_applied: Vec::new(),
            lines_read: 0,
            folder,
        };
        let started = match system.start {
            Start::Quorate(flags) => cluster.start_ours(built, flags),
            Start::Etcd => cluster.start_etcd(built),
            Start::Redis => cluster.start_redis(built),
            Start::Library(program, more) => {
                cluster.start_library(built, program, system.class, more)
            }
        };
        match started {
            Ok(()) => Ok(cluster),
            Err(Failed(why)) => Err(Failed(format!("{why}{}", cluster.last_error_lines()))),
        }
    }

    fn start_ours(&mut self, built: &Built, flags: &[&str]) -> Result<(), Failed> {
        let program = built.program("quorate");
        let nodes = self.ours.insert(Nodes::none(PREFIX)?);
        nodes.start(cluster(&program, nodes.folder(), 3, flags)?)?;
        self.clients = nodes.client_addresses();
        let leader = nodes.agreed_leader()?;
        self.lead(usize::try_from(leader).unwrap_or(0))
    }

    fn start_library(
        &mut self,
        built: &Built,
        program: &str,
        class: &str,
        more: &[&str],
    ) -> Result<(), Failed> {
        let peers = addresses()?;
        self.clients = addresses()?;
        for node in 0..NODES {
            let data = self.data(node)?;
            let mut command = Command::new(built.program(program));
            command
                .args(["--node", &(node + 1).to_string()])
                .args(["--peers", &peers.join(",")])
                .args(["--client", &self.clients[node]])
                .args(["--class", class, "--folder"])
                .arg(data)
                .args(more);
            self.spawn(&mut command, node)?;
        }
        let leader = self.wait_for("a leader that all nodes know", |cluster| {
            let told = |process: &Process| {
                let leader: u64 = process.last("leader")?.trim().parse().ok()?;
                (leader > 0).then_some(leader)
            };
            common_value(cluster.other_processes.iter().map(told))
        })?;
        self.lead(usize::try_from(leader).unwrap_or(0))
    }

    fn start_etcd(&mut self, built: &Built) -> Result<(), Failed> {
        let url = |address: &String| format!("http://{address}");
        let peers: Vec<String> = addresses()?.iter().map(url).collect();
        self.clients = addresses()?;
        let list: Vec<String> =
            (1..).zip(&peers).map(|(node, peer)| format!("n{node}={peer}")).collect();
        for (node, peer) in peers.iter().enumerate() {
            let client = url(&self.clients[node]);
            let data = self.data(node)?;
            let mut command = Command::new(built.program("etcd"));
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
            let healthy = |at: &String| answer(at, "/health", QUESTION).is_some();
            cluster.clients.iter().all(healthy).then_some(())
        })
    }

    fn start_redis(&mut self, built: &Built) -> Result<(), Failed> {
        let port = free_port()?;
        self.clients = vec![format!("127.0.0.1:{port}")];
        let data = self.data(0)?;
        let mut command = Command::new(built.program("redis-server"));
        command
            .args(["--port", &port.to_string()])
            .args(["--bind", "127.0.0.1", "--save", ""])
            .args(["--appendonly", "yes", "--appendfsync", "always", "--dir"])
            .arg(data);
        self.spawn(&mut command, 0)?;
        self.wait_for("an answer", |cluster| resp::answers(&cluster.clients[0]).then_some(()))
    }

    fn data(&self, node: usize) -> io::Result<std::path::PathBuf> {
        let folder = self.folder.path().join(format!("data-{}", node + 1));
        fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    fn spawn(&mut self, command: &mut Command, node: usize) -> Result<(), Failed> {
        let log = self.folder.path().join(format!("{}.log", node + 1));
        self.other_processes.push(Process::spawn(command, &log)?);
        self.register();
        Ok(())
    }

    fn register(&self) {
        let others = self.other_processes.iter().map(Process::id);
        interrupt::register(others.collect(), self.folder.path());
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

    fn lead(&mut self, node: usize) -> Result<(), Failed> {
        self.leader = node.wrapping_sub(1);
        match self.clients.get(self.leader) {
            Some(_) => Ok(()),
            None => Err(Failed(format!("there is no node {node}"))),
        }
    }

    /// Returns the address that clients use: the leader's. etcd's load finds the leader by itself.
    pub(super) fn load_address(&self) -> String {
        match self.start {
            Start::Etcd => self.clients.join(","),
            Start::Quorate(_) | Start::Redis | Start::Library(..) => {
                self.clients[self.leader].clone()
            }
        }
    }

    pub(super) fn processes(&self) -> Vec<u32> {
        let ours = self.ours.iter().flat_map(Nodes::processes);
        ours.chain(self.other_processes.iter().map(Process::id)).collect()
    }

    pub(super) fn check_alive(&mut self) -> Result<(), Failed> {
        if let Some(ours) = &mut self.ours {
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
        let node = self.lines_read % NODES;
        self.lines_read += 1;
        self.reported_applied.resize(NODES, (0, 0));
        self.reported_applied[node].0 += count.unwrap_or(0);
    }

    /// Stops the system. Checks that most nodes applied all acknowledged commands, in the same
    /// order. Returns `None` if the system does not report applied commands.
    pub(super) fn end(mut self, acknowledged: u64) -> Result<Option<Applied>, Failed> {
        if let Start::Library(..) = self.start {
            thread::sleep(SETTLE);
            for process in &mut self.other_processes {
                process.end()?;
            }
            let told = |process: &Process| {
                let words = process.last("applied")?;
                let (count, digest) = words.split_once(' ')?;
                let digest = u64::from_str_radix(digest.trim(), 16).ok()?;
                Some((count.parse().ok()?, digest))
            };
            self.reported_applied = self.other_processes.iter().filter_map(told).collect();
        } else if self.reported_applied.is_empty() {
            return Ok(None);
        }
        if self.reported_applied.len() != NODES {
            let words = self.last_error_lines();
            let what =
                format!("{} of {NODES} nodes told what they applied", self.reported_applied.len());
            return Err(Failed(what + &words));
        }
        let by_most = figures::majority_count(&self.reported_applied).map_err(Failed)?;
        if by_most < acknowledged {
            return Err(Failed(format!(
                "{acknowledged} commands were acknowledged, and most nodes applied only {by_most}"
            )));
        }
        Ok(Some(Applied { acknowledged, by_most }))
    }

    /// Returns the processes' last error messages.
    fn last_error_lines(&self) -> String {
        let mut all = String::new();
        for node in 1..=NODES {
            let log = match &self.ours {
                Some(ours) => ours.folder().join(format!("node-{node}.log")),
                None => self.folder.path().join(format!("{node}.log")),
            };
            let text = fs::read(log).unwrap_or_default();
            let text =
                String::from_utf8_lossy(&text[text.len().saturating_sub(WORDS)..]).into_owned();
            let text = text.trim();
            if !text.is_empty() {
                all += &format!("; node {node} said: {}", text.replace('\n', " | "));
            }
        }
        all
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.other_processes.clear();
        // The folder is deleted next; register it in case of an interrupt before that.
        interrupt::register(Vec::new(), self.folder.path());
    }
}

fn addresses() -> io::Result<Vec<String>> {
    let address = |_| Ok(format!("127.0.0.1:{}", free_port()?));
    (0..NODES).map(address).collect()
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
