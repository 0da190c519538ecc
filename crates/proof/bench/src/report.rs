//! Rows as a document: JSON for programs, CSV for spreadsheets, HTML for people.

mod csv;
mod html;
mod lanes;
mod segment;
mod svg;

use serde::Serialize;

pub use svg::escaped;

use crate::{
    environment::Environment, fit::Predicted, life::Life, papers::Comparison, probe::Ceiling,
    row::Row,
};

/// Results of one run of the bench.
#[derive(Clone, Debug, Serialize)]
pub struct Document {
    /// Command that repeats the run.
    pub command: String,
    /// Start of the run, in seconds since 1970.
    pub unix_time: u64,
    pub environment: Environment,
    /// Measured limits of the machine.
    pub ceilings: Vec<Ceiling>,
    pub rows: Vec<Row>,
    /// Published figures next to ours.
    pub published: Vec<Comparison>,
    /// Model predictions with parameters measured here, next to our figures.
    pub predictions: Vec<Predicted>,
    /// Hops of commands, where measured.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lives: Vec<Life>,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

impl Document {
    /// Returns the document as JSON.
    pub fn json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("a document is plain data");
        text.push('\n');
        text
    }

    /// Returns the rows as CSV, one line per row.
    pub fn csv(&self) -> String {
        csv::render(&self.rows)
    }

    /// Returns the lives of commands as an SVG picture.
    pub fn svg(&self) -> String {
        lanes::render(&self.lives)
    }

    /// Returns a self-contained HTML page.
    pub fn html(&self) -> String {
        html::render(self)
    }
}
