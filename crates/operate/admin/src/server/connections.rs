//! Connections of the admin address, limited in number, idle time and lifetime.
//!
//! Idle connections cannot exhaust the limit: a new connection replaces the oldest one without a
//! request in flight, or else the oldest one. So a health check can always connect.

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{access::PeerIdentity, pieces::LongResponse};
use axum::Router;
use hyper::{Request, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use quorate_access::Who;
use quorate_tls::NodeTrust;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    task::AbortHandle,
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;

/// Pause before accepting again after file descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Limits on the connections of a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) connections_max: usize,
    /// Time limit for receiving the head of a request.
    pub(super) head_timeout: Duration,
    /// Maximum time that a connection may remain open.
    pub(super) lifetime_max: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 64,
            head_timeout: Duration::from_secs(5),
            lifetime_max: Duration::from_secs(60),
        }
    }
}

/// Accepts and serves connections until the process ends.
pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    trust: Option<NodeTrust>,
    limits: Limits,
) {
    let places = ConnectionTable::default();
    loop {
        match listener.accept().await {
            Ok((stream, from)) => {
                let place = places.add_connection(limits.connections_max);
                let id = place.id;
                let (router, trust) = (router.clone(), trust.clone());
                let task =
                    tokio::spawn(handle_connection(stream, from, router, trust, limits, place));
                places.set_task(id, task.abort_handle());
            }
            Err(error) => {
                tracing::debug!(%error, "cannot accept an admin connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Serves one connection. A TLS handshake has the same time limit as the head of a request.
async fn handle_connection(
    stream: TcpStream,
    from: SocketAddr,
    router: Router,
    trust: Option<NodeTrust>,
    limits: Limits,
    place: ConnectionEntry,
) {
    let Some(trust) = trust else {
        let who = Who::Anonymous;
        return serve_http(stream, PeerIdentity { identity: who, from }, router, limits, place)
            .await;
    };
    let acceptor = TlsAcceptor::from(trust.operators_config());
    match timeout(limits.head_timeout, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => {
            let who = trust.identity_of(stream.get_ref().1.peer_certificates());
            serve_http(stream, PeerIdentity { identity: who, from }, router, limits, place).await;
        }
        Ok(Err(error)) => tracing::debug!(%error, "an operator presented no valid certificate"),
        Err(_) => tracing::debug!("an operator did not prove who it is in time"),
    }
}

async fn serve_http(
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    caller: PeerIdentity,
    router: Router,
    limits: Limits,
    place: ConnectionEntry,
) {
    let router = TowerToHyperService::new(router);
    let service = service_fn(|mut request: Request<Incoming>| {
        request.extensions_mut().insert(caller.clone());
        let busy = place.count_request();
        let answer = hyper::service::Service::call(&router, request);
        async move {
            let answer = answer.await;
            if let Ok(answer) = &answer {
                busy.record_response(answer.extensions().get());
            }
            drop(busy);
            answer
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_timeout)
        .serve_connection(TokioIo::new(stream), service);
    let mut served = pin!(served);
    // An error on a connection affects only the client of that connection.
    while timeout(limits.lifetime_max, served.as_mut()).await.is_err() && place.has_long_response()
    {
    }
}

/// Open connections. The oldest one has the lowest id.
#[derive(Clone, Debug, Default)]
struct ConnectionTable(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    last_id: u64,
    by_id: BTreeMap<u64, TableEntry>,
}

#[derive(Debug, Default)]
struct TableEntry {
    /// Number of requests in flight.
    active_requests: usize,
    /// Long response in flight, which exempts the connection from the lifetime limit.
    long_response: Option<LongResponse>,
    task: Option<AbortHandle>,
}

impl TableEntry {
    /// Returns whether the connection is sending a long response.
    fn is_long(&self) -> bool {
        let lasting = self.long_response.as_ref();
        lasting.is_some_and(|lasting| lasting.0.strong_count() > 0)
    }
}

impl Table {
    /// Returns the id of the connection to close when the limit is reached.
    fn connection_to_close(&self) -> Option<u64> {
        let mut all = self.by_id.iter();
        let idle = all.find(|(_, taken)| taken.active_requests == 0 && !taken.is_long());
        idle.or_else(|| self.by_id.first_key_value()).map(|(id, _)| *id)
    }
}

impl ConnectionTable {
    fn lock_table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a new connection. Closes other connections if the limit is reached.
    fn add_connection(&self, connections_max: usize) -> ConnectionEntry {
        let mut table = self.lock_table();
        while table.by_id.len() >= connections_max
            && let Some(id) = table.connection_to_close()
        {
            // The task stops at its next await point and closes the connection.
            let task = table.by_id.remove(&id).and_then(|taken| taken.task);
            if let Some(task) = task {
                task.abort();
            }
        }
        table.last_id += 1;
        let id = table.last_id;
        table.by_id.insert(id, TableEntry::default());
        ConnectionEntry { id, table: self.clone() }
    }

    /// Sets the task that serves a connection, unless the connection has already ended.
    fn set_task(&self, id: u64, task: AbortHandle) {
        if let Some(taken) = self.lock_table().by_id.get_mut(&id) {
            taken.task = Some(task);
        }
    }
}

/// An entry of an open connection in the table, removed on drop.
#[derive(Debug)]
struct ConnectionEntry {
    id: u64,
    table: ConnectionTable,
}

impl Drop for ConnectionEntry {
    fn drop(&mut self) {
        self.table.lock_table().by_id.remove(&self.id);
    }
}

impl ConnectionEntry {
    fn has_long_response(&self) -> bool {
        let table = self.table.lock_table();
        table.by_id.get(&self.id).is_some_and(TableEntry::is_long)
    }

    /// Counts a request as in flight until the returned guard is dropped.
    fn count_request(&self) -> RequestGuard {
        if let Some(taken) = self.table.lock_table().by_id.get_mut(&self.id) {
            taken.active_requests += 1;
        }
        RequestGuard { id: self.id, table: self.table.clone() }
    }
}

struct RequestGuard {
    id: u64,
    table: ConnectionTable,
}

impl RequestGuard {
    /// Records that a response begins. `lasting` is set for a long response.
    fn record_response(&self, lasting: Option<&LongResponse>) {
        if let Some(taken) = self.table.lock_table().by_id.get_mut(&self.id) {
            taken.long_response = lasting.cloned();
        }
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        if let Some(taken) = self.table.lock_table().by_id.get_mut(&self.id) {
            taken.active_requests = taken.active_requests.saturating_sub(1);
        }
    }
}

/// Registers a bound listener with the async runtime.
pub(super) fn into_async_listener(listener: std::net::TcpListener) -> io::Result<TcpListener> {
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::{SocketAddr, TcpStream},
        thread,
    };

    use axum::routing::get;
    use tokio::sync::Semaphore;

    use super::*;
    use crate::client;

    const WAIT: Duration = Duration::from_secs(60);

    /// Test server: `/health` responds at once, `/slow` when the semaphore permits.
    struct Server {
        address: SocketAddr,
        gate: Arc<Semaphore>,
        entered: Arc<Semaphore>,
    }

    fn server(limits: Limits) -> Server {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (gate, entered) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let (opened, entering) = (gate.clone(), entered.clone());
        let slow = move || async move {
            entering.add_permits(1);
            let permit = opened.acquire().await;
            permit.map_or("closed", |_| "slow")
        };
        let router =
            Router::new().route("/health", get(|| async { "alive\n" })).route("/slow", get(slow));
        thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                serve(into_async_listener(listener).unwrap(), router, None, limits).await
            });
        });
        Server { address, gate, entered }
    }

    impl Server {
        fn connect(&self) -> TcpStream {
            let stream = TcpStream::connect(self.address).unwrap();
            stream.set_read_timeout(Some(WAIT)).unwrap();
            stream
        }

        /// Sends the `count`th slow request and waits until it is in flight.
        fn ask_slowly(&self, count: usize) -> TcpStream {
            let mut stream = self.connect();
            stream.write_all(b"GET /slow HTTP/1.0\r\n\r\n").unwrap();
            while self.entered.available_permits() < count {
                thread::yield_now();
            }
            stream
        }

        fn is_healthy(&self) -> bool {
            let response = client::get(&self.address.to_string(), "/health", WAIT);
            response.unwrap().status == 200
        }
    }

    /// Reads until the peer closes the connection.
    fn rest(mut stream: &TcpStream) -> Vec<u8> {
        let mut bytes = Vec::new();
        // A reset counts as the end.
        let _ = stream.read_to_end(&mut bytes);
        bytes
    }

    fn few() -> Limits {
        Limits { connections_max: 4, head_timeout: WAIT, lifetime_max: WAIT }
    }

    /// A sixty-fifth client is served while sixty-four idle ones occupy all connections.
    #[test]
    fn new_connections_replace_idle_ones() {
        let limits = Limits { head_timeout: WAIT, ..Limits::default() };
        let server = server(limits);
        let idle: Vec<_> = (0..limits.connections_max).map(|_| server.connect()).collect();
        for _ in 0..3 {
            assert!(server.is_healthy());
        }
        assert_eq!(rest(&idle[0]), b"", "the oldest made room");
        // The newest connection is served normally.
        let mut last = idle.last().unwrap();
        last.write_all(b"GET /health HTTP/1.0\r\n\r\n").unwrap();
        assert!(rest(last).starts_with(b"HTTP/1.0 200"));
    }

    #[test]
    fn idle_connections_are_closed_before_active_ones() {
        let server = server(few());
        let asking = server.ask_slowly(1);
        let idle: Vec<_> = (0..20).map(|_| server.connect()).collect();
        assert!(server.is_healthy());
        server.gate.add_permits(1);
        assert!(rest(&asking).ends_with(b"slow"));
        assert_eq!(rest(&idle[0]), b"");
    }

    #[test]
    fn the_oldest_request_makes_room_if_all_are_busy() {
        let server = server(few());
        let asking = [1, 2, 3, 4].map(|count| server.ask_slowly(count));
        assert!(server.is_healthy());
        assert_eq!(rest(&asking[0]), b"");
        server.gate.add_permits(3);
        assert!(rest(&asking[1]).ends_with(b"slow"));
    }

    #[test]
    fn connection_without_a_request_head_times_out() {
        let server = server(Limits { head_timeout: Duration::from_millis(20), ..few() });
        let silent = server.connect();
        let mut hesitant = server.connect();
        hesitant.write_all(b"GET /health HTTP/1.1\r\nHost: h\r\n").unwrap();
        // The connection stays open after one request.
        let mut kept = server.connect();
        kept.write_all(b"GET /health HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
        assert_eq!(rest(&silent), b"");
        assert!(!rest(&hesitant).starts_with(b"HTTP/1.1 200"));
        assert!(rest(&kept).ends_with(b"alive\n"));
    }

    #[test]
    fn lifetime_of_connections_is_bounded() {
        let server = server(Limits { lifetime_max: Duration::from_millis(20), ..few() });
        let mut asking = server.connect();
        asking.write_all(b"GET /slow HTTP/1.0\r\n\r\n").unwrap();
        assert_eq!(rest(&asking), b"");
        assert!(server.is_healthy());
    }
}
