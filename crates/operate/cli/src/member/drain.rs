//! `quorate member drain`: moves leadership away from a node and prevents its return.

use std::{
    fmt, thread,
    time::{Duration, Instant},
};

use quorate_admin::{
    client,
    members::{MembersRequest, MembersView},
    view::{TransferRequest, Transferred},
};
use serde::Serialize;

use super::group::{GroupClient, Responses, refusal_problem};
use crate::output::{self, Exit, Problem};

/// Timeout for a transfer request, longer than the node's own, so that the node reports the error.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(15);
/// Time within which another node must become the leader.
const LEADER_CHANGE_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval between polls of the cluster.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Result of `quorate member drain`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Drained {
    /// Node that was drained.
    node: u32,
    /// Leader after the command.
    leader: Option<u32>,
    /// Priority before the command, if it had to be lowered.
    priority_was: Option<u32>,
    /// Set if the command changed nothing.
    dry_run: bool,
}

impl fmt::Display for Drained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let node = self.node;
        match (self.dry_run, self.leader) {
            (true, Some(leader)) if leader == node => {
                write!(
                    f,
                    "dry run: node {node} leads, so leadership would move; nothing was changed"
                )
            }
            (true, _) => write!(f, "dry run: node {node} does not lead; nothing was changed"),
            (false, Some(leader)) => write!(f, "node {leader} leads"),
            (false, None) => write!(f, "node {node} does not lead"),
        }
    }
}

/// Moves leadership away from `node` and keeps it away. With `dry_run`, changes nothing.
pub(super) fn drain_node(
    group: &mut GroupClient,
    node: u32,
    dry_run: bool,
) -> Result<Drained, Problem> {
    let seen = group.poll_all()?;
    let priority_was = priority_to_lower(seen.newest_view(), node)?;
    if let Some(was) = priority_was {
        let verb = if dry_run { "would be set" } else { "is set" };
        output::progress(&format!(
            "node {node} has priority {was}, above another node's: it {verb} to 0, so that leadership does \
             not return; `quorate member priority {node} {was}` gives it back"
        ));
    }
    if dry_run {
        return Ok(Drained { node, leader: seen.reported_leader(), priority_was, dry_run });
    }
    if priority_was.is_some() {
        group.send_request(&MembersRequest {
            priority: Some((node, 0)),
            ..MembersRequest::default()
        })?;
    }
    let leader = move_leadership(group, node)?;
    Ok(Drained { node, leader: Some(leader), priority_was, dry_run })
}

/// Returns the node's priority if leadership would return to the node because of it.
fn priority_to_lower(view: &MembersView, node: u32) -> Result<Option<u32>, Problem> {
    let listed = view.find_node(node).ok_or_else(|| {
        let what = format!("there is no node {node}");
        Problem::new(Exit::Failed, "unknown_node", what)
            .with_hint("'quorate member list' lists the nodes")
    })?;
    let mut others = view.nodes.iter().filter(|other| other.node != node);
    let above = others.any(|other| other.role == "voter" && other.priority < listed.priority);
    Ok(above.then_some(listed.priority))
}

/// Moves leadership away from `node`, and returns the new leader.
fn move_leadership(group: &mut GroupClient, node: u32) -> Result<u32, Problem> {
    let until = Instant::now() + LEADER_CHANGE_TIMEOUT;
    let mut problem =
        Problem::new(Exit::Unreachable, "no_leader", "no leader with a quorum is known")
            .with_hint("'quorate status' shows which nodes are missing");
    loop {
        if let Ok(seen) = group.poll_all() {
            match seen.reported_leader() {
                Some(leader) if leader != node => return Ok(leader),
                Some(_) => match transfer_leadership(&seen, node) {
                    Ok(leader) if leader != node => return Ok(leader),
                    Ok(_) => {}
                    Err(why) if why.code == "no_target" || is_permission_error(&why) => {
                        return Err(why);
                    }
                    Err(why) => problem = why,
                },
                None => {}
            }
        }
        if Instant::now() >= until {
            return Err(problem);
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Returns whether a node refused a request because the caller lacks a role.
fn is_permission_error(why: &Problem) -> bool {
    (why.exit, why.code) == (Exit::Failed, "refused")
}

fn transfer_leadership(seen: &Responses, node: u32) -> Result<u32, Problem> {
    let place = seen.admin_address_of(node).ok_or_else(|| {
        let what = format!("the admin address of node {node} is not known");
        Problem::new(Exit::Unreachable, "unreachable", what).with_hint("give it with --admin")
    })?;
    let body = serde_json::to_string(&TransferRequest { to: None }).expect("plain data");
    let response = client::post(&place, "/transfer", &body, TRANSFER_TIMEOUT)
        .map_err(|error| Problem::unreachable_node(&place, error))?;
    let transferred: Result<Transferred, _> = response.parse_json();
    match transferred {
        Ok(transferred) => Ok(transferred.leader),
        Err(refusal) => Err(refusal_problem(response.status, &refusal)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::group::tests::view;

    #[test]
    fn a_priority_above_another_voters_brings_leadership_back() {
        let mut members = view(1, Some(1), 7, 90);
        assert_eq!(priority_to_lower(&members, 1), Ok(None));
        members.nodes[0].priority = 5;
        assert_eq!(priority_to_lower(&members, 1), Ok(Some(5)));
        assert_eq!(priority_to_lower(&members, 2), Ok(None));
        for other in &mut members.nodes {
            other.priority = 5;
        }
        assert_eq!(priority_to_lower(&members, 1), Ok(None), "no node is below");
        members.nodes[3].priority = 0;
        members.nodes[3].role = "learner".to_owned();
        assert_eq!(priority_to_lower(&members, 1), Ok(None), "a learner cannot lead");
        assert_eq!(priority_to_lower(&members, 9).unwrap_err().code, "unknown_node");
    }

    #[test]
    fn text_names_the_leader() {
        let drained = |leader, dry_run| Drained { node: 1, leader, priority_was: None, dry_run };
        assert_eq!(drained(Some(2), false).to_string(), "node 2 leads");
        assert_eq!(
            drained(Some(1), true).to_string(),
            "dry run: node 1 leads, so leadership would move; nothing was changed"
        );
        assert_eq!(
            drained(Some(2), true).to_string(),
            "dry run: node 1 does not lead; nothing was changed"
        );
    }
}
