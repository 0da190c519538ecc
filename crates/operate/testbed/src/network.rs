//! A network with one namespace per node, in which each link can be cut in either direction.
//!
//! The whole task runs in its own network and mount namespaces. These namespaces and their contents
//! disappear with the last process in them, so nothing outside is changed.
//!
//! To cut a link, the sender is given a hardware address that no interface has. Each node has a
//! static table of its peers' hardware addresses; with a wrong entry, the network drops the frames
//! silently, as a real one would. The kernel only needs `veth` and `bridge`.

use std::{
    io::{self, Write as _},
    path::Path,
    process::{Command, Stdio},
};

use crate::{
    namespace::{self, NODE_PORTS, run_ip},
    process::{NodeAddresses, NodeSpec},
};

/// Environment variable that is set in a process inside the namespaces.
const INSIDE_VARIABLE: &str = "QUORATE_XTASK_INSIDE";
/// Network prefix. The addresses of nodes start at 1. Clients use the last address.
const NETWORK_PREFIX: &str = "10.213.77";
const CLIENT_HOST: u32 = 254;
/// Hardware address that no interface has.
const UNUSED_MAC: &str = "02:00:00:00:ff:ff";

/// Namespaces of nodes 1, 2, 3 and so on, connected by a bridge. Clients run outside.
#[derive(Debug)]
pub struct Network {
    node_count: u32,
}

pub fn check_support() -> Option<String> {
    let trial = "ip netns add x && ip link add br0 type bridge && \
                 ip link add v1 type veth peer name eth0 netns x";
    let why = namespace::check_support(trial)?;
    Some(format!("network namespaces cannot be made here: {why}"))
}

pub fn is_inside() -> bool {
    namespace::is_inside(INSIDE_VARIABLE)
}

/// Re-executes this process in new namespaces. Returns only if that fails.
pub fn reenter() -> io::Error {
    namespace::reenter(INSIDE_VARIABLE)
}

impl Network {
    /// Creates the network, once per process, inside the namespaces.
    pub fn new(nodes: u32) -> io::Result<Self> {
        namespace::mount_private()?;
        run_ip("link add br0 type bridge")?;
        run_ip("link set br0 up")?;
        run_ip(&format!("addr add {}/24 dev br0", address(CLIENT_HOST)))?;
        let network = Self { node_count: nodes };
        for node in 1..=nodes {
            run_ip(&format!("netns add n{node}"))?;
            run_ip(&format!("-n n{node} link set lo up"))?;
            create_interface(node)?;
        }
        network.heal_links()?;
        Ok(network)
    }

    /// Drops all frames from the first to the second node of each pair, until [`Self::heal_links`].
    pub fn cut_links(&self, pairs: &[(u32, u32)]) -> io::Result<()> {
        self.set_neighbours(|from, to| pairs.contains(&(from, to)).then(|| UNUSED_MAC.to_owned()))
    }

    /// Shuts down the interfaces of some nodes, so that neither peers nor clients can reach them.
    pub fn shut_interfaces(&self, nodes: &[u32]) -> io::Result<()> {
        let down = |node| run_ip(&format!("-n n{node} link set eth0 down"));
        nodes.iter().try_for_each(down)
    }

    /// Removes the interfaces of some nodes, along with everything attached to the interfaces.
    pub fn remove_interfaces(&self, nodes: &[u32]) -> io::Result<()> {
        let remove = |node| run_ip(&format!("link del v{node}"));
        nodes.iter().try_for_each(remove)
    }

    pub fn heal_links(&self) -> io::Result<()> {
        for node in 1..=self.node_count {
            if run_ip(&format!("link show v{node}")).is_err() {
                create_interface(node)?;
            }
            run_ip_batch(node, "link set eth0 up\n")?;
        }
        // An interface that was shut down has lost its table of neighbours.
        self.set_neighbours(|_, to| Some(mac_address(to)))
    }

    /// Adds an interface to this process's namespace, and connects it to the nodes' switch.
    pub fn add_interface(&self, interface: &str) -> io::Result<()> {
        namespace::connect_to_switch("br0", interface)
    }

    /// Sets the hardware address that each node uses for each other; `None` changes nothing.
    fn set_neighbours(&self, place: impl Fn(u32, u32) -> Option<String>) -> io::Result<()> {
        for from in 1..=self.node_count {
            let line = |to| {
                let (at, hardware) = (address(to), place(from, to)?);
                Some(format!("neigh replace {at} lladdr {hardware} dev eth0 nud permanent\n"))
            };
            let others = (1..=self.node_count).filter(|to| *to != from);
            let lines: String = others.filter_map(line).collect();
            if !lines.is_empty() {
                run_ip_batch(from, &lines)?;
            }
        }
        Ok(())
    }

    pub fn node_addresses(node: u32) -> NodeAddresses {
        let [client, peer, admin, stream] = NODE_PORTS;
        let at = |port| format!("{}:{port}", address(node));
        NodeAddresses { client: at(client), peer: at(peer), admin: at(admin), stream: at(stream) }
    }

    /// Returns the specs of the first `nodes` nodes as one cluster, each in its own namespace.
    pub fn node_specs(
        &self,
        program: &Path,
        folder: &Path,
        count: u32,
        flags: &[&str],
    ) -> io::Result<Vec<NodeSpec>> {
        if count > self.node_count {
            let why = format!("{count} nodes in a network of {}", self.node_count);
            return Err(io::Error::other(why));
        }
        let places: Vec<NodeAddresses> = (1..=count).map(Self::node_addresses).collect();
        NodeSpec::cluster_members(program, folder, &places, flags)
            .zip(1..)
            .map(|(spec, node)| spec.in_namespace(node, folder))
            .collect()
    }
}

/// Passes all lines to one `ip` process, so that they take effect together.
fn run_ip_batch(node: u32, lines: &str) -> io::Result<()> {
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

/// Creates the interface of a node in its initial state.
fn create_interface(node: u32) -> io::Result<()> {
    run_ip(&format!(
        "link add v{node} type veth peer name eth0 address {} netns n{node}",
        mac_address(node)
    ))?;
    run_ip(&format!("link set v{node} master br0 up"))?;
    run_ip(&format!("-n n{node} addr add {}/24 dev eth0", address(node)))?;
    run_ip(&format!("-n n{node} link set eth0 up"))
}

fn address(node: u32) -> String {
    format!("{NETWORK_PREFIX}.{node}")
}

fn mac_address(node: u32) -> String {
    format!("02:00:00:00:00:{node:02x}")
}
