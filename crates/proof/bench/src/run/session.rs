//! Nodes started for a measurement. The nodes and their folder are removed when the bench exits,
//! whatever the cause.

use std::{
    fs, io,
    net::{SocketAddr, ToSocketAddrs as _},
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use quorate_admin::{
    client,
    look::query_cluster,
    view::{Answer, NodeView},
};
use quorate_testbed::{
    nodes::NodeCluster,
    process::{NodeProcess, loopback_cluster},
    replace,
};

use super::{network::Network, program::node_program};
use crate::{
    device::DeviceKind,
    emulated::EmulatedNetwork,
    problem::{Kind, Problem},
};

/// Code of the problem reported if a node does not use its device.
pub const NO_DEVICE_CODE: &str = "no_device";
/// Number of nodes in a cluster, unless an experiment needs a different number.
pub const NODE_COUNT: u32 = 3;
/// Maximum time to wait for a leader and for devices.
const READY_TIMEOUT: Duration = Duration::from_secs(20);
/// Timeout for a request to a node's admin server.
const ADMIN_TIMEOUT: Duration = Duration::from_secs(3);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A temporary folder, and the nodes whose data is in it.
pub struct NodeSession {
    nodes: NodeCluster,
    boot_count: u32,
    voter_count: u32,
    /// Emulated network between the nodes; `None` if they use loopback.
    network: Option<Arc<Network>>,
}

#[derive(Clone, Debug, Default)]
pub struct Cluster {
    pub members: Vec<ClusterMember>,
}

#[derive(Clone, Debug)]
pub struct ClusterMember {
    pub node: u32,
    pub(super) process: u32,
    pub(super) auxiliary: bool,
    pub(super) learner: bool,
    pub client: SocketAddr,
    /// Address for byte-stream writers that use the framed protocol.
    pub(super) stream: String,
    /// Address for byte-stream writers that use the raw protocol; empty if the node has none.
    pub(super) stream_raw: String,
    pub(super) admin: String,
}

impl NodeSession {
    /// Returns a session whose nodes communicate over loopback.
    pub(super) fn new() -> Result<Self, Problem> {
        Self::on_network(None)
    }

    /// Returns a session for three nodes on an emulated network, or on loopback. For a network,
    /// [`super::network::enter_namespaces`] must have been called.
    pub(super) fn on_network(kind: Option<EmulatedNetwork>) -> Result<Self, Problem> {
        Self::with_capacity(kind, NODE_COUNT)
    }

    /// Returns a session for up to `room` nodes, including learners.
    pub fn with_capacity(kind: Option<EmulatedNetwork>, room: u32) -> Result<Self, Problem> {
        let nodes = NodeCluster::with_empty_folder("quorate-bench-")
            .map_err(|error| Problem::io_error("make a temporary folder", &error))?;
        let network = kind.map(|kind| Network::new(kind, room));
        Ok(Self {
            nodes,
            boot_count: 0,
            voter_count: 0,
            network: network.transpose()?.map(Arc::new),
        })
    }

    /// Returns the emulated network between the nodes; `None` for loopback.
    pub fn network(&self) -> Option<Arc<Network>> {
        self.network.clone()
    }

    pub(super) fn folder(&self) -> &Path {
        self.nodes.data_folder()
    }

    /// Stops the current nodes and starts three new ones with empty folders.
    pub fn boot(&mut self, flags: &[&str]) -> Result<Cluster, Problem> {
        self.boot_some(NODE_COUNT, None, flags)
    }

    /// Stops the current nodes and starts a given number of new ones. If requested, one of them is
    /// an auxiliary.
    pub fn boot_some(
        &mut self,
        nodes: u32,
        auxiliary: Option<u32>,
        flags: &[&str],
    ) -> Result<Cluster, Problem> {
        let name = auxiliary.map(|node| node.to_string());
        let mut flags = flags.to_vec();
        if let Some(name) = &name {
            flags.extend(["--auxiliary", name]);
        }
        self.kill_nodes();
        self.boot_count += 1;
        let folder = self.folder().join(format!("cluster-{}", self.boot_count));
        fs::create_dir_all(&folder).map_err(|error| Problem::io_error("make a folder", &error))?;
        let program = node_program()?;
        let specs = match &self.network {
            Some(network) => network.node_specs(nodes, &program, &folder, &flags),
            None => loopback_cluster(&program, &folder, nodes, &flags),
        };
        let started = specs.and_then(|specs| self.nodes.start(specs));
        started.map_err(|error| start_problem(&error))?;
        self.voter_count = nodes;
        let cluster = self.cluster(auxiliary)?;
        cluster.wait_for_level()?;
        Ok(cluster)
    }

    /// Starts `count` learners in addition to the current nodes, and waits until they are caught
    /// up.
    pub fn join(&mut self, count: u32, flags: &[&str]) -> Result<Cluster, Problem> {
        let folder = self.folder().join(format!("cluster-{}", self.boot_count));
        let program = node_program()?;
        let specs = match &self.network {
            Some(network) => {
                let first = self.voter_count + 1;
                network.learner_specs((&program, &folder), first..first + count, flags)
            }
            None => replace::newcomer_specs(&self.nodes, &program, count as usize, flags),
        };
        let joined = specs.and_then(|specs| replace::add_learners(&mut self.nodes, specs));
        joined.map_err(|error| start_problem(&error))?;
        self.cluster(None)
    }

    fn cluster(&self, auxiliary: Option<u32>) -> Result<Cluster, Problem> {
        let place = |node: &NodeProcess| {
            Ok(ClusterMember {
                node: node.ready.node,
                process: node.id(),
                auxiliary: Some(node.ready.node) == auxiliary,
                learner: node.ready.node > self.voter_count,
                stream: node.ready.stream.clone(),
                stream_raw: node.ready.stream_raw.clone(),
                client: resolve_address(&node.ready.client)?,
                admin: node.ready.admin.clone(),
            })
        };
        let members = self.nodes.all().iter().map(place);
        Ok(Cluster { members: members.collect::<Result<_, Problem>>()? })
    }

    pub fn kill(&mut self, node: u32) -> Result<(), Problem> {
        let killed = self.nodes.kill(&[node]);
        killed.map_err(|error| Problem::io_error("kill a node", &error))
    }

    /// Kills the external processes of a node's device.
    pub fn kill_device_processes(&mut self, node: u32) -> Result<(), Problem> {
        let node = self.nodes.node(node);
        let killed = node.and_then(|node| node.kill_children());
        killed.map_err(|error| Problem::io_error("kill a box", &error))
    }

    pub(super) fn pause(&mut self, node: u32) -> io::Result<()> {
        self.nodes.pause(node)
    }

    pub(super) fn resume(&mut self, node: u32) -> io::Result<()> {
        self.nodes.resume(node)
    }

    /// Reduces a node's link to a percentage of its capacity.
    pub fn narrow_link(&self, node: u32, percent: u64) -> io::Result<()> {
        let network = self.network.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        network.limit_link(node, percent)
    }

    /// Kills a node with SIGKILL and restarts it on a disk with the given flush time.
    pub(super) fn restart_with_flush(&mut self, node: u32, flush: Duration) -> io::Result<()> {
        self.nodes.kill(&[node])?;
        let spec = &mut self.nodes.node(node)?.spec;
        spec.set_flag("--disk-flush-ms", &flush.as_millis().to_string());
        self.nodes.respawn(node)
    }

    /// Adds the last log lines of each node to a problem.
    pub fn add_last_log_lines(&self, mut problem: Problem) -> Problem {
        for node in self.nodes.all() {
            let words = node.log_tail();
            if !words.is_empty() {
                let said = format!("; node {} said: {words}", node.ready.node);
                problem.message.push_str(&said);
            }
        }
        problem
    }

    /// Stops the nodes gracefully. Returns their folders, which exist until the session ends.
    pub(super) fn stop(&mut self) -> Result<Vec<(u32, PathBuf)>, Problem> {
        let stopped = self.nodes.terminate(&self.nodes.ids());
        stopped.map_err(|error| Problem::io_error("stop the nodes", &error))?;
        let nodes = self.nodes.all().iter();
        Ok(nodes.map(|node| (node.ready.node, node.spec.data_folder.clone())).collect())
    }

    /// Kills the nodes and removes their folders.
    pub fn kill_nodes(&mut self) {
        self.nodes.kill_all();
        for number in 1..=self.boot_count {
            let _ = fs::remove_dir_all(self.folder().join(format!("cluster-{number}")));
        }
    }
}

impl Cluster {
    /// Waits until all nodes agree on a leader, and returns the leader.
    pub fn wait_for_leader(&self) -> Result<u32, Problem> {
        let admins: Vec<String> = self.members.iter().map(|place| place.admin.clone()).collect();
        let began = Instant::now();
        loop {
            let view = query_cluster(&admins)?;
            let nodes = || view.nodes.iter().filter_map(Answer::node_view);
            let agreed = nodes().all(|node| node.leader == view.leader);
            if let Some(leader) = view.leader.filter(|_| agreed) {
                return Ok(leader);
            }
            if began.elapsed() > READY_TIMEOUT {
                let what = "the nodes elected no leader in time";
                return Err(Problem::new(Kind::Unreachable, "no_leader", what));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Waits until the leader uses the newest feature level, which it soon does in a new cluster
    /// ([level-11]), and the nodes agree on it. Raising the level revokes the slots of devices, so
    /// it must precede a measurement.
    fn wait_for_level(&self) -> Result<(), Problem> {
        let admins: Vec<String> = self.members.iter().map(|place| place.admin.clone()).collect();
        let began = Instant::now();
        loop {
            let view = query_cluster(&admins)?;
            let mut nodes = view.nodes.iter().filter_map(Answer::node_view);
            let leader = nodes.find(|node| Some(node.node) == view.leader);
            if leader.is_some_and(|leader| !leader.level.has_higher_level()) {
                return self.wait_for_leader().map(drop);
            }
            if began.elapsed() > READY_TIMEOUT {
                let what = "the nodes do not use the newest feature level";
                return Err(Problem::new(Kind::Failed, "level", what));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Waits until all voters use devices of kind `device`.
    pub(super) fn wait_for_devices(&self, device: DeviceKind) -> Result<(), Problem> {
        let voters = self.members.iter().filter(|place| !place.learner);
        let admins: Vec<String> = voters.map(|place| place.admin.clone()).collect();
        let began = Instant::now();
        loop {
            let view = query_cluster(&admins)?;
            let nodes = view.nodes.iter().filter_map(Answer::node_view);
            let Some(why) = device.missing_reason(nodes) else {
                return Ok(());
            };
            if began.elapsed() > READY_TIMEOUT {
                let what = format_args!("--device {device} is not used: {why}");
                return Err(Problem::new(Kind::Failed, NO_DEVICE_CODE, what).with_hint(
                    "'quorate doctor' shows what this machine supports; devices in the kernel need root",
                ));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Returns a node's status; `None` if it does not reply.
    pub(super) fn node_view(&self, node: u32) -> Option<NodeView> {
        let answer = client::get(&self.find_member(node)?.admin, "/status", ADMIN_TIMEOUT);
        answer.ok()?.parse_json().ok()
    }

    pub fn without(&self, node: u32) -> Self {
        let left = self.members.iter().filter(|place| place.node != node);
        Self { members: left.cloned().collect() }
    }

    pub(super) fn client_addresses(&self) -> Vec<SocketAddr> {
        self.members.iter().map(|place| place.client).collect()
    }

    pub(super) fn client_address(&self, node: u32) -> Option<SocketAddr> {
        Some(self.find_member(node)?.client)
    }

    pub(super) fn find_member(&self, node: u32) -> Option<&ClusterMember> {
        self.members.iter().find(|place| place.node == node)
    }
}

fn start_problem(error: &io::Error) -> Problem {
    let what = format_args!("a node did not start: {error}");
    Problem::new(Kind::Failed, "node_failed", what)
}

/// Resolves `HOST:PORT` to the first address found.
pub fn resolve_address(address: &str) -> Result<SocketAddr, Problem> {
    let unknown = |why: String| {
        Problem::usage_error(format_args!("{address}: {why}")).with_hint("an address is HOST:PORT")
    };
    let mut found = address.to_socket_addrs().map_err(|error| unknown(error.to_string()))?;
    found.next().ok_or_else(|| unknown("no address".to_owned()))
}
