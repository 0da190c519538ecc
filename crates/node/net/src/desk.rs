//! Pending operator requests to this node, with the callers that wait for them.

use std::{collections::BTreeMap, sync::mpsc::SyncSender};

use quorate_core::{effect::Refusal, node_id::NodeId, time::Time};
use quorate_replica::{
    ProbeOutcome,
    group::asking::GroupAnswer,
    status::{Snapshot, Status},
};

use crate::{
    handle::{
        Command, GROUP_TIMEOUT, GroupError, HELD_READ_TIMEOUT, HeldReadError, Metrics, Question,
        SNAPSHOT_TIMEOUT, SnapshotError, Unanswered,
    },
    host::{HeldStreamRange, OperatorHost, OperatorOutcome, OperatorRequest, TurnTimes},
};

/// Time in milliseconds after which the caller of a snapshot request is assumed to have given up;
/// slightly longer than the caller's timeout.
const SNAPSHOT_TIMEOUT_MS: u64 = SNAPSHOT_TIMEOUT.as_millis() as u64 + 1000;
/// Time in milliseconds after which the caller of a group request is assumed to have given up.
const GROUP_TIMEOUT_MS: u64 = GROUP_TIMEOUT.as_millis() as u64 + 1000;
/// Time in milliseconds after which a reader of stream bytes is assumed to have given up.
const HELD_READ_TIMEOUT_MS: u64 = HELD_READ_TIMEOUT.as_millis() as u64 + 1000;

/// A caller waiting for the result of a group request, and its deadline.
type GroupAsker = (Time, SyncSender<Result<GroupAnswer, GroupError>>);

/// A caller waiting for held stream bytes, and its deadline.
type HeldReader = (Time, SyncSender<Result<Vec<u8>, HeldReadError>>);

/// Callers waiting for results. Expired callers are skipped.
#[derive(Debug)]
pub(crate) struct WaitingCallers {
    waiting_max: usize,
    transfer: Option<SyncSender<Result<NodeId, Refusal>>>,
    /// Callers waiting for a probe. They share one attempt.
    probes: Vec<SyncSender<Result<ProbeOutcome, Unanswered>>>,
    /// Callers waiting for a snapshot, with their deadlines. They share one attempt.
    snapshots: Vec<(Time, SyncSender<Result<Snapshot, SnapshotError>>)>,
    /// Callers waiting for a group request, by request number.
    group: BTreeMap<u64, GroupAsker>,
    /// Readers of held stream bytes, by request number.
    stream_readers: BTreeMap<u64, HeldReader>,
    /// Last request number that was assigned. Numbers are never reused.
    last_request_number: u64,
    /// Questions to answer at the end of the turn.
    questions: Vec<Question>,
}

impl WaitingCallers {
    /// Creates a table for `waiting_max` callers of each kind: probe, snapshot, group request,
    /// read.
    pub(crate) const fn new(waiting_max: usize) -> Self {
        Self {
            waiting_max,
            transfer: None,
            probes: Vec::new(),
            snapshots: Vec::new(),
            group: BTreeMap::new(),
            stream_readers: BTreeMap::new(),
            last_request_number: 0,
            questions: Vec::new(),
        }
    }

    /// Passes a command to the host at once. Questions are queued until the end of the turn.
    pub(crate) fn handle_command(
        &mut self,
        command: Command,
        now: TurnTimes,
        host: &mut impl OperatorHost,
    ) {
        match command {
            Command::Ask(question) => self.questions.push(question),
            Command::FixSetting(setting, ms, reply) => {
                host.start_request(now, OperatorRequest::FixSetting(setting, now.time.plus_ms(ms)));
                self.questions.push(Question::Tuning(reply));
            }
            Command::Transfer(to, reply) => {
                if self.transfer.is_some() {
                    let _ = reply.try_send(Err(Refusal::Transferring));
                    return;
                }
                self.transfer = Some(reply);
                host.start_request(now, OperatorRequest::Transfer(to));
            }
            Command::Snapshot(at, reply) => {
                self.snapshots.retain(|(gone_at, _)| now.time < *gone_at);
                if self.snapshots.len() == self.waiting_max {
                    let busy = SnapshotError::Unanswered(Unanswered::Busy);
                    let _ = reply.try_send(Err(busy));
                    return;
                }
                self.snapshots.push((now.time.plus_ms(SNAPSHOT_TIMEOUT_MS), reply));
                host.start_request(now, OperatorRequest::Snapshot(at));
            }
            Command::Scrub(pace, reply) => {
                host.start_request(now, OperatorRequest::Scrub(pace));
                self.questions.push(Question::Status(reply));
            }
            Command::Backup(reply) => {
                let _ = reply.try_send(host.backup());
            }
            Command::HoldStreams(earlier, reply) => {
                let _ = reply.try_send(host.hold_streams(now, earlier));
            }
            Command::ReadHeldStream(hold, (stream, position, bytes_max), reply) => {
                self.stream_readers.retain(|_, (gone_at, _)| now.time < *gone_at);
                if self.stream_readers.len() == self.waiting_max {
                    let _ = reply.try_send(Err(HeldReadError::Unanswered(Unanswered::Busy)));
                    return;
                }
                self.last_request_number += 1;
                let asked = self.last_request_number;
                self.stream_readers.insert(asked, (now.time.plus_ms(HELD_READ_TIMEOUT_MS), reply));
                let wanted = HeldStreamRange {
                    request_number: asked,
                    hold_number: hold,
                    stream,
                    position,
                    bytes_max,
                };
                host.start_request(now, OperatorRequest::ReadHeldStream(wanted));
            }
            Command::Probe(reply) => {
                if self.probes.len() == self.waiting_max {
                    let _ = reply.try_send(Err(Unanswered::Busy));
                    return;
                }
                self.probes.push(reply);
                host.start_request(now, OperatorRequest::Probe);
            }
            Command::Group(ask, dry_run, reply) => {
                self.group.retain(|_, (gone_at, _)| now.time < *gone_at);
                if self.group.len() == self.waiting_max {
                    let _ = reply.try_send(Err(GroupError::Unanswered(Unanswered::Busy)));
                    return;
                }
                self.last_request_number += 1;
                let asked = self.last_request_number;
                self.group.insert(asked, (now.time.plus_ms(GROUP_TIMEOUT_MS), reply));
                let order = OperatorRequest::Group { request_number: asked, request: ask, dry_run };
                host.start_request(now, order);
            }
        }
    }

    /// Answers all queued questions from the state at the end of the turn.
    pub(crate) fn answer_questions(
        &mut self,
        host: &mut impl OperatorHost,
        completed: impl Fn(Status) -> Status,
        counted: impl Fn(String) -> Metrics,
    ) {
        while let Some(outcome) = host.next_outcome() {
            match outcome {
                OperatorOutcome::Probed(probed) => {
                    for reply in self.probes.drain(..) {
                        let _ = reply.try_send(Ok(probed));
                    }
                }
                OperatorOutcome::Snapshot(result) => {
                    let result = result.map_err(SnapshotError::Failed);
                    for (_, reply) in self.snapshots.drain(..) {
                        let _ = reply.try_send(result.clone());
                    }
                }
                OperatorOutcome::Group(asked, result) => {
                    if let Some((_, reply)) = self.group.remove(&asked) {
                        let _ = reply.try_send(result.map_err(GroupError::Refused));
                    }
                }
                OperatorOutcome::HeldStreamRead(asked, read) => {
                    if let Some((_, reply)) = self.stream_readers.remove(&asked) {
                        let _ = reply.try_send(read.map_err(HeldReadError::NotRead));
                    }
                }
                OperatorOutcome::Transferred(result) => {
                    if let Some(reply) = self.transfer.take() {
                        let _ = reply.try_send(result);
                    }
                }
            }
        }
        for question in std::mem::take(&mut self.questions) {
            match question {
                Question::Status(reply) => drop(reply.try_send(completed(host.status()))),
                Question::Tuning(reply) => drop(reply.try_send(host.tuning_report())),
                Question::Charter(reply) => drop(reply.try_send(host.join_data())),
                Question::Users(reply) => drop(reply.try_send(host.users())),
                Question::Members(reply) => drop(reply.try_send(host.members())),
                Question::Metrics(reply) => {
                    let mut text = String::new();
                    host.metrics(&mut text);
                    drop(reply.try_send(counted(text)));
                }
            }
        }
    }
}
