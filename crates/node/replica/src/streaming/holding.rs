//! Hold of a backup, which keeps stream bytes that are trimmed or removed meanwhile ([trim-2]).
//!
//! A backup has the state at one slot, and the table at that slot defines which bytes it contains.
//! So the bytes that are retained at the time of the request stay in the store until the hold ends.
//! It ends when its reader is dropped, when it was idle for a while, or when the disk is full,
//! since writers would otherwise have to wait for a reader.

use std::sync::{Arc, Weak};

use quorate_core::{slot::Slot, time::Time};

/// Time in milliseconds without a request after which a hold ends.
const IDLE_TIMEOUT_MS: u64 = 120_000;

/// Hold on the bytes of streams, none of which the node releases until this value is dropped.
#[derive(Clone, Debug)]
pub struct StreamHold {
    /// Number of the hold, unique in this process.
    pub id: u64,
    /// Applied position at the start of the hold. All bytes of snapshots at or after it are
    /// available.
    pub from: Slot,
    _hold: Arc<()>,
}

/// Reason why held bytes were not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotRead {
    /// Too many reads are queued.
    Busy,
    /// The bytes are missing on this node, which fetches them if other nodes have them.
    NotHere,
    /// The hold ended: it was idle for too long, another backup began, or the disk is full.
    HoldEnded,
}

/// The current hold; there is at most one.
#[derive(Debug, Default)]
pub(crate) struct BackupHold {
    current_hold: Option<(u64, Weak<()>, Time)>,
    last_id: u64,
    /// A release of bytes was postponed because of the hold.
    is_release_postponed: bool,
}

impl BackupHold {
    /// Begins a hold, and ends any earlier one. No bytes are released during a hold.
    pub(crate) fn begin_hold(&mut self, now: Time, applied_to: Slot) -> StreamHold {
        self.last_id += 1;
        let hold = Arc::new(());
        let until = now.plus_ms(IDLE_TIMEOUT_MS);
        self.current_hold = Some((self.last_id, Arc::downgrade(&hold), until));
        StreamHold { id: self.last_id, from: applied_to, _hold: hold }
    }

    /// Extends the hold because its reader made a request. Returns `false` if the hold has ended.
    pub(crate) fn extend_hold(&mut self, now: Time, id: u64) -> bool {
        match &mut self.current_hold {
            Some((current, _, until)) if *current == id => {
                *until = now.plus_ms(IDLE_TIMEOUT_MS);
                true
            }
            _ => false,
        }
    }

    /// Returns whether a hold prevents the release of bytes.
    pub(crate) fn is_holding(&self) -> bool {
        self.current_hold.is_some()
    }

    /// Records that a release of bytes was postponed.
    pub(crate) fn postpone_release(&mut self) {
        self.is_release_postponed = true;
    }

    /// Ends the hold if its reader was dropped or is idle, or the disk is full.
    pub(crate) fn end_if_over(&mut self, now: Time, is_full: bool) {
        let over = |(_, hold, until): &(u64, Weak<()>, Time)| {
            is_full || now >= *until || hold.strong_count() == 0
        };
        self.current_hold.take_if(|current| over(current));
    }

    /// Returns whether a postponed release is possible now. The release is reported only once.
    pub(crate) fn take_postponed(&mut self) -> bool {
        !self.is_holding() && std::mem::take(&mut self.is_release_postponed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hold_ends_with_its_reader_a_timeout_or_lack_of_space() {
        let mut holding = BackupHold::default();
        assert!(!holding.is_holding() && !holding.take_postponed());
        // The reader was dropped.
        let hold = holding.begin_hold(Time(0), Slot(7));
        holding.postpone_release();
        holding.end_if_over(Time(1), false);
        assert!(holding.is_holding() && !holding.take_postponed());
        drop(hold);
        holding.end_if_over(Time(2), false);
        assert!(!holding.is_holding() && holding.take_postponed() && !holding.take_postponed());
        // The reader requests nothing.
        let hold = holding.begin_hold(Time(0), Slot(7));
        let idle = Time(0).plus_ms(IDLE_TIMEOUT_MS);
        assert!(holding.extend_hold(Time(1), hold.id));
        holding.end_if_over(idle, false);
        assert!(holding.is_holding(), "it asked meanwhile");
        holding.end_if_over(Time(1).plus_ms(IDLE_TIMEOUT_MS), false);
        assert!(!holding.is_holding() && !holding.extend_hold(idle, hold.id));
        // The disk is full.
        let other = holding.begin_hold(Time(0), Slot(9));
        assert!(!holding.extend_hold(Time(0), hold.id), "it is another one");
        assert!(holding.extend_hold(Time(0), other.id));
        holding.end_if_over(Time(0), true);
        assert!(!holding.is_holding());
    }
}
