//! Scrubs: they find no damage where none was done ([scrub-5]), and what they find is mended while
//! the rest of the group is whole ([scrub-2]).

use quorate_replica::scrubbing::report::{Fate, Found, Kind, ScrubStatus};

use super::{Verdict, Violation};

fn broken(node: usize, what: &str, found: &[&Found]) -> Verdict {
    let found: Vec<String> = found
        .iter()
        .map(|found| format!("{} {} ({:?})", found.kind, found.what, found.fate))
        .collect();
    let detail = format!("node {} {what}: {}", node + 1, found.join("; "));
    Err(Violation::new("scrubs", detail))
}

/// Checks a node on whose disk no bit ever flipped: nothing is damaged there.
///
/// # Errors
/// Its scrub found damage.
pub fn sound(node: usize, status: &ScrubStatus) -> Verdict {
    if status.found_total == 0 {
        return Ok(());
    }
    let found: Vec<&Found> = status.found.iter().collect();
    broken(node, "says that a sound place is damaged", &found)
}

/// Checks that a scrub of a node on whose disk nothing was damaged for long finds only log writes
/// that stay where they are, and hold nothing that is needed.
///
/// # Errors
/// It found something else.
pub fn mended(node: usize, status: &ScrubStatus) -> Verdict {
    let stays = |found: &&Found| (found.kind, found.fate) != (Kind::Log, Fate::Superseded);
    let found: Vec<&Found> = status.found.iter().filter(stays).collect();
    match found.is_empty() {
        true => Ok(()),
        false => broken(node, "does not mend what is damaged", &found),
    }
}
