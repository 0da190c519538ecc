//! Reads of the log: the purpose of each, and the slots whose latest records are not on disk yet.

use std::collections::VecDeque;

use quorate_core::{
    node_id::NodeId,
    record::RecordSeq,
    slot::{Slot, SlotRange},
    time::Time,
    value::Value,
};
use quorate_log::Log;
use quorate_log::disk::Disk;

/// Purpose of a log read, with the data needed to handle its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Purpose {
    /// Payloads of votes cast by an earlier process.
    Votes,
    /// Decided slots that the service has to apply.
    Apply,
    /// Decided slots for a lagging peer.
    Serve(NodeId),
    /// Bytes of a value that was proposed in this slot, requested by a peer.
    Payload(NodeId, Value, Slot),
    /// Slots applied by an earlier process that the store of streams must replay.
    Streams,
    /// Slots that a scrub found to be damaged, to determine which of them are lost.
    Scrub,
}

/// Kind of a read. At most one read of each kind is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Votes,
    Apply,
    Serve,
    Payload,
    Streams,
    Scrub,
}

impl Purpose {
    /// Returns the kind of the purpose, which is also the token of the read.
    pub(crate) const fn kind(self) -> Kind {
        match self {
            Self::Votes => Kind::Votes,
            Self::Apply => Kind::Apply,
            Self::Serve(_) => Kind::Serve,
            Self::Payload(..) => Kind::Payload,
            Self::Streams => Kind::Streams,
            Self::Scrub => Kind::Scrub,
        }
    }
}

const KIND_COUNT: usize = 6;

/// Reads in flight, at most one of each kind.
#[derive(Debug, Default)]
pub(crate) struct LogReads {
    /// Slots with records that are not on disk yet. For these slots the log is outdated: for
    /// example, it may contain a vote for a value other than the decided one.
    unwritten: VecDeque<(RecordSeq, SlotRange)>,
    open: [Option<Purpose>; KIND_COUNT],
    /// Earliest time of the next read of each kind, after a read that found no data.
    retry_at: [Time; KIND_COUNT],
}

impl LogReads {
    /// Notes a record about slots in `range` that was appended to the log or, if `lost`, could not
    /// be, because the log has failed.
    pub(crate) fn record_appended(&mut self, seq: RecordSeq, range: SlotRange, lost: bool) {
        match self.unwritten.back_mut() {
            // Records that will never be written are merged, to keep the list small.
            Some((last, run)) if lost && run.to == range.from => {
                (*last, run.to) = (seq, range.to);
            }
            _ => self.unwritten.push_back((seq, range)),
        }
    }

    pub(crate) fn record_written(&mut self, to: RecordSeq) {
        while self.unwritten.pop_front_if(|(seq, _)| *seq <= to).is_some() {}
    }

    /// Returns the first part of `range` for which the log is up to date; possibly empty.
    pub(crate) fn readable_part(&self, range: SlotRange) -> SlotRange {
        let unwritten =
            self.unwritten.iter().filter(|(_, other)| !other.intersect(range).is_empty());
        let to = unwritten.map(|(_, other)| other.from.max(range.from)).min();
        SlotRange::new(range.from, to.unwrap_or(range.to))
    }

    /// Returns the first slot of `range` for which the log is up to date, if any.
    pub(crate) fn first_written(&self, range: SlotRange) -> Option<Slot> {
        let mut slot = range.from;
        while slot < range.to {
            let mut unwritten = self.unwritten.iter();
            match unwritten.find(|(_, other)| other.contains(slot)) {
                Some((_, other)) => slot = other.to,
                None => return Some(slot),
            }
        }
        None
    }

    pub(crate) fn may_start(&self, now: Time, kind: Kind) -> bool {
        let at = kind as usize;
        self.open[at].is_none() && now >= self.retry_at[at]
    }

    /// Starts a read, unless too many are queued; the caller then retries.
    pub(crate) fn start_read<D: Disk>(
        &mut self,
        log: &mut Log<D>,
        purpose: Purpose,
        range: SlotRange,
        bytes_max: usize,
    ) {
        let at = purpose.kind() as usize;
        if log.start_read(at as u64, range, bytes_max).is_ok() {
            self.open[at] = Some(purpose);
        }
    }

    /// Ends a read, and returns its purpose.
    pub(crate) fn end_read(&mut self, token: u64) -> Option<Purpose> {
        self.open.get_mut(usize::try_from(token).ok()?)?.take()
    }

    pub(crate) fn postpone_reads(&mut self, kind: Kind, until: Time) {
        self.retry_at[kind as usize] = until;
    }

    pub(crate) fn wake_at(&self, now: Time) -> Option<Time> {
        self.retry_at.iter().copied().filter(|at| *at > now).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The log may contain a vote for another value in a slot that is decided but not written.
    #[test]
    fn slots_with_unwritten_records_are_not_read() {
        let slots = |from, to| SlotRange::new(Slot(from), Slot(to));
        let mut reads = LogReads::default();
        reads.record_appended(RecordSeq(1), slots(5, 6), false);
        reads.record_appended(RecordSeq(2), slots(8, 9), false);
        assert_eq!(reads.readable_part(slots(1, 20)), slots(1, 5));
        assert_eq!(reads.readable_part(slots(6, 20)), slots(6, 8));
        assert!(reads.readable_part(slots(5, 20)).is_empty());
        assert_eq!(reads.first_written(slots(5, 20)), Some(Slot(6)));
        assert_eq!(reads.first_written(slots(5, 6)), None);
        reads.record_written(RecordSeq(1));
        assert_eq!(reads.readable_part(slots(1, 20)), slots(1, 8));
        reads.record_written(RecordSeq(2));
        assert_eq!(reads.readable_part(slots(1, 20)), slots(1, 20));
        for slot in 10..100 {
            reads.record_appended(RecordSeq(slot), slots(slot, slot + 1), true);
        }
        assert_eq!(reads.unwritten.len(), 1);
        assert_eq!(reads.readable_part(slots(1, 200)), slots(1, 10));
    }
}
