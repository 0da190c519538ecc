//! Permission checks of requests against users and roles.

use std::sync::Arc;

use super::{
    Auth, JOINED_MAX,
    by::By,
    messages::{AuthAsk, auth_ask::What},
    rows::{ROOT, UserRow},
    spans::{Rights, Spans},
};
use crate::{
    command::{Command, Query},
    mvcc::{Keys, Mvcc},
    proto::{
        authpb::permission::Type,
        etcdserverpb::{
            DeleteRangeRequest, PutRequest, RequestOp, TxnRequest, request_op::Request,
        },
    },
    refusal::Refusal,
};

enum Admitted {
    All,
    Ranges(Arc<Rights>),
}

fn is_root(user: &UserRow) -> bool {
    user.roles.iter().any(|role| role == ROOT)
}

impl Auth {
    /// Returns the user that sent a request while auth is enabled; `None` for a node.
    fn user_of<'b>(&self, by: &'b By) -> Result<Option<&'b str>, Refusal> {
        match by {
            By::Member => Ok(None),
            By::Anonymous => Err(Refusal::UserEmpty),
            By::User { name, revision } if *revision == self.state.revision => Ok(Some(name)),
            By::User { revision, .. } if *revision < self.state.revision => {
                Err(Refusal::AuthOldRevision)
            }
            By::User { .. } => Err(Refusal::AuthBehind),
        }
    }

    /// Returns whether auth is disabled, so that no user is needed. Refuses a request that another
    /// node admitted under a newer auth state than this one's.
    fn is_open(&self, by: &By) -> Result<bool, Refusal> {
        match by {
            _ if self.state.enabled => Ok(false),
            By::User { revision, .. } if *revision >= self.state.revision => {
                Err(Refusal::AuthBehind)
            }
            _ => Ok(true),
        }
    }

    fn admit(&self, by: &By) -> Result<Admitted, Refusal> {
        if self.is_open(by)? {
            return Ok(Admitted::All);
        }
        let Some(name) = self.user_of(by)? else {
            return Ok(Admitted::All);
        };
        let user = self.users.get(name).ok_or(Refusal::PermissionDenied)?;
        Ok(match is_root(user) {
            true => Admitted::All,
            false => Admitted::Ranges(self.rights_of(name, user)),
        })
    }

    /// Requires the `root` role, if auth is enabled.
    pub(super) fn needs_root(&self, by: &By) -> Result<(), Refusal> {
        if self.is_open(by)? {
            return Ok(());
        }
        let Some(name) = self.user_of(by)? else {
            return Ok(());
        };
        match self.users.get(name) {
            None => Err(Refusal::UserNotFound),
            Some(user) if is_root(user) => Ok(()),
            Some(_) => Err(Refusal::PermissionDenied),
        }
    }

    /// Requires an authenticated user, whichever it is.
    fn needs_user(&self, by: &By) -> Result<(), Refusal> {
        match self.is_open(by)? {
            true => Ok(()),
            false => self.user_of(by).map(drop),
        }
    }

    /// Requires a node, if auth is enabled.
    fn needs_member(&self, by: &By) -> Result<(), Refusal> {
        match by {
            By::Member => Ok(()),
            _ if self.is_open(by)? => Ok(()),
            _ => Err(Refusal::PermissionDenied),
        }
    }

    /// Requires the `root` role, unless the user queries only itself or one of its own roles.
    pub(super) fn needs_own(
        &self,
        by: &By,
        is_own: impl FnOnce(&str, &UserRow) -> bool,
    ) -> Result<(), Refusal> {
        let denied = match self.needs_root(by) {
            Err(denied @ (Refusal::PermissionDenied | Refusal::UserNotFound)) => denied,
            other => return other,
        };
        let own = match by {
            By::User { name, .. } => self.users.get(name).map(|user| is_own(name, user)),
            _ => None,
        };
        match own {
            Some(true) => Ok(()),
            _ => Err(denied),
        }
    }

    fn rights_of(&self, name: &str, user: &UserRow) -> Arc<Rights> {
        let mut joined = self.joined.borrow_mut();
        if let Some(rights) = joined.get(name) {
            return Arc::clone(rights);
        }
        let roles = user.roles.iter().filter_map(|role| self.roles.get(role));
        let all: Vec<_> = roles.flat_map(|role| &role.permissions).collect();
        let that = |wanted: [Type; 2]| {
            let some = all.iter().filter(move |one| {
                wanted.into_iter().any(|wanted| one.perm_type == i32::from(wanted))
            });
            Spans::of(some.map(|one| (&*one.key, &*one.range_end)))
        };
        let rights = Arc::new(Rights {
            reads: that([Type::Read, Type::Readwrite]),
            writes: that([Type::Write, Type::Readwrite]),
        });
        if joined.len() >= JOINED_MAX {
            joined.clear();
        }
        joined.insert(name.to_owned(), Arc::clone(&rights));
        rights
    }

    /// Checks that the sender may execute a command in the current state.
    pub(crate) fn may(&self, by: &By, command: &Command, mvcc: &Mvcc) -> Result<(), Refusal> {
        match command {
            Command::Put(put) => self.admit(by)?.put(put, mvcc),
            Command::Delete(delete) => self.admit(by)?.delete(delete),
            Command::Txn(txn) => self.admit(by)?.txn(txn, mvcc),
            Command::Compact(_) | Command::Alarm(_) | Command::Auth(_) => self.needs_root(by),
            Command::Grant(_) => self.needs_user(by),
            Command::Revoke(revoke) => {
                self.needs_user(by)?;
                self.admit(by)?.touch(revoke.id, mvcc)
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
    pub(crate) fn may_ask(&self, by: &By, query: &Query, mvcc: &Mvcc) -> Result<(), Refusal> {
        match query {
            Query::Page(page) => {
                let range = page.request.as_ref().ok_or(Refusal::Malformed)?;
                self.admit(by)?.read(&range.key, &range.range_end)
            }
            Query::Txn(txn) => self.admit(by)?.txn(txn, mvcc),
            // Every response contains the revision anyway.
            Query::Figures => Ok(()),
            Query::Events(_) => self.needs_member(by),
            Query::Lease(lease) if lease.keys => self.admit(by)?.look(lease.id, mvcc),
            Query::Lease(_) | Query::Alarms(_) => self.needs_user(by),
            Query::Leases(leases) => {
                let admitted = self.admit(by)?;
                let (ids, _) = mvcc.leases(leases.from);
                ids.into_iter().try_for_each(|id| admitted.look(id, mvcc))
            }
            Query::Hash(_) => self.needs_root(by),
            Query::Auth(ask) => self.may_ask_auth(by, ask, mvcc),
        }
    }

    fn may_ask_auth(&self, by: &By, ask: &AuthAsk, mvcc: &Mvcc) -> Result<(), Refusal> {
        match ask.what.as_ref().ok_or(Refusal::Malformed)? {
            What::Credentials(_) => self.needs_member(by),
            What::Root(_) => self.needs_root(by),
            What::Read(ranges) => {
                let admitted = self.admit(by)?;
                let mut ranges = ranges.ranges.iter();
                ranges.try_for_each(|range| admitted.read(&range.key, &range.range_end))
            }
            What::Keep(lease) => self.admit(by)?.touch(*lease, mvcc),
            What::Status(_) | What::Users(_) | What::Roles(_) => self.needs_root(by),
            What::User(user) => self.needs_own(by, |name, _| name == user),
            What::Role(role) => self.needs_own(by, |_, user| user.roles.contains(role)),
        }
    }
}

impl Admitted {
    fn covers(&self, which: impl FnOnce(&Rights) -> &Spans, keys: Keys<'_>) -> Result<(), Refusal> {
        match self {
            Self::All => Ok(()),
            Self::Ranges(rights) if which(rights).cover(keys) => Ok(()),
            Self::Ranges(_) => Err(Refusal::PermissionDenied),
        }
    }

    fn read(&self, key: &[u8], range_end: &[u8]) -> Result<(), Refusal> {
        // A watch without a key covers all keys.
        let key = if key.is_empty() { &[0] } else { key };
        self.covers(|rights| &rights.reads, Keys::of(key, range_end))
    }

    fn write(&self, key: &[u8], range_end: &[u8]) -> Result<(), Refusal> {
        self.covers(|rights| &rights.writes, Keys::of(key, range_end))
    }

    /// Requires that the spans of `which` cover all keys of a lease.
    fn lease(
        &self,
        which: impl FnOnce(&Rights) -> &Spans,
        id: i64,
        mvcc: &Mvcc,
    ) -> Result<(), Refusal> {
        let Self::Ranges(rights) = self else {
            return Ok(());
        };
        if mvcc.lease(id).is_none() {
            return Ok(());
        }
        let mut gaps = which(rights).gaps();
        match gaps.any(|(from, to)| mvcc.has_key_in(id, from, to)) {
            true => Err(Refusal::PermissionDenied),
            false => Ok(()),
        }
    }

    /// Requires write access to all keys of a lease, because they are deleted when it ends.
    fn touch(&self, id: i64, mvcc: &Mvcc) -> Result<(), Refusal> {
        self.lease(|rights| &rights.writes, id, mvcc)
    }

    /// Requires read access to all keys of a lease, because the response lists them.
    fn look(&self, id: i64, mvcc: &Mvcc) -> Result<(), Refusal> {
        self.lease(|rights| &rights.reads, id, mvcc)
    }

    fn put(&self, put: &PutRequest, mvcc: &Mvcc) -> Result<(), Refusal> {
        self.write(&put.key, &[])?;
        if put.lease != 0 {
            // A user who may attach a key could keep the lease alive, and with it all its keys.
            self.touch(put.lease, mvcc)?;
        }
        match put.prev_kv {
            true => self.read(&put.key, &[]),
            false => Ok(()),
        }
    }

    fn delete(&self, delete: &DeleteRangeRequest) -> Result<(), Refusal> {
        self.write(&delete.key, &delete.range_end)?;
        match delete.prev_kv {
            true => self.read(&delete.key, &delete.range_end),
            false => Ok(()),
        }
    }

    /// Checks the operations of both branches, regardless of which one will be executed.
    fn txn(&self, txn: &TxnRequest, mvcc: &Mvcc) -> Result<(), Refusal> {
        if let Self::All = self {
            return Ok(());
        }
        for compare in &txn.compare {
            self.read(&compare.key, &compare.range_end)?;
        }
        let mut ops = txn.success.iter().chain(&txn.failure);
        ops.try_for_each(|RequestOp { request }| match request {
            Some(Request::RequestRange(range)) => self.read(&range.key, &range.range_end),
            Some(Request::RequestPut(put)) => self.put(put, mvcc),
            Some(Request::RequestDeleteRange(delete)) => self.delete(delete),
            Some(Request::RequestTxn(txn)) => self.txn(txn, mvcc),
            None => Ok(()),
        })
    }
}
