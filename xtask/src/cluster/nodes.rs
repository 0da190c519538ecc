//! Nodes under test: real processes that are started, killed, paused, asked.

use std::{
    fs, io,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use quorate_testbed::{
    process::{NodeProcess, Spec, cluster},
    resp::Link,
};

use super::network::Network;
use crate::{
    interrupt,
    shell::{self, Failed},
};

/// A cluster that does not serve by then has failed.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longer than any partition here, and what comes after it: worth a look.
const SLOW: Duration = Duration::from_secs(4);
/// Between two looks at it.
const PAUSE: Duration = Duration::from_millis(20);
/// One question to an operator's address; a paused node does not answer.
const QUESTION: Duration = Duration::from_millis(300);

/// A cluster in one folder; gone when dropped.
pub(crate) struct Nodes {
    nodes: Vec<NodeProcess>,
    folder: Option<tempfile::TempDir>,
}

impl Nodes {
    /// Nodes on loopback, each of which serves.
    pub(crate) fn start(count: u32, flags: &[&str]) -> Result<Self, Failed> {
        let folder = folder()?;
        let specs = cluster(&program(), folder.path(), count, true, flags)?;
        let mut nodes = Self::begin(folder, specs)?;
        nodes.wait_until_all_serve()?;
        Ok(nodes)
    }

    /// The same with a service that has no keys to ask for.
    pub(crate) fn start_without_keys(count: u32, flags: &[&str]) -> Result<Self, Failed> {
        let folder = folder()?;
        let specs = cluster(&program(), folder.path(), count, true, flags)?;
        let mut nodes = Self::begin(folder, specs)?;
        for address in nodes.admin_addresses() {
            wait_for("nodes that are ready", || http(&address, "/ready"))?;
        }
        nodes.check_alive()?;
        Ok(nodes)
    }

    /// Nodes in a network whose links can be cut.
    pub(crate) fn start_in(network: &Network, flags: &[&str]) -> Result<Self, Failed> {
        let folder = folder()?;
        let specs = network.specs(&program(), folder.path(), flags)?;
        let mut nodes = Self::begin(folder, specs)?;
        nodes.wait_until_all_serve()?;
        Ok(nodes)
    }

    fn begin(folder: tempfile::TempDir, specs: Vec<Spec>) -> Result<Self, Failed> {
        let mut nodes = Self {
            nodes: Vec::new(),
            folder: Some(folder),
        };
        for spec in specs {
            nodes.nodes.push(NodeProcess::spawn(spec)?);
            nodes.register();
        }
        for node in &mut nodes.nodes {
            node.wait_ready()?;
        }
        Ok(nodes)
    }

    /// What an interrupt has to end and to remove.
    fn register(&self) {
        if let Some(folder) = &self.folder {
            interrupt::register(self.processes(), folder.path());
        }
    }

    fn node(&mut self, id: u32) -> Result<&mut NodeProcess, Failed> {
        let node = self.nodes.get_mut(place(id));
        node.ok_or_else(|| Failed(format!("there is no node {id}")))
    }

    /// Ids of all nodes.
    pub(crate) fn ids(&self) -> Vec<u32> {
        (1..).zip(&self.nodes).map(|(id, _)| id).collect()
    }

    /// Their processes, in the order of ids.
    pub(crate) fn processes(&self) -> Vec<u32> {
        self.nodes.iter().map(NodeProcess::id).collect()
    }

    /// What a node logged so far.
    pub(crate) fn log(&self, id: u32) -> String {
        let node = self.nodes.get(place(id));
        let read = node.map(|node| fs::read_to_string(&node.spec.stderr));
        read.and_then(Result::ok).unwrap_or_default()
    }

    /// Where operators ask, per node.
    pub(crate) fn admin_addresses(&self) -> Vec<String> {
        let admin = |node: &NodeProcess| node.ready.admin.clone();
        self.nodes.iter().map(admin).collect()
    }

    /// Where clients connect, per node.
    pub(crate) fn client_addresses(&self) -> Vec<String> {
        let client = |node: &NodeProcess| node.ready.client.clone();
        self.nodes.iter().map(client).collect()
    }

    /// The same for programs that want ports of loopback.
    pub(crate) fn client_ports(&self) -> Vec<u16> {
        let port = |node: &NodeProcess| node.ready.client.rsplit_once(':')?.1.parse().ok();
        self.nodes.iter().filter_map(port).collect()
    }

    /// SIGKILL to all of these before any is waited for.
    pub(crate) fn kill(&mut self, ids: &[u32]) -> Result<(), Failed> {
        for id in ids {
            self.signal(*id, Signal::KILL)?;
        }
        for id in ids {
            self.node(*id)?.child.wait()?;
        }
        Ok(())
    }

    /// Starts them again; they listen when this returns.
    pub(crate) fn restart(&mut self, ids: &[u32]) -> Result<(), Failed> {
        for id in ids {
            let node = self.node(*id)?;
            *node = NodeProcess::spawn(node.spec.clone())?;
            self.register();
        }
        for id in ids {
            self.node(*id)?.wait_ready()?;
        }
        Ok(())
    }

    /// Stops it for a while.
    pub(crate) fn pause(&mut self, id: u32) -> Result<(), Failed> {
        self.signal(id, Signal::STOP)
    }

    /// The end of a pause.
    pub(crate) fn resume(&mut self, id: u32) -> Result<(), Failed> {
        self.signal(id, Signal::CONT)
    }

    /// SIGTERM to all of these; each must end with 0.
    pub(crate) fn terminate(&mut self, ids: &[u32]) -> Result<(), Failed> {
        for id in ids {
            self.signal(*id, Signal::TERM)?;
        }
        for id in ids {
            let node = self.node(*id)?;
            let status = wait_for(&format!("node {id} to stop"), || {
                node.child.try_wait().transpose()
            })??;
            if !status.success() {
                let said = node.last_words();
                return Err(Failed(format!("node {id} stopped with {status}: {said}")));
            }
        }
        Ok(())
    }

    fn signal(&mut self, id: u32, signal: Signal) -> Result<(), Failed> {
        let pid = Pid::from_child(&self.node(id)?.child);
        kill_process(pid, signal).map_err(|error| Failed(format!("signal node {id}: {error}")))
    }

    /// Nobody ended unasked.
    pub(crate) fn check_alive(&mut self) -> Result<(), Failed> {
        for (id, node) in (1..).zip(&mut self.nodes) {
            if let Some(status) = node.child.try_wait()? {
                let said = node.last_words();
                return Err(Failed(format!("node {id} ended with {status}: {said}")));
            }
        }
        Ok(())
    }

    /// Waits until each node answers a linearizable read.
    pub(crate) fn wait_until_all_serve(&mut self) -> Result<(), Failed> {
        for (id, address) in (1..).zip(self.client_addresses()) {
            let soon = wait_at_most(SLOW, "it", || serves(&address).then_some(()));
            if soon.is_err() {
                println!(
                    "  node {id} does not serve after {} s:\n{}",
                    SLOW.as_secs(),
                    self.views()
                );
            }
            wait_for(&format!("node {id} to serve"), || {
                serves(&address).then_some(())
            })
            .map_err(|Failed(why)| Failed(format!("{why}\n{}", self.views())))?;
        }
        self.check_alive()
    }

    /// Waits until all nodes have the same contents at the same position, which it returns.
    pub(crate) fn wait_until_equal(&self) -> Result<String, Failed> {
        let addresses = self.client_addresses();
        wait_for("equal contents on all nodes", || {
            let digests: Option<Vec<String>> = addresses.iter().map(|at| digest(at)).collect();
            let digests = digests?;
            digests
                .iter()
                .all(|one| *one == digests[0])
                .then(|| digests[0].clone())
        })
        .map_err(|Failed(why)| Failed(format!("{why}\n{}", self.views())))
    }

    /// Whom most of the nodes that answer call the leader.
    pub(crate) fn leader(&self) -> Result<u32, Failed> {
        wait_for("a leader", || {
            let views = self.admin_addresses().into_iter();
            let named: Vec<u64> = views
                .filter_map(|at| number(&http(&at, "/status")?, "leader"))
                .collect();
            let most = named
                .iter()
                .max_by_key(|one| named.iter().filter(|other| other == one).count())?;
            let agreed = named.iter().filter(|one| *one == most).count() * 2 > self.nodes.len();
            agreed.then_some(u32::try_from(*most).ok()?)
        })
    }

    /// A counter of a node's metrics; 0 if it is not there.
    pub(crate) fn metric(&self, id: u32, name: &str) -> Result<u64, Failed> {
        let address = &self.admin_addresses()[place(id)];
        let text = wait_for("metrics", || http(address, "/metrics"))?;
        let value = text.lines().find_map(|line| line.strip_prefix(name));
        Ok(value.and_then(|rest| rest.trim().parse().ok()).unwrap_or(0))
    }

    /// `quorate log verify` of every folder; the nodes have stopped.
    pub(crate) fn verify_logs(&self) -> Result<(), Failed> {
        for node in &self.nodes {
            let mut command = std::process::Command::new(program());
            shell::read(command.args(["log", "verify"]).arg(&node.spec.data))?;
        }
        Ok(())
    }

    /// What the nodes say about themselves, for a message.
    fn views(&self) -> String {
        let view = |at: String| http(&at, "/status").unwrap_or_else(|| "no answer".to_owned());
        let views: Vec<String> = self.admin_addresses().into_iter().map(view).collect();
        views.join("\n")
    }

    /// Where their data are; it goes with them.
    pub(crate) fn folder(&self) -> &Path {
        self.folder
            .as_ref()
            .map_or(Path::new("."), tempfile::TempDir::path)
    }

    /// Ends the nodes; their logs and data go where somebody can look at them.
    pub(crate) fn keep_for_inspection(mut self, place: &Path) -> Result<(), Failed> {
        for node in &mut self.nodes {
            let _ = node.kill();
        }
        if let Some(folder) = self.folder.take() {
            interrupt::forget(folder.path());
            let from = folder.keep();
            if let Err(error) = fs::rename(&from, place) {
                // Another file system: it stays where it is.
                println!("  the nodes' folders are in {}: {error}", from.display());
            }
        }
        Ok(())
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            let _ = node.kill();
        }
        // The folder follows, and then nothing is left to clean up.
        if let Some(folder) = self.folder.take() {
            let path = folder.path().to_owned();
            drop(folder);
            interrupt::forget(&path);
        }
    }
}

fn place(id: u32) -> usize {
    usize::try_from(id).map_or(usize::MAX, |id| id.wrapping_sub(1))
}

fn folder() -> io::Result<tempfile::TempDir> {
    tempfile::Builder::new().prefix("quorate-xtask-").tempdir()
}

pub(crate) fn program() -> PathBuf {
    shell::release("quorate")
}

/// Waits for a condition; says what was waited for if it does not come.
pub(crate) fn wait_for<T>(what: &str, condition: impl FnMut() -> Option<T>) -> Result<T, Failed> {
    wait_at_most(PATIENCE, what, condition)
}

fn wait_at_most<T>(
    patience: Duration,
    what: &str,
    mut condition: impl FnMut() -> Option<T>,
) -> Result<T, Failed> {
    let until = Instant::now() + patience;
    loop {
        if let Some(met) = condition() {
            return Ok(met);
        }
        if Instant::now() >= until {
            return Err(Failed(format!(
                "waited {} s for {what}",
                patience.as_secs()
            )));
        }
        thread::sleep(PAUSE);
    }
}

/// A linearizable read is answered.
fn serves(address: &str) -> bool {
    let ask = || Link::connect(address)?.ask(&["EXISTS", "x"]);
    ask().is_ok_and(|reply| reply.number().is_some())
}

/// Position and fingerprint of a node's own contents.
fn digest(address: &str) -> Option<String> {
    let mut link = Link::connect(address).ok()?;
    link.ask(&["READONLY"]).ok()?;
    link.ask(&["QUORATE", "DIGEST"]).ok()?.text()
}

/// The body of an answer with 200.
pub(crate) fn http(address: &str, path: &str) -> Option<String> {
    let address: SocketAddr = address.parse().ok()?;
    let mut stream = TcpStream::connect_timeout(&address, QUESTION).ok()?;
    stream.set_read_timeout(Some(QUESTION)).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    (head.split(' ').nth(1)? == "200").then(|| body.to_owned())
}

/// A number of a flat JSON document.
pub(crate) fn number(json: &str, name: &str) -> Option<u64> {
    let (_, rest) = json.split_once(&format!("\"{name}\":"))?;
    let digits: String = rest
        .trim_start()
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_in_json() {
        assert_eq!(number(r#"{"a":"b","leader":3,"x":[]}"#, "leader"), Some(3));
        assert_eq!(number(r#"{"leader":null}"#, "leader"), None);
        assert_eq!(number("{}", "leader"), None);
    }
}
