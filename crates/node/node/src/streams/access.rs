//! Identity and permissions of a byte stream client: by certificate, by password, or anonymous.

use quorate_access::{Name, Role, Who};
use quorate_replica::front::Failure;

use crate::streams::{refusal::Refusal, shared::Cx};

/// Identity of a stream client, from its certificate and its password.
#[derive(Clone, Debug, Default)]
pub(crate) struct Login {
    /// Identity that the client's certificate proves.
    pub(crate) certificate_identity: Who,
    /// User name proved by a password. It takes precedence over the certificate.
    pub(crate) password_user: Option<Name>,
}

impl Login {
    pub(crate) const fn new(who: Who) -> Self {
        Self { certificate_identity: who, password_user: None }
    }

    /// Returns the identity in the form shown to the client.
    fn display_name(&self) -> String {
        match (&self.password_user, &self.certificate_identity) {
            (Some(name), _) => format!("{name}, by its password,"),
            (None, Who::Client(name)) => format!("{name}, by its certificate,"),
            (None, _) => "a client without a user".to_owned(),
        }
    }
}

impl Cx<'_> {
    /// [access-2] Checks that the client currently has this role. While the access rights are
    /// unknown ([access-4]), refuses with the advice to use another node or to retry.
    pub(crate) fn check_role(&mut self, login: &Login, needs: Role) -> Result<(), Refusal> {
        let users = self.requests.users().ok_or(Failure::NoQuorum)?;
        let user = login.password_user.as_ref().map(Name::as_str);
        match users.role(&login.certificate_identity, user) {
            Some(role) if role >= needs => Ok(()),
            _ => {
                self.shared.forbidden_count += 1;
                Err(Refusal::forbidden(&login.display_name(), needs))
            }
        }
    }
}
