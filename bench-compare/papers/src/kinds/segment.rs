//! Clusters of several sizes on an emulated segment, next to the ceiling of a bare multicast
//! sender.

use quorate_bench::{
    load::OfferedLoad,
    problem::Problem,
    report::BenchReport,
    row::RowSetting,
    run::{
        measure::{NodeBench, Service},
        segment::{find_measured, measure_ceiling, set_row_ceiling},
        session::NodeSession,
    },
};

use crate::experiment::Experiment;

/// Maximum number of connections of the load generator.
const CONNECTIONS_MAX: u32 = 16;
/// Flags that nodes are started with in segment experiments.
const NODE_FLAGS: [&str; 5] = ["--plane", "multicast", "--plane-trusted", "--votes", "ring"];

/// Runs the experiment, with new nodes for each group size and each socket buffer size.
pub(crate) fn run(
    experiment: &Experiment<'_>,
    session: &mut NodeSession,
    document: &mut BenchReport,
) -> Result<(), Problem> {
    for voters in &experiment.run.voters {
        for learners in &experiment.run.learners {
            let sizes = experiment.run.buffers_kib.iter().copied().map(Some);
            let usual = experiment.run.buffers_kib.is_empty().then_some(None);
            for buffer_kib in sizes.chain(usual) {
                let group =
                    SegmentGroup { voter_count: *voters, learner_count: *learners, buffer_kib };
                measure_group(experiment, session, group, document)?;
            }
        }
    }
    session.kill_nodes();
    if let Some(network) = session.network() {
        document.notes.push(network.describe());
    }
    Ok(())
}

/// Numbers of nodes that form a cluster, and their socket buffers.
#[derive(Clone, Copy, Debug)]
struct SegmentGroup {
    voter_count: u32,
    learner_count: u32,
    /// Size of each socket's receive buffer in KiB; `None` for the nodes' default.
    buffer_kib: Option<u32>,
}

/// Measures all value sizes and numbers of clients with one group.
fn measure_group(
    experiment: &Experiment<'_>,
    session: &mut NodeSession,
    group: SegmentGroup,
    document: &mut BenchReport,
) -> Result<(), Problem> {
    let (run, time) = (experiment.run, experiment.options.time.with_usual_defaults());
    let (voters, learners) = (group.voter_count, group.learner_count);
    let receivers = voters + learners - 1;
    if find_measured(document, receivers).is_none() {
        document.ceilings.push(measure_ceiling(receivers, &time)?);
    }
    let flags = ["--durability", &run.durability, "--store", experiment.store_name()];
    let buffer = group.buffer_kib.map(|kib| kib.to_string());
    let buffer = buffer.as_deref().map(|kib| ["--plane-buffer", kib]);
    let flags = [&flags[..], &NODE_FLAGS, buffer.as_ref().map_or(&[], |flag| flag)].concat();
    let mut cluster = session.boot_some(voters, None, &flags)?;
    if learners > 0 {
        cluster = session.join(learners, &flags)?;
    }
    let bench = NodeBench::with_own_nodes(Service::Log, cluster, time, session);
    for value_bytes in &run.value_bytes {
        for outstanding in &run.clients {
            let offer = OfferedLoad::Closed { outstanding: *outstanding };
            let connections = (*outstanding).min(CONNECTIONS_MAX);
            let name = &experiment.scenario.name;
            let setting = RowSetting {
                plane: Some(group.describe()),
                ..experiment.row_setting(name, *value_bytes, connections, offer)
            };
            let mut row = bench.measure_row(&setting, document)?;
            if let Some(payload_bits) = find_measured(document, receivers) {
                set_row_ceiling(&mut row, payload_bits);
            }
            document.rows.push(row);
        }
    }
    Ok(())
}

impl SegmentGroup {
    /// Describes the group for rows.
    fn describe(self) -> String {
        let learning = match self.learner_count {
            0 => String::new(),
            1 => " and a learner".to_owned(),
            more => format!(" and {more} learners"),
        };
        let buffers =
            self.buffer_kib.map_or_else(String::new, |kib| format!(", buffers of {kib} KiB"));
        let voters = self.voter_count;
        format!("multicast, votes by a ring, {voters} nodes{learning}{buffers}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_say_who_took_part() {
        let said = |voters, learners, buffer_kib| {
            let group = SegmentGroup { voter_count: voters, learner_count: learners, buffer_kib };
            group.describe()
        };
        assert_eq!(said(3, 0, None), "multicast, votes by a ring, 3 nodes");
        assert_eq!(
            said(5, 1, Some(64)),
            "multicast, votes by a ring, 5 nodes and a learner, buffers of 64 KiB"
        );
        assert_eq!(said(3, 22, None), "multicast, votes by a ring, 3 nodes and 22 learners");
    }
}
