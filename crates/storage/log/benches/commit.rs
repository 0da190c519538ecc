//! Cost of a commit: writes, flushes and time, through the drivers on real files or in memory.
//!
//! `cargo bench -p quorate-log --bench commit -- [--driver memory|file|uring] [--depth N] [--window
//! N] [--records N] [--bytes N] [--folder DIR]`. Closed loop: `window` records are always waiting
//! or in flight. Output is one line: `driver=… records=… commits=… writes=… flushes=… bytes=…
//! nanos=…`.
#![allow(clippy::print_stdout, reason = "a report")]
#![allow(clippy::disallowed_methods, reason = "a benchmark looks at the clock")]

use std::{path::PathBuf, time::Instant};

use quorate_core::{
    ballot::Ballot,
    node_id::{Incarnation, NodeId},
    record::{HardState, Record, RecordSeq},
    slot::{Slot, SlotRange},
    value::{BatchName, Value},
};
use quorate_log::disk::{Disk, DriverChoice, MemoryDisk};
use quorate_log::{Log, LogOptions};
use rustix::event::{PollFd, PollFlags, poll};

struct Work {
    driver: String,
    depth: usize,
    window: u64,
    records: u64,
    bytes: usize,
    folder: PathBuf,
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let after = |flag: &str| {
        let mut rest = words.iter().skip_while(|word| *word != flag);
        rest.nth(1).cloned()
    };
    let number =
        |flag: &str, usual: u64| after(flag).map_or(usual, |text| text.parse().expect("a number"));
    let small = |flag, usual| usize::try_from(number(flag, usual)).expect("a small number");
    let work = Work {
        driver: after("--driver").unwrap_or_else(|| "memory".to_owned()),
        depth: small("--depth", 2),
        window: number("--window", 1),
        records: number("--records", 1000),
        bytes: small("--bytes", 64),
        folder: after("--folder").map_or_else(std::env::temp_dir, PathBuf::from),
    };
    let want = match &*work.driver {
        "memory" => {
            run(&work, MemoryDisk::new());
            return;
        }
        "file" => DriverChoice::File,
        "uring" => DriverChoice::Uring,
        other => panic!("no driver is called {other}"),
    };
    let folder = tempfile::tempdir_in(&work.folder).expect("a folder");
    let (disk, how) =
        quorate_log::disk::open(folder.path(), want).expect("the driver is available");
    eprintln!("{how}");
    run(&work, disk);
}

fn run<D: Disk>(work: &Work, disk: D) {
    let options = LogOptions {
        writes_in_flight_max: work.depth,
        segment_bytes: 16 << 20,
        ..LogOptions::new(7, NodeId(1), Incarnation(0))
    };
    let (mut log, _) = Log::open(disk, options).expect("an empty folder");
    let bytes = vec![b'x'; work.bytes];
    // The first segment and the spare are created before the clock runs.
    append(&mut log, 1, &bytes);
    wait(&mut log, 1);
    let (before, seq_before) = (log.counters(), log.next_seq());
    let began = Instant::now();
    let (mut appended, mut released) = (1, 1);
    let last = 1 + work.records;
    while released < last {
        while appended < last && appended - released < work.window {
            appended += 1;
            append(&mut log, appended, &bytes);
        }
        released = wait(&mut log, released + 1);
    }
    let nanos = began.elapsed().as_nanos();
    let after = log.counters();
    println!(
        "driver={} records={} commits={} writes={} flushes={} bytes={} nanos={nanos}",
        work.driver,
        work.records,
        log.next_seq() - seq_before,
        after.writes - before.writes,
        after.flushes - before.flushes,
        after.write_bytes - before.write_bytes,
    );
}

fn append<D: Disk>(log: &mut Log<D>, slot: u64, bytes: &[u8]) {
    let ballot = Ballot { round: 1, node: NodeId(1), ..Ballot::ZERO };
    let name = BatchName {
        origin: NodeId(1),
        boot: 1,
        counter: slot,
        length: u32::try_from(bytes.len()).expect("short"),
        checksum: 0,
    };
    let range = SlotRange::one(Slot(slot));
    let record = Record::Vote { ballot, range, value: Value::Batch(name) };
    let hard = HardState {
        last_used_ballot: ballot,
        promised: ballot,
        decided_to: Slot(slot),
        voted_to: range.to,
    };
    log.append(RecordSeq(slot), &record, bytes, hard).expect("a record that fits");
}

/// Waits until `record` is released, and returns the last released record. Waits before it polls,
/// as a reactor does, so that the number of system calls does not depend on the speed of the disk.
fn wait<D: Disk>(log: &mut Log<D>, record: u64) -> u64 {
    log.start_writes();
    loop {
        if let Some(fd) = log.wait_fd() {
            let _ = poll(&mut [PollFd::new(&fd, PollFlags::IN)], None);
        }
        let released = log.poll().expect("a sound disk").0;
        if released >= record {
            return released;
        }
    }
}
