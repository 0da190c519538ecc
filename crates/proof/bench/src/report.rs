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

/// All that one run of the bench found.
#[derive(Clone, Debug, Serialize)]
pub struct Document {
    /// The command that repeats it.
    pub command: String,
    /// Seconds since 1970 when it began.
    pub unix_time: u64,
    pub environment: Environment,
    /// Limits of the machine, as far as measured.
    pub ceilings: Vec<Ceiling>,
    pub rows: Vec<Row>,
    /// Published figures, with ours.
    pub published: Vec<Comparison>,
    /// Predictions of a model with parameters measured here, with our figures.
    pub predictions: Vec<Predicted>,
    /// The hops of one command, where they were looked at.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lives: Vec<Life>,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

impl Document {
    /// One JSON document.
    pub fn json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("a document is plain data");
        text.push('\n');
        text
    }

    /// One line per row.
    pub fn csv(&self) -> String {
        csv::render(&self.rows)
    }

    /// The lives of commands as one picture.
    pub fn svg(&self) -> String {
        lanes::render(&self.lives)
    }

    /// A page that needs nothing from elsewhere.
    pub fn html(&self) -> String {
        html::render(self)
    }
}
