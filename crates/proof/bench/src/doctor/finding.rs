//! Finding: result of one check, with its state and advice.

use serde::Serialize;

use crate::doctor::plane::Plane;

/// State of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// No action is needed.
    Ok,
    /// Works, or is not needed on every node, but could be better.
    Warning,
    /// Action is needed.
    Failing,
    /// Could not be determined.
    Unknown,
}

impl State {
    /// Returns the name used in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Failing => "failing",
            Self::Unknown => "unknown",
        }
    }
}

/// Result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Name for programs; the same on every machine, except for interface names and addresses in
    /// it.
    pub name: String,
    pub state: State,
    /// Summary in a few words.
    pub what: String,
    /// Details; may be empty.
    pub detail: String,
    /// Advice; empty if none.
    pub hint: String,
    /// Planes affected.
    pub about: Vec<Plane>,
    /// The affected planes cannot work.
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

    /// Returns a finding that all is well.
    pub fn ok(name: &str, what: impl Into<String>) -> Self {
        Self::new(name, State::Ok, what, "")
    }

    /// Returns a finding that something could be better.
    pub fn warning(name: &str, what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(name, State::Warning, what, hint)
    }

    /// Returns a finding that needs action.
    pub fn failing(name: &str, what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(name, State::Failing, what, hint)
    }

    /// Returns a finding that something is unknown.
    pub fn unknown(name: &str, what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(name, State::Unknown, what, hint)
    }

    /// Sets the details.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = detail.into();
        self
    }

    /// Sets the affected planes.
    #[must_use]
    pub fn about(mut self, planes: &[Plane]) -> Self {
        self.about = planes.to_vec();
        self
    }

    /// Marks these planes as unable to work.
    #[must_use]
    pub fn blocks(mut self, planes: &[Plane]) -> Self {
        self.blocks = true;
        self.about(planes)
    }
}
