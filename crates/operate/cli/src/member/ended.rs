//! Result of a plan, with the eras that took effect meanwhile.

use quorate_admin::{
    look::NoResponse,
    members::{StepView, WeightView},
};
use serde::Serialize;

use super::group::Group;

/// Result of a plan, or its current state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Ended {
    /// `reached`, `nothing_to_do` or `planned`.
    pub(super) result: &'static str,
    /// Plan number.
    pub(super) plan: Option<u64>,
    /// The steps of the plan.
    pub(super) steps: Vec<StepView>,
    /// Eras that took effect during the command.
    pub(super) eras: Vec<EraView>,
    /// Current era.
    pub(super) era: u64,
    /// [era-9] The removed node may be switched off; null if no node leaves, or the command did not
    /// wait for it.
    pub(super) settled: Option<bool>,
}

/// A configuration that took effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct EraView {
    pub(super) era: u64,
    /// Vote weights; null if the configuration was not observed.
    pub(super) weights: Option<Vec<WeightView>>,
}

impl Ended {
    /// Creates the result of a request that needs no change.
    pub(super) fn nothing_to_do(group: &mut Group) -> Result<Self, NoResponse> {
        let era = group.poll_leader()?.newest().era;
        Ok(Self {
            result: "nothing_to_do",
            plan: None,
            steps: Vec::new(),
            eras: Vec::new(),
            era,
            settled: None,
        })
    }

    /// Creates the result of a plan that continues in the background, or of a dry run.
    pub(super) fn underway(plan: Option<u64>, steps: Vec<StepView>, era: u64) -> Self {
        Self { result: "planned", plan, steps, eras: Vec::new(), era, settled: None }
    }
}
