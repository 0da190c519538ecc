//! Report: a document of rows, in three formats: JSON for programs, CSV for spreadsheets, HTML for
//! people.

mod compared;
mod csv;
mod html;
mod lanes;
mod segment;
mod svg;

use serde::Serialize;

pub use compared::{ModelComparison, PublishedComparison};
pub use svg::escape_xml;

use crate::{environment::Environment, life::CommandTimeline, probe::MeasuredCeiling, row::Row};

/// Results of one run of the bench.
#[derive(Clone, Debug, Serialize)]
pub struct BenchReport {
    /// Command line that repeats the run.
    pub command: String,
    /// Start time of the run, in seconds since 1970.
    pub unix_time: u64,
    pub environment: Environment,
    /// Measured limits of the machine.
    pub ceilings: Vec<MeasuredCeiling>,
    pub rows: Vec<Row>,
    /// Published figures next to those measured here.
    pub published: Vec<PublishedComparison>,
    /// Model predictions with parameters measured here, next to the measurements.
    pub predictions: Vec<ModelComparison>,
    /// Hops of commands, if they were traced.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lives: Vec<CommandTimeline>,
    pub notes: Vec<String>,
}

impl BenchReport {
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("a document is plain data");
        text.push('\n');
        text
    }

    pub fn to_csv(&self) -> String {
        csv::render_csv(&self.rows)
    }

    pub fn to_svg(&self) -> String {
        lanes::render_lanes(&self.lives)
    }

    pub fn to_html(&self) -> String {
        html::render_page(self)
    }
}
