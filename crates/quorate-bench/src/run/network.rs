//! Nodes of our own with an emulated wide-area network between them, in namespaces of this process.
//!
//! The command runs itself again in a network and a mount namespace of its own. They, and all that
//! is in them, are gone with its last process, however it ends: nothing outside is ever touched.
//! Inside, each node has a namespace with two ways out: `eth0`, as fast as the machine, for clients
//! and operators, and `wan`, a device of the relay, for its peers.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    process::Stdio,
};

use quorate_relay::{
    device::Device,
    relay::{Node, Relay},
    wire::Counts,
};

use quorate_testbed::{
    namespace::{self, PORTS, inside, ip},
    process::{Places, Spec},
    run::read,
};

use super::{grid::ceilings, session::Session};
use crate::{
    problem::{Kind, Problem},
    report::Document,
    wan::{Measured, Profile},
};

/// Set in the process that runs in its own namespaces.
const INSIDE: &str = "QUORATE_BENCH_INSIDE";
/// Ports of the probe of the links.
const PROBE_PORT: u16 = 7460;
/// The device of a node by which it reaches its peers.
pub(super) const PEERS: &str = "wan";
/// What TCP does about loss: the one that is in every kernel, and allowed in every namespace.
const CONGESTION_CONTROL: &str = "reno";
/// What nodes need where peers are far: timeouts of a few round trips, and of full queues.
pub(super) const FLAGS: [&str; 6] = [
    "--heartbeat-ms",
    "100",
    "--election-ms",
    "1500-3000",
    "--client-timeout-ms",
    "60000",
];

/// In namespaces of our own when this returns `None`; otherwise why there can be none here, which is
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

/// Makes the network, and lets bare programs find out what it carries; [`enter`] was called.
pub fn run(profile: Profile, document: &mut Document) -> Result<(), Problem> {
    let session = Session::over(Some(profile))?;
    if let Some(network) = session.network() {
        document.ceilings.extend(ceilings(network.measure()?));
        document.notes.push(network.profile().to_string());
        let counts = network.counts();
        document.notes.push(format!(
            "the relay took {} packets of {} bytes and dropped {}",
            counts.packets, counts.bytes, counts.dropped
        ));
    }
    Ok(())
}

/// Namespaces of the nodes 1, 2, 3 …, and the relay between them.
#[derive(Debug)]
pub(super) struct Network {
    nodes: u32,
    profile: Profile,
    relay: Relay,
}

impl Network {
    /// Makes it; this process must be inside.
    pub(super) fn new(profile: Profile, nodes: u32) -> Result<Self, Problem> {
        Self::make(profile, nodes).map_err(|error| {
            let what = format_args!("make an emulated network: {error}");
            Problem::new(Kind::Failed, "not_possible", what)
        })
    }

    fn make(profile: Profile, nodes: u32) -> io::Result<Self> {
        namespace::prepare()?;
        let mut ends = Vec::new();
        for node in 1..=nodes {
            let device = format!("wan{node}");
            ends.push(Node {
                device: Device::create(&device)?,
                address: far(node),
            });
            ip(&format!("netns add n{node}"))?;
            ip(&format!(
                "link add v{node} type veth peer name eth0 netns n{node}"
            ))?;
            ip(&format!(
                "addr add {HOST}/32 peer {}/32 dev v{node}",
                near(node)
            ))?;
            ip(&format!("link set v{node} up"))?;
            ip(&format!("link set {device} netns n{node} name {PEERS}"))?;
            let lines = [
                "link set lo up".to_owned(),
                format!("addr add {}/32 peer {HOST}/32 dev eth0", near(node)),
                "link set eth0 up".to_owned(),
                format!("addr add {}/24 dev {PEERS}", far(node)),
                format!("link set {PEERS} up"),
            ];
            for words in lines {
                ip(&format!("-n n{node} {words}"))?;
            }
            let control = "/proc/sys/net/ipv4/tcp_congestion_control";
            let set = format!("echo {CONGESTION_CONTROL} > {control}");
            read(inside(node).args(["sh", "-c", &set]))?;
        }
        let relay = Relay::start(ends, profile.law())?;
        Ok(Self {
            nodes,
            profile,
            relay,
        })
    }

    pub(super) const fn profile(&self) -> Profile {
        self.profile
    }

    /// What the links took and dropped so far.
    pub(super) fn counts(&self) -> Counts {
        self.relay.counts()
    }

    /// How nodes are started, each in its namespace.
    pub(super) fn specs(
        &self,
        program: &Path,
        folder: &Path,
        flags: &[&str],
    ) -> io::Result<Vec<Spec>> {
        let [client, peer, admin, stream] = PORTS;
        let places: Vec<Places> = (1..=self.nodes)
            .map(|node| Places {
                client: format!("{}:{client}", near(node)),
                peer: format!("{}:{peer}", far(node)),
                admin: format!("{}:{admin}", near(node)),
                stream: format!("{}:{stream}", near(node)),
            })
            .collect();
        Spec::members(program, folder, &places, &[&FLAGS, flags].concat())
            .zip(1..)
            .map(|(spec, node)| spec.in_namespace(node, folder))
            .collect()
    }

    /// What a bare program finds between the first two nodes.
    pub(super) fn measure(&self) -> Result<Measured, Problem> {
        let program = Session::program()?;
        let address = SocketAddr::from((far(2), PROBE_PORT)).to_string();
        let failed = |error| Problem::io("measure the links", &error);
        let mut server = inside(2)
            .arg(&program)
            .args(["bench", "part", "wan-server", &address])
            // It watches this pipe: should this process be killed, it ends, too.
            .stdin(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let client = inside(1)
            .arg(&program)
            .args(["bench", "part", "wan-client", &address])
            .stderr(Stdio::inherit())
            .output();
        let _ = server.kill();
        let _ = server.wait();
        let said = client.map_err(failed)?.stdout;
        Measured::parse(&String::from_utf8_lossy(&said)).ok_or_else(|| {
            let what = "the links could not be measured";
            Problem::new(Kind::Failed, "not_possible", what)
        })
    }
}

/// This end of the fast ways.
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
