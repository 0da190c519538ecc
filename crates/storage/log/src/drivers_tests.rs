//! Tests of the log on real files, with either driver.

use std::time::Duration;

use crate::disk::{DriverChoice, FileDisk, open};
use quorate_core::{
    node_id::{Incarnation, NodeId},
    record::{Record, RecordSeq},
    slot::{Slot, SlotRange},
};
use rustix::event::{PollFd, PollFlags, poll};

use crate::{Log, LogOptions, log_tests};

/// A log that is killed and restarted on the other driver reads what was written before.
#[test]
fn log_can_be_reopened_with_another_driver() {
    let folder = tempfile::tempdir().unwrap();
    let options =
        LogOptions { segment_bytes: 256 << 10, ..LogOptions::new(7, NodeId(1), Incarnation(0)) };
    let options = LogOptions { write_bytes_max: 64 << 10, ..options };
    let mut slot = 1;
    for want in [DriverChoice::Auto, DriverChoice::File, DriverChoice::Auto, DriverChoice::File] {
        let (disk, reason) = open(folder.path(), want).unwrap();
        println!("{reason}");
        let (mut log, recovery) = Log::open(disk, options).unwrap();
        assert_eq!((recovery.record_count, recovery.torn_tail_bytes), (slot - 1, 0));
        for seq in 1..=100 {
            let (value, bytes) = log_tests::value(slot, 3000);
            let range = SlotRange::one(Slot(slot));
            let record = Record::Vote { ballot: log_tests::ballot(1), range, value };
            slot += 1;
            let hard = log_tests::hard(1, slot);
            log.append(RecordSeq(seq), &record, &bytes, hard).unwrap();
            log.start_writes();
            log.poll().unwrap();
        }
        wait_for(&mut log, |log| log.is_idle());
        assert_eq!(log.poll(), Ok(RecordSeq(100)));
        assert_eq!(log.counters().writes, log.counters().flushes);
        log.start_read(1, SlotRange::new(Slot(1), Slot(slot)), usize::MAX).unwrap();
        wait_for(&mut log, |log| log.reads_idle());
        let values = log.next_read_done().unwrap().result.unwrap();
        assert_eq!(values.len() as u64, slot - 1);
        for (range, value, bytes) in values {
            assert_eq!((value, bytes), log_tests::stored(range.from.0, 3000));
        }
    }
}

/// A log that is trimmed continuously, killed and restarted recycles its files.
#[test]
fn trimmed_log_recycles_its_files() {
    let folder = tempfile::tempdir().unwrap();
    let options = LogOptions {
        segment_bytes: 64 << 10,
        write_bytes_max: 16 << 10,
        ..LogOptions::new(7, NodeId(1), Incarnation(0))
    };
    let mut slot = 1;
    let mut made = 0;
    for want in [DriverChoice::Auto, DriverChoice::File, DriverChoice::Auto, DriverChoice::File] {
        let (disk, _) = open(folder.path(), want).unwrap();
        let (mut log, recovery) = Log::open(disk, options).unwrap();
        assert_eq!((recovery.damage, recovery.torn_tail_bytes), (None, 0));
        let start = recovery.base.start.0;
        assert_eq!(recovery.base.start, Slot(slot.max(51) - 50));
        log.start_read(1, SlotRange::new(Slot(start), Slot(slot)), usize::MAX).unwrap();
        wait_for(&mut log, |log| log.reads_idle());
        let values = log.next_read_done().unwrap().result.unwrap();
        assert_eq!(values.len() as u64, slot - start);
        for (range, value, bytes) in values {
            assert_eq!((value, bytes), log_tests::stored(range.from.0, 3000));
        }
        for seq in 1..=200 {
            let (value, bytes) = log_tests::value(slot, 3000);
            let record = Record::Vote {
                ballot: log_tests::ballot(1),
                range: SlotRange::one(Slot(slot)),
                value,
            };
            slot += 1;
            let hard = log_tests::hard(slot - 1, slot);
            log.append(RecordSeq(seq), &record, &bytes, hard).unwrap();
            wait_for(&mut log, |log| log.is_idle());
            log.rebase(Slot(slot.max(51) - 50), Vec::new());
        }
        let last = Slot(slot - 50);
        wait_for(&mut log, |log| log.start() == last);
        let counters = log.counters();
        assert_eq!((counters.writes, counters.flushes), (200, 200));
        made += counters.files_prepared;
        assert!(log.segments() <= 16, "{}", log.segments());
    }
    // 800 writes, 16 per segment.
    assert!(made < 25, "{made} segments were made");
}

fn wait_for(log: &mut Log<FileDisk>, done: impl Fn(&Log<FileDisk>) -> bool) {
    loop {
        log.start_writes();
        log.poll().unwrap();
        if done(log) {
            return;
        }
        let fd = log.wait_fd().unwrap();
        let mut fds = [PollFd::new(&fd, PollFlags::IN)];
        let limit = Duration::from_secs(20).try_into().unwrap();
        assert!(poll(&mut fds, Some(&limit)).unwrap() > 0, "nothing completes");
    }
}
