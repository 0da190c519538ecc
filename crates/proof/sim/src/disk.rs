//! The global observer's view of the disks: every log write that became durable, read back in
//! order.
//!
//! The disks themselves are `quorate_log::disk::MemoryDisk`, which the log's own tests use too; it
//! keeps the promises of [model-3] and no other.

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
    /// Its number.
    pub seq: u64,
    /// In which incarnation it was written.
    pub incarnation: Incarnation,
    pub records: Vec<Record>,
}

/// Reads the log write at this place, if a whole one is there.
pub fn read(disk: &MemoryDisk, at: Position) -> Option<LogWrite> {
    let segment = disk.bytes(at.file)?;
    let from = usize::try_from(at.offset).ok()?;
    parse(at, segment.get(from..)?)
}

/// Parses a write of the segment's epoch: remains of its earlier lives are not read.
fn parse(at: Position, bytes: &[u8]) -> Option<LogWrite> {
    let header = Header::decode(bytes.get(..BLOCK)?).ok()?;
    if Position::from(header.place) != at {
        return None;
    }
    let mut whole = bytes.get(..usize::try_from(header.length).ok()?)?.to_vec();
    log_write::open(&header, &mut whole).ok()?;
    let records = Records::new(header.body_of(&whole));
    let records =
        records.map(|stored| stored.map(|stored| stored.record)).collect::<Result<_, _>>().ok()?;
    Some(LogWrite { seq: header.seq, incarnation: header.incarnation, records })
}

/// Reads all whole log writes with these numbers. Of two with one number the later segment's
/// counts: the other was cut off ([disk-4]).
pub fn scan(disk: &MemoryDisk, seqs: std::ops::Range<u64>) -> Vec<LogWrite> {
    let mut found = BTreeMap::new();
    let mut segment = None;
    for place in disk.written_blocks() {
        let bytes = match &mut segment {
            Some((number, bytes)) if *number == place.file => bytes,
            _ => &mut segment.insert((place.file, disk.bytes(place.file).unwrap_or_default())).1,
        };
        let from = usize::try_from(place.offset).expect("a disk in memory fits in memory");
        if let Some(write) = parse(place, &bytes[from..]).filter(|write| seqs.contains(&write.seq))
        {
            found.insert(write.seq, write);
        }
    }
    found.into_values().collect()
}

/// Places and lengths of all whole log writes from this number on, whatever segment they are in.
pub fn writes_from(disk: &MemoryDisk, from: u64) -> Vec<(Position, usize)> {
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
        found.extend(header.map(|header| (place, header.length as usize)));
    }
    found
}

/// Blocks that may rot ([model-3]): of the log those before its newest `newest` writes, and all of
/// other files. What lies behind the newest write is of an earlier life of its segment, or of none.
pub fn old_blocks(disk: &MemoryDisk, newest: usize) -> Vec<Position> {
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

/// Returns log writes of which each block may rot: their positions and lengths.
pub fn old_writes(disk: &MemoryDisk, newest: usize) -> Vec<(Position, u64)> {
    let old = old_blocks(disk, newest);
    let heads = old.into_iter().filter(|place| place.file.family == Family::Log);
    let whole = heads.filter_map(|place| {
        let bytes = disk.bytes(place.file)?;
        let from = usize::try_from(place.offset).ok()?;
        let header = Header::decode(bytes.get(from..from + BLOCK)?).ok()?;
        (Position::from(header.place) == place).then_some((place, u64::from(header.length)))
    });
    whole.collect()
}

/// Durable and released part of a node's log, write by write in order ([disk-2]).
#[derive(Debug, Default)]
pub struct Released {
    next: u64,
    early: BTreeMap<u64, LogWrite>,
}

impl Released {
    /// Starts after the log writes below `next`, which were reported.
    pub fn new(next: u64) -> Self {
        Self { next, early: BTreeMap::new() }
    }

    /// Returns the number of the next log write.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Completes a log write on the disk. Returns what is released by that, in order.
    pub fn complete(&mut self, write: LogWrite) -> Vec<LogWrite> {
        self.early.insert(write.seq, write);
        let mut out = Vec::new();
        while let Some(write) = self.early.remove(&self.next) {
            self.next += 1;
            out.push(write);
        }
        out
    }
}
