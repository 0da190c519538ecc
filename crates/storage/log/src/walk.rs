//! Reads a log from its first log write to its last, and classifies incomplete log writes
//! ([disk-3]).
//!
//! The walk starts at the base and follows write numbers and checksums of predecessors through the
//! segments. Where the next log write is missing, there are three cases: it is at the start of a
//! later segment (the writer moved on, or an earlier recovery cut here); it was never completed
//! (torn tail: the log ends here); or a later header states that it was complete (damage: the walk
//! continues after it). Segments are recycled, so a header written under another segment number,
//! its epoch, is noise, whatever else it contains. All bytes are untrusted: every length is
//! checked, and nothing here panics.

use std::ops::Range;

use crate::disk::{BLOCK, Buffer, DiskError, ExhaustedResource, Source};

use crate::{
    base::{Anchor, BaseFile},
    error::LogError,
    log_write::{self, Header, HeaderFault, Owner},
    mutant::{Mutant, planted},
    place::{Place, Segment, SegmentFile, list_segments},
};

const WINDOW_BYTES: usize = 1 << 20;

/// Visitor for the log writes, which are visited in order.
pub(crate) trait LogVisitor {
    /// Handles an intact log write.
    fn log_write(&mut self, header: &Header, blocks: &[u8]) -> Result<(), LogError>;

    /// Handles missing log writes, up to the next intact one.
    fn damage(&mut self, damage: &Gap);
}

/// Complete log writes that can no longer be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gap {
    /// Place where the first missing log write was expected.
    pub(crate) place: Place,
    /// Numbers of the missing log writes.
    pub(crate) seqs: Range<u64>,
    /// Description of the fault at that place.
    pub(crate) reason: String,
    /// Header of the first missing log write, if the header is intact.
    pub(crate) header: Option<Header>,
}

/// Result of a walk: the end of the log, and the use of each segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WalkResult {
    pub(crate) next_seq: u64,
    /// Number of the last intact log write, or of the last one before the base.
    pub(crate) intact_to: u64,
    /// Checksum of the last intact log write, or 0 if there is none.
    pub(crate) last_checksum: u32,
    /// Segment of the last intact log write, number of the segment's first log write, and offset of
    /// the end of the last one.
    pub(crate) tail: Option<(SegmentFile, u64, u64)>,
    /// Size in bytes of the log writes with valid headers that were found past the end of the log.
    /// They were never released and are ignored.
    pub(crate) torn_tail_bytes: u64,
    /// Set if the tail segment contains no log writes past the end of the log, so that it can be
    /// continued.
    pub(crate) is_tail_clean: bool,
    /// Segments after the tail that were never written to under their numbers.
    pub(crate) spares: Vec<SegmentFile>,
    /// All segments of the log, starting with its first one.
    pub(crate) files: Vec<SegmentFile>,
    /// Segments before the first one of the log. They are no longer needed.
    pub(crate) trimmed_segments: Vec<SegmentFile>,
    pub(crate) owner: Option<Owner>,
}

/// Walks a log, starting at its base. The log's owner must be `owner`; if that is `None`, the first
/// header determines the owner.
pub(crate) fn walk<S: Source>(
    source: &mut S,
    owner: Option<Owner>,
    base: &BaseFile,
    visit: &mut impl LogVisitor,
) -> Result<WalkResult, LogError> {
    let Anchor { segment: first, seq, previous_checksum: previous } = base.anchor;
    let files = list_segments(source).map_err(LogError::Disk)?;
    let (trimmed, files) = files.into_iter().partition(|file| file.segment < first);
    let mut walk = Walk {
        window: Window::new(source),
        owner,
        first,
        trimmed_segments: trimmed,
        files,
        scanned_segments: Vec::new(),
        next_seq: seq,
        intact_to: seq.saturating_sub(1),
        last_checksum: previous,
        is_chained: true,
        tail: None,
        stated_complete_to: match planted(Mutant::BaseSaysNothing) {
            true => 0,
            false => base.complete_to,
        },
        complete_to: None,
    };
    walk.scan_segments()?;
    let ended_in_damage = walk.run(visit)?;
    walk.examine_tail(ended_in_damage)
}

struct Walk<'a, S> {
    window: Window<'a, S>,
    owner: Option<Owner>,
    first: Segment,
    trimmed_segments: Vec<SegmentFile>,
    files: Vec<SegmentFile>,
    scanned_segments: Vec<ScannedSegment>,
    next_seq: u64,
    intact_to: u64,
    last_checksum: u32,
    /// Set if `last_checksum` is that of the preceding log write. False after damage.
    is_chained: bool,
    tail: Option<(usize, u64)>,
    /// `complete_to` as stated by the base.
    stated_complete_to: u64,
    /// M of [disk-3], once computed.
    complete_to: Option<u64>,
}

#[derive(Debug, Default)]
struct ScannedSegment {
    /// Number of the segment's first log write, or `None` if the segment has no valid header of its
    /// epoch.
    first_write_seq: Option<u64>,
    /// An unreadable block before the segment's first log write, with the error.
    unreadable: Option<(Place, String)>,
}

/// Contents at the place of an expected log write.
enum FoundContent {
    Write(Header),
    /// An incomplete log write or other contents.
    Fault {
        reason: String,
        header: Option<Header>,
        unreadable: bool,
    },
}

impl FoundContent {
    fn fault(reason: impl Into<String>) -> Self {
        Self::Fault { reason: reason.into(), header: None, unreadable: false }
    }
}

impl<S: Source> Walk<'_, S> {
    /// Reads the number of each segment's first log write. These numbers show what was cut off in
    /// earlier segments.
    fn scan_segments(&mut self) -> Result<(), LogError> {
        for index in 0..self.files.len() {
            let file = self.files[index];
            let mut scanned = ScannedSegment::default();
            // Further scanning is worthwhile only if the first block is lost. A segment that was
            // never written to under its number is scanned only here, once.
            for offset in (0..file.bytes).step_by(BLOCK) {
                match self.read_header(index, offset)? {
                    Ok(header) => {
                        scanned.first_write_seq = Some(header.first_seq);
                        break;
                    }
                    Err(FoundContent::Fault { reason, unreadable: true, .. }) => {
                        let segment = file.segment;
                        let place = Place { segment, offset };
                        scanned.unreadable.get_or_insert((place, reason));
                    }
                    Err(_) => {}
                }
            }
            self.scanned_segments.push(scanned);
        }
        Ok(())
    }

    /// Returns the lowest number of the log writes in this segment that were cut off.
    fn cut_off_from(&self, index: usize) -> u64 {
        self.scanned_segments[index + 1..]
            .iter()
            .filter_map(|scanned| scanned.first_write_seq)
            .min()
            .unwrap_or(u64::MAX)
    }

    /// Walks the log. Returns whether it ends in damage.
    fn run(&mut self, visit: &mut impl LogVisitor) -> Result<bool, LogError> {
        let (mut index, mut offset) = (0, 0);
        while index < self.files.len() {
            let found = self.log_write_at(index, offset)?;
            let (reason, header, unreadable) = match found {
                FoundContent::Write(header) => {
                    visit
                        .log_write(&header, self.window.last_read(header.length_bytes as usize))?;
                    self.accept_write(index, &header);
                    offset += u64::from(header.length_bytes);
                    continue;
                }
                FoundContent::Fault { reason, header, unreadable } => (reason, header, unreadable),
            };
            if self.cut_off_from(index) == self.next_seq {
                // The writer moved on to a later segment.
                (index, offset) = (index + 1, 0);
                continue;
            }
            let place = Place { segment: self.files[index].segment, offset };
            if self.next_seq > self.complete_to(index, offset)? {
                if unreadable {
                    return Err(LogError::Unreadable { place, detail: reason });
                }
                return Ok(false);
            }
            let Some((resumed, at, seq)) = self.find_next_intact(index, offset)? else {
                // Complete log writes are missing, and no intact one follows them.
                let seqs = self.next_seq..self.complete_to(index, offset)? + 1;
                self.next_seq = seqs.end;
                self.is_chained = false;
                visit.damage(&Gap { place, seqs, reason, header });
                return Ok(true);
            };
            visit.damage(&Gap { place, seqs: self.next_seq..seq, reason, header });
            self.next_seq = seq;
            self.is_chained = false;
            (index, offset) = (resumed, at);
        }
        // There are no segments.
        let missing = self.next_seq..self.stated_complete_to + 1;
        if missing.is_empty() {
            return Ok(false);
        }
        self.next_seq = missing.end;
        self.is_chained = false;
        visit.damage(&Gap {
            place: Place { segment: self.first, offset: 0 },
            seqs: missing,
            reason: "no segment is there".to_owned(),
            header: None,
        });
        Ok(true)
    }

    fn accept_write(&mut self, index: usize, header: &Header) {
        self.next_seq = header.seq.saturating_add(1);
        self.intact_to = header.seq;
        self.last_checksum = header.checksum;
        self.is_chained = true;
        self.tail = Some((index, header.place.offset + u64::from(header.length_bytes)));
    }

    /// Reads the log write with the next number, if it is at this offset, intact, and chained to
    /// its predecessor.
    fn log_write_at(&mut self, index: usize, offset: u64) -> Result<FoundContent, LogError> {
        let file = self.files[index];
        if offset >= file.bytes {
            return Ok(FoundContent::fault("the segment ends"));
        }
        let header = match self.read_header(index, offset)? {
            Ok(header) => header,
            Err(fault) => return Ok(fault),
        };
        if header.seq != self.next_seq {
            let reason = format!("batch {} where {} should be", header.seq, self.next_seq);
            return Ok(FoundContent::fault(reason));
        }
        if header.seq >= self.cut_off_from(index) {
            return Ok(FoundContent::fault(format!("batch {} was cut off", header.seq)));
        }
        if self.is_chained
            && header.previous_checksum != self.last_checksum
            && !planted(Mutant::ChainIgnored)
        {
            return Ok(FoundContent::fault(format!("batch {} follows another batch", header.seq)));
        }
        self.body_at(file, header)
    }

    /// Checks the body of a log write with a valid header, and unmasks it in the window.
    fn body_at(&mut self, file: SegmentFile, header: Header) -> Result<FoundContent, LogError> {
        let length = header.length_bytes as usize;
        if header.place.offset + u64::from(header.length_bytes) > file.bytes {
            return Ok(FoundContent::fault(format!(
                "batch {} is longer than its segment",
                header.seq
            )));
        }
        let fault = |reason: String, unreadable| {
            Ok(FoundContent::Fault { reason, header: Some(header), unreadable })
        };
        match self.window.read_bytes(file, header.place.offset, length) {
            Err(unread) => fault(unread.reason()?, true),
            Ok(bytes) => match log_write::open(&header, bytes) {
                Ok(masked) => {
                    if masked {
                        self.window.drop_cache(); // what is there is not what is on disk any more
                    }
                    Ok(FoundContent::Write(header))
                }
                Err(malformed) => fault(format!("batch {}: {}", header.seq, malformed.0), false),
            },
        }
    }

    /// Reads the header at an offset, if it is valid, names the right owner and belongs there.
    fn read_header(
        &mut self,
        index: usize,
        offset: u64,
    ) -> Result<Result<Header, FoundContent>, LogError> {
        let file = self.files[index];
        let place = Place { segment: file.segment, offset };
        let block = match self.window.read_bytes(file, offset, BLOCK) {
            Ok(block) => block,
            Err(unread) => {
                return Ok(Err(FoundContent::Fault {
                    reason: unread.reason()?,
                    header: None,
                    unreadable: true,
                }));
            }
        };
        let header = match Header::decode(block) {
            Ok(header) => header,
            Err(HeaderFault::Absent) => return Ok(Err(FoundContent::fault("no batch here"))),
            Err(HeaderFault::Corrupt) => {
                return Ok(Err(FoundContent::fault("checksum of the header does not match")));
            }
            Err(HeaderFault::Newer(version)) => {
                return match Header::segment_of(block) {
                    Some(segment) if segment == place.segment => {
                        Err(LogError::Newer { version, place })
                    }
                    _ => Ok(Err(FoundContent::fault("batch of another segment"))),
                };
            }
        };
        // [disk-3] A header from an earlier use of the segment, or one written to the wrong place,
        // is ignored before any other check.
        if planted(Mutant::OwnerBeforeEpoch) {
            self.check_log_owner(place, header.owner)?;
        }
        if header.place.segment != place.segment && !planted(Mutant::EpochIgnored) {
            return Ok(Err(FoundContent::fault(format!(
                "batch of segment {}",
                header.place.segment
            ))));
        }
        self.check_log_owner(place, header.owner)?;
        if header.place.offset != offset {
            let reason = format!("batch that belongs to offset {}", header.place.offset);
            return Ok(Err(FoundContent::fault(reason)));
        }
        Ok(Ok(header))
    }

    fn check_log_owner(&mut self, place: Place, found: Owner) -> Result<(), LogError> {
        match self.owner {
            Some(owner) if owner != found => {
                let detail = format!("{place} was written by {found}, not by {owner}");
                Err(LogError::ForeignLog { detail })
            }
            _ => {
                self.owner = Some(found);
                Ok(())
            }
        }
    }

    fn header_at(&mut self, index: usize, offset: u64) -> Result<Option<Header>, LogError> {
        Ok(self.read_header(index, offset)?.ok())
    }

    /// Returns M of [disk-3]: the highest `complete_to` in any valid header at or after this place.
    /// Computed only once, because `complete_to` only grows, so earlier headers have lower values.
    fn complete_to(&mut self, index: usize, offset: u64) -> Result<u64, LogError> {
        if let Some(known) = self.complete_to {
            return Ok(known);
        }
        let mut greatest = self.stated_complete_to;
        let mut from = offset;
        for index in index..self.files.len() {
            if self.scanned_segments[index].first_write_seq.is_none() {
                from = 0;
                continue;
            }
            for at in (from..self.files[index].bytes).step_by(BLOCK) {
                if let Some(header) = self.header_at(index, at)? {
                    greatest = greatest.max(header.complete_to);
                }
            }
            from = 0;
        }
        self.complete_to = Some(greatest);
        Ok(greatest)
    }

    /// Finds the next log write after damage that is intact and was not cut off. Its predecessor is
    /// unknown, so only its number, its place, and the first write numbers of later segments can be
    /// checked.
    fn find_next_intact(
        &mut self,
        index: usize,
        offset: u64,
    ) -> Result<Option<(usize, u64, u64)>, LogError> {
        let mut from = offset;
        let damaged = (index, offset);
        for index in index..self.files.len() {
            let file = self.files[index];
            if self.scanned_segments[index].first_write_seq.is_none() {
                from = 0;
                continue;
            }
            for at in (from..file.bytes).step_by(BLOCK) {
                let Some(header) = self.header_at(index, at)? else {
                    continue;
                };
                let refused = (index, at) == damaged && header.seq == self.next_seq;
                if refused || header.seq < self.next_seq || header.seq >= self.cut_off_from(index) {
                    continue;
                }
                if let FoundContent::Write(header) = self.body_at(file, header)? {
                    return Ok(Some((index, at, header.seq)));
                }
            }
            from = 0;
        }
        Ok(None)
    }

    /// Examines what follows the end of the log, and returns the result of the walk.
    fn examine_tail(mut self, ended_in_damage: bool) -> Result<WalkResult, LogError> {
        let (mut torn_tail_bytes, mut tail_clean) = (0, !ended_in_damage);
        let mut spares = Vec::new();
        let tail = self.tail;
        let mut from = tail.map_or(0, |(_, offset)| offset);
        for index in tail.map_or(0, |(index, _)| index)..self.files.len() {
            let torn = self.torn_bytes(index, from)?;
            torn_tail_bytes += torn;
            match tail {
                Some((tail, _)) if tail == index => tail_clean &= torn == 0,
                _ if torn == 0 => spares.push(self.files[index]),
                _ => {
                    // The log writes in this segment are past the cut, and so are those in all
                    // segments before it: numbers only grow, and the next log write must come after
                    // all earlier ones.
                    tail_clean = false;
                    spares.clear();
                }
            }
            from = 0;
        }
        let tail = tail.map(|(index, offset)| {
            (
                self.files[index],
                self.scanned_segments[index].first_write_seq.unwrap_or(self.next_seq),
                offset,
            )
        });
        Ok(WalkResult {
            next_seq: self.next_seq,
            intact_to: self.intact_to,
            last_checksum: self.last_checksum,
            tail,
            torn_tail_bytes,
            is_tail_clean: tail_clean,
            spares,
            files: self.files,
            trimmed_segments: self.trimmed_segments,
            owner: self.owner,
        })
    }

    /// Returns the total size of the log writes of this segment's epoch that start at or after
    /// `from`. Other contents are from earlier uses of the segment, or from log writes without a
    /// complete header. Both will be overwritten, and no reader will accept them as valid.
    fn torn_bytes(&mut self, index: usize, from: u64) -> Result<u64, LogError> {
        let file = self.files[index];
        if self.scanned_segments[index].first_write_seq.is_none() {
            let unreadable = self.scanned_segments[index].unreadable.clone();
            return match unreadable {
                Some((place, detail)) => Err(LogError::Unreadable { place, detail }),
                None => Ok(0),
            };
        }
        let (mut torn, mut counted_to) = (0, from);
        for offset in (from..file.bytes).step_by(BLOCK) {
            match self.read_header(index, offset)? {
                Ok(header) => {
                    let to = (offset + u64::from(header.length_bytes)).min(file.bytes);
                    torn += to.saturating_sub(offset.max(counted_to));
                    counted_to = counted_to.max(to);
                }
                Err(FoundContent::Fault { reason, unreadable: true, .. }) => {
                    return Err(LogError::Unreadable {
                        place: Place { segment: file.segment, offset },
                        detail: reason,
                    });
                }
                Err(_) => {}
            }
        }
        Ok(torn)
    }
}

/// Reason why bytes are not available.
enum ReadFailure {
    /// The bytes are unreadable, so they are treated as damaged.
    Unreadable(String),
    /// The file could not be opened for lack of descriptors. Treating this as damage would forget
    /// existing votes.
    NotTried(DiskError),
}

impl ReadFailure {
    /// Returns the description of damage, or an error if the read was not attempted.
    fn reason(self) -> Result<String, LogError> {
        match self {
            Self::Unreadable(reason) => Ok(reason),
            Self::NotTried(error) => Err(LogError::Disk(error)),
        }
    }
}

impl From<DiskError> for ReadFailure {
    fn from(error: DiskError) -> Self {
        match error.exhausted {
            Some(ExhaustedResource::Descriptors) => Self::NotTried(error),
            _ => Self::Unreadable(error.to_string()),
        }
    }
}

/// Buffer with the part of a segment that was read last.
struct Window<'a, S> {
    source: &'a mut S,
    buffer: Buffer,
    segment: Option<Segment>,
    start: u64,
    bytes: usize,
    last_read_bytes: usize,
}

impl<'a, S: Source> Window<'a, S> {
    fn new(source: &'a mut S) -> Self {
        let buffer = Buffer::new(WINDOW_BYTES);
        Self { source, buffer, segment: None, start: 0, bytes: 0, last_read_bytes: 0 }
    }

    /// Returns bytes of a segment. The range must be within the segment.
    fn read_bytes(
        &mut self,
        file: SegmentFile,
        offset: u64,
        bytes: usize,
    ) -> Result<&mut [u8], ReadFailure> {
        let inside = self.segment == Some(file.segment)
            && self.start <= offset
            && offset + bytes as u64 <= self.start + self.bytes as u64;
        if !inside {
            self.fill_window(file, offset, bytes)?;
        }
        let at = usize::try_from(offset - self.start).expect("within the window");
        self.last_read_bytes = at;
        Ok(&mut self.buffer[at..at + bytes])
    }

    /// Returns the first `bytes` bytes of the last result of [`Self::read_bytes`].
    fn last_read(&self, bytes: usize) -> &[u8] {
        &self.buffer[self.last_read_bytes..self.last_read_bytes + bytes]
    }

    /// Makes the next `read_bytes` read from the disk again.
    fn drop_cache(&mut self) {
        self.segment = None;
    }

    fn fill_window(
        &mut self,
        file: SegmentFile,
        offset: u64,
        bytes: usize,
    ) -> Result<(), ReadFailure> {
        if bytes > self.buffer.len() {
            self.buffer = Buffer::new(bytes);
        }
        let place = Place { segment: file.segment, offset };
        let left = file.bytes.saturating_sub(offset);
        let ahead = usize::try_from(left).unwrap_or(usize::MAX).min(self.buffer.len());
        let ahead = ahead - ahead % BLOCK;
        self.segment = None;
        // One bad block must not hide its neighbours. If reading ahead fails, only the required
        // bytes are read.
        let wanted = match self.source.read_now(place.into(), &mut self.buffer, ahead) {
            Ok(()) => ahead,
            Err(error) if ahead <= bytes => return Err(error.into()),
            Err(_) => {
                self.source.read_now(place.into(), &mut self.buffer, bytes)?;
                bytes
            }
        };
        (self.segment, self.start, self.bytes) = (Some(file.segment), offset, wanted);
        Ok(())
    }
}
