//! Properties that hold for any bytes of a catalogue.

use quorate_core::{node_id::NodeId, value::StreamName};
use quorate_log::disk::{
    BLOCK, Disk as _, Family, FileId, MemoryDisk, SmallFiles as _, Source as _, sealed,
};
use quorate_stream::store::{Layout, Store, StoreLimits};

/// Flag: the small file names the catalogue with its length, checksum and slot, as a broken program
/// could have written it.
pub(crate) const SEALED: u8 = 1;

pub(crate) const TINY: Layout =
    Layout { unit_bytes: 2 * BLOCK as u32, chunk_bytes: 4 * BLOCK as u32, chunks_per_file: 2 };

pub(crate) const LIMITS: StoreLimits = StoreLimits {
    dirty_bytes_max: 16 * BLOCK,
    gathered_bytes_max: 8 * BLOCK,
    disk_reserve_bytes: 0,
};

/// Number of existing chunk files, whatever the catalogue says.
const FILES: u64 = 4;
const CATALOGUE: u64 = 9;
const READS: usize = 8;

/// Returns the catalogue that a store wrote last.
pub(crate) fn current(disk: &mut MemoryDisk) -> Vec<u8> {
    let pointer = disk.read_small_file(Store::POINTER_FILE).expect("readable").expect("written");
    let text = String::from_utf8(pointer).expect("text");
    let number = |name: &str| {
        let mut lines = text.lines();
        let line = lines.find_map(|line| line.strip_prefix(name)).expect(name);
        line.trim().parse::<u64>().expect("a number")
    };
    let file = FileId::new(Family::Stream, number("file"));
    let mut bytes = disk.bytes(file).expect("it is named");
    bytes.truncate(usize::try_from(number("bytes")).expect("small"));
    bytes
}

/// Checks one input: a byte of flags, then the catalogue.
pub(crate) fn check(bytes: &[u8]) {
    if let Some((mut store, mut disk)) = open(bytes) {
        judge(&mut store, &mut disk);
        go_on(store, disk);
    }
}

/// Opens a store with the catalogue `bytes`, if that is possible.
pub(crate) fn open(bytes: &[u8]) -> Option<(Store, MemoryDisk)> {
    let (flags, catalogue) = bytes.split_first()?;
    let mut disk = MemoryDisk::new();
    let chunk_bytes = (TINY.chunk_bytes * TINY.chunks_per_file) as usize;
    for number in 1..=FILES {
        disk.store_file(FileId::new(Family::Stream, number), &vec![7; chunk_bytes]);
    }
    let mut file = catalogue.to_vec();
    file.resize(file.len().next_multiple_of(BLOCK).max(BLOCK), 0);
    disk.store_file(FileId::new(Family::Stream, CATALOGUE), &file);
    if flags & SEALED != 0 {
        disk.replace(Store::POINTER_FILE, &pointer(catalogue)).expect("a sound disk");
    } else {
        // These are the bytes of the small file.
        disk.replace(Store::POINTER_FILE, catalogue).expect("a sound disk");
    }
    let store = Store::open(&mut disk, LIMITS, TINY).ok()?;
    Some((store, disk))
}

fn pointer(catalogue: &[u8]) -> Vec<u8> {
    let slot = catalogue.get(22..30).and_then(|slot| slot.try_into().ok());
    let slot = slot.map_or(0, u64::from_le_bytes);
    let checksum = crc32c::crc32c(catalogue);
    let lines = format!(
        "quorate catalogue 1\nat {slot}\nfile {CATALOGUE}\nbytes {}\ncrc {checksum:08x}\n",
        catalogue.len()
    );
    sealed::append_checksum_line(&lines).into_bytes()
}

/// Checks that bytes reported as held can be read or are reported as rotten, and that all others
/// are missing.
fn judge(store: &mut Store, disk: &mut MemoryDisk) {
    let streams: Vec<(StreamName, u64)> = store.streams().collect();
    let mut reads = 0;
    for (stream, kept_from) in streams {
        let mut at = kept_from;
        for gap in store.missing(stream, kept_from..u64::MAX) {
            while at < gap.start && reads < READS {
                reads += 1;
                store.start_read(1, stream, at, 1 << 20, disk).expect("one at a time");
                let done = loop {
                    if let Some(done) = store.next_read() {
                        break done;
                    }
                    store.advance(disk);
                    if let Some(completed) = disk.poll() {
                        store.on_completed(completed, disk);
                    }
                };
                match done.result {
                    Ok(bytes) => {
                        assert!(!bytes.is_empty() && bytes.len() as u64 <= gap.start - at);
                        at += bytes.len() as u64;
                    }
                    Err(quorate_stream::store::ReadError::Corrupt { range, .. }) => {
                        assert!(range.contains(&at) && range.end <= gap.start);
                        store.drop_damaged(stream, range.clone());
                        assert_eq!(store.held_contiguous_to(stream, at), at, "it is lost");
                        at = range.end;
                    }
                    Err(other) => panic!("{other}"),
                }
            }
            at = gap.end;
        }
    }
}

/// Uses the store, and checks that the bytes put are held after the next start.
fn go_on(mut store: Store, mut disk: MemoryDisk) {
    let stream = StreamName { owner: NodeId(77), boot: 77, number: 77 };
    store.remove_stream(stream);
    let bytes = vec![b'z'; 3 * BLOCK + 5];
    store.put_bytes(stream, 0, &bytes, &mut disk);
    let at = store.checkpointed_to().plus(1);
    assert!(store.start_checkpoint(at, &mut disk));
    let other = store.streams().map(|(name, _)| name).next();
    let other = other.expect("one at least");
    store.drop_below(other, 5);
    while store.is_checkpointing() {
        store.advance(&mut disk);
        if let Some(completed) = disk.poll() {
            store.on_completed(completed, &mut disk);
        }
    }
    assert_eq!(store.failure(), None);
    disk.crash(1);
    let mut disk = disk.reopen_after_crash();
    let store = Store::open(&mut disk, LIMITS, TINY).expect("it opens again");
    assert_eq!(store.checkpointed_to(), at);
    assert_eq!(store.held_contiguous_to(stream, 0), bytes.len() as u64);
}
