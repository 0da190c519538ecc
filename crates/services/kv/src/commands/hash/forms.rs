//! What a command on a hash replies with, as it stands in the command.

/// Forms of the reply of HSET and its relatives.
pub(super) mod how {
    /// HSET: how many fields are new.
    pub(crate) const COUNT: u8 = 0;
    /// HMSET.
    pub(crate) const OK: u8 = 1;
    /// HSETNX: whether the field is new; if it is not, nothing is done.
    pub(crate) const ABSENT: u8 = 2;
}

/// Parts that HKEYS and its relatives return.
pub(super) mod part {
    pub(crate) const FIELDS: u8 = 1;
    pub(crate) const VALUES: u8 = 2;
    pub(crate) const BOTH: u8 = 3;
}
