//! Finding: the result of one check, with a state and advice.

use serde::Serialize;

use crate::doctor::plane::Plane;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingState {
    /// No action is needed.
    Ok,
    /// The checked part works, or is not needed on every node, but could be better.
    Warning,
    /// Action is needed.
    Failing,
    /// The check could not be carried out.
    Unknown,
}

impl FindingState {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Failing => "failing",
            Self::Unknown => "unknown",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Stable identifier for programs. It is the same on every machine, except for any interface
    /// names and addresses in it.
    pub name: String,
    pub state: FindingState,
    pub what: String,
    /// Details of the result. Empty if there are none.
    pub detail: String,
    /// Advice to the operator. Empty if there is none.
    pub hint: String,
    pub about: Vec<Plane>,
    /// Set if the planes in `about` cannot work.
    pub blocks: bool,
}

impl Finding {
    fn new(
        name: &str,
        state: FindingState,
        what: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
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

    pub fn ok(name: &str, what: impl Into<String>) -> Self {
        Self::new(name, FindingState::Ok, what, "")
    }

    pub fn warning(name: &str, what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(name, FindingState::Warning, what, hint)
    }

    pub fn failing(name: &str, what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(name, FindingState::Failing, what, hint)
    }

    pub fn unknown(name: &str, what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(name, FindingState::Unknown, what, hint)
    }

    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = detail.into();
        self
    }

    #[must_use]
    pub fn with_planes(mut self, planes: &[Plane]) -> Self {
        self.about = planes.to_vec();
        self
    }

    /// Sets the affected planes and marks them as blocked.
    #[must_use]
    pub fn blocking(mut self, planes: &[Plane]) -> Self {
        self.blocks = true;
        self.with_planes(planes)
    }
}
