//! Permission checks of requests against users and roles.

use std::sync::Arc;

use super::{
    Auth, CACHED_RIGHTS_MAX,
    by::Sender,
    messages::{AuthQuery, auth_ask::AuthQueryKind},
    rows::{ROOT_NAME, UserRow},
    spans::{Rights, Spans},
};
use crate::{
    command::{Command, Query},
    mvcc::{KeySelection, Mvcc},
    proto::{
        authpb::permission::Type,
        etcdserverpb::{
            DeleteRangeRequest, PutRequest, RequestOp, TxnRequest, request_op::Request,
        },
    },
    refusal::Refusal,
};

enum AccessScope {
    All,
    Ranges(Arc<Rights>),
}

fn is_root(user: &UserRow) -> bool {
    user.roles.iter().any(|role| role == ROOT_NAME)
}

impl Auth {
    /// Returns the user that sent a request while auth is enabled; `None` for a node.
    fn authenticated_user<'b>(&self, by: &'b Sender) -> Result<Option<&'b str>, Refusal> {
        match by {
            Sender::Member => Ok(None),
            Sender::Anonymous => Err(Refusal::UserEmpty),
            Sender::User { name, auth_revision: revision } if *revision == self.state.revision => {
                Ok(Some(name))
            }
            Sender::User { auth_revision: revision, .. } if *revision < self.state.revision => {
                Err(Refusal::AuthOldRevision)
            }
            Sender::User { .. } => Err(Refusal::AuthOutdated),
        }
    }

    /// Returns whether auth is disabled, so that no user is needed. Refuses a request that another
    /// node admitted under a newer auth state than this one's.
    fn is_auth_disabled(&self, by: &Sender) -> Result<bool, Refusal> {
        match by {
            _ if self.state.enabled => Ok(false),
            Sender::User { auth_revision: revision, .. } if *revision >= self.state.revision => {
                Err(Refusal::AuthOutdated)
            }
            _ => Ok(true),
        }
    }

    fn admit_sender(&self, by: &Sender) -> Result<AccessScope, Refusal> {
        if self.is_auth_disabled(by)? {
            return Ok(AccessScope::All);
        }
        let Some(name) = self.authenticated_user(by)? else {
            return Ok(AccessScope::All);
        };
        let user = self.users.get(name).ok_or(Refusal::PermissionDenied)?;
        Ok(match is_root(user) {
            true => AccessScope::All,
            false => AccessScope::Ranges(self.merged_rights_of(name, user)),
        })
    }

    /// Requires the `root` role, if auth is enabled.
    pub(super) fn require_root(&self, by: &Sender) -> Result<(), Refusal> {
        if self.is_auth_disabled(by)? {
            return Ok(());
        }
        let Some(name) = self.authenticated_user(by)? else {
            return Ok(());
        };
        match self.users.get(name) {
            None => Err(Refusal::UserNotFound),
            Some(user) if is_root(user) => Ok(()),
            Some(_) => Err(Refusal::PermissionDenied),
        }
    }

    /// Requires an authenticated user, whichever it is.
    fn require_user(&self, by: &Sender) -> Result<(), Refusal> {
        match self.is_auth_disabled(by)? {
            true => Ok(()),
            false => self.authenticated_user(by).map(drop),
        }
    }

    /// Requires a node, if auth is enabled.
    fn require_member(&self, by: &Sender) -> Result<(), Refusal> {
        match by {
            Sender::Member => Ok(()),
            _ if self.is_auth_disabled(by)? => Ok(()),
            _ => Err(Refusal::PermissionDenied),
        }
    }

    /// Requires the `root` role, unless the user queries only itself or one of its own roles.
    pub(super) fn require_own_or_root(
        &self,
        by: &Sender,
        is_own: impl FnOnce(&str, &UserRow) -> bool,
    ) -> Result<(), Refusal> {
        let denied = match self.require_root(by) {
            Err(denied @ (Refusal::PermissionDenied | Refusal::UserNotFound)) => denied,
            other => return other,
        };
        let own = match by {
            Sender::User { name, .. } => self.users.get(name).map(|user| is_own(name, user)),
            _ => None,
        };
        match own {
            Some(true) => Ok(()),
            _ => Err(denied),
        }
    }

    fn merged_rights_of(&self, name: &str, user: &UserRow) -> Arc<Rights> {
        let mut joined = self.rights_cache.borrow_mut();
        if let Some(rights) = joined.get(name) {
            return Arc::clone(rights);
        }
        let roles = user.roles.iter().filter_map(|role| self.roles.get(role));
        let all: Vec<_> = roles.flat_map(|role| &role.permissions).collect();
        let that = |wanted: [Type; 2]| {
            let some = all.iter().filter(move |one| {
                wanted.into_iter().any(|wanted| one.perm_type == i32::from(wanted))
            });
            Spans::merge_ranges(some.map(|one| (&*one.key, &*one.range_end)))
        };
        let rights = Arc::new(Rights {
            readable: that([Type::Read, Type::Readwrite]),
            writable: that([Type::Write, Type::Readwrite]),
        });
        if joined.len() >= CACHED_RIGHTS_MAX {
            joined.clear();
        }
        joined.insert(name.to_owned(), Arc::clone(&rights));
        rights
    }

    /// Checks that the sender may execute a command in the current state.
    pub(crate) fn check_command(
        &self,
        by: &Sender,
        command: &Command,
        mvcc: &Mvcc,
    ) -> Result<(), Refusal> {
        match command {
            Command::Put(put) => self.admit_sender(by)?.check_put(put, mvcc),
            Command::Delete(delete) => self.admit_sender(by)?.check_delete(delete),
            Command::Txn(txn) => self.admit_sender(by)?.check_txn(txn, mvcc),
            Command::Compact(_) | Command::Alarm(_) | Command::Auth(_) => self.require_root(by),
            Command::Grant(_) => self.require_user(by),
            Command::Revoke(revoke) => {
                self.require_user(by)?;
                self.admit_sender(by)?.check_lease_write(revoke.id, mvcc)
            }
            // Each node has checked this for its own clients, but perhaps under an earlier state of
            // auth.
            Command::KeepAlive(kept) => match self.state.enabled {
                true if kept.auth_revision != self.state.revision => Err(Refusal::AuthOldRevision),
                _ => Ok(()),
            },
            // These commands only advance maintenance that is due anyway, so any sender may trigger
            // them.
            Command::Scrub | Command::Expire => Ok(()),
        }
    }

    /// Checks that the sender may make a query in the current state.
    pub(crate) fn check_query(
        &self,
        by: &Sender,
        query: &Query,
        mvcc: &Mvcc,
    ) -> Result<(), Refusal> {
        match query {
            Query::Page(page) => {
                let range = page.request.as_ref().ok_or(Refusal::Malformed)?;
                self.admit_sender(by)?.check_read(&range.key, &range.range_end)
            }
            Query::Txn(txn) => self.admit_sender(by)?.check_txn(txn, mvcc),
            // Every response contains the revision anyway.
            Query::Figures => Ok(()),
            Query::Events(_) => self.require_member(by),
            Query::Lease(lease) if lease.keys => {
                self.admit_sender(by)?.check_lease_read(lease.id, mvcc)
            }
            Query::Lease(_) | Query::Alarms(_) => self.require_user(by),
            Query::Leases(leases) => {
                let admitted = self.admit_sender(by)?;
                let (ids, _) = mvcc.leases_page(leases.from);
                ids.into_iter().try_for_each(|id| admitted.check_lease_read(id, mvcc))
            }
            Query::Hash(_) => self.require_root(by),
            Query::Auth(ask) => self.check_auth_query(by, ask, mvcc),
        }
    }

    fn check_auth_query(&self, by: &Sender, ask: &AuthQuery, mvcc: &Mvcc) -> Result<(), Refusal> {
        match ask.kind.as_ref().ok_or(Refusal::Malformed)? {
            AuthQueryKind::Credentials(_) => self.require_member(by),
            AuthQueryKind::Root(_) => self.require_root(by),
            AuthQueryKind::Read(ranges) => {
                let admitted = self.admit_sender(by)?;
                let mut ranges = ranges.ranges.iter();
                ranges.try_for_each(|range| admitted.check_read(&range.key, &range.range_end))
            }
            AuthQueryKind::MayKeepAlive(lease) => {
                self.admit_sender(by)?.check_lease_write(*lease, mvcc)
            }
            AuthQueryKind::Status(_) | AuthQueryKind::Users(_) | AuthQueryKind::Roles(_) => {
                self.require_root(by)
            }
            AuthQueryKind::User(user) => self.require_own_or_root(by, |name, _| name == user),
            AuthQueryKind::Role(role) => {
                self.require_own_or_root(by, |_, user| user.roles.contains(role))
            }
        }
    }
}

impl AccessScope {
    fn check_coverage(
        &self,
        which: impl FnOnce(&Rights) -> &Spans,
        keys: KeySelection<'_>,
    ) -> Result<(), Refusal> {
        match self {
            Self::All => Ok(()),
            Self::Ranges(rights) if which(rights).covers_keys(keys) => Ok(()),
            Self::Ranges(_) => Err(Refusal::PermissionDenied),
        }
    }

    fn check_read(&self, key: &[u8], range_end: &[u8]) -> Result<(), Refusal> {
        // A watch without a key covers all keys.
        let key = if key.is_empty() { &[0] } else { key };
        self.check_coverage(|rights| &rights.readable, KeySelection::from_range(key, range_end))
    }

    fn check_write(&self, key: &[u8], range_end: &[u8]) -> Result<(), Refusal> {
        self.check_coverage(|rights| &rights.writable, KeySelection::from_range(key, range_end))
    }

    /// Requires that the spans of `which` cover all keys of a lease.
    fn check_lease_keys(
        &self,
        which: impl FnOnce(&Rights) -> &Spans,
        id: i64,
        mvcc: &Mvcc,
    ) -> Result<(), Refusal> {
        let Self::Ranges(rights) = self else {
            return Ok(());
        };
        if mvcc.live_lease(id).is_none() {
            return Ok(());
        }
        let mut gaps = which(rights).gaps();
        match gaps.any(|(from, to)| mvcc.lease_has_key(id, from, to)) {
            true => Err(Refusal::PermissionDenied),
            false => Ok(()),
        }
    }

    /// Requires write access to all keys of a lease, because they are deleted when it ends.
    fn check_lease_write(&self, id: i64, mvcc: &Mvcc) -> Result<(), Refusal> {
        self.check_lease_keys(|rights| &rights.writable, id, mvcc)
    }

    /// Requires read access to all keys of a lease, because the response lists them.
    fn check_lease_read(&self, id: i64, mvcc: &Mvcc) -> Result<(), Refusal> {
        self.check_lease_keys(|rights| &rights.readable, id, mvcc)
    }

    fn check_put(&self, put: &PutRequest, mvcc: &Mvcc) -> Result<(), Refusal> {
        self.check_write(&put.key, &[])?;
        if put.lease != 0 {
            // A user who may attach a key could keep the lease alive, and with it all its keys.
            self.check_lease_write(put.lease, mvcc)?;
        }
        match put.prev_kv {
            true => self.check_read(&put.key, &[]),
            false => Ok(()),
        }
    }

    fn check_delete(&self, delete: &DeleteRangeRequest) -> Result<(), Refusal> {
        self.check_write(&delete.key, &delete.range_end)?;
        match delete.prev_kv {
            true => self.check_read(&delete.key, &delete.range_end),
            false => Ok(()),
        }
    }

    /// Checks the operations of both branches, regardless of which one will be executed.
    fn check_txn(&self, txn: &TxnRequest, mvcc: &Mvcc) -> Result<(), Refusal> {
        if let Self::All = self {
            return Ok(());
        }
        for compare in &txn.compare {
            self.check_read(&compare.key, &compare.range_end)?;
        }
        let mut ops = txn.success.iter().chain(&txn.failure);
        ops.try_for_each(|RequestOp { request }| match request {
            Some(Request::RequestRange(range)) => self.check_read(&range.key, &range.range_end),
            Some(Request::RequestPut(put)) => self.check_put(put, mvcc),
            Some(Request::RequestDeleteRange(delete)) => self.check_delete(delete),
            Some(Request::RequestTxn(txn)) => self.check_txn(txn, mvcc),
            None => Ok(()),
        })
    }
}
