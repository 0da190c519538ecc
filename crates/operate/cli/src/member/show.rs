//! Formats members and membership plans for people.

use quorate_admin::{
    members::{ListedView, MembersView, StepView, WeightView},
    quorum, units,
};

use super::ended::{EraView, PlanOutcome};
use crate::output::format_table;

/// Message for a request whose target state is already in effect.
pub(super) const NOTHING_TO_DO: &str = "nothing to do";

/// Formats all members as a table, with the changes in progress below it.
pub(super) fn format_members(view: &MembersView, leader: Option<u32>) -> String {
    let head = ["node", "role", "weight", "priority", "lag", "state", "peer"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(view.nodes.iter().map(|listed| member_row(listed, leader)));
    let leads = leader.map_or_else(|| "no leader".to_owned(), |node| format!("node {node} leads"));
    let (cluster, era) = (&view.cluster, units::format_era(view.era));
    let mut text = format!("cluster {cluster}, era {era}: {leads}\n\n{}", format_table(&rows));
    let mut notes = Vec::new();
    if let Some(plan) = &view.plan {
        let waits = plan.waits.as_ref();
        let waits = waits.map_or_else(String::new, |waits| format!("; waits: {waits}"));
        notes.push(format!("plan {}: {}{waits}", plan.id, plan.what));
        notes.push(format_steps(&plan.steps));
    }
    if let Some(last) = view.last {
        let how = match (last.reached, last.settled) {
            (false, _) => "cancelled",
            (true, true) => "reached",
            (true, false) => "reached; do not switch off the removed node yet",
        };
        notes.push(format!("last plan {}: {how}", last.id));
    }
    if !view.removed.is_empty() {
        let removed: Vec<String> = view.removed.iter().map(u32::to_string).collect();
        notes.push(format!("removed: {}", removed.join(", ")));
    }
    for note in notes {
        text.push_str(&format!("\n{}", note.trim_end()));
    }
    text
}

fn member_row(listed: &ListedView, leader: Option<u32>) -> Vec<String> {
    let role = match () {
        () if leader == Some(listed.node) => "leader".to_owned(),
        () if !listed.joined => format!("to be {}", listed.asked),
        () => listed.role.clone(),
    };
    let state = match (listed.joined, listed.connected) {
        (false, _) => "reserved",
        (true, true) => "connected",
        (true, false) => "not connected",
    };
    vec![
        listed.node.to_string(),
        role,
        listed.weight.to_string(),
        listed.priority.to_string(),
        listed.lag.map_or_else(String::new, |lag| lag.to_string()),
        state.to_owned(),
        listed.peer.clone().unwrap_or_default(),
    ]
}

/// Formats the steps of a plan, each with the resulting weights.
pub(super) fn format_steps(steps: &[StepView]) -> String {
    let head = ["step", "change", "weights"].map(str::to_owned).to_vec();
    let row = |(at, step): (usize, &StepView)| {
        vec![at.to_string(), step.change.clone(), format_weights(&step.weights)]
    };
    let rows: Vec<_> = [head].into_iter().chain((1..).zip(steps).map(row)).collect();
    format_table(&rows)
}

/// Formats vote weights, such as `1:1 2:1 3'1:2`, where node 3 is in its second incarnation.
pub(super) fn format_weights(weights: &[WeightView]) -> String {
    let one = |view: &WeightView| {
        let incarnation = match view.incarnation {
            0 => String::new(),
            incarnation => format!("'{incarnation}"),
        };
        format!("{}{incarnation}:{}", view.node, view.weight)
    };
    weights.iter().map(one).collect::<Vec<_>>().join(" ")
}

/// Formats an era that took effect.
pub(super) fn format_era(view: &EraView) -> String {
    match &view.weights {
        Some(of) => format!("era {}: {}", units::format_era(view.era), format_weights(of)),
        None => format!("era {}", units::format_era(view.era)),
    }
}

/// Formats the message about a plan that the command does not wait for.
pub(super) fn format_underway(plan: Option<u64>) -> String {
    match plan {
        Some(plan) => {
            format!("plan {plan} is in progress; 'quorate member list' shows how far it is")
        }
        None => "dry run: this would be done; nothing was changed".to_owned(),
    }
}

/// Formats how many failures the voters survive.
fn format_tolerance(view: &MembersView) -> String {
    let votes: Vec<u32> = view.voter_weights().iter().map(|view| view.weight).collect();
    let plural = if votes.len() == 1 { "" } else { "s" };
    let survived = match quorum::tolerated_failures(&view.quorum, &votes) {
        0 => "no failure is survived".to_owned(),
        1 => "the failure of any one is survived".to_owned(),
        count => format!("the failure of any {count} is survived"),
    };
    format!("{} voter{plural}: {survived}", votes.len())
}

/// Formats the command's final message. `leaves` is the removed node, and `left` the members after
/// its removal.
pub(super) fn format_outcome(
    ended: &PlanOutcome,
    leaves: Option<u32>,
    left: Option<&MembersView>,
) -> String {
    let mut text = format!("era {}", units::format_era(ended.era));
    if let Some(view) = left {
        text.push_str(&format!("\n{}", format_tolerance(view)));
    }
    if let (Some(true), Some(node)) = (ended.settled, leaves) {
        text.push_str(&format!("\nnode {node} may be switched off, and its data deleted"));
    }
    text
}

#[cfg(test)]
mod tests {
    use quorate_admin::members::{LastPlanView, PlanInProgressView};

    use super::*;
    use crate::member::group;

    fn weight(node: u32, incarnation: u32, weight: u32) -> WeightView {
        WeightView { node, incarnation, weight }
    }

    #[test]
    fn members_are_a_table_followed_by_changes_in_progress() {
        let view = group::tests::view(1, Some(1), 1, 100);
        let listed = |node: u32, weight, joined, lag| ListedView {
            node,
            peer: Some(format!("h:{node}")),
            role: if weight > 0 { "voter" } else { "learner" }.to_owned(),
            weight,
            priority: u32::from(node == 1) * 5,
            joined,
            connected: joined && node != 2,
            lag,
            ..view.nodes[0].clone()
        };
        let view = MembersView {
            era: 7,
            nodes: vec![
                listed(1, 1, true, None),
                listed(2, 1, true, Some(900)),
                listed(4, 0, true, Some(0)),
                listed(5, 0, false, None),
            ],
            plan: Some(PlanInProgressView {
                id: 90,
                what: "promote node 4".to_owned(),
                steps: vec![StepView {
                    change: "node 4: + 1".to_owned(),
                    weights: vec![weight(1, 0, 1), weight(2, 1, 1), weight(4, 0, 1)],
                }],
                waits: Some("node 4 is 5 slots behind".to_owned()),
            }),
            last: Some(LastPlanView { id: 70, reached: true, slot: 75, settled: false }),
            removed: vec![3],
            ..view
        };
        let expected = "\
cluster ab, era 7: node 1 leads

node  role         weight  priority  lag  state          peer
1     leader       1       5              connected      h:1
2     voter        1       0         900  not connected  h:2
4     learner      0       0         0    connected      h:4
5     to be voter  0       0              reserved       h:5

plan 90: promote node 4; waits: node 4 is 5 slots behind
step  change       weights
1     node 4: + 1  1:1 2'1:1 4:1
last plan 70: reached; do not switch off the removed node yet
removed: 3";
        assert_eq!(format_members(&view, Some(1)), expected);
    }

    #[test]
    fn last_line_names_the_node_that_may_be_switched_off() {
        let mut end = PlanOutcome::still_planned(Some(5), Vec::new(), 9);
        assert_eq!(format_outcome(&end, Some(2), None), "era 9");
        end.settled = Some(true);
        let expected = "era 9\nnode 2 may be switched off, and its data deleted";
        assert_eq!(format_outcome(&end, Some(2), None), expected);
        let mut left = group::tests::view(1, Some(1), 1, 100);
        let mut says = |voters: u32| {
            let listed = |node| ListedView { node, weight: 1, ..left.nodes[0].clone() };
            left.nodes = (1..=voters).map(listed).collect();
            format_outcome(&end, Some(2), Some(&left)).lines().nth(1).unwrap().to_owned()
        };
        assert_eq!(says(1), "1 voter: no failure is survived");
        assert_eq!(says(2), "2 voters: no failure is survived");
        assert_eq!(says(3), "3 voters: the failure of any one is survived");
        assert_eq!(says(5), "5 voters: the failure of any 2 is survived");
    }
}
