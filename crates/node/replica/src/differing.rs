//! Handling of the suspicion that this node has applied values other than those of its peers, so
//! that its state may be wrong. A node under suspicion serves no clients, in this process and later
//! ones ([differ-1] to [differ-3]).

use quorate_core::{node_id::NodeId, slot::Slot};
use quorate_log::disk::{Disk, Source, sealed};

use crate::{peers::StateDoubt, ports::service::StateMachine, spine::Spine};

/// Name of the small file that records the suspicion.
const DOUBT_FILE: &str = "differs";
const FIRST_LINE: &str = "quorate differs 1";
/// Page of the documentation to refer operators to.
pub(crate) const DIVERGENCE_PAGE: &str = "docs/operate/divergence.md";

/// Returns the suspicion that an earlier process recorded, also if the record is unreadable.
pub(crate) fn read_recorded_doubt(disk: &mut impl Source) -> Option<StateDoubt> {
    let unknown = Some(StateDoubt { differing_peer: NodeId(0), differs_below: Slot(0) });
    let Ok(bytes) = disk.read_small_file(DOUBT_FILE) else {
        return unknown;
    };
    let bytes = bytes?;
    let said = |bytes: &[u8]| {
        let mut lines = sealed::open(str::from_utf8(bytes).ok()?).ok()?.lines();
        lines.next().filter(|line| *line == FIRST_LINE)?;
        let (with, to) = match lines.next() {
            Some(line) => line.split_once(' ')?,
            None => return Some(None),
        };
        let (with, to) = (NodeId(with.parse().ok()?), Slot(to.parse().ok()?));
        Some(Some(StateDoubt { differing_peer: with, differs_below: to }))
    };
    said(&bytes).unwrap_or(unknown)
}

/// Suspicion that this node's state may be wrong ([differ-2]).
#[derive(Debug)]
pub(crate) struct StateSuspicion {
    doubt: Option<StateDoubt>,
}

impl StateSuspicion {
    /// Starts with the suspicion that an earlier process recorded, if any.
    pub(crate) fn new<D: Disk, S: StateMachine>(
        doubt: Option<StateDoubt>,
        spine: &mut Spine<D, S>,
    ) -> Self {
        let own = Self { doubt };
        own.notify_service(spine);
        own
    }

    pub(crate) fn is_in_doubt(&self) -> bool {
        self.doubt.is_some()
    }

    /// Updates the suspicion, and writes or deletes its record on disk.
    pub(crate) fn update_record<D: Disk, S: StateMachine>(&mut self, spine: &mut Spine<D, S>) {
        let members = spine.protocol.node().configuration();
        let doubt = spine.peers.doubt_own_state(spine.identity.member, members);
        if doubt == self.doubt {
            return;
        }
        self.doubt = doubt;
        self.notify_service(spine);
        let said = doubt
            .map_or_else(String::new, |StateDoubt { differing_peer: with, differs_below: to }| {
                format!("{with} {to}\n")
            });
        let text = sealed::append_checksum_line(&format!("{FIRST_LINE}\n{said}"));
        let disk = spine.storing.log_mut().disk_mut();
        disk.start_replace_small_file(0, DOUBT_FILE, text.into_bytes());
    }

    fn notify_service<D: Disk, S: StateMachine>(&self, spine: &mut Spine<D, S>) {
        let text = |StateDoubt { differing_peer: with, differs_below: to }| {
            format!(
                "this node and node {with} have applied different things below slot {to}, and this one may be \
                 wrong: it answers neither reads nor writes; {DIVERGENCE_PAGE} says what to do"
            )
        };
        spine.applying.set_doubt(self.doubt.map(text));
    }
}
