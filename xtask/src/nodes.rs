//! Clusters of the binary of this workspace, built for release.

use std::path::PathBuf;

use quorate_testbed::{
    network::Network,
    nodes::{Nodes, PATIENCE},
    wait,
};

use crate::shell::{self, Failed};

const PREFIX: &str = "quorate-xtask-";

/// Flags for small segments: logs are trimmed soon, and newcomers get snapshots.
pub(crate) const SMALL_LOGS: [&str; 8] = [
    "--store",
    "memory",
    "--log-ready",
    "0",
    "--log-segment",
    "8388608",
    "--snapshot-ratio",
    "1",
];

/// [`SMALL_LOGS`] and more.
pub(crate) fn small_logs(more: &[&'static str]) -> Vec<&'static str> {
    [&SMALL_LOGS, more].concat()
}

/// The binary under test.
pub(crate) fn program() -> PathBuf {
    shell::program("quorate")
}

/// Nodes on loopback, each of which serves keys.
pub(crate) fn serving(count: u32, flags: &[&str]) -> Result<Nodes, Failed> {
    let mut nodes = Nodes::on_loopback(&program(), PREFIX, count, flags)?;
    nodes.wait_until_all_serve()?;
    Ok(nodes)
}

/// The same in a network whose links can be cut.
pub(crate) fn serving_in(network: &Network, count: u32, flags: &[&str]) -> Result<Nodes, Failed> {
    let mut nodes = Nodes::in_network(&program(), PREFIX, network, count, flags)?;
    nodes.wait_until_all_serve()?;
    Ok(nodes)
}

/// Nodes on loopback that are ready, with whatever service.
pub(crate) fn ready(count: u32, flags: &[&str]) -> Result<Nodes, Failed> {
    let mut nodes = Nodes::on_loopback(&program(), PREFIX, count, flags)?;
    nodes.wait_until_all_ready()?;
    nodes.check_alive()?;
    Ok(nodes)
}

/// Nodes on loopback, whatever they serve.
pub(crate) fn started(count: u32, flags: &[&str]) -> Result<Nodes, Failed> {
    Ok(Nodes::on_loopback(&program(), PREFIX, count, flags)?)
}

/// Waits for a condition; says what was waited for if it does not come.
pub(crate) fn wait_for<T>(what: &str, condition: impl FnMut() -> Option<T>) -> Result<T, Failed> {
    Ok(wait::at_most(PATIENCE, what, condition)?)
}
