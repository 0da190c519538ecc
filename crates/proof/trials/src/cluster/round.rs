//! A round: starts a cluster, clients and faults, then checks that no client received a wrong
//! reply.

use std::{
    collections::BTreeSet,
    fmt,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use quorate_testbed::{
    network::Network,
    nodes::NodeCluster,
    replace::{self, newcomer_spec},
    trial::{
        client::Client,
        faults::FaultPlan,
        history::{KeyContents, Operation, save_operations},
        load::ClientLoad,
        seen::{CommandOutcome, Observations, Shared, TOTAL_COUNTER},
    },
};

use super::check::{Checker, Verdict, create_evidence_folder};
use crate::{
    nodes::{self, wait_for},
    shell::{Failed, report_skip},
};

const NODE_COUNT: u32 = 3;
/// Number of keys read by one command.
const KEYS_PER_READ: usize = 200;
/// Number of operations after a fault that proves that clients continue.
const PROGRESS_OPERATIONS: u64 = 50;
/// Number of learners that serve clients.
const SERVING_LEARNERS: usize = 1;
/// Client timeout. A command that waits longer gets an error, so that clients continue during a
/// fault.
const CLIENT_TIMEOUT_MS: &str = "1000";

/// Kind of cluster, and number of faults.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundSetting {
    pub(crate) durability: &'static str,
    pub(crate) store: &'static str,
    pub(crate) plane: &'static str,
    pub(crate) vote_route: &'static str,
    /// Number of voting members. With a ring, voters outside of it are spares.
    pub(crate) voter_count: u32,
    pub(crate) learner_count: u32,
    /// Percentage of datagrams that each node loses.
    pub(crate) loss_percent: &'static str,
    /// Method of receiving raw frames from the interface.
    pub(crate) frame_path: &'static str,
    /// Device that votes and counts votes for the nodes.
    pub(crate) device: &'static str,
    pub(crate) fault_count: u32,
}

impl RoundSetting {
    pub(crate) const ALL: [Self; 4] = [
        Self::new("durable", "lsm", "tcp", 9),
        Self::new("durable", "memory", "multicast", 6),
        Self::new("volatile", "memory", "udp", 5),
        Self::new("volatile", "lsm", "tcp", 4),
    ];
    /// Settings that cover both classes, both stores and two planes within a few minutes.
    pub(crate) const SHORT: [Self; 2] =
        [Self::new("durable", "lsm", "tcp", 6), Self::new("volatile", "memory", "udp", 4)];
    /// Settings for all packet planes.
    pub(crate) const ALL_PACKETS: [Self; 10] = [
        Self::new("durable", "memory", "multicast", 14).with_ring(5, 10).with_loss("1"),
        Self::new("durable", "memory", "chain", 9).with_ring(5, 2),
        Self::new("durable", "memory", "ethernet", 9).with_ring(5, 2).with_loss("1"),
        Self::new("durable", "memory", "ethernet", 7).with_xdp(),
        Self::new("volatile", "memory", "chain", 7).with_loss("1"),
        Self::new("volatile", "memory", "udp", 7).with_ring(5, 0).with_loss("5"),
        Self::new("durable", "lsm", "multicast", 9),
        Self::new("durable", "memory", "udp", 6),
        Self::new("volatile", "memory", "multicast", 5),
        Self::new("volatile", "lsm", "ethernet", 4),
    ];

    /// Settings with phase 2 in devices.
    pub(crate) const ALL_DEVICES: [Self; 7] = [
        Self::new("durable", "lsm", "tcp", 12).with_device("kernel"),
        Self::new("volatile", "memory", "tcp", 8).with_device("kernel"),
        Self::new("durable", "memory", "tcp", 7).with_device("packet"),
        Self::new("volatile", "memory", "tcp", 6).with_device("udp"),
        Self::new("durable", "memory", "tcp", 8).with_device("p4"),
        Self::new("durable", "memory", "multicast", 7).with_device("kernel").with_loss("1"),
        Self::new("volatile", "lsm", "ethernet", 6).with_ring(5, 1).with_device("kernel"),
    ];

    const fn new(
        durability: &'static str,
        store: &'static str,
        plane: &'static str,
        steps: u32,
    ) -> Self {
        Self {
            durability,
            store,
            plane,
            vote_route: "star",
            voter_count: NODE_COUNT,
            learner_count: 0,
            loss_percent: "0",
            frame_path: "auto",
            device: "off",
            fault_count: steps,
        }
    }

    const fn with_device(self, device: &'static str) -> Self {
        Self { device, ..self }
    }

    /// Sends votes along a ring that is a quorum of `voters` voters.
    const fn with_ring(self, voters: u32, learners: u32) -> Self {
        Self { vote_route: "ring", voter_count: voters, learner_count: learners, ..self }
    }

    const fn with_xdp(self) -> Self {
        Self { frame_path: "xdp", ..self }
    }

    const fn with_loss(self, percent: &'static str) -> Self {
        Self { loss_percent: percent, ..self }
    }

    /// Returns the number of nodes of the largest setting.
    pub(crate) fn nodes_max(settings: &[Self]) -> u32 {
        let nodes = settings.iter().map(|one| one.voter_count + one.learner_count);
        nodes.max().unwrap_or(NODE_COUNT)
    }

    pub(crate) fn is_durable(self) -> bool {
        self.durability == "durable"
    }
}

/// Totals over all rounds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RoundTotals {
    pub(crate) operations: u64,
    pub(crate) unknown: u64,
    pub(crate) refused: u64,
    pub(crate) inserts: u64,
    pub(crate) faults: u64,
    pub(crate) checked_histories: u64,
    /// Longest time from the end of a fault until all nodes served clients.
    pub(crate) longest_recovery: Duration,
}

/// Environment of a round.
pub(crate) struct RoundEnvironment<'a> {
    pub(crate) network: Option<&'a Network>,
    pub(crate) checker: Option<&'a Checker>,
}

impl RoundEnvironment<'_> {
    /// Plays one round to its end. Keeps the history if it fails.
    pub(crate) fn run(
        &self,
        setting: RoundSetting,
        plan: &mut FaultPlan,
        seed: u64,
        sums: &mut RoundTotals,
    ) -> Result<Vec<Operation>, Failed> {
        println!("- {setting}, seed {seed}");
        plan.with_voters(setting.voter_count);
        let mut nodes = self.start(setting)?;
        let mut history = Vec::new();
        let played = self.run_faults(setting, plan, seed, &mut nodes, sums, &mut history);
        if let Err(Failed(why)) = played {
            let RoundSetting {
                durability,
                store,
                plane,
                vote_route: votes,
                frame_path: frames,
                device,
                ..
            } = setting;
            let name = format!("{durability}-{store}-{plane}-{frames}-{votes}-{device}-{seed}");
            let place = create_evidence_folder(&name)?;
            save_operations(&history, &place.join("history.jsonl"))?;
            let folders = nodes.keep_for_inspection(&place.join("nodes"));
            return Err(Failed(format!(
                "seed {seed}: {why}\n  what was seen is in {}, the nodes' folders in {}",
                place.display(),
                folders.display()
            )));
        }
        Ok(history)
    }

    /// Starts the cluster, learners included, and waits until all nodes serve clients.
    fn start(&self, setting: RoundSetting) -> Result<NodeCluster, Failed> {
        let mut flags = vec![
            "--store",
            setting.store,
            "--client-timeout-ms",
            CLIENT_TIMEOUT_MS,
            "--plane",
            setting.plane,
            "--plane-loss",
            setting.loss_percent,
            "--plane-ethernet",
            setting.frame_path,
            "--votes",
            setting.vote_route,
            "--device",
            setting.device,
        ];
        if setting.store == "memory" {
            flags.extend(["--io-threads", "2", "--io-spread", "always"]);
        }
        if self.network.is_some() {
            flags.extend(["--plane-interface", "eth0", "--plane-trusted"]);
        }
        let founding = [&flags[..], &["--durability", setting.durability]].concat();
        let Some(network) = self.network else {
            return nodes::start_serving(setting.voter_count, &founding);
        };
        let mut nodes = nodes::start_serving_in(network, setting.voter_count, &founding)?;
        let learner = |node| {
            let (program, folder) = (nodes::program_path(), nodes.data_folder());
            let number = node as usize;
            let spec =
                newcomer_spec(&program, folder, number, &Network::node_addresses(node), &flags);
            spec.in_namespace(node, folder)
        };
        let learners =
            (setting.voter_count + 1..=setting.voter_count + setting.learner_count).map(learner);
        let learners: Vec<_> = learners.collect::<Result<_, _>>()?;
        replace::add_learners(&mut nodes, learners)?;
        nodes.wait_until_all_serve()?;
        if setting.frame_path == "xdp" {
            check_xdp_in_use(&nodes)?;
        }
        if setting.device != "off" {
            check_devices_in_use(&nodes)?;
        }
        Ok(nodes)
    }

    fn run_faults(
        &self,
        setting: RoundSetting,
        plan: &mut FaultPlan,
        seed: u64,
        nodes: &mut NodeCluster,
        sums: &mut RoundTotals,
        history: &mut Vec<Operation>,
    ) -> Result<(), Failed> {
        let mut asked = nodes.client_addresses();
        // The remaining learners are compared at the end; more clients would leave no processor
        // time for the nodes.
        asked.truncate(setting.voter_count as usize + SERVING_LEARNERS);
        let load = ClientLoad::start(asked, seed)?;
        let shared = Arc::clone(&load.shared);
        let acted = self.inject_fault(setting, plan, nodes, &load, &mut sums.longest_recovery);
        sums.faults += u64::from(setting.fault_count);
        let mut seen = load.finish()?;
        // Keep the history recorded so far, even after a failure.
        let read = acted.and_then(|()| {
            if let Some(what) = seen.first_violation.take() {
                return Err(Failed(format!("a client got {what}")));
            }
            nodes.wait_until_all_serve()?;
            seen.operations.extend(read_all_keys(&seen, &shared)?);
            Ok(())
        });
        history.append(&mut seen.operations);
        read?;
        sums.add(history, &seen);
        check_nothing_lost(&seen, &shared)?;
        let digest = nodes.wait_until_equal()?;
        println!("  all nodes are equal: {digest}");
        if setting.device != "off" {
            print_devices(nodes);
        }
        self.check_history(history, nodes.data_folder(), sums)?;
        if !setting.is_durable() {
            // [volatile-1] One node may die at the end: the other nodes still serve.
            let id = nodes.leader()?;
            nodes.kill(&[id])?;
            nodes.restart(&[id])?;
            nodes.wait_until_all_serve()?;
            check_nothing_lost(&seen, &shared)?;
            nodes.wait_until_equal()?;
        }
        for id in nodes.ids() {
            let alarms = nodes.metric(id, "quorate_alarms_total")?;
            if alarms > 0 {
                return Err(Failed(format!("node {id} raised {alarms} alarms")));
            }
        }
        let ids = nodes.ids();
        nodes.terminate(&ids)?;
        Ok(nodes.verify_logs(&nodes::program_path())?)
    }

    fn inject_fault(
        &self,
        setting: RoundSetting,
        plan: &mut FaultPlan,
        nodes: &mut NodeCluster,
        load: &ClientLoad,
        recovered: &mut Duration,
    ) -> Result<(), Failed> {
        let begin = Instant::now();
        for _ in 0..setting.fault_count {
            let step = plan.draw_step();
            let before = load.known_outcomes();
            let at = begin.elapsed().as_secs_f64();
            let recovery = plan
                .run_step(step, nodes, self.network)
                .map_err(|why| Failed(format!("after {step}: {why}")))?;
            *recovered = (*recovered).max(recovery);
            // Clients must continue before the next fault.
            let served = (Instant::now(), load.known_outcomes());
            wait_for("clients to go on", || {
                (load.known_outcomes() > served.1 + PROGRESS_OPERATIONS).then_some(())
            })?;
            println!(
                "  {at:5.1} s  {step}: {} operations; all served again after {} ms, clients went on after {} more",
                load.known_outcomes() - before,
                recovery.as_millis(),
                served.0.elapsed().as_millis()
            );
        }
        Ok(())
    }

    fn check_history(
        &self,
        history: &[Operation],
        folder: &Path,
        sums: &mut RoundTotals,
    ) -> Result<(), Failed> {
        let Some(checker) = self.checker else {
            return Ok(());
        };
        let (verdict, text) = checker.check_history(history, folder)?;
        text.lines().for_each(|line| println!("  {line}"));
        match verdict {
            Verdict::Linearizable => {
                sums.checked_histories += 1;
                Ok(())
            }
            Verdict::Violation => Err(Failed("the history is not linearizable".to_owned())),
            Verdict::Undecided => Err(Failed("the history is too hard to judge".to_owned())),
        }
    }
}

impl fmt::Display for RoundSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            durability,
            store,
            plane,
            vote_route: votes,
            voter_count: voters,
            learner_count: learners,
            loss_percent: loss,
            frame_path: frames,
            device,
            ..
        } = self;
        write!(f, "{voters} nodes, {durability}, {store}, {plane}")?;
        if *device != "off" {
            write!(f, ", devices: {device}")?;
        }
        if *frames != "auto" {
            write!(f, " by {frames}")?;
        }
        if *votes != "star" {
            write!(f, ", votes by a {votes}")?;
        }
        if *learners > 0 {
            write!(f, ", {learners} learners")?;
        }
        if *loss != "0" {
            write!(f, ", {loss} % of the datagrams lost")?;
        }
        Ok(())
    }
}

impl RoundTotals {
    fn add(&mut self, history: &[Operation], seen: &Observations) {
        let unknown = history.iter().filter(|one| one.end.is_none()).count();
        self.operations += history.len() as u64;
        self.unknown += unknown as u64;
        self.refused += seen.refused_count;
        self.inserts += seen.inserts.len() as u64;
    }
}

/// Checks that every node receives raw frames by AF_XDP. Skips with the reason if this kernel does
/// not support it.
fn check_xdp_in_use(nodes: &NodeCluster) -> Result<(), Failed> {
    for id in nodes.ids() {
        let plane = wait_for("raw Ethernet", || {
            let members = nodes.status(id)?.members.into_iter();
            let mut planes = members.filter_map(|member| member.plane);
            planes.find(|plane| plane.way == "ethernet")
        })?;
        if !plane.frames.is_some_and(|frames| frames.starts_with("xdp")) {
            return report_skip("AF_XDP", &plane.why.unwrap_or_default());
        }
    }
    println!("  frames come by AF_XDP at every node");
    Ok(())
}

/// Checks that the leader's device allocates slots, and prints the kind of each device.
fn check_devices_in_use(nodes: &NodeCluster) -> Result<(), Failed> {
    wait_for("a leader whose device gives out slots", || {
        let view = nodes.status(nodes.leader().ok()?)?;
        view.device?.gives_from
    })?;
    print_devices(nodes);
    Ok(())
}

/// Prints the devices' kind and counters. Counters of a killed node restart at zero.
fn print_devices(nodes: &NodeCluster) {
    for id in nodes.ids() {
        if let Some(device) = nodes.status(id).and_then(|view| view.device) {
            println!("  node {id}: {device}");
        }
    }
}

/// Reads every key once more, through all nodes in turn.
pub(crate) fn read_all_keys(
    seen: &Observations,
    shared: &Arc<Shared>,
) -> Result<Vec<Operation>, Failed> {
    let keys: BTreeSet<&str> = seen.operations.iter().map(|one| one.key.as_str()).collect();
    let nodes = shared.addresses.len();
    let mut readers: Vec<Client> =
        (0..nodes).map(|node| Client::new(1000 + node, node, Arc::clone(shared))).collect();
    for (index, key) in keys.into_iter().enumerate() {
        let reader = &mut readers[index % nodes];
        wait_for("a final read", || {
            let answered =
                if key.starts_with('p') { reader.try_read_pair(key) } else { reader.try_read(key) };
            answered.then_some(())
        })?;
    }
    Ok(readers.into_iter().flat_map(|reader| reader.observations.operations).collect())
}

/// Checks that all acknowledged inserts exist, that no refused insert does, and that the total that
/// sessions counted is plausible.
pub(crate) fn check_nothing_lost(seen: &Observations, shared: &Arc<Shared>) -> Result<(), Failed> {
    let mut reader = Client::new(2000, 0, Arc::clone(shared));
    let acknowledged = seen.inserts_with(CommandOutcome::Acknowledged);
    for (keys, there) in
        [(&acknowledged, true), (&seen.inserts_with(CommandOutcome::Refused), false)]
    {
        for keys in keys.chunks(KEYS_PER_READ) {
            let values = wait_for("all inserts", || reader.read_values(keys))?;
            let wrong = |(key, value): &(&&str, KeyContents)| match value {
                Some(value) => !there || key.strip_prefix('i') != Some(value),
                None => there,
            };
            if let Some((key, value)) = keys.iter().zip(values).find(wrong) {
                let fate = if there { "acknowledged" } else { "refused" };
                return Err(Failed(format!("the insert of {key} was {fate}; it holds {value:?}")));
            }
        }
    }
    let total = wait_for("the total", || reader.read_values(&[TOTAL_COUNTER]))?;
    let total = total.into_iter().flatten().next();
    let total: u64 = total.and_then(|text| text.parse().ok()).unwrap_or(0);
    let (least, most) =
        (seen.increments.acknowledged, seen.increments.acknowledged + seen.increments.unknown);
    if !(least..=most).contains(&total) {
        return Err(Failed(format!(
            "sessions counted {least} to {most} times; the total is {total}"
        )));
    }
    println!(
        "  {} acknowledged inserts and {least} counts of sessions: nothing lost, nothing twice",
        acknowledged.len()
    );
    Ok(())
}
