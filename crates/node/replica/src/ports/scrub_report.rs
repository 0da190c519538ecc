//! Progress and findings of a scrub, for operators and programs.

use std::fmt;

use quorate_core::slot::SlotRange;

/// Maximum number of damaged places listed in a report. Further ones are only counted.
pub const LISTED_PLACES_MAX: usize = 64;

/// Kind of data that a node stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Segments of the log.
    Log,
    /// Chunks of byte streams.
    Streams,
    /// This node's snapshot.
    Snapshot,
    /// Files of the service's store.
    Store,
    /// Small files, such as the identity.
    Files,
}

impl Kind {
    /// All kinds, in the order in which they are read.
    pub const ALL: [Self; 5] = [Self::Log, Self::Streams, Self::Snapshot, Self::Store, Self::Files];

    pub(crate) fn next(self) -> Option<Self> {
        Self::ALL.get(self as usize + 1).copied()
    }

    /// Returns the name used in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Streams => "streams",
            Self::Snapshot => "snapshot",
            Self::Store => "store",
            Self::Files => "files",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// State of the repair of a damaged place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fate {
    /// The data is being fetched or created again.
    #[default]
    Repairing,
    /// The data is available again.
    Repaired,
    /// The damaged data is no longer needed.
    Superseded,
    /// Only an operator can repair the damage.
    Stays,
}

impl Fate {
    pub const ALL: [Self; 4] = [Self::Repairing, Self::Repaired, Self::Superseded, Self::Stays];

    /// Returns the machine-readable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Repairing => "repairing",
            Self::Repaired => "repaired",
            Self::Superseded => "superseded",
            Self::Stays => "stays",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|fate| fate.name() == name)
    }
}

/// Data or action that is still needed to repair a damaged place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RepairNeeds {
    /// Slots of the log; empty until they have been read again to determine the lost ones.
    Slots(Vec<SlotRange>),
    /// Bytes of a stream, from peers.
    Bytes,
    /// A new snapshot to replace the damaged one.
    Snapshot,
    /// Replacement of all files of the service.
    Store,
    /// A small file that is being rewritten.
    File,
    /// The damage is repaired, so nothing is needed.
    Nothing,
    /// Action by an operator.
    Operator,
}

/// A damaged place found by a scrub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedPlace {
    pub kind: Kind,
    /// Damaged file, position in it, and kind of damage.
    pub description: String,
    pub fate: Fate,
    pub(crate) needs: RepairNeeds,
}

impl DamagedPlace {
    pub(crate) fn new(kind: Kind, what: String, needs: RepairNeeds) -> Self {
        Self { kind, description: what, fate: Fate::default(), needs }
    }
}

/// State of the scrub in progress, or of the last one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubStatus {
    /// Kind of data being read; `None` if no scrub is in progress.
    pub now: Option<Kind>,
    /// Start as Unix time in milliseconds; `None` if this process has not started a scrub.
    pub begun_ms: Option<u64>,
    /// End of the last scrub as Unix time in milliseconds, including scrubs by earlier processes.
    pub ended_ms: Option<u64>,
    /// Interval in milliseconds from the end of one scrub to the start of the next; `None` if
    /// scrubs start only on request.
    pub interval_ms: Option<u64>,
    /// Maximum rate in bytes per second.
    pub bytes_per_second: u64,
    /// Number of bytes read, by kind.
    pub bytes: [u64; Kind::ALL.len()],
    /// Estimated total number of bytes to read while a scrub is in progress.
    pub bytes_to_read: u64,
    /// The damaged places found first.
    pub found: Vec<DamagedPlace>,
    /// Number of further damaged places that are not in `found`.
    pub unlisted_count: u64,
    /// Number of bytes read by all scrubs since the process started.
    pub bytes_read_total: u64,
    /// Number of damaged places found since the process started, counted again by each scrub.
    pub found_total: u64,
}

impl ScrubStatus {
    /// Returns the number of bytes read, summed over all kinds.
    pub fn bytes_read(&self) -> u64 {
        self.bytes.iter().sum()
    }

    /// Returns the number of findings with fate `fate`.
    pub fn count(&self, fate: Fate) -> usize {
        self.found.iter().filter(|found| found.fate == fate).count()
    }

    pub(crate) fn begin_scrub(&mut self, wall_ms: u64) {
        self.now = Some(Kind::ALL[0]);
        self.begun_ms = Some(wall_ms);
        self.bytes = Default::default();
        self.found.clear();
        self.unlisted_count = 0;
    }

    pub(crate) fn end_scrub(&mut self, wall_ms: u64) {
        self.now = None;
        self.ended_ms = Some(wall_ms);
    }

    pub(crate) fn add(&mut self, kind: Kind, bytes: u64) {
        self.bytes[kind as usize] += bytes;
        self.bytes_read_total += bytes;
    }

    pub(crate) fn add_finding(&mut self, found: DamagedPlace) -> Option<usize> {
        self.found_total += 1;
        if self.found.len() >= LISTED_PLACES_MAX {
            self.unlisted_count += 1;
            return None;
        }
        self.found.push(found);
        Some(self.found.len() - 1)
    }

    pub(crate) fn set_needs(&mut self, found: usize, needs: RepairNeeds) {
        if let Some(found) = self.found.get_mut(found) {
            found.needs = needs;
        }
    }

    pub(crate) fn add_lost_slots(&mut self, found: usize, lost: &[SlotRange]) {
        if let Some(RepairNeeds::Slots(slots)) =
            self.found.get_mut(found).map(|found| &mut found.needs)
        {
            slots.extend_from_slice(lost);
        }
    }
}
