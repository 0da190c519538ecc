//! The table, tested with hand-written and random commands, and against its own rows.

use quorate_core::dice::Dice;
use quorate_core::node_id::NodeId;

use super::*;

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

const fn inner(number: u32) -> StreamName {
    StreamName { owner: NodeId(1), boot: 1, number }
}

fn slots(from: u64, to: u64) -> SlotRange {
    SlotRange::new(Slot(from), Slot(to))
}

fn open(table: &mut Table, how: OpenMode, writer: u128, number: u32) -> Reply {
    let command = Command::Open {
        name: name("s"),
        mode: how,
        writer: Writer(writer),
        stream: inner(number),
        now_ms: 7,
    };
    table.execute(Slot(9), &command.encode())
}

fn opened(at: u64, number: u32) -> Reply {
    let stream = inner(number);
    Ok(StreamOutcome::Opened { stream, start_position: at })
}

fn close(table: &mut Table, number: u32, finish: bool) -> Reply {
    let stream = inner(number);
    table.execute(Slot(9), &Command::Close { stream, finish }.encode())
}

fn trim(table: &mut Table, before: u64) -> Reply {
    let name = name("s");
    table.execute(Slot(9), &Command::Trim { name, retain_from: before }.encode())
}

/// Appends content of inner stream `number` at positions `from` to `to`, in slots starting at 1000.
fn content(table: &mut Table, number: u32, from: u64, to: u64) -> Range<u64> {
    let offset = 1000;
    table.append(inner(number), offset, slots(offset + from, offset + to))
}

fn changes(table: &mut Table) -> Vec<InnerStreamChange> {
    std::iter::from_fn(|| table.next_change()).collect()
}

/// [stream-4] A byte is appended if and only if it is the next one of an open stream.
#[test]
fn byte_is_appended_iff_it_is_the_next_one_of_an_open_stream() {
    let mut table = Table::default();
    assert!(content(&mut table, 1, 0, 5).is_empty(), "no writer opened it");
    assert_eq!(open(&mut table, OpenMode::Create, 1, 1), opened(0, 1));
    assert_eq!(content(&mut table, 1, 0, 5), 0..5);
    assert!(content(&mut table, 1, 0, 5).is_empty(), "a repeat");
    assert!(content(&mut table, 1, 6, 9).is_empty(), "a gap closes nothing");
    assert_eq!(content(&mut table, 1, 3, 7), 5..7, "the part that is new");
    assert_eq!(table.info(&name("s")).unwrap().end, 7);
    assert_eq!(close(&mut table, 1, false), Ok(StreamOutcome::Closed { end_position: 7 }));
    assert!(content(&mut table, 1, 7, 9).is_empty(), "closed");
    let none = table.append(inner(1), 2000, slots(1000, 1010));
    assert!(none.is_empty(), "slots before the offset have no position");
}

/// [stream-4] Content that is a no-op in any case needs no bytes; other content may.
#[test]
fn only_what_may_be_appended_needs_bytes() {
    let mut table = Table::default();
    let may = |table: &Table, number, from: u64, to: u64| {
        table.appendable(inner(number), 1000, slots(1000 + from, 1000 + to))
    };
    assert_eq!(may(&table, 1, 0, 5), 0..5, "it may be opened before that slot");
    open(&mut table, OpenMode::Create, 1, 1).unwrap();
    content(&mut table, 1, 0, 5);
    assert!(may(&table, 1, 0, 5).is_empty());
    assert_eq!(may(&table, 1, 3, 8), 5..8);
    assert_eq!(may(&table, 1, 9, 12), 9..12, "what is between may be decided first");
    close(&mut table, 1, false).unwrap();
    assert!(may(&table, 1, 9, 12).is_empty());
    // Content of a removed stream needs no bytes, either. Another stream may still be opened.
    let name = name("s");
    table.execute(Slot(9), &Command::Remove { name }.encode()).unwrap();
    assert!(may(&table, 1, 0, 12).is_empty());
    assert_eq!(may(&table, 2, 0, 12), 0..12);
    assert_eq!(open(&mut table, OpenMode::Create, 1, 1), Err(Denied::InnerStreamReused));
}

/// [stream-10] A single command closes the old piece and begins the new one where the old one
/// ended.
#[test]
fn takeover_fences_the_first_writer_permanently() {
    let mut table = Table::default();
    open(&mut table, OpenMode::Create, 1, 1).unwrap();
    content(&mut table, 1, 0, 10);
    assert_eq!(open(&mut table, OpenMode::Append, 2, 2), Err(Denied::InUse));
    assert_eq!(open(&mut table, OpenMode::Create, 2, 2), Err(Denied::Exists));
    assert_eq!(open(&mut table, OpenMode::Continue, 2, 2), Err(Denied::Fenced));
    assert_eq!(open(&mut table, OpenMode::Takeover, 2, 2), opened(10, 2));
    assert_eq!(changes(&mut table), [InnerStreamChange::Closed { stream: inner(1), end: 10 }]);
    assert!(content(&mut table, 1, 10, 20).is_empty(), "the first is fenced");
    assert_eq!(content(&mut table, 2, 0, 3), 0..3);
    assert_eq!(open(&mut table, OpenMode::Continue, 1, 3), Err(Denied::Fenced));
    assert_eq!(close(&mut table, 1, true), Err(Denied::Fenced));
    assert_eq!(close(&mut table, 2, false), Ok(StreamOutcome::Closed { end_position: 13 }));
    assert_eq!(open(&mut table, OpenMode::Continue, 1, 3), Err(Denied::Fenced));
    assert_eq!(open(&mut table, OpenMode::Continue, 2, 3), opened(13, 3));
}

/// A takeover that was sent twice, because its reply was lost, may be executed late, after another
/// one.
#[test]
fn late_takeover_does_not_undo_a_later_one() {
    let mut table = Table::default();
    open(&mut table, OpenMode::Create, 1, 1).unwrap();
    open(&mut table, OpenMode::Takeover, 2, 2).unwrap();
    content(&mut table, 2, 0, 5);
    open(&mut table, OpenMode::Takeover, 3, 3).unwrap();
    content(&mut table, 3, 0, 5);
    for how in [OpenMode::Takeover, OpenMode::Append, OpenMode::Continue, OpenMode::Create] {
        assert_eq!(open(&mut table, how, 2, 4), Err(Denied::Fenced), "{how:?}");
    }
    assert_eq!(content(&mut table, 3, 5, 7), 5..7, "the last goes on");
    assert_eq!(close(&mut table, 3, false), Ok(StreamOutcome::Closed { end_position: 12 }));
    assert_eq!(open(&mut table, OpenMode::Append, 2, 4), Err(Denied::Fenced));
    // Nor does a late takeover undo an append to a stream without a writer.
    open(&mut table, OpenMode::Append, 4, 4).unwrap();
    assert_eq!(open(&mut table, OpenMode::Takeover, 3, 5), Err(Denied::Fenced));
    let restored = Table::restore(table.all_rows()).unwrap();
    assert_eq!(restored.all_rows().collect::<Vec<_>>(), table.all_rows().collect::<Vec<_>>());
    for number in 5..600 {
        open(&mut table, OpenMode::Takeover, u128::from(number), number).unwrap();
    }
    assert_eq!(table.info(&name("s")).unwrap().end, 12);
    Table::restore(table.all_rows()).unwrap();
}

/// A writer that lost its connection proves its identity and continues at the exact position.
#[test]
fn same_writer_continues_at_the_position_of_the_close() {
    let mut table = Table::default();
    open(&mut table, OpenMode::Create, 1, 1).unwrap();
    assert_eq!(open(&mut table, OpenMode::Create, 1, 2), opened(0, 2), "the reply was lost");
    assert!(content(&mut table, 1, 0, 4).is_empty());
    assert_eq!(content(&mut table, 2, 0, 4), 0..4);
    assert_eq!(open(&mut table, OpenMode::Continue, 1, 3), opened(4, 3));
    assert_eq!(content(&mut table, 3, 0, 4), 0..4);
    let info = table.info(&name("s")).unwrap();
    assert_eq!((info.end, info.pieces), (8, 2), "an empty piece leaves no trace");
    assert_eq!(open(&mut table, OpenMode::Append, 1, 3), Err(Denied::InnerStreamReused));
    assert_eq!(close(&mut table, 3, true), Ok(StreamOutcome::Closed { end_position: 8 }));
    assert_eq!(open(&mut table, OpenMode::Continue, 1, 4), Err(Denied::Finished));
    assert_eq!(open(&mut table, OpenMode::Takeover, 5, 4), Err(Denied::Finished));
}

#[test]
fn positions_are_found_across_pieces_and_trims() {
    let mut table = Table::default();
    let s = name("s");
    assert_eq!(table.locate(&s, 0), Err(LocateError::Unknown));
    for (number, bytes) in [(1, 10), (2, 5), (3, 7)] {
        open(
            &mut table,
            if number == 1 { OpenMode::Create } else { OpenMode::Continue },
            1,
            number,
        )
        .unwrap();
        content(&mut table, number, 0, bytes);
    }
    let at = |table: &Table, position| {
        let InnerPosition { stream, position, bytes } = table.locate(&s, position).unwrap();
        (stream.number, position, bytes)
    };
    assert_eq!(at(&table, 0), (1, 0, 10));
    assert_eq!(at(&table, 9), (1, 9, 1));
    assert_eq!(at(&table, 10), (2, 0, 5));
    assert_eq!(at(&table, 16), (3, 1, 6));
    let end = LocateError::PastEnd { end: 22, finished: false };
    assert_eq!(table.locate(&s, 22), Err(end));
    changes(&mut table);

    assert_eq!(trim(&mut table, 23), Err(Denied::PastEnd { end: 22 }));
    assert_eq!(trim(&mut table, 12), Ok(StreamOutcome::Trimmed { start: 12 }));
    assert_eq!(trim(&mut table, 3), Ok(StreamOutcome::Trimmed { start: 12 }), "never back");
    let gone = InnerStreamChange::Removed { stream: inner(1) };
    let cut = InnerStreamChange::Trimmed { stream: inner(2), below: 2 };
    assert_eq!(changes(&mut table), [gone, cut, cut]);
    assert_eq!(table.locate(&s, 11), Err(LocateError::Trimmed { start: 12 }));
    assert_eq!(at(&table, 12), (2, 2, 3));
    assert_eq!(
        table.retained_ranges().map(|(stream, kept)| (stream.number, kept)).collect::<Vec<_>>(),
        [(2, 2..5), (3, 0..7)]
    );
    assert_eq!(trim(&mut table, 22), Ok(StreamOutcome::Trimmed { start: 22 }));
    assert_eq!(content(&mut table, 3, 7, 8), 7..8, "the last piece stays open");
    assert_eq!(at(&table, 22), (3, 7, 1));

    changes(&mut table);
    let remove = Command::Remove { name: s.clone() }.encode();
    assert_eq!(table.execute(Slot(9), &remove), Ok(StreamOutcome::Removed));
    let closed = InnerStreamChange::Closed { stream: inner(3), end: 8 };
    let removed = InnerStreamChange::Removed { stream: inner(3) };
    assert_eq!(changes(&mut table), [closed, removed]);
    assert!(content(&mut table, 3, 8, 9).is_empty());
    assert_eq!(table.execute(Slot(9), &remove), Err(Denied::Unknown));
}

#[test]
fn number_of_pieces_is_bounded() {
    let mut table = Table::default();
    open(&mut table, OpenMode::Create, 1, 0).unwrap();
    for number in 1..u32::try_from(PIECES_MAX).unwrap() {
        content(&mut table, number - 1, 0, 1);
        open(&mut table, OpenMode::Continue, 1, number).unwrap();
    }
    let one_more = u32::MAX - 1;
    assert!(open(&mut table, OpenMode::Continue, 1, one_more).is_ok(), "the last was empty");
    content(&mut table, one_more, 0, 1);
    let refused = open(&mut table, OpenMode::Continue, 1, one_more + 1);
    assert_eq!(refused, Err(Denied::TooManyPieces));
    assert_eq!(content(&mut table, one_more, 1, 2), 1..2, "the writer keeps its piece");
    trim(&mut table, 1).unwrap();
    assert!(open(&mut table, OpenMode::Continue, 1, one_more + 1).is_ok());
}

/// [trim-2] Bytes that are too old are dropped by the log's time, equally on every node. Bytes
/// beyond the size bound are dropped when a leader requests it.
#[test]
fn bytes_beyond_the_age_or_size_bound_are_dropped() {
    let mut table = Table::default();
    let s = name("s");
    open(&mut table, OpenMode::Create, 1, 1).unwrap();
    let keep = |table: &mut Table, bytes, age_ms| {
        let keep = Retention { bytes, age_ms };
        let name = name("s");
        table.execute(Slot(9), &Command::Retain { name, retention: keep }.encode())
    };
    let age = |table: &mut Table, now_ms| {
        let aged = table.execute(Slot(9), &Command::Age { now_ms }.encode());
        assert_eq!(aged, Ok(StreamOutcome::Aged));
        table.info(&name("s")).unwrap().start
    };
    assert_eq!(table.min_age_bound_ms(), None);
    assert_eq!(keep(&mut table, None, Some(1000)), Ok(StreamOutcome::Retained));
    assert_eq!(table.min_age_bound_ms(), Some(1000));
    content(&mut table, 1, 0, 10);
    assert_eq!(age(&mut table, 5000), 0);
    content(&mut table, 1, 10, 20);
    assert_eq!(age(&mut table, 5500), 0);
    assert_eq!(age(&mut table, 4000), 0, "a clock that went back tells nothing");
    assert_eq!(age(&mut table, 5999), 0);
    assert_eq!(age(&mut table, 6000), 10, "appended at 5000 at the latest");
    assert_eq!(age(&mut table, 9000), 20);
    content(&mut table, 1, 20, 30);
    for now_ms in 0..1000 {
        age(&mut table, 9001 + now_ms / 10);
    }
    assert_eq!(Table::restore(table.all_rows()).unwrap().info(&s), table.info(&s));

    assert_eq!(table.streams_over_size(1).count(), 0);
    keep(&mut table, Some(4), None).unwrap();
    assert_eq!(table.streams_over_size(6).collect::<Vec<_>>(), [(&s, 26)]);
    assert_eq!(table.streams_over_size(7).count(), 0, "not worth it");
    assert_eq!(table.min_age_bound_ms(), None);
    assert_eq!(age(&mut table, 99_000), 20, "age does not matter any more");
}

/// After any change, the rows restore the table, and only the rows reported as changed differ.
#[test]
fn rows_restore_the_table_and_changed_rows_are_reported() {
    for seed in 0..200 {
        let mut dice = Dice::new(seed);
        let mut table = Table::default();
        let mut kept = BTreeMap::new();
        let mut number = 0;
        for step in 0..100 {
            let text = ["a", "b", "c"][dice.index(3)];
            let name = name(text);
            let hows = [OpenMode::Create, OpenMode::Append, OpenMode::Takeover, OpenMode::Continue];
            number += 1;
            let before = dice.below(20);
            let command = match dice.below(10) {
                8 => Command::Retain {
                    name,
                    retention: Retention { bytes: None, age_ms: dice.chance(2, 3).then_some(20) },
                },
                9 => Command::Age { now_ms: step },
                0 => Command::Remove { name },
                1 => Command::Trim { name, retain_from: before },
                2 => Command::Close { stream: inner(number - 1), finish: dice.below(4) == 0 },
                _ => Command::Open {
                    name,
                    mode: hows[dice.index(4)],
                    writer: Writer(u128::from(dice.below(2))),
                    stream: inner(number),
                    now_ms: step,
                },
            };
            let _ = table.execute(Slot(step + 1), &command.encode());
            let some = table.open_streams().next();
            if let Some(stream) = some {
                let next = table.next_position(stream).unwrap();
                table.append(stream, 0, slots(next, next + dice.below(4)));
            }
            for (key, value) in table.take_changed_rows() {
                assert!(Table::is_table_key(&key));
                match value {
                    Some(value) => drop(kept.insert(key, value)),
                    None => drop(kept.remove(&key)),
                }
            }
            changes(&mut table);
            assert_eq!(table.all_rows().collect::<BTreeMap<_, _>>(), kept);
            assert_eq!(Table::restore(kept.clone()).unwrap(), table, "seed {seed}");
        }
    }
}

#[test]
fn hostile_rows_are_an_error_not_a_panic() {
    let mut table = Table::default();
    open(&mut table, OpenMode::Create, 1, 1).unwrap();
    content(&mut table, 1, 0, 9);
    let rows: Vec<_> = table.all_rows().collect();
    let mut dice = Dice::new(1);
    for _ in 0..20_000 {
        let mut rows = rows.clone();
        let which = dice.index(2);
        let (key, value) = &mut rows[which];
        let bytes = if dice.below(4) == 0 { key } else { value };
        let at = dice.index(bytes.len());
        match dice.below(3) {
            0 => bytes.truncate(at),
            1 => bytes[at] ^= 1 << dice.below(8),
            _ => bytes.push(0),
        }
        if let Ok(mut table) = Table::restore(rows) {
            // Any table that was accepted can be used.
            let _ = open(&mut table, OpenMode::Takeover, 9, 77);
            content(&mut table, 77, 0, 3);
            let _ = trim(&mut table, 5);
            let _ = table.retained_ranges().count();
        }
    }
    assert!(Table::restore(vec![(Vec::new(), Vec::new())]).is_err());
}
