//! Refusals of requests by the state machine, which are the same on every node.

/// Reason for refusing a request. Clients match on the code and message, so both are etcd's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Refusal {
    /// The bytes are not a valid command or query.
    Malformed = 0,
    /// The requested history was compacted.
    Compacted = 1,
    /// The requested revision does not exist yet.
    FutureRevision = 2,
    /// A required key does not exist.
    KeyNotFound = 3,
    /// The lease does not exist or has expired.
    LeaseNotFound = 4,
    /// The request reads or returns more than its budget allows.
    BudgetExceeded = 5,
    EmptyKey = 6,
    /// The request has both a value and `ignore_value`.
    ValueProvided = 7,
    /// The request has both a lease and `ignore_lease`.
    LeaseProvided = 8,
    TooManyOps = 9,
    /// The transaction puts a key twice, or puts and deletes it.
    DuplicateKey = 10,
    /// The requested sort order does not exist.
    InvalidSortOption = 11,
    LeaseExists = 12,
    /// The requested time to live is too long.
    LeaseTooLong = 13,
    TooManyLeases = 14,
    /// The lease has the maximum number of keys.
    LeaseKeysFull = 15,
    /// Transactions are nested too deeply.
    NestedTooDeep = 16,
    /// A member has no space, so the data may not grow.
    NoSpace = 17,
    TooManyAlarms = 18,
    /// The client is not authenticated, or the request names no user.
    UserEmpty = 19,
    /// Users or roles have changed since the request was admitted.
    AuthOldRevision = 20,
    /// This node's users and roles are older than those under which the request was admitted.
    AuthOutdated = 21,
    PermissionDenied = 22,
    RootUserNotExist = 23,
    /// The user `root` lacks the role `root`.
    RootRoleNotExist = 24,
    UserAlreadyExists = 25,
    UserNotFound = 26,
    RoleAlreadyExists = 27,
    RoleNotFound = 28,
    RoleEmpty = 29,
    /// The user does not have this role.
    RoleNotGranted = 30,
    /// The role does not have this permission.
    PermissionNotGranted = 31,
    /// The request contains no permission.
    PermissionNotGiven = 32,
    /// The change would leave no user who can manage users, or the permission covers no keys.
    InvalidAuthManagement = 33,
    /// The limit on users, roles, permissions or their total size is reached.
    AuthLimitReached = 34,
    KeyTooLong = 35,
}

impl Refusal {
    const ALL: [Self; 36] = [
        Self::Malformed,
        Self::Compacted,
        Self::FutureRevision,
        Self::KeyNotFound,
        Self::LeaseNotFound,
        Self::BudgetExceeded,
        Self::EmptyKey,
        Self::ValueProvided,
        Self::LeaseProvided,
        Self::TooManyOps,
        Self::DuplicateKey,
        Self::InvalidSortOption,
        Self::LeaseExists,
        Self::LeaseTooLong,
        Self::TooManyLeases,
        Self::LeaseKeysFull,
        Self::NestedTooDeep,
        Self::NoSpace,
        Self::TooManyAlarms,
        Self::UserEmpty,
        Self::AuthOldRevision,
        Self::AuthOutdated,
        Self::PermissionDenied,
        Self::RootUserNotExist,
        Self::RootRoleNotExist,
        Self::UserAlreadyExists,
        Self::UserNotFound,
        Self::RoleAlreadyExists,
        Self::RoleNotFound,
        Self::RoleEmpty,
        Self::RoleNotGranted,
        Self::PermissionNotGranted,
        Self::PermissionNotGiven,
        Self::InvalidAuthManagement,
        Self::AuthLimitReached,
        Self::KeyTooLong,
    ];

    pub const fn to_byte(self) -> u8 {
        self as u8
    }

    pub fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.get(usize::from(byte)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_round_trip() {
        for refusal in Refusal::ALL {
            assert_eq!(Refusal::from_byte(refusal.to_byte()), Some(refusal));
        }
        assert_eq!(Refusal::from_byte(200), None);
    }
}
