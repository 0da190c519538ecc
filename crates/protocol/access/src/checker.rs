//! Password checks. They are slow and belong on a separate thread.

use std::{collections::BTreeMap, fmt};

use crate::Claim;

/// Asynchronous password checker.
pub trait Checker: fmt::Debug {
    /// Submits a check under a ticket. Returns `false` if too many checks are waiting.
    fn check(&mut self, ticket: u64, hash: &str, password: &[u8]) -> bool;

    /// Returns the ticket of the next completed check, and whether its password matches the hash.
    fn verdict(&mut self) -> Option<(u64, bool)>;
}

/// Pending password checks and their requesters.
#[derive(Debug)]
pub struct PendingChecks<T> {
    checker: Option<Box<dyn Checker + Send>>,
    last_ticket: u64,
    open: BTreeMap<u64, T>,
}

impl<T> Default for PendingChecks<T> {
    fn default() -> Self {
        Self { checker: None, last_ticket: 0, open: BTreeMap::new() }
    }
}

/// Reason for not checking a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotChecked {
    /// This node has no checker.
    Never,
    Busy,
}

impl<T> PendingChecks<T> {
    pub fn new(checker: Box<dyn Checker + Send>) -> Self {
        Self { checker: Some(checker), ..Self::default() }
    }

    /// Submits a password and returns the ticket of the verdict.
    pub fn check(&mut self, whose: T, claim: &Claim, password: &[u8]) -> Result<u64, NotChecked> {
        let checker = self.checker.as_mut().ok_or(NotChecked::Never)?;
        let ticket = self.last_ticket + 1;
        if !checker.check(ticket, claim.required_hash(), password) {
            return Err(NotChecked::Busy);
        }
        self.last_ticket = ticket;
        self.open.insert(ticket, whose);
        Ok(ticket)
    }

    /// Drops a request whose verdict is no longer needed.
    pub fn forget(&mut self, ticket: u64) {
        self.open.remove(&ticket);
    }

    /// Returns the next verdict that is still needed: ticket, requester, and whether the password
    /// matches.
    pub fn verdict(&mut self) -> Option<(u64, T, bool)> {
        let checker = self.checker.as_mut()?;
        loop {
            let (ticket, fits) = checker.verdict()?;
            if let Some(whose) = self.open.remove(&ticket) {
                return Some((ticket, whose, fits));
            }
        }
    }
}
