//! Forms of replies to hash commands, as encoded in the log.

pub(super) mod how {
    /// HSET: replies with the number of new fields.
    pub(crate) const COUNT: u8 = 0;
    /// HMSET: replies with OK.
    pub(crate) const OK: u8 = 1;
    /// HSETNX: sets only an absent field, and replies whether it did.
    pub(crate) const ABSENT: u8 = 2;
}

pub(super) mod part {
    pub(crate) const FIELDS: u8 = 1;
    pub(crate) const VALUES: u8 = 2;
    pub(crate) const BOTH: u8 = 3;
}
