//! Limits of the store: unusual calls and resource use.

use std::collections::BTreeMap;

use quorate_core::slot::Slot;
use quorate_log::disk::{Disk as _, Family, PendingKind, Position, Source as _};
use quorate_stream::store::{Layout, OPERATIONS_MAX, READS_MAX, ReadError, Store, StoreError};

use super::shop::{B, LIMITS, Plain, Shop, TINY, bytes, name};

const END: u64 = 1 << 62;

#[test]
fn nothing_put_is_nothing_held() {
    let mut shop = Shop::new();
    shop.put(name(1), 10, 0);
    assert_eq!(shop.store.held_contiguous_to(name(1), 10), 10);
    assert_eq!(shop.store.streams().count(), 0);
    assert_eq!(shop.read(name(1), 0, 10), Err(ReadError::Missing));
    assert_eq!(shop.store.missing(name(1), 3..9), vec![3..9; 1]);
    assert_eq!(shop.store.missing(name(1), 9..9), []);
}

#[test]
fn positions_that_no_stream_reaches_are_not_taken() {
    let mut shop = Shop::new();
    let some = [7; 100];
    for position in [u64::MAX, u64::MAX - 50, END, END - 99] {
        shop.store.put_bytes(name(1), position, &some, &mut shop.disk);
        assert_eq!(shop.store.held_contiguous_to(name(1), position), position);
        assert_eq!(shop.read(name(1), position, 10), Err(ReadError::Missing));
    }
    shop.store.put_bytes(name(1), END - 100, &some, &mut shop.disk);
    assert_eq!(shop.store.held_contiguous_to(name(1), END - 100), END);
    shop.checkpoint(2);
    shop.crash(1);
    assert_eq!(shop.read(name(1), END - 100, 1000), Ok(some.to_vec()));
    assert_eq!(shop.store.missing(name(1), 0..u64::MAX).len(), 2);
    shop.store.drop_below(name(1), u64::MAX);
    assert_eq!(shop.store.held_contiguous_to(name(1), END - 100), END - 100);
    shop.store.drop_damaged(name(1), 0..u64::MAX);
    shop.checkpoint(3);
    shop.crash(1);
    assert_eq!(shop.store.streams().collect::<Vec<_>>(), [(name(1), END)]);
}

#[test]
fn bytes_one_by_one_become_whole_blocks() {
    let mut shop = Shop::new();
    let length = 3 * u64::from(TINY.chunk_bytes) + 1;
    for position in 0..length {
        shop.put(name(1), position, 1);
        shop.turn();
    }
    shop.settle();
    let units = 6;
    assert_eq!(shop.disk.counters().writes, units);
    shop.expect(name(1), 0, length);
}

/// The block in which a stream begins counts as whole, although the bytes before the start are
/// missing.
#[test]
fn a_stream_that_begins_within_a_block_is_written() {
    let mut shop = Shop::new();
    shop.store.drop_below(name(1), 100);
    shop.put(name(1), 0, 2 * B);
    shop.settle();
    assert_eq!((shop.disk.counters().writes, shop.store.dirty_bytes()), (1, 0));
    assert_eq!(shop.store.held_contiguous_to(name(1), 99), 99);
    shop.expect(name(1), 100, 2 * B - 100);
    shop.checkpoint(2);
    shop.crash(1);
    shop.expect(name(1), 100, 2 * B - 100);
}

#[test]
fn one_byte_more_than_a_chunk() {
    let mut shop = Shop::new();
    let chunk = u64::from(TINY.chunk_bytes);
    for (stream, length) in [(1, chunk - 1), (2, chunk), (3, chunk + 1)] {
        shop.put(name(stream), 0, length);
        assert_eq!(shop.store.held_contiguous_to(name(stream), 0), length);
    }
    shop.checkpoint(2);
    assert_eq!(shop.store.used_bytes(), 3 * chunk, "one byte is no chunk");
    shop.crash(1);
    for (stream, length) in [(1, chunk - 1), (2, chunk), (3, chunk + 1)] {
        shop.expect(name(stream), 0, length);
    }
}

#[test]
fn a_read_stays_within_what_was_asked_for() {
    let mut shop = Shop::new();
    shop.put(name(1), 0, 6 * B + 10);
    shop.settle();
    let some = |position, length| Ok(bytes(name(1), position, length));
    assert_eq!(shop.read(name(1), 5, 1), some(5, 1));
    assert_eq!(shop.read(name(1), 0, 0), some(0, 1), "one at least");
    assert_eq!(shop.read(name(1), B - 1, 2), some(B - 1, 2));
    let to_the_chunk = 4 * B - 7;
    assert_eq!(shop.read(name(1), 7, usize::MAX), some(7, to_the_chunk));
    assert_eq!(shop.read(name(1), 6 * B + 9, 9), some(6 * B + 9, 1));
    assert_eq!(shop.read(name(1), 6 * B + 10, 9), Err(ReadError::Missing));
    let before = shop.disk.counters().read_count;
    shop.read(name(1), 2 * B + 1, 1).unwrap();
    assert_eq!(shop.disk.counters().read_count, before + 1);
}

#[test]
fn reads_are_bounded_until_they_are_taken() {
    let mut shop = Shop::new();
    shop.put(name(1), 0, 4 * B);
    shop.settle();
    shop.disk.set_manual_completion(true);
    for token in 0..READS_MAX as u64 {
        let Shop { store, disk } = &mut shop;
        store.start_read(token, name(1), token, 1, disk).unwrap();
    }
    assert_eq!(shop.disk.pending().len(), 4);
    let Shop { store, disk } = &mut shop;
    assert!(store.start_read(99, name(1), 0, 1, disk).is_err());
    shop.disk.set_manual_completion(false);
    shop.settle();
    let Shop { store, disk } = &mut shop;
    assert!(store.start_read(99, name(1), 0, 1, disk).is_err());
    let mut tokens = Vec::new();
    while let Some(done) = shop.store.next_read() {
        assert_eq!(done.result.unwrap()[..], bytes(name(1), done.position, 1));
        tokens.push(done.token);
    }
    tokens.sort_unstable();
    assert_eq!(tokens, (0..READS_MAX as u64).collect::<Vec<_>>());
    shop.read(name(1), 0, 1).unwrap();
}

/// With gaps, unaligned ends, drops and checkpoints, no block is ever written twice.
#[test]
fn each_block_is_written_once() {
    let mut shop = Shop::new();
    shop.disk.set_manual_completion(true);
    let mut written: BTreeMap<Position, u32> = BTreeMap::new();
    let mut plain = Plain::default();
    let mut most = 0;
    for round in 0..40 {
        let at = round * 1_700;
        for (stream, position, length) in [(1, at, 1_700), (2, at * 2 + 900, 500), (3, at, 90)] {
            shop.put(name(stream), position, length);
            plain.put(name(stream), position, length);
        }
        if round % 3 == 0 {
            shop.store.start_checkpoint(Slot(round + 2), &mut shop.disk);
        }
        if round == 20 {
            shop.store.drop_below(name(1), 3_000);
            plain.drop_below(name(1), 3_000);
        }
        loop {
            let pending = shop.disk.pending();
            most = most.max(pending.iter().filter(|pending| is_bounded(pending)).count());
            let Some(next) = pending.first() else { break };
            let tiny = u64::from(TINY.chunk_bytes * TINY.chunks_per_file);
            let of_chunks = shop.disk.bytes(next.position.file).map(|bytes| bytes.len() as u64);
            if next.kind == PendingKind::Write && of_chunks == Some(tiny) {
                for block in 0..next.bytes / B {
                    let place = next.position.file.position_at(next.position.offset + block * B);
                    *written.entry(place).or_default() += 1;
                }
            }
            assert!(shop.disk.complete(next.id));
            shop.turn();
        }
    }
    assert!(written.len() > 15 && most > 1 && most <= OPERATIONS_MAX);
    assert!(written.values().all(|times| *times == 1), "{written:?}");
    shop.disk.set_manual_completion(false);
    assert_eq!(shop.held_contents(), plain.trimmed());
}

fn is_bounded(pending: &quorate_log::disk::Pending) -> bool {
    matches!(pending.kind, PendingKind::Write | PendingKind::Read | PendingKind::Flush)
}

#[test]
fn a_thousand_streams_rest_in_their_tails() {
    let mut shop = Shop::new();
    for stream in 0..1000 {
        shop.put(name(stream), 0, B + 5);
        while !shop.store.has_room() {
            assert!(shop.turns());
        }
    }
    assert!(shop.store.dirty_bytes() <= LIMITS.dirty_bytes_max);
    shop.checkpoint(2);
    assert_eq!(shop.store.dirty_bytes(), 0);
    assert_eq!(shop.store.used_bytes(), 1000 * 4 * B);
    shop.crash(3);
    for stream in (0..1000).step_by(37) {
        shop.expect(name(stream), 0, B + 5);
    }
}

/// Many streams that are each far from a full unit share the memory. When it runs short, whole
/// blocks are written.
#[test]
fn memory_is_bounded_however_many_streams_gather() {
    let mut shop = Shop::new();
    for stream in 0..200 {
        shop.put(name(stream), 0, B);
        let gathered = shop.store.dirty_bytes();
        assert!(gathered <= LIMITS.gathered_bytes_max + LIMITS.dirty_bytes_max, "{gathered}");
        while !shop.store.has_room() {
            assert!(shop.turns(), "room comes by itself");
        }
    }
    shop.settle();
    assert!(shop.store.dirty_bytes() <= LIMITS.gathered_bytes_max);
}

#[test]
fn what_is_forgotten_gives_its_memory_and_its_chunks_back() {
    let mut shop = Shop::new();
    for stream in 0..20 {
        shop.put(name(stream), 0, 4 * B);
        shop.put(name(stream), 4 * B, B);
        shop.settle();
    }
    shop.checkpoint(2);
    let (used, files) = (shop.store.used_bytes(), shop.store.file_bytes());
    assert_eq!(used, 40 * 4 * B);
    for stream in 0..20 {
        shop.store.remove_stream(name(stream));
    }
    assert_eq!(shop.store.used_bytes(), used, "a catalogue names them");
    shop.checkpoint(3);
    assert_eq!((shop.store.used_bytes(), shop.store.dirty_bytes()), (0, 0));
    let left = shop.store.file_bytes();
    assert!(left > files / 4 * 3, "{left} of {files}: likely to be used");
    // No writer allocates a chunk any longer.
    let quiet = (1..=1 << 20).find(|_| {
        shop.turn();
        shop.store.file_bytes() < files / 2
    });
    assert!(quiet.is_some_and(|turns| turns > 1000), "{quiet:?}");
    assert_eq!(shop.store.streams().count(), 0);
    shop.put(name(3), 0, B);
    shop.expect(name(3), 0, B);
}

/// A stream with little retained data reuses its files. Regression: each checkpoint used to remove
/// them and create others.
#[test]
fn a_stream_that_is_trimmed_as_it_grows_lives_in_the_same_files() {
    let mut shop = Shop::new();
    let mut seen = Vec::new();
    for round in 0..40 {
        let at = round * 40 * B;
        for chunk in 0..10 {
            shop.put(name(1), at + chunk * 4 * B, 4 * B);
            shop.settle();
        }
        // Retains less in every fourth round.
        let keeps = if round % 4 == 3 { 0 } else { 20 * B };
        shop.store.drop_below(name(1), at + 40 * B - keeps);
        shop.checkpoint(round + 2);
        // Excludes catalogues, which have other sizes.
        let files = shop.disk.files(Family::Stream).unwrap().into_iter();
        let files = files.filter(|info| info.bytes == 16 * B);
        seen.push(files.map(|info| info.file).collect::<Vec<_>>());
    }
    let (first, later) = seen.split_at(8);
    assert!(later.iter().all(|files| Some(files) == first.last()), "{seen:?}");
}

#[test]
fn a_checkpoint_is_one_at_a_time_and_never_goes_back() {
    let mut shop = Shop::new();
    shop.put(name(1), 0, 3 * B);
    let Shop { store, disk } = &mut shop;
    assert!(store.start_checkpoint(Slot(5), disk));
    assert!(store.is_checkpointing() && !store.start_checkpoint(Slot(6), disk));
    assert_eq!(store.checkpointed_to(), Slot::FIRST);
    shop.settle();
    let Shop { store, disk } = &mut shop;
    assert_eq!(store.checkpointed_to(), Slot(5));
    assert!(!store.start_checkpoint(Slot(4), disk));
    shop.checkpoint(5);
}

#[test]
fn the_layout_of_a_store_stays() {
    let mut shop = Shop::new();
    shop.put(name(1), 0, 9 * B);
    shop.checkpoint(2);
    shop.disk.crash(1);
    let mut disk = shop.disk.reopen_after_crash();
    let mut store = Store::open(&mut disk, LIMITS, Layout::DEFAULT).unwrap();
    assert_eq!(store.layout(), TINY);
    store.put_bytes(name(1), 9 * B, &bytes(name(1), 9 * B, B), &mut disk);
    let mut shop = Shop { disk, store };
    shop.expect(name(1), 0, 10 * B);
    let impossible = Layout { unit_bytes: 100, ..TINY };
    let refused = Store::open(&mut shop.disk.reopen_after_crash(), LIMITS, impossible);
    assert_eq!(refused.unwrap_err(), StoreError::Layout);
}

/// Restarts without a checkpoint use no additional disk space. Regression: each start created
/// another file while writes waited for the disk, even with free chunks, so a node killed
/// repeatedly filled its disk.
#[test]
fn restarts_without_a_checkpoint_take_no_more_room() {
    let mut shop = Shop::new();
    shop.put(name(1), 0, B);
    shop.settle();
    shop.checkpoint(2);
    let mut files = Vec::new();
    for seed in 0..10 {
        shop.crash(seed);
        // More writes than can be in flight.
        shop.put(name(1), B, 15 * B);
        shop.settle();
        files.push(shop.store.file_bytes());
        shop.expect(name(1), 0, 16 * B);
    }
    let most = files[2];
    assert!(files.iter().all(|bytes| *bytes <= most), "{files:?}");
}
