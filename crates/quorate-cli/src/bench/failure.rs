//! The rate over time while a node is killed.

use std::{thread, time::Instant};

use quorate_bench::{
    load::Offer,
    report::Document,
    row::{Repetition, Row},
    samples::BUCKET,
};

use super::{measure::nanos, paper::Experiment, session::Session};
use crate::output::{Exit, Problem, progress};

/// Who is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Follower,
    Leader,
}

/// One run for each victim, in a new cluster.
pub(super) fn run(
    experiment: &Experiment<'_>,
    session: &mut Session,
    document: &mut Document,
) -> Result<(), Problem> {
    for value_bytes in &experiment.run.value_bytes {
        for victim in [Victim::Follower, Victim::Leader] {
            kill_one(experiment, session, document, *value_bytes, victim)?;
        }
    }
    session.end();
    Ok(())
}

/// Half of the time before the kill, half of it after.
fn kill_one(
    experiment: &Experiment<'_>,
    session: &mut Session,
    document: &mut Document,
    value_bytes: usize,
    victim: Victim,
) -> Result<(), Problem> {
    let bench = experiment.bench(session)?;
    let leader = bench.leader()?;
    let members = bench.cluster.iter().flat_map(|cluster| &cluster.members);
    let followers: Vec<_> = members.filter(|place| place.node != leader).collect();
    let [survivor, other] = followers[..] else {
        let what = "three nodes were started, and there are others";
        return Err(Problem::new(Exit::Failed, "node_failed", what));
    };
    // Clients are connected to a follower that lives, in both runs.
    let (killed, who) = match victim {
        Victim::Follower => (other.node, "an acceptor"),
        Victim::Leader => (leader, "the leader"),
    };
    let name = format!("{}: {who} killed", experiment.scenario.name);
    let clients = experiment.run.clients.iter().copied().max().unwrap_or(1);
    let offer = Offer::Closed {
        outstanding: clients,
    };
    let setting = experiment.setting(&name, value_bytes, clients, offer);
    let running = bench.start(bench.plan(&setting), &setting, vec![survivor.client])?;
    let failed = |why: &str| Problem::new(Exit::Unreachable, "unreachable", why);
    let Some(started) = running.started() else {
        return Err(failed("the load could not be offered"));
    };
    let kill_at = bench.time.warmup + bench.time.duration / 2;
    thread::sleep((started + kill_at).saturating_duration_since(Instant::now()));
    session.kill(killed)?;
    progress(&format!("{name}: node {killed}"));
    let samples = running
        .finish()
        .map_err(|error| failed(&error.to_string()))?;
    let kill_bucket = usize::try_from(nanos(kill_at) / BUCKET).unwrap_or(0);
    document.notes.push(format!(
        "{name}: {}",
        story(&samples.over_time, kill_bucket)
    ));
    let repetition = Repetition {
        counted: samples.completed,
        samples,
        ..Repetition::default()
    };
    if let Some(mut row) = Row::new(&setting, &bench.environment, &[repetition]) {
        row.event_s = Some(kill_at.as_secs_f64());
        document.rows.push(row);
    }
    Ok(())
}

/// What the rate did: before, after, and how long there was none.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn story(over_time: &[u32], kill: usize) -> String {
    let rate = |buckets: &[u32]| {
        let sum: u64 = buckets.iter().map(|count| u64::from(*count)).sum();
        sum as f64 * 10.0 / buckets.len().max(1) as f64
    };
    let kill = kill.min(over_time.len());
    let (before, after) = over_time.split_at(kill);
    // One second on either side is neither before nor after.
    let before = &before[before.len() / 4..before.len().saturating_sub(1)];
    let settled = &after[after.len().min(10)..];
    let silent = longest_silence(after);
    format!(
        "{:.0}/s before, {:.0}/s from one second after it; at most {} ms without any reply",
        rate(before),
        rate(settled),
        silent * 100
    )
}

/// Most empty bars in a row.
fn longest_silence(bars: &[u32]) -> usize {
    let runs = bars.split(|count| *count > 0);
    runs.map(<[u32]>::len).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_story_tells_the_rates_and_the_silence() {
        let mut bars = vec![100; 40];
        bars[20..23].fill(0);
        bars[30..].fill(50);
        let story = story(&bars, 20);
        assert_eq!(
            story,
            "1000/s before, 500/s from one second after it; at most 300 ms without any reply"
        );
    }

    #[test]
    fn a_run_that_was_cut_short_is_told_as_well() {
        assert!(story(&[], 20).starts_with("0/s before"));
        assert_eq!(longest_silence(&[0, 0, 1, 0]), 2);
    }
}
