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
    nodes::Nodes,
    process::{NodeProcess, cluster},
    replace,
};

use super::{network::Network, program::program};
use crate::{
    device::Device,
    emulated::Emulated,
    problem::{Kind, Problem},
};

/// Code of the problem reported if a node does not use its device.
pub const NO_DEVICE: &str = "no_device";
/// Number of nodes in a cluster, unless an experiment needs a different number.
pub const NODES: u32 = 3;
/// Maximum time to wait for a leader and for devices.
const PATIENCE: Duration = Duration::from_secs(20);
/// Timeout for a request to a node's admin server.
const WAIT: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(20);

/// A temporary folder, and the nodes whose data is in it.
pub struct Session {
    nodes: Nodes,
    booted: u32,
    voters: u32,
    /// Emulated network between the nodes; `None` if they use loopback.
    network: Option<Arc<Network>>,
}

#[derive(Clone, Debug, Default)]
pub struct Cluster {
    pub members: Vec<Place>,
}

#[derive(Clone, Debug)]
pub struct Place {
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

impl Session {
    /// Returns a session whose nodes communicate over loopback.
    pub(super) fn new() -> Result<Self, Problem> {
        Self::over(None)
    }

    /// Returns a session for three nodes on an emulated network, or on loopback. For a network,
    /// [`super::network::enter`] must have been called.
    pub(super) fn over(kind: Option<Emulated>) -> Result<Self, Problem> {
        Self::with_room(kind, NODES)
    }

    /// Returns a session for up to `room` nodes, including learners.
    pub fn with_room(kind: Option<Emulated>, room: u32) -> Result<Self, Problem> {
        let nodes = Nodes::none("quorate-bench-")
            .map_err(|error| Problem::io("make a temporary folder", &error))?;
        let network = kind.map(|kind| Network::new(kind, room));
        Ok(Self { nodes, booted: 0, voters: 0, network: network.transpose()?.map(Arc::new) })
    }

    /// Returns the emulated network between the nodes; `None` for loopback.
    pub fn network(&self) -> Option<Arc<Network>> {
        self.network.clone()
    }

    pub(super) fn folder(&self) -> &Path {
        self.nodes.folder()
    }

    /// Stops the current nodes and starts three new ones with empty folders.
    pub fn boot(&mut self, flags: &[&str]) -> Result<Cluster, Problem> {
        self.boot_some(NODES, None, flags)
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
        self.end();
        self.booted += 1;
        let folder = self.folder().join(format!("cluster-{}", self.booted));
        fs::create_dir_all(&folder).map_err(|error| Problem::io("make a folder", &error))?;
        let program = program()?;
        let specs = match &self.network {
            Some(network) => network.specs(nodes, &program, &folder, &flags),
            None => cluster(&program, &folder, nodes, &flags),
        };
        let started = specs.and_then(|specs| self.nodes.start(specs));
        started.map_err(|error| not_started(&error))?;
        self.voters = nodes;
        let cluster = self.cluster(auxiliary)?;
        cluster.settle()?;
        Ok(cluster)
    }

    /// Starts `count` learners in addition to the current nodes, and waits until they are caught
    /// up.
    pub fn join(&mut self, count: u32, flags: &[&str]) -> Result<Cluster, Problem> {
        let folder = self.folder().join(format!("cluster-{}", self.booted));
        let program = program()?;
        let specs = match &self.network {
            Some(network) => {
                let first = self.voters + 1;
                network.learners((&program, &folder), first..first + count, flags)
            }
            None => replace::newcomers(&self.nodes, &program, count as usize, flags),
        };
        let joined = specs.and_then(|specs| replace::learners(&mut self.nodes, specs));
        joined.map_err(|error| not_started(&error))?;
        self.cluster(None)
    }

    fn cluster(&self, auxiliary: Option<u32>) -> Result<Cluster, Problem> {
        let place = |node: &NodeProcess| {
            Ok(Place {
                node: node.ready.node,
                process: node.id(),
                auxiliary: Some(node.ready.node) == auxiliary,
                learner: node.ready.node > self.voters,
                stream: node.ready.stream.clone(),
                stream_raw: node.ready.stream_raw.clone(),
                client: resolve(&node.ready.client)?,
                admin: node.ready.admin.clone(),
            })
        };
        let members = self.nodes.all().iter().map(place);
        Ok(Cluster { members: members.collect::<Result<_, Problem>>()? })
    }

    pub fn kill(&mut self, node: u32) -> Result<(), Problem> {
        let killed = self.nodes.kill(&[node]);
        killed.map_err(|error| Problem::io("kill a node", &error))
    }

    /// Kills the external processes of a node's device.
    pub fn kill_box(&mut self, node: u32) -> Result<(), Problem> {
        let node = self.nodes.node(node);
        let killed = node.and_then(|node| node.kill_children());
        killed.map_err(|error| Problem::io("kill a box", &error))
    }

    pub(super) fn pause(&mut self, node: u32) -> io::Result<()> {
        self.nodes.pause(node)
    }

    pub(super) fn resume(&mut self, node: u32) -> io::Result<()> {
        self.nodes.resume(node)
    }

    /// Reduces a node's link to a percentage of its capacity.
    pub fn narrow(&self, node: u32, percent: u64) -> io::Result<()> {
        let network = self.network.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        network.limit_link(node, percent)
    }

    /// Kills a node with SIGKILL and restarts it on a disk with the given flush time.
    pub(super) fn come_back_with(&mut self, node: u32, flush: Duration) -> io::Result<()> {
        self.nodes.kill(&[node])?;
        let spec = &mut self.nodes.node(node)?.spec;
        spec.set_flag("--disk-flush-ms", &flush.as_millis().to_string());
        self.nodes.respawn(node)
    }

    /// Adds the last log lines of each node to a problem.
    pub fn with_last_words(&self, mut problem: Problem) -> Problem {
        for node in self.nodes.all() {
            let words = node.last_words();
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
        stopped.map_err(|error| Problem::io("stop the nodes", &error))?;
        let nodes = self.nodes.all().iter();
        Ok(nodes.map(|node| (node.ready.node, node.spec.data.clone())).collect())
    }

    /// Kills the nodes and removes their folders.
    pub fn end(&mut self) {
        self.nodes.end();
        for number in 1..=self.booted {
            let _ = fs::remove_dir_all(self.folder().join(format!("cluster-{number}")));
        }
    }
}

impl Cluster {
    /// Waits until all nodes agree on a leader, and returns the leader.
    pub fn leader(&self) -> Result<u32, Problem> {
        let admins: Vec<String> = self.members.iter().map(|place| place.admin.clone()).collect();
        let began = Instant::now();
        loop {
            let view = query_cluster(&admins)?;
            let nodes = || view.nodes.iter().filter_map(Answer::view);
            let agreed = nodes().all(|node| node.leader == view.leader);
            if let Some(leader) = view.leader.filter(|_| agreed) {
                return Ok(leader);
            }
            if began.elapsed() > PATIENCE {
                let what = "the nodes elected no leader in time";
                return Err(Problem::new(Kind::Unreachable, "no_leader", what));
            }
            thread::sleep(PAUSE);
        }
    }

    /// Waits until the leader uses the newest feature level, which it soon does in a new cluster
    /// ([level-11]), and the nodes agree on it. Raising the level revokes the slots of devices, so
    /// it must precede a measurement.
    fn settle(&self) -> Result<(), Problem> {
        let admins: Vec<String> = self.members.iter().map(|place| place.admin.clone()).collect();
        let began = Instant::now();
        loop {
            let view = query_cluster(&admins)?;
            let mut nodes = view.nodes.iter().filter_map(Answer::view);
            let leader = nodes.find(|node| Some(node.node) == view.leader);
            if leader.is_some_and(|leader| !leader.level.may_rise()) {
                return self.leader().map(drop);
            }
            if began.elapsed() > PATIENCE {
                let what = "the nodes do not use the newest feature level";
                return Err(Problem::new(Kind::Failed, "level", what));
            }
            thread::sleep(PAUSE);
        }
    }

    /// Waits until all voters use devices of kind `device`.
    pub(super) fn wait_for_devices(&self, device: Device) -> Result<(), Problem> {
        let voters = self.members.iter().filter(|place| !place.learner);
        let admins: Vec<String> = voters.map(|place| place.admin.clone()).collect();
        let began = Instant::now();
        loop {
            let view = query_cluster(&admins)?;
            let nodes = view.nodes.iter().filter_map(Answer::view);
            let Some(why) = device.missing(nodes) else {
                return Ok(());
            };
            if began.elapsed() > PATIENCE {
                let what = format_args!("--device {device} is not used: {why}");
                return Err(Problem::new(Kind::Failed, NO_DEVICE, what).hint(
                    "'quorate doctor' shows what this machine supports; devices in the kernel need root",
                ));
            }
            thread::sleep(PAUSE);
        }
    }

    /// Returns a node's status; `None` if it does not reply.
    pub(super) fn view_of(&self, node: u32) -> Option<NodeView> {
        let answer = client::get(&self.place_of(node)?.admin, "/status", WAIT);
        answer.ok()?.json().ok()
    }

    pub fn without(&self, node: u32) -> Self {
        let left = self.members.iter().filter(|place| place.node != node);
        Self { members: left.cloned().collect() }
    }

    pub(super) fn clients(&self) -> Vec<SocketAddr> {
        self.members.iter().map(|place| place.client).collect()
    }

    pub(super) fn client_of(&self, node: u32) -> Option<SocketAddr> {
        Some(self.place_of(node)?.client)
    }

    pub(super) fn place_of(&self, node: u32) -> Option<&Place> {
        self.members.iter().find(|place| place.node == node)
    }
}

fn not_started(error: &io::Error) -> Problem {
    let what = format_args!("a node did not start: {error}");
    Problem::new(Kind::Failed, "node_failed", what)
}

/// Resolves `HOST:PORT` to the first address found.
pub fn resolve(address: &str) -> Result<SocketAddr, Problem> {
    let unknown = |why: String| {
        Problem::usage(format_args!("{address}: {why}")).hint("an address is HOST:PORT")
    };
    let mut found = address.to_socket_addrs().map_err(|error| unknown(error.to_string()))?;
    found.next().ok_or_else(|| unknown("no address".to_owned()))
}
