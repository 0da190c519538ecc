//! Replicated commands that change users, roles and permissions, with etcd's errors.

use bytes::Bytes;
use prost::Message;

use super::{
    Auth,
    messages::{AuthChange, NewPassword, NewUser, auth_change::AuthChangeKind},
    rows::{
        self, AUTH_BYTES_MAX, NAME_BYTES_MAX, NAME_COUNT_MAX, ROLE_PERMISSIONS_MAX, ROOT_NAME,
        RoleRow, SECRET_BYTES, STATE_KEY, USER_ROLES_MAX, UserRow, is_valid_range,
    },
};
use crate::{
    proto::{
        authpb::{Permission, permission::Type},
        etcdserverpb::AuthRoleRevokePermissionRequest,
    },
    refusal::Refusal,
    store::counted::CountedStore,
};

fn check_name_length(name: &str) -> Result<(), Refusal> {
    match name.len() > NAME_BYTES_MAX {
        true => Err(Refusal::AuthLimitReached),
        false => Ok(()),
    }
}

/// A change in progress, applied to both memory and the store.
struct PendingChange<'c> {
    auth: &'c mut Auth,
    store: &'c mut CountedStore,
}

impl Auth {
    /// Changes users, roles or permissions. The caller must have checked that the sender may do so
    /// ([`Auth::check_command`]).
    pub(crate) fn change(
        &mut self,
        change: AuthChange,
        store: &mut CountedStore,
    ) -> Result<(), Refusal> {
        let mut changing = PendingChange { auth: self, store };
        match change.kind.ok_or(Refusal::Malformed)? {
            AuthChangeKind::Enable(secret) => changing.enable(secret),
            AuthChangeKind::Disable(_) => {
                changing.disable();
                Ok(())
            }
            AuthChangeKind::UserAdd(user) => changing.user_add(user),
            AuthChangeKind::UserDelete(name) => changing.user_delete(&name),
            AuthChangeKind::Password(password) => changing.change_password(password),
            AuthChangeKind::UserGrant(grant) => changing.user_grant(&grant.user, grant.role),
            AuthChangeKind::UserRevoke(revoke) => changing.user_revoke(&revoke.name, &revoke.role),
            AuthChangeKind::RoleAdd(name) => changing.role_add(name),
            AuthChangeKind::RoleDelete(name) => changing.role_delete(&name),
            AuthChangeKind::RoleGrant(grant) => changing.role_grant(&grant.name, grant.perm),
            AuthChangeKind::RoleRevoke(revoke) => changing.role_revoke(&revoke),
        }
    }
}

impl PendingChange<'_> {
    fn put_state(&mut self) {
        self.store.put(STATE_KEY, self.auth.state.encode_to_vec().into());
    }

    /// Increments the auth revision, which invalidates earlier authentication checks.
    fn increment_revision(&mut self) {
        self.auth.state.revision += 1;
        self.auth.rights_cache.get_mut().clear();
        self.put_state();
    }

    /// Checks that the rows may grow by `more` bytes.
    fn check_space(&self, more: usize) -> Result<(), Refusal> {
        match self.auth.bytes.saturating_add(more) > AUTH_BYTES_MAX {
            true => Err(Refusal::AuthLimitReached),
            false => Ok(()),
        }
    }

    fn set_user(&mut self, name: &str, row: Option<UserRow>) -> Result<(), Refusal> {
        let length = |row: &UserRow| name.len() + row.encoded_len();
        let old = self.auth.users.get(name).map_or(0, length);
        let new = row.as_ref().map_or(0, length);
        self.check_space(new.saturating_sub(old))?;
        self.auth.bytes = self.auth.bytes.saturating_sub(old) + new;
        match row {
            Some(row) => {
                self.store.put(&rows::user_row_key(name), row.encode_to_vec().into());
                self.auth.users.insert(name.to_owned(), row);
            }
            None => {
                self.store.remove(&rows::user_row_key(name));
                self.auth.users.remove(name);
            }
        }
        Ok(())
    }

    fn set_role(&mut self, name: &str, row: Option<RoleRow>) -> Result<(), Refusal> {
        let length = |row: &RoleRow| name.len() + row.encoded_len();
        let old = self.auth.roles.get(name).map_or(0, length);
        let new = row.as_ref().map_or(0, length);
        self.check_space(new.saturating_sub(old))?;
        self.auth.bytes = self.auth.bytes.saturating_sub(old) + new;
        match row {
            Some(row) => {
                self.store.put(&rows::role_row_key(name), row.encode_to_vec().into());
                self.auth.roles.insert(name.to_owned(), row);
            }
            None => {
                self.store.remove(&rows::role_row_key(name));
                self.auth.roles.remove(name);
            }
        }
        Ok(())
    }

    fn find_user(&self, name: &str) -> Result<UserRow, Refusal> {
        self.auth.users.get(name).cloned().ok_or(Refusal::UserNotFound)
    }

    fn find_role(&self, name: &str) -> Result<RoleRow, Refusal> {
        self.auth.roles.get(name).cloned().ok_or(Refusal::RoleNotFound)
    }

    fn enable(&mut self, secret: Bytes) -> Result<(), Refusal> {
        if self.auth.state.enabled {
            return Ok(());
        }
        let root = self.auth.users.get(ROOT_NAME).ok_or(Refusal::RootUserNotExist)?;
        if !root.roles.iter().any(|role| role == ROOT_NAME) {
            return Err(Refusal::RootRoleNotExist);
        }
        if secret.len() != SECRET_BYTES {
            return Err(Refusal::Malformed);
        }
        let state = &mut self.auth.state;
        state.enabled = true;
        state.secret = secret;
        state.enabled_revision = state.revision;
        self.put_state();
        Ok(())
    }

    fn disable(&mut self) {
        if self.auth.state.enabled {
            self.auth.state.enabled = false;
            self.increment_revision();
        }
    }

    fn user_add(&mut self, NewUser { name, hash }: NewUser) -> Result<(), Refusal> {
        if name.is_empty() {
            return Err(Refusal::UserEmpty);
        }
        check_name_length(&name)?;
        if self.auth.users.contains_key(&name) {
            return Err(Refusal::UserAlreadyExists);
        }
        if self.auth.users.len() >= NAME_COUNT_MAX {
            return Err(Refusal::AuthLimitReached);
        }
        let row =
            UserRow { hash, roles: Vec::new(), password_revision: self.auth.state.revision + 1 };
        self.set_user(&name, Some(row))?;
        self.increment_revision();
        Ok(())
    }

    fn user_delete(&mut self, name: &str) -> Result<(), Refusal> {
        if self.auth.state.enabled && name == ROOT_NAME {
            return Err(Refusal::InvalidAuthManagement);
        }
        self.find_user(name)?;
        self.set_user(name, None)?;
        self.increment_revision();
        Ok(())
    }

    fn change_password(&mut self, NewPassword { name, hash }: NewPassword) -> Result<(), Refusal> {
        let mut row = self.find_user(&name)?;
        // As in etcd, a user without a password cannot be given one.
        if !row.hash.is_empty() {
            row.hash = hash;
        }
        row.password_revision = self.auth.state.revision + 1;
        self.set_user(&name, Some(row))?;
        self.increment_revision();
        Ok(())
    }

    fn user_grant(&mut self, name: &str, role: String) -> Result<(), Refusal> {
        let mut row = self.find_user(name)?;
        if role != ROOT_NAME {
            self.find_role(&role)?;
        }
        let Err(at) = row.roles.binary_search(&role) else {
            return Ok(());
        };
        if row.roles.len() >= USER_ROLES_MAX {
            return Err(Refusal::AuthLimitReached);
        }
        row.roles.insert(at, role);
        self.set_user(name, Some(row))?;
        self.increment_revision();
        Ok(())
    }

    fn user_revoke(&mut self, name: &str, role: &str) -> Result<(), Refusal> {
        if self.auth.state.enabled && name == ROOT_NAME && role == ROOT_NAME {
            return Err(Refusal::InvalidAuthManagement);
        }
        let mut row = self.find_user(name)?;
        let before = row.roles.len();
        row.roles.retain(|one| one != role);
        if row.roles.len() == before {
            return Err(Refusal::RoleNotGranted);
        }
        self.set_user(name, Some(row))?;
        self.increment_revision();
        Ok(())
    }

    fn role_add(&mut self, name: String) -> Result<(), Refusal> {
        if name.is_empty() {
            return Err(Refusal::RoleEmpty);
        }
        check_name_length(&name)?;
        if self.auth.roles.contains_key(&name) {
            return Err(Refusal::RoleAlreadyExists);
        }
        if self.auth.roles.len() >= NAME_COUNT_MAX {
            return Err(Refusal::AuthLimitReached);
        }
        self.set_role(&name, Some(RoleRow::default()))?;
        self.increment_revision();
        Ok(())
    }

    fn role_delete(&mut self, name: &str) -> Result<(), Refusal> {
        if self.auth.state.enabled && name == ROOT_NAME {
            return Err(Refusal::InvalidAuthManagement);
        }
        self.find_role(name)?;
        self.set_role(name, None)?;
        let has = |row: &UserRow| row.roles.iter().any(|role| role == name);
        let users = self.auth.users.iter().filter(|(_, row)| has(row));
        let users: Vec<_> = users.map(|(user, row)| (user.clone(), row.clone())).collect();
        for (user, mut row) in users {
            row.roles.retain(|role| role != name);
            self.set_user(&user, Some(row))?;
        }
        self.increment_revision();
        Ok(())
    }

    fn role_grant(&mut self, name: &str, permission: Option<Permission>) -> Result<(), Refusal> {
        let permission = permission.ok_or(Refusal::PermissionNotGiven)?;
        if !is_valid_range(&permission) || Type::try_from(permission.perm_type).is_err() {
            return Err(Refusal::InvalidAuthManagement);
        }
        let mut row = self.find_role(name)?;
        let order = |one: &Permission| {
            let (key, end) = (&permission.key, &permission.range_end);
            one.key.cmp(key).then_with(|| one.range_end.cmp(end))
        };
        match row.permissions.binary_search_by(order) {
            Ok(at) => {
                if let Some(there) = row.permissions.get_mut(at) {
                    there.perm_type = permission.perm_type;
                }
            }
            Err(_) if row.permissions.len() >= ROLE_PERMISSIONS_MAX => {
                return Err(Refusal::AuthLimitReached);
            }
            Err(at) => row.permissions.insert(at, permission),
        }
        self.set_role(name, Some(row))?;
        self.increment_revision();
        Ok(())
    }

    fn role_revoke(&mut self, revoke: &AuthRoleRevokePermissionRequest) -> Result<(), Refusal> {
        let mut row = self.find_role(&revoke.role)?;
        let before = row.permissions.len();
        row.permissions.retain(|one| one.key != revoke.key || one.range_end != revoke.range_end);
        if row.permissions.len() == before {
            return Err(Refusal::PermissionNotGranted);
        }
        self.set_role(&revoke.role, Some(row))?;
        self.increment_revision();
        Ok(())
    }
}
