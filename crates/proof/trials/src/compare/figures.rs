//! Measurements and the figures derived from them: medians, spreads, ratios.

/// Maximum share of late commands in a valid result.
const LATE_SHARE_MAX: f64 = 0.01;

/// Measurements of a system under one load.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct MeasuredLoad {
    pub(super) per_second: f64,
    pub(super) completed: u64,
    /// All successful replies, including the warm-up.
    pub(super) acknowledged: u64,
    pub(super) p50_us: f64,
    pub(super) p95_us: f64,
    pub(super) p99_us: f64,
    pub(super) p999_us: f64,
    pub(super) max_us: f64,
    pub(super) errors: u64,
    pub(super) lost: u64,
    pub(super) late_share: f64,
    pub(super) first_error: Option<String>,
    /// CPU time per command in microseconds, over all processes of the system.
    pub(super) cpu_us: f64,
    /// CPU time of the load generator per command, in microseconds.
    pub(super) load_cpu_us: f64,
    /// Share of the machine used by other processes, 0 to 1.
    pub(super) foreign_cpu: f64,
}

impl MeasuredLoad {
    /// Parses `name=number` words.
    pub(super) fn parse(words: &str) -> Option<Self> {
        let number = |name: &str| -> Option<f64> {
            let mut pairs = words.split_whitespace().filter_map(|word| word.split_once('='));
            let (_, value) = pairs.find(|(other, _)| *other == name)?;
            value.parse().ok()
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "counts of a few seconds"
        )]
        let count = |name: &str| number(name).map(|value| value as u64);
        Some(Self {
            per_second: number("achieved_per_s")?,
            completed: count("completed")?,
            acknowledged: count("acknowledged")?,
            p50_us: number("p50_us")?,
            p95_us: number("p95_us")?,
            p99_us: number("p99_us")?,
            p999_us: number("p999_us")?,
            max_us: number("max_us")?,
            errors: count("errors")?,
            lost: count("lost")?,
            late_share: number("late_share")?,
            ..Self::default()
        })
    }

    /// Returns why the measurement is invalid; `None` if it is valid.
    pub(super) fn invalid_reason(&self) -> Option<String> {
        let error = || self.first_error.clone().unwrap_or_default();
        if self.errors > 0 {
            Some(format!("{} errors: {}", self.errors, error()))
        } else if self.lost > 0 {
            Some(format!("{} replies lost: {}", self.lost, error()))
        } else if self.completed == 0 {
            Some("no reply".to_owned())
        } else {
            None
        }
    }

    /// Returns why the latency is invalid; `None` if it is valid.
    pub(super) fn latency_invalid_reason(&self) -> Option<String> {
        let late = || format!("{:.1} % sent late", self.late_share * 100.0);
        self.invalid_reason().or_else(|| self.is_late().then(late))
    }

    /// Returns whether the load generator, not the system, was too slow.
    pub(super) fn is_late(&self) -> bool {
        self.late_share > LATE_SHARE_MAX
    }

    /// Formats the reason for a line of progress.
    pub(super) fn format_reason(&self) -> String {
        let trouble = self.latency_invalid_reason();
        trouble.map_or_else(String::new, |trouble| format!(", NO RESULT: {trouble}"))
    }
}

/// Result of a short load with a number of connections.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ConnectionTrial {
    pub(super) system: String,
    pub(super) connections: u32,
    pub(super) measured: MeasuredLoad,
}

/// Number of commands applied by the nodes, compared with the acknowledged ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AppliedCommands {
    /// Successful replies.
    pub(super) acknowledged: u64,
    /// Commands applied by most nodes, in the same order.
    pub(super) applied_by_most: u64,
}

/// A system's turn in a round.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SystemTurn {
    pub(super) system: String,
    pub(super) round: usize,
    pub(super) maximum: Option<MeasuredLoad>,
    /// Measurements at half load, one per attempt. Each consists of the system whose half was
    /// offered, the commands per second, and the result.
    pub(super) latencies: Vec<(String, u64, MeasuredLoad)>,
    /// `None` if no node reports the number.
    pub(super) applied: Option<AppliedCommands>,
    /// Reason why the turn ended early.
    pub(super) early_end_reason: Option<String>,
}

impl SystemTurn {
    fn valid_maximum(&self) -> Option<&MeasuredLoad> {
        self.maximum.as_ref().filter(|one| one.invalid_reason().is_none())
    }

    fn valid_latency(&self, peer: &str) -> Option<&MeasuredLoad> {
        let attempts = self.latencies.iter().filter(|(other, _, _)| other == peer);
        let mut measured = attempts.map(|(_, _, measured)| measured);
        measured.find(|one| one.latency_invalid_reason().is_none())
    }
}

/// All results of a comparison.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ComparisonResults {
    pub(super) trials: Vec<ConnectionTrial>,
    pub(super) turns: Vec<SystemTurn>,
    /// Systems without a result, with the reason.
    pub(super) failures: Vec<(String, String)>,
    /// Problems that did not end a turn.
    pub(super) notes: Vec<String>,
    pub(super) seconds: f64,
}

impl ComparisonResults {
    pub(super) fn record_failure(&mut self, system: &str, why: &str) {
        if !self.has_failed(system) {
            self.failures.push((system.to_owned(), why.to_owned()));
        }
    }

    pub(super) fn has_failed(&self, system: &str) -> bool {
        self.failures.iter().any(|(other, _)| other == system)
    }

    pub(super) fn note_trial(&mut self, system: &str, connections: u32, why: &str) {
        let note = format!("{system} with {connections} connections: {why}");
        self.notes.push(note);
    }

    /// Returns the trial with the system's best number of connections.
    pub(super) fn best_trial(&self, system: &str) -> Option<&ConnectionTrial> {
        let own = self.trials.iter().filter(|trial| trial.system == system);
        let good = own.filter(|trial| trial.measured.invalid_reason().is_none());
        good.max_by(|a, b| a.measured.per_second.total_cmp(&b.measured.per_second))
    }

    /// Returns the system's turns, in the order of rounds.
    pub(super) fn turns_of(&self, system: &str) -> impl Iterator<Item = &SystemTurn> {
        self.turns.iter().filter(move |turn| turn.system == system)
    }

    /// Returns a figure of the system's valid rounds at full load.
    pub(super) fn figure_at_maximum(
        &self,
        system: &str,
        figure: impl Fn(&MeasuredLoad) -> f64,
    ) -> Spread {
        let good = self.turns_of(system).filter_map(SystemTurn::valid_maximum);
        Spread::from_values(good.map(figure).collect())
    }

    /// Returns a figure of the system's valid rounds at half of another system's maximum.
    pub(super) fn figure_at_half(
        &self,
        system: &str,
        peer: &str,
        figure: impl Fn(&MeasuredLoad) -> f64,
    ) -> Spread {
        let good = self.turns_of(system).filter_map(|turn| turn.valid_latency(peer));
        Spread::from_values(good.map(figure).collect())
    }

    /// Returns our throughput divided by that of the best other system, round by round.
    pub(super) fn throughput_ratios(&self, ours: &str, others: &[String]) -> Spread {
        self.ratios_by_round(ours, others, |turn| Some(turn.valid_maximum()?.per_second))
    }

    /// Returns our 99th percentile divided by the other system's, both at half of the other
    /// system's maximum.
    pub(super) fn latency_ratios(&self, ours: &str, other: &str) -> Spread {
        let p99 = |turn: &SystemTurn| Some(turn.valid_latency(other)?.p99_us);
        self.ratios_by_round(ours, &[other.to_owned()], p99)
    }

    fn ratios_by_round(
        &self,
        ours: &str,
        others: &[String],
        figure: impl Fn(&SystemTurn) -> Option<f64>,
    ) -> Spread {
        let in_round = |system: &str, round| {
            let mut turns = self.turns_of(system).filter(|turn| turn.round == round);
            turns.next().and_then(&figure)
        };
        let rounds = self.turns.iter().map(|turn| turn.round + 1).max();
        let ratio = |round| {
            let ours = in_round(ours, round)?;
            let others = others.iter().filter_map(|other| in_round(other, round));
            let best = others.max_by(f64::total_cmp)?;
            (best > 0.0).then(|| ours / best)
        };
        Spread::from_values((0..rounds.unwrap_or(0)).filter_map(ratio).collect())
    }
}

/// Sorted values of a figure.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Spread(Vec<f64>);

impl Spread {
    pub(super) fn from_values(mut figures: Vec<f64>) -> Self {
        figures.sort_by(f64::total_cmp);
        Self(figures)
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns the middle value, or the mean of the two middle values.
    pub(super) fn median(&self) -> Option<f64> {
        let count = self.0.len();
        let upper = *self.0.get(count / 2)?;
        let lower = *self.0.get(count.saturating_sub(1) / 2)?;
        Some((lower + upper) / 2.0)
    }

    pub(super) fn minimum(&self) -> Option<f64> {
        self.0.first().copied()
    }

    pub(super) fn maximum(&self) -> Option<f64> {
        self.0.last().copied()
    }
}

/// Returns half of a rate, rounded to two digits so that every system is loaded with the same rate.
pub(super) fn half_rate(per_second: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate of a real system"
    )]
    let exact = (per_second / 2.0) as u64;
    let mut unit = 1;
    while exact / unit >= 100 {
        unit *= 10;
    }
    (exact - exact % unit).max(1)
}

/// Returns the number of commands that most nodes have applied in the same order: the
/// second-highest count of three. Returns `Err` with the nodes that have the same count but
/// different digests.
pub(super) fn majority_count(nodes: &[(u64, u64)]) -> Result<u64, String> {
    for (place, one) in nodes.iter().enumerate() {
        let differs = |other: &&(u64, u64)| other.0 == one.0 && other.1 != one.1;
        if nodes[place + 1..].iter().any(|other| differs(&other)) {
            return Err(format!(
                "nodes applied {} commands each, and not in the same order",
                one.0
            ));
        }
    }
    let mut counts: Vec<u64> = nodes.iter().map(|(count, _)| *count).collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    counts.get(counts.len() / 2).copied().ok_or_else(|| "no node tells what it applied".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "achieved_per_s=1000.5 completed=5002 acknowledged=6000 p50_us=1 p95_us=2 \
                        p99_us=3 p999_us=4 max_us=5 errors=0 lost=0 late_share=0.5";

    fn turn(system: &str, round: usize, per_second: f64) -> SystemTurn {
        let maximum = MeasuredLoad { per_second, completed: 1, ..MeasuredLoad::default() };
        SystemTurn {
            system: system.to_owned(),
            round,
            maximum: Some(maximum),
            ..SystemTurn::default()
        }
    }

    fn near(found: Option<f64>, wanted: f64) {
        let found = found.expect("there is a figure");
        assert!((found - wanted).abs() < 1e-9, "{found} is not {wanted}");
    }

    #[test]
    fn result_line_is_parsed() {
        let measured = MeasuredLoad::parse(LINE).unwrap();
        near(Some(measured.per_second), 1000.5);
        assert_eq!((measured.completed, measured.acknowledged), (5002, 6000));
        assert_eq!(measured.invalid_reason(), None);
        assert!(measured.latency_invalid_reason().is_some(), "half of it was late");
        assert_eq!(MeasuredLoad::parse(&LINE.replace("p99_us=3", "")), None);
        assert_eq!(MeasuredLoad::parse(&LINE.replace("p99_us=3", "p99_us=x")), None);
        let wrong = MeasuredLoad::parse(&LINE.replace("errors=0", "errors=1")).unwrap();
        assert!(wrong.invalid_reason().is_some());
    }

    #[test]
    fn first_attempt_without_late_commands_counts() {
        let attempt = |p99_us, late_share| {
            let measured =
                MeasuredLoad { completed: 1, p99_us, late_share, ..MeasuredLoad::default() };
            ("peer".to_owned(), 1000, measured)
        };
        let mut late = turn("ours", 0, 1.0);
        late.latencies = vec![attempt(1.0, 0.5)];
        assert_eq!(late.valid_latency("peer"), None);
        late.latencies.extend([attempt(2.0, 0.0), attempt(3.0, 0.0)]);
        near(late.valid_latency("peer").map(|one| one.p99_us), 2.0);
        assert_eq!(late.valid_latency("another"), None);
    }

    #[test]
    fn the_median_is_in_the_middle() {
        let spread = Spread::from_values(vec![5.0, 1.0, 3.0]);
        near(spread.median(), 3.0);
        near(spread.minimum(), 1.0);
        near(spread.maximum(), 5.0);
        near(Spread::from_values(vec![1.0, 2.0]).median(), 1.5);
        assert_eq!(Spread::default().median(), None);
    }

    #[test]
    fn ratios_compare_with_the_best_other_in_the_same_round() {
        let mut results = ComparisonResults::default();
        // The machine was twice as fast in the second round, which must not affect the ratio.
        for (round, speed) in [(0, 1.0), (1, 2.0)] {
            results.turns.push(turn("ours", round, 100.0 * speed));
            results.turns.push(turn("slow", round, 10.0 * speed));
            results.turns.push(turn("fast", round, 50.0 * speed));
        }
        // A round in which the other system has no result has no ratio.
        results.turns.push(turn("ours", 2, 1e9));
        let ratios = results.throughput_ratios("ours", &["slow".to_owned(), "fast".to_owned()]);
        assert_eq!(ratios, Spread::from_values(vec![2.0, 2.0]));
        near(results.throughput_ratios("ours", &["slow".to_owned()]).median(), 10.0);
    }

    #[test]
    fn rounds_with_errors_do_not_count() {
        let mut results = ComparisonResults::default();
        results.turns.push(turn("ours", 0, 100.0));
        let mut wrong = turn("ours", 1, 900.0);
        if let Some(maximum) = &mut wrong.maximum {
            maximum.errors = 1;
        }
        results.turns.push(wrong);
        let rates = results.figure_at_maximum("ours", |measured| measured.per_second);
        assert_eq!(rates, Spread::from_values(vec![100.0]));
    }

    #[test]
    fn the_best_number_of_connections_is_without_errors() {
        let mut results = ComparisonResults::default();
        for (connections, per_second, errors) in [(1, 10.0, 0), (4, 30.0, 0), (16, 90.0, 1)] {
            results.trials.push(ConnectionTrial {
                system: "x".to_owned(),
                connections,
                measured: MeasuredLoad {
                    per_second,
                    errors,
                    completed: 1,
                    ..MeasuredLoad::default()
                },
            });
        }
        assert_eq!(results.best_trial("x").map(|trial| trial.connections), Some(4));
        assert_eq!(results.best_trial("y"), None);
    }

    #[test]
    fn half_of_a_rate_is_cut_to_two_digits() {
        assert_eq!(half_rate(9999.0), 4900);
        assert_eq!(half_rate(123_456.0), 61_000);
        assert_eq!(half_rate(30.0), 15);
        assert_eq!(half_rate(0.0), 1);
    }

    #[test]
    fn rate_is_what_a_majority_applied() {
        assert_eq!(majority_count(&[(10, 7), (10, 7), (4, 1)]), Ok(10));
        assert_eq!(majority_count(&[(10, 7), (5, 2), (4, 1)]), Ok(5));
        assert!(majority_count(&[(10, 7), (10, 8), (4, 1)]).is_err());
        assert!(majority_count(&[]).is_err());
    }
}
