//! A log on a real disk when the process has no file descriptors left. The test runs in its own
//! process because the limit applies to the process.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test may fail by panic")]
#![allow(clippy::print_stdout, reason = "what is skipped is printed")]

use std::{fs::File, path::Path};

use quorate_core::{
    ballot::Ballot,
    node_id::{Incarnation, NodeId},
    record::{HardState, Record, RecordSeq},
    slot::{Slot, SlotRange},
    value::{BatchName, Value},
};
use quorate_log::disk::{DriverChoice, FileDisk, open};
use quorate_log::{Log, LogOptions, Recovery};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Resource, Rlimit, getrlimit, setrlimit},
};

const LIMIT: u64 = 64;
const VALUE_BYTES: usize = 3000;
/// Needs more segments than descriptors: each record fills a block of a segment of four.
const RECORDS: u64 = 4 * 2 * LIMIT;

struct Node {
    log: Log<FileDisk>,
    appended: u64,
    next_slot: u64,
}

impl Node {
    fn start(folder: &Path, want: DriverChoice) -> Option<(Self, Recovery)> {
        let disk = match open(folder, want) {
            Ok((disk, reason)) => {
                println!("{reason}");
                disk
            }
            Err(error) if want == DriverChoice::Uring => {
                println!("SKIPPED: {error}");
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        let options = LogOptions {
            segment_bytes: 16 << 10,
            write_bytes_max: 4 << 10,
            ..LogOptions::new(7, NodeId(1), Incarnation(0))
        };
        let (log, recovery) = Log::open(disk, options).unwrap();
        let next_slot = recovery.record_count + 1;
        let node = Self { log, appended: 0, next_slot };
        Some((node, recovery))
    }

    fn append(&mut self) {
        let slot = self.next_slot;
        self.next_slot += 1;
        self.appended += 1;
        let length = u32::try_from(VALUE_BYTES).unwrap();
        let name = BatchName { length, counter: slot, ..BatchName::default() };
        let record = Record::Vote {
            ballot: Ballot::ZERO,
            range: SlotRange::one(Slot(slot)),
            value: Value::Batch(name),
        };
        let hard = HardState { voted_to: Slot(slot + 1), ..HardState::default() };
        let bytes = [u8::try_from(slot % 251).unwrap(); VALUE_BYTES];
        let seq = RecordSeq(self.appended);
        self.log.append(seq, &record, &bytes, hard).unwrap();
        self.log.start_writes();
    }

    /// Runs one turn as a reactor with timers does.
    fn turn(&mut self) {
        let moment = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        let fd = self.log.wait_fd().unwrap();
        poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&moment)).unwrap();
        self.log.start_writes();
        self.log.poll().unwrap();
    }

    fn settle(&mut self) {
        while !self.log.is_idle() {
            self.turn();
        }
    }

    fn fill(&mut self, records: u64) {
        for _ in 0..records {
            self.append();
            self.settle();
        }
    }

    fn check(&mut self, slots: u64) {
        let mut from = 1;
        while from <= slots {
            let range = SlotRange::new(Slot(from), Slot(slots + 1));
            self.log.start_read(from, range, 1 << 20).unwrap();
            let values = loop {
                if let Some(read) = self.log.next_read_done() {
                    break read.result.unwrap();
                }
                self.turn();
            };
            for (range, _, bytes) in values {
                assert_eq!(range, SlotRange::one(Slot(from)));
                let written = [u8::try_from(from % 251).unwrap(); VALUE_BYTES];
                assert_eq!(bytes.bytes(), Some(&written[..]));
                from += 1;
            }
        }
    }
}

/// Takes all available descriptors.
fn hoard() -> Vec<File> {
    std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
}

#[test]
fn a_log_has_more_segments_than_its_process_has_descriptors() {
    let old = getrlimit(Resource::Nofile);
    let current = Some(LIMIT);
    setrlimit(Resource::Nofile, Rlimit { current, ..old }).unwrap();
    for want in [DriverChoice::Uring, DriverChoice::File] {
        let folder = tempfile::tempdir().unwrap();
        let Some((mut node, _)) = Node::start(folder.path(), want) else {
            continue;
        };
        node.fill(RECORDS);
        assert!(node.log.segments() as u64 >= 2 * LIMIT);
        node.check(RECORDS);
        let held = LIMIT - hoard().len() as u64;
        assert!(held < 48, "{held} descriptors are in use");

        // All remaining descriptors are taken. Operations that need one wait, and complete once one
        // is free.
        let hoarded = hoard();
        for _ in 0..40 {
            node.append();
        }
        while node.log.shortage_reason().is_none() {
            node.turn();
        }
        let reason = node.log.shortage_reason().unwrap();
        assert!(reason.contains("no descriptor"), "{reason}");
        assert!(!node.log.is_idle(), "{reason}");
        drop(hoarded);
        node.settle();
        node.check(RECORDS + 40);

        // Recovery reads all segments with only a few spare descriptors.
        drop(node);
        let mut hoarded = hoard();
        hoarded.truncate(hoarded.len() - 30);
        let (mut node, recovery) = Node::start(folder.path(), want).unwrap();
        assert_eq!((recovery.record_count, &recovery.damage), (RECORDS + 40, &None));
        node.fill(8);
        node.check(RECORDS + 48);
    }
}
