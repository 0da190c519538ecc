//! `quorate start`: runs a node until it is stopped.

use std::{
    env, io,
    net::{SocketAddr, ToSocketAddrs as _},
    path::Path,
    process,
    sync::Arc,
    thread,
    time::{SystemTime, UNIX_EPOCH},
};

use quorate::{
    Descriptors, Folder, NodeHost, NodeId, Opening, Passwords, Protection, Settling, Starter,
    StateMachine, Trust, raise_descriptor_limit,
};
use quorate_admin::{
    client,
    server::{self, Admin, StartError},
};
use quorate_kv::{
    front::{RespFront, Settings as FrontSettings},
    service::Service,
    store::{
        Store as KvStore,
        lsm::{self, Failure, Limits as StoreLimits, LsmStore},
        memory::MemoryStore,
    },
};
use quorate_net::{BindReason, Handle, Listeners, Reactor, Wake, plane::KeyFile};
use quorate_node::log_service::{FrameFront, NoState};
use quorate_node::streams::{Doors, StreamFront};
use quorate_node::{Home as _, Identity, LockedFolder};
use quorate_replica::{front::Front, status::Addresses};
use quorate_tls::ClientFiles;

use crate::{
    certificates,
    config::{Service as Speaks, StartArgs, StartConfig, Store, Trusting},
    etcd,
    joining::{self, IdRequest, OwnPeerAddress},
    logging,
    manager::Manager,
    memory,
    output::{Exit, Problem, print, progress},
    plane_keys, signals,
    stop::Stop,
};

const DEFAULT_STREAM: &str = "127.0.0.1:7453";
/// Environment variable with the process id of a parent. The node ends together with that process.
pub(crate) const PARENT_VARIABLE: &str = "QUORATE_DIES_WITH_PARENT";

/// Runs `quorate start`.
pub(crate) fn run(args: &StartArgs) -> Result<Exit, Problem> {
    let config = StartConfig::resolve(args, &|name| env::var(name).ok())?;
    logging::detach()?;
    signals::survive()?;
    die_with_parent()?;
    let manager = Manager::of_environment();
    let stop = stop_on_signal(manager.clone())?;
    let protection = config.trusting.load()?;
    let mut known = quorate::Settings { protection: protection.clone(), ..config.settings() };
    prove_as_node(&config, &protection)?;
    let folder = Folder::open(&known)?;
    known.descriptors = Descriptors::share(raise_descriptor_limit(), folder.nodes(&known))?;
    let listed = folder.listed_address(&known);
    let peer = config.peer.clone().or_else(|| listed.clone());
    let peer = peer.as_deref().unwrap_or(&config.peer_default);
    let stream = config.stream.as_deref();
    let mut places =
        vec![("client", config.client.as_str()), ("peer", peer), ("admin", &config.admin)];
    let raw = config.stream_raw.as_deref();
    places.extend(stream.map(|address| ("stream", address)));
    places.extend(raw.map(|address| ("stream-raw", address)));
    check_places(&places)?;
    let mut listeners =
        Listeners::bind(peer, &config.client, config.client_socket.as_deref(), protection.clone())
            .map_err(quorate::Error::from)?;
    listeners.bind_datagrams(&config.plane).map_err(|refused| {
        let hint = refused.hint();
        Problem::new(Exit::Usage, "plane", refused).hint(hint)
    })?;
    listeners.bind_device(&config.device, &config.plane).map_err(|refused| {
        let hint = refused.hint();
        Problem::new(Exit::Usage, "device", refused).hint(hint)
    })?;
    let admin = Admin::start(&config.admin, folder.node(), protection).map_err(admin_failed)?;
    admin.set_settings(config.reported_settings.clone());
    bind_streams(&mut listeners, stream)?;
    if let Some(raw) = raw {
        let bound = listeners.bind_raw_streams(raw);
        bound.map_err(quorate::Error::from)?;
    }
    let answering = listeners
        .answer_while_starting(folder.node(), folder.cluster())
        .map_err(|error| Problem::io("start a thread", &error))?;
    let addresses = advertised(&listeners, &admin, listed.as_deref());
    let mut announce = Announce::new(folder.node(), &listeners, &admin, manager.clone());
    let mut waiting = |why: &str| {
        // The node is listening, so a script that starts several nodes can go on to the next one.
        announce.now();
        admin.starting(why);
        manager.does(why);
        progress(why);
    };
    // Each poll also tells the service manager that the start makes progress.
    let asked = || {
        manager.report_progress();
        stop.is_asked()
    };
    let mut join = |nonce| {
        answering.waits_with(nonce);
        let asking = IdRequest {
            admins: &config.join,
            peer: &OwnPeerAddress::of(config.peer.as_deref(), listeners.peer_address()),
            role: config.role.unwrap_or_default(),
            node: config.node,
            stop: &asked,
        };
        asking.ask(nonce, &mut |why| {
            admin.starting(why);
            manager.does(why);
            progress(why);
        })
    };
    let settling =
        Settling { peer: &addresses.peer, stop: &asked, waiting: &mut waiting, join: &mut join };
    let Some(identity) = folder.settle(&known, settling)? else {
        return Ok(Exit::Done);
    };
    let node = identity.founding().node;
    check_name(&known.protection, node)?;
    answering.is(node);
    admin.keep_audit_in(identity.home().path());
    admin.is(node);
    announce.is(node);
    answering.belongs_to(identity.founding().cluster);
    // A node that has just joined can be reached at the address that it reported.
    let listed = listed.or_else(|| {
        let joins = identity.joins().is_some();
        let own = identity.book().peers.get(&node).filter(|_| joins);
        own.cloned()
    });
    let addresses = advertised(&listeners, &admin, listed.as_deref());
    let store = store_of(&identity)?;
    check_service(config.service, store)?;
    let node = Starting {
        known,
        identity,
        addresses,
        store,
        listeners,
        answering,
        admin,
        stop,
        announce,
        manager,
        join: config.join,
        keys: config.plane.keys,
    };
    if store == Store::None {
        let class = node.identity.founding().class.name();
        let front = FrameFront::new(env!("CARGO_PKG_VERSION"), class);
        return node.run(NoState, front, None, |_| Ok(()));
    }
    if store.service() == Speaks::Etcd {
        return etcd::run(
            node,
            store,
            config.client_socket.is_some(),
            etcd::Wanted { quota_bytes: config.etcd_quota, auth_token: &config.etcd_auth_token },
        );
    }
    let files = node.opens_store();
    let service = Service::new(open_store(node.identity.home().path(), store, files)?);
    let events = service.events();
    let front = RespFront::new(FrontSettings {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        store: store.name().to_owned(),
        client_bytes_max: node.known.client_memory_bytes,
        tcp_port: node.listeners.client_address().map_or(0, |address| address.port()),
        started_ms: unix_ms(),
        memory: memory::read,
    });
    let passwords = passwords()?;
    let wake = Arc::clone(passwords.wake());
    let front = front.with_checker(Box::new(passwords)).with_events(events);
    node.run(service, front, Some(wake), |_| Ok(()))
}

/// Checks that the service given by the operator is the one recorded in the data folder.
fn check_service(wanted: Option<Speaks>, store: Store) -> Result<(), Problem> {
    match wanted {
        Some(wanted) if wanted != store.service() => {
            let what = format_args!(
                "this node's cluster serves {}, not {}",
                store.service().name(),
                wanted.name()
            );
            Err(Problem::new(Exit::Usage, "mismatch", what)
                .hint("leave --service out, or start a new cluster in empty folders"))
        }
        _ => Ok(()),
    }
}

/// Starts a password checker. Each frontend has its own, so that password guessing on one frontend
/// does not delay logins on another.
fn passwords() -> Result<Passwords, Problem> {
    Passwords::start().map_err(|error| Problem::io("start a thread for passwords", &error))
}

/// Binds the stream address. If the operator gave no address and another process uses the default
/// one, the node serves no streams. Several nodes on one machine then need no extra flag.
fn bind_streams(listeners: &mut Listeners, asked: Option<&str>) -> Result<(), Problem> {
    match listeners.bind_streams(asked.unwrap_or(DEFAULT_STREAM)) {
        Err(error) if asked.is_none() && error.reason.is_in_use() => {
            progress(&format!(
                "no byte streams at this node: {DEFAULT_STREAM} is in use by another process; \
                 --stream ADDR chooses another address"
            ));
            Ok(())
        }
        bound => Ok(bound.map_err(quorate::Error::from)?),
    }
}

/// Makes this process use the node's certificate for requests to other nodes.
fn prove_as_node(config: &StartConfig, protection: &Protection) -> Result<(), Problem> {
    let Trusting::Tls(files) = &config.trusting else {
        return Ok(());
    };
    let own = ClientFiles {
        cert: files.cert.clone(),
        key: files.key.clone(),
        ca: files.client_ca.clone(),
    };
    client::use_certificate(&own)?;
    match config.node {
        Some(node) => check_name(protection, node),
        None => Ok(()),
    }
}

/// Checks that the certificate is issued to this node. Other nodes identify a peer by its
/// certificate, so they would refuse this node.
fn check_name(protection: &Protection, node: NodeId) -> Result<(), Problem> {
    let Some(own) = protection.trust().map(Trust::own) else {
        return Ok(());
    };
    if own.node == node.0 {
        return Ok(());
    }
    let what = format_args!("this is node {node}, but its certificate is for node {}", own.node);
    Err(Problem::new(Exit::Usage, "tls", what)
        .hint(format!("use the folder created by 'quorate cert node {node}'")))
}

fn admin_failed(error: StartError) -> Problem {
    let (code, hint) = match &error {
        StartError::Listen { source, .. } => {
            let in_use = source.kind() == io::ErrorKind::AddrInUse;
            let code = if in_use { "port_in_use" } else { "cannot_listen" };
            (code, "stop that process, or choose another address")
        }
        StartError::Unprotected { .. } => ("cannot_listen", BindReason::Unprotected.hint()),
        StartError::Thread(_) => ("io", ""),
    };
    Problem::new(Exit::Failed, code, error).hint(hint)
}

fn unix_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// A node whose identity is known but whose reactor does not run yet.
pub(crate) struct Starting {
    pub(crate) known: quorate::Settings,
    pub(crate) identity: Identity<LockedFolder>,
    addresses: Addresses,
    store: Store,
    pub(crate) listeners: Listeners,
    /// Server at the peer address, until the reactor replaces it.
    answering: quorate_net::Starting,
    pub(crate) admin: Admin,
    stop: Stop<EndReactor>,
    announce: Announce,
    manager: Manager,
    /// Admin addresses of the cluster that the node joins.
    join: Vec<String>,
    /// Keys that authenticate datagrams, if a key file is given.
    keys: Option<KeyFile>,
}

impl Starting {
    /// Reports that the store is being opened. Returns the number of files that it may open.
    pub(crate) fn opens_store(&self) -> usize {
        self.admin.starting("opening the store");
        self.manager.does("opening the store");
        self.manager.report_progress();
        self.known.descriptors.store_files
    }

    /// Runs the node until it is stopped. `serve` may start a server outside of the reactor. The
    /// result of `serve` is dropped before the node ends.
    pub(crate) fn run<S: StateMachine, F: Front, Serves>(
        mut self,
        service: S,
        front: F,
        wake: Option<Arc<Wake>>,
        serve: impl FnOnce(Handle) -> Result<Serves, Problem>,
    ) -> Result<Exit, Problem> {
        let (admin, manager) = (&self.admin, &self.manager);
        let announce = &mut self.announce;
        admin.starting("opening the log");
        manager.does("opening the log");
        manager.report_progress();
        let tell = &mut |opening: Opening<'_>| match opening {
            Opening::Disk(why) => progress(why),
            Opening::ReadingLog(reading) => {
                admin.reading(reading);
                manager.report_reading(reading);
            }
            Opening::Waiting(why) => {
                announce.now();
                admin.starting(why);
                manager.does(why);
                progress(why);
            }
        };
        let stop = &|| {
            manager.report_progress();
            self.stop.is_asked()
        };
        let passwords = passwords()?;
        let wakes = wake.into_iter().chain([Arc::clone(passwords.wake())]);
        let streams = StreamFront::default().with_checker(Box::new(passwords));
        let front = Doors::new(front, streams);
        let opened = quorate::open(
            &self.known,
            self.identity,
            self.addresses,
            service,
            front,
            Starter { tell, stop },
        );
        let (host, net) = match opened {
            Err(error) if error.code == quorate::STOPPED => return Ok(Exit::Done),
            opened => opened?,
        };
        tell_start(host.identity(), self.store);
        let (node, joins) = (host.identity().founding().node, host.identity().joins());
        end_on_panic();
        drop(self.answering);
        let host = wakes.fold(host, NodeHost::woken_by);
        let (reactor, handle) = Reactor::new(net, self.listeners, host)
            .map_err(|error| Problem::io("start the reactor", &error))?;
        let serves = serve(handle.clone())?;
        self.admin.running(handle.clone(), self.store.name());
        if let Some(role) = joins {
            joining::follow(handle.clone(), node, role, self.join)
                .map_err(|error| Problem::io("start a thread", &error))?;
        }
        if let Some(keys) = self.keys {
            plane_keys::follow(handle.clone(), keys)
                .map_err(|error| Problem::io("start a thread", &error))?;
        }
        if let Protection::Tls(trust) = self.known.protection {
            certificates::follow(trust).map_err(|error| Problem::io("start a thread", &error))?;
        }
        let followed = self.manager.follow(handle.clone());
        followed.map_err(|error| Problem::io("start a thread", &error))?;
        self.stop.tell(Box::new(move || handle.stop()));
        self.announce.now();
        let host = reactor.run().map_err(|error| Problem::io("the reactor failed", &error))?;
        drop(serves);
        host.finish().map_err(quorate::Error::from)?;
        tracing::info!("stopped");
        Ok(Exit::Done)
    }
}

pub(crate) fn store_of(identity: &Identity<LockedFolder>) -> Result<Store, Problem> {
    let name = &identity.founding().store;
    Store::named(name).ok_or_else(|| {
        let what = format_args!("the folder uses an unknown store, {name}");
        Problem::new(Exit::Failed, "unknown_store", what).hint("start the version that created it")
    })
}

fn tell_start(identity: &Identity<LockedFolder>, store: Store) {
    tracing::info!(
        node = %identity.member(),
        cluster = %format_args!("{:032x}", identity.founding().cluster),
        durability = identity.founding().class.name(),
        store = store.name(),
        boot = identity.boot(),
        "node started"
    );
}

/// Output of the line with the node's addresses. It is printed and sent to the service manager once
/// the node's id is known.
struct Announce {
    node: Option<NodeId>,
    places: Option<String>,
    manager: Manager,
}

impl Announce {
    fn new(node: Option<NodeId>, listeners: &Listeners, admin: &Admin, manager: Manager) -> Self {
        let client = listeners.client_address();
        let places = format!(
            "client={} peer={} admin={}",
            client.map_or_else(String::new, |address| address.to_string()),
            listeners.peer_address(),
            admin.address()
        );
        let stream = listeners.stream_address();
        let stream = stream.map_or_else(String::new, |stream| format!(" stream={stream}"));
        let raw = listeners.raw_stream_address();
        let raw = raw.map_or_else(String::new, |raw| format!(" stream-raw={raw}"));
        let places = format!("{places}{stream}{raw}");
        Self { node, places: Some(places), manager }
    }

    fn is(&mut self, node: NodeId) {
        self.node = Some(node);
    }

    fn now(&mut self) {
        if let Some(node) = self.node
            && let Some(places) = self.places.take()
        {
            let line = format!("ready node={node} {places}");
            let manager = self.manager.clone();
            // A full pipe must not block the node.
            let say = move || {
                print(&line);
                manager.ready();
            };
            if let Err(error) = thread::Builder::new().name("ready".to_owned()).spawn(say) {
                progress(&format!("cannot print that the node is ready: {error}"));
            }
        }
    }
}

/// Function that stops the reactor.
type EndReactor = Box<dyn Fn() + Send>;

/// Makes the first signal stop the node.
fn stop_on_signal(manager: Manager) -> Result<Stop<EndReactor>, Problem> {
    let stop = Stop::new();
    let asked = stop.clone();
    signals::on_first(move || {
        // Notify the manager first, because a node without unfinished work may end at once.
        manager.stopping();
        asked.ask();
    })?;
    Ok(stop)
}

/// Ends the process on a panic. A replica that failed an assertion must not continue, and other
/// threads would wait for it indefinitely. Threads that handle their panics are exempt.
fn end_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        report(info);
        if !server::is_this_thread() && !lsm::gets_over_panics_here() {
            process::exit(Exit::Failed as i32);
        }
    }));
}

/// Makes the node end with its parent process, such as `quorate demo`, if the environment requests
/// that.
fn die_with_parent() -> Result<(), Problem> {
    let Ok(parent) = env::var(PARENT_VARIABLE) else {
        return Ok(());
    };
    let kill = Some(rustix::process::Signal::KILL);
    rustix::process::set_parent_process_death_signal(kill)
        .map_err(|error| Problem::io("tie this node to its parent", &error.into()))?;
    // The parent may have ended before the call.
    let alive =
        rustix::process::getppid().is_some_and(|id| id.as_raw_nonzero().to_string() == parent);
    if alive {
        Ok(())
    } else {
        Err(Problem::new(
            Exit::Failed,
            "no_parent",
            "the process that started this node has exited",
        ))
    }
}

/// Returns the addresses at which other machines reach this node. Replaces an unspecified address
/// by the host that the member list has for this node.
fn advertised(listeners: &Listeners, admin: &Admin, listed: Option<&str>) -> Addresses {
    let host = listed.and_then(|address| address.rsplit_once(':')).map(|(host, _)| host);
    let place = |bound: SocketAddr| match host {
        Some(host) if bound.ip().is_unspecified() => format!("{host}:{}", bound.port()),
        _ => bound.to_string(),
    };
    Addresses {
        peer: listed.map_or_else(|| place(listeners.peer_address()), str::to_owned),
        client: listeners.client_address().map(place).unwrap_or_default(),
        admin: place(admin.address()),
        stream: listeners.stream_address().map(place).unwrap_or_default(),
    }
}

pub(crate) fn open_store(
    folder: &Path,
    store: Store,
    files_max: usize,
) -> Result<Box<dyn KvStore>, Problem> {
    match store {
        Store::Lsm => Ok(Box::new(open_engine(&folder.join("kv"), files_max)?)),
        // The stateless service stores nothing, and the etcd service has stores of its own.
        _ => Ok(Box::new(MemoryStore::new())),
    }
}

/// Opens the LSM store in `folder`.
pub(crate) fn open_engine(folder: &Path, files_max: usize) -> Result<LsmStore, Problem> {
    // The tree's library creates its files by itself.
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    let limits = StoreLimits { files_max, ..StoreLimits::default() };
    let opened = LsmStore::open_with(folder, limits);
    let (opened, set_aside) = opened.map_err(|error| {
        let hint = store_hint(&error.failure);
        Problem::new(Exit::Failed, "store", error).hint(hint)
    })?;
    if let Some(why) = set_aside {
        tracing::warn!(%why, "the store is damaged: rebuilding it from the log");
    }
    Ok(opened)
}

/// Returns the hint for a store that cannot be opened. Damaged files have already been set aside,
/// so none of the remaining causes is a reason to touch a file.
fn store_hint(failure: &Failure) -> &'static str {
    match failure {
        Failure::Format(_) | Failure::LibraryVersion(_) => "start the version that created it",
        _ => {
            "check that the disk is there, has room, and may be written; nothing is lost: the log has \
             everything that was acknowledged"
        }
    }
}

/// Returns an error if two flags give the same address.
fn check_places(places: &[(&str, &str)]) -> Result<(), Problem> {
    let resolved = |address: &str| -> Vec<SocketAddr> {
        // A name that does not resolve is reported when the address is bound.
        address.to_socket_addrs().into_iter().flatten().collect()
    };
    let clash = |one: &SocketAddr, other: &SocketAddr| {
        let (a, b) = (one.ip(), other.ip());
        let everywhere = a.is_unspecified() || b.is_unspecified();
        one.port() != 0 && one.port() == other.port() && (a == b || everywhere)
    };
    for (at, (flag, address)) in places.iter().enumerate() {
        let here = resolved(address);
        for (other, elsewhere) in &places[..at] {
            let there = resolved(elsewhere);
            if here.iter().any(|one| there.iter().any(|two| clash(one, two))) {
                let what = format_args!(
                    "--{other} {elsewhere} and --{flag} {address} are the same address"
                );
                return Err(Problem::usage(what).hint("give each its own port"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_flags_for_one_place_are_named_both() {
        let check = |client, peer, admin| {
            let places = [("client", client), ("peer", peer), ("admin", admin)];
            check_places(&places).map_err(|problem| problem.message)
        };
        assert_eq!(check("127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"), Ok(()));
        assert_eq!(check("127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"), Ok(()));
        assert_eq!(check("127.0.0.1:1", "127.0.0.2:1", "nonsense"), Ok(()));
        assert_eq!(
            check("127.0.0.1:7", "127.0.0.1:2", "127.0.0.1:7").unwrap_err(),
            "--client 127.0.0.1:7 and --admin 127.0.0.1:7 are the same address"
        );
        assert_eq!(
            check("127.0.0.1:1", "0.0.0.0:7", "localhost:7").unwrap_err(),
            "--peer 0.0.0.0:7 and --admin localhost:7 are the same address"
        );
    }

    /// No hint suggests that the operator move or delete files that the node needs.
    #[test]
    fn a_store_that_does_not_open_is_left_alone() {
        for (failure, expected) in [
            (Failure::Format(9), "version"),
            (Failure::Disk(io::ErrorKind::Other.into()), "nothing is lost"),
            (Failure::InUse, "nothing is lost"),
        ] {
            let hint = store_hint(&failure);
            assert!(hint.contains(expected), "{hint}");
            assert!(!hint.contains("aside"), "{hint}");
        }
    }

    #[test]
    fn who_names_a_service_gets_no_other() {
        assert!(check_service(None, Store::EtcdMemory).is_ok());
        assert!(check_service(Some(Speaks::Kv), Store::Memory).is_ok());
        let refused = check_service(Some(Speaks::Kv), Store::EtcdMemory).unwrap_err();
        assert_eq!(refused.message, "this node's cluster serves etcd, not kv");
    }
}
