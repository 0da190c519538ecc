//! Slow links with long delays between each pair of nodes, emulated by the relay.

use std::{io, net::SocketAddr, process::Stdio};

use quorate_testbed::relay::{
    device::TunDevice,
    running::{Relay, RelayNode},
};

use quorate_testbed::{
    namespace::{namespace_command, run_ip},
    run::read_output,
    segment::PEERS_INTERFACE,
};

use super::{super::program::node_program, Network, peer_address};
use crate::{
    problem::{Kind, Problem},
    wan::{LinkProfile, MeasuredLink},
};

const PROBE_PORT: u16 = 7460;
/// TCP congestion control algorithm that every kernel supports and every namespace permits.
const CONGESTION_CONTROL: &str = "reno";

/// Creates the relay with one device in each namespace.
pub(super) fn create_relay(profile: LinkProfile, nodes: u32) -> io::Result<Relay> {
    let mut ends = Vec::new();
    for node in 1..=nodes {
        let device = format!("wan{node}");
        ends.push(RelayNode { device: TunDevice::create(&device)?, address: peer_address(node) });
        run_ip(&format!("link set {device} netns n{node} name {PEERS_INTERFACE}"))?;
        run_ip(&format!("-n n{node} addr add {}/24 dev {PEERS_INTERFACE}", peer_address(node)))?;
        run_ip(&format!("-n n{node} link set {PEERS_INTERFACE} up"))?;
        let control = "/proc/sys/net/ipv4/tcp_congestion_control";
        let set = format!("echo {CONGESTION_CONTROL} > {control}");
        read_output(namespace_command(node).args(["sh", "-c", &set]))?;
    }
    Relay::start(ends, profile.link_law())
}

impl Network {
    /// Measures the link between the first two nodes with a bare program.
    pub fn measure_links(&self) -> Result<MeasuredLink, Problem> {
        let program = node_program()?;
        let address = SocketAddr::from((peer_address(2), PROBE_PORT)).to_string();
        let failed = |error| Problem::io_error("measure the links", &error);
        let mut server = namespace_command(2)
            .arg(&program)
            .args(["bench", "part", "wan-server", &address])
            // The program watches this pipe and also exits if this process is killed.
            .stdin(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let client = namespace_command(1)
            .arg(&program)
            .args(["bench", "part", "wan-client", &address])
            .stderr(Stdio::inherit())
            .output();
        let _ = server.kill();
        let _ = server.wait();
        let said = client.map_err(failed)?.stdout;
        MeasuredLink::parse(&String::from_utf8_lossy(&said)).ok_or_else(|| {
            let what = "the links could not be measured";
            Problem::new(Kind::Failed, "not_possible", what)
        })
    }
}
