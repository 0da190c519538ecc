//! Queries about users and roles, and the data that nodes need to authenticate a client.

use bytes::Bytes;
use prost::Message;

use super::{Auth, ROOT};
use crate::{
    command::reply,
    proto::{
        authpb::{Permission, permission::Type},
        etcdserverpb::{
            AuthRoleGetResponse, AuthRoleListResponse, AuthStatusResponse, AuthUserGetResponse,
            AuthUserListResponse, ResponseHeader, WatchCreateRequest,
        },
    },
    refusal::Refusal,
};

/// A question.
#[derive(Clone, PartialEq, Message)]
pub struct AuthAsk {
    #[prost(oneof = "auth_ask::What", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9")]
    pub what: Option<What>,
}

/// Ranges that a client wants to read.
#[derive(Clone, PartialEq, Message)]
pub struct Ranges {
    /// Key and end of each.
    #[prost(message, repeated, tag = "1")]
    pub ranges: Vec<WatchCreateRequest>,
}

/// The kinds of questions.
pub mod auth_ask {
    pub use super::Ranges;

    /// The question.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum What {
        /// Credentials of a user, for a node.
        #[prost(string, tag = "1")]
        Credentials(String),
        /// May the user do everything?
        #[prost(bool, tag = "2")]
        Root(bool),
        /// May the user read these ranges?
        #[prost(message, tag = "3")]
        Read(Ranges),
        /// May the user keep this lease alive?
        #[prost(int64, tag = "4")]
        Keep(i64),
        /// Is auth on?
        #[prost(bool, tag = "5")]
        Status(bool),
        /// List of users.
        #[prost(bool, tag = "6")]
        Users(bool),
        /// List of roles.
        #[prost(bool, tag = "7")]
        Roles(bool),
        /// The roles of a user.
        #[prost(string, tag = "8")]
        User(String),
        /// The permissions of a role.
        #[prost(string, tag = "9")]
        Role(String),
    }
}

use auth_ask::What;

/// Data that a node needs of a user to verify a token or a password.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Credentials {
    /// Auth is on.
    #[prost(bool, tag = "1")]
    pub enabled: bool,
    /// Revision of users and roles.
    #[prost(uint64, tag = "2")]
    pub revision: u64,
    /// Key that signs tokens.
    #[prost(bytes = "bytes", tag = "3")]
    pub secret: Bytes,
    /// The auth revision at which auth was turned on.
    #[prost(uint64, tag = "4")]
    pub epoch: u64,
    /// The auth revision of the user's password; 0: there is no such user.
    #[prost(uint64, tag = "5")]
    pub since: u64,
    /// Hash of the password; empty if there is none.
    #[prost(string, tag = "6")]
    pub hash: String,
    /// This node's time, Unix time in milliseconds.
    #[prost(uint64, tag = "7")]
    pub now_ms: u64,
}

/// Returns the permission that etcd reports for the role root, whatever was granted to it.
fn everything() -> Permission {
    Permission {
        perm_type: Type::Readwrite.into(),
        key: Bytes::new(),
        range_end: Bytes::from_static(&[0]),
    }
}

impl Auth {
    /// Answers a query; the caller has checked that the user may ask it ([`Auth::may_ask`]).
    pub(crate) fn answer(
        &self,
        ask: &AuthAsk,
        header: Option<ResponseHeader>,
        now_ms: u64,
        out: &mut Vec<u8>,
    ) {
        match &ask.what {
            None => reply::<Credentials>(Err(Refusal::Malformed), out),
            Some(What::Credentials(name)) => reply(Ok(self.credentials(name, now_ms)), out),
            // That it may be answered is the answer.
            Some(What::Root(_) | What::Read(_) | What::Keep(_)) => {
                reply(Ok(self.credentials("", now_ms).without_secrets()), out);
            }
            Some(What::Status(_)) => {
                let answer = AuthStatusResponse {
                    header,
                    enabled: self.state.enabled,
                    auth_revision: self.state.revision,
                };
                reply(Ok(answer), out);
            }
            Some(What::Users(_)) => {
                let users = self.users.keys().cloned().collect();
                reply(Ok(AuthUserListResponse { header, users }), out);
            }
            Some(What::Roles(_)) => {
                let roles = self.roles.keys().cloned().collect();
                reply(Ok(AuthRoleListResponse { header, roles }), out);
            }
            Some(What::User(name)) => {
                let user = self.users.get(name).ok_or(Refusal::UserNotFound);
                let roles = user.map(|user| user.roles.clone());
                reply(roles.map(|roles| AuthUserGetResponse { header, roles }), out);
            }
            Some(What::Role(name)) => {
                let role = self.roles.get(name).ok_or(Refusal::RoleNotFound);
                let perm = role.map(|role| match &**name {
                    ROOT => vec![everything()],
                    _ => role.permissions.clone(),
                });
                reply(perm.map(|perm| AuthRoleGetResponse { header, perm }), out);
            }
        }
    }

    fn credentials(&self, name: &str, now_ms: u64) -> Credentials {
        let user = self.users.get(name);
        Credentials {
            enabled: self.state.enabled,
            revision: self.state.revision,
            secret: self.state.secret.clone(),
            epoch: self.state.epoch,
            since: user.map_or(0, |user| user.since),
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
