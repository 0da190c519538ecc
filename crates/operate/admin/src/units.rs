//! Sizes and spans of time for people.

/// Bytes in the largest unit that they fill, with a decimal below ten of it.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let (mut tenths, mut unit) = (u128::from(count) * 10 / 1024, 0);
    while tenths >= 10 * 1024 && unit + 1 < UNITS.len() {
        tenths /= 1024;
        unit += 1;
    }
    let (whole, rest) = (tenths / 10, tenths % 10);
    match whole < 10 && rest > 0 {
        true => format!("{whole}.{rest} {}", UNITS[unit]),
        false => format!("{whole} {}", UNITS[unit]),
    }
}

/// A span of time in the unit that suits.
pub fn span(seconds: u64) -> String {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    match seconds {
        s if s < 2 * MINUTE => format!("{s} s"),
        s if s < 2 * HOUR => format!("{} min", s / MINUTE),
        s if s < 2 * DAY => format!("{} h", s / HOUR),
        s if s < 1000 * DAY => format!("{} days", s / DAY),
        _ => "years".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_spans_are_short() {
        let sizes = [0, 1023, 1024, 4096, 5300, 64 << 20, 1_300_000_000, 20 << 30];
        let expected = [
            "0 B", "1023 B", "1 KiB", "4 KiB", "5.1 KiB", "64 MiB", "1.2 GiB", "20 GiB",
        ];
        assert_eq!(sizes.map(bytes), expected);
        assert_eq!(bytes(u64::MAX), "16383 PiB");
        let spans = [0, 119, 150, 7_300, 90_000, 200_000, u64::MAX];
        let expected = ["0 s", "119 s", "2 min", "2 h", "25 h", "2 days", "years"];
        assert_eq!(spans.map(span), expected);
    }
}
