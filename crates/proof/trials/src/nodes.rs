//! Clusters that run the binary under test: the release build of this workspace, or the debug build
//! if `QUORATE_PROFILE` is `dev`.

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use quorate_testbed::{
    network::Network,
    nodes::{NodeCluster, START_TIMEOUT},
    wait,
};

use crate::shell::{self, Failed};

const FOLDER_PREFIX: &str = "quorate-trials-";

/// Flags for small segments, so that logs are trimmed soon and newcomers receive snapshots.
pub(crate) const SMALL_LOG_FLAGS: [&str; 8] =
    ["--store", "memory", "--log-ready", "0", "--log-segment", "8388608", "--snapshot-ratio", "1"];

/// Returns [`SMALL_LOG_FLAGS`] and further flags.
pub(crate) fn small_log_flags(more: &[&'static str]) -> Vec<&'static str> {
    [&SMALL_LOG_FLAGS, more].concat()
}

/// Returns the path of the binary under test.
pub(crate) fn program_path() -> PathBuf {
    shell::program_path("quorate")
}

/// Starts nodes on loopback and waits until each of them serves keys.
pub(crate) fn start_serving(count: u32, flags: &[&str]) -> Result<NodeCluster, Failed> {
    let mut nodes = NodeCluster::start_on_loopback(&program_path(), FOLDER_PREFIX, count, flags)?;
    nodes.wait_until_all_serve()?;
    Ok(nodes)
}

/// Starts nodes in a network whose links can be cut, and waits until each of them serves keys.
pub(crate) fn start_serving_in(
    network: &Network,
    count: u32,
    flags: &[&str],
) -> Result<NodeCluster, Failed> {
    let mut nodes =
        NodeCluster::start_in_network(&program_path(), FOLDER_PREFIX, network, count, flags)?;
    nodes.wait_until_all_serve()?;
    Ok(nodes)
}

/// Starts nodes on loopback, with any service, and waits until they are ready.
pub(crate) fn start_ready(count: u32, flags: &[&str]) -> Result<NodeCluster, Failed> {
    let mut nodes = NodeCluster::start_on_loopback(&program_path(), FOLDER_PREFIX, count, flags)?;
    nodes.wait_until_all_ready()?;
    nodes.check_alive()?;
    Ok(nodes)
}

/// Starts nodes on loopback, with any service, without waiting.
pub(crate) fn start_nodes(count: u32, flags: &[&str]) -> Result<NodeCluster, Failed> {
    Ok(NodeCluster::start_on_loopback(&program_path(), FOLDER_PREFIX, count, flags)?)
}

/// Waits for a condition. An error names the condition that was not met in time.
pub(crate) fn wait_for<T>(what: &str, condition: impl FnMut() -> Option<T>) -> Result<T, Failed> {
    Ok(wait::wait_at_most(START_TIMEOUT, what, condition)?)
}

/// Resources used by nodes. Each field is the maximum over all nodes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NodeResources {
    /// Resident memory, in bytes.
    pub(crate) memory_bytes: u64,
    pub(crate) descriptors: usize,
    /// Disk space of the folder, in bytes.
    pub(crate) folder_bytes: u64,
}

impl NodeResources {
    /// Measures the nodes that belong to the cluster.
    pub(crate) fn measure_maximum(nodes: &NodeCluster) -> io::Result<Self> {
        let mut most = Self::default();
        for (id, process) in nodes.ids().into_iter().zip(nodes.process_ids()) {
            let folder = format!("/proc/{process}");
            let open = fs::read_dir(format!("{folder}/fd"))?.count();
            let resident = process_memory(process, "VmRSS");
            let node = nodes.all().get(id as usize - 1);
            let data = node.map_or(Ok(0), |node| disk_bytes(&node.spec.data_folder))?;
            most.memory_bytes = most.memory_bytes.max(resident.unwrap_or(0));
            most.descriptors = most.descriptors.max(open);
            most.folder_bytes = most.folder_bytes.max(data);
        }
        Ok(most)
    }
}

/// Returns a size of a process, such as `VmRSS` or `VmHWM`, in bytes.
pub(crate) fn process_memory(process: u32, name: &str) -> io::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    parse_size(&status, name).ok_or_else(|| io::Error::other(format!("no {name} of {process}")))
}

fn parse_size(status: &str, name: &str) -> Option<u64> {
    let mut fields = status.lines().filter_map(|line| line.split_once(':'));
    let (_, size) = fields.find(|(field, _)| *field == name)?;
    Some(size.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

/// Returns the disk space of all files of a folder.
fn disk_bytes(folder: &Path) -> io::Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        // The file may have been deleted in the meantime.
        let Ok(about) = entry.metadata() else {
            continue;
        };
        sum += match about.is_dir() {
            true => disk_bytes(&entry.path())?,
            false => about.blocks() * 512,
        };
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed_from_proc_status() {
        assert_eq!(parse_size("VmPeak: 9 kB\nVmRSS:\t    2048 kB\n", "VmRSS"), Some(2 << 20));
        assert_eq!(parse_size("VmPeak: 9 kB\n", "VmRSS"), None);
    }
}
