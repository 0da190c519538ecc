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
    time::{SystemTime, UNIX_EPOCH},
};

use quorate::{Folder, StateMachine, class_name};
use quorate_bench::log_service::{FrameFront, NoState};
use quorate_kv::{
    front::{RespFront, Settings as FrontSettings},
    service::Service,
    store::{Store as KvStore, lsm::LsmStore, memory::MemoryStore},
};
use quorate_log::identity::Identity;
use quorate_net::{Handle, Listeners, Reactor};
use quorate_replica::{front::Front, status::Addresses};

use crate::{
    admin::{self, Admin},
    config::{StartArgs, StartConfig, Store},
    memory,
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
    let stop = Stop::on_signal()?;
    let known = config.settings();
    let folder = Folder::open(&known)?;
    let node = folder.node();
    let listed = folder.listed_address(&known);
    let peer = config.peer.clone().or_else(|| listed.clone());
    let peer = peer.as_deref().unwrap_or(DEFAULT_PEER);
    let listeners = Listeners::bind(peer, &config.client, config.client_socket.as_deref())
        .map_err(quorate::Error::from)?;
    let admin = Admin::start(&config.admin)?;
    let addresses = advertised(&listeners, &admin, listed.as_deref());
    let ready = format!(
        "ready node={node} client={} peer={} admin={}",
        listeners
            .client_address()
            .map_or_else(String::new, |address| address.to_string()),
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
    let asked = || stop.is_asked();
    let Some(identity) = folder.settle(&known, &addresses.peer, &asked, &mut waiting)? else {
        return Ok(Exit::Done);
    };
    admin.starting("reading the log");
    let store = store_of(&identity)?;
    let node = Starting {
        known,
        identity,
        addresses,
        store,
        listeners,
        admin,
        stop,
        announce,
    };
    if store == Store::None {
        let class = class_name(node.identity.founding().class);
        let front = FrameFront::new(env!("CARGO_PKG_VERSION"), class);
        return node.run(NoState, front);
    }
    let service = Service::new(open_store(node.identity.folder(), store)?);
    let front = RespFront::new(FrontSettings {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        store: store.name().to_owned(),
        client_bytes_max: node.known.client_memory_bytes,
        tcp_port: node
            .listeners
            .client_address()
            .map_or(0, |address| address.port()),
        started_ms: unix_ms(),
        memory: memory::read,
    });
    node.run(service, front)
}

fn unix_ms() -> u64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// A node that knows who it is, and does not run yet.
struct Starting {
    known: quorate::Settings,
    identity: Identity,
    addresses: Addresses,
    store: Store,
    listeners: Listeners,
    admin: Admin,
    stop: Stop,
    announce: Announce,
}

impl Starting {
    /// Until it is told to stop.
    fn run<S: StateMachine, F: Front>(mut self, service: S, front: F) -> Result<Exit, Problem> {
        let driver = &mut |why: &str| progress(why);
        let (host, net) = quorate::open(
            &self.known,
            self.identity,
            self.addresses,
            service,
            front,
            driver,
        )?;
        tell_start(host.identity(), self.store);
        end_on_panic();
        let (reactor, handle) = Reactor::new(net, self.listeners, host)
            .map_err(|error| Problem::io("start the reactor", &error))?;
        self.admin.running(handle.clone(), self.store);
        self.stop.tell(handle);
        self.announce.now();
        let host = reactor
            .run()
            .map_err(|error| Problem::io("the reactor failed", &error))?;
        host.finish().map_err(quorate::Error::from)?;
        tracing::info!("stopped");
        Ok(Exit::Done)
    }
}

fn store_of(identity: &Identity) -> Result<Store, Problem> {
    let name = &identity.founding().store;
    Store::named(name).ok_or_else(|| {
        let what = format_args!("the folder has an unknown store, {name}");
        Problem::new(Exit::Failed, "unknown_store", what)
            .hint("start the version of the program that made it")
    })
}

fn tell_start(identity: &Identity, store: Store) {
    tracing::info!(
        node = %identity.member(),
        cluster = %format_args!("{:032x}", identity.founding().cluster),
        durability = class_name(identity.founding().class),
        store = store.name(),
        boot = identity.boot(),
        "node started"
    );
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
        client: listeners.client_address().map(place).unwrap_or_default(),
        admin: place(admin.address()),
    }
}

fn open_store(folder: &Path, store: Store) -> Result<Box<dyn KvStore>, Problem> {
    match store {
        // The service without state keeps nothing, wherever.
        Store::Memory | Store::None => Ok(Box::new(MemoryStore::new())),
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
