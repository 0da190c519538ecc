//! Results of plans: what became of one, and the eras that came into force meanwhile.

use quorate_admin::{
    look::Silent,
    members::{StepView, WeightView},
};
use serde::Serialize;

use super::group::Group;

/// Result of a plan, or its current state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Ended {
    /// `reached`, `nothing_to_do` or `planned`.
    pub(super) result: &'static str,
    /// Its number.
    pub(super) plan: Option<u64>,
    /// The steps of the plan.
    pub(super) steps: Vec<StepView>,
    /// Eras that came into force meanwhile.
    pub(super) eras: Vec<EraView>,
    /// The era that it is now.
    pub(super) era: u64,
    /// [era-9] The removed node may be switched off; null if no node leaves, or the command did not
    /// wait for it.
    pub(super) settled: Option<bool>,
}

/// A configuration that came into force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct EraView {
    pub(super) era: u64,
    /// Null if the configuration was not seen.
    pub(super) weights: Option<Vec<WeightView>>,
}

impl Ended {
    /// The request was satisfied already.
    pub(super) fn nothing_to_do(group: &mut Group) -> Result<Self, Silent> {
        let era = group.glance()?.newest().era;
        Ok(Self {
            result: "nothing_to_do",
            plan: None,
            steps: Vec::new(),
            eras: Vec::new(),
            era,
            settled: None,
        })
    }

    /// The plan continues without the command waiting for it, or would.
    pub(super) fn underway(plan: Option<u64>, steps: Vec<StepView>, era: u64) -> Self {
        Self { result: "planned", plan, steps, eras: Vec::new(), era, settled: None }
    }
}
