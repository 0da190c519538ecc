//! From a folder with an identity to a node that a reactor can run.

use quorate_core::{
    configuration::Configuration,
    node_id::{Member, NodeId},
    record::Class,
    time::Time,
};
use quorate_log::{
    LINGER_BYTES, Log, LogError, LogOptions, Recovery,
    disk::{self, FileDisk},
    identity::{Founding, Identity, LastStop},
};
use quorate_net::{Identity as NetIdentity, Limits, PeerAddress, Settings as NetSettings};
use quorate_replica::{
    Replica, ReplicaOptions, Timeouts, front::Front, service::StateMachine, status::Addresses,
};

use crate::{error::Error, host::NodeHost, settings::Settings};

/// Opens the log, rebuilds what the node knows, and joins it with a service and a front.
///
/// A new process start is recorded first ([volatile-1]); a node that may have forgotten votes comes
/// back in a new incarnation. `driver` hears which disk driver was chosen, and why.
pub fn open<S: StateMachine, F: Front>(
    settings: &Settings,
    mut identity: Identity,
    addresses: Addresses,
    service: S,
    front: F,
    driver: &mut dyn FnMut(&str),
) -> Result<(NodeHost<S, F>, NetSettings), Error> {
    let last = identity.begin_boot()?;
    take_incarnation(&mut identity, last)?;
    let (log, recovery) = open_log(&mut identity, settings, driver)?;
    let options = replica_options(settings, &identity, &addresses)?;
    let replica = Replica::open(options, log, recovery, service, Time(0)).map_err(|error| {
        Error::new("cannot_recover", error).hint("run `quorate log verify` on the folder")
    })?;
    let net = net_settings(settings, &identity, addresses);
    Ok((NodeHost::new(replica, front, identity), net))
}

/// [volatile-1] After an unclean stop a node of a volatile group has forgotten votes.
fn take_incarnation(identity: &mut Identity, last: LastStop) -> Result<(), Error> {
    if last.forgets(identity.founding().class) {
        let incarnation = identity.new_incarnation()?;
        tracing::warn!(
            incarnation = incarnation.0,
            "the last stop was unclean, so votes may be forgotten: this node learns without a vote"
        );
    }
    Ok(())
}

/// [disk-8] A log that lost votes makes a new incarnation, with which it is opened again.
fn open_log(
    identity: &mut Identity,
    settings: &Settings,
    driver: &mut dyn FnMut(&str),
) -> Result<(Log<FileDisk>, Recovery), Error> {
    let (log, recovery) = open_log_once(identity, settings, driver)?;
    let Some(damage) = recovery.damage.as_ref().filter(|damage| damage.forgotten) else {
        return Ok((log, recovery));
    };
    for place in &damage.places {
        tracing::error!(%place, "the log is damaged");
    }
    drop(log);
    let incarnation = identity.new_incarnation()?;
    tracing::error!(
        incarnation = incarnation.0,
        "the log lost votes: this node learns without a vote from now on"
    );
    open_log_once(identity, settings, driver)
}

fn open_log_once(
    identity: &Identity,
    settings: &Settings,
    driver: &mut dyn FnMut(&str),
) -> Result<(Log<FileDisk>, Recovery), Error> {
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
    let ready = settings.log_ready_bytes.div_ceil(options.segment_bytes);
    options.spare_segments = usize::try_from(ready).unwrap_or(usize::MAX).max(1);
    let disk_flush = settings.disk_flush;
    let (disk, reason) = disk::open(identity.folder(), disk::Want::Auto).map_err(LogError::Disk)?;
    driver(&reason);
    let disk = disk.with_flush(disk_flush).map_err(LogError::Disk)?;
    if !disk_flush.is_zero() {
        driver(&format!("disk: {disk}"));
    }
    Ok(Log::open(disk, options)?)
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
        Error::new("damaged_identity", why).hint("restore the identity file from a copy")
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
    let mut limits = Limits::default();
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
