//! Start of a replica: builds its parts from the recovered log and the service.

use std::collections::{BTreeMap, VecDeque};

use quorate_core::{
    lease::LeaseRules,
    level::Level,
    message::Extent,
    node::{Node, Options, Recovered},
    node_id::NodeId,
    reconfigure::Eras,
    slot::{Slot, SlotRange},
    time::Time,
    value::Value,
};
use quorate_log::disk::Disk;
use quorate_log::{Log, Recovery};
use quorate_stream::store::{Layout, Store, StoreError, StoreLimits, StoredPlace};
use quorate_tuner::{Setting, SettingBounds, Settings};

use super::{Replica, scrub::read_interval_start};
use crate::{
    applying::{Applying, applier::Applier, membership::Membership},
    catching_up::CatchingUp,
    clocks::Clocks,
    completions::Completions,
    contents::{Contents, runs::StreamBuffers, stream_positions},
    counters::Counters,
    devices::Devices,
    differing::{self, StateSuspicion},
    ending::Ending,
    fitness::FitnessState,
    group::Group,
    limits::{Limits, OPEN_BATCHES_MAX},
    members::{
        driver::MembershipDriver,
        rising::{FIRST_BOOT, LevelRaises},
    },
    observing::{Observing, pursuit::LagTracker},
    open::{OpenError, ReplicaOptions},
    peers::Peers,
    ports::service::StateMachine,
    proposing::{Proposing, batch, origin::Origin},
    protocol::Protocol,
    reading::Reading,
    rollback::Rollback,
    routing::{Routing, VoteRoute},
    scrubbing::Scrubbing,
    snapshots::{self, Snapshots},
    spine::{Identity, Spine},
    storing::{Storing, batch_bytes_max, largest_command},
    streaming::{
        Streaming, keeping::StreamStorage, offering::StreamProposals, open::PieceBounds,
        owning::OwnedPieces,
    },
    tuning::Tuning,
    turns::Turns,
};

/// Level from which on a lease grant no longer withholds promises ([read-8]).
const LEASE_GRANT_LEVEL: Level = Level(10);

/// Number of owners that fill the memory for streams if each uses its full share.
const FULL_SHARE_OWNERS: usize = 4;

/// Number of repeat intervals after which an unreachable owner of streams counts as lost.
const OWNER_LOST_REPEATS: u64 = 4;

/// Number of maximum election timeouts for which leadership stays unless a request moves it.
const LEADERSHIP_STAY_TIMEOUTS: u64 = 10;

impl<D: Disk, S: StateMachine> Replica<D, S> {
    /// Opens a replica on a log and a service. Sends nothing before the first [`Replica::poll`].
    pub fn open(
        options: ReplicaOptions,
        mut log: Log<D>,
        mut recovery: Recovery,
        service: S,
        now: Time,
    ) -> Result<Self, OpenError> {
        let damage = recovery.damage.clone().unwrap_or_default();
        if damage.votes_lost {
            return Err(OpenError::Forgotten { places: damage.descriptions });
        }
        let ReplicaOptions { member, boot, timeouts, .. } = options;
        let command_bytes_max = command_bytes_max(options.command_bytes_max, &log);
        let limits = options.limits.raised_for(command_bytes_max + batch::OVERHEAD_BYTES);
        let founding = Eras::founded(options.founding);
        let membership = founding_membership(founding.clone(), &options.founding_peers);
        let membership = membership.with_supported_level(options.supported_level);
        let applier = Applier::new(member.node, boot, &limits, membership, service)
            .map_err(OpenError::Metadata)?;
        let mut store = open_store(log.disk_mut(), options.stream_limits, options.stream_layout)?;
        claim_placed(&mut store, &recovery, log.disk_mut());
        let doubt = differing::read_recorded_doubt(log.disk_mut());
        let bare_to = without_bytes_to(&recovery);
        let lost = take_unplaced_votes(&store, &mut recovery);
        let owned_up = recovery.incarnation < Some(member.incarnation);
        if !lost.is_empty() && !owned_up {
            return Err(OpenError::Forgotten { places: lost });
        }
        let unread_votes = ranges_with_bytes(&recovery.votes);
        let replay_to = recovery.hard_state.decided_to;
        let begun = snapshots::decode_base(&recovery.base.note, replay_to, || founding)
            .map_err(|_| OpenError::Base)?;
        let recovered = Recovered::replayed(
            recovery.hard_state,
            recovery.base.start,
            begun.eras.clone(),
            recovery.reconfigurations.clone(),
            damage.lost_slots,
            recovery.votes,
        );
        let recovered = match begun.is_hollow {
            true => recovered.hollow(begun.eras.clone()),
            false => recovered,
        };
        let class = recovered.eras.current().class();
        let voters = recovered.eras.current().members().len();
        let node_options = Options {
            member,
            heartbeat_ms: timeouts.heartbeat_ms,
            election_min_ms: timeouts.election_min_ms,
            election_max_ms: timeouts.election_max_ms,
            inflight_max: options.inflight_max,
            window_slots: options.window_slots,
            // [read-8] A leader or acceptor of a lower level relies on withheld promises.
            leases: options.leases.map(|leases| LeaseRules {
                promises: leases.promises && options.marked_level >= LEASE_GRANT_LEVEL,
                ..leases
            }),
            earlier_lease_us: options.earlier_lease_us,
            lead_alone_wait_us: options.lead_alone_after_us,
            thrifty: options.is_thrifty,
            route: options.vote_route.initial_route(),
            seed: options.seed,
        };
        // Longer than a usual election, after which the new leader already has everything.
        let repeat_ms = timeouts.election_max_ms.saturating_mul(2).max(1);
        // [session-2] bounds the number of open batches of a session.
        let possible =
            SettingBounds { batch_bytes_max: batch_bytes_max(&log), window_max: OPEN_BATCHES_MAX };
        let tuning = tuning_settings(options.tuning, &limits, voters, possible);
        let unread = unread_votes.iter().map(|range| range.len()).sum();
        let pursuit = LagTracker::new(now, replay_to, unread, recovered.lost_slots.slots());
        let origin =
            Origin::new(member.node, boot, options.client_timeout_ms, repeat_ms, limits.clone());
        let fetch_ms = timeouts.election_min_ms;
        let (start, applied_to) = (recovery.base.start, applier.applied_to());
        let log_end = recovery.hard_state.voted_to.max(recovery.hard_state.decided_to);
        let streams = applier.streams();
        let ends = (start, log_end);
        let keeping = StreamStorage::new(store, ends, bare_to, applied_to, streams, fetch_ms);
        let cut = PieceBounds::for_layout(keeping.layout());
        let mut runs = StreamBuffers::new(limits.stream_bytes, limits.stream_window_bytes);
        for stream in applier.streams().open_streams() {
            runs.drop_applied(stream, applier.streams().next_position(stream).unwrap_or(0));
        }
        let (timeout_ms, election_ms) = (options.client_timeout_ms, timeouts.election_max_ms);
        let snapshots = Snapshots::new(
            now,
            options.snapshots,
            options.cluster,
            begun,
            recovery.reconfigurations,
            fetch_ms,
            &mut log,
        )
        .map_err(OpenError::Snapshots)?;
        let scrubbed = read_interval_start(log.disk_mut());
        let is_first = boot == FIRST_BOOT && start == Slot::FIRST;
        let (supports, marked) = (options.supported_level, options.marked_level);
        let rising = LevelRaises::new(now, supports, marked, options.raise_policy, is_first);
        let routing = (options.vote_route == VoteRoute::Auto).then(|| Routing::new(now));
        let mut spine = Spine {
            identity: Identity { cluster: options.cluster, member, boot },
            protocol: Protocol::new(Node::new(node_options, recovered), options.window_slots),
            peers: Peers::new(now, options.addresses, doubt),
            proposing: Proposing::new(now, origin, command_bytes_max, limits.forwarded_bytes),
            contents: Contents::new(limits.payload_bytes, limits.recent_bytes, runs, fetch_ms),
            storing: Storing::new(now, log, &limits),
            applying: Applying::new(applier, &limits),
            completions: Completions::default(),
            clocks: Clocks::default(),
            observing: Observing::new(now, pursuit, election_ms),
            counters: Counters::default(),
            hops: None,
        };
        let suspicion = StateSuspicion::new(doubt, &mut spine);
        let mut replica = Self {
            spine,
            streaming: Streaming::new(
                OwnedPieces::new(
                    member.node,
                    boot,
                    limits.stream_window_bytes,
                    limits.stream_bytes / FULL_SHARE_OWNERS,
                    repeat_ms,
                    cut,
                ),
                StreamProposals::new(repeat_ms.saturating_mul(OWNER_LOST_REPEATS)),
                keeping,
                options.inflight_max,
            ),
            reading: Reading::new(
                timeout_ms,
                repeat_ms,
                &limits,
                options.leases.is_some(),
                options.clock_drift_ppm,
            ),
            catching_up: CatchingUp::new(unread_votes, fetch_ms, &limits),
            snapshots,
            members: MembershipDriver::new(
                election_ms.saturating_mul(LEADERSHIP_STAY_TIMEOUTS),
                rising,
            ),
            rollback: Rollback::default(),
            suspicion,
            scrubbing: Scrubbing::new(options.scrub, scrubbed),
            ending: Ending::new(timeout_ms),
            fitness: FitnessState::new(now, replay_to, applied_to),
            turns: Turns::default(),
            tuning: Tuning::new(tuning, possible, class, routing),
            devices: Devices::default(),
        };
        // This must precede the first reply to a frame.
        replica.streams_work().report_lacking();
        Ok(replica)
    }
}

/// Opens the store of streams as the last process left it. If it is damaged, creates a new one,
/// since its bytes are in the log and at peers.
fn open_store<D: Disk>(
    disk: &mut D,
    limits: StoreLimits,
    layout: Layout,
) -> Result<Store, OpenError> {
    match Store::open(disk, limits, layout) {
        Err(
            StoreError::PointerDamaged(_)
            | StoreError::Catalogue { .. }
            | StoreError::Missing { .. },
        ) => Store::open_emptied(disk, limits, layout),
        opened => opened,
    }
    .map_err(OpenError::Streams)
}

/// [disk-5] Claims the places in the store of streams to which the log refers, before other data
/// can be written there. The store itself only knows the places from before its last checkpoint.
fn claim_placed<D: Disk>(store: &mut Store, recovery: &Recovery, disk: &mut D) {
    let at = store.checkpointed_to();
    let newer = recovery.placed_values.iter().filter(|(range, ..)| range.to > at);
    let said: Vec<_> = newer
        .filter_map(|(_, value, places)| match value {
            Value::Content { stream, .. } => Some((*stream, StoredPlace::decode_all(places)?)),
            _ => None,
        })
        .collect();
    store.claim_recorded_places(said, disk);
}

/// [here-1] Returns the end of the last content in the log that was learned without its bytes.
fn without_bytes_to(recovery: &Recovery) -> Slot {
    let bare = recovery.placed_values.iter().filter(|(.., places)| places.is_empty());
    bare.map(|(range, ..)| range.to).max().unwrap_or_default()
}

/// [value-3] Removes open votes whose placed bytes are lost, and returns messages about them.
fn take_unplaced_votes(store: &Store, recovery: &mut Recovery) -> Vec<String> {
    let placed = &recovery.placed_values;
    let gone = |vote: &mut Extent| {
        let of_vote =
            placed.iter().filter(|(_, value, places)| *value == vote.value && !places.is_empty());
        of_vote.map(|(range, ..)| range.intersect(vote.range)).any(|range| match vote.value {
            Value::Content { stream, offset } if !range.is_empty() => {
                let positions = stream_positions(offset, range);
                store.held_contiguous_to(stream, positions.start) < positions.end
            }
            _ => false,
        })
    };
    let gone = recovery.votes.extract_if(.., gone);
    gone.map(|vote| format!("streams: the bytes of a vote for slots {} are gone", vote.range))
        .collect()
}

/// Returns the group as it was founded, which is the same on all of its nodes.
fn founding_membership(eras: Eras, peers: &BTreeMap<NodeId, String>) -> Membership {
    let members = eras.current().members().iter();
    let known = members.map(|voter| {
        let node = voter.member.node;
        (node, peers.get(&node).cloned().unwrap_or_default())
    });
    Membership::new(Group::founded(known), eras)
}

/// Clamps the tuner's settings to the possible range. Without settings, `limits` applies.
fn tuning_settings(
    wanted: Option<Settings>,
    limits: &Limits,
    voters: usize,
    possible: SettingBounds,
) -> Settings {
    let start = Setting { batch_bytes: limits.batch_bytes, window: limits.window_batches };
    let mut settings = wanted.unwrap_or(Settings { start, fixed: true, ..Settings::new(voters) });
    settings.nodes = voters;
    let bounds = &mut settings.bounds;
    bounds.window_max = bounds.window_max.clamp(1, possible.window_max);
    bounds.batch_bytes_max = bounds.batch_bytes_max.clamp(1, possible.batch_bytes_max);
    settings.start = bounds.clamp(settings.start);
    settings
}

/// Returns the slots of the votes whose payloads must be read back.
fn ranges_with_bytes(votes: &[Extent]) -> VecDeque<SlotRange> {
    let mut ranges: VecDeque<SlotRange> = VecDeque::new();
    for vote in votes.iter().filter(|vote| vote.value.has_bytes()) {
        match ranges.back_mut() {
            Some(last) if last.to == vote.range.from => last.to = vote.range.to,
            _ => ranges.push_back(vote.range),
        }
    }
    ranges
}

/// Returns the maximum length of a command in bytes: `wanted`, or less so that a batch of one fits
/// a record.
fn command_bytes_max<D: Disk>(wanted: usize, log: &Log<D>) -> usize {
    wanted.min(largest_command(log))
}
