//! What the disk in memory promises of a crash: what was made durable is kept, and nothing else has to be.

use std::collections::BTreeSet;

use crate::{
    BLOCK, Completed, Disk as _, DiskError, Durability, Family, Fault, FileId, MemoryDisk,
    Position, SECTOR, Source as _, Zeros,
};

const FILE: FileId = FileId::new(Family::Other, 1);
const SEEDS: u64 = 300;

/// A disk with a file of zeros.
fn disk() -> MemoryDisk {
    let mut disk = MemoryDisk::new();
    disk.start_prepare(FILE, 16 * BLOCK as u64, Zeros::Written);
    let prepared = disk.poll();
    assert!(matches!(
        prepared,
        Some(Completed::Prepared { result: Ok(()), .. })
    ));
    disk
}

fn start_write(disk: &mut MemoryDisk, at: Position, byte: u8, durability: Durability) {
    let mut buffer = disk.allocate(BLOCK);
    buffer.fill(byte);
    disk.start_write(0, at, buffer, BLOCK, durability);
}

fn result(disk: &mut MemoryDisk) -> Result<(), DiskError> {
    match disk.poll().unwrap() {
        Completed::Written { result, .. }
        | Completed::Read { result, .. }
        | Completed::Flushed { result, .. }
        | Completed::Prepared { result, .. }
        | Completed::Retired { result, .. } => result,
    }
}

fn write_later(disk: &mut MemoryDisk, block: u64) {
    let at = FILE.at(block * BLOCK as u64);
    start_write(disk, at, 7, Durability::Later);
    result(disk).unwrap();
}

fn flush(disk: &mut MemoryDisk) -> Result<(), DiskError> {
    disk.start_flush(0, FILE);
    result(disk)
}

/// How a block is found after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Found {
    Kept,
    Torn,
    Lost,
}

use Found::{Kept, Lost, Torn};

fn found(disk: &MemoryDisk, block: usize) -> Found {
    let bytes = disk.bytes(FILE).unwrap();
    let sectors = bytes[block * BLOCK..][..BLOCK].chunks(SECTOR);
    let mut kept = 0;
    for sector in sectors {
        assert!(
            sector.iter().all(|byte| *byte == sector[0]),
            "a sector is old or new"
        );
        kept += usize::from(sector[0] == 7);
    }
    match kept {
        0 => Lost,
        kept if kept == BLOCK / SECTOR => Kept,
        _ => Torn,
    }
}

/// How block `block` can be found after a crash.
fn after_crash(block: usize, before: impl Fn(&mut MemoryDisk)) -> BTreeSet<Found> {
    let run = |seed| {
        let mut disk = disk();
        before(&mut disk);
        disk.crash(seed);
        found(&disk, block)
    };
    (0..SEEDS).map(run).collect()
}

#[test]
fn a_write_for_later_is_kept_torn_or_lost_until_it_is_flushed() {
    let any = BTreeSet::from([Kept, Torn, Lost]);
    assert_eq!(after_crash(0, |disk| write_later(disk, 0)), any);
    let in_flight = |disk: &mut MemoryDisk| {
        disk.set_manual(true);
        start_write(disk, FILE.at(0), 7, Durability::Later);
    };
    assert_eq!(after_crash(0, in_flight), any);
    let flushed = |disk: &mut MemoryDisk| {
        write_later(disk, 0);
        flush(disk).unwrap();
    };
    assert_eq!(after_crash(0, flushed), [Kept].into());
    let synced = |disk: &mut MemoryDisk| {
        write_later(disk, 0);
        disk.sync_now(FILE).unwrap();
    };
    assert_eq!(after_crash(0, synced), [Kept].into());
}

#[test]
fn a_flush_covers_what_completed_before_it_was_started() {
    let overtaken = |disk: &mut MemoryDisk| {
        write_later(disk, 0);
        disk.set_manual(true);
        disk.start_flush(0, FILE);
        start_write(disk, FILE.at(BLOCK as u64), 7, Durability::Later);
        let [flush, write] = disk.pending()[..] else {
            panic!()
        };
        assert!(disk.complete(write.id) && disk.complete(flush.id));
        assert!(result(disk).is_ok() && result(disk).is_ok());
    };
    assert_eq!(after_crash(0, overtaken), [Kept].into());
    assert_eq!(after_crash(1, overtaken), [Kept, Torn, Lost].into());
    let other = |disk: &mut MemoryDisk| {
        write_later(disk, 0);
        disk.start_prepare(FileId::new(Family::Log, 1), BLOCK as u64, Zeros::Written);
        result(disk).unwrap();
        disk.start_flush(0, FileId::new(Family::Log, 1));
        result(disk).unwrap();
    };
    let found = after_crash(0, other);
    assert_eq!(found, [Kept, Torn, Lost].into(), "another file's flush");
}

/// The kernel drops what it could not write, and the next flush knows nothing of it.
#[test]
fn after_a_flush_that_failed_a_later_one_proves_nothing() {
    let failed = |disk: &mut MemoryDisk| {
        write_later(disk, 0);
        disk.inject(Fault::FlushFails);
        let error = flush(disk).unwrap_err();
        assert!(error.to_string().starts_with("sync "), "{error}");
        write_later(disk, 1);
        flush(disk).unwrap();
    };
    assert_eq!(after_crash(0, failed), [Kept, Torn, Lost].into());
    assert_eq!(after_crash(1, failed), [Kept].into());
}

#[test]
fn what_one_crash_kept_for_later_the_next_may_lose() {
    let kept = |synced: bool| {
        move |disk: &mut MemoryDisk| {
            // The first seed that keeps it.
            let seed = (0..).find(|seed| {
                let mut other = self::disk();
                write_later(&mut other, 0);
                other.crash(*seed);
                found(&other, 0) == Kept
            });
            write_later(disk, 0);
            disk.crash(seed.unwrap());
            *disk = disk.attach();
            assert_eq!(found(disk, 0), Kept);
            if synced {
                disk.sync_now(FILE).unwrap();
            }
        }
    };
    assert_eq!(after_crash(0, kept(false)), [Kept, Torn, Lost].into());
    assert_eq!(after_crash(0, kept(true)), [Kept].into());
}

#[test]
fn a_file_that_is_being_retired_is_there_or_not_and_then_gone() {
    let there = |complete: bool| {
        (0..SEEDS).map(move |seed| {
            let mut disk = disk();
            disk.set_manual(!complete);
            disk.start_retire(FILE);
            assert_eq!(disk.poll().is_some(), complete);
            disk.crash(seed);
            let files = disk.attach().files(Family::Other).unwrap();
            !files.is_empty()
        })
    };
    let set = |there: &mut dyn Iterator<Item = bool>| there.collect::<BTreeSet<_>>();
    assert_eq!(set(&mut there(false)), [false, true].into());
    assert_eq!(set(&mut there(true)), [false].into());
}

#[test]
fn a_file_that_cannot_be_retired_stays() {
    let mut disk = disk();
    disk.inject(Fault::RetireFails);
    disk.start_retire(FILE);
    result(&mut disk).unwrap_err();
    disk.set_read_only(true);
    disk.start_retire(FILE);
    result(&mut disk).unwrap_err();
    disk.crash(0);
    assert!(disk.bytes(FILE).is_some());
}

#[test]
fn each_change_of_a_file_is_a_step_and_the_dead_change_nothing() {
    let mut disk = disk();
    let before = disk.steps();
    write_later(&mut disk, 0);
    flush(&mut disk).unwrap();
    assert_eq!(disk.steps(), before + 2);
    disk.die_after(1);
    write_later(&mut disk, 1);
    assert!(!disk.is_alive());
    disk.start_flush(0, FILE);
    disk.start_retire(FILE);
    assert!(disk.pending().is_empty() && disk.poll().is_none());
    assert!(disk.sync_now(FILE).is_err() && disk.open_ahead(FILE).is_err());
    assert!(disk.files(Family::Other).is_err() && disk.made(Family::Other).is_err());
    disk.crash(0);
    assert!(disk.attach().is_alive());
}

#[test]
fn what_is_in_flight_when_the_process_dies_is_settled_by_the_crash() {
    let dies = |disk: &mut MemoryDisk| {
        disk.set_manual(true);
        start_write(disk, FILE.at(0), 7, Durability::Flushed);
        start_write(disk, FILE.at(BLOCK as u64), 7, Durability::Flushed);
        let ids: Vec<_> = disk.pending().iter().map(|pending| pending.id).collect();
        disk.die_after(1);
        assert!(disk.complete(ids[0]) && !disk.complete(ids[1]));
        disk.complete_all();
    };
    assert_eq!(after_crash(0, dies), [Kept].into());
    assert_eq!(after_crash(1, dies), [Kept, Torn, Lost].into());
}
