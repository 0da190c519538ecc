//! Refusals of requests by the state machine, which are the same on every node.

/// Reason for refusing a request. Its code and message are those of etcd, because clients match on
/// both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Refusal {
    /// The bytes are not a valid command or query.
    Malformed = 0,
    /// The requested history was compacted.
    Compacted = 1,
    /// The requested revision does not exist yet.
    FutureRevision = 2,
    /// A key that the request requires does not exist.
    KeyNotFound = 3,
    /// The lease does not exist or has expired.
    LeaseNotFound = 4,
    /// The request reads or returns more than its budget allows.
    TooMuch = 5,
    /// The request has no key.
    EmptyKey = 6,
    /// The request has both a value and `ignore_value`.
    ValueProvided = 7,
    /// The request has both a lease and `ignore_lease`.
    LeaseProvided = 8,
    /// The transaction has too many operations.
    TooManyOps = 9,
    /// The transaction puts a key twice, or puts and deletes it.
    DuplicateKey = 10,
    /// The requested sort order does not exist.
    InvalidSortOption = 11,
    /// A lease with this id already exists.
    LeaseExists = 12,
    /// The requested time to live of the lease is too long.
    LeaseTooLong = 13,
    /// The maximum number of leases already exists.
    TooManyLeases = 14,
    /// The maximum number of keys is already attached to the lease.
    LeaseFull = 15,
    /// Transactions are nested too deeply.
    TooDeep = 16,
    /// A member has no space, so the data may not grow.
    NoSpace = 17,
    /// The maximum number of alarms is already raised.
    TooManyAlarms = 18,
    /// The client is not authenticated, or the request names no user.
    UserEmpty = 19,
    /// Users or roles have changed since the request was admitted.
    AuthOldRevision = 20,
    /// This node's state of users and roles is older than the one under which the request was
    /// admitted.
    AuthBehind = 21,
    /// The user lacks the permission.
    PermissionDenied = 22,
    /// The user root does not exist.
    RootUserNotExist = 23,
    /// The user root does not have the role root.
    RootRoleNotExist = 24,
    UserAlreadyExists = 25,
    UserNotFound = 26,
    RoleAlreadyExists = 27,
    RoleNotFound = 28,
    /// The request names no role.
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
    AuthFull = 34,
    /// The key is longer than the limit.
    KeyTooLong = 35,
}

impl Refusal {
    const ALL: [Self; 36] = [
        Self::Malformed,
        Self::Compacted,
        Self::FutureRevision,
        Self::KeyNotFound,
        Self::LeaseNotFound,
        Self::TooMuch,
        Self::EmptyKey,
        Self::ValueProvided,
        Self::LeaseProvided,
        Self::TooManyOps,
        Self::DuplicateKey,
        Self::InvalidSortOption,
        Self::LeaseExists,
        Self::LeaseTooLong,
        Self::TooManyLeases,
        Self::LeaseFull,
        Self::TooDeep,
        Self::NoSpace,
        Self::TooManyAlarms,
        Self::UserEmpty,
        Self::AuthOldRevision,
        Self::AuthBehind,
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
        Self::AuthFull,
        Self::KeyTooLong,
    ];

    /// Encodes the refusal as a byte of a reply.
    pub const fn to_byte(self) -> u8 {
        self as u8
    }

    /// Decodes a refusal from a byte of a reply.
    pub fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.get(usize::from(byte)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_what_was_said() {
        for refusal in Refusal::ALL {
            assert_eq!(Refusal::from_byte(refusal.to_byte()), Some(refusal));
        }
        assert_eq!(Refusal::from_byte(200), None);
    }
}
