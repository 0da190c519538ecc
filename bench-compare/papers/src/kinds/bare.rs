//! Experiments with bare senders and receivers on an emulated segment, which find the limits of the
//! network itself, without nodes.

use std::time::Duration;

use quorate_bench::{
    emulated::EmulatedNetwork,
    environment::Environment,
    lan::{
        self, DATAGRAM_BYTES,
        figures::{BareMeasurement, BareSetting, SegmentFigures},
    },
    load::OfferedLoad,
    probe::commit::SYSTEM_NAME,
    problem::{Kind as Why, Problem},
    repetition::Repetition,
    report::BenchReport,
    row::{Row, RowSetting},
    run::session::NodeSession,
};
use quorate_testbed::progress;

use crate::{
    experiment::{Experiment, PaperTime},
    published::Bare,
};

/// Default measured time. It is short because a bare program on a segment reaches its steady state
/// at once.
const DEFAULT_DURATION: Duration = Duration::from_secs(2);
/// Maximum measured time and warm-up. Senders stop on their own some time later.
const TIME_MAX: Duration = Duration::from_secs(60);
const DEFAULT_REPETITIONS: u32 = 3;

/// Checks the durations of an experiment with bare programs.
pub(crate) fn check_durations(time: &PaperTime) -> Result<(), Problem> {
    let times = [time.duration, time.warmup].into_iter().flatten();
    if times.into_iter().any(|time| time > TIME_MAX) {
        let seconds = TIME_MAX.as_secs();
        let what = format_args!("--duration must be at most {seconds} s for bare programs");
        return Err(Problem::usage_error(what));
    }
    Ok(())
}

/// Runs each group of the experiment for the requested number of repetitions.
pub(crate) fn run(
    experiment: &Experiment<'_>,
    bare: &Bare,
    session: &NodeSession,
    document: &mut BenchReport,
) -> Result<(), Problem> {
    let (Some(network), Some(EmulatedNetwork::Lan(lan))) = (session.network(), experiment.network)
    else {
        let what = "bare programs are for an emulated segment";
        return Err(Problem::new(Why::Failed, "not_possible", what));
    };
    let time = &experiment.options.time;
    let times =
        [time.warmup.unwrap_or(lan::WARMUP_DURATION), time.duration.unwrap_or(DEFAULT_DURATION)];
    document.notes.push(network.describe());
    document.notes.push(
        "CPU of senders contains what of the emulated switch ran in their name; foreign CPU contains \
         the rest of the switch, which is the kernel's"
            .to_owned(),
    );
    let groups = bare.groups(experiment.options.ends_only);
    for (number, asked) in (1..).zip(&groups) {
        network.configure_switch(asked)?;
        let mut all = Vec::new();
        for _ in 0..time.repetition_count.unwrap_or(DEFAULT_REPETITIONS) {
            all.push(network.run_datagrams(asked, times)?);
        }
        let figures = SegmentFigures::new(asked, lan, &all);
        progress(&format!(
            "{number} of {}: {}: {} Mbit/s at the slowest, loss {}, {}",
            groups.len(),
            asked.describe(),
            figures.slowest_mbit,
            figures.loss,
            figures.limit
        ));
        let setting = row_setting(experiment, asked, lan);
        let repetitions: Vec<Repetition> = all.iter().map(to_repetition).collect();
        let row = Row::new(&setting, &Environment::of_this_machine(), &repetitions);
        document.rows.extend(row.map(|mut row| {
            row.set_segment(figures);
            row
        }));
    }
    Ok(())
}

fn row_setting(experiment: &Experiment<'_>, asked: &BareSetting, lan: lan::Lan) -> RowSetting {
    let offer = match asked.datagrams_per_second(lan) {
        Some(per_second) => OfferedLoad::Open { per_second: per_second * u64::from(asked.senders) },
        None => OfferedLoad::Closed { outstanding: 0 },
    };
    let name = &experiment.scenario.name;
    RowSetting {
        system: SYSTEM_NAME.to_owned(),
        plane: Some(asked.describe()),
        ..experiment.row_setting(name, DATAGRAM_BYTES, asked.senders, offer)
    }
}

/// Converts the counts of the slowest receiver to a repetition.
fn to_repetition(found: &BareMeasurement) -> Repetition {
    let mut repetition =
        Repetition { foreign_cpu: found.foreign_cpu_share, ..Repetition::default() };
    if let Some(slowest) = found.slowest_reception() {
        repetition.samples.completed = slowest.datagrams;
        repetition.samples.measured_ns = slowest.nanos;
        repetition.replies_between_readings = slowest.datagrams;
    }
    repetition
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_bench::lan::receiver::Reception;

    #[test]
    fn a_row_is_of_the_slowest_receiver() {
        let heard = |datagrams| Reception {
            bytes: datagrams * 1472,
            nanos: 2_000_000_000,
            datagrams,
            expected_datagrams: 9000,
        };
        let found = BareMeasurement {
            receptions: vec![heard(8000), heard(6000), heard(9000)],
            ..BareMeasurement::default()
        };
        let per_second = to_repetition(&found).samples.completed_per_second();
        assert!((per_second - 3000.0).abs() < 1e-9, "{per_second}");
    }

    #[test]
    fn times_are_bounded() {
        let of = |duration| PaperTime { duration: Some(duration), ..PaperTime::default() };
        assert!(check_durations(&of(TIME_MAX)).is_ok());
        assert!(check_durations(&of(TIME_MAX + Duration::from_millis(1))).is_err());
    }
}
