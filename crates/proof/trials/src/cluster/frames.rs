//! Clients that send frames to devices, while nodes are killed and links fail: each command
//! reported as executed was executed once, in the reported slot, even though its value may be in
//! the log several times and some values are submitted both ways.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use quorate_core::dice::Dice;
use quorate_testbed::{network::Network, nodes::NodeCluster};
use quorate_wire::frame_clients::LentName;

use super::NODES;
use crate::{
    nodes::{self, wait_for},
    shell::Failed,
};

mod clients;
mod executed;

use clients::{ConnectionOnlyClient, DualPathClient, FrameOnlyClient, ReceivedReplies};
use executed::ExecutedBatches;

/// Devices that receive raw frames.
pub(super) const FRAME_DEVICES: [&str; 2] = ["kernel", "packet"];
/// Number of clients that send frames.
const CLIENT_COUNT: u64 = 2;
/// Network interface of the clients, in the namespace of the switch.
const CLIENT_INTERFACE: &str = "clients";
/// Duration of a round, and of its last part without faults.
const ROUND_DURATION: Duration = Duration::from_secs(30);
const CALM_DURATION: Duration = Duration::from_secs(5);
/// Node whose log proves which commands were executed. It is stopped at the end and never killed,
/// because a kill would lose data that is only in memory.
const WITNESS_NODE: u32 = NODES;
/// Range of the pause between faults, in milliseconds. The next two constants are the ranges for
/// the downtime of a node and of a link.
const FAULT_PAUSE_MS: (u64, u64) = (1_500, 3_000);
const NODE_DOWN_MS: (u64, u64) = (100, 600);
const LINK_DOWN_MS: (u64, u64) = (50, 800);

/// Runs `rounds` rounds with each kind of device, or with the given one.
pub(super) fn run(
    network: &Network,
    rounds: u64,
    device: Option<&str>,
    first: u64,
) -> Result<(), Failed> {
    network.add_interface(CLIENT_INTERFACE)?;
    for seed in first..first + rounds {
        for kind in FRAME_DEVICES.into_iter().filter(|kind| device.is_none_or(|one| one == *kind)) {
            let played = run_setting(network, kind, seed);
            played.map_err(|Failed(why)| {
                Failed(format!("clients by frames, {kind}, seed {seed}: {why}"))
            })?;
        }
    }
    Ok(())
}

fn run_setting(network: &Network, device: &str, seed: u64) -> Result<(), Failed> {
    let flags = [
        "--store",
        "none",
        "--durability",
        "volatile",
        "--client-timeout-ms",
        "1000",
        "--device",
        device,
        "--plane-interface",
        "eth0",
        "--plane-trusted",
    ];
    let mut nodes = NodeCluster::start_in_network(
        &nodes::program_path(),
        "quorate-trials-",
        network,
        NODES,
        &flags,
    )?;
    nodes.wait_until_all_ready()?;
    wait_for_device_leader(&nodes)?;
    let load = FrameClientLoad::start(&nodes)?;
    let harmed = inject_faults(network, &mut nodes, seed);
    let told = load.finish();
    let (told, faults) = (told?, harmed?);
    let sums = check_replies(&mut nodes, &told)?;
    println!(
        "clients by frames, {device}, seed {seed}: {faults} faults, {} batches by frames and {} both ways told as executed \
         ({} without a slot, {} unknown), {} commands by connections: all are, once, in their slots; {} values of {} were in \
         the log again or too early",
        sums.by_frames,
        sums.both_ways,
        sums.without_slot,
        sums.unknown,
        sums.by_connection,
        sums.idle,
        sums.values
    );
    Ok(())
}

/// Waits for a leader whose device allocates slots.
fn wait_for_device_leader(nodes: &NodeCluster) -> Result<(), Failed> {
    wait_for("a leader whose device gives out slots", || {
        nodes.status(nodes.leader().ok()?)?.device?.gives_from
    })?;
    Ok(())
}

/// Kills nodes and takes links down, one at a time, because a volatile group of three tolerates
/// only one missing node.
fn inject_faults(network: &Network, nodes: &mut NodeCluster, seed: u64) -> Result<u64, Failed> {
    let (began, mut dice, mut faults) = (Instant::now(), Dice::new(seed), 0);
    let sleep = |dice: &mut Dice, (least, most): (u64, u64)| {
        thread::sleep(Duration::from_millis(least + dice.below(most - least)));
    };
    while began.elapsed() < ROUND_DURATION - CALM_DURATION {
        sleep(&mut dice, FAULT_PAUSE_MS);
        let leader = nodes.leader()?;
        faults += 1;
        match dice.below(4) {
            0 => {
                let node = 1 + dice.below(u64::from(NODES)) as u32;
                network.shut_interfaces(&[node])?;
                sleep(&mut dice, LINK_DOWN_MS);
                network.heal_links()?;
            }
            1 if leader != WITNESS_NODE => {
                network.shut_interfaces(&[leader])?;
                sleep(&mut dice, LINK_DOWN_MS);
                network.heal_links()?;
            }
            what => {
                let others = (1..=NODES).filter(|node| *node != WITNESS_NODE);
                let dead = match what {
                    2 if leader != WITNESS_NODE => leader,
                    _ => others.clone().nth(dice.index(others.count())).unwrap_or(1),
                };
                nodes.kill(&[dead])?;
                sleep(&mut dice, NODE_DOWN_MS);
                nodes.restart(&[dead])?;
                wait_until_voting(nodes, dead)?;
            }
        }
    }
    thread::sleep(ROUND_DURATION.saturating_sub(began.elapsed()));
    Ok(faults)
}

/// Waits until a killed node votes again. It must rejoin before another node may fail.
fn wait_until_voting(nodes: &NodeCluster, node: u32) -> Result<(), Failed> {
    wait_for("a killed node to vote again", || {
        let view = nodes.status(node)?;
        (view.leader.is_some() && view.role != "learner").then_some(())
    })
}

/// All running clients.
struct FrameClientLoad {
    stop: Arc<AtomicBool>,
    replies: Arc<Mutex<ReceivedReplies>>,
    threads: Vec<JoinHandle<Result<(), Failed>>>,
}

impl FrameClientLoad {
    fn start(nodes: &NodeCluster) -> Result<Self, Failed> {
        let addresses: Result<Vec<SocketAddr>, _> =
            (nodes.client_addresses().iter()).map(|at| at.parse()).collect();
        let addresses = addresses.map_err(|error| Failed(format!("{error}")))?;
        let mut load = Self { stop: Arc::default(), replies: Arc::default(), threads: Vec::new() };
        for number in 0..CLIENT_COUNT {
            load.spawn(FrameOnlyClient::new(number, addresses.clone()), FrameOnlyClient::run);
        }
        load.spawn(DualPathClient::new(addresses.clone()), DualPathClient::run);
        load.spawn(ConnectionOnlyClient::new(addresses), ConnectionOnlyClient::run);
        Ok(load)
    }

    fn spawn<C: Send + 'static>(
        &mut self,
        mut client: C,
        run: fn(&mut C, &AtomicBool, &Mutex<ReceivedReplies>) -> Result<(), Failed>,
    ) {
        let (stop, told) = (Arc::clone(&self.stop), Arc::clone(&self.replies));
        self.threads.push(thread::spawn(move || run(&mut client, &stop, &told)));
    }

    fn finish(self) -> Result<ReceivedReplies, Failed> {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            let ended = thread.join();
            ended.map_err(|_| Failed("a client panicked".to_owned()))??;
        }
        let mut told = self.replies.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(std::mem::take(&mut *told))
    }
}

/// Totals of the checks.
#[derive(Default)]
struct CheckTotals {
    by_frames: u64,
    both_ways: u64,
    by_connection: u64,
    without_slot: u64,
    unknown: u64,
    values: u64,
    idle: u64,
}

/// Checks the witness node's log and the sessions of all nodes against the replies that clients
/// received.
fn check_replies(nodes: &mut NodeCluster, told: &ReceivedReplies) -> Result<CheckTotals, Failed> {
    let sessions = clients::next_batches(nodes, told)?;
    let ids = nodes.ids();
    nodes.terminate(&ids)?;
    let folder = nodes.node(WITNESS_NODE)?.spec.data_folder.clone();
    let executed = ExecutedBatches::read_log(&nodes::program_path(), &folder)?;
    compare_replies(told, &executed, &sessions)
}

fn compare_replies(
    told: &ReceivedReplies,
    executed: &ExecutedBatches,
    sessions: &[(u32, LentName, u64)],
) -> Result<CheckTotals, Failed> {
    let mut sums = CheckTotals {
        values: executed.value_count,
        idle: executed.unexecuted_count,
        ..CheckTotals::default()
    };
    for batch in &told.batches {
        let Some(outcome) = batch.outcome else {
            sums.unknown += 1;
            continue;
        };
        let at = usize::try_from(batch.number - 1).unwrap_or(usize::MAX);
        let slot = executed.slots_of(batch.name).get(at).copied();
        if slot.is_none() || outcome.is_some() && outcome != slot {
            return Err(Failed(format!(
                "batch {} of {:?} was told to be executed in {outcome:?}; the log has it in {slot:?}",
                batch.number, batch.name
            )));
        }
        sums.without_slot += u64::from(outcome.is_none());
        match batch.both_ways {
            true => sums.both_ways += 1,
            false => sums.by_frames += 1,
        }
    }
    for (node, name, next) in sessions {
        let expected = executed.slots_of(*name).len() as u64 + 1;
        // 0: the session has expired.
        if *next != 0 && *next != expected {
            return Err(Failed(format!(
                "node {node} executes batch {next} of {name:?} next; by the log it is {expected}"
            )));
        }
    }
    for slot in &told.connection_slots {
        if !executed.is_executed(*slot) {
            return Err(Failed(format!("slot {slot} was told to a client, and holds nothing")));
        }
        sums.by_connection += 1;
    }
    if [sums.by_frames, sums.both_ways, sums.by_connection].contains(&0) {
        return Err(Failed("some client was told of nothing".to_owned()));
    }
    Ok(sums)
}

#[cfg(test)]
mod tests {
    use quorate_wire::frame_clients::LENT_NAME_BIT;

    use super::{clients::SubmittedBatch, *};

    const NAME: LentName = LentName { origin: LENT_NAME_BIT | 7, boot: 3 };

    fn told() -> ReceivedReplies {
        let batch = |(number, outcome)| SubmittedBatch {
            name: NAME,
            number,
            outcome,
            both_ways: number == 2,
        };
        ReceivedReplies {
            batches: [(1, Some(Some(10))), (2, Some(None)), (3, None)].map(batch).into(),
            connection_slots: vec![12],
        }
    }

    /// Slots in which batch 1 is in the log twice, and batch 3 is missing.
    fn executed() -> ExecutedBatches {
        let value = |number| format!("batch {}/{}/{number}", NAME.origin, NAME.boot);
        let mut slots: std::collections::BTreeMap<u64, String> =
            (10..).zip([1, 1].map(value)).collect();
        slots.insert(12, "batch 2/9/5".to_owned());
        slots.insert(13, value(2));
        ExecutedBatches::from_slots(slots)
    }

    #[test]
    fn replies_match_the_log_and_falsified_ones_do_not() {
        let sessions = [(1, NAME, 3), (2, NAME, 0)];
        let sums = compare_replies(&told(), &executed(), &sessions).unwrap();
        assert_eq!((sums.by_frames, sums.both_ways, sums.unknown), (1, 1, 1));
        assert_eq!((sums.values, sums.idle, sums.without_slot), (3, 1, 1));
        let lies: [fn(&mut ReceivedReplies); 4] = [
            |told| told.batches[0].outcome = Some(Some(11)),
            |told| told.batches[2].outcome = Some(None),
            |told| told.connection_slots.push(14),
            |told| told.connection_slots.clear(),
        ];
        for (number, lie) in lies.into_iter().enumerate() {
            let mut told = told();
            lie(&mut told);
            let judged = compare_replies(&told, &executed(), &sessions);
            assert!(judged.is_err(), "lie {number}");
        }
        assert!(compare_replies(&told(), &executed(), &[(1, NAME, 2)]).is_err());
    }
}
