//! Multicast comparison: messages to many receivers, by Quorate and other systems, alternating on
//! the same emulated links. `cargo xtask compare multicast`.
//!
//! Programs are built first. Then the command runs itself again in its own namespaces, which end
//! with their last process. All files of the systems are in a memory file system of that namespace,
//! so nothing is left over, even after a failure. For each speed and number of receivers a segment
//! is set up. For each message size every system has a turn per round, compared with a bare sender,
//! which is the ceiling. bench-compare/README.md describes the other systems.

mod build;
mod corosync;
mod figures;
mod member;
mod members;
mod quorate;
mod report;
mod systems;

use std::{
    collections::BTreeMap,
    fs,
    net::Ipv4Addr,
    ops::RangeInclusive,
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use quorate_testbed::{
    namespace::{self, ip},
    run,
    segment::{self, Lan, PEERS},
};

use super::{Json, seconds};
use crate::shell::{self, Failed};
use figures::{Cell, Measured, Results, Turn};
use systems::System;

const USAGE: &str = "compare multicast [--quick] [--receivers N,…] [--speed 100mbit,1gbit] [--size BYTES,…] [--duration 3s] \
                     [--repeat 5] [--only NAME,…] [--out PATH] [--json [FILE]]";
/// Variable set in the process that runs in its own namespaces.
const INSIDE: &str = "QUORATE_COMPARE_INSIDE";
/// Maximum number of members in a group, including the sender.
const MEMBERS_MAX: u32 = 32;
/// Allowed message sizes in bytes. The maximum is the largest message that Corosync accepts.
const SIZES: RangeInclusive<usize> = 64..=512 << 10;
/// Folder in memory for all files of the systems.
const SCRATCH: &str = "/dev/shm";

/// Options of `cargo xtask compare multicast`.
#[derive(Clone, Debug, PartialEq)]
struct Wish {
    receivers: Vec<u32>,
    speeds: Vec<Lan>,
    sizes: Vec<usize>,
    /// Measured time of a turn.
    duration: Duration,
    repeat: usize,
    only: Vec<String>,
    /// Path of the report, without an extension.
    out: Option<PathBuf>,
    json: Option<Json>,
}

impl Wish {
    /// Returns the duration of the warm-up before the measurement. A Java program compiles itself
    /// during this time.
    fn warmup(&self) -> Duration {
        (self.duration * 2).max(Duration::from_secs(3))
    }
}

pub(super) fn run(words: &[&str]) -> Result<(), Failed> {
    let wish = parse(words)?;
    let chosen = systems::choose(&wish.only)?;
    let is_inside = namespace::is_inside(INSIDE);
    if !is_inside {
        if let Some(why) = missing() {
            return shell::skip("compare multicast", &why);
        }
        shell::build_release()?;
    }
    let mut results = Results::default();
    let mut usable = Vec::new();
    for system in chosen {
        match build::build_system(system, is_inside) {
            Ok(()) => usable.push(system),
            // The inner process reports the same reason.
            Err(Failed(why)) => {
                eprintln!("{}: skipped: {why}", system.name());
                results.failures.push((system, why));
            }
        }
    }
    if !is_inside {
        return Err(namespace::enter(INSIDE).into());
    }
    prepare()?;
    let began = Instant::now();
    for speed in &wish.speeds {
        for receivers in &wish.receivers {
            let _segment = Segment::create(*speed, receivers + 1)?;
            for bytes in &wish.sizes {
                let cell =
                    Cell { megabits: speed.megabits(), receivers: *receivers, bytes: *bytes };
                measure(&wish, *speed, cell, &usable, &mut results);
            }
        }
    }
    results.seconds = began.elapsed().as_secs_f64();
    report::write(&wish, &usable, &results)
}

/// Measures all rounds of one cell.
fn measure(wish: &Wish, speed: Lan, cell: Cell, systems: &[System], results: &mut Results) {
    for round in 0..wish.repeat {
        let mut order = systems.to_vec();
        // Vary the order, so that no system always follows the same other system.
        order.rotate_left(round * 2 % systems.len().max(1));
        for system in order {
            eprintln!(
                "{speed_name}, {receivers} receivers, {bytes} bytes, round {round} of {all}: {name}",
                speed_name = speed.name(),
                receivers = cell.receivers,
                bytes = cell.bytes,
                round = round + 1,
                all = wish.repeat,
                name = system.name(),
            );
            let before = dropped();
            let outcome = match system {
                System::Quorate => quorate::run_turn(wish, speed, cell),
                other => members::run_turn(wish, other, cell),
            };
            let outcome = outcome
                .map_err(|Failed(why)| why)
                .map(|measured| Measured { dropped: dropped() - before, ..measured });
            match &outcome {
                Ok(measured) => eprintln!("  {measured}"),
                Err(why) => eprintln!("  {why}"),
            }
            results.turns.push(Turn { system, cell, round, outcome });
        }
    }
}

/// Returns the packets dropped by processor queues since the machine started. A software switch
/// forwards a packet to many receivers at once, and they share `net.core.netdev_max_backlog`.
fn dropped() -> f64 {
    drops(&fs::read_to_string("/proc/net/softnet_stat").unwrap_or_default())
}

/// Sums the second column of each processor's line, in hexadecimal.
#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn drops(text: &str) -> f64 {
    let counts = text.lines().filter_map(|line| {
        let count = line.split_whitespace().nth(1)?;
        u64::from_str_radix(count, 16).ok()
    });
    counts.sum::<u64>() as f64
}

/// Returns why nothing can be measured on this machine; `None` if measuring is possible.
fn missing() -> Option<String> {
    for program in ["tc", "setpriv"] {
        if !run::has(program) {
            return Some(format!("there is no `{program}` (Debian: iproute2, util-linux)"));
        }
    }
    let trial = "ip netns add x && ip link add switch type bridge && ip link add v1 type veth peer name eth0 netns x && \
                 tc qdisc add dev v1 root tbf rate 1gbit burst 128k limit 1m && nsenter --net=/run/netns/x true";
    let why = namespace::missing(trial)?;
    Some(format!("network namespaces with shaped links cannot be made here: {why} (needs root)"))
}

/// Sets up the namespace, once.
fn prepare() -> Result<(), Failed> {
    namespace::prepare()?;
    // For Corosync's clients, Aeron's logs, and all other files.
    run::read(Command::new("mount").args(["-t", "tmpfs", "tmpfs", SCRATCH]))?;
    Ok(())
}

/// A segment and the namespaces of its members, removed when dropped.
struct Segment {
    nodes: u32,
}

impl Segment {
    fn create(speed: Lan, nodes: u32) -> Result<Self, Failed> {
        let segment = Self { nodes };
        for node in 1..=nodes {
            ip(&format!("netns add n{node}"))?;
            ip(&format!("-n n{node} link set lo up"))?;
        }
        segment::set_up(speed, nodes, address)?;
        for node in 1..=nodes {
            ip(&format!("-n n{node} route add 224.0.0.0/4 dev {PEERS}"))?;
        }
        Ok(segment)
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        segment::clear(self.nodes);
    }
}

/// Returns the address of a member in its segment.
fn address(node: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(NETWORK.to_bits() + node)
}

const NETWORK: Ipv4Addr = Ipv4Addr::new(10, 213, 79, 0);

fn scratch() -> Result<tempfile::TempDir, Failed> {
    fs::create_dir_all(SCRATCH)?;
    Ok(tempfile::Builder::new().prefix("quorate-compare-").tempdir_in(SCRATCH)?)
}

fn parse(words: &[&str]) -> Result<Wish, Failed> {
    let speed = |name: &str| Lan::named(name).ok_or_else(|| Failed(format!("{name}: {USAGE}")));
    let mut wish = Wish {
        receivers: vec![2, 4, 14, 25],
        speeds: vec![speed("100mbit")?, speed("1gbit")?],
        sizes: vec![8192, 1024],
        duration: Duration::from_secs(3),
        repeat: 5,
        only: Vec::new(),
        out: None,
        json: None,
    };
    let bad = |what: &str| Failed(format!("{what}: {USAGE}"));
    let mut words = words.iter().peekable();
    while let Some(word) = words.next() {
        let mut value = || words.next().copied().ok_or_else(|| bad(word));
        match *word {
            "--quick" => {
                wish.receivers = vec![2, 4];
                wish.speeds = vec![speed("1gbit")?];
                wish.sizes = vec![8192];
                wish.duration = Duration::from_millis(1500);
                wish.repeat = 1;
            }
            "--receivers" => {
                let text = value()?;
                let number =
                    |text: &str| text.parse().ok().filter(|n| (1..MEMBERS_MAX).contains(n));
                let numbers: Option<Vec<u32>> = text.split(',').map(number).collect();
                wish.receivers = numbers.ok_or_else(|| bad(text))?;
            }
            "--speed" => wish.speeds = value()?.split(',').map(speed).collect::<Result<_, _>>()?,
            "--size" => {
                let text = value()?;
                let size = |text: &str| text.parse().ok().filter(|n| SIZES.contains(n));
                let sizes: Option<Vec<usize>> = text.split(',').map(size).collect();
                wish.sizes = sizes.ok_or_else(|| bad(text))?;
            }
            "--duration" => {
                let text = value()?;
                let time = seconds(text).filter(|time| time.as_secs() < 60);
                wish.duration = time.ok_or_else(|| bad(text))?;
            }
            "--repeat" => {
                let text = value()?;
                let number = text.parse().ok().filter(|n| (1..=100).contains(n));
                wish.repeat = number.ok_or_else(|| bad(text))?;
            }
            "--only" => wish.only = value()?.split(',').map(str::to_owned).collect(),
            "--out" => wish.out = Some(PathBuf::from(value()?)),
            "--json" => {
                let file = words.next_if(|word| !word.starts_with("--"));
                wish.json = Some(file.map_or(Json::Printed, |file| Json::File(file.into())));
            }
            other => return Err(bad(other)),
        }
    }
    Ok(wish)
}

/// Returns the folder of the built programs.
fn built_folder(folder: &str) -> Result<PathBuf, Failed> {
    let place = shell::target().join("compare").join("multicast");
    Ok(std::path::absolute(place.join(folder))?)
}

/// Groups values by key, in the order of their arrival.
fn grouped<K: Ord, V>(all: impl Iterator<Item = (K, V)>) -> BTreeMap<K, Vec<V>> {
    let mut groups: BTreeMap<K, Vec<V>> = BTreeMap::new();
    for (key, value) in all {
        groups.entry(key).or_default().push(value);
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_parsed() {
        let wish = parse(&[
            "--quick",
            "--receivers",
            "1,25",
            "--speed",
            "100mbit,10gbit",
            "--size",
            "200,8192",
            "--only",
            "corosync",
        ]);
        let wish = wish.unwrap();
        assert_eq!(wish.receivers, [1, 25]);
        let speeds: Vec<u64> = wish.speeds.iter().map(Lan::megabits).collect();
        assert_eq!(speeds, [100, 10_000]);
        assert_eq!(wish.warmup(), Duration::from_secs(3));
        assert_eq!(wish.only, ["corosync"]);
        assert_eq!((wish.sizes, wish.repeat), (vec![200, 8192], 1));
        for bad in [
            &["--receivers", "0"][..],
            &["--receivers", "5,32"],
            &["--receivers"],
            &["--speed", "fast"],
            &["--size", "7"],
            &["--size", "8192,"],
            &["--size", "9999999999"],
            &["--duration", "60s"],
            &["--repeat", "0"],
            &["five"],
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn drops_of_all_processors_count() {
        let text = "0000a3f1 00000010 00000000\n000000ff 0000000a 00000001\n";
        assert!((drops(text) - 26.0).abs() < 1e-9);
        assert!(drops("what").abs() < 1e-9);
    }

    #[test]
    fn members_have_addresses_of_one_network() {
        assert_eq!(address(1).to_string(), "10.213.79.1");
        assert_eq!(address(26).to_string(), "10.213.79.26");
    }
}
