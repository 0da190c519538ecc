//! Both drivers do the same: the same log, the same files, the same errors.

use std::{collections::BTreeMap, fs, io, path::Path};

use rustix::event::{PollFd, PollFlags, poll};

use super::{BLOCK, Completed, Disk, FileDisk, Place, Segment, Source, Want, Zeros, open};
/// Runs a test on each driver that this machine has; says so if one is missing.
fn on_each_driver(test: impl Fn(&Path, Want)) {
    for want in [Want::Uring, Want::File] {
        let folder = tempfile::tempdir().unwrap();
        match open(folder.path(), want) {
            Ok((disk, reason)) => {
                println!("{reason}");
                drop(disk);
                test(folder.path(), want);
            }
            Err(error) if want == Want::Uring && error.kind == io::ErrorKind::Unsupported => {
                println!("SKIPPED: no io_uring here: {error}");
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Waits as a reactor does.
fn wait(disk: &mut FileDisk) -> Completed {
    loop {
        if let Some(completed) = disk.poll() {
            return completed;
        }
        let fd = disk.wait_fd().unwrap();
        let mut fds = [PollFd::new(&fd, PollFlags::IN)];
        let limit = std::time::Duration::from_secs(20).try_into().unwrap();
        assert!(
            poll(&mut fds, Some(&limit)).unwrap() > 0,
            "nothing completes"
        );
    }
}

fn prepare(disk: &mut FileDisk, segment: Segment) {
    prepare_with(disk, segment, Zeros::Written);
}

fn prepare_with(disk: &mut FileDisk, segment: Segment, zeros: Zeros) {
    disk.start_prepare(segment, 16 * BLOCK as u64, zeros);
    match wait(disk) {
        Completed::Prepared {
            segment: made,
            result,
        } => {
            assert_eq!((made, result), (segment, Ok(())));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_written_is_read_back() {
    what_is_written_is_read_back_with(Zeros::Written);
}

#[test]
fn what_is_written_into_reserved_blocks_is_read_back() {
    what_is_written_is_read_back_with(Zeros::Reserved);
}

fn what_is_written_is_read_back_with(zeros: Zeros) {
    on_each_driver(|folder, want| {
        let (mut disk, _) = open(folder, want).unwrap();
        assert_eq!(disk.segments(), Ok(vec![]));
        prepare_with(&mut disk, Segment(3), zeros);
        let mut all = super::Buffer::new(16 * BLOCK);
        all.fill(1);
        let start = Place {
            segment: Segment(3),
            offset: 0,
        };
        disk.read_now(start, &mut all, 16 * BLOCK).unwrap();
        assert!(all.iter().all(|byte| *byte == 0), "all zeros, either way");
        assert_eq!(disk.segments().unwrap()[0].bytes, 16 * BLOCK as u64);
        let mut expected = BTreeMap::new();
        for token in 0..8_u8 {
            let mut buffer = disk.allocate(1 << 20);
            buffer[..2 * BLOCK].fill(token + 1);
            let at = Place {
                segment: Segment(3),
                offset: u64::from(token) * 2 * BLOCK as u64,
            };
            expected.insert(u64::from(token), at);
            disk.start_write(u64::from(token), at, buffer, 2 * BLOCK);
        }
        let mut open_tokens = expected.clone();
        while !open_tokens.is_empty() {
            let Completed::Written {
                token,
                buffer,
                result,
            } = wait(&mut disk)
            else {
                panic!()
            };
            assert_eq!(result, Ok(()));
            assert!(open_tokens.remove(&token).is_some());
            disk.release(buffer);
        }
        let counters = disk.counters();
        assert_eq!((counters.writes, counters.flushes), (8, 8));
        assert_eq!(counters.write_bytes, 16 * BLOCK as u64);
        for (token, at) in expected {
            let buffer = super::Buffer::new(2 * BLOCK);
            disk.start_read(token, at, buffer, 2 * BLOCK);
            let Completed::Read {
                token: read,
                buffer,
                result,
            } = wait(&mut disk)
            else {
                panic!()
            };
            assert_eq!((read, result), (token, Ok(())));
            assert!(buffer.iter().all(|byte| u64::from(*byte) == token + 1));
        }
        assert!(disk.free_bytes().unwrap() > 0);
    });
}

#[test]
fn errors_name_the_operation_and_the_file() {
    on_each_driver(|folder, want| {
        let (mut disk, _) = open(folder, want).unwrap();
        prepare(&mut disk, Segment(1));
        let at = Place {
            segment: Segment(1),
            offset: 16 * BLOCK as u64,
        };
        disk.start_read(1, at, super::Buffer::new(BLOCK), BLOCK);
        let Completed::Read { result, .. } = wait(&mut disk) else {
            panic!()
        };
        assert_eq!(
            result.unwrap_err().kind,
            io::ErrorKind::WriteZero,
            "behind the end"
        );
        let missing = Place {
            segment: Segment(9),
            offset: 0,
        };
        disk.start_write(2, missing, super::Buffer::new(BLOCK), BLOCK);
        let Completed::Written { result, .. } = wait(&mut disk) else {
            panic!()
        };
        let error = result.unwrap_err();
        assert_eq!(error.kind, io::ErrorKind::NotFound);
        assert!(error.detail.contains("0000000000000009.segment"), "{error}");
        disk.start_prepare(Segment(2), 1 << 60, Zeros::Written);
        let Completed::Prepared { result, .. } = wait(&mut disk) else {
            panic!()
        };
        let error = result.unwrap_err();
        assert!(error.detail.contains("0000000000000002.segment"), "{error}");
        let names: Vec<_> = fs::read_dir(disk.path()).unwrap().collect();
        assert_eq!(
            names.len(),
            1,
            "nothing is left of what could not be made: {names:?}"
        );
    });
}

#[test]
fn a_second_opener_is_refused_and_leftovers_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let (disk, _) = open(folder.path(), Want::File).unwrap();
    let error = super::ReadOnlyFolder::open(folder.path()).unwrap_err();
    assert!(error.detail.contains("another process"), "{error}");
    fs::write(disk.path().join("0000000000000005.segment.new"), "x").unwrap();
    drop(disk);
    let (mut disk, _) = open(folder.path(), Want::File).unwrap();
    assert_eq!(disk.segments(), Ok(vec![]));
    assert_eq!(fs::read_dir(disk.path()).unwrap().count(), 0);
}

/// A file system without O_DIRECT, if /dev/shm is one, is served all the same.
#[test]
fn a_file_system_in_memory_is_served() {
    let Ok(folder) = tempfile::tempdir_in("/dev/shm") else {
        println!("SKIPPED: no /dev/shm to write to");
        return;
    };
    let (disk, reason) = open(folder.path(), Want::Auto).unwrap();
    println!("{reason}");
    let mut disk = disk;
    prepare(&mut disk, Segment(1));
    let mut buffer = disk.allocate(BLOCK);
    buffer.fill(7);
    disk.start_write(
        1,
        Place {
            segment: Segment(1),
            offset: 0,
        },
        buffer,
        BLOCK,
    );
    let Completed::Written { result, .. } = wait(&mut disk) else {
        panic!()
    };
    assert_eq!(result, Ok(()));
}
