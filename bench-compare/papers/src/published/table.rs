//! Complete tables from a paper. If a table has a metric, each number is compared with the number
//! measured here.

use quorate_bench::{figure::round_to_four_digits, report::PublishedComparison, row::Row};
use serde::Deserialize;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    pub title: String,
    /// Quantity of the numbers; `None` if they are not compared with ours. With a metric, rows are
    /// target rates in MB/s and columns are write sizes.
    pub metric: Option<CellMetric>,
    /// Names of all columns, including the first.
    pub columns: Vec<String>,
    /// Numbers of each row; `nan` where the paper has no number.
    pub rows: Vec<Vec<f64>>,
}

/// Quantity of the numbers in a table of rates and sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CellMetric {
    /// Delivered rate relative to the target rate.
    Delivered,
    /// Writes per microsecond.
    WriteMhz,
    /// Mean number of bytes per acknowledgement.
    Batch,
    /// Median latency in milliseconds, measured from the write call.
    P50Ms,
    /// 99th percentile of the latency in milliseconds, measured from the write call.
    P99Ms,
}

/// A number of the table, with its target rate and write size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// Target rate in 10⁶ bytes per second.
    pub rate_mb: u32,
    pub write_bytes: usize,
    pub published: f64,
}

impl Table {
    /// Returns all numbers, row by row. `sizes` are the write sizes of the columns after the first.
    pub fn cells<'a>(&'a self, sizes: &'a [usize]) -> impl Iterator<Item = Cell> + 'a {
        let of_row = move |row: &'a Vec<f64>| {
            let rate = row.first().copied().unwrap_or_default();
            let numbers = sizes.iter().zip(row.iter().skip(1));
            numbers.filter(|(_, published)| published.is_finite()).map(
                move |(write_bytes, published)| Cell {
                    rate_mb: round_to_whole(rate),
                    write_bytes: *write_bytes,
                    published: *published,
                },
            )
        };
        self.rows.iter().flat_map(of_row)
    }

    /// Returns whether every row is complete and, if the numbers are compared, there is one column
    /// per write size of the run.
    pub(super) fn is_complete(&self, sizes: Option<&[usize]>) -> bool {
        let complete = self.rows.iter().all(|row| row.len() == self.columns.len());
        let columns = self.columns.iter().skip(1).cloned();
        let named = |size: &usize| format!("{size} B");
        let alike = sizes.is_none_or(|sizes| columns.eq(sizes.iter().map(named)));
        complete && (self.metric.is_none() || alike)
    }

    /// Returns a comparison for each number of the table that `rows` cover. All `rows` belong to
    /// this scenario.
    pub(super) fn compare_with(
        &self,
        source: &str,
        scenario: &str,
        sizes: &[usize],
        rows: &[Row],
    ) -> Vec<PublishedComparison> {
        let Some(metric) = self.metric else {
            return Vec::new();
        };
        let of = |cell: Cell| {
            let fits = |row: &&Row| row.scenario == scenario && cell.matches_row(row);
            let row = rows.iter().find(fits)?;
            Some(PublishedComparison {
                source: source.to_owned(),
                what: format!(
                    "{} MB/s in writes of {} B: {}",
                    cell.rate_mb,
                    cell.write_bytes,
                    metric.name()
                ),
                published: cell.published,
                unit: metric.unit().to_owned(),
                approximate: false,
                ours: metric.of_row(row).filter(|_| row.valid),
            })
        };
        self.cells(sizes).filter_map(of).collect()
    }
}

impl Cell {
    pub fn writes_per_second(&self) -> u64 {
        u64::from(self.rate_mb) * 1_000_000
    }

    /// Returns whether the row was measured at this rate, rounded to whole writes, and this write
    /// size.
    fn matches_row(&self, row: &Row) -> bool {
        let target = row.stream.as_ref().and_then(|one| one.target_bytes_per_s);
        let close =
            |target: u64| self.writes_per_second().abs_diff(target) < self.write_bytes as u64;
        row.value_bytes == self.write_bytes && target.is_some_and(close)
    }
}

impl CellMetric {
    const fn name(self) -> &'static str {
        match self {
            Self::Delivered => "share of the target delivered",
            Self::WriteMhz => "write rate",
            Self::Batch => "mean acknowledged batch",
            Self::P50Ms => "median latency",
            Self::P99Ms => "99th percentile",
        }
    }

    const fn unit(self) -> &'static str {
        match self {
            Self::Delivered => "of it",
            Self::WriteMhz => "MHz",
            Self::Batch => "B",
            Self::P50Ms | Self::P99Ms => "ms",
        }
    }

    fn of_row(self, row: &Row) -> Option<f64> {
        let figures = row.stream.as_ref()?;
        Some(match self {
            Self::Delivered => figures.delivered?,
            Self::WriteMhz => round_to_four_digits(row.achieved_per_s / 1e6),
            Self::Batch => figures.acknowledged_bytes,
            Self::P50Ms => round_to_four_digits(figures.from_call_p50_us / 1000.0),
            Self::P99Ms => round_to_four_digits(figures.from_call_p99_us / 1000.0),
        })
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate of a table, in MB/s"
)]
fn round_to_whole(rate: f64) -> u32 {
    rate as u32
}

#[cfg(test)]
mod tests {
    use quorate_bench::{
        environment::Environment,
        load::OfferedLoad,
        repetition::Repetition,
        row::RowSetting,
        stream::{AcknowledgementCounts, figures::StreamSetting, speech::StreamProtocol},
    };

    use super::*;

    fn table(metric: CellMetric) -> Table {
        Table {
            title: "Table 1".to_owned(),
            metric: Some(metric),
            columns: ["target, MB/s", "14 B", "1000 B"].map(str::to_owned).into(),
            rows: vec![vec![5.0, 0.25, 1.0], vec![20.0, f64::NAN, 0.5]],
        }
    }

    /// Returns a row of 2 s at 5 MB/s with 14-byte writes, a tenth of which was delivered.
    fn row() -> Row {
        let offer = OfferedLoad::Open { per_second: 357_142 };
        let setting = RowSetting::new("zcp-table1", "durable", "streams", 14, offer);
        let mut repetition = Repetition::default();
        repetition.samples.completed = 71_428;
        repetition.samples.measured_ns = 2_000_000_000;
        let mut acknowledged = AcknowledgementCounts {
            count: 1000,
            bytes: 999_992,
            ..AcknowledgementCounts::default()
        };
        acknowledged.latencies_from_call.record(3_000_000);
        let asked = StreamSetting {
            protocol: StreamProtocol::Raw,
            write_bytes: 14,
            offer,
            gathers_writes: false,
        };
        let environment = Environment::of_this_machine();
        let (all, seen) = ([repetition], [acknowledged]);
        Row::from_streams(&setting, &environment, asked, &all, &seen).unwrap()
    }

    #[test]
    fn a_number_stands_beside_the_row_of_its_rate_and_size() {
        let ours = |metric, row: &Row| {
            let rows = std::slice::from_ref(row);
            let all = table(metric).compare_with("Table 1", "zcp-table1", &[14, 1000], rows);
            let [one] = &all[..] else { panic!("{all:?}") };
            assert!((one.published - 0.25).abs() < 1e-9);
            one.ours.map(|figure| figure.to_string())
        };
        let mut row = row();
        for (metric, wanted) in [
            (CellMetric::Delivered, "0.1"),
            (CellMetric::WriteMhz, "0.03571"),
            (CellMetric::Batch, "1000"),
            (CellMetric::P50Ms, "3"),
            (CellMetric::P99Ms, "3"),
        ] {
            assert_eq!(ours(metric, &row).as_deref(), Some(wanted), "{metric:?}");
        }
        row.invalidate("no result".to_owned());
        assert_eq!(ours(CellMetric::Delivered, &row), None);
    }

    #[test]
    fn where_the_paper_has_nothing_there_is_no_cell() {
        let table = table(CellMetric::Batch);
        let cells = table.cells(&[14, 1000]);
        let cells: Vec<(u32, usize)> = cells.map(|cell| (cell.rate_mb, cell.write_bytes)).collect();
        assert_eq!(cells, [(5, 14), (5, 1000), (20, 1000)]);
        assert!(table.is_complete(Some(&[14, 1000])) && !table.is_complete(Some(&[14, 100])));
    }
}
