//! The front end: serves gRPC and some HTTP, on its own threads.
//!
//! Connections ([`connections`]) deliver requests, whose memory is counted ([`bodies`],
//! [`memory`]). The services ([`kv`], [`watch`], [`lease`], [`cluster`], [`maintenance`], [`lock`],
//! [`election`], [`auth`], [`health`]) turn them into commands and queries for the replica in this
//! process ([`asking`]), and the results into responses or errors ([`errors`]). Clients
//! authenticate by a [`token`] of etcd's kind, a [`jwt`], or a certificate: the [`gate`] caches
//! them, [`admission`] checks them, and [`passwords`] are checked on separate threads, as are those
//! of the node's [`operators`]. [`pages`] and the [`gateway`] serve HTTP. The [`hub`] reads events
//! once for all watchers, [`keeping`] keeps many leases alive with one command, and [`turns`] are
//! the queues of locks and elections. The leader removes old history ([`compacting`]). Requests are
//! counted ([`counters`], [`metrics`]).

mod admission;
mod asking;
mod auth;
mod bodies;
mod cluster;
mod compacting;
mod connections;
mod counters;
mod election;
mod errors;
mod gate;
mod gateway;
mod health;
mod hub;
mod jwt;
mod keeping;
mod kv;
mod lease;
mod lock;
mod maintenance;
mod memory;
mod metrics;
mod operators;
mod pages;
mod passwords;
mod queue;
mod range_stream;
mod retention;
mod settings;
mod snapshot;
mod token;
mod turns;
mod watch;

use std::{
    io,
    net::{SocketAddr, TcpListener},
    sync::Arc,
    thread,
};

use axum::{
    extract::Request,
    middleware::{self, Next},
};
use quorate::{Handle, Local, Protection};
use tokio::sync::Notify;
use tonic::service::Routes;

use self::{
    asking::ReplicaAccess, connections::Limits, hub::EventHub, keeping::KeepAliveQueue,
    passwords::Passwords, turns::KeyQueues,
};
pub use self::{
    jwt::{TokenKind, TokenOptionError},
    operators::Operators,
    retention::{InvalidRetention, Retention},
    settings::{ETCD_VERSION, REQUEST_BYTES_MAX, Settings},
};
use crate::proto::{
    etcdserverpb::{
        auth_server::AuthServer, cluster_server::ClusterServer, kv_server::KvServer,
        lease_server::LeaseServer, maintenance_server::MaintenanceServer,
        watch_server::WatchServer,
    },
    health::health_server::HealthServer,
    v3electionpb::election_server::ElectionServer,
    v3lockpb::lock_server::LockServer,
};

/// Maximum size of a gRPC message: a command plus the rest of its request.
const MESSAGE_BYTES_MAX: usize = REQUEST_BYTES_MAX + (512 << 10);
/// Maximum number of threads that serve clients.
const SERVING_THREADS_MAX: usize = 8;

/// Error in binding the listening socket.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("cannot listen on --client {address}: {source}")]
    Listen { address: String, source: io::Error },
    /// Other machines could connect, but authentication is not configured.
    #[error(
        "cannot listen on --client {address}: other machines can reach this address, and there is no authentication"
    )]
    Unprotected { address: String },
}

/// A bound listener. Clients can already connect, but wait until [`Listener::serve`] is called.
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
    address: SocketAddr,
    protection: Protection,
}

impl Listener {
    /// Binds an address. Without protection, only a loopback address is accepted.
    pub fn bind(address: &str, protection: Protection) -> Result<Self, BindError> {
        let bound = TcpListener::bind(address).and_then(|listener| {
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            Ok((listener, address))
        });
        let (listener, bound) =
            bound.map_err(|source| BindError::Listen { address: address.to_owned(), source })?;
        if protection == Protection::Loopback && !bound.ip().is_loopback() {
            return Err(BindError::Unprotected { address: address.to_owned() });
        }
        Ok(Self { listener, address: bound, protection })
    }

    /// Uses a bound listener. The caller is responsible for restricting who can connect.
    pub fn from_listener(listener: TcpListener, protection: Protection) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address, protection })
    }

    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Starts serving clients with this replica.
    pub fn serve(self, local: Local, handle: Handle, settings: Settings) -> io::Result<Server> {
        let secure = self.protection.trust().is_some();
        let asking = Arc::new(ReplicaAccess::new(local, handle, &settings, secure));
        let passwords = Passwords::new();
        let operators =
            Operators { replica_access: Arc::clone(&asking), passwords: passwords.clone() };
        let stop = Arc::new(Notify::new());
        let stopped = Arc::clone(&stop);
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads.min(SERVING_THREADS_MAX))
            // For requests that block until the node answers.
            .max_blocking_threads(16)
            .thread_name("etcd")
            .enable_io()
            .enable_time()
            .build()?;
        let limits = Limits { connections_max: settings.connections_max, ..Limits::default() };
        let thread = thread::Builder::new().name("etcd".to_owned());
        let thread = thread.spawn(move || {
            runtime.block_on(async {
                let listener = match tokio::net::TcpListener::from_std(self.listener) {
                    Ok(listener) => listener,
                    Err(error) => {
                        tracing::error!(%error, "clients of etcd cannot be served");
                        return;
                    }
                };
                tokio::spawn(asking::refresh_term(Arc::clone(&asking)));
                tokio::spawn(compacting::run(Arc::clone(&asking), settings.retention));
                let hub = EventHub::new(asking.memory.half_budget());
                let revisions = asking.subscribe_revisions();
                tokio::spawn({
                    let (hub, asking) = (Arc::clone(&hub), Arc::clone(&asking));
                    async move { hub.run(&asking, revisions).await }
                });
                let trust = self.protection.trust().cloned();
                let (keeper, kept) = keeping::keep_alive_queue();
                tokio::spawn(keeping::run(Arc::clone(&asking), kept));
                let router = router(&asking, &hub, keeper, passwords);
                let counted = (asking.memory.clone(), Arc::clone(&asking.counters));
                let serving = connections::serve(listener, router, trust, limits, counted);
                tokio::select! {
                    () = serving => {}
                    () = stopped.notified() => {}
                }
            });
            // Waiting for requests that wait for the node could block the shutdown indefinitely.
            runtime.shutdown_background();
        })?;
        Ok(Server { operators, stop, thread: Some(thread) })
    }
}

/// Running server, stopped on drop.
#[derive(Debug)]
pub struct Server {
    operators: Operators,
    stop: Arc<Notify>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Server {
    /// Returns access to etcd's users for the node's admin server.
    pub fn operators(&self) -> Operators {
        self.operators.clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Adds both versions of server reflection, for gRPC tools.
fn add_reflection(services: Routes) -> Routes {
    let builder = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(crate::proto::DESCRIPTORS)
    };
    match (builder().build_v1(), builder().build_v1alpha()) {
        (Ok(now), Ok(before)) => services.add_service(now).add_service(before),
        (Err(error), _) | (_, Err(error)) => {
            tracing::error!(%error, "there is no reflection");
            services
        }
    }
}

fn router(
    asking: &Arc<ReplicaAccess>,
    hub: &Arc<EventHub>,
    keeper: KeepAliveQueue,
    passwords: Passwords,
) -> axum::Router {
    let kv = KvServer::new(kv::Kv { replica_access: Arc::clone(asking) });
    let kv = kv.max_decoding_message_size(MESSAGE_BYTES_MAX).max_encoding_message_size(usize::MAX);
    let cluster = ClusterServer::new(cluster::Cluster(Arc::clone(asking)))
        .max_decoding_message_size(MESSAGE_BYTES_MAX);
    let maintenance = MaintenanceServer::new(maintenance::Maintenance(Arc::clone(asking)))
        .max_decoding_message_size(MESSAGE_BYTES_MAX);
    let watch =
        WatchServer::new(watch::Watch { replica_access: Arc::clone(asking), hub: Arc::clone(hub) });
    let watch =
        watch.max_decoding_message_size(MESSAGE_BYTES_MAX).max_encoding_message_size(usize::MAX);
    let lease = LeaseServer::new(lease::Lease {
        replica_access: Arc::clone(asking),
        keep_alive_queue: keeper,
    });
    let lease =
        lease.max_decoding_message_size(MESSAGE_BYTES_MAX).max_encoding_message_size(usize::MAX);
    let turns = KeyQueues { replica_access: Arc::clone(asking), hub: Arc::clone(hub) };
    let lock = LockServer::new(lock::Lock(turns.clone()));
    let lock = lock.max_decoding_message_size(MESSAGE_BYTES_MAX);
    let election = ElectionServer::new(election::Election(turns));
    let election = election.max_decoding_message_size(MESSAGE_BYTES_MAX);
    let auth = AuthServer::new(auth::Auth { replica_access: Arc::clone(asking), passwords });
    let auth =
        auth.max_decoding_message_size(MESSAGE_BYTES_MAX).max_encoding_message_size(usize::MAX);
    let health = HealthServer::new(health::Health(Arc::clone(asking)));
    let services = Routes::new(kv).add_service(watch).add_service(lease);
    let services = services.add_service(cluster).add_service(maintenance);
    let services = services.add_service(lock).add_service(election);
    let services = services.add_service(auth).add_service(health);
    let services = add_reflection(services).into_axum_router();
    let knows = Arc::clone(asking);
    let services = services.layer(middleware::from_fn(move |request: Request, next: Next| {
        let knows = Arc::clone(&knows);
        async move {
            // Health checks do not wait.
            if !request.uri().path().starts_with("/grpc.health.") {
                knows.wait_for_access().await;
            }
            next.run(request).await
        }
    }));
    let gateway = gateway::routes(asking, &services);
    services.merge(gateway).merge(pages::routes(Arc::clone(asking)))
}
