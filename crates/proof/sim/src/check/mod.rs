//! Checked properties, one per file. Each checker receives events and reports violations.

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

/// Evidence that a property does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Name of the property, usually that of the file in this folder that checks it.
    pub property: &'static str,
    /// Observation that contradicts the property.
    pub detail: String,
}

impl Violation {
    pub fn new(property: &'static str, detail: impl Into<String>) -> Self {
        Self { property, detail: detail.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.property, self.detail)
    }
}

/// Returns whether the members that satisfy `has` form a phase-2 quorum.
pub(crate) fn is_quorum(configuration: &Configuration, has: impl Fn(&Voter) -> bool) -> bool {
    let members = configuration.members().iter().enumerate();
    let who = members.filter(|(_, voter)| has(voter));
    let who = who.fold(MemberSet::default(), |set, (at, _)| set.with(at));
    configuration.is_quorum(Phase::Two, who)
}

/// Result of a check, with the violation if there is one.
pub type Verdict = Result<(), Violation>;
