//! The log as a whole, on a disk in memory: round trips, order of release, cuts, damage, failures.

use crate::disk::{MemoryDisk, Pending, PendingKind};
use quorate_core::{
    ballot::Ballot,
    node_id::{Incarnation, NodeId},
    record::{HardState, Record, RecordSeq},
    slot::{Slot, SlotRange},
    value::{BatchName, StreamName, Value},
};

use crate::{Log, LogOptions, Recovery, ValueBytes};

pub(crate) fn options() -> LogOptions {
    LogOptions {
        segment_bytes: 64 << 10,
        write_bytes_max: 16 << 10,
        ..LogOptions::new(7, NodeId(1), Incarnation(0))
    }
}

pub(crate) fn open(disk: &MemoryDisk) -> (Log<MemoryDisk>, Recovery) {
    Log::open(disk.reopen_after_crash(), options()).unwrap()
}

pub(crate) fn ballot(round: u32) -> Ballot {
    Ballot { round, node: NodeId(1), ..Ballot::ZERO }
}

/// Returns a batch of commands named after its slot, with its bytes.
pub(crate) fn value(slot: u64, length: usize) -> (Value, Vec<u8>) {
    let bytes: Vec<u8> = (0..length).map(|at| (slot as usize + at) as u8).collect();
    let name = BatchName {
        origin: NodeId(1),
        boot: 1,
        counter: slot,
        length: length as u32,
        checksum: crc32c::crc32c(&bytes),
    };
    (Value::Batch(name), bytes)
}

/// Returns the same batch as it is read back.
pub(crate) fn stored(slot: u64, length: usize) -> (Value, ValueBytes) {
    let (value, bytes) = value(slot, length);
    (value, ValueBytes::Bytes(bytes))
}

pub(crate) fn hard(decided_to: u64, voted_to: u64) -> HardState {
    let (decided_to, voted_to) = (Slot(decided_to), Slot(voted_to));
    HardState { last_used_ballot: ballot(1), promised: ballot(1), decided_to, voted_to }
}

/// Appends a vote for `slot` as record `slot`.
pub(crate) fn vote(log: &mut Log<MemoryDisk>, slot: u64, length: usize, decided_to: u64) {
    let (value, bytes) = value(slot, length);
    let range = SlotRange::one(Slot(slot));
    let record = Record::Vote { ballot: ballot(1), range, value };
    log.append(RecordSeq(slot), &record, &bytes, hard(decided_to, slot + 1)).unwrap();
}

pub(crate) fn settle(log: &mut Log<MemoryDisk>) {
    while !log.is_idle() {
        log.start_writes();
        log.poll().unwrap();
    }
}

pub(crate) fn read_all(log: &mut Log<MemoryDisk>, from: u64, to: u64) -> crate::Values {
    log.start_read(1, SlotRange::new(Slot(from), Slot(to)), usize::MAX).unwrap();
    loop {
        log.poll().unwrap();
        if let Some(done) = log.next_read_done() {
            return done.result.unwrap();
        }
    }
}

#[test]
fn appended_records_are_recovered_after_a_restart() {
    let disk = MemoryDisk::new();
    let (mut log, recovery) = open(&disk);
    assert_eq!((recovery.record_count, recovery.next_seq, recovery.incarnation), (0, 1, None));
    assert_eq!(recovery.hard_state.decided_to, Slot::FIRST);
    for slot in 1..=100 {
        vote(&mut log, slot, 100 + usize::try_from(slot).unwrap() * 13, slot / 2 + 1);
        if slot % 3 == 0 {
            settle(&mut log);
        }
    }
    settle(&mut log);
    assert_eq!(log.poll(), Ok(RecordSeq(100)));
    let counters = log.counters();
    assert_eq!(counters.writes, counters.flushes);
    assert_eq!(counters.writes, log.next_seq() - 1, "one write and one flush per log write");

    disk.crash(1);
    let (mut log, recovery) = open(&disk);
    assert_eq!((recovery.record_count, recovery.torn_tail_bytes), (100, 0));
    assert_eq!(recovery.hard_state, hard(51, 101));
    assert_eq!(recovery.damage, None);
    let slots: Vec<_> = recovery.votes.iter().map(|vote| vote.range.from.0).collect();
    assert_eq!(slots, (51..=100).collect::<Vec<_>>());
    assert!(log.segments() > 2);
    let values = read_all(&mut log, 1, 200);
    assert_eq!(values.len(), 100);
    for ((range, found, bytes), slot) in values.into_iter().zip(1..) {
        assert_eq!(range, SlotRange::one(Slot(slot)));
        assert_eq!((found, bytes), stored(slot, 100 + usize::try_from(slot).unwrap() * 13));
    }
    assert_eq!(read_all(&mut log, 101, 200), []);
    assert!(log.index_entries() < 20, "one entry for many writes");
}

/// Votes for batches are buffered until there are enough of them, or until `write_soon`. Records
/// that are durable in every class are written at once.
#[test]
fn votes_for_batches_are_buffered_until_needed() {
    let lingering = LogOptions { linger_bytes: 4 << 10, ..options() };
    let disk = MemoryDisk::new();
    let (mut log, _) = Log::open(disk.reopen_after_crash(), lingering).unwrap();
    let polled = |log: &mut Log<MemoryDisk>| {
        log.start_writes();
        log.poll().unwrap();
        log.poll().unwrap()
    };
    assert!(!log.is_lingering(), "nothing has gathered");
    vote(&mut log, 1, 100, 1);
    assert!(log.is_lingering());
    assert_eq!(polled(&mut log), RecordSeq(0));
    assert_eq!(log.counters().writes, 0);
    log.write_soon();
    assert_eq!(polled(&mut log), RecordSeq(1));
    vote(&mut log, 2, 100, 1);
    assert_eq!(polled(&mut log), RecordSeq(1), "one hurry, one write");
    vote(&mut log, 3, 4000, 1);
    assert!(!log.is_lingering(), "enough");
    assert_eq!(polled(&mut log), RecordSeq(3));
    vote(&mut log, 4, 100, 1);
    let promise = Record::Promise { ballot: ballot(2) };
    log.append(RecordSeq(5), &promise, &[], hard(1, 5)).unwrap();
    assert_eq!(polled(&mut log), RecordSeq(5));
    let no_batch =
        Record::Vote { ballot: ballot(2), range: SlotRange::one(Slot(5)), value: Value::NoOp };
    log.append(RecordSeq(6), &no_batch, &[], hard(1, 6)).unwrap();
    assert_eq!(polled(&mut log), RecordSeq(6));
    vote(&mut log, 7, 100, 1);
    log.checkpoint(hard(1, 7));
    assert_eq!(polled(&mut log), RecordSeq(7));
    assert!(log.is_idle());
}

/// The log maintains the configured number of spares. While it has a spare, it does not request
/// another from a busy disk.
#[test]
fn spare_segments_are_created_up_to_their_number_and_reused() {
    let disk = MemoryDisk::new();
    let options = LogOptions { spare_segments: 3, ..options() };
    let open = || Log::open(disk.reopen_after_crash(), options).unwrap().0;
    // Spares are created one at a time.
    let fill = |log: &mut Log<MemoryDisk>| (0..9).for_each(|_| assert!(log.poll().is_ok()));
    let mut log = open();
    fill(&mut log);
    assert_eq!(log.spare_bytes(), 3 * options.segment_bytes);
    disk.set_manual_completion(true);
    vote(&mut log, 1, 100, 1);
    log.start_writes();
    // One spare is in use now, and another is being created.
    assert_eq!(log.spare_bytes(), 2 * options.segment_bytes);
    assert_eq!((disk.paced_bytes(), log.counters().segment_waits), (0, 0));
    disk.set_manual_completion(false);
    disk.complete_all();
    fill(&mut log);
    assert_eq!(log.spare_bytes(), 3 * options.segment_bytes);
    let segments = log.segments();
    drop(log);
    let mut log = open();
    fill(&mut log);
    assert_eq!(log.segments(), segments, "none is made again");
    assert_eq!(log.spare_bytes(), 3 * options.segment_bytes);
    // Spares take at most half of the free space.
    let small = MemoryDisk::new();
    small.set_capacity(Some(6 * options.segment_bytes));
    let many = LogOptions { spare_segments: 9, ..options };
    let (mut log, _) = Log::open(small.reopen_after_crash(), many).unwrap();
    fill(&mut log);
    assert_eq!(log.spare_bytes(), 3 * options.segment_bytes);
    let none = LogOptions { spare_segments: 0, ..options };
    assert!(Log::open(disk.reopen_after_crash(), none).is_err());
}

/// Segments are created during commits, just ahead of the current one, so that no write waits for
/// one.
#[test]
fn next_segment_is_created_ahead_of_the_current_one() {
    let disk = MemoryDisk::new();
    disk.set_manual_completion(true);
    let (mut log, _) = open(&disk);
    assert_eq!(log.counters().segment_waits, 0, "no write waits yet");
    for slot in 1..4 {
        vote(&mut log, slot, 100, 1);
        log.start_writes();
        let waits = log.counters().segment_waits;
        assert_eq!(waits, 1, "there is no segment at all; said once");
    }
    disk.complete_all();
    // Written to the first segment; the second is being created.
    log.poll().unwrap();
    let is_prepare = |pending: &Pending| pending.kind == PendingKind::Prepare;
    let preparing = disk.pending().into_iter().find(is_prepare).unwrap();
    let write_on = |log: &mut Log<MemoryDisk>, slot: u64| {
        vote(log, slot, 3000, 1);
        log.start_writes();
        let writes = disk.pending();
        let writes = writes.iter().filter(|pending| pending.id != preparing.id);
        writes.for_each(|write| assert!(disk.complete(write.id)));
        log.poll().unwrap();
        log.next_write_place().unwrap().offset
    };
    for slot in 4.. {
        let used = write_on(&mut log, slot);
        assert_eq!(disk.paced_bytes(), used + used / 4, "a quarter ahead");
        if used == 64 << 10 {
            break;
        }
    }
    assert_eq!(log.counters().segment_waits, 1, "full is not waited for");
    write_on(&mut log, 99);
    assert_eq!(log.counters().segment_waits, 2, "this one has no room");
    disk.set_manual_completion(false);
    settle(&mut log);
    log.poll().unwrap();
    assert_eq!(log.counters().segment_waits, 2, "the third has time again");
}

/// Opening a log reports progress up to 100 percent, for an operator who waits for a start.
#[test]
fn opening_reports_progress_up_to_100_percent() {
    let disk = MemoryDisk::new();
    let (mut log, _) = open(&disk);
    for slot in 1..=100 {
        vote(&mut log, slot, 3000, 1);
        settle(&mut log);
    }
    drop(log);
    let mut told = Vec::new();
    let mut tell = |reading: crate::ReadProgress| told.push(reading);
    let opened = Log::open_with_progress(disk.reopen_after_crash(), options(), &mut tell);
    let (log, _) = opened.unwrap();
    assert!(told.is_sorted_by_key(|reading| reading.read));
    let last = told.last().unwrap();
    assert_eq!((last.read, last.total), (log.size_bytes(), log.size_bytes()));
    assert!(told.len() > log.segments());
}

/// [disk-5] A record may name the places of its bytes. Recovery returns all such records, in order,
/// for all slots of the log; a read returns the places even for part of the slots.
#[test]
fn places_of_bytes_are_recovered_and_read() {
    let disk = MemoryDisk::new();
    let (mut log, _) = open(&disk);
    let stream = StreamName::default();
    let content = |offset| Value::Content { stream, offset };
    let slots = |from, to| SlotRange::new(Slot(from), Slot(to));
    let said: [(u64, u64, &[u8]); 3] = [(1, 40, b"here"), (40, 44, b"at 4"), (20, 60, b"")];
    for (seq, (from, to, places)) in (1..).zip(said) {
        let range = slots(from, to);
        let record = match seq {
            1 => Record::Decided { range, value: content(seq) },
            _ => Record::Vote { ballot: ballot(1), range, value: content(seq) },
        };
        log.append_placed(RecordSeq(seq), &record, places, hard(1, 60)).unwrap();
    }
    settle(&mut log);
    drop(log);
    disk.crash(0);
    let (mut log, recovery) = open(&disk);
    let expected = (1..).zip(said);
    let expected: Vec<_> = expected
        .map(|(seq, (from, to, places))| (slots(from, to), content(seq), places.to_vec()))
        .collect();
    assert_eq!(recovery.placed_values, expected);
    let places = |bytes: &[u8]| ValueBytes::Places(bytes.to_vec());
    assert_eq!(
        read_all(&mut log, 10, 60),
        [(slots(10, 20), content(1), places(b"here")), (slots(20, 60), content(3), places(b"")),]
    );
}
