//! Checked properties, one per file; each receives events and reports a violation.

pub mod agreement;
pub mod bounds;
pub mod classes;
pub mod exactly_once;
pub mod levels;
pub mod linearizable;
pub mod lives;
pub mod prefix;
pub mod promises;
pub mod rings;
pub mod rounds;
pub mod scrubs;
pub mod streams;
pub(crate) mod watch;

use std::fmt;

use quorate_core::{
    configuration::{Configuration, Voter},
    quorum::{MemberSet, Phase},
};

/// A broken property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Name of the property, which is also the name of its file.
    pub property: &'static str,
    /// Observation that contradicts it.
    pub detail: String,
}

impl Violation {
    /// Returns a violation of this property.
    pub fn new(property: &'static str, detail: impl Into<String>) -> Self {
        Self { property, detail: detail.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.property, self.detail)
    }
}

/// Returns whether the members for which `has` holds form a phase-2 quorum.
pub(crate) fn is_quorum(configuration: &Configuration, has: impl Fn(&Voter) -> bool) -> bool {
    let members = configuration.members().iter().enumerate();
    let who = members.filter(|(_, voter)| has(voter));
    let who = who.fold(MemberSet::default(), |set, (at, _)| set.with(at));
    configuration.is_quorum(Phase::Two, who)
}

/// Result of a check: the property holds, or this contradicts it.
pub type Verdict = Result<(), Violation>;
