//! `cargo xtask upgrade --from REV`: another revision's program and the current one in one cluster,
//! under load and kills: upgraded, downgraded, mixed at random, and finally upgraded. No
//! acknowledged data may be lost. After the feature level has been raised, the old program must
//! refuse the folder and leave it unchanged.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use quorate_core::{dice::Dice, level::Level};
use quorate_testbed::{
    nodes::{NodeCluster, START_TIMEOUT},
    process::{self, NodeSpec, command_of},
    run::read_output,
    trust, wait,
    writers::Writers,
};

use crate::{
    shell::{self, Failed},
    writing::RunningWriters,
};

const NODE_COUNT: u32 = 3;
/// Number of random program exchanges, one at a time, between the downgrade and the final upgrade.
const EXCHANGE_COUNT: u32 = 12;

/// A kind of cluster. Nodes of a volatile cluster are stopped instead of killed, because a kill
/// would lose votes that are only in memory.
struct ClusterKind {
    name: &'static str,
    flags: &'static [&'static str],
    kills_nodes: bool,
    /// Set if byte streams are written, followed, trimmed and taken over during the exchanges.
    has_streams: bool,
    /// Set if every connection is encrypted. Such a row must be the last one: all later connections
    /// of this process are encrypted.
    uses_tls: bool,
}

const ROWS: [ClusterKind; 7] = [
    ClusterKind {
        name: "durable",
        flags: &["--durability", "durable"],
        kills_nodes: true,
        has_streams: false,
        uses_tls: false,
    },
    ClusterKind {
        name: "durable, byte streams",
        flags: &["--durability", "durable"],
        kills_nodes: true,
        has_streams: true,
        uses_tls: false,
    },
    ClusterKind {
        name: "durable, datagrams",
        flags: &["--durability", "durable", "--plane", "udp", "--plane-trusted"],
        kills_nodes: true,
        has_streams: false,
        uses_tls: false,
    },
    ClusterKind {
        name: "durable, multicast",
        flags: &["--durability", "durable", "--plane", "multicast", "--plane-trusted"],
        kills_nodes: true,
        has_streams: false,
        uses_tls: false,
    },
    ClusterKind {
        name: "durable, devices in threads",
        flags: &["--durability", "durable", "--device", "udp", "--plane-trusted"],
        kills_nodes: true,
        has_streams: false,
        uses_tls: false,
    },
    ClusterKind {
        name: "volatile, stopped cleanly",
        flags: &["--durability", "volatile"],
        kills_nodes: false,
        has_streams: false,
        uses_tls: false,
    },
    ClusterKind {
        name: "durable, byte streams, with certificates",
        flags: &["--durability", "durable"],
        kills_nodes: true,
        has_streams: true,
        uses_tls: true,
    },
];

pub(crate) fn run(words: &[&str]) -> Result<(), Failed> {
    let (revision, seed) = match words {
        ["--from", revision] => (*revision, 1),
        ["--from", revision, "--seed", seed] => {
            let seed = seed.parse();
            (*revision, seed.map_err(|_| Failed("--seed N".to_owned()))?)
        }
        _ => return Err(Failed("upgrade --from REV [--seed N]".to_owned())),
    };
    let old = build_old_program(revision)?;
    shell::build_programs()?;
    let new = shell::program_path("quorate");
    let mut failed = 0;
    for row in &ROWS {
        let begun = Instant::now();
        let result = test_upgrade(row, &old, &new, seed);
        let took = begun.elapsed().as_secs();
        match result {
            Ok(keys) => println!("{}: {keys} keys, none lost, {took} s", row.name),
            Err(error) => {
                failed += 1;
                println!("{}: {error}, after {took} s", row.name);
            }
        }
    }
    match failed {
        0 => Ok(()),
        failed => Err(Failed(format!("{failed} of {} rows failed", ROWS.len()))),
    }
}

/// Returns the short hash of a revision, if the repository has it.
fn short_commit(revision: &str) -> Result<Option<String>, Failed> {
    let output = Command::new("git")
        .current_dir(shell::workspace_root())
        .args(["rev-parse", "--verify", "--short=12"])
        .arg(format!("{revision}^{{commit}}"))
        .output()?;
    let name = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    Ok(output.status.success().then_some(name))
}

/// Returns the commit that the changelog names for a release, for clones without its tag.
fn release_commit<'a>(changelog: &'a str, tag: &str) -> Option<&'a str> {
    let heading = format!("## {} (", tag.strip_prefix('v')?);
    let rest = changelog.lines().find_map(|line| line.strip_prefix(&*heading))?;
    rest.trim_end_matches(')').split_once(", ").map(|(_, commit)| commit)
}

/// Builds the program of a revision from its sources, in its own folder, once.
pub(crate) fn build_old_program(revision: &str) -> Result<PathBuf, Failed> {
    let name = match short_commit(revision)? {
        Some(name) => name,
        None => {
            let changelog = fs::read_to_string(shell::workspace_root().join("CHANGELOG.md"))?;
            let noted =
                release_commit(&changelog, revision).map(short_commit).transpose()?.flatten();
            noted.ok_or_else(|| Failed(format!("no revision {revision}")))?
        }
    };
    let folder = shell::build_folder().join("upgrade").join(&name);
    let profile = if shell::profile_arguments().is_empty() { "debug" } else { "release" };
    let built = folder.join(profile).join("quorate");
    if built.is_file() {
        return Ok(built);
    }
    println!("building {name}");
    let source = folder.join("source");
    fs::create_dir_all(&source)?;
    let archive = folder.join("source.tar");
    let archived = Command::new("git")
        .current_dir(shell::workspace_root())
        .args(["archive", "--output"])
        .arg(&archive)
        .arg(&name)
        .status()?;
    let unpacked = Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&source).status()?;
    if !archived.success() || !unpacked.success() {
        return Err(Failed(format!("the sources of {name} cannot be unpacked")));
    }
    let built_in = folder.join("target");
    let status = shell::cargo_command(&["build", "--quiet", "--bin", "quorate"])
        .current_dir(&source)
        .env("CARGO_TARGET_DIR", &built_in)
        .args(shell::profile_arguments())
        .status()?;
    if !status.success() {
        return Err(Failed(format!("{name} does not build")));
    }
    fs::create_dir_all(folder.join(profile))?;
    fs::copy(built_in.join(profile).join("quorate"), &built)?;
    Ok(built)
}

/// Upgrades, downgrades, mixes, upgrades again and raises the level. Returns the number of keys
/// compared.
fn test_upgrade(row: &ClusterKind, old: &Path, new: &Path, seed: u64) -> io::Result<usize> {
    let mut dice = Dice::new(seed);
    let mut nodes = NodeCluster::with_empty_folder("quorate-upgrade-")?;
    let mut specs = process::loopback_cluster(old, nodes.data_folder(), NODE_COUNT, row.flags)?;
    let certificates = nodes.data_folder().join("certs");
    if row.uses_tls {
        create_certificates(old, &certificates, &mut specs)?;
    }
    nodes.start(specs)?;
    nodes.wait_until_all_serve()?;
    let keys = Writers::start_retrying(NODE_COUNT as usize, &nodes.client_addresses());
    let mut writing = RunningWriters::with_keys(keys);
    if row.has_streams {
        writing = writing.with_streams(&nodes.stream_addresses(), true, seed)?;
    }
    for program in [new, old] {
        for id in 1..=NODE_COUNT {
            install_program(&mut nodes, row, id, program, &mut dice, &mut writing)?;
        }
    }
    for _ in 0..EXCHANGE_COUNT {
        let id = 1 + u32::try_from(dice.index(NODE_COUNT as usize)).unwrap_or(0);
        let program = dice.pick(&[old, new]);
        install_program(&mut nodes, row, id, program, &mut dice, &mut writing)?;
    }
    for id in 1..=NODE_COUNT {
        install_program(&mut nodes, row, id, new, &mut dice, &mut writing)?;
    }
    if reported_levels(&nodes)? != [Level::BASE.0; NODE_COUNT as usize] {
        return Err(io::Error::other("the level rose by itself"));
    }
    raise_level(&nodes, new, row.uses_tls.then_some(&certificates))?;
    check_old_program_refuses(&mut nodes, old)?;
    writing.wait_for_progress()?;
    let compared = writing.stop_and_compare(&mut nodes)?;
    if let Some(sum) = compared.stream_totals {
        let kib = sum.bytes >> 10;
        println!("{} streams, {kib} KiB: the same on all nodes", sum.stream_count);
    }
    Ok(compared.keys)
}

/// Kills or stops a node, and restarts it with `program`.
fn install_program(
    nodes: &mut NodeCluster,
    row: &ClusterKind,
    id: u32,
    program: &Path,
    dice: &mut Dice,
    writing: &mut RunningWriters,
) -> io::Result<()> {
    match row.kills_nodes && dice.chance(1, 2) {
        true => nodes.kill(&[id])?,
        false => nodes.terminate(&[id])?,
    }
    writing.wait_for_keys()?;
    nodes.node(id)?.spec.program = program.to_owned();
    nodes.restart(&[id])?;
    nodes.wait_until_all_serve()?;
    writing.wait_for_progress()
}

/// Returns the cluster's feature level as each node reports it.
fn reported_levels(nodes: &NodeCluster) -> io::Result<Vec<u16>> {
    let views = (1..=NODE_COUNT).map(|id| nodes.status(id).map(|view| view.level.level));
    let levels: Option<Vec<u16>> = views.collect();
    levels.ok_or_else(|| io::Error::other("a node does not answer"))
}

/// Raises the feature level step by step, until all nodes have the newest.
fn raise_level(nodes: &NodeCluster, new: &Path, certificates: Option<&PathBuf>) -> io::Result<()> {
    let admin = nodes.admin_addresses().join(",");
    wait::wait_at_most(START_TIMEOUT, "all nodes to be at the newest level", || {
        if reported_levels(nodes).ok()? == [Level::NEWEST.0; NODE_COUNT as usize] {
            return Some(());
        }
        let mut raise = command_of(new);
        raise.args(["member", "feature", "--raise", "--yes", "--admin", &admin]);
        if let Some(folder) = certificates {
            raise.arg("--tls").arg(folder.join("client-upgrade"));
        }
        raise.output().ok()?;
        None
    })
}

/// Creates certificates for all nodes and for this process, using this program.
fn create_certificates(program: &Path, folder: &Path, specs: &mut [NodeSpec]) -> io::Result<()> {
    let make = |words: &[&str]| {
        let mut cert = command_of(program);
        cert.arg("cert").args(words).arg("--dir").arg(folder);
        read_output(&mut cert).map(drop)
    };
    make(&["init", "--cluster", "upgrade"])?;
    for (node, spec) in (1..).zip(specs) {
        let node: u32 = node;
        make(&["node", &node.to_string(), "--host", "127.0.0.1"])?;
        let own = folder.join(format!("node-{node}"));
        spec.set_flag("--tls", &own.display().to_string());
    }
    make(&["client", "upgrade"])?;
    trust::use_certificate(&folder.join("client-upgrade"))
}

/// Checks that the old program does not start on a folder with a higher level, reports why, and
/// leaves the folder unchanged.
fn check_old_program_refuses(nodes: &mut NodeCluster, old: &Path) -> io::Result<()> {
    nodes.terminate(&[NODE_COUNT])?;
    let node = nodes.node(NODE_COUNT)?;
    let before = folder_contents(&node.spec.data_folder)?;
    let mut refused = command_of(old)
        .arg("start")
        .arg("--data")
        .arg(&node.spec.data_folder)
        .args(&node.spec.flags)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let ended = wait::wait_at_most(START_TIMEOUT, "the old program to refuse", || {
        refused.try_wait().ok().flatten()
    });
    if !ended.is_ok_and(|status| !status.success()) {
        refused.kill()?;
        refused.wait()?;
        let why = "the old program runs at the new level: does it know that level itself?";
        return Err(io::Error::other(why));
    }
    let output = refused.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    // The messages of a release before levels and of later ones.
    if !["newer version", "needs level"].iter().any(|why| said.contains(why)) {
        return Err(io::Error::other(format!("the old program said: {said}")));
    }
    if folder_contents(&node.spec.data_folder)? != before {
        return Err(io::Error::other("the old program changed the folder"));
    }
    nodes.restart(&[NODE_COUNT])?;
    nodes.wait_until_all_serve()
}

/// Returns the names and contents of all files below a folder, in order.
fn folder_contents(folder: &Path) -> io::Result<Vec<(PathBuf, Vec<u8>)>> {
    let mut all = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            match path.is_dir() {
                true => folders.push(path),
                false => all.push((path.clone(), fs::read(path)?)),
            }
        }
    }
    all.sort();
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commit_of_an_untagged_release_is_found_in_the_changelog() {
        let changelog =
            "## Unreleased\n\n## 0.2.0 (2026-11-28, a1881cf76c)\n\n## 0.1.0 (2026-01-01)";
        assert_eq!(release_commit(changelog, "v0.2.0"), Some("a1881cf76c"));
        for unknown in ["0.2.0", "v0.1.0", "v0.2", "main"] {
            assert_eq!(release_commit(changelog, unknown), None, "{unknown}");
        }
    }
}
