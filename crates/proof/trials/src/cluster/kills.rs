//! Byte streams while nodes of every role are killed many times: the leader, which owns most
//! segments, the follower, and the auxiliary. Writers with the addresses of both full nodes see
//! only a pause. Writers with only the killed node's address continue after its restart. At the
//! end, every stream must be equal on both full nodes.

use std::{
    fmt,
    time::{Duration, Instant},
};

use quorate_testbed::{
    nodes::Nodes,
    stream_load::{Load, compare, save},
};

use super::{NODES, check::create_evidence_folder, streams};
use crate::{nodes, shell::Failed};

/// Flags that each node is started with; the last node is an auxiliary.
const FLAGS: [&str; 4] = ["--client-timeout-ms", "1000", "--auxiliary", "3"];
const AUXILIARY: u32 = NODES;
/// Size of each write, in bytes.
const SLOWLY: u64 = 8 << 10;

/// Role of the node to kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Leader,
    Follower,
    Auxiliary,
}

impl Role {
    const ALL: [Self; 3] = [Self::Leader, Self::Follower, Self::Auxiliary];

    fn node(self, leader: u32) -> u32 {
        match self {
            Self::Leader => leader,
            Self::Follower => (1..AUXILIARY).find(|id| *id != leader).unwrap_or(leader),
            Self::Auxiliary => AUXILIARY,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Leader => "leader",
            Self::Follower => "follower",
            Self::Auxiliary => "auxiliary",
        })
    }
}

/// Delays of writers caused by kills of one role.
#[derive(Clone, Copy, Debug, Default)]
struct Waits {
    kills: u64,
    sum: Duration,
    longest: Duration,
}

/// Kills each role `kills` times.
pub(super) fn run(kills: u64, seed: Option<u64>) -> Result<(), Failed> {
    let seed = seed.unwrap_or(1);
    // An auxiliary serves no clients, and so is never ready.
    let mut nodes = nodes::started(NODES, &nodes::small_logs(&FLAGS))?;
    nodes.agreed_leader()?;
    let full: Vec<String> =
        nodes.stream_addresses().into_iter().take(AUXILIARY as usize - 1).collect();
    let mut load = Load::start(&full, true, SLOWLY, seed)?;
    let lanes = load.lanes();
    let played = kill_under_load(kills, &full, &mut nodes, &mut load).and_then(|waits| {
        load.finish()?;
        let sum = compare(&lanes, &full)?;
        streams::end(&mut nodes)?;
        Ok((waits, sum))
    });
    let (waits, sum) = match played {
        Ok(done) => done,
        Err(Failed(why)) => {
            let place = create_evidence_folder(&format!("streams-kills-{seed}"))?;
            save(&lanes, &place)?;
            let folders = nodes.keep_for_inspection(&place.join("nodes"));
            let folders = folders.display();
            return Err(Failed(format!(
                "seed {seed}: {why}\n  the nodes' folders are in {folders}"
            )));
        }
    };
    for (role, waits) in Role::ALL.into_iter().zip(waits) {
        let mean = waits.sum / u32::try_from(waits.kills.max(1)).unwrap_or(u32::MAX);
        println!(
            "- {role}: {} kills; all streams went on after {} ms on average, {} ms at most",
            waits.kills,
            mean.as_millis(),
            waits.longest.as_millis()
        );
    }
    println!("- {}", streams::format_sum(sum));
    Ok(())
}

/// Kills nodes under load. `full` are the stream addresses of nodes 1, 2 ….
fn kill_under_load(
    kills: u64,
    full: &[String],
    nodes: &mut Nodes,
    load: &mut Load,
) -> Result<[Waits; 3], Failed> {
    let mut waits = [Waits::default(); 3];
    for number in 1..=kills {
        for (role, waits) in Role::ALL.into_iter().zip(&mut waits) {
            load.wait_going_on()?;
            let id = role.node(nodes.agreed_leader()?);
            nodes.kill(&[id])?;
            let killed = Instant::now();
            let down = full.get(id as usize - 1);
            let went_on = load.wait_going_on_without(down.map_or(&[], std::slice::from_ref));
            went_on
                .map_err(|why| Failed(format!("kill {number} of the {role}, node {id}: {why}")))?;
            let waited = killed.elapsed();
            waits.kills += 1;
            waits.sum += waited;
            waits.longest = waits.longest.max(waited);
            nodes.restart(&[id])?;
        }
        if number.is_multiple_of(10) {
            println!("  {number} of {kills} kills of each role, {} MiB", load.durable() >> 20);
        }
    }
    Ok(waits)
}
