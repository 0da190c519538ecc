//! A finding: one thing that was looked at, how it is, and what to do about it.

use serde::Serialize;

use crate::doctor::plane::Plane;

/// State of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Nothing is to be done.
    Ok,
    /// Works, or is not needed on every node, and could be better.
    Warning,
    /// Action is needed.
    Failing,
    /// Could not be determined.
    Unknown,
}

impl State {
    /// As in the JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Failing => "failing",
            Self::Unknown => "unknown",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// For programs; the same on each machine, but for the names of interfaces and addresses in it.
    pub name: String,
    pub state: State,
    /// Description, in a few words.
    pub what: String,
    /// More about it; may be empty.
    pub detail: String,
    /// Advice; empty if none.
    pub hint: String,
    /// Planes that it matters to.
    pub about: Vec<Plane>,
    /// The planes concerned cannot work because of it.
    pub blocks: bool,
}

impl Finding {
    fn new(name: &str, state: State, what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            name: name.to_owned(),
            state,
            what: what.into(),
            detail: String::new(),
            hint: hint.into(),
            about: Vec::new(),
            blocks: false,
        }
    }

    /// All is well.
    pub fn ok(name: &str, what: impl Into<String>) -> Self {
        Self::new(name, State::Ok, what, "")
    }

    /// Creates a finding of something that could be better.
    pub fn warning(name: &str, what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(name, State::Warning, what, hint)
    }

    /// Creates a finding that needs action.
    pub fn failing(name: &str, what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(name, State::Failing, what, hint)
    }

    /// Creates a finding of something unknown.
    pub fn unknown(name: &str, what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(name, State::Unknown, what, hint)
    }

    /// More about it.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = detail.into();
        self
    }

    /// Sets the planes that it matters to.
    #[must_use]
    pub fn about(mut self, planes: &[Plane]) -> Self {
        self.about = planes.to_vec();
        self
    }

    /// These planes cannot work because of it.
    #[must_use]
    pub fn blocks(mut self, planes: &[Plane]) -> Self {
        self.blocks = true;
        self.about(planes)
    }
}
