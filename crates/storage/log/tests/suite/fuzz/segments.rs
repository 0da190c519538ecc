//! Properties that hold for any bytes in a log's segments.

use quorate_core::{
    ballot::Ballot,
    node_id::{Incarnation, NodeId},
    record::{HardState, Record, RecordSeq},
    slot::{Slot, SlotRange},
    value::{BatchName, Value},
};
use quorate_log::Segment;
use quorate_log::disk::{BLOCK, MemoryDisk};
use quorate_log::{
    Log, LogOptions, Recovery,
    log_write::{HEADER_BYTES, MAGIC},
    verify::{inspect, verify},
};

/// Flag: checksums and chain are corrected, as a broken program could have written them.
pub(crate) const SEALED: u8 = 1;
/// Ends a segment, in place of a block's length.
pub(crate) const NEXT_SEGMENT: u16 = u16::MAX;
const SEGMENTS_MAX: usize = 4;
const BLOCKS_MAX: usize = 16;
/// Upper bound of the slots in a valid log.
const SLOT_MAX: u64 = 1 << 60;

/// Checks one input: a byte of flags, then blocks without their trailing zeros, each as a 2-byte
/// length and the bytes.
pub(crate) fn check(bytes: &[u8]) {
    let Some((flags, blocks)) = bytes.split_first() else {
        return;
    };
    let disk = MemoryDisk::new();
    for (mut segment, number) in unpack(blocks).into_iter().zip(1..) {
        if flags & SEALED != 0 {
            seal(&mut segment);
        }
        disk.store_file(Segment(number), &segment);
    }
    let verified = verify(&mut disk.reopen_after_crash(), None);
    let shown = inspect(&mut disk.reopen_after_crash(), None, &mut |_| {});
    let Ok((mut log, recovery)) = Log::open(disk.reopen_after_crash(), options()) else {
        return;
    };
    let verified = verified.expect("what can be opened can be verified");
    assert_eq!(verified.record_count, recovery.record_count);
    shown.expect("what can be opened can be shown");
    judge(&recovery);
    read(&mut log);
    go_on(&disk, log, &recovery);
}

pub(crate) fn options() -> LogOptions {
    LogOptions {
        segment_bytes: 4 * BLOCK as u64,
        write_bytes_max: 2 * BLOCK,
        ..LogOptions::new(7, NodeId(1), Incarnation(0))
    }
}

fn judge(recovery: &Recovery) {
    assert!(recovery.votes.iter().all(|vote| !vote.range.is_empty()));
    let ordered = |pair: &[quorate_core::message::Extent]| pair[0].range.to <= pair[1].range.from;
    assert!(recovery.votes.windows(2).all(ordered), "votes overlap");
    assert!(recovery.next_seq >= 1);
}

fn read(log: &mut Log<MemoryDisk>) {
    let all = SlotRange::new(Slot(1), Slot(u64::MAX));
    log.start_read(1, all, 1 << 20).expect("one read has room");
    while !log.reads_idle() {
        let _ = log.poll();
    }
    let done = log.next_read_done().expect("every read ends");
    let values = done.result.unwrap_or_default();
    for pair in values.windows(2) {
        assert!(pair[0].0.to <= pair[1].0.from, "values overlap");
    }
}

/// Appends to the log, and checks that released records are found after the next start.
fn go_on(disk: &MemoryDisk, mut log: Log<MemoryDisk>, recovery: &Recovery) {
    let hard = recovery.hard_state;
    let slot = hard.voted_to.max(hard.decided_to);
    if slot.0 > SLOT_MAX {
        return;
    }
    let bytes = b"written after the recovery";
    let name = BatchName {
        counter: 1,
        length: u32::try_from(bytes.len()).expect("short"),
        checksum: crc32c::crc32c(bytes),
        ..BatchName::default()
    };
    let ballot = Ballot { round: u32::MAX, node: NodeId(1), ..hard.promised };
    let (range, value) = (SlotRange::one(slot), Value::Batch(name));
    let hard = HardState { promised: ballot, voted_to: range.to, ..hard };
    let record = Record::Vote { ballot, range, value };
    log.append(RecordSeq(1), &record, bytes, hard).expect("a small record");
    while !log.is_idle() {
        log.start_writes();
        // A number that no valid log reaches is refused; nothing was released then.
        if log.poll().is_err() {
            return;
        }
    }
    let before = recovery.record_count;
    drop(log);
    disk.crash(1);
    let (_, recovery) = Log::open(disk.reopen_after_crash(), options()).expect("it opens again");
    assert_eq!(recovery.record_count, before + 1, "the new record is there, and all older ones");
    let vote = recovery.votes.iter().find(|vote| vote.range == range);
    let vote = vote.expect("what was released is there");
    assert_eq!((vote.ballot, vote.value), (ballot, value));
}

fn unpack(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut segments = vec![Vec::new()];
    while let Some((length, rest)) = bytes.split_first_chunk() {
        bytes = rest;
        let length = u16::from_le_bytes(*length);
        if length == NEXT_SEGMENT {
            if segments.len() == SEGMENTS_MAX {
                break;
            }
            segments.push(Vec::new());
            continue;
        }
        let (block, rest) = bytes.split_at(usize::from(length).min(BLOCK).min(bytes.len()));
        bytes = rest;
        let segment = segments.last_mut().expect("never empty");
        if segment.len() < BLOCKS_MAX * BLOCK {
            segment.extend_from_slice(block);
            segment.resize(segment.len().next_multiple_of(BLOCK).max(BLOCK), 0);
        }
    }
    segments
}

/// Corrects both checksums of each write, and the link to the preceding one.
fn seal(segment: &mut [u8]) {
    let (mut at, mut previous) = (0, None);
    while at < segment.len() {
        let rest = &mut segment[at..];
        if rest[..8] != MAGIC {
            at += BLOCK;
            continue;
        }
        let length = u32::from_le_bytes([rest[124], rest[125], rest[126], rest[127]]);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let sound = length.is_multiple_of(BLOCK) && (BLOCK..=rest.len()).contains(&length);
        let length = if sound { length } else { BLOCK };
        if let Some(previous) = previous {
            rest[120..124].copy_from_slice(&u32::to_le_bytes(previous));
        }
        let body = crc32c::crc32c(&rest[HEADER_BYTES..length]);
        rest[132..136].copy_from_slice(&body.to_le_bytes());
        let whole = crc32c::crc32c(&rest[..HEADER_BYTES - 4]);
        rest[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&whole.to_le_bytes());
        previous = Some(whole);
        at += length;
    }
}
