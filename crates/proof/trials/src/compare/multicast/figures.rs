//! Measurements and the figures derived from them.

use std::fmt;

use super::{super::figures::Spread, group_by_key, systems::System};

/// A segment and the size of the messages sent over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MulticastCell {
    /// Speed of each link, in Mbit/s.
    pub(super) link_megabits: u64,
    pub(super) receiver_count: u32,
    /// Size of a message, in bytes.
    pub(super) bytes: usize,
}

/// Result of a turn.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct MeasuredTurn {
    /// Payload received by the slowest receiver, in Mbit/s.
    pub(super) slowest_mbit: f64,
    /// CPU seconds of all processes for 10⁹ bytes of payload.
    pub(super) cpu_s_per_gb: f64,
    /// Share of CPU time used by other processes. It includes the kernel's own threads that work
    /// for the system.
    pub(super) foreign_cpu: f64,
    /// Packets dropped by processor queues, which all namespaces share.
    pub(super) dropped_packets: f64,
}

impl fmt::Display for MeasuredTurn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.1} Mbit/s at the slowest, {:.2} CPU s/GB, foreign CPU {:.0} %, {} packets dropped by the machine",
            self.slowest_mbit,
            self.cpu_s_per_gb,
            self.foreign_cpu * 100.0,
            self.dropped_packets
        )
    }
}

/// A system's turn in a cell.
#[derive(Clone, Debug)]
pub(super) struct MulticastTurn {
    pub(super) system: System,
    pub(super) cell: MulticastCell,
    pub(super) round: usize,
    pub(super) outcome: Result<MeasuredTurn, String>,
}

/// All results of the comparison.
#[derive(Clone, Debug, Default)]
pub(super) struct Results {
    pub(super) turns: Vec<MulticastTurn>,
    /// Systems that could not be built, with the reason.
    pub(super) failures: Vec<(System, String)>,
    pub(super) seconds: f64,
}

/// A target and its result. The result is one system's throughput divided by that of the best other
/// system, for each round.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TargetVerdict {
    pub(super) cell: MulticastCell,
    pub(super) what: &'static str,
    pub(super) wanted_ratio: f64,
    pub(super) found_ratios: Spread,
}

impl TargetVerdict {
    pub(super) fn is_reached(&self) -> bool {
        self.found_ratios.median() >= Some(self.wanted_ratio)
    }
}

/// Targets, each with its title, its smallest ratio, and the systems of which the best one is
/// compared.
const TARGETS: [(&str, f64, &[System]); 2] = [
    ("Quorate ÷ the better of Corosync and JGroups", 3.0, &[System::Corosync, System::Jgroups]),
    ("Quorate ÷ Aeron", 0.8, &[System::Aeron]),
];

impl Results {
    /// Returns a figure of all successful rounds.
    pub(super) fn figure(
        &self,
        system: System,
        cell: MulticastCell,
        figure: fn(&MeasuredTurn) -> f64,
    ) -> Spread {
        let turns = self.valid_rounds(system, cell);
        Spread::from_values(turns.map(|(_, measured)| figure(measured)).collect())
    }

    /// Returns the system's ratio to the best of the others, round by round.
    pub(super) fn ratio(&self, system: System, others: &[System], cell: MulticastCell) -> Spread {
        let best = others.iter().flat_map(|other| self.valid_rounds(*other, cell));
        let best = group_by_key(best.map(|(round, measured)| (round, measured.slowest_mbit)));
        let ratios = self.valid_rounds(system, cell).filter_map(|(round, measured)| {
            let best = best.get(&round)?.iter().copied().fold(0.0, f64::max);
            (best > 0.0).then(|| measured.slowest_mbit / best)
        });
        Spread::from_values(ratios.collect())
    }

    pub(super) fn valid_round_count(&self, system: System, cell: MulticastCell) -> usize {
        self.valid_rounds(system, cell).count()
    }

    fn valid_rounds(
        &self,
        system: System,
        cell: MulticastCell,
    ) -> impl Iterator<Item = (usize, &MeasuredTurn)> {
        let turns = self.turns.iter();
        let turns = turns.filter(move |turn| turn.system == system && turn.cell == cell);
        turns.filter_map(|turn| Some((turn.round, turn.outcome.as_ref().ok()?)))
    }

    /// Returns all cells, in the order of measurement.
    pub(super) fn cells(&self) -> Vec<MulticastCell> {
        let mut cells: Vec<MulticastCell> = self.turns.iter().map(|turn| turn.cell).collect();
        cells.dedup();
        cells
    }

    pub(super) fn verdicts(&self) -> Vec<TargetVerdict> {
        let of = |cell: MulticastCell| {
            TARGETS.iter().filter_map(move |(what, wanted, others)| {
                let found = self.ratio(System::Quorate, others, cell);
                (found.count() > 0).then_some(TargetVerdict {
                    cell,
                    what,
                    wanted_ratio: *wanted,
                    found_ratios: found,
                })
            })
        };
        self.cells().into_iter().flat_map(of).collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) const CELL: MulticastCell =
        MulticastCell { link_megabits: 1000, receiver_count: 5, bytes: 8192 };

    pub(in super::super) fn results() -> Results {
        let mut results = Results::default();
        let rows: [(System, [Option<f64>; 3]); 4] = [
            (System::Bare, [Some(1000.0), Some(500.0), Some(1000.0)]),
            (System::Quorate, [Some(900.0), Some(400.0), Some(800.0)]),
            (System::Corosync, [Some(300.0), Some(100.0), None]),
            (System::Jgroups, [Some(100.0), Some(200.0), Some(400.0)]),
        ];
        for (system, rounds) in rows {
            for (round, slowest_mbit) in rounds.into_iter().enumerate() {
                let measured = slowest_mbit.map(|slowest_mbit| MeasuredTurn {
                    slowest_mbit,
                    cpu_s_per_gb: 2.0,
                    ..MeasuredTurn::default()
                });
                results.turns.push(MulticastTurn {
                    system,
                    cell: CELL,
                    round,
                    outcome: measured.ok_or_else(|| "no |\nresult".to_owned()),
                });
            }
        }
        results.failures.push((System::Aeron, "no Java".to_owned()));
        results
    }

    #[test]
    fn ratios_compare_results_of_the_same_round() {
        let results = results();
        let of_the_ceiling = results.ratio(System::Quorate, &[System::Bare], CELL);
        assert_eq!(of_the_ceiling, Spread::from_values(vec![0.8, 0.8, 0.9]));
        // The better system of each round: 300, 200, 400.
        let verdicts = results.verdicts();
        assert_eq!(verdicts.len(), 1);
        assert_eq!(verdicts[0].found_ratios.median(), Some(2.0));
        assert_eq!(verdicts[0].found_ratios.maximum(), Some(3.0));
    }

    #[test]
    fn a_round_without_a_result_does_not_count() {
        let results = results();
        assert_eq!(results.valid_round_count(System::Corosync, CELL), 2);
        assert_eq!(results.valid_round_count(System::Aeron, CELL), 0);
        assert_eq!(results.figure(System::Aeron, CELL, |one| one.slowest_mbit).count(), 0);
    }
}
