//! Both drivers behave the same: the same log, the same files, the same errors.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read as _, Write as _},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

use rustix::event::{PollFd, PollFlags, poll};

use crate::disk::{
    BLOCK, Buffer, Buffers, Completed, Disk, DiskError, DriverChoice, Durability, Family, FileId,
    MemoryDisk, OPERATIONS_MAX, Position, Source as _, ZeroFill, open, open_with,
};

fn log(number: u64) -> FileId {
    FileId::new(Family::Log, number)
}
/// Runs a test on each driver that this machine supports; reports a missing one.
fn on_each_driver(test: impl Fn(&Path, DriverChoice)) {
    for want in [DriverChoice::Uring, DriverChoice::File] {
        let folder = tempfile::tempdir().unwrap();
        match open(folder.path(), want) {
            Ok((disk, reason)) => {
                println!("{reason}");
                drop(disk);
                test(folder.path(), want);
            }
            Err(error)
                if want == DriverChoice::Uring && error.kind == io::ErrorKind::Unsupported =>
            {
                println!("SKIPPED: no io_uring here: {error}");
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Runs a test on each driver, on a disk in memory, and on one with slow flushes.
fn on_each_disk(test: impl Fn(&mut dyn Disk)) {
    on_each_driver(|folder, want| {
        let (mut disk, _) = open(folder, want).unwrap();
        test(&mut disk);
    });
    let folder = tempfile::tempdir().unwrap();
    let (disk, _) = open(folder.path(), DriverChoice::Auto).unwrap();
    test(&mut disk.with_min_flush_time(Duration::from_millis(1)).unwrap());
    test(&mut MemoryDisk::new());
}

/// Operations beyond the number that the device accepts at a time are queued, for all file families
/// together, and complete.
#[test]
fn operations_beyond_the_device_limit_all_complete() {
    on_each_disk(|disk| {
        prepare(disk, log(1));
        let asked = 3 * OPERATIONS_MAX as u64;
        let at = |token: u64| log(1).position_at(token % 16 * BLOCK as u64);
        for token in 0..asked {
            let buffer = Buffer::new(BLOCK);
            disk.start_read(token, at(token), buffer, BLOCK);
        }
        let mut open: BTreeMap<_, _> = (0..asked).map(|token| (token, at(token))).collect();
        while !open.is_empty() {
            let Completed::Read { token, result, .. } = wait(disk) else { panic!() };
            assert_eq!(result, Ok(()));
            assert!(open.remove(&token).is_some(), "{token}");
        }
    });
}

/// Waits for a completion as a reactor does.
fn wait(disk: &mut dyn Disk) -> Completed {
    loop {
        if let Some(completed) = disk.poll() {
            return completed;
        }
        let fd = disk.wait_fd().expect("nothing completes");
        let mut fds = [PollFd::new(&fd, PollFlags::IN)];
        let limit = Duration::from_secs(20).try_into().unwrap();
        assert!(poll(&mut fds, Some(&limit)).unwrap() > 0, "nothing completes");
    }
}

fn prepare(disk: &mut dyn Disk, file: FileId) {
    prepare_with(disk, file, ZeroFill::Written);
}

fn prepare_with(disk: &mut dyn Disk, file: FileId, zeros: ZeroFill) {
    disk.start_prepare(file, 16 * BLOCK as u64, zeros);
    match wait(disk) {
        Completed::Prepared { file: made, result } => {
            assert_eq!((made, result), (file, Ok(())));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn written_bytes_are_read_back() {
    check_written_bytes_are_read_back(ZeroFill::Written);
}

#[test]
fn bytes_written_into_reserved_blocks_are_read_back() {
    check_written_bytes_are_read_back(ZeroFill::Reserved);
}

fn check_written_bytes_are_read_back(zeros: ZeroFill) {
    on_each_driver(|folder, want| {
        let (mut disk, _) = open(folder, want).unwrap();
        assert_eq!(disk.files(Family::Log), Ok(vec![]));
        prepare_with(&mut disk, log(3), zeros);
        let mut all = Buffer::new(16 * BLOCK);
        all.fill(1);
        let start = log(3).position_at(0);
        disk.read_now(start, &mut all, 16 * BLOCK).unwrap();
        assert!(all.iter().all(|byte| *byte == 0), "all zeros, either way");
        assert_eq!(disk.files(Family::Log).unwrap()[0].bytes, 16 * BLOCK as u64);
        let mut expected = BTreeMap::new();
        for token in 0..8_u8 {
            let mut buffer = disk.allocate(1 << 20);
            buffer[..2 * BLOCK].fill(token + 1);
            let at = log(3).position_at(u64::from(token) * 2 * BLOCK as u64);
            expected.insert(u64::from(token), at);
            disk.start_write(u64::from(token), at, buffer.into(), 2 * BLOCK, Durability::Flushed);
        }
        let mut open_tokens = expected.clone();
        while !open_tokens.is_empty() {
            let Completed::Written { token, output, result, .. } = wait(&mut disk) else {
                panic!()
            };
            assert_eq!(result, Ok(()));
            assert!(open_tokens.remove(&token).is_some());
            disk.release(output.into_buffer().unwrap());
        }
        let counters = disk.counters();
        assert_eq!((counters.writes, counters.flushes), (8, 8));
        assert_eq!(counters.write_bytes, 16 * BLOCK as u64);
        assert_eq!(counters.flush_times.count, 8);
        assert!(counters.flush_times.sum_us > 0);
        for (token, at) in expected {
            let buffer = Buffer::new(2 * BLOCK);
            disk.start_read(token, at, buffer, 2 * BLOCK);
            let Completed::Read { token: read, buffer, result, .. } = wait(&mut disk) else {
                panic!()
            };
            assert_eq!((read, result), (token, Ok(())));
            assert!(buffer.iter().all(|byte| u64::from(*byte) == token + 1));
        }
        assert!(disk.free_bytes(Family::Log).unwrap() > 0);
    });
}

#[test]
fn errors_name_the_operation_and_the_file() {
    on_each_driver(|folder, want| {
        let (mut disk, _) = open(folder, want).unwrap();
        prepare(&mut disk, log(1));
        let at = log(1).position_at(16 * BLOCK as u64);
        disk.start_read(1, at, Buffer::new(BLOCK), BLOCK);
        let Completed::Read { result, .. } = wait(&mut disk) else { panic!() };
        assert_eq!(result.unwrap_err().kind, io::ErrorKind::WriteZero, "behind the end");
        let missing = log(9).position_at(0);
        disk.start_write(2, missing, Buffer::new(BLOCK).into(), BLOCK, Durability::Flushed);
        let Completed::Written { result, .. } = wait(&mut disk) else { panic!() };
        let error = result.unwrap_err();
        assert_eq!(error.kind, io::ErrorKind::NotFound);
        assert!(error.to_string().contains("0000000000000009.segment"), "{error}");
        disk.start_prepare(log(2), 1 << 60, ZeroFill::Written);
        let Completed::Prepared { result, .. } = wait(&mut disk) else { panic!() };
        let error = result.unwrap_err();
        assert!(error.to_string().contains("0000000000000002.segment"), "{error}");
        let names: Vec<_> = fs::read_dir(disk.path(Family::Log)).unwrap().collect();
        assert_eq!(names.len(), 1, "nothing is left of what could not be made: {names:?}");
    });
}

#[test]
fn second_opener_is_refused_and_leftovers_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let (disk, _) = open(folder.path(), DriverChoice::File).unwrap();
    let error = crate::disk::ReadOnlyFolder::open(folder.path()).unwrap_err();
    assert!(error.to_string().contains("another process"), "{error}");
    fs::write(disk.path(Family::Log).join("0000000000000005.segment.new"), "x").unwrap();
    drop(disk);
    let (mut disk, _) = open(folder.path(), DriverChoice::File).unwrap();
    assert_eq!(disk.files(Family::Log), Ok(vec![]));
    assert_eq!(fs::read_dir(disk.path(Family::Log)).unwrap().count(), 0);
}

/// A file system without O_DIRECT, as /dev/shm may be, is supported.
#[test]
fn file_system_in_memory_is_supported() {
    let Ok(folder) = tempfile::tempdir_in("/dev/shm") else {
        println!("SKIPPED: no /dev/shm to write to");
        return;
    };
    let (disk, reason) = open(folder.path(), DriverChoice::Auto).unwrap();
    println!("{reason}");
    let mut disk = disk;
    prepare(&mut disk, log(1));
    let mut buffer = disk.allocate(BLOCK);
    buffer.fill(7);
    disk.start_write(1, log(1).position_at(0), buffer.into(), BLOCK, Durability::Flushed);
    let Completed::Written { result, .. } = wait(&mut disk) else { panic!() };
    assert_eq!(result, Ok(()));
}

const OTHER: FileId = FileId::new(Family::Snapshot, 1);

fn write(disk: &mut dyn Disk, at: Position, byte: u8, durability: Durability) {
    let mut buffer = disk.allocate(BLOCK);
    buffer.fill(byte);
    disk.start_write(u64::from(byte), at, buffer.into(), BLOCK, durability);
    match wait(disk) {
        Completed::Written { token, file, durability: done, output, result } => {
            assert_eq!((token, result), (u64::from(byte), Ok(())));
            assert_eq!((file, done), (at.file, durability));
            disk.release(output.into_buffer().unwrap());
        }
        other => panic!("{other:?}"),
    }
}

fn read(disk: &mut dyn Disk, at: Position) -> Result<u8, DiskError> {
    let buffer = disk.allocate(BLOCK);
    disk.start_read(9, at, buffer, BLOCK);
    match wait(disk) {
        Completed::Read { token, file, buffer, result } => {
            assert_eq!((token, file), (9, at.file));
            let byte = buffer[0];
            assert!(result.is_err() || buffer[..BLOCK].iter().all(|other| *other == byte));
            disk.release(buffer);
            result.map(|()| byte)
        }
        other => panic!("{other:?}"),
    }
}

fn flush(disk: &mut dyn Disk, file: FileId) -> Result<(), DiskError> {
    disk.start_flush(77, file);
    match wait(disk) {
        Completed::Flushed { token, file: flushed, result } => {
            assert_eq!((token, flushed), (77, file));
            result
        }
        other => panic!("{other:?}"),
    }
}

fn retire(disk: &mut dyn Disk, file: FileId) -> Result<(), DiskError> {
    disk.start_retire(file);
    match wait(disk) {
        Completed::Retired { file: retired, result } => {
            assert_eq!(retired, file);
            result
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn families_on_one_disk_are_independent() {
    on_each_disk(|disk| {
        prepare(disk, log(1));
        prepare(disk, log(2));
        prepare(disk, OTHER);
        for (file, byte) in [(log(1), 1), (OTHER, 2)] {
            disk.open_next_file(file).unwrap();
            write(disk, file.position_at(0), byte, Durability::Flushed);
        }
        assert_eq!(read(disk, log(1).position_at(0)), Ok(1));
        assert_eq!(read(disk, OTHER.position_at(0)), Ok(2));
        let made = |disk: &mut dyn Disk, family| disk.newest_created(family).unwrap().unwrap();
        assert_eq!(made(disk, Family::Log), log(2));
        assert_eq!(made(disk, Family::Snapshot), OTHER);
        let files = |disk: &mut dyn Disk, family| {
            let files = disk.files(family).unwrap();
            files.iter().map(|info| info.file).collect::<Vec<_>>()
        };
        assert_eq!(files(disk, Family::Log), [log(1), log(2)]);
        assert_eq!(files(disk, Family::Snapshot), [OTHER]);
    });
}

#[test]
fn deferred_write_needs_no_flush_until_one_is_requested() {
    on_each_disk(|disk| {
        prepare(disk, OTHER);
        let before = disk.counters();
        write(disk, OTHER.position_at(0), 1, Durability::AfterFlush);
        write(disk, OTHER.position_at(BLOCK as u64), 2, Durability::AfterFlush);
        assert_eq!(read(disk, OTHER.position_at(0)), Ok(1), "seen before it is durable");
        let after = disk.counters();
        assert_eq!(after.writes - before.writes, 2);
        assert_eq!(after.flushes, before.flushes);
        flush(disk, OTHER).unwrap();
        assert_eq!(disk.counters().flushes, before.flushes + 1);
        assert_eq!(read(disk, OTHER.position_at(BLOCK as u64)), Ok(2));
        let error = flush(disk, log(9)).unwrap_err();
        assert_eq!(error.kind, io::ErrorKind::NotFound, "{error}");
    });
}

#[test]
fn retired_file_is_removed_and_others_stay() {
    on_each_disk(|disk| {
        prepare(disk, log(1));
        prepare(disk, OTHER);
        write(disk, log(1).position_at(0), 1, Durability::Flushed);
        write(disk, OTHER.position_at(0), 2, Durability::Flushed);
        assert_eq!(read(disk, log(1).position_at(0)), Ok(1));
        assert!(disk.descriptor(log(1)).is_ok());
        retire(disk, log(1)).unwrap();
        assert_eq!(disk.files(Family::Log), Ok(vec![]));
        assert!(read(disk, log(1).position_at(0)).is_err(), "it is not kept open");
        assert!(!matches!(disk.descriptor(log(1)), Ok(Some(_))));
        assert!(disk.open_next_file(log(1)).is_err());
        let error = retire(disk, log(1)).unwrap_err();
        assert_eq!(error.kind, io::ErrorKind::NotFound, "{error}");
        assert_eq!(read(disk, OTHER.position_at(0)), Ok(2));
        let made = disk.newest_created(Family::Log).unwrap();
        assert_eq!(made, Some(log(1)), "that it was made is not forgotten");
    });
}

/// Bytes received from a socket are written from where they arrived, and sent to another socket
/// without a copy.
#[test]
fn received_bytes_are_written_and_sent_without_a_copy() {
    on_each_driver(|folder, want| {
        let (mut disk, _) = open(folder, want).unwrap();
        prepare(&mut disk, OTHER);
        let sent: Vec<u8> = (0..2 * BLOCK).map(|at| (at % 251) as u8).collect();
        let (mut from, mut to) = UnixStream::pair().unwrap();
        from.write_all(&sent).unwrap();
        let mut buffer = disk.allocate(1 << 20);
        let (lies, registered) = (buffer.as_ptr(), buffer.registered_index());
        to.read_exact(&mut buffer[..2 * BLOCK]).unwrap();
        disk.start_write(1, OTHER.position_at(0), buffer.into(), 2 * BLOCK, Durability::AfterFlush);
        let Completed::Written { output, result, .. } = wait(&mut disk) else { panic!() };
        let buffer = output.into_buffer().unwrap();
        assert_eq!(result, Ok(()));
        assert_eq!(
            (buffer.as_ptr(), buffer.registered_index()),
            (lies, registered),
            "the same memory comes back"
        );
        assert_eq!(buffer[..2 * BLOCK], sent);
        disk.release(buffer);
        assert_eq!(disk.allocate(BLOCK).as_ptr(), lies, "and is used again");
        flush(&mut disk, OTHER).unwrap();
        let file = disk.descriptor(OTHER).unwrap().expect("a real file");
        let mut offset = 10;
        let count = rustix::fs::sendfile(&from, file, Some(&mut offset), BLOCK).unwrap();
        assert_eq!((count, offset), (BLOCK, 10 + BLOCK as u64));
        let mut received = vec![0; BLOCK];
        to.read_exact(&mut received).unwrap();
        assert_eq!(received, sent[10..10 + BLOCK]);
    });
}

#[test]
fn registered_buffers_match_the_request_or_say_why_not() {
    let count = |count, bytes| Buffers { preallocated_count: count, bytes };
    let refused = "no registered buffers: ";
    for (buffers, told) in [
        (count(2, 8 * BLOCK), "2 registered buffers"),
        (count(u16::MAX, BLOCK), refused),
        (count(0, 0), refused),
    ] {
        on_each_driver(|folder, want| {
            let (mut disk, reason) = open_with(folder, want, buffers).unwrap();
            assert!(want == DriverChoice::File || reason.contains(told), "{reason}");
            prepare(&mut disk, log(1));
            for block in 0..4 {
                write(&mut disk, log(1).position_at(block * BLOCK as u64), 5, Durability::Flushed);
            }
            assert_eq!(read(&mut disk, log(1).position_at(0)), Ok(5));
        });
    }
}

/// [disk-10] A reused file has a new name and its old contents.
#[test]
fn reused_file_has_a_new_name_and_its_old_contents() {
    on_each_disk(|disk| {
        prepare(disk, log(1));
        prepare(disk, log(2));
        disk.open_next_file(log(1)).unwrap();
        for block in 0..3 {
            write(disk, log(1).position_at(block * BLOCK as u64), 7, Durability::Flushed);
        }
        assert_eq!(read(disk, log(1).position_at(0)), Ok(7));
        let _ = disk.descriptor(log(1)).unwrap();
        let prepared = disk.counters().files_prepared;
        disk.start_reuse(log(1), log(3));
        match wait(disk) {
            Completed::Prepared { file, result } => assert_eq!((file, result), (log(3), Ok(()))),
            other => panic!("{other:?}"),
        }
        assert_eq!(disk.counters().files_prepared, prepared, "none was made");
        let files = disk.files(Family::Log).unwrap();
        let files: Vec<_> = files.iter().map(|info| (info.file, info.bytes)).collect();
        let bytes = 16 * BLOCK as u64;
        assert_eq!(files, [(log(2), bytes), (log(3), bytes)]);
        assert_eq!(disk.newest_created(Family::Log).unwrap(), Some(log(3)));
        assert!(read(disk, log(1).position_at(0)).is_err(), "the old name is gone");
        assert!(disk.open_next_file(log(1)).is_err());
        assert!(!matches!(disk.descriptor(log(1)), Ok(Some(_))));
        disk.open_next_file(log(3)).unwrap();
        write(disk, log(3).position_at(BLOCK as u64), 8, Durability::Flushed);
        let found = [0, 1, 2].map(|block| read(disk, log(3).position_at(block * BLOCK as u64)));
        assert_eq!(found, [Ok(7), Ok(8), Ok(7)]);
        disk.start_reuse(log(1), log(4));
        let Completed::Prepared { file, result } = wait(disk) else { panic!() };
        let error = result.unwrap_err();
        assert_eq!((file, error.kind), (log(4), io::ErrorKind::NotFound));
        assert_eq!(disk.newest_created(Family::Log).unwrap(), Some(log(3)));
    });
}

/// Operators read these counters to see whether commits wait for the disk. No commit waits for a
/// snapshot.
#[test]
fn only_log_files_count_as_segments() {
    on_each_disk(|disk| {
        let counted = |disk: &mut dyn Disk, family| {
            let before = disk.counters();
            let file = FileId { family, number: 1 };
            prepare(disk, file);
            disk.hurry_file_creation(family);
            let after = disk.counters();
            (
                after.files_prepared - before.files_prepared,
                after.segment_waits - before.segment_waits,
            )
        };
        assert_eq!(counted(disk, Family::Snapshot), (0, 0));
        assert_eq!(counted(disk, Family::Log), (1, 1));
    });
}

/// Repeats a rename that succeeded although the disk was then too full to record the number.
#[test]
fn repeated_rename_of_a_renamed_file_succeeds() {
    on_each_driver(|folder, want| {
        let (mut disk, _) = open(folder, want).unwrap();
        prepare(&mut disk, log(1));
        write(&mut disk, log(1).position_at(0), 7, Durability::Flushed);
        let ended = |disk: &mut dyn Disk| {
            disk.start_reuse(log(1), log(2));
            let Completed::Prepared { result, .. } = wait(disk) else { panic!() };
            result
        };
        // Blocks the creation of the temporary file.
        let temporary = folder.join("segments.new");
        fs::create_dir(&temporary).unwrap();
        ended(&mut disk).unwrap_err();
        fs::remove_dir(&temporary).unwrap();
        assert_eq!(ended(&mut disk), Ok(()));
        assert_eq!(disk.newest_created(Family::Log), Ok(Some(log(2))));
        assert_eq!(read(&mut disk, log(2).position_at(0)), Ok(7));
    });
}

/// A small file is replaced as a whole, and does not wait while a segment is being created.
#[test]
fn small_file_is_replaced_whole_without_waiting_for_a_segment() {
    on_each_disk(|disk| {
        assert_eq!(disk.read_small_file("base"), Ok(None));
        disk.start_prepare(log(1), 64 << 20, ZeroFill::Written);
        let mut made = false;
        for (token, contents) in [(5, &b"long contents"[..]), (6, b""), (7, b"short")] {
            disk.start_replace_small_file(token, "base", contents.to_vec());
            disk.pace_file_creation(Family::Log, 0);
            loop {
                match wait(disk) {
                    Completed::SmallFileReplaced { token: kept, name, result } => {
                        assert_eq!((kept, name, result), (token, "base", Ok(())));
                        break;
                    }
                    Completed::Prepared { result, .. } => {
                        result.unwrap();
                        made = true;
                    }
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(disk.read_small_file("base").unwrap().unwrap(), contents);
        }
        assert_eq!(disk.read_small_file("other"), Ok(None));
        assert_eq!(disk.sync_file_names(), Ok(()));
        disk.hurry_file_creation(Family::Log);
        if !made {
            assert!(matches!(wait(disk), Completed::Prepared { .. }));
        }
    });
}

#[test]
fn failure_to_replace_a_small_file_is_reported() {
    on_each_driver(|folder, want| {
        let (mut disk, _) = open(folder, want).unwrap();
        fs::create_dir(folder.join("base")).unwrap();
        disk.start_replace_small_file(1, "base", b"x".to_vec());
        let Completed::SmallFileReplaced { token, result, .. } = wait(&mut disk) else { panic!() };
        let error = result.unwrap_err();
        assert_eq!(token, 1);
        assert!(error.to_string().starts_with("rename to "), "{error}");
        assert!(disk.read_small_file("base").is_err());
    });
}

/// After an interrupted two-step rename, the older of both names is removed.
#[test]
fn older_of_two_names_of_a_file_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let (mut disk, _) = open(folder.path(), DriverChoice::File).unwrap();
    for number in 1..=3 {
        prepare(&mut disk, log(number));
    }
    let name = |number: u64| disk.path(Family::Log).join(format!("{number:016x}.segment"));
    fs::hard_link(name(1), name(9)).unwrap();
    // A hard link outside the folder does not count.
    fs::hard_link(name(2), folder.path().join("copy")).unwrap();
    drop(disk);
    let (mut disk, _) = open(folder.path(), DriverChoice::File).unwrap();
    let files = disk.files(Family::Log).unwrap();
    let files: Vec<_> = files.iter().map(|info| info.file.number).collect();
    assert_eq!(files, [2, 3, 9]);
}

/// `quorate log` reads the folder of an earlier version.
#[test]
fn folder_without_snapshots_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path(), DriverChoice::File).unwrap());
    fs::remove_dir(folder.path().join(Family::Snapshot.folder())).unwrap();
    let mut looked = crate::disk::ReadOnlyFolder::open(folder.path()).unwrap();
    assert_eq!(looked.files(Family::Snapshot), Ok(vec![]));
    assert_eq!(looked.files(Family::Log), Ok(vec![]));
    assert_eq!(looked.read_small_file("base"), Ok(None));
    fs::remove_dir(folder.path().join(Family::Log.folder())).unwrap();
    assert!(crate::disk::ReadOnlyFolder::open(folder.path()).is_err());
}
