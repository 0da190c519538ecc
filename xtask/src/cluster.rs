//! Real processes under faults: clients record what they saw, and a checker judges it.

mod check;
mod failover;
mod replace;
mod round;
mod snapshots;
mod stale;
mod streams;

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use quorate_testbed::{
    interrupt,
    network::{self, Network},
    trial::faults::{Plan, Step},
};

use crate::shell::{self, Failed, skip};
use check::Checker;
use round::{Setting, Stage, Sums};

const USAGE: &str = "cluster [ROUNDS] [--seed N] [--only FAULT[+FAULT]] | cluster failover | cluster snapshots | cluster replace | cluster streams [ROUNDS] [--seed N] | cluster planes [ROUNDS] [--seed N]";
/// Nodes of a cluster under test.
const NODES: u32 = 3;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wish {
    rounds: u64,
    seed: Option<u64>,
    only: Option<Step>,
    /// One part, instead of everything.
    part: Option<Part>,
}

/// What needs no checker, and no network of its own, except for the last two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Failover,
    Snapshots,
    Replace,
    Streams,
    /// All rounds on planes of packets; it needs both.
    Planes,
}

/// Rounds of [`Part::Streams`], if nobody says how many.
const STREAM_ROUNDS: u64 = 100;

/// Runs the task.
pub(crate) fn run(words: &[&str]) -> Result<(), Failed> {
    let wish = parse(words)?;
    if !network::is_inside() {
        shell::cargo(&["build", "--release", "--quiet", "--package", "quorate-cli"])?;
        if matches!(wish.part, None | Some(Part::Planes)) {
            Checker::build()?;
        }
        if matches!(wish.part, None | Some(Part::Streams | Part::Planes)) {
            match network::missing() {
                None => return Err(network::enter().into()),
                Some(why) => skip("partitions in network namespaces", &why)?,
            }
        }
    }
    interrupt::clean_up_on_signals()?;
    // There is one in a process: every part that wants partitions has it.
    let network = network::is_inside()
        .then(|| Network::new(NODES))
        .transpose()?;
    let network = network.as_ref();
    match wish.part {
        Some(Part::Failover) => failover::run(),
        Some(Part::Snapshots) => snapshots::run(),
        Some(Part::Replace) => replace::run(),
        Some(Part::Streams) => streams::run(network, wish.rounds, wish.seed),
        Some(Part::Planes) => rounds(network, wish, Setting::OF_PACKETS),
        None => {
            rounds(network, wish, Setting::ALL)?;
            if wish.only.is_none() {
                snapshots::run()?;
                replace::run()?;
                streams::run(network, 1, wish.seed)?;
            }
            failover::run()
        }
    }
}

fn parse(words: &[&str]) -> Result<Wish, Failed> {
    let (part, words) = match words {
        ["failover"] => (Some(Part::Failover), &[][..]),
        ["snapshots"] => (Some(Part::Snapshots), &[][..]),
        ["replace"] => (Some(Part::Replace), &[][..]),
        ["streams", rest @ ..] => (Some(Part::Streams), rest),
        ["planes", rest @ ..] => (Some(Part::Planes), rest),
        words => (None, words),
    };
    let mut wish = Wish {
        rounds: match part {
            Some(Part::Streams) => STREAM_ROUNDS,
            _ => 3,
        },
        seed: None,
        only: None,
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
            ("--only", [step, more @ ..]) if part.is_none() => {
                wish.only = Some(step.parse()?);
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

fn rounds(network: Option<&Network>, wish: Wish, settings: [Setting; 4]) -> Result<(), Failed> {
    let checker = Checker::find();
    let stage = Stage {
        network,
        checker: checker.as_ref(),
    };
    let first = wish.seed.unwrap_or_else(|| {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        now.as_secs() % 1_000_000
    });
    if let (Some(network), Some(checker)) = (network, &checker) {
        stale::run(network, checker)?;
    }
    let begin = Instant::now();
    let mut sums = Sums::default();
    for round in 0..wish.rounds {
        let seed = first + round;
        println!("round {} of {}, seed {seed}", round + 1, wish.rounds);
        // What a durable cluster went through is not repeated by the next one of the round.
        let mut plans = [true, false]
            .map(|durable| Plan::new(durable, network.is_some(), seed).only(wish.only));
        let kills = wish.only.is_some_and(|step| !step.spares_memory());
        for setting in settings {
            if kills && !setting.is_durable() {
                continue;
            }
            let plan = &mut plans[usize::from(!setting.is_durable())];
            let history = stage.run(setting, plan, seed, &mut sums)?;
            if let (Some(checker), 0, true) = (&checker, round, setting.is_durable()) {
                checker.refuses_lies(&history)?;
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
        sums.recovery.as_millis(),
        sums.judged
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_are_understood() {
        let all = |rounds, seed| Wish {
            rounds,
            seed,
            only: None,
            part: None,
        };
        assert_eq!(parse(&[]).unwrap(), all(3, None));
        assert_eq!(parse(&["1"]).unwrap(), all(1, None));
        assert_eq!(parse(&["2", "--seed", "7"]).unwrap(), all(2, Some(7)));
        assert_eq!(parse(&["--seed", "7"]).unwrap(), all(3, Some(7)));
        let only = parse(&["--only", "OneLink+KillAll", "5"]).unwrap();
        assert_eq!((only.rounds, only.only.is_some()), (5, true));
        let part = |name| parse(&[name]).unwrap().part;
        assert_eq!(part("failover"), Some(Part::Failover));
        assert_eq!(part("snapshots"), Some(Part::Snapshots));
        assert_eq!(part("replace"), Some(Part::Replace));
        let streams = |words: &[&str]| {
            let wish = parse(words).unwrap();
            assert_eq!(wish.part, Some(Part::Streams));
            (wish.rounds, wish.seed)
        };
        assert_eq!(streams(&["streams"]), (STREAM_ROUNDS, None));
        assert_eq!(streams(&["streams", "1", "--seed", "7"]), (1, Some(7)));
        let planes = parse(&["planes", "2"]).unwrap();
        assert_eq!((planes.part, planes.rounds), (Some(Part::Planes), 2));
        assert!(parse(&["streams", "--only", "KillAll"]).is_err());
        assert!(parse(&["x"]).is_err());
        assert!(parse(&["--seed"]).is_err());
        assert!(parse(&["--only", "x"]).is_err());
    }
}
