//! Slow links with long delays between each pair of nodes, emulated by the relay.

use std::{io, net::SocketAddr, process::Stdio};

use quorate_testbed::relay::{
    device::Device,
    running::{Node, Relay},
};

use quorate_testbed::{
    namespace::{inside, ip},
    run::read,
    segment::PEERS,
};

use super::{super::program::program, Network, far};
use crate::{
    problem::{Kind, Problem},
    wan::{Measured, Profile},
};

const PROBE_PORT: u16 = 7460;
/// TCP congestion control algorithm that every kernel supports and every namespace permits.
const CONGESTION_CONTROL: &str = "reno";

/// Creates the relay with one device in each namespace.
pub(super) fn create_relay(profile: Profile, nodes: u32) -> io::Result<Relay> {
    let mut ends = Vec::new();
    for node in 1..=nodes {
        let device = format!("wan{node}");
        ends.push(Node { device: Device::create(&device)?, address: far(node) });
        ip(&format!("link set {device} netns n{node} name {PEERS}"))?;
        ip(&format!("-n n{node} addr add {}/24 dev {PEERS}", far(node)))?;
        ip(&format!("-n n{node} link set {PEERS} up"))?;
        let control = "/proc/sys/net/ipv4/tcp_congestion_control";
        let set = format!("echo {CONGESTION_CONTROL} > {control}");
        read(inside(node).args(["sh", "-c", &set]))?;
    }
    Relay::start(ends, profile.law())
}

impl Network {
    /// Measures the link between the first two nodes with a bare program.
    pub fn measure_links(&self) -> Result<Measured, Problem> {
        let program = program()?;
        let address = SocketAddr::from((far(2), PROBE_PORT)).to_string();
        let failed = |error| Problem::io("measure the links", &error);
        let mut server = inside(2)
            .arg(&program)
            .args(["bench", "part", "wan-server", &address])
            // The program watches this pipe and also exits if this process is killed.
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
