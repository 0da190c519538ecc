//! Verifies and inspects the log of a stopped node.

use crate::disk::Source;
use quorate_core::slot::{Slot, SlotRange};

use crate::{
    base::BaseFile,
    error::LogError,
    log_write::{Header, Owner},
    place::{Place, Segment},
    record::{Records, StoredRecord},
    recover::RecoveredRecords,
    walk::{Gap, LogVisitor, walk},
};

/// A place whose contents differ from what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedPlace {
    pub place: Place,
    /// Slots whose records may be lost.
    pub slots: SlotRange,
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedLog {
    pub owner: Option<Owner>,
    /// First slot of the log. A snapshot covers the slots below.
    pub start: Slot,
    pub record_count: u64,
    /// Slot below which every slot is known to be decided. Of several nodes' folders, the one with
    /// the highest value has everything that the others know.
    pub decided_to: Slot,
    /// One past the highest slot that was voted for or is known to be decided.
    pub next: Slot,
    pub next_seq: u64,
    /// Number of bytes after the end that a crash left. They are not damage, because they were
    /// never released.
    pub torn_tail_bytes: u64,
    pub damaged: Vec<DamagedPlace>,
}

/// Reads the whole log and reports damage. Changes nothing.
pub fn verify<S: Source>(source: &mut S, owner: Option<Owner>) -> Result<VerifiedLog, LogError> {
    let (base, owner) = BaseFile::read(source, owner)?;
    let start = base.base.start;
    let mut memory = RecoveredRecords::new(start);
    let (walked, broken) = match walk(source, owner, &base, &mut memory) {
        Ok(walked) => (Some(walked), None),
        Err(LogError::Damaged { place, reason }) => (None, Some((place, reason))),
        Err(LogError::Unreadable { place, detail }) => (None, Some((place, detail))),
        Err(error) => return Err(error),
    };
    memory.finish();
    let last = memory.last_header();
    let next = last
        .map_or(Slot::FIRST, |header| header.hard_state.voted_to.max(header.hard_state.decided_to));
    let mut damaged: Vec<_> = memory
        .gaps
        .iter()
        .map(|judged| DamagedPlace {
            place: judged.gap.place,
            slots: judged.slots,
            reason: judged.gap.reason.clone(),
        })
        .collect();
    if let Some((place, reason)) = broken {
        let from = last.map_or(Slot::FIRST, |header| header.hard_state.decided_to);
        let from = from.max(start);
        damaged.push(DamagedPlace { place, slots: SlotRange::new(from, from.max(next)), reason });
    }
    let seq = last.map_or(base.anchor.seq, |header| header.seq + 1);
    let decided = memory.decided_to(start);
    Ok(VerifiedLog {
        owner: walked.as_ref().map_or(owner, |walked| walked.owner),
        start,
        record_count: memory.records(),
        decided_to: decided,
        next: next.max(decided),
        next_seq: walked.as_ref().map_or(seq, |walked| walked.next_seq),
        torn_tail_bytes: walked.map_or(0, |walked| walked.torn_tail_bytes),
        damaged,
    })
}

/// An element of a log, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogElement<'a> {
    Base {
        /// First slot of the log. A snapshot covers the slots below.
        start: Slot,
        segment: Segment,
        /// Number of the first log write in that segment.
        seq: u64,
        note_bytes: usize,
    },
    /// A log write, followed by its records. In the output of `quorate log` and in descriptions of
    /// damage it is called a batch, its former name.
    Write(Header),
    Record(StoredRecord<'a>),
    Damage {
        /// Place where the first missing log write was expected.
        place: Place,
        missing_writes: u64,
        /// Description of what was found instead.
        reason: String,
    },
}

/// Calls `each` for every element of the log, in order. Changes nothing.
pub fn inspect<S: Source>(
    source: &mut S,
    owner: Option<Owner>,
    each: &mut dyn FnMut(LogElement<'_>),
) -> Result<(), LogError> {
    let (base, owner) = BaseFile::read(source, owner)?;
    if base != BaseFile::default() {
        each(LogElement::Base {
            start: base.base.start,
            segment: base.anchor.segment,
            seq: base.anchor.seq,
            note_bytes: base.base.note.len(),
        });
    }
    walk(source, owner, &base, &mut ElementVisitor { each }).map(|_| ())
}

struct ElementVisitor<'a> {
    each: &'a mut dyn FnMut(LogElement<'_>),
}

impl LogVisitor for ElementVisitor<'_> {
    fn log_write(&mut self, header: &Header, blocks: &[u8]) -> Result<(), LogError> {
        (self.each)(LogElement::Write(*header));
        for stored in Records::new(header.body_of(blocks)) {
            let stored = stored.map_err(|malformed| LogError::Damaged {
                place: header.place,
                reason: format!("batch {}: {}", header.seq, malformed.0),
            })?;
            (self.each)(LogElement::Record(stored));
        }
        Ok(())
    }

    fn damage(&mut self, gap: &Gap) {
        (self.each)(LogElement::Damage {
            place: gap.place,
            missing_writes: gap.seqs.end - gap.seqs.start,
            reason: gap.reason.clone(),
        });
    }
}
