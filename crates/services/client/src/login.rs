//! User name and password of a client, with or instead of a certificate.

use std::fmt;

/// User name and password, sent in clear text without TLS.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// Name of the user in the cluster.
    pub name: String,
    /// Password, never printed.
    pub password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Login({}, …)", self.name)
    }
}
