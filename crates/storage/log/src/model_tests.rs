//! Random runs of a log on a disk that tears and loses writes in flight (`protocol.md` §18).
//!
//! A run appends records, submits, lets writes complete in any order, crashes and recovers, four
//! times. The recovered records must be a prefix of those appended in this history, and contain
//! everything that was ever released or recovered. In some runs the log is trimmed continuously and
//! continues in recycled segments. Then each rule is disabled in turn, and some run must fail.

use crate::disk::{EveryFate, MemoryDisk, Pending, PendingKind};
use quorate_core::{
    ballot::Ballot,
    node_id::{Incarnation, NodeId},
    record::{HardState, Record, RecordSeq},
    slot::{Slot, SlotRange},
    value::Value,
};

use crate::{
    Log, LogError, LogOptions, Recovery, ValueBytes,
    log_tests::{read_all, settle},
    mutant::{Mutant, with},
};

struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

struct Run {
    disk: MemoryDisk,
    dice: Dice,
    options: LogOptions,
    reference: ReferenceState,
    next_round: u32,
    trims: bool,
    /// Every outcome of a crash at each moment is tried.
    explores: bool,
    event_counts: EventCounts,
    /// Most runs have writes of all sizes. Some have writes of equal size, so that stale ones fit.
    sizes: u64,
}

/// Reference state of a log.
#[derive(Clone, Default)]
struct ReferenceState {
    /// Round of the vote in each slot, from the first slot on.
    history: Vec<u32>,
    /// Number of votes that must never be lost.
    durable_votes: usize,
    /// Highest start requested, and highest start reported as durable.
    requested_start: u64,
    durable: u64,
}

/// Counts of events in runs, to show that the test covers them.
#[derive(Clone, Copy, Debug, Default)]
struct EventCounts {
    rebased: u64,
    reused: u64,
    crashes: u64,
    /// Crashes with such an operation in flight.
    keeping: u64,
    reusing: u64,
}

/// Returns the length of a vote's value, which is encoded in its round.
fn length_of(round: u32) -> usize {
    [0, 0, 0, 5000, 9000][(round >> 28) as usize]
}

fn value_of(round: u32) -> Vec<u8> {
    vec![round as u8 | 1; length_of(round)]
}

impl ReferenceState {
    /// Checks that the recovered votes are a prefix of the history that includes every vote that
    /// must not be lost. Returns their number.
    fn check(&self, recovery: &Recovery) -> Result<usize, String> {
        if let Some(damage) = &recovery.damage {
            return Err(format!("false damage: {damage:?}"));
        }
        let start = recovery.base.start.0;
        let (durable, asked) = (self.durable.max(1), self.requested_start.max(1));
        if !(durable..=asked).contains(&start) {
            return Err(format!("starts at {start}, not {durable} to {asked}"));
        }
        let note = if start == 1 { Vec::new() } else { note(start) };
        if recovery.base.note != note && start != 1 {
            return Err(format!("another note: {:?}", recovery.base.note));
        }
        let found: Vec<_> = recovery.votes.iter().map(|vote| vote.ballot.round).collect();
        let below = start as usize - 1;
        let count = below + found.len();
        if count < self.durable_votes {
            return Err(format!("{count} of {} released records are there", self.durable_votes));
        }
        let appended = self.history.get(below..).unwrap_or_default();
        if found[..] != appended[..found.len().min(appended.len())] {
            return Err(format!("recovered {found:?}, appended {appended:?}"));
        }
        let hard = recovery.hard_state;
        let promised = match count {
            0 => 0,
            count => self.history[count - 1],
        };
        if hard.voted_to != Slot(count as u64 + 1) || hard.promised.round != promised {
            return Err(format!("hard state {hard:?} after {count} records"));
        }
        if hard.decided_to != recovery.base.start {
            return Err(format!("hard state {hard:?} from {start} on"));
        }
        Ok(count)
    }

    /// Checks that everything from the start on can be read, and nothing below.
    fn check_reads(&self, log: &mut Log<MemoryDisk>, count: usize) -> Result<(), String> {
        let start = log.start().0;
        let refused = log.start_read(1, SlotRange::new(Slot(start - 1), Slot(start)), 1);
        if refused != Err(LogError::BelowStart { start: Slot(start) }) {
            return Err(format!("slot {} can be read", start - 1));
        }
        let values = read_all(log, start, count as u64 + 9);
        let expected = self.history[start as usize - 1..count].iter();
        let expected = expected.map(|round| value_of(*round));
        if !expected.eq(values.into_iter().filter_map(|(_, _, body)| match body {
            ValueBytes::Bytes(bytes) => Some(bytes),
            ValueBytes::Places(_) => None,
        })) {
            return Err("other values are read than were written".to_owned());
        }
        Ok(())
    }
}

fn note(start: u64) -> Vec<u8> {
    format!("a snapshot of {start}").into_bytes()
}

impl Run {
    fn new(seed: u64, segment_bytes: u64) -> Self {
        let disk = MemoryDisk::new();
        disk.set_manual_completion(true);
        let options = LogOptions {
            segment_bytes,
            write_bytes_max: 8 << 10,
            writes_in_flight_max: 1 + (seed % 3) as usize,
            ..LogOptions::new(7, NodeId(1), Incarnation(0))
        };
        let dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        Self {
            disk,
            dice,
            options,
            reference: ReferenceState::default(),
            next_round: 1,
            trims: false,
            explores: false,
            event_counts: EventCounts::default(),
            sizes: [5, 5, 3][(seed / 3 % 3) as usize],
        }
    }

    fn life(&mut self) -> Result<(), String> {
        let opened =
            Log::open(self.disk.reopen_after_crash(), self.options).map_err(|e| e.to_string())?;
        let (mut log, recovery) = opened;
        let count = self.reference.check(&recovery)?;
        // From here on the node acts on the recovered state.
        self.reference.history.truncate(count);
        self.reference.durable_votes = count;
        self.reference.durable = recovery.base.start.0;
        self.reference.requested_start = recovery.base.start.0;
        let events = if self.trims { 120 } else { 50 };
        for _ in 0..self.dice.below(events) {
            self.event(&mut log, count)?;
            if self.explores {
                self.explore()?;
            }
        }
        Ok(())
    }

    fn event(&mut self, log: &mut Log<MemoryDisk>, base: usize) -> Result<(), String> {
        match self.dice.below(if self.trims { 12 } else { 7 }) {
            7 | 8 => {
                let kept = self.reference.durable_votes as u64;
                let start = (kept + 1).saturating_sub(self.dice.below(4)).max(1);
                if start > self.reference.requested_start.max(1) {
                    log.rebase(Slot(start), note(start));
                    self.reference.requested_start = start;
                }
            }
            0 | 1 => {
                for _ in 0..=self.dice.below(2) {
                    self.append(log, base);
                }
            }
            2..=4 => log.start_writes(),
            5 | 9 | 10 => {
                let pending = self.disk.pending();
                if !pending.is_empty() {
                    let choice = self.dice.below(pending.len() as u64);
                    let Pending { id, kind, .. } = pending[choice as usize];
                    self.disk.complete(id);
                    self.event_counts.reused += u64::from(kind == PendingKind::Reuse);
                }
            }
            _ => {
                let released = log.poll().map_err(|error| error.to_string())?;
                self.reference.durable_votes =
                    self.reference.durable_votes.max(base + released.0 as usize);
                if let Some(start) = log.take_rebased() {
                    self.reference.durable = start.0;
                    self.event_counts.rebased += 1;
                    assert_eq!(log.start(), start);
                }
            }
        }
        Ok(())
    }

    fn append(&mut self, log: &mut Log<MemoryDisk>, base: usize) {
        let length = self.dice.below(self.sizes) as u32;
        let round = self.next_round | length << 28;
        let ballot = Ballot { round, node: NodeId(1), ..Ballot::ZERO };
        self.reference.history.push(round);
        self.next_round += 1;
        let slot = Slot(self.reference.history.len() as u64);
        let record = Record::Vote { ballot, range: SlotRange::one(slot), value: Value::NoOp };
        let hard = HardState {
            promised: ballot,
            voted_to: slot.next(),
            decided_to: Slot::FIRST,
            ..HardState::default()
        };
        let seq = RecordSeq((self.reference.history.len() - base) as u64);
        log.append(seq, &record, &value_of(round), hard).unwrap();
    }

    /// Checks that no crash at this moment loses anything, and that a vote written afterwards
    /// survives the next one.
    fn explore(&mut self) -> Result<(), String> {
        let pending = self.disk.pending();
        let flies = |kind| u64::from(pending.iter().any(|pending| pending.kind == kind));
        self.event_counts.keeping += flies(PendingKind::ReplaceSmallFile);
        self.event_counts.reusing += flies(PendingKind::Reuse);
        let mut fates = EveryFate::default();
        loop {
            let disk = self.disk.copy();
            disk.crash_as(&mut fates);
            disk.set_manual_completion(false);
            self.event_counts.crashes += 1;
            self.go_on(&disk).map_err(|why| format!("{why}; fates {fates:?}"))?;
            if !fates.next_outcome() {
                return Ok(());
            }
        }
    }

    fn go_on(&self, disk: &MemoryDisk) -> Result<(), String> {
        let mut known = self.reference.clone();
        for life in 0..2 {
            let opened =
                Log::open(disk.reopen_after_crash(), self.options).map_err(|e| e.to_string())?;
            let (mut log, recovery) = opened;
            let count = known.check(&recovery)?;
            known.check_reads(&mut log, count)?;
            known.history.truncate(count);
            known.durable = recovery.base.start.0;
            known.requested_start = known.durable;
            let mut other = Self {
                disk: disk.clone(),
                dice: Dice(self.dice.0),
                reference: known,
                next_round: self.next_round + 100 * life,
                event_counts: self.event_counts,
                ..*self
            };
            for _ in 0..3 {
                other.append(&mut log, count);
                settle(&mut log);
            }
            known = other.reference;
            known.durable_votes = known.history.len();
            disk.crash(self.dice.0);
        }
        Ok(())
    }

    fn all(&mut self) -> Result<(), String> {
        for _ in 0..4 {
            self.life()?;
            let seed = self.dice.below(u64::MAX);
            self.disk.crash(seed);
        }
        self.life()?;
        self.disk.crash(1);
        self.disk.set_manual_completion(false);
        self.go_on(&self.disk)
    }
}

/// Returns the number of runs that break, and the first that does.
fn broken(runs: u64, segment_bytes: u64, mutants: &[Mutant]) -> (u64, Option<(u64, String)>) {
    let (count, first, _) = broken_of(runs, mutants, |seed| Run::new(seed, segment_bytes));
    (count, first)
}

fn broken_of(
    runs: u64,
    mutants: &[Mutant],
    run: impl Fn(u64) -> Run,
) -> (u64, Option<(u64, String)>, EventCounts) {
    with(mutants, || {
        let (mut count, mut first, mut seen) = (0, None, EventCounts::default());
        for seed in 0..runs {
            let mut run = run(seed);
            if let Err(why) = run.all() {
                count += 1;
                first.get_or_insert((seed, why));
            }
            seen.rebased += run.event_counts.rebased;
            seen.reused += run.event_counts.reused;
            seen.crashes += run.event_counts.crashes;
            seen.keeping += run.event_counts.keeping;
            seen.reusing += run.event_counts.reusing;
        }
        (count, first, seen)
    })
}

fn trimmed(seed: u64, segment_bytes: u64) -> Run {
    Run { trims: true, ..Run::new(seed, segment_bytes) }
}

/// Segments that fit one or two writes, about five, and all of them.
const SEGMENTS: [u64; 3] = [16 << 10, 32 << 10, 128 << 10];

#[test]
fn released_records_survive_and_no_false_damage_is_reported() {
    for segment_bytes in SEGMENTS {
        assert_eq!(broken(3_000, segment_bytes, &[]).1, None, "segments of {segment_bytes}");
    }
}

/// [disk-2] Releasing records out of order loses some.
#[test]
fn releasing_out_of_order_loses_records() {
    for segment_bytes in SEGMENTS {
        let (count, _) = broken(300, segment_bytes, &[Mutant::ReleaseOutOfOrder]);
        assert!(count > 2, "{count} runs break");
    }
}

/// [disk-3] In one segment that is continued after a cut, only the chain excludes stale writes:
/// with it no run breaks, without it stale writes reappear.
#[test]
fn without_the_chain_stale_writes_reappear() {
    let kept = Mutant::SegmentKeptAfterCut;
    assert_eq!(broken(300, 512 << 10, &[kept]).1, None);
    let (count, _) = broken(300, 512 << 10, &[kept, Mutant::ChainIgnored]);
    assert!(count > 2, "{count} runs break");
}

/// [disk-4] The first write number stated by later segments is a second guard, which relies on new
/// segments after a cut: with them, stale writes stay excluded even without the chain.
#[test]
fn continuing_a_segment_after_a_cut_loses_records() {
    for segment_bytes in SEGMENTS {
        assert_eq!(broken(400, segment_bytes, &[Mutant::ChainIgnored]).1, None);
    }
    let (count, _) = broken(1_000, 16 << 10, &[Mutant::SegmentKeptAfterCut]);
    assert!(count > 2, "{count} runs break");
}

/// A write that was in flight at one crash and was then read may be lost in the next crash unless
/// it is synced.
#[test]
fn recovered_writes_must_be_synced_before_they_are_used() {
    for segment_bytes in SEGMENTS {
        let (count, _) = broken(300, segment_bytes, &[Mutant::RecoveryUnsynced]);
        assert!(count > 2, "{count} runs break");
    }
}

/// [trim-3] A log that is trimmed and recycled loses nothing, and reports no damage.
#[test]
fn trimmed_log_loses_nothing_and_reports_no_false_damage() {
    for segment_bytes in SEGMENTS {
        let (_, first, seen) = broken_of(1_000, &[], |seed| trimmed(seed, segment_bytes));
        assert_eq!(first, None, "segments of {segment_bytes}");
        println!("{seen:?}");
        assert!(seen.rebased > 1_000, "{seen:?}");
        assert!(segment_bytes > 64 << 10 || seen.reused > 500, "{seen:?}");
    }
}

/// Tries every prefix and subset of a run's writes that the disk could have kept, with names and
/// the base in flight as well.
#[test]
fn trimmed_log_survives_every_subset_of_kept_writes() {
    let explored = |seed| Run { explores: true, ..trimmed(seed, 16 << 10) };
    let (_, first, seen) = broken_of(6, &[], explored);
    assert_eq!(first, None);
    println!("{seen:?}");
    assert!(seen.crashes > 3_000 && seen.reused > 5, "{seen:?}");
    assert!(seen.keeping > 20 && seen.reusing > 20, "{seen:?}");
}

/// Returns the number of trimmed runs that break without a rule.
fn trimmed_broken(mutant: Mutant) -> (u64, Option<(u64, String)>) {
    let (count, first, _) = broken_of(400, &[mutant], |seed| trimmed(seed, 16 << 10));
    (count, first)
}

/// [trim-3] Overwriting a segment before the base is durable loses records.
#[test]
fn overwriting_a_segment_before_the_base_is_durable_loses_it() {
    let (count, first) = trimmed_broken(Mutant::BaseAfterOverwrite);
    assert!(count > 2, "{count} runs break");
    println!("{first:?}");
}

/// [trim-3] Trimming the last complete write loses the hard state.
#[test]
fn without_the_last_complete_write_the_hard_state_is_lost() {
    let (count, first) = trimmed_broken(Mutant::HardStateTrimmed);
    assert!(count > 2, "{count} runs break");
    println!("{first:?}");
}

/// [disk-3] If epochs are ignored, headers from an earlier use of the segment are taken for valid.
#[test]
fn ignoring_epochs_accepts_headers_of_an_earlier_use() {
    let (count, first) = trimmed_broken(Mutant::EpochIgnored);
    assert!(count > 2, "{count} runs break");
    println!("{first:?}");
}

/// [disk-10] [trim-3] File names and the base must be durable before anything relies on them.
#[test]
fn names_and_the_base_are_synced_at_start() {
    let (count, first) = trimmed_broken(Mutant::NamesUnsynced);
    assert!(count > 2, "{count} runs break");
    println!("{first:?}");
}

/// [disk-10] Without a sync of the folder, writes under a new name are lost.
#[test]
fn unsynced_name_loses_the_writes_to_its_file() {
    let unsynced = |seed| {
        let run = trimmed(seed, 16 << 10);
        run.disk.skip_folder_syncs(true);
        run
    };
    let (count, first, _) = broken_of(400, &[], unsynced);
    assert!(count > 2, "{count} runs break");
    println!("{first:?}");
}
