//! Users and roles imported from another cluster.

use prost::Message as _;

use super::rows::{
    self, AUTH_BYTES_MAX, NAME_BYTES_MAX, NAME_COUNT_MAX, ROLE_PERMISSIONS_MAX, ROOT_NAME, RoleRow,
    SECRET_BYTES, STATE_KEY, StateRow, USER_ROLES_MAX, UserRow, is_valid_range,
};
use crate::proto::authpb::{Permission, permission::Type};

type StoreRow = (Vec<u8>, Vec<u8>);

/// Imported users and roles, with the state of auth.
#[derive(Clone, Debug, Default)]
pub struct ImportedAuth {
    pub enabled: bool,
    pub auth_revision: u64,
    /// Users, ordered by name.
    pub users: Vec<ImportedUser>,
    /// Roles, ordered by name.
    pub roles: Vec<ImportedRole>,
}

#[derive(Clone, Debug)]
pub struct ImportedUser {
    pub name: String,
    /// Hash of the password; empty if the user has none.
    pub hash: String,
    /// Roles of the user, in any order.
    pub roles: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct ImportedRole {
    pub name: String,
    /// Permissions of the role, in any order.
    pub permissions: Vec<Permission>,
}

fn check_count(what: &str, count: usize, most: usize) -> Result<(), String> {
    match count > most {
        true => Err(format!("it has {count} {what}, more than {most}")),
        false => Ok(()),
    }
}

fn check_name(name: &str) -> Result<(), String> {
    match (1..=NAME_BYTES_MAX).contains(&name.len()) {
        true => Ok(()),
        false => Err(format!(
            "the name of a user or role has {} bytes, and 1 to {NAME_BYTES_MAX} are allowed",
            name.len()
        )),
    }
}

impl ImportedAuth {
    /// Returns the store's rows in order, or an error message if this service cannot accept them.
    /// `secret` is the key that signs tokens. `root_hash`, if given, replaces the hash of root's
    /// password.
    pub(crate) fn to_rows(
        &self,
        secret: &[u8; SECRET_BYTES],
        root_hash: Option<&str>,
    ) -> Result<Vec<StoreRow>, String> {
        check_count("users", self.users.len(), NAME_COUNT_MAX)?;
        check_count("roles", self.roles.len(), NAME_COUNT_MAX)?;
        if self.auth_revision >= u64::MAX / 2 {
            return Err("the revision of its users is beyond all bounds".to_owned());
        }
        let is_used = self.enabled || !self.users.is_empty() || !self.roles.is_empty();
        if !is_used {
            return Ok(Vec::new());
        }
        let revision = self.auth_revision.max(1);
        let state = StateRow {
            enabled: self.enabled,
            revision,
            secret: match self.enabled {
                true => secret.to_vec().into(),
                false => Vec::new().into(),
            },
            enabled_revision: revision,
        };
        let mut found = vec![(STATE_KEY.to_vec(), state.encode_to_vec())];
        for role in &self.roles {
            found.push(role.to_row()?);
        }
        for user in &self.users {
            let hash = root_hash.filter(|_| user.name == ROOT_NAME).unwrap_or(&user.hash);
            found.push(user.to_row(hash, revision)?);
        }
        let bytes = found.iter().map(|(key, row)| key.len() + row.len()).sum();
        check_count("bytes of users and roles", bytes, AUTH_BYTES_MAX)?;
        Ok(found)
    }
}

impl ImportedUser {
    fn to_row(&self, hash: &str, revision: u64) -> Result<StoreRow, String> {
        check_name(&self.name)?;
        let mut roles = self.roles.clone();
        roles.sort_unstable();
        roles.dedup();
        check_count("roles of a user", roles.len(), USER_ROLES_MAX)?;
        roles.iter().try_for_each(|role| check_name(role))?;
        let row = UserRow { hash: hash.to_owned(), roles, password_revision: revision };
        Ok((rows::user_row_key(&self.name), row.encode_to_vec()))
    }
}

impl ImportedRole {
    fn to_row(&self) -> Result<StoreRow, String> {
        check_name(&self.name)?;
        let mut permissions = self.permissions.clone();
        check_count("permissions of a role", permissions.len(), ROLE_PERMISSIONS_MAX)?;
        let sane = |one: &Permission| is_valid_range(one) && Type::try_from(one.perm_type).is_ok();
        if !permissions.iter().all(sane) {
            return Err(format!("a permission of the role '{}' is of no range of keys", self.name));
        }
        permissions.sort_by(|a, b| (&a.key, &a.range_end).cmp(&(&b.key, &b.range_end)));
        permissions.dedup_by(|a, b| (&a.key, &a.range_end) == (&b.key, &b.range_end));
        let row = RoleRow { permissions };
        Ok((rows::role_row_key(&self.name), row.encode_to_vec()))
    }
}
