//! Failing disks: full, read-only, short writes, errors. Each has one defined outcome.

use crate::disk::{Disk as _, DiskError, Fault, MemoryDisk};
use quorate_core::{record::RecordSeq, slot::Slot, slot::SlotRange};

use crate::{
    Log, LogError, LogOptions,
    log_tests::{hard, open, options, read_all, settle, value, vote},
    place::Segment,
};

/// Appends until the log has no space left.
fn fill_log(log: &mut Log<MemoryDisk>, from: u64, to: u64) {
    for slot in from..=to {
        vote(log, slot, 3000, 1);
        log.start_writes();
        let _ = log.poll();
    }
    for _ in 0..100 {
        let _ = log.poll();
    }
}

/// [disk-9] After any failure, no more records are released, whatever later writes report. Reads
/// still work. A restart finds everything that was released, and no damage.
#[test]
fn a_failed_write_is_final() {
    for fault in [
        Fault::WriteFails,
        Fault::FlushFails,
        Fault::ShortWrite { bytes: 512 },
        Fault::ShortWrite { bytes: 0 },
    ] {
        let disk = MemoryDisk::new();
        let (mut log, _) = open(&disk);
        for slot in 1..=5 {
            vote(&mut log, slot, 100, slot);
            settle(&mut log);
        }
        disk.inject(fault);
        vote(&mut log, 6, 100, 6);
        log.start_writes();
        let error = log.poll().unwrap_err();
        assert!(matches!(error, LogError::Failed(_)), "{error}");
        vote(&mut log, 7, 100, 7);
        log.start_writes();
        assert_eq!(log.poll(), Err(error), "{fault:?}");
        assert!(disk.pending().is_empty(), "nothing is written behind a failure");
        log.start_read(1, SlotRange::new(Slot(1), Slot(6)), 1 << 20).unwrap();
        while log.next_read_done().is_none_or(|done| done.result.unwrap().len() != 5) {
            let _ = log.poll();
        }
        disk.crash(3);
        let (_, recovery) = open(&disk);
        assert!(recovery.record_count >= 5);
        assert_eq!(recovery.damage, None, "{fault:?}");
    }
}

/// If the earlier of two writes in flight fails, the later one is not released, although it
/// completes.
#[test]
fn write_completed_after_a_failed_one_is_not_released() {
    let disk = MemoryDisk::new();
    let (mut log, _) = open(&disk);
    vote(&mut log, 1, 100, 1);
    settle(&mut log);
    disk.set_manual_completion(true);
    for slot in 2..=3 {
        vote(&mut log, slot, 100, 1);
        log.start_writes();
    }
    let ids: Vec<_> = disk.pending().iter().map(|pending| pending.id).collect();
    assert_eq!(ids.len(), 2);
    assert!(disk.complete(ids[1]));
    assert_eq!(log.poll(), Ok(RecordSeq(1)), "[disk-2] the first is not complete");
    disk.inject(Fault::WriteFails);
    assert!(disk.complete(ids[0]));
    assert!(log.poll().is_err());
    assert!(log.poll().is_err());
}

/// [disk-2] Natural group commit: while two writes are in flight, records gather in the next one.
#[test]
fn records_gather_while_writes_are_in_flight() {
    let disk = MemoryDisk::new();
    let (mut log, _) = open(&disk);
    vote(&mut log, 1, 100, 1);
    settle(&mut log);
    disk.set_manual_completion(true);
    for slot in 2..=21 {
        vote(&mut log, slot, 10, 1);
        log.start_writes();
    }
    let pending = disk.pending();
    assert_eq!(pending.len(), 2);
    assert!(log.backlog_bytes() > 2 * 4096);
    assert!(disk.complete(pending[1].id));
    assert_eq!(log.poll(), Ok(RecordSeq(1)));
    assert_eq!(disk.pending().len(), 1, "the later one's place is not free before its turn");
    assert!(disk.complete(pending[0].id));
    assert_eq!(log.poll(), Ok(RecordSeq(3)), "both are released together");
    assert_eq!(disk.pending().len(), 1, "18 records in one write");
    disk.complete_all();
    assert_eq!(log.poll(), Ok(RecordSeq(21)));
    assert_eq!(log.counters().writes, 4);
    assert_eq!(log.backlog_bytes(), 0);
}

/// [disk-9] A full disk makes the log busy, not failed: it continues where it stopped.
#[test]
fn a_full_disk_is_busy_until_there_is_room() {
    let disk = MemoryDisk::new();
    disk.set_capacity(Some(128 << 10));
    let (mut log, _) = open(&disk);
    fill_log(&mut log, 1, 100);
    let released = log.poll().unwrap();
    assert!(released > RecordSeq(20) && released < RecordSeq(100), "{released:?}");
    assert!(log.shortage_reason().unwrap().contains("segment"), "{:?}", log.shortage_reason());
    assert!(log.backlog_bytes() > 100_000);
    let prepared = log.counters().files_prepared;
    disk.set_capacity(None);
    settle(&mut log);
    assert_eq!(log.poll(), Ok(RecordSeq(100)));
    assert_eq!(log.shortage_reason(), None);
    assert!(log.counters().files_prepared > prepared);
    assert_eq!(read_all(&mut log, 1, 101).len(), 100);
}

/// The log waits longer and longer between attempts, counted in calls; a caller with a clock ends
/// the wait.
#[test]
fn try_again_ends_the_wait_between_attempts() {
    for calls in 200..232 {
        let disk = MemoryDisk::new();
        let (mut log, _) = open(&disk);
        vote(&mut log, 1, 3000, 1);
        settle(&mut log);
        disk.set_out_of_descriptors(true);
        fill_log(&mut log, 2, 100);
        for _ in 0..calls {
            log.poll().unwrap();
        }
        assert!(log.is_short_of_resources());
        disk.set_out_of_descriptors(false);
        log.retry_now();
        for _ in 0..3 {
            log.poll().unwrap();
        }
        assert!(!log.is_short_of_resources(), "after {calls} calls");
    }
}

/// A lack of descriptors does not fail the log: the log fills the segments that are open, waits,
/// and continues later.
#[test]
fn without_descriptors_the_log_fills_open_segments_and_waits() {
    let disk = MemoryDisk::new();
    let (mut log, _) = open(&disk);
    vote(&mut log, 1, 3000, 1);
    settle(&mut log);
    disk.set_out_of_descriptors(true);
    fill_log(&mut log, 2, 100);
    let released = log.poll().unwrap();
    let segment = options().segment_bytes / 4096;
    assert!(
        released.0 > segment && released < RecordSeq(100),
        "the next segment was opened ahead of need: {released:?}"
    );
    let reason = log.shortage_reason().unwrap();
    assert!(reason.contains("no descriptor"), "{reason}");
    disk.set_out_of_descriptors(false);
    settle(&mut log);
    assert_eq!(log.poll(), Ok(RecordSeq(100)));
    assert_eq!(log.shortage_reason(), None);
    assert_eq!(read_all(&mut log, 1, 101).len(), 100);
}

/// A spare segment that cannot be opened is retried. Only the first of several spares is open.
#[test]
fn a_spare_that_cannot_be_opened_is_waited_for() {
    let disk = MemoryDisk::new();
    let (mut log, _) = with_spares(&disk);
    disk.set_out_of_descriptors(true);
    fill_log(&mut log, 1, 100);
    let released = log.poll().unwrap();
    assert!(released < RecordSeq(40), "{released:?}");
    assert!(log.spare_bytes() > 0, "there is one");
    disk.set_out_of_descriptors(false);
    settle(&mut log);
    assert_eq!(log.poll(), Ok(RecordSeq(100)));
}

/// A spare segment that was removed from outside is not a lack of resources, and is reported when
/// the segment is needed.
#[test]
fn missing_spare_is_final_once_it_is_needed() {
    let disk = MemoryDisk::new();
    let (mut log, _) = with_spares(&disk);
    assert!(disk.remove(Segment(3)));
    fill_log(&mut log, 1, 100);
    let error = log.poll().unwrap_err();
    assert!(matches!(error, LogError::Failed(_)), "{error}");
}

/// Returns a log with three spares, the first of which becomes the current segment.
fn with_spares(disk: &MemoryDisk) -> (Log<MemoryDisk>, crate::Recovery) {
    let options = LogOptions { spare_segments: 3, ..options() };
    let (mut log, recovery) = Log::open(disk.reopen_after_crash(), options).unwrap();
    while log.spare_bytes() < 3 * options.segment_bytes {
        log.poll().unwrap();
    }
    (log, recovery)
}

/// Without a descriptor, catch-up and replay wait for one, and no damage is reported.
#[test]
fn a_read_without_a_descriptor_is_served_later() {
    let disk = MemoryDisk::new();
    let (mut log, _) = open(&disk);
    fill_log(&mut log, 1, 100);
    settle(&mut log);
    disk.set_out_of_descriptors(true);
    for token in 0..6 {
        let range = SlotRange::new(Slot(1), Slot(101));
        log.start_read(token, range, 1 << 20).unwrap();
    }
    for _ in 0..1000 {
        log.poll().unwrap();
    }
    assert_eq!(log.next_read_done(), None);
    assert!(!log.reads_idle());
    disk.set_out_of_descriptors(false);
    let mut done = Vec::new();
    while done.len() < 6 {
        log.poll().unwrap();
        done.extend(log.next_read_done());
    }
    for read in done {
        assert_eq!(read.result.unwrap().len(), 100);
    }
}

/// [disk-8] Segments that could not be opened do not count as damaged: otherwise the node would
/// report forever that it has forgotten votes.
#[test]
fn a_start_without_descriptors_is_refused_and_finds_no_damage() {
    let disk = MemoryDisk::new();
    let (mut log, _) = open(&disk);
    fill_log(&mut log, 1, 100);
    settle(&mut log);
    disk.crash(1);
    disk.set_out_of_descriptors(true);
    let error = Log::open(disk.reopen_after_crash(), options()).unwrap_err();
    assert!(matches!(error, LogError::Disk(_)), "{error}");
    assert!(error.hint().contains("limit on open files"), "{error}");
    disk.set_out_of_descriptors(false);
    let (_, recovery) = open(&disk);
    assert_eq!((recovery.record_count, recovery.damage), (100, None));
}

/// A node with an empty folder on a full disk starts, and waits.
#[test]
fn a_full_disk_at_the_first_start_is_busy_too() {
    let disk = MemoryDisk::new();
    disk.set_capacity(Some(0));
    let (mut log, _) = open(&disk);
    fill_log(&mut log, 1, 3);
    assert_eq!(log.poll(), Ok(RecordSeq(0)));
    assert!(log.shortage_reason().is_some());
    disk.set_capacity(None);
    settle(&mut log);
    assert_eq!(log.poll(), Ok(RecordSeq(3)));
}

#[test]
fn a_segment_that_cannot_be_made_is_final_once_it_is_needed() {
    let disk = MemoryDisk::new();
    let (mut log, _) = open(&disk);
    vote(&mut log, 1, 100, 1);
    log.start_writes();
    settle(&mut log);
    for _ in 0..2000 {
        disk.inject(Fault::PrepareFails);
    }
    let mut released = RecordSeq(0);
    let mut slot = 2;
    let error = loop {
        vote(&mut log, slot, 3000, 1);
        log.start_writes();
        slot += 1;
        match log.poll() {
            Ok(to) => released = to,
            Err(error) => break error,
        }
    };
    assert!(released > RecordSeq(10), "the segments at hand are used up first");
    assert!(matches!(error, LogError::Failed(_)), "{error}");
    disk.clear_faults();
    disk.crash(1);
    let (_, recovery) = open(&disk);
    assert!(recovery.record_count >= released.0);
}

#[test]
fn a_read_only_file_system_ends_writing_not_reading() {
    let disk = MemoryDisk::new();
    let (mut log, _) = open(&disk);
    for slot in 1..=3 {
        vote(&mut log, slot, 100, 1);
        settle(&mut log);
    }
    disk.set_read_only(true);
    vote(&mut log, 4, 100, 1);
    log.start_writes();
    let error = log.poll().unwrap_err();
    assert!(error.to_string().contains("read-only"), "{error}");
    log.start_read(9, SlotRange::new(Slot(1), Slot(4)), 1 << 20).unwrap();
    let _ = log.poll();
    assert_eq!(log.next_read_done().unwrap().result.unwrap().len(), 3);
}

#[test]
fn a_caller_may_declare_the_disk_dead() {
    let disk = MemoryDisk::new();
    let (mut log, _) = open(&disk);
    let late = DiskError::new("write", "segment 1", &std::io::ErrorKind::TimedOut.into());
    log.fail(late.clone());
    assert_eq!(log.poll(), Err(LogError::Failed(late)));
}

#[test]
fn a_failed_read_ends_that_read_only() {
    let disk = MemoryDisk::new();
    let (mut log, _) = open(&disk);
    vote(&mut log, 1, 100, 1);
    settle(&mut log);
    disk.inject(Fault::ReadFails);
    log.start_read(5, SlotRange::one(Slot(1)), 1 << 20).unwrap();
    log.poll().unwrap();
    let done = log.next_read_done().unwrap();
    assert_eq!(done.token, 5);
    assert!(matches!(done.result, Err(LogError::Disk(_))));
    assert_eq!(read_all(&mut log, 1, 2).len(), 1);
}

#[test]
fn reads_are_bounded() {
    let disk = MemoryDisk::new();
    disk.set_manual_completion(true);
    let (mut log, _) = open(&disk);
    vote(&mut log, 1, 1000, 1);
    vote(&mut log, 2, 1000, 1);
    log.start_writes();
    while !log.is_idle() {
        disk.complete_all();
        log.poll().unwrap();
    }
    let range = SlotRange::new(Slot(1), Slot(3));
    let accepted =
        (0..1000).take_while(|token| log.start_read(*token, range, 1500).is_ok()).count();
    assert!((10..100).contains(&accepted), "{accepted}");
    assert_eq!(log.start_read(0, range, 1), Err(LogError::ReadsBusy));
    let mut tokens = Vec::new();
    while tokens.len() < accepted {
        disk.complete_all();
        log.poll().unwrap();
        while let Some(done) = log.next_read_done() {
            assert_eq!(done.result.unwrap().len(), 1, "one value fits into the bytes asked for");
            tokens.push(done.token);
        }
    }
    assert!(log.reads_idle());
    disk.set_manual_completion(false);
    log.start_read(7, range, 0).unwrap();
    log.poll().unwrap();
    assert_eq!(log.next_read_done().unwrap().result.unwrap().len(), 1, "one value at least");
}

#[test]
fn large_records_begin_a_write_excessive_ones_are_refused() {
    let disk = MemoryDisk::new();
    let (mut log, _) = open(&disk);
    for slot in 1..=9 {
        vote(&mut log, slot, if slot % 3 == 0 { 40_000 } else { 100 }, 1);
    }
    let bytes_max = log.record_bytes_max();
    let (value, bytes) = value(10, bytes_max + 1);
    let record = quorate_core::record::Record::Decided { range: SlotRange::one(Slot(10)), value };
    let refused = log.append(RecordSeq(10), &record, &bytes, hard(1, 10)).unwrap_err();
    assert!(matches!(refused, LogError::TooLarge { .. }), "{refused}");
    log.append(RecordSeq(10), &record, &bytes[..bytes_max], hard(1, 10)).unwrap();
    settle(&mut log);
    assert_eq!(log.poll(), Ok(RecordSeq(10)));
    assert_eq!(log.counters().writes, 5, "1 2 | 3, and 4 5 in its padding | 6 7 8 | 9 | 10");
    let (mut log, recovery) = open(&disk);
    assert_eq!(recovery.record_count, 10);
    let values = read_all(&mut log, 1, 11);
    assert_eq!(values.len(), 10);
    assert_eq!(values[9].2.bytes().map(<[u8]>::len), Some(bytes_max));
}

/// A clean stop restates the hard state even if there is no record to write.
#[test]
fn a_checkpoint_restates_the_hard_state() {
    let disk = MemoryDisk::new();
    let (mut log, _) = open(&disk);
    vote(&mut log, 1, 100, 1);
    settle(&mut log);
    log.checkpoint(hard(2, 2));
    assert!(!log.is_idle());
    settle(&mut log);
    let (mut log, recovery) = open(&disk);
    assert_eq!((recovery.hard_state, recovery.record_count), (hard(2, 2), 1));
    // With buffered records it shares their write.
    vote(&mut log, 2, 100, 2);
    log.checkpoint(hard(3, 3));
    let writes = log.counters().writes;
    settle(&mut log);
    assert_eq!(log.counters().writes, writes + 1);
    assert_eq!(open(&disk).1.hard_state, hard(3, 3));
}

#[test]
fn contradictory_options_are_refused() {
    for wrong in [
        LogOptions { writes_in_flight_max: 0, ..options() },
        LogOptions { writes_in_flight_max: 5, ..options() },
        LogOptions { segment_bytes: 5000, ..options() },
        LogOptions { segment_bytes: 4096, ..options() },
        LogOptions { write_bytes_max: 1 << 20, ..options() },
        LogOptions { write_bytes_max: 100, ..options() },
        LogOptions { write_bytes_max: 0, ..options() },
    ] {
        let error = Log::open(MemoryDisk::new(), wrong).unwrap_err();
        assert!(matches!(error, LogError::InvalidOptions(_)), "{wrong:?}");
    }
}

/// File handles from before a crash have no effect.
#[test]
fn handle_from_before_a_crash_has_no_effect() {
    let disk = MemoryDisk::new();
    let (mut log, _) = open(&disk);
    vote(&mut log, 1, 100, 1);
    disk.crash(1);
    log.start_writes();
    assert!(disk.pending().is_empty());
    assert!(disk.clone().poll().is_none());
}
