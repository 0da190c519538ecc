//! Who checks passwords: slow work, for a thread of its own.

use std::fmt;

/// Takes passwords to be checked, and says later whether they fit.
pub trait Checker: fmt::Debug {
    /// Whether it is taken: the verdict comes with this ticket. `false`: too many wait.
    fn check(&mut self, ticket: u64, hash: &str, password: &[u8]) -> bool;

    /// The next verdict: whether the password of that ticket fits its hash.
    fn verdict(&mut self) -> Option<(u64, bool)>;
}
