//! `quorate start`: runs a node until it is stopped.

use std::{
    env, io,
    net::{SocketAddr, ToSocketAddrs as _},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use quorate::{
    DescriptorLimits, NodeId, NodeTrust, Protection, SetupCallbacks, StartFolder,
    raise_descriptor_limit,
};
use quorate_admin::{
    client,
    server::{Admin, StartError},
};
use quorate_kv::{
    front::{RespFront, Settings as FrontSettings},
    service::Service,
};
use quorate_net::{BindReason, Listeners};
use quorate_node::Home as _;
use quorate_node::log_service::{FrameFront, NoState};
use quorate_replica::status::Addresses;
use quorate_tls::ClientFiles;

use crate::{
    VERSION,
    config::{Service as Speaks, StartArgs, StartConfig, Store, TrustSettings},
    etcd,
    joining::{IdRequest, OwnPeerAddress},
    logging,
    manager::ServiceManager,
    output::{Exit, Problem, progress},
    signals,
    starting::{AddressAnnouncement, EndReactor, StartingNode, start_passwords},
    stop::StopRequest,
    stores::{open_store, select_store},
    usage,
};

const DEFAULT_STREAM_ADDRESS: &str = "127.0.0.1:7453";
/// Environment variable with the process id of a parent. The node ends together with that process.
pub(crate) const PARENT_VARIABLE: &str = "QUORATE_DIES_WITH_PARENT";

pub(crate) fn run(args: &StartArgs) -> Result<Exit, Problem> {
    let config = StartConfig::resolve(args, &|name| env::var(name).ok())?;
    logging::start_log(config.log_format)?;
    signals::ignore_signals()?;
    die_with_parent()?;
    let manager = ServiceManager::from_environment();
    let stop = stop_on_signal(manager.clone())?;
    let protection = config.trust_settings.load_files()?;
    let mut known = quorate::Settings { protection: protection.clone(), ..config.node_settings() };
    use_node_certificate(&config, &protection)?;
    let folder = StartFolder::open(&known)?;
    known.descriptors =
        DescriptorLimits::divide(raise_descriptor_limit(), folder.node_count(&known))?;
    let listed = folder.listed_address(&known);
    let peer = config.peer_address.clone().or_else(|| listed.clone());
    let peer = peer.as_deref().unwrap_or(&config.default_peer_address);
    let stream = config.stream_address.as_deref();
    let mut places = vec![
        ("client", config.client_address.as_str()),
        ("peer", peer),
        ("admin", &config.admin_address),
    ];
    let raw = config.raw_stream_address.as_deref();
    places.extend(stream.map(|address| ("stream", address)));
    places.extend(raw.map(|address| ("stream-raw", address)));
    check_distinct_addresses(&places)?;
    let mut listeners = Listeners::bind(
        peer,
        &config.client_address,
        config.client_socket.as_deref(),
        protection.clone(),
    )
    .map_err(quorate::Error::from)?;
    listeners.bind_datagrams(&config.plane).map_err(|refused| {
        let hint = refused.hint();
        Problem::new(Exit::Usage, "plane", refused).with_hint(hint)
    })?;
    listeners.bind_device(&config.device, &config.plane).map_err(|refused| {
        let hint = refused.hint();
        Problem::new(Exit::Usage, "device", refused).with_hint(hint)
    })?;
    let admin =
        Admin::start(&config.admin_address, folder.node(), protection).map_err(admin_problem)?;
    admin.set_settings(config.reported_settings.clone());
    let build = VERSION.split_once(" (").map(|(_, build)| build.trim_end_matches(')'));
    admin.set_commit(build.unwrap_or_default());
    bind_streams(&mut listeners, stream)?;
    if let Some(raw) = raw {
        let bound = listeners.bind_raw_streams(raw);
        bound.map_err(quorate::Error::from)?;
    }
    let answering = listeners
        .answer_while_starting(folder.node(), folder.cluster())
        .map_err(|error| Problem::io_error("start a thread", &error))?;
    let addresses = advertised_addresses(&listeners, &admin, listed.as_deref());
    let mut announce = AddressAnnouncement::new(folder.node(), &listeners, &admin, manager.clone());
    let mut waiting = |why: &str| {
        // The node is listening, so a script that starts several nodes can continue with the next
        // one.
        announce.announce();
        admin.set_starting(why);
        manager.report_activity(why);
        progress(why);
    };
    // Each poll also reports progress of the start to the service manager.
    let asked = || {
        manager.report_progress();
        stop.is_stop_requested()
    };
    let mut join = |nonce| {
        answering.set_join_nonce(nonce);
        let asking = IdRequest {
            admin_addresses: &config.join_addresses,
            own_peer_address: &OwnPeerAddress::from_given(
                config.peer_address.as_deref(),
                listeners.peer_address(),
            ),
            role: config.role.unwrap_or_default(),
            reserved_id: config.node_id,
            stop: &asked,
        };
        asking.request_id(nonce, &mut |why| {
            admin.set_starting(why);
            manager.report_activity(why);
            progress(why);
        })
    };
    let settling = SetupCallbacks {
        peer: &addresses.peer,
        stop: &asked,
        report_wait: &mut waiting,
        request_id: &mut join,
    };
    let Some(identity) = folder.set_up(&known, settling)? else {
        return Ok(Exit::Done);
    };
    let node = identity.founding().node;
    check_certificate_name(&known.protection, node)?;
    answering.set_node(node);
    admin.set_audit_folder(identity.home().path());
    admin.set_node_id(node);
    announce.set_node_id(node);
    answering.belongs_to(identity.founding().cluster);
    // A node that has just joined can be reached at the address that it reported itself.
    let listed = listed.or_else(|| {
        let joins = identity.joining_role().is_some();
        let own = identity.address_book().peers.get(&node).filter(|_| joins);
        own.cloned()
    });
    let addresses = advertised_addresses(&listeners, &admin, listed.as_deref());
    let store = select_store(&identity)?;
    check_service(config.service, store)?;
    let node = StartingNode {
        settings: known,
        identity,
        addresses,
        store,
        listeners,
        peer_server: answering,
        admin,
        stop,
        announcement: announce,
        manager,
        join_addresses: config.join_addresses,
        key_file: config.plane.keys,
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
            etcd::EtcdSettings {
                quota_bytes: config.etcd_quota_bytes,
                auto_compaction: &config.etcd_auto_compaction,
                auth_token: &config.etcd_auth_token,
            },
        );
    }
    // A build whose scripts would differ from those of other nodes ends here, not at the first
    // script.
    quorate_kv::scripts::prepare();
    let files = node.report_opening_store();
    let service = Service::new(open_store(node.identity.home().path(), store, files)?);
    let events = service.events();
    let front = RespFront::new(FrontSettings {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        store: store.name().to_owned(),
        client_bytes_max: node.settings.client_memory_bytes,
        tcp_port: node.listeners.client_address().map_or(0, |address| address.port()),
        started_ms: unix_now_ms(),
        cluster_mode: config.cluster_mode,
        memory: usage::process_memory,
        cpu: usage::process_cpu_time,
    });
    let passwords = start_passwords()?;
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
                .with_hint("leave --service out, or start a new cluster in empty folders"))
        }
        _ => Ok(()),
    }
}

/// Binds the stream address. If the operator gave no address and the default one is in use, the
/// node serves no streams, so that several nodes on one machine need no extra flag.
fn bind_streams(listeners: &mut Listeners, asked: Option<&str>) -> Result<(), Problem> {
    match listeners.bind_streams(asked.unwrap_or(DEFAULT_STREAM_ADDRESS)) {
        Err(error) if asked.is_none() && error.reason.is_in_use() => {
            progress(&format!(
                "no byte streams at this node: {DEFAULT_STREAM_ADDRESS} is in use by another process; \
                 --stream ADDR chooses another address"
            ));
            Ok(())
        }
        bound => Ok(bound.map_err(quorate::Error::from)?),
    }
}

/// Makes this process use the node's certificate for requests to other nodes.
fn use_node_certificate(config: &StartConfig, protection: &Protection) -> Result<(), Problem> {
    let TrustSettings::Tls(files) = &config.trust_settings else {
        return Ok(());
    };
    let own = ClientFiles {
        cert: files.peer_cert.clone(),
        key: files.key.clone(),
        ca: files.client_ca.clone(),
    };
    client::use_certificate(&own)?;
    match config.node_id {
        Some(node) => check_certificate_name(protection, node),
        None => Ok(()),
    }
}

/// Checks that the certificate is issued to this node. Otherwise other nodes, which identify a peer
/// by its certificate, would refuse it.
fn check_certificate_name(protection: &Protection, node: NodeId) -> Result<(), Problem> {
    let Some(own) = protection.trust().map(NodeTrust::own_name) else {
        return Ok(());
    };
    if own.node == node.0 {
        return Ok(());
    }
    let what = format_args!("this is node {node}, but its certificate is for node {}", own.node);
    Err(Problem::new(Exit::Usage, "tls", what)
        .with_hint(format!("use the folder created by 'quorate cert node {node}'")))
}

fn admin_problem(error: StartError) -> Problem {
    let (code, hint) = match &error {
        StartError::Listen { source, .. } => {
            let in_use = source.kind() == io::ErrorKind::AddrInUse;
            let code = if in_use { "port_in_use" } else { "cannot_listen" };
            (code, "stop that process, or choose another address")
        }
        StartError::Unprotected { .. } => ("cannot_listen", BindReason::Unprotected.hint()),
        StartError::Thread(_) => ("io", ""),
    };
    Problem::new(Exit::Failed, code, error).with_hint(hint)
}

fn unix_now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// Makes the first signal stop the node.
fn stop_on_signal(manager: ServiceManager) -> Result<StopRequest<EndReactor>, Problem> {
    let stop = StopRequest::new();
    let asked = stop.clone();
    signals::call_on_first(move || {
        // Notify the manager first, because a node without unfinished work may end at once.
        manager.report_stopping();
        asked.request_stop();
    })?;
    Ok(stop)
}

/// If the environment requests it, makes the node end with its parent process, such as `quorate
/// demo`.
fn die_with_parent() -> Result<(), Problem> {
    let Ok(parent) = env::var(PARENT_VARIABLE) else {
        return Ok(());
    };
    let kill = Some(rustix::process::Signal::KILL);
    rustix::process::set_parent_process_death_signal(kill)
        .map_err(|error| Problem::io_error("tie this node to its parent", &error.into()))?;
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
fn advertised_addresses(listeners: &Listeners, admin: &Admin, listed: Option<&str>) -> Addresses {
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

/// Returns an error if two flags give the same address.
fn check_distinct_addresses(places: &[(&str, &str)]) -> Result<(), Problem> {
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
                return Err(Problem::usage_error(what).with_hint("give each its own port"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_flags_with_one_address_are_both_named() {
        let check = |client, peer, admin| {
            let places = [("client", client), ("peer", peer), ("admin", admin)];
            check_distinct_addresses(&places).map_err(|problem| problem.message)
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

    #[test]
    fn mismatched_service_is_refused() {
        assert!(check_service(None, Store::EtcdMemory).is_ok());
        assert!(check_service(Some(Speaks::Kv), Store::Memory).is_ok());
        let refused = check_service(Some(Speaks::Kv), Store::EtcdMemory).unwrap_err();
        assert_eq!(refused.message, "this node's cluster serves etcd, not kv");
    }
}
