//! Queries about users and roles, and changes to them, as encoded between nodes and in the log.

use bytes::Bytes;
use prost::Message;

use crate::proto::etcdserverpb::WatchCreateRequest;

#[derive(Clone, PartialEq, Message)]
pub struct AuthAsk {
    #[prost(oneof = "auth_ask::What", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9")]
    pub what: Option<auth_ask::What>,
}

/// Ranges whose keys a client requests to read.
#[derive(Clone, PartialEq, Message)]
pub struct Ranges {
    /// Key and range end of each range.
    #[prost(message, repeated, tag = "1")]
    pub ranges: Vec<WatchCreateRequest>,
}

/// Kinds of queries.
pub mod auth_ask {
    pub use crate::auth::messages::Ranges;

    /// Kind of a query, with its argument.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum What {
        /// Return the data that a node needs to authenticate this user.
        #[prost(string, tag = "1")]
        Credentials(String),
        /// Check that the user has the role root.
        #[prost(bool, tag = "2")]
        Root(bool),
        /// Check that the user may read these ranges.
        #[prost(message, tag = "3")]
        Read(Ranges),
        /// Check that the user may keep this lease alive.
        #[prost(int64, tag = "4")]
        Keep(i64),
        /// Return the state of auth.
        #[prost(bool, tag = "5")]
        Status(bool),
        /// List the users.
        #[prost(bool, tag = "6")]
        Users(bool),
        /// List the roles.
        #[prost(bool, tag = "7")]
        Roles(bool),
        /// Return the roles of this user.
        #[prost(string, tag = "8")]
        User(String),
        /// Return the permissions of this role.
        #[prost(string, tag = "9")]
        Role(String),
    }
}

/// Data with which a node verifies a user's token or password.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Credentials {
    /// Set if auth is enabled, in which case requests need a user.
    #[prost(bool, tag = "1")]
    pub enabled: bool,
    /// Auth revision, which every change of users or roles increments.
    #[prost(uint64, tag = "2")]
    pub revision: u64,
    /// Key with which tokens are signed.
    #[prost(bytes = "bytes", tag = "3")]
    pub secret: Bytes,
    /// Auth revision at which auth was last enabled.
    #[prost(uint64, tag = "4")]
    pub epoch: u64,
    /// Auth revision at which the user's password was set; 0 if the user does not exist.
    #[prost(uint64, tag = "5")]
    pub since: u64,
    /// Hash of the password; empty if the user has no password.
    #[prost(string, tag = "6")]
    pub hash: String,
    /// Time at the answering node, in Unix milliseconds.
    #[prost(uint64, tag = "7")]
    pub now_ms: u64,
}

/// A change of auth, users, roles or permissions.
#[derive(Clone, PartialEq, Message)]
pub struct AuthChange {
    #[prost(oneof = "auth_change::What", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11")]
    pub what: Option<auth_change::What>,
}

/// Kinds of changes.
pub mod auth_change {
    use bytes::Bytes;

    use crate::{
        auth::messages::{NewPassword, NewUser},
        proto::etcdserverpb::{
            AuthRoleGrantPermissionRequest, AuthRoleRevokePermissionRequest,
            AuthUserGrantRoleRequest, AuthUserRevokeRoleRequest,
        },
    };

    /// Kind of a change, with its argument.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum What {
        /// Enable auth. The bytes are the key that signs tokens.
        #[prost(bytes = "bytes", tag = "1")]
        Enable(Bytes),
        /// Disable auth.
        #[prost(bool, tag = "2")]
        Disable(bool),
        /// Add a user.
        #[prost(message, tag = "3")]
        UserAdd(NewUser),
        /// Delete a user.
        #[prost(string, tag = "4")]
        UserDelete(String),
        /// Set a user's password.
        #[prost(message, tag = "5")]
        Password(NewPassword),
        /// Grant a role to a user.
        #[prost(message, tag = "6")]
        UserGrant(AuthUserGrantRoleRequest),
        /// Revoke a role from a user.
        #[prost(message, tag = "7")]
        UserRevoke(AuthUserRevokeRoleRequest),
        /// Add a role.
        #[prost(string, tag = "8")]
        RoleAdd(String),
        /// Delete a role and revoke it from all users.
        #[prost(string, tag = "9")]
        RoleDelete(String),
        /// Grant a permission to a role.
        #[prost(message, tag = "10")]
        RoleGrant(AuthRoleGrantPermissionRequest),
        /// Revoke a permission from a role.
        #[prost(message, tag = "11")]
        RoleRevoke(AuthRoleRevokePermissionRequest),
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct NewUser {
    #[prost(string, tag = "1")]
    pub name: String,
    /// Hash of the password; empty if the user authenticates by certificate.
    #[prost(string, tag = "2")]
    pub hash: String,
}

/// New password of an existing user.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct NewPassword {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub hash: String,
}
