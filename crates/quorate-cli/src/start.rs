//! `quorate start`: runs a node until it is told to stop.

use std::{
    env,
    net::SocketAddr,
    path::Path,
    process,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use quorate_core::{
    configuration::Configuration,
    node_id::{Member, NodeId},
    time::Time,
};
use quorate_kv::{
    front::{RespFront, Settings as FrontSettings, input_bytes_max},
    service::Service,
    store::{Store as KvStore, lsm::LsmStore, memory::MemoryStore},
};
use quorate_log::{
    Log, LogError, LogOptions, Recovery,
    disk::{self, FileDisk},
    identity::{Founding, Identity, LastStop},
};
use quorate_net::{
    BindError, Handle, Identity as NetIdentity, Limits as NetLimits, Listeners, PeerAddress,
    Reactor, Settings,
};
use quorate_replica::{Replica, ReplicaOptions, Timeouts, status::Addresses};

use crate::{
    admin::{self, Admin},
    config::{StartArgs, StartConfig, Store, class_name},
    folder::{Folder, identity_problem},
    host::NodeHost,
    output::{Exit, Problem, print, progress},
    signals,
};

const DEFAULT_PEER: &str = "127.0.0.1:7451";
/// Set by whoever starts a node as a part of itself: the node dies with that process.
pub(crate) const PARENT_VARIABLE: &str = "QUORATE_DIES_WITH_PARENT";

/// Runs the command.
pub(crate) fn run(args: &StartArgs) -> Result<Exit, Problem> {
    let config = StartConfig::resolve(args, &|name| env::var(name).ok())?;
    die_with_parent()?;
    end_on_panic();
    let stop = Stop::on_signal()?;
    let folder = Folder::open(&config)?;
    let node = folder.node();
    let listed = folder.listed_address(&config);
    let peer = config.peer.clone().or_else(|| listed.clone());
    let peer = peer.as_deref().unwrap_or(DEFAULT_PEER);
    let listeners = Listeners::bind(peer, &config.client, config.client_socket.as_deref())
        .map_err(bind_problem)?;
    let admin = Admin::start(&config.admin)?;
    let addresses = advertised(&listeners, &admin, listed.as_deref());
    let ready = format!(
        "ready node={node} client={} peer={} admin={}",
        listeners.client_address(),
        listeners.peer_address(),
        admin.address()
    );
    let mut announce = Announce(Some(ready));
    let mut waiting = |why: &str| {
        // It listens; whoever starts nodes one after the other may start the founder now.
        announce.now();
        admin.starting(why);
        progress(why);
    };
    let Some(mut identity) =
        folder.settle(&config, &addresses.peer, &|| stop.is_asked(), &mut waiting)?
    else {
        return Ok(Exit::Done);
    };
    admin.starting("reading the log");
    let last = identity
        .begin_boot()
        .map_err(|error| identity_problem(&error))?;
    take_incarnation(&mut identity, last)?;
    let store = Store::named(&identity.founding().store).ok_or_else(|| {
        Problem::new(
            Exit::Failed,
            "unknown_store",
            format_args!(
                "the folder has an unknown store, {}",
                identity.founding().store
            ),
        )
        .hint("start the version of the program that made it")
    })?;
    let replica = open_replica(&config, &mut identity, store, &addresses)?;
    let settings = net_settings(&config, &identity, addresses);
    let front = RespFront::new(FrontSettings {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        store: store.name().to_owned(),
    });
    tracing::info!(
        node = %identity.member(),
        cluster = %format_args!("{:032x}", identity.founding().cluster),
        durability = class_name(identity.founding().class),
        store = store.name(),
        boot = identity.boot(),
        "node started"
    );
    let host = NodeHost::new(replica, front, identity);
    let (reactor, handle) = Reactor::new(settings, listeners, host)
        .map_err(|error| Problem::io("start the reactor", &error))?;
    admin.running(handle.clone(), store);
    stop.tell(handle);
    announce.now();
    let host = reactor
        .run()
        .map_err(|error| Problem::io("the reactor failed", &error))?;
    host.finish().map_err(|error| identity_problem(&error))?;
    tracing::info!("stopped");
    Ok(Exit::Done)
}

/// The line that says where the node listens; printed once.
struct Announce(Option<String>);

impl Announce {
    fn now(&mut self) {
        if let Some(line) = self.0.take() {
            print(&line);
        }
    }
}

/// Whether the node has been asked to stop, before and after there is a reactor.
#[derive(Clone, Default)]
struct Stop {
    asked: Arc<AtomicBool>,
    reactor: Arc<Mutex<Option<Handle>>>,
}

impl Stop {
    fn on_signal() -> Result<Self, Problem> {
        let stop = Self::default();
        let asked = stop.clone();
        signals::on_first(move || {
            asked.asked.store(true, Ordering::SeqCst);
            asked.pass_on();
        })?;
        Ok(stop)
    }

    fn is_asked(&self) -> bool {
        self.asked.load(Ordering::SeqCst)
    }

    fn tell(&self, handle: Handle) {
        *self.reactor.lock().unwrap_or_else(PoisonError::into_inner) = Some(handle);
        self.pass_on();
    }

    fn pass_on(&self) {
        let reactor = self.reactor.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(handle) = &*reactor
            && self.is_asked()
        {
            handle.stop();
        }
    }
}

/// A replica that found itself wrong must not go on; other threads would wait for it for ever.
fn end_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        report(info);
        if thread::current().name() != Some(admin::THREAD) {
            process::exit(Exit::Failed as i32);
        }
    }));
}

/// For nodes that are a part of another process, such as `quorate demo`.
fn die_with_parent() -> Result<(), Problem> {
    let Ok(parent) = env::var(PARENT_VARIABLE) else {
        return Ok(());
    };
    let kill = Some(rustix::process::Signal::KILL);
    rustix::process::set_parent_process_death_signal(kill)
        .map_err(|error| Problem::io("tie this node to its parent", &error.into()))?;
    // It may have died before the call.
    let alive =
        rustix::process::getppid().is_some_and(|id| id.as_raw_nonzero().to_string() == parent);
    if alive {
        Ok(())
    } else {
        Err(Problem::new(
            Exit::Failed,
            "no_parent",
            "the process that started this node is gone",
        ))
    }
}

fn bind_problem(error: BindError) -> Problem {
    let code = if error.detail.contains("in use") {
        "port_in_use"
    } else {
        "cannot_listen"
    };
    Problem::new(Exit::Failed, code, &error).hint(error.hint)
}

/// Where others find this node. "All addresses" is no place to go to: then the host under which the
/// members know it is told.
fn advertised(listeners: &Listeners, admin: &Admin, listed: Option<&str>) -> Addresses {
    let host = listed
        .and_then(|address| address.rsplit_once(':'))
        .map(|(host, _)| host);
    let place = |bound: SocketAddr| match host {
        Some(host) if bound.ip().is_unspecified() => format!("{host}:{}", bound.port()),
        _ => bound.to_string(),
    };
    Addresses {
        peer: listed.map_or_else(|| place(listeners.peer_address()), str::to_owned),
        client: place(listeners.client_address()),
        admin: place(admin.address()),
    }
}

/// [volatile-1] After an unclean stop a node of a volatile group has forgotten votes.
fn take_incarnation(identity: &mut Identity, last: LastStop) -> Result<(), Problem> {
    if last.forgets(identity.founding().class) {
        let incarnation = identity
            .new_incarnation()
            .map_err(|error| identity_problem(&error))?;
        tracing::warn!(
            incarnation = incarnation.0,
            "the last stop was unclean, so votes may be forgotten: this node learns without a vote"
        );
    }
    Ok(())
}

fn open_replica(
    config: &StartConfig,
    identity: &mut Identity,
    store: Store,
    addresses: &Addresses,
) -> Result<Replica<FileDisk, Service>, Problem> {
    let (log, recovery) = open_log(identity)?;
    let founding = identity.founding();
    let configuration = founding_configuration(founding)?;
    let mut options = ReplicaOptions::new(
        founding.cluster,
        identity.member(),
        identity.boot(),
        configuration,
    );
    options.timeouts = Timeouts {
        heartbeat_ms: config.heartbeat_ms,
        election_min_ms: config.election_ms.0,
        election_max_ms: config.election_ms.1,
    };
    options.seed = seed(founding, identity.boot());
    options.command_bytes_max = config.command_max;
    options.client_timeout_ms = config.client_timeout_ms;
    options.addresses = founding
        .members
        .iter()
        .map(|(node, peer)| {
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
        })
        .collect();
    let service = Service::new(open_store(identity.folder(), store)?);
    Replica::open(options, log, recovery, service, Time(0)).map_err(|error| {
        Problem::new(Exit::Failed, "cannot_recover", error)
            .hint("run `quorate log verify` on the folder")
    })
}

/// Different on every node and start; no secret.
const fn seed(founding: &Founding, boot: u32) -> u64 {
    founding.join_nonce ^ ((boot as u64) << 32) ^ founding.node.0 as u64
}

fn founding_configuration(founding: &Founding) -> Result<Configuration, Problem> {
    let members = founding.members.keys().map(|node| Member::first(node.0));
    Configuration::simple(members, founding.class).map_err(|invalid| {
        Problem::new(
            Exit::Failed,
            "damaged_identity",
            format_args!("the founding members make no configuration: {invalid:?}"),
        )
        .hint("restore the identity file from a copy")
    })
}

/// [disk-8] A log that lost votes makes a new incarnation, with which it is opened again.
fn open_log(identity: &mut Identity) -> Result<(Log<FileDisk>, Recovery), Problem> {
    let (log, recovery) = open_log_once(identity)?;
    let Some(damage) = recovery.damage.as_ref().filter(|damage| damage.forgotten) else {
        return Ok((log, recovery));
    };
    for place in &damage.places {
        tracing::error!(%place, "the log is damaged");
    }
    drop(log);
    let incarnation = identity
        .new_incarnation()
        .map_err(|error| identity_problem(&error))?;
    tracing::error!(
        incarnation = incarnation.0,
        "the log lost votes: this node learns without a vote from now on"
    );
    open_log_once(identity)
}

fn open_log_once(identity: &Identity) -> Result<(Log<FileDisk>, Recovery), Problem> {
    let Founding { cluster, node, .. } = *identity.founding();
    let options = LogOptions::new(cluster, node, identity.incarnation());
    let (disk, reason) = disk::open(identity.folder(), disk::Want::Auto)
        .map_err(|error| log_problem(&LogError::Disk(error)))?;
    progress(&reason);
    Log::open(disk, options).map_err(|error| log_problem(&error))
}

pub(crate) fn log_problem(error: &LogError) -> Problem {
    let code = match error {
        LogError::Foreign { .. } => "foreign_folder",
        LogError::Newer { .. } => "newer_format",
        LogError::Damaged { .. } => "damaged_log",
        _ => "log",
    };
    Problem::new(Exit::Failed, code, error).hint(error.hint())
}

fn open_store(folder: &Path, store: Store) -> Result<Box<dyn KvStore>, Problem> {
    match store {
        Store::Memory => Ok(Box::new(MemoryStore::new())),
        Store::Lsm => {
            let (opened, set_aside) = LsmStore::open(&folder.join("kv")).map_err(|error| {
                Problem::new(Exit::Failed, "store", error)
                    .hint("move the folder kv aside: it is rebuilt from the log")
            })?;
            if let Some(why) = set_aside {
                tracing::warn!(%why, "the store was damaged");
            }
            Ok(Box::new(opened))
        }
    }
}

fn net_settings(config: &StartConfig, identity: &Identity, addresses: Addresses) -> Settings {
    let founding = identity.founding();
    let mut limits = NetLimits::default();
    limits.client_backlog_bytes_max = limits
        .client_backlog_bytes_max
        .max(input_bytes_max(config.command_max));
    limits.clients_backlog_bytes_max = limits
        .clients_backlog_bytes_max
        .max(2 * limits.client_backlog_bytes_max);
    limits.stop_ms = limits
        .stop_ms
        .max(config.client_timeout_ms.saturating_mul(2));
    let peer = |(node, address): (&NodeId, &String)| PeerAddress {
        node: *node,
        address: address.clone(),
    };
    Settings {
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
