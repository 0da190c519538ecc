//! Disks that fail, fill up or rot: the store reports the fault, and never returns wrong bytes
//! ([disk-9]).

use quorate_core::slot::Slot;
use quorate_log::disk::{Family, Fault, FileId, Source as _};
use quorate_stream::store::{ReadError, Store, StoreError};

use super::shop::{B, LIMITS, Plain, Shop, TINY, bytes, name};

/// Returns a store with a durable checkpoint, and its contents.
fn with_checkpoint() -> (Shop, Plain) {
    let (mut shop, mut plain) = (Shop::new(), Plain::default());
    for stream in 1..4 {
        shop.put(name(stream), 0, 5 * B + 7);
        plain.put(name(stream), 0, 5 * B + 7);
    }
    shop.settle();
    shop.checkpoint(2);
    (shop, plain)
}

fn durable(plain: &Plain, shop: &mut Shop) {
    for stream in plain.streams.keys() {
        shop.expect(*stream, 0, 5 * B + 7);
    }
}

#[test]
fn a_failed_write_or_flush_ends_the_store_but_not_its_reads() {
    let checkpoint = |shop: &mut Shop| {
        assert!(shop.store.start_checkpoint(Slot(3), &mut shop.disk));
    };
    for fault in [
        Fault::WriteFails,
        Fault::ShortWrite { bytes: 512 },
        Fault::FlushFails,
        Fault::PrepareFails,
        Fault::ReplaceFails { renamed: false },
        Fault::ReplaceFails { renamed: true },
    ] {
        let (mut shop, plain) = with_checkpoint();
        shop.disk.inject(fault);
        shop.put(name(1), 5 * B + 7, 30 * B);
        checkpoint(&mut shop);
        shop.settle();
        let why = shop.store.failure().expect("it failed").to_owned();
        assert!(!why.is_empty() && !shop.store.has_room());
        assert_eq!(shop.store.checkpointed_to(), Slot(2), "{fault:?}");
        let held = shop.store.held_contiguous_to(name(2), 0);
        shop.put(name(2), held, B);
        assert_eq!(shop.store.held_contiguous_to(name(2), 0), held, "puts are ignored");
        assert!(!shop.store.start_checkpoint(Slot(4), &mut shop.disk));
        durable(&plain, &mut shop);
        // Every remaining byte reported as held is right, or reported as unreadable.
        let end = shop.store.held_contiguous_to(name(1), 0);
        shop.expect(name(1), 0, end);
        shop.crash(5);
        assert_eq!(shop.store.failure(), None, "for the process only");
        durable(&plain, &mut shop);
        assert!(shop.store.checkpointed_to() >= Slot(2));
        shop.checkpoint(9);
        shop.crash(6);
        durable(&plain, &mut shop);
    }
}

/// Bytes whose write failed are read from memory, and the rest of their unit from the disk.
#[test]
fn a_failed_write_takes_nothing_along() {
    let mut shop = Shop::new();
    shop.put(name(1), 0, B);
    shop.checkpoint(2);
    shop.disk.inject(Fault::WriteFails);
    shop.put(name(1), B, B);
    shop.settle();
    assert!(shop.store.failure().is_some());
    shop.expect(name(1), 0, 2 * B);
    shop.store.drop_below(name(1), B + 1);
    shop.expect(name(1), B + 1, B - 1);
    shop.store.remove_stream(name(1));
    assert_eq!(shop.read(name(1), B + 1, 1), Err(ReadError::Missing));
    shop.crash(1);
    shop.expect(name(1), 0, B);
}

#[test]
fn a_full_disk_is_waited_for() {
    let mut shop = Shop::new();
    let tiny = u64::from(TINY.chunk_bytes * TINY.chunks_per_file);
    shop.disk.set_capacity(Some(tiny + tiny / 2));
    let mut put = 0;
    while shop.store.has_room() {
        shop.put(name(1), put, B);
        put += B;
        for _ in 0..10 {
            shop.turn();
        }
        assert!(put < 100 * B, "it is full long before");
    }
    assert_eq!(shop.store.failure(), None);
    assert!(shop.store.shortage().is_some());
    shop.expect(name(1), 0, put);
    shop.disk.set_capacity(None);
    for _ in 0..1000 {
        shop.turn();
    }
    assert!(shop.store.has_room() && shop.store.shortage().is_none());
    shop.checkpoint(2);
    shop.crash(1);
    shop.expect(name(1), 0, put);
}

/// A caller that holds back while the store is full requests nothing, but still learns when there
/// is space again.
#[test]
fn a_first_file_that_cannot_be_made_is_made_later() {
    let mut shop = Shop::new();
    shop.disk.set_capacity(Some(0));
    shop.put(name(1), 0, 16 * B);
    for _ in 0..10 {
        shop.turn();
    }
    shop.store.remove_stream(name(1));
    assert!(shop.store.is_full());
    shop.disk.set_capacity(None);
    for _ in 0..1000 {
        shop.turn();
    }
    assert!(!shop.store.is_full());
    assert_eq!(shop.store.shortage(), None);
}

/// A checkpoint needs no space for bytes without a place, so a trim frees space even if nothing
/// else does.
#[test]
fn a_full_disk_takes_more_when_something_is_dropped() {
    let mut shop = Shop::new();
    let chunk = u64::from(TINY.chunk_bytes);
    // By then, both catalogues have their files.
    shop.put(name(1), 0, chunk);
    shop.checkpoint(2);
    shop.checkpoint(3);
    shop.disk.set_capacity(Some(shop.store.file_bytes()));
    let mut put = chunk;
    while shop.store.has_room() {
        shop.put(name(1), put, B);
        put += B;
        shop.settle();
    }
    assert!(shop.store.shortage().is_some());
    shop.checkpoint(4);
    assert!(!shop.store.has_room(), "nothing was dropped");
    shop.crash(2);
    shop.expect(name(1), 0, put);
    shop.settle();
    assert!(!shop.store.has_room(), "it carried what has no place");
    shop.store.drop_below(name(1), 3 * chunk);
    shop.checkpoint(5);
    shop.settle();
    assert!(shop.store.has_room());
    shop.checkpoint(6);
    shop.crash(3);
    shop.expect(name(1), 3 * chunk, put - 3 * chunk);
}

#[test]
fn room_is_left_to_others() {
    let mut shop = Shop::new();
    let tiny = u64::from(TINY.chunk_bytes * TINY.chunks_per_file);
    shop.disk.set_capacity(Some(4 * tiny));
    let mut disk = shop.disk.reopen_after_crash();
    let limits = quorate_stream::store::StoreLimits { disk_reserve_bytes: 2 * tiny, ..LIMITS };
    let store = Store::open(&mut disk, limits, TINY).unwrap();
    shop = Shop { disk, store };
    shop.put(name(1), 0, 60 * B);
    for _ in 0..1000 {
        shop.turn();
    }
    assert!(shop.store.shortage().is_some());
    assert_eq!(shop.store.file_bytes(), 2 * tiny);
}

#[test]
fn descriptors_are_waited_for() {
    let (mut shop, plain) = with_checkpoint();
    shop.disk.set_out_of_descriptors(true);
    let read = shop.read(name(1), 0, 10);
    assert!(matches!(read, Err(ReadError::RetryLater(_))), "{read:?}");
    shop.put(name(1), 5 * B + 7, 40 * B);
    assert!(shop.store.start_checkpoint(Slot(3), &mut shop.disk));
    for _ in 0..100 {
        shop.turn();
    }
    assert_eq!(shop.store.failure(), None);
    assert_eq!(shop.store.checkpointed_to(), Slot(2));
    assert!(shop.store.shortage().is_some());
    shop.disk.set_out_of_descriptors(false);
    for _ in 0..3000 {
        shop.turn();
    }
    assert_eq!(shop.store.checkpointed_to(), Slot(3));
    assert_eq!(shop.store.shortage(), None);
    durable(&plain, &mut shop);
    shop.crash(1);
    shop.expect(name(1), 0, 45 * B + 7);
}

/// A flipped bit in any written block is detected, reported exactly, and repaired permanently.
#[test]
fn rot_is_noticed_and_repaired() {
    let (shop, plain) = with_checkpoint();
    let (mut rotten, mut blocks) = (0, 0);
    for place in shop.disk.written_blocks() {
        if place.file.family != Family::Stream {
            continue;
        }
        let tiny = u64::from(TINY.chunk_bytes * TINY.chunks_per_file);
        if shop.disk.bytes(place.file).map(|bytes| bytes.len() as u64) != Some(tiny) {
            continue;
        }
        blocks += 1;
        let disk = shop.disk.copy();
        disk.crash(1);
        let mut shop = Shop::on_disk(disk);
        assert!(shop.disk.flip_bit(place, 8 * (place.offset % 4096) + 3));
        for stream in plain.streams.keys().copied() {
            let mut at = 0;
            while at < 5 * B + 7 {
                match shop.read(stream, at, 1 << 20) {
                    Ok(read) => {
                        assert!(read == bytes(stream, at, read.len() as u64));
                        at += read.len() as u64;
                    }
                    Err(ReadError::Corrupt { stream: whose, range, reason }) => {
                        assert_eq!(whose, stream);
                        assert!(range.contains(&at) && range.end - range.start <= 2 * B);
                        assert!(reason.contains("checksum"), "{reason}");
                        rotten += 1;
                        shop.store.drop_damaged(stream, range.clone());
                        assert_eq!(
                            shop.store.missing(stream, 0..5 * B + 7),
                            std::slice::from_ref(&range),
                            "only this is lost"
                        );
                        let used = shop.store.used_bytes();
                        shop.put(stream, range.start, range.end - range.start);
                        shop.settle();
                        if range.end - range.start == 2 * B {
                            // A whole unit is written at once, into another chunk than the rotten
                            // one.
                            let chunk = u64::from(TINY.chunk_bytes);
                            assert_eq!(shop.store.used_bytes(), used + chunk);
                        }
                    }
                    Err(other) => panic!("{other}"),
                }
            }
        }
        shop.settle();
        shop.checkpoint(3);
        shop.crash(2);
        durable(&plain, &mut shop);
        shop.checkpoint(4);
        shop.put(name(1), 5 * B + 7, 20 * B);
        shop.checkpoint(5);
        shop.crash(3);
        durable(&plain, &mut shop);
    }
    assert_eq!((rotten, blocks), (15, 15), "each is noticed once");
}

#[test]
fn what_cannot_be_read_is_as_good_as_rotten() {
    let (mut shop, _) = with_checkpoint();
    shop.disk.inject(Fault::ReadFails);
    let read = shop.read(name(1), 0, 10);
    assert!(
        matches!(&read, Err(ReadError::Corrupt { range, .. }) if *range == (0..2 * B)),
        "{read:?}"
    );
    assert_eq!(shop.read(name(1), 0, 10), Ok(bytes(name(1), 0, 10)));
}

/// A read fails cleanly if its bytes are dropped and their chunk is reused while it is in flight.
#[test]
fn a_read_of_what_is_dropped_meanwhile_says_so() {
    let (mut shop, _) = with_checkpoint();
    shop.disk.set_manual_completion(true);
    let Shop { store, disk } = &mut shop;
    store.start_read(1, name(1), 0, 10, disk).unwrap();
    let read = shop.disk.pending()[0].id;
    shop.store.drop_below(name(1), 4 * B);
    shop.store.start_checkpoint(Slot(3), &mut shop.disk);
    let all_but_the_read = |shop: &mut Shop| {
        loop {
            let next = shop.disk.pending().into_iter().find(|one| one.id != read);
            let Some(next) = next else { return };
            assert!(shop.disk.complete(next.id));
            while shop.turn() {}
        }
    };
    all_but_the_read(&mut shop);
    assert_eq!(shop.store.checkpointed_to(), Slot(3));
    shop.put(name(9), 0, 40 * B);
    all_but_the_read(&mut shop);
    assert!(shop.disk.complete(read));
    shop.turn();
    let done = shop.store.next_read().expect("it ended");
    assert_eq!(done.result, Err(ReadError::Missing));
    // The read fails even if its bytes are right.
    let Shop { store, disk } = &mut shop;
    store.start_read(2, name(2), 0, 10, disk).unwrap();
    store.drop_below(name(2), 1);
    disk.complete_all();
    while shop.turn() {}
    let done = shop.store.next_read().expect("it ended");
    assert_eq!(done.result, Err(ReadError::Missing));
}

#[test]
fn what_is_lost_is_not_written_there_again_after_a_restart() {
    let (mut shop, _) = with_checkpoint();
    shop.store.drop_damaged(name(1), 0..1);
    assert_eq!(shop.store.missing(name(1), 0..4 * B), vec![0..2 * B; 1]);
    shop.checkpoint(3);
    shop.crash(1);
    let used = shop.store.used_bytes();
    shop.put(name(1), 0, 2 * B);
    shop.settle();
    let chunk = u64::from(TINY.chunk_bytes);
    assert_eq!(shop.store.used_bytes(), used + chunk);
    shop.checkpoint(4);
    shop.crash(1);
    shop.expect(name(1), 0, 5 * B + 7);
}

#[test]
fn what_is_being_written_is_sound() {
    let mut shop = Shop::new();
    shop.put(name(1), 0, 4 * B);
    shop.settle();
    shop.disk.set_manual_completion(true);
    shop.put(name(1), 4 * B, 2 * B);
    assert_eq!(shop.disk.pending().len(), 1);
    shop.put(name(1), 6 * B, 10);
    shop.store.drop_damaged(name(1), 2 * B..7 * B);
    assert_eq!(shop.store.missing(name(1), 0..6 * B), vec![2 * B..4 * B; 1]);
    shop.disk.set_manual_completion(false);
    shop.settle();
    shop.expect(name(1), 4 * B, 2 * B + 10);
}

/// On a disk with no space for more files, only dropped chunks can be reused, and only once the
/// small file names a catalogue without them ([trim-4]).
#[test]
fn chunks_that_a_durable_catalogue_names_are_not_used_again() {
    let mut shop = Shop::new();
    let all = u64::from(TINY.chunk_bytes * TINY.chunks_per_file);
    shop.put(name(1), 0, all / 2);
    shop.settle();
    shop.checkpoint(2);
    shop.put(name(1), all / 2, all / 2);
    shop.settle();
    shop.checkpoint(3);
    shop.disk.set_capacity(Some(0));
    for stream in 2.. {
        if !shop.store.has_room() {
            break;
        }
        shop.put(name(stream), 0, 4 * B);
        shop.settle();
    }
    assert!(shop.store.shortage().is_some(), "no chunk is free");
    shop.disk.set_manual_completion(true);
    shop.store.remove_stream(name(1));
    shop.store.start_checkpoint(Slot(4), &mut shop.disk);
    let mut crashes = 0;
    while shop.store.checkpointed_to() < Slot(4) {
        while shop.turn() {}
        let before = shop.disk.copy();
        before.set_manual_completion(false);
        before.crash(crashes);
        let mut again = Shop::on_disk(before);
        if again.store.checkpointed_to() == Slot(3) {
            again.expect(name(1), 0, all);
        }
        crashes += 1;
        let Some(next) = shop.disk.pending().first().copied() else {
            break;
        };
        assert!(shop.disk.complete(next.id));
        shop.turn();
    }
    assert_eq!(shop.store.checkpointed_to(), Slot(4));
    assert!(crashes > 3);
    shop.disk.set_manual_completion(false);
    shop.settle();
    assert!(shop.store.used_bytes() >= all, "now they are used");
    shop.expect(name(2), 0, 4 * B);
}

/// A read is retried if its damaged bytes are repaired while it is in flight.
#[test]
fn a_read_of_what_is_repaired_meanwhile_is_tried_again() {
    let (mut shop, _) = with_checkpoint();
    let rotten = shop.disk.written_blocks()[0];
    assert!(shop.disk.flip_bit(rotten, 5));
    shop.disk.set_manual_completion(true);
    let whose = (1..4)
        .map(name)
        .find(|stream| {
            let Shop { store, disk } = &mut shop;
            store.start_read(1, *stream, 0, 10, disk).unwrap();
            let read = shop.disk.pending()[0];
            if read.position == rotten {
                return true;
            }
            assert!(shop.disk.complete(read.id));
            while shop.turn() {}
            shop.store.next_read().is_none()
        })
        .expect("it is the first of a stream");
    let read = shop.disk.pending()[0].id;
    shop.store.drop_damaged(whose, 0..2 * B);
    shop.put(whose, 0, 2 * B);
    while let Some(write) = shop.disk.pending().iter().find(|one| one.id != read) {
        assert!(shop.disk.complete(write.id));
        while shop.turn() {}
    }
    assert!(shop.disk.complete(read));
    shop.disk.set_manual_completion(false);
    shop.settle();
    let done = shop.store.next_read().expect("it ended");
    assert_eq!(done.result.unwrap()[..], bytes(whose, 0, 10));
}

#[test]
fn a_file_that_is_gone_is_not_held() {
    let (shop, _) = with_checkpoint();
    shop.disk.crash(1);
    let mut disk = shop.disk.reopen_after_crash();
    let files = disk.files(Family::Stream).unwrap();
    let first = files[0].file;
    assert!(disk.remove(first));
    let mut shop = Shop::on_disk(disk);
    assert_eq!(shop.store.checkpointed_to(), Slot(2));
    let held = shop.held_contents();
    let missing: u64 = (1..4)
        .flat_map(|stream| shop.store.missing(name(stream), 0..5 * B + 7))
        .map(|range| range.end - range.start)
        .sum();
    assert!(missing > 0 && held != Plain::default(), "{missing}");
    for stream in 1..4 {
        shop.put(name(stream), 0, 5 * B + 7);
    }
    shop.checkpoint(3);
    shop.crash(1);
    for stream in 1..4 {
        shop.expect(name(stream), 0, 5 * B + 7);
    }
}

#[test]
fn a_damaged_catalogue_is_refused_and_one_can_begin_anew() {
    let (shop, _) = with_checkpoint();
    shop.disk.crash(1);
    let mut disk = shop.disk.reopen_after_crash();
    let tiny = u64::from(TINY.chunk_bytes * TINY.chunks_per_file);
    let files = disk.files(Family::Stream).unwrap();
    let catalogue = files.iter().find(|info| info.bytes != tiny).unwrap().file;
    assert!(disk.flip_bit(catalogue.position_at(0), 8 * 40));
    let damaged = Store::open(&mut disk, LIMITS, TINY).unwrap_err();
    assert!(matches!(damaged, StoreError::Catalogue { file, .. } if file == catalogue.number));
    assert!(disk.remove(FileId::new(Family::Stream, catalogue.number)));
    let missing = Store::open(&mut disk, LIMITS, TINY).unwrap_err();
    assert_eq!(missing, StoreError::Missing { file: catalogue.number });
    let store = Store::open_emptied(&mut disk, LIMITS, TINY).unwrap();
    assert_eq!(store.checkpointed_to(), Slot::FIRST);
    let mut shop = Shop { disk, store };
    assert_eq!(shop.held_contents(), Plain::default());
    shop.put(name(1), 0, 9 * B);
    shop.checkpoint(2);
    shop.crash(1);
    shop.expect(name(1), 0, 9 * B);
}
