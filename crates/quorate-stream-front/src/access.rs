//! What a client of byte streams may do: by its certificate, or as somebody who has said nothing.

use quorate_access::{Role, Who};
use quorate_replica::front::{Failure, Requests};

use crate::refusal::Refusal;

/// [access-2] Whether the client may do what takes this role, as things stand. Until that is known ([access-4]) it is told to
/// ask elsewhere, or later.
pub(crate) fn check(who: &Who, needs: Role, requests: &dyn Requests) -> Result<(), Refusal> {
    let users = requests.users().ok_or(Failure::NoQuorum)?;
    match users.role(who, None) {
        Some(role) if role >= needs => Ok(()),
        _ => Err(Refusal::forbidden(who, needs)),
    }
}
