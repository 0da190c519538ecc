//! Recovery accepts arbitrary bytes without a panic, and returns nothing that was never appended.

use crate::disk::{BLOCK, MemoryDisk};
use quorate_core::{
    node_id::{Incarnation, NodeId},
    record::HardState,
    slot::{Slot, SlotRange},
};

use crate::{
    Log, LogError, LogOptions,
    log_tests::{open, options, settle, value, vote},
    log_write::{HEADER_BYTES, Header, Owner, seal},
    place::{Place, Segment},
    record::Records,
    verify::{inspect, verify},
};

struct Dice(u64);

impl Dice {
    fn word(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 ^ (self.0 >> 29)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.word() >> 16) as usize % bound
    }
}

/// Runs every reader on the disk. If `genuine`, the values returned must have been appended.
fn read_everything(disk: &MemoryDisk, genuine: bool) {
    let _ = verify(&mut disk.reopen_after_crash(), None);
    let _ = inspect(&mut disk.reopen_after_crash(), None, &mut |_| {});
    let Ok((mut log, recovery)) = Log::open(disk.reopen_after_crash(), options()) else {
        return;
    };
    assert!(recovery.votes.windows(2).all(|pair| pair[0].range.to <= pair[1].range.from));
    log.start_read(1, SlotRange::new(Slot(1), Slot(u64::MAX)), 1 << 20).unwrap();
    while !log.reads_idle() {
        let _ = log.poll();
    }
    let read = log.next_read_done().unwrap().result;
    for (range, found, bytes) in read.iter().flatten().filter(|_| genuine) {
        let bytes = bytes.bytes().expect("nothing was placed");
        assert_eq!((*found, bytes.to_vec()), value(range.from.0, bytes.len()));
    }
    // The log can also be written.
    vote(&mut log, 1000, 100, 1);
    log.start_writes();
    let _ = log.poll();
}

fn sample() -> (MemoryDisk, Vec<Segment>) {
    let disk = MemoryDisk::new();
    let (mut log, _) = open(&disk);
    for slot in 1..=30 {
        vote(&mut log, slot, 100 * slot as usize, slot / 2 + 1);
        settle(&mut log);
    }
    let segments = (1..=log.segments() as u64).map(Segment).collect();
    (disk, segments)
}

#[test]
fn mutated_segments_cause_no_panic() {
    let (original, segments) = sample();
    let bytes: Vec<_> = segments.iter().map(|segment| original.bytes(*segment).unwrap()).collect();
    for seed in 0..1500 {
        let mut dice = Dice(seed);
        let disk = MemoryDisk::new();
        let mut copies = bytes.clone();
        for _ in 0..=dice.below(4) {
            let which = dice.below(copies.len());
            let blocks = copies[which].len() / BLOCK;
            let (from, to) = (dice.below(blocks) * BLOCK, dice.below(blocks) * BLOCK);
            let copy = &mut copies[which];
            match dice.below(6) {
                0 => copy[from + dice.below(BLOCK)] ^= 1 << dice.below(8),
                1 => copy.copy_within(from..from + BLOCK, to),
                2 => copy[from..from + BLOCK].fill(0),
                3 => copy[from..from + BLOCK].fill_with(|| dice.word() as u8),
                4 => copy.truncate(from.max(BLOCK)),
                _ => {
                    let other = dice.below(copies.len());
                    copies.swap(which, other);
                }
            }
        }
        for (segment, copy) in segments.iter().zip(&copies) {
            if dice.below(12) > 0 {
                disk.store_file(*segment, copy);
            }
        }
        read_everything(&disk, true);
    }
}

/// Invalid contents with valid checksums, as only a broken program writes them, cause no panic.
#[test]
fn invalid_contents_with_valid_checksums_cause_no_panic() {
    for seed in 0..3000 {
        let mut dice = Dice(seed);
        let disk = MemoryDisk::new();
        for segment in 1..=2 {
            let mut bytes = vec![0; 16 * BLOCK];
            let mut at = 0;
            let mut seq = 1;
            while at < 12 * BLOCK {
                let blocks = 1 + dice.below(3);
                let length = blocks * BLOCK;
                let blocks = &mut bytes[at..at + length];
                let place = Place { segment: Segment(segment), offset: at as u64 };
                let odd = |dice: &mut Dice, usual: u64| match dice.below(6) {
                    0 => dice.word(),
                    1 => u64::MAX - dice.word() % 3,
                    _ => usual,
                };
                let body = dice.below(200);
                for byte in &mut blocks[HEADER_BYTES..HEADER_BYTES + body] {
                    *byte = dice.below(9) as u8;
                }
                let header = Header {
                    owner: Owner { cluster: 7, node: NodeId(1) },
                    incarnation: Incarnation(dice.below(3) as u32),
                    place,
                    first_seq: odd(&mut dice, segment),
                    seq: odd(&mut dice, seq),
                    complete_to: odd(&mut dice, seq - 1),
                    previous_checksum: 0,
                    record_count: dice.below(3) as u32,
                    length_bytes: 0,
                    body_bytes: if dice.below(3) == 0 { body as u32 } else { 0 },
                    body_checksum: 0,
                    hard_state: HardState {
                        decided_to: Slot(odd(&mut dice, seq)),
                        voted_to: Slot(odd(&mut dice, seq + 1)),
                        ..HardState::default()
                    },
                    checksum: 0,
                };
                seal(header, blocks);
                at += length;
                seq += 1;
            }
            disk.store_file(Segment(segment), &bytes);
        }
        crate::mutant::with(&[crate::mutant::Mutant::ChainIgnored], || {
            read_everything(&disk, false);
        });
        read_everything(&disk, false);
    }
}

#[test]
fn random_bytes_are_no_records() {
    for seed in 0..2000 {
        let mut dice = Dice(seed);
        let body: Vec<_> = (0..dice.below(300)).map(|_| dice.below(10) as u8).collect();
        for stored in Records::new(&body).flatten() {
            assert!(stored.slots().is_none_or(|(range, _)| !range.is_empty()));
        }
        let disk = MemoryDisk::new();
        let noise: Vec<_> = (0..4 * BLOCK).map(|_| dice.word() as u8).collect();
        disk.store_file(Segment(1), &noise);
        let (_, recovery) = open(&disk);
        assert_eq!(
            (recovery.record_count, recovery.torn_tail_bytes),
            (0, 0),
            "no header says that anything was written"
        );
    }
}

/// A log with writes of a size that today's options would not produce is still read.
#[test]
fn sizes_may_change_between_starts() {
    let (disk, _) = sample();
    let larger = LogOptions { segment_bytes: 256 << 10, write_bytes_max: 128 << 10, ..options() };
    let (mut log, recovery) = Log::open(disk.reopen_after_crash(), larger).unwrap();
    assert_eq!(recovery.record_count, 30);
    vote(&mut log, 31, 100_000, 1);
    log.start_writes();
    while !log.is_idle() {
        log.poll().unwrap();
    }
    let (_, recovery) = Log::open(disk.reopen_after_crash(), options()).unwrap();
    assert_eq!((recovery.record_count, recovery.damage), (31, None));
    let error = Log::open(disk.reopen_after_crash(), LogOptions { node: NodeId(4), ..options() })
        .unwrap_err();
    assert!(matches!(error, LogError::ForeignLog { .. }));
}
