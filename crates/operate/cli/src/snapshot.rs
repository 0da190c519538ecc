//! `quorate snapshot`: makes a node take a snapshot of its current state.

use std::time::{Duration, Instant};

use clap::Args;
use quorate_admin::{
    client,
    progress::{Progress, ProgressReport},
    units::format_bytes,
    view::{NodeView, STARTING_CODE, STILL_TAKING_CODE, SnapshotRequest, SnapshotView},
};

use crate::{
    addresses::AnyOf,
    output::{Exit, Output, Problem},
};

/// Request timeout, longer than a node lets a request wait for a snapshot.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);
/// Time without progress after which the command gives up.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(60);

/// Arguments of `quorate snapshot`.
#[derive(Args, Clone, Debug)]
pub(crate) struct SnapshotArgs {
    #[command(flatten)]
    any: AnyOf,
}

pub(crate) fn run(args: &SnapshotArgs, output: Output) -> Result<Exit, Problem> {
    let admin = args.any.first_answering()?;
    let applied = query_status(admin)?.applied;
    let request = SnapshotRequest { at: Some(applied) };
    let body = serde_json::to_string(&request).expect("plain data");
    let taken = repeat_until_taken(admin, &mut || {
        let response = client::post(admin, "/snapshot", &body, REQUEST_TIMEOUT);
        let response = response.map_err(|error| Problem::unreachable_node(admin, error))?;
        let status = response.status;
        let taken = response.parse_json::<SnapshotView>();
        Ok(taken.map_err(|refusal| (status, refusal)))
    })?;
    let taken = taken.map_err(|(status, refusal)| refusal_problem(status, refusal))?;
    output.print_result(&taken, || human(taken));
    Ok(Exit::Done)
}

/// Error response of a node: the HTTP status and the error.
pub(crate) type StatusAndRefusal = (u16, client::Refusal);

/// Repeats a request that needs a snapshot until the node has taken one. Gives up if the snapshot
/// makes no progress.
pub(crate) fn repeat_until_taken<T>(
    admin: &str,
    ask: &mut dyn FnMut() -> Result<Result<T, StatusAndRefusal>, Problem>,
) -> Result<Result<T, StatusAndRefusal>, Problem> {
    let mut last = None;
    let mut moved = Instant::now();
    let mut how_far = Progress::start();
    loop {
        match ask()? {
            Err((_, refusal)) if refusal.code == STILL_TAKING_CODE => {}
            ended => return Ok(ended),
        }
        let taking = query_status(admin)?.snapshot_taking;
        if taking != last {
            (last, moved) = (taking, Instant::now());
        } else if moved.elapsed() > PROGRESS_TIMEOUT {
            let what = "the node makes no progress with a snapshot";
            return Err(Problem::new(Exit::Unreachable, "timed_out", what)
                .with_hint("'quorate status' shows what it is doing"));
        }
        how_far.report(|| ProgressReport::text(format_wait(taking)));
    }
}

fn human(taken: SnapshotView) -> String {
    format!("snapshot at slot {}, {}", taken.slot, format_bytes(taken.bytes))
}

fn format_wait(taking: Option<SnapshotView>) -> String {
    match taking {
        Some(taking) => {
            let so_far = format_bytes(taking.bytes);
            format!("taking a snapshot at slot {}: {so_far} so far", taking.slot)
        }
        None => "waiting for the node to start a snapshot".to_owned(),
    }
}

pub(crate) fn query_status(address: &str) -> Result<NodeView, Problem> {
    let response = client::get(address, "/status", REQUEST_TIMEOUT)
        .map_err(|error| Problem::unreachable_node(address, error))?;
    let view = response.parse_json();
    view.map_err(|refusal| refusal_problem(response.status, refusal))
}

pub(crate) fn refusal_problem(status: u16, refusal: client::Refusal) -> Problem {
    let (exit, code) = match status {
        _ if refusal.code == STARTING_CODE => (Exit::Unreachable, STARTING_CODE),
        500.. => (Exit::Unreachable, "unavailable"),
        _ => (Exit::Failed, "snapshot_failed"),
    };
    Problem::new(exit, code, refusal.message).with_hint(refusal.hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_slots_and_sizes() {
        let view = SnapshotView { slot: 9, bytes: 3 << 20 };
        assert_eq!(human(view), "snapshot at slot 9, 3 MiB");
        assert_eq!(format_wait(Some(view)), "taking a snapshot at slot 9: 3 MiB so far");
    }
}
