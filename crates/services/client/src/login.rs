//! A client's user name and password, in addition to its certificate or instead of one.

use std::fmt;

/// A name and its password. Without certificates it can be read on its way.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// A user.
    pub name: String,
    /// Never shown.
    pub password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Login({}, …)", self.name)
    }
}
