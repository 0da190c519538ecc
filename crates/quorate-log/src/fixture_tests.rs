//! The data folder of the version before the log could be trimmed: opened, and gone on with.
//!
//! `testdata/formats/v1-folder` was written by that version, on real files: two lives, the first of
//! which ended in a torn write, so that the second went on in a fresh segment.

use std::{fs, path::Path};

use quorate_core::{
    ballot::Era,
    configuration::Change,
    node_id::{Incarnation, Member, NodeId},
    record::{Record, RecordSeq},
    slot::{Slot, SlotRange},
    value::Value,
};
use quorate_disk::{FileDisk, Want, open};

use crate::{
    Log, LogOptions, Recovery,
    log_tests::{ballot, hard, value},
};

fn options() -> LogOptions {
    LogOptions {
        segment_bytes: 16 << 10,
        write_bytes_max: 8 << 10,
        ..LogOptions::new(7, NodeId(1), Incarnation(0))
    }
}

fn open_in(folder: &Path) -> (Log<FileDisk>, Recovery) {
    let (disk, _) = open(folder, Want::File).unwrap();
    Log::open(disk, options()).unwrap()
}

fn settle(log: &mut Log<FileDisk>) {
    while !log.is_idle() {
        log.submit();
        log.poll().unwrap();
    }
}

fn vote(log: &mut Log<FileDisk>, slot: u64, decided_to: u64) {
    let (value, bytes) = value(slot, 600);
    let record = Record::Vote {
        ballot: ballot(1),
        range: SlotRange::one(Slot(slot)),
        value,
    };
    let hard = hard(decided_to, slot + 1);
    log.append(RecordSeq(slot), &record, &bytes, hard).unwrap();
    settle(log);
}

const CHANGE: Value = Value::Reconfigure {
    era: Era(0),
    change: Change::Increment(Member::first(4)),
};

#[test]
#[ignore = "makes the fixture"]
fn make() {
    let folder = Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/testdata/formats/v1-folder"
    ));
    fs::create_dir_all(folder).unwrap();
    let (mut log, _) = open_in(folder);
    let range = SlotRange::one(Slot(1));
    let record = Record::Decided {
        range,
        value: CHANGE,
    };
    log.append(RecordSeq(1), &record, &[], hard(2, 1)).unwrap();
    settle(&mut log);
    for slot in 2..=6 {
        vote(&mut log, slot, slot - 1);
    }
    // The seventh write is torn: its body is not there.
    vote(&mut log, 7, 6);
    let at = log.position().unwrap();
    drop(log);
    let segment = folder.join(format!("log/{:016x}.segment", at.segment.0));
    let mut bytes = fs::read(&segment).unwrap();
    bytes[at.offset as usize - 4096 + 512..at.offset as usize].fill(0);
    fs::write(&segment, bytes).unwrap();
    let (mut log, recovery) = open_in(folder);
    assert_eq!(recovery.torn_tail_bytes, 4096);
    for slot in 7..=12 {
        vote(&mut log, slot, slot - 1);
    }
}
