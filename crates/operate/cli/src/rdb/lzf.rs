//! Decompression of LZF, as Redis compresses long strings.

use super::types::Malformed;

/// Most bytes that one compressed byte can stand for: a reference of three bytes makes 264.
const EXPANSION_MAX: usize = 264;

/// Returns the `length` bytes that `from` stands for.
pub(super) fn decompress(from: &[u8], length: usize) -> Result<Vec<u8>, Malformed> {
    const WRONG: Malformed = Malformed("a compressed string makes no sense");
    if length > from.len().saturating_mul(EXPANSION_MAX) {
        return Err(WRONG);
    }
    // Memory grows with what is read: the length may be wrong.
    let mut to = Vec::new();
    let mut rest = from;
    while let Some((&control, after)) = rest.split_first() {
        rest = after;
        let control = usize::from(control);
        if control < 32 {
            let (literal, after) = rest.split_at_checked(control + 1).ok_or(WRONG)?;
            to.extend_from_slice(literal);
            rest = after;
        } else {
            let mut count = control >> 5;
            if count == 7 {
                let (&more, after) = rest.split_first().ok_or(WRONG)?;
                (count, rest) = (count + usize::from(more), after);
            }
            let (&low, after) = rest.split_first().ok_or(WRONG)?;
            rest = after;
            let back = ((control & 31) << 8 | usize::from(low)) + 1;
            let start = to.len().checked_sub(back).ok_or(WRONG)?;
            // The source may overlap what is being written.
            for at in start..start + count + 2 {
                to.push(to[at]);
            }
        }
        if to.len() > length {
            return Err(WRONG);
        }
    }
    if to.len() == length { Ok(to) } else { Err(WRONG) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_may_overlap_and_must_fit() {
        assert_eq!(decompress(b"\x00a\x20\x00", 4).unwrap(), b"aaaa");
        assert_eq!(decompress(b"\x01ab\xe0\x01\x01", 12).unwrap(), b"abababababab");
        for (bytes, length) in
            [(&b"\x00a\x20\x01"[..], 4), (b"\x05a", 6), (b"\x00a", 2), (b"\x00a", 1 << 40)]
        {
            assert!(decompress(bytes, length).is_err(), "{bytes:?}");
        }
    }
}
