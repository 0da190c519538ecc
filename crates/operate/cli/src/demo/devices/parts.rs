//! Parts of the demo's group that can be failed and restored, including each node's device.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use quorate_testbed::{
    network::Network,
    nodes::NodeCluster,
    process::{NodeSpec, loopback_cluster},
};
use serde::{Deserialize, Serialize};

/// Node with simulated hardware.
pub(super) const BOX_NODE: u32 = 1;
pub(super) const ALL_NODES: [u32; 3] = [BOX_NODE, 2, 3];

/// Flag that makes nodes trust the plane. Only the demo uses its network or loopback.
const TRUSTED_FLAG: &str = "--plane-trusted";

/// Kind of device that a node is started with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum DeviceKind {
    /// External processes that run our switch programs and simulate hardware.
    Box,
    /// Programs in the kernel.
    Kernel,
    /// A thread, where kernel programs are not possible.
    Thread,
    Nothing,
}

/// A part that can fail independently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Part {
    /// The node's process, which includes everything that runs in it.
    Node,
    /// The node's external device processes.
    Device,
    /// The node's network interface.
    Interface,
}

/// Working state of a node's parts; `None` for a part that the node does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Works {
    pub(super) node: bool,
    pub(super) device: Option<bool>,
    pub(super) interface: Option<bool>,
}

impl Works {
    const fn state_of(self, part: Part) -> Option<bool> {
        match part {
            Part::Node => Some(self.node),
            Part::Device => self.device,
            Part::Interface => self.interface,
        }
    }
}

/// The parts of three nodes on one machine.
#[derive(Debug)]
pub(super) struct Parts {
    /// Virtual network; `None` if all nodes use loopback.
    network: Option<Network>,
    /// File that prevents the device processes from starting while it exists.
    box_block_file: PathBuf,
    device_kinds: [DeviceKind; 3],
    working_parts: [Works; 3],
}

impl Parts {
    /// Prepares the specs of the three nodes, each in its own network or all on loopback.
    /// `interpreter` runs our switch programs.
    pub(super) fn new(
        program: &Path,
        interpreter: &Path,
        folder: &Path,
        own_networks: bool,
    ) -> io::Result<(Self, Vec<NodeSpec>)> {
        let nodes = u32::try_from(ALL_NODES.len()).unwrap_or(0);
        let network = own_networks.then(|| Network::new(nodes)).transpose()?;
        let mut specs = match &network {
            Some(network) => network.node_specs(program, folder, nodes, &[TRUSTED_FLAG])?,
            None => loopback_cluster(program, folder, nodes, &[TRUSTED_FLAG])?,
        };
        let down = folder.join("box-is-down");
        let second = match own_networks {
            true => DeviceKind::Kernel,
            false => DeviceKind::Thread,
        };
        let wanted = [DeviceKind::Box, second, DeviceKind::Nothing];
        let boxed = box_device_flag(interpreter, folder, &down)?;
        for (spec, wanted) in specs.iter_mut().zip(wanted) {
            let device = match wanted {
                DeviceKind::Box => &boxed,
                DeviceKind::Kernel => "kernel",
                DeviceKind::Thread => "udp",
                DeviceKind::Nothing => "off",
            };
            spec.set_flag("--device", device);
        }
        let works = |node| Works {
            node: true,
            device: (node == BOX_NODE).then_some(true),
            interface: network.is_some().then_some(true),
        };
        let parts = Self {
            working_parts: ALL_NODES.map(works),
            network,
            box_block_file: down,
            device_kinds: wanted,
        };
        Ok((parts, specs))
    }

    /// Returns the kind of device of each node, node 1 first.
    pub(super) const fn device_kinds(&self) -> [DeviceKind; 3] {
        self.device_kinds
    }

    pub(super) const fn working_parts(&self) -> [Works; 3] {
        self.working_parts
    }

    /// Returns why a part cannot be failed or restored now, or `None` if it can.
    pub(super) fn action_obstacle(&self, part: Part, node: u32, fail: bool) -> Option<String> {
        action_obstacle(self.working_parts, part, node, fail)
    }

    pub(super) fn fail_part(
        &mut self,
        nodes: &mut NodeCluster,
        part: Part,
        node: u32,
    ) -> io::Result<()> {
        match part {
            Part::Node => nodes.kill(&[node])?,
            Part::Device => {
                fs::write(&self.box_block_file, "")?;
                nodes.node(node)?.kill_children()?;
            }
            Part::Interface => self.network()?.shut_interfaces(&[node])?,
        }
        self.set(part, node, false);
        Ok(())
    }

    /// Restores a part. As when a machine is switched on, restoring a node also restores its device
    /// processes and network.
    pub(super) fn restore_part(
        &mut self,
        nodes: &mut NodeCluster,
        part: Part,
        node: u32,
    ) -> io::Result<()> {
        match part {
            Part::Node => {
                for own in [Part::Device, Part::Interface] {
                    if self.part_state(own, node) == Some(false) {
                        self.restore_part(nodes, own, node)?;
                    }
                }
                nodes.restart(&[node])?;
            }
            Part::Device => match fs::remove_file(&self.box_block_file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            },
            Part::Interface => {
                self.network()?.heal_links()?;
                // Restoring the node restored all interfaces, so shut down again those that should
                // still be down.
                let cut =
                    |other: &u32| *other != node && self.part_state(part, *other) == Some(false);
                let others: Vec<u32> = ALL_NODES.into_iter().filter(cut).collect();
                self.network()?.shut_interfaces(&others)?;
            }
        }
        self.set(part, node, true);
        Ok(())
    }

    /// Restores all failed parts.
    pub(super) fn restore_all(&mut self, nodes: &mut NodeCluster) -> io::Result<()> {
        for part in [Part::Node, Part::Interface, Part::Device] {
            for node in ALL_NODES {
                if self.action_obstacle(part, node, false).is_none() {
                    self.restore_part(nodes, part, node)?;
                }
            }
        }
        Ok(())
    }

    /// Records that a node's process ended unexpectedly.
    pub(super) fn record_ended_node(&mut self, node: u32) {
        self.set(Part::Node, node, false);
    }

    fn part_state(&self, part: Part, node: u32) -> Option<bool> {
        let (_, works) =
            ALL_NODES.into_iter().zip(self.working_parts).find(|(one, _)| *one == node)?;
        works.state_of(part)
    }

    fn network(&self) -> io::Result<&Network> {
        let network = self.network.as_ref();
        network.ok_or_else(|| io::Error::other("nodes have no interfaces of their own"))
    }

    fn set(&mut self, part: Part, node: u32, works: bool) {
        let Some(at) = ALL_NODES.iter().position(|one| *one == node) else {
            return;
        };
        match part {
            Part::Node => self.working_parts[at].node = works,
            Part::Device => self.working_parts[at].device = Some(works),
            Part::Interface => self.working_parts[at].interface = Some(works),
        }
    }
}

/// Returns why a part cannot be failed or restored in the given state, or `None` if it can.
pub(super) fn action_obstacle(
    all: [Works; 3],
    part: Part,
    node: u32,
    fail: bool,
) -> Option<String> {
    let Some((_, works)) = ALL_NODES.into_iter().zip(all).find(|(one, _)| *one == node) else {
        return Some(format!("there is no node {node}"));
    };
    let what = match part {
        Part::Node => format!("node {node}"),
        Part::Device => format!("the box of node {node}"),
        Part::Interface => format!("the interface of node {node}"),
    };
    let present = works.state_of(part);
    match (present, fail) {
        (None, _) => Some(format!("node {node} has no such part")),
        (Some(false), true) => Some(format!("{what} is down already")),
        (Some(true), false) => Some(format!("{what} is up already")),
        _ if part != Part::Node && !works.node => Some(format!("node {node} is down")),
        _ => None,
    }
}

/// Returns the `--device` value for external processes that run our switch programs, as with
/// `--device p4`. Writes a script that refuses to start them while the file `down` exists.
fn box_device_flag(interpreter: &Path, folder: &Path, down: &Path) -> io::Result<String> {
    let script = folder.join("box.sh");
    let text = format!(
        "#!/bin/sh\n[ -e '{}' ] && exit 1\nexec '{}' \"$1\"\n",
        down.display(),
        interpreter.display()
    );
    fs::write(&script, text)?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    Ok(format!("process:'{}'", script.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_working_parts_fail_and_only_failed_ones_are_restored() {
        let up = Works { node: true, device: Some(true), interface: None };
        let down = Works { node: false, ..up };
        let off = Works { device: Some(false), ..up };
        let plain = Works { device: None, ..up };
        let check =
            |works, part, fail| action_obstacle([works, plain, plain], part, BOX_NODE, fail);
        for (works, part, fail) in [
            (up, Part::Node, true),
            (down, Part::Node, false),
            (up, Part::Device, true),
            (off, Part::Device, false),
            (off, Part::Node, true),
        ] {
            assert_eq!(check(works, part, fail), None, "{works:?} {part:?} {fail}");
        }
        for (works, part, fail, why) in [
            (down, Part::Node, true, "node 1 is down already"),
            (up, Part::Node, false, "node 1 is up already"),
            (off, Part::Device, true, "the box of node 1 is down already"),
            (down, Part::Device, true, "node 1 is down"),
            (up, Part::Interface, true, "node 1 has no such part"),
        ] {
            let found = check(works, part, fail);
            assert_eq!(found.as_deref(), Some(why), "{works:?} {part:?} {fail}");
        }
        for node in [0, 4, u32::MAX] {
            assert!(action_obstacle([up; 3], Part::Node, node, true).is_some());
        }
        let found = action_obstacle([up, plain, plain], Part::Device, 3, true);
        assert_eq!(found.as_deref(), Some("node 3 has no such part"));
    }
}
