//! Scrubbing within a turn: inspects data that was read, reports and repairs damage, and reads on.
//!
//! The scrub never makes a node forget anything, and writes only what this process knows
//! ([scrub-1]). Damage found by the scrub has the same effect as damage found by any other read
//! ([scrub-7]): lost data is not served ([scrub-3]), and is requested from peers.

use quorate_core::{slot::Slot, time::Time};
use quorate_log::disk::{Disk, DiskError, Source, sealed};
use quorate_stream::store::ReadError;

use super::Replica;
use crate::{
    observing::events::Event,
    ports::{
        plane::Plane,
        scrub_report::{DamagedPlace, Fate, Kind, RepairNeeds, ScrubStatus},
        service::StateMachine,
    },
    scrubbing::{IntervalStart, PIECE_BYTES, ScrubStep, files::FileOwner},
    snapshots::{Renewal, turn::ChunkScrub},
    storing::LostSlotsOutcome,
};

/// Name of the small file that records when the last scrub ended, or when the wait for the first
/// began.
const SCRUB_END_FILE: &str = "scrubbed";
const FIRST_LINE: &str = "quorate scrubbed 1";

/// Returns the recorded start of the current interval; `None` if there is no record, in which case
/// the first interval starts now.
pub(super) fn read_interval_start(disk: &mut impl Source) -> Option<IntervalStart> {
    let bytes = disk.read_small_file(SCRUB_END_FILE).ok()??;
    let mut lines = sealed::open(str::from_utf8(&bytes).ok()?).ok()?.lines();
    let known = lines.next() == Some(FIRST_LINE);
    let (what, ms) = lines.next()?.split_once(' ')?;
    let ended = what == "ended";
    let ms = ms.parse().ok().filter(|_| known)?;
    Some(IntervalStart { unix_ms: ms, after_scrub: ended })
}

impl<D: Disk, S: StateMachine> Replica<D, S> {
    /// Starts to read and check all data of this node, at up to `bytes_per_second`. A scrub in
    /// progress continues at this rate. [`Replica::scrub_status`] returns the findings.
    pub fn begin_scrub(&mut self, now: Time, wall_ms: u64, bytes_per_second: Option<u64>) {
        if !self.ending.is_silent() {
            self.scrubbing.start_scrub(now, wall_ms, bytes_per_second);
        }
    }

    /// Returns the progress and findings of the current scrub, or of the last one.
    pub fn scrub_status(&self) -> ScrubStatus {
        let mut status = self.scrubbing.status(|needs| self.repair_state(needs));
        if status.now.is_some() {
            let log = self.spine.storing.log().written_bytes();
            let snapshot = self.snapshots.own_snapshot().map_or(0, |own| own.bytes);
            let all = log
                + self.streaming.stream_storage.bytes().0
                + snapshot
                + self.spine.applying.service().kept_bytes();
            status.bytes_to_read = all.max(status.bytes_read());
        }
        status
    }

    fn repair_state(&self, needs: &RepairNeeds) -> Fate {
        let (known, missing) = match needs {
            RepairNeeds::Slots(lost) => {
                // An open vote is only in memory until its slot is decided.
                let decided_to = self.spine.node().decided_to();
                let open = lost.iter().any(|range| range.to > decided_to);
                let missing = lost.iter().any(|range| self.catching_up.misses_any(*range));
                (
                    !lost.is_empty(),
                    open || missing || (lost.is_empty() && self.scrubbing.has_doubts()),
                )
            }
            // [here-1] The repair is complete once a restart would find the bytes, wherever they
            // are stored.
            RepairNeeds::Bytes => (true, self.streaming.stream_storage.may_lack_bytes()),
            RepairNeeds::Snapshot => (true, self.snapshots.lacks_snapshot()),
            RepairNeeds::Store => match self.snapshots.renewal() {
                Renewal::Failed if !self.scrubbing.store_damaged => return Fate::Stays,
                renewal => (true, self.scrubbing.store_damaged || renewal.is_under_way()),
            },
            RepairNeeds::File => (true, true),
            RepairNeeds::Nothing => (true, false),
            RepairNeeds::Operator => return Fate::Stays,
        };
        match (known, missing) {
            (_, true) => Fate::Repairing,
            (true, false) => Fate::Repaired,
            (false, false) => Fate::Superseded,
        }
    }

    /// Continues the scrub, or starts one that is due.
    pub(super) fn advance_scrub(&mut self, now: Time, wall_ms: u64, plane: &mut dyn Plane) {
        // A repair in progress will remove the damage, so the service needs no new scrub.
        let looks = self.scrubbing.is_running() || self.snapshots.renewal().is_under_way();
        if !looks && self.spine.applying.service_mut().wants_scrub() {
            self.begin_scrub(now, wall_ms, None);
        }
        if self.scrubbing.is_idle(wall_ms) {
            return;
        }
        if self.scrubbing.start_if_due(now, wall_ms) {
            self.save_scrub_end("counts", wall_ms);
        }
        self.process_scrubbed(now);
        if let Some((name, read)) = self.scrubbing.read_back_file.take() {
            self.check_small_file(now, name, read, plane);
        }
        loop {
            match self.scrubbing.next_step(now) {
                None => return,
                Some(ScrubStep::Begin(kind)) => {
                    self.start_scrub_of(kind);
                    self.scrubbing.mark_begun();
                }
                Some(ScrubStep::Read(kind)) if self.scrub_next_portion(now, kind) => return,
                Some(ScrubStep::Read(_)) => {
                    if self.scrubbing.end_kind(wall_ms) {
                        return self.end_scrub(wall_ms);
                    }
                }
            }
        }
    }

    fn start_scrub_of(&mut self, kind: Kind) {
        match kind {
            Kind::Log => self.spine.storing.log_mut().begin_scrub(),
            Kind::Streams => self.scrubbing.next_stream_position = None,
            Kind::Snapshot => self.scrubbing.snapshot_read_to = 0,
            Kind::Store => {
                self.scrubbing.store_damaged = false;
                let pace = self.scrubbing.report().bytes_per_second;
                self.spine.applying.service_mut().start_scrub(pace);
            }
            Kind::Files => self.scrubbing.small_files.begin_pass(),
        }
    }

    /// Reads more data of kind `kind`, unless a read is in flight. Returns `false` if everything
    /// was read.
    fn scrub_next_portion(&mut self, now: Time, kind: Kind) -> bool {
        match kind {
            Kind::Log => {
                // Repeats until a request is in flight, since nothing else would wake this node.
                while let Some(slots) = self.scrubbing.next_doubtful() {
                    match self.spine.storing.query_lost_slots(now, slots) {
                        LostSlotsOutcome::Asked => self.scrubbing.mark_being_read(),
                        LostSlotsOutcome::NotNow => {
                            self.scrubbing.pause_briefly(now);
                            break;
                        }
                        LostSlotsOutcome::Needless => {
                            self.scrubbing.mark_being_read();
                            self.scrubbing.record_lost_slots(&[], false);
                        }
                    }
                }
                self.spine.storing.log_mut().scrub() || self.scrubbing.has_doubts()
            }
            Kind::Streams => {
                let at = self.scrubbing.next_stream_position;
                let disk = self.spine.storing.log_mut().disk_mut();
                self.streaming.stream_storage.start_scrub_read(at, PIECE_BYTES, disk)
            }
            Kind::Snapshot => {
                let disk = self.spine.storing.log_mut().disk_mut();
                self.snapshots.start_chunk_scrub(self.scrubbing.snapshot_read_to, disk)
            }
            Kind::Store => {
                // The service's thread limits its own rate; its progress is checked occasionally.
                self.scrubbing.pause_briefly(now);
                let scrubbed = self.spine.applying.service_mut().take_scrubbed();
                self.scrubbing.count_unpaced(Kind::Store, scrubbed.bytes);
                // [scrub-8] A group of one has no peer to fetch the data from.
                let voters = self.spine.node().configuration().members();
                let alone = voters.iter().all(|voter| voter.member == self.spine.identity.member);
                for what in scrubbed.damaged {
                    let needs = if alone { RepairNeeds::Operator } else { RepairNeeds::Store };
                    self.report_damage(Kind::Store, what, needs);
                    self.scrubbing.store_damaged = !alone;
                }
                if !scrubbed.goes_on && std::mem::take(&mut self.scrubbing.store_damaged) {
                    self.snapshots.begin_renewal(now, self.spine.storing.log().start());
                }
                scrubbed.goes_on
            }
            Kind::Files => {
                if let Some(looked) = self.scrubbing.small_files.next_file() {
                    if looked.recheck.is_some() {
                        self.scrubbing.pause_briefly(now);
                    }
                    let must_be_there = self.must_exist(looked.file.owner);
                    self.scrubbing.small_files.set_must_exist(must_be_there);
                    let disk = self.spine.storing.log_mut().disk_mut();
                    disk.start_read_small_file(0, looked.file.name);
                }
                self.scrubbing.small_files.is_running()
            }
        }
    }

    /// Processes the data read since the last turn.
    fn process_scrubbed(&mut self, now: Time) {
        if let Some(piece) = self.spine.storing.log_mut().next_scrubbed_piece() {
            self.scrubbing.read(Kind::Log, piece.bytes);
            if piece.is_deferred {
                self.scrubbing.pause_briefly(now);
            }
            if !piece.damaged.is_empty() {
                // [scrub-1] The damaged place may have contained the only record of promises.
                let hard = self.spine.node().hard_state();
                self.spine.storing.rewrite_hard_state(hard);
            }
            for damaged in piece.damaged {
                let what = format!("{}: {}", damaged.place, damaged.reason);
                let needs = RepairNeeds::Slots(Vec::new());
                let found = self.report_damage(Kind::Log, what, needs);
                self.scrubbing.queue_doubtful_slots(found, damaged.slots);
            }
        }
        if let Some(done) = self.streaming.stream_storage.take_scrubbed() {
            let (stream, mut position) = (done.stream, done.position);
            match done.result {
                Ok(bytes) => {
                    position += bytes.len() as u64;
                    self.scrubbing.read(Kind::Streams, bytes.len() as u64);
                }
                Err(ReadError::Corrupt { range, reason, .. }) => {
                    position = range.end.max(position);
                    self.scrubbing.read(Kind::Streams, range.end - range.start);
                    let what = format!("{reason} (bytes {} to {})", range.start, range.end);
                    self.report_damage(Kind::Streams, what, RepairNeeds::Bytes);
                }
                // The stream was dropped in the meantime.
                Err(ReadError::Missing) => {}
                Err(ReadError::RetryLater(_)) => self.scrubbing.pause_briefly(now),
            }
            self.scrubbing.next_stream_position = Some((stream, position));
        }
        match self.snapshots.take_scrubbed() {
            None => {}
            Some(ChunkScrub::Sound(bytes)) => {
                self.scrubbing.read(Kind::Snapshot, bytes);
                self.scrubbing.snapshot_read_to += bytes;
            }
            Some(ChunkScrub::NotNow) => self.scrubbing.pause_briefly(now),
            Some(ChunkScrub::Damaged(why)) => {
                self.report_damage(Kind::Snapshot, why, RepairNeeds::Snapshot);
                self.scrubbing.snapshot_read_to = u64::MAX;
            }
            // A newer snapshot has replaced this one, so there is nothing left to check.
            Some(ChunkScrub::Gone) => self.scrubbing.snapshot_read_to = u64::MAX,
        }
    }

    /// Returns whether this node has created the file, so that its absence is damage.
    fn must_exist(&self, keeper: FileOwner) -> bool {
        match keeper {
            FileOwner::LogBase => {
                self.spine.storing.log().start() > Slot::FIRST
                    || self.snapshots.own_snapshot().is_some()
            }
            FileOwner::StreamCatalogue => self.streaming.stream_storage.has_catalogue(),
            FileOwner::Identity => self.scrubbing.has_identity,
            FileOwner::AddressBook | FileOwner::FileNumbers => false,
        }
    }

    /// Checks a small file that was read back. The part that knows its content repairs damage.
    fn check_small_file(
        &mut self,
        now: Time,
        name: &str,
        read: Result<Option<Vec<u8>>, DiskError>,
        plane: &mut dyn Plane,
    ) {
        let Some(looked) = self.scrubbing.small_files.take_finished(name) else {
            return;
        };
        let fault = match &read {
            Err(error) if error.exhausted.is_some() => None,
            Err(error) => Some(error.to_string()),
            Ok(bytes) => looked.file.fault(bytes.as_deref(), looked.must_exist),
        };
        let bytes = read.ok().flatten().map_or(0, |bytes| bytes.len() as u64);
        self.scrubbing.read(Kind::Files, bytes);
        let again = looked.recheck.map(|(found, _)| found);
        match (fault, again) {
            (None, None) => {}
            (None, Some(found)) => self.scrubbing.update_needs(found, RepairNeeds::Nothing),
            (Some(_), Some(found)) if looked.has_failed_too_often() => {
                self.scrubbing.update_needs(found, RepairNeeds::Operator);
            }
            (Some(why), _) => {
                let mends = self.rewrite_small_file(now, looked.file.owner, plane);
                let (needs, out) = match mends {
                    true => (RepairNeeds::File, ""),
                    false => (
                        RepairNeeds::Operator,
                        "; it is written anew with the next file of its kind",
                    ),
                };
                let what = format!("the file {name}: {why}{out}");
                let found = match again {
                    Some(found) => found,
                    None => self.report_damage(Kind::Files, what, needs),
                };
                if mends {
                    self.scrubbing.small_files.queue_reread(looked, found);
                }
            }
        }
    }

    /// Makes the responsible part rewrite a small file. Returns `false` if no part can do so.
    fn rewrite_small_file(&mut self, now: Time, keeper: FileOwner, plane: &mut dyn Plane) -> bool {
        match keeper {
            FileOwner::LogBase => {
                let mut mends = false;
                self.with_snapshots(now, plane, |snapshots, around| {
                    mends = snapshots.rewrite_base(around);
                });
                mends
            }
            FileOwner::StreamCatalogue => {
                let disk = self.spine.storing.log_mut().disk_mut();
                self.streaming.stream_storage.start_checkpoint(disk);
                true
            }
            FileOwner::Identity | FileOwner::AddressBook => {
                self.scrubbing.file_for_node = Some(keeper);
                self.scrubbing.has_identity
            }
            FileOwner::FileNumbers => false,
        }
    }

    /// Records that the node has an identity: scrubs check its file, and
    /// [`Replica::take_damaged_file`] reports when it must be rewritten.
    pub fn set_has_identity(&mut self) {
        self.scrubbing.has_identity = true;
    }

    /// Takes the name of a damaged file that only the node can rewrite: `identity` or `peers`.
    pub fn take_damaged_file(&mut self) -> Option<&'static str> {
        Some(match self.scrubbing.file_for_node.take()? {
            FileOwner::Identity => "identity",
            _ => "peers",
        })
    }

    /// Reports damage, once per place. Returns the index of the finding, if it is listed.
    fn report_damage(&mut self, kind: Kind, what: String, needs: RepairNeeds) -> Option<usize> {
        let found = DamagedPlace::new(kind, what.clone(), needs);
        let (at, news) = self.scrubbing.record_damage(found);
        // The damage of an abandoned snapshot is reported when it is abandoned.
        if news && kind != Kind::Snapshot {
            self.spine.observing.queue_event(Event::DamageFound { kind, what });
        }
        at
    }

    fn end_scrub(&mut self, wall_ms: u64) {
        self.save_scrub_end("ended", wall_ms);
        let report = self.scrubbing.report();
        let begun_ms = report.begun_ms.unwrap_or(wall_ms);
        self.spine.observing.queue_event(Event::Scrubbed {
            bytes: report.bytes_read(),
            found_count: report.found.len() as u64 + report.unlisted_count,
            ms: wall_ms.saturating_sub(begun_ms),
        });
    }

    /// Records the end of the last scrub. If this write fails, a restart may start the next scrub
    /// early.
    fn save_scrub_end(&mut self, what: &str, ms: u64) {
        let text = sealed::append_checksum_line(&format!("{FIRST_LINE}\n{what} {ms}\n"));
        let disk = self.spine.storing.log_mut().disk_mut();
        disk.start_replace_small_file(0, SCRUB_END_FILE, text.into_bytes());
    }
}
