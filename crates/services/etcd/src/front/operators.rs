//! Authorization of the node's operators against etcd's users.

use std::sync::Arc;

use quorate::Who;
use tonic::{Code, Status};

use super::{
    asking::{Freshness, ReplicaAccess},
    gate::{AuthenticatedUser, Client, PresentedToken, Requester},
    passwords::Passwords,
};
use crate::{
    auth::{AuthQuery, Credentials, auth_ask},
    command::Query,
};

/// Access to etcd's users for the node's admin server.
#[derive(Clone, Debug)]
pub struct Operators {
    pub(super) replica_access: Arc<ReplicaAccess>,
    pub(super) passwords: Passwords,
}

impl Operators {
    /// Returns whether the caller has the `root` role, according to this node's local state. The
    /// caller is the user whose name and password are given, or else the user in the certificate.
    /// Returns `None` if auth is disabled.
    ///
    /// # Errors Fails if the node cannot currently answer.
    pub async fn has_root(
        &self,
        certified: Option<String>,
        login: Option<(String, String)>,
    ) -> Result<Option<bool>, Status> {
        if !self.replica_access.credentials("").await?.enabled {
            return Ok(None);
        }
        let mut fixed_identity = None;
        if let Some((name, password)) = login {
            let before = self.replica_access.credentials(&name).await?;
            let fits = self.passwords.matches_hash(before.hash.clone(), password).await?;
            // The password may change during the check.
            let now = self.replica_access.credentials(&name).await?;
            if !fits
                || (now.enabled_revision, now.password_revision)
                    != (before.enabled_revision, before.password_revision)
            {
                return Ok(Some(false));
            }
            fixed_identity = Some(AuthenticatedUser::from_credentials(&name, &now));
        }
        let (who, token) = (Who::default(), PresentedToken::Absent);
        let certified = certified.map(Into::into);
        let asker = Requester::Client(Client {
            quorate_identity: who,
            certificate_name: certified,
            token,
            fixed_identity,
        });
        let query = Query::Auth(AuthQuery { kind: Some(auth_ask::AuthQueryKind::Root(true)) });
        match self.replica_access.query::<Credentials>(&asker, &query, Freshness::Local).await {
            Ok(_) => Ok(Some(true)),
            Err(refused) => match refused.code() {
                Code::PermissionDenied | Code::InvalidArgument | Code::FailedPrecondition => {
                    Ok(Some(false))
                }
                _ => Err(refused),
            },
        }
    }
}
