//! Real processes under faults: clients record their operations, and a checker judges the history.

pub(crate) mod check;
mod failover;
mod frames;
mod kills;
mod pressure;
mod queues;
mod replace;
pub(crate) mod round;
mod snapshots;
mod stale;
mod streams;

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use quorate_testbed::{
    interrupt,
    network::{self, Network},
    trial::faults::{FaultPlan, FaultStep},
};

use crate::shell::{self, Failed, report_skip};
use check::Checker;
use round::{RoundEnvironment, RoundSetting, RoundTotals};

const USAGE: &str = "cluster [ROUNDS] [--seed N] [--only FAULT[+FAULT]] | cluster short | cluster failover | cluster pressure | cluster snapshots | cluster replace | cluster queues [KILLS] [--seed N] | cluster streams [ROUNDS] [--seed N] | cluster streams kills [KILLS] [--seed N] | cluster devices [ROUNDS] [--seed N] [--only FAULT[+FAULT]] [--device NAME] | cluster frames [ROUNDS] [--seed N] [--device NAME] | cluster planes [ROUNDS] [--seed N] [--only FAULT[+FAULT]] [--plane NAME]";
/// Number of nodes in a cluster under test.
const NODES: u32 = 3;

/// Options of `cargo xtask cluster`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ClusterOptions {
    rounds: u64,
    seed: Option<u64>,
    only_fault: Option<FaultStep>,
    /// Restricts [`TaskPart::Planes`] to clusters of this plane.
    plane: Option<&'static str>,
    /// Restricts [`TaskPart::Devices`] and [`TaskPart::Frames`] to clusters with this kind of
    /// device.
    device: Option<&'static str>,
    /// Part to run; `None` runs a selection of parts, with all settings of rounds.
    part: Option<TaskPart>,
}

/// Parts of the task. Without the checker or network namespaces, a part runs without the checks
/// that need them, or is skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TaskPart {
    Short,
    Failover,
    Pressure,
    Snapshots,
    Replace,
    /// Lists used as queues while nodes are killed. `rounds` is the number of kills.
    Queues,
    Streams,
    /// Kills of every role in a group with streams.
    StreamKills,
    /// All rounds on packet planes.
    Planes,
    /// All rounds with phase 2 in devices. Needs network namespaces.
    Devices,
    /// Clients that send frames to devices. Needs network namespaces.
    Frames,
}

/// Default number of rounds of [`TaskPart::Streams`], and of kills of each role.
const STREAM_ROUNDS: u64 = 100;

/// Runs `cargo xtask cluster`.
pub(crate) fn run(words: &[&str]) -> Result<(), Failed> {
    let wish = parse(words)?;
    if !network::is_inside() {
        shell::build_programs()?;
        if matches!(
            wish.part,
            None | Some(
                TaskPart::Short | TaskPart::Pressure | TaskPart::Planes | TaskPart::Devices
            )
        ) {
            Checker::build()?;
        }
        if matches!(
            wish.part,
            None | Some(
                TaskPart::Short
                    | TaskPart::Streams
                    | TaskPart::Planes
                    | TaskPart::Devices
                    | TaskPart::Frames
            )
        ) {
            match network::check_support() {
                None => return Err(network::reenter().into()),
                Some(why) => report_skip("partitions in network namespaces", &why)?,
            }
        }
    }
    interrupt::clean_up_on_signals()?;
    // A process has one network, with a place for each node of the largest cluster.
    let places = match wish.part {
        Some(TaskPart::Planes) => RoundSetting::nodes_max(&RoundSetting::ALL_PACKETS),
        Some(TaskPart::Devices) => RoundSetting::nodes_max(&RoundSetting::ALL_DEVICES),
        _ => NODES,
    };
    let network = network::is_inside().then(|| Network::new(places)).transpose()?;
    let network = network.as_ref();
    match wish.part {
        Some(TaskPart::Short) => {
            run_rounds(network, wish, &RoundSetting::SHORT)?;
            pressure::run(pressure::SHORT_SIZE, Checker::find_built().as_ref())?;
            queues::run_store("lsm", queues::SHORT_KILL_COUNT, wish.seed.unwrap_or(1))?;
            failover::run()
        }
        Some(TaskPart::Failover) => failover::run(),
        Some(TaskPart::Pressure) => {
            pressure::run(pressure::FULL_SIZE, Checker::find_built().as_ref())
        }
        Some(TaskPart::Snapshots) => snapshots::run(),
        Some(TaskPart::Replace) => replace::run(),
        Some(TaskPart::Queues) => queues::run(wish.rounds, wish.seed),
        Some(TaskPart::Streams) => streams::run(network, wish.rounds, wish.seed),
        Some(TaskPart::StreamKills) => kills::run(wish.rounds, wish.seed),
        Some(TaskPart::Planes) => run_rounds(network, wish, &RoundSetting::ALL_PACKETS),
        Some(TaskPart::Devices | TaskPart::Frames) if network.is_none() => {
            report_skip("devices", "they are at interfaces of networks of their own")
        }
        Some(TaskPart::Devices) => {
            run_rounds(network, wish, &RoundSetting::ALL_DEVICES)?;
            match wish.only_fault.is_none() && wish.device.is_none() {
                true => run_frame_clients(network, ClusterOptions { rounds: 1, ..wish }),
                false => Ok(()),
            }
        }
        Some(TaskPart::Frames) => run_frame_clients(network, wish),
        None => {
            run_rounds(network, wish, &RoundSetting::ALL)?;
            if wish.only_fault.is_none() {
                snapshots::run()?;
                replace::run()?;
                queues::run(queues::SHORT_KILL_COUNT, wish.seed)?;
                streams::run(network, 1, wish.seed)?;
            }
            failover::run()
        }
    }
}

fn parse(words: &[&str]) -> Result<ClusterOptions, Failed> {
    let (part, words) = match words {
        ["short"] => (Some(TaskPart::Short), &[][..]),
        ["failover"] => (Some(TaskPart::Failover), &[][..]),
        ["pressure"] => (Some(TaskPart::Pressure), &[][..]),
        ["snapshots"] => (Some(TaskPart::Snapshots), &[][..]),
        ["replace"] => (Some(TaskPart::Replace), &[][..]),
        ["queues", rest @ ..] => (Some(TaskPart::Queues), rest),
        ["streams", "kills", rest @ ..] => (Some(TaskPart::StreamKills), rest),
        ["streams", rest @ ..] => (Some(TaskPart::Streams), rest),
        ["planes", rest @ ..] => (Some(TaskPart::Planes), rest),
        ["devices", rest @ ..] => (Some(TaskPart::Devices), rest),
        ["frames", rest @ ..] => (Some(TaskPart::Frames), rest),
        words => (None, words),
    };
    let mut wish = ClusterOptions {
        rounds: match part {
            Some(TaskPart::Streams | TaskPart::StreamKills) => STREAM_ROUNDS,
            Some(TaskPart::Queues) => queues::KILL_COUNT,
            _ => 3,
        },
        seed: None,
        only_fault: None,
        plane: None,
        device: None,
        part,
    };
    let number = |word: &str| {
        let parsed = word.parse::<u64>();
        parsed.map_err(|_| Failed(format!("{word}: not a number; {USAGE}")))
    };
    let mut rest = words;
    while let [word, more @ ..] = rest {
        rest = match (*word, more) {
            ("--seed", [seed, more @ ..]) => {
                wish.seed = Some(number(seed)?);
                more
            }
            ("--only", [step, more @ ..])
                if matches!(part, None | Some(TaskPart::Planes | TaskPart::Devices)) =>
            {
                wish.only_fault = Some(step.parse()?);
                more
            }
            ("--plane", [name, more @ ..]) if part == Some(TaskPart::Planes) => {
                let mut planes = RoundSetting::ALL_PACKETS.iter().map(|setting| setting.plane);
                let plane = planes.find(|plane| plane == name);
                let known = || Failed(format!("{name}: not a plane; {USAGE}"));
                wish.plane = Some(plane.ok_or_else(known)?);
                more
            }
            ("--device", [name, more @ ..]) if part == Some(TaskPart::Devices) => {
                let mut devices = RoundSetting::ALL_DEVICES.iter().map(|setting| setting.device);
                let device = devices.find(|device| device == name);
                let known = || Failed(format!("{name}: not a device; {USAGE}"));
                wish.device = Some(device.ok_or_else(known)?);
                more
            }
            ("--device", [name, more @ ..]) if part == Some(TaskPart::Frames) => {
                let device = frames::FRAME_DEVICES.into_iter().find(|device| device == name);
                let known = || Failed(format!("{name}: hears no raw frames; {USAGE}"));
                wish.device = Some(device.ok_or_else(known)?);
                more
            }
            (rounds, more) => {
                wish.rounds = number(rounds)?;
                more
            }
        };
    }
    Ok(wish)
}

fn run_frame_clients(network: Option<&Network>, wish: ClusterOptions) -> Result<(), Failed> {
    let network = network.ok_or_else(|| Failed("there is no network".to_owned()))?;
    frames::run(network, wish.rounds, wish.device, first_seed(wish))
}

/// Returns the requested seed, or one derived from the time.
fn first_seed(wish: ClusterOptions) -> u64 {
    wish.seed.unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        now.as_secs() % 1_000_000
    })
}

fn run_rounds(
    network: Option<&Network>,
    wish: ClusterOptions,
    settings: &[RoundSetting],
) -> Result<(), Failed> {
    let checker = Checker::find_built();
    let stage = RoundEnvironment { network, checker: checker.as_ref() };
    let first = first_seed(wish);
    if let (Some(network), Some(checker)) = (network, &checker) {
        stale::run(network, checker)?;
    }
    let begin = Instant::now();
    let mut sums = RoundTotals::default();
    for round in 0..wish.rounds {
        let seed = first + round;
        println!("round {} of {}, seed {seed}", round + 1, wish.rounds);
        // Clusters of one class share a plan, so that the next cluster of the round does not repeat
        // a fault.
        let mut plans = [true, false].map(|durable| {
            FaultPlan::new(durable, network.is_some(), seed).only_step(wish.only_fault)
        });
        let kills = wish.only_fault.is_some_and(|step| !step.keeps_memory());
        for setting in settings.iter().copied() {
            let other = wish.plane.is_some_and(|plane| plane != setting.plane)
                || wish.device.is_some_and(|device| device != setting.device);
            if other || kills && !setting.is_durable() {
                continue;
            }
            let plan = &mut plans[usize::from(!setting.is_durable())];
            plan.add_interface_faults(setting.device != "off");
            plan.add_device_faults(setting.device == "p4");
            let history = stage.run(setting, plan, seed, &mut sums)?;
            if let (Some(checker), 0, true) = (&checker, round, setting.is_durable()) {
                checker.check_rejects_falsified(&history)?;
            }
        }
    }
    println!(
        "{} rounds in {:.0} s: {} faults, {} operations ({} without a known outcome), {} refused, {} inserts; \
         served again at most {} ms after a fault; \
         {} histories found linearizable",
        wish.rounds,
        begin.elapsed().as_secs_f64(),
        sums.faults,
        sums.operations,
        sums.unknown,
        sums.refused,
        sums.inserts,
        sums.longest_recovery.as_millis(),
        sums.checked_histories
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_parsed() {
        let all = |rounds, seed| ClusterOptions {
            rounds,
            seed,
            only_fault: None,
            plane: None,
            device: None,
            part: None,
        };
        assert_eq!(parse(&[]).unwrap(), all(3, None));
        assert_eq!(parse(&["1"]).unwrap(), all(1, None));
        assert_eq!(parse(&["2", "--seed", "7"]).unwrap(), all(2, Some(7)));
        assert_eq!(parse(&["--seed", "7"]).unwrap(), all(3, Some(7)));
        let only = parse(&["--only", "OneLink+KillAll", "5"]).unwrap();
        assert_eq!((only.rounds, only.only_fault.is_some()), (5, true));
        let part = |name| parse(&[name]).unwrap().part;
        assert_eq!(part("failover"), Some(TaskPart::Failover));
        assert_eq!(part("snapshots"), Some(TaskPart::Snapshots));
        assert_eq!(part("pressure"), Some(TaskPart::Pressure));
        assert_eq!(part("replace"), Some(TaskPart::Replace));
        let streams = |words: &[&str]| {
            let wish = parse(words).unwrap();
            assert_eq!(wish.part, Some(TaskPart::Streams));
            (wish.rounds, wish.seed)
        };
        assert_eq!(streams(&["streams"]), (STREAM_ROUNDS, None));
        assert_eq!(streams(&["streams", "1", "--seed", "7"]), (1, Some(7)));
        let kills = parse(&["streams", "kills", "7"]).unwrap();
        assert_eq!((kills.part, kills.rounds), (Some(TaskPart::StreamKills), 7));
        let planes = parse(&["planes", "2"]).unwrap();
        assert_eq!((planes.part, planes.rounds), (Some(TaskPart::Planes), 2));
        let devices = parse(&["devices", "1", "--only", "UnplugLeader"]).unwrap();
        assert_eq!((devices.part, devices.rounds), (Some(TaskPart::Devices), 1));
        let packet = parse(&["devices", "--device", "packet"]).unwrap();
        assert_eq!(packet.device, Some("packet"));
        assert!(parse(&["devices", "--device", "x"]).is_err());
        let frames = parse(&["frames", "2", "--device", "packet"]).unwrap();
        assert_eq!((frames.part, frames.device), (Some(TaskPart::Frames), Some("packet")));
        assert!(parse(&["frames", "--device", "udp"]).is_err());
        assert!(parse(&["--device", "packet"]).is_err());
        let chain = parse(&["planes", "--plane", "chain", "--only", "DownLeader"]).unwrap();
        assert_eq!((chain.plane, chain.only_fault.is_some()), (Some("chain"), true));
        assert!(parse(&["planes", "--plane", "x"]).is_err());
        assert!(parse(&["--plane", "chain"]).is_err());
        assert!(parse(&["streams", "--only", "KillAll"]).is_err());
        assert!(parse(&["x"]).is_err());
        assert!(parse(&["--seed"]).is_err());
        assert!(parse(&["--only", "x"]).is_err());
    }
}
