//! Makes wall clocks jump: a library preloaded into each node adds an offset from a file to the
//! kernel's time.
//!
//! Meanwhile clients set keys with a deadline through each node. No single wall clock determines
//! the group's ([time-3]): no key may expire early, and none may outlive its deadline for long.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use quorate_core::dice::Dice;
use quorate_testbed::{
    etcd,
    nodes::{NodeCluster, START_TIMEOUT},
    process::NodeSpec,
    resp::{Reply, RespConnection},
    wait,
};

use crate::shell::{self, Failed};

/// Environment variable with the path of the offset file, read by the library.
const OFFSET_FILE_VARIABLE: &str = "CLOCK_SHIFT";
const SECOND_MS: i64 = 1000;
const HOUR_MS: i64 = 3600 * SECOND_MS;
/// Offsets of the jumps, in milliseconds.
const JUMP_OFFSETS_MS: [i64; 6] =
    [24 * HOUR_MS, -24 * HOUR_MS, 2 * HOUR_MS, -2 * HOUR_MS, 15 * SECOND_MS, -15 * SECOND_MS];
/// Lifetime of a long-lived key, in seconds. It must exist at the end of a cycle, because no clock
/// jump may shorten its life.
const LONG_LIFETIME_S: u32 = 1800;
/// Lifetime of a short-lived key, in seconds. It must expire at its deadline or soon after.
const SHORT_LIFETIME_S: u32 = 5;

/// Library that makes clocks jump.
pub(super) struct ClockLibrary {
    library_path: PathBuf,
}

impl ClockLibrary {
    /// Compiles the library into this folder.
    pub(super) fn build(place: &Path) -> Result<Self, Failed> {
        let source = shell::workspace_root().join("crates/proof/trials/src/soak/shift.c");
        let library = place.join("shift.so");
        let mut command = Command::new("cc");
        command.args(["-O2", "-Wall", "-shared", "-fPIC", "-o"]).args([&library, &source]);
        shell::read_output(&mut command)?;
        Ok(Self { library_path: library })
    }

    /// Prepares a node, before its start, for clock jumps.
    pub(super) fn prepare_node(&self, spec: &mut NodeSpec) -> io::Result<()> {
        let file = spec.log_path.with_extension("clock");
        fs::write(&file, 0_i64.to_ne_bytes())?;
        let variables = [("LD_PRELOAD", &self.library_path), (OFFSET_FILE_VARIABLE, &file)];
        for (name, path) in variables {
            let value = path.display().to_string();
            spec.environment.push((name.to_owned(), value));
        }
        Ok(())
    }
}

/// The clock that is currently wrong, if any. At most one clock is wrong at a time.
#[derive(Default)]
pub(super) struct ShiftedClock {
    node: Option<u32>,
}

impl ShiftedClock {
    /// Shifts the clock of a node that runs this program, and returns once the node reports the
    /// deviation. Does nothing if all nodes run another program.
    pub(super) fn shift_clock(
        &mut self,
        nodes: &mut NodeCluster,
        program: &Path,
        dice: &mut Dice,
    ) -> io::Result<()> {
        self.reset_clock(nodes)?;
        let mut ids = nodes.ids();
        ids.retain(|id| {
            let node = nodes.node(*id);
            node.is_ok_and(|node| node.spec.program == program)
        });
        if ids.is_empty() {
            return Ok(());
        }
        let node = ids[dice.index(ids.len())];
        let ms = JUMP_OFFSETS_MS[dice.index(JUMP_OFFSETS_MS.len())];
        write_offset(&nodes.node(node)?.spec, ms)?;
        self.node = Some(node);
        let what = format!("a notice that the clock of node {node} is off by {ms} ms");
        let named = format!("clock: node {node} is ");
        wait::wait_at_most(START_TIMEOUT, &what, || {
            let view = nodes.status(node)?;
            let mut notices = view.notices.iter();
            notices.any(|notice| notice.starts_with(&named)).then_some(())
        })
    }

    /// Returns whether a clock is shifted.
    pub(super) const fn is_some(&self) -> bool {
        self.node.is_some()
    }

    /// Resets the shifted clock.
    pub(super) fn reset_clock(&mut self, nodes: &mut NodeCluster) -> io::Result<()> {
        match self.node.take() {
            Some(node) => write_offset(&nodes.node(node)?.spec, 0),
            None => Ok(()),
        }
    }
}

fn write_offset(spec: &NodeSpec, ms: i64) -> io::Result<()> {
    let file = spec.environment.iter().find(|(name, _)| name == OFFSET_FILE_VARIABLE);
    let (_, path) = file.ok_or_else(|| io::Error::other("a node whose clock cannot jump"))?;
    // Write in place: the node has mapped this file.
    let file = File::options().write(true).open(path)?;
    file.write_all_at(&ms.to_ne_bytes(), 0)
}

/// Keys with deadlines, set through each node.
pub(super) struct DeadlineKeys {
    long_lived: Vec<String>,
    short_lived: Vec<String>,
}

impl DeadlineKeys {
    /// Sets a long-lived and a short-lived key through each node.
    pub(super) fn set(nodes: &NodeCluster) -> io::Result<Self> {
        let (mut long, mut short) = (Vec::new(), Vec::new());
        for (at, address) in nodes.client_addresses().iter().enumerate() {
            for (keys, name, seconds) in
                [(&mut long, "long", LONG_LIFETIME_S), (&mut short, "short", SHORT_LIFETIME_S)]
            {
                let key = format!("lives {name} by way of {at}");
                set(nodes, address, &key, seconds)?;
                keys.push(key);
            }
        }
        Ok(Self { long_lived: long, short_lived: short })
    }

    /// Checks on each node that the long-lived keys exist and the short-lived keys expire.
    pub(super) fn check_deadlines(&self, nodes: &NodeCluster) -> io::Result<()> {
        for address in nodes.client_addresses() {
            for key in &self.long_lived {
                if !has_key(nodes, &address, key)? {
                    let why = format!("{key:?}, set for {LONG_LIFETIME_S} s, is gone at {address}");
                    return Err(io::Error::other(why));
                }
            }
            for key in &self.short_lived {
                let what =
                    format!("the end of {key:?}, set for {SHORT_LIFETIME_S} s, at {address}");
                wait::wait_at_most(START_TIMEOUT, &what, || match has_key(nodes, &address, key) {
                    Ok(false) => Some(()),
                    Ok(true) | Err(_) => None,
                })?;
            }
        }
        Ok(())
    }
}

/// Sets a key with an expiry. Retries during an election.
fn set(nodes: &NodeCluster, address: &str, key: &str, seconds: u32) -> io::Result<()> {
    let what = format!("{key:?} to be taken by {address}");
    wait::wait_at_most(START_TIMEOUT, &what, || match nodes.uses_etcd() {
        true => etcd::put_with_lease(address, key, "x", seconds).ok(),
        false => {
            let seconds = seconds.to_string();
            let reply = RespConnection::connect(address)
                .and_then(|mut link| link.run_command(&["SET", key, "x", "EX", &seconds]));
            matches!(reply, Ok(Reply::Simple(_))).then_some(())
        }
    })
}

fn has_key(nodes: &NodeCluster, address: &str, key: &str) -> io::Result<bool> {
    if nodes.uses_etcd() {
        return Ok(etcd::value(address, key)?.is_some());
    }
    match RespConnection::connect(address)?.run_command(&["EXISTS", key])? {
        Reply::Number(count) => Ok(count == 1),
        reply => Err(io::Error::other(format!("{address}: {reply:?}"))),
    }
}
