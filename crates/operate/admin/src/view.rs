//! JSON form of a node's status, for `GET /status` and `quorate status`.

use std::{collections::BTreeMap, fmt, time::Duration};

use quorate_core::{ballot::Ballot, effect::Role, node_id::NodeId};
use quorate_log::ReadProgress;
use quorate_replica::{
    DeviceStatus, device_reasons,
    status::{Activity, DiskUse, LeaderChange, Peer, Progress, Snapshot, Status, Streams},
};
use serde::{Deserialize, Serialize};

use crate::{
    certificates::CertificateView,
    level::LevelView,
    scrub::ScrubView,
    traffic::TrafficView,
    units::{format_bytes, format_span},
};

/// JSON form of a node's status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeView {
    /// Cluster id, 32 hexadecimal digits.
    pub cluster: String,
    pub node: u32,
    /// Current role: `leader`, `follower`, `candidate`, `learner` or `auxiliary`.
    pub role: String,
    /// Leader known to this node.
    pub leader: Option<u32>,
    /// Era of the current configuration.
    pub era: u64,
    /// Quorum rule: `majority` or `flexible:Q1,Q2`.
    #[serde(default)]
    pub quorum: String,
    /// Feature level in use, and the reasons that block the next one.
    #[serde(default)]
    pub level: LevelView,
    #[serde(default)]
    pub plan: Option<PlanView>,
    /// Set if the cluster has permanently removed this node.
    #[serde(default)]
    pub removed: bool,
    /// Highest ballot known to this node.
    pub ballot: BallotView,
    /// Slot below which every slot is known to be decided.
    pub decided: u64,
    /// Slot below which this node has applied every slot.
    pub applied: u64,
    /// Slot below which this node has every slot on stable storage.
    pub durable: u64,
    /// Durability class. A volatile group may lose acknowledged commands ([class-5]).
    pub durability: String,
    /// Store of the service, such as `lsm`, `memory` or `none`.
    pub store: String,
    /// Size of the log on disk, in bytes.
    pub log_bytes: u64,
    /// First slot of the log.
    #[serde(default)]
    pub log_start: u64,
    #[serde(default)]
    pub snapshot: Option<SnapshotView>,
    /// Snapshot in progress, with the number of bytes already written.
    #[serde(default)]
    pub snapshot_taking: Option<SnapshotView>,
    /// Free space of the disk that contains the log.
    #[serde(default)]
    pub disk: DiskView,
    /// State of the byte streams.
    #[serde(default)]
    pub streams: StreamsView,
    /// The scrub in progress, or else the last one.
    #[serde(default)]
    pub scrub: ScrubView,
    /// Traffic since the process started.
    #[serde(default)]
    pub traffic: TrafficView,
    /// Leadership changes that this node observed, oldest first.
    #[serde(default)]
    pub reigns: Vec<ReignView>,
    /// Version of the node's binary.
    pub version: String,
    /// Commit that the binary was built from, and its date. Empty if unknown.
    #[serde(default)]
    pub commit: String,
    /// Reason why the node does not serve, if known.
    pub error: Option<String>,
    /// Progress of the activity that prevents the node from serving.
    #[serde(default)]
    pub progress: Option<ProgressView>,
    /// Conditions that operators should know about, but that do not prevent the node from serving.
    pub notices: Vec<String>,
    /// Nodes of the ring that relays votes, ending with the leader, as reported by the leader.
    /// Empty if votes are sent directly.
    #[serde(default)]
    pub ring: Vec<u32>,
    /// Choices of this node, with reasons, for how to send to several nodes and how to receive
    /// votes.
    #[serde(default)]
    pub choices: Vec<String>,
    #[serde(default)]
    pub device: Option<DeviceView>,
    /// Validity of the node's certificates. Empty without TLS.
    #[serde(default)]
    pub certificates: Vec<CertificateView>,
    /// Settings that all nodes should share. Empty if the node does not report them.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// Members of the current configuration.
    pub members: Vec<MemberView>,
}

/// A device that casts and counts votes outside of the node's process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceView {
    /// Kind of the device: `kernel`, `packet` or `udp`. Empty if there is no device.
    #[serde(default)]
    pub kind: String,
    pub name: String,
    /// Set if the node uses the device.
    pub used: bool,
    /// Ballot in which the device votes.
    pub armed: Option<String>,
    /// First of the slots that the device assigns. Null if the device does not assign slots.
    pub gives_from: Option<u64>,
    /// Number of slots that the device can store.
    pub cells: u32,
    /// Largest value in bytes that the device can carry.
    pub room: usize,
    /// Boot number of the device. It increases at each power-up.
    pub boot: u32,
    /// Number of votes cast by the device, as observed by this process.
    pub votes: u64,
    /// Number of slots assigned by the device, as observed by this process.
    pub given: u64,
    /// Number of decisions counted by the device, as observed by this process.
    pub counted: u64,
    /// Number of times that this process withdrew the device's permission to assign slots.
    pub taken_back: u64,
    /// Number of values that this node offered to the leader's device.
    #[serde(default)]
    pub offered: u64,
    /// Number of values sent over connections because they are too long for the device's frames.
    #[serde(default)]
    pub outgrown: u64,
    /// Number of frames for this node that the device dropped for lack of space.
    pub lost: u64,
    /// Number of frames that the device refused, by reason. Zero counts are omitted.
    #[serde(default)]
    pub refused: BTreeMap<String, u64>,
    /// Human-readable remark on the state of the device.
    #[serde(default)]
    pub note: Option<String>,
    /// Reason why the node has stopped using the device.
    pub why: Option<String>,
}

impl DeviceView {
    fn new(device: &DeviceStatus) -> Self {
        Self {
            kind: device.kind.to_owned(),
            name: device.name.clone(),
            used: device.is_used,
            armed: device.armed_ballot.map(|ballot| ballot.to_string()),
            gives_from: device.assigns_from.map(|slot| slot.0),
            cells: device.slot_capacity,
            room: device.frame_value_bytes,
            boot: device.boot,
            votes: device.vote_count,
            given: device.assigned_slots,
            counted: device.counted_decisions,
            taken_back: device.revocation_count,
            offered: device.offered_values,
            outgrown: device.oversized_values,
            lost: device.dropped_frames,
            refused: device_reasons()
                .map(|reason| (reason.name().to_owned(), device.frames_by_outcome[reason as usize]))
                .filter(|(_, count)| *count > 0)
                .collect(),
            note: device.remark.clone(),
            why: device.unused_reason.clone(),
        }
    }
}

impl fmt::Display for DeviceView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "device {}", self.name)?;
        match (&self.armed, &self.why) {
            (Some(ballot), _) => write!(f, ": votes in ballot {ballot}")?,
            (None, Some(why)) => write!(f, ": not used, {why}")?,
            (None, None) => f.write_str(": idle")?,
        }
        if let Some(slot) = self.gives_from {
            write!(f, ", gives out slots from {slot} on")?;
        }
        write!(f, "; {} votes, {} slots, {} decisions", self.votes, self.given, self.counted)?;
        self.note.iter().try_for_each(|note| write!(f, "; {note}"))
    }
}

/// Summary of a membership plan in progress. `GET /members` lists its steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanView {
    pub id: u64,
    /// Human-readable description of the requested change.
    pub what: String,
    /// Condition that the next step waits for. Only the leader reports it.
    pub waits: Option<String>,
}

/// JSON form of a ballot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BallotView {
    /// Era of the configuration in which the ballot was started.
    pub era: u64,
    pub round: u64,
    /// Id of the node that started the ballot.
    pub node: u32,
}

impl BallotView {
    /// Converts a ballot to its JSON form.
    pub fn new(ballot: Ballot) -> Self {
        Self { era: ballot.era.0.into(), round: ballot.round.into(), node: ballot.node.0 }
    }
}

/// Free space on the log's disk, and the rate at which the disk fills.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskView {
    pub free_bytes: Option<u64>,
    /// Free space that the disk needs for more data. Null unless the disk is full.
    #[serde(default)]
    pub needed_bytes: Option<u64>,
    /// Set if the node refuses data because too few members have room for it.
    #[serde(default)]
    pub data_refused: bool,
    /// Growth rate of the log in bytes per second.
    pub log_bytes_per_second: Option<u64>,
    /// Seconds until the disk is full, as forecast by the admin server. Null unless the folder
    /// keeps growing.
    pub full_in_seconds: Option<u64>,
}

impl DiskView {
    fn new(disk: DiskUse) -> Self {
        Self {
            free_bytes: disk.free_bytes,
            needed_bytes: disk.needed_bytes,
            data_refused: disk.refuses_data,
            log_bytes_per_second: disk.log_bytes_per_second,
            full_in_seconds: None,
        }
    }
}

/// State of byte streams on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamsView {
    /// Number of byte streams.
    pub count: u64,
    /// Number of byte streams that have a writer.
    pub open: u64,
    /// Disk space used by byte streams in bytes, including trimmed bytes not released yet.
    pub bytes: u64,
    /// Number of bytes that this node lacks and is fetching from other nodes.
    pub missing_bytes: u64,
    /// Reason why the node does not accept stream bytes. Null if it does, or if no client is
    /// waiting.
    #[serde(default)]
    pub stopped: Option<String>,
}

impl StreamsView {
    fn new(streams: &Streams) -> Self {
        Self {
            count: streams.named_count as u64,
            open: streams.open as u64,
            bytes: streams.used_bytes,
            missing_bytes: streams.missing_bytes,
            stopped: streams.stop_reason.clone(),
        }
    }

    /// Formats a short summary. Empty if there are no streams.
    pub fn short_summary(&self) -> String {
        let mut said = match self.count {
            0 => String::new(),
            _ => format_bytes(self.bytes),
        };
        if self.missing_bytes > 0 {
            said.push_str(&format!(", lacks {}", format_bytes(self.missing_bytes)));
        }
        said
    }
}

/// A leadership change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReignView {
    /// New leader. Null if the cluster lost its leader.
    pub leader: Option<u32>,
    /// Ballot of the new leader, or the last known ballot if there is no leader.
    pub ballot: BallotView,
    /// Milliseconds since the change.
    pub ago_ms: u64,
}

impl ReignView {
    fn new(reign: &LeaderChange) -> Self {
        Self {
            leader: reign.leader.map(|leader| leader.0),
            ballot: BallotView::new(reign.ballot),
            ago_ms: reign.age_ms,
        }
    }
}

/// A snapshot. `POST /snapshot` and `quorate snapshot` also return it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotView {
    /// Slot below which the snapshot covers every slot.
    pub slot: u64,
    /// Size of the snapshot in bytes.
    pub bytes: u64,
}

impl SnapshotView {
    /// Converts a snapshot to its JSON form.
    pub fn new(snapshot: Snapshot) -> Self {
        Self { slot: snapshot.slot.0, bytes: snapshot.bytes }
    }
}

/// Body of `POST /snapshot`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotRequest {
    /// Minimum slot that the snapshot must cover. Defaults to the node's applied position.
    pub at: Option<u64>,
}

/// Error code of `POST /snapshot` for a snapshot that continues in the background.
pub const STILL_TAKING_CODE: &str = "still_taking";

/// Error code of a node that is still starting.
pub const STARTING_CODE: &str = "starting";

/// Progress of the activity that prevents a node from serving.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgressView {
    /// Current activity: `reading_log`, `reading_votes`, `receiving_snapshot`, `repairing`,
    /// `replaying` or `catching_up`.
    pub doing: String,
    /// Unit of the amounts: `bytes` or `slots`.
    pub unit: String,
    pub from: u64,
    pub at: u64,
    /// Estimated amount at completion.
    pub to: u64,
    /// Completed share in percent, 0 to 100.
    pub percent: u64,
    /// Rate in units per second.
    pub per_second: Option<u64>,
    /// Remaining seconds at the current rate.
    pub seconds_left: Option<u64>,
}

const READING_LOG: &str = "reading_log";
const SLOTS_UNIT: &str = "slots";
const BYTES_UNIT: &str = "bytes";

impl ProgressView {
    /// Converts the progress of a running node to its JSON form.
    pub fn from_node(progress: &Progress) -> Self {
        let unit = match progress.activity.counts_bytes() {
            true => BYTES_UNIT,
            false => SLOTS_UNIT,
        };
        Self::new(progress.activity.name(), unit, progress)
    }

    /// Converts the progress of reading the log to its JSON form. `took` is the elapsed time.
    pub fn from_log(reading: ReadProgress, took: Duration) -> Self {
        let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let rate = reading.read.saturating_mul(1000).checked_div(ms);
        // The figures do not depend on the activity, so any one will do here.
        let progress = Progress {
            activity: Activity::Replaying,
            from: 0,
            position: reading.read,
            end: reading.total,
            per_second: rate,
            elapsed_ms: ms,
        };
        Self::new(READING_LOG, BYTES_UNIT, &progress)
    }

    fn new(doing: &str, unit: &str, progress: &Progress) -> Self {
        Self {
            doing: doing.to_owned(),
            unit: unit.to_owned(),
            from: progress.from,
            at: progress.position,
            to: progress.end,
            percent: progress.percent(),
            per_second: progress.per_second,
            seconds_left: progress.seconds_left(),
        }
    }
}

/// Formats progress, such as `catching up: slot 7 of 9, 77 %, 2 slots/s, about 1 s left`.
impl fmt::Display for ProgressView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let doing = match Activity::from_name(&self.doing) {
            Some(activity) => activity.to_string(),
            None if self.doing == READING_LOG => "reading the log".to_owned(),
            None => self.doing.clone(),
        };
        let of_bytes = self.unit == BYTES_UNIT;
        match of_bytes {
            true => write!(f, "{doing}: {} of {}", format_bytes(self.at), format_bytes(self.to))?,
            false => write!(f, "{doing}: slot {} of {}", self.at, self.to)?,
        }
        write!(f, ", {} %", self.percent)?;
        match self.per_second {
            Some(rate) if of_bytes => write!(f, ", {}/s", format_bytes(rate))?,
            Some(rate) => write!(f, ", {rate} slots/s")?,
            None => {}
        }
        match self.seconds_left {
            Some(seconds) => write!(f, ", about {} left", format_span(seconds)),
            None => Ok(()),
        }
    }
}

/// A member of the cluster, as seen by the responding node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberView {
    pub node: u32,
    pub peer: Option<String>,
    pub client: Option<String>,
    pub admin: Option<String>,
    #[serde(default)]
    pub stream: Option<String>,
    /// Role: `leader`, `follower`, `candidate`, `learner` or `auxiliary`.
    pub role: String,
    /// Weight of the member's vote. 0 means that it has no vote.
    pub weight: u32,
    /// Set if the responding node is connected to the member.
    pub connected: bool,
    /// Number of slots by which the member lags behind the leader. Only the leader reports it.
    pub lag: Option<u64>,
    /// Number of payload bytes that the responding node has sent to the member since it started.
    pub payload_bytes_sent: u64,
    /// Set if the leader sends proposals to the member. Only the leader reports it.
    pub engaged: Option<bool>,
    /// Path of frames to the member. Null for the node itself, and for disconnected members.
    #[serde(default)]
    pub plane: Option<PlaneView>,
}

/// Path that frames take to a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaneView {
    /// Plane: `tcp`, `udp`, `chain`, `multicast` or `ethernet`.
    pub way: String,
    /// Access to raw Ethernet frames: `packet`, `xdp, copied` or `xdp, zero copy`; else null.
    #[serde(default)]
    pub frames: Option<String>,
    /// Round-trip time of the last probe, else that of the connection, in microseconds.
    pub rtt_us: Option<u64>,
    /// Reason why the node does not use a preferred plane.
    pub why: Option<String>,
}

/// State of a cluster. `quorate status` prints it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClusterView {
    /// Cluster id that most nodes report.
    pub cluster: Option<String>,
    /// Leader in the highest ballot that any node reports.
    pub leader: Option<u32>,
    /// Responses of all members, sorted by node id.
    pub nodes: Vec<Answer>,
    /// One line for each queried node that is not a member.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub strangers: Vec<String>,
}

/// Response of one node to a status request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Answer {
    Node(Box<NodeView>),
    /// The node has not finished starting. `error` describes its current activity.
    Starting {
        node: Option<u32>,
        error: String,
        progress: Option<ProgressView>,
    },
    /// The node did not respond, for the reason in `error`.
    Unreachable {
        node: Option<u32>,
        error: String,
    },
}

impl Answer {
    pub fn node(&self) -> Option<u32> {
        match self {
            Self::Node(view) => Some(view.node),
            Self::Starting { node, .. } | Self::Unreachable { node, .. } => *node,
        }
    }

    /// Returns the node's status, if it is running.
    pub fn node_view(&self) -> Option<&NodeView> {
        match self {
            Self::Node(view) => Some(view),
            Self::Starting { .. } | Self::Unreachable { .. } => None,
        }
    }
}

/// Body of `POST /transfer`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransferRequest {
    /// Node that should become the leader. Defaults to the most advanced follower.
    pub to: Option<u32>,
}

/// Response to `POST /transfer`, and result of `quorate transfer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transferred {
    pub leader: u32,
}

const fn role_name(role: Role) -> &'static str {
    match role {
        Role::Leader => "leader",
        Role::Follower => "follower",
        Role::Candidate => "candidate",
        Role::Learner => "learner",
        Role::Auxiliary => "auxiliary",
    }
}

impl NodeView {
    /// Returns the version with its commit, if known: `0.3.0 (1a2b3c4d5e 2026-11-28)`.
    pub fn full_version(&self) -> String {
        let Self { version, commit, .. } = self;
        if commit.is_empty() { version.clone() } else { format!("{version} ({commit})") }
    }

    /// Converts the status of a running node to its JSON form.
    pub fn new(status: &Status, store: &str) -> Self {
        Self {
            cluster: format!("{:032x}", status.cluster),
            node: status.member.node.0,
            role: role_name(status.role).to_owned(),
            leader: status.leader.map(|leader| leader.0),
            era: status.era.0.into(),
            quorum: status.quorum.to_string(),
            level: LevelView::new(&status.level),
            plan: status.plan.as_ref().map(|plan| PlanView {
                id: plan.id,
                what: plan.description.clone(),
                waits: plan.wait_reason.clone(),
            }),
            removed: status.removed,
            ballot: BallotView::new(status.ballot),
            decided: status.decided_to.0,
            applied: status.applied_to.0,
            durable: status.durable_to.0,
            durability: status.class.name().to_owned(),
            store: store.to_owned(),
            log_bytes: status.log_bytes,
            log_start: status.log_start.0,
            snapshot: status.snapshot.map(SnapshotView::new),
            snapshot_taking: status.snapshot_taking.map(SnapshotView::new),
            disk: DiskView::new(status.disk),
            streams: StreamsView::new(&status.streams),
            scrub: ScrubView::new(&status.scrub),
            traffic: TrafficView::new(status.traffic),
            reigns: status.reigns.iter().map(ReignView::new).collect(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: String::new(),
            error: status.error.clone(),
            progress: status.progress.as_ref().map(ProgressView::from_node),
            notices: status
                .notices
                .iter()
                .cloned()
                .chain(ScrubView::new(&status.scrub).damage_notice())
                .collect(),
            ring: status.ring.iter().map(|node| node.0).collect(),
            choices: status.choices.clone(),
            device: status.device.as_ref().map(DeviceView::new),
            certificates: Vec::new(),
            settings: BTreeMap::new(),
            members: status.peers.iter().map(|peer| MemberView::new(peer, status)).collect(),
        }
    }
}

impl MemberView {
    fn new(peer: &Peer, status: &Status) -> Self {
        let known = |address: &String| (!address.is_empty()).then(|| address.clone());
        let node = peer.member.node;
        Self {
            node: node.0,
            peer: known(&peer.addresses.peer),
            client: known(&peer.addresses.client),
            admin: known(&peer.addresses.admin),
            stream: known(&peer.addresses.stream),
            role: member_role(peer, node, status).to_owned(),
            weight: peer.weight,
            connected: peer.connected,
            lag: peer.lag,
            payload_bytes_sent: peer.payload_bytes_sent,
            engaged: peer.engaged,
            plane: (peer.connected && peer.member != status.member).then(|| PlaneView {
                way: peer.plane.kind.name().to_owned(),
                frames: peer.plane.raw_frame_mode.map(str::to_owned),
                rtt_us: peer.plane.rtt_us,
                why: peer.plane.fallback_reason.clone(),
            }),
        }
    }
}

/// Returns the role of a member. The role is exact for this node, and derived from the
/// configuration and the ballot for others.
fn member_role(peer: &Peer, node: NodeId, status: &Status) -> &'static str {
    let role = match () {
        () if node == status.member.node => status.role,
        () if status.leader == Some(node) => Role::Leader,
        () if peer.weight == 0 => Role::Learner,
        () if peer.auxiliary => Role::Auxiliary,
        () => Role::Follower,
    };
    role_name(role)
}

impl ClusterView {
    /// Creates the state of a cluster from the nodes' responses, which are sorted by node id. The
    /// leader is the one in the highest ballot that any node reports.
    pub fn new(mut nodes: Vec<Answer>) -> Self {
        nodes.sort_by_key(|answer| answer.node().unwrap_or(u32::MAX));
        let views = || nodes.iter().filter_map(Answer::node_view);
        let claims = views().filter_map(|view| Some((view.ballot, view.leader?)));
        let leader = claims.max().map(|(_, leader)| leader);
        let mut clusters: BTreeMap<&str, usize> = BTreeMap::new();
        for view in views() {
            *clusters.entry(&view.cluster).or_default() += 1;
        }
        let commonest = clusters.into_iter().max_by_key(|(_, count)| *count);
        let cluster = commonest.map(|(id, _)| id.to_owned());
        Self { cluster, leader, nodes, strangers: Vec::new() }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use quorate_core::{
        ballot::Era,
        level::Level,
        node_id::{Incarnation, Member},
        quorum::QuorumRule,
        record::Class,
        slot::Slot,
    };
    use quorate_replica::status::{
        Addresses, LevelStatus, NodeLevelStatus, PeerPlane, PlanStatus, Traffic,
    };

    use super::*;

    pub(crate) fn status() -> Status {
        let peer = |node, weight| Peer {
            member: Member { node: NodeId(node), incarnation: Incarnation(0) },
            weight,
            auxiliary: false,
            connected: node == 1,
            lag: None,
            payload_bytes_sent: 0,
            engaged: None,
            addresses: Addresses { peer: format!("h:{node}"), ..Addresses::default() },
            plane: PeerPlane::default(),
        };
        Status {
            cluster: 0xab,
            member: Member::first(1),
            role: Role::Leader,
            leader: Some(NodeId(1)),
            era: Era(1),
            quorum: QuorumRule::Majority,
            level: LevelStatus {
                level: Level(8),
                supported_level: Level(9),
                nodes: vec![NodeLevelStatus { node: NodeId(1), supported_level: Some(Level(9)) }],
                raise_obstacles: vec!["node 2 is not connected".to_owned()],
                raise_in_ms: Some(1_500),
            },
            plan: Some(PlanStatus {
                id: 8,
                description: "remove node 3".to_owned(),
                wait_reason: None,
            }),
            removed: false,
            ballot: Ballot { era: Era(1), round: 7, node: NodeId(1) },
            decided_to: Slot(9),
            applied_to: Slot(8),
            durable_to: Slot(10),
            class: Class::Durable,
            log_bytes: 4096,
            log_start: Slot(3),
            snapshot: Some(Snapshot { slot: Slot(5), bytes: 900 }),
            snapshot_taking: None,
            ring: Vec::new(),
            choices: Vec::new(),
            scrub: quorate_replica::ScrubStatus::default(),
            device: None,
            disk: DiskUse {
                free_bytes: Some(8000),
                log_bytes_per_second: Some(100),
                ..DiskUse::default()
            },
            streams: Streams {
                named_count: 4,
                open: 1,
                used_bytes: 700,
                missing_bytes: 30,
                ..Streams::default()
            },
            traffic: Traffic {
                applied_commands: 40,
                answered_commands: 20,
                answer_time_us: 60_000,
                ..Traffic::default()
            },
            reigns: vec![LeaderChange {
                leader: Some(NodeId(1)),
                ballot: Ballot { era: Era(1), round: 7, node: NodeId(1) },
                age_ms: 1500,
            }],
            progress: Some(Progress {
                activity: Activity::CatchingUp,
                from: 1,
                position: 8,
                end: 15,
                per_second: Some(2),
                elapsed_ms: 3000,
            }),
            error: None,
            notices: Vec::new(),
            peers: vec![peer(1, 1), peer(2, 1), peer(3, 0)],
        }
    }

    /// The field names are fixed, because scripts rely on them.
    #[test]
    fn a_node_has_the_documented_fields() {
        let view = NodeView::new(&status(), "lsm");
        let json = serde_json::to_value(&view).unwrap();
        let mut expected = serde_json::json!({
            "cluster": "000000000000000000000000000000ab",
            "node": 1,
            "role": "leader",
            "leader": 1,
            "era": 1,
            "plan": {"id": 8, "what": "remove node 3", "waits": null},
            "removed": false,
            "ballot": {"era": 1, "round": 7, "node": 1},
            "decided": 9,
            "applied": 8,
            "durable": 10,
            "durability": "durable",
            "store": "lsm",
            "log_bytes": 4096,
            "log_start": 3,
                "snapshot": {"slot": 5, "bytes": 900},
                "snapshot_taking": null,
                "disk": {"free_bytes": 8000, "needed_bytes": null, "data_refused": false,
                         "log_bytes_per_second": 100, "full_in_seconds": null},
                "streams": {"count": 4, "open": 1, "bytes": 700, "missing_bytes": 30, "stopped": null},
            "version": env!("CARGO_PKG_VERSION"),
            "error": null,
            "progress": {"doing": "catching_up", "unit": "slots", "from": 1, "at": 8, "to": 15,
                         "percent": 50, "per_second": 2, "seconds_left": 4},
            "notices": [],
            "ring": [],
            "choices": [],
            "members": [
                {"node": 1, "peer": "h:1", "client": null, "admin": null, "stream": null, "role": "leader",
                 "weight": 1, "connected": true, "lag": null,
                 "payload_bytes_sent": 0, "engaged": null, "plane": null},
                {"node": 2, "peer": "h:2", "client": null, "admin": null, "stream": null, "role": "follower",
                 "weight": 1, "connected": false, "lag": null,
                 "payload_bytes_sent": 0, "engaged": null, "plane": null},
                {"node": 3, "peer": "h:3", "client": null, "admin": null, "stream": null, "role": "learner",
                 "weight": 0, "connected": false, "lag": null,
                 "payload_bytes_sent": 0, "engaged": null, "plane": null},
            ],
        });
        expected["commit"] = "".into();
        expected["level"] = serde_json::json!({
            "level": 8, "supports": 9, "nodes": [{"node": 1, "newest": 9}],
            "held_back": ["node 2 is not connected"], "raise_in_s": 2,
        });
        // Another level of nesting would exceed the macro's recursion limit.
        expected["device"] = serde_json::Value::Null;
        expected["certificates"] = serde_json::json!([]);
        expected["settings"] = serde_json::json!({});
        expected["quorum"] = "majority".into();
        expected["traffic"] = serde_json::json!({"applied": 40, "answered": 20, "answered_us": 60_000, "latencies": []});
        expected["scrub"] = serde_json::json!({
            "reading": null, "begun_unix_ms": null, "ended_unix_ms": null, "every_ms": null,
            "bytes_per_second": 0, "bytes": 0, "bytes_all": 0, "found": [], "more": 0,
            "kinds": {"log": 0, "streams": 0, "snapshot": 0, "store": 0, "files": 0},
        });
        expected["reigns"] = serde_json::json!([{"leader": 1, "ballot": {"era": 1, "round": 7, "node": 1}, "ago_ms": 1500}]);
        assert_eq!(json, expected);
        assert_eq!(serde_json::from_value::<NodeView>(json).unwrap(), view);
    }

    #[test]
    fn progress_is_described_in_words() {
        let view = NodeView::new(&status(), "lsm").progress.unwrap();
        let expected = "catching up: slot 8 of 15, 50 %, 2 slots/s, about 4 s left";
        assert_eq!(view.to_string(), expected);
        let progress = Progress {
            activity: Activity::ReceivingSnapshot,
            from: 0,
            position: 300 << 20,
            end: 1200 << 20,
            per_second: Some(100 << 20),
            elapsed_ms: 3000,
        };
        let view = ProgressView::from_node(&progress);
        let expected = "receiving a snapshot: 300 MiB of 1.1 GiB, 25 %, 100 MiB/s, about 9 s left";
        assert_eq!(view.to_string(), expected);
        let fields = (&*view.doing, &*view.unit, view.percent);
        assert_eq!(fields, ("receiving_snapshot", "bytes", 25));
        let reading = ReadProgress { read: 3 << 30, total: 12 << 30 };
        let view = ProgressView::from_log(reading, Duration::from_secs(6));
        let expected = "reading the log: 3 GiB of 12 GiB, 25 %, 512 MiB/s, about 18 s left";
        assert_eq!(view.to_string(), expected);
        let view = ProgressView::from_log(ReadProgress::default(), Duration::ZERO);
        assert_eq!(view.to_string(), "reading the log: 0 B of 0 B, 100 %");
    }

    /// A deposed leader may still consider itself the leader.
    #[test]
    fn leader_is_the_one_of_the_highest_ballot() {
        let view = |node, leader, round| {
            let mut view = NodeView::new(&status(), "lsm");
            (view.node, view.leader, view.ballot.round) = (node, leader, round);
            Answer::Node(Box::new(view))
        };
        let gone = Answer::Unreachable { node: Some(2), error: "refused".to_owned() };
        let cluster = ClusterView::new(vec![view(3, Some(3), 8), gone, view(1, Some(1), 7)]);
        assert_eq!(cluster.leader, Some(3));
        let nodes: Vec<_> = cluster.nodes.iter().map(Answer::node).collect();
        assert_eq!(nodes, [Some(1), Some(2), Some(3)]);
        let json = serde_json::to_value(&cluster).unwrap();
        assert_eq!(json["nodes"][1], serde_json::json!({"node": 2, "error": "refused"}));
    }
}
