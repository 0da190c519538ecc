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
    files::{FileOwner, SmallFileScrub},
    report::{DamagedPlace, Fate, Kind, RepairNeeds, ScrubStatus},
};
use crate::snapshots::allowance::TransferRateLimit;

/// Default rate of a scrub in bytes per second.
pub const BYTES_PER_SECOND: u64 = 32 << 20;
/// Minimum rate in bytes per second.
pub const BYTES_PER_SECOND_MIN: u64 = 64 << 10;
/// Number of bytes per read from the store of streams.
pub(crate) const PIECE_BYTES: usize = 256 << 10;
/// Maximum number of damaged places that one process reports.
const REPORTED_MAX: usize = 4096;
/// Delay in milliseconds before a retry if a read lacked file descriptors or space in a queue.
const RETRY_DELAY_MS: u64 = 100;
/// Maximum number of attempts to read doubtful slots. The log counts data as lost after three
/// failures.
const ATTEMPTS_MAX: u32 = 4;

/// Schedule and rate of a node's own scrubs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubOptions {
    /// Interval in milliseconds from the end of one scrub to the start of the next; `None` if
    /// scrubs start only on request.
    pub interval_ms: Option<u64>,
    /// Maximum number of bytes read per second.
    pub bytes_per_second: u64,
}

impl Default for ScrubOptions {
    fn default() -> Self {
        Self { interval_ms: None, bytes_per_second: BYTES_PER_SECOND }
    }
}

/// Start of the interval before the next scrub, as Unix time in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IntervalStart {
    pub(crate) unix_ms: u64,
    /// `true` if a scrub ended at that time; `false` if the node then began to wait for its first.
    pub(crate) after_scrub: bool,
}

/// Returns whether the due time is implausibly far away, since a clock must have been wrong.
const fn is_implausible(due_ms: u64, wall_ms: u64, every_ms: u64) -> bool {
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
struct ScrubRun {
    kind: Kind,
    has_begun: bool,
    allowance: TransferRateLimit,
    paused_until: Time,
    queued_doubts: VecDeque<DoubtfulSlots>,
    /// Doubtful slots that are currently being read.
    pending_doubt: Option<DoubtfulSlots>,
}

/// Doubtful slots of the log, read together because some of them may be destroyed.
#[derive(Clone, Copy, Debug)]
struct DoubtfulSlots {
    slots: SlotRange,
    /// Index of the damage in the list of findings, if it is listed.
    finding: Option<usize>,
    attempts: u32,
}

/// Schedule, progress and findings of scrubs.
#[derive(Debug)]
pub(crate) struct Scrubbing {
    options: ScrubOptions,
    run: Option<ScrubRun>,
    report: ScrubStatus,
    /// [scrub-4] Damaged places that were reported.
    reported_places: BTreeSet<(Kind, String)>,
    /// Time at which the next scrub is due, as Unix time in milliseconds.
    due_unix_ms: Option<u64>,
    /// Next position to read in the store of streams; `None` at its start.
    pub(crate) next_stream_position: Option<(StreamName, u64)>,
    /// End of the part of the snapshot's stream that was read.
    pub(crate) snapshot_read_to: u64,
    /// Progress through the small files.
    pub(crate) small_files: SmallFileScrub,
    /// The node has an identity; nodes in tests may lack one.
    pub(crate) has_identity: bool,
    /// Damaged file that only the node can rewrite, until it is reported to the node.
    pub(crate) file_for_node: Option<FileOwner>,
    /// Damaged files of the service were found, and its remaining files are still unread.
    pub(crate) store_damaged: bool,
    /// A small file that has been read from disk but not taken yet.
    pub(crate) read_back_file: Option<ReadBackFile>,
}

/// Name of a small file, and the result of reading it.
type ReadBackFile = (&'static str, Result<Option<Vec<u8>>, DiskError>);

impl Scrubbing {
    /// Creates the state, with the start of the current interval as an earlier process recorded it.
    pub(crate) fn new(options: ScrubOptions, since: Option<IntervalStart>) -> Self {
        Self {
            options,
            run: None,
            read_back_file: None,
            report: ScrubStatus {
                ended_ms: since.filter(|since| since.after_scrub).map(|since| since.unix_ms),
                interval_ms: options.interval_ms,
                ..ScrubStatus::default()
            },
            reported_places: BTreeSet::new(),
            due_unix_ms: match (options.interval_ms, since) {
                (Some(every), Some(since)) => Some(since.unix_ms.saturating_add(every)),
                _ => None,
            },
            next_stream_position: None,
            snapshot_read_to: 0,
            small_files: SmallFileScrub::default(),
            has_identity: false,
            file_for_node: None,
            store_damaged: false,
        }
    }

    /// Returns whether there is nothing to do now. Called in every turn, so it must be cheap.
    pub(crate) fn is_idle(&self, wall_ms: u64) -> bool {
        let waits = match (self.options.interval_ms, self.due_unix_ms) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(every), Some(due)) => wall_ms < due && !is_implausible(due, wall_ms, every),
        };
        self.run.is_none() && waits
    }

    /// Starts a scrub, or continues one, at this rate or else at the configured one.
    pub(crate) fn start_scrub(&mut self, now: Time, wall_ms: u64, bytes_per_second: Option<u64>) {
        let pace = bytes_per_second.unwrap_or(self.options.bytes_per_second);
        let pace = pace.max(BYTES_PER_SECOND_MIN);
        let allowance = TransferRateLimit::new(now, Some(pace));
        self.report.bytes_per_second = pace;
        if let Some(run) = &mut self.run {
            run.allowance = allowance;
            return;
        }
        self.run = Some(ScrubRun {
            kind: Kind::ALL[0],
            has_begun: false,
            allowance,
            paused_until: now,
            queued_doubts: VecDeque::new(),
            pending_doubt: None,
        });
        self.report.begin_scrub(wall_ms);
    }

    /// Starts the next scrub if it is due. Returns whether the first interval starts now because
    /// the node has never scrubbed; the caller then records the start.
    pub(crate) fn start_if_due(&mut self, now: Time, wall_ms: u64) -> bool {
        let Some(every) = self.options.interval_ms else {
            return false;
        };
        match self.due_unix_ms {
            None => {
                self.due_unix_ms = Some(wall_ms.saturating_add(every));
                return true;
            }
            // A clock that was set back must not delay the scrub for years.
            Some(due) if is_implausible(due, wall_ms, every) => {
                self.due_unix_ms = Some(wall_ms.saturating_add(every));
            }
            Some(due) if wall_ms >= due && self.run.is_none() => {
                self.start_scrub(now, wall_ms, None)
            }
            Some(_) => {}
        }
        false
    }

    pub(crate) fn is_running(&self) -> bool {
        self.run.is_some()
    }

    /// Returns the next step that may be taken now, if any.
    pub(crate) fn next_step(&mut self, now: Time) -> Option<ScrubStep> {
        let run = self.run.as_mut()?;
        if now < run.paused_until || !run.allowance.can_transfer(now) {
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
        let at = run.allowance.wake_at().unwrap_or(now).max(run.paused_until);
        (at > now).then_some(at)
    }

    pub(crate) fn mark_begun(&mut self) {
        if let Some(run) = &mut self.run {
            run.has_begun = true;
        }
    }

    /// Pauses the scrub briefly, because reads are impossible at the moment.
    pub(crate) fn pause_briefly(&mut self, now: Time) {
        if let Some(run) = &mut self.run {
            run.paused_until = now.plus_ms(RETRY_DELAY_MS);
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
                self.due_unix_ms =
                    self.options.interval_ms.map(|every| wall_ms.saturating_add(every));
                true
            }
        }
    }

    /// Records damage. Returns its index in the list of findings, and whether it has not been
    /// reported before ([scrub-4]).
    pub(crate) fn record_damage(&mut self, found: DamagedPlace) -> (Option<usize>, bool) {
        let key = (found.kind, found.description.clone());
        let news = self.reported_places.len() < REPORTED_MAX && self.reported_places.insert(key);
        (self.report.add_finding(found), news)
    }

    /// Queues slots of the log to be read, to determine which of them are lost.
    pub(crate) fn queue_doubtful_slots(&mut self, found: Option<usize>, slots: Vec<SlotRange>) {
        if let Some(run) = &mut self.run {
            let doubts =
                slots.into_iter().map(|slots| DoubtfulSlots { slots, finding: found, attempts: 0 });
            run.queued_doubts.extend(doubts);
        }
    }

    /// Returns the first queued slots, unless other slots are being read.
    pub(crate) fn next_doubtful(&self) -> Option<SlotRange> {
        let run = self.run.as_ref().filter(|run| run.pending_doubt.is_none())?;
        run.queued_doubts.front().map(|doubt| doubt.slots)
    }

    /// Marks the first queued slots as being read.
    pub(crate) fn mark_being_read(&mut self) {
        if let Some(run) = &mut self.run {
            run.pending_doubt = run.queued_doubts.pop_front();
        }
    }

    /// Records the lost slots, or that the read `failed` and proves nothing.
    pub(crate) fn record_lost_slots(&mut self, lost: &[SlotRange], failed: bool) {
        let Some(run) = &mut self.run else { return };
        let Some(mut doubt) = run.pending_doubt.take() else {
            return;
        };
        doubt.attempts += 1;
        if failed && lost.is_empty() && doubt.attempts < ATTEMPTS_MAX {
            run.queued_doubts.push_back(doubt);
        } else if let Some(found) = doubt.finding {
            self.report.add_lost_slots(found, lost);
        }
    }

    /// Returns whether doubtful slots are queued or being read.
    pub(crate) fn has_doubts(&self) -> bool {
        self.run
            .as_ref()
            .is_some_and(|run| run.pending_doubt.is_some() || !run.queued_doubts.is_empty())
    }

    /// Updates what the repair of a finding needs.
    pub(crate) fn update_needs(&mut self, found: Option<usize>, needs: RepairNeeds) {
        if let Some(found) = found {
            self.report.set_needs(found, needs);
        }
    }

    /// Returns the status. `fate` determines the state of each finding.
    pub(crate) fn status(&self, mut fate: impl FnMut(&RepairNeeds) -> Fate) -> ScrubStatus {
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
        let options = ScrubOptions { interval_ms: Some(1_000), ..ScrubOptions::default() };
        let since = IntervalStart { unix_ms: 1 << 50, after_scrub: true };
        let mut scrubbing = Scrubbing::new(options, Some(since));
        assert!(!scrubbing.is_idle(5_000));
        assert!(!scrubbing.start_if_due(Time(0), 5_000), "it has begun to count before");
        assert!(scrubbing.is_idle(5_999));
        assert!(!scrubbing.is_idle(6_000) && !scrubbing.start_if_due(Time(0), 6_000));
        assert!(scrubbing.next_step(Time(1_000)).is_some(), "it has begun");
    }
}
