//! Identity and permissions of a connection, and NOPERM errors.

use quorate_access::{Name, Role, Who};
use quorate_replica::front::Requests;

use crate::{
    command::{Handler, Local, READS, READS_BLOCKING, Spec},
    resp::request::Arguments,
};

/// Number of wrong passwords after which the connection is closed.
pub(super) const WRONG_MAX: u8 = 10;

/// Redis' error for a request without authentication.
pub(super) const NO_AUTH: &str = "NOAUTH Authentication required.";
/// Redis' error for HELLO without authentication.
pub(super) const NO_AUTH_HELLO: &str = "NOAUTH HELLO must be called with the client already authenticated, otherwise \
    the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol \
    version at the same time";
/// Redis' error for a wrong password.
pub(super) const WRONG_PASS: &str = "WRONGPASS invalid username-password pair or user is disabled.";
/// Error while this node lacks the user table ([access-4]).
pub(super) const USER_TABLE_MISSING: &str =
    "NOQUORUM not executed: this node does not know yet who may do what; use another one";

/// Permissions of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Permission {
    /// This node does not have the user table yet.
    Unknown,
    /// The client must authenticate first.
    Unauthenticated,
    /// The client has this role.
    Granted(Role),
}

/// Identity and cached permissions of a connection.
#[derive(Debug, Default)]
pub(super) struct Login {
    who: Who,
    /// User authenticated by password.
    user: Option<Name>,
    /// Cached permissions, with the version of the user table they were derived from.
    cached_permission: Option<(u64, Permission)>,
    wrong_passwords: u8,
}

impl Login {
    pub(super) fn new(who: Who) -> Self {
        Self { who, ..Self::default() }
    }

    /// [access-2] Returns the current permissions. Called for each request; reads the user table
    /// only after a change.
    pub(super) fn permission(&mut self, requests: &dyn Requests) -> Permission {
        let version = requests.users_version();
        match self.cached_permission {
            Some((of, standing)) if of == version => standing,
            _ => self.look_up(version, requests),
        }
    }

    #[cold]
    fn look_up(&mut self, version: u64, requests: &dyn Requests) -> Permission {
        let user = self.user.as_ref().map(Name::as_str);
        let standing = match requests.users().map(|users| users.role(&self.who, user)) {
            // Not cached, because the user table may arrive without a change of its version.
            None => return Permission::Unknown,
            Some(None) => Permission::Unauthenticated,
            Some(Some(role)) => Permission::Granted(role),
        };
        self.cached_permission = Some((version, standing));
        standing
    }

    /// Sets the authenticated user. `None` restores the identity given by the certificate.
    pub(super) fn set_user(&mut self, user: Option<Name>) {
        (self.user, self.cached_permission) = (user, None);
    }

    /// Counts a wrong password. Returns whether the limit is reached.
    pub(super) const fn count_wrong_password(&mut self) -> bool {
        self.wrong_passwords = self.wrong_passwords.saturating_add(1);
        self.wrong_passwords >= WRONG_MAX
    }

    /// Returns the name of the user, or else of the certificate.
    pub(super) fn name(&self) -> &str {
        match (&self.user, &self.who) {
            (Some(user), _) => user.as_str(),
            (None, Who::Client(name)) => name,
            (None, Who::Node(_)) => "node",
            (None, Who::Anonymous | Who::Unnamed) => quorate_access::name::DEFAULT,
        }
    }

    /// Returns the error for a request that needs the role `needs`.
    pub(super) fn permission_error(&self, standing: Permission, name: &str, needs: Role) -> String {
        let who = self.name();
        match (standing, &self.who, &self.user) {
            (Permission::Granted(role), _, _) => format!(
                "NOPERM User {who} has no permissions to run the '{name}' command: it needs the role {needs}; {who} has {role}"
            ),
            (Permission::Unknown, _, _) => USER_TABLE_MISSING.to_owned(),
            (Permission::Unauthenticated, Who::Client(_), None) => format!(
                "NOPERM User {who} of this certificate has no role; an admin gives one with `quorate user set {who}`"
            ),
            (Permission::Unauthenticated, _, Some(_)) => {
                format!("NOPERM User {who} was removed")
            }
            (Permission::Unauthenticated, _, None) => NO_AUTH.to_owned(),
        }
    }
}

/// Returns the lowest role that permits this request; `None` if every client may make it. `queued`
/// is the role needed for the commands queued since MULTI.
pub(super) fn required_role(
    spec: &Spec,
    arguments: &Arguments<'_>,
    queued: Option<Role>,
    lookup: impl Fn(&[u8]) -> Option<&'static Spec>,
) -> Option<Role> {
    match spec.handler {
        Handler::Data(_) | Handler::Script(_) => Some(data_command_role(spec)),
        Handler::Local(local) => match local {
            Local::Auth | Local::Hello | Local::Quit | Local::Reset => None,
            Local::Exec => Some(queued.unwrap_or(Role::Reader)),
            Local::Acl => Some(match &*arguments.at(1).to_ascii_lowercase() {
                b"whoami" | b"help" | b"cat" => Role::Reader,
                _ => Role::Admin,
            }),
            // MONITOR and SLOWLOG reveal the requests of other clients.
            Local::Monitor => Some(Role::Admin),
            Local::Slowlog if !arguments.at(1).eq_ignore_ascii_case(b"help") => Some(Role::Admin),
            Local::Latency if arguments.at(1).eq_ignore_ascii_case(b"reset") => {
                Some(Role::Operator)
            }
            Local::Config if arguments.at(1).eq_ignore_ascii_case(b"resetstat") => {
                Some(Role::Operator)
            }
            // CLIENT UNBLOCK: a client that may push elements can end a wait anyway. CONFIG SET,
            // below: a writer can put the same load on the node in other ways.
            Local::Client => Some(match &*arguments.at(1).to_ascii_lowercase() {
                b"unblock" => Role::Writer,
                b"kill" | b"pause" | b"unpause" => Role::Operator,
                _ => Role::Reader,
            }),
            Local::Config if changes_setting(arguments) => Some(Role::Writer),
            Local::Quorate => Some(match &*arguments.at(1).to_ascii_lowercase() {
                b"session" => Role::Writer,
                b"seq" => {
                    let inner = lookup(arguments.at(3)).map(|spec| match spec.handler {
                        Handler::Local(_) => queued.unwrap_or(Role::Reader),
                        Handler::Data(_) | Handler::Script(_) => data_command_role(spec),
                    });
                    inner.unwrap_or(Role::Reader).max(Role::Writer)
                }
                _ => Role::Reader,
            }),
            _ => Some(Role::Reader),
        },
    }
}

/// Returns the command that the error for a missing role names. For a numbered command, this is the
/// inner command, unless only the numbering needs the role.
pub(super) fn name_needing(
    needs: Role,
    spec: &Spec,
    arguments: &Arguments<'_>,
    lookup: impl Fn(&[u8]) -> Option<&'static Spec>,
) -> &'static str {
    match spec.handler {
        Handler::Local(Local::Quorate) if arguments.at(1).eq_ignore_ascii_case(b"seq") => {
            let numbered = lookup(arguments.at(3)).filter(|spec| data_command_role(spec) >= needs);
            numbered.map_or("quorate|seq", |spec| spec.name)
        }
        _ => spec.name,
    }
}

pub(super) const EVENTS_SETTING: &str = "notify-keyspace-events";

fn changes_setting(arguments: &Arguments<'_>) -> bool {
    arguments.at(1).eq_ignore_ascii_case(b"set")
        && (2..arguments.len())
            .step_by(2)
            .any(|at| arguments.at(at).eq_ignore_ascii_case(EVENTS_SETTING.as_bytes()))
}

fn data_command_role(spec: &Spec) -> Role {
    match spec.flags == READS || spec.flags == READS_BLOCKING {
        _ if spec.is_operator_command() => Role::Operator,
        true => Role::Reader,
        false => Role::Writer,
    }
}

/// [time-4] Returns whether the request may need the clock to encode a deadline.
pub(super) fn needs_clock(
    spec: &Spec,
    arguments: &Arguments<'_>,
    lookup: impl Fn(&[u8]) -> Option<&'static Spec>,
) -> bool {
    required_role(spec, arguments, None, lookup) == Some(Role::Writer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::FAMILIES;

    #[test]
    fn every_command_of_the_table_has_a_role() {
        let mut readers = Vec::new();
        for spec in FAMILIES.iter().flat_map(|family| family.commands) {
            let is_read = spec.flags.contains(&"readonly");
            let role = data_command_role(spec);
            match spec.handler {
                Handler::Data(_) => assert_eq!(role == Role::Reader, is_read, "{}", spec.name),
                Handler::Script(_) => {
                    assert_eq!(role == Role::Reader, spec.name.ends_with("_ro"), "{}", spec.name);
                }
                Handler::Local(_) => {}
            }
            if role == Role::Reader {
                readers.push(spec.name);
            }
        }
        for name in ["get", "mget", "scan", "ttl", "dbsize", "xread", "xrange", "xinfo"] {
            assert!(readers.contains(&name), "{name}");
        }
        for name in ["set", "del", "publish", "getdel", "getex", "flushall", "expire", "xadd"] {
            assert!(!readers.contains(&name), "{name}");
        }
    }
}
