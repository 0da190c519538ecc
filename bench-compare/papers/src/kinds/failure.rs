//! Measures the rate over time while a node, or the external device process that assigns slots, is
//! killed.

use std::{
    thread,
    time::{Duration, Instant},
};

use quorate_bench::{
    device::DeviceKind,
    figure::{median, round_to_four_digits},
    load::OfferedLoad,
    problem::{Kind, Problem},
    repetition::Repetition,
    report::BenchReport,
    row::{Row, RowSetting},
    run::{
        RunTime,
        ceilings::MeasuredCeilings,
        measure::{NodeBench, partial_row, to_nanos, unreachable_problem},
        readings::{CounterReadings, UsageDelta},
        session::{ClusterMember, NodeSession},
    },
    samples::Samples,
};
use quorate_core::record::Class;
use quorate_testbed::progress;

use crate::experiment::Experiment;

/// Time after the kill that is counted neither in the rate before the kill nor in the rate after
/// it.
const SETTLE_DURATION: Duration = Duration::from_secs(1);
/// Minimum duration. It leaves half a second for the rate after the kill.
const DURATION_MIN: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Follower,
    Leader,
    /// External processes of the leader's device, if the device has any.
    DeviceProcesses,
}

impl Victim {
    /// Returns the victims to measure on nodes with device `device`.
    const fn all_for(device: Option<DeviceKind>) -> &'static [Self] {
        match device {
            Some(DeviceKind::P4) => &[Self::Follower, Self::DeviceProcesses, Self::Leader],
            _ => &[Self::Follower, Self::Leader],
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Follower => "an acceptor",
            Self::Leader => "the leader",
            Self::DeviceProcesses => "the leader's box",
        }
    }
}

/// Checks that the duration suffices to measure the rates before and after the kill.
pub(crate) fn check_duration(time: &RunTime) -> Result<(), Problem> {
    if time.duration >= DURATION_MIN {
        return Ok(());
    }
    let what = format_args!(
        "--duration {:?}: too short to tell the rates before and after a kill",
        time.duration
    );
    Err(Problem::usage_error(what)
        .with_hint("use at least 3s: half before the kill, half after it"))
}

/// Adds a row for each victim, with a new cluster for each repetition.
pub(crate) fn run(
    experiment: &Experiment<'_>,
    session: &mut NodeSession,
    document: &mut BenchReport,
) -> Result<(), Problem> {
    let time = experiment.options.time.with_usual_defaults();
    let mut ceilings = MeasuredCeilings::new(session, &time, document.environment.clone())?;
    let measured = measure_rows(experiment, session, &mut ceilings, document);
    document.rows.extend(ceilings.into_rows());
    measured?;
    session.kill_nodes();
    Ok(())
}

fn measure_rows(
    experiment: &Experiment<'_>,
    session: &mut NodeSession,
    ceilings: &mut MeasuredCeilings,
    document: &mut BenchReport,
) -> Result<(), Problem> {
    for value_bytes in &experiment.run.value_bytes {
        for victim in Victim::all_for(experiment.run.device) {
            measure_row(experiment, session, ceilings, document, *value_bytes, *victim)?;
        }
    }
    Ok(())
}

/// Measures all repetitions with one kind of victim.
fn measure_row(
    experiment: &Experiment<'_>,
    session: &mut NodeSession,
    ceilings: &mut MeasuredCeilings,
    document: &mut BenchReport,
    value_bytes: usize,
    victim: Victim,
) -> Result<(), Problem> {
    let time = experiment.options.time.with_usual_defaults();
    let name = format!("{}: {} killed", experiment.scenario.name, victim.name());
    let clients = experiment.run.clients.iter().copied().max().unwrap_or(1);
    let offer = OfferedLoad::Closed { outstanding: clients };
    let setting = experiment.row_setting(&name, value_bytes, clients, offer);
    let moments = EventTimes::from_run_time(&time);
    let device = experiment.run.device;
    let named = device.map(|device| ["--device", device.name()]);
    let flags = named.as_ref().map_or(&[][..], |flags| &flags[..]);
    let (mut all, mut stories) = (Vec::new(), Vec::new());
    for number in 1..=time.repetition_count {
        let measured = experiment
            .start_nodes_with(session, flags)
            .map(|mut bench| {
                bench.device = device;
                bench
            })
            .and_then(|bench| run_repetition(&bench, session, &setting, victim, moments));
        let repetition = match measured {
            Ok(repetition) => repetition,
            Err(problem) => {
                let environment = &document.environment;
                let cut = partial_row(&setting, environment, &all, time.repetition_count, &problem);
                document.rows.extend(cut);
                return Err(problem);
            }
        };
        let story = KillTimeline::from_samples(&repetition.samples, moments);
        progress(&format!("{name}, {number} of {}: {story}", time.repetition_count));
        all.push(repetition);
        stories.push(story);
    }
    let Some(mut row) = Row::new(&setting, &document.environment, &all) else {
        return Ok(());
    };
    let gaps: Vec<f64> = stories.iter().map(|story| story.gap_ms).collect();
    row.set_event(moments.kill_at.as_secs_f64(), &gaps);
    let durable = experiment.run.durability == Class::Durable.name();
    let flush = experiment.options.disk_flush;
    if let Some(per_second) = ceilings.ceiling_per_second(value_bytes, clients, durable, flush)? {
        row.set_bare_ceiling(per_second);
    }
    document.rows.push(row);
    document.notes.push(format!("{name}: {}", describe_timelines(&stories)));
    Ok(())
}

/// Runs one repetition, with a kill in the middle of the measured time.
fn run_repetition(
    bench: &NodeBench,
    session: &mut NodeSession,
    setting: &RowSetting,
    victim: Victim,
    moments: EventTimes,
) -> Result<Repetition, Problem> {
    let leader = bench.leader()?;
    let cluster = bench.cluster.as_ref();
    let members = || cluster.iter().flat_map(|cluster| &cluster.members);
    let followers: Vec<&ClusterMember> = members().filter(|place| place.node != leader).collect();
    let [survivor, other] = followers[..] else {
        let what = "three nodes were started, and there are others";
        return Err(Problem::new(Kind::Failed, "node_failed", what));
    };
    // Clients connect to a follower that survives the kill.
    let killed = match victim {
        Victim::Follower => Some(other.node),
        Victim::Leader => Some(leader),
        Victim::DeviceProcesses => None,
    };
    let all = || cluster.cloned().unwrap_or_default();
    let left = killed.map_or_else(all, |node| all().without(node));
    let running = bench.start(bench.load_plan(setting), setting, vec![survivor.client.into()])?;
    let Some(started) = running.wait_started() else {
        return Err(unreachable_problem(running.finish().err()));
    };
    let sleep_to = |moment| {
        let at: Instant = started + moment;
        thread::sleep(at.saturating_duration_since(Instant::now()));
    };
    sleep_to(moments.measure_begin);
    let begin = CounterReadings::read_all(cluster, running.completed());
    sleep_to(moments.kill_at);
    let before = CounterReadings::read_all(cluster, running.completed());
    let since = killed.map_or_else(|| before.clone(), |node| before.without(node));
    match killed {
        Some(node) => session.kill(node)?,
        None => session.kill_device_processes(leader)?,
    }
    sleep_to(moments.measure_end);
    let end = CounterReadings::read_all(Some(&left), running.completed());
    let samples = running.finish().map_err(|error| unreachable_problem(Some(error)))?;
    let mut repetition = Repetition { samples, ..Repetition::default() };
    // The final leader counts as the leader since the kill. The short gap without a leader is
    // attributed to it.
    let next = left.wait_for_leader().ok();
    UsageDelta::between(&begin, &before, Some(leader))
        .plus_next(UsageDelta::between(&since, &end, next))
        .fill_repetition(&mut repetition);
    Ok(repetition)
}

/// Times of the events, relative to the start.
#[derive(Clone, Copy, Debug)]
struct EventTimes {
    measure_begin: Duration,
    kill_at: Duration,
    measure_end: Duration,
}

impl EventTimes {
    fn from_run_time(time: &RunTime) -> Self {
        Self {
            measure_begin: time.warmup,
            kill_at: time.warmup + time.duration / 2,
            measure_end: time.warmup + time.duration,
        }
    }
}

/// Rates before and after the kill, and the length of the gap.
#[derive(Clone, Copy, Debug, PartialEq)]
struct KillTimeline {
    rate_before: f64,
    rate_after: f64,
    gap_ms: f64,
}

impl KillTimeline {
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    fn from_samples(samples: &Samples, moments: EventTimes) -> Self {
        let (kill, end) = (to_nanos(moments.kill_at), to_nanos(moments.measure_end));
        let gap = samples.gaps.longest_after(kill).unwrap_or(0);
        Self {
            rate_before: samples.rate_between(to_nanos(moments.measure_begin), kill),
            rate_after: samples.rate_between(kill + to_nanos(SETTLE_DURATION), end),
            gap_ms: round_to_four_digits(gap as f64 / 1e6),
        }
    }
}

impl std::fmt::Display for KillTimeline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { rate_before: before, rate_after: after, gap_ms } = self;
        write!(
            f,
            "{before:.0}/s before, {after:.0}/s from one second after it; at most {gap_ms} ms \
             without any reply"
        )
    }
}

/// Describes the medians, and the gap of each repetition.
fn describe_timelines(stories: &[KillTimeline]) -> String {
    let of = |figure: fn(&KillTimeline) -> f64| median(stories.iter().map(figure));
    let story = KillTimeline {
        rate_before: of(|story| story.rate_before),
        rate_after: of(|story| story.rate_after),
        gap_ms: round_to_four_digits(of(|story| story.gap_ms)),
    };
    if stories.len() < 2 {
        return story.to_string();
    }
    let gaps: Vec<String> = stories.iter().map(|story| story.gap_ms.to_string()).collect();
    format!("{story} (medians of {}; each: {} ms)", stories.len(), gaps.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: RunTime = RunTime {
        duration: Duration::from_secs(4),
        warmup: Duration::from_millis(50),
        repetition_count: 1,
    };

    /// Returns samples with one reply per millisecond, except for no replies from 2.090 s (the kill
    /// is at 2.050) to 2.273 s, and every other reply starting at 3 s. The last bar covers only 50
    /// ms.
    fn samples() -> Samples {
        let mut samples = Samples { replies_over_time: vec![0; 41], ..Samples::default() };
        let silent = 2_090..2_273;
        for at in (0..4_050).filter(|at| !silent.contains(at) && (*at < 3_000 || at % 2 == 0)) {
            samples.gaps.end_gap_at(at * 1_000_000);
            samples.replies_over_time[usize::try_from(at / 100).unwrap()] += 1;
        }
        samples
    }

    #[test]
    fn the_story_tells_the_rates_and_the_silence_itself() {
        let story = KillTimeline::from_samples(&samples(), EventTimes::from_run_time(&TIME));
        assert_eq!(
            story.to_string(),
            "1000/s before, 500/s from one second after it; at most 184 ms without any reply"
        );
    }

    #[test]
    fn silence_to_the_end_is_a_rate_of_nothing() {
        let mut samples = samples();
        samples.replies_over_time.truncate(21);
        let story = KillTimeline::from_samples(&samples, EventTimes::from_run_time(&TIME));
        assert_eq!(story.rate_after, 0.0);
    }

    #[test]
    fn repetitions_have_medians_and_each_its_gap() {
        let story =
            |before, gap_ms| KillTimeline { rate_before: before, rate_after: 500.0, gap_ms };
        let all = [story(1000.0, 183.2), story(3000.0, 90.0), story(2000.0, 201.0)];
        assert_eq!(
            describe_timelines(&all),
            "2000/s before, 500/s from one second after it; at most 183.2 ms without any reply \
             (medians of 3; each: 183.2, 90, 201 ms)"
        );
    }

    #[test]
    fn a_time_without_a_tail_is_refused() {
        assert!(check_duration(&TIME).is_ok());
        let short = RunTime { duration: Duration::from_secs(2), ..TIME };
        let problem = check_duration(&short).unwrap_err();
        assert!(problem.message.contains("2s") && problem.hint.contains("3s"));
    }
}
