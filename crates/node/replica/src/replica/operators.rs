//! Operator calls from the replica's driver: group changes, feature levels, leadership, snapshots,
//! probes, and a clean stop.

use quorate_core::{
    effect::Refusal,
    level::{Level, Levels},
    node_id::NodeId,
    slot::Slot,
    time::Time,
    value::StreamName,
    witness::Memory,
};
use quorate_log::disk::Disk;
use quorate_tuner::Setting;

use crate::{
    backup::HeldSnapshot,
    group::{
        Group,
        asking::{GroupAnswer, GroupRefusal, GroupRequest, MemberList, PeerTable},
    },
    ports::{front::Failure, service::StateMachine, status::Snapshot},
    pressure::Pressure,
    proposing::gather::Waiter,
    reading::probe::ProbeOutcome,
    replica::Replica,
    streaming::holding::{NotRead, StreamHold},
};

impl<D: Disk, S: StateMachine> Replica<D, S> {
    /// Starts a request to the group under the new number `asked`. [`Replica::take_group_answer`]
    /// returns its outcome. With `dry_run`, only shows the plan.
    pub fn ask_group(&mut self, now: Time, asked: u64, ask: GroupRequest, dry_run: bool) {
        let begun = match dry_run || ask.needs_table() {
            true => self.queue_request(now, asked, ask, dry_run),
            false => self.begin_ask(now, asked, ask, dry_run),
        };
        if let Err(refused) = begun {
            self.members.answer_operator(asked, Err(refused));
        }
    }

    /// [read-7] Delays a request until a linearizable read shows that this node is up to date.
    fn queue_request(
        &mut self,
        now: Time,
        asked: u64,
        ask: GroupRequest,
        dry_run: bool,
    ) -> Result<(), GroupRefusal> {
        self.check_open()?;
        self.reading.queue_read(now, Waiter::Operator(asked))?;
        self.members.queue_request(asked, ask, dry_run);
        Ok(())
    }

    fn begin_ask(
        &mut self,
        now: Time,
        asked: u64,
        ask: GroupRequest,
        dry_run: bool,
    ) -> Result<(), GroupRefusal> {
        self.check_open()?;
        self.members_work().begin_ask(now, asked, ask, dry_run)
    }

    /// [read-7] Checks operators' requests once everything decided before them is applied.
    pub(super) fn check_requests(&mut self, now: Time) {
        while let Some(asked) = self.spine.completions.take_checkable() {
            if let Some((ask, dry_run)) = self.members.take_unchecked(asked)
                && let Err(refused) = self.begin_ask(now, asked, ask, dry_run)
            {
                self.members.answer_operator(asked, Err(refused));
            }
        }
    }

    pub fn take_group_answer(&mut self) -> Option<(u64, Result<GroupAnswer, GroupRefusal>)> {
        while let Some((asked, ended)) = self.spine.completions.take_group_result() {
            let unjudged = self.members.take_unchecked(asked).is_some();
            let standing = self.node_progress();
            let left = standing.known_to.0.saturating_sub(standing.applied_to.0);
            match ended {
                Err(Failure::NoQuorum) if unjudged && left > 0 => {
                    self.members.answer_operator(
                        asked,
                        Err(GroupRefusal::new(
                            "unavailable",
                            format!("this node is still applying its log: {left} slots are left"),
                            "ask again when it has, or ask another node",
                        )),
                    );
                }
                ended => self.members.on_ended(asked, ended),
            }
        }
        self.members.take_answer()
    }

    /// Returns the group's table as of the applied slots: ids, addresses and the plan.
    pub fn group(&self) -> &Group {
        self.spine.group()
    }

    /// Returns whether this node has applied its own removal ([member-1]).
    pub fn is_removed(&self) -> bool {
        self.spine.is_id_removed(self.spine.identity.member.node)
    }

    /// Returns the nodes and their addresses if they changed since the last call.
    pub fn take_peer_table(&mut self) -> Option<PeerTable> {
        let membership = self.spine.applying.membership();
        if !self.members.mark_version_returned(membership.version()) {
            return None;
        }
        let known = membership.table().nodes();
        let spent = membership.eras().identities().iter().filter(|id| id.is_removed);
        Some(PeerTable {
            peers: known.map(|(node, known)| (node, known.peer.clone())).collect(),
            removed_nodes: spent.map(|id| id.node).collect(),
        })
    }

    /// Returns the group's level, as of the applied slots.
    pub fn level(&self) -> Level {
        self.spine.level()
    }

    /// [level-7] Returns the levels that this node may use with peers.
    pub fn levels(&self) -> Levels {
        let newest = self.members.level_raises().supported_level();
        Levels { lowest: self.level().min(newest), newest }
    }

    /// [level-8] Takes the level with which the folder must be marked, if any. The caller confirms
    /// with [`Replica::on_level_marked`].
    pub fn take_level_to_mark(&mut self) -> Option<Level> {
        // The level may have been raised by a loaded snapshot.
        let level = self.level();
        self.members.level_raises_mut().may_store_level(level);
        self.members.level_raises_mut().take_level_to_mark()
    }

    /// Confirms that the folder is durably marked as possibly requiring this level.
    pub fn on_level_marked(&mut self, level: Level) {
        self.members.level_raises_mut().on_marked(level);
    }

    pub fn members(&self, now: Time) -> MemberList {
        self.members_view().list_members(now, &self.known_peers(now))
    }

    /// Returns the pressure that decides whether to read from clients. Without a leader, clients
    /// are read so that their requests can fail in time.
    pub fn pressure(&self) -> Pressure {
        if self.spine.node().leader().is_none() {
            return Pressure::Low;
        }
        self.spine.proposing.pressure().max(self.reading.pressure())
    }

    /// Starts a probe of whether a linearizable read would be served here now. The caller takes the
    /// result with [`Replica::take_probe`].
    pub fn start_probe(&mut self, now: Time) {
        let condition = self.spine.applying.condition();
        let refused = if self.check_open().is_err() {
            Some(ProbeOutcome::Closed)
        } else {
            let cannot = condition.is_stuck() || condition.doubt_reason().is_some();
            cannot.then_some(ProbeOutcome::Unavailable)
        };
        self.reading.start_probe(now, refused);
    }

    pub fn take_probe(&mut self) -> Option<ProbeOutcome> {
        self.reading.take_probe()
    }

    /// Begins a clean stop; from now on no requests are accepted. The caller continues to drive the
    /// replica until [`Replica::is_stopped`], and only then marks the stop as clean.
    pub fn stop(&mut self, now: Time) {
        self.ending.begin_stop(now);
    }

    /// Returns whether the clean stop is complete, with every vote and promise on disk.
    pub fn is_stopped(&self) -> bool {
        self.ending.is_done()
    }

    /// Returns whether a finished stop may be marked as clean: the log did not fail, and no votes
    /// were or may have been forgotten.
    pub fn stopped_cleanly(&self) -> bool {
        self.ending.is_clean() && self.spine.storing.failure().is_none()
    }

    /// Hands leadership to `to`, or to the most advanced follower if `to` is `None` ([live-4]). The
    /// caller takes the result with [`Replica::take_transfer_result`].
    pub fn transfer(&mut self, _now: Time, to: Option<NodeId>) {
        self.ending.start_transfer(to, &mut self.spine.protocol);
    }

    pub fn take_transfer_result(&mut self) -> Option<Result<NodeId, Refusal>> {
        self.ending.take_transfer_result()
    }

    /// Takes a snapshot at or after this slot, by default at the applied position, even if the
    /// service persists itself. The caller takes the result with [`Replica::take_snapshot_answer`].
    pub fn snapshot_now(&mut self, at: Option<Slot>) {
        let applied_to = self.spine.applying.applied_to();
        let refused = if self.ending.is_requested() {
            Some("this node stops".to_owned())
        } else if let Some(error) = self.spine.storing.failure() {
            Some(error.to_owned())
        } else if applied_to == Slot::FIRST {
            Some("nothing is applied here yet".to_owned())
        } else {
            None
        };
        match refused {
            Some(why) => self.snapshots.fail_request(why),
            None => {
                let at = at.map_or(applied_to, |at| at.min(applied_to));
                self.snapshots.record_request(at);
            }
        }
    }

    /// Takes the result of a requested snapshot, once the base of the log references it.
    pub fn take_snapshot_answer(&mut self) -> Option<Result<Snapshot, String>> {
        self.snapshots.take_answer()
    }

    /// Returns this node's snapshot, if it has one, for another thread to read. Its files are
    /// retained until the value is dropped.
    pub fn hold_snapshot(&mut self) -> Option<HeldSnapshot> {
        self.snapshots.hold_snapshot()
    }

    /// Fixes batch size and window until `until` at the possible values nearest to these,
    /// overriding the tuner; `None` gives control back to the tuner.
    pub fn fix_setting(&mut self, now: Time, setting: Option<Setting>, until: Time) {
        self.tuning.fix_setting(now, setting, until);
    }

    /// [lie-3] Returns what this node remembers about another node's log and starts.
    pub fn memory_of(&self, node: NodeId) -> Memory {
        self.rollback.memory_of(node)
    }

    /// Takes the statement about this node's log that the log does not fulfil, if any. The folder
    /// must record it durably; the next process is another incarnation.
    pub fn take_lost_memory(&mut self) -> Option<Memory> {
        self.rollback.take_lost_memory()
    }

    /// Returns whether this node's state may be wrong ([differ-2]).
    pub fn is_in_doubt(&self) -> bool {
        self.suspicion.is_in_doubt()
    }

    /// [trim-2] Retains the bytes of streams to which snapshots taken from now on refer, until the
    /// returned hold is dropped. Returns the earlier hold if it is still in place; any other hold
    /// ends.
    ///
    /// # Errors
    ///
    /// Fails with the reason if this node does not have all of the bytes.
    pub fn hold_streams(
        &mut self,
        now: Time,
        earlier: Option<StreamHold>,
    ) -> Result<StreamHold, String> {
        self.streams_work().hold_bytes(now, earlier)
    }

    /// Reads up to `bytes_max` held bytes of an inner stream. [`Replica::take_held_bytes`] returns
    /// them with the number `asked`.
    pub fn read_held(
        &mut self,
        now: Time,
        (asked, hold): (u64, u64),
        (stream, position, bytes_max): (StreamName, u64, usize),
    ) {
        let disk = self.spine.storing.log_mut().disk_mut();
        let keeping = &mut self.streaming.stream_storage;
        keeping.read_held(now, (asked, hold), (stream, position, bytes_max), disk);
    }

    pub fn take_held_bytes(&mut self) -> Option<(u64, Result<Vec<u8>, NotRead>)> {
        self.streaming.stream_storage.next_held()
    }
}
