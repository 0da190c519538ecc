//! Report: a document of rows, in three formats: JSON for programs, CSV for spreadsheets, HTML for
//! people.

mod compared;
mod csv;
mod html;
mod lanes;
mod segment;
mod svg;

use serde::Serialize;

pub use compared::{Comparison, Predicted};
pub use svg::escaped;

use crate::{environment::Environment, life::CommandTimeline, probe::Ceiling, row::Row};

/// Results of one run of the bench.
#[derive(Clone, Debug, Serialize)]
pub struct Document {
    /// Command line that repeats the run.
    pub command: String,
    /// Start time of the run, in seconds since 1970.
    pub unix_time: u64,
    pub environment: Environment,
    /// Measured limits of the machine.
    pub ceilings: Vec<Ceiling>,
    pub rows: Vec<Row>,
    /// Published figures next to those measured here.
    pub published: Vec<Comparison>,
    /// Model predictions with parameters measured here, next to the measurements.
    pub predictions: Vec<Predicted>,
    /// Hops of commands, if they were traced.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lives: Vec<CommandTimeline>,
    pub notes: Vec<String>,
}

impl Document {
    pub fn json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("a document is plain data");
        text.push('\n');
        text
    }

    pub fn csv(&self) -> String {
        csv::render(&self.rows)
    }

    pub fn svg(&self) -> String {
        lanes::render(&self.lives)
    }

    pub fn html(&self) -> String {
        html::render(self)
    }
}
