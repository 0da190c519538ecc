//! Queries about users and roles, including those with which nodes authenticate clients.

use bytes::Bytes;

use super::{
    Auth,
    messages::{AuthQuery, Credentials, auth_ask::AuthQueryKind},
    rows::ROOT_NAME,
};
use crate::{
    command::encode_reply,
    proto::{
        authpb::{Permission, permission::Type},
        etcdserverpb::{
            AuthRoleGetResponse, AuthRoleListResponse, AuthStatusResponse, AuthUserGetResponse,
            AuthUserListResponse, ResponseHeader,
        },
    },
    refusal::Refusal,
};

/// Returns the permission that etcd reports for the `root` role, regardless of what it was granted.
fn full_permission() -> Permission {
    Permission {
        perm_type: Type::Readwrite.into(),
        key: Bytes::new(),
        range_end: Bytes::from_static(&[0]),
    }
}

impl Auth {
    /// Answers a query. The caller has checked that the user may make it ([`Auth::check_query`]).
    pub(crate) fn answer_query(
        &self,
        ask: &AuthQuery,
        header: Option<ResponseHeader>,
        now_ms: u64,
        out: &mut Vec<u8>,
    ) {
        match &ask.kind {
            None => encode_reply::<Credentials>(Err(Refusal::Malformed), out),
            Some(AuthQueryKind::Credentials(name)) => {
                encode_reply(Ok(self.credentials(name, now_ms)), out)
            }
            // These queries only test a right, so passing the check above is the whole answer.
            Some(
                AuthQueryKind::Root(_) | AuthQueryKind::Read(_) | AuthQueryKind::MayKeepAlive(_),
            ) => {
                encode_reply(Ok(self.credentials("", now_ms).without_secrets()), out);
            }
            Some(AuthQueryKind::Status(_)) => {
                let answer = AuthStatusResponse {
                    header,
                    enabled: self.state.enabled,
                    auth_revision: self.state.revision,
                };
                encode_reply(Ok(answer), out);
            }
            Some(AuthQueryKind::Users(_)) => {
                let users = self.users.keys().cloned().collect();
                encode_reply(Ok(AuthUserListResponse { header, users }), out);
            }
            Some(AuthQueryKind::Roles(_)) => {
                let roles = self.roles.keys().cloned().collect();
                encode_reply(Ok(AuthRoleListResponse { header, roles }), out);
            }
            Some(AuthQueryKind::User(name)) => {
                let user = self.users.get(name).ok_or(Refusal::UserNotFound);
                let roles = user.map(|user| user.roles.clone());
                encode_reply(roles.map(|roles| AuthUserGetResponse { header, roles }), out);
            }
            Some(AuthQueryKind::Role(name)) => {
                let role = self.roles.get(name).ok_or(Refusal::RoleNotFound);
                let perm = role.map(|role| match &**name {
                    ROOT_NAME => vec![full_permission()],
                    _ => role.permissions.clone(),
                });
                encode_reply(perm.map(|perm| AuthRoleGetResponse { header, perm }), out);
            }
        }
    }

    fn credentials(&self, name: &str, now_ms: u64) -> Credentials {
        let user = self.users.get(name);
        Credentials {
            enabled: self.state.enabled,
            revision: self.state.revision,
            secret: self.state.secret.clone(),
            enabled_revision: self.state.enabled_revision,
            password_revision: user.map_or(0, |user| user.password_revision),
            hash: user.map_or_else(String::new, |user| user.hash.clone()),
            now_ms,
        }
    }
}

impl Credentials {
    fn without_secrets(self) -> Self {
        Self { secret: Bytes::new(), hash: String::new(), ..self }
    }
}
