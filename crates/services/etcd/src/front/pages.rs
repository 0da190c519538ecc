//! HTTP pages for version, health and metrics.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{RawQuery, State},
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::time::timeout;

use super::{
    asking::{Freshness, ReplicaAccess},
    gate::Requester,
    metrics,
    settings::ETCD_VERSION,
};
use crate::proto::etcdserverpb::{AlarmMember, AlarmType};

const CHECK_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) fn routes(asking: Arc<ReplicaAccess>) -> Router {
    Router::new()
        .route("/version", get(version))
        .route("/health", get(health))
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(|State(asking)| metrics::metrics_page(asking)))
        .with_state(asking)
}

fn json_response(status: StatusCode, body: String) -> Response {
    (status, [(CONTENT_TYPE, "application/json")], body).into_response()
}

async fn version() -> Response {
    let body = format!(
        r#"{{"etcdserver":"{ETCD_VERSION}","etcdcluster":"{ETCD_VERSION}","storage":"{ETCD_VERSION}"}}"#
    );
    json_response(StatusCode::OK, body)
}

/// Returns whether this member can serve linearizable reads, or with `?serializable=true`, reads of
/// its local state.
async fn is_healthy(asking: &ReplicaAccess, query: Option<&str>) -> bool {
    let mut words = query.unwrap_or_default().split('&');
    let freshness = Freshness::from_serializable(words.any(|word| word == "serializable=true"));
    let asked = timeout(CHECK_TIMEOUT, asking.figures(freshness)).await;
    matches!(asked, Ok(Ok(_)))
}

/// Returns the first raised alarm whose kind is not excluded by `?exclude=KIND`.
async fn raised_alarm(asking: &ReplicaAccess, query: Option<&str>) -> Option<AlarmType> {
    let excluded = |kind: &AlarmType| {
        let mut words = query.unwrap_or_default().split('&');
        words.any(|word| word.strip_prefix("exclude=") == Some(kind.as_str_name()))
    };
    let alarms = asking.alarms(&Requester::Member).await.unwrap_or_default();
    let mut kinds = alarms.iter().map(AlarmMember::alarm);
    kinds.find(|kind| !excluded(kind))
}

async fn health(State(asking): State<Arc<ReplicaAccess>>, RawQuery(query): RawQuery) -> Response {
    let query = query.as_deref();
    let reason = match raised_alarm(&asking, query).await {
        Some(kind) => format!("ALARM {}", kind.as_str_name()),
        None if is_healthy(&asking, query).await => {
            let body = r#"{"health":"true","reason":""}"#.to_owned();
            return json_response(StatusCode::OK, body);
        }
        None => "RAFT NO LEADER".to_owned(),
    };
    let body = format!(r#"{{"health":"false","reason":"{reason}"}}"#);
    json_response(StatusCode::SERVICE_UNAVAILABLE, body)
}

async fn ready(State(asking): State<Arc<ReplicaAccess>>) -> Response {
    match is_healthy(&asking, None).await {
        true => "ok\n".into_response(),
        false => (StatusCode::SERVICE_UNAVAILABLE, "a read is not answered\n").into_response(),
    }
}
