//! Client connections, with limits on their number, on the streams of each, and on the time until
//! the first bytes arrive.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::Router;
use hyper::{Request, body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
    service::TowerToHyperService,
};
use quorate::{NodeTrust, Who, common_name};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::{sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, rustls::ServerConfig};

use super::{
    bodies::{ChargedBody, CountedBody, grpc_code},
    counters::{Counters, InFlightRequest},
    gate::Caller,
    memory::{MemoryBudget, MemoryShare},
};

/// Pause before accepting again after file descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Protocols offered with TLS. gRPC clients require the first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) connections_max: usize,
    /// Maximum number of concurrent requests per connection.
    pub(super) streams_max: u32,
    /// Maximum total size of a request's headers.
    pub(super) head_bytes_max: u32,
    /// Time for a client to authenticate and send its first bytes.
    pub(super) handshake_timeout: Duration,
    /// Time without input after which a client is probed.
    pub(super) idle_timeout: Duration,
    /// Time for a client to answer a probe.
    pub(super) probe_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 1024,
            streams_max: 4096,
            head_bytes_max: 16 << 10,
            handshake_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            probe_timeout: Duration::from_secs(20),
        }
    }
}

/// State shared by the tasks of all connections.
struct ServerContext {
    router: Router,
    trust: Option<NodeTrust>,
    limits: Limits,
    memory: MemoryBudget,
    counters: Arc<Counters>,
    /// TLS configuration loaded from the files, and a copy with [`PROTOCOLS`] added.
    tls_config_cache: Mutex<Option<(Arc<ServerConfig>, Arc<ServerConfig>)>>,
}

/// Accepts and serves clients until this future is dropped.
pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    trust: Option<NodeTrust>,
    limits: Limits,
    (memory, counters): (MemoryBudget, Arc<Counters>),
) {
    let places = Arc::new(Semaphore::new(limits.connections_max));
    let serving = Arc::new(ServerContext {
        router,
        trust,
        limits,
        memory,
        counters,
        tls_config_cache: Mutex::default(),
    });
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!(%error, "cannot accept a client of etcd");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            tracing::debug!("a client of etcd is turned away: there are too many");
            continue;
        };
        let serving = Arc::clone(&serving);
        tokio::spawn(async move {
            serving.receive_connection(stream).await;
            drop(place);
        });
    }
}

impl ServerContext {
    async fn receive_connection(&self, stream: TcpStream) {
        // Requests and responses are small and latency-sensitive.
        let _ = stream.set_nodelay(true);
        let Some(trust) = &self.trust else {
            // A connection that sends nothing is closed after a while, so that it does not occupy a
            // slot.
            if let Ok(Ok(())) = timeout(self.limits.handshake_timeout, stream.readable()).await {
                self.serve_connection(stream, Caller::default()).await;
            }
            return;
        };
        let acceptor = TlsAcceptor::from(self.tls_config(trust));
        match timeout(self.limits.handshake_timeout, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => {
                let certificates = stream.get_ref().1.peer_certificates();
                let who = trust.identity_of(certificates);
                let certified = match &who {
                    Who::Client(name) => Some(name.as_str().into()),
                    // A node is not an etcd user, whatever name its certificate contains.
                    Who::Node(_) | Who::Anonymous => None,
                    Who::Unnamed => common_name(certificates).map(Into::into),
                };
                self.serve_connection(
                    stream,
                    Caller { quorate_identity: who, certificate_name: certified },
                )
                .await;
            }
            Ok(Err(error)) => tracing::debug!(%error, "a client did not prove who it is"),
            Err(_) => tracing::debug!("a client did not prove who it is in time"),
        }
    }

    /// Returns the current TLS configuration with [`PROTOCOLS`] added.
    fn tls_config(&self, trust: &NodeTrust) -> Arc<ServerConfig> {
        let now = trust.clients_config();
        let offered = self.tls_config_cache.lock();
        let mut offered = offered.unwrap_or_else(PoisonError::into_inner);
        match &*offered {
            Some((of, offer)) if Arc::ptr_eq(of, &now) => Arc::clone(offer),
            _ => {
                let mut offer = ServerConfig::clone(&now);
                offer.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).into();
                let offer = Arc::new(offer);
                *offered = Some((now, Arc::clone(&offer)));
                offer
            }
        }
    }

    async fn serve_connection(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
        caller: Caller,
    ) {
        let router = TowerToHyperService::new(self.router.clone());
        let (memory, counters) = (self.memory.clone(), Arc::clone(&self.counters));
        let service = service_fn(move |request: Request<Incoming>| {
            let share = Arc::new(Mutex::new(Some(memory.empty_share())));
            let mut under_way = InFlightRequest::begin(&counters, request.uri().path());
            let counters = Arc::clone(&counters);
            let mut request = request.map(|body| {
                let counting = CountedBody::new(body, Arc::clone(&share), Arc::clone(&counters));
                axum::body::Body::new(counting)
            });
            request.extensions_mut().insert(caller.clone());
            let answer = hyper::service::Service::call(&router, request);
            async move {
                let answer = answer.await;
                // The request is answered, so its memory is released.
                share.lock().unwrap_or_else(PoisonError::into_inner).take();
                answer.map(|mut answer| {
                    let share = answer.extensions_mut().remove::<Arc<MemoryShare>>();
                    if let Some(under_way) = &mut under_way {
                        under_way.code = grpc_code(answer.headers());
                    }
                    answer.map(|body| ChargedBody::new(body, share, under_way, counters))
                })
            }
        });
        let limits = &self.limits;
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(limits.handshake_timeout);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(limits.streams_max)
            .max_header_list_size(limits.head_bytes_max)
            .keep_alive_interval(limits.idle_timeout)
            .keep_alive_timeout(limits.probe_timeout);
        // An error of a connection affects only its client.
        let _ = builder.serve_connection(TokioIo::new(stream), service).await;
    }
}
