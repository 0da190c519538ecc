//! Parses and formats the retention limits of a stream.

use quorate_admin::units;
use quorate_client::stream::{Error, Keep, Streams};

use crate::values::must_be;

/// Limit on bytes or age. `None` means no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bound(Option<u64>);

const SECOND_MS: u64 = 1000;
/// Units for an age, largest first, with their length in milliseconds.
const UNITS: [(&str, u64); 5] = [
    ("d", 24 * 3600 * SECOND_MS),
    ("h", 3600 * SECOND_MS),
    ("m", 60 * SECOND_MS),
    ("s", SECOND_MS),
    ("ms", 1),
];

/// Parses `all` or a number of bytes.
pub(super) fn parse_bytes(text: &str) -> Result<Bound, String> {
    if text == "all" {
        return Ok(Bound(None));
    }
    let bytes = text.parse().ok().filter(|bytes| *bytes < u64::MAX);
    bytes.map(|bytes| Bound(Some(bytes))).ok_or_else(|| must_be("a number of bytes, or all", text))
}

/// Parses `forever`, or a number with one of [`UNITS`].
pub(super) fn parse_age(text: &str) -> Result<Bound, String> {
    if text == "forever" {
        return Ok(Bound(None));
    }
    let digits = text.find(|c: char| !c.is_ascii_digit());
    let (count, unit) = text.split_at(digits.unwrap_or(text.len()));
    let unit = UNITS.iter().find(|(name, _)| *name == unit);
    let age = unit.and_then(|(_, ms)| count.parse::<u64>().ok()?.checked_mul(*ms));
    age.filter(|ms| *ms < u64::MAX)
        .map(|ms| Bound(Some(ms)))
        .ok_or_else(|| must_be("an age such as 7d, 12h, 30m, 90s or 500ms, or forever", text))
}

/// Formats an age in the largest unit that divides it evenly.
fn age(ms: u64) -> String {
    let whole = |(_, unit): &&(&str, u64)| ms.is_multiple_of(*unit);
    let found = UNITS.iter().find(whole);
    let (name, unit) = found.filter(|_| ms > 0).unwrap_or(&("ms", 1));
    format!("{}{name}", ms / unit)
}

/// Formats both retention limits in a short form.
pub(super) fn shown(keep: Keep) -> String {
    match (keep.bytes.map(units::bytes), keep.age_ms.map(age)) {
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
    bytes: Option<Bound>,
    age: Option<Bound>,
) -> Result<(Keep, u64), Error> {
    let keep = match (bytes, age) {
        (Some(Bound(bytes)), Some(Bound(age_ms))) => Keep { bytes, age_ms },
        _ => {
            let now = streams.stat(name)?.keep;
            Keep {
                bytes: bytes.map_or(now.bytes, |Bound(bytes)| bytes),
                age_ms: age.map_or(now.age_ms, |Bound(age_ms)| age_ms),
            }
        }
    };
    Ok((keep, streams.retain(name, keep)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_shown_as_they_are_said() {
        for said in ["7d", "36h", "90m", "45s", "1500ms", "0ms"] {
            let Ok(Bound(Some(ms))) = parse_age(said) else {
                panic!("{said}");
            };
            assert_eq!(age(ms), said);
        }
        assert_eq!(parse_age("48h"), parse_age("2d"));
        assert_eq!(parse_age("forever"), Ok(Bound(None)));
        let overflow = format!("{}d", u64::MAX);
        for bad in ["", "7", "d", "7 d", "-1d", "7w", "1.5h", "all", &overflow] {
            assert!(parse_age(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn bytes_are_a_number_or_all() {
        assert_eq!(parse_bytes("1048576"), Ok(Bound(Some(1 << 20))));
        assert_eq!(parse_bytes("all"), Ok(Bound(None)));
        let most = u64::MAX.to_string();
        for bad in ["", "1GiB", "-1", "forever", &most] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn both_bounds_are_shown() {
        let shown = |bytes, age_ms| shown(Keep { bytes, age_ms });
        assert_eq!(shown(None, None), "all");
        assert_eq!(shown(Some(1 << 30), None), "1 GiB");
        assert_eq!(shown(None, Some(60_000)), "1m");
        assert_eq!(shown(Some(4096), Some(7_200_000)), "4 KiB, 2h");
    }
}
