//! Experiments without nodes: groups of bare senders and receivers, and published figures about
//! such groups.

use quorate_bench::{
    figure::round_to_four_digits,
    lan::{
        DATAGRAM_BYTES, DatagramTransport, figures::BareSetting, sender::DATAGRAMS_PER_CALL_MAX,
    },
    row::Row,
};
use serde::Deserialize;

use super::{Kind, Metric, PublishedFigure, Run, Service};

/// Maximum number of senders in one experiment, because they share one machine.
const SENDERS_MAX: u32 = 8;
const RECEIVERS_MAX: u32 = 32;
const LOAD_PERCENT_MAX: u32 = 200;
/// Valid queue sizes in KiB: large enough for a burst, and small enough that all queues fit into
/// memory.
const QUEUE_KIB_RANGE: std::ops::RangeInclusive<u32> = 32..=16_384;

/// Groups of bare programs: one for each combination of the listed values.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bare {
    pub ways: Vec<DatagramTransport>,
    pub senders: Vec<u32>,
    pub receivers: Vec<u32>,
    /// Loads of all senders as percentages of the link capacity, including headers; empty for
    /// unlimited.
    #[serde(default)]
    pub loads_percent: Vec<u32>,
    /// Numbers of datagrams that a sender sends at once; empty for as many as one system call
    /// accepts.
    #[serde(default)]
    pub bursts: Vec<u32>,
    /// Sizes of the switch's queue for each link, in KiB; empty for the size used with nodes.
    #[serde(default)]
    pub queues_kib: Vec<u32>,
}

impl Bare {
    /// Returns the number of network namespaces that the largest group needs.
    pub fn namespaces_needed(&self) -> u32 {
        let most = |counts: &[u32]| counts.iter().copied().max().unwrap_or(0);
        most(&self.senders) + most(&self.receivers)
    }

    /// Returns all groups or, if `quick`, those with the first and last value of each list.
    pub fn groups(&self, quick: bool) -> Vec<BareSetting> {
        let loads = or_unlimited(&self.loads_percent);
        let shapes = first_and_last(&or_unlimited(&self.queues_kib), quick).into_iter();
        let shapes = shapes.flat_map(|queue| {
            let bursts = first_and_last(&or_unlimited(&self.bursts), quick).into_iter();
            bursts.map(move |burst| (queue, burst.unwrap_or(DATAGRAMS_PER_CALL_MAX)))
        });
        let mut groups = Vec::new();
        for (queue_kib, burst) in shapes {
            for senders in first_and_last(&self.senders, quick) {
                for receivers in first_and_last(&self.receivers, quick) {
                    for load_percent in first_and_last(&loads, quick) {
                        groups.extend(self.ways.iter().map(|way| BareSetting {
                            transport: *way,
                            senders,
                            receivers,
                            load_percent,
                            burst_datagrams: burst,
                            queue_kib,
                        }));
                    }
                }
            }
        }
        groups
    }

    fn is_bounded(&self) -> bool {
        let within = |counts: &[u32], most| {
            !counts.is_empty() && counts.iter().all(|count| (1..=most).contains(count))
        };
        let loads = &self.loads_percent;
        let mut queues = self.queues_kib.iter();
        within(&self.senders, SENDERS_MAX)
            && within(&self.receivers, RECEIVERS_MAX)
            && !self.ways.is_empty()
            && (self.bursts.is_empty() || within(&self.bursts, DATAGRAMS_PER_CALL_MAX))
            && (loads.is_empty() || within(loads, LOAD_PERCENT_MAX))
            && queues.all(|queue| QUEUE_KIB_RANGE.contains(queue))
    }
}

/// Returns each value as `Some`, or a single `None` if the list is empty.
fn or_unlimited(counts: &[u32]) -> Vec<Option<u32>> {
    if counts.is_empty() {
        return vec![None];
    }
    counts.iter().copied().map(Some).collect()
}

fn first_and_last<T: Copy>(all: &[T], quick: bool) -> Vec<T> {
    match all {
        [first, .., last] if quick => vec![*first, *last],
        _ => all.to_vec(),
    }
}

/// Returns whether a run is consistent: it has groups if and only if it is of kind [`Kind::Bare`],
/// and one machine can run them.
pub(super) fn is_consistent(run: &Run) -> bool {
    let is_bare = run.kind == Kind::Bare;
    let bounded = run.bare.as_ref().is_some_and(Bare::is_bounded);
    let sized = run.value_bytes == [DATAGRAM_BYTES];
    is_bare == run.bare.is_some()
        && matches!(run.kind, Kind::Bare | Kind::Echo) == (run.service == Service::Bare)
        && (!is_bare || (bounded && sized))
}

/// Returns whether the run includes the group that the figure names; true if the figure names none.
pub(super) fn includes_figure(run: &Run, figure: &PublishedFigure) -> bool {
    let Some(bare) = &run.bare else {
        return !figure.metric.is_bare_only()
            && figure.senders.is_none()
            && figure.receivers.is_none();
    };
    let one_of = |count: Option<u32>, counts: &[u32]| count.is_none_or(|n| counts.contains(&n));
    let both = [DatagramTransport::Multicast, DatagramTransport::Unicast];
    let compared = both.iter().all(|way| bare.ways.contains(way));
    one_of(figure.senders, &bare.senders)
        && one_of(figure.receivers, &bare.receivers)
        && (figure.metric != Metric::TimesUnicast || compared)
}

/// Describes the conditions of a figure. Omits the value size, because papers do not state one.
pub(super) fn describe_conditions(figure: &PublishedFigure) -> String {
    let mut what = format!("{}: {}", figure.system, figure.metric.name());
    for (count, name) in [(figure.senders, "senders"), (figure.receivers, "receivers")] {
        if let Some(count) = count {
            what.push_str(&format!(", {count} {name}"));
        }
    }
    what
}

/// Returns the number measured here that corresponds to a figure.
pub(super) fn measured_here<'a>(
    figure: &PublishedFigure,
    rows: impl Iterator<Item = &'a Row>,
) -> Option<f64> {
    let all = rows.filter_map(|row| row.segment.as_ref()).filter(|one| {
        figure.senders.is_none_or(|count| count == one.senders)
            && figure.receivers.is_none_or(|count| count == one.receivers)
    });
    let all: Vec<_> = all.collect();
    let greatest_by = |way: DatagramTransport| {
        let rates = all.iter().filter(|one| one.way == way.name());
        rates.map(|one| one.mean_mbit).reduce(f64::max)
    };
    match figure.metric {
        Metric::TimesUnicast => {
            let unicast = greatest_by(DatagramTransport::Unicast).filter(|rate| *rate > 0.0)?;
            Some(round_to_four_digits(greatest_by(DatagramTransport::Multicast)? / unicast))
        }
        Metric::LossMax => all.iter().map(|one| one.loss).reduce(f64::max),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use quorate_bench::{
        environment::Environment,
        lan::{Lan, figures::BareMeasurement, figures::SegmentFigures, receiver::Reception},
        load::OfferedLoad,
        repetition::Repetition,
        row::RowSetting,
    };

    use super::*;

    fn bare() -> Bare {
        Bare {
            ways: vec![DatagramTransport::Multicast, DatagramTransport::Unicast],
            senders: vec![1],
            receivers: vec![1, 5, 25],
            loads_percent: Vec::new(),
            bursts: Vec::new(),
            queues_kib: Vec::new(),
        }
    }

    #[test]
    fn a_quick_run_has_the_ends() {
        assert_eq!((bare().namespaces_needed(), bare().groups(false).len()), (26, 6));
        let quick = bare().groups(true);
        let counts: Vec<u32> = quick.iter().map(|asked| asked.receivers).collect();
        assert_eq!(counts, [1, 1, 25, 25]);
        let loaded = Bare {
            loads_percent: vec![20, 50, 95],
            bursts: vec![1, 44],
            queues_kib: vec![64],
            ..bare()
        };
        assert_eq!(loaded.groups(false).len(), 36);
        assert_eq!(loaded.groups(true).len(), 16);
    }

    #[test]
    fn more_than_a_machine_carries_is_refused() {
        assert!(bare().is_bounded());
        let spoil: [fn(&mut Bare); 7] = [
            |bare| bare.receivers.push(RECEIVERS_MAX + 1),
            |bare| bare.senders.push(0),
            |bare| bare.senders.clear(),
            |bare| bare.ways.clear(),
            |bare| bare.loads_percent.push(201),
            |bare| bare.queues_kib.push(1),
            |bare| bare.bursts.push(45),
        ];
        for (number, spoil) in spoil.iter().enumerate() {
            let mut bare = bare();
            spoil(&mut bare);
            assert!(!bare.is_bounded(), "{number}");
        }
    }

    /// Returns a row in which each receiver receives `datagrams` of 8000 datagrams per second.
    fn row(way: DatagramTransport, senders: u32, datagrams: u64) -> Row {
        let asked = BareSetting {
            transport: way,
            senders,
            receivers: 10,
            load_percent: None,
            burst_datagrams: DATAGRAMS_PER_CALL_MAX,
            queue_kib: None,
        };
        let heard = Reception {
            bytes: datagrams * DATAGRAM_BYTES as u64,
            nanos: 1_000_000_000,
            datagrams,
            expected_datagrams: 8000,
        };
        let found = BareMeasurement {
            receptions: vec![heard; 10],
            elapsed_seconds: 1.0,
            ..BareMeasurement::default()
        };
        let setting = RowSetting {
            system: "bare program".to_owned(),
            connections: senders,
            ..RowSetting::new(
                "ring-paxos-fig1",
                "volatile",
                "none",
                DATAGRAM_BYTES,
                OfferedLoad::Closed { outstanding: 0 },
            )
        };
        let mut repetition = Repetition::default();
        repetition.samples.completed = datagrams;
        repetition.samples.measured_ns = 1_000_000_000;
        let environment = Environment::of_this_machine();
        let mut row = Row::new(&setting, &environment, &[repetition]).unwrap();
        let lan = Lan::parse_speed("100mbit").unwrap();
        row.set_segment(SegmentFigures::new(&asked, lan, &[found]));
        row
    }

    #[test]
    fn ours_is_that_of_as_many() {
        let figure = |metric, senders, receivers| PublishedFigure {
            system: "ip multicast".to_owned(),
            metric,
            value: 10.0,
            approximate: true,
            place: String::new(),
            value_bytes: DATAGRAM_BYTES,
            clients: None,
            percent: None,
            senders,
            receivers,
            plane: None,
            link: None,
        };
        let rows = [
            row(DatagramTransport::Multicast, 1, 8000),
            row(DatagramTransport::Unicast, 1, 800),
            row(DatagramTransport::Multicast, 5, 6000),
        ];
        let own = |figure: &PublishedFigure| {
            measured_here(figure, rows.iter()).map(|one| one.to_string())
        };
        let times = figure(Metric::TimesUnicast, None, Some(10));
        assert_eq!(own(&times).as_deref(), Some("10"));
        assert_eq!(
            describe_conditions(&times),
            "ip multicast: throughput of multicast by that of unicast, 10 receivers"
        );
        assert_eq!(own(&figure(Metric::TimesUnicast, None, Some(5))), None);
        let loss = own(&figure(Metric::LossMax, Some(5), None));
        assert_eq!(loss.as_deref(), Some("0.25"));
        assert_eq!(own(&figure(Metric::LossMax, Some(2), None)), None);
    }
}
