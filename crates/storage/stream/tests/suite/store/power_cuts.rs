//! The power fails at every moment of a run, with every possible outcome of the operations in
//! flight: the store opens with the contents of its last checkpoint and no other bytes ([disk-7],
//! [trim-4]).

use quorate_core::slot::Slot;
use quorate_log::disk::{EveryFate, Family, MemoryDisk, PendingKind, Source as _};

use super::shop::{B, Plain, Shop, TINY, name};

/// Number of outcomes of one crash that are tried in order. If there are more, as many again are
/// drawn at random.
const FATES_MAX: usize = 40;

/// A run, and the contents of its checkpoints.
#[derive(Default)]
struct Run {
    plain: Plain,
    /// Contents at the start of each checkpoint, indexed by its slot minus two.
    started_checkpoints: Vec<Plain>,
    event_counts: EventCounts,
}

/// Counts of what was in flight when the power failed.
#[derive(Debug, Default)]
struct EventCounts {
    crashes: u64,
    data: u64,
    catalogues: u64,
    flushes: u64,
    names: u64,
    files: u64,
    old: u64,
    new: u64,
}

impl Run {
    fn held_at(&self, at: Slot) -> Plain {
        match at {
            Slot::FIRST => Plain::default(),
            Slot(at) => self.started_checkpoints[at as usize - 2].clone(),
        }
    }

    fn count_in_flight(&mut self, disk: &MemoryDisk) -> bool {
        let pending = disk.pending();
        let mut files = disk.reopen_after_crash();
        let files = files.files(Family::Stream).expect("a sound disk");
        for pending in &pending {
            let of_chunks = files.iter().any(|info| {
                let tiny = u64::from(TINY.chunk_bytes * TINY.chunks_per_file);
                info.file == pending.position.file && info.bytes == tiny
            });
            match pending.kind {
                PendingKind::Write if of_chunks => self.event_counts.data += 1,
                PendingKind::Write => self.event_counts.catalogues += 1,
                PendingKind::Flush => self.event_counts.flushes += 1,
                PendingKind::ReplaceSmallFile => self.event_counts.names += 1,
                PendingKind::Prepare | PendingKind::Retire => self.event_counts.files += 1,
                PendingKind::Read | PendingKind::Reuse | PendingKind::ReadSmallFile => {}
            }
        }
        !pending.is_empty()
    }

    /// Cuts the power now, with all outcomes, and again right after reopening the store.
    fn power_cut(&mut self, shop: &Shop) {
        let known = shop.store.checkpointed_to();
        let mut fates = EveryFate::default();
        let mut more = true;
        for round in 0..2 * FATES_MAX {
            let disk = shop.disk.copy();
            disk.set_manual_completion(false);
            if round < FATES_MAX {
                disk.crash_as(&mut fates);
            } else {
                disk.crash(round as u64);
            }
            self.event_counts.crashes += 1;
            let mut again = Shop::on_disk(disk);
            let at = again.store.checkpointed_to();
            assert!(at >= known, "{at} is older than {known}: {fates:?}");
            self.event_counts.old += u64::from(at == known);
            self.event_counts.new += u64::from(at > known);
            assert_eq!(again.held_contents(), self.held_at(at).trimmed(), "{fates:?}");
            again.crash(round as u64);
            assert_eq!(again.store.checkpointed_to(), at);
            assert_eq!(again.held_contents(), self.held_at(at).trimmed(), "{fates:?}");
            more = more && fates.next_outcome();
            if !more {
                break;
            }
        }
    }

    /// Completes operations one by one and cuts the power before each.
    fn end_all(&mut self, shop: &mut Shop) {
        loop {
            while shop.turn() {}
            if !self.count_in_flight(&shop.disk) {
                return;
            }
            self.power_cut(shop);
            let next = shop.disk.pending()[0].id;
            assert!(shop.disk.complete(next));
        }
    }

    fn put(&mut self, shop: &mut Shop, stream: u32, position: u64, length: u64) {
        shop.put(name(stream), position, length);
        self.plain.put(name(stream), position, length);
    }

    fn drop_below(&mut self, shop: &mut Shop, stream: u32, position: u64) {
        shop.store.drop_below(name(stream), position);
        self.plain.drop_below(name(stream), position);
    }

    fn begin_checkpoint(&mut self, shop: &mut Shop) {
        self.started_checkpoints.push(self.plain.clone());
        let at = Slot(self.started_checkpoints.len() as u64 + 1);
        assert!(shop.store.start_checkpoint(at, &mut shop.disk));
    }
}

#[test]
fn a_power_cut_leaves_what_the_last_checkpoint_holds() {
    let mut run = Run::default();
    let mut shop = Shop::new();
    shop.disk.set_manual_completion(true);
    run.put(&mut shop, 1, 0, 2 * B + 100);
    run.put(&mut shop, 2, 50, 30);
    run.end_all(&mut shop);
    run.begin_checkpoint(&mut shop);
    // Bytes that arrive during a checkpoint belong to the next one. Here they complete blocks whose
    // beginning is in the catalogue.
    run.put(&mut shop, 1, 2 * B + 100, 2 * B);
    run.put(&mut shop, 2, 0, 50);
    run.end_all(&mut shop);
    run.begin_checkpoint(&mut shop);
    run.end_all(&mut shop);
    // Chunks are dropped and reused, but only once a catalogue no longer names them.
    run.drop_below(&mut shop, 1, 4 * B);
    run.put(&mut shop, 3, 0, 9 * B + 1);
    run.end_all(&mut shop);
    for round in 0..3 {
        run.begin_checkpoint(&mut shop);
        run.put(&mut shop, 3, 9 * B + 1 + round * 3 * B, 3 * B);
        run.drop_below(&mut shop, 3, round * 4 * B + 10);
        run.end_all(&mut shop);
    }
    shop.store.remove_stream(name(3));
    run.plain.streams.remove(&name(3));
    run.put(&mut shop, 4, 0, 8 * B);
    run.begin_checkpoint(&mut shop);
    run.put(&mut shop, 5, 0, 8 * B);
    run.end_all(&mut shop);
    let seen = &run.event_counts;
    assert!(
        seen.crashes > 1_000
            && seen.data > 5
            && seen.catalogues >= 6
            && seen.flushes > 6
            && seen.names >= 6
            && seen.files > 3
            && seen.new > 5
            && seen.old > 100,
        "{seen:?}"
    );
    shop.disk.set_manual_completion(false);
    assert_eq!(shop.held_contents(), run.plain.trimmed());
}
