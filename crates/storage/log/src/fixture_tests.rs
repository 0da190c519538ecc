//! Opens and continues a data folder from the version before logs could be trimmed.
//!
//! `testdata/formats/v1-folder` was written by that version, on real files, by two processes. The
//! first ended in a torn write, so the second continued in a new segment.

use std::{fs, path::Path};

use crate::disk::{DriverChoice, FileDisk, ReadOnlyFolder, open};
use quorate_core::{
    ballot::Era,
    configuration::Change,
    node_id::{Incarnation, Member, NodeId},
    record::{Record, RecordSeq},
    slot::{Slot, SlotRange},
    value::Value,
};

use crate::{
    Base, Log, LogOptions, Recovery,
    log_tests::{ballot, hard, stored, value},
    verify::verify,
};

fn options() -> LogOptions {
    LogOptions {
        segment_bytes: 16 << 10,
        write_bytes_max: 8 << 10,
        ..LogOptions::new(7, NodeId(1), Incarnation(0))
    }
}

fn open_in(folder: &Path) -> (Log<FileDisk>, Recovery) {
    let (disk, _) = open(folder, DriverChoice::File).unwrap();
    Log::open(disk, options()).unwrap()
}

fn settle(log: &mut Log<FileDisk>) {
    while !log.is_idle() {
        log.start_writes();
        log.poll().unwrap();
    }
}

fn vote(log: &mut Log<FileDisk>, slot: u64, decided_to: u64) {
    let (value, bytes) = value(slot, 600);
    let record = Record::Vote { ballot: ballot(1), range: SlotRange::one(Slot(slot)), value };
    let hard = hard(decided_to, slot + 1);
    log.append(RecordSeq(slot), &record, &bytes, hard).unwrap();
    settle(log);
}

const CHANGE: Value =
    Value::Reconfigure { era: Era(0), change: Change::Increment(Member::first(4)) };

#[test]
fn folder_from_before_the_base_file_is_opened_and_continued() {
    let fixture = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/formats/v1-folder"));
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("log")).unwrap();
    for entry in fs::read_dir(fixture.join("log")).unwrap() {
        let entry = entry.unwrap();
        let copy = folder.path().join("log").join(entry.file_name());
        fs::write(copy, fs::read(entry.path()).unwrap()).unwrap();
    }
    fs::copy(fixture.join("segments"), folder.path().join("segments")).unwrap();
    {
        // The folder can be inspected before it is opened.
        let mut source = ReadOnlyFolder::open(folder.path()).unwrap();
        let verified = verify(&mut source, None).unwrap();
        assert_eq!((verified.record_count, verified.start), (12, Slot(1)));
        assert_eq!((verified.next, verified.damaged), (Slot(13), vec![]));
    }
    let (mut log, recovery) = open_in(folder.path());
    assert_eq!(recovery.base, Base::default());
    assert_eq!((recovery.record_count, recovery.next_seq), (12, 13));
    assert_eq!((recovery.damage, recovery.torn_tail_bytes), (None, 0));
    assert_eq!(recovery.hard_state, hard(11, 13));
    assert_eq!(recovery.reconfigurations, [(Slot(1), CHANGE)]);
    let read = |log: &mut Log<FileDisk>, from| {
        let range = SlotRange::new(Slot(from), Slot(100));
        log.start_read(1, range, 1 << 20).unwrap();
        while !log.reads_idle() {
            log.poll().unwrap();
        }
        log.next_read_done().unwrap().result.unwrap()
    };
    assert_eq!(read(&mut log, 1).len(), 12);
    for slot in 13..60 {
        vote(&mut log, slot, slot - 1);
        if slot > 20 {
            log.rebase(Slot(slot - 5), b"note".to_vec());
        }
    }
    while log.start() < Slot(54) {
        log.poll().unwrap();
    }
    drop(log);
    let (mut log, recovery) = open_in(folder.path());
    assert_eq!((recovery.damage, recovery.torn_tail_bytes), (None, 0));
    assert_eq!(recovery.base.start, Slot(54));
    assert_eq!((recovery.hard_state, recovery.reconfigurations), (hard(58, 60), vec![]));
    for (range, found, bytes) in read(&mut log, 54) {
        assert_eq!((found, bytes), stored(range.from.0, 600));
    }
    let made = log.counters().files_prepared;
    assert_eq!(made, 0, "all that was needed was there");
}
