//! Damage in the middle of a log: its detection and repair, and when votes count as forgotten.

use crate::disk::{BLOCK, Disk as _, Family, MemoryDisk, Source as _};
use quorate_core::{
    ballot::Era,
    configuration::Change,
    node_id::{Incarnation, Member, NodeId},
    record::{Record, RecordSeq},
    slot::{Slot, SlotRange},
    value::Value,
};

use crate::{
    Log, LogError, LogOptions, ValueBytes,
    log_tests::{ballot, hard, open, options, read_all, settle, stored, value, vote},
    log_write::{Header, Owner, seal},
    place::{Place, Segment},
    verify::{LogElement, inspect, verify},
};

/// Returns a log of 20 votes, one write each. Only slots below `decided_to_max` are decided.
fn twenty(decided_to_max: u64) -> MemoryDisk {
    let disk = MemoryDisk::new();
    let (mut log, _) = open(&disk);
    for slot in 1..=20 {
        vote(&mut log, slot, 100, slot.min(decided_to_max));
        settle(&mut log);
    }
    disk
}

fn writes(disk: &MemoryDisk) -> Vec<Header> {
    let mut headers = Vec::new();
    inspect(&mut disk.reopen_after_crash(), None, &mut |item| {
        if let LogElement::Write(header) = item {
            headers.push(header);
        }
    })
    .unwrap();
    headers
}

fn slots(from: u64, to: u64) -> SlotRange {
    SlotRange::new(Slot(from), Slot(to))
}

/// [disk-8] If the slots of lost records are decided by now, their values are fetched again, and
/// the node continues to vote.
#[test]
fn lost_decided_slots_are_listed_and_can_be_repaired() {
    for bit in [8 * 200, 8 * 20] {
        // In the body, then in the header.
        let disk = twenty(100);
        let sixth = writes(&disk)[5].place;
        assert!(disk.flip_bit(sixth, bit));
        let (mut log, recovery) = open(&disk);
        let damage = recovery.damage.unwrap();
        // The lost write may have held a decision for slot 5, too, which was undecided before it.
        assert_eq!((damage.lost_slots, damage.votes_lost), (vec![slots(5, 7)], false));
        assert!(
            damage.descriptions[0].contains("segment 1, offset 20480"),
            "{:?}",
            damage.descriptions
        );
        assert_eq!((recovery.hard_state, recovery.torn_tail_bytes), (hard(20, 21), 0));
        assert_eq!(read_all(&mut log, 1, 20).len(), 4, "up to what is missing");
        assert_eq!(read_all(&mut log, 5, 20), []);
        assert_eq!(read_all(&mut log, 7, 21).len(), 14);

        for slot in 5..7 {
            let (again, bytes) = value(slot, 100);
            let record = Record::Decided { range: SlotRange::one(Slot(slot)), value: again };
            log.append(RecordSeq(slot), &record, &bytes, hard(20, 21)).unwrap();
        }
        settle(&mut log);
        assert_eq!(read_all(&mut log, 1, 21).len(), 20);
        let (mut log, recovery) = open(&disk);
        let damage = recovery.damage.unwrap();
        assert_eq!((damage.lost_slots, damage.votes_lost), (vec![], false));
        assert_eq!(read_all(&mut log, 1, 21).len(), 20);
    }
}

/// [disk-8] [volatile-1] A node that lost a vote of its own for an undecided slot becomes a new
/// member.
#[test]
fn lost_undecided_vote_counts_as_forgotten() {
    let disk = twenty(3);
    assert!(disk.flip_bit(writes(&disk)[5].place, 8 * 200));
    let (_, recovery) = open(&disk);
    assert!(recovery.damage.unwrap().votes_lost);
    let (_, recovery) = open(&disk);
    assert!(recovery.damage.unwrap().votes_lost, "until a new incarnation owns up to it");
    let next = LogOptions { incarnation: Incarnation(1), ..options() };
    let (mut log, recovery) = Log::open(disk.reopen_after_crash(), next).unwrap();
    assert!(!recovery.damage.unwrap().votes_lost);
    vote(&mut log, 21, 100, 3);
    settle(&mut log);
    let (_, recovery) = Log::open(disk.reopen_after_crash(), next).unwrap();
    assert_eq!(recovery.incarnation, Some(Incarnation(1)));
    assert!(!recovery.damage.unwrap().votes_lost);
}

/// [value-3], [catch-1] A vote implies that its bytes are stored. A vote whose record is lost no
/// longer counts, even under a new incarnation: a follower would take it as decided and wait
/// forever for the bytes.
#[test]
fn votes_with_lost_records_are_not_recovered() {
    let disk = twenty(3);
    assert!(disk.flip_bit(writes(&disk)[5].place, 8 * 200));
    for incarnation in [0, 1] {
        let options = LogOptions { incarnation: Incarnation(incarnation), ..options() };
        let (mut log, recovery) = Log::open(disk.reopen_after_crash(), options).unwrap();
        let votes: Vec<u64> = recovery.votes.iter().map(|vote| vote.range.from.0).collect();
        assert_eq!(votes, (7..=20).collect::<Vec<_>>());
        for vote in &recovery.votes {
            let (from, to) = (vote.range.from.0, vote.range.to.0);
            assert!(!read_all(&mut log, from, to).is_empty(), "slot {from}");
        }
    }
}

/// A lost decision does not revive the slot's earlier vote, which is not what was decided.
#[test]
fn lost_decision_does_not_revive_an_earlier_vote() {
    let disk = MemoryDisk::new();
    let (mut log, _) = open(&disk);
    vote(&mut log, 1, 100, 1);
    settle(&mut log);
    let (other, bytes) = value(99, 50);
    let record = Record::Decided { range: slots(1, 2), value: other };
    log.append(RecordSeq(2), &record, &bytes, hard(1, 2)).unwrap();
    settle(&mut log);
    vote(&mut log, 3, 100, 2);
    settle(&mut log);
    vote(&mut log, 4, 100, 4);
    settle(&mut log);
    assert_eq!(read_all(&mut log, 1, 2), [(slots(1, 2), other, ValueBytes::Bytes(bytes))]);
    assert!(disk.flip_bit(writes(&disk)[1].place, 8 * 200));
    let (mut log, recovery) = open(&disk);
    assert_eq!(read_all(&mut log, 1, 2), []);
    // Slot 2 was never appended in this test.
    assert_eq!(recovery.damage.unwrap().lost_slots, [slots(1, 3)]);
}

#[test]
fn lost_segment_is_damage() {
    let disk = twenty(100);
    for slot in 21..=40 {
        let (mut log, _) = open(&disk);
        vote(&mut log, slot, 100, slot);
        settle(&mut log);
    }
    assert!(disk.remove(Segment(2)));
    let (_, recovery) = open(&disk);
    let damage = recovery.damage.unwrap();
    assert!(!damage.votes_lost);
    assert_eq!(damage.lost_slots, [slots(16, 33)]);
    assert!(disk.remove(Segment(1)));
    let (_, recovery) = open(&disk);
    assert_eq!(recovery.damage.unwrap().lost_slots, [slots(1, 33)]);
}

/// [volatile-1] The separate record of the newest segment reveals that the end of the log is
/// missing. The log alone does not show this, and an emptied log looks new.
#[test]
fn missing_end_of_the_log_counts_as_forgotten() {
    let places = |disk: &MemoryDisk, options: LogOptions| {
        let (_, recovery) = Log::open(disk.reopen_after_crash(), options).unwrap();
        let damage = recovery.damage.unwrap_or_default();
        (damage.votes_lost, damage.descriptions)
    };
    let used = LogOptions { has_run_before: true, ..options() };
    let owns_up = LogOptions { incarnation: Incarnation(1), is_loss_known: true, ..used };
    // Twenty writes in segments of 64 KiB, and a spare.
    for keep in [0, 1, 2] {
        let disk = twenty(100);
        assert_eq!(places(&disk, used), (false, vec![]));
        for segment in keep + 1..=3 {
            assert!(disk.remove(Segment(segment)));
        }
        let what = format!("segments {} to 3 are gone", keep + 1);
        assert_eq!(places(&disk, used), (true, vec![what.clone()]));
        assert_eq!(places(&disk, used), (true, vec![what.clone()]), "still");
        let (mut log, recovery) = Log::open(disk.reopen_after_crash(), owns_up).unwrap();
        let damage = recovery.damage.unwrap();
        assert_eq!((damage.votes_lost, damage.descriptions), (false, vec![what]));
        vote(&mut log, 21, 100, 1);
        settle(&mut log);
        let next = LogOptions { is_loss_known: false, ..owns_up };
        assert_eq!(places(&disk, next), (false, vec![]), "it was owned up to");
        // [disk-4] Numbers never decrease.
        let highest = disk.reopen_after_crash().files(Family::Log).unwrap().pop().unwrap();
        assert!(highest.file > Segment(3).into());
    }
}

/// [volatile-1] A service's store with a later position reveals that the log has lost its end, when
/// nothing else does.
#[test]
fn store_ahead_of_the_log_counts_as_forgotten() {
    let disk = twenty(100);
    let open = |stored_to, owns_up| {
        let options = LogOptions {
            store_has_to: Slot(stored_to),
            incarnation: Incarnation(u32::from(owns_up)),
            is_loss_known: owns_up,
            ..options()
        };
        let (_, recovery) = Log::open(disk.reopen_after_crash(), options).unwrap();
        let damage = recovery.damage.unwrap_or_default();
        (damage.votes_lost, damage.descriptions)
    };
    for stored_to in [0, 1, 20, 21] {
        assert_eq!(open(stored_to, false), (false, vec![]), "{stored_to}");
    }
    for stored_to in [22, 1000, u64::MAX] {
        let what = "and the log ends before slot 21";
        let (forgotten, places) = open(stored_to, false);
        assert!(forgotten && places[0].contains(what), "{places:?}");
        assert!(!open(stored_to, true).0, "it is owned up to");
    }
}

/// A folder that was never written has forgotten nothing. The same is true of a folder from a
/// version that did not record file numbers, unless it is empty although the node has run.
#[test]
fn log_without_segments_is_new_only_if_nothing_ran() {
    let forgotten = |disk: &MemoryDisk, used| {
        let options = LogOptions { has_run_before: used, ..options() };
        let (log, recovery) = Log::open(disk.reopen_after_crash(), options).unwrap();
        drop(log);
        recovery.damage.is_some_and(|damage| damage.votes_lost)
    };
    assert!(!forgotten(&MemoryDisk::new(), false));
    assert!(forgotten(&MemoryDisk::new(), true));
    let founded = MemoryDisk::new();
    founded.reopen_after_crash().record_created(Segment(0).into()).unwrap();
    assert!(!forgotten(&founded, true), "it ended before its first segment");
    let earlier = twenty(100);
    earlier.remove_created_record(Family::Log);
    assert!(!forgotten(&earlier, true));
    assert_eq!(
        earlier.reopen_after_crash().newest_created(Family::Log),
        Ok(Some(Segment(3).into())),
        "from now on"
    );
}

/// [disk-3] Writes that no later header reports as complete were never released, so they are cut
/// off.
#[test]
fn torn_tail_is_cut_and_reported() {
    let disk = twenty(100);
    disk.set_manual_completion(true);
    let (mut log, _) = open(&disk);
    vote(&mut log, 21, 9000, 5);
    log.start_writes();
    let pending = disk.pending();
    let write = pending.iter().find(|pending| pending.bytes == 12288).unwrap();
    let torn = write.position.file.position_at(write.position.offset + 4096);
    disk.complete(write.id);
    assert!(disk.flip_bit(torn, 5));
    disk.crash(0);
    disk.set_manual_completion(false);
    let (mut log, recovery) = open(&disk);
    assert_eq!((recovery.damage, recovery.torn_tail_bytes), (None, 12288));
    assert_eq!(recovery.hard_state, hard(20, 21));
    let before = log.next_write_place();
    vote(&mut log, 21, 10, 21);
    settle(&mut log);
    assert_eq!(before, None);
    assert_eq!(log.next_write_place().unwrap().offset, 4096, "[disk-4] in a fresh segment");
    let (mut log, recovery) = open(&disk);
    assert_eq!((recovery.damage, recovery.torn_tail_bytes), (None, 0));
    assert_eq!(read_all(&mut log, 1, 30).len(), 21);
}

/// [disk-3] [disk-4] Writes from a segment's earlier use have another epoch. They are neither read
/// nor mistaken for a cut, and the segment is used as if it were new.
#[test]
fn writes_from_an_earlier_use_of_a_segment_are_ignored() {
    let disk = twenty(100);
    let old = disk.bytes(Segment(1)).unwrap();
    disk.store_file(Segment(9), &old);
    let (mut log, recovery) = open(&disk);
    assert_eq!((recovery.record_count, recovery.damage), (20, None));
    assert_eq!(recovery.torn_tail_bytes, 0);
    vote(&mut log, 21, 10, 21);
    settle(&mut log);
    assert_eq!(log.next_write_place().unwrap().segment, Segment(2), "no cut");
    for slot in 22..=55 {
        vote(&mut log, slot, 10, slot);
        settle(&mut log);
        let (mut again, recovery) = open(&disk);
        let found = (recovery.record_count, recovery.damage, recovery.torn_tail_bytes);
        assert_eq!(found, (slot, None, 0));
        assert_eq!(read_all(&mut again, 1, 60).len() as u64, slot);
    }
    assert_eq!(log.next_write_place().unwrap().segment, Segment(9));
}

/// [disk-3] The epoch is checked before the owner, the version, and references to other writes.
#[test]
fn any_contents_from_an_earlier_use_are_ignored() {
    let disk = twenty(100);
    let mut stale = disk.bytes(Segment(1)).unwrap();
    let header = Header::decode(&stale).unwrap();
    for (block, at) in stale.chunks_mut(BLOCK).zip(0..) {
        let mut odd = Header {
            complete_to: 1 << 39,
            seq: 1 << 40,
            first_seq: 1,
            place: Place { segment: Segment(1), offset: at * BLOCK as u64 },
            ..header
        };
        odd.owner.node.0 += u32::from(at % 3 == 1);
        seal(odd, block);
        if at % 3 == 2 {
            block[8] = 2; // a later version
            let sum = crc32c::crc32c(&block[..156]);
            block[156..160].copy_from_slice(&sum.to_le_bytes());
        }
    }
    // A spare segment, and the rest of the current one.
    disk.store_file(Segment(3), &stale);
    let mut tail = disk.bytes(Segment(2)).unwrap();
    tail[4 * BLOCK..].copy_from_slice(&stale[4 * BLOCK..]);
    disk.store_file(Segment(2), &tail);
    let (mut log, recovery) = open(&disk);
    let found = (recovery.record_count, recovery.damage, recovery.torn_tail_bytes);
    assert_eq!(found, (20, None, 0));
    let whole = verify(&mut disk.reopen_after_crash(), None).unwrap();
    assert_eq!((whole.record_count, whole.damaged), (20, vec![]));
    for slot in 21..=40 {
        vote(&mut log, slot, 10, slot);
        settle(&mut log);
        let (_, recovery) = open(&disk);
        assert_eq!((recovery.record_count, recovery.damage), (slot, None));
    }
    // With a header of the right epoch, the same fault is reported.
    let place = |segment| Place { segment: Segment(segment), offset: 8 * BLOCK as u64 };
    let put = |odd: Header| {
        let mut bytes = disk.bytes(odd.place.segment).unwrap();
        let at = odd.place.offset as usize;
        seal(odd, &mut bytes[at..at + BLOCK]);
        disk.store_file(odd.place.segment, &bytes);
    };
    let mut odd = Header { place: place(3), ..header };
    odd.owner.node.0 += 1;
    put(odd);
    let error = Log::open(disk.reopen_after_crash(), options()).unwrap_err();
    assert!(matches!(error, LogError::ForeignLog { .. }), "{error}");
}

#[test]
fn misdirected_write_is_detected() {
    let disk = MemoryDisk::new();
    let (mut log, _) = open(&disk);
    for slot in 1..=20 {
        if slot == 5 {
            disk.inject(crate::disk::Fault::Misdirected { blocks: 9 });
        }
        vote(&mut log, slot, 100, slot);
        settle(&mut log);
    }
    let (_, recovery) = open(&disk);
    assert_eq!(recovery.damage.unwrap().lost_slots, [slots(4, 6)]);
}

/// A tail that cannot be read may hold released records, so opening is refused.
#[test]
fn unreadable_tail_is_refused_but_unreadable_middle_is_damage() {
    let disk = twenty(100);
    let headers = writes(&disk);
    disk.set_unreadable(headers[5].place);
    let (_, recovery) = open(&disk);
    assert_eq!(recovery.damage.unwrap().lost_slots, [slots(5, 7)]);
    disk.set_unreadable(headers[19].place);
    let error = Log::open(disk.reopen_after_crash(), options()).unwrap_err();
    assert!(matches!(error, LogError::Unreadable { .. }), "{error}");
}

#[test]
fn log_of_another_node_or_newer_format_is_refused() {
    let disk = twenty(100);
    for other in
        [LogOptions { node: NodeId(2), ..options() }, LogOptions { cluster: 8, ..options() }]
    {
        let error = Log::open(disk.reopen_after_crash(), other).unwrap_err();
        assert!(matches!(error, LogError::ForeignLog { .. }));
        assert!(error.to_string().contains("node 1 of cluster 0000"), "{error}");
    }
    let mut bytes = disk.bytes(Segment(1)).unwrap();
    bytes[8] = 2;
    let sum = crc32c::crc32c(&bytes[..156]);
    bytes[156..160].copy_from_slice(&sum.to_le_bytes());
    disk.store_file(Segment(1), &bytes);
    let error = Log::open(disk.reopen_after_crash(), options()).unwrap_err();
    assert!(matches!(error, LogError::Newer { version: 2, .. }));
}

#[test]
fn decided_reconfigurations_are_recovered_in_order() {
    let disk = MemoryDisk::new();
    let (mut log, _) = open(&disk);
    let change = |era, node| Value::Reconfigure {
        era: Era(era),
        change: Change::Increment(Member::first(node)),
    };
    let mut seq = 0;
    let mut append = |record: Record, decided_to| {
        seq += 1;
        log.append(RecordSeq(seq), &record, &[], hard(decided_to, 9)).unwrap();
    };
    let vote =
        |slot, value| Record::Vote { ballot: ballot(1), range: SlotRange::one(Slot(slot)), value };
    append(vote(3, change(0, 4)), 1);
    append(vote(1, change(0, 5)), 1);
    append(vote(2, Value::NoOp), 1);
    append(Record::Decided { range: slots(1, 2), value: change(0, 6) }, 2);
    append(vote(4, change(1, 7)), 2);
    append(vote(7, change(2, 7)), 5);
    append(Record::Decided { range: slots(5, 7), value: Value::NoOp }, 5);
    settle(&mut log);
    let (_, recovery) = open(&disk);
    let expected = [(Slot(1), change(0, 6)), (Slot(3), change(0, 4)), (Slot(4), change(1, 7))];
    assert_eq!(recovery.reconfigurations, expected);
    assert_eq!(recovery.hard_state.decided_to, Slot(7), "decided by the records up to here");
    assert_eq!(recovery.votes.len(), 1);
}

#[test]
fn verify_distinguishes_damage_from_a_torn_tail() {
    let disk = twenty(100);
    let whole = verify(&mut disk.reopen_after_crash(), None).unwrap();
    assert_eq!(whole.owner, Some(Owner { cluster: 7, node: NodeId(1) }));
    assert_eq!((whole.record_count, whole.next, whole.next_seq), (20, Slot(21), 21));
    assert_eq!((whole.torn_tail_bytes, whole.damaged), (0, vec![]));

    let headers = writes(&disk);
    assert!(disk.flip_bit(headers[19].place, 8 * 200));
    let torn = verify(&mut disk.reopen_after_crash(), None).unwrap();
    assert_eq!((torn.record_count, torn.torn_tail_bytes, torn.damaged.len()), (19, 4096, 0));

    assert!(disk.flip_bit(headers[5].place, 8 * 200));
    let damaged = verify(&mut disk.reopen_after_crash(), None).unwrap();
    assert_eq!((damaged.record_count, damaged.damaged.len()), (18, 1));
    let place = &damaged.damaged[0];
    assert_eq!((place.place, place.slots), (headers[5].place, slots(5, 7)));
    assert!(place.reason.contains("checksum"), "{}", place.reason);
    let mut gaps = 0;
    inspect(&mut disk.reopen_after_crash(), None, &mut |item| {
        gaps += u32::from(matches!(item, LogElement::Damage { missing_writes: 1, .. }));
    })
    .unwrap();
    assert_eq!(gaps, 1);
}

/// Flipping any one bit of any block is detected or has no effect; it never changes a value.
#[test]
fn rotten_bit_never_changes_a_value() {
    let disk = twenty(100);
    for (index, place) in disk.written_blocks().into_iter().enumerate() {
        for bit in (index as u64 % 7..8 * BLOCK as u64).step_by(997) {
            assert!(disk.flip_bit(place, bit));
            let (mut log, recovery) = open(&disk);
            // The last write does not show whether a vote was lost with the one before it.
            let forgotten = recovery.damage.is_some_and(|damage| damage.votes_lost);
            assert!(!forgotten || index == 18, "block {index}, bit {bit}");
            for slot in 1..=20 {
                for (range, found, bytes) in read_all(&mut log, slot, slot + 1) {
                    assert_eq!((found, bytes), stored(range.from.0, 100));
                }
            }
            assert!(disk.flip_bit(place, bit));
        }
    }
    // Reads of an open log detect it, too.
    let (mut log, _) = open(&disk);
    let tenth = writes(&disk)[9].place;
    assert!(disk.flip_bit(tenth, 8 * 170));
    log.start_read(1, slots(10, 11), 1 << 20).unwrap();
    log.poll().unwrap();
    let done = log.next_read_done().unwrap();
    assert!(matches!(done.result, Err(LogError::Damaged { .. })), "{done:?}");
    assert!(log.poll().is_ok(), "reading damage does not end writing");
}

/// [disk-8] Damage found while the log is in use costs only the damaged write, and can be repaired:
/// the rest of the same run of writes stays readable.
#[test]
fn rot_found_by_a_read_is_reported_and_can_be_repaired() {
    let read = |log: &mut Log<MemoryDisk>, from, to| {
        log.start_read(1, slots(from, to), 1 << 20).unwrap();
        log.poll().unwrap();
        log.next_read_done().unwrap()
    };
    for bit in [8 * 200, 8 * 20] {
        let disk = twenty(100);
        let (mut log, _) = open(&disk);
        assert!(disk.flip_bit(writes(&disk)[9].place, bit));
        let done = read(&mut log, 3, 6);
        assert_eq!(done.result.unwrap().len(), 3);
        // The tenth write may have held a decision for slot 9, too, which was undecided before it.
        assert_eq!(done.lost_slots, [slots(9, 11)]);
        assert_eq!(read(&mut log, 9, 12).result, Ok(Vec::new()));
        let done = read(&mut log, 11, 21);
        assert_eq!((done.result.unwrap().len(), done.lost_slots), (10, vec![]));
        for slot in 9..11 {
            let (again, bytes) = value(slot, 100);
            let record = Record::Decided { range: SlotRange::one(Slot(slot)), value: again };
            log.append(RecordSeq(slot), &record, &bytes, hard(20, 21)).unwrap();
        }
        settle(&mut log);
        assert_eq!(read_all(&mut log, 1, 21).len(), 20);
        // A repaired record may rot again, although it concerns slots that were decided long
        // before.
        let repaired = writes(&disk).pop().unwrap();
        assert!(disk.flip_bit(repaired.place, 8 * 200));
        assert_eq!(read(&mut log, 10, 11).lost_slots, [slots(9, 11)]);
        assert_eq!(read(&mut log, 11, 21).result.unwrap().len(), 10);
    }
}

/// The first format stays readable permanently. `REWRITE=1` rewrites the fixture, for a later
/// format.
#[test]
fn the_first_format_stays_readable() {
    let disk = MemoryDisk::new();
    let small = LogOptions { segment_bytes: 16 << 10, write_bytes_max: 8 << 10, ..options() };
    let (mut log, _) = Log::open(disk.reopen_after_crash(), small).unwrap();
    log.append(RecordSeq(1), &Record::Round { ballot: ballot(1) }, &[], hard(1, 1)).unwrap();
    log.append(RecordSeq(2), &Record::Promise { ballot: ballot(1) }, &[], hard(1, 1)).unwrap();
    settle(&mut log);
    vote(&mut log, 3, 10, 2);
    let change = Change::Increment(Member::first(4));
    let value = Value::Reconfigure { era: Era(0), change };
    let record = Record::Decided { range: slots(1, 2), value };
    log.append(RecordSeq(4), &record, &[], hard(2, 4)).unwrap();
    settle(&mut log);
    log.checkpoint(hard(2, 4));
    settle(&mut log);
    let written = disk.bytes(Segment(1)).unwrap();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/formats/v1-segment");
    if std::env::var_os("REWRITE").is_some() {
        std::fs::write(file, &written).unwrap();
    }
    let fixture = std::fs::read(file).unwrap();
    assert!(fixture == written, "the bytes that are written changed without a new version");
    let disk = MemoryDisk::new();
    disk.store_file(Segment(1), &fixture);
    let (_, recovery) = Log::open(disk.reopen_after_crash(), small).unwrap();
    assert_eq!((recovery.record_count, recovery.next_seq), (4, 4));
    assert_eq!(recovery.hard_state, hard(2, 4));
    assert_eq!(recovery.reconfigurations, [(Slot(1), value)]);
    assert_eq!(recovery.votes[0].range, slots(3, 4));
}

/// [disk-1] Bytes from a client are never taken for headers, wherever they are stored.
#[test]
fn forged_headers_in_a_value_do_not_make_damage() {
    let disk = MemoryDisk::new();
    let (mut log, _) = open(&disk);
    vote(&mut log, 1, 10, 1);
    settle(&mut log);
    let mut forged = vec![0; BLOCK];
    let real = writes(&disk)[0];
    for slot in 2..6 {
        // Laid out so that the copy is at the second block of its write, and its header names that
        // place.
        let at = log.next_write_place().unwrap();
        let place = Place { offset: at.offset + BLOCK as u64, ..at };
        seal(Header { place, seq: 1 << 40, complete_to: 1 << 39, ..real }, &mut forged);
        let (value, _) = value(slot, 0);
        let record = Record::Decided { range: SlotRange::one(Slot(slot)), value };
        let mut head = Vec::new();
        crate::record::encode(&record, false, 0, &mut head);
        let lead = BLOCK - crate::log_write::HEADER_BYTES - head.len();
        let mut bytes = vec![0; lead + BLOCK];
        bytes[lead..].copy_from_slice(&forged);
        log.append(RecordSeq(slot), &record, &bytes, hard(1, 2)).unwrap();
        settle(&mut log);
    }
    // The last write is torn, so that recovery looks for headers after it.
    let last = *writes(&disk).last().unwrap();
    assert!(disk.flip_bit(last.place, 8 * 170));
    let (_, recovery) = open(&disk);
    assert_eq!((recovery.damage, recovery.record_count), (None, 4));
}
