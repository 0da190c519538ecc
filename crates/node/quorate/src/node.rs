//! Opens a data folder that has an identity as a node that a reactor can run.

use std::{path::PathBuf, thread, time::Duration};

use quorate_core::{
    lease::LeaseRules, node_id::NodeId, record::Class, slot::Slot, witness::Memory,
};
use quorate_log::disk::Family;
use quorate_log::{LINGER_BYTES, LogOptions, ReadProgress, Recovery};
use quorate_net::{
    Identity as NetIdentity, Limits, PeerAddress, RECALL_TIMEOUT, Settings as NetSettings,
    request_memories,
};
use quorate_node::{
    Home as _, Identity, LockedFolder, NodeHost,
    boot::{BootError, BootStep, MemoryRequest, NodeParts, Starter as BootStarter, boot},
    hops,
};
use quorate_replica::{
    ReplicaOptions, Timeouts,
    front::Front,
    service::{StateMachine, position},
    status::Addresses,
};

use crate::{error::Error, journal::EventFormatter, settings::Settings};

/// Delay between attempts of a start that waits for disk space.
const FULL_DISK_RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// Step of opening a node, for progress reports.
#[derive(Clone, Copy, Debug)]
pub enum OpeningStep<'a> {
    /// A disk driver was chosen. The text names the driver and the reason.
    Disk(&'a str),
    /// The log is being read.
    ReadingLog(ReadProgress),
    /// The start waits for the condition that the text describes.
    Waiting(&'a str),
}

/// Callbacks of the program that starts a node.
pub struct Starter<'a> {
    /// Called with each step that may take time.
    pub report_step: &'a mut dyn FnMut(OpeningStep<'_>),
    /// Returns whether the start should be aborted.
    pub stop: &'a dyn Fn() -> bool,
}

/// Opens the log, rebuilds the state of the node, and combines it with a service and a front.
pub fn open<S: StateMachine, F: Front>(
    settings: &Settings,
    identity: Identity<LockedFolder>,
    addresses: Addresses,
    service: S,
    front: F,
    mut starter: Starter<'_>,
) -> Result<(NodeHost<LockedFolder, S, F>, NetSettings), Error> {
    let node = identity.founding().node;
    let parts = NodeParts {
        service,
        stored_to: |service| position(service).map_or(Slot(0), |(stored_to, _)| stored_to),
        front,
        listener: Box::new(EventFormatter::new(node)),
    };
    let mut production = ProductionStarter {
        settings,
        addresses: &addresses,
        log_folder: identity.home().path().join(Family::Log.folder()),
        last_wait_reason: String::new(),
        starter: &mut starter,
    };
    let mut host = boot(identity, parts, &mut production)?;
    if settings.record_hops {
        host = host.with_hops(hops::new_hop_ring());
    }
    let net = net_settings(settings, host.identity(), addresses);
    Ok((host, net))
}

/// Starter of a production node. It reports and logs the steps of the start.
struct ProductionStarter<'a, 's> {
    settings: &'a Settings,
    /// Addresses on which this node listens.
    addresses: &'a Addresses,
    log_folder: PathBuf,
    /// Reason for waiting for disk space that was last reported.
    last_wait_reason: String,
    starter: &'a mut Starter<'s>,
}

impl BootStarter for ProductionStarter<'_, '_> {
    fn choose_log(&self, options: &mut LogOptions, class: Class) {
        if class == Class::Volatile {
            options.linger_bytes = LINGER_BYTES;
        }
        options.segment_bytes = self.settings.log_segment_bytes;
        let segment = usize::try_from(options.segment_bytes).unwrap_or(usize::MAX);
        options.write_bytes_max = options.write_bytes_max.min(segment);
        let ready = self.settings.log_ready_bytes.div_ceil(options.segment_bytes);
        options.spare_segments = usize::try_from(ready).unwrap_or(usize::MAX).max(1);
    }

    fn choose_replica(&self, options: &mut ReplicaOptions) {
        let settings = self.settings;
        options.timeouts = Timeouts {
            heartbeat_ms: settings.heartbeat_ms,
            election_min_ms: settings.election_ms.0,
            election_max_ms: settings.election_ms.1,
        };
        options.command_bytes_max = settings.command_bytes_max;
        options.client_timeout_ms = settings.client_timeout_ms;
        options.tuning = Some(settings.tuning);
        options.limits.reply_bytes = settings.client_memory_bytes / 4;
        options.snapshots.ratio = settings.snapshot_ratio;
        options.snapshots.log_bytes_max = settings.log_bytes_max;
        options.is_thrifty = settings.thrifty;
        options.vote_route = settings.vote_route.clone();
        options.raise_policy = settings.raise_policy;
        options.snapshots.transfer_bytes_per_second = settings.transfer_bytes_per_second;
        options.scrub = settings.scrub;
        options.clock_drift_ppm = settings.clock_drift_ppm;
        let leases =
            LeaseRules::within_election_timeout(settings.election_ms.0, settings.clock_drift_ppm);
        options.leases = settings.uses_leases.then_some(leases);
        options.lead_alone_after_us = Limits::default().dialled_within_ms() * 1_000;
        let node = options.member.node;
        // The list from an earlier start may lack this address.
        if let Some(own) = options.addresses.get_mut(&node) {
            *own = self.addresses.clone();
        }
    }

    fn report_step(&mut self, step: BootStep<'_>) {
        match step {
            BootStep::DiskOpened(reason) => (self.starter.report_step)(OpeningStep::Disk(reason)),
            BootStep::ReadingLog(reading) => {
                (self.starter.report_step)(OpeningStep::ReadingLog(reading))
            }
            BootStep::MayHaveForgotten(incarnation) => tracing::warn!(
                incarnation = incarnation.0,
                "the last stop was unclean, so votes may be lost: this node learns without a vote"
            ),
            BootStep::LostVotes(places) => {
                for place in places {
                    tracing::error!(%place, "the log is damaged and may have lost votes");
                }
            }
            BootStep::NewIncarnation(incarnation) => tracing::error!(
                incarnation = incarnation.0,
                folder = %self.log_folder.display(),
                "the log lost votes: this node learns without a vote from now on; check that the disk of its log is mounted"
            ),
            BootStep::LogRecovered(recovery) => log_recovery(recovery),
        }
    }

    fn request_memories(&mut self, question: &MemoryRequest<'_>) -> Vec<(NodeId, Memory)> {
        let MemoryRequest { cluster, node, peers } = *question;
        let others = peers.iter().filter(|(other, _)| **other != node);
        let others: Vec<_> = others.map(|(other, at)| (*other, at.clone())).collect();
        let trust = self.settings.protection.trust();
        request_memories(&others, cluster, node, trust, RECALL_TIMEOUT)
    }

    fn wait_for_room(&mut self, error: &BootError) -> bool {
        let why = format!("waiting for room on the disk: {error}");
        if why != self.last_wait_reason {
            (self.starter.report_step)(OpeningStep::Waiting(&why));
            self.last_wait_reason = why;
        }
        if (self.starter.stop)() {
            return false;
        }
        thread::sleep(FULL_DISK_RETRY_INTERVAL);
        true
    }
}

/// Logs the number of recovered records, and any losses.
fn log_recovery(recovery: &Recovery) {
    let Recovery { hard_state: hard, record_count: records, torn_tail_bytes, damage, .. } =
        recovery;
    tracing::info!(
        records,
        decided = hard.decided_to.0,
        voted = hard.voted_to.0,
        torn_tail_bytes,
        "log read: every slot below `decided` is decided; a torn tail was never acknowledged"
    );
    for place in damage.iter().flat_map(|damage| &damage.descriptions) {
        tracing::warn!(%place, "the log is damaged: fetching what it lost from peers");
    }
}

fn net_settings(
    settings: &Settings,
    identity: &Identity<LockedFolder>,
    addresses: Addresses,
) -> NetSettings {
    let founding = identity.founding();
    let mut limits = Limits {
        clients_max: settings.descriptors.clients_max,
        strangers_max: settings.descriptors.strangers_max,
        ..Limits::default()
    };
    limits.client_backlog_bytes_max =
        limits.client_backlog_bytes_max.max(settings.client_input_bytes_max);
    limits.clients_bytes_max = settings.client_memory_bytes;
    limits.spin = settings.spin;
    limits.io_threads = settings.io_threads;
    limits.io_spread = settings.io_spread;
    limits.stop_timeout_ms =
        limits.stop_timeout_ms.max(settings.client_timeout_ms.saturating_mul(2));
    let peer =
        |(node, address): (&NodeId, &String)| PeerAddress { node: *node, address: address.clone() };
    NetSettings {
        identity: NetIdentity {
            cluster: founding.cluster,
            member: identity.member(),
            boot: identity.boot(),
            addresses,
        },
        peers: identity.address_book().peers.iter().map(peer).collect(),
        limits,
        seed: identity.seed(),
    }
}
