//! Timeline of a command: the trace points of many commands, overlaid, with one command in flight
//! at a time.
//!
//! Client and nodes share the clock of one machine. A stamp belongs to a command if it names the
//! command's slot. A stamp without a slot belongs to it if the same thread recorded it in the same
//! turn while the client waited, such as the read before the vote for the slot or the send after
//! it. Turns without work for the command, such as those for late votes, are left out.

use std::collections::BTreeMap;

use quorate_replica::hops::{Hop, Stamp};
use serde::Serialize;

use crate::{figure::round_to_four_digits, samples::Latencies, schedule::Nanos};

/// Times and slot of a command as observed by its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracedCommand {
    /// Time just before the call that sent the command.
    pub sent_ns: u64,
    /// Time just after the call that received the reply.
    pub replied_ns: u64,
    pub slot: u64,
}

/// Hops of the commands in one kind of cluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CommandTimeline {
    pub durability: String,
    /// Plane and device of the nodes; `None` for the default.
    pub plane: Option<String>,
    pub value_bytes: usize,
    pub commands: usize,
    /// Median latency from the send to the reply.
    pub p50_us: f64,
    /// 99th percentile of the latency from the send to the reply.
    pub p99_us: f64,
    /// Latency of the example command, the one closest to the median.
    pub typical_us: f64,
    /// One lane for the client, the leader and each follower.
    pub lanes: Vec<TimelineLane>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TimelineLane {
    pub name: String,
    /// Hops in the order of their median times.
    pub hops: Vec<ReachedHop>,
}

/// Times at which commands reached a hop, in microseconds since the client sent them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReachedHop {
    pub hop: &'static str,
    /// Median over all commands.
    pub p50_us: f64,
    /// 99th percentile over all commands.
    pub p99_us: f64,
    pub typical_us: f64,
    /// Share of the commands that reached the hop, 0 to 1.
    pub share: f64,
}

/// Name of the client's hop at which the request is sent.
const SENT_HOP: &str = "sent";
const REPLIED_HOP: &str = "replied";

/// Index of the lane, the command's first hop in the turn, and the hop itself. The first hop
/// distinguishes repeated hops that do not name a slot.
type HopKey = (usize, Hop, Hop);

/// Aligns the stamps of the nodes (leader first) with the commands. Returns `None` if no command
/// was seen by all nodes.
pub fn command_timeline(
    commands: &[TracedCommand],
    nodes: &[(String, Vec<Stamp>)],
) -> Option<CommandTimeline> {
    let found: Vec<(&TracedCommand, BTreeMap<HopKey, u64>)> = commands
        .iter()
        .map(|command| (command, hop_times(command, nodes)))
        .filter(|(_, hops)| (0..nodes.len()).all(|lane| hops.keys().any(|(of, ..)| *of == lane)))
        .collect();
    let mut all: BTreeMap<HopKey, Latencies> = BTreeMap::new();
    let mut whole = Latencies::default();
    for (command, hops) in &found {
        whole.record(command.replied_ns - command.sent_ns);
        for (key, after) in hops {
            all.entry(*key).or_default().record(*after);
        }
    }
    // Drops hops that fewer than half of the commands reached.
    let usual = |latencies: &Latencies| latencies.count() as usize * 2 >= found.len();
    all.retain(|_, latencies| usual(latencies));
    let middle = whole.quantile_us(0.5);
    let off = |(command, _): &&(&TracedCommand, BTreeMap<HopKey, u64>)| {
        let took = (command.replied_ns - command.sent_ns) as f64 / 1e3;
        ((took - middle).abs() * 1e3) as u64
    };
    let complete = |(_, hops): &&(&TracedCommand, BTreeMap<HopKey, u64>)| {
        all.keys().all(|key| hops.contains_key(key))
    };
    let typical = found.iter().filter(complete).min_by_key(off);
    let (typical, example) = typical.or_else(|| found.iter().min_by_key(off))?;
    let typical_us = to_us(typical.replied_ns - typical.sent_ns);
    let ends = |hop, p50_us, p99_us, typical_us| ReachedHop {
        hop,
        p50_us,
        p99_us,
        typical_us,
        share: 1.0,
    };
    let (p50_us, p99_us) =
        (round_to_four_digits(middle), round_to_four_digits(whole.quantile_us(0.99)));
    let mut lanes = vec![TimelineLane {
        name: "client".to_owned(),
        hops: vec![ends(SENT_HOP, 0.0, 0.0, 0.0), ends(REPLIED_HOP, p50_us, p99_us, typical_us)],
    }];
    for (lane, (name, _)) in nodes.iter().enumerate() {
        let of = all.iter().filter(|((of, ..), _)| *of == lane);
        let mut hops: Vec<ReachedHop> = of
            .map(|(key, latencies)| ReachedHop {
                hop: key.2.name(),
                p50_us: round_to_four_digits(latencies.quantile_us(0.5)),
                p99_us: round_to_four_digits(latencies.quantile_us(0.99)),
                typical_us: example.get(key).map_or(f64::NAN, |after| to_us(*after)),
                share: round_to_four_digits(latencies.count() as f64 / found.len() as f64),
            })
            .collect();
        hops.sort_by(|one, other| one.p50_us.total_cmp(&other.p50_us));
        lanes.push(TimelineLane { name: name.clone(), hops });
    }
    Some(CommandTimeline {
        durability: String::new(),
        plane: None,
        value_bytes: 0,
        commands: found.len(),
        p50_us,
        p99_us,
        typical_us,
        lanes,
    })
}

fn to_us(nanos: Nanos) -> f64 {
    round_to_four_digits(nanos as f64 / 1e3)
}

/// Returns the times at which a command reached each hop, in nanoseconds after it was sent.
fn hop_times(command: &TracedCommand, nodes: &[(String, Vec<Stamp>)]) -> BTreeMap<HopKey, u64> {
    let mut hops = BTreeMap::new();
    for (lane, (_, stamps)) in nodes.iter().enumerate() {
        let from = stamps.partition_point(|stamp| stamp.at_ns < command.sent_ns);
        let late = command.replied_ns + (command.replied_ns - command.sent_ns);
        let rest = &stamps[from..];
        let turns = rest.chunk_by(|_, next| next.hop != Hop::Wakeup);
        for turn in turns.take_while(|turn| turn[0].at_ns <= late) {
            let own = |stamp: &Stamp| stamp.slot.is_some_and(|slot| slot.0 == command.slot);
            let Some(first) = turn.iter().position(own) else {
                continue;
            };
            let anchor = turn[first].hop;
            for (at, stamp) in turn.iter().enumerate() {
                let after = stamp.at_ns - command.sent_ns;
                let waits = stamp.slot.is_none() && stamp.at_ns <= command.replied_ns;
                if own(stamp) {
                    hops.entry((lane, stamp.hop, stamp.hop)).or_insert(after);
                } else if waits && at < first {
                    // The last such hop before the command's own first hop is the one that led to
                    // it.
                    hops.insert((lane, anchor, stamp.hop), after);
                } else if waits && stamp.hop > Hop::Frame {
                    hops.entry((lane, anchor, stamp.hop)).or_insert(after);
                }
            }
        }
    }
    hops
}

#[cfg(test)]
mod tests {
    use quorate_core::slot::Slot;

    use super::*;

    fn stamps(text: &str) -> Vec<Stamp> {
        let parse = |part: &str| Stamp::parse(part.trim()).expect(part);
        text.split(',').map(parse).collect()
    }

    /// Returns commands that are sent every 100 µs and take 50 µs each.
    fn commands() -> Vec<TracedCommand> {
        let command = |slot| TracedCommand {
            sent_ns: slot * 100_000,
            replied_ns: slot * 100_000 + 50_000,
            slot,
        };
        (1..=9).map(command).collect()
    }

    fn moved(first: &str, slots: u64) -> Vec<Stamp> {
        let all = (1..=slots).flat_map(|slot| {
            stamps(first).into_iter().map(move |stamp| Stamp {
                at_ns: stamp.at_ns + slot * 100_000,
                // 0 denotes the slot of the current command, 1 the slot of the previous one.
                slot: stamp.slot.map(|back| Slot(slot - back.0)),
                ..stamp
            })
        });
        all.collect()
    }

    #[test]
    fn hops_are_stamps_of_the_turns_that_served_the_command() {
        let leader = "10000 woke -, 12000 command -, 13000 proposed 0, 14000 recorded 0, 15000 sending -, \
                      30000 woke -, 31000 frame -, 32000 decided 0, 33000 replying -, 40000 woke -, 41000 frame -";
        // The decision of the previous command arrives in a turn of its own and does not count for
        // the current command.
        let follower = "5000 woke -, 6000 frame -, 7000 decided 1, 20000 woke -, 21000 frame -, 22000 voted 0, \
                        23000 sending -, 60000 woke -, 61000 frame -, 62000 decided 0";
        let nodes =
            [("leader".to_owned(), moved(leader, 9)), ("follower".to_owned(), moved(follower, 9))];
        let life = command_timeline(&commands(), &nodes).unwrap();
        assert_eq!((life.commands, life.typical_us), (9, 50.0));
        let shown = |lane: usize| -> Vec<(&str, f64)> {
            let hops = life.lanes[lane].hops.iter();
            hops.map(|hop| (hop.hop, hop.typical_us)).collect()
        };
        assert_eq!(shown(0), [("sent", 0.0), ("replied", 50.0)]);
        let leads = [
            ("woke", 10.0),
            ("command", 12.0),
            ("proposed", 13.0),
            ("recorded", 14.0),
            ("sending", 15.0),
            ("woke", 30.0),
            ("frame", 31.0),
            ("decided", 32.0),
            ("replying", 33.0),
        ];
        assert_eq!(shown(1), leads, "and not the late vote");
        let follows = [
            ("woke", 20.0),
            ("frame", 21.0),
            ("voted", 22.0),
            ("sending", 23.0),
            ("decided", 62.0),
        ];
        assert_eq!(shown(2), follows);
    }

    #[test]
    fn only_the_end_of_its_own_write_is_a_hop() {
        let leader = "1000 woke -, 2000 written 1, 10000 woke -, 12000 recorded 0, 15000 writing 0, 30000 woke -, \
                      31000 written 0, 40000 woke -, 41000 decided 0";
        let life =
            command_timeline(&commands(), &[("leader".to_owned(), moved(leader, 9))]).unwrap();
        let hops: Vec<&str> = life.lanes[1].hops.iter().map(|hop| hop.hop).collect();
        let expected = ["woke", "recorded", "writing", "woke", "written", "woke", "decided"];
        assert_eq!(hops, expected);
    }

    #[test]
    fn rare_hops_are_omitted_and_missing_stamps_yield_none() {
        let often = moved("10000 woke -, 13000 proposed 0", 9);
        let rare = stamps("114000 writing 5, 115000 written 1");
        let mut all = often.clone();
        all.splice(2..2, rare);
        let seen = command_timeline(&commands(), &[("leader".to_owned(), all)]).unwrap();
        assert_eq!(seen.lanes[1].hops.len(), 2);
        let none = [("leader".to_owned(), often), ("node 2".to_owned(), Vec::new())];
        assert!(command_timeline(&commands(), &none).is_none());
        assert!(command_timeline(&[], &[]).is_none());
    }
}
