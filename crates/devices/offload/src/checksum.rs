//! One's-complement sums, as in IP and UDP, and the CRC-32C of values.

/// Adds big-endian 16-bit words to an earlier one's-complement sum. The result is zero only if all
/// inputs are zero.
pub fn ones_complement_sum(before: u16, bytes: &[u8]) -> u16 {
    let mut wide = u64::from(before);
    let (words, rest) = bytes.as_chunks::<2>();
    for word in words {
        wide += u64::from(u16::from_be_bytes(*word));
    }
    if let [last] = rest {
        wide += u64::from(u16::from_be_bytes([*last, 0]));
    }
    fold_carries(wide)
}

/// Folds the carries of a wide sum into 16 bits.
const fn fold_carries(wide: u64) -> u16 {
    let mut wide = wide;
    while wide > 0xffff {
        wide = (wide & 0xffff) + (wide >> 16);
    }
    (wide & 0xffff) as u16
}

/// Returns the UDP checksum field for `sum`: its complement, or all ones where the complement is
/// zero, because zero means "no checksum".
pub const fn udp_checksum(sum: u16) -> u16 {
    match !sum {
        0 => 0xffff,
        complement => complement,
    }
}

/// Returns the CRC-32C of a value, which the value's origin computes and learners verify.
pub fn crc32c(bytes: &[u8]) -> u32 {
    !bytes
        .iter()
        .fold(u32::MAX, |crc, byte| crc >> 8 ^ TABLE[usize::from(crc.to_le_bytes()[0] ^ byte)])
}

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut at = 0_u32;
    while at < 256 {
        let mut crc = at;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
            bit += 1;
        }
        table[at as usize] = crc;
        at += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_match_the_example_of_rfc_1071() {
        // Example from RFC 1071, section 3.
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(ones_complement_sum(0, &bytes), 0xddf2);
        assert_eq!(ones_complement_sum(ones_complement_sum(0, &bytes[..4]), &bytes[4..]), 0xddf2);
        assert_eq!(ones_complement_sum(0, &[0x12]), 0x1200);
        assert_eq!(ones_complement_sum(0, &[0; 64]), 0);
        assert_eq!(ones_complement_sum(0, &[0xff; 1408]), 0xffff);
        assert_eq!(
            (udp_checksum(0xffff), udp_checksum(0), udp_checksum(1)),
            (0xffff, 0xffff, 0xfffe)
        );
    }

    #[test]
    fn the_crc_is_castagnolis() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(b""), 0);
    }
}
