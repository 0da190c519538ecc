//! Access rights as in etcd: users, roles and permissions for ranges of keys.
//!
//! Memory caches the state, the [`rows`] of the store persist it, and only commands [`change`] it.
//! Each request carries its sender ([`by`]). [`rights`] decides whether a request is allowed, from
//! the merged ranges ([`spans`]) of the user's roles. [`asking`] answers the queries that nodes use
//! to authenticate clients. Commands and queries are [`messages`]. Nothing here depends on a clock,
//! a password or a token.

mod asking;
mod bring;
mod by;
mod change;
pub(crate) mod messages;
mod rights;
mod rows;
mod spans;

use std::{cell::RefCell, collections::BTreeMap, ops::ControlFlow, sync::Arc};

use prost::{DecodeError, Message as _};
use quorate::LoadError;

pub(crate) use self::rows::is_valid_entry;
pub use self::{
    bring::{ImportedAuth, ImportedRole, ImportedUser},
    by::Sender,
    messages::{
        AuthChange, AuthQuery, Credentials, NewPassword, NewUser, Ranges, auth_ask, auth_change,
    },
    rows::{
        AUTH_BYTES_MAX, NAME_BYTES_MAX, NAME_COUNT_MAX, ROLE_PERMISSIONS_MAX, ROOT_NAME,
        SECRET_BYTES, USER_ROLES_MAX,
    },
};
use self::{
    rows::{ROLES_RANGE, RoleRow, STATE_KEY, StateRow, USERS_RANGE, UserRow},
    spans::Rights,
};
use crate::store::Store;

/// Maximum number of users whose merged ranges are cached.
const CACHED_RIGHTS_MAX: usize = 1000;

/// Version of the auth state; a later version compares greater. Enabling auth changes only
/// `enabled`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct AuthVersion {
    /// Incremented by every change of users or roles.
    pub revision: u64,
    /// Set if auth is enabled, so that requests need a user.
    pub enabled: bool,
}

#[derive(Debug)]
pub struct Auth {
    state: StateRow,
    users: BTreeMap<String, UserRow>,
    roles: BTreeMap<String, RoleRow>,
    /// Total size of all rows of users and roles.
    bytes: usize,
    /// Cache of users' merged ranges, filled on demand and cleared by every change.
    rights_cache: RefCell<BTreeMap<String, Arc<Rights>>>,
}

impl Default for Auth {
    fn default() -> Self {
        Self {
            state: StateRow { revision: 1, ..StateRow::default() },
            users: BTreeMap::new(),
            roles: BTreeMap::new(),
            bytes: 0,
            rights_cache: RefCell::default(),
        }
    }
}

const MALFORMED_ROW: LoadError =
    LoadError::Malformed("users, roles and permissions contradict each other");

/// A callback that receives the name and value of a row.
type VisitAuthRow<'t> = dyn FnMut(&str, &[u8]) -> Result<(), DecodeError> + 't;

/// Passes the name and value of each row in a range to a callback.
fn visit_rows(
    store: &dyn Store,
    [from, to]: [&[u8]; 2],
    take: &mut VisitAuthRow<'_>,
) -> Result<(), LoadError> {
    let mut outcome = Ok(());
    store.scan(from, to, &mut |place, row| {
        let taken = rows::name(place).is_some_and(|name| take(name, row).is_ok());
        match taken {
            true => ControlFlow::Continue(()),
            false => {
                outcome = Err(MALFORMED_ROW);
                ControlFlow::Break(())
            }
        }
    });
    outcome
}

impl Auth {
    pub(crate) fn read_rows(store: &dyn Store) -> Result<Self, LoadError> {
        let mut auth = Self::default();
        if let Some(state) = store.get(STATE_KEY) {
            auth.state = StateRow::decode(state).map_err(|_| MALFORMED_ROW)?;
        }
        let (users, roles, bytes) = (&mut auth.users, &mut auth.roles, &mut auth.bytes);
        visit_rows(store, USERS_RANGE, &mut |name, row| {
            *bytes += name.len() + row.len();
            users.insert(name.to_owned(), UserRow::decode(row)?);
            Ok(())
        })?;
        visit_rows(store, ROLES_RANGE, &mut |name, row| {
            *bytes += name.len() + row.len();
            roles.insert(name.to_owned(), RoleRow::decode(row)?);
            Ok(())
        })?;
        Ok(auth)
    }

    /// Reads the state as `read_rows` does, but denies all access if that fails or the data is
    /// inconsistent.
    pub(crate) fn read_or_deny(store: &dyn Store) -> Self {
        let read = Self::read_rows(store).ok().filter(|_| !store.has_failed());
        read.unwrap_or_else(|| Self {
            state: StateRow {
                enabled: true,
                // The lowest revision: any later mark supersedes it.
                revision: 0,
                ..StateRow::default()
            },
            ..Self::default()
        })
    }

    pub const fn auth_version(&self) -> AuthVersion {
        AuthVersion { revision: self.state.revision, enabled: self.state.enabled }
    }
}
