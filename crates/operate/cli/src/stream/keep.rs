//! Parses and formats the retention limits of a stream.

use quorate_admin::units;
use quorate_client::stream::{Error, Retention, Streams};

use crate::values::{MS_UNITS, must_be, size, whole_ms};

/// Limit on bytes or age. `None` means no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RetentionLimit(Option<u64>);

/// Parses `all` or a size.
pub(super) fn parse_bytes(text: &str) -> Result<RetentionLimit, String> {
    if text == "all" {
        return Ok(RetentionLimit(None));
    }
    let bytes = size(text).filter(|bytes| *bytes < u64::MAX);
    bytes
        .map(|bytes| RetentionLimit(Some(bytes)))
        .ok_or_else(|| must_be("a size such as 1GiB, or all", text))
}

/// Parses `forever`, or a number with a unit of time.
pub(super) fn parse_age(text: &str) -> Result<RetentionLimit, String> {
    if text == "forever" {
        return Ok(RetentionLimit(None));
    }
    let age = whole_ms(text).filter(|ms| *ms < u64::MAX);
    age.map(|ms| RetentionLimit(Some(ms)))
        .ok_or_else(|| must_be("an age such as 7d, 12h, 30m, 90s or 500ms, or forever", text))
}

/// Formats an age in the largest unit that divides it evenly.
fn format_age(ms: u64) -> String {
    let whole = |(_, unit): &&(&str, u64)| ms.is_multiple_of(*unit);
    let found = MS_UNITS.iter().find(whole);
    let (name, unit) = found.filter(|_| ms > 0).unwrap_or(&("ms", 1));
    format!("{}{name}", ms / unit)
}

/// Formats both retention limits in a short form.
pub(super) fn format_limits(keep: Retention) -> String {
    match (keep.bytes.map(units::format_bytes), keep.age_max_ms.map(format_age)) {
        (None, None) => "all".to_owned(),
        (Some(bytes), None) => bytes,
        (None, Some(age)) => age,
        (Some(bytes), Some(age)) => format!("{bytes}, {age}"),
    }
}

/// Sets the given limits and leaves the other limit unchanged. Returns the resulting retention and
/// the start of the stream.
pub(super) fn set(
    streams: &mut Streams,
    name: &str,
    bytes: Option<RetentionLimit>,
    age: Option<RetentionLimit>,
) -> Result<(Retention, u64), Error> {
    let keep = match (bytes, age) {
        (Some(RetentionLimit(bytes)), Some(RetentionLimit(age_ms))) => {
            Retention { bytes, age_max_ms: age_ms }
        }
        _ => {
            let now = streams.stat(name)?.retention;
            Retention {
                bytes: bytes.map_or(now.bytes, |RetentionLimit(bytes)| bytes),
                age_max_ms: age.map_or(now.age_max_ms, |RetentionLimit(age_ms)| age_ms),
            }
        }
    };
    Ok((keep, streams.set_retention(name, keep)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_displayed_as_parsed() {
        for said in ["7d", "36h", "90m", "45s", "1500ms", "0ms"] {
            let Ok(RetentionLimit(Some(ms))) = parse_age(said) else {
                panic!("{said}");
            };
            assert_eq!(format_age(ms), said);
        }
        assert_eq!(parse_age("48h"), parse_age("2d"));
        assert_eq!(parse_age("forever"), Ok(RetentionLimit(None)));
        let overflow = format!("{}d", u64::MAX);
        for bad in ["", "7", "d", "7 d", "-1d", "7w", "1.5h", "all", &overflow] {
            assert!(parse_age(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn bytes_are_a_size_or_all() {
        assert_eq!(parse_bytes("1048576"), Ok(RetentionLimit(Some(1 << 20))));
        assert_eq!(parse_bytes("1GiB"), Ok(RetentionLimit(Some(1 << 30))));
        assert_eq!(parse_bytes("all"), Ok(RetentionLimit(None)));
        let most = u64::MAX.to_string();
        for bad in ["", "1GiB/s", "-1", "forever", &most] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn both_bounds_are_shown() {
        let shown = |bytes, age_ms| format_limits(Retention { bytes, age_max_ms: age_ms });
        assert_eq!(shown(None, None), "all");
        assert_eq!(shown(Some(1 << 30), None), "1 GiB");
        assert_eq!(shown(None, Some(60_000)), "1m");
        assert_eq!(shown(Some(4096), Some(7_200_000)), "4 KiB, 2h");
    }
}
