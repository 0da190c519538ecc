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
    nodes::{Nodes, PATIENCE},
    process::Spec,
    resp::{Link, Reply},
    wait,
};

use crate::shell::{self, Failed};

/// Environment variable with the path of the offset file, read by the library.
const FILE: &str = "CLOCK_SHIFT";
const SECOND_MS: i64 = 1000;
const HOUR_MS: i64 = 3600 * SECOND_MS;
/// Offsets of the jumps, in milliseconds.
const SHIFTS_MS: [i64; 6] =
    [24 * HOUR_MS, -24 * HOUR_MS, 2 * HOUR_MS, -2 * HOUR_MS, 15 * SECOND_MS, -15 * SECOND_MS];
/// Lifetime of a long-lived key, in seconds. It must exist at the end of a cycle, because no clock
/// jump may shorten its life.
const LONG_S: u32 = 1800;
/// Lifetime of a short-lived key, in seconds. It must expire at its deadline or soon after.
const SHORT_S: u32 = 5;

/// Library that makes clocks jump.
pub(super) struct Clocks {
    library: PathBuf,
}

impl Clocks {
    /// Compiles the library into this folder.
    pub(super) fn build(place: &Path) -> Result<Self, Failed> {
        let source = shell::root().join("crates/proof/trials/src/soak/shift.c");
        let library = place.join("shift.so");
        let mut command = Command::new("cc");
        command.args(["-O2", "-Wall", "-shared", "-fPIC", "-o"]).args([&library, &source]);
        shell::read(&mut command)?;
        Ok(Self { library })
    }

    /// Prepares a node, before its start, for clock jumps.
    pub(super) fn prepare_node(&self, spec: &mut Spec) -> io::Result<()> {
        let file = spec.stderr.with_extension("clock");
        fs::write(&file, 0_i64.to_ne_bytes())?;
        let variables = [("LD_PRELOAD", &self.library), (FILE, &file)];
        for (name, path) in variables {
            let value = path.display().to_string();
            spec.variables.push((name.to_owned(), value));
        }
        Ok(())
    }
}

/// The clock that is currently wrong, if any. At most one clock is wrong at a time.
#[derive(Default)]
pub(super) struct WrongClock {
    node: Option<u32>,
}

impl WrongClock {
    /// Shifts the clock of a node that runs this program, and returns once the node reports the
    /// deviation. Does nothing if all nodes run another program.
    pub(super) fn shift_clock(
        &mut self,
        nodes: &mut Nodes,
        program: &Path,
        dice: &mut Dice,
    ) -> io::Result<()> {
        self.right(nodes)?;
        let mut ids = nodes.ids();
        ids.retain(|id| {
            let node = nodes.node(*id);
            node.is_ok_and(|node| node.spec.program == program)
        });
        if ids.is_empty() {
            return Ok(());
        }
        let node = ids[dice.index(ids.len())];
        let ms = SHIFTS_MS[dice.index(SHIFTS_MS.len())];
        shift(&nodes.node(node)?.spec, ms)?;
        self.node = Some(node);
        let what = format!("a notice that the clock of node {node} is off by {ms} ms");
        let named = format!("clock: node {node} is ");
        wait::at_most(PATIENCE, &what, || {
            let view = nodes.view(node)?;
            let mut notices = view.notices.iter();
            notices.any(|notice| notice.starts_with(&named)).then_some(())
        })
    }

    /// Returns whether a clock is shifted.
    pub(super) const fn is_some(&self) -> bool {
        self.node.is_some()
    }

    /// Resets the shifted clock.
    pub(super) fn right(&mut self, nodes: &mut Nodes) -> io::Result<()> {
        match self.node.take() {
            Some(node) => shift(&nodes.node(node)?.spec, 0),
            None => Ok(()),
        }
    }
}

fn shift(spec: &Spec, ms: i64) -> io::Result<()> {
    let file = spec.variables.iter().find(|(name, _)| name == FILE);
    let (_, path) = file.ok_or_else(|| io::Error::other("a node whose clock cannot jump"))?;
    // Write in place: the node has mapped this file.
    let file = File::options().write(true).open(path)?;
    file.write_all_at(&ms.to_ne_bytes(), 0)
}

/// Keys with deadlines, set through each node.
pub(super) struct Deadlines {
    long: Vec<String>,
    short: Vec<String>,
}

impl Deadlines {
    /// Sets a long-lived and a short-lived key through each node.
    pub(super) fn set(nodes: &Nodes) -> io::Result<Self> {
        let (mut long, mut short) = (Vec::new(), Vec::new());
        for (at, address) in nodes.client_addresses().iter().enumerate() {
            for (keys, name, seconds) in
                [(&mut long, "long", LONG_S), (&mut short, "short", SHORT_S)]
            {
                let key = format!("lives {name} by way of {at}");
                set(nodes, address, &key, seconds)?;
                keys.push(key);
            }
        }
        Ok(Self { long, short })
    }

    /// Checks on each node that the long-lived keys exist and the short-lived keys expire.
    pub(super) fn check_deadlines(&self, nodes: &Nodes) -> io::Result<()> {
        for address in nodes.client_addresses() {
            for key in &self.long {
                if !has_key(nodes, &address, key)? {
                    let why = format!("{key:?}, set for {LONG_S} s, is gone at {address}");
                    return Err(io::Error::other(why));
                }
            }
            for key in &self.short {
                let what = format!("the end of {key:?}, set for {SHORT_S} s, at {address}");
                wait::at_most(PATIENCE, &what, || match has_key(nodes, &address, key) {
                    Ok(false) => Some(()),
                    Ok(true) | Err(_) => None,
                })?;
            }
        }
        Ok(())
    }
}

/// Sets a key with an expiry. Retries during an election.
fn set(nodes: &Nodes, address: &str, key: &str, seconds: u32) -> io::Result<()> {
    let what = format!("{key:?} to be taken by {address}");
    wait::at_most(PATIENCE, &what, || match nodes.speak_etcd() {
        true => etcd::put_for(address, key, "x", seconds).ok(),
        false => {
            let seconds = seconds.to_string();
            let reply = Link::connect(address)
                .and_then(|mut link| link.ask(&["SET", key, "x", "EX", &seconds]));
            matches!(reply, Ok(Reply::Simple(_))).then_some(())
        }
    })
}

fn has_key(nodes: &Nodes, address: &str, key: &str) -> io::Result<bool> {
    if nodes.speak_etcd() {
        return Ok(etcd::value(address, key)?.is_some());
    }
    match Link::connect(address)?.ask(&["EXISTS", key])? {
        Reply::Number(count) => Ok(count == 1),
        reply => Err(io::Error::other(format!("{address}: {reply:?}"))),
    }
}
