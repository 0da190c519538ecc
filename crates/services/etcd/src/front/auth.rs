//! The etcd Auth service: manages users and roles, and authenticates clients.

use std::sync::Arc;

use prost::Message;
use quorate::Role;
use tonic::{Request, Response, Status, async_trait};

use super::{
    asking::{Freshness, ReplicaAccess},
    errors,
    gate::Requester,
    passwords::Passwords,
};
use crate::{
    auth::{
        AuthChange, AuthQuery, NewPassword, NewUser, auth_ask::AuthQueryKind as Ask,
        auth_change::AuthChangeKind,
    },
    command::{Command, Query},
    proto::etcdserverpb::{
        AuthDisableRequest, AuthDisableResponse, AuthEnableRequest, AuthEnableResponse,
        AuthRoleAddRequest, AuthRoleAddResponse, AuthRoleDeleteRequest, AuthRoleDeleteResponse,
        AuthRoleGetRequest, AuthRoleGetResponse, AuthRoleGrantPermissionRequest,
        AuthRoleGrantPermissionResponse, AuthRoleListRequest, AuthRoleListResponse,
        AuthRoleRevokePermissionRequest, AuthRoleRevokePermissionResponse, AuthStatusRequest,
        AuthStatusResponse, AuthUserAddRequest, AuthUserAddResponse, AuthUserChangePasswordRequest,
        AuthUserChangePasswordResponse, AuthUserDeleteRequest, AuthUserDeleteResponse,
        AuthUserGetRequest, AuthUserGetResponse, AuthUserGrantRoleRequest,
        AuthUserGrantRoleResponse, AuthUserListRequest, AuthUserListResponse,
        AuthUserRevokeRoleRequest, AuthUserRevokeRoleResponse, AuthenticateRequest,
        AuthenticateResponse, ResponseHeader, auth_server::Auth as AuthService,
    },
    refusal::Refusal,
};

/// Maximum number of password checks per login. A check is repeated if the password changes
/// meanwhile.
const PASSWORD_CHECKS_MAX: u32 = 3;

#[derive(Debug)]
pub(super) struct Auth {
    pub(super) replica_access: Arc<ReplicaAccess>,
    pub(super) passwords: Passwords,
}

impl Auth {
    /// Executes a change and returns the response's header.
    async fn change(
        &self,
        asker: &Requester,
        what: AuthChangeKind,
    ) -> Result<Option<ResponseHeader>, Status> {
        let command = Command::Auth(AuthChange { kind: Some(what) });
        let done = self.replica_access.execute::<AuthEnableResponse>(asker, &command).await;
        let (mut done, _) = done?;
        // The client may send the next request to this node at once, so the changed rights must be
        // in force here.
        self.replica_access.credentials("").await?;
        self.replica_access.complete_header(&mut done.header);
        Ok(done.header)
    }

    async fn query_auth<M: Message + Default>(
        &self,
        asker: &Requester,
        what: Ask,
    ) -> Result<M, Status> {
        let query = Query::Auth(AuthQuery { kind: Some(what) });
        let asked = self.replica_access.query(asker, &query, Freshness::Linearizable);
        asked.await.map(|(answer, _)| answer)
    }

    /// Requires the `root` role before a password is hashed, because hashing is expensive.
    async fn require_root(&self, asker: &Requester) -> Result<(), Status> {
        self.replica_access.require_root(asker).await
    }
}

#[async_trait]
impl AuthService for Auth {
    async fn auth_enable(
        &self,
        request: Request<AuthEnableRequest>,
    ) -> Result<Response<AuthEnableResponse>, Status> {
        let asker = self.replica_access.require_role(&request, Role::Admin)?;
        let mut secret = Vec::new();
        for _ in 0..4 {
            let random: [u8; 8] =
                quorate::random_bytes().map_err(|error| Status::internal(error.to_string()))?;
            secret.extend_from_slice(&random);
        }
        let header = self.change(&asker, AuthChangeKind::Enable(secret.into())).await?;
        Ok(Response::new(AuthEnableResponse { header }))
    }

    async fn auth_disable(
        &self,
        request: Request<AuthDisableRequest>,
    ) -> Result<Response<AuthDisableResponse>, Status> {
        let asker = self.replica_access.require_role(&request, Role::Admin)?;
        let header = self.change(&asker, AuthChangeKind::Disable(true)).await?;
        Ok(Response::new(AuthDisableResponse { header }))
    }

    async fn auth_status(
        &self,
        request: Request<AuthStatusRequest>,
    ) -> Result<Response<AuthStatusResponse>, Status> {
        let asker = self.replica_access.require_role(&request, Role::Reader)?;
        let mut answer: AuthStatusResponse = self.query_auth(&asker, Ask::Status(true)).await?;
        self.replica_access.complete_header(&mut answer.header);
        Ok(Response::new(answer))
    }

    async fn authenticate(
        &self,
        request: Request<AuthenticateRequest>,
    ) -> Result<Response<AuthenticateResponse>, Status> {
        self.replica_access.require_role(&request, Role::Reader)?;
        let AuthenticateRequest { name, password } = request.into_inner();
        // From here on, the node's state reflects everything acknowledged earlier.
        let figures = self.replica_access.figures(Freshness::Linearizable).await?;
        for _ in 0..PASSWORD_CHECKS_MAX {
            let before = self.replica_access.credentials(&name).await?;
            if !before.enabled {
                return Err(errors::auth_not_enabled());
            }
            if !self.passwords.matches_hash(before.hash.clone(), password.clone()).await? {
                return Err(errors::auth_failed());
            }
            let now = self.replica_access.credentials(&name).await?;
            if now.enabled
                && now.enabled_revision == before.enabled_revision
                && now.password_revision == before.password_revision
            {
                return Ok(Response::new(AuthenticateResponse {
                    header: self.replica_access.response_header(figures.revision),
                    token: self.replica_access.issue_token(&name, &now)?,
                }));
            }
        }
        Err(errors::refusal_status(Refusal::AuthOldRevision))
    }

    async fn user_add(
        &self,
        request: Request<AuthUserAddRequest>,
    ) -> Result<Response<AuthUserAddResponse>, Status> {
        let asker = self.replica_access.require_role(&request, Role::Admin)?;
        let request = request.into_inner();
        if request.name.is_empty() {
            return Err(errors::refusal_status(Refusal::UserEmpty));
        }
        self.require_root(&asker).await?;
        let no_password = request.options.is_some_and(|options| options.no_password);
        let hash = match no_password {
            true => String::new(),
            false => self.hash_password(request.password, &request.hashed_password).await?,
        };
        let name = request.name;
        let header = self.change(&asker, AuthChangeKind::UserAdd(NewUser { name, hash })).await?;
        Ok(Response::new(AuthUserAddResponse { header }))
    }

    async fn user_get(
        &self,
        request: Request<AuthUserGetRequest>,
    ) -> Result<Response<AuthUserGetResponse>, Status> {
        let asker = self.replica_access.require_role(&request, Role::Reader)?;
        let ask = Ask::User(request.into_inner().name);
        let mut answer: AuthUserGetResponse = self.query_auth(&asker, ask).await?;
        self.replica_access.complete_header(&mut answer.header);
        Ok(Response::new(answer))
    }

    async fn user_list(
        &self,
        request: Request<AuthUserListRequest>,
    ) -> Result<Response<AuthUserListResponse>, Status> {
        let asker = self.replica_access.require_role(&request, Role::Reader)?;
        let mut answer: AuthUserListResponse = self.query_auth(&asker, Ask::Users(true)).await?;
        self.replica_access.complete_header(&mut answer.header);
        Ok(Response::new(answer))
    }

    async fn user_delete(
        &self,
        request: Request<AuthUserDeleteRequest>,
    ) -> Result<Response<AuthUserDeleteResponse>, Status> {
        let asker = self.replica_access.require_role(&request, Role::Admin)?;
        let what = AuthChangeKind::UserDelete(request.into_inner().name);
        let header = self.change(&asker, what).await?;
        Ok(Response::new(AuthUserDeleteResponse { header }))
    }

    async fn user_change_password(
        &self,
        request: Request<AuthUserChangePasswordRequest>,
    ) -> Result<Response<AuthUserChangePasswordResponse>, Status> {
        let asker = self.replica_access.require_role(&request, Role::Admin)?;
        let request = request.into_inner();
        self.require_root(&asker).await?;
        let hash = self.hash_password(request.password, &request.hashed_password).await?;
        let name = request.name;
        let header =
            self.change(&asker, AuthChangeKind::Password(NewPassword { name, hash })).await?;
        Ok(Response::new(AuthUserChangePasswordResponse { header }))
    }

    async fn user_grant_role(
        &self,
        request: Request<AuthUserGrantRoleRequest>,
    ) -> Result<Response<AuthUserGrantRoleResponse>, Status> {
        let asker = self.replica_access.require_role(&request, Role::Admin)?;
        let header = self.change(&asker, AuthChangeKind::UserGrant(request.into_inner())).await?;
        Ok(Response::new(AuthUserGrantRoleResponse { header }))
    }

    async fn user_revoke_role(
        &self,
        request: Request<AuthUserRevokeRoleRequest>,
    ) -> Result<Response<AuthUserRevokeRoleResponse>, Status> {
        let asker = self.replica_access.require_role(&request, Role::Admin)?;
        let header = self.change(&asker, AuthChangeKind::UserRevoke(request.into_inner())).await?;
        Ok(Response::new(AuthUserRevokeRoleResponse { header }))
    }

    async fn role_add(
        &self,
        request: Request<AuthRoleAddRequest>,
    ) -> Result<Response<AuthRoleAddResponse>, Status> {
        let asker = self.replica_access.require_role(&request, Role::Admin)?;
        let what = AuthChangeKind::RoleAdd(request.into_inner().name);
        let header = self.change(&asker, what).await?;
        Ok(Response::new(AuthRoleAddResponse { header }))
    }

    async fn role_get(
        &self,
        request: Request<AuthRoleGetRequest>,
    ) -> Result<Response<AuthRoleGetResponse>, Status> {
        let asker = self.replica_access.require_role(&request, Role::Reader)?;
        let ask = Ask::Role(request.into_inner().role);
        let mut answer: AuthRoleGetResponse = self.query_auth(&asker, ask).await?;
        self.replica_access.complete_header(&mut answer.header);
        Ok(Response::new(answer))
    }

    async fn role_list(
        &self,
        request: Request<AuthRoleListRequest>,
    ) -> Result<Response<AuthRoleListResponse>, Status> {
        let asker = self.replica_access.require_role(&request, Role::Reader)?;
        let mut answer: AuthRoleListResponse = self.query_auth(&asker, Ask::Roles(true)).await?;
        self.replica_access.complete_header(&mut answer.header);
        Ok(Response::new(answer))
    }

    async fn role_delete(
        &self,
        request: Request<AuthRoleDeleteRequest>,
    ) -> Result<Response<AuthRoleDeleteResponse>, Status> {
        let asker = self.replica_access.require_role(&request, Role::Admin)?;
        let what = AuthChangeKind::RoleDelete(request.into_inner().role);
        let header = self.change(&asker, what).await?;
        Ok(Response::new(AuthRoleDeleteResponse { header }))
    }

    async fn role_grant_permission(
        &self,
        request: Request<AuthRoleGrantPermissionRequest>,
    ) -> Result<Response<AuthRoleGrantPermissionResponse>, Status> {
        let asker = self.replica_access.require_role(&request, Role::Admin)?;
        let header = self.change(&asker, AuthChangeKind::RoleGrant(request.into_inner())).await?;
        Ok(Response::new(AuthRoleGrantPermissionResponse { header }))
    }

    async fn role_revoke_permission(
        &self,
        request: Request<AuthRoleRevokePermissionRequest>,
    ) -> Result<Response<AuthRoleRevokePermissionResponse>, Status> {
        let asker = self.replica_access.require_role(&request, Role::Admin)?;
        let header = self.change(&asker, AuthChangeKind::RoleRevoke(request.into_inner())).await?;
        Ok(Response::new(AuthRoleRevokePermissionResponse { header }))
    }
}

impl Auth {
    async fn hash_password(&self, password: String, hashed: &str) -> Result<String, Status> {
        if password.is_empty() && !hashed.is_empty() {
            let what = "etcdserver: this server hashes passwords itself; send the password";
            return Err(Status::invalid_argument(what));
        }
        self.passwords.hash_password(password).await
    }
}
