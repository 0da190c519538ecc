//! Measures the rate over time while a group member is paused, or has a slow link or a slow disk.

use std::{
    fmt, thread,
    time::{Duration, Instant},
};

use quorate_admin::{look::query_cluster, view::Answer};
use quorate_core::record::Class;
use quorate_testbed::progress;

use crate::{
    fault::Fault,
    figure::{median, round_to_four_digits},
    problem::{Kind, Problem},
    repetition::Repetition,
    report::BenchReport,
    row::{Row, RowSetting},
    samples::{BAR_WIDTH, Samples},
};

use super::{
    RunTime,
    measure::{NodeBench, partial_row, to_nanos, unreachable_problem},
    readings::{CounterReadings, UsageDelta},
    session::{Cluster, NodeSession},
};

/// Time after the fault that is not counted in the rate after the fault.
const SETTLE_DURATION: Duration = Duration::from_secs(1);
/// Minimum time before the fault begins and after it ends.
const UNDISTURBED_MIN: Duration = Duration::from_secs(2);
/// Share of the healthy rate at which the group counts as recovered.
const RECOVERED_SHARE: f64 = 0.9;
/// Number of consecutive bars over which the recovered rate is averaged.
const RECOVERED_BARS: usize = 5;

/// Checks that the duration suffices to measure the rates before and after the fault.
pub(super) fn check_time(fault: Fault, time: &RunTime) -> Result<(), Problem> {
    let wanted = UNDISTURBED_MIN * 2 + fault.duration().unwrap_or_default();
    if time.duration >= wanted {
        return Ok(());
    }
    let what = format_args!(
        "--duration {:?}: too short to tell the rates before and after a fault",
        time.duration
    );
    Err(Problem::usage_error(what)
        .with_hint(format!("at least {wanted:?} for a node that is {fault}")))
}

/// Checks that the group, given its size and class, can serve the load despite the fault, and that
/// the fault affects it.
pub(super) fn check_group(
    fault: Fault,
    is_series: bool,
    voters: u32,
    class: Option<Class>,
) -> Result<(), Problem> {
    if is_series {
        let what = "--lan-fault needs a single load, not a series";
        return Err(Problem::usage_error(what).with_hint("add --outstanding or --rate"));
    }
    if voters < 3 {
        let what = format!("with --nodes {voters}, the cluster stops when a node is {fault}");
        return Err(Problem::usage_error(what).with_hint("use --nodes 3 or more"));
    }
    if matches!(fault, Fault::SlowDisk(_)) && class == Some(Class::Volatile) {
        let what = "a slow disk has no effect on a volatile group";
        return Err(Problem::usage_error(what).with_hint("use --durability durable"));
    }
    Ok(())
}

/// Measures all repetitions with one fault, each in a new cluster created by `boot`.
pub(super) fn measure_row(
    fault: Fault,
    setting: &RowSetting,
    session: &mut NodeSession,
    document: &mut BenchReport,
    boot: impl Fn(&mut NodeSession) -> Result<NodeBench, Problem>,
) -> Result<Row, Problem> {
    let (mut all, mut stories) = (Vec::new(), Vec::new());
    let mut wanted = 0;
    loop {
        let measured = boot(session).and_then(|bench| {
            wanted = bench.time.repetition_count;
            run_repetition(&bench, session, setting, fault)
        });
        let (repetition, story) = match measured {
            Ok(measured) => measured,
            Err(problem) => {
                let environment = &document.environment;
                let cut = partial_row(setting, environment, &all, wanted, &problem);
                document.rows.extend(cut);
                return Err(problem);
            }
        };
        progress(&format!("{} of {wanted}: {story}", all.len() + 1));
        all.push(repetition);
        stories.push(story);
        if all.len() >= wanted as usize {
            break;
        }
    }
    let row = Row::new(setting, &document.environment, &all);
    let mut row = row.ok_or_else(|| Problem::usage_error("--repeat is at least 1"))?;
    let gaps: Vec<f64> = stories.iter().map(|story| story.figures.longest_gap_ms).collect();
    let at = stories.first().map_or(Duration::ZERO, |story| story.fault_at);
    row.set_event(at.as_secs_f64(), &gaps);
    document.notes.extend(describe_timelines(fault, &stories));
    Ok(row)
}

/// Runs one repetition, with a fault after a quarter of the measured time.
fn run_repetition(
    bench: &NodeBench,
    session: &mut NodeSession,
    setting: &RowSetting,
    fault: Fault,
) -> Result<(Repetition, FaultTimeline), Problem> {
    let leader = bench.leader()?;
    let Some(cluster) = &bench.cluster else {
        return Err(Problem::usage_error("--lan-fault needs nodes that bench starts itself"));
    };
    let target = cluster.client_address(leader).map(Into::into).into_iter().collect();
    let running = bench.start(bench.load_plan(setting), setting, target)?;
    let Some(started) = running.wait_started() else {
        return Err(unreachable_problem(running.finish().err()));
    };
    let sleep_to = |moment: Duration| {
        thread::sleep((started + moment).saturating_duration_since(Instant::now()));
    };
    let begin = bench.time.warmup;
    let quiet = (bench.time.duration / 4).max(UNDISTURBED_MIN);
    let end = begin + bench.time.duration;
    sleep_to(begin);
    let first = CounterReadings::read_all(Some(cluster), running.completed());
    sleep_to(begin + quiet);
    let before = CounterReadings::read_all(Some(cluster), running.completed());
    let ring = vote_route(cluster, leader);
    let victim = choose_victim(&ring, cluster, leader)?;
    let at = started.elapsed();
    inject_fault(session, victim, fault)?;
    if let Some(lasts) = fault.duration() {
        sleep_to(at + lasts);
        let resumed = session.resume(victim);
        resumed.map_err(|error| Problem::io_error("resume a node", &error))?;
    }
    sleep_to(end);
    let left = cluster.without(victim);
    let last = CounterReadings::read_all(Some(&left), running.completed());
    let later = vote_route(&left, leader);
    let samples = running.finish().map_err(|error| unreachable_problem(Some(error)))?;
    // The cluster of the next repetition uses the same links.
    clear_fault(session, victim, fault)?;
    let figures = FaultFigures::from_samples(&samples, begin, at, end);
    let mut repetition = Repetition { samples, ..Repetition::default() };
    UsageDelta::between(&first, &before, Some(leader))
        .plus_next(UsageDelta::between(&before.without(victim), &last, left.wait_for_leader().ok()))
        .fill_repetition(&mut repetition);
    let story =
        FaultTimeline { fault_at: at, victim, route_before: ring, route_at_end: later, figures };
    Ok((repetition, story))
}

/// Inflicts the fault on a node.
fn inject_fault(session: &mut NodeSession, node: u32, fault: Fault) -> Result<(), Problem> {
    let done = match fault {
        Fault::Stop(_) => session.pause(node),
        Fault::NarrowLink(percent) => session.narrow_link(node, percent),
        Fault::SlowDisk(flush) => session.restart_with_flush(node, flush),
    };
    done.map_err(|error| Problem::io_error("make a fault", &error))
}

/// Undoes a fault that would outlive the node.
fn clear_fault(session: &NodeSession, node: u32, fault: Fault) -> Result<(), Problem> {
    if let Fault::NarrowLink(_) = fault {
        let healed = session.narrow_link(node, 100);
        healed.map_err(|error| Problem::io_error("widen links again", &error))?;
    }
    Ok(())
}

/// Returns the nodes through which votes pass, as reported by the leader; empty if votes are sent
/// directly or the leader reports none.
fn vote_route(cluster: &Cluster, leader: u32) -> Vec<u32> {
    let asked = cluster.find_member(leader).map(|place| place.admin.clone());
    let view = query_cluster(&asked.into_iter().collect::<Vec<_>>()).ok();
    let nodes = view.as_ref().map_or(&[][..], |view| &view.nodes);
    // The query also returns other nodes' views, but only the leader's counts.
    let mut views = nodes.iter().filter_map(Answer::node_view);
    let view = views.find(|view| view.node == leader);
    view.map(|view| view.ring.clone()).unwrap_or_default()
}

/// Returns the first ring member that is not the leader. Without a ring, returns the first voter
/// that is not the leader.
fn choose_victim(ring: &[u32], cluster: &Cluster, leader: u32) -> Result<u32, Problem> {
    let voters = cluster.members.iter().filter(|place| !place.learner);
    let mut all = ring.iter().copied().chain(voters.map(|place| place.node));
    all.find(|node| *node != leader).ok_or_else(|| {
        let what = "there is no node besides the leader";
        Problem::new(Kind::Failed, "node_failed", what)
    })
}

/// Victim, time and effects of a fault, with the route of votes before the fault and at the end.
#[derive(Clone, Debug, PartialEq)]
struct FaultTimeline {
    fault_at: Duration,
    victim: u32,
    route_before: Vec<u32>,
    route_at_end: Vec<u32>,
    figures: FaultFigures,
}

impl fmt::Display for FaultTimeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = |ring: &[u32]| match ring {
            [] => "straight".to_owned(),
            ring => {
                let nodes: Vec<String> = ring.iter().map(u32::to_string).collect();
                nodes.join(" → ")
            }
        };
        write!(
            f,
            "node {}, votes before it {}, at the end {}: {}",
            self.victim,
            way(&self.route_before),
            way(&self.route_at_end),
            self.figures
        )
    }
}

/// Rates before, during and after the fault.
#[derive(Clone, Copy, Debug, PartialEq)]
struct FaultFigures {
    rate_before: f64,
    /// Rate of the worst bar since the fault.
    worst_rate: f64,
    /// Time from the fault until the rate over half a second first reached nine tenths of the rate
    /// before the fault; infinite if it never did.
    recovery_ms: f64,
    /// Rate from one second after the fault to the end of the measured time.
    rate_after: f64,
    longest_gap_ms: f64,
}

impl FaultFigures {
    fn from_samples(samples: &Samples, begin: Duration, at: Duration, end: Duration) -> Self {
        let (begin, at, end) = (to_nanos(begin), to_nanos(at), to_nanos(end));
        let before = samples.rate_between(begin, at);
        let bars = samples.bars_between(at, end);
        let rate = |bars: &[u32]| {
            let sum: f64 = bars.iter().copied().map(f64::from).sum();
            sum * BARS_PER_SECOND / f64::from(u32::try_from(bars.len()).unwrap_or(1).max(1))
        };
        let is_good = |bars: &[u32]| rate(bars) >= RECOVERED_SHARE * before;
        let back = bars.windows(RECOVERED_BARS).position(is_good);
        let gap = samples.gaps.longest_after(at).unwrap_or(0);
        Self {
            rate_before: before,
            worst_rate: bars.iter().map(|bar| rate(&[*bar])).fold(before, f64::min),
            recovery_ms: back.map_or(f64::INFINITY, bars_ms),
            rate_after: samples.rate_between(at + to_nanos(SETTLE_DURATION), end),
            longest_gap_ms: to_ms(gap),
        }
    }

    fn recovered_share(&self) -> f64 {
        self.rate_after / self.rate_before.max(f64::MIN_POSITIVE)
    }
}

const BARS_PER_SECOND: f64 = 10.0;

fn bars_ms(bars: usize) -> f64 {
    to_ms(bars as u64 * BAR_WIDTH)
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn to_ms(nanos: u64) -> f64 {
    round_to_four_digits(nanos as f64 / 1e6)
}

impl fmt::Display for FaultFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.0}/s before, {:.0}/s in the worst 100 ms, ",
            self.rate_before, self.worst_rate
        )?;
        if self.recovery_ms.is_finite() {
            write!(f, "nine tenths of it again after {:.0} ms", self.recovery_ms)?;
        } else {
            write!(f, "never nine tenths of it again")?;
        }
        write!(
            f,
            ", {:.0}/s ({:.2}) from one second after it; at most {} ms without any reply",
            self.rate_after,
            self.recovered_share(),
            self.longest_gap_ms
        )
    }
}

/// Describes the medians and then each repetition.
fn describe_timelines(fault: Fault, stories: &[FaultTimeline]) -> Vec<String> {
    let of =
        |figure: fn(&FaultFigures) -> f64| median(stories.iter().map(|one| figure(&one.figures)));
    let medians = FaultFigures {
        rate_before: of(|one| one.rate_before),
        worst_rate: of(|one| one.worst_rate),
        recovery_ms: of(|one| one.recovery_ms),
        rate_after: of(|one| one.rate_before) * of(FaultFigures::recovered_share),
        longest_gap_ms: round_to_four_digits(of(|one| one.longest_gap_ms)),
    };
    let head = format!("a member is {fault}: {medians} (medians of {})", stories.len());
    std::iter::once(head)
        .chain((1..).zip(stories).map(|(at, one)| format!("{at}: {one}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: Duration = Duration::from_millis(100);
    const AT: Duration = Duration::from_millis(2_050);
    const END: Duration = Duration::from_millis(8_100);

    /// Returns samples with one reply per millisecond, except for no replies from 2.060 s to 2.273
    /// s, every other reply from there to 3 s, and 19 of 20 after that.
    fn samples() -> Samples {
        let mut samples = Samples { replies_over_time: vec![0; 82], ..Samples::default() };
        let replies = (0..8_150_u64).filter(|at| match at {
            2_060..2_273 => false,
            2_273..3_000 => at % 2 == 0,
            3_000.. => at % 20 != 0,
            _ => true,
        });
        for at in replies {
            samples.gaps.end_gap_at(at * 1_000_000);
            samples.replies_over_time[usize::try_from(at / 100).unwrap()] += 1;
        }
        samples
    }

    #[test]
    fn text_has_depth_duration_and_remaining_rate() {
        let figures = FaultFigures::from_samples(&samples(), BEGIN, AT, END);
        assert_eq!(
            figures.to_string(),
            "1000/s before, 0/s in the worst 100 ms, nine tenths of it again after 900 ms, \
             950/s (0.95) from one second after it; at most 215 ms without any reply"
        );
    }

    #[test]
    fn rate_that_never_recovers_is_reported() {
        let mut samples = samples();
        samples.replies_over_time.truncate(22);
        let figures = FaultFigures::from_samples(&samples, BEGIN, AT, END);
        let text = figures.to_string();
        assert!(text.contains("never nine tenths"), "{text}");
        assert!(text.contains("0/s (0.00)"), "{text}");
    }

    #[test]
    fn first_line_has_the_medians() {
        let story = |victim, before| FaultTimeline {
            fault_at: AT,
            victim,
            route_before: vec![victim, 1],
            route_at_end: Vec::new(),
            figures: FaultFigures {
                rate_before: before,
                worst_rate: 10.0,
                recovery_ms: 200.0,
                rate_after: before / 2.0,
                longest_gap_ms: 50.0,
            },
        };
        let all = [story(2, 1000.0), story(3, 3000.0), story(2, 2000.0)];
        let lines = describe_timelines(Fault::NarrowLink(10), &all);
        assert_eq!(lines.len(), 4);
        assert!(
            lines[0].starts_with("a member is left with 10 % of its link: 2000/s before"),
            "{}",
            lines[0]
        );
        assert!(lines[0].contains("1000/s (0.50)"), "{}", lines[0]);
        assert!(
            lines[2].starts_with("2: node 3, votes before it 3 → 1, at the end straight: 3000/s"),
            "{}",
            lines[2]
        );
    }

    #[test]
    fn fault_without_effect_is_refused() {
        let slow = Fault::SlowDisk(Duration::from_millis(100));
        assert!(check_group(slow, false, 3, None).is_ok());
        assert!(check_group(slow, false, 3, Some(Class::Volatile)).is_err());
        assert!(check_group(Fault::NarrowLink(10), false, 3, Some(Class::Volatile)).is_ok());
        assert!(check_group(Fault::NarrowLink(10), true, 3, None).is_err());
        assert!(check_group(Fault::NarrowLink(10), false, 2, None).is_err());
    }

    #[test]
    fn duration_without_time_after_the_fault_is_refused() {
        let time = |seconds| RunTime {
            duration: Duration::from_secs(seconds),
            warmup: Duration::ZERO,
            repetition_count: 1,
        };
        let stop = Fault::Stop(Duration::from_secs(2));
        assert!(check_time(stop, &time(6)).is_ok());
        assert!(check_time(Fault::NarrowLink(10), &time(4)).is_ok());
        let problem = check_time(stop, &time(5)).unwrap_err();
        assert!(problem.message.contains("5s") && problem.hint.contains("6s"));
    }
}
