//! Segments no longer needed by the log: recycled under the next number, or removed ([disk-10]).

use crate::disk::{Family, Fault, FileId, MemoryDisk, PendingKind, Source as _};
use quorate_core::slot::Slot;

use crate::{
    Log, LogError, LogOptions,
    log_tests::{open, options, read_all, settle, vote},
    mutant::{Mutant, with},
    place::Segment,
};

const SEGMENT: u64 = 64 << 10;

/// Appends votes, one write each, sixteen to a segment. With `behind`, trims continuously up to
/// that distance.
fn write(log: &mut Log<MemoryDisk>, from: u64, to: u64, behind: Option<u64>) {
    for slot in from..to {
        vote(log, slot, 100, slot);
        settle(log);
        if let Some(behind) = behind.filter(|behind| slot > *behind) {
            log.rebase(Slot(slot - behind), Vec::new());
        }
    }
    idle(log);
}

fn idle(log: &mut Log<MemoryDisk>) {
    (0..40).for_each(|_| assert!(log.poll().is_ok()));
}

fn numbers(disk: &MemoryDisk) -> Vec<u64> {
    let files = disk.reopen_after_crash().files(Family::Log).unwrap();
    files.iter().map(|info| info.file.number).collect()
}

/// A trimmed log creates no more segments from zeros, and a write to a recycled segment costs the
/// same as to a new one.
#[test]
fn trimmed_log_creates_no_more_segments() {
    let disk = MemoryDisk::new();
    let (mut log, _) = open(&disk);
    write(&mut log, 1, 200, Some(20));
    let made = log.counters().files_prepared;
    let waits = log.counters().segment_waits;
    write(&mut log, 200, 2000, Some(20));
    let counters = log.counters();
    assert_eq!((counters.files_prepared, counters.segment_waits), (made, waits));
    assert!(made <= 6, "{made}");
    assert_eq!(counters.writes, counters.flushes);
    assert_eq!(counters.writes, log.next_seq() - 1, "one each");
    assert_eq!(counters.write_bytes, 4096 * counters.writes);
    assert_eq!(log.segments() as u64 * SEGMENT, log.size_bytes());
    assert_eq!(log.size_bytes(), log.used_bytes() + log.spare_bytes());
    assert!(log.used_bytes() <= 3 * SEGMENT);
    let made_last = disk.reopen_after_crash().newest_created(Family::Log).unwrap().unwrap();
    assert_eq!(made_last.number, *numbers(&disk).last().unwrap());
    assert!(made_last.number > 120, "numbers only grow");
    let (mut log, recovery) = open(&disk);
    assert_eq!((recovery.damage, recovery.torn_tail_bytes), (None, 0));
    assert_eq!(log.segments(), numbers(&disk).len());
    assert_eq!(read_all(&mut log, 1990, 3000).len(), 10);
}

/// When many segments are trimmed at once, a few are retained for reuse and the others removed one
/// by one.
#[test]
fn surplus_free_segments_are_removed_one_by_one() {
    let disk = MemoryDisk::new();
    let (mut log, _) = open(&disk);
    write(&mut log, 1, 400, None);
    let before = log.segments();
    assert_eq!(before, 26);
    disk.set_manual_completion(true);
    log.rebase(Slot(390), Vec::new());
    let mut most = 0;
    for _ in 0..200 {
        (0..3).for_each(|_| assert!(log.poll().is_ok()));
        let pending = disk.pending();
        let retiring = |pending: &&crate::disk::Pending| pending.kind == PendingKind::Retire;
        most = most.max(pending.iter().filter(retiring).count());
        disk.complete_all();
        log.poll().unwrap();
    }
    assert_eq!(most, 1);
    assert_eq!(log.segments(), 1 + 1 + 4, "in use, spare, and free");
    assert_eq!(log.used_bytes(), SEGMENT);
    assert_eq!(log.spare_bytes(), 5 * SEGMENT);
    assert_eq!(numbers(&disk).len(), 6);
    disk.set_manual_completion(false);
    // Retained segments are found again and used first.
    let (mut log, _) = open(&disk);
    let made = log.counters().files_prepared;
    write(&mut log, 400, 460, None);
    assert_eq!(log.counters().files_prepared, made);
    assert_eq!(numbers(&disk).len(), 6);
}

/// A crash right after the base has been replaced leaves many free segments, which the next start
/// finds.
#[test]
fn free_segments_are_found_at_start() {
    let disk = MemoryDisk::new();
    let (mut log, _) = open(&disk);
    write(&mut log, 1, 400, None);
    disk.set_manual_completion(true);
    log.rebase(Slot(390), Vec::new());
    disk.complete_all();
    drop(log);
    disk.crash(0);
    disk.set_manual_completion(false);
    let (mut log, recovery) = open(&disk);
    assert_eq!((recovery.base.start, recovery.damage), (Slot(390), None));
    assert_eq!((log.segments(), log.used_bytes()), (26, SEGMENT));
    let mut told = Vec::new();
    let tell = &mut |reading: crate::ReadProgress| told.push(reading);
    drop(Log::open_with_progress(disk.reopen_after_crash(), options(), tell).unwrap());
    assert_eq!(told.last().unwrap().total, 2 * SEGMENT, "they are not read");
    (0..10).for_each(|_| idle(&mut log));
    assert_eq!(log.segments(), 6);
}

#[test]
fn only_segments_of_the_current_size_are_reused() {
    let disk = MemoryDisk::new();
    let (mut log, _) = open(&disk);
    write(&mut log, 1, 100, None);
    drop(log);
    let larger = LogOptions { segment_bytes: 2 * SEGMENT, ..options() };
    let (mut log, _) = Log::open(disk.reopen_after_crash(), larger).unwrap();
    write(&mut log, 100, 200, Some(10));
    let sizes = disk.reopen_after_crash().files(Family::Log).unwrap();
    assert!(sizes.iter().all(|info| info.bytes == 2 * SEGMENT), "{sizes:?}");
    let bytes: u64 = sizes.iter().map(|info| info.bytes).sum();
    assert_eq!((log.size_bytes(), log.segments()), (bytes, sizes.len()));
    let (mut log, recovery) = Log::open(disk.reopen_after_crash(), options()).unwrap();
    assert_eq!(recovery.damage, None);
    assert_eq!(read_all(&mut log, 190, 300).len(), 10);
}

/// If a segment cannot be recycled, another one is used or created, and the log does not wait.
#[test]
fn a_segment_that_cannot_be_used_again_is_left_alone() {
    for renamed in [false, true] {
        let disk = MemoryDisk::new();
        let (mut log, _) = open(&disk);
        write(&mut log, 1, 60, None);
        for _ in 0..3 {
            disk.inject(Fault::ReuseFails { renamed });
        }
        write(&mut log, 60, 300, Some(5));
        assert_eq!(log.shortage_reason(), None);
        let crashed = disk.copy();
        for disk in [disk, crashed] {
            disk.crash(u64::from(renamed));
            let (mut log, recovery) = open(&disk);
            assert_eq!(recovery.damage, None);
            let start = log.start().0;
            assert_eq!(read_all(&mut log, start, 400).len() as u64, 300 - start);
            write(&mut log, 300, 400, Some(5));
            assert!(numbers(&disk).len() <= 8);
        }
    }
}

/// A missing descriptor, or no space for the number, is not a failure: the log waits, and then
/// continues.
#[test]
fn a_segment_that_lacks_a_descriptor_is_used_later() {
    let disk = MemoryDisk::new();
    let (mut log, _) = open(&disk);
    write(&mut log, 1, 60, None);
    log.rebase(Slot(55), Vec::new());
    idle(&mut log);
    let made = log.counters().files_prepared;
    disk.set_out_of_descriptors(true);
    for slot in 60..120 {
        vote(&mut log, slot, 100, slot);
        log.start_writes();
        log.poll().unwrap();
    }
    idle(&mut log);
    let busy = log.shortage_reason().unwrap();
    assert!(busy.contains("no descriptor"), "{busy}");
    assert!(!log.is_idle());
    disk.set_out_of_descriptors(false);
    log.retry_now();
    settle(&mut log);
    assert_eq!(log.shortage_reason(), None);
    write(&mut log, 120, 130, None);
    assert_eq!(log.segments(), numbers(&disk).len());
    assert!(log.counters().files_prepared <= made + 2);
    let (mut log, recovery) = open(&disk);
    assert_eq!(recovery.damage, None);
    assert_eq!(read_all(&mut log, 55, 200).len(), 75);
}

#[test]
fn a_segment_that_cannot_be_removed_is_tried_again() {
    let disk = MemoryDisk::new();
    let (mut log, _) = open(&disk);
    write(&mut log, 1, 400, None);
    (0..9).for_each(|_| disk.inject(Fault::RetireFails));
    log.rebase(Slot(390), Vec::new());
    idle(&mut log);
    assert_eq!(log.segments(), 26, "each attempt has failed");
    disk.clear_faults();
    for _ in 0..40 {
        log.retry_now();
        idle(&mut log);
    }
    assert_eq!((log.segments(), numbers(&disk).len()), (6, 6));
}

/// A free segment is removed from outside before the log removes or recycles it.
#[test]
fn missing_free_segment_is_not_counted() {
    for gone in [1, 22] {
        let disk = MemoryDisk::new();
        let (mut log, _) = open(&disk);
        write(&mut log, 1, 400, None);
        disk.remove(Segment(gone));
        log.rebase(Slot(390), Vec::new());
        idle(&mut log);
        write(&mut log, 400, 500, None);
        assert_eq!(log.segments(), numbers(&disk).len(), "segment {gone}");
        let bytes = log.segments() as u64 * SEGMENT;
        assert_eq!(log.size_bytes(), bytes);
        assert_eq!(open(&disk).1.damage, None);
    }
}

/// [disk-10] A rename interrupted by a crash leaves the old name, the new one, or both.
#[test]
fn segment_with_any_name_after_a_crash_is_recovered() {
    for names in [&[1][..], &[99], &[1, 99]] {
        let disk = MemoryDisk::new();
        let (mut log, _) = open(&disk);
        write(&mut log, 1, 100, None);
        disk.set_manual_completion(true);
        log.rebase(Slot(95), Vec::new());
        disk.complete_all();
        drop(log);
        disk.crash(0);
        disk.set_manual_completion(false);
        let bytes = disk.bytes(Segment(1)).unwrap();
        disk.remove(Segment(1));
        for number in names {
            disk.store_file(Segment(*number), &bytes);
        }
        let (mut log, recovery) = open(&disk);
        assert_eq!((recovery.damage, recovery.torn_tail_bytes), (None, 0));
        for slot in 100..300 {
            vote(&mut log, slot, 100, slot);
            settle(&mut log);
            log.rebase(Slot(slot - 4), Vec::new());
            if slot % 7 == 0 {
                disk.crash(slot);
                let (again, recovery) = open(&disk);
                assert_eq!(recovery.damage, None, "{names:?}, slot {slot}");
                log = again;
                assert_eq!(read_all(&mut log, slot, 400).len(), 1);
            }
        }
    }
}

/// [disk-3] Contents of a recycled segment from another owner, as after a restore under a new
/// identity, are ignored.
#[test]
fn owner_of_earlier_contents_of_a_segment_is_ignored() {
    let other = LogOptions { cluster: 8, ..options() };
    let foreign = MemoryDisk::new();
    let (mut log, _) = Log::open(foreign.reopen_after_crash(), other).unwrap();
    write(&mut log, 1, 20, None);
    let disk = MemoryDisk::new();
    let (mut log, _) = open(&disk);
    write(&mut log, 1, 3, None);
    disk.store_file(Segment(7), &foreign.bytes(Segment(1)).unwrap());
    let opened = || {
        Log::open(disk.reopen_after_crash(), options()).map(|(_, recovery)| recovery.record_count)
    };
    assert_eq!(opened(), Ok(2));
    let judged = with(&[Mutant::OwnerBeforeEpoch], opened);
    assert!(matches!(judged, Err(LogError::ForeignLog { .. })), "the fault is noticed");
}

/// On a full disk, space taken by trimmed segments is available.
#[test]
fn trimming_makes_room() {
    let disk = MemoryDisk::new();
    disk.set_capacity(Some(6 * SEGMENT));
    let (mut log, _) = open(&disk);
    for slot in 1..120 {
        vote(&mut log, slot, 100, slot);
        log.start_writes();
        let _ = log.poll();
    }
    idle(&mut log);
    assert!(log.shortage_reason().is_some() && !log.is_idle());
    log.rebase(Slot(80), Vec::new());
    settle(&mut log);
    idle(&mut log);
    assert_eq!(log.shortage_reason(), None);
    assert_eq!(read_all(&mut log, 80, 200).len(), 40);
    write(&mut log, 120, 500, Some(30));
    assert!(numbers(&disk).len() <= 6);
}

/// A spare that is too small after the configured size was raised is never used, and is removed.
#[test]
fn a_spare_that_is_too_small_is_removed() {
    let disk = MemoryDisk::new();
    drop(open(&disk).0);
    disk.close();
    let spare: FileId = Segment(1).into();
    assert_eq!(disk.reopen_after_crash().files(Family::Log).unwrap()[0].file, spare);
    let larger = LogOptions {
        segment_bytes: 4 * SEGMENT,
        write_bytes_max: 2 * SEGMENT as usize,
        ..options()
    };
    let (mut log, _) = Log::open(disk.reopen_after_crash(), larger).unwrap();
    vote(&mut log, 1, 100_000, 1);
    settle(&mut log);
    idle(&mut log);
    assert_eq!(numbers(&disk).first(), Some(&2));
    let (_, recovery) = Log::open(disk.reopen_after_crash(), larger).unwrap();
    assert_eq!((recovery.record_count, recovery.damage), (1, None));
}
