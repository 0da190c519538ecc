//! JSON forms of `GET /users` and `POST /users`.

use quorate_access::{Command, Password, Role, Users, password};
use serde::{Deserialize, Serialize};

/// The users' table, as applied by one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsersView {
    /// Set if the users' table is empty, in which case every client that can connect may do
    /// everything.
    pub open: bool,
    /// Users, sorted by name.
    pub users: Vec<UserView>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserView {
    /// Name used in certificates and logins.
    pub name: String,
    /// Role: `reader`, `writer`, `operator` or `admin`.
    pub role: String,
    /// Set if the user can log in with a password, and not only with a certificate.
    pub password: bool,
}

impl UsersView {
    /// Converts the users' table to its JSON form.
    pub fn new(users: &Users) -> Self {
        let users: Vec<UserView> = users
            .iter()
            .map(|(name, user)| UserView {
                name: name.to_string(),
                role: user.role.to_string(),
                password: user.hash.is_some(),
            })
            .collect();
        Self { open: users.is_empty(), users }
    }
}

/// Body of `POST /users`, which requests one change.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum UsersRequest {
    /// Create the user, or change an existing one.
    Set(SetUser),
    /// Remove the user.
    Remove { name: String },
    /// Remove all users. Every client that can connect may then do everything.
    Open {},
}

/// User to create or change.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetUser {
    pub name: String,
    /// New role. If absent, the role is unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// New password. If absent, the password is unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    /// Remove the password.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_password: bool,
    /// Create the first user even if nodes are disconnected. Those admit every client until they
    /// have caught up.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub anyway: bool,
}

impl UsersRequest {
    /// Returns whether the first user is to be created even if nodes are disconnected.
    pub const fn ignores_disconnected(&self) -> bool {
        matches!(self, Self::Set(SetUser { anyway: true, .. }))
    }

    /// Converts the request to a command for the log. Hashes the password, which is slow.
    pub fn into_command(self) -> Result<Command, String> {
        Ok(match self {
            Self::Open {} => Command::Open,
            Self::Remove { name } => Command::Remove { name },
            Self::Set(SetUser { name, role, password, no_password, anyway: _ }) => Command::Set {
                name,
                role: role.map(|role| role.parse::<Role>()).transpose()?,
                password: match (password, no_password) {
                    (Some(_), true) => return Err("a password, and none".to_owned()),
                    (Some(text), false) => {
                        let hash = password::hash_password(text.as_bytes());
                        Password::Hash(hash.map_err(|why| why.to_string())?)
                    }
                    (None, true) => Password::None,
                    (None, false) => Password::Keep,
                },
            },
        })
    }
}

/// A record of an operator's action in the audit log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditRecord {
    /// Time of the request by the node's clock, in Unix milliseconds.
    pub at_ms: u64,
    /// Node that received the request.
    pub node: u32,
    /// Caller: the user name, `node N`, or `-` if unknown.
    pub who: String,
    /// Proof of identity: `certificate`, `password` or `nothing`.
    pub by: String,
    /// Address of the caller.
    pub from: String,
    /// Method and path of the request, such as `POST /transfer`.
    pub action: String,
    /// Request body without passwords. May be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub body: String,
    /// HTTP status of the response. The action was executed if the status is below 400.
    pub status: u16,
    /// Number of refused attempts of this caller since the last record that were not recorded.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub untold: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(json: &str) -> Result<Command, String> {
        let request: UsersRequest =
            serde_json::from_str(json).map_err(|error| error.to_string())?;
        request.into_command()
    }

    #[test]
    fn only_documented_user_requests_are_parsed() {
        let set = |role, password| Command::Set { name: "ann".to_owned(), role, password };
        let ann = |more: &str| request(&format!(r#"{{"set":{{"name":"ann"{more}}}}}"#));
        assert_eq!(ann(""), Ok(set(None, Password::Keep)));
        let role = r#","role":"operator","no_password":true"#;
        assert_eq!(ann(role), Ok(set(Some(Role::Operator), Password::None)));
        let Ok(Command::Set { password: Password::Hash(hash), .. }) =
            ann(r#","password":"sesame""#)
        else {
            panic!("a hash")
        };
        assert!(password::matches_hash(&hash, b"sesame"));
        assert_eq!(request(r#"{"open":{}}"#), Ok(Command::Open));
        for bad in [
            r#","role":"root""#,
            r#","password":"""#,
            r#","password":"x","no_password":true"#,
            r#","hash":"x""#,
        ] {
            assert!(ann(bad).is_err(), "{bad}");
        }
        assert!(request(r#"{"open":{"x":1}}"#).is_err());
        assert!(request("{}").is_err());
    }
}
