//! The checkers' view of the disks: every log write that became durable, read back in order.
//!
//! The disks themselves are `quorate_log::disk::MemoryDisk`, which the tests of the log also use.
//! It provides exactly the guarantees of [model-3].

use std::collections::BTreeMap;

use quorate_core::{node_id::Incarnation, record::Record};
use quorate_log::disk::{BLOCK, Family, MemoryDisk, Position};
use quorate_log::{
    log_write::{self, Header},
    record::Records,
};

/// A log write read back from a disk.
#[derive(Clone, Debug)]
pub struct LogWrite {
    pub seq: u64,
    pub incarnation: Incarnation,
    pub records: Vec<Record>,
}

/// Reads the log write at `at`; `None` if no complete log write begins there.
pub fn read_log_write(disk: &MemoryDisk, at: Position) -> Option<LogWrite> {
    let segment = disk.bytes(at.file)?;
    let from = usize::try_from(at.offset).ok()?;
    parse_log_write(at, segment.get(from..)?)
}

/// Parses a log write of the segment's current epoch. Remains of earlier epochs are ignored.
fn parse_log_write(at: Position, bytes: &[u8]) -> Option<LogWrite> {
    let header = Header::decode(bytes.get(..BLOCK)?).ok()?;
    if Position::from(header.place) != at {
        return None;
    }
    let mut whole = bytes.get(..usize::try_from(header.length_bytes).ok()?)?.to_vec();
    log_write::open(&header, &mut whole).ok()?;
    let records = Records::new(header.body_of(&whole));
    let records =
        records.map(|stored| stored.map(|stored| stored.record)).collect::<Result<_, _>>().ok()?;
    Some(LogWrite { seq: header.seq, incarnation: header.incarnation, records })
}

/// Reads all complete log writes with numbers in `seqs`. If two have the same number, the later
/// segment wins, because the earlier write was cut off ([disk-4]).
pub fn scan_log_writes(disk: &MemoryDisk, seqs: std::ops::Range<u64>) -> Vec<LogWrite> {
    let mut found = BTreeMap::new();
    let mut segment = None;
    for place in disk.written_blocks() {
        let bytes = match &mut segment {
            Some((number, bytes)) if *number == place.file => bytes,
            _ => &mut segment.insert((place.file, disk.bytes(place.file).unwrap_or_default())).1,
        };
        let from = usize::try_from(place.offset).expect("a disk in memory fits in memory");
        if let Some(write) =
            parse_log_write(place, &bytes[from..]).filter(|write| seqs.contains(&write.seq))
        {
            found.insert(write.seq, write);
        }
    }
    found.into_values().collect()
}

/// Returns the positions and lengths of all log writes numbered `from` or higher, in any segment.
/// Only their headers are checked.
pub fn log_writes_since(disk: &MemoryDisk, from: u64) -> Vec<(Position, usize)> {
    let mut found = Vec::new();
    let mut segment = None;
    for place in disk.written_blocks() {
        let bytes = match &mut segment {
            Some((file, bytes)) if *file == place.file => bytes,
            _ => &mut segment.insert((place.file, disk.bytes(place.file).unwrap_or_default())).1,
        };
        let at = usize::try_from(place.offset).expect("a disk in memory fits in memory");
        let header = bytes.get(at..).and_then(|bytes| Header::decode(bytes.get(..BLOCK)?).ok());
        let header =
            header.filter(|header| Position::from(header.place) == place && header.seq >= from);
        found.extend(header.map(|header| (place, header.length_bytes as usize)));
    }
    found
}

/// Returns the blocks that may rot ([model-3]): blocks of the log older than the `newest` latest
/// writes, and all blocks of other files. Blocks after the latest write belong to an earlier use of
/// the segment, or to none. Empty if the log has fewer writes than that.
pub fn rottable_blocks(disk: &MemoryDisk, newest: usize) -> Vec<Position> {
    let blocks = disk.written_blocks();
    let mut segment = None;
    let mut writes = Vec::new();
    for place in blocks.iter().filter(|place| place.file.family == Family::Log) {
        let bytes = match &mut segment {
            Some((file, bytes)) if *file == place.file => bytes,
            _ => &mut segment.insert((place.file, disk.bytes(place.file).unwrap_or_default())).1,
        };
        let from = usize::try_from(place.offset).expect("a disk in memory fits in memory");
        let header = Header::decode(&bytes[from..]).ok();
        writes
            .extend(header.filter(|header| Position::from(header.place) == *place).map(|_| *place));
    }
    let Some(end) = writes.len().checked_sub(newest).and_then(|at| writes.get(at)) else {
        return Vec::new();
    };
    let old = |place: &Position| place.file.family != Family::Log || place < end;
    blocks.into_iter().filter(old).collect()
}

/// Returns the positions and lengths of the log writes that consist of blocks that may rot.
pub fn rottable_writes(disk: &MemoryDisk, newest: usize) -> Vec<(Position, u64)> {
    let old = rottable_blocks(disk, newest);
    let heads = old.into_iter().filter(|place| place.file.family == Family::Log);
    let whole = heads.filter_map(|place| {
        let bytes = disk.bytes(place.file)?;
        let from = usize::try_from(place.offset).ok()?;
        let header = Header::decode(bytes.get(from..from + BLOCK)?).ok()?;
        (Position::from(header.place) == place).then_some((place, u64::from(header.length_bytes)))
    });
    whole.collect()
}

/// Durable and released prefix of a node's log, in write order ([disk-2]).
#[derive(Debug, Default)]
pub struct ReleasedWrites {
    next_write: u64,
    waiting_writes: BTreeMap<u64, LogWrite>,
}

impl ReleasedWrites {
    /// Returns a prefix that ends before write `next`.
    pub fn new(next: u64) -> Self {
        Self { next_write: next, waiting_writes: BTreeMap::new() }
    }

    /// Returns the number of the first log write after the prefix.
    pub fn next_write(&self) -> u64 {
        self.next_write
    }

    /// Records a log write that reached the disk. Returns the writes that are released as a result,
    /// in order.
    pub fn record_write(&mut self, write: LogWrite) -> Vec<LogWrite> {
        self.waiting_writes.insert(write.seq, write);
        let mut out = Vec::new();
        while let Some(write) = self.waiting_writes.remove(&self.next_write) {
            self.next_write += 1;
            out.push(write);
        }
        out
    }
}
