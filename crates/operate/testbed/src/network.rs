//! One network namespace per node; each link can be cut in either direction.
//!
//! The whole task runs in a network and a mount namespace of its own. They, and everything in them,
//! disappear with its last process, however it ends: nothing outside is ever touched.
//!
//! Frames are lost by an address without an owner: each node knows the others' hardware addresses
//! from a table, and a wrong entry makes its frames to one of them vanish, silently, as on a real
//! network. This needs nothing of the kernel but `veth` and `bridge`.

use std::{
    io::{self, Write as _},
    path::Path,
    process::{Command, Stdio},
};

use crate::{
    namespace::{self, PORTS, ip},
    process::{Places, Spec},
};

/// Set in the process that runs in its own namespaces.
const INSIDE: &str = "QUORATE_XTASK_INSIDE";
/// Nodes have the addresses from 1, clients have the last one.
const NET: &str = "10.213.77";
const CLIENTS: u32 = 254;
/// A hardware address that no node has.
const NO_NODE: &str = "02:00:00:00:ff:ff";

/// Namespaces of the nodes 1, 2, 3 …, joined by a bridge; clients are outside of them.
#[derive(Debug)]
pub struct Network {
    nodes: u32,
}

/// Why there can be no such networks here, if so.
pub fn missing() -> Option<String> {
    let trial = "ip netns add x && ip link add br0 type bridge && \
                 ip link add v1 type veth peer name eth0 netns x";
    let why = namespace::missing(trial)?;
    Some(format!("network namespaces cannot be made here: {why}"))
}

/// Returns whether this process runs in namespaces of its own.
pub fn is_inside() -> bool {
    namespace::is_inside(INSIDE)
}

/// Replaces this process by the same one in namespaces of its own; comes back only if that fails.
pub fn enter() -> io::Error {
    namespace::enter(INSIDE)
}

impl Network {
    /// Makes it; this process must be inside, and makes only one.
    pub fn new(nodes: u32) -> io::Result<Self> {
        namespace::prepare()?;
        ip("link add br0 type bridge")?;
        ip("link set br0 up")?;
        ip(&format!("addr add {}/24 dev br0", address(CLIENTS)))?;
        let network = Self { nodes };
        for node in 1..=nodes {
            ip(&format!("netns add n{node}"))?;
            ip(&format!("-n n{node} link set lo up"))?;
            plug(node)?;
        }
        network.heal()?;
        Ok(network)
    }

    /// Drops all frames from the first to the second of each pair from now on.
    pub fn cut(&self, pairs: &[(u32, u32)]) -> io::Result<()> {
        self.send(|from, to| pairs.contains(&(from, to)).then(|| NO_NODE.to_owned()))
    }

    /// These nodes have no interface from now on: neither peers nor clients reach them.
    pub fn take_down(&self, nodes: &[u32]) -> io::Result<()> {
        let down = |node| ip(&format!("-n n{node} link set eth0 down"));
        nodes.iter().try_for_each(down)
    }

    /// These nodes' interfaces are removed, with all that is attached to them.
    pub fn unplug(&self, nodes: &[u32]) -> io::Result<()> {
        let remove = |node| ip(&format!("link del v{node}"));
        nodes.iter().try_for_each(remove)
    }

    /// Nothing is lost any more.
    pub fn heal(&self) -> io::Result<()> {
        for node in 1..=self.nodes {
            if ip(&format!("link show v{node}")).is_err() {
                plug(node)?;
            }
            batch(node, "link set eth0 up\n")?;
        }
        // An interface that was down has forgotten where others are.
        self.send(|_, to| Some(hardware(to)))
    }

    /// Gives this process's namespace an interface of this name at the nodes' switch.
    pub fn join(&self, interface: &str) -> io::Result<()> {
        namespace::join("br0", interface)
    }

    /// Sets the destination of each node's frames to each other; `None` leaves it.
    fn send(&self, place: impl Fn(u32, u32) -> Option<String>) -> io::Result<()> {
        for from in 1..=self.nodes {
            let line = |to| {
                let (at, hardware) = (address(to), place(from, to)?);
                Some(format!("neigh replace {at} lladdr {hardware} dev eth0 nud permanent\n"))
            };
            let others = (1..=self.nodes).filter(|to| *to != from);
            let lines: String = others.filter_map(line).collect();
            if !lines.is_empty() {
                batch(from, &lines)?;
            }
        }
        Ok(())
    }

    /// Returns the addresses of a node in its namespace.
    pub fn places(node: u32) -> Places {
        let [client, peer, admin, stream] = PORTS;
        let at = |port| format!("{}:{port}", address(node));
        Places { client: at(client), peer: at(peer), admin: at(admin), stream: at(stream) }
    }

    /// Returns the specs of the first nodes as one cluster, each in its namespace.
    pub fn specs(
        &self,
        program: &Path,
        folder: &Path,
        count: u32,
        flags: &[&str],
    ) -> io::Result<Vec<Spec>> {
        if count > self.nodes {
            let why = format!("{count} nodes in a network of {}", self.nodes);
            return Err(io::Error::other(why));
        }
        let places: Vec<Places> = (1..=count).map(Self::places).collect();
        Spec::members(program, folder, &places, flags)
            .zip(1..)
            .map(|(spec, node)| spec.in_namespace(node, folder))
            .collect()
    }
}

/// All lines in one process, so that they take effect together.
fn batch(node: u32, lines: &str) -> io::Result<()> {
    let mut child = Command::new("ip")
        .args(["-n", &format!("n{node}"), "-batch", "-"])
        .stdin(Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(lines.as_bytes())?;
    }
    let status = child.wait()?;
    if status.success() {
        Ok(())
    } else {
        let why = format!("ip -batch in namespace n{node}: {status}");
        Err(io::Error::other(why))
    }
}

/// A node's interface, as it is at first.
fn plug(node: u32) -> io::Result<()> {
    ip(&format!(
        "link add v{node} type veth peer name eth0 address {} netns n{node}",
        hardware(node)
    ))?;
    ip(&format!("link set v{node} master br0 up"))?;
    ip(&format!("-n n{node} addr add {}/24 dev eth0", address(node)))?;
    ip(&format!("-n n{node} link set eth0 up"))
}

fn address(node: u32) -> String {
    format!("{NET}.{node}")
}

fn hardware(node: u32) -> String {
    format!("02:00:00:00:00:{node:02x}")
}
