//! Refusals of requests, the same from the state machine on every node.

/// Reason why a request is refused. Clients match on code and text, which are those of etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Refusal {
    /// The bytes are no command.
    Malformed = 0,
    /// The history requested was discarded.
    Compacted = 1,
    /// There is no such revision yet.
    FutureRevision = 2,
    /// A key that must be there is not.
    KeyNotFound = 3,
    /// There is no such lease.
    LeaseNotFound = 4,
    /// The request reads or answers more than is allowed.
    TooMuch = 5,
    /// A request without a key.
    EmptyKey = 6,
    /// A value in addition to `ignore_value`.
    ValueProvided = 7,
    /// A lease in addition to `ignore_lease`.
    LeaseProvided = 8,
    /// More operations than a transaction may have.
    TooManyOps = 9,
    /// A key that is put twice, or put and deleted.
    DuplicateKey = 10,
    /// An order that does not exist.
    InvalidSortOption = 11,
    /// The lease exists already.
    LeaseExists = 12,
    /// A lease for longer than can be.
    LeaseTooLong = 13,
    /// More leases than there may be.
    TooManyLeases = 14,
    /// More keys than may go with a lease.
    LeaseFull = 15,
    /// Transactions within transactions, deeper than may be.
    TooDeep = 16,
    /// A member has no space, so nothing may grow.
    NoSpace = 17,
    /// More alarms than there may be.
    TooManyAlarms = 18,
    /// An unauthenticated client; or a user without a name.
    UserEmpty = 19,
    /// Users and roles changed since the request was let in.
    AuthOldRevision = 20,
    /// This node knows an older state of users and roles than the one that admitted the request.
    AuthBehind = 21,
    /// A user may not do this.
    PermissionDenied = 22,
    /// There is no user who may do everything.
    RootUserNotExist = 23,
    /// The user root may not do everything.
    RootRoleNotExist = 24,
    /// The user exists already.
    UserAlreadyExists = 25,
    /// There is no such user.
    UserNotFound = 26,
    /// The role exists already.
    RoleAlreadyExists = 27,
    /// There is no such role.
    RoleNotFound = 28,
    /// A role without a name.
    RoleEmpty = 29,
    /// The user does not have this role.
    RoleNotGranted = 30,
    /// The role does not have this permission.
    PermissionNotGranted = 31,
    /// There is no permission in the request.
    PermissionNotGiven = 32,
    /// No user could administer users any more; or a permission of no keys.
    InvalidAuthManagement = 33,
    /// More users, roles, permissions or bytes of them than there may be.
    AuthFull = 34,
    /// A key that is longer than one may be.
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

    /// Encodes the refusal for a reply.
    pub const fn to_byte(self) -> u8 {
        self as u8
    }

    /// Decodes a refusal from a reply.
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
