//! Storage of users, roles and the auth status as rows of the store.
//!
//! | First byte | Then | Value |
//! |---|---|---|
//! | `A` | – | whether auth is enabled, its revision, and the key that signs tokens |
//! | `R` | a role | its permissions |
//! | `U` | a user | the hash of the password, and the roles |
//!
//! The rows are part of the format of snapshots, like those of [`crate::mvcc`].

use bytes::Bytes;
use prost::Message;

use crate::proto::authpb::Permission;

/// Key of the row with the auth state.
pub(super) const STATE_KEY: &[u8] = b"A";
const ROLES_PREFIX: u8 = b'R';
const USERS_PREFIX: u8 = b'U';

/// User with all rights, and the role that grants them.
pub const ROOT_NAME: &str = "root";
/// Maximum number of users, and of roles.
pub const NAME_COUNT_MAX: usize = 10_000;
pub const NAME_BYTES_MAX: usize = 256;
pub const USER_ROLES_MAX: usize = 128;
pub const ROLE_PERMISSIONS_MAX: usize = 1000;
/// Maximum total size of all rows.
pub const AUTH_BYTES_MAX: usize = 16 << 20;
/// Length of the key that signs tokens.
pub const SECRET_BYTES: usize = 32;

#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub(super) struct StateRow {
    #[prost(bool, tag = "1")]
    pub(super) enabled: bool,
    /// Incremented by every change of users or roles.
    #[prost(uint64, tag = "2")]
    pub(super) revision: u64,
    /// Key that signs tokens; empty if auth has never been enabled.
    #[prost(bytes = "bytes", tag = "3")]
    pub(super) secret: Bytes,
    /// Auth revision at which auth was last enabled.
    #[prost(uint64, tag = "4")]
    pub(super) enabled_revision: u64,
}

#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub(super) struct UserRow {
    /// Hash of the password; empty if the user has none.
    #[prost(string, tag = "1")]
    pub(super) hash: String,
    /// Roles of the user, sorted.
    #[prost(string, repeated, tag = "2")]
    pub(super) roles: Vec<String>,
    /// Auth revision at which the password was set, or at which the user was created without one.
    #[prost(uint64, tag = "3")]
    pub(super) password_revision: u64,
}

#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub(super) struct RoleRow {
    /// Permissions of the role, ordered by key and range end.
    #[prost(message, repeated, tag = "1")]
    pub(super) permissions: Vec<Permission>,
}

pub(super) fn user_row_key(name: &str) -> Vec<u8> {
    [&[USERS_PREFIX], name.as_bytes()].concat()
}

pub(super) fn role_row_key(name: &str) -> Vec<u8> {
    [&[ROLES_PREFIX], name.as_bytes()].concat()
}

pub(super) const USERS_RANGE: [&[u8]; 2] = [&[USERS_PREFIX], &[USERS_PREFIX + 1]];
pub(super) const ROLES_RANGE: [&[u8]; 2] = [&[ROLES_PREFIX], &[ROLES_PREFIX + 1]];

/// Returns the name of the user or role whose row has the key `place`.
pub(super) fn name(place: &[u8]) -> Option<&str> {
    std::str::from_utf8(place.get(1..)?).ok()
}

pub(super) fn is_valid_range(permission: &Permission) -> bool {
    let (key, end) = (&permission.key, &permission.range_end);
    !key.is_empty() && (end.is_empty() || end[..] == [0] || key < end)
}

/// Returns whether this release could have written the entry.
pub(crate) fn is_valid_entry(place: &[u8], value: &[u8]) -> bool {
    let named = || name(place).is_some_and(|name| (1..=NAME_BYTES_MAX).contains(&name.len()));
    match place.first() {
        Some(&USERS_PREFIX) => named() && UserRow::decode(value).is_ok(),
        Some(&ROLES_PREFIX) => named() && RoleRow::decode(value).is_ok(),
        _ => {
            let state = StateRow::decode(value);
            place == STATE_KEY && state.is_ok_and(|state| state.revision < u64::MAX / 2)
        }
    }
}
