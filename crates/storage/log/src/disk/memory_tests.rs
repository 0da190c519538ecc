//! Crash semantics of the disk in memory: durable data is kept, and nothing else has to be.

use std::collections::BTreeSet;

use crate::disk::{
    BLOCK, Completed, Disk as _, DiskError, Durability, Family, Fault, FileId, MemoryDisk,
    Position, SECTOR, Source as _, ZeroFill,
};

const FILE: FileId = FileId::new(Family::Snapshot, 1);
const SEEDS: u64 = 300;

fn disk() -> MemoryDisk {
    let mut disk = MemoryDisk::new();
    disk.start_prepare(FILE, 16 * BLOCK as u64, ZeroFill::Written);
    let prepared = disk.poll();
    assert!(matches!(prepared, Some(Completed::Prepared { result: Ok(()), .. })));
    disk
}

fn start_write(disk: &mut MemoryDisk, at: Position, byte: u8, durability: Durability) {
    let mut buffer = disk.allocate(BLOCK);
    buffer.fill(byte);
    disk.start_write(0, at, buffer.into(), BLOCK, durability);
}

fn result(disk: &mut MemoryDisk) -> Result<(), DiskError> {
    match disk.poll().unwrap() {
        Completed::Written { result, .. }
        | Completed::Read { result, .. }
        | Completed::Flushed { result, .. }
        | Completed::Prepared { result, .. }
        | Completed::Retired { result, .. }
        | Completed::SmallFileReplaced { result, .. } => result,
        Completed::SmallFileRead { result, .. } => result.map(drop),
    }
}

fn write_later(disk: &mut MemoryDisk, block: u64) {
    let at = FILE.position_at(block * BLOCK as u64);
    start_write(disk, at, 7, Durability::AfterFlush);
    result(disk).unwrap();
}

fn flush(disk: &mut MemoryDisk) -> Result<(), DiskError> {
    disk.start_flush(0, FILE);
    result(disk)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum BlockContent {
    Kept,
    Torn,
    Lost,
}

use BlockContent::{Kept, Lost, Torn};

fn read_block(disk: &MemoryDisk, block: usize) -> BlockContent {
    found_in(disk, FILE, block)
}

fn found_in(disk: &MemoryDisk, file: FileId, block: usize) -> BlockContent {
    let bytes = disk.bytes(file).unwrap();
    let sectors = bytes[block * BLOCK..][..BLOCK].chunks(SECTOR);
    let mut kept = 0;
    for sector in sectors {
        assert!(sector.iter().all(|byte| *byte == sector[0]), "a sector is old or new");
        kept += usize::from(sector[0] == 7);
    }
    match kept {
        0 => Lost,
        kept if kept == BLOCK / SECTOR => Kept,
        _ => Torn,
    }
}

/// Returns the states in which `block` can be found after a crash.
fn after_crash(block: usize, before: impl Fn(&mut MemoryDisk)) -> BTreeSet<BlockContent> {
    let run = |seed| {
        let mut disk = disk();
        before(&mut disk);
        disk.crash(seed);
        read_block(&disk, block)
    };
    (0..SEEDS).map(run).collect()
}

#[test]
fn deferred_write_may_be_kept_torn_or_lost_until_flushed() {
    let any = BTreeSet::from([Kept, Torn, Lost]);
    assert_eq!(after_crash(0, |disk| write_later(disk, 0)), any);
    let in_flight = |disk: &mut MemoryDisk| {
        disk.set_manual_completion(true);
        start_write(disk, FILE.position_at(0), 7, Durability::AfterFlush);
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
        disk.set_manual_completion(true);
        disk.start_flush(0, FILE);
        start_write(disk, FILE.position_at(BLOCK as u64), 7, Durability::AfterFlush);
        let [flush, write] = disk.pending()[..] else { panic!() };
        assert!(disk.complete(write.id) && disk.complete(flush.id));
        assert!(result(disk).is_ok() && result(disk).is_ok());
    };
    assert_eq!(after_crash(0, overtaken), [Kept].into());
    assert_eq!(after_crash(1, overtaken), [Kept, Torn, Lost].into());
    let other = |disk: &mut MemoryDisk| {
        write_later(disk, 0);
        disk.start_prepare(FileId::new(Family::Log, 1), BLOCK as u64, ZeroFill::Written);
        result(disk).unwrap();
        disk.start_flush(0, FileId::new(Family::Log, 1));
        result(disk).unwrap();
    };
    let found = after_crash(0, other);
    assert_eq!(found, [Kept, Torn, Lost].into(), "another file's flush");
}

/// After a failed flush, a later one proves nothing: the kernel drops data that it failed to write,
/// and does not report it again.
#[test]
fn flush_after_a_failed_one_proves_nothing() {
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
fn deferred_write_kept_by_one_crash_may_be_lost_in_the_next() {
    let kept = |synced: bool| {
        move |disk: &mut MemoryDisk| {
            // The first seed that keeps the write.
            let seed = (0..).find(|seed| {
                let mut other = self::disk();
                write_later(&mut other, 0);
                other.crash(*seed);
                read_block(&other, 0) == Kept
            });
            write_later(disk, 0);
            disk.crash(seed.unwrap());
            *disk = disk.reopen_after_crash();
            assert_eq!(read_block(disk, 0), Kept);
            if synced {
                disk.sync_now(FILE).unwrap();
            }
        }
    };
    assert_eq!(after_crash(0, kept(false)), [Kept, Torn, Lost].into());
    assert_eq!(after_crash(0, kept(true)), [Kept].into());
}

#[test]
fn file_being_retired_may_survive_a_crash_until_completion() {
    let there = |complete: bool| {
        (0..SEEDS).map(move |seed| {
            let mut disk = disk();
            disk.set_manual_completion(!complete);
            disk.start_retire(FILE);
            assert_eq!(disk.poll().is_some(), complete);
            disk.crash(seed);
            let files = disk.reopen_after_crash().files(Family::Snapshot).unwrap();
            !files.is_empty()
        })
    };
    let set = |there: &mut dyn Iterator<Item = bool>| there.collect::<BTreeSet<_>>();
    assert_eq!(set(&mut there(false)), [false, true].into());
    assert_eq!(set(&mut there(true)), [false].into());
}

#[test]
fn file_that_cannot_be_retired_stays() {
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
fn each_change_is_a_step_and_a_dead_disk_changes_nothing() {
    let mut disk = disk();
    let before = disk.stored_change_count();
    write_later(&mut disk, 0);
    flush(&mut disk).unwrap();
    assert_eq!(disk.stored_change_count(), before + 2);
    disk.die_after_changes(1);
    write_later(&mut disk, 1);
    assert!(!disk.is_alive());
    disk.start_flush(0, FILE);
    disk.start_retire(FILE);
    assert!(disk.pending().is_empty() && disk.poll().is_none());
    assert!(disk.sync_now(FILE).is_err() && disk.open_next_file(FILE).is_err());
    assert!(
        disk.files(Family::Snapshot).is_err() && disk.newest_created(Family::Snapshot).is_err()
    );
    disk.crash(0);
    assert!(disk.reopen_after_crash().is_alive());
}

#[test]
fn writes_in_flight_at_death_are_settled_by_the_crash() {
    let dies = |disk: &mut MemoryDisk| {
        disk.set_manual_completion(true);
        start_write(disk, FILE.position_at(0), 7, Durability::Flushed);
        start_write(disk, FILE.position_at(BLOCK as u64), 7, Durability::Flushed);
        let ids: Vec<_> = disk.pending().iter().map(|pending| pending.id).collect();
        disk.die_after_changes(1);
        assert!(disk.complete(ids[0]) && !disk.complete(ids[1]));
        disk.complete_all();
    };
    assert_eq!(after_crash(0, dies), [Kept].into());
    assert_eq!(after_crash(1, dies), [Kept, Torn, Lost].into());
}

const AGAIN: FileId = FileId::new(Family::Snapshot, 2);

/// Returns the possible sets of names after a crash, and whether block 0 is found under the new
/// name.
fn names_after(before: impl Fn(&mut MemoryDisk)) -> BTreeSet<(Vec<u64>, BlockContent)> {
    let run = |seed| {
        let mut disk = disk();
        before(&mut disk);
        disk.crash(seed);
        let mut disk = disk.reopen_after_crash();
        let files = disk.files(Family::Snapshot).unwrap();
        let files: Vec<_> = files.iter().map(|info| info.file).collect();
        let found = found_in(&disk, files[0], 0);
        (files.iter().map(|file| file.number).collect(), found)
    };
    (0..SEEDS).map(run).collect()
}

/// [disk-10] Until the folder is synced, a crash after a rename may leave either name.
#[test]
fn renamed_file_may_have_either_name_until_the_folder_sync() {
    let write = |disk: &mut MemoryDisk, file: FileId| {
        start_write(disk, file.position_at(0), 7, Durability::Flushed);
        result(disk).unwrap();
    };
    let (old, new) = (vec![1], vec![2]);
    let either = BTreeSet::from([(old.clone(), Kept), (new.clone(), Kept)]);
    let in_flight = |disk: &mut MemoryDisk| {
        write(disk, FILE);
        disk.set_manual_completion(true);
        disk.start_reuse(FILE, AGAIN);
    };
    assert_eq!(names_after(in_flight), either);
    let failed = |disk: &mut MemoryDisk| {
        write(disk, FILE);
        disk.inject(Fault::ReuseFails { renamed: true });
        disk.start_reuse(FILE, AGAIN);
        result(disk).unwrap_err();
    };
    assert_eq!(names_after(failed), either);
    let unsynced = |disk: &mut MemoryDisk| {
        disk.skip_folder_syncs(true);
        disk.start_reuse(FILE, AGAIN);
        result(disk).unwrap();
        // The write is durable under either name.
        write(disk, AGAIN);
    };
    assert_eq!(names_after(unsynced), either);
    let synced = |disk: &mut MemoryDisk| {
        failed(disk);
        disk.sync_file_names().unwrap();
    };
    assert_eq!(names_after(synced), [(new.clone(), Kept)].into());
    let reused = |disk: &mut MemoryDisk| {
        disk.start_reuse(FILE, AGAIN);
        result(disk).unwrap();
        write(disk, AGAIN);
    };
    assert_eq!(names_after(reused), [(new, Kept)].into());
    let refused = |disk: &mut MemoryDisk| {
        disk.inject(Fault::ReuseFails { renamed: false });
        disk.start_reuse(FILE, AGAIN);
        result(disk).unwrap_err();
        disk.set_read_only(true);
        disk.start_reuse(FILE, AGAIN);
        result(disk).unwrap_err();
    };
    assert_eq!(names_after(refused), [(old, Lost)].into());
}

#[test]
fn reused_file_keeps_old_sectors_until_overwritten() {
    let torn = |disk: &mut MemoryDisk| {
        disk.start_reuse(FILE, AGAIN);
        result(disk).unwrap();
        for block in 0..2 {
            start_write(disk, AGAIN.position_at(block * BLOCK as u64), 7, Durability::Flushed);
            result(disk).unwrap();
        }
        disk.start_reuse(AGAIN, FILE);
        result(disk).unwrap();
        disk.set_manual_completion(true);
        start_write(disk, FILE.position_at(0), 0, Durability::Flushed);
    };
    assert_eq!(after_crash(0, torn), [Kept, Torn, Lost].into());
    assert_eq!(after_crash(1, torn), [Kept].into());
}

#[test]
fn small_file_in_flight_is_old_or_new_even_after_two_crashes() {
    let keep = |disk: &mut MemoryDisk, contents: &[u8]| {
        disk.start_replace_small_file(3, "base", contents.to_vec());
    };
    let after = |crashes: u64, synced: bool| {
        let run = |seed: u64| {
            let mut disk = disk();
            keep(&mut disk, b"old");
            result(&mut disk).unwrap();
            disk.set_manual_completion(true);
            keep(&mut disk, b"new");
            // This seed keeps the new contents.
            for crash in 0..crashes {
                disk.crash(if crash + 1 < crashes { 1 } else { seed });
                disk = disk.reopen_after_crash();
                if crash + 1 < crashes {
                    assert_eq!(disk.read_small_file("base").unwrap().unwrap(), b"new");
                    if synced {
                        disk.sync_file_names().unwrap();
                    }
                }
            }
            disk.read_small_file("base").unwrap().unwrap()
        };
        (0..SEEDS).map(run).collect::<BTreeSet<_>>()
    };
    let (old, new) = (b"old".to_vec(), b"new".to_vec());
    assert_eq!(after(1, false), [old.clone(), new.clone()].into());
    assert_eq!(after(2, false), [old, new.clone()].into());
    assert_eq!(after(2, true), [new].into());
}

#[test]
fn copies_of_a_disk_crash_alike_but_are_independent() {
    let mut disk = disk();
    disk.set_manual_completion(true);
    start_write(&mut disk, FILE.position_at(0), 7, Durability::Flushed);
    disk.start_replace_small_file(1, "base", b"new".to_vec());
    let mut outcomes = BTreeSet::new();
    for seed in 0..SEEDS {
        let (one, two) = (disk.copy(), disk.copy());
        assert_eq!(one.crash(seed), two.crash(seed));
        let base = one.reopen_after_crash().read_small_file("base").unwrap();
        assert_eq!(base, two.reopen_after_crash().read_small_file("base").unwrap());
        assert_eq!(one.bytes(FILE), two.bytes(FILE));
        outcomes.insert((read_block(&one, 0), base.is_some()));
    }
    assert_eq!(outcomes.len(), 6);
    assert_eq!((read_block(&disk, 0), disk.pending().len()), (Lost, 2));
}
