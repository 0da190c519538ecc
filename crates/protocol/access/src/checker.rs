//! Password checks: slow work, for a thread of its own.

use std::{collections::BTreeMap, fmt};

use crate::Claim;

/// Takes passwords to be checked, and reports later whether they fit.
pub trait Checker: fmt::Debug {
    /// Returns whether the check is accepted: the verdict comes with this ticket. `false`: too many
    /// wait.
    fn check(&mut self, ticket: u64, hash: &str, password: &[u8]) -> bool;

    /// Returns the next verdict: whether the password of that ticket fits its hash.
    fn verdict(&mut self) -> Option<(u64, bool)>;
}

/// Passwords under check, and their requesters.
#[derive(Debug)]
pub struct Desk<T> {
    checker: Option<Box<dyn Checker + Send>>,
    last: u64,
    open: BTreeMap<u64, T>,
}

impl<T> Default for Desk<T> {
    fn default() -> Self {
        Self { checker: None, last: 0, open: BTreeMap::new() }
    }
}

/// Reason that a password is not checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotChecked {
    /// There is no checker here.
    Never,
    /// Too many wait.
    Busy,
}

impl<T> Desk<T> {
    /// Creates a desk with a checker.
    pub fn new(checker: Box<dyn Checker + Send>) -> Self {
        Self { checker: Some(checker), ..Self::default() }
    }

    /// Has a password checked; gives the ticket of the verdict.
    pub fn check(&mut self, whose: T, claim: &Claim, password: &[u8]) -> Result<u64, NotChecked> {
        let checker = self.checker.as_mut().ok_or(NotChecked::Never)?;
        let ticket = self.last + 1;
        if !checker.check(ticket, claim.hash(), password) {
            return Err(NotChecked::Busy);
        }
        self.last = ticket;
        self.open.insert(ticket, whose);
        Ok(ticket)
    }

    /// Drops the request: its verdict is not needed any more.
    pub fn forget(&mut self, ticket: u64) {
        self.open.remove(&ticket);
    }

    /// Returns the next verdict that is still needed: the ticket, its requester, and whether the
    /// password fits.
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
