//! CRC-64 of Redis (Jones' polynomial, reflected, no inversion), eight bytes at a time.

const POLYNOMIAL: u64 = 0x95ac_9329_ac4b_c9b5;

static CRC_TABLES: [[u64; 256]; 8] = compute_tables();

const fn compute_tables() -> [[u64; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u64;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let crc = tables[table - 1][byte];
            tables[table][byte] = (crc >> 8) ^ tables[0][(crc & 0xff) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
}

/// Continues the checksum `crc` with `bytes`.
pub(super) fn update_crc(mut crc: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        crc ^= u64::from_le_bytes(*word);
        let parts = crc.to_le_bytes();
        crc = parts
            .iter()
            .zip(CRC_TABLES.iter().rev())
            .fold(0, |all, (part, table)| all ^ table[usize::from(*part)]);
    }
    rest.iter()
        .fold(crc, |crc, byte| (crc >> 8) ^ CRC_TABLES[0][usize::from(crc.to_le_bytes()[0] ^ byte)])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value is that of Redis' own test of `crc64.c`.
    #[test]
    fn the_checksum_is_that_of_redis() {
        assert_eq!(update_crc(0, b"123456789"), 0xe9c6_d914_c4b8_d9ca);
        let long: Vec<u8> = (0..=255).collect();
        let bytewise = long.iter().fold(0, |crc, byte| update_crc(crc, &[*byte]));
        assert_eq!(update_crc(update_crc(0, &long[..13]), &long[13..]), bytewise);
    }
}
