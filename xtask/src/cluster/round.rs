//! One run: a cluster, clients, faults, and then the question whether anybody was lied to.

use std::{
    collections::BTreeSet,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use quorate_testbed::{
    network::Network,
    nodes::Nodes,
    trial::{
        client::{Client, Fate},
        faults::Plan,
        history::{Held, Operation, save},
        load::{Load, Seen, Shared, TOTAL},
    },
};

use super::check::{Checker, Verdict, evidence};
use crate::{
    nodes::{self, wait_for},
    shell::Failed,
};

const NODES: u32 = 3;
/// Keys that one command asks for.
const KEYS_AT_ONCE: usize = 200;
/// Operations after a fault that show that clients go on.
const GOING_ON: u64 = 50;
/// A command that waits longer gets an error, so that clients go on during a fault.
const CLIENT_TIMEOUT_MS: &str = "1000";

/// What kind of cluster, and how much happens to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) durability: &'static str,
    pub(crate) store: &'static str,
    pub(crate) plane: &'static str,
    pub(crate) steps: u32,
}

impl Setting {
    pub(crate) const ALL: [Self; 4] = [
        Self::new("durable", "lsm", "tcp", 9),
        Self::new("durable", "memory", "multicast", 6),
        Self::new("volatile", "memory", "udp", 5),
        Self::new("volatile", "lsm", "tcp", 4),
    ];
    /// Planes of packets alone.
    pub(crate) const OF_PACKETS: [Self; 4] = [
        Self::new("durable", "lsm", "multicast", 9),
        Self::new("durable", "memory", "udp", 6),
        Self::new("volatile", "memory", "multicast", 5),
        Self::new("volatile", "lsm", "ethernet", 4),
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
            steps,
        }
    }

    pub(crate) fn is_durable(self) -> bool {
        self.durability == "durable"
    }
}

/// Sums over all runs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums {
    pub(crate) operations: u64,
    pub(crate) unknown: u64,
    pub(crate) refused: u64,
    pub(crate) inserts: u64,
    pub(crate) faults: u64,
    pub(crate) judged: u64,
    /// The longest time from the end of a fault until all nodes served.
    pub(crate) recovery: Duration,
}

/// What a run needs from its surroundings.
pub(crate) struct Stage<'a> {
    pub(crate) network: Option<&'a Network>,
    pub(crate) checker: Option<&'a Checker>,
}

impl Stage<'_> {
    /// Plays one run to its end; if it fails, what was seen is kept.
    pub(crate) fn run(
        &self,
        setting: Setting,
        plan: &mut Plan,
        seed: u64,
        sums: &mut Sums,
    ) -> Result<Vec<Operation>, Failed> {
        println!(
            "- {} nodes, {}, {}, {}, seed {seed}",
            NODES, setting.durability, setting.store, setting.plane
        );
        let mut flags = vec![
            "--durability",
            setting.durability,
            "--store",
            setting.store,
            "--client-timeout-ms",
            CLIENT_TIMEOUT_MS,
            "--plane",
            setting.plane,
        ];
        if self.network.is_some() {
            flags.extend(["--plane-interface", "eth0", "--plane-trusted"]);
        }
        let mut nodes = match self.network {
            Some(network) => nodes::serving_in(network, &flags)?,
            None => nodes::serving(NODES, &flags)?,
        };
        let mut history = Vec::new();
        let played = self.play(setting, plan, seed, &mut nodes, sums, &mut history);
        if let Err(Failed(why)) = played {
            let Setting {
                durability,
                store,
                plane,
                ..
            } = setting;
            let place = evidence(&format!("{durability}-{store}-{plane}-{seed}"))?;
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

    fn play(
        &self,
        setting: Setting,
        plan: &mut Plan,
        seed: u64,
        nodes: &mut Nodes,
        sums: &mut Sums,
        history: &mut Vec<Operation>,
    ) -> Result<(), Failed> {
        let load = Load::start(nodes.client_addresses(), seed)?;
        let shared = Arc::clone(&load.shared);
        let acted = self.act(setting, plan, nodes, &load, &mut sums.recovery);
        sums.faults += u64::from(setting.steps);
        let mut seen = load.finish()?;
        // Whatever happened, the history so far is worth keeping.
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
        self.judge(history, nodes.folder(), sums)?;
        if !setting.is_durable() {
            // [volatile-1] One may die at last: the others still serve.
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

    fn act(
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
            // Clients go on before the next fault.
            let served = (Instant::now(), load.known());
            wait_for("clients to go on", || {
                (load.known() > served.1 + GOING_ON).then_some(())
            })?;
            println!(
                "  {at:5.1} s  {step}: {} operations; all served again after {} ms, clients went on after {} more",
                load.known() - before,
                recovery.as_millis(),
                served.0.elapsed().as_millis()
            );
        }
        Ok(())
    }

    fn judge(&self, history: &[Operation], folder: &Path, sums: &mut Sums) -> Result<(), Failed> {
        let Some(checker) = self.checker else {
            return Ok(());
        };
        let (verdict, text) = checker.judge(history, folder)?;
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

impl Sums {
    fn add(&mut self, history: &[Operation], seen: &Seen) {
        let unknown = history.iter().filter(|one| one.end.is_none()).count();
        self.operations += history.len() as u64;
        self.unknown += unknown as u64;
        self.refused += seen.refused;
        self.inserts += seen.inserts.len() as u64;
    }
}

/// Every key once more, through all nodes in turn.
fn final_reads(seen: &Seen, shared: &Arc<Shared>) -> Result<Vec<Operation>, Failed> {
    let keys: BTreeSet<&str> = seen.operations.iter().map(|one| one.key.as_str()).collect();
    let nodes = shared.addresses.len();
    let mut readers: Vec<Client> = (0..nodes)
        .map(|node| Client::new(1000 + node, node, Arc::clone(shared)))
        .collect();
    for (index, key) in keys.into_iter().enumerate() {
        let reader = &mut readers[index % nodes];
        wait_for("a final read", || {
            let answered = if key.starts_with('p') {
                reader.try_read_pair(key)
            } else {
                reader.try_read(key)
            };
            answered.then_some(())
        })?;
    }
    Ok(readers
        .into_iter()
        .flat_map(|reader| reader.seen.operations)
        .collect())
}

/// All acknowledged inserts are there, and none of those refused.
fn nothing_lost(seen: &Seen, shared: &Arc<Shared>) -> Result<(), Failed> {
    let mut reader = Client::new(2000, 0, Arc::clone(shared));
    let acknowledged = seen.inserts(Fate::Acknowledged);
    for (keys, there) in [(&acknowledged, true), (&seen.inserts(Fate::Refused), false)] {
        for keys in keys.chunks(KEYS_AT_ONCE) {
            let values = wait_for("all inserts", || reader.values(keys))?;
            let wrong = |(key, value): &(&&str, Held)| match value {
                Some(value) => !there || key.strip_prefix('i') != Some(value),
                None => there,
            };
            if let Some((key, value)) = keys.iter().zip(values).find(wrong) {
                let fate = if there { "acknowledged" } else { "refused" };
                return Err(Failed(format!(
                    "the insert of {key} was {fate}; it holds {value:?}"
                )));
            }
        }
    }
    let total = wait_for("the total", || reader.values(&[TOTAL]))?;
    let total = total.into_iter().flatten().next();
    let total: u64 = total.and_then(|text| text.parse().ok()).unwrap_or(0);
    let (least, most) = (
        seen.total.acknowledged,
        seen.total.acknowledged + seen.total.unknown,
    );
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
