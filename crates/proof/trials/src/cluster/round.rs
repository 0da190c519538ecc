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
    nodes::Nodes,
    replace::{self, newcomer},
    trial::{
        client::Client,
        faults::Plan,
        history::{KeyContents, Operation, save},
        load::Load,
        seen::{Fate, Seen, Shared, TOTAL},
    },
};

use super::check::{Checker, Verdict, create_evidence_folder};
use crate::{
    nodes::{self, wait_for},
    shell::{Failed, skip},
};

const NODES: u32 = 3;
/// Number of keys read by one command.
const KEYS_AT_ONCE: usize = 200;
/// Number of operations after a fault that proves that clients continue.
const GOING_ON: u64 = 50;
/// Number of learners that serve clients.
const LEARNERS_ASKED: usize = 1;
/// Client timeout. A command that waits longer gets an error, so that clients continue during a
/// fault.
const CLIENT_TIMEOUT_MS: &str = "1000";

/// Kind of cluster, and number of faults.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) durability: &'static str,
    pub(crate) store: &'static str,
    pub(crate) plane: &'static str,
    pub(crate) votes: &'static str,
    /// Number of voting members. With a ring, voters outside of it are spares.
    pub(crate) voters: u32,
    pub(crate) learners: u32,
    /// Percentage of datagrams that each node loses.
    pub(crate) loss: &'static str,
    /// Method of receiving raw frames from the interface.
    pub(crate) frames: &'static str,
    /// Device that votes and counts votes for the nodes.
    pub(crate) device: &'static str,
    pub(crate) steps: u32,
}

impl Setting {
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
    pub(crate) const OF_PACKETS: [Self; 10] = [
        Self::new("durable", "memory", "multicast", 14).ring(5, 10).losing("1"),
        Self::new("durable", "memory", "chain", 9).ring(5, 2),
        Self::new("durable", "memory", "ethernet", 9).ring(5, 2).losing("1"),
        Self::new("durable", "memory", "ethernet", 7).by_xdp(),
        Self::new("volatile", "memory", "chain", 7).losing("1"),
        Self::new("volatile", "memory", "udp", 7).ring(5, 0).losing("5"),
        Self::new("durable", "lsm", "multicast", 9),
        Self::new("durable", "memory", "udp", 6),
        Self::new("volatile", "memory", "multicast", 5),
        Self::new("volatile", "lsm", "ethernet", 4),
    ];

    /// Settings with phase 2 in devices.
    pub(crate) const OF_DEVICES: [Self; 7] = [
        Self::new("durable", "lsm", "tcp", 12).device("kernel"),
        Self::new("volatile", "memory", "tcp", 8).device("kernel"),
        Self::new("durable", "memory", "tcp", 7).device("packet"),
        Self::new("volatile", "memory", "tcp", 6).device("udp"),
        Self::new("durable", "memory", "tcp", 8).device("p4"),
        Self::new("durable", "memory", "multicast", 7).device("kernel").losing("1"),
        Self::new("volatile", "lsm", "ethernet", 6).ring(5, 1).device("kernel"),
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
            votes: "star",
            voters: NODES,
            learners: 0,
            loss: "0",
            frames: "auto",
            device: "off",
            steps,
        }
    }

    const fn device(self, device: &'static str) -> Self {
        Self { device, ..self }
    }

    /// Sends votes along a ring that is a quorum of `voters` voters.
    const fn ring(self, voters: u32, learners: u32) -> Self {
        Self { votes: "ring", voters, learners, ..self }
    }

    const fn by_xdp(self) -> Self {
        Self { frames: "xdp", ..self }
    }

    const fn losing(self, percent: &'static str) -> Self {
        Self { loss: percent, ..self }
    }

    /// Returns the number of nodes of the largest setting.
    pub(crate) fn nodes_max(settings: &[Self]) -> u32 {
        let nodes = settings.iter().map(|one| one.voters + one.learners);
        nodes.max().unwrap_or(NODES)
    }

    pub(crate) fn is_durable(self) -> bool {
        self.durability == "durable"
    }
}

/// Totals over all rounds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums {
    pub(crate) operations: u64,
    pub(crate) unknown: u64,
    pub(crate) refused: u64,
    pub(crate) inserts: u64,
    pub(crate) faults: u64,
    pub(crate) judged: u64,
    /// Longest time from the end of a fault until all nodes served clients.
    pub(crate) recovery: Duration,
}

/// Environment of a round.
pub(crate) struct Stage<'a> {
    pub(crate) network: Option<&'a Network>,
    pub(crate) checker: Option<&'a Checker>,
}

impl Stage<'_> {
    /// Plays one round to its end. Keeps the history if it fails.
    pub(crate) fn run(
        &self,
        setting: Setting,
        plan: &mut Plan,
        seed: u64,
        sums: &mut Sums,
    ) -> Result<Vec<Operation>, Failed> {
        println!("- {setting}, seed {seed}");
        plan.with_voters(setting.voters);
        let mut nodes = self.start(setting)?;
        let mut history = Vec::new();
        let played = self.run_faults(setting, plan, seed, &mut nodes, sums, &mut history);
        if let Err(Failed(why)) = played {
            let Setting { durability, store, plane, votes, frames, device, .. } = setting;
            let name = format!("{durability}-{store}-{plane}-{frames}-{votes}-{device}-{seed}");
            let place = create_evidence_folder(&name)?;
            save(&history, &place.join("history.jsonl"))?;
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
    fn start(&self, setting: Setting) -> Result<Nodes, Failed> {
        let mut flags = vec![
            "--store",
            setting.store,
            "--client-timeout-ms",
            CLIENT_TIMEOUT_MS,
            "--plane",
            setting.plane,
            "--plane-loss",
            setting.loss,
            "--plane-ethernet",
            setting.frames,
            "--votes",
            setting.votes,
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
            return nodes::serving(setting.voters, &founding);
        };
        let mut nodes = nodes::start_serving_in(network, setting.voters, &founding)?;
        let learner = |node| {
            let (program, folder) = (nodes::program(), nodes.folder());
            let number = node as usize;
            let spec = newcomer(&program, folder, number, &Network::places(node), &flags);
            spec.in_namespace(node, folder)
        };
        let learners = (setting.voters + 1..=setting.voters + setting.learners).map(learner);
        let learners: Vec<_> = learners.collect::<Result<_, _>>()?;
        replace::learners(&mut nodes, learners)?;
        nodes.wait_until_all_serve()?;
        if setting.frames == "xdp" {
            by_xdp(&nodes)?;
        }
        if setting.device != "off" {
            by_devices(&nodes)?;
        }
        Ok(nodes)
    }

    fn run_faults(
        &self,
        setting: Setting,
        plan: &mut Plan,
        seed: u64,
        nodes: &mut Nodes,
        sums: &mut Sums,
        history: &mut Vec<Operation>,
    ) -> Result<(), Failed> {
        let mut asked = nodes.client_addresses();
        // The remaining learners are compared at the end; more clients would leave no processor
        // time for the nodes.
        asked.truncate(setting.voters as usize + LEARNERS_ASKED);
        let load = Load::start(asked, seed)?;
        let shared = Arc::clone(&load.shared);
        let acted = self.inject_fault(setting, plan, nodes, &load, &mut sums.recovery);
        sums.faults += u64::from(setting.steps);
        let mut seen = load.finish()?;
        // Keep the history recorded so far, even after a failure.
        let read = acted.and_then(|()| {
            if let Some(what) = seen.strange.take() {
                return Err(Failed(format!("a client got {what}")));
            }
            nodes.wait_until_all_serve()?;
            seen.operations.extend(final_reads(&seen, &shared)?);
            Ok(())
        });
        history.append(&mut seen.operations);
        read?;
        sums.add(history, &seen);
        nothing_lost(&seen, &shared)?;
        let digest = nodes.wait_until_equal()?;
        println!("  all nodes are equal: {digest}");
        if setting.device != "off" {
            print_devices(nodes);
        }
        self.check_history(history, nodes.folder(), sums)?;
        if !setting.is_durable() {
            // [volatile-1] One node may die at the end: the other nodes still serve.
            let id = nodes.leader()?;
            nodes.kill(&[id])?;
            nodes.restart(&[id])?;
            nodes.wait_until_all_serve()?;
            nothing_lost(&seen, &shared)?;
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
        Ok(nodes.verify_logs(&nodes::program())?)
    }

    fn inject_fault(
        &self,
        setting: Setting,
        plan: &mut Plan,
        nodes: &mut Nodes,
        load: &Load,
        recovered: &mut Duration,
    ) -> Result<(), Failed> {
        let begin = Instant::now();
        for _ in 0..setting.steps {
            let step = plan.draw();
            let before = load.known();
            let at = begin.elapsed().as_secs_f64();
            let recovery = plan
                .play(step, nodes, self.network)
                .map_err(|why| Failed(format!("after {step}: {why}")))?;
            *recovered = (*recovered).max(recovery);
            // Clients must continue before the next fault.
            let served = (Instant::now(), load.known());
            wait_for("clients to go on", || (load.known() > served.1 + GOING_ON).then_some(()))?;
            println!(
                "  {at:5.1} s  {step}: {} operations; all served again after {} ms, clients went on after {} more",
                load.known() - before,
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
        sums: &mut Sums,
    ) -> Result<(), Failed> {
        let Some(checker) = self.checker else {
            return Ok(());
        };
        let (verdict, text) = checker.check_history(history, folder)?;
        text.lines().for_each(|line| println!("  {line}"));
        match verdict {
            Verdict::Linearizable => {
                sums.judged += 1;
                Ok(())
            }
            Verdict::Violation => Err(Failed("the history is not linearizable".to_owned())),
            Verdict::Undecided => Err(Failed("the history is too hard to judge".to_owned())),
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            durability, store, plane, votes, voters, learners, loss, frames, device, ..
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

impl Sums {
    fn add(&mut self, history: &[Operation], seen: &Seen) {
        let unknown = history.iter().filter(|one| one.end.is_none()).count();
        self.operations += history.len() as u64;
        self.unknown += unknown as u64;
        self.refused += seen.refused;
        self.inserts += seen.inserts.len() as u64;
    }
}

/// Checks that every node receives raw frames by AF_XDP. Skips with the reason if this kernel does
/// not support it.
fn by_xdp(nodes: &Nodes) -> Result<(), Failed> {
    for id in nodes.ids() {
        let plane = wait_for("raw Ethernet", || {
            let members = nodes.view(id)?.members.into_iter();
            let mut planes = members.filter_map(|member| member.plane);
            planes.find(|plane| plane.way == "ethernet")
        })?;
        if !plane.frames.is_some_and(|frames| frames.starts_with("xdp")) {
            return skip("AF_XDP", &plane.why.unwrap_or_default());
        }
    }
    println!("  frames come by AF_XDP at every node");
    Ok(())
}

/// Checks that the leader's device allocates slots, and prints the kind of each device.
fn by_devices(nodes: &Nodes) -> Result<(), Failed> {
    wait_for("a leader whose device gives out slots", || {
        let view = nodes.view(nodes.leader().ok()?)?;
        view.device?.gives_from
    })?;
    print_devices(nodes);
    Ok(())
}

/// Prints the devices' kind and counters. Counters of a killed node restart at zero.
fn print_devices(nodes: &Nodes) {
    for id in nodes.ids() {
        if let Some(device) = nodes.view(id).and_then(|view| view.device) {
            println!("  node {id}: {device}");
        }
    }
}

/// Reads every key once more, through all nodes in turn.
pub(crate) fn final_reads(seen: &Seen, shared: &Arc<Shared>) -> Result<Vec<Operation>, Failed> {
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
    Ok(readers.into_iter().flat_map(|reader| reader.seen.operations).collect())
}

/// Checks that all acknowledged inserts exist, that no refused insert does, and that the total that
/// sessions counted is plausible.
pub(crate) fn nothing_lost(seen: &Seen, shared: &Arc<Shared>) -> Result<(), Failed> {
    let mut reader = Client::new(2000, 0, Arc::clone(shared));
    let acknowledged = seen.inserts(Fate::Acknowledged);
    for (keys, there) in [(&acknowledged, true), (&seen.inserts(Fate::Refused), false)] {
        for keys in keys.chunks(KEYS_AT_ONCE) {
            let values = wait_for("all inserts", || reader.values(keys))?;
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
    let total = wait_for("the total", || reader.values(&[TOTAL]))?;
    let total = total.into_iter().flatten().next();
    let total: u64 = total.and_then(|text| text.parse().ok()).unwrap_or(0);
    let (least, most) = (seen.total.acknowledged, seen.total.acknowledged + seen.total.unknown);
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
