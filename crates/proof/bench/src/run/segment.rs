//! A cluster on an emulated segment compared with its ceiling, a bare multicast sender. Also runs
//! experiments of the kind [`Kind::Segment`](crate::papers::Kind).

use std::time::Duration;

use quorate_node::log_service::classes::AnswerClass;
use quorate_testbed::progress;

use super::{
    Time,
    experiment::Experiment,
    measure::{Bench, Service},
    network::lan,
    session::Session,
};
use crate::{
    environment::Environment,
    figure::round,
    load::Offer,
    probe::Ceiling,
    problem::Problem,
    report::Document,
    row::{Row, Setting},
};

/// Maximum measured time of a bare program, which reaches its steady state at once.
const MEASURE_MAX: Duration = Duration::from_secs(3);
const BITS_PER_BYTE: f64 = 8.0;
const MEGA: f64 = 1e6;
/// Maximum number of connections of the load generator.
const CONNECTIONS_MAX: u32 = 16;
/// Flags that nodes are started with in segment experiments.
const FLAGS: [&str; 5] = ["--plane", "multicast", "--plane-trusted", "--votes", "ring"];

/// Measures the throughput from one bare sender to the slowest of `receivers` receivers.
pub(super) fn ceiling(receivers: u32, time: &Time) -> Result<Ceiling, Problem> {
    let mut rates = Vec::new();
    for _ in 0..time.repeat {
        let rate = lan::measure(receivers, time.duration.min(MEASURE_MAX))? * BITS_PER_BYTE;
        progress(&format!("bare multicast to {receivers}: {:.1} Mbit/s of datagrams", rate / MEGA));
        rates.push(rate);
    }
    rates.sort_by(f64::total_cmp);
    let median = rates.get(rates.len() / 2).copied().unwrap_or_default();
    Ok(Ceiling {
        name: name(receivers),
        value: round(median / MEGA),
        unit: "Mbit/s".to_owned(),
        p50_us: None,
        p99_us: None,
        cpu_us_per_op: None,
    })
}

/// Returns the throughput already measured with `receivers` receivers, in bits per second.
pub(super) fn found(document: &Document, receivers: u32) -> Option<f64> {
    among(&document.ceilings, receivers)
}

fn among(ceilings: &[Ceiling], receivers: u32) -> Option<f64> {
    let name = name(receivers);
    let found = ceilings.iter().find(|one| one.name == name);
    found.map(|one| one.value * MEGA)
}

/// Sets the throughput of the bare sender as the ceiling of a row.
#[expect(clippy::cast_precision_loss, reason = "a size")]
pub(super) fn put_beside(row: &mut Row, payload_bits: f64) {
    let value_bits = row.value_bytes.max(1) as f64 * BITS_PER_BYTE;
    row.set_ceiling_of_delivery(payload_bits / value_bits);
}

fn name(receivers: u32) -> String {
    format!("bare multicast, payload of datagrams at the slowest of {receivers} receivers")
}

/// Runs the experiment, with new nodes for each group size and each socket buffer size.
pub(super) fn run(
    experiment: &Experiment<'_>,
    session: &mut Session,
    document: &mut Document,
) -> Result<(), Problem> {
    for voters in &experiment.run.voters {
        for learners in &experiment.run.learners {
            let sizes = experiment.run.buffers_kib.iter().copied().map(Some);
            let usual = experiment.run.buffers_kib.is_empty().then_some(None);
            for buffer_kib in sizes.chain(usual) {
                let group = Group { voters: *voters, learners: *learners, buffer_kib };
                with_nodes(experiment, session, group, document)?;
            }
        }
    }
    session.end();
    if let Some(network) = session.network() {
        document.notes.push(network.note());
    }
    Ok(())
}

/// Numbers of nodes that form a cluster, and their socket buffers.
#[derive(Clone, Copy, Debug)]
struct Group {
    voters: u32,
    learners: u32,
    /// Size of each socket's receive buffer in KiB; `None` for the nodes' default.
    buffer_kib: Option<u32>,
}

/// Measures all value sizes and numbers of clients with one group.
fn with_nodes(
    experiment: &Experiment<'_>,
    session: &mut Session,
    group: Group,
    document: &mut Document,
) -> Result<(), Problem> {
    let (run, time) = (experiment.run, experiment.wish.time.usual());
    let (voters, learners) = (group.voters, group.learners);
    let receivers = voters + learners - 1;
    if found(document, receivers).is_none() {
        document.ceilings.push(ceiling(receivers, &time)?);
    }
    let flags = ["--durability", &run.durability, "--store", experiment.store()];
    let buffer = group.buffer_kib.map(|kib| kib.to_string());
    let buffer = buffer.as_deref().map(|kib| ["--plane-buffer", kib]);
    let flags = [&flags[..], &FLAGS, buffer.as_ref().map_or(&[], |flag| flag)].concat();
    let mut cluster = session.boot_some(voters, None, &flags)?;
    if learners > 0 {
        cluster = session.join(learners, &flags)?;
    }
    let bench = Bench {
        service: Service::Log,
        cluster: Some(cluster),
        doors: Vec::new(),
        connected: None,
        time,
        environment: Environment::now(),
        network: session.network(),
        device: None,
        frames: None,
        class: AnswerClass::Group,
    };
    for value_bytes in &run.value_bytes {
        for outstanding in &run.clients {
            let offer = Offer::Closed { outstanding: *outstanding };
            let connections = (*outstanding).min(CONNECTIONS_MAX);
            let name = &experiment.scenario.name;
            let setting = Setting {
                plane: Some(group.said()),
                ..experiment.setting(name, *value_bytes, connections, offer)
            };
            let mut row = bench.row(&setting, document)?;
            if let Some(payload_bits) = found(document, receivers) {
                put_beside(&mut row, payload_bits);
            }
            document.rows.push(row);
        }
    }
    Ok(())
}

impl Group {
    /// Describes the group for rows.
    fn said(self) -> String {
        let learning = match self.learners {
            0 => String::new(),
            1 => " and a learner".to_owned(),
            more => format!(" and {more} learners"),
        };
        let buffers =
            self.buffer_kib.map_or_else(String::new, |kib| format!(", buffers of {kib} KiB"));
        let voters = self.voters;
        format!("multicast, votes by a ring, {voters} nodes{learning}{buffers}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ceiling_is_that_of_as_many_receivers() {
        let ceiling = |receivers, value| Ceiling {
            name: name(receivers),
            value,
            unit: "Mbit/s".to_owned(),
            p50_us: None,
            p99_us: None,
            cpu_us_per_op: None,
        };
        let ceilings = [ceiling(2, 97.0), ceiling(10, 95.5)];
        assert_eq!(among(&ceilings, 10), Some(95_500_000.0));
        assert_eq!(among(&ceilings, 1), None);
    }

    #[test]
    fn rows_say_who_took_part() {
        let said = |voters, learners, buffer_kib| {
            let group = Group { voters, learners, buffer_kib };
            group.said()
        };
        assert_eq!(said(3, 0, None), "multicast, votes by a ring, 3 nodes");
        assert_eq!(
            said(5, 1, Some(64)),
            "multicast, votes by a ring, 5 nodes and a learner, buffers of 64 KiB"
        );
        assert_eq!(said(3, 22, None), "multicast, votes by a ring, 3 nodes and 22 learners");
    }
}
