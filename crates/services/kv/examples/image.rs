//! Measures a snapshot of a store in memory during writes. Usage: `image [keys] [value bytes]`.
//!
//! For several numbers of writes between two steps, prints the time of a snapshot, its longest
//! step, and its effect on the memory of the process.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a measurement, and its result"
)]

use std::{
    env, fs,
    time::{Duration, Instant},
};

use quorate_core::slot::Slot;
use quorate_kv::{
    encode::Encoder,
    op::{Deadline, Op},
    service::Service,
    store::{Store as _, Version, memory::MemoryStore},
};
use quorate_replica::service::{CommandId, Health, Imaged, StateMachine as _};
use xxhash_rust::xxh3::Xxh3;

/// Number of snapshot bytes per step.
const TURN_BYTES: usize = 256 << 10;
/// Number of commands per batch.
const BATCH: u64 = 64;

fn main() {
    let mut arguments = env::args().skip(1).map(|word| word.parse().expect("a number"));
    let keys: u64 = arguments.next().unwrap_or(1 << 20);
    let value_bytes = usize::try_from(arguments.next().unwrap_or(1000)).expect("a size");
    let mut store = MemoryStore::new();
    let mut value = vec![b'v'; value_bytes];
    for number in 0..keys {
        let version = Version { slot: 1, index: 0 };
        store.put((&number.to_le_bytes()).into(), &value, version, None);
    }
    let mut service = Service::new(Box::new(store));
    println!("{keys} keys, {value_bytes} bytes each, {} MiB", resident());
    let mut slot = 2;
    for batches in [0, 1, 4, 16] {
        let before = resident();
        let began = Instant::now();
        assert!(service.begin_image(), "it can be imaged");
        let begin = began.elapsed();
        let (mut digest, mut longest, mut imaging) = (Xxh3::new(), begin, begin);
        let (mut writing, mut writes, mut behind) = (Duration::ZERO, 0, 0);
        let (mut bytes, mut most) = (0, before);
        loop {
            let at = Instant::now();
            let left = service.next_image(TURN_BYTES, &mut |item| {
                bytes += item.len();
                digest.update(item);
            });
            let turn = at.elapsed();
            (longest, imaging) = (longest.max(turn), imaging + turn);
            if left != Imaged::More {
                assert_eq!(left, Imaged::End, "it goes to its end");
                break;
            }
            if service.health() == Health::Behind {
                behind += 1;
                continue;
            }
            let at = Instant::now();
            for _ in 0..batches {
                for index in 0..BATCH {
                    // Spread over the whole store, so most keys are still ahead of the snapshot.
                    let key = (slot * BATCH + index).wrapping_mul(0x9e37_79b9_7f4a_7c15) % keys;
                    value[0] = value[0].wrapping_add(1);
                    let mut command = Vec::new();
                    let mut to = Encoder(&mut command);
                    to.byte(Op::Set as u8).byte(0);
                    Deadline::Never.encode(&mut to);
                    to.bytes(&key.to_le_bytes()).bytes(&value);
                    let id = CommandId {
                        slot: Slot(slot),
                        index: u32::try_from(index).expect("a small number"),
                    };
                    let mut reply = Vec::new();
                    service.apply(id, &command, &mut reply);
                    assert_eq!(reply, b"+OK\r\n", "a write");
                    writes += 1;
                }
                slot += 1;
                service.commit(Slot(slot), &[]);
            }
            writing += at.elapsed();
            if slot.is_multiple_of(64) {
                most = most.max(resident());
            }
        }
        let all = began.elapsed();
        println!(
            "{writes} writes in {writing:.1?} ({:.0}/s of all), image {all:.1?} in all, {imaging:.1?} of its own \
             ({} MB, begin {begin:.1?}, longest turn {longest:.1?}), behind {behind} turns, +{} MiB",
            f64::from(u32::try_from(writes).unwrap_or(u32::MAX)) / all.as_secs_f64(),
            bytes / 1_000_000,
            most.max(resident()) - before,
        );
    }
}

fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}
