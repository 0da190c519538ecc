//! `quorate user`: manages users, roles and passwords.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand};
use quorate_admin::{
    client,
    members::UNKNOWN_OUTCOME_CODE,
    users::{SetUser, UsersRequest, UsersView},
};

use crate::{
    addresses::AnyOf,
    output::{Exit, Output, Problem},
    password,
};

/// Request timeout. It exceeds the node's own timeout, so that the node reports the error.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// Subcommands of `quorate user`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum UserCommand {
    /// Show the users and their roles
    List(ListArgs),
    /// Create a user, or change a user's role or password
    Set(SetArgs),
    /// Remove a user
    Remove(RemoveArgs),
    /// Remove all users: everyone who can connect may do everything again
    Open(OpenArgs),
}

/// Arguments of `quorate user list`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    asked: AnyOf,
}

/// Arguments of `quorate user set`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "\
quorate user set ann --role admin --password-file ann.txt      the first user is an admin; roles apply from then on
quorate user set web --role writer                             logs in by the certificate that 'quorate cert client web' creates
quorate user set default --role reader                         clients that have not identified themselves

Each role includes the previous one: reader (read data, see the state of the cluster), writer (change data), operator
(transfer, snapshots, backups, FLUSHALL), admin (members, users, audit log). docs/operate/users.md has the full list.")]
pub(crate) struct SetArgs {
    /// Lower-case letters, digits and dashes, as in certificates; `default` stands for clients that
    /// have not identified themselves
    name: String,
    /// reader, writer, operator or admin; required for a new user
    #[arg(long, value_name = "ROLE", value_parser = ["reader", "writer", "operator", "admin"], hide_possible_values = true)]
    role: Option<String>,
    /// Set the password to the content of this file (`-`: standard input)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["ask_password", "no_password"])]
    password_file: Option<PathBuf>,
    /// Ask for the password and set it
    #[arg(long, conflicts_with = "no_password")]
    ask_password: bool,
    /// Remove the password; the user can log in only by certificate
    #[arg(long)]
    no_password: bool,
    /// Create the first user even if nodes are down: after they return, they let everyone in until
    /// they are caught up
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    asked: AnyOf,
}

/// Arguments of `quorate user remove`.
#[derive(Args, Clone, Debug)]
pub(crate) struct RemoveArgs {
    /// Name of the user
    name: String,
    #[command(flatten)]
    asked: AnyOf,
}

/// Arguments of `quorate user open`.
#[derive(Args, Clone, Debug)]
pub(crate) struct OpenArgs {
    /// Confirm that everyone may do everything
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    asked: AnyOf,
}

pub(crate) fn run(command: &UserCommand, output: Output) -> Result<Exit, Problem> {
    let (asked, request) = match command {
        UserCommand::List(ListArgs { asked }) => (asked, None),
        UserCommand::Set(set) => (&set.asked, Some(UsersRequest::Set(set.to_request()?))),
        UserCommand::Remove(RemoveArgs { name, asked }) => {
            let name = name.clone();
            (asked, Some(UsersRequest::Remove { name }))
        }
        UserCommand::Open(OpenArgs { yes: false, .. }) => {
            let what = "this allows everyone who can connect to do everything";
            return Err(Problem::usage_error(what).with_hint("confirm with --yes"));
        }
        UserCommand::Open(OpenArgs { asked, .. }) => (asked, Some(UsersRequest::Open {})),
    };
    let view = send_request(asked.first_answering()?, request.as_ref())?;
    output.print_result(&view, || format_users(&view));
    Ok(Exit::Done)
}

impl SetArgs {
    fn to_request(&self) -> Result<SetUser, Problem> {
        let wants = self.password_file.is_some() || self.ask_password;
        let password = wants.then(|| {
            password::read_password(
                self.password_file.as_deref(),
                &format!("password of {}", self.name),
            )
        });
        Ok(SetUser {
            name: self.name.clone(),
            role: self.role.clone(),
            password: password.transpose()?,
            no_password: self.no_password,
            anyway: self.yes,
        })
    }
}

/// Sends the request to a node, or lists the users if there is none. Never retries: a change whose
/// outcome the node reports as unknown may have taken effect.
fn send_request(address: &str, request: Option<&UsersRequest>) -> Result<UsersView, Problem> {
    let body = request.map(|request| serde_json::to_string(request).expect("plain data"));
    let response = match &body {
        Some(body) => client::post(address, "/users", body, REQUEST_TIMEOUT),
        None => client::get(address, "/users", REQUEST_TIMEOUT),
    };
    let response = response.map_err(|error| Problem::unreachable_node(address, error))?;
    response.parse_json().map_err(|refusal| {
        let (exit, code) = match (response.status, &*refusal.code) {
            (_, UNKNOWN_OUTCOME_CODE) => (Exit::Unreachable, "unknown_outcome"),
            (401 | 403, _) => (Exit::Failed, "forbidden"),
            (500.., _) => (Exit::Unreachable, "unavailable"),
            _ => (Exit::Failed, "refused"),
        };
        Problem::new(exit, code, refusal.message).with_hint(refusal.hint)
    })
}

fn format_users(view: &UsersView) -> String {
    if view.open {
        return "no users: everyone who can connect may do everything; the first user must be an admin\n\
                next: quorate user set NAME --role admin --ask-password"
            .to_owned();
    }
    let width = view.users.iter().map(|user| user.name.len()).max();
    let width = width.unwrap_or(0).max("user".len());
    let mut text = format!("{:width$}  {:8}  let in by\n", "user", "role");
    for user in &view.users {
        let by = match (&*user.name, user.password) {
            ("default", false) => "nothing",
            (_, true) => "certificate or password",
            (_, false) => "certificate",
        };
        text += &format!("{:width$}  {:8}  {by}\n", user.name, user.role);
    }
    text
}

#[cfg(test)]
mod tests {
    use quorate_admin::users::UserView;

    use super::*;

    #[test]
    fn users_are_a_table_and_no_users_a_hint() {
        let user = |name: &str, role: &str, password| UserView {
            name: name.to_owned(),
            role: role.to_owned(),
            password,
        };
        let view = UsersView {
            open: false,
            users: vec![
                user("administrator", "admin", true),
                user("default", "reader", false),
                user("web", "writer", false),
            ],
        };
        let expected = "\
user           role      let in by
administrator  admin     certificate or password
default        reader    nothing
web            writer    certificate
";
        assert_eq!(format_users(&view), expected);
        let open = UsersView { open: true, users: Vec::new() };
        assert!(format_users(&open).contains("quorate user set NAME --role admin"));
    }
}
