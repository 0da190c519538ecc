//! JSON forms of `GET /users` and `POST /users`.

use quorate_access::{Command, Password, Role, Users, password};
use serde::{Deserialize, Serialize};

/// All users, as one node has applied them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsersView {
    /// There are no users: every client that is let in may do everything.
    pub open: bool,
    /// In the order of their names.
    pub users: Vec<UserView>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserView {
    /// As in certificates, and for passwords.
    pub name: String,
    /// `reader`, `writer`, `operator` or `admin`.
    pub role: String,
    /// A password lets them in; a certificate of that name always does.
    pub password: bool,
}

impl UsersView {
    /// Converts the users' table.
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

/// Body of `POST /users`: one of these.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum UsersRequest {
    /// There is this user from now on, or is already and changes.
    Set(SetUser),
    /// There is no such user any more.
    Remove {
        /// Who.
        name: String,
    },
    /// Remove all users: every client that is let in may do everything.
    Open {},
}

/// A user to create or change.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetUser {
    /// Who.
    pub name: String,
    /// The new role; unchanged without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Their password from now on; without it as before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    /// No password lets them in from now on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_password: bool,
    /// Proceed even if it is the first and nodes are away, which would let every client in for a
    /// while when they return.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub anyway: bool,
}

impl UsersRequest {
    /// Returns whether absent nodes do not matter.
    pub const fn is_wanted_anyway(&self) -> bool {
        matches!(self, Self::Set(SetUser { anyway: true, .. }))
    }

    /// As a command of the log. Makes the hash of a password, which takes its time.
    pub fn command(self) -> Result<Command, String> {
        Ok(match self {
            Self::Open {} => Command::Open,
            Self::Remove { name } => Command::Remove { name },
            Self::Set(SetUser { name, role, password, no_password, anyway: _ }) => Command::Set {
                name,
                role: role.map(|role| role.parse::<Role>()).transpose()?,
                password: match (password, no_password) {
                    (Some(_), true) => return Err("a password, and none".to_owned()),
                    (Some(text), false) => {
                        let hash = password::hash(text.as_bytes());
                        Password::Hash(hash.map_err(|why| why.to_string())?)
                    }
                    (None, true) => Password::None,
                    (None, false) => Password::Keep,
                },
            },
        })
    }
}

/// One action of an operator, as a node wrote it down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditRecord {
    /// Milliseconds since 1970, by the node's clock.
    pub at_ms: u64,
    /// The node that was asked.
    pub node: u32,
    /// A user, `node N`, or `-` for an unknown caller.
    pub who: String,
    /// Proof of the name: `certificate`, `password`, or `nothing`.
    pub by: String,
    /// From where.
    pub from: String,
    /// The request, such as `POST /transfer`.
    pub action: String,
    /// With what, passwords taken out; empty if with nothing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub body: String,
    /// The outcome: the status of HTTP. Below 400 it was done.
    pub status: u16,
    /// Refused attempts since the last record that were not written down.
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
        request.command()
    }

    #[test]
    fn a_request_says_what_changes_and_nothing_else() {
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
        assert!(password::fits(&hash, b"sesame"));
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
