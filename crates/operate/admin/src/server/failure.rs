//! Error responses of the admin address: a status code and the JSON error document.

use axum::{
    Json,
    extract::{FromRequest, Request, rejection::JsonRejection},
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use quorate_core::{effect::Refusal, node_id::NodeId};
use quorate_net::{GroupError, SnapshotError, TransferError, Unanswered};
use serde::de::DeserializeOwned;

use crate::{
    error::ErrorDocument,
    members::UNKNOWN_OUTCOME_CODE,
    view::{ProgressView, STILL_TAKING_CODE},
};

/// Hint for errors that a retry may resolve.
pub(super) const TRY_LATER_HINT: &str = "try again later";

/// Error response: a status code and the JSON error document.
#[derive(Debug)]
pub(super) struct Failure {
    status: StatusCode,
    code: &'static str,
    message: String,
    hint: &'static str,
    node: Option<u32>,
    progress: Option<Box<ProgressView>>,
}

impl Failure {
    pub(super) fn new(
        status: StatusCode,
        code: &'static str,
        message: &str,
        hint: &'static str,
    ) -> Self {
        Self { status, code, message: message.to_owned(), hint, node: None, progress: None }
    }

    pub(super) fn unavailable(code: &'static str, message: &str) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, code, message, TRY_LATER_HINT)
    }

    pub(super) fn foreign_page() -> Self {
        Self::new(
            StatusCode::FORBIDDEN,
            "foreign_page",
            "the request came from a page of another site",
            "open the node's page by its address, not by a name, or use the quorate command",
        )
    }

    /// Adds the progress of the activity that prevents the node from answering.
    pub(super) fn with_progress(mut self, progress: Option<ProgressView>) -> Self {
        self.progress = progress.map(Box::new);
        self
    }

    pub(super) fn message(&self) -> &str {
        &self.message
    }

    /// Returns the progress that was added, if any.
    pub(super) fn progress(&self) -> Option<&ProgressView> {
        self.progress.as_deref()
    }

    /// Adds the node's id. Used by a node that cannot report a status yet.
    pub(super) fn with_node(mut self, node: Option<NodeId>) -> Self {
        self.node = node.map(|node| node.0);
        self
    }

    pub(super) fn unanswered(why: Unanswered) -> Self {
        let code = match why {
            Unanswered::Stopped => "stopped",
            Unanswered::Busy => "busy",
            Unanswered::TimedOut => "timed_out",
        };
        Self::unavailable(code, &why.to_string())
    }

    pub(super) fn from_snapshot_error(error: SnapshotError) -> Self {
        match error {
            SnapshotError::Unanswered(Unanswered::TimedOut) => Self::new(
                StatusCode::GATEWAY_TIMEOUT,
                STILL_TAKING_CODE,
                "the snapshot is not complete yet; it continues",
                "ask again with the same \"at\"; GET /status shows snapshot_taking",
            ),
            SnapshotError::Unanswered(why) => Self::unanswered(why),
            SnapshotError::Failed(_) => Self::new(
                StatusCode::CONFLICT,
                "snapshot_failed",
                &error.to_string(),
                "see the log of the node and 'quorate status'",
            ),
        }
    }

    /// Creates the error for a body that is valid JSON but has invalid contents.
    pub(super) fn bad_request(why: &str) -> Self {
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        Self::new(status, "bad_request", why, "docs/operate.md shows the body")
    }

    pub(super) fn from_group_error(error: GroupError) -> Self {
        let refused = match error {
            GroupError::Unanswered(Unanswered::TimedOut) => {
                return Self::new(
                    StatusCode::GATEWAY_TIMEOUT,
                    UNKNOWN_OUTCOME_CODE,
                    "the node did not answer in time: the outcome is unknown",
                    "check with 'quorate member list'; repeating the request is harmless",
                );
            }
            GroupError::Unanswered(why) => return Self::unanswered(why),
            GroupError::Refused(refused) => refused,
        };
        let status = match refused.code {
            UNKNOWN_OUTCOME_CODE => StatusCode::GATEWAY_TIMEOUT,
            "no_quorum" | "stopping" | "busy" | "unavailable" => StatusCode::SERVICE_UNAVAILABLE,
            "bad_address" | "bad_request" | "malformed" => StatusCode::UNPROCESSABLE_ENTITY,
            _ => StatusCode::CONFLICT,
        };
        Self::new(status, refused.code, &refused.message, refused.hint)
    }

    pub(super) fn from_transfer_error(error: TransferError) -> Self {
        let refused = |code, hint| Self::new(StatusCode::CONFLICT, code, &error.to_string(), hint);
        match error {
            TransferError::Unanswered(why) => Self::unanswered(why),
            TransferError::Refused(Refusal::NotLeader) => {
                refused("not_leader", "ask the leader; 'quorate status' shows which node that is")
            }
            TransferError::Refused(Refusal::InvalidTarget) => {
                refused("no_target", "`quorate status` lists the members that can lead")
            }
            TransferError::Refused(Refusal::TimedOut) => Self::new(
                StatusCode::GATEWAY_TIMEOUT,
                "timed_out",
                &error.to_string(),
                "check the lag of the target and try again",
            ),
            TransferError::Refused(
                Refusal::Transferring
                | Refusal::Busy
                | Refusal::InvalidChange
                | Refusal::SlotsNotHeld,
            ) => refused("refused", TRY_LATER_HINT),
        }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut document = ErrorDocument::new(self.code, &self.message, self.hint);
        document.node = self.node;
        document.progress = self.progress.as_deref();
        let body = document.to_json();
        (self.status, [(CONTENT_TYPE, "application/json")], body).into_response()
    }
}

impl From<JsonRejection> for Failure {
    fn from(rejection: JsonRejection) -> Self {
        let status = rejection.status();
        let (code, hint) = match status {
            StatusCode::UNSUPPORTED_MEDIA_TYPE => {
                ("unsupported_media_type", "send the header Content-Type: application/json")
            }
            StatusCode::PAYLOAD_TOO_LARGE => ("too_large", "requests are much smaller"),
            _ => ("bad_request", "docs/operate.md shows the body"),
        };
        Self::new(status, code, &rejection.body_text(), hint)
    }
}

/// An extractor for a JSON body that reports every invalid body as the same kind of error.
pub(super) struct JsonBody<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Result<Self, Failure> {
        let Json(value) = Json::from_request(request, state).await?;
        Ok(Self(value))
    }
}

#[cfg(test)]
mod tests {
    use quorate_replica::group::asking::GroupRefusal;

    use super::*;

    /// 409: refused in the current state; 503: nothing was done, retry later or on another node;
    /// 504: the outcome is unknown.
    #[test]
    fn group_refusals_map_to_http_statuses() {
        let status = |code| {
            Failure::from_group_error(GroupError::Refused(GroupRefusal::new(code, "x", "y"))).status
        };
        for (code, expected) in [
            ("not_leader", 409),
            ("under_way", 409),
            ("unknown_node", 409),
            ("bad_address", 422),
            ("no_quorum", 503),
            ("busy", 503),
            (UNKNOWN_OUTCOME_CODE, 504),
        ] {
            assert_eq!(status(code).as_u16(), expected, "{code}");
        }
        let unanswered = |why| Failure::from_group_error(GroupError::Unanswered(why));
        assert_eq!(unanswered(Unanswered::Busy).status.as_u16(), 503);
        let timed_out = unanswered(Unanswered::TimedOut);
        assert_eq!((timed_out.status.as_u16(), timed_out.code), (504, UNKNOWN_OUTCOME_CODE));
    }
}
