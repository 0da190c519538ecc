//! Result of a membership plan, with the eras that took effect while the command ran.

use quorate_admin::{
    look::NoResponse,
    members::{StepView, WeightView},
};
use serde::Serialize;

use super::group::GroupClient;

/// Result of a membership plan, or its state if it has not ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct PlanOutcome {
    /// Outcome: `reached`, `nothing_to_do` or `planned`.
    pub(super) result: &'static str,
    /// Number of the plan, if there is one.
    pub(super) plan: Option<u64>,
    /// Steps of the plan, in order.
    pub(super) steps: Vec<StepView>,
    /// Eras that took effect during the command.
    pub(super) eras: Vec<EraView>,
    /// Era at the end of the command.
    pub(super) era: u64,
    /// [era-9] Set if the removed node may be switched off. Null if no node is removed, or if the
    /// command did not wait.
    pub(super) settled: Option<bool>,
}

/// A configuration that took effect during the command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct EraView {
    pub(super) era: u64,
    /// Vote weights. Null if no poll observed the configuration.
    pub(super) weights: Option<Vec<WeightView>>,
}

impl PlanOutcome {
    /// Creates the result of a request that requires no change.
    pub(super) fn already_in_effect(group: &mut GroupClient) -> Result<Self, NoResponse> {
        let era = group.poll_leader()?.newest_view().era;
        Ok(Self {
            result: "nothing_to_do",
            plan: None,
            steps: Vec::new(),
            eras: Vec::new(),
            era,
            settled: None,
        })
    }

    /// Creates the result of a plan that has not ended, or of a dry run.
    pub(super) fn still_planned(plan: Option<u64>, steps: Vec<StepView>, era: u64) -> Self {
        Self { result: "planned", plan, steps, eras: Vec::new(), era, settled: None }
    }
}
