//! Scrubs of a running log find all damage, and report nothing else.

use crate::disk::{BLOCK, MemoryDisk};
use quorate_core::{
    record::{HardState, Record, RecordSeq},
    slot::{Slot, SlotRange},
};

use crate::{
    DamagedWrites, Log,
    log_tests::{ballot, hard, open, options, read_all, settle, value, vote},
    mutant::{Mutant, with},
    place::{Place, Segment},
};

fn slots(from: u64, to: u64) -> SlotRange {
    SlotRange::new(Slot(from), Slot(to))
}

/// Appends votes of one write and one block each, sixteen to a segment.
fn votes(log: &mut Log<MemoryDisk>, from: u64, to: u64) {
    for slot in from..to {
        vote(log, slot, 100, slot);
        settle(log);
    }
}

/// Runs a whole scrub; returns the bytes read and the damage found.
fn scrubbed(log: &mut Log<MemoryDisk>) -> (u64, Vec<DamagedWrites>) {
    log.begin_scrub();
    let (mut bytes, mut damaged) = (0, Vec::new());
    for _ in 0..10_000 {
        if !log.scrub() {
            return (bytes, damaged);
        }
        log.poll().unwrap();
        if let Some(piece) = log.next_scrubbed_piece() {
            bytes += piece.bytes;
            damaged.extend(piece.damaged);
        }
    }
    panic!("it does not end");
}

fn place(block: u64) -> Place {
    let blocks = options().segment_bytes / BLOCK as u64;
    Place { segment: Segment(1 + block / blocks), offset: block % blocks * BLOCK as u64 }
}

/// Overwrites a block on the disk, without the log.
fn put(disk: &MemoryDisk, block: u64, bytes: &[u8]) {
    let at = place(block);
    let mut file = disk.bytes(at.segment).unwrap();
    let offset = usize::try_from(at.offset).unwrap();
    file[offset..offset + bytes.len()].copy_from_slice(bytes);
    disk.store_file(at.segment, &file);
}

fn lying(disk: &MemoryDisk, block: u64) -> Vec<u8> {
    let at = place(block);
    let offset = usize::try_from(at.offset).unwrap();
    disk.bytes(at.segment).unwrap()[offset..offset + BLOCK].to_vec()
}

#[test]
fn scrub_of_an_intact_log_reads_all_and_finds_nothing() {
    let disk = MemoryDisk::new();
    let (mut log, _) = open(&disk);
    assert_eq!(scrubbed(&mut log), (0, vec![]), "nothing is written yet");
    votes(&mut log, 1, 100);
    let all = 99 * BLOCK as u64;
    assert_eq!(scrubbed(&mut log), (all, vec![]));
    assert_eq!(log.written_bytes(), all);
    let (mut log, _) = open(&disk);
    assert_eq!(scrubbed(&mut log), (all, vec![]), "after a start, too");
}

/// Function that damages a block.
type Spoil = fn(&MemoryDisk, u64);

/// Every kind of damage to every block is found at its place.
#[test]
fn every_kind_of_damage_is_found_at_its_place() {
    let wrongs: [(&str, Spoil); 6] = [
        ("a bit of the body", |disk, at| {
            assert!(disk.flip_bit(place(at), 8 * 300 + 1));
        }),
        ("a bit of the header", |disk, at| {
            assert!(disk.flip_bit(place(at), 8 * 50));
        }),
        ("lost: zeros are there still", |disk, at| {
            put(disk, at, &[0; BLOCK]);
        }),
        ("torn: the second half is what was there before", |disk, at| {
            put(disk, at, &[&lying(disk, at)[..BLOCK / 2], &[7; BLOCK / 2]].concat());
        }),
        ("another write's bytes came here", |disk, at| {
            put(disk, at, &lying(disk, (at + 3) % 40));
        }),
        ("unreadable", |disk, at| disk.set_unreadable(place(at))),
    ];
    for (what, spoil) in wrongs {
        for at in 0..39 {
            let disk = MemoryDisk::new();
            let (mut log, _) = open(&disk);
            votes(&mut log, 1, 41);
            spoil(&disk, at);
            let (bytes, damaged) = scrubbed(&mut log);
            assert_eq!(bytes, 40 * BLOCK as u64, "{what} at {at}");
            let [one] = &damaged[..] else {
                panic!("{what} at {at}: {damaged:?}");
            };
            assert_eq!((one.place, one.bytes), (place(at), BLOCK as u64), "{what}");
            let slot = Slot(at + 1);
            let named = one.slots.iter().any(|range| range.from <= slot && slot < range.to);
            assert!(named, "{what} at {at}: {one:?}");
        }
    }
}

/// In a write of many pieces that contains our magic, the damage is exactly that write.
#[test]
fn a_large_write_is_checked_piece_by_piece() {
    let disk = MemoryDisk::new();
    let large = crate::LogOptions { segment_bytes: 4 << 20, ..options() };
    let (mut log, _) = Log::open(disk.clone(), large).unwrap();
    vote(&mut log, 1, 100, 1);
    settle(&mut log);
    let (many, _) = value(2, 100);
    let bytes = crate::log_write::MAGIC.repeat(150_000);
    let record = Record::Vote { ballot: ballot(1), range: SlotRange::one(Slot(2)), value: many };
    log.append(RecordSeq(2), &record, &bytes, hard(2, 3)).unwrap();
    settle(&mut log);
    vote(&mut log, 3, 100, 3);
    settle(&mut log);
    assert_eq!(scrubbed(&mut log).1, vec![]);
    let first = BLOCK as u64;
    let middle = Place { segment: Segment(1), offset: 200 * BLOCK as u64 };
    assert!(disk.flip_bit(middle, 5));
    let (_, damaged) = scrubbed(&mut log);
    assert_eq!(damaged.len(), 1, "{damaged:?}");
    assert_eq!(damaged[0].place.offset, first);
    let end = damaged[0].place.offset + damaged[0].bytes;
    assert_eq!(Some(end + first), log.next_write_place().map(|at| at.offset));
    assert!(damaged[0].reason.contains("body"), "{damaged:?}");
}

/// [scrub-2] Slots that damage may have affected are read again: intact records next to the damage
/// are not lost.
#[test]
fn slots_next_to_damage_are_read_again_to_find_the_lost_ones() {
    let disk = MemoryDisk::new();
    let (mut log, _) = open(&disk);
    votes(&mut log, 1, 15);
    assert!(disk.flip_bit(place(4), 8 * 300));
    let (_, damaged) = scrubbed(&mut log);
    assert_eq!(damaged[0].slots, [slots(1, 15)], "one entry holds all of them");
    log.start_read(9, slots(1, 15), 1 << 20).unwrap();
    (0..10).for_each(|_| assert!(log.poll().is_ok()));
    let done = log.next_read_done().unwrap();
    // Slot 4 was undecided when the write after it began.
    assert_eq!(done.lost_slots, [slots(4, 6)]);
    for slot in 4..6 {
        let (again, bytes) = value(slot, 100);
        let range = SlotRange::one(Slot(slot));
        let record = Record::Decided { range, value: again };
        log.append(RecordSeq(100), &record, &bytes, hard(15, 15)).unwrap();
    }
    settle(&mut log);
    assert_eq!(read_all(&mut log, 1, 15).len(), 14);
    let (_, damaged) = scrubbed(&mut log);
    assert_eq!(damaged.len(), 1, "it lies there still");
    let (_, recovery) = open(&disk);
    let damage = recovery.damage.unwrap();
    assert_eq!((damage.lost_slots, damage.votes_lost), (vec![], false));
}

/// [scrub-1] The only restatement of the last promise is damaged. A start before the next write
/// would take it for torn, a case that [model-3] excludes. Therefore the state in memory is
/// restated, and the start misses nothing.
#[test]
fn a_hard_state_that_is_restated_is_not_forgotten() {
    for restates in [false, true] {
        let disk = MemoryDisk::new();
        let (mut log, _) = open(&disk);
        votes(&mut log, 1, 15);
        let hard = HardState { promised: ballot(9), ..hard(15, 15) };
        log.checkpoint(hard);
        settle(&mut log);
        let last = place(14);
        assert!(disk.flip_bit(last, 8 * 50));
        let (_, damaged) = scrubbed(&mut log);
        assert_eq!((damaged[0].place, damaged[0].slots.len()), (last, 0));
        if restates {
            log.checkpoint(hard);
            settle(&mut log);
        }
        drop(log);
        let (_, recovery) = open(&disk);
        let remembers = recovery.hard_state.promised == ballot(9);
        assert_eq!((remembers, recovery.damage.is_some()), (restates, restates));
        assert!(recovery.damage.is_none_or(|damage| !damage.votes_lost));
    }
}

/// [scrub-5] A segment that is trimmed and reused while it is read is not checked.
#[test]
fn segment_trimmed_while_it_is_read_is_not_checked() {
    let found = || {
        let disk = MemoryDisk::new();
        let (mut log, _) = open(&disk);
        votes(&mut log, 1, 100);
        // An unreadable block makes the scrub continue block by block.
        disk.set_unreadable(place(9));
        log.begin_scrub();
        assert!(log.scrub());
        log.poll().unwrap();
        assert_eq!(log.next_scrubbed_piece().unwrap().bytes, 0);
        disk.set_manual_completion(true);
        assert!(log.scrub());
        assert_eq!(log.scrubs(), Some(Segment(1)));
        let read = disk.pending()[0].id;
        log.rebase(Slot(90), Vec::new());
        let mut damaged = Vec::new();
        for slot in 100..400 {
            vote(&mut log, slot, 100, slot);
            for _ in 0..8 {
                log.start_writes();
                for pending in disk.pending().iter().filter(|pending| pending.id != read) {
                    disk.complete(pending.id);
                }
                log.poll().unwrap();
            }
        }
        disk.complete(read);
        for _ in 0..10_000 {
            log.poll().unwrap();
            if let Some(piece) = log.next_scrubbed_piece() {
                damaged.extend(piece.damaged);
            }
            if !log.scrub() {
                break;
            }
            disk.complete_all();
        }
        damaged
    };
    assert_eq!(found(), []);
    let judged = with(&[Mutant::ScrubsTrimmed], found);
    assert!(!judged.is_empty(), "the fault is noticed");
}

/// [scrub-6] If a segment cannot be opened for lack of a descriptor, no damage is reported.
#[test]
fn lack_of_descriptors_is_not_damage() {
    let disk = MemoryDisk::new();
    let (mut log, _) = open(&disk);
    votes(&mut log, 1, 40);
    let (mut log, _) = {
        drop(log);
        open(&disk)
    };
    disk.set_out_of_descriptors(true);
    log.begin_scrub();
    assert!(log.scrub());
    log.poll().unwrap();
    let piece = log.next_scrubbed_piece().unwrap();
    if piece.is_deferred {
        assert_eq!((piece.bytes, piece.damaged), (0, vec![]));
    }
    disk.set_out_of_descriptors(false);
    assert_eq!(scrubbed(&mut log), (39 * BLOCK as u64, vec![]));
}

/// Writes that a recovery cut off or skipped are not reported again.
#[test]
fn writes_after_a_cut_are_not_scrubbed() {
    let disk = MemoryDisk::new();
    let (mut log, _) = open(&disk);
    votes(&mut log, 1, 6);
    disk.set_manual_completion(true);
    vote(&mut log, 6, 100, 6);
    log.start_writes();
    vote(&mut log, 7, 100, 6);
    log.start_writes();
    // The second of two writes in flight arrives, the first does not.
    let pending = disk.pending();
    disk.complete(pending.last().unwrap().id);
    drop(log);
    disk.set_manual_completion(false);
    disk.crash(3);
    let (mut log, _) = open(&disk);
    votes(&mut log, 6, 12);
    assert_eq!(scrubbed(&mut log).1, vec![]);
}
