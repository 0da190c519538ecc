//! Trimmed logs, which begin after the first slot: their contents, refusals, and reported damage.

use crate::disk::{BLOCK, Disk as _, Fault, MemoryDisk, Pending, PendingKind, SmallFiles as _};
use quorate_core::{
    ballot::Era,
    configuration::Change,
    node_id::Member,
    record::{HardState, Record, RecordSeq},
    slot::{Slot, SlotRange},
    value::Value,
};

use crate::{
    Log, LogError,
    base::BASE_FILE,
    log_tests::{ballot, hard, open, options, read_all, settle, value, vote},
    mutant::{Mutant, with},
    place::Segment,
    verify::{LogElement, inspect, verify},
};

fn slots(from: u64, to: u64) -> SlotRange {
    SlotRange::new(Slot(from), Slot(to))
}

/// Moves the start and waits until that is durable.
fn rebase(log: &mut Log<MemoryDisk>, start: u64) {
    log.rebase(Slot(start), format!("note of {start}").into_bytes());
    while log.take_rebased() != Some(Slot(start)) {
        log.poll().unwrap();
    }
}

/// Appends votes, one write each, sixteen to a segment. All but the last are decided.
fn write(log: &mut Log<MemoryDisk>, from: u64, to: u64) {
    for slot in from..to {
        vote(log, slot, 100, slot);
        settle(log);
    }
}

/// Returns a log of a hundred votes, trimmed to slot 70.
fn trimmed() -> MemoryDisk {
    let disk = MemoryDisk::new();
    let (mut log, _) = open(&disk);
    write(&mut log, 1, 101);
    rebase(&mut log, 70);
    disk
}

/// [snap-3] Below its start, a log neither remembers nor reads records.
#[test]
fn slots_below_the_start_are_neither_recovered_nor_read() {
    let disk = MemoryDisk::new();
    let (mut log, recovery) = open(&disk);
    assert_eq!((recovery.base.start, recovery.base.note.len()), (Slot(1), 0));
    assert_eq!((log.start(), log.used_bytes()), (Slot(1), 0));
    write(&mut log, 1, 101);
    let before = log.used_bytes();
    assert_eq!(before, 7 * options().segment_bytes);
    rebase(&mut log, 70);
    for log in [&mut log, &mut open(&disk).0] {
        assert_eq!((log.start(), log.take_rebased()), (Slot(70), None));
        // Slots 65 to 80 are in the fifth segment.
        assert_eq!(log.used_bytes(), 3 * options().segment_bytes);
        for from in [0, 1, 69] {
            let refused = log.start_read(1, slots(from, 71), 1 << 20);
            assert_eq!(refused, Err(LogError::BelowStart { start: Slot(70) }));
        }
        assert_eq!(read_all(log, 70, 200).len(), 31);
        assert!(log.start_read(1, slots(5, 5), 1).is_ok(), "nothing at all");
        log.poll().unwrap();
        assert_eq!(log.next_read_done().unwrap().result, Ok(vec![]));
    }
    let (_, recovery) = open(&disk);
    assert_eq!(recovery.base.note, b"note of 70");
    assert_eq!((recovery.damage, recovery.hard_state), (None, hard(100, 101)));
    assert_eq!((recovery.votes.len(), recovery.next_seq), (1, 101));
}

#[test]
fn start_never_falls_and_only_the_newest_change_is_queued() {
    let disk = MemoryDisk::new();
    let (mut log, _) = open(&disk);
    write(&mut log, 1, 51);
    log.poll().unwrap();
    disk.set_manual_completion(true);
    for start in [20, 30, 40, 35] {
        log.rebase(Slot(start), vec![start as u8]);
    }
    let keeps = || {
        let keep = |pending: &Pending| pending.kind == PendingKind::ReplaceSmallFile;
        disk.pending().into_iter().filter(keep).count()
    };
    assert_eq!((keeps(), log.start()), (1, Slot(1)), "nothing is durable yet");
    disk.set_manual_completion(false);
    let mut news = Vec::new();
    for _ in 0..20 {
        log.poll().unwrap();
        news.extend(log.take_rebased());
        assert!(keeps() <= 1);
    }
    assert_eq!(news, [Slot(20), Slot(40)]);
    let (_, recovery) = open(&disk);
    assert_eq!(recovery.base.start, Slot(40), "never lower");
    assert_eq!(recovery.base.note, [35], "the newest");
    // Changes only the note.
    rebase(&mut log, 40);
    assert_eq!(open(&disk).1.base.note, b"note of 40");
}

/// A log that is replaced as a whole by a peer's snapshot keeps the hard state.
#[test]
fn start_above_all_records_keeps_the_hard_state() {
    let disk = MemoryDisk::new();
    let (mut log, _) = open(&disk);
    write(&mut log, 1, 101);
    rebase(&mut log, 5000);
    assert_eq!(log.used_bytes(), options().segment_bytes);
    let (mut log, recovery) = open(&disk);
    assert_eq!(recovery.hard_state, hard(5000, 101));
    assert_eq!((recovery.votes, recovery.damage), (vec![], None));
    assert_eq!(read_all(&mut log, 5000, 6000), []);
    // An earlier vote that was still in flight has no effect.
    vote(&mut log, 101, 100, 101);
    vote(&mut log, 5000, 100, 5000);
    settle(&mut log);
    assert_eq!(read_all(&mut log, 5000, 6000).len(), 1);
    let (_, recovery) = open(&disk);
    assert_eq!((recovery.votes.len(), recovery.damage), (1, None));
}

#[test]
fn an_empty_log_may_begin_anywhere() {
    let disk = MemoryDisk::new();
    let (mut log, _) = open(&disk);
    rebase(&mut log, 300);
    let (mut log, recovery) = open(&disk);
    assert_eq!((recovery.record_count, recovery.damage), (0, None));
    assert_eq!(recovery.hard_state.decided_to, Slot(300));
    write(&mut log, 300, 340);
    rebase(&mut log, 330);
    let (mut log, recovery) = open(&disk);
    assert_eq!((recovery.damage, recovery.next_seq), (None, 41));
    assert_eq!(read_all(&mut log, 330, 400).len(), 10);
}

/// [snap-3] Replay begins at the start, also where a record covers slots on both sides of it.
#[test]
fn replay_begins_with_the_start() {
    let disk = MemoryDisk::new();
    let (mut log, _) = open(&disk);
    let change = |era, node| Value::Reconfigure {
        era: Era(era),
        change: Change::Increment(Member::first(node)),
    };
    let decided = |from, to, value| Record::Decided { range: slots(from, to), value };
    let records =
        [decided(1, 2, change(0, 4)), decided(2, 9, Value::NoOp), decided(9, 10, change(1, 5))];
    for (record, seq) in records.iter().zip(1..) {
        let hard = hard(1, 10);
        log.append(RecordSeq(seq), record, &[], hard).unwrap();
    }
    settle(&mut log);
    rebase(&mut log, 5);
    let (mut log, recovery) = open(&disk);
    assert_eq!(recovery.reconfigurations, [(Slot(9), change(1, 5))]);
    assert_eq!(recovery.hard_state.decided_to, Slot(10));
    let read: Vec<_> = read_all(&mut log, 5, 20).into_iter().map(|(range, ..)| range).collect();
    assert_eq!(read, [slots(5, 9), slots(9, 10)]);
}

#[test]
fn a_read_in_flight_is_refused_when_the_log_is_trimmed() {
    let disk = MemoryDisk::new();
    let (mut log, _) = open(&disk);
    write(&mut log, 1, 201);
    while log.poll().is_ok() && !disk.pending().is_empty() {}
    disk.set_manual_completion(true);
    for token in 0..6 {
        log.start_read(token, slots(10 + token, 90), 1 << 20).unwrap();
    }
    let reads = disk.pending();
    assert!(reads.iter().all(|read| read.kind == PendingKind::Read));
    log.rebase(Slot(170), Vec::new());
    // The base is replaced first; then the first segments are removed before the reads end.
    for _ in 0..40 {
        let later = disk.pending().into_iter().find(|other| !reads.contains(other));
        later.map(|other| disk.complete(other.id));
        log.poll().unwrap();
    }
    assert_eq!((log.start(), disk.bytes(Segment(1))), (Slot(170), None));
    disk.set_manual_completion(false);
    let mut refused = 0;
    for _ in 0..20 {
        log.poll().unwrap();
        while let Some(done) = log.next_read_done() {
            assert_eq!(done.result, Err(LogError::BelowStart { start: Slot(170) }));
            assert_eq!(done.lost_slots, []);
            refused += 1;
        }
    }
    assert_eq!(refused, 6);
    assert_eq!(read_all(&mut log, 170, 300).len(), 31);
}

/// [snap-3] [disk-8] Gaps are counted from the start of the log.
#[test]
fn gaps_are_counted_from_the_start_of_the_log() {
    let disk = trimmed();
    let mut writes = Vec::new();
    inspect(&mut disk.reopen_after_crash(), None, &mut |item| {
        if let LogElement::Write(header) = item {
            writes.push(header);
        }
    })
    .unwrap();
    assert_eq!(writes[0].seq, 65);
    assert!(disk.flip_bit(writes[20].place, 8 * 200));
    let ranges = || open(&disk).1.damage.unwrap().lost_slots;
    assert_eq!(ranges(), [slots(84, 86)]);
    let counted = with(&[Mutant::GapsFromFirst], ranges);
    assert_eq!(counted, [slots(1, 70), slots(84, 86)], "the fault is noticed");
    // Nothing below the start counts as missing.
    assert!(disk.flip_bit(writes[0].place, 8 * 200));
    assert_eq!(ranges(), [slots(84, 86)]);
    let (_, recovery) = open(&disk);
    assert!(!recovery.damage.unwrap().votes_lost);
}

/// A damaged segment is kept until the slots that it lost are below the start, because no other
/// component would have them fetched again.
#[test]
fn damaged_segment_stays_until_its_lost_slots_are_trimmed() {
    let disk = trimmed();
    let mut place = None;
    inspect(&mut disk.reopen_after_crash(), None, &mut |item| match item {
        LogElement::Write(header) if header.seq == 80 => place = Some(header.place),
        _ => {}
    })
    .unwrap();
    // The last write of its segment: slot 80.
    assert!(disk.flip_bit(place.unwrap(), 8 * 200));
    let (mut log, recovery) = open(&disk);
    assert_eq!(recovery.damage.unwrap().lost_slots, [slots(79, 81)]);
    rebase(&mut log, 80);
    let (mut log, recovery) = open(&disk);
    assert_eq!(recovery.damage.unwrap().lost_slots, [slots(80, 81)]);
    rebase(&mut log, 82);
    assert_eq!(open(&disk).1.damage, None);
}

/// [disk-3] The end of the complete writes (M) is at least the value in the base, so a log that
/// lost its end is not mistaken for a shorter one.
#[test]
fn lost_end_is_detected_by_the_value_in_the_base() {
    let disk = trimmed();
    let (mut log, _) = open(&disk);
    rebase(&mut log, 98);
    drop(log);
    let files = [6, 7, 8];
    for number in files {
        if let Some(bytes) = disk.bytes(Segment(number)) {
            disk.store_file(Segment(number), &vec![0; bytes.len()]);
        }
    }
    let damage = open(&disk).1.damage.unwrap();
    assert!(damage.votes_lost, "{damage:?}");
    let silent = with(&[Mutant::BaseSaysNothing], || open(&disk).1.damage);
    assert_eq!(silent, None, "the fault is noticed");
    let damaged = verify(&mut disk.reopen_after_crash(), None).unwrap().damaged;
    assert_eq!(damaged.len(), 1, "{damaged:?}");
    let gone = MemoryDisk::new();
    let mut attached = gone.reopen_after_crash();
    let base = disk.read(BASE_FILE).unwrap().unwrap();
    attached.replace(BASE_FILE, &base).unwrap();
    let damage = open(&gone).1.damage.unwrap();
    assert!(damage.votes_lost && damage.descriptions[0].contains("no segment"));
}

/// A log with a damaged base is refused. Only bit rot can damage a file that is replaced as a
/// whole.
#[test]
fn damaged_base_is_refused_by_every_reader() {
    let disk = trimmed();
    let mut bytes = disk.read(BASE_FILE).unwrap().unwrap();
    bytes[40] ^= 1;
    disk.reopen_after_crash().replace(BASE_FILE, &bytes).unwrap();
    let expected = LogError::BaseDamaged { reason: "its checksum does not match".to_owned() };
    let opened = Log::open(disk.reopen_after_crash(), options());
    assert_eq!(opened.unwrap_err(), expected);
    assert_eq!(verify(&mut disk.reopen_after_crash(), None).unwrap_err(), expected);
    let shown = inspect(&mut disk.reopen_after_crash(), None, &mut |_| {});
    assert_eq!(shown, Err(expected));
}

#[test]
fn offline_tools_report_the_start_of_the_log() {
    let disk = trimmed();
    let verified = verify(&mut disk.reopen_after_crash(), None).unwrap();
    assert_eq!((verified.start, verified.next), (Slot(70), Slot(101)));
    assert_eq!((verified.record_count, verified.damaged), (36, vec![]));
    let mut first = None;
    inspect(&mut disk.reopen_after_crash(), None, &mut |item| {
        if let (None, LogElement::Base { start, segment, seq, note_bytes }) = (&first, item) {
            first = Some((start, segment, seq, note_bytes));
        }
    })
    .unwrap();
    assert_eq!(first, Some((Slot(70), Segment(5), 65, 10)));
}

/// Until the disk accepts the new base, the old one is in force, and the log retains everything.
#[test]
fn a_base_that_cannot_be_replaced_is_tried_again() {
    for renamed in [false, true] {
        let disk = MemoryDisk::new();
        let (mut log, _) = open(&disk);
        write(&mut log, 1, 101);
        disk.inject(Fault::ReplaceFails { renamed });
        log.rebase(Slot(70), Vec::new());
        while log.rebase_failure().is_none() {
            log.poll().unwrap();
        }
        assert_eq!((log.start(), log.take_rebased()), (Slot(1), None));
        assert!(log.is_short_of_resources());
        write(&mut log, 101, 110);
        // Old or new, nothing is missing.
        let crashed = disk.copy();
        crashed.crash(u64::from(renamed));
        let (mut again, recovery) = open(&crashed);
        assert_eq!(recovery.damage, None);
        let start = again.start().0;
        assert_eq!(read_all(&mut again, start, 200).len() as u64, 110 - start);
        log.retry_now();
        while log.take_rebased().is_none() {
            log.poll().unwrap();
        }
        assert_eq!(log.rebase_failure(), None);
        assert_eq!(open(&disk).1.base.start, Slot(70));
    }
}

/// [disk-9] A failed log is not trimmed.
#[test]
fn a_failed_log_is_not_trimmed() {
    let disk = MemoryDisk::new();
    let (mut log, _) = open(&disk);
    write(&mut log, 1, 101);
    disk.inject(Fault::WriteFails);
    vote(&mut log, 101, 100, 101);
    log.start_writes();
    log.poll().unwrap_err();
    log.rebase(Slot(70), Vec::new());
    for _ in 0..50 {
        log.poll().unwrap_err();
    }
    assert_eq!((log.start(), log.take_rebased()), (Slot(1), None));
    assert_eq!(disk.read(BASE_FILE), Ok(None));
}

/// After a cut and a trim right after it, nothing that was cut reappears.
#[test]
fn cut_records_do_not_reappear_after_a_trim() {
    let disk = MemoryDisk::new();
    let (mut log, _) = open(&disk);
    write(&mut log, 1, 21);
    disk.set_manual_completion(true);
    for slot in 21..23 {
        vote(&mut log, slot, 100, slot);
        log.start_writes();
    }
    // The second write is kept, the first is lost.
    let pending = disk.pending();
    let write_of = |pending: &&Pending| pending.kind == PendingKind::Write;
    let last = pending.iter().rfind(write_of).unwrap();
    disk.complete(last.id);
    let seed = (0..).find(|seed| disk.copy().crash(*seed).lost_writes == 1);
    disk.crash(seed.unwrap());
    disk.set_manual_completion(false);
    let (mut log, recovery) = open(&disk);
    assert_eq!((recovery.torn_tail_bytes, recovery.damage), (BLOCK as u64, None));
    for slot in 21..200 {
        vote(&mut log, slot, 100, slot);
        settle(&mut log);
        rebase(&mut log, slot - 3);
        let (mut again, recovery) = open(&disk);
        assert_eq!((recovery.torn_tail_bytes * u64::from(slot > 23), recovery.damage), (0, None));
        assert_eq!(read_all(&mut again, slot - 3, 300).len(), 4);
    }
    assert!(log.size_bytes() <= 8 * options().segment_bytes);
}

/// Completions of operations that the log did not start are passed on, in order.
#[test]
fn completions_of_other_families_are_passed_on() {
    use crate::disk::{Buffer, Completed, Durability, Family, FileId, ZeroFill};
    let disk = MemoryDisk::new();
    let (mut log, _) = open(&disk);
    let part = FileId::new(Family::Snapshot, 1);
    log.disk_mut().start_prepare(part, 4 * BLOCK as u64, ZeroFill::Written);
    write(&mut log, 1, 3);
    let block = Buffer::new(BLOCK);
    log.disk_mut().start_write(7, part.position_at(0), block.into(), BLOCK, Durability::AfterFlush);
    log.disk_mut().start_flush(8, part);
    log.disk_mut().start_replace_small_file(0, "other", b"x".to_vec());
    log.disk_mut().start_retire(part);
    rebase(&mut log, 2);
    for _ in 0..9 {
        log.poll().unwrap();
    }
    let kind = |completed| match completed {
        Completed::Prepared { file, .. } if file == part => 'p',
        Completed::Written { token: 7, .. } => 'w',
        Completed::Flushed { token: 8, .. } => 'f',
        Completed::SmallFileReplaced { name: "other", .. } => 'k',
        Completed::Retired { file, .. } if file == part => 'r',
        other => panic!("{other:?}"),
    };
    let others: String = std::iter::from_fn(|| log.next_other_completion()).map(kind).collect();
    assert_eq!(others, "pwfkr");
    assert_eq!(open(&disk).1.record_count, 2);
}

/// After the log has been trimmed entirely, the one write that remains restates the hard state.
#[test]
fn hard_state_survives_trimming_of_the_entire_log() {
    let disk = trimmed();
    let (mut log, _) = open(&disk);
    let promise = Record::Promise { ballot: ballot(9) };
    let promised = HardState { promised: ballot(9), ..hard(101, 101) };
    log.append(RecordSeq(1), &promise, &[], promised).unwrap();
    settle(&mut log);
    rebase(&mut log, 101);
    let (mut log, recovery) = open(&disk);
    assert_eq!(recovery.hard_state, promised);
    let (again, bytes) = value(101, 100);
    let record = Record::Decided { range: slots(101, 102), value: again };
    log.append(RecordSeq(1), &record, &bytes, promised).unwrap();
    settle(&mut log);
    assert_eq!(open(&disk).1.hard_state.promised, ballot(9));
}
