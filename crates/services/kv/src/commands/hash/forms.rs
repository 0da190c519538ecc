//! Forms of replies that commands on hashes request, as encoded in the log.

/// Forms of the reply to HSET, HMSET and HSETNX.
pub(super) mod how {
    /// HSET replies with the number of new fields.
    pub(crate) const COUNT: u8 = 0;
    /// HMSET replies OK.
    pub(crate) const OK: u8 = 1;
    /// HSETNX sets only a new field and replies whether it did.
    pub(crate) const ABSENT: u8 = 2;
}

/// Parts of a hash that HKEYS, HVALS and HGETALL return.
pub(super) mod part {
    pub(crate) const FIELDS: u8 = 1;
    pub(crate) const VALUES: u8 = 2;
    pub(crate) const BOTH: u8 = 3;
}
