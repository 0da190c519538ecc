//! Nodes of our own for measurements; they and their folder are gone when the bench ends, however.

use std::{
    env, fs, io,
    net::{SocketAddr, ToSocketAddrs as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use quorate_admin::{look::look, view::Answer};
use quorate_bench::wan::Profile;
use quorate_testbed::process::{NodeProcess, cluster};

use super::wan::Network;
use crate::{
    output::{Exit, Problem},
    signals,
};

const NODES: u32 = 3;
/// A cluster has a leader within this time.
const PATIENCE: Duration = Duration::from_secs(20);
/// Between two looks at it.
const PAUSE: Duration = Duration::from_millis(20);

/// A temporary folder, and whatever runs in it. Only one per process.
pub(super) struct Session {
    nodes: Arc<Mutex<Vec<NodeProcess>>>,
    folder: PathBuf,
    booted: u32,
    /// Between the nodes, if they are not on loopback.
    network: Option<Arc<Network>>,
}

/// Three running nodes.
#[derive(Clone, Debug)]
pub(super) struct Cluster {
    pub(super) members: Vec<Place>,
}

/// Where a node is.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) node: u32,
    pub(super) process: u32,
    pub(super) client: SocketAddr,
    pub(super) admin: String,
}

impl Session {
    /// Nodes on loopback.
    pub(super) fn new() -> Result<Self, Problem> {
        Self::over(None)
    }

    /// Nodes with an emulated network between them; [`super::wan::enter`] was called.
    pub(super) fn over(profile: Option<Profile>) -> Result<Self, Problem> {
        let folder = tempfile::Builder::new()
            .prefix("quorate-bench-")
            .tempdir()
            .map_err(|error| Problem::io("make a temporary folder", &error))?
            .keep();
        let mut session = Self {
            nodes: Arc::default(),
            folder,
            booted: 0,
            network: None,
        };
        let (nodes, folder) = (Arc::clone(&session.nodes), session.folder.clone());
        signals::end_at_first(move || {
            // Held to the end: no node starts while its folder is removed.
            let mut nodes = lock(&nodes);
            nodes.clear();
            let _ = fs::remove_dir_all(&folder);
        })?;
        if let Some(profile) = profile {
            session.network = Some(Arc::new(Network::new(profile, NODES)?));
        }
        Ok(session)
    }

    /// The network between the nodes, if it is an emulated one.
    pub(super) fn network(&self) -> Option<Arc<Network>> {
        self.network.clone()
    }

    /// Where files may be made.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn program() -> Result<PathBuf, Problem> {
        env::current_exe().map_err(|error| Problem::io("find this program", &error))
    }

    /// Ends the nodes that run, and starts three new ones in empty folders.
    pub(super) fn boot(&mut self, flags: &[&str]) -> Result<Cluster, Problem> {
        self.end();
        self.booted += 1;
        let folder = self.folder.join(format!("cluster-{}", self.booted));
        fs::create_dir_all(&folder).map_err(|error| Problem::io("make a folder", &error))?;
        let program = Self::program()?;
        let specs = match &self.network {
            Some(network) => network.specs(&program, &folder, flags)?,
            None => cluster(&program, &folder, NODES, true, flags)
                .map_err(|error| not_started(&error))?,
        };
        for spec in specs {
            let mut nodes = lock(&self.nodes);
            nodes.push(NodeProcess::spawn(spec).map_err(|error| not_started(&error))?);
        }
        let mut members = Vec::new();
        for node in lock(&self.nodes).iter_mut() {
            node.wait_ready().map_err(|error| not_started(&error))?;
            members.push(Place {
                node: node.ready.node,
                process: node.id(),
                client: resolve(&node.ready.client)?,
                admin: node.ready.admin.clone(),
            });
        }
        let cluster = Cluster { members };
        cluster.leader()?;
        Ok(cluster)
    }

    /// SIGKILL.
    pub(super) fn kill(&self, node: u32) -> Result<(), Problem> {
        let mut nodes = lock(&self.nodes);
        match nodes.iter_mut().find(|process| process.ready.node == node) {
            Some(process) => process
                .kill()
                .map(|_| ())
                .map_err(|error| Problem::io("kill a node", &error)),
            None => Ok(()),
        }
    }

    /// What the nodes logged last, added to what went wrong.
    pub(super) fn with_last_words(&self, mut problem: Problem) -> Problem {
        for node in lock(&self.nodes).iter() {
            let words = node.last_words();
            if !words.is_empty() {
                problem
                    .message
                    .push_str(&format!("; node {} said: {words}", node.ready.node));
            }
        }
        problem
    }

    /// Ends the nodes and removes their folders.
    pub(super) fn end(&mut self) {
        lock(&self.nodes).clear();
        for number in 1..=self.booted {
            let _ = fs::remove_dir_all(self.folder.join(format!("cluster-{number}")));
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Cluster {
    /// The node on which all agree that it leads; waits for that.
    pub(super) fn leader(&self) -> Result<u32, Problem> {
        let admins: Vec<String> = self
            .members
            .iter()
            .map(|place| place.admin.clone())
            .collect();
        let began = Instant::now();
        loop {
            let view = look(&admins)?;
            let nodes = || view.nodes.iter().filter_map(Answer::view);
            let agreed = nodes().all(|node| node.leader == view.leader);
            if let Some(leader) = view.leader.filter(|_| agreed) {
                return Ok(leader);
            }
            if began.elapsed() > PATIENCE {
                let what = "the nodes found no leader in time";
                return Err(Problem::new(Exit::Unreachable, "no_leader", what));
            }
            thread::sleep(PAUSE);
        }
    }

    pub(super) fn client_of(&self, node: u32) -> Option<SocketAddr> {
        let place = self.members.iter().find(|place| place.node == node)?;
        Some(place.client)
    }
}

fn lock(nodes: &Mutex<Vec<NodeProcess>>) -> MutexGuard<'_, Vec<NodeProcess>> {
    nodes.lock().unwrap_or_else(PoisonError::into_inner)
}

fn not_started(error: &io::Error) -> Problem {
    let what = format_args!("a node did not start: {error}");
    Problem::new(Exit::Failed, "node_failed", what)
}

/// The first address of a name.
pub(crate) fn resolve(address: &str) -> Result<SocketAddr, Problem> {
    let unknown = |why: String| {
        Problem::usage(format_args!("{address}: {why}")).hint("an address is HOST:PORT")
    };
    let mut found = address
        .to_socket_addrs()
        .map_err(|error| unknown(error.to_string()))?;
    found.next().ok_or_else(|| unknown("no address".to_owned()))
}
