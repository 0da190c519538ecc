//! Encoding of auth queries and commands, for the log and for messages between nodes.

use bytes::Bytes;
use prost::Message;

use crate::proto::etcdserverpb::WatchCreateRequest;

#[derive(Clone, PartialEq, Message)]
pub struct AuthQuery {
    #[prost(oneof = "auth_ask::AuthQueryKind", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9")]
    pub kind: Option<auth_ask::AuthQueryKind>,
}

/// Ranges that a client wants to read.
#[derive(Clone, PartialEq, Message)]
pub struct Ranges {
    /// Key and range end of each range.
    #[prost(message, repeated, tag = "1")]
    pub ranges: Vec<WatchCreateRequest>,
}

pub mod auth_ask {
    pub use crate::auth::messages::Ranges;

    /// Kind of query, with its argument.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum AuthQueryKind {
        /// Request the data for authenticating this user.
        #[prost(string, tag = "1")]
        Credentials(String),
        /// Check that the sender has the `root` role.
        #[prost(bool, tag = "2")]
        Root(bool),
        /// Check that the sender may read the given ranges.
        #[prost(message, tag = "3")]
        Read(Ranges),
        /// Check that the sender may keep this lease alive.
        #[prost(int64, tag = "4")]
        MayKeepAlive(i64),
        /// Request the state of auth.
        #[prost(bool, tag = "5")]
        Status(bool),
        #[prost(bool, tag = "6")]
        Users(bool),
        #[prost(bool, tag = "7")]
        Roles(bool),
        /// List the roles of this user.
        #[prost(string, tag = "8")]
        User(String),
        /// List the permissions of this role.
        #[prost(string, tag = "9")]
        Role(String),
    }
}

/// Data with which a node verifies a user's token or password.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Credentials {
    /// Set if auth is enabled, so that requests need a user.
    #[prost(bool, tag = "1")]
    pub enabled: bool,
    #[prost(uint64, tag = "2")]
    pub revision: u64,
    /// Key that signs tokens.
    #[prost(bytes = "bytes", tag = "3")]
    pub secret: Bytes,
    /// Auth revision at which auth was last enabled.
    #[prost(uint64, tag = "4")]
    pub enabled_revision: u64,
    /// Auth revision at which the password was set; 0 if the user does not exist.
    #[prost(uint64, tag = "5")]
    pub password_revision: u64,
    /// Hash of the password; empty if the user has none.
    #[prost(string, tag = "6")]
    pub hash: String,
    /// Clock of the answering node, in Unix milliseconds.
    #[prost(uint64, tag = "7")]
    pub now_ms: u64,
}

/// A change of auth, users, roles or permissions.
#[derive(Clone, PartialEq, Message)]
pub struct AuthChange {
    #[prost(oneof = "auth_change::AuthChangeKind", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11")]
    pub kind: Option<auth_change::AuthChangeKind>,
}

pub mod auth_change {
    use bytes::Bytes;

    use crate::{
        auth::messages::{NewPassword, NewUser},
        proto::etcdserverpb::{
            AuthRoleGrantPermissionRequest, AuthRoleRevokePermissionRequest,
            AuthUserGrantRoleRequest, AuthUserRevokeRoleRequest,
        },
    };

    /// Kind of change, with its argument.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum AuthChangeKind {
        /// Enable auth, with the key that signs tokens.
        #[prost(bytes = "bytes", tag = "1")]
        Enable(Bytes),
        #[prost(bool, tag = "2")]
        Disable(bool),
        #[prost(message, tag = "3")]
        UserAdd(NewUser),
        #[prost(string, tag = "4")]
        UserDelete(String),
        #[prost(message, tag = "5")]
        Password(NewPassword),
        #[prost(message, tag = "6")]
        UserGrant(AuthUserGrantRoleRequest),
        #[prost(message, tag = "7")]
        UserRevoke(AuthUserRevokeRoleRequest),
        #[prost(string, tag = "8")]
        RoleAdd(String),
        /// Delete a role and revoke it from all users.
        #[prost(string, tag = "9")]
        RoleDelete(String),
        #[prost(message, tag = "10")]
        RoleGrant(AuthRoleGrantPermissionRequest),
        #[prost(message, tag = "11")]
        RoleRevoke(AuthRoleRevokePermissionRequest),
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct NewUser {
    #[prost(string, tag = "1")]
    pub name: String,
    /// Hash of the password; empty for a user that authenticates by certificate.
    #[prost(string, tag = "2")]
    pub hash: String,
}

#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct NewPassword {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub hash: String,
}
