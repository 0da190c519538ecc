//! A client's user name and password, used with a certificate or instead of one.

use std::fmt;

/// A user name and its password. Without TLS it is sent in clear text.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The user's name.
    pub name: String,
    /// The password; never printed.
    pub password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Login({}, …)", self.name)
    }
}
