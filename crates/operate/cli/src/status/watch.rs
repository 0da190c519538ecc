//! `quorate status --watch`: polls the cluster repeatedly. On a terminal, redraws the picture in
//! place.

use std::{
    io::{self, IsTerminal as _},
    time::{Duration, Instant},
};

use quorate_admin::{
    client,
    look::query_cluster,
    members::{MembersView, PlanInProgressView},
    view::{Answer, ClusterView},
};

use super::{picture::ClusterPicture, plan_in_progress, rates::ClusterRates};
use crate::output::{self, Exit, Output, Problem};

/// Interval between polls.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Timeout for a request for the remaining steps of a plan.
const STEPS_TIMEOUT: Duration = Duration::from_secs(1);

/// Polls and prints until the user interrupts or the reader closes the output.
pub(super) fn watch_cluster(admin: &[String], output: Output) -> Result<Exit, Problem> {
    crate::signals::exit_when_interrupted()?;
    let terminal = io::stdout().is_terminal();
    let mut rates = ClusterRates::default();
    let (mut looked, mut first) = (Instant::now(), true);
    loop {
        let cluster = query_cluster(admin);
        if output.json {
            match cluster {
                Ok(cluster) => output.print_result(&cluster, String::new),
                Err(silent) => {
                    output.print_problem(&silent.into());
                }
            }
        } else {
            let drawn = match &cluster {
                Ok(cluster) => {
                    rates.update(cluster, looked.elapsed());
                    let steps = remaining_steps(cluster);
                    let picture = ClusterPicture {
                        cluster,
                        rates: &rates,
                        remaining_steps: steps.as_ref(),
                        uses_colours: terminal,
                    };
                    picture.draw()
                }
                Err(silent) => no_answer_text(&silent.reasons),
            };
            looked = Instant::now();
            output::print_line(&frame_picture(&drawn, terminal, first));
            first = false;
        }
        if output::wait_for_reader_end(POLL_INTERVAL) {
            return Ok(Exit::Done);
        }
    }
}

/// Returns the remaining steps of the plan in progress, as reported by the leader.
fn remaining_steps(cluster: &ClusterView) -> Option<PlanInProgressView> {
    plan_in_progress(cluster)?;
    let mut views = cluster.nodes.iter().filter_map(Answer::node_view);
    let leader = views.find(|view| Some(view.node) == cluster.leader)?;
    let mut members = leader.members.iter();
    let own = members.find(|member| member.node == leader.node)?;
    let response = client::get(own.admin.as_ref()?, "/members", STEPS_TIMEOUT).ok()?;
    response.parse_json::<MembersView>().ok()?.plan
}

/// Formats the message shown while no node responds. That may be temporary, so watching continues.
fn no_answer_text(reasons: &[String]) -> String {
    format!("no node answers\n\n{}", reasons.join("\n"))
}

/// Formats a picture for output. On a terminal, it replaces the previous picture line by line,
/// which avoids flicker, and lines that are too long are cut. Elsewhere, the pictures follow one
/// another.
fn frame_picture(drawn: &str, terminal: bool, first: bool) -> String {
    match (terminal, first) {
        (true, _) => {
            let begin = if first { "\x1b[2J\x1b[H" } else { "\x1b[H" };
            let lines = drawn.replace('\n', "\x1b[K\n");
            format!("\x1b[?7l{begin}{lines}\x1b[K\x1b[?7h\x1b[J")
        }
        (false, true) => drawn.to_owned(),
        (false, false) => format!("\n{drawn}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn picture_replaces_the_previous_one_only_on_a_terminal() {
        assert_eq!(frame_picture("a\nb", false, true), "a\nb");
        assert_eq!(frame_picture("a\nb", false, false), "\na\nb");
        let again = frame_picture("a\nb", true, false);
        assert_eq!(again, "\x1b[?7l\x1b[Ha\x1b[K\nb\x1b[K\x1b[?7h\x1b[J");
        assert!(frame_picture("", true, true).contains("\x1b[2J"));
    }

    #[test]
    fn picture_of_an_unreachable_cluster_lists_the_reasons() {
        let reasons = ["no node answers at h:1: refused", "no node answers at h:2: refused"];
        let expected =
            "no node answers\n\nno node answers at h:1: refused\nno node answers at h:2: refused";
        assert_eq!(no_answer_text(&reasons.map(str::to_owned)), expected);
    }
}
