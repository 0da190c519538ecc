//! The demo with phase 2 in the kernel. Each node has a separate network namespace, which is
//! removed even if the demo fails.

use std::{io, path::Path};

use quorate_admin::view::{Answer, ClusterView, DeviceView};
use quorate_testbed::{
    network::{self, Network},
    process::NodeSpec,
};
use serde::Serialize;

use crate::output::{Exit, Problem};

/// Flags that each node is started with. The plane can be trusted because only the demo uses its
/// network.
const NODE_FLAGS: [&str; 3] = ["--plane", "kernel", "--plane-trusted"];

/// Work done by devices.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Devices {
    /// Description of the leader's device.
    pub(super) name: String,
    /// Number of slots in which devices voted: the highest count of any node's device.
    pub(super) votes: u64,
}

/// Re-executes the process in new namespaces. Returns only inside them, or on an error.
pub(super) fn enter_namespaces() -> Result<(), Problem> {
    if network::is_inside() {
        return Ok(());
    }
    match network::check_support() {
        None => Err(Problem::io_error("run in its own namespaces", &network::reenter())),
        Some(why) => Err(namespace_problem(&why)),
    }
}

/// Returns the error for a machine on which namespaces cannot be used.
pub(super) fn namespace_problem(why: &str) -> Problem {
    Problem::new(Exit::Failed, "no_network", why)
        .with_hint("it needs root, and the program ip; without them: quorate demo")
}

/// Creates the virtual network and returns the specs of the nodes in it.
pub(super) fn create_cluster(
    program: &Path,
    folder: &Path,
    nodes: u32,
) -> io::Result<Vec<NodeSpec>> {
    Network::new(nodes)?.node_specs(program, folder, nodes, &NODE_FLAGS)
}

fn all_devices(cluster: &ClusterView) -> impl Iterator<Item = (bool, &DeviceView)> {
    let views = cluster.nodes.iter().filter_map(Answer::node_view);
    views.filter_map(|view| Some((cluster.leader == Some(view.node), view.device.as_ref()?)))
}

/// Returns the description of the leader's device, once that device assigns slots.
pub(super) fn leader_device(cluster: &ClusterView) -> Option<String> {
    let (_, device) = all_devices(cluster).find(|(leads, _)| *leads)?;
    device.gives_from.map(|_| device.name.clone())
}

/// Returns the work done by the devices, or `None` until the leader's device is known.
pub(super) fn device_work(cluster: &ClusterView) -> Option<Devices> {
    let (_, leaders) = all_devices(cluster).find(|(leads, _)| *leads)?;
    Some(Devices {
        name: leaders.name.clone(),
        votes: all_devices(cluster).map(|(_, device)| device.votes).max()?,
    })
}
