//! Permission checks for watchers: at creation, and after each change of users or roles.

use bytes::Bytes;
use quorate::Role;
use tonic::{Code, Status};

use super::{StreamEnd, WatchStream, errors};
use crate::{
    auth::{AuthQuery, Credentials, Ranges, auth_ask::AuthQueryKind},
    command::Query,
    front::asking::{Freshness, retry_while_busy},
    proto::etcdserverpb::{WatchCreateRequest, WatchResponse},
};

/// Maximum number of ranges per query.
const RANGES_PER_QUERY_MAX: usize = 1000;

/// Returns whether the error denies access, as opposed to a failure of the check itself.
pub(super) fn is_refusal(status: &Status) -> bool {
    let codes = [Code::PermissionDenied, Code::Unauthenticated, Code::InvalidArgument];
    codes.contains(&status.code())
}

impl WatchStream {
    /// Checks that the client may watch a range. The first check fixes the identity of the stream's
    /// client.
    pub(super) async fn check_watch_rights(&mut self, range: (Bytes, Bytes)) -> Result<(), Status> {
        self.replica_access.recheck_role(&self.requester, Role::Reader)?;
        let asker = retry_while_busy(|| self.replica_access.fix_identity(&self.requester)).await?;
        self.requester = asker;
        self.check_read([range]).await
    }

    async fn check_read(
        &self,
        ranges: impl IntoIterator<Item = (Bytes, Bytes)>,
    ) -> Result<(), Status> {
        if retry_while_busy(|| self.replica_access.is_auth_disabled()).await? {
            return Ok(());
        }
        let ranges = ranges.into_iter().map(|(key, range_end)| WatchCreateRequest {
            key,
            range_end,
            ..WatchCreateRequest::default()
        });
        let ranges = ranges.collect();
        let query = Query::Auth(AuthQuery { kind: Some(AuthQueryKind::Read(Ranges { ranges })) });
        let ask =
            || self.replica_access.query::<Credentials>(&self.requester, &query, Freshness::Local);
        retry_while_busy(ask).await.map(drop)
    }

    /// Ends the watchers that are no longer permitted after a change of users or roles.
    pub(super) async fn recheck_watchers(&mut self) -> Result<(), StreamEnd> {
        let all = self.watchers.ranges();
        for some in all.chunks(RANGES_PER_QUERY_MAX) {
            let ranges = some.iter().map(|(_, range)| range.clone());
            match self.check_read(ranges).await {
                Ok(()) => {}
                Err(status) if is_refusal(&status) => {
                    for (id, range) in some {
                        if let Err(status) = self.check_read([range.clone()]).await {
                            self.end_watcher(*id, status).await?;
                        }
                    }
                }
                Err(status) => return Err(status.into()),
            }
        }
        Ok(())
    }

    /// Ends a watcher that is no longer permitted.
    async fn end_watcher(&mut self, id: i64, status: Status) -> Result<(), StreamEnd> {
        if !is_refusal(&status) {
            return Err(status.into());
        }
        self.watchers.remove(id);
        self.send_response(WatchResponse {
            header: self.replica_access.response_header(self.sent_revision),
            watch_id: id,
            canceled: true,
            cancel_reason: errors::format_status(&status),
            ..WatchResponse::default()
        })
        .await
    }
}
