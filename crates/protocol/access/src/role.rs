//! Roles. Each includes the permissions of the previous one.

use std::{fmt, str::FromStr};

/// Permissions of a user, cumulative in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Role {
    /// May read data and view the state of the cluster.
    Reader = 1,
    /// May change data.
    Writer = 2,
    /// May operate the cluster: transfer leadership, take snapshots and backups, change settings,
    /// and delete all data.
    Operator = 3,
    /// May change the members of the cluster and the roles of users.
    Admin = 4,
}

impl Role {
    pub const ALL: [Self; 4] = [Self::Reader, Self::Writer, Self::Operator, Self::Admin];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Reader => "reader",
            Self::Writer => "writer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }

    pub(crate) fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|role| *role as u8 == number)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|role| role.name() == text);
        known.ok_or_else(|| "roles are reader, writer, operator, admin".to_owned())
    }
}
