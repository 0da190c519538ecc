//! What a client of byte streams may do: by its certificate, or as somebody who has said nothing.

use quorate_access::{Role, Who};
use quorate_replica::front::Failure;

use crate::{refusal::Refusal, shared::Cx};

impl Cx<'_> {
    /// [access-2] Whether the client may do what takes this role, as things stand. Until that is known ([access-4]) it is told
    /// to ask elsewhere, or later.
    pub(crate) fn check(&mut self, who: &Who, needs: Role) -> Result<(), Refusal> {
        let users = self.requests.users().ok_or(Failure::NoQuorum)?;
        match users.role(who, None) {
            Some(role) if role >= needs => Ok(()),
            _ => {
                self.shared.forbidden += 1;
                Err(Refusal::forbidden(who, needs))
            }
        }
    }
}
