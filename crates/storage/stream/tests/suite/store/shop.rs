//! Test fixture: a store on a disk in memory, and a separate model of its expected contents.

use std::collections::BTreeMap;

use quorate_core::{node_id::NodeId, slot::Slot, value::StreamName};
use quorate_log::disk::{BLOCK, Disk as _, MemoryDisk};
use quorate_stream::store::{Layout, ReadDone, ReadError, Store, StoreLimits};

pub(crate) const B: u64 = BLOCK as u64;

/// Units of two blocks, chunks of four, files of four chunks.
pub(crate) const TINY: Layout =
    Layout { unit_bytes: 2 * BLOCK as u32, chunk_bytes: 4 * BLOCK as u32, chunks_per_file: 4 };

pub(crate) const LIMITS: StoreLimits = StoreLimits {
    dirty_bytes_max: 16 * BLOCK,
    gathered_bytes_max: 8 * BLOCK,
    disk_reserve_bytes: 0,
};

pub(crate) fn name(number: u32) -> StreamName {
    StreamName { owner: NodeId(1), boot: 1, number }
}

/// Returns the only byte that a stream can have at a position.
fn byte(stream: StreamName, position: u64) -> u8 {
    let word = position ^ (u64::from(stream.number) << 40);
    quorate_core::dice::mix(word).to_le_bytes()[0]
}

pub(crate) fn bytes(stream: StreamName, position: u64, length: u64) -> Vec<u8> {
    let positions = position..position + length;
    positions.map(|at| byte(stream, at)).collect()
}

/// Expected contents: for each stream its start, and the bytes from there on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plain {
    pub(crate) streams: BTreeMap<StreamName, (u64, Vec<bool>)>,
}

impl Plain {
    pub(crate) fn put(&mut self, stream: StreamName, position: u64, length: u64) {
        if length == 0 {
            return;
        }
        let (kept_from, held) = self.streams.entry(stream).or_default();
        let end = (position + length) as usize;
        held.resize(held.len().max(end), false);
        for at in position.max(*kept_from)..position + length {
            held[at as usize] = true;
        }
    }

    pub(crate) fn drop_below(&mut self, stream: StreamName, position: u64) {
        let (kept_from, held) = self.streams.entry(stream).or_default();
        *kept_from = position.max(*kept_from);
        let end = held.len().min(position as usize);
        held[..end].fill(false);
    }

    pub(crate) fn has(&self, stream: StreamName, position: u64) -> bool {
        let known = self.streams.get(&stream);
        let held = known.and_then(|(_, held)| held.get(position as usize));
        held.is_some_and(|held| *held)
    }
}

pub(crate) struct Shop {
    pub(crate) disk: MemoryDisk,
    pub(crate) store: Store,
}

impl Shop {
    pub(crate) fn new() -> Self {
        Self::on_disk(MemoryDisk::new())
    }

    pub(crate) fn on_disk(disk: MemoryDisk) -> Self {
        let mut disk = disk.reopen_after_crash();
        let store = Store::open(&mut disk, LIMITS, TINY).expect("as told");
        Self { disk, store }
    }

    /// Cuts the power, and opens the store again.
    pub(crate) fn crash(&mut self, seed: u64) {
        self.disk.crash(seed);
        *self = Self::on_disk(self.disk.clone());
    }

    pub(crate) fn put(&mut self, stream: StreamName, position: u64, length: u64) {
        let bytes = bytes(stream, position, length);
        self.store.put_bytes(stream, position, &bytes, &mut self.disk);
    }

    /// Handles one completion, and returns whether there was one.
    pub(crate) fn turn(&mut self) -> bool {
        let completed = self.disk.poll();
        let any = completed.is_some();
        if let Some(completed) = completed {
            assert!(Store::is_store_completion(&completed));
            self.store.on_completed(completed, &mut self.disk);
        }
        self.store.advance(&mut self.disk);
        any
    }

    pub(crate) fn settle(&mut self) {
        while self.turns() {}
    }

    /// Handles one completion. Returns whether there was one, or an operation is in flight.
    pub(crate) fn turns(&mut self) -> bool {
        self.turn() || !self.disk.pending().is_empty()
    }

    /// Checks that `length` bytes starting at a position are held and correct. On failure it does
    /// not print millions of bytes.
    pub(crate) fn expect(&mut self, stream: StreamName, position: u64, length: u64) {
        let held = self.store.held_contiguous_to(stream, position);
        assert!(
            held >= position + length,
            "{stream:?} from {position} is held to {held}, not for {length} bytes"
        );
        let read = self.read_all(stream, position).expect("as told");
        let right = bytes(stream, position, held - position);
        assert!(read == right, "other bytes of {stream:?} from {position} on");
    }

    pub(crate) fn checkpoint(&mut self, at: u64) {
        assert!(self.store.start_checkpoint(Slot(at), &mut self.disk));
        self.settle();
        assert_eq!(self.store.checkpointed_to(), Slot(at));
    }

    pub(crate) fn read(
        &mut self,
        stream: StreamName,
        position: u64,
        bytes_max: usize,
    ) -> Result<Vec<u8>, ReadError> {
        let Self { store, disk } = self;
        store.start_read(7, stream, position, bytes_max, disk).expect("as told");
        loop {
            if let Some(done) = self.store.next_read() {
                let ReadDone { token, result, stream: of, position: at } = done;
                assert_eq!((token, of, at), (7, stream, position));
                return result.map(|bytes| bytes.to_vec());
            }
            assert!(self.turns(), "a read ends");
        }
    }

    /// Returns all bytes held without a gap, starting at a position.
    pub(crate) fn read_all(
        &mut self,
        stream: StreamName,
        position: u64,
    ) -> Result<Vec<u8>, ReadError> {
        let mut all = Vec::new();
        let end = self.store.held_contiguous_to(stream, position);
        while position + (all.len() as u64) < end {
            let at = position + all.len() as u64;
            let bytes = self.read(stream, at, 1 << 20)?;
            assert!(!bytes.is_empty());
            all.extend(bytes);
        }
        Ok(all)
    }

    /// Returns the contents that the store reports as held, every byte read and checked.
    pub(crate) fn held_contents(&mut self) -> Plain {
        let mut plain = Plain::default();
        let streams: Vec<_> = self.store.streams().collect();
        for (stream, kept_from) in streams {
            plain.drop_below(stream, kept_from);
            let missing = self.store.missing(stream, 0..SOME);
            let mut at = kept_from;
            for gap in missing {
                assert_eq!(self.store.held_contiguous_to(stream, at), gap.start, "{stream:?}");
                let read = self.read_all(stream, at).expect("as told");
                assert!(
                    read == bytes(stream, at, gap.start - at),
                    "other bytes of {stream:?} from {at} on"
                );
                plain.put(stream, at, gap.start - at);
                at = gap.end;
            }
        }
        plain.trim();
        plain
    }
}

/// A position above all positions in these tests.
const SOME: u64 = 1 << 30;

impl Plain {
    /// Brings the contents into their shortest form.
    pub(crate) fn trim(&mut self) {
        for (_, held) in self.streams.values_mut() {
            let end = held.iter().rposition(|held| *held).map_or(0, |at| at + 1);
            held.truncate(end);
        }
    }

    /// Returns the contents as ranges, for humans.
    pub(crate) fn ranges(&self) -> String {
        let mut text = String::new();
        for (stream, (kept_from, held)) in &self.streams {
            text += &format!("{} from {kept_from}:", stream.number);
            let mut at = 0;
            for run in held.chunk_by(|one, next| one == next) {
                if run[0] {
                    text += &format!(" {at}..{}", at + run.len());
                }
                at += run.len();
            }
            text += "\n";
        }
        text
    }

    pub(crate) fn trimmed(&self) -> Self {
        let mut plain = self.clone();
        plain.trim();
        plain
    }
}
