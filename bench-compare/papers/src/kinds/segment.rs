//! Clusters of several sizes on an emulated segment, next to the ceiling of a bare multicast sender.

use quorate_bench::{
    load::Offer,
    problem::Problem,
    report::Document,
    row::Setting,
    run::{
        measure::{Bench, Service},
        segment::{ceiling, found, put_beside},
        session::Session,
    },
};

use crate::experiment::Experiment;

/// Maximum number of connections of the load generator.
const CONNECTIONS_MAX: u32 = 16;
/// Flags that nodes are started with in segment experiments.
const FLAGS: [&str; 5] = ["--plane", "multicast", "--plane-trusted", "--votes", "ring"];

/// Runs the experiment, with new nodes for each group size and each socket buffer size.
pub(crate) fn run(
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
    let bench = Bench::of_own(Service::Log, cluster, time, session);
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
