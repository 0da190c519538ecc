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
        scrub_report::{DamagedPlace, Fate, Kind, Needs, ScrubStatus},
        service::StateMachine,
    },
    scrubbing::{IntervalStart, PIECE_BYTES, ScrubStep, files::Keeper},
    snapshots::{Renewal, turn::Scrubbed},
    storing::LostSlotsOutcome,
};

/// Name of the small file that records when the last scrub ended, or when the wait for the first
/// began.
const ENDED_FILE: &str = "scrubbed";
const FIRST_LINE: &str = "quorate scrubbed 1";

/// Returns the recorded start of the current interval; `None` if there is no record, in which case
/// the first interval starts now.
pub(super) fn read_interval_start(disk: &mut impl Source) -> Option<IntervalStart> {
    let bytes = disk.kept(ENDED_FILE).ok()??;
    let mut lines = sealed::open(str::from_utf8(&bytes).ok()?).ok()?.lines();
    let known = lines.next() == Some(FIRST_LINE);
    let (what, ms) = lines.next()?.split_once(' ')?;
    let ended = what == "ended";
    let ms = ms.parse().ok().filter(|_| known)?;
    Some(IntervalStart { ms, after_scrub: ended })
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
        let mut status = self.scrubbing.status(|needs| self.fate(needs));
        if status.now.is_some() {
            let log = self.spine.storing.log().written_bytes();
            let snapshot = self.snapshots.own_snapshot().map_or(0, |own| own.bytes);
            let all = log
                + self.streaming.keeping.bytes().0
                + snapshot
                + self.spine.applying.service().kept_bytes();
            status.bytes_all = all.max(status.bytes_read());
        }
        status
    }

    fn fate(&self, needs: &Needs) -> Fate {
        let (known, missing) = match needs {
            Needs::Slots(lost) => {
                // An open vote is only in memory until its slot is decided.
                let decided_to = self.spine.node().decided_to();
                let open = lost.iter().any(|range| range.to > decided_to);
                let missing = lost.iter().any(|range| self.catching_up.misses(*range));
                (!lost.is_empty(), open || missing || (lost.is_empty() && self.scrubbing.doubts()))
            }
            // [here-1] The repair is complete once a restart would find the bytes, wherever they
            // are stored.
            Needs::Bytes => (true, self.streaming.keeping.lacks()),
            Needs::Snapshot => (true, self.snapshots.lacks()),
            Needs::Store => match self.snapshots.renewal() {
                Renewal::Failed if !self.scrubbing.store_damaged => return Fate::Stays,
                renewal => (true, self.scrubbing.store_damaged || renewal.is_under_way()),
            },
            Needs::File => (true, true),
            Needs::Nothing => (true, false),
            Needs::Person => return Fate::Stays,
        };
        match (known, missing) {
            (_, true) => Fate::Repairing,
            (true, false) => Fate::Repaired,
            (false, false) => Fate::Superseded,
        }
    }

    /// Continues the scrub, or starts one that is due.
    pub(super) fn go_on_scrubbing(&mut self, now: Time, wall_ms: u64, plane: &mut dyn Plane) {
        // A repair in progress will remove the damage, so the service needs no new scrub.
        let looks = self.scrubbing.goes_on() || self.snapshots.renewal().is_under_way();
        if !looks && self.spine.applying.service_mut().wants_scrub() {
            self.begin_scrub(now, wall_ms, None);
        }
        if self.scrubbing.rests(wall_ms) {
            return;
        }
        if self.scrubbing.start_if_due(now, wall_ms) {
            self.note_scrubbed("counts", wall_ms);
        }
        self.process_scrubbed(now);
        if let Some((name, read)) = self.scrubbing.recalled.take() {
            self.look_at_file(now, name, read, plane);
        }
        loop {
            match self.scrubbing.next_step(now) {
                None => return,
                Some(ScrubStep::Begin(kind)) => {
                    self.begin_to_scrub(kind);
                    self.scrubbing.begun();
                }
                Some(ScrubStep::Read(kind)) if self.scrub_more(now, kind) => return,
                Some(ScrubStep::Read(_)) => {
                    if self.scrubbing.end_kind(wall_ms) {
                        return self.end_scrub(wall_ms);
                    }
                }
            }
        }
    }

    fn begin_to_scrub(&mut self, kind: Kind) {
        match kind {
            Kind::Log => self.spine.storing.log_mut().begin_scrub(),
            Kind::Streams => self.scrubbing.streams_at = None,
            Kind::Snapshot => self.scrubbing.snapshot_to = 0,
            Kind::Store => {
                self.scrubbing.store_damaged = false;
                let pace = self.scrubbing.report().bytes_per_second;
                self.spine.applying.service_mut().start_scrub(pace);
            }
            Kind::Files => self.scrubbing.files.begin_pass(),
        }
    }

    /// Reads more data of kind `kind`, unless a read is in flight. Returns `false` if everything
    /// was read.
    fn scrub_more(&mut self, now: Time, kind: Kind) -> bool {
        match kind {
            Kind::Log => {
                // Repeats until a request is in flight, since nothing else would wake this node.
                while let Some(slots) = self.scrubbing.doubtful() {
                    match self.spine.storing.ask_whether_lost(now, slots) {
                        LostSlotsOutcome::Yes => self.scrubbing.mark_being_read(),
                        LostSlotsOutcome::NotNow => {
                            self.scrubbing.pause_briefly(now);
                            break;
                        }
                        LostSlotsOutcome::Needless => {
                            self.scrubbing.mark_being_read();
                            self.scrubbing.answered(&[], false);
                        }
                    }
                }
                self.spine.storing.log_mut().scrub() || self.scrubbing.doubts()
            }
            Kind::Streams => {
                let at = self.scrubbing.streams_at;
                let disk = self.spine.storing.log_mut().disk_mut();
                self.streaming.keeping.scrub(at, PIECE_BYTES, disk)
            }
            Kind::Snapshot => {
                let disk = self.spine.storing.log_mut().disk_mut();
                self.snapshots.scrub(self.scrubbing.snapshot_to, disk)
            }
            Kind::Store => {
                // The service's thread limits its own rate; its progress is checked occasionally.
                self.scrubbing.pause_briefly(now);
                let scrubbed = self.spine.applying.service_mut().take_scrubbed();
                self.scrubbing.count_unpaced(Kind::Store, scrubbed.bytes);
                // [scrub-8] A group of one has no peer to fetch the data from.
                let voters = self.spine.node().configuration().members();
                let alone = voters.iter().all(|voter| voter.member == self.spine.own.member);
                for what in scrubbed.damaged {
                    let needs = if alone { Needs::Person } else { Needs::Store };
                    self.damage_found(Kind::Store, what, needs);
                    self.scrubbing.store_damaged = !alone;
                }
                if !scrubbed.goes_on && std::mem::take(&mut self.scrubbing.store_damaged) {
                    self.snapshots.renew(now, self.spine.storing.log().start());
                }
                scrubbed.goes_on
            }
            Kind::Files => {
                if let Some(looked) = self.scrubbing.files.next_file() {
                    if looked.recheck.is_some() {
                        self.scrubbing.pause_briefly(now);
                    }
                    let must_be_there = self.must_be_there(looked.file.keeper);
                    self.scrubbing.files.began(must_be_there);
                    let disk = self.spine.storing.log_mut().disk_mut();
                    disk.start_read_small_file(0, looked.file.name);
                }
                self.scrubbing.files.goes_on()
            }
        }
    }

    /// Processes the data read since the last turn.
    fn process_scrubbed(&mut self, now: Time) {
        if let Some(piece) = self.spine.storing.log_mut().next_scrubbed() {
            self.scrubbing.read(Kind::Log, piece.bytes);
            if piece.not_now {
                self.scrubbing.pause_briefly(now);
            }
            if !piece.damaged.is_empty() {
                // [scrub-1] The damaged place may have contained the only record of promises.
                let hard = self.spine.node().hard_state();
                self.spine.storing.restate(hard);
            }
            for damaged in piece.damaged {
                let what = format!("{}: {}", damaged.place, damaged.reason);
                let needs = Needs::Slots(Vec::new());
                let found = self.damage_found(Kind::Log, what, needs);
                self.scrubbing.queue_doubtful_slots(found, damaged.slots);
            }
        }
        if let Some(done) = self.streaming.keeping.take_scrubbed() {
            let (stream, mut position) = (done.stream, done.position);
            match done.result {
                Ok(bytes) => {
                    position += bytes.len() as u64;
                    self.scrubbing.read(Kind::Streams, bytes.len() as u64);
                }
                Err(ReadError::Rotten { range, reason, .. }) => {
                    position = range.end.max(position);
                    self.scrubbing.read(Kind::Streams, range.end - range.start);
                    let what = format!("{reason} (bytes {} to {})", range.start, range.end);
                    self.damage_found(Kind::Streams, what, Needs::Bytes);
                }
                // The stream was dropped in the meantime.
                Err(ReadError::Missing) => {}
                Err(ReadError::NotNow(_)) => self.scrubbing.pause_briefly(now),
            }
            self.scrubbing.streams_at = Some((stream, position));
        }
        match self.snapshots.take_scrubbed() {
            None => {}
            Some(Scrubbed::Sound(bytes)) => {
                self.scrubbing.read(Kind::Snapshot, bytes);
                self.scrubbing.snapshot_to += bytes;
            }
            Some(Scrubbed::NotNow) => self.scrubbing.pause_briefly(now),
            Some(Scrubbed::Damaged(why)) => {
                self.damage_found(Kind::Snapshot, why, Needs::Snapshot);
                self.scrubbing.snapshot_to = u64::MAX;
            }
            // A newer snapshot has replaced this one, so there is nothing left to check.
            Some(Scrubbed::Gone) => self.scrubbing.snapshot_to = u64::MAX,
        }
    }

    /// Returns whether this node has created the file, so that its absence is damage.
    fn must_be_there(&self, keeper: Keeper) -> bool {
        match keeper {
            Keeper::Base => {
                self.spine.storing.log().start() > Slot::FIRST
                    || self.snapshots.own_snapshot().is_some()
            }
            Keeper::Catalogue => self.streaming.keeping.has_catalogue(),
            Keeper::Identity => self.scrubbing.has_identity,
            Keeper::Book | Keeper::Makers => false,
        }
    }

    /// Checks a small file that was read back. The part that knows its content repairs damage.
    fn look_at_file(
        &mut self,
        now: Time,
        name: &str,
        read: Result<Option<Vec<u8>>, DiskError>,
        plane: &mut dyn Plane,
    ) {
        let Some(looked) = self.scrubbing.files.ended(name) else {
            return;
        };
        let fault = match &read {
            Err(error) if error.lack.is_some() => None,
            Err(error) => Some(error.to_string()),
            Ok(bytes) => looked.file.fault(bytes.as_deref(), looked.must_be_there),
        };
        let bytes = read.ok().flatten().map_or(0, |bytes| bytes.len() as u64);
        self.scrubbing.read(Kind::Files, bytes);
        let again = looked.recheck.map(|(found, _)| found);
        match (fault, again) {
            (None, None) => {}
            (None, Some(found)) => self.scrubbing.update_needs(found, Needs::Nothing),
            (Some(_), Some(found)) if looked.is_in_vain() => {
                self.scrubbing.update_needs(found, Needs::Person);
            }
            (Some(why), _) => {
                let mends = self.rewrite_small_file(now, looked.file.keeper, plane);
                let (needs, out) = match mends {
                    true => (Needs::File, ""),
                    false => (Needs::Person, "; it is written anew with the next file of its kind"),
                };
                let what = format!("the file {name}: {why}{out}");
                let found = match again {
                    Some(found) => found,
                    None => self.damage_found(Kind::Files, what, needs),
                };
                if mends {
                    self.scrubbing.files.queue_reread(looked, found);
                }
            }
        }
    }

    /// Makes the responsible part rewrite a small file. Returns `false` if no part can do so.
    fn rewrite_small_file(&mut self, now: Time, keeper: Keeper, plane: &mut dyn Plane) -> bool {
        match keeper {
            Keeper::Base => {
                let mut mends = false;
                self.with_snapshots(now, plane, |snapshots, around| {
                    mends = snapshots.restate_base(around);
                });
                mends
            }
            Keeper::Catalogue => {
                let disk = self.spine.storing.log_mut().disk_mut();
                self.streaming.keeping.start_checkpoint(disk);
                true
            }
            Keeper::Identity | Keeper::Book => {
                self.scrubbing.unmended = Some(keeper);
                self.scrubbing.has_identity
            }
            Keeper::Makers => false,
        }
    }

    /// Records that the node has an identity: scrubs check its file, and
    /// [`Replica::take_damaged_file`] reports when it must be rewritten.
    pub fn has_identity(&mut self) {
        self.scrubbing.has_identity = true;
    }

    /// Takes the name of a damaged file that only the node can rewrite: `identity` or `peers`.
    pub fn take_damaged_file(&mut self) -> Option<&'static str> {
        Some(match self.scrubbing.unmended.take()? {
            Keeper::Identity => "identity",
            _ => "peers",
        })
    }

    /// Reports damage, once per place. Returns the index of the finding, if it is listed.
    fn damage_found(&mut self, kind: Kind, what: String, needs: Needs) -> Option<usize> {
        let found = DamagedPlace::new(kind, what.clone(), needs);
        let (at, news) = self.scrubbing.record_damage(found);
        // The damage of an abandoned snapshot is reported when it is abandoned.
        if news && kind != Kind::Snapshot {
            self.spine.observing.queue_event(Event::DamageFound { kind, what });
        }
        at
    }

    fn end_scrub(&mut self, wall_ms: u64) {
        self.note_scrubbed("ended", wall_ms);
        let report = self.scrubbing.report();
        let begun_ms = report.begun_ms.unwrap_or(wall_ms);
        self.spine.observing.queue_event(Event::Scrubbed {
            bytes: report.bytes_read(),
            found: report.found.len() as u64 + report.more,
            ms: wall_ms.saturating_sub(begun_ms),
        });
    }

    /// Records the end of the last scrub. If this write fails, a restart may start the next scrub
    /// early.
    fn note_scrubbed(&mut self, what: &str, ms: u64) {
        let text = sealed::seal(&format!("{FIRST_LINE}\n{what} {ms}\n"));
        let disk = self.spine.storing.log_mut().disk_mut();
        disk.start_replace_small_file(0, ENDED_FILE, text.into_bytes());
    }
}
