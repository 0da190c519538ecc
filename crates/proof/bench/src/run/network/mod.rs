//! Nodes of our own with an emulated network between them, in namespaces of this process.
//!
//! The command runs itself again in a network and a mount namespace of its own. They, and all that
//! is in them, are gone with its last process, however it ends: nothing outside is ever touched.
//! Inside, each node has a namespace with two ways out: `eth0`, as fast as the machine, for clients
//! and operators, and `peers`, for its peers: a device of the relay (`wan`), or a link to a switch
//! (`lan`).

pub(super) mod echo;
pub(super) mod lan;
mod wan;

use std::{fs, io, net::Ipv4Addr, ops::Range, path::Path};

use quorate_testbed::relay::{running::Relay, wire::Counts};

use quorate_testbed::{
    namespace::{self, PORTS, ip},
    process::{Places, Spec},
    replace::newcomer,
    segment,
};

use crate::{
    emulated::Emulated,
    problem::{Kind, Problem},
};

/// Set in the process that runs in its own namespaces.
const INSIDE: &str = "QUORATE_BENCH_INSIDE";
/// Flags of nodes whose peers are far: timeouts of a few round trips, and of full queues.
const FAR: [&str; 6] =
    ["--heartbeat-ms", "100", "--election-ms", "1500-3000", "--client-timeout-ms", "60000"];

/// Enters namespaces of our own, and returns `None`; otherwise why there can be none here, which is
/// an error where nothing may be skipped.
pub fn enter(no_skips: bool) -> Result<Option<String>, Problem> {
    if namespace::is_inside(INSIDE) {
        return Ok(None);
    }
    if let Some(why) = missing() {
        if no_skips {
            return Err(Problem::new(Kind::Failed, "not_possible", why));
        }
        return Ok(Some(why));
    }
    Err(Problem::io("unshare", &namespace::enter(INSIDE)))
}

/// Why there can be no namespaces here, if so.
fn missing() -> Option<String> {
    // Names in the trial's own namespaces, which are gone with it.
    let trial = "ip netns add x && ip link add v1 type veth peer name eth0 netns x && \
                 ip tuntap add dev t1 mode tun && nsenter --net=/run/netns/x true";
    let why = namespace::missing(trial)?;
    Some(format!(
        "network namespaces and TUN devices cannot be made here: {why} (needs root, and \
         Debian's iproute2 and util-linux)"
    ))
}

/// Namespaces of the nodes 1, 2, 3 …, and what is between them.
#[derive(Debug)]
pub(super) struct Network {
    kind: Emulated,
    /// Namespaces.
    nodes: u32,
    /// Relay of a wide-area network.
    relay: Option<Relay>,
    /// Packets of a link do not overtake each other.
    ordered: bool,
}

impl Network {
    /// Makes it, for as many nodes; this process must be inside.
    pub(super) fn new(kind: Emulated, nodes: u32) -> Result<Self, Problem> {
        Self::make(kind, nodes).map_err(|error| {
            let what = format_args!("make an emulated network: {error}");
            Problem::new(Kind::Failed, "not_possible", what)
        })
    }

    fn make(kind: Emulated, nodes: u32) -> io::Result<Self> {
        namespace::prepare()?;
        fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
        for node in 1..=nodes {
            ip(&format!("netns add n{node}"))?;
            ip(&format!("link add v{node} type veth peer name eth0 netns n{node}"))?;
            ip(&format!("addr add {HOST}/32 peer {}/32 dev v{node}", near(node)))?;
            ip(&format!("link set v{node} up"))?;
            let lines = [
                "link set lo up".to_owned(),
                format!("addr add {}/32 peer {HOST}/32 dev eth0", near(node)),
                "link set eth0 up".to_owned(),
                // Who joins asks operators' addresses.
                format!("route add {}/24 via {HOST} dev eth0", near(0)),
            ];
            for words in lines {
                ip(&format!("-n n{node} {words}"))?;
            }
        }
        let (relay, ordered) = match kind {
            Emulated::Wan(profile) => (Some(wan::lay(profile, nodes)?), true),
            Emulated::Lan(lan) => (None, segment::lay(lan, nodes, far)?),
        };
        Ok(Self { kind, nodes, relay, ordered })
    }

    /// Describes it in a report.
    pub(super) fn note(&self) -> String {
        let overtake = "; packets may overtake each other: only root may keep them in order";
        format!("{}{}", self.kind, if self.ordered { "" } else { overtake })
    }

    /// Returns whether messages take so long that everything else has to wait for them.
    pub(super) const fn is_far(&self) -> bool {
        matches!(self.kind, Emulated::Wan(_))
    }

    /// Returns the packets accepted and dropped by the links until now, if that is counted.
    pub(super) fn counts(&self) -> Option<Counts> {
        self.relay.as_ref().map(Relay::counts)
    }

    /// Reduces a node's link to this percentage, where it has one of its own.
    pub(super) fn narrow(&self, node: u32, percent: u64) -> io::Result<()> {
        match self.kind {
            Emulated::Lan(lan) => segment::narrow(lan, node, percent),
            Emulated::Wan(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Gives this process an interface of this name at the nodes' switch, where they have one.
    pub(super) fn join(&self, interface: &str) -> io::Result<()> {
        match self.kind {
            Emulated::Lan(_) => segment::join(interface),
            Emulated::Wan(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Returns the specifications of the first nodes, each in its namespace.
    pub(super) fn specs(
        &self,
        nodes: u32,
        program: &Path,
        folder: &Path,
        flags: &[&str],
    ) -> io::Result<Vec<Spec>> {
        let places: Vec<Places> = (1..=nodes).map(places).collect();
        let own = self.flags();
        let own: Vec<&str> = own.iter().map(String::as_str).collect();
        Spec::members(program, folder, &places, &[&own, flags].concat())
            .zip(1..)
            .map(|(spec, node)| spec.in_namespace(node, folder))
            .collect()
    }

    /// Returns the specifications of these nodes as learners, once there is a cluster to join.
    pub(super) fn learners(
        &self,
        (program, folder): (&Path, &Path),
        nodes: Range<u32>,
        flags: &[&str],
    ) -> io::Result<Vec<Spec>> {
        let own = self.flags();
        let own: Vec<&str> = own.iter().map(String::as_str).collect();
        nodes
            .map(|node| {
                let flags = [&own, flags].concat();
                newcomer(program, folder, node as usize, &places(node), &flags)
                    .in_namespace(node, folder)
            })
            .collect()
    }

    /// Returns the nodes' flags for it.
    fn flags(&self) -> Vec<String> {
        match self.kind {
            Emulated::Wan(_) => FAR.map(str::to_owned).to_vec(),
            // The links are slower than their devices say.
            Emulated::Lan(lan) => vec!["--plane-speed".to_owned(), lan.megabits().to_string()],
        }
    }
}

/// Returns the addresses of a node.
fn places(node: u32) -> Places {
    let [client, peer, admin, stream] = PORTS;
    Places {
        client: format!("{}:{client}", near(node)),
        peer: format!("{}:{peer}", far(node)),
        admin: format!("{}:{admin}", near(node)),
        stream: format!("{}:{stream}", near(node)),
    }
}

/// Address of this end of the fast ways.
const HOST: Ipv4Addr = Ipv4Addr::new(10, 213, 78, 254);

/// A node's address for clients and operators.
fn near(node: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(HOST.to_bits() - 254 + node)
}

/// A node's address for its peers.
fn far(node: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(HOST.to_bits() + 2 + node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_addresses_of_a_node_lie_in_different_networks() {
        assert_eq!(near(1).to_string(), "10.213.78.1");
        assert_eq!(far(1).to_string(), "10.213.79.1");
        assert_eq!(far(3).to_string(), "10.213.79.3");
    }
}
