//! Gathers the dashboard's data once a second for all open pages: this node's status from the
//! reactor, and that of every other node from its admin address.
//!
//! A slow node does not delay the others. It is queried again once its pending request has ended.
//! Until then, its last status is shown with its age.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use axum::body::Bytes;
use quorate_core::node_id::NodeId;
use serde::Serialize;
use tokio::{
    sync::Semaphore,
    task::{JoinSet, spawn_blocking},
    time::{MissedTickBehavior, interval, timeout},
};

use super::super::Admin;
use crate::{
    client,
    look::{QUERIED_NODES_MAX, query_node},
    tuning::TuningView,
    view::{Answer, MemberView, NodeView, ProgressView},
};

/// Interval between two documents.
const DOCUMENT_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum time for which a document waits for responses. Later responses go into the next one.
const RESPONSE_WAIT: Duration = Duration::from_millis(250);
/// Timeout for a request to a node.
const REQUEST_TIMEOUT: Duration = Duration::from_millis(2500);
/// Maximum number of nodes queried at the same time.
pub(in super::super) const CONCURRENT_QUERIES_MAX: usize = 16;

/// Responses gathered from one node.
#[derive(Clone, Debug, Default)]
struct NodeState {
    /// Last status, and the time at which it arrived.
    last_status: Option<(Instant, Box<NodeView>)>,
    /// Reason why the last request returned no status.
    last_failure: Option<String>,
    /// Set if the node responds but has not finished starting.
    is_starting: bool,
    progress: Option<ProgressView>,
    /// Set if a request to the node is in flight.
    has_request_in_flight: bool,
}

impl NodeState {
    fn record_answer(&mut self, answer: Answer) {
        self.has_request_in_flight = false;
        (self.is_starting, self.progress) = (false, None);
        match answer {
            Answer::Node(view) => {
                self.last_status = Some((Instant::now(), view));
                self.last_failure = None;
            }
            Answer::Starting { error, progress, .. } => {
                (self.is_starting, self.progress) = (true, progress);
                self.last_failure = Some(error);
            }
            Answer::Unreachable { error, .. } => self.last_failure = Some(error),
        }
    }
}

/// Responses gathered from all nodes.
#[derive(Clone, Debug, Default)]
struct NodeStates(Arc<Mutex<BTreeMap<u32, NodeState>>>);

impl NodeStates {
    fn lock_states(&self) -> MutexGuard<'_, BTreeMap<u32, NodeState>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Data that the dashboard shows at one point in time.
#[derive(Serialize)]
struct Document<'a> {
    /// Time of the document by this node's clock, in Unix milliseconds.
    at_ms: u64,
    /// Id of the node that serves the page.
    here: u32,
    /// Number of open pages.
    watchers: usize,
    /// Nodes, sorted by id.
    nodes: Vec<NodeDocument<'a>>,
    /// Status of the leader's tuner. Null if unknown.
    tuning: Option<&'a TuningView>,
}

/// State of one node in the document.
#[derive(Serialize)]
struct NodeDocument<'a> {
    node: u32,
    /// Admin address, at which the node serves its own dashboard. Null if unknown.
    admin: Option<&'a str>,
    /// Age of `view` in milliseconds.
    age_ms: Option<u64>,
    /// Last status received from the node.
    view: Option<&'a NodeView>,
    /// Reason why the last request returned no status.
    trouble: Option<&'a str>,
    /// Set if the node responds but has not finished starting.
    is_starting: bool,
    progress: Option<&'a ProgressView>,
}

impl<'a> NodeDocument<'a> {
    fn new(node: u32, heard: &'a NodeState, members: &'a [MemberView]) -> Self {
        let member = members.iter().find(|member| member.node == node);
        let said = heard.last_status.as_ref();
        Self {
            node,
            admin: member.and_then(|member| member.admin.as_deref()),
            age_ms: said.map(|(at, _)| to_millis(at.elapsed())),
            view: said.map(|(_, view)| &**view),
            trouble: heard.last_failure.as_deref(),
            is_starting: heard.is_starting,
            progress: heard.progress.as_ref(),
        }
    }
}

fn to_millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Gathers and publishes documents while at least one page is open.
pub(super) async fn gather_documents(admin: Admin) {
    let ears = NodeStates::default();
    let places = Arc::new(Semaphore::new(CONCURRENT_QUERIES_MAX));
    let mut ticks = interval(DOCUMENT_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut tuning = None;
    loop {
        ticks.tick().await;
        let Some(watchers) = admin.dashboard_pages.count_or_stop() else {
            return;
        };
        let members = record_own_status(&admin, &ears).await;
        let mut asked = query_others(&admin, &members, &ears, &places);
        let leader = reported_leader(&ears);
        let told = query_leader_tuning(&admin, leader, &members);
        let all = async { while asked.join_next().await.is_some() {} };
        // Late responses go into the next document.
        let _ = timeout(RESPONSE_WAIT, all).await;
        asked.detach_all();
        tuning = timeout(RESPONSE_WAIT, told).await.unwrap_or(tuning);
        admin.dashboard_pages.send_document(&format_document(
            &admin,
            &members,
            &ears,
            watchers,
            tuning.as_ref(),
        ));
    }
}

/// Records this node's own status. Returns the members that the status lists.
async fn record_own_status(admin: &Admin, ears: &NodeStates) -> Vec<MemberView> {
    let here = admin.node_id().map_or(0, |node| node.0);
    let answer = match admin.status().await {
        Ok((status, store)) => Answer::Node(Box::new(NodeView::new(&status, store))),
        Err(failure) => Answer::Starting {
            node: Some(here),
            error: failure.message().to_owned(),
            progress: failure.progress().cloned(),
        },
    };
    let mut heard = ears.lock_states();
    heard.entry(here).or_default().record_answer(answer);
    let own = heard.get(&here).and_then(|heard| heard.last_status.as_ref());
    let members: Vec<MemberView> = own.map_or_else(Vec::new, |(_, view)| {
        view.members.iter().take(QUERIED_NODES_MAX).cloned().collect()
    });
    let ids: BTreeSet<u32> = members.iter().map(|member| member.node).collect();
    heard.retain(|node, _| *node == here || ids.contains(node));
    members
}

/// Queries all other members that have no request in flight.
fn query_others(
    admin: &Admin,
    members: &[MemberView],
    ears: &NodeStates,
    places: &Arc<Semaphore>,
) -> JoinSet<()> {
    let mut asked = JoinSet::new();
    for member in members {
        let node = member.node;
        if admin.node_id() == Some(NodeId(node)) {
            continue;
        }
        let mut heard = ears.lock_states();
        let entry = heard.entry(node).or_default();
        let Some(address) = member.admin.clone() else {
            entry.last_failure = Some("its admin address is not known yet".to_owned());
            continue;
        };
        if entry.has_request_in_flight {
            continue;
        }
        let Ok(place) = Arc::clone(places).try_acquire_owned() else {
            continue;
        };
        entry.has_request_in_flight = true;
        drop(heard);
        let ears = ears.clone();
        asked.spawn(async move {
            let answer =
                spawn_blocking(move || query_node(Some(node), &address, REQUEST_TIMEOUT)).await;
            let answer = answer.unwrap_or_else(|_| Answer::Unreachable {
                node: Some(node),
                error: "it could not be asked".to_owned(),
            });
            if let Some(heard) = ears.lock_states().get_mut(&node) {
                heard.record_answer(answer);
            }
            drop(place);
        });
    }
    asked
}

/// Returns the leader in the highest ballot that any node reports.
fn reported_leader(ears: &NodeStates) -> Option<u32> {
    let heard = ears.lock_states();
    let views = heard.values().filter_map(|heard| heard.last_status.as_ref());
    let claims = views.filter_map(|(_, view)| Some((view.ballot, view.leader?)));
    claims.max().map(|(_, leader)| leader)
}

/// Returns the leader's tuner status without its predictions, which only `quorate tune` shows.
async fn query_leader_tuning(
    admin: &Admin,
    leader: Option<u32>,
    members: &[MemberView],
) -> Option<TuningView> {
    let leader = leader?;
    let view = if admin.node_id() == Some(NodeId(leader)) {
        let report = admin.run_blocking(|handle, _| handle.tuning()).await.ok()?.ok()?;
        TuningView::new(&report)
    } else {
        let mut members = members.iter();
        let address = members.find(|member| member.node == leader)?.admin.clone()?;
        let asked = spawn_blocking(move || client::get(&address, "/tuning", RESPONSE_WAIT)).await;
        asked.ok()?.ok()?.parse_json().ok()?
    };
    Some(TuningView { grid: Vec::new(), ..view })
}

/// Formats a document as a server-sent event: one line of data followed by an empty line.
fn format_document(
    admin: &Admin,
    members: &[MemberView],
    ears: &NodeStates,
    watchers: usize,
    tuning: Option<&TuningView>,
) -> Bytes {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    let heard = ears.lock_states();
    let document = Document {
        at_ms: since_1970.map_or(0, to_millis),
        here: admin.node_id().map_or(0, |node| node.0),
        watchers,
        nodes: heard.iter().map(|(node, heard)| NodeDocument::new(*node, heard, members)).collect(),
        tuning,
    };
    let json = serde_json::to_string(&document).expect("texts and numbers are always JSON");
    format!("data: {json}\n\n").into()
}
