//! Follows a membership plan until it ends, across changes of leadership, and reports each era as
//! it takes effect.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::{
    ended::{EraView, PlanOutcome},
    group::{GroupClient, Responses},
    show,
};
use crate::output::{self, Exit, Output, Problem};
use quorate_admin::{
    look::NoResponse,
    members::{MembersOutcome, MembersRequest, MembersView, StepView},
    progress::{Progress, ProgressReport},
};

/// Interval between polls of the cluster.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Time without any response after which the command gives up, although the plan continues.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);

/// An observer of one membership plan.
#[derive(Debug)]
pub(super) struct PlanFollower {
    plan: u64,
    steps: Vec<StepView>,
    /// Era in which the plan was created.
    from: u64,
    seen_eras: Vec<EraView>,
    /// Progress line about the condition that the plan is waiting for.
    waiting_progress: Option<Progress>,
    output: Output,
}

/// State of the observed plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PlanState {
    /// The plan has not been seen yet, or is in progress.
    InProgress,
    Reached,
    Cancelled,
    /// A later plan has superseded this one.
    Superseded,
}

impl PlanFollower {
    pub(super) fn new(plan: u64, steps: Vec<StepView>, from: u64, output: Output) -> Self {
        Self { plan, steps, from, seen_eras: Vec::new(), waiting_progress: None, output }
    }

    /// Follows the plan until it ends. `request` is the request that created the plan.
    pub(super) fn follow_plan(
        &mut self,
        group: &mut GroupClient,
        request: &MembersRequest,
    ) -> Result<PlanOutcome, Problem> {
        let mut patience = ResponseTimeout::new();
        loop {
            if let Some(seen) = patience.handle_poll(group.poll_leader())? {
                let view = seen.newest_view();
                self.print_progress(view);
                match plan_state(view, self.plan) {
                    PlanState::InProgress => {}
                    PlanState::Reached => return Ok(self.plan_reached(view.era)),
                    PlanState::Cancelled => return Err(self.cancelled_problem(view)),
                    PlanState::Superseded => return self.judge_later_plan(group, request),
                }
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Prints the new eras, and the condition that the plan is waiting for.
    fn print_progress(&mut self, view: &MembersView) {
        for era in self.new_eras(view) {
            if !self.output.json {
                output::print_line(&show::format_era(&era));
            }
            self.seen_eras.push(era);
        }
        let plan = view.plan.as_ref().filter(|plan| plan.id == self.plan);
        let waits = plan.and_then(|plan| plan.waits.clone());
        match waits {
            None => self.waiting_progress = None,
            Some(waits) => {
                let told = self.waiting_progress.get_or_insert_with(Progress::start);
                told.report(|| ProgressReport::text(format_args!("waiting: {waits}")));
            }
        }
    }

    /// Returns the eras since the last poll. Eras that were not observed are assumed to be as
    /// planned if the latest one is.
    fn new_eras(&self, view: &MembersView) -> Vec<EraView> {
        let told = self.seen_eras.last().map_or(self.from, |era| era.era);
        let planned = |era: u64| {
            let at = usize::try_from(era.checked_sub(self.from + 1)?).ok()?;
            self.steps.get(at).map(|step| step.weights.clone())
        };
        let now = view.voter_weights();
        let as_planned = planned(view.era).is_some_and(|weights| weights == now);
        let weights = |era: u64| match era == view.era {
            true => Some(now.clone()),
            false => planned(era).filter(|_| as_planned),
        };
        (told + 1..=view.era).map(|era| EraView { era, weights: weights(era) }).collect()
    }

    fn plan_reached(&mut self, era: u64) -> PlanOutcome {
        PlanOutcome {
            result: "reached",
            plan: Some(self.plan),
            steps: std::mem::take(&mut self.steps),
            eras: std::mem::take(&mut self.seen_eras),
            era,
            settled: None,
        }
    }

    fn cancelled_problem(&self, view: &MembersView) -> Problem {
        let what = format!(
            "the plan was cancelled in era {}: {}",
            view.era,
            show::format_weights(&view.voter_weights())
        );
        Problem::new(Exit::Failed, "cancelled", what)
            .with_hint("'quorate member list' shows the current members")
    }

    /// Determines the result after a later plan has superseded this one. A dry run of `request`
    /// shows whether the plan's goal was reached.
    fn judge_later_plan(
        &mut self,
        group: &mut GroupClient,
        request: &MembersRequest,
    ) -> Result<PlanOutcome, Problem> {
        let again = MembersRequest { dry_run: true, ..request.clone() };
        if matches!(group.send_request(&again), Ok(MembersOutcome::NothingToDo)) {
            let era = group.poll_leader()?.newest_view().era;
            return Ok(self.plan_reached(era));
        }
        let what = "the change ended and another one followed; its outcome is unknown";
        Err(Problem::new(Exit::Failed, "unknown_outcome", what)
            .with_hint("'quorate member list' shows the current members"))
    }
}

fn plan_state(view: &MembersView, plan: u64) -> PlanState {
    let underway = view.plan.as_ref().map(|plan| plan.id);
    match view.last {
        Some(last) if last.id == plan && last.reached => PlanState::Reached,
        Some(last) if last.id == plan => PlanState::Cancelled,
        Some(last) if last.id > plan => PlanState::Superseded,
        _ if underway.is_some_and(|id| id > plan) => PlanState::Superseded,
        _ => PlanState::InProgress,
    }
}

/// [era-9] Waits until the removed node may be switched off. A later plan also settles the changes
/// of earlier ones.
pub(super) fn wait_until_removable(
    group: &mut GroupClient,
    plan: Option<u64>,
    node: u32,
    output: Output,
) -> Result<bool, Problem> {
    let mut patience = ResponseTimeout::new();
    let mut told = false;
    loop {
        if let Some(seen) = patience.handle_poll(group.poll_leader())? {
            let last = seen.newest_view().last;
            let ours = last.filter(|last| plan.is_none_or(|plan| last.id >= plan));
            match ours {
                Some(last) if last.settled => return Ok(true),
                None if plan.is_none() => return Ok(true),
                _ => {}
            }
            if !told && !output.json {
                output::progress(&format!(
                    "do not switch off node {node} yet: waiting until enough other nodes hold all data"
                ));
                told = true;
            }
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Time limit for polls to which no node responds.
#[derive(Debug)]
struct ResponseTimeout {
    last_response: Instant,
}

impl ResponseTimeout {
    fn new() -> Self {
        Self { last_response: Instant::now() }
    }

    /// Handles the result of a poll. Returns `None` if no node responds at the moment, and an error
    /// once the time limit is exceeded.
    fn handle_poll(
        &mut self,
        seen: Result<Responses, NoResponse>,
    ) -> Result<Option<Responses>, Problem> {
        match seen {
            Ok(seen) => {
                self.last_response = Instant::now();
                Ok(Some(seen))
            }
            Err(silent) if self.last_response.elapsed() > SILENCE_TIMEOUT => {
                let problem = Problem::from(silent);
                Err(problem.with_hint("the change continues without this command; run it again later to see the result"))
            }
            Err(_) => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use quorate_admin::members::{LastPlanView, ListedView, PlanInProgressView};

    use super::*;
    use crate::member::group;

    fn view(
        era: u64,
        weights: &[u32],
        plan: Option<u64>,
        last: Option<(u64, bool)>,
    ) -> MembersView {
        let view = group::tests::view(1, Some(1), 1, 100);
        let listed = |(node, weight): (u32, &u32)| ListedView {
            node,
            weight: *weight,
            ..view.nodes[0].clone()
        };
        MembersView {
            era,
            nodes: (1..).zip(weights).map(listed).collect(),
            plan: plan.map(|id| PlanInProgressView {
                id,
                what: String::new(),
                steps: Vec::new(),
                waits: None,
            }),
            last: last.map(|(id, reached)| LastPlanView { id, reached, slot: 1, settled: false }),
            ..view
        }
    }

    fn step(weights: &[u32]) -> StepView {
        StepView { change: String::new(), weights: view(0, weights, None, None).voter_weights() }
    }

    #[test]
    fn plan_state_follows_from_its_number() {
        let state = |plan, last| plan_state(&view(0, &[1], plan, last), 50);
        assert_eq!(state(None, None), PlanState::InProgress, "not seen yet");
        assert_eq!(state(Some(50), Some((40, true))), PlanState::InProgress);
        assert_eq!(state(None, Some((50, true))), PlanState::Reached);
        assert_eq!(state(Some(60), Some((50, false))), PlanState::Cancelled);
        assert_eq!(state(None, Some((60, true))), PlanState::Superseded);
        assert_eq!(state(Some(60), Some((40, true))), PlanState::Superseded);
    }

    /// Every era is reported once. Eras between two polls are reported as planned if the latest one
    /// is as planned.
    #[test]
    fn eras_between_two_polls_are_reported() {
        let steps = vec![step(&[2, 1]), step(&[2, 2]), step(&[1, 1])];
        let output = Output { json: true };
        let mut follower = PlanFollower::new(50, steps.clone(), 4, output);
        follower.print_progress(&view(4, &[1, 1], Some(50), None));
        assert_eq!(follower.seen_eras, []);
        follower.print_progress(&view(5, &[2, 1], Some(50), None));
        follower.print_progress(&view(7, &[1, 1], None, Some((50, true))));
        follower.print_progress(&view(7, &[1, 1], None, Some((50, true))));
        let numbers: Vec<u64> = follower.seen_eras.iter().map(|era| era.era).collect();
        assert_eq!(numbers, [5, 6, 7]);
        let weights = |at: usize| follower.seen_eras[at].weights.clone();
        assert_eq!(weights(1), Some(steps[1].weights.clone()));
        // A new leader took different steps.
        let mut follower = PlanFollower::new(50, steps, 4, output);
        follower.print_progress(&view(6, &[3, 1], Some(50), None));
        assert_eq!(follower.seen_eras[0].weights, None);
        assert!(follower.seen_eras[1].weights.is_some());
    }
}
