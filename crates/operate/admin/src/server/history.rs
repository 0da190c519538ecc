//! Traffic history of the last minutes. Traffic is sampled once a second even if no page is open,
//! because operators often look only after an incident.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use axum::{Json, extract::State, http::HeaderMap};
use tokio::{
    task::spawn_blocking,
    time::{MissedTickBehavior, interval},
};

use super::{Admin, browser, failure::Failure, forecast};
use crate::{
    client,
    look::QUERIED_NODES_MAX,
    traffic::{HistoryView, SAMPLES_MAX, SampleView, TrafficView},
};

const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// Time limit for collecting the histories of all other nodes.
const COLLECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Traffic samples of the last minutes, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct TrafficHistory(Arc<Mutex<VecDeque<SampleView>>>);

impl TrafficHistory {
    fn lock_samples(&self) -> MutexGuard<'_, VecDeque<SampleView>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, sample: SampleView) {
        let mut samples = self.lock_samples();
        if samples.len() >= SAMPLES_MAX {
            samples.pop_front();
        }
        samples.push_back(sample);
    }
}

/// Samples the traffic every second, and the folder less often, until the server ends.
pub(super) async fn sample_until_end(admin: Admin) {
    let mut ticks = interval(SAMPLE_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before: Option<(Instant, TrafficView)> = None;
    let mut measured: Option<Instant> = None;
    loop {
        ticks.tick().await;
        if measured.is_none_or(|at| at.elapsed() >= forecast::MEASURE_INTERVAL) {
            measured = Some(Instant::now());
            let admin = admin.clone();
            spawn_blocking(move || admin.measure_folder());
        }
        let Ok((status, _)) = admin.status().await else {
            continue;
        };
        let now = Instant::now();
        let traffic = TrafficView::new(status.traffic);
        if let Some((then, was)) = &before
            && let Some(added) = traffic.increase_since(was)
        {
            admin.history.push(SampleView {
                at_ms: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, to_millis),
                span_ms: to_millis(now - *then).max(1),
                leader: status.leader.map(|leader| leader.0),
                traffic: added,
            });
        }
        before = Some((now, traffic));
    }
}

fn to_millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

pub(super) async fn handle_own(State(admin): State<Admin>) -> Json<HistoryView> {
    Json(history_view(&admin))
}

fn history_view(admin: &Admin) -> HistoryView {
    HistoryView {
        node: admin.node_id().map_or(0, |node| node.0),
        samples: admin.history.lock_samples().iter().cloned().collect(),
    }
}

/// Returns the histories of this node and of all other nodes that respond in time.
pub(super) async fn handle_all(
    State(admin): State<Admin>,
    headers: HeaderMap,
) -> Result<Json<Vec<HistoryView>>, Failure> {
    if browser::is_foreign_site(&headers) {
        return Err(Failure::foreign_page());
    }
    let own = history_view(&admin);
    // A starting node has no peers yet.
    let peers = admin.status().await.map_or_else(
        |_| Vec::new(),
        |(status, _)| status.peers.into_iter().take(QUERIED_NODES_MAX).collect(),
    );
    let others = peers.into_iter().filter_map(|peer| {
        let (node, address) = (peer.member.node.0, peer.addresses.admin);
        (node != own.node && !address.is_empty()).then_some((node, address))
    });
    let others: Vec<(u32, String)> = others.collect();
    let heard = spawn_blocking(move || request_histories(&others));
    let mut histories = vec![own];
    histories.extend(heard.await.unwrap_or_default());
    Ok(Json(histories))
}

/// Requests the histories one after another on this thread, which is fast enough because a page
/// requests them only once.
fn request_histories(others: &[(u32, String)]) -> Vec<HistoryView> {
    let until = Instant::now() + COLLECT_TIMEOUT;
    let mut heard = Vec::new();
    for (at, (node, address)) in others.iter().enumerate() {
        // Divides the remaining time, so that an unresponsive node does not use all of it.
        let left = until.saturating_duration_since(Instant::now());
        let share = left / u32::try_from(others.len() - at).unwrap_or(u32::MAX);
        let Ok(response) = client::get(address, "/history", share) else {
            continue;
        };
        match response.parse_json::<HistoryView>() {
            Ok(history) if history.node == *node => heard.push(history),
            Ok(_) | Err(_) => {}
        }
    }
    heard
}
