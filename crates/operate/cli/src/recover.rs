//! `quorate recover`: starts a new cluster from one node's folder after permanent loss of the
//! majority.

use std::{
    fmt::Write as _,
    io::{self, BufRead as _, BufReader},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use clap::Args;
use quorate::{Class, Slot, StateMachine, Status};
use quorate_admin::progress::{Progress, ProgressReport};
use quorate_core::{node_set::NodeSet, time::Time, witness::Memory};
use quorate_kv::{
    front::{ClusterMode, RespFront, Settings as FrontSettings},
    service::Service,
};
use quorate_log::LogOptions;
use quorate_node::log_service::{FrameFront, NoState};
use quorate_node::{
    Identity, LockedFolder, NodeHost,
    boot::{BootError, BootStep, MemoryRequest, NodeParts, StandaloneState, Starter, boot_alone},
    host::{Backup, Host as _, OperatorHost as _, OperatorOutcome, OperatorRequest, TurnTimes},
    identity::{ExpectedIdentity, Founding, IdentityError},
    listener::EventListener,
    recovering::{FolderState, RecoveringFolder},
    restoring::{self, RestoreError},
};
use quorate_replica::{
    ReplicaOptions,
    backup::{EncodedBackup, NewGroup, check_backup},
    events::Event,
    front::Front,
    plane::{FrameBody, Plane, TooLarge, Turn},
    service::position,
    tuner::SettingChange,
};
use quorate_wire::Lane;
use serde::Serialize;

use crate::{
    addresses::address_argument,
    backup::Report,
    config::{Service as Speaks, Store},
    etcd,
    output::{Exit, Output, Problem, progress},
    stores::{open_store, select_store},
    usage,
};

/// Timeout that practically never expires, to disable everything that needs other nodes.
const NEVER_MS: u64 = 10_000_000_000;
/// Time without progress after which the replay counts as stuck, because this node lacks data.
const REPLAY_TIMEOUT: Duration = Duration::from_secs(60);
const TURN_PAUSE: Duration = Duration::from_millis(1);
/// Maximum number of files that the store may open.
const STORE_FILES_MAX: usize = 256;
const READ_BYTES: usize = 256 << 10;

/// Arguments of `quorate recover`.
#[derive(Args, Clone, Debug)]
pub(crate) struct RecoverArgs {
    /// Data folder of a stopped node
    #[arg(long, env = "QUORATE_DATA", value_name = "DIR")]
    data: PathBuf,
    /// Accept the loss of data that only the lost nodes have
    #[arg(long = "unsafe")]
    gives_up: bool,
    /// Confirm with the cluster's id, for scripts [default: ask for it]
    #[arg(long, value_name = "ID")]
    yes: Option<String>,
    /// Peer address of the node [default: its previous one]
    #[arg(long, env = "QUORATE_PEER", value_name = "ADDR", value_parser = address_argument)]
    peer: Option<String>,
}

/// Result of `quorate recover`: the new cluster.
#[derive(Clone, Debug, Serialize)]
struct Recovered {
    cluster: String,
    node: u32,
    /// Slot below which the new cluster contains everything from the old one that this node voted
    /// for.
    decided: u64,
    bytes: u64,
    checksum: String,
    /// Id of the old cluster.
    from: String,
    /// Folder that now contains the old node's files.
    old: PathBuf,
    /// Number of byte streams that the new cluster lacks.
    streams_left_out: u64,
    /// Description of the byte streams that the new cluster lacks.
    #[serde(skip)]
    streams: String,
}

pub(crate) fn run(args: &RecoverArgs, output: Output) -> Result<Exit, Problem> {
    if !args.gives_up {
        let what = "recover loses the data that only the lost nodes have: confirm with --unsafe";
        return Err(Problem::usage_error(what)
            .with_hint("if a majority can still come back, start those nodes instead; see docs/operate/lost-majority.md"));
    }
    let begun = RecoveringFolder::begin_attempt(&args.data).map_err(|error| {
        let missing = matches!(error, IdentityError::Missing { .. });
        let problem = Problem::from(quorate::Error::from(error));
        match missing {
            true => problem.with_hint("DIR must be the --data folder of a node"),
            false => problem,
        }
    });
    let recovering = match begun? {
        FolderState::Unchanged(recovering) => recovering,
        FolderState::SwitchCompleted => return report_partial(&args.data, output),
    };
    let done = recover_cluster(args, &recovering);
    if done.is_err() {
        // The old node's files are unchanged, and the next attempt removes the remains of this one.
        let _ = recovering.remove_work();
    }
    let mut recovered = done?;
    recovered.old = recovering.replace_node().map_err(quorate::Error::from)?;
    output.print_result(&recovered, || human(&recovered, args));
    Ok(Exit::Done)
}

/// Reports that this run has only completed an earlier attempt.
fn report_partial(data: &Path, output: Output) -> Result<Exit, Problem> {
    let founding = LockedFolder::read_founding(data).map_err(quorate::Error::from)?;
    let (cluster, node) = (format!("{:032x}", founding.cluster), founding.node.0);
    let document = serde_json::json!({ "cluster": cluster, "node": node });
    output.print_result(&document, || {
        format!("completed an earlier attempt: node {node} of the new cluster {cluster}")
    });
    Ok(Exit::Done)
}

fn human(recovered: &Recovered, args: &RecoverArgs) -> String {
    let Recovered { cluster, node, decided, from, old, streams, .. } = recovered;
    let data = args.data.display();
    format!(
        "node {node} of the new cluster {cluster} has everything below slot {decided} of cluster {from}{streams}\n\
         the old node's files lie in {}; never start it again\n\
         start it: quorate start --data {data}\n\
         others join it with empty folders: quorate start --data DIR --join ADMIN",
        old.display()
    )
}

fn recover_cluster(
    args: &RecoverArgs,
    recovering: &RecoveringFolder,
) -> Result<Recovered, Problem> {
    let founding = LockedFolder::read_founding(&args.data).map_err(quorate::Error::from)?;
    if let Some(yes) = &args.yes {
        check_confirmation(&founding, yes)?;
    }
    progress(&format!("copying {}", args.data.display()));
    let copy = recovering.copy_node_files().map_err(quorate::Error::from)?;
    let home = LockedFolder::open(&copy).map_err(quorate::Error::from)?;
    let identity =
        Identity::open(home, &ExpectedIdentity::default()).map_err(quorate::Error::from)?;
    let store = select_store(&identity)?;
    let task = RecoveryTask { args, recovering, founding };
    if store == Store::None {
        let front = FrameFront::new(env!("CARGO_PKG_VERSION"), task.founding.class.name());
        return task.run(identity, NoState, front);
    }
    if store.service() == Speaks::Etcd {
        let service = etcd::open(&copy, store, STORE_FILES_MAX)?;
        let (_, front) = quorate::local_channel()?;
        return task.run(identity, service, front);
    }
    let service = Service::new(open_store(&copy, store, STORE_FILES_MAX)?);
    let front = RespFront::new(FrontSettings {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        store: store.name().to_owned(),
        client_bytes_max: 1 << 20,
        tcp_port: 0,
        cluster_mode: ClusterMode::Off,
        started_ms: 0,
        memory: usage::process_memory,
        cpu: usage::process_cpu_time,
    });
    task.run(identity, service, front)
}

fn check_confirmation(founding: &Founding, said: &str) -> Result<(), Problem> {
    let cluster = format!("{:032x}", founding.cluster);
    match said.trim() == cluster {
        true => Ok(()),
        false => Err(Problem::new(
            Exit::Failed,
            "not_confirmed",
            format_args!("this folder belongs to cluster {cluster}, but another id was given"),
        )
        .with_hint("nothing was changed")),
    }
}

struct RecoveryTask<'a> {
    args: &'a RecoverArgs,
    recovering: &'a RecoveringFolder,
    founding: Founding,
}

impl RecoveryTask<'_> {
    fn run<S: StateMachine, F: Front>(
        &self,
        identity: Identity<LockedFolder>,
        service: S,
        front: F,
    ) -> Result<Recovered, Problem> {
        let own = identity.address_book().peers.get(&self.founding.node).cloned();
        let parts = NodeParts {
            service,
            stored_to: |service| position(service).map_or(Slot(0), |(stored_to, _)| stored_to),
            front,
            listener: Box::new(SilentObserver),
        };
        let (host, alone) =
            boot_alone(identity, parts, &mut SilentStarter).map_err(quorate::Error::from)?;
        let mut replaying = ReplayingNode {
            host,
            started_at: Instant::now(),
            last_progress_at: Instant::now(),
            last_progress: String::new(),
        };
        replaying.replay_until(alone.counted_to)?;
        let mut backup = replaying.take_snapshot()?;
        self.report_missing(&replaying.host.status(), &alone);
        self.ask_for_confirmation()?;
        let (header, files) = backup.header().map_err(unreadable_folder)?;
        let encoded = EncodedBackup::begin(&mut backup.snapshot, &header, files);
        let whole = check_backup(
            BufReader::with_capacity(READ_BYTES, encoded),
            &mut |_, _| Ok(()),
            &mut |_, _| {},
        );
        let checked = whole.map_err(unreadable_folder)?;
        let cluster = u128::from_le_bytes(quorate::random_bytes()?).max(1);
        let nonce = u64::from_le_bytes(quorate::random_bytes()?);
        let peer = self.args.peer.clone().or(own);
        let peer = peer.unwrap_or_else(|| crate::addresses::DEFAULT_PEER.to_owned());
        let group = NewGroup::from_backup(&checked, cluster, &peer)
            .map_err(|error| Problem::new(Exit::Failed, "exhausted", error))?;
        let (_, files) = backup.header().map_err(unreadable_folder)?;
        let encoded = EncodedBackup::begin(&mut backup.snapshot, &header, files);
        let from = BufReader::with_capacity(READ_BYTES, encoded);
        let folder = self.recovering.new_folder();
        restoring::restore_backup(&folder, from, &checked, &group, nonce).map_err(|error| {
            match error {
                RestoreError::Folder(error) => Problem::from(quorate::Error::from(error)),
                RestoreError::Backup(bad) => unreadable_folder(bad),
            }
        })?;
        let report = Report::from_checked_file(&checked);
        let streams = report.describe_streams("their bytes are in the old node's files");
        let Report { cluster: from, decided, bytes, checksum, .. } = report;
        Ok(Recovered {
            cluster: format!("{:032x}", group.cluster),
            node: group.node.0,
            decided,
            bytes,
            checksum,
            from,
            old: PathBuf::new(),
            streams_left_out: checked.stream_count,
            streams,
        })
    }

    /// Reports which data may be missing.
    fn report_missing(&self, status: &Status, alone: &StandaloneState) {
        let StandaloneState { decided_to, counted_to, voted_to, damaged_places: damaged } = alone;
        let mut text =
            format!("node {} of cluster {:032x}:\n", self.founding.node, self.founding.cluster);
        let _ = writeln!(text, "  everything below slot {decided_to} is known to be decided");
        if counted_to > decided_to {
            let last = counted_to.0 - 1;
            let _ = writeln!(
                text,
                "  slots {decided_to} to {last}: this node voted; its votes now count as decided"
            );
        }
        if voted_to > counted_to {
            let _ = writeln!(
                text,
                "  votes between slots {counted_to} and {voted_to} are dropped: the slots before them are missing here"
            );
        }
        for place in damaged {
            let _ = writeln!(text, "  its log is damaged: {place}");
        }
        if self.founding.class == Class::Volatile {
            text.push_str(
                "  the cluster is volatile: what this node had not written to disk is lost\n",
            );
        }
        let others = status.peers.iter();
        let others = others.filter(|peer| peer.member.node != self.founding.node);
        for peer in others {
            let (node, weight) = (peer.member.node, peer.weight);
            let place = &peer.addresses.peer;
            let _ = writeln!(text, "  given up: node {node} (weight {weight}, {place})");
        }
        let _ = write!(
            text,
            "whatever the others decided from slot {counted_to} on, and all that was acknowledged by that, is \
             lost for good"
        );
        progress(&text);
    }

    fn ask_for_confirmation(&self) -> Result<(), Problem> {
        if self.args.yes.is_some() {
            return Ok(());
        }
        progress("type the id of the cluster to continue:");
        let mut said = String::new();
        io::stdin()
            .lock()
            .read_line(&mut said)
            .map_err(|error| Problem::io_error("read the answer", &error))?;
        check_confirmation(&self.founding, &said)
    }
}

fn unreadable_folder(why: impl std::fmt::Display) -> Problem {
    let what = format_args!("the state cannot be read back: {why}");
    Problem::new(Exit::Failed, "cannot_recover", what).with_hint("the node is unchanged")
}

/// Copy of the node that replays its log.
struct ReplayingNode<F: Front, S: StateMachine> {
    host: NodeHost<LockedFolder, S, F>,
    started_at: Instant,
    last_progress_at: Instant,
    last_progress: String,
}

impl<F: Front, S: StateMachine> ReplayingNode<F, S> {
    fn turn_times(&self) -> TurnTimes {
        let us = u64::try_from(self.started_at.elapsed().as_micros()).unwrap_or(u64::MAX);
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        TurnTimes { time: Time(us), wall_ms: u64::try_from(wall.as_millis()).unwrap_or(u64::MAX) }
    }

    fn run_turn(&mut self) -> Result<Status, Problem> {
        let TurnTimes { time, wall_ms } = self.turn_times();
        let mut plane = NoPeers;
        self.host.poll(&mut Turn { time, wall_ms, plane: &mut plane });
        self.host.submit_records(TurnTimes { time, wall_ms });
        let wake_at = self.host.end_turn(time);
        if wake_at.is_none_or(|at| at > time) {
            thread::sleep(TURN_PAUSE);
        }
        let status = self.host.status();
        let so_far = (status.applied_to, &status.progress, &status.error, status.snapshot_taking);
        let so_far = format!("{so_far:?}");
        if so_far != self.last_progress {
            (self.last_progress, self.last_progress_at) = (so_far, Instant::now());
        } else if self.last_progress_at.elapsed() > REPLAY_TIMEOUT {
            let at = status.applied_to;
            let why = status.error.unwrap_or_default();
            let what = format_args!("nothing from slot {at} on can be applied: {why}");
            return Err(Problem::new(Exit::Failed, "cannot_recover", what).with_hint(
                "the node is unchanged; another node's folder or a backup may have what is missing",
            ));
        }
        Ok(status)
    }

    fn replay_until(&mut self, to: Slot) -> Result<(), Problem> {
        let mut how_far = Progress::start();
        loop {
            let status = self.run_turn()?;
            if status.applied_to >= to {
                return Ok(());
            }
            let slots = (status.applied_to.0, to.0);
            how_far.report(|| {
                let (at, to) = slots;
                ProgressReport::with_share("replaying: ", slots, format_args!("slot {at} of {to}"))
            });
        }
    }

    fn take_snapshot(&mut self) -> Result<Backup, Problem> {
        let now = self.turn_times();
        self.host.start_request(now, OperatorRequest::Snapshot(None));
        loop {
            self.run_turn()?;
            match self.host.next_outcome() {
                Some(OperatorOutcome::Snapshot(Ok(_))) => break,
                Some(OperatorOutcome::Snapshot(Err(why))) => return Err(unreadable_folder(why)),
                _ => {}
            }
        }
        let backup = self.host.backup();
        backup.ok_or_else(|| unreadable_folder("there is no snapshot"))
    }
}

/// Plane without peers.
struct NoPeers;

impl Plane for NoPeers {
    fn has_room(&self, _: quorate::NodeId, _: Lane, _: usize) -> bool {
        false
    }

    fn send(
        &mut self,
        _: NodeSet,
        _: Lane,
        _: &[u8],
        _: FrameBody<'_>,
    ) -> Result<NodeSet, TooLarge> {
        Ok(NodeSet::default())
    }
}

/// Starter for a node that sends nothing and never starts an election.
struct SilentStarter;

impl Starter for SilentStarter {
    fn choose_log(&self, _: &mut LogOptions, _: Class) {}

    fn choose_replica(&self, options: &mut ReplicaOptions) {
        options.timeouts.heartbeat_ms = NEVER_MS;
        options.timeouts.election_min_ms = NEVER_MS;
        options.timeouts.election_max_ms = NEVER_MS + 1;
        options.snapshots.transfer_bytes_per_second = None;
    }

    fn report_step(&mut self, _: BootStep<'_>) {}

    fn request_memories(&mut self, _: &MemoryRequest<'_>) -> Vec<(quorate::NodeId, Memory)> {
        Vec::new()
    }

    fn wait_for_room(&mut self, _: &BootError) -> bool {
        false
    }
}

struct SilentObserver;

impl EventListener for SilentObserver {
    fn on_notice(&mut self, notice: &str) {
        progress(notice);
    }

    fn on_tuning_change(&mut self, _: &SettingChange) {}

    fn on_event(&mut self, _: Time, event: &Event, _: Option<&str>) {
        if let Event::SnapshotFailed { why } = event {
            progress(why);
        }
    }

    fn end_turn(&mut self, _: Time) {}
}
