//! `quorate scrub`: makes a running node read all of its data and repair any damage that it can.

use std::{
    thread,
    time::{Duration, Instant},
};

use clap::Args;
use quorate_admin::{
    client,
    progress::{Progress, ProgressReport},
    scrub::{FoundView, ScrubRequest, ScrubView, format_kinds},
    units::format_bytes,
};
use quorate_replica::scrubbing::report::Fate;

use crate::{
    addresses::AnyOf,
    config::SCRUB_PACE_BOUNDS,
    output::{Exit, Output, Problem},
    snapshot::{REQUEST_TIMEOUT, query_status},
};

/// Interval between polls of the node.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Time without progress after which the command stops waiting for pending repairs.
const REPAIR_TIMEOUT: Duration = Duration::from_secs(30);

/// Arguments of `quorate scrub`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ScrubArgs {
    #[command(flatten)]
    any: AnyOf,
    /// Read at most this much a second, such as 50MB; at least 64KiB [default: the node's
    /// --scrub-pace]
    #[arg(long, value_name = "BYTES", value_parser = SCRUB_PACE_BOUNDS.argument::<u64>())]
    pace: Option<u64>,
    /// Only show what the running or the last scrub found
    #[arg(long, conflicts_with = "pace")]
    show: bool,
}

pub(crate) fn run(args: &ScrubArgs, output: Output) -> Result<Exit, Problem> {
    let admin = args.any.first_answering()?;
    let view = match args.show {
        true => query_status(admin)?.scrub,
        false => poll_until_done(admin, begin_scrub(admin, args.pace)?)?,
    };
    output.print_result(&view, || human(&view));
    Ok(match view.is_damaged() {
        true => Exit::Violation,
        false => Exit::Done,
    })
}

fn begin_scrub(admin: &str, bytes_per_second: Option<u64>) -> Result<ScrubView, Problem> {
    let request = ScrubRequest { bytes_per_second };
    let body = serde_json::to_string(&request).expect("plain data");
    let response = client::post(admin, "/scrub", &body, REQUEST_TIMEOUT);
    let response = response.map_err(|error| Problem::unreachable_node(admin, error))?;
    let status = response.status;
    response.parse_json().map_err(|refusal: client::Refusal| {
        let (exit, code) = match status {
            500.. => (Exit::Unreachable, "unavailable"),
            _ => (Exit::Failed, "scrub_failed"),
        };
        Problem::new(exit, code, refusal.message).with_hint(refusal.hint)
    })
}

/// Polls the node until it has read everything and completed all possible repairs.
fn poll_until_done(admin: &str, mut view: ScrubView) -> Result<ScrubView, Problem> {
    let mut how_far = Progress::start();
    let mut moved = Instant::now();
    loop {
        let repairing = view.count_with_fate(Fate::Repairing);
        if view.reading.is_none() && (repairing == 0 || moved.elapsed() > REPAIR_TIMEOUT) {
            return Ok(view);
        }
        how_far.report(|| progress_report(&view));
        thread::sleep(POLL_INTERVAL);
        let next = query_status(admin)?.scrub;
        if next.reading.is_some() || next.count_with_fate(Fate::Repairing) != repairing {
            moved = Instant::now();
        }
        view = next;
    }
}

fn progress_report(view: &ScrubView) -> ProgressReport {
    let found = view.found.len() as u64 + view.more;
    match &view.reading {
        Some(kind) => ProgressReport::with_share(
            "scrub: ",
            (view.bytes, view.bytes_all),
            format!(
                "{} of {}, reading {kind}, {found} damaged",
                format_bytes(view.bytes),
                format_bytes(view.bytes_all)
            ),
        ),
        None => ProgressReport::text(format!(
            "repairing {} places",
            view.count_with_fate(Fate::Repairing)
        )),
    }
}

fn human(view: &ScrubView) -> String {
    let mut text = String::new();
    for found in &view.found {
        text.push_str(&FoundView::format_finding(found));
        text.push('\n');
    }
    if view.more > 0 {
        text.push_str(&format!("and {} more places\n", view.more));
    }
    let state = match (&view.reading, view.begun_unix_ms) {
        (Some(kind), _) => format!("reading {kind}: read"),
        (None, Some(_)) => "read".to_owned(),
        (None, None) => return "this node has not been scrubbed since it started".to_owned(),
    };
    text.push_str(&format!("{state} {}", format_kinds(view)));
    text.push_str(match (view.found.len(), view.is_damaged()) {
        (0, _) => ": no damage",
        (_, false) => ": all damage is repaired",
        (_, true) => ": DAMAGED",
    });
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_lists_damage_and_its_repair() {
        let mut view = ScrubView::default();
        assert!(human(&view).contains("not been scrubbed"));
        view.begun_unix_ms = Some(1);
        view.kinds.insert("log".to_owned(), 3 << 20);
        assert_eq!(human(&view), "read 3 MiB of log: no damage");
        view.found.push(FoundView {
            kind: "log".to_owned(),
            fate: "repaired".to_owned(),
            what: "segment 1, offset 4096: no batch here".to_owned(),
        });
        let text = human(&view);
        let expected = "repaired log: segment 1, offset 4096: no batch here\nread 3 MiB of log: all damage is repaired";
        assert_eq!(text, expected);
        view.found[0].fate = "stays".to_owned();
        assert!(human(&view).ends_with(": DAMAGED"));
    }
}
