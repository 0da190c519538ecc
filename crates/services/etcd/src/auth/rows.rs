//! Users, roles and the state of auth as rows of the store.
//!
//! | First byte | Then | Value |
//! |---|---|---|
//! | `A` | – | whether auth is on, its revision, and the key that signs tokens |
//! | `R` | a role | its permissions |
//! | `U` | a user | the hash of the password, and the roles |
//!
//! Part of the format of snapshots, as [`crate::mvcc`]'s rows are.

use bytes::Bytes;
use prost::Message;

use crate::proto::authpb::Permission;

/// The state.
pub(super) const STATE: &[u8] = b"A";
const ROLES: u8 = b'R';
const USERS: u8 = b'U';

/// The user and the role that may do everything.
pub const ROOT: &str = "root";
/// Users, and roles, at a time.
pub const NAMES_MAX: usize = 10_000;
/// Bytes of a name.
pub const NAME_BYTES_MAX: usize = 256;
/// Roles of a user.
pub const USER_ROLES_MAX: usize = 128;
/// Permissions of a role.
pub const ROLE_PERMISSIONS_MAX: usize = 1000;
/// Bytes of all rows.
pub const AUTH_BYTES_MAX: usize = 16 << 20;
/// Bytes of a key that signs.
pub const SECRET_BYTES: usize = 32;

/// The state of auth.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub(super) struct StateRow {
    #[prost(bool, tag = "1")]
    pub(super) enabled: bool,
    /// Moves with every change of users and roles.
    #[prost(uint64, tag = "2")]
    pub(super) revision: u64,
    /// Signs tokens; empty if auth was never on.
    #[prost(bytes = "bytes", tag = "3")]
    pub(super) secret: Bytes,
    /// The auth revision at which it was turned on last.
    #[prost(uint64, tag = "4")]
    pub(super) epoch: u64,
}

/// A user.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub(super) struct UserRow {
    /// Hash of the password; empty if there is none.
    #[prost(string, tag = "1")]
    pub(super) hash: String,
    /// In order.
    #[prost(string, repeated, tag = "2")]
    pub(super) roles: Vec<String>,
    /// The auth revision of this user's password, or of the user without one.
    #[prost(uint64, tag = "3")]
    pub(super) since: u64,
}

/// A role.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub(super) struct RoleRow {
    /// In order of keys and ends.
    #[prost(message, repeated, tag = "1")]
    pub(super) permissions: Vec<Permission>,
}

pub(super) fn user(name: &str) -> Vec<u8> {
    [&[USERS], name.as_bytes()].concat()
}

pub(super) fn role(name: &str) -> Vec<u8> {
    [&[ROLES], name.as_bytes()].concat()
}

/// Range of user rows: start and exclusive end.
pub(super) const USERS_RANGE: [&[u8]; 2] = [&[USERS], &[USERS + 1]];
/// Range of role rows: start and exclusive end.
pub(super) const ROLES_RANGE: [&[u8]; 2] = [&[ROLES], &[ROLES + 1]];

/// Returns the user or role whose row is at a place.
pub(super) fn name(place: &[u8]) -> Option<&str> {
    std::str::from_utf8(place.get(1..)?).ok()
}

/// Returns whether a permission covers any keys.
pub(super) fn is_range(permission: &Permission) -> bool {
    let (key, end) = (&permission.key, &permission.range_end);
    !key.is_empty() && (end.is_empty() || end[..] == [0] || key < end)
}

/// Returns whether an entry is one that this version writes.
pub(crate) fn is_place(place: &[u8], value: &[u8]) -> bool {
    let named = || name(place).is_some_and(|name| (1..=NAME_BYTES_MAX).contains(&name.len()));
    match place.first() {
        Some(&USERS) => named() && UserRow::decode(value).is_ok(),
        Some(&ROLES) => named() && RoleRow::decode(value).is_ok(),
        _ => {
            let state = StateRow::decode(value);
            place == STATE && state.is_ok_and(|state| state.revision < u64::MAX / 2)
        }
    }
}
