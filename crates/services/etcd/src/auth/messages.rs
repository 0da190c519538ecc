//! Questions about users and roles, and changes of them, as nodes and the log exchange them.

use bytes::Bytes;
use prost::Message;

use crate::proto::etcdserverpb::WatchCreateRequest;

/// A question.
#[derive(Clone, PartialEq, Message)]
pub struct AuthAsk {
    #[prost(oneof = "auth_ask::What", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9")]
    pub what: Option<auth_ask::What>,
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
    pub use crate::auth::messages::Ranges;

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

/// A change of users, roles or permissions.
#[derive(Clone, PartialEq, Message)]
pub struct AuthChange {
    #[prost(oneof = "auth_change::What", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11")]
    pub what: Option<auth_change::What>,
}

/// The kinds of changes.
pub mod auth_change {
    use bytes::Bytes;

    use crate::{
        auth::messages::{NewPassword, NewUser},
        proto::etcdserverpb::{
            AuthRoleGrantPermissionRequest, AuthRoleRevokePermissionRequest,
            AuthUserGrantRoleRequest, AuthUserRevokeRoleRequest,
        },
    };

    /// The change.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum What {
        /// Turns auth on; the bytes are the key that signs tokens.
        #[prost(bytes = "bytes", tag = "1")]
        Enable(Bytes),
        /// Turns auth off.
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
    /// Hash of the password; empty: a user who authenticates by a certificate.
    #[prost(string, tag = "2")]
    pub hash: String,
}

/// A password that is changed.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct NewPassword {
    /// Whose.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Hash of the password.
    #[prost(string, tag = "2")]
    pub hash: String,
}
