//! Test network of machines (network namespaces) connected by a bridge.

use std::{net::Ipv4Addr, process::Command};

use quorate_device::xdp::PassProgram;
use quorate_offload::Address;
use quorate_packets::ethernet::Mac;
use quorate_testbed::{namespace::run_ip, run::read_output};

use crate::{
    Fallible,
    group::{ALL_HOSTS, CLIENT, DECISIONS, HOSTS, INTERFACE, address, ip as of},
};

/// The network, with the programs that hosts with native XDP need at the other ends of their links.
/// A client's end needs none.
pub(crate) struct Network {
    passing: Vec<PassProgram>,
    client_in_all: bool,
}

/// Creates a bridge that delivers multicast frames only to members of the group, and a link to each
/// machine.
pub(crate) fn lay() -> Fallible<Network> {
    run_ip("link add switch type bridge mcast_snooping 1")?;
    run_ip("link set switch up")?;
    for machine in (1..=HOSTS).chain([CLIENT]) {
        let (mac, address) = (Mac(address(machine).mac), of(machine));
        run_ip(&format!("netns add n{machine}"))?;
        run_ip(&format!(
            "link add p{machine} numrxqueues 1 numtxqueues 1 type veth peer name {INTERFACE} \
             address {mac} numrxqueues 1 numtxqueues 1 netns n{machine}"
        ))?;
        run_ip(&format!("link set p{machine} master switch up"))?;
        run_ip(&format!("-n n{machine} addr add {address}/24 dev {INTERFACE}"))?;
        run_ip(&format!("-n n{machine} link set {INTERFACE} up"))?;
        for group in [ALL_HOSTS, DECISIONS] {
            let group = Ipv4Addr::from(group.ip);
            run_ip(&format!("-n n{machine} route add {group} dev {INTERFACE}"))?;
        }
        run_ip(&format!("-n n{machine} link set lo up"))?;
    }
    for machine in (1..=HOSTS).chain([CLIENT]) {
        for other in (1..=HOSTS).chain([CLIENT]).filter(|other| *other != machine) {
            let (to, mac) = (of(other), Mac(address(other).mac));
            run_ip(&format!(
                "-n n{machine} neigh replace {to} lladdr {mac} dev {INTERFACE} nud permanent"
            ))?;
        }
        let mac = Mac(address(machine).mac);
        // The bridge knows each host's port before the host has sent a frame.
        read_output(Command::new("bridge").args([
            "fdb",
            "replace",
            &mac.to_string(),
            "dev",
            &format!("p{machine}"),
            "master",
            "static",
        ]))?;
    }
    for machine in 1..=HOSTS {
        member("add", machine, ALL_HOSTS)?;
        member("add", machine, DECISIONS)?;
    }
    member("add", CLIENT, DECISIONS)?;
    Ok(Network { passing: Vec::new(), client_in_all: false })
}

/// Adds a machine's port to a group or removes it, by both the MAC and the IP address.
fn member(how: &str, machine: u8, group: Address) -> Fallible<()> {
    let port = format!("p{machine}");
    let (mac, ip) = (Mac(group.mac).to_string(), Ipv4Addr::from(group.ip).to_string());
    for address in [&mac, &ip] {
        read_output(Command::new("bridge").args([
            "mdb",
            how,
            "dev",
            "switch",
            "port",
            &port,
            "grp",
            address,
            "permanent",
        ]))?;
    }
    Ok(())
}

impl Network {
    /// Attaches programs to the bridge's ends of the hosts' links, or detaches them.
    pub(crate) fn set_passing(&mut self, there: bool) -> Fallible<()> {
        self.passing.clear();
        if there {
            for host in 1..=HOSTS {
                self.passing.push(PassProgram::attach(&format!("p{host}"))?);
            }
        }
        Ok(())
    }

    /// Sets whether the client receives all frames between hosts.
    pub(crate) fn set_client_in_all(&mut self, there: bool) -> Fallible<()> {
        if there != self.client_in_all {
            member(if there { "add" } else { "del" }, CLIENT, ALL_HOSTS)?;
            self.client_in_all = there;
        }
        Ok(())
    }

    /// Returns the mean time per run of the programs at the bridge, in nanoseconds, as measured by
    /// the kernel; `None` if there are no measurements. The programs only pass frames.
    pub(crate) fn nothing(&self) -> Fallible<Option<f64>> {
        let (mut nanos, mut runs) = (0.0, 0.0);
        for passing in &self.passing {
            let info = passing.info()?;
            nanos += info.run_time().as_secs_f64() * 1e9;
            #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
            let count = info.run_count() as f64;
            runs += count;
        }
        Ok((runs > 0.0).then(|| nanos / runs))
    }
}
