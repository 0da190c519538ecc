//! Arguments of SORT, as encoded in the log.

use crate::encode::{Decoder, Fault, List};

/// Order of the elements, and the values to return for each element.
#[derive(Clone, Copy)]
pub(super) struct Order<'a> {
    /// True if the largest element comes first.
    pub(super) is_descending: bool,
    /// True if elements are compared as bytes instead of numbers.
    pub(super) alpha: bool,
    /// Pattern of the keys with the sort weights. A pattern without a star disables sorting.
    pub(super) weight_pattern: Option<&'a [u8]>,
    /// Number of elements to skip, and to return. All are returned if the second is negative.
    pub(super) limit: (i64, i64),
    /// Patterns of the values to return in place of the elements.
    pub(super) gets: List<'a>,
}

/// Flags in the encoding of SORT.
pub(super) mod flag {
    pub(crate) const BACK: u8 = 1;
    pub(crate) const ALPHA: u8 = 2;
    pub(crate) const BY: u8 = 4;
}

impl<'a> Order<'a> {
    pub(super) fn decode(from: &mut Decoder<'a>) -> Result<Self, Fault> {
        let flags = from.byte()?;
        let by = from.bytes()?;
        Ok(Self {
            is_descending: flags & flag::BACK != 0,
            alpha: flags & flag::ALPHA != 0,
            weight_pattern: (flags & flag::BY != 0).then_some(by),
            limit: (from.signed()?, from.signed()?),
            gets: from.list()?,
        })
    }
}
