//! Nodes of one cluster, which store their data in a common folder. The nodes and the folder are
//! removed on drop, and when this process is interrupted ([`crate::interrupt`]).

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
    time::Duration,
};

use quorate_admin::{client, view::NodeView};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{
    etcd, interrupt,
    network::Network,
    process::{NodeProcess, NodeSpec, loopback_cluster},
    resp::RespConnection,
    run, wait,
};

/// Maximum time for a cluster to start serving. It is generous because the machine may be busy.
pub const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Time after which a node that does not serve is reported, longer than a partition and recovery.
const SLOW_START: Duration = Duration::from_secs(4);
/// Timeout for a request to an admin address. A paused node does not respond.
pub(crate) const ADMIN_TIMEOUT: Duration = Duration::from_millis(300);
/// Timeout for the readiness probe, which performs a read.
const READY_TIMEOUT: Duration = Duration::from_secs(5);

/// Running nodes of one cluster, with the folder of their data.
#[derive(Debug)]
pub struct NodeCluster {
    nodes: Vec<NodeProcess>,
    /// Ids of nodes that have left the cluster permanently.
    departed_ids: BTreeSet<u32>,
    /// Folder with the data. `None` once the caller owns the folder.
    folder: Option<tempfile::TempDir>,
}

impl NodeCluster {
    /// Creates a folder whose name has the given prefix. Starts no nodes.
    pub fn with_empty_folder(prefix: &str) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix(prefix).tempdir()?;
        let mut nodes =
            Self { nodes: Vec::new(), departed_ids: BTreeSet::new(), folder: Some(folder) };
        nodes.register_cleanup();
        Ok(nodes)
    }

    /// Starts nodes on loopback and waits until they listen.
    pub fn start_on_loopback(
        program: &Path,
        prefix: &str,
        count: u32,
        flags: &[&str],
    ) -> io::Result<Self> {
        let mut nodes = Self::with_empty_folder(prefix)?;
        nodes.start(loopback_cluster(program, nodes.data_folder(), count, flags)?)?;
        Ok(nodes)
    }

    /// Starts nodes in a network whose links can be cut, and waits until they listen.
    pub fn start_in_network(
        program: &Path,
        prefix: &str,
        network: &Network,
        count: u32,
        flags: &[&str],
    ) -> io::Result<Self> {
        let mut nodes = Self::with_empty_folder(prefix)?;
        nodes.start(network.node_specs(program, nodes.data_folder(), count, flags)?)?;
        Ok(nodes)
    }

    /// Starts more nodes and waits until all of them listen.
    pub fn start(&mut self, specs: Vec<NodeSpec>) -> io::Result<()> {
        let first = self.nodes.len();
        for spec in specs {
            self.spawn(spec)?;
        }
        self.nodes[first..].iter_mut().try_for_each(NodeProcess::wait_ready)
    }

    /// Starts one more node without waiting for it. Returns the expected id, which is the next free
    /// one.
    pub fn spawn(&mut self, spec: NodeSpec) -> io::Result<u32> {
        // While this is held, an interrupt cannot remove the folder of a node that is starting.
        let leftovers = interrupt::delay_cleanup();
        self.nodes.push(NodeProcess::spawn(spec)?);
        drop(leftovers);
        self.register_cleanup();
        u32::try_from(self.nodes.len()).map_err(io::Error::other)
    }

    /// Registers the processes and the folder for cleanup on an interrupt.
    fn register_cleanup(&mut self) {
        let running = self.nodes.iter_mut().filter_map(|node| {
            let ended = node.child.try_wait().is_ok_and(|status| status.is_some());
            (!ended).then(|| node.id())
        });
        let running = running.collect();
        if let Some(folder) = &self.folder {
            interrupt::register_cleanup(running, folder.path());
        }
    }

    pub fn all(&self) -> &[NodeProcess] {
        &self.nodes
    }

    pub fn all_mut(&mut self) -> &mut [NodeProcess] {
        &mut self.nodes
    }

    /// Returns the node whose id is `id`, including one that has left.
    pub fn node(&mut self, id: u32) -> io::Result<&mut NodeProcess> {
        let node = self.nodes.get_mut(node_index(id));
        node.ok_or_else(|| io::Error::other(format!("there is no node {id}")))
    }

    /// Returns the nodes that have not left, sorted by id.
    fn members(&self) -> impl Iterator<Item = (u32, &NodeProcess)> {
        let all = (1..).zip(&self.nodes);
        all.filter(|(id, _)| !self.departed_ids.contains(id))
    }

    /// Returns the ids of all nodes that have not left.
    pub fn ids(&self) -> Vec<u32> {
        self.members().map(|(id, _)| id).collect()
    }

    /// Returns the process ids of all members, sorted by node id.
    pub fn process_ids(&self) -> Vec<u32> {
        self.members().map(|(_, node)| node.id()).collect()
    }

    /// Marks a stopped node as having left the cluster. Later calls do not wait for it.
    pub fn mark_departed(&mut self, id: u32) {
        self.departed_ids.insert(id);
    }

    pub fn log_path(&self, id: u32) -> String {
        let node = self.nodes.get(node_index(id));
        let read = node.map(|node| fs::read_to_string(&node.spec.log_path));
        read.and_then(Result::ok).unwrap_or_default()
    }

    pub fn admin_addresses(&self) -> Vec<String> {
        let admin = |(_, node): (u32, &NodeProcess)| node.ready.admin.clone();
        self.members().map(admin).collect()
    }

    pub fn client_addresses(&self) -> Vec<String> {
        let client = |(_, node): (u32, &NodeProcess)| node.ready.client.clone();
        self.members().map(client).collect()
    }

    pub fn stream_addresses(&self) -> Vec<String> {
        let stream = |(_, node): (u32, &NodeProcess)| node.ready.stream.clone();
        self.members().map(stream).collect()
    }

    /// Returns the client ports of all members, for programs that connect to ports on loopback.
    pub fn client_ports(&self) -> Vec<u16> {
        let port = |(_, node): (u32, &NodeProcess)| {
            let (_, port) = node.ready.client.rsplit_once(':')?;
            port.parse().ok()
        };
        self.members().filter_map(port).collect()
    }

    /// Sends SIGKILL to several nodes at once, then waits for them to end.
    pub fn kill(&mut self, ids: &[u32]) -> io::Result<()> {
        for id in ids {
            self.node(*id)?.signal(Signal::KILL)?;
        }
        for id in ids {
            self.node(*id)?.child.wait()?;
        }
        self.register_cleanup();
        Ok(())
    }

    /// Restarts stopped nodes with the same flags, and waits until they listen.
    pub fn restart(&mut self, ids: &[u32]) -> io::Result<()> {
        for id in ids {
            self.respawn(*id)?;
        }
        for id in ids {
            self.node(*id)?.wait_ready()?;
        }
        Ok(())
    }

    /// Restarts a stopped node with the same flags, without waiting for it.
    pub fn respawn(&mut self, id: u32) -> io::Result<()> {
        let leftovers = interrupt::delay_cleanup();
        let node = self.node(id)?;
        *node = NodeProcess::spawn(node.spec.clone())?;
        drop(leftovers);
        self.register_cleanup();
        Ok(())
    }

    /// Kills all nodes and discards them, so that they cannot be restarted. The folder remains.
    pub fn kill_all(&mut self) {
        self.nodes.clear();
        self.register_cleanup();
    }

    pub fn pause(&mut self, id: u32) -> io::Result<()> {
        self.node(id)?.signal(Signal::STOP)
    }

    pub fn resume(&mut self, id: u32) -> io::Result<()> {
        self.node(id)?.signal(Signal::CONT)
    }

    /// Sends SIGTERM to several nodes at once. Each of them must exit with status 0.
    pub fn terminate(&mut self, ids: &[u32]) -> io::Result<()> {
        for id in ids {
            self.node(*id)?.signal(Signal::TERM)?;
        }
        for id in ids {
            let node = self.node(*id)?;
            let status = node.wait_for_exit()?;
            if !status.success() {
                let said = node.log_tail();
                let why = format!("node {id} stopped with {status}: {said}");
                return Err(io::Error::other(why));
            }
        }
        self.register_cleanup();
        Ok(())
    }

    /// Returns an error if a node has ended unexpectedly.
    pub fn check_alive(&mut self) -> io::Result<()> {
        for id in self.ids() {
            let node = self.node(id)?;
            if let Some(status) = node.child.try_wait()? {
                let said = node.log_tail();
                let why = format!("node {id} ended with {status}: {said}");
                return Err(io::Error::other(why));
            }
        }
        Ok(())
    }

    pub fn wait_until_all_ready(&self) -> io::Result<()> {
        for (id, node) in self.members() {
            wait::wait_at_most(START_TIMEOUT, &format!("node {id} to be ready"), || {
                fetch(&node.ready.admin, "/ready", READY_TIMEOUT)
            })?;
        }
        Ok(())
    }

    /// Waits until every node answers a linearizable read.
    pub fn wait_until_all_serve(&mut self) -> io::Result<()> {
        for (id, address) in self.ids().into_iter().zip(self.client_addresses()) {
            let what = format!("node {id} to serve");
            let etcd = self.uses_etcd();
            let serves = || match etcd {
                true => etcd::answers_reads(&address).then_some(()),
                false => answers_reads(&address).then_some(()),
            };
            if wait::wait_at_most(SLOW_START, &what, serves).is_err() {
                crate::progress(&format!(
                    "  node {id} does not serve after {} s:\n{}",
                    SLOW_START.as_secs(),
                    self.summary()
                ));
                wait::wait_at_most(START_TIMEOUT, &what, serves)
                    .map_err(|error| self.with_statuses(&error))?;
            }
        }
        self.check_alive()
    }

    /// Returns whether the nodes were started with `--service etcd`.
    pub fn uses_etcd(&self) -> bool {
        let flag = |node: &NodeProcess| node.spec.flag_value("--service") == Some("etcd");
        self.nodes.first().is_some_and(flag)
    }

    /// Waits until all nodes have equal contents. Returns the position and the fingerprint.
    pub fn wait_until_equal(&self) -> io::Result<String> {
        let addresses = self.client_addresses();
        let digest = match self.uses_etcd() {
            true => etcd::state_digest,
            false => state_digest,
        };
        let equal = || {
            let digests: Option<Vec<String>> = addresses.iter().map(|at| digest(at)).collect();
            let mut digests = digests?;
            digests.dedup();
            (digests.len() == 1).then(|| digests.remove(0))
        };
        wait::wait_at_most(START_TIMEOUT, "equal contents on all nodes", equal)
            .map_err(|error| self.with_statuses(&error))
    }

    /// Returns the status of a node, if the node responds.
    pub fn status(&self, id: u32) -> Option<NodeView> {
        let node = self.nodes.get(node_index(id))?;
        fetch_status(&node.ready.admin)
    }

    /// Returns the tuner status of a node. Null if the node does not respond.
    pub fn tuner_status(&self, id: u32) -> Value {
        let answer = || {
            let node = self.nodes.get(node_index(id))?;
            let text = fetch(&node.ready.admin, "/tuning", ADMIN_TIMEOUT)?;
            serde_json::from_str(&text).ok()
        };
        answer().unwrap_or(Value::Null)
    }

    /// Waits until a majority of the nodes report the same leader, and returns its id.
    pub fn leader(&self) -> io::Result<u32> {
        wait::wait_at_most(START_TIMEOUT, "a leader", || {
            let views = self.admin_addresses().into_iter();
            let named: Vec<u32> = views.filter_map(|at| fetch_status(&at)?.leader).collect();
            let most =
                named.iter().max_by_key(|one| named.iter().filter(|other| other == one).count())?;
            let agreed =
                named.iter().filter(|one| *one == most).count() * 2 > self.members().count();
            agreed.then_some(*most)
        })
    }

    /// Waits until all nodes report the same leader, and returns its id.
    pub fn agreed_leader(&self) -> io::Result<u32> {
        let admins = self.admin_addresses();
        wait::wait_at_most(START_TIMEOUT, "a leader that all nodes know", || {
            let mut named = admins.iter().map(|at| fetch_status(at)?.leader);
            let first = named.next()??;
            named.all(|other| other == Some(first)).then_some(first)
        })
    }

    /// Returns the round of the agreed leader's ballot. It grows with each election.
    pub fn ballot_round(&self) -> io::Result<u64> {
        let leader = self.agreed_leader()?;
        let view =
            wait::wait_at_most(START_TIMEOUT, "the leader's status", || self.status(leader))?;
        Ok(view.ballot.round)
    }

    /// Returns the value of a counter in a node's metrics. 0 if the metrics do not contain it.
    pub fn metric(&self, id: u32, name: &str) -> io::Result<u64> {
        let node = self.nodes.get(node_index(id));
        let address = node.map_or("", |node| &node.ready.admin);
        let text = wait::wait_at_most(START_TIMEOUT, "metrics", || fetch_metrics(address))?;
        let value = text.lines().find_map(|line| line.strip_prefix(name));
        Ok(value.and_then(|rest| rest.trim().parse().ok()).unwrap_or(0))
    }

    /// Runs `quorate log verify` on the folder of every member. The nodes must be stopped.
    pub fn verify_logs(&self, program: &Path) -> io::Result<()> {
        for (_, node) in self.members() {
            let mut command = Command::new(program);
            run::read_output(command.args(["log", "verify"]).arg(&node.spec.data_folder))?;
        }
        Ok(())
    }

    /// Adds the status of all nodes to an error.
    pub(crate) fn with_statuses(&self, error: &io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("{error}\n{}", self.statuses_text()))
    }

    /// Returns one line per node with the leader, the progress and the unreachable peers.
    fn summary(&self) -> String {
        let brief = |(id, node): (u32, &NodeProcess)| {
            let Some(view) = fetch_status(&node.ready.admin) else {
                return format!("    node {id}: no answer");
            };
            let without = view.members.iter().filter(|member| !member.connected);
            let without: Vec<u32> = without.map(|member| member.node).collect();
            let by_tcp = view.members.iter().filter(|member| {
                let plane = member.plane.as_ref();
                plane.is_some_and(|plane| plane.way == "tcp")
            });
            let by_tcp: Vec<u32> = by_tcp.map(|member| member.node).collect();
            format!(
                "    node {id}: {}, leader {:?}, round {}, decided {}, not connected to {without:?}, by TCP to {by_tcp:?}",
                view.role, view.leader, view.ballot.round, view.decided
            )
        };
        self.members().map(brief).collect::<Vec<_>>().join("\n")
    }

    /// Returns the status documents of all nodes, for an error message.
    fn statuses_text(&self) -> String {
        let say = |at: &String| fetch(at, "/status", ADMIN_TIMEOUT);
        let views = self.admin_addresses();
        let views = views.iter().map(|at| say(at).unwrap_or_else(|| "no answer".to_owned()));
        views.collect::<Vec<_>>().join("\n")
    }

    pub fn data_folder(&self) -> &Path {
        self.folder.as_ref().map_or(Path::new("."), tempfile::TempDir::path)
    }

    /// Detaches the nodes and their folder, so that they outlive this process. Returns the folder.
    pub fn detach(&mut self) -> Option<PathBuf> {
        self.nodes.iter_mut().for_each(NodeProcess::keep_running);
        let folder = self.folder.take()?;
        interrupt::unregister_cleanup(folder.path());
        Some(folder.keep())
    }

    /// Kills the nodes and moves their logs and data to `place` for inspection. If `place` is on
    /// another file system, leaves them where they are. Returns their folder.
    pub fn keep_for_inspection(mut self, place: &Path) -> PathBuf {
        self.kill_all();
        let Some(folder) = self.folder.take() else {
            return place.to_owned();
        };
        interrupt::unregister_cleanup(folder.path());
        let from = folder.keep();
        match fs::rename(&from, place) {
            Ok(()) => place.to_owned(),
            Err(_) => from,
        }
    }
}

impl Drop for NodeCluster {
    fn drop(&mut self) {
        self.nodes.clear();
        // Remove the folder first. An interrupt then has nothing left to clean up.
        if let Some(folder) = self.folder.take() {
            let path = folder.path().to_owned();
            drop(folder);
            interrupt::unregister_cleanup(&path);
        }
    }
}

impl NodeProcess {
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    /// Waits for the process to end by itself.
    pub fn wait_for_exit(&mut self) -> io::Result<ExitStatus> {
        let what = format!("node {} to stop", self.ready.node);
        wait::wait_at_most(START_TIMEOUT, &what, || self.child.try_wait().transpose())?
    }
}

fn node_index(id: u32) -> usize {
    usize::try_from(id).map_or(usize::MAX, |id| id.wrapping_sub(1))
}

/// Returns whether the node answers a linearizable read.
fn answers_reads(address: &str) -> bool {
    let ask = || RespConnection::connect(address)?.run_command(&["EXISTS", "x"]);
    ask().is_ok_and(|reply| reply.as_number().is_some())
}

/// Returns the position and the fingerprint of the node's own state.
fn state_digest(address: &str) -> Option<String> {
    let mut link = RespConnection::connect(address).ok()?;
    link.run_command(&["READONLY"]).ok()?;
    link.run_command(&["QUORATE", "DIGEST"]).ok()?.text()
}

pub fn fetch(address: &str, path: &str, wait: Duration) -> Option<String> {
    let response = client::get(address, path, wait).ok()?;
    (response.status == 200).then_some(response.body)
}

pub fn fetch_metrics(address: &str) -> Option<String> {
    fetch(address, "/metrics", ADMIN_TIMEOUT)
}

fn fetch_status(address: &str) -> Option<NodeView> {
    serde_json::from_str(&fetch(address, "/status", ADMIN_TIMEOUT)?).ok()
}
