//! AUTH and ACL: the identity of a connection. Passwords are checked on another thread; meanwhile,
//! later requests on the connection wait.

use quorate_access::{Claimed, Name, NotChecked, Role, name::DEFAULT};
use quorate_replica::front::Requests;

use super::{
    Connection,
    checking::{AfterCheck, PasswordCheck},
};
use crate::{
    command::Local,
    front::{
        access::{NO_AUTH_HELLO, Permission, WRONG_PASS},
        shared::Shared,
        subcommands,
    },
    resp::{
        reply::{Reply, Version},
        request::Arguments,
    },
};

const NO_PASSWORD: &str = "ERR AUTH <password> called without any password configured for the \
    default user. Are you sure your configuration is correct?";
const NO_CHECKER: &str = "ERR this node checks no passwords";
const TOO_MANY_CHECKS: &str = "BUSY too many passwords are being checked; try again";
const BY_OPERATORS: &str = "ERR users are changed with `quorate user`, at the admin address";

impl Connection {
    /// Handles `AUTH [user] password`.
    pub(super) fn handle_auth(
        &mut self,
        arguments: &Arguments<'_>,
        shared: &mut Shared,
        requests: &dyn Requests,
    ) {
        let (name, password) = match arguments.len() {
            2 => (DEFAULT.as_bytes(), arguments.at(1)),
            3 => (arguments.at(1), arguments.at(2)),
            _ => return self.refuse_request("ERR syntax error", shared),
        };
        self.start_password_check(name, password, AfterCheck::Ok, shared, requests);
    }

    /// Handles `HELLO version AUTH user password [SETNAME name]`.
    pub(super) fn hello_auth(
        &mut self,
        greeting: (Version, Option<&[u8]>),
        (name, password): (&[u8], &[u8]),
        shared: &mut Shared,
        requests: &dyn Requests,
    ) {
        let then = AfterCheck::Hello(greeting.0, greeting.1.map(<[u8]>::to_vec));
        self.start_password_check(name, password, then, shared, requests);
    }

    /// Returns the error for HELLO without AUTH if the client must authenticate.
    pub(super) fn hello_refused(&mut self, requests: &dyn Requests) -> Option<&'static str> {
        let standing = self.login.permission(requests);
        (standing == Permission::Unauthenticated).then_some(NO_AUTH_HELLO)
    }

    fn start_password_check(
        &mut self,
        name: &[u8],
        password: &[u8],
        then: AfterCheck,
        shared: &mut Shared,
        requests: &dyn Requests,
    ) {
        let Some(users) = requests.users() else {
            return self.refuse_request(crate::front::access::USER_TABLE_MISSING, shared);
        };
        let claim = match Claimed::of(users, name) {
            Claimed::Pointless => return self.refuse_request(NO_PASSWORD, shared),
            // If no password is needed, any is accepted.
            Claimed::Granted => return self.complete_login(None, then, shared),
            Claimed::ToProve(claim) => claim,
        };
        match shared.password_checks.check(self.id, &claim, password) {
            Ok(ticket) => {
                self.password_check = Some(PasswordCheck { ticket, claim, after_check: then });
            }
            Err(NotChecked::Never) => self.refuse_request(NO_CHECKER, shared),
            Err(NotChecked::Busy) => self.refuse_request(TOO_MANY_CHECKS, shared),
        }
    }

    /// Handles the result of a password check.
    pub(crate) fn handle_check_result(
        &mut self,
        ticket: u64,
        fits: bool,
        shared: &mut Shared,
        requests: &dyn Requests,
    ) {
        let Some(checking) = self.password_check.take_if(|checking| checking.ticket == ticket)
        else {
            return;
        };
        let user = checking.claim.proved(requests.users());
        if let Some(user) = user.filter(|_| fits) {
            return self.complete_login(Some(user), checking.after_check, shared);
        }
        shared.wrong_passwords += 1;
        self.refuse_request(WRONG_PASS, shared);
        if self.login.count_wrong_password() {
            self.end();
        }
    }

    fn complete_login(&mut self, user: Option<Name>, then: AfterCheck, shared: &mut Shared) {
        self.login.set_user(user);
        if let Some(guest) = shared.clients.entry_mut(self.client_slot) {
            self.login.name().clone_into(&mut guest.user);
        }
        match then {
            AfterCheck::Ok => self.reply(shared, |r| r.ok()),
            AfterCheck::Hello(version, name) => {
                self.send_hello_reply(version, name.as_deref(), shared)
            }
        }
    }

    /// Handles ACL. The caller sends the reply.
    pub(super) fn handle_acl(
        &self,
        arguments: &Arguments<'_>,
        requests: &dyn Requests,
        r: &mut Reply<'_>,
    ) {
        let users = requests.users();
        let all = || users.into_iter().flat_map(|users| users.iter());
        match &*arguments.at(1).to_ascii_lowercase() {
            b"whoami" => r.bulk(self.login.name().as_bytes()),
            b"users" => {
                r.array(all().count());
                all().for_each(|(name, _)| r.bulk(name.as_str().as_bytes()));
            }
            b"list" => {
                r.array(all().count());
                for (name, user) in all() {
                    let pass = if user.hash.is_some() { "#argon2id" } else { "nopass" };
                    let line = format!("user {name} on {pass} +@{}", user.role);
                    r.bulk(line.as_bytes());
                }
            }
            b"getuser" => {
                let name = std::str::from_utf8(arguments.at(2)).unwrap_or_default();
                let Some(user) = users.and_then(|users| users.get(name)) else {
                    return r.null();
                };
                r.map(3);
                r.bulk(b"flags");
                r.array(1);
                r.bulk(b"on");
                r.bulk(b"passwords");
                r.array(usize::from(user.hash.is_some()));
                if user.hash.is_some() {
                    r.bulk(b"argon2id");
                }
                r.bulk(b"commands");
                r.bulk(format!("+@{}", user.role).as_bytes());
            }
            b"cat" => {
                r.array(Role::ALL.len());
                Role::ALL.iter().for_each(|role| r.bulk(role.name().as_bytes()));
            }
            b"setuser" | b"deluser" | b"load" | b"save" => r.error(BY_OPERATORS),
            _ => subcommands::help(Local::Acl, r),
        }
    }
}
