//! User name and password of a client, used with a certificate or instead of one.

use std::fmt;

/// User name and password. Without TLS they are sent in clear text.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// Name of the user, as known to the cluster.
    pub name: String,
    /// The password. It is never printed.
    pub password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Login({}, …)", self.name)
    }
}
