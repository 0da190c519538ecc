//! A password check in progress, and the action that follows it.

use quorate_access::Claim;

use crate::resp::reply::Version;

#[derive(Debug)]
pub(super) struct PasswordCheck {
    pub(super) ticket: u64,
    pub(super) claim: Claim,
    pub(super) after_check: AfterCheck,
}

/// Action to take if the password is right.
#[derive(Debug)]
pub(super) enum AfterCheck {
    Ok,
    Hello(Version, Option<Vec<u8>>),
}

impl PasswordCheck {
    pub(super) const fn ticket(&self) -> u64 {
        self.ticket
    }
}
