//! What is asked for by plain HTTP: the version, whether the member is well, and figures.

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
    VERSION,
    asking::{Asking, Freshness},
    metrics,
};

/// How long a check may take.
const CHECK_WAIT: Duration = Duration::from_secs(5);

pub(super) fn routes(asking: Arc<Asking>) -> Router {
    Router::new()
        .route("/version", get(version))
        .route("/health", get(health))
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(|State(asking)| metrics::page(asking)))
        .with_state(asking)
}

fn json(status: StatusCode, body: String) -> Response {
    (status, [(CONTENT_TYPE, "application/json")], body).into_response()
}

async fn version() -> Response {
    let body =
        format!(r#"{{"etcdserver":"{VERSION}","etcdcluster":"{VERSION}","storage":"{VERSION}"}}"#);
    json(StatusCode::OK, body)
}

/// Whether a read is answered; `?serializable=true` asks this member alone.
async fn is_well(asking: &Asking, query: Option<&str>) -> bool {
    let mut words = query.unwrap_or_default().split('&');
    let freshness = Freshness::of(words.any(|word| word == "serializable=true"));
    let asked = timeout(CHECK_WAIT, asking.figures(freshness)).await;
    matches!(asked, Ok(Ok(_)))
}

async fn health(State(asking): State<Arc<Asking>>, RawQuery(query): RawQuery) -> Response {
    match is_well(&asking, query.as_deref()).await {
        true => json(
            StatusCode::OK,
            r#"{"health":"true","reason":""}"#.to_owned(),
        ),
        false => {
            let body = r#"{"health":"false","reason":"RAFT NO LEADER"}"#.to_owned();
            json(StatusCode::SERVICE_UNAVAILABLE, body)
        }
    }
}

async fn ready(State(asking): State<Arc<Asking>>) -> Response {
    match is_well(&asking, None).await {
        true => "ok\n".into_response(),
        false => (StatusCode::SERVICE_UNAVAILABLE, "a read is not answered\n").into_response(),
    }
}
