//! Cost of storing bytes: MB/s, and writes and flushes per MB, for puts of 100 B, 4 KiB and 64 KiB.
//!
//! `cargo bench -p quorate-stream --bench store -- [--driver uring|file] [--mib N] [--streams N]
//! [--checkpoint MiB] [--folder DIR]`. Puts go to the streams in turn, as fast as the store has
//! space. A checkpoint follows every `--checkpoint` MiB, and the run ends with one. Output is one
//! line each: `put=… streams=… MB/s=… writes/MB=… flushes/MB=…`.
#![allow(clippy::print_stdout, reason = "a report")]
#![allow(clippy::disallowed_methods, reason = "a benchmark looks at the clock")]

use std::{path::PathBuf, time::Instant};

use quorate_core::{node_id::NodeId, slot::Slot, value::StreamName};
use quorate_log::disk::{Disk, DriverChoice, FileDisk};
use quorate_stream::store::{Layout, Store, StoreLimits};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

struct Work {
    want: DriverChoice,
    bytes: u64,
    streams: u32,
    checkpoint_bytes: u64,
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
    let work = Work {
        want: match after("--driver").as_deref() {
            None | Some("uring") => DriverChoice::Uring,
            Some("file") => DriverChoice::File,
            Some(other) => panic!("no driver is called {other}"),
        },
        bytes: number("--mib", 16) << 20,
        streams: u32::try_from(number("--streams", 4)).expect("a small number"),
        checkpoint_bytes: number("--checkpoint", 64) << 20,
        folder: after("--folder").map_or_else(std::env::temp_dir, PathBuf::from),
    };
    for put in [100, 4 << 10, 64 << 10] {
        run(&work, put);
    }
}

fn run(work: &Work, put: usize) {
    let folder = tempfile::tempdir_in(&work.folder).expect("a folder");
    let (mut disk, _) =
        quorate_log::disk::open(folder.path(), work.want).expect("the driver works");
    let mut store =
        Store::open(&mut disk, StoreLimits::DEFAULT, Layout::DEFAULT).expect("an empty folder");
    let bytes: Vec<u8> = (0..put).map(|at| (at % 251) as u8).collect();
    let puts = work.bytes / put as u64;
    let (mut next, mut checkpoint_at, mut slot) = (0, work.checkpoint_bytes, 1);
    let began = Instant::now();
    let mut waits = 0;
    while next < puts || store.is_checkpointing() || store.checkpointed_to() < Slot(slot) {
        let mut any = false;
        while next < puts && store.has_room() && !any {
            let stream = StreamName {
                owner: NodeId(1),
                boot: 1,
                number: u32::try_from(next % u64::from(work.streams)).expect("small"),
            };
            let position = next / u64::from(work.streams) * put as u64;
            store.put_bytes(stream, position, &bytes, &mut disk);
            next += 1;
            any = next.is_multiple_of(64);
        }
        let due = next * put as u64 >= checkpoint_at || next == puts;
        if due && store.start_checkpoint(Slot(slot + 1), &mut disk) {
            slot += 1;
            checkpoint_at += work.checkpoint_bytes;
        }
        if next == puts && store.checkpointed_to() == Slot(slot) && !store.is_checkpointing() {
            break;
        }
        while let Some(completed) = disk.poll() {
            store.on_completed(completed, &mut disk);
            any = true;
        }
        if !any && (next == puts || !store.has_room()) {
            waits += 1;
            wait(&disk);
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    let counters = disk.counters();
    let megabytes = work.bytes as f64 / 1e6;
    assert_eq!(store.failure(), None);
    println!(
        "put={put} streams={} MB/s={:.0} writes/MB={:.1} flushes/MB={:.2} written/put={:.3} waits={waits}",
        work.streams,
        megabytes / seconds,
        counters.writes as f64 / megabytes,
        counters.flushes as f64 / megabytes,
        counters.write_bytes as f64 / work.bytes as f64,
    );
}

/// Waits for a completion, at most a second.
fn wait(disk: &FileDisk) {
    let fd = disk.wait_fd().expect("a driver of files");
    let second = Timespec { tv_sec: 1, tv_nsec: 0 };
    let _ = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&second));
}
