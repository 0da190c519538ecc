//! Queries about users and roles, and changes of them, as encoded between nodes and in the log.

use bytes::Bytes;
use prost::Message;

use crate::proto::etcdserverpb::WatchCreateRequest;

/// A query about users and roles.
#[derive(Clone, PartialEq, Message)]
pub struct AuthAsk {
    #[prost(oneof = "auth_ask::What", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9")]
    pub what: Option<auth_ask::What>,
}

/// Ranges that a client wants to read.
#[derive(Clone, PartialEq, Message)]
pub struct Ranges {
    /// Key and range end of each.
    #[prost(message, repeated, tag = "1")]
    pub ranges: Vec<WatchCreateRequest>,
}

/// Kinds of queries.
pub mod auth_ask {
    pub use crate::auth::messages::Ranges;

    /// The kind of a query, with its argument.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum What {
        /// Credentials of a user, for a node.
        #[prost(string, tag = "1")]
        Credentials(String),
        /// Checks that the user has the role root.
        #[prost(bool, tag = "2")]
        Root(bool),
        /// Checks that the user may read these ranges.
        #[prost(message, tag = "3")]
        Read(Ranges),
        /// Checks that the user may keep this lease alive.
        #[prost(int64, tag = "4")]
        Keep(i64),
        /// State of auth.
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

/// Data that a node needs to verify a user's token or password.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Credentials {
    /// Auth is enabled.
    #[prost(bool, tag = "1")]
    pub enabled: bool,
    /// Revision of users and roles.
    #[prost(uint64, tag = "2")]
    pub revision: u64,
    /// Key that signs tokens.
    #[prost(bytes = "bytes", tag = "3")]
    pub secret: Bytes,
    /// Auth revision at which auth was last enabled.
    #[prost(uint64, tag = "4")]
    pub epoch: u64,
    /// Auth revision of the user's password; 0 if there is no such user.
    #[prost(uint64, tag = "5")]
    pub since: u64,
    /// Hash of the password; empty if there is none.
    #[prost(string, tag = "6")]
    pub hash: String,
    /// The node's time, in Unix milliseconds.
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

    /// The kind of a change, with its argument.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum What {
        /// Enables auth; the bytes are the key that signs tokens.
        #[prost(bytes = "bytes", tag = "1")]
        Enable(Bytes),
        /// Disables auth.
        #[prost(bool, tag = "2")]
        Disable(bool),
        /// Adds a user.
        #[prost(message, tag = "3")]
        UserAdd(NewUser),
        /// Deletes a user.
        #[prost(string, tag = "4")]
        UserDelete(String),
        /// Sets a new password.
        #[prost(message, tag = "5")]
        Password(NewPassword),
        /// Grants a role to a user.
        #[prost(message, tag = "6")]
        UserGrant(AuthUserGrantRoleRequest),
        /// Revokes a role from a user.
        #[prost(message, tag = "7")]
        UserRevoke(AuthUserRevokeRoleRequest),
        /// Adds a role.
        #[prost(string, tag = "8")]
        RoleAdd(String),
        /// Deletes a role, and revokes it from its users.
        #[prost(string, tag = "9")]
        RoleDelete(String),
        /// Grants a permission to a role.
        #[prost(message, tag = "10")]
        RoleGrant(AuthRoleGrantPermissionRequest),
        /// Revokes a permission from a role.
        #[prost(message, tag = "11")]
        RoleRevoke(AuthRoleRevokePermissionRequest),
    }
}

/// A new user.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct NewUser {
    /// Name of the user.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Hash of the password; empty for a user who authenticates by certificate.
    #[prost(string, tag = "2")]
    pub hash: String,
}

/// A change of a password.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct NewPassword {
    /// Name of the user.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Hash of the new password.
    #[prost(string, tag = "2")]
    pub hash: String,
}
