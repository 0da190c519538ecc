//! A password check in progress, and the action that follows it.

use quorate_access::Claim;

use crate::resp::reply::Version;

#[derive(Debug)]
pub(super) struct Checking {
    pub(super) ticket: u64,
    pub(super) claim: Claim,
    pub(super) then: Then,
}

/// Action to take if the password is right.
#[derive(Debug)]
pub(super) enum Then {
    Ok,
    Hello(Version, Option<Vec<u8>>),
}

impl Checking {
    pub(super) const fn ticket(&self) -> u64 {
        self.ticket
    }
}
