//! Recovers a node's state from its log after a restart ([model-2]).

use std::collections::{BTreeMap, VecDeque};

use crate::disk::{Disk, Family};
use quorate_core::{
    ballot::Ballot,
    message::Extent,
    node_id::Incarnation,
    record::{Class, HardState, Record},
    slot::{Slot, SlotRange},
    value::Value,
};

use crate::{
    base::{Anchor, Base, BaseFile},
    error::LogError,
    holdings::{Holdings, SegmentContents},
    index::{Index, Runs, Span, clipped_to_start},
    log_write::Header,
    mutant::{Mutant, planted},
    options::{LogOptions, WRITES_IN_FLIGHT_MAX},
    place::{Segment, SegmentFile},
    range_map::RangeMap,
    record::{Records, StoredRecord},
    told::{ProgressSource, ReadProgress},
    walk::{Gap, LogVisitor, WalkResult, walk},
};

/// Damage in the middle of the log ([disk-8]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// Decided slots that are no longer in the log and must be fetched again. They are still below
    /// `hard_state.decided_to`, so this node must report their votes as forgotten ([p1-5]); a
    /// promise that omits them would be false.
    pub lost_slots: Vec<SlotRange>,
    /// Set if votes or promises were lost. The node must not vote again under its old incarnation
    /// ([volatile-1]). False if the incarnation in the options is already a newer one.
    pub votes_lost: bool,
    /// Description of each damaged place, for operators.
    pub descriptions: Vec<String>,
}

/// State recovered from a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    pub base: Base,
    /// Hard state restated by the last log write, with `decided_to` advanced to the start of the
    /// log and past slots with decided records. Both positions are at least [`Slot::FIRST`].
    pub hard_state: HardState,
    /// Votes for slots starting at `hard_state.decided_to`, in slot order. Each slot has only its
    /// last vote, the one with the highest ballot.
    pub votes: Vec<Extent>,
    /// Reconfigurations from the start of the log up to `hard_state.decided_to`, in order.
    pub reconfigurations: Vec<(Slot, Value)>,
    /// Places passed to [`crate::Log::append_placed`] for slots at or above the start of the log,
    /// in record order. A later entry may cover the same slots as an earlier one.
    pub placed_values: Vec<(SlotRange, Value, Vec<u8>)>,
    /// Number of bytes after the end of the log that were written but never released. They are
    /// ignored.
    pub torn_tail_bytes: u64,
    /// Damage, if there is any. A torn tail is not damage.
    pub damage: Option<Damage>,
    pub record_count: u64,
    /// Number of the next log write, 1 in an empty log.
    pub next_seq: u64,
    /// Number of the last log write that is intact or was trimmed. Complete log writes after it may
    /// be missing.
    pub intact_to: u64,
    /// Incarnation in the last log write, or `None` if the log is empty.
    pub incarnation: Option<Incarnation>,
}

/// Recovered state, with the parts that only the log itself needs to continue.
pub(crate) struct Opened {
    pub(crate) recovery: Recovery,
    pub(crate) walk_result: WalkResult,
    pub(crate) index: Index,
    pub(crate) holdings: Holdings,
    pub(crate) highest_segment: Segment,
}

/// Reads the whole log and makes it durable, because a write in flight at a crash may have been
/// read from a cache, and everything that follows relies on it.
pub(crate) fn recover<D: Disk>(
    disk: &mut D,
    options: &LogOptions,
    tell: &mut dyn FnMut(ReadProgress),
) -> Result<Opened, LogError> {
    // File names and the base are relied on, too.
    if !planted(Mutant::NamesUnsynced) {
        disk.sync_file_names().map_err(LogError::Disk)?;
    }
    let owner = options.owner();
    let (base, _) = BaseFile::read(disk, Some(owner))?;
    let mut memory = RecoveredRecords::new(base.base.start);
    let first = base.anchor.segment;
    let mut told = ProgressSource::new(disk, first, tell);
    let walked = walk(&mut told, Some(owner), &base, &mut memory)?;
    let made = disk.newest_created(Family::Log).map_err(LogError::Disk)?;
    let made = made.map(|file| Segment(file.number));
    if !planted(Mutant::RecoveryUnsynced) {
        for segment in memory.last_segments() {
            disk.sync_now(segment.into()).map_err(LogError::Disk)?;
        }
    }
    let last = walked.files.last().or(walked.trimmed_segments.last());
    let last = last.map(|file| file.segment);
    let lost = describe_lost_segments(last, made, options.has_run_before);
    let highest = last.max(made).unwrap_or_default();
    memory.finish();
    let holdings = memory.holdings(base.anchor, &walked);
    let (mut recovery, index) = memory.into_recovery(&walked, base.base, options.incarnation);
    let whole = recovery.damage.is_none();
    let lost = lost
        .or_else(|| describe_lost_end(&recovery, &index, options.store_has_to).filter(|_| whole));
    if let Some(place) = lost {
        let damage = recovery.damage.get_or_insert_default();
        damage.votes_lost = true;
        damage.descriptions.push(place);
    }
    if let Some(damage) = recovery.damage.as_mut().filter(|_| options.is_loss_known) {
        damage.votes_lost = false;
    }
    let forgotten = recovery.damage.as_ref().is_some_and(|d| d.votes_lost);
    if !forgotten && made != Some(highest) {
        // The folder is from an earlier version, or its losses are already accounted for.
        disk.record_created(highest.into()).map_err(LogError::Disk)?;
    }
    Ok(Opened { recovery, walk_result: walked, index, holdings, highest_segment: highest })
}

/// [volatile-1] Describes segments missing at the end of the log, which its records alone cannot
/// reveal. `made` is the newest segment ever created, `last` the last one found.
fn describe_lost_segments(
    last: Option<Segment>,
    made: Option<Segment>,
    used: bool,
) -> Option<String> {
    match (last, made) {
        (None, None) if used => Some("the folder of segments is empty".to_owned()),
        (last, Some(made)) if Some(made) > last && made > Segment(0) => {
            let first = last.map_or(1, |last| last.0 + 1);
            Some(format!("segments {first} to {made} are gone"))
        }
        _ => None,
    }
}

/// [volatile-1] Describes a lost end of the log: the store next to the log has slots that the log
/// does not know.
fn describe_lost_end(recovery: &Recovery, index: &Index, stored_to: Slot) -> Option<String> {
    let from = recovery.hard_state.decided_to;
    let unknown = index.unindexed(SlotRange::new(from, stored_to.max(from)));
    let first = unknown.first()?.from;
    Some(format!("the store has all slots below {stored_to}, and the log ends before slot {first}"))
}

/// State accumulated by a walk over the records.
#[derive(Default)]
pub(crate) struct RecoveredRecords {
    /// First slot of the log ([snap-3]).
    start: Slot,
    index: Index,
    segment_contents: BTreeMap<Segment, SegmentContents>,
    votes: RangeMap<(Ballot, Value)>,
    decided: RangeMap<()>,
    reconfigurations: BTreeMap<Slot, Value>,
    placed_values: Vec<(SlotRange, Value, Vec<u8>)>,
    records: u64,
    last_header: Option<Header>,
    /// Segments of the latest log writes, including all that were in flight at a crash.
    recent_segments: VecDeque<Segment>,
    pub(crate) gaps: Vec<JudgedGap>,
    open_gap: Option<Gap>,
}

/// A gap, with the facts that the headers around it establish.
pub(crate) struct JudgedGap {
    pub(crate) gap: Gap,
    pub(crate) slots: SlotRange,
    /// Upper bound (exclusive) of the slots voted for in the gap, or `None` if no header gives one.
    voted_below: Option<Slot>,
    /// Incarnation that may have forgotten votes.
    incarnation: Incarnation,
}

impl LogVisitor for RecoveredRecords {
    fn log_write(&mut self, header: &Header, blocks: &[u8]) -> Result<(), LogError> {
        if let Some(gap) = self.open_gap.take() {
            self.close_gap(gap, Some(header));
        }
        let damaged = |reason: &str| LogError::Damaged {
            place: header.place,
            reason: format!("batch {}: {reason}", header.seq),
        };
        let mut runs = Runs::default();
        let mut count = 0;
        for stored in Records::new(header.body_of(blocks)) {
            let stored = stored.map_err(|malformed| damaged(malformed.0))?;
            count += 1;
            self.record(&stored, &mut runs);
        }
        if count != header.record_count {
            return Err(damaged("not as many records as its header says"));
        }
        let span = Span { place: header.place, bytes: u64::from(header.length_bytes) };
        for range in runs.iter() {
            self.index.insert(range, span);
        }
        let first = Anchor {
            segment: header.place.segment,
            seq: header.seq,
            previous_checksum: header.previous_checksum,
        };
        let held = self.segment_contents.entry(header.place.segment).or_default();
        held.record_begun((header.place.offset == 0).then_some(first), runs.slots_end());
        held.record_complete(header.place.offset + u64::from(header.length_bytes));
        self.records += u64::from(count);
        let decided = SlotRange::new(Slot(0), header.hard_state.decided_to);
        self.votes.remove(decided);
        self.decided.remove(decided);
        self.last_header = Some(*header);
        self.recent_segments.push_back(header.place.segment);
        if self.recent_segments.len() > WRITES_IN_FLIGHT_MAX {
            self.recent_segments.pop_front();
        }
        Ok(())
    }

    fn damage(&mut self, gap: &Gap) {
        if let Some(earlier) = self.open_gap.replace(gap.clone()) {
            self.close_gap(earlier, None);
        }
    }
}

impl RecoveredRecords {
    pub(crate) fn new(start: Slot) -> Self {
        Self { start, index: Index::new(start), ..Self::default() }
    }

    /// Returns the contents of all segments that were written to.
    fn holdings(&self, anchor: Anchor, walked: &WalkResult) -> Holdings {
        let used = |file: &&SegmentFile| !walked.spares.contains(file);
        let files = walked.files.iter().filter(used).copied();
        let complete = self.last_header.map(|header| header.place.segment);
        Holdings::new(anchor, files, &self.segment_contents, complete)
    }

    fn record(&mut self, stored: &StoredRecord<'_>, runs: &mut Runs) {
        let Some((range, value)) = stored.slots() else {
            return;
        };
        runs.push(range);
        let range = clipped_to_start(range, self.start);
        if range.is_empty() {
            return;
        }
        while let Some((&slot, _)) = self.reconfigurations.range(range.from..range.to).next() {
            self.reconfigurations.remove(&slot);
        }
        if matches!(value, Value::Reconfigure { .. }) {
            self.reconfigurations.insert(range.from, value);
        }
        if stored.is_placed {
            self.placed_values.push((range, value, stored.bytes.to_vec()));
        }
        match stored.record {
            Record::Vote { ballot, .. } => self.votes.insert(range, (ballot, value)),
            Record::Decided { .. } => self.decided.insert(range, ()),
            Record::Round { .. } | Record::Promise { .. } => {}
        }
    }

    /// Processes a gap. Its records cannot concern slots that were decided before it, so everything
    /// below is intact. For slots voted for later, the latest record may be lost, and an earlier
    /// one must not be taken for it.
    fn close_gap(&mut self, gap: Gap, after: Option<&Header>) {
        let own = gap.header.filter(|_| gap.seqs.end - gap.seqs.start <= 1);
        let before = self
            .last_header
            .map_or(Slot::FIRST, |header| header.hard_state.decided_to)
            .max(self.start);
        let bound = own.as_ref().or(after);
        // No slot was voted for above the bound in a later header, so nothing older can reappear
        // there.
        let to = bound.map_or(Slot(u64::MAX), |header| {
            header.hard_state.decided_to.max(header.hard_state.voted_to)
        });
        let lost = SlotRange::new(before, to.max(before));
        self.index.remove(lost);
        // [catch-1] A vote whose latest record is lost counts as unknown, too, because its bytes
        // would be missing.
        self.votes.remove(lost);
        self.decided.remove(lost);
        while let Some((&slot, _)) = self.reconfigurations.range(before..to.max(before)).next() {
            self.reconfigurations.remove(&slot);
        }
        let incarnation = after.or(own.as_ref()).or(self.last_header.as_ref());
        let known = bound
            .or(self.last_header.as_ref())
            .map_or(before, |header| header.hard_state.decided_to.max(header.hard_state.voted_to));
        let slots = SlotRange::new(before, known.max(before));
        // The affected slots remain recorded as long as the damage is visible.
        let held = self.segment_contents.entry(gap.place.segment).or_default();
        held.record_begun(None, slots.to);
        self.gaps.push(JudgedGap {
            slots,
            // Without a later header, nothing restates the promise.
            voted_below: after.and(bound).map(|header| header.hard_state.voted_to),
            incarnation: incarnation.map_or(Incarnation(0), |header| header.incarnation),
            gap,
        });
    }

    fn last_segments(&self) -> Vec<Segment> {
        let mut segments: Vec<_> = self.recent_segments.iter().copied().collect();
        segments.dedup();
        segments
    }

    pub(crate) fn finish(&mut self) {
        if let Some(gap) = self.open_gap.take() {
            self.close_gap(gap, None);
        }
    }

    pub(crate) fn records(&self) -> u64 {
        self.records
    }

    pub(crate) fn last_header(&self) -> Option<&Header> {
        self.last_header.as_ref()
    }

    /// Returns the slot below which everything is decided, given that a snapshot covers the slots
    /// below `start`.
    pub(crate) fn decided_to(&self, start: Slot) -> Slot {
        let restated =
            self.last_header.as_ref().map_or(Slot::FIRST, |header| header.hard_state.decided_to);
        let mut to = restated.max(start);
        while let Some((run, ())) = self.decided.find(to) {
            to = run.to;
        }
        to
    }

    fn into_recovery(
        self,
        walked: &WalkResult,
        base: Base,
        incarnation: Incarnation,
    ) -> (Recovery, Index) {
        let mut hard = self.last_header.map_or_else(HardState::default, |header| header.hard_state);
        hard.decided_to = hard.decided_to.max(base.start);
        let damage = self.find_damage(hard.decided_to, incarnation);
        hard.decided_to = self.decided_to(base.start);
        hard.voted_to = hard.voted_to.max(Slot::FIRST);
        let mut votes = self.votes;
        votes.remove(SlotRange::new(Slot(0), hard.decided_to));
        let extent = |(range, (ballot, value)): (SlotRange, &(Ballot, Value))| Extent {
            range,
            ballot: *ballot,
            value: *value,
            class: Class::Durable,
        };
        let recovery = Recovery {
            base,
            votes: votes.iter().map(extent).collect(),
            reconfigurations: self
                .reconfigurations
                .range(..hard.decided_to)
                .map(|(slot, value)| (*slot, *value))
                .collect(),
            placed_values: self.placed_values,
            hard_state: hard,
            torn_tail_bytes: walked.torn_tail_bytes,
            damage,
            record_count: self.records,
            next_seq: walked.next_seq,
            intact_to: walked.intact_to,
            incarnation: self.last_header.map(|header| header.incarnation),
        };
        (recovery, self.index)
    }

    /// [disk-8] Returns the damage, or `None` if there are no gaps. A gap forgets votes only if it
    /// may contain votes for slots that are still undecided. Every later header restates the
    /// promises.
    fn find_damage(&self, decided_to: Slot, incarnation: Incarnation) -> Option<Damage> {
        if self.gaps.is_empty() {
            return None;
        }
        let forgotten = |judged: &JudgedGap| {
            let covered = judged.voted_below.is_some_and(|voted_to| decided_to >= voted_to);
            !covered && incarnation <= judged.incarnation
        };
        let describe = |judged: &JudgedGap| {
            let Gap { place, seqs, reason, .. } = &judged.gap;
            format!("{place}: batches {}..{} are gone: {reason}", seqs.start, seqs.end)
        };
        let start = match planted(Mutant::GapsFromFirst) {
            true => Slot::FIRST,
            false => self.start,
        };
        Some(Damage {
            lost_slots: self.index.unindexed(SlotRange::new(start, decided_to)),
            votes_lost: self.gaps.iter().any(forgotten),
            descriptions: self.gaps.iter().map(describe).collect(),
        })
    }
}
