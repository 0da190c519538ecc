//! Nodes with an emulated network between them, in namespaces of this process.
//!
//! The command runs itself again in its own network and mount namespaces. The namespaces and
//! everything in them disappear when their last process exits, whatever the cause, so nothing
//! outside is ever changed. Inside, each node has a namespace with two interfaces: `eth0`, as fast
//! as the machine, for clients and operators, and `peers`, for its peers: a device of the relay
//! (`wan`), or a link to a switch (`lan`).

pub mod lan;
mod wan;

use std::{fs, io, net::Ipv4Addr, ops::Range, path::Path};

use quorate_testbed::relay::{running::Relay, wire::PacketCounts};

use quorate_testbed::{
    namespace::{self, NODE_PORTS, run_ip},
    process::{NodeAddresses, NodeSpec},
    replace::newcomer_spec,
    segment,
};

use crate::{
    emulated::EmulatedNetwork,
    problem::{Kind, Problem},
};

/// Environment variable that is set in the process inside the namespaces.
const INSIDE_VARIABLE: &str = "QUORATE_BENCH_INSIDE";
/// Flags for nodes with distant peers. Timeouts are several round trips plus the delay of full
/// queues.
const DISTANT_PEER_FLAGS: [&str; 6] =
    ["--heartbeat-ms", "100", "--election-ms", "1500-3000", "--client-timeout-ms", "60000"];

/// Runs the command again in its own namespaces, and returns `None` in the process inside. If
/// namespaces are unavailable, returns the reason, or an error if `no_skips` is set.
pub fn enter_namespaces(no_skips: bool) -> Result<Option<String>, Problem> {
    if namespace::is_inside(INSIDE_VARIABLE) {
        return Ok(None);
    }
    if let Some(why) = unavailable_reason() {
        if no_skips {
            return Err(Problem::new(Kind::Failed, "not_possible", why));
        }
        return Ok(Some(why));
    }
    Err(Problem::io_error("unshare", &namespace::reenter(INSIDE_VARIABLE)))
}

/// Returns why namespaces are unavailable; `None` if they are available.
fn unavailable_reason() -> Option<String> {
    // These names exist only in the namespaces of the trial, which disappear with it.
    let trial = "ip netns add x && ip link add v1 type veth peer name eth0 netns x && \
                 ip tuntap add dev t1 mode tun && nsenter --net=/run/netns/x true";
    let why = namespace::check_support(trial)?;
    Some(format!(
        "network namespaces and TUN devices cannot be made here: {why} (needs root, and \
         Debian's iproute2 and util-linux)"
    ))
}

/// Namespaces of the nodes 1, 2, 3 …, and the network between them.
#[derive(Debug)]
pub struct Network {
    kind: EmulatedNetwork,
    nodes: u32,
    /// Relay that emulates the wide-area network; `None` for an emulated LAN segment.
    relay: Option<Relay>,
    /// Set if packets on a link are never reordered.
    ordered: bool,
}

impl Network {
    /// Creates the network for `nodes` nodes. This process must already be inside its own
    /// namespaces.
    pub(super) fn new(kind: EmulatedNetwork, nodes: u32) -> Result<Self, Problem> {
        Self::create(kind, nodes).map_err(|error| {
            let what = format_args!("make an emulated network: {error}");
            Problem::new(Kind::Failed, "not_possible", what)
        })
    }

    fn create(kind: EmulatedNetwork, nodes: u32) -> io::Result<Self> {
        namespace::mount_private()?;
        fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
        for node in 1..=nodes {
            run_ip(&format!("netns add n{node}"))?;
            run_ip(&format!("link add v{node} type veth peer name eth0 netns n{node}"))?;
            run_ip(&format!(
                "addr add {HOST_ADDRESS}/32 peer {}/32 dev v{node}",
                client_address(node)
            ))?;
            run_ip(&format!("link set v{node} up"))?;
            let lines = [
                "link set lo up".to_owned(),
                format!("addr add {}/32 peer {HOST_ADDRESS}/32 dev eth0", client_address(node)),
                "link set eth0 up".to_owned(),
                // A joining node connects to the admin addresses of other nodes.
                format!("route add {}/24 via {HOST_ADDRESS} dev eth0", client_address(0)),
            ];
            for words in lines {
                run_ip(&format!("-n n{node} {words}"))?;
            }
        }
        let (relay, ordered) = match kind {
            EmulatedNetwork::Wan(profile) => (Some(wan::create_relay(profile, nodes)?), true),
            EmulatedNetwork::Lan(lan) => (None, segment::set_up_switch(lan, nodes, peer_address)?),
        };
        Ok(Self { kind, nodes, relay, ordered })
    }

    /// Describes the network in a note for the report.
    pub fn describe(&self) -> String {
        let overtake = "; packets may overtake each other: only root may keep them in order";
        format!("{}{}", self.kind, if self.ordered { "" } else { overtake })
    }

    /// Returns whether delays are so long that all timeouts must be longer.
    pub(super) const fn has_long_delays(&self) -> bool {
        matches!(self.kind, EmulatedNetwork::Wan(_))
    }

    /// Returns the number of packets that the links have accepted and dropped; `None` if they are
    /// not counted.
    pub(super) fn counts(&self) -> Option<PacketCounts> {
        self.relay.as_ref().map(Relay::packet_counts)
    }

    /// Reduces a node's link to `percent` of its capacity. Fails on an emulated wide-area network.
    pub(super) fn limit_link(&self, node: u32, percent: u64) -> io::Result<()> {
        match self.kind {
            EmulatedNetwork::Lan(lan) => segment::limit_link(lan, node, percent),
            EmulatedNetwork::Wan(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Creates an interface for this process at the nodes' switch. Fails if there is no switch.
    pub fn create_interface(&self, interface: &str) -> io::Result<()> {
        match self.kind {
            EmulatedNetwork::Lan(_) => segment::add_switch_interface(interface),
            EmulatedNetwork::Wan(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Returns the specifications of the first nodes, each in its own namespace.
    pub(super) fn node_specs(
        &self,
        nodes: u32,
        program: &Path,
        folder: &Path,
        flags: &[&str],
    ) -> io::Result<Vec<NodeSpec>> {
        let places: Vec<NodeAddresses> = (1..=nodes).map(node_places).collect();
        let own = self.node_flags();
        let own: Vec<&str> = own.iter().map(String::as_str).collect();
        NodeSpec::cluster_members(program, folder, &places, &[&own, flags].concat())
            .zip(1..)
            .map(|(spec, node)| spec.in_namespace(node, folder))
            .collect()
    }

    /// Returns the specifications of learners that join an existing cluster.
    pub(super) fn learner_specs(
        &self,
        (program, folder): (&Path, &Path),
        nodes: Range<u32>,
        flags: &[&str],
    ) -> io::Result<Vec<NodeSpec>> {
        let own = self.node_flags();
        let own: Vec<&str> = own.iter().map(String::as_str).collect();
        nodes
            .map(|node| {
                let flags = [&own, flags].concat();
                newcomer_spec(program, folder, node as usize, &node_places(node), &flags)
                    .in_namespace(node, folder)
            })
            .collect()
    }

    /// Returns the node flags that the network requires.
    fn node_flags(&self) -> Vec<String> {
        match self.kind {
            EmulatedNetwork::Wan(_) => DISTANT_PEER_FLAGS.map(str::to_owned).to_vec(),
            // Links are slower than their devices report.
            EmulatedNetwork::Lan(lan) => {
                vec!["--plane-speed".to_owned(), lan.link_megabits().to_string()]
            }
        }
    }
}

fn node_places(node: u32) -> NodeAddresses {
    let [client, peer, admin, stream] = NODE_PORTS;
    NodeAddresses {
        client: format!("{}:{client}", client_address(node)),
        peer: format!("{}:{peer}", peer_address(node)),
        admin: format!("{}:{admin}", client_address(node)),
        stream: format!("{}:{stream}", client_address(node)),
    }
}

/// Address of this process on the fast `eth0` links.
const HOST_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 213, 78, 254);

/// Returns a node's address for clients and operators.
fn client_address(node: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(HOST_ADDRESS.to_bits() - 254 + node)
}

/// Returns a node's address for its peers.
pub fn peer_address(node: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(HOST_ADDRESS.to_bits() + 2 + node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_addresses_of_a_node_lie_in_different_networks() {
        assert_eq!(client_address(1).to_string(), "10.213.78.1");
        assert_eq!(peer_address(1).to_string(), "10.213.79.1");
        assert_eq!(peer_address(3).to_string(), "10.213.79.3");
    }
}
