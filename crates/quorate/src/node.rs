//! From a folder with an identity to a node that a reactor can run.

use std::{thread, time::Duration};

use quorate_core::{
    configuration::Configuration,
    node_id::{Member, NodeId},
    record::Class,
    slot::Slot,
    time::Time,
};
use quorate_disk::{Family, FileDisk};
use quorate_log::{LINGER_BYTES, Log, LogError, LogOptions, Reading, Recovery};
use quorate_net::{Identity as NetIdentity, Limits, PeerAddress, Settings as NetSettings};
use quorate_node::{
    NodeHost,
    identity::{Founding, Identity, LastStop},
};
use quorate_replica::{
    Replica, ReplicaOptions, Timeouts,
    front::Front,
    service::{StateMachine, position},
    status::Addresses,
};

use crate::{error::Error, journal::Journal, settings::Settings};

/// How often a start that waits for room on the disk tries again.
const ROOM_WAIT: Duration = Duration::from_millis(250);
/// Code of the error that says that a stop was asked for.
pub const STOPPED: &str = "stopped";

/// What happens while a node is opened.
#[derive(Clone, Copy, Debug)]
pub enum Opening<'a> {
    /// A disk driver was chosen; the text says which, and why.
    Disk(&'a str),
    /// The log is read, and that is how far it is.
    ReadingLog(Reading),
    /// Nothing happens until there is what the text says.
    Waiting(&'a str),
}

/// Who starts a node.
pub struct Starter<'a> {
    /// Hears of what takes its time.
    pub tell: &'a mut dyn FnMut(Opening<'_>),
    /// Whether it wants to stop.
    pub stop: &'a dyn Fn() -> bool,
}

impl Starter<'_> {
    /// Tries until there is room: a full disk is no reason to leave a cluster that waits for this
    /// node's votes.
    fn for_room<T>(
        &mut self,
        mut attempt: impl FnMut(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut told = false;
        loop {
            match attempt(self) {
                Err(error) if error.full => {
                    if !told {
                        let why = format!("waiting for room on the disk: {}", error.message);
                        (self.tell)(Opening::Waiting(&why));
                        told = true;
                    }
                }
                ended => return ended,
            }
            if (self.stop)() {
                return Err(Error::new(
                    STOPPED,
                    "stopped while it waited for room on the disk",
                ));
            }
            thread::sleep(ROOM_WAIT);
        }
    }
}

/// Opens the log, rebuilds what the node knows, and joins it with a service and a front.
///
/// A new process start is recorded first ([volatile-1]); a node that may have forgotten votes comes
/// back in a new incarnation, any other one as who it was ([volatile-3]).
pub fn open<S: StateMachine, F: Front>(
    settings: &Settings,
    mut identity: Identity,
    addresses: Addresses,
    mut service: S,
    front: F,
    mut starter: Starter<'_>,
) -> Result<(NodeHost<FileDisk, S, F>, NetSettings), Error> {
    let starter = &mut starter;
    let last = starter.for_room(|_| Ok(identity.begin_boot()?))?;
    take_incarnation(&mut identity, last, starter)?;
    let stored_to = match identity.founding().class {
        Class::Durable => position(&mut service).map_or(Slot(0), |(stored_to, _)| stored_to),
        Class::Volatile => Slot(0),
    };
    let (log, recovery) = open_log(&mut identity, settings, last, stored_to, starter)?;
    tell_recovered(&recovery);
    let options = replica_options(settings, &identity, &addresses)?;
    let replica = Replica::open(options, log, recovery, service, Time(0)).map_err(|error| {
        Error::new("cannot_recover", error).hint("run `quorate log verify` on the folder")
    })?;
    let net = net_settings(settings, &identity, addresses);
    let journal = Journal::new(identity.member().node);
    Ok((
        NodeHost::new(replica, front, identity, Box::new(journal)),
        net,
    ))
}

/// [volatile-1] After an unclean stop a node of a volatile group has forgotten votes.
fn take_incarnation(
    identity: &mut Identity,
    last: LastStop,
    starter: &mut Starter<'_>,
) -> Result<(), Error> {
    if last.forgets(identity.founding().class) {
        let incarnation = starter.for_room(|_| Ok(identity.new_incarnation()?))?;
        tracing::warn!(
            incarnation = incarnation.0,
            "the last stop was unclean, so votes may be forgotten: this node learns without a vote"
        );
    }
    Ok(())
}

/// [disk-8], [volatile-1] A log that lost votes makes a new incarnation, with which it is opened again.
fn open_log(
    identity: &mut Identity,
    settings: &Settings,
    last: LastStop,
    stored_to: Slot,
    starter: &mut Starter<'_>,
) -> Result<(Log<FileDisk>, Recovery), Error> {
    let mut options = log_options(identity, settings);
    options.used = last != LastStop::Never;
    options.stored_to = stored_to;
    let opened = starter.for_room(|starter| open_log_once(identity, settings, &options, starter));
    let (log, recovery) = opened?;
    let Some(damage) = recovery.damage.as_ref().filter(|damage| damage.forgotten) else {
        return Ok((log, recovery));
    };
    for place in &damage.places {
        tracing::error!(%place, "the log is damaged, and votes may be among what it has lost");
    }
    drop(log);
    options.incarnation = starter.for_room(|_| Ok(identity.new_incarnation()?))?;
    options.owns_up = true;
    tracing::error!(
        incarnation = options.incarnation.0,
        folder = %identity.folder().join(Family::Log.folder()).display(),
        "the log lost votes: this node learns without a vote from now on; is the disk of its log mounted?"
    );
    starter.for_room(|starter| open_log_once(identity, settings, &options, starter))
}

/// What the log gave back, and what it has lost.
fn tell_recovered(recovery: &Recovery) {
    let Recovery {
        hard,
        records,
        torn_tail_bytes,
        damage,
        ..
    } = recovery;
    tracing::info!(
        records,
        decided = hard.decided_to.0,
        voted = hard.voted_to.0,
        torn_tail_bytes,
        "the log is read: every slot below `decided` is decided; a torn tail was never released"
    );
    for place in damage.iter().flat_map(|damage| &damage.places) {
        tracing::warn!(%place, "the log is damaged: what it has lost is fetched from peers");
    }
}

fn log_options(identity: &Identity, settings: &Settings) -> LogOptions {
    let Founding {
        cluster,
        node,
        class,
        ..
    } = *identity.founding();
    let mut options = LogOptions::new(cluster, node, identity.incarnation());
    if class == Class::Volatile {
        options.linger_bytes = LINGER_BYTES;
    }
    options.segment_bytes = settings.log_segment_bytes;
    let segment = usize::try_from(options.segment_bytes).unwrap_or(usize::MAX);
    options.batch_bytes_max = options.batch_bytes_max.min(segment);
    let ready = settings.log_ready_bytes.div_ceil(options.segment_bytes);
    options.spare_segments = usize::try_from(ready).unwrap_or(usize::MAX).max(1);
    options
}

fn open_log_once(
    identity: &Identity,
    settings: &Settings,
    options: &LogOptions,
    starter: &mut Starter<'_>,
) -> Result<(Log<FileDisk>, Recovery), Error> {
    let disk_flush = settings.disk_flush;
    let tell = &mut *starter.tell;
    let (disk, reason) =
        quorate_disk::open(identity.folder(), quorate_disk::Want::Auto).map_err(LogError::Disk)?;
    tell(Opening::Disk(&reason));
    let disk = disk.with_flush(disk_flush).map_err(LogError::Disk)?;
    if !disk_flush.is_zero() {
        tell(Opening::Disk(&format!("disk: {disk}")));
    }
    let tell = &mut |reading| tell(Opening::ReadingLog(reading));
    Ok(Log::open_telling(disk, *options, tell)?)
}

fn replica_options(
    settings: &Settings,
    identity: &Identity,
    addresses: &Addresses,
) -> Result<ReplicaOptions, Error> {
    let founding = identity.founding();
    let members = founding.members.keys().map(|node| Member::first(node.0));
    let configuration = Configuration::simple(members, founding.class).map_err(|invalid| {
        let why = format_args!("the founding members make no configuration: {invalid:?}");
        Error::new("damaged_identity", why)
            .hint("keep the folder as it is, and let the others go on without this node")
    })?;
    let mut options = ReplicaOptions::new(
        founding.cluster,
        identity.member(),
        identity.boot(),
        configuration,
    );
    options.timeouts = Timeouts {
        heartbeat_ms: settings.heartbeat_ms,
        election_min_ms: settings.election_ms.0,
        election_max_ms: settings.election_ms.1,
    };
    options.seed = seed(founding, identity.boot());
    options.command_bytes_max = settings.command_bytes_max;
    options.client_timeout_ms = settings.client_timeout_ms;
    options.tuning = Some(settings.tuning);
    options.limits.reply_bytes = settings.client_memory_bytes / 4;
    let of = |(node, peer): (&NodeId, &String)| {
        let elsewhere = Addresses {
            peer: peer.clone(),
            ..Addresses::default()
        };
        (
            *node,
            if *node == founding.node {
                addresses.clone()
            } else {
                elsewhere
            },
        )
    };
    options.addresses = founding.members.iter().map(of).collect();
    Ok(options)
}

/// Different on every node and start; no secret.
const fn seed(founding: &Founding, boot: u32) -> u64 {
    founding.join_nonce ^ ((boot as u64) << 32) ^ founding.node.0 as u64
}

fn net_settings(settings: &Settings, identity: &Identity, addresses: Addresses) -> NetSettings {
    let founding = identity.founding();
    let mut limits = Limits {
        clients_max: settings.descriptors.clients,
        strangers_max: settings.descriptors.strangers,
        ..Limits::default()
    };
    limits.client_backlog_bytes_max = limits
        .client_backlog_bytes_max
        .max(settings.client_input_bytes_max);
    limits.clients_bytes_max = settings.client_memory_bytes;
    limits.stop_ms = limits
        .stop_ms
        .max(settings.client_timeout_ms.saturating_mul(2));
    let peer = |(node, address): (&NodeId, &String)| PeerAddress {
        node: *node,
        address: address.clone(),
    };
    NetSettings {
        identity: NetIdentity {
            cluster: founding.cluster,
            member: identity.member(),
            boot: identity.boot(),
            addresses,
        },
        peers: founding.members.iter().map(peer).collect(),
        limits,
        seed: seed(founding, identity.boot()),
    }
}
