//! Scrubs: all data of this node is read in small portions at a limited rate, and damage is
//! repaired where possible. The rules are in `docs/spec/scrub.md`.
//!
//! This module determines the next step and collects the findings (`report`). Reading and repair
//! are done by the owners of the data: the log and its repair, the store of streams, the snapshots,
//! and the service. `replica/scrub.rs` connects them.

pub(crate) mod files;
pub use crate::ports::scrub_report as report;

use std::collections::{BTreeSet, VecDeque};

use quorate_core::{slot::SlotRange, time::Time, value::StreamName};
use quorate_log::disk::DiskError;

use self::{
    files::{Files, Keeper},
    report::{DamagedPlace, Fate, Kind, Needs, ScrubStatus},
};
use crate::snapshots::allowance::Allowance;

/// Default rate of a scrub in bytes per second.
pub const BYTES_PER_SECOND: u64 = 32 << 20;
/// Minimum rate in bytes per second.
pub const BYTES_PER_SECOND_MIN: u64 = 64 << 10;
/// Number of bytes per read from the store of streams.
pub(crate) const PIECE_BYTES: usize = 256 << 10;
/// Maximum number of damaged places that one process reports.
const REPORTED_MAX: usize = 4096;
/// Delay in milliseconds before a retry if a read lacked file descriptors or space in a queue.
const SHORT_MS: u64 = 100;
/// Maximum number of attempts to read doubtful slots. The log counts data as lost after three
/// failures.
const TRIES_MAX: u32 = 4;

/// Schedule and rate of a node's own scrubs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubOptions {
    /// Interval in milliseconds from the end of one scrub to the start of the next; `None` if
    /// scrubs start only on request.
    pub every_ms: Option<u64>,
    /// Maximum number of bytes read per second.
    pub bytes_per_second: u64,
}

impl Default for ScrubOptions {
    fn default() -> Self {
        Self { every_ms: None, bytes_per_second: BYTES_PER_SECOND }
    }
}

/// Start of the interval before the next scrub, as Unix time in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IntervalStart {
    pub(crate) ms: u64,
    /// `true` if a scrub ended at that time; `false` if the node then began to wait for its first.
    pub(crate) after_scrub: bool,
}

/// Returns whether the due time is implausibly far away, since a clock must have been wrong.
const fn is_absurd(due_ms: u64, wall_ms: u64, every_ms: u64) -> bool {
    due_ms > wall_ms.saturating_add(every_ms)
}

/// Next step of a scrub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScrubStep {
    /// Start with this kind of data.
    Begin(Kind),
    /// Read the next portion of this kind.
    Read(Kind),
}

/// A scrub in progress.
#[derive(Debug)]
struct Run {
    kind: Kind,
    has_begun: bool,
    allowance: Allowance,
    not_before: Time,
    doubtful: VecDeque<Doubt>,
    /// Doubtful slots that are currently being read.
    pending_doubt: Option<Doubt>,
}

/// Doubtful slots of the log, read together because some of them may be destroyed.
#[derive(Clone, Copy, Debug)]
struct Doubt {
    slots: SlotRange,
    /// Index of the damage in the list of findings, if it is listed.
    finding: Option<usize>,
    attempts: u32,
}

/// Schedule, progress and findings of scrubs.
#[derive(Debug)]
pub(crate) struct Scrubbing {
    options: ScrubOptions,
    run: Option<Run>,
    report: ScrubStatus,
    /// [scrub-4] Damaged places that were reported.
    reported: BTreeSet<(Kind, String)>,
    /// Time at which the next scrub is due, as Unix time in milliseconds.
    due_ms: Option<u64>,
    /// Next position to read in the store of streams; `None` at its start.
    pub(crate) streams_at: Option<(StreamName, u64)>,
    /// End of the part of the snapshot's stream that was read.
    pub(crate) snapshot_to: u64,
    /// Progress through the small files.
    pub(crate) files: Files,
    /// The node has an identity; nodes in tests may lack one.
    pub(crate) has_identity: bool,
    /// Damaged file that only the node can rewrite, until it is reported to the node.
    pub(crate) unmended: Option<Keeper>,
    /// Damaged files of the service were found, and its remaining files are still unread.
    pub(crate) store_damaged: bool,
    /// A small file that has been read from disk but not taken yet.
    pub(crate) recalled: Option<SmallFile>,
}

/// Name of a small file, and the result of reading it.
type SmallFile = (&'static str, Result<Option<Vec<u8>>, DiskError>);

impl Scrubbing {
    /// Creates the state, with the start of the current interval as an earlier process recorded it.
    pub(crate) fn new(options: ScrubOptions, since: Option<IntervalStart>) -> Self {
        Self {
            options,
            run: None,
            recalled: None,
            report: ScrubStatus {
                ended_ms: since.filter(|since| since.after_scrub).map(|since| since.ms),
                every_ms: options.every_ms,
                ..ScrubStatus::default()
            },
            reported: BTreeSet::new(),
            due_ms: match (options.every_ms, since) {
                (Some(every), Some(since)) => Some(since.ms.saturating_add(every)),
                _ => None,
            },
            streams_at: None,
            snapshot_to: 0,
            files: Files::default(),
            has_identity: false,
            unmended: None,
            store_damaged: false,
        }
    }

    /// Returns whether there is nothing to do now. Called in every turn, so it must be cheap.
    pub(crate) fn rests(&self, wall_ms: u64) -> bool {
        let waits = match (self.options.every_ms, self.due_ms) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(every), Some(due)) => wall_ms < due && !is_absurd(due, wall_ms, every),
        };
        self.run.is_none() && waits
    }

    /// Starts a scrub, or continues one, at this rate or else at the configured one.
    pub(crate) fn start_scrub(&mut self, now: Time, wall_ms: u64, bytes_per_second: Option<u64>) {
        let pace = bytes_per_second.unwrap_or(self.options.bytes_per_second);
        let pace = pace.max(BYTES_PER_SECOND_MIN);
        let allowance = Allowance::new(now, Some(pace));
        self.report.bytes_per_second = pace;
        if let Some(run) = &mut self.run {
            run.allowance = allowance;
            return;
        }
        self.run = Some(Run {
            kind: Kind::ALL[0],
            has_begun: false,
            allowance,
            not_before: now,
            doubtful: VecDeque::new(),
            pending_doubt: None,
        });
        self.report.begin_scrub(wall_ms);
    }

    /// Starts the next scrub if it is due. Returns whether the first interval starts now because
    /// the node has never scrubbed; the caller then records the start.
    pub(crate) fn start_if_due(&mut self, now: Time, wall_ms: u64) -> bool {
        let Some(every) = self.options.every_ms else {
            return false;
        };
        match self.due_ms {
            None => {
                self.due_ms = Some(wall_ms.saturating_add(every));
                return true;
            }
            // A clock that was set back must not delay the scrub for years.
            Some(due) if is_absurd(due, wall_ms, every) => {
                self.due_ms = Some(wall_ms.saturating_add(every));
            }
            Some(due) if wall_ms >= due && self.run.is_none() => {
                self.start_scrub(now, wall_ms, None)
            }
            Some(_) => {}
        }
        false
    }

    pub(crate) fn goes_on(&self) -> bool {
        self.run.is_some()
    }

    /// Returns the next step that may be taken now, if any.
    pub(crate) fn next_step(&mut self, now: Time) -> Option<ScrubStep> {
        let run = self.run.as_mut()?;
        if now < run.not_before || !run.allowance.may_transfer(now) {
            return None;
        }
        Some(match run.has_begun {
            false => ScrubStep::Begin(run.kind),
            true => ScrubStep::Read(run.kind),
        })
    }

    /// Returns the time of the next step if only the rate limit or a pause delays it.
    pub(crate) fn wake_at(&self, now: Time) -> Option<Time> {
        let run = self.run.as_ref()?;
        let at = run.allowance.wake_at().unwrap_or(now).max(run.not_before);
        (at > now).then_some(at)
    }

    pub(crate) fn begun(&mut self) {
        if let Some(run) = &mut self.run {
            run.has_begun = true;
        }
    }

    /// Pauses the scrub briefly, because reads are impossible at the moment.
    pub(crate) fn pause_briefly(&mut self, now: Time) {
        if let Some(run) = &mut self.run {
            run.not_before = now.plus_ms(SHORT_MS);
        }
    }

    /// Counts bytes of kind `kind` that were read, towards the rate.
    pub(crate) fn read(&mut self, kind: Kind, bytes: u64) {
        self.report.add(kind, bytes);
        if let Some(run) = &mut self.run {
            run.allowance.spend_bytes(usize::try_from(bytes).unwrap_or(usize::MAX));
        }
    }

    /// Counts bytes read by a component that enforces its own rate limit.
    pub(crate) fn count_unpaced(&mut self, kind: Kind, bytes: u64) {
        self.report.add(kind, bytes);
    }

    /// Ends a kind of data that has been read completely. Returns whether it was the last kind.
    pub(crate) fn end_kind(&mut self, wall_ms: u64) -> bool {
        let Some(run) = &mut self.run else {
            return false;
        };
        match run.kind.next() {
            Some(next) => {
                (run.kind, run.has_begun) = (next, false);
                self.report.now = Some(next);
                false
            }
            None => {
                self.run = None;
                self.report.end_scrub(wall_ms);
                self.due_ms = self.options.every_ms.map(|every| wall_ms.saturating_add(every));
                true
            }
        }
    }

    /// Records damage. Returns its index in the list of findings, and whether it has not been
    /// reported before ([scrub-4]).
    pub(crate) fn record_damage(&mut self, found: DamagedPlace) -> (Option<usize>, bool) {
        let key = (found.kind, found.what.clone());
        let news = self.reported.len() < REPORTED_MAX && self.reported.insert(key);
        (self.report.add_finding(found), news)
    }

    /// Queues slots of the log to be read, to determine which of them are lost.
    pub(crate) fn queue_doubtful_slots(&mut self, found: Option<usize>, slots: Vec<SlotRange>) {
        if let Some(run) = &mut self.run {
            let doubts =
                slots.into_iter().map(|slots| Doubt { slots, finding: found, attempts: 0 });
            run.doubtful.extend(doubts);
        }
    }

    /// Returns the first queued slots, unless other slots are being read.
    pub(crate) fn doubtful(&self) -> Option<SlotRange> {
        let run = self.run.as_ref().filter(|run| run.pending_doubt.is_none())?;
        run.doubtful.front().map(|doubt| doubt.slots)
    }

    /// Marks the first queued slots as being read.
    pub(crate) fn mark_being_read(&mut self) {
        if let Some(run) = &mut self.run {
            run.pending_doubt = run.doubtful.pop_front();
        }
    }

    /// Records the lost slots, or that the read `failed` and proves nothing.
    pub(crate) fn answered(&mut self, lost: &[SlotRange], failed: bool) {
        let Some(run) = &mut self.run else { return };
        let Some(mut doubt) = run.pending_doubt.take() else {
            return;
        };
        doubt.attempts += 1;
        if failed && lost.is_empty() && doubt.attempts < TRIES_MAX {
            run.doubtful.push_back(doubt);
        } else if let Some(found) = doubt.finding {
            self.report.add_lost_slots(found, lost);
        }
    }

    /// Returns whether doubtful slots are queued or being read.
    pub(crate) fn doubts(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.pending_doubt.is_some() || !run.doubtful.is_empty())
    }

    /// Updates what the repair of a finding needs.
    pub(crate) fn update_needs(&mut self, found: Option<usize>, needs: Needs) {
        if let Some(found) = found {
            self.report.set_needs(found, needs);
        }
    }

    /// Returns the status. `fate` determines the state of each finding.
    pub(crate) fn status(&self, mut fate: impl FnMut(&Needs) -> Fate) -> ScrubStatus {
        let mut status = self.report.clone();
        for found in &mut status.found {
            found.fate = fate(&found.needs);
        }
        status
    }

    pub(crate) fn report(&self) -> &ScrubStatus {
        &self.report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A due time from a clock that was years ahead does not delay scrubs for long.
    #[test]
    fn wrong_clock_does_not_delay_scrubs_for_years() {
        let options = ScrubOptions { every_ms: Some(1_000), ..ScrubOptions::default() };
        let since = IntervalStart { ms: 1 << 50, after_scrub: true };
        let mut scrubbing = Scrubbing::new(options, Some(since));
        assert!(!scrubbing.rests(5_000));
        assert!(!scrubbing.start_if_due(Time(0), 5_000), "it has begun to count before");
        assert!(scrubbing.rests(5_999));
        assert!(!scrubbing.rests(6_000) && !scrubbing.start_if_due(Time(0), 6_000));
        assert!(scrubbing.next_step(Time(1_000)).is_some(), "it has begun");
    }
}
