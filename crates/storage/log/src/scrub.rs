//! Reads the log in use from its first complete log write to its last, at most 256 KiB at a time,
//! and reports data that differs from what was written. `docs/spec/scrub.md` has the rules.
//!
//! Unlike the walk of a recovery, a scrub changes nothing and draws no conclusions. Only reading
//! the slots shows what the damage lost, and only the next start of the node shows what it has
//! forgotten ([scrub-1]).

use quorate_core::slot::SlotRange;

use crate::disk::{BLOCK, Buffer, Disk, DiskError};

use crate::{
    holdings::Holdings,
    index::Index,
    log_write::{HEADER_BYTES, Header, HeaderFault, Owner},
    mutant::{Mutant, planted},
    place::Place,
};

/// Size of one read, in bytes.
const PIECE_BYTES: usize = 256 << 10;
pub(crate) const SCRUB_TOKEN: u64 = u64::MAX;

/// A run of log writes that differ from what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedWrites {
    /// Place of the first damaged log write.
    pub place: Place,
    /// Number of bytes up to the next intact log write.
    pub bytes: u64,
    pub reason: String,
    /// [scrub-2] Slots whose latest record may be in the damaged log writes, grouped as they are
    /// read: reading the first slot of a group shows which of its slots are lost. Empty if nothing
    /// in the damaged log writes is needed.
    pub slots: Vec<SlotRange>,
}

/// Result of one read of a scrub.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubbedPiece {
    pub bytes: u64,
    /// Runs of damaged log writes that end in this data.
    pub damaged: Vec<DamagedWrites>,
    /// Set if the data could not be read for lack of descriptors. Nothing is known about it, and
    /// the read is repeated.
    pub is_deferred: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Scrub {
    pass: Option<Pass>,
    in_flight: Option<(Place, usize)>,
    finished_piece: Option<ScrubbedPiece>,
    spare: Option<Buffer>,
}

#[derive(Debug)]
struct Pass {
    owner: Owner,
    /// Place at which the next read begins.
    next_place: Place,
    /// End of this pass. Later log writes belong to the next pass.
    end_place: Place,
    /// Log write whose body is being read.
    open: Option<CurrentWrite>,
    /// Number and checksum in the last header.
    last_header: Option<(u64, u32)>,
    /// Start of damage whose end has not been reached, with a description.
    damage_start: Option<(u64, String)>,
    /// Offset up to which blocks are read one by one, because one of them is unreadable.
    single_blocks_to: u64,
}

#[derive(Debug)]
struct CurrentWrite {
    from: u64,
    header: Header,
    /// Checksum of the body read so far.
    body_checksum: u32,
    unreadable_reason: Option<String>,
}

impl Scrub {
    /// Starts a pass over all log writes that are complete now, replacing any pass in progress.
    pub(crate) fn begin_pass(&mut self, owner: Owner, holdings: &Holdings) {
        let until = holdings.written_to();
        self.pass = until.map(|until| Pass {
            owner,
            next_place: Place::default(),
            end_place: until,
            open: None,
            last_header: None,
            damage_start: None,
            single_blocks_to: 0,
        });
        self.finished_piece = None;
    }

    pub(crate) fn end_pass(&mut self) {
        self.pass = None;
        self.finished_piece = None;
    }

    /// Starts the next read, unless one is in flight. Returns `false` if the pass is over.
    pub(crate) fn start_read<D: Disk>(&mut self, holdings: &Holdings, disk: &mut D) -> bool {
        if self.in_flight.is_some() || self.finished_piece.is_some() {
            return true;
        }
        let Some(pass) = &mut self.pass else {
            return false;
        };
        let Some((place, left)) = holdings.written_from(pass.next_place, pass.end_place) else {
            self.pass = None;
            return false;
        };
        pass.continue_at(place);
        let most = match place.offset < pass.single_blocks_to {
            true => BLOCK,
            false => PIECE_BYTES,
        };
        let bytes = usize::try_from(left).unwrap_or(most).min(most);
        let buffer = self.spare.take();
        let buffer = buffer.unwrap_or_else(|| Buffer::new(PIECE_BYTES));
        self.in_flight = Some((place, bytes));
        disk.start_read(SCRUB_TOKEN, place.into(), buffer, bytes);
        true
    }

    pub(crate) fn on_read(
        &mut self,
        buffer: Buffer,
        result: Result<(), DiskError>,
        holdings: &Holdings,
        index: &Index,
    ) {
        let Some((place, bytes)) = self.in_flight.take() else {
            return;
        };
        if let Some(pass) = &mut self.pass {
            // [scrub-5] A segment that was trimmed during the read may have been overwritten.
            let still = holdings.written_from(place, pass.end_place);
            let still = still.filter(|(at, left)| *at == place && *left >= bytes as u64);
            let judged = planted(Mutant::ScrubsTrimmed) || still.is_some();
            self.finished_piece = Some(match judged {
                false => ScrubbedPiece::default(),
                true => {
                    let ends = still.is_none_or(|(_, left)| left == bytes as u64);
                    pass.check_data(place, &buffer[..bytes], result, ends, index)
                }
            });
        }
        self.spare = Some(buffer);
    }

    pub(crate) fn next_piece(&mut self) -> Option<ScrubbedPiece> {
        self.finished_piece.take()
    }
}

impl Pass {
    /// Continues at `place`. State is not carried over to another segment.
    fn continue_at(&mut self, place: Place) {
        if place.segment != self.next_place.segment {
            (self.open, self.damage_start, self.single_blocks_to) = (None, None, 0);
        }
        self.next_place = place;
    }

    /// Checks the data of a read. `ends` is set if no complete log writes follow the data in its
    /// segment.
    fn check_data(
        &mut self,
        place: Place,
        bytes: &[u8],
        result: Result<(), DiskError>,
        ends: bool,
        index: &Index,
    ) -> ScrubbedPiece {
        let mut piece = ScrubbedPiece::default();
        match result {
            Err(error) if error.exhausted.is_some() => {
                piece.is_deferred = true;
                return piece;
            }
            Err(_) if bytes.len() > BLOCK => {
                // One bad block must not hide its neighbours.
                self.single_blocks_to = place.offset + bytes.len() as u64;
                return piece;
            }
            Err(error) => self.note_unreadable(place, &error.to_string(), index, &mut piece),
            Ok(()) => {
                for (number, block) in bytes.chunks_exact(BLOCK).enumerate() {
                    let offset = place.offset + (number * BLOCK) as u64;
                    self.check_block(Place { offset, ..place }, block, index, &mut piece);
                }
            }
        }
        piece.bytes = bytes.len() as u64;
        self.next_place.offset += piece.bytes;
        if ends {
            // Either a header with a length that is too large, or blocks without a header.
            let end = self.next_place;
            if let Some(open) = self.open.take() {
                let reason = "a batch is longer than what was written".to_owned();
                self.damage_start.get_or_insert((open.from, reason));
            }
            self.close_damage(end, index, &mut piece);
        }
        piece
    }

    fn note_unreadable(&mut self, at: Place, why: &str, index: &Index, piece: &mut ScrubbedPiece) {
        match &mut self.open {
            Some(open) => {
                open.unreadable_reason.get_or_insert(why.to_owned());
                self.check_body_block(at, &[0; BLOCK], index, piece);
            }
            None => {
                self.damage_start.get_or_insert((at.offset, why.to_owned()));
            }
        }
    }

    fn check_block(&mut self, at: Place, block: &[u8], index: &Index, piece: &mut ScrubbedPiece) {
        if self.open.is_some() {
            return self.check_body_block(at, block, index, piece);
        }
        let header = match self.decode_header_at(at, block) {
            Ok(header) => header,
            Err(reason) => {
                self.damage_start.get_or_insert((at.offset, reason));
                return;
            }
        };
        let chained = self.damage_start.is_none();
        self.close_damage(at, index, piece);
        // Numbers jump where complete log writes were missing at start. Those writes never
        // reappear.
        if let Some((seq, checksum)) = self.last_header
            && chained
            && (header.seq <= seq
                || (header.seq == seq + 1 && header.previous_checksum != checksum))
        {
            let reason = format!("batch {} follows another batch", header.seq);
            self.damage_start = Some((at.offset, reason));
        }
        self.last_header = Some((header.seq, header.checksum));
        self.open = Some(CurrentWrite {
            from: at.offset,
            header,
            body_checksum: 0,
            unreadable_reason: None,
        });
        self.check_body_block(at, block, index, piece);
    }

    /// Decodes the header of a log write and checks that it belongs at place `at`.
    fn decode_header_at(&self, at: Place, block: &[u8]) -> Result<Header, String> {
        let header = match Header::decode(block) {
            Ok(header) => header,
            Err(HeaderFault::Absent) => return Err("no batch here".to_owned()),
            Err(HeaderFault::Corrupt) => {
                return Err("checksum of the header does not match".to_owned());
            }
            Err(HeaderFault::Newer(version)) => return Err(format!("a batch of format {version}")),
        };
        if header.owner != self.owner {
            return Err(format!("a batch of {}", header.owner));
        }
        if header.place != at {
            return Err(format!("a batch that belongs to {}", header.place));
        }
        Ok(header)
    }

    /// Processes a block of the log write that is being read.
    fn check_body_block(
        &mut self,
        at: Place,
        block: &[u8],
        index: &Index,
        piece: &mut ScrubbedPiece,
    ) {
        let Some(open) = &mut self.open else { return };
        let end = at.offset + BLOCK as u64;
        let skipped = if at.offset == open.from { HEADER_BYTES } else { 0 };
        open.body_checksum = crc32c::crc32c_append(open.body_checksum, &block[skipped..]);
        if end - open.from < u64::from(open.header.length_bytes) {
            return;
        }
        let wrong = match open.unreadable_reason.take() {
            Some(why) => Some(why),
            None if open.body_checksum == open.header.body_checksum => None,
            None => Some(format!("batch {}: checksum of the body does not match", open.header.seq)),
        };
        let from = open.from;
        self.open = None;
        if let Some(reason) = wrong {
            self.damage_start.get_or_insert((from, reason));
        }
        let end = Place { offset: end, ..at };
        self.close_damage(end, index, piece);
    }

    /// Ends the current run of damaged log writes.
    fn close_damage(&mut self, end: Place, index: &Index, piece: &mut ScrubbedPiece) {
        let Some((from, reason)) = self.damage_start.take() else {
            return;
        };
        let place = Place { offset: from, ..end };
        piece.damaged.push(DamagedWrites {
            place,
            bytes: end.offset - from,
            reason,
            slots: index.slots_in(place.segment, from..end.offset),
        });
    }
}

#[cfg(test)]
impl Scrub {
    pub(crate) fn reads(&self) -> Option<crate::place::Segment> {
        self.in_flight.map(|(place, _)| place.segment)
    }
}
