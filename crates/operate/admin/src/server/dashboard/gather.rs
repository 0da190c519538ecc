//! Data of the page, gathered once a second for all watching pages: this node's status, and the
//! others' from their admin addresses.
//!
//! A node that does not answer delays no other: it is asked again when the last request is over,
//! and its last answer is shown with its age.

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
    look::{NODES_MAX, ask},
    tuning::TuningView,
    view::{Answer, MemberView, NodeView, ProgressView},
};

/// Between two documents.
const PAUSE: Duration = Duration::from_secs(1);
/// A document waits so long for answers; what comes later is in the next one.
const PATIENCE: Duration = Duration::from_millis(250);
/// A node has so long to answer.
const WAIT: Duration = Duration::from_millis(2500);
/// Nodes that are asked at the same time.
pub(in super::super) const ASKED_MAX: usize = 16;

/// State of a node.
#[derive(Clone, Debug, Default)]
struct Heard {
    /// Its last answer, and when.
    said: Option<(Instant, Box<NodeView>)>,
    /// Why there is nothing newer.
    trouble: Option<String>,
    /// It answers, and does not run yet.
    is_starting: bool,
    progress: Option<ProgressView>,
    /// A request is in flight.
    is_asked: bool,
}

impl Heard {
    fn take(&mut self, answer: Answer) {
        self.is_asked = false;
        (self.is_starting, self.progress) = (false, None);
        match answer {
            Answer::Node(view) => {
                self.said = Some((Instant::now(), view));
                self.trouble = None;
            }
            Answer::Starting { error, progress, .. } => {
                (self.is_starting, self.progress) = (true, progress);
                self.trouble = Some(error);
            }
            Answer::Unreachable { error, .. } => self.trouble = Some(error),
        }
    }
}

/// State of all nodes.
#[derive(Clone, Debug, Default)]
struct Ears(Arc<Mutex<BTreeMap<u32, Heard>>>);

impl Ears {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, Heard>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One document: everything that the page shows.
#[derive(Serialize)]
struct Document<'a> {
    /// Milliseconds since 1970, by this node's clock.
    at_ms: u64,
    /// The answering node.
    here: u32,
    /// Pages that watch this node.
    watchers: usize,
    /// In order of ids.
    nodes: Vec<NodeDocument<'a>>,
    /// The leader's tuner; null if unknown.
    tuning: Option<&'a TuningView>,
}

/// A node, as far as it was heard of.
#[derive(Serialize)]
struct NodeDocument<'a> {
    node: u32,
    /// Address of its own page, if known.
    admin: Option<&'a str>,
    /// Since it said what follows.
    age_ms: Option<u64>,
    /// Its last answer.
    view: Option<&'a NodeView>,
    /// Why there is nothing newer.
    trouble: Option<&'a str>,
    /// It answers, and does not run yet.
    is_starting: bool,
    progress: Option<&'a ProgressView>,
}

impl<'a> NodeDocument<'a> {
    fn new(node: u32, heard: &'a Heard, members: &'a [MemberView]) -> Self {
        let member = members.iter().find(|member| member.node == node);
        let said = heard.said.as_ref();
        Self {
            node,
            admin: member.and_then(|member| member.admin.as_deref()),
            age_ms: said.map(|(at, _)| ms(at.elapsed())),
            view: said.map(|(_, view)| &**view),
            trouble: heard.trouble.as_deref(),
            is_starting: heard.is_starting,
            progress: heard.progress.as_ref(),
        }
    }
}

fn ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Gathers as long as a page watches.
pub(super) async fn gather(admin: Admin) {
    let ears = Ears::default();
    let places = Arc::new(Semaphore::new(ASKED_MAX));
    let mut ticks = interval(PAUSE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut tuning = None;
    loop {
        ticks.tick().await;
        let Some(watchers) = admin.audience().count_or_end() else {
            return;
        };
        let members = hear_own(&admin, &ears).await;
        let mut asked = ask_others(&admin, &members, &ears, &places);
        let leader = leader(&ears);
        let told = tuning_of(&admin, leader, &members);
        let all = async { while asked.join_next().await.is_some() {} };
        // Those who are late go on without this set.
        let _ = timeout(PATIENCE, all).await;
        asked.detach_all();
        tuning = timeout(PATIENCE, told).await.unwrap_or(tuning);
        admin.audience().show(&document(&admin, &members, &ears, watchers, tuning.as_ref()));
    }
}

/// Records this node's own status; returns the members that it knows.
async fn hear_own(admin: &Admin, ears: &Ears) -> Vec<MemberView> {
    let here = admin.node().map_or(0, |node| node.0);
    let answer = match admin.status().await {
        Ok((status, store)) => Answer::Node(Box::new(NodeView::new(&status, store))),
        Err(failure) => Answer::Starting {
            node: Some(here),
            error: failure.message().to_owned(),
            progress: failure.how_far().cloned(),
        },
    };
    let mut heard = ears.lock();
    heard.entry(here).or_default().take(answer);
    let own = heard.get(&here).and_then(|heard| heard.said.as_ref());
    let members: Vec<MemberView> = own
        .map_or_else(Vec::new, |(_, view)| view.members.iter().take(NODES_MAX).cloned().collect());
    let ids: BTreeSet<u32> = members.iter().map(|member| member.node).collect();
    heard.retain(|node, _| *node == here || ids.contains(node));
    members
}

/// Asks the nodes that have answered the last request.
fn ask_others(
    admin: &Admin,
    members: &[MemberView],
    ears: &Ears,
    places: &Arc<Semaphore>,
) -> JoinSet<()> {
    let mut asked = JoinSet::new();
    for member in members {
        let node = member.node;
        if admin.node() == Some(NodeId(node)) {
            continue;
        }
        let mut heard = ears.lock();
        let entry = heard.entry(node).or_default();
        let Some(address) = member.admin.clone() else {
            entry.trouble = Some("its admin address is not known yet".to_owned());
            continue;
        };
        if entry.is_asked {
            continue;
        }
        let Ok(place) = Arc::clone(places).try_acquire_owned() else {
            continue;
        };
        entry.is_asked = true;
        drop(heard);
        let ears = ears.clone();
        asked.spawn(async move {
            let answer = spawn_blocking(move || ask(Some(node), &address, WAIT)).await;
            let answer = answer.unwrap_or_else(|_| Answer::Unreachable {
                node: Some(node),
                error: "it could not be asked".to_owned(),
            });
            if let Some(heard) = ears.lock().get_mut(&node) {
                heard.take(answer);
            }
            drop(place);
        });
    }
    asked
}

/// Returns the leader of the highest ballot.
fn leader(ears: &Ears) -> Option<u32> {
    let heard = ears.lock();
    let views = heard.values().filter_map(|heard| heard.said.as_ref());
    let claims = views.filter_map(|(_, view)| Some((view.ballot, view.leader?)));
    claims.max().map(|(_, leader)| leader)
}

/// Returns the leader's tuner status. Predictions of other settings are left to `quorate tune`.
async fn tuning_of(
    admin: &Admin,
    leader: Option<u32>,
    members: &[MemberView],
) -> Option<TuningView> {
    let leader = leader?;
    let view = if admin.node() == Some(NodeId(leader)) {
        let report = admin.ask(|handle, _| handle.tuning()).await.ok()?.ok()?;
        TuningView::new(&report)
    } else {
        let mut members = members.iter();
        let address = members.find(|member| member.node == leader)?.admin.clone()?;
        let asked = spawn_blocking(move || client::get(&address, "/tuning", PATIENCE)).await;
        asked.ok()?.ok()?.json().ok()?
    };
    Some(TuningView { grid: Vec::new(), ..view })
}

/// As an event of a server: one line, and an empty one.
fn document(
    admin: &Admin,
    members: &[MemberView],
    ears: &Ears,
    watchers: usize,
    tuning: Option<&TuningView>,
) -> Bytes {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    let heard = ears.lock();
    let document = Document {
        at_ms: since_1970.map_or(0, ms),
        here: admin.node().map_or(0, |node| node.0),
        watchers,
        nodes: heard.iter().map(|(node, heard)| NodeDocument::new(*node, heard, members)).collect(),
        tuning,
    };
    let json = serde_json::to_string(&document).expect("texts and numbers are always JSON");
    format!("data: {json}\n\n").into()
}
