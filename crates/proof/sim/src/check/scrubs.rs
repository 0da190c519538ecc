//! Scrubs find no damage on an undamaged disk ([scrub-5]), and the damage that they find is
//! repaired while the rest of the group is intact ([scrub-2]).

use quorate_replica::scrubbing::report::{DamagedPlace, Fate, Kind, ScrubStatus};

use super::{Verdict, Violation};

fn scrub_violation(node: usize, what: &str, found: &[&DamagedPlace]) -> Verdict {
    let found: Vec<String> = found
        .iter()
        .map(|found| format!("{} {} ({:?})", found.kind, found.description, found.fate))
        .collect();
    let detail = format!("node {} {what}: {}", node + 1, found.join("; "));
    Err(Violation::new("scrubs", detail))
}

/// Checks that a scrub of a disk that was never damaged finds no damage.
pub fn check_undamaged(node: usize, status: &ScrubStatus) -> Verdict {
    if status.found_total == 0 {
        return Ok(());
    }
    let found: Vec<&DamagedPlace> = status.found.iter().collect();
    scrub_violation(node, "says that a sound place is damaged", &found)
}

/// Checks a scrub of a disk that was last damaged long ago. It may find only superseded log writes,
/// which are not repaired.
pub fn check_repaired(node: usize, status: &ScrubStatus) -> Verdict {
    let stays = |found: &&DamagedPlace| (found.kind, found.fate) != (Kind::Log, Fate::Superseded);
    let found: Vec<&DamagedPlace> = status.found.iter().filter(stays).collect();
    match found.is_empty() {
        true => Ok(()),
        false => scrub_violation(node, "does not mend what is damaged", &found),
    }
}
