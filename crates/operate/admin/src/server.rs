//! The admin address: the dashboard, health, readiness, status, metrics, members, transfer,
//! snapshots, backups and multicast tests over HTTP.
//!
//! The server has its own thread and accesses the reactor only through its [`Handle`], so that no
//! request can delay the protocol.

mod access;
mod audit;
mod backup;
mod browser;
mod connections;
mod dashboard;
mod failure;
mod forecast;
mod history;
mod joining;
pub mod page;
mod pieces;
mod reaching;
mod start;
mod turn;
mod users;

use std::{
    cell::Cell,
    collections::BTreeMap,
    fmt::Write as _,
    io,
    net::{SocketAddr, TcpListener},
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    thread,
    time::{SystemTime, UNIX_EPOCH},
};

use axum::{
    Extension, Json, Router,
    extract::{DefaultBodyLimit, Request, State},
    http::{
        StatusCode, Uri,
        header::{CONTENT_TYPE, ORIGIN},
    },
    middleware::{Next, from_fn, from_fn_with_state},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use quorate_access::Role;
use quorate_core::{effect, node_id::NodeId, slot::Slot};
use quorate_log::ReadProgress;
use quorate_net::{Handle, Unanswered};
use quorate_node::process;
use quorate_replica::{
    ProbeOutcome, StreamHold, group::asking::GroupRequest, scrubbing::BYTES_PER_SECOND_MIN,
    status::Status, tuner::Setting,
};
use quorate_tls::{NodeTrust, Protection};

use crate::{
    certificates::CertificateView,
    joining::{JoinAnswer, JoinRequest},
    members::{MembersOutcome, MembersRequest, MembersView},
    scrub::{ScrubRequest, ScrubView},
    tuning::{HoldRequest, TuningView},
    view::{NodeView, ProgressView, SnapshotRequest, SnapshotView, TransferRequest, Transferred},
};

pub use access::RootCheck;
use access::{ClientUsers, PasswordChecks, Requester, authorize_request, check_role};
use audit::AuditLog;
use dashboard::{DashboardPages, ForwardLimit};
use failure::{Failure, JsonBody, TRY_LATER_HINT};
use forecast::DiskForecast;
use history::TrafficHistory;
use start::StartProgress;
use turn::ExclusiveTurn;

/// Style sheet with the colours that all web pages use.
pub const COLOURS_CSS: &str = dashboard::COLOURS_FILE.text;

/// Maximum size of a request body in bytes.
const BODY_BYTES_MAX: usize = 4096;
const BUILD_INFO_METRIC: &str =
    "# HELP quorate_build_info The release of this node; the value is always 1.
# TYPE quorate_build_info gauge\n";
const UNKNOWN_USERS_TEXT: &str = "this node has not loaded the users yet";
/// Maximum time for which the batch size and the window may be pinned, in milliseconds. It bounds
/// the effect of a client that disconnects without unpinning them.
const PIN_MS_MAX: u64 = 600_000;

/// Phase of the node, from the server's point of view.
#[derive(Clone, Debug)]
enum Phase {
    /// The node has no reactor yet.
    Starting(StartProgress),
    Running(Handle, &'static str),
}

/// State of the admin server. All requests share it with the code that starts the node.
#[derive(Clone, Debug)]
pub struct Admin {
    phase: Arc<Mutex<Phase>>,
    address: SocketAddr,
    /// Id of this node. 0 until an id is assigned.
    node_id: Arc<AtomicU32>,
    backup_turn: ExclusiveTurn,
    /// Hold on the streams of a backup that timed out before its snapshot, for the client's retry.
    backup_hold: Arc<Mutex<Option<StreamHold>>>,
    multicast_listeners: reaching::MulticastListeners,
    protection: Protection,
    /// Settings in effect since the start. Set once per process.
    settings: Arc<OnceLock<BTreeMap<String, String>>>,
    build_commit: Arc<OnceLock<&'static str>>,
    dashboard_pages: DashboardPages,
    forward_limit: ForwardLimit,
    password_checks: PasswordChecks,
    client_users: ClientUsers,
    audit_log: AuditLog,
    history: TrafficHistory,
    forecast: DiskForecast,
    /// Number of requests refused since the start because the caller lacks a role.
    refused_requests: Arc<AtomicU64>,
}

impl Admin {
    /// Binds the address and starts serving requests. The node itself may still be starting.
    pub fn start(
        address: &str,
        node: impl Into<Option<NodeId>>,
        protection: Protection,
    ) -> Result<Self, StartError> {
        let bound = TcpListener::bind(address).and_then(|listener| {
            let address = listener.local_addr()?;
            Ok((listener, address))
        });
        let (listener, bound) =
            bound.map_err(|source| StartError::Listen { address: address.to_owned(), source })?;
        if protection == Protection::Loopback && !bound.ip().is_loopback() {
            return Err(StartError::Unprotected { address: address.to_owned() });
        }
        let phase = Phase::Starting(StartProgress::new("starting"));
        let admin = Self {
            protection,
            settings: Arc::default(),
            build_commit: Arc::default(),
            phase: Arc::new(Mutex::new(phase)),
            address: bound,
            node_id: Arc::new(AtomicU32::new(node.into().map_or(0, |node| node.0))),
            backup_turn: ExclusiveTurn::default(),
            backup_hold: Arc::default(),
            multicast_listeners: reaching::MulticastListeners::default(),
            dashboard_pages: DashboardPages::default(),
            forward_limit: ForwardLimit::default(),
            password_checks: PasswordChecks::default(),
            client_users: ClientUsers::default(),
            audit_log: AuditLog::default(),
            history: TrafficHistory::default(),
            forecast: DiskForecast::default(),
            refused_requests: Arc::default(),
        };
        let state = admin.clone();
        thread::Builder::new()
            .name("admin".to_owned())
            .spawn(move || {
                SERVES.set(true);
                if let Err(error) = serve(listener, state) {
                    tracing::error!(%error, "the admin server stopped");
                }
            })
            .map_err(StartError::Thread)?;
        Ok(admin)
    }

    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the settings that should be equal on all nodes. They are visible to readers, so they
    /// must not include secrets.
    pub fn set_settings(&self, settings: BTreeMap<String, String>) {
        let _ = self.settings.set(settings);
    }

    /// Sets the commit that the program was built from, with its date.
    pub fn set_commit(&self, commit: &'static str) {
        let _ = self.build_commit.set(commit);
    }

    /// Sets the check of the service's own users. Must be called before the node runs.
    pub fn set_client_users(&self, has_root: RootCheck) {
        let _ = self.client_users.0.set(has_root);
    }

    /// Sets the node's id.
    pub fn set_node_id(&self, node: NodeId) {
        self.node_id.store(node.0, Ordering::Relaxed);
    }

    fn node_id(&self) -> Option<NodeId> {
        let node = NodeId(self.node_id.load(Ordering::Relaxed));
        (node.0 > 0).then_some(node)
    }

    /// Sets the reason why the node has not finished starting.
    pub fn set_starting(&self, why: &str) {
        self.set(Phase::Starting(StartProgress::new(why)));
    }

    /// Sets the progress of reading the log at the start.
    pub fn set_reading(&self, reading: ReadProgress) {
        if let Phase::Starting(start) = &mut *self.lock_phase() {
            start.set_reading(reading);
        }
    }

    /// Marks the node as running. `store` is the name of its store.
    pub fn set_running(&self, handle: Handle, store: &'static str) {
        self.set(Phase::Running(handle, store));
    }

    fn backup_hold(&self) -> MutexGuard<'_, Option<StreamHold>> {
        self.backup_hold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Measures the node's folder for the forecast.
    fn measure_folder(&self) {
        let log_max = self.settings.get().and_then(|settings| settings.get("log-max"));
        let log_max = log_max.and_then(|bytes| bytes.parse().ok()).unwrap_or(0);
        if let Some(folder) = self.audit_log.folder() {
            self.forecast.measure_folder(&folder, log_max);
        }
    }

    /// Sets the folder in which operators' actions are recorded.
    pub fn set_audit_folder(&self, folder: &Path) {
        self.audit_log.set_folder(folder);
    }

    fn set(&self, phase: Phase) {
        *self.lock_phase() = phase;
    }

    fn lock_phase(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `question` on a blocking thread, so that other requests do not wait for the reactor.
    async fn run_blocking<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Handle, &'static str) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let phase = self.lock_phase().clone();
        let (handle, store) = match phase {
            Phase::Starting(start) => return Err(start.to_failure(self.node_id())),
            Phase::Running(handle, store) => (handle, store),
        };
        let asked = tokio::task::spawn_blocking(move || question(&handle, store));
        asked.await.map_err(|_| Failure::unavailable("failed", "the node did not take the request"))
    }

    /// Returns the node's status, including its certificates and settings.
    fn node_view(&self, status: &Status, store: &'static str) -> NodeView {
        let mut view = NodeView::new(status, store);
        view.certificates = self.certificate_views();
        view.settings = self.settings.get().cloned().unwrap_or_default();
        view.commit = self.build_commit.get().copied().unwrap_or_default().to_owned();
        let free = view.disk.free_bytes;
        view.disk.full_in_seconds = free.and_then(|free| self.forecast.seconds_until_full(free));
        let warnings = view.certificates.iter().filter_map(CertificateView::warning);
        view.notices.extend(warnings);
        if let Some(trust) = self.protection.trust() {
            let certificates = view.certificates.iter();
            let errors: Vec<_> = certificates
                .filter_map(|certificate| certificate.error(trust.own_name()))
                .collect();
            let mut errors = errors.into_iter();
            view.error = view.error.take().or_else(|| errors.next());
            view.notices.extend(errors);
        }
        view
    }

    fn certificate_views(&self) -> Vec<CertificateView> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = i64::try_from(now.unwrap_or_default().as_secs()).unwrap_or(i64::MAX);
        let expiries = self.protection.trust().map(NodeTrust::expiries);
        let expiries = expiries.unwrap_or_default();
        let certificates = expiries.iter().map(|expiry| (expiry.purpose, expiry.validity));
        CertificateView::views_of_all(certificates, now)
    }

    fn certificate_metrics(&self) -> String {
        let mut text = String::new();
        for (at, certificate) in self.certificate_views().iter().enumerate() {
            let name = "quorate_certificate_ends_unix_seconds";
            if at == 0 {
                let help = "When a certificate of this node ends, in seconds since 1970.";
                let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
            }
            let CertificateView { what, ends_unix_s, .. } = certificate;
            let _ = writeln!(text, "{name}{{what=\"{what}\",number=\"{at}\"}} {ends_unix_s}");
        }
        text
    }

    fn refused_metrics(&self) -> String {
        let name = "quorate_admin_refused_total";
        let help = "Requests at the admin address refused for want of a role.";
        let refused = self.refused_requests.load(Ordering::Relaxed);
        format!("# HELP {name} {help}\n# TYPE {name} counter\n{name} {refused}\n")
    }

    async fn status(&self) -> Result<(Status, &'static str), Failure> {
        let answer =
            self.run_blocking(|handle, store| handle.status().map(|status| (status, store)));
        answer.await?.map_err(Failure::unanswered)
    }
}

/// Reason why the admin server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot listen on --admin {address}: {}", detail(.source))]
    Listen { address: String, source: io::Error },
    /// Other machines can reach the address, but the server does not authenticate callers.
    #[error(
        "cannot listen on --admin {address}: other machines can reach this address, and there is no authentication"
    )]
    Unprotected { address: String },
    /// The server's thread cannot be started.
    #[error("start the admin thread: {0}")]
    Thread(#[source] io::Error),
}

fn detail(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => "the address is in use by another process".to_owned(),
        _ => error.to_string(),
    }
}

thread_local! {
    static SERVES: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether the calling thread belongs to the admin server. The node can run without its
/// admin server, so a panic on this thread does not abort the process.
pub fn is_admin_thread() -> bool {
    SERVES.get()
}

fn serve(listener: TcpListener, admin: Admin) -> io::Result<()> {
    let limits = connections::Limits::default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        // Every connection may wait for the reactor, and requesting histories takes one more
        // thread.
        .max_blocking_threads(limits.connections_max + dashboard::CONCURRENT_QUERIES_MAX + 1)
        .build()?;
    runtime.block_on(async {
        let listener = connections::into_async_listener(listener)?;
        let trust = admin.protection.trust().cloned();
        tokio::spawn(history::sample_until_end(admin.clone()));
        connections::serve(listener, router(admin), trust, limits).await;
        Ok(())
    })
}

fn router(admin: Admin) -> Router {
    let pages = Router::new()
        .route("/health", get(health))
        .route("/ready", get(ready))
        .route("/status", get(status))
        .route("/metrics", get(metrics))
        .route("/history", get(history::handle_own))
        .route("/history/all", get(history::handle_all))
        .route("/members", get(members).post(handle_members))
        .route("/transfer", post(transfer))
        .route("/snapshot", post(snapshot))
        .route("/scrub", post(scrub))
        .route("/backup", get(backup::handle_backup))
        .route("/tuning", get(tuning).post(handle_hold))
        .route("/join", post(handle_join))
        .route("/users", get(users::handle_users).post(users::handle_change))
        .route("/audit", get(audit::handle_audit))
        .route("/doctor/multicast", post(reaching::handle_listen))
        .route("/doctor/multicast/send", post(reaching::handle_send))
        .route("/doctor/multicast/heard", post(reaching::handle_counts))
        .merge(dashboard::routes());
    add_fallbacks(pages, PATHS)
        .layer(from_fn_with_state(admin.clone(), authorize_request))
        .layer(from_fn(refuse_foreign_pages))
        .with_state(admin)
}

/// Adds error responses that list the available pages, and limits request bodies.
fn add_fallbacks<S: Clone + Send + Sync + 'static>(
    router: Router<S>,
    pages: &'static str,
) -> Router<S> {
    router
        .fallback(move || async move {
            let status = StatusCode::NOT_FOUND;
            Failure::new(status, "not_found", "there is no such path", pages)
        })
        .method_not_allowed_fallback(move || async move {
            let status = StatusCode::METHOD_NOT_ALLOWED;
            Failure::new(status, "bad_method", "this path does not support this method", pages)
        })
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
}

/// Refuses state-changing requests from pages of other sites.
async fn refuse_foreign_pages(request: Request, next: Next) -> Result<Response, Failure> {
    if !browser::is_foreign_change(request.method(), request.headers()) {
        return Ok(next.run(request).await);
    }
    tracing::debug!(page = ?request.headers().get(ORIGIN), "refused a page of another site");
    Err(Failure::foreign_page())
}

const PATHS: &str = "GET / /events /health /ready /status /metrics /history /members /backup /tuning /users \
                     /audit, POST /members /join /transfer /snapshot /scrub /tuning /users /act /doctor/multicast";

/// Reports whether the node is alive, which includes starting and stopping. Fails if the reactor
/// does not respond, in which case a restart may help.
async fn health(State(admin): State<Admin>) -> Result<&'static str, Failure> {
    if matches!(*admin.lock_phase(), Phase::Starting(_)) {
        return Ok("alive\n");
    }
    match admin.run_blocking(|handle, _| handle.status().err()).await? {
        None | Some(Unanswered::Stopped) => Ok("alive\n"),
        Some(unanswered @ (Unanswered::Busy | Unanswered::TimedOut)) => {
            Err(Failure::unanswered(unanswered))
        }
    }
}

/// Reports whether the node is ready. With `?streams`, a node that does not accept stream bytes is
/// not ready. Without it, such a node is ready, but the response contains the reason.
async fn ready(State(admin): State<Admin>, uri: Uri) -> Result<String, Failure> {
    let (status, _) = admin.status().await?;
    let asks_for_streams = match uri.query().unwrap_or_default() {
        "" => false,
        "streams" => true,
        _ => {
            return Err(Failure::new(
                StatusCode::BAD_REQUEST,
                "bad_request",
                "GET /ready accepts only streams",
                "docs/operate.md shows it",
            ));
        }
    };
    if let Some(why) = serving_obstacle(&status) {
        return Err(not_ready(&status, &why));
    }
    let probed = admin.run_blocking(|handle, _| handle.probe()).await?;
    match probed.map_err(Failure::unanswered)? {
        ProbeOutcome::Served => match &status.streams.stop_reason {
            None => Ok("ready\n".to_owned()),
            Some(why) if asks_for_streams => Err(not_ready(&status, &streams_refused_text(why))),
            Some(why) => Ok(format!("ready\n{}\n", streams_refused_text(why))),
        },
        missed => {
            // The status may have changed while the probe was in flight.
            let (status, _) = admin.status().await?;
            Err(not_ready(&status, &missed.to_string()))
        }
    }
}

/// Formats the reason why byte streams are not accepted although commands are.
fn streams_refused_text(why: &str) -> String {
    format!("byte streams are not taken in: {why}")
}

fn not_ready(status: &Status, why: &str) -> Failure {
    let progress = status.progress.as_ref().map(ProgressView::from_node);
    let message = match &progress {
        Some(progress) => format!("{why}; {progress}"),
        None => why.to_owned(),
    };
    let hint = match status.removed {
        true => "use another node; this one can be switched off",
        false => TRY_LATER_HINT,
    };
    let unavailable = StatusCode::SERVICE_UNAVAILABLE;
    Failure::new(unavailable, "not_ready", &message, hint).with_progress(progress)
}

/// Returns why this node cannot serve linearizable requests, as far as its status shows.
fn serving_obstacle(status: &Status) -> Option<String> {
    // The error of a learner only states that it does not vote. It serves until it is removed.
    if (status.role != effect::Role::Learner || status.removed)
        && let Some(error) = &status.error
    {
        return Some(error.clone());
    }
    let reason = |why: &str| {
        let more = status.error.iter().chain(&status.notices);
        more.fold(why.to_owned(), |text, more| format!("{text}; {more}"))
    };
    let Some(leader) = status.leader else {
        return Some(reason("no leader with a quorum is known"));
    };
    let connected = |node| {
        let mut peers = status.peers.iter();
        peers.any(|peer| peer.member.node == node && peer.connected)
    };
    if leader != status.member.node && !connected(leader) {
        return Some(reason(&format!("the leader, node {leader}, is not connected")));
    }
    None
}

async fn status(State(admin): State<Admin>) -> Result<Json<NodeView>, Failure> {
    let (status, store) = admin.status().await?;
    Ok(Json(admin.node_view(&status, store)))
}

async fn metrics(State(admin): State<Admin>) -> Result<Response, Failure> {
    let commit = admin.build_commit.get().copied().unwrap_or_default();
    let metrics = admin.run_blocking(move |handle, _| {
        let mut metrics = handle.metrics()?;
        metrics.text.push_str(BUILD_INFO_METRIC);
        let version = env!("CARGO_PKG_VERSION");
        let labels = format!("version=\"{version}\",commit=\"{commit}\"");
        metrics.text += &format!("quorate_build_info{{{labels}}} 1\n");
        process::render(&mut metrics.text);
        Ok(metrics)
    });
    let metrics = metrics.await?.map_err(Failure::unanswered)?;
    Ok((
        [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")],
        metrics.text + &admin.certificate_metrics() + &admin.refused_metrics(),
    )
        .into_response())
}

async fn members(State(admin): State<Admin>) -> Result<Json<MembersView>, Failure> {
    let both = admin.run_blocking(|handle, _| Ok((handle.members()?, handle.status()?)));
    let (members, status) = both.await?.map_err(Failure::unanswered)?;
    Ok(Json(MembersView::new(&members, &status)))
}

/// Returns the role that a request requires. Priorities and dry runs require an operator, other
/// membership changes an admin.
fn required_role(request: &MembersRequest) -> Role {
    match request.clone().into_commands() {
        Ok((GroupRequest::Priority(..), _) | (_, true)) => Role::Operator,
        Ok((_, false)) | Err(_) => Role::Admin,
    }
}

/// Changes the membership. Requires the JSON content type for the same reason as `transfer`.
async fn handle_members(
    State(admin): State<Admin>,
    Extension(asker): Extension<Requester>,
    JsonBody(request): JsonBody<MembersRequest>,
) -> Result<Json<MembersOutcome>, Failure> {
    check_role(&asker, required_role(&request))?;
    let (ask, dry_run) = request.into_commands().map_err(|why| Failure::bad_request(&why))?;
    let outcome = admin.run_blocking(move |handle, _| handle.ask_group(ask, dry_run)).await?;
    Ok(Json(MembersOutcome::new(&outcome.map_err(Failure::from_group_error)?)))
}

/// Transfers leadership. Requires the JSON content type, which other sites' pages cannot send.
async fn transfer(
    State(admin): State<Admin>,
    JsonBody(request): JsonBody<TransferRequest>,
) -> Result<Json<Transferred>, Failure> {
    let to = request.to.map(NodeId);
    let outcome = admin.run_blocking(move |handle, _| handle.transfer(to)).await?;
    let leader = outcome.map_err(Failure::from_transfer_error)?;
    Ok(Json(Transferred { leader: leader.0 }))
}

/// Starts a snapshot. Responds before a large snapshot is complete, so that the connection does not
/// remain occupied. Requires the JSON content type for the same reason as `transfer`.
async fn snapshot(
    State(admin): State<Admin>,
    JsonBody(request): JsonBody<SnapshotRequest>,
) -> Result<Json<SnapshotView>, Failure> {
    let at = request.at.map(Slot);
    let outcome = admin.run_blocking(move |handle, _| handle.snapshot(at)).await?;
    let snapshot = outcome.map_err(Failure::from_snapshot_error)?;
    Ok(Json(SnapshotView::new(snapshot)))
}

/// Starts a scrub and responds at once. The status then reports the scrub's progress. Requires the
/// JSON content type for the same reason as `transfer`.
async fn scrub(
    State(admin): State<Admin>,
    JsonBody(request): JsonBody<ScrubRequest>,
) -> Result<Json<ScrubView>, Failure> {
    let pace = request.bytes_per_second;
    if pace.is_some_and(|pace| pace < BYTES_PER_SECOND_MIN) {
        return Err(Failure::bad_request(&format!(
            "bytes_per_second must be at least {BYTES_PER_SECOND_MIN}"
        )));
    }
    let status = admin.run_blocking(move |handle, _| handle.scrub(pace)).await?;
    let status = status.map_err(Failure::unanswered)?;
    Ok(Json(ScrubView::new(&status.scrub)))
}

/// Reserves an id for a new node. Requires the JSON content type, as `transfer` does.
async fn handle_join(
    State(admin): State<Admin>,
    JsonBody(request): JsonBody<JoinRequest>,
) -> Result<Json<JoinAnswer>, Failure> {
    let joined = {
        let trust = admin.protection.trust().cloned();
        admin.run_blocking(move |handle, _| joining::assign_id(handle, &request, trust.as_ref()))
    };
    joined.await?.map(Json)
}

async fn tuning(State(admin): State<Admin>) -> Result<Json<TuningView>, Failure> {
    let report = admin.run_blocking(|handle, _| handle.tuning()).await?;
    Ok(Json(TuningView::new(&report.map_err(Failure::unanswered)?)))
}

/// Pins or unpins batch size and window. Requires the JSON content type, as `transfer` does.
async fn handle_hold(
    State(admin): State<Admin>,
    JsonBody(request): JsonBody<HoldRequest>,
) -> Result<Json<TuningView>, Failure> {
    let (setting, ms) = (request.pinned_setting()?, request.pin_ms());
    let report = admin.run_blocking(move |handle, _| handle.fix_setting(setting, ms)).await?;
    Ok(Json(TuningView::new(&report.map_err(Failure::unanswered)?)))
}

impl HoldRequest {
    fn pinned_setting(&self) -> Result<Option<Setting>, Failure> {
        let Some(hold) = self.hold else {
            return Ok(None);
        };
        if hold.batch_bytes == 0 || hold.window == 0 || !(1..=PIN_MS_MAX).contains(&hold.ms) {
            return Err(Failure::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "bad_request",
                "batch_bytes and window are at least 1, ms is 1 … 600000",
                "{\"hold\": null} ends a hold",
            ));
        }
        Ok(Some(Setting { batch_bytes: hold.batch_bytes, window: hold.window }))
    }

    fn pin_ms(&self) -> u64 {
        self.hold.map_or(0, |hold| hold.ms)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use quorate_core::{
        ballot::{Ballot, Era},
        node_id::Member,
        record::Class,
        slot::Slot,
    };
    use quorate_replica::status::{Addresses, DiskUse, Peer, PeerPlane};

    use super::*;
    use crate::client;

    const WAIT: Duration = Duration::from_secs(10);

    fn starting() -> (Admin, String) {
        let admin = Admin::start("127.0.0.1:0", NodeId(7), Protection::Loopback).unwrap();
        let address = admin.address().to_string();
        (admin, address)
    }

    #[test]
    fn a_starting_node_is_alive_but_not_ready() {
        let (admin, address) = starting();
        admin.set_starting("waiting for the founder");
        assert_eq!(client::get(&address, "/health", WAIT).unwrap().status, 200);
        for page in ["/ready", "/status", "/metrics", "/members"] {
            let response = client::get(&address, page, WAIT).unwrap();
            assert_eq!(response.status, 503, "{page}");
            assert!(response.body.contains("waiting for the founder"), "{}", response.body);
        }
    }

    /// A health check is served even if a broken monitor leaves all connections open.
    #[test]
    fn health_check_is_served_despite_idle_connections() {
        let (_admin, address) = starting();
        let idle: Vec<_> =
            (0..200).map(|_| std::net::TcpStream::connect(&address).unwrap()).collect();
        assert_eq!(client::get(&address, "/health", WAIT).unwrap().status, 200);
        drop(idle);
    }

    /// A node that is reading its log reports its progress in words and numbers.
    #[test]
    fn node_reading_its_log_reports_progress() {
        let (admin, address) = starting();
        admin.set_starting("opening the log");
        let reading = |read| ReadProgress { read, total: 400 };
        admin.set_reading(reading(0));
        admin.set_reading(reading(100));
        let response = client::get(&address, "/ready", WAIT).unwrap();
        let refusal = response.parse_json::<NodeView>().unwrap_err();
        assert_eq!((refusal.code.as_str(), refusal.node), ("starting", Some(7)));
        let said = "reading the log: 100 B of 400 B, 25 %";
        assert!(refusal.message.starts_with(said), "{}", refusal.message);
        let progress = refusal.progress.unwrap();
        assert_eq!((progress.at, progress.to, progress.percent), (100, 400, 25));
    }

    #[test]
    fn unknown_paths_and_invalid_bodies_are_refused() {
        let (_admin, address) = starting();
        assert_eq!(client::get(&address, "/nowhere", WAIT).unwrap().status, 404);
        assert_eq!(client::get(&address, "/transfer", WAIT).unwrap().status, 405);
        let post = |path: &str, body: &str| client::post(&address, path, body, WAIT).unwrap();
        for (path, body) in [
            ("/transfer", "{\"two\":2}"),
            ("/members", "{}"),
            ("/members", "{\"promote\":2,\"remove\":2}"),
            ("/members", "{\"address\":[2,\"nowhere\"]}"),
        ] {
            let refused = post(path, body);
            assert_eq!(refused.status, 422, "{path} {body}");
            let refusal = refused.parse_json::<()>().unwrap_err();
            assert_eq!(refusal.code, "bad_request", "{path} {body}");
        }
        // A valid request is refused because the node is still starting.
        assert_eq!(post("/members", "{\"promote\":2}").status, 503);
        let large = format!("{{\"to\":{}}}", " ".repeat(BODY_BYTES_MAX));
        assert_eq!(client::post(&address, "/transfer", &large, WAIT).unwrap().status, 413);
    }

    /// In DNS rebinding, the browser sends the attacker's host name.
    #[test]
    fn pages_of_other_sites_change_nothing() {
        let (_admin, address) = starting();
        for path in [
            "/members",
            "/join",
            "/transfer",
            "/snapshot",
            "/scrub",
            "/tuning",
            "/act",
            "/doctor/multicast",
            "/doctor/multicast/send",
            "/doctor/multicast/heard",
        ] {
            let host = format!("evil.example\r\nOrigin: http://evil.example\r\nX: {address}");
            let text = post_as(&address, path, &host);
            assert!(text.starts_with("HTTP/1.0 403"), "{text}");
            assert!(text.contains("\"code\":\"foreign_page\""), "{text}");
            let own = format!("{address}\r\nOrigin: http://{address}");
            let text = post_as(&address, path, &own);
            assert!(!text.starts_with("HTTP/1.0 403"), "{text}");
        }
    }

    fn post_as(address: &str, path: &str, host: &str) -> String {
        use std::io::{Read as _, Write as _};
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        write!(
            stream,
            "POST {path} HTTP/1.0\r\nHost: {host}\r\nContent-Type: application/json\r\n\
             Content-Length: 13\r\n\r\n{{\"hold\":null}}"
        )
        .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn port_in_use_is_an_error_with_flag_and_address() {
        let (_admin, address) = starting();
        let error = Admin::start(&address, NodeId(8), Protection::Loopback).unwrap_err();
        let message =
            format!("cannot listen on --admin {address}: the address is in use by another process");
        assert_eq!(error.to_string(), message);
    }

    fn status(leader: Option<u32>, connected: bool, error: Option<&str>) -> Status {
        let peer = |node, connected| Peer {
            member: Member::first(node),
            weight: 1,
            auxiliary: false,
            connected,
            lag: None,
            payload_bytes_sent: 0,
            engaged: None,
            addresses: Addresses::default(),
            plane: PeerPlane::default(),
        };
        Status {
            cluster: 1,
            member: Member::first(1),
            role: effect::Role::Follower,
            leader: leader.map(NodeId),
            era: Era(0),
            level: quorate_replica::status::LevelStatus::default(),
            plan: None,
            removed: false,
            ballot: Ballot::ZERO,
            decided_to: Slot(1),
            applied_to: Slot(1),
            durable_to: Slot(1),
            class: Class::Durable,
            log_bytes: 0,
            log_start: Slot::FIRST,
            snapshot: None,
            snapshot_taking: None,
            ring: Vec::new(),
            choices: Vec::new(),
            scrub: quorate_replica::ScrubStatus::default(),
            device: None,
            disk: DiskUse::default(),
            streams: quorate_replica::status::Streams::default(),
            traffic: quorate_replica::status::Traffic::default(),
            reigns: Vec::new(),
            quorum: quorate_core::quorum::QuorumRule::Majority,
            progress: None,
            error: error.map(str::to_owned),
            notices: Vec::new(),
            peers: vec![peer(1, true), peer(2, connected)],
        }
    }

    #[test]
    fn node_is_ready_only_if_a_leader_is_reachable() {
        assert_eq!(serving_obstacle(&status(Some(1), false, None)), None);
        assert_eq!(serving_obstacle(&status(Some(2), true, None)), None);
        let why = |status| serving_obstacle(&status).unwrap();
        assert_eq!(why(status(None, true, None)), "no leader with a quorum is known");
        assert_eq!(why(status(Some(2), false, None)), "the leader, node 2, is not connected");
        assert_eq!(why(status(Some(2), true, Some("the log failed"))), "the log failed");
    }

    /// [volatile-1] A node that lost its votes still serves what the other nodes decide.
    #[test]
    fn a_learner_is_ready_although_it_reports_that_it_does_not_vote() {
        let learner = |leader| {
            let error = Some("votes are forgotten");
            Status { role: effect::Role::Learner, ..status(leader, true, error) }
        };
        assert_eq!(serving_obstacle(&learner(Some(2))), None);
        let removed = Status { removed: true, ..learner(Some(2)) };
        assert_eq!(serving_obstacle(&removed).unwrap(), "votes are forgotten");
        let hint = |status| format!("{:?}", not_ready(status, "no"));
        assert!(hint(&removed).contains("use another node; this one can be switched off"));
        assert!(hint(&learner(None)).contains(TRY_LATER_HINT));
        let why = serving_obstacle(&learner(None)).unwrap();
        assert_eq!(why, "no leader with a quorum is known; votes are forgotten");
    }

    /// A notice is added to the reason for not serving, but is no reason by itself.
    #[test]
    fn notice_is_added_to_the_reason_but_does_not_block() {
        let with = |leader| Status {
            notices: vec!["node 2 belongs to another cluster".to_owned()],
            ..status(leader, true, None)
        };
        assert_eq!(serving_obstacle(&with(Some(2))), None);
        let why = serving_obstacle(&with(None)).unwrap();
        let expected = "no leader with a quorum is known; node 2 belongs to another cluster";
        assert_eq!(why, expected);
    }
}
