//! Formats sizes, durations, counts and rates uniformly for people.

use quorate_replica::backup::{ERA_DISTANCE, SLOT_RANGE_BITS};

/// Formats a size in the largest unit that does not exceed it. Values below ten get one decimal.
pub fn format_bytes(count: u64) -> String {
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

/// Formats a slot. Each restore begins a new range of slots, whose number precedes the slot:
/// `517:1234`.
pub fn format_slot(slot: u64) -> String {
    format_in_range(slot, 1 << SLOT_RANGE_BITS)
}

/// Formats an era, preceded by the number of restores if there was one: `1:3`.
pub fn format_era(era: u64) -> String {
    format_in_range(era, ERA_DISTANCE.into())
}

fn format_in_range(number: u64, length: u64) -> String {
    match (number / length, number % length) {
        (0, number) => number.to_string(),
        (range, number) => format!("{range}:{number}"),
    }
}

/// Formats a duration of whole seconds in a suitable unit.
pub fn format_span(seconds: u64) -> String {
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

/// Formats a Unix time as a date in UTC (proleptic Gregorian calendar).
pub fn format_date(unix_time: u64) -> String {
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut days = unix_time / 86_400;
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    format!("{year}-{month:02}-{:02}", days + 1)
}

/// Formats a size exactly: in KiB if it is a multiple of 1 KiB, else in bytes.
pub fn format_exact_bytes(count: usize) -> String {
    if count >= 1024 && count.is_multiple_of(1024) {
        format!("{} KiB", count >> 10)
    } else {
        format!("{count} B")
    }
}

/// Formats a duration in seconds, using a suitable unit.
pub fn format_seconds(seconds: f64) -> String {
    match seconds {
        s if s >= 1.0 => format!("{s:.2} s"),
        s if s >= 1e-3 => format!("{:.2} ms", s * 1e3),
        s if s >= 1e-6 => format!("{:.1} µs", s * 1e6),
        s => format!("{:.1} ns", s * 1e9),
    }
}

/// Formats a duration in microseconds with two or three digits.
pub fn format_micros(us: f64) -> String {
    match us {
        us if us < 1e3 => format!("{us:.0} µs"),
        us if us < 1e4 => format!("{:.1} ms", us / 1e3),
        us if us < 1e6 => format!("{:.0} ms", us / 1e3),
        us => format!("{:.1} s", us / 1e6),
    }
}

/// Formats a number with a suffix, such as `1.2 M` or `34 k`.
pub fn format_thousands(value: f64) -> String {
    match value {
        v if v >= 1e9 => format!("{:.1} G", v / 1e9),
        v if v >= 1e6 => format!("{:.1} M", v / 1e6),
        v if v >= 1e4 => format!("{:.0} k", v / 1e3),
        v => format!("{v:.0} "),
    }
}

/// Formats a rate per second, such as `12.3 k`.
pub fn format_rate(value: f64) -> String {
    match value {
        v if v >= 1e7 => format!("{:.0} M", v / 1e6),
        v if v >= 1e6 => format!("{:.1} M", v / 1e6),
        v if v >= 1e4 => format!("{:.0} k", v / 1e3),
        v if v >= 1e3 => format!("{:.1} k", v / 1e3),
        v => format!("{v:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations_are_abbreviated() {
        let sizes = [0, 1023, 1024, 4096, 5300, 64 << 20, 1_300_000_000, 20 << 30];
        let expected =
            ["0 B", "1023 B", "1 KiB", "4 KiB", "5.1 KiB", "64 MiB", "1.2 GiB", "20 GiB"];
        assert_eq!(sizes.map(format_bytes), expected);
        assert_eq!(format_bytes(u64::MAX), "16383 PiB");
        let spans = [0, 119, 150, 7_300, 90_000, 200_000, u64::MAX];
        let expected = ["0 s", "119 s", "2 min", "2 h", "25 h", "2 days", "years"];
        assert_eq!(spans.map(format_span), expected);
    }

    #[test]
    fn rates_and_times_are_abbreviated() {
        let rates = [0.4, 999.0, 1234.0, 12_345.0, 1_234_567.0, 5e7].map(format_rate);
        assert_eq!(rates, ["0", "999", "1.2 k", "12 k", "1.2 M", "50 M"]);
        let times = [12.4, 1250.0, 45_000.0, 2_500_000.0].map(format_micros);
        assert_eq!(times, ["12 µs", "1.2 ms", "45 ms", "2.5 s"]);
    }

    #[test]
    fn dates_are_computed_from_unix_time() {
        assert_eq!(format_date(0), "1970-01-01");
        assert_eq!(format_date(951_782_400), "2000-02-29");
        assert_eq!(format_date(1_767_225_599), "2025-12-31");
        assert_eq!(format_date(1_767_225_600), "2026-01-01");
    }
}
