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
    namespace::{self, run_ip},
    run,
    segment::{self, Lan, PEERS_INTERFACE},
};

use super::{JsonDestination, parse_duration};
use crate::shell::{self, Failed};
use figures::{MeasuredTurn, MulticastCell, MulticastTurn, Results};
use systems::System;

const USAGE: &str = "compare multicast [--quick] [--receivers N,…] [--speed 100mbit,1gbit] [--size BYTES,…] [--duration 3s] \
                     [--repeat 5] [--only NAME,…] [--out PATH] [--json [FILE]]";
/// Variable set in the process that runs in its own namespaces.
const INSIDE_VARIABLE: &str = "QUORATE_COMPARE_INSIDE";
/// Maximum number of members in a group, including the sender.
const MEMBERS_MAX: u32 = 32;
/// Allowed message sizes in bytes. The maximum is the largest message that Corosync accepts.
const MESSAGE_SIZES: RangeInclusive<usize> = 64..=512 << 10;
/// Folder in memory for all files of the systems.
const MEMORY_FOLDER: &str = "/dev/shm";

/// Options of `cargo xtask compare multicast`.
#[derive(Clone, Debug, PartialEq)]
struct MulticastOptions {
    receiver_counts: Vec<u32>,
    link_speeds: Vec<Lan>,
    message_sizes: Vec<usize>,
    /// Measured time of a turn.
    duration: Duration,
    repetition_count: usize,
    only: Vec<String>,
    /// Path of the report, without an extension.
    report_path: Option<PathBuf>,
    json: Option<JsonDestination>,
}

impl MulticastOptions {
    /// Returns the duration of the warm-up before the measurement. A Java program compiles itself
    /// during this time.
    fn warmup_duration(&self) -> Duration {
        (self.duration * 2).max(Duration::from_secs(3))
    }
}

pub(super) fn run(words: &[&str]) -> Result<(), Failed> {
    let wish = parse(words)?;
    let chosen = systems::choose_systems(&wish.only)?;
    let is_inside = namespace::is_inside(INSIDE_VARIABLE);
    if !is_inside {
        if let Some(why) = unavailable_reason() {
            return shell::report_skip("compare multicast", &why);
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
        return Err(namespace::reenter(INSIDE_VARIABLE).into());
    }
    prepare_namespace()?;
    let began = Instant::now();
    for speed in &wish.link_speeds {
        for receivers in &wish.receiver_counts {
            let _segment = Segment::create(*speed, receivers + 1)?;
            for bytes in &wish.message_sizes {
                let cell = MulticastCell {
                    link_megabits: speed.link_megabits(),
                    receiver_count: *receivers,
                    bytes: *bytes,
                };
                measure_cell(&wish, *speed, cell, &usable, &mut results);
            }
        }
    }
    results.seconds = began.elapsed().as_secs_f64();
    report::write_report(&wish, &usable, &results)
}

/// Measures all rounds of one cell.
fn measure_cell(
    wish: &MulticastOptions,
    speed: Lan,
    cell: MulticastCell,
    systems: &[System],
    results: &mut Results,
) {
    for round in 0..wish.repetition_count {
        let mut order = systems.to_vec();
        // Vary the order, so that no system always follows the same other system.
        order.rotate_left(round * 2 % systems.len().max(1));
        for system in order {
            eprintln!(
                "{speed_name}, {receivers} receivers, {bytes} bytes, round {round} of {all}: {name}",
                speed_name = speed.name(),
                receivers = cell.receiver_count,
                bytes = cell.bytes,
                round = round + 1,
                all = wish.repetition_count,
                name = system.name(),
            );
            let before = dropped_packets();
            let outcome = match system {
                System::Quorate => quorate::run_turn(wish, speed, cell),
                other => members::run_turn(wish, other, cell),
            };
            let outcome = outcome.map_err(|Failed(why)| why).map(|measured| MeasuredTurn {
                dropped_packets: dropped_packets() - before,
                ..measured
            });
            match &outcome {
                Ok(measured) => eprintln!("  {measured}"),
                Err(why) => eprintln!("  {why}"),
            }
            results.turns.push(MulticastTurn { system, cell, round, outcome });
        }
    }
}

/// Returns the packets dropped by processor queues since the machine started. A software switch
/// forwards a packet to many receivers at once, and they share `net.core.netdev_max_backlog`.
fn dropped_packets() -> f64 {
    parse_dropped(&fs::read_to_string("/proc/net/softnet_stat").unwrap_or_default())
}

/// Sums the second column of each processor's line, in hexadecimal.
#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn parse_dropped(text: &str) -> f64 {
    let counts = text.lines().filter_map(|line| {
        let count = line.split_whitespace().nth(1)?;
        u64::from_str_radix(count, 16).ok()
    });
    counts.sum::<u64>() as f64
}

/// Returns why nothing can be measured on this machine; `None` if measuring is possible.
fn unavailable_reason() -> Option<String> {
    for program in ["tc", "setpriv"] {
        if !run::is_installed(program) {
            return Some(format!("there is no `{program}` (Debian: iproute2, util-linux)"));
        }
    }
    let trial = "ip netns add x && ip link add switch type bridge && ip link add v1 type veth peer name eth0 netns x && \
                 tc qdisc add dev v1 root tbf rate 1gbit burst 128k limit 1m && nsenter --net=/run/netns/x true";
    let why = namespace::check_support(trial)?;
    Some(format!("network namespaces with shaped links cannot be made here: {why} (needs root)"))
}

/// Sets up the namespace, once.
fn prepare_namespace() -> Result<(), Failed> {
    namespace::mount_private()?;
    // For Corosync's clients, Aeron's logs, and all other files.
    run::read_output(Command::new("mount").args(["-t", "tmpfs", "tmpfs", MEMORY_FOLDER]))?;
    Ok(())
}

/// A segment and the namespaces of its members, removed when dropped.
struct Segment {
    node_count: u32,
}

impl Segment {
    fn create(speed: Lan, nodes: u32) -> Result<Self, Failed> {
        let segment = Self { node_count: nodes };
        for node in 1..=nodes {
            run_ip(&format!("netns add n{node}"))?;
            run_ip(&format!("-n n{node} link set lo up"))?;
        }
        segment::set_up_switch(speed, nodes, address)?;
        for node in 1..=nodes {
            run_ip(&format!("-n n{node} route add 224.0.0.0/4 dev {PEERS_INTERFACE}"))?;
        }
        Ok(segment)
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        segment::clear(self.node_count);
    }
}

/// Returns the address of a member in its segment.
fn address(node: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(NETWORK_ADDRESS.to_bits() + node)
}

const NETWORK_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 213, 79, 0);

fn create_memory_folder() -> Result<tempfile::TempDir, Failed> {
    fs::create_dir_all(MEMORY_FOLDER)?;
    Ok(tempfile::Builder::new().prefix("quorate-compare-").tempdir_in(MEMORY_FOLDER)?)
}

fn parse(words: &[&str]) -> Result<MulticastOptions, Failed> {
    let speed =
        |name: &str| Lan::parse_speed(name).ok_or_else(|| Failed(format!("{name}: {USAGE}")));
    let mut wish = MulticastOptions {
        receiver_counts: vec![2, 4, 14, 25],
        link_speeds: vec![speed("100mbit")?, speed("1gbit")?],
        message_sizes: vec![8192, 1024],
        duration: Duration::from_secs(3),
        repetition_count: 5,
        only: Vec::new(),
        report_path: None,
        json: None,
    };
    let bad = |what: &str| Failed(format!("{what}: {USAGE}"));
    let mut words = words.iter().peekable();
    while let Some(word) = words.next() {
        let mut value = || words.next().copied().ok_or_else(|| bad(word));
        match *word {
            "--quick" => {
                wish.receiver_counts = vec![2, 4];
                wish.link_speeds = vec![speed("1gbit")?];
                wish.message_sizes = vec![8192];
                wish.duration = Duration::from_millis(1500);
                wish.repetition_count = 1;
            }
            "--receivers" => {
                let text = value()?;
                let number =
                    |text: &str| text.parse().ok().filter(|n| (1..MEMBERS_MAX).contains(n));
                let numbers: Option<Vec<u32>> = text.split(',').map(number).collect();
                wish.receiver_counts = numbers.ok_or_else(|| bad(text))?;
            }
            "--speed" => {
                wish.link_speeds = value()?.split(',').map(speed).collect::<Result<_, _>>()?
            }
            "--size" => {
                let text = value()?;
                let size = |text: &str| text.parse().ok().filter(|n| MESSAGE_SIZES.contains(n));
                let sizes: Option<Vec<usize>> = text.split(',').map(size).collect();
                wish.message_sizes = sizes.ok_or_else(|| bad(text))?;
            }
            "--duration" => {
                let text = value()?;
                let time = parse_duration(text).filter(|time| time.as_secs() < 60);
                wish.duration = time.ok_or_else(|| bad(text))?;
            }
            "--repeat" => {
                let text = value()?;
                let number = text.parse().ok().filter(|n| (1..=100).contains(n));
                wish.repetition_count = number.ok_or_else(|| bad(text))?;
            }
            "--only" => wish.only = value()?.split(',').map(str::to_owned).collect(),
            "--out" => wish.report_path = Some(PathBuf::from(value()?)),
            "--json" => {
                let file = words.next_if(|word| !word.starts_with("--"));
                wish.json =
                    Some(file.map_or(JsonDestination::Printed, |file| {
                        JsonDestination::File(file.into())
                    }));
            }
            other => return Err(bad(other)),
        }
    }
    Ok(wish)
}

/// Returns the folder of the built programs.
fn built_folder(folder: &str) -> Result<PathBuf, Failed> {
    let place = shell::build_folder().join("compare").join("multicast");
    Ok(std::path::absolute(place.join(folder))?)
}

/// Groups values by key, in the order of their arrival.
fn group_by_key<K: Ord, V>(all: impl Iterator<Item = (K, V)>) -> BTreeMap<K, Vec<V>> {
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
        assert_eq!(wish.receiver_counts, [1, 25]);
        let speeds: Vec<u64> = wish.link_speeds.iter().map(Lan::link_megabits).collect();
        assert_eq!(speeds, [100, 10_000]);
        assert_eq!(wish.warmup_duration(), Duration::from_secs(3));
        assert_eq!(wish.only, ["corosync"]);
        assert_eq!((wish.message_sizes, wish.repetition_count), (vec![200, 8192], 1));
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
        assert!((parse_dropped(text) - 26.0).abs() < 1e-9);
        assert!(parse_dropped("what").abs() < 1e-9);
    }

    #[test]
    fn members_have_addresses_of_one_network() {
        assert_eq!(address(1).to_string(), "10.213.79.1");
        assert_eq!(address(26).to_string(), "10.213.79.26");
    }
}
