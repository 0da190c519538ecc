//! Rows as a document: JSON for programs, CSV for spreadsheets, HTML for people.

mod csv;
mod html;
mod lanes;
mod segment;
mod svg;

use serde::Serialize;

pub use svg::escaped;

use crate::{
    environment::Environment, fit::Predicted, life::Life, papers::Beside, probe::Ceiling, row::Row,
};

/// All that one run of the bench found.
#[derive(Clone, Debug, Serialize)]
pub struct Document {
    /// The command that repeats it.
    pub command: String,
    /// Seconds since 1970 when it began.
    pub unix_time: u64,
    /// Where it ran.
    pub environment: Environment,
    /// What the machine can do at most, as far as it was asked.
    pub ceilings: Vec<Ceiling>,
    /// What was measured.
    pub rows: Vec<Row>,
    /// What was published, beside ours.
    pub published: Vec<Beside>,
    /// What a model says with parameters that were measured here, beside ours.
    pub predictions: Vec<Predicted>,
    /// The hops of one command, where they were looked at.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lives: Vec<Life>,
    /// What a reader has to know.
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
