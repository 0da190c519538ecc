//! Byte streams while nodes of every role are killed many times: the leader, which owns most
//! segments, the follower, and the auxiliary. Writers with the addresses of both full nodes see
//! only a pause. Writers with only the killed node's address continue after its restart. At the
//! end, every stream must be equal on both full nodes.

use std::{
    fmt,
    time::{Duration, Instant},
};

use quorate_testbed::{
    nodes::NodeCluster,
    stream_load::{StreamLoad, compare_nodes, save_histories},
};

use super::{NODES, check::create_evidence_folder, streams};
use crate::{nodes, shell::Failed};

/// Flags that each node is started with; the last node is an auxiliary.
const NODE_FLAGS: [&str; 4] = ["--client-timeout-ms", "1000", "--auxiliary", "3"];
const AUXILIARY_NODE: u32 = NODES;
/// Size of each write, in bytes.
const WRITE_BYTES: u64 = 8 << 10;

/// Role of the node to kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VictimRole {
    Leader,
    Follower,
    Auxiliary,
}

impl VictimRole {
    const ALL: [Self; 3] = [Self::Leader, Self::Follower, Self::Auxiliary];

    fn pick_node(self, leader: u32) -> u32 {
        match self {
            Self::Leader => leader,
            Self::Follower => (1..AUXILIARY_NODE).find(|id| *id != leader).unwrap_or(leader),
            Self::Auxiliary => AUXILIARY_NODE,
        }
    }
}

impl fmt::Display for VictimRole {
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
struct WriterDelays {
    kill_count: u64,
    total_delay: Duration,
    longest_delay: Duration,
}

/// Kills each role `kills` times.
pub(super) fn run(kills: u64, seed: Option<u64>) -> Result<(), Failed> {
    let seed = seed.unwrap_or(1);
    // An auxiliary serves no clients, and so is never ready.
    let mut nodes = nodes::start_nodes(NODES, &nodes::small_log_flags(&NODE_FLAGS))?;
    nodes.agreed_leader()?;
    let full: Vec<String> =
        nodes.stream_addresses().into_iter().take(AUXILIARY_NODE as usize - 1).collect();
    let mut load = StreamLoad::start(&full, true, WRITE_BYTES, seed)?;
    let lanes = load.lanes();
    let played = kill_under_load(kills, &full, &mut nodes, &mut load).and_then(|waits| {
        load.finish()?;
        let sum = compare_nodes(&lanes, &full)?;
        streams::check_nodes_intact(&mut nodes)?;
        Ok((waits, sum))
    });
    let (waits, sum) = match played {
        Ok(done) => done,
        Err(Failed(why)) => {
            let place = create_evidence_folder(&format!("streams-kills-{seed}"))?;
            save_histories(&lanes, &place)?;
            let folders = nodes.keep_for_inspection(&place.join("nodes"));
            let folders = folders.display();
            return Err(Failed(format!(
                "seed {seed}: {why}\n  the nodes' folders are in {folders}"
            )));
        }
    };
    for (role, waits) in VictimRole::ALL.into_iter().zip(waits) {
        let mean = waits.total_delay / u32::try_from(waits.kill_count.max(1)).unwrap_or(u32::MAX);
        println!(
            "- {role}: {} kills; all streams went on after {} ms on average, {} ms at most",
            waits.kill_count,
            mean.as_millis(),
            waits.longest_delay.as_millis()
        );
    }
    println!("- {}", streams::format_sum(sum));
    Ok(())
}

/// Kills nodes under load. `full` are the stream addresses of nodes 1, 2 ….
fn kill_under_load(
    kills: u64,
    full: &[String],
    nodes: &mut NodeCluster,
    load: &mut StreamLoad,
) -> Result<[WriterDelays; 3], Failed> {
    let mut waits = [WriterDelays::default(); 3];
    for number in 1..=kills {
        for (role, waits) in VictimRole::ALL.into_iter().zip(&mut waits) {
            load.wait_for_progress()?;
            let id = role.pick_node(nodes.agreed_leader()?);
            nodes.kill(&[id])?;
            let killed = Instant::now();
            let down = full.get(id as usize - 1);
            let went_on = load.wait_for_progress_without(down.map_or(&[], std::slice::from_ref));
            went_on
                .map_err(|why| Failed(format!("kill {number} of the {role}, node {id}: {why}")))?;
            let waited = killed.elapsed();
            waits.kill_count += 1;
            waits.total_delay += waited;
            waits.longest_delay = waits.longest_delay.max(waited);
            nodes.restart(&[id])?;
        }
        if number.is_multiple_of(10) {
            println!(
                "  {number} of {kills} kills of each role, {} MiB",
                load.durable_bytes() >> 20
            );
        }
    }
    Ok(waits)
}
