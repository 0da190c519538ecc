//! Runs a seed and reports the result together with the command that repeats the run.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
};

use crate::{
    check::Violation,
    faults::RunSettings,
    network::Carrier,
    world::{EventCounts, World},
};

#[derive(Clone, Debug)]
pub struct RunReport {
    pub seed: u64,
    pub event_count: u64,
    pub settings: RunSettings,
    /// First violation; `None` if all properties held.
    pub violation: Option<Violation>,
    pub trace_lines: Vec<String>,
    /// Hash of the trace. Identical runs have identical hashes.
    pub trace_hash: u64,
    pub event_counts: EventCounts,
    /// Numbers of requests answered, requests refused, and requests with an unknown outcome.
    pub request_outcomes: [u64; 3],
    /// Virtual time that elapsed, in milliseconds.
    pub virtual_ms: u64,
}

impl RunReport {
    /// Returns the command that repeats this run. Valid only for a run that was not shrunk.
    pub fn replay_command(&self) -> String {
        format!("quorate sim --seed {} --steps {}", self.seed, self.event_count)
    }

    pub fn has_no_violation(&self) -> bool {
        self.violation.is_none()
    }
}

impl fmt::Display for RunReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings = &self.settings;
        writeln!(
            f,
            "seed {}: {} nodes, {:?}, {:?}, depth {}, {:?}",
            self.seed,
            settings.founding_member_count,
            settings.class,
            settings.loss_scope,
            settings.inflight_writes_max,
            settings.network_conditions.carrier
        )?;
        let Some(violation) = &self.violation else {
            let [answered, refused, unknown] = self.request_outcomes;
            let counts = &self.event_counts;
            write!(
                f,
                "all properties held: {} events, {} ms, {answered} requests answered, {refused} refused, \
                 {unknown} unknown, {} elections, {} kills, {} stops, {} resets, {} disk errors, {} shed, \
                 {} snapshots, {} installed, {} trims, {} joined, {} plans, {} retired",
                counts.events,
                self.virtual_ms,
                counts.elections,
                counts.kills,
                counts.clean_stops,
                counts.connection_resets,
                counts.disk_errors,
                counts.clients_shed,
                counts.snapshots_taken,
                counts.snapshots_installed,
                counts.log_trims,
                counts.joins,
                counts.plans_accepted,
                counts.nodes_retired
            )?;
            return match settings.network_conditions.carrier {
                Carrier::Packets { .. } => write!(f, "\n{}", counts.datagram_counts),
                Carrier::Streams | Carrier::Datagrams => Ok(()),
            };
        };
        let names: Vec<String> = settings
            .fault_intervals
            .iter()
            .map(|(fault, mean)| format!("{fault:?}/{}ms", mean / 1000))
            .collect();
        writeln!(f, "faults: {}", names.join(" "))?;
        for line in &self.trace_lines {
            writeln!(f, "{line}")?;
        }
        writeln!(f, "violated {violation}")?;
        write!(f, "replay: {}", self.replay_command())
    }
}

/// Runs a seed with `steps` events in act one, followed by act two.
pub fn run(seed: u64, steps: u64) -> RunReport {
    run_settings(RunSettings::draw(seed), steps)
}

/// Runs the given settings. A panic of production code counts as a violation.
pub fn run_settings(settings: RunSettings, steps: u64) -> RunReport {
    run_world(World::new(settings), steps)
}

/// Runs a prepared world, for example one that retains more trace lines.
pub fn run_world(mut world: World, steps: u64) -> RunReport {
    let acts = AssertUnwindSafe(|| {
        world.run_act_one(steps)?;
        world.run_act_two()
    });
    let violation = match catch_unwind(acts) {
        Ok(verdict) => verdict.err(),
        Err(panic) => {
            let text = panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Some(Violation::new("panic", text.unwrap_or_else(|| "of an unknown kind".into())))
        }
    };
    RunReport {
        seed: world.settings.seed,
        event_count: steps,
        settings: world.settings.clone(),
        violation,
        trace_lines: world.trace.lines().map(str::to_owned).collect(),
        trace_hash: world.trace.final_hash(),
        event_counts: world.counts,
        request_outcomes: [
            world.client_records.answered_requests,
            world.client_records.refused_requests,
            world.client_records.unknown_requests,
        ],
        virtual_ms: world.now.0 / 1000,
    }
}

/// Searches for a smaller run that violates the same property: fewer events, then fewer faults,
/// then fewer clients. Makes at most a few dozen runs, and returns the original report if none of
/// them violates the property.
pub fn shrink(report: RunReport) -> RunReport {
    let Some(property) = report.violation.as_ref().map(|violation| violation.property) else {
        return report;
    };
    let breaks = |settings: RunSettings, steps| {
        let smaller = run_settings(settings, steps);
        let same = smaller.violation.as_ref().is_some_and(|found| found.property == property);
        same.then_some(smaller)
    };
    let mut best = report;
    while best.event_count > 1
        && let Some(smaller) = breaks(best.settings.clone(), best.event_count / 2)
    {
        best = smaller;
    }
    for index in (0..best.settings.fault_intervals.len()).rev() {
        let mut settings = best.settings.clone();
        settings.fault_intervals.remove(index);
        best = breaks(settings, best.event_count).unwrap_or(best);
    }
    while best.settings.client_count > 1 {
        let mut settings = best.settings.clone();
        settings.client_count /= 2;
        match breaks(settings, best.event_count) {
            Some(smaller) => best = smaller,
            None => break,
        }
    }
    best
}
