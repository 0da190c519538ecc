//! Runs a seed and reports the result together with the command that repeats the run.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
};

use crate::{
    check::Violation,
    faults::Settings,
    network::Carrier,
    world::{Counts, World},
};

#[derive(Clone, Debug)]
pub struct Report {
    pub seed: u64,
    pub steps: u64,
    pub settings: Settings,
    /// First violation; `None` if all properties held.
    pub violation: Option<Violation>,
    pub lines: Vec<String>,
    /// Hash of the trace. Identical runs have identical hashes.
    pub trace_hash: u64,
    pub counts: Counts,
    /// Numbers of requests answered, requests refused, and requests with an unknown outcome.
    pub requests: [u64; 3],
    /// Virtual time that elapsed, in milliseconds.
    pub virtual_ms: u64,
}

impl Report {
    /// Returns the command that repeats this run. Valid only for a run that was not shrunk.
    pub fn replay(&self) -> String {
        format!("quorate sim --seed {} --steps {}", self.seed, self.steps)
    }

    pub fn holds(&self) -> bool {
        self.violation.is_none()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings = &self.settings;
        writeln!(
            f,
            "seed {}: {} nodes, {:?}, {:?}, depth {}, {:?}",
            self.seed,
            settings.nodes,
            settings.class,
            settings.losses,
            settings.depth,
            settings.weather.carrier
        )?;
        let Some(violation) = &self.violation else {
            let [answered, refused, unknown] = self.requests;
            let counts = &self.counts;
            write!(
                f,
                "all properties held: {} events, {} ms, {answered} requests answered, {refused} refused, \
                 {unknown} unknown, {} elections, {} kills, {} stops, {} resets, {} disk errors, {} shed, \
                 {} snapshots, {} installed, {} trims, {} joined, {} plans, {} retired",
                counts.events,
                self.virtual_ms,
                counts.elections,
                counts.kills,
                counts.stops,
                counts.resets,
                counts.disk_errors,
                counts.shed,
                counts.snapshots,
                counts.installs,
                counts.trims,
                counts.joins,
                counts.plans,
                counts.retired
            )?;
            return match settings.weather.carrier {
                Carrier::Packets { .. } => write!(f, "\n{}", counts.packets),
                Carrier::Streams | Carrier::Datagrams => Ok(()),
            };
        };
        let names: Vec<String> = settings
            .faults
            .iter()
            .map(|(fault, mean)| format!("{fault:?}/{}ms", mean / 1000))
            .collect();
        writeln!(f, "faults: {}", names.join(" "))?;
        for line in &self.lines {
            writeln!(f, "{line}")?;
        }
        writeln!(f, "violated {violation}")?;
        write!(f, "replay: {}", self.replay())
    }
}

/// Runs a seed with `steps` events in act one, followed by act two.
pub fn run(seed: u64, steps: u64) -> Report {
    run_with(Settings::draw(seed), steps)
}

/// Runs the given settings. A panic of production code counts as a violation.
pub fn run_with(settings: Settings, steps: u64) -> Report {
    run_world(World::new(settings), steps)
}

/// Runs a prepared world, for example one that retains more trace lines.
pub fn run_world(mut world: World, steps: u64) -> Report {
    let acts = AssertUnwindSafe(|| {
        world.act_one(steps)?;
        world.act_two()
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
    Report {
        seed: world.settings.seed,
        steps,
        settings: world.settings.clone(),
        violation,
        lines: world.trace.lines().map(str::to_owned).collect(),
        trace_hash: world.trace.hash(),
        counts: world.counts,
        requests: [world.books.answered, world.books.refused, world.books.unknown],
        virtual_ms: world.now.0 / 1000,
    }
}

/// Searches for a smaller run that violates the same property: fewer events, then fewer faults,
/// then fewer clients. Makes at most a few dozen runs, and returns the original report if none of
/// them violates the property.
pub fn shrink(report: Report) -> Report {
    let Some(property) = report.violation.as_ref().map(|violation| violation.property) else {
        return report;
    };
    let breaks = |settings: Settings, steps| {
        let smaller = run_with(settings, steps);
        let same = smaller.violation.as_ref().is_some_and(|found| found.property == property);
        same.then_some(smaller)
    };
    let mut best = report;
    while best.steps > 1
        && let Some(smaller) = breaks(best.settings.clone(), best.steps / 2)
    {
        best = smaller;
    }
    for index in (0..best.settings.faults.len()).rev() {
        let mut settings = best.settings.clone();
        settings.faults.remove(index);
        best = breaks(settings, best.steps).unwrap_or(best);
    }
    while best.settings.clients > 1 {
        let mut settings = best.settings.clone();
        settings.clients /= 2;
        match breaks(settings, best.steps) {
            Some(smaller) => best = smaller,
            None => break,
        }
    }
    best
}
