//! Hostile disks: the corpus of the fuzz target `log`, and mutations of it.

mod segments;

use crate::driver::{self, Seed};
use quorate_core::{
    ballot::{Ballot, Era},
    configuration::Change,
    level::Level,
    node_id::{Member, NodeId},
    record::{HardState, Record, RecordSeq},
    slot::{Slot, SlotRange},
    value::{BatchName, StreamName, Value},
};
use quorate_log::Log;
use quorate_log::Segment;
use quorate_log::disk::{BLOCK, MemoryDisk};

fn batch(counter: u64, bytes: &[u8]) -> Value {
    Value::Batch(BatchName {
        origin: NodeId(1),
        boot: 1,
        counter,
        length: u32::try_from(bytes.len()).expect("short"),
        checksum: crc32c::crc32c(bytes),
    })
}

fn values() -> Vec<Value> {
    let stream = StreamName { owner: NodeId(1), boot: 1, number: 1 };
    let session = Value::RegisterSession { origin: NodeId(2), boot: 3, number: 4 };
    let change = Change::Increment(Member::first(4));
    vec![
        Value::NoOp,
        batch(1, b""),
        Value::Content { stream, offset: 9 },
        Value::CloseStream(stream),
        session,
        Value::ExpireSession { session: 5 },
        Value::Reconfigure { era: Era(1), change },
        Value::AllocateNode { nonce: 6 },
        Value::Now { ms: 7 },
        Value::Raise { era: Era(8), nodes: 9, to: Level(9) },
    ]
}

/// Returns a log of `records` votes of `length` bytes, `group` of them to a log write.
fn votes(records: u64, length: usize, group: u64) -> MemoryDisk {
    let disk = MemoryDisk::new();
    let (mut log, _) =
        Log::open(disk.reopen_after_crash(), segments::options()).expect("an empty disk");
    let values = values();
    for slot in 1..=records {
        let bytes = vec![b'a' + slot.to_le_bytes()[0] % 26; length];
        let odd = usize::try_from(slot).expect("small") % (2 * values.len());
        let value = values.get(odd).copied().unwrap_or_else(|| batch(slot, &bytes));
        let bytes = if value.has_bytes() && odd >= values.len() { &*bytes } else { &[] };
        let ballot = Ballot { round: 1, node: NodeId(1), ..Ballot::ZERO };
        let (range, seq) = (SlotRange::one(Slot(slot)), RecordSeq(slot));
        let record = match slot % 7 {
            0 => Record::Decided { range, value },
            1 if slot == 1 => Record::Promise { ballot },
            2 if slot == 2 => Record::Round { ballot },
            _ => Record::Vote { ballot, range, value },
        };
        let bytes = if slot <= 2 { &[] } else { bytes };
        let hard = HardState {
            last_used_ballot: ballot,
            promised: ballot,
            decided_to: Slot(slot / 2 + 1),
            voted_to: Slot(slot + 1),
        };
        log.append(seq, &record, bytes, hard).expect("a small record");
        while slot.is_multiple_of(group) && !log.is_idle() {
            log.start_writes();
            log.poll().expect("a sound disk");
        }
    }
    while !log.is_idle() {
        log.start_writes();
        log.poll().expect("a sound disk");
    }
    disk
}

/// Packs a disk into the form that [`segments::check`] unpacks.
fn pack(disk: &MemoryDisk, flags: u8) -> Vec<u8> {
    let mut packed = vec![flags];
    for number in 1.. {
        let Some(bytes) = disk.bytes(Segment(number)) else {
            break;
        };
        if number > 1 {
            packed.extend(segments::NEXT_SEGMENT.to_le_bytes());
        }
        for block in bytes.chunks(BLOCK) {
            let length = block.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
            packed.extend(u16::try_from(length).expect("a block").to_le_bytes());
            packed.extend(&block[..length]);
        }
    }
    packed
}

fn logs() -> Vec<Seed> {
    let mut seeds = Vec::new();
    for flags in [0, segments::SEALED] {
        for (records, length, group) in [
            (0, 0, 1),
            (1, 10, 1),
            (4, 0, 1),
            (4, 40, 4),
            (9, 100, 1),
            (12, 300, 3),
            (20, 30, 5),
            (6, 5000, 1),
        ] {
            seeds.push(Seed {
                name: format!("{records}-records-of-{length}-by-{group}-{flags}"),
                bytes: pack(&votes(records, length, group), flags),
            });
        }
        let disk = votes(9, 100, 1);
        disk.remove(Segment(2));
        seeds.push(Seed { name: format!("segment-lost-{flags}"), bytes: pack(&disk, flags) });
        let disk = votes(9, 100, 1);
        let torn = disk.bytes(Segment(1)).expect("it was written");
        disk.store_file(Segment(1), &torn[..2 * BLOCK]);
        seeds.push(Seed { name: format!("segment-short-{flags}"), bytes: pack(&disk, flags) });
        let disk = votes(9, 100, 1);
        let mut rotten = disk.bytes(Segment(1)).expect("it was written");
        rotten[BLOCK + 200] ^= 1;
        disk.store_file(Segment(1), &rotten);
        seeds.push(Seed { name: format!("rot-{flags}"), bytes: pack(&disk, flags) });
    }
    seeds
}

#[test]
fn no_bytes_of_a_disk_break_the_recovery() {
    driver::run("log", &logs(), 10_000, segments::check);
}
