//! Quantities of published figures, and the rows that have them.

use quorate_bench::{figure::round_to_four_digits, row::Row};
use serde::Deserialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    Throughput,
    /// Highest throughput over all rows.
    ThroughputMax,
    P50Us,
    P95Us,
    P999Us,
    MeanUs,
    /// Lowest mean latency over all rows.
    MeanUsMin,
    /// Highest mean latency over all rows.
    MeanUsMax,
    DeviationUs,
    SwitchesPerS,
    /// Highest throughput with one batch in flight, relative to the overall highest.
    WindowOneShare,
    /// Smallest batch at which a window of two reaches 95 % of the highest throughput.
    WindowTwoBatch,
    /// Throughput with the largest window and batch, relative to the highest.
    LargestShare,
    /// Rate at each receiver with multicast, as a multiple of the rate with unicast.
    TimesUnicast,
    /// Highest loss over all offered loads.
    LossMax,
}

impl Metric {
    /// Returns whether the metric exists only for bare senders and receivers.
    pub(super) const fn is_bare_only(self) -> bool {
        matches!(self, Self::TimesUnicast | Self::LossMax)
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::ThroughputMax => "greatest throughput",
            Self::P50Us => "median latency",
            Self::P95Us => "95th percentile",
            Self::P999Us => "99.9th percentile",
            Self::MeanUs => "mean latency",
            Self::MeanUsMin => "least mean latency",
            Self::MeanUsMax => "greatest mean latency",
            Self::DeviationUs => "standard deviation",
            Self::SwitchesPerS => "context switches of the leader",
            Self::WindowOneShare => "window 1, of the greatest throughput",
            Self::WindowTwoBatch => "smallest batch with which window 2 is at the greatest",
            Self::LargestShare => "largest window and batch, of the greatest throughput",
            Self::TimesUnicast => "throughput of multicast by that of unicast",
            Self::LossMax => "greatest loss of all loads",
        }
    }

    pub(super) const fn unit(self) -> &'static str {
        match self {
            Self::Throughput | Self::ThroughputMax | Self::SwitchesPerS => "/s",
            Self::WindowOneShare | Self::LargestShare => "of it",
            Self::WindowTwoBatch => "bytes",
            Self::TimesUnicast => "times",
            Self::LossMax => "of what is sent",
            Self::P50Us
            | Self::P95Us
            | Self::P999Us
            | Self::MeanUs
            | Self::MeanUsMin
            | Self::MeanUsMax
            | Self::DeviationUs => "µs",
        }
    }

    /// Returns the metric of a row; `None` if it needs several rows.
    pub(super) fn of_row(self, row: &Row) -> Option<f64> {
        Some(match self {
            Self::Throughput | Self::ThroughputMax => row.achieved_per_s,
            Self::P50Us => row.p50_us,
            Self::P95Us => row.p95_us,
            Self::P999Us => row.p999_us,
            Self::MeanUs | Self::MeanUsMin | Self::MeanUsMax => row.mean_us,
            Self::DeviationUs => row.deviation_us,
            Self::SwitchesPerS => {
                let mut roles = row.roles.iter();
                roles.find(|role| role.role == "leader")?.switches_per_s
            }
            Self::WindowOneShare
            | Self::WindowTwoBatch
            | Self::LargestShare
            | Self::TimesUnicast
            | Self::LossMax => return None,
        })
    }

    /// Computes the metric from all rows of a grid; `None` for other metrics.
    #[expect(clippy::cast_precision_loss, reason = "a size")]
    pub(super) fn of_grid(self, rows: &[&Row]) -> Option<f64> {
        let greatest_of = |rows: &mut dyn Iterator<Item = &&Row>| {
            rows.map(|row| row.achieved_per_s).reduce(f64::max)
        };
        let greatest = greatest_of(&mut rows.iter())?;
        let with = |window| rows.iter().filter(move |row| row.window == Some(window));
        match self {
            Self::WindowOneShare => {
                Some(round_to_four_digits(greatest_of(&mut with(1))? / greatest))
            }
            Self::WindowTwoBatch => {
                let full = with(2).filter(|row| row.achieved_per_s >= greatest * 0.95);
                let batch = full.filter_map(|row| row.batch_bytes).min()?;
                Some(batch as f64)
            }
            Self::LargestShare => {
                let last = rows.iter().max_by_key(|row| (row.window, row.batch_bytes))?;
                Some(round_to_four_digits(last.achieved_per_s / greatest))
            }
            _ => None,
        }
    }
}
