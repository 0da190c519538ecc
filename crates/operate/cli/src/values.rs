//! Parses the values of flags, variables and configuration keys. Error messages describe the
//! permitted values.

use std::{fmt, str::FromStr, time::Duration};

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Unit of a numeric setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Number without a unit.
    Count,
    /// Bytes, parsed by [`size`]. Formatted in the largest unit that divides the value.
    Bytes,
    /// Bytes per second. Parsed and formatted like bytes, with or without `/s`.
    BytesPerSecond,
    /// Kibibytes (1024 bytes).
    KiB,
    Milliseconds,
    Percent,
    /// Link speed in Mbit/s.
    Megabits,
}

impl Unit {
    fn show(self, number: u64) -> String {
        match self {
            Self::Count => number.to_string(),
            Self::Bytes => exact_bytes(number),
            Self::BytesPerSecond => format!("{}/s", exact_bytes(number)),
            Self::KiB => {
                number.checked_mul(1024).map_or_else(|| format!("{number} KiB"), exact_bytes)
            }
            Self::Milliseconds => format!("{number} ms"),
            Self::Percent => format!("{number} %"),
            Self::Megabits => format!("{number} Mbit/s"),
        }
    }

    fn read(self, text: &str) -> Option<u64> {
        match self {
            Self::Bytes => size(text),
            Self::BytesPerSecond => size(text.strip_suffix("/s").unwrap_or(text)),
            _ => text.parse().ok(),
        }
    }

    /// Returns values that show how to write a size.
    const fn examples(self) -> &'static [&'static str] {
        match self {
            Self::Bytes => &["1GiB", "1MiB", "64KiB"],
            Self::BytesPerSecond => &["50MB"],
            _ => &[],
        }
    }
}

/// Formats a size in the largest unit that divides it, so that a limit and a value slightly above
/// it look different.
fn exact_bytes(count: u64) -> String {
    let units = [("PiB", 50), ("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let whole = |(_, shift): &(&str, u32)| count > 0 && count.is_multiple_of(1 << shift);
    match units.into_iter().find(whole) {
        Some((name, shift)) => format!("{} {name}", count >> shift),
        None => format!("{count} bytes"),
    }
}

/// Inclusive bounds of an integer, with its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    least: u64,
    /// Upper bound. `u64::MAX` means that there is none.
    most: u64,
    unit: Unit,
}

impl Number {
    /// Creates inclusive bounds.
    #[must_use]
    pub const fn between(least: u64, most: u64, unit: Unit) -> Self {
        Self { least, most, unit }
    }

    /// Creates bounds without an upper limit.
    #[must_use]
    pub const fn at_least(least: u64, unit: Unit) -> Self {
        Self::between(least, u64::MAX, unit)
    }

    /// Parses a number. Returns `None` if the text is not a number, or if the number is out of
    /// bounds.
    pub fn parse<T: TryFrom<u64>>(self, text: &str) -> Option<T> {
        let within =
            self.unit.read(text).filter(|number| (self.least..=self.most).contains(number));
        within.and_then(|number| T::try_from(number).ok())
    }

    /// Formats a rejected value for an error message.
    pub(crate) fn got(self, text: &str) -> String {
        self.unit.read(text).map_or_else(|| text.to_owned(), |number| self.unit.show(number))
    }

    /// Returns a value parser for clap.
    pub fn argument<T>(self) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
    where
        T: TryFrom<u64>,
    {
        move |text| self.parse(text).ok_or_else(|| must_be(self, &self.got(text)))
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let least = self.unit.show(self.least);
        match self.most {
            u64::MAX => write!(f, "at least {least}")?,
            most => write!(f, "between {least} and {}", self.unit.show(most))?,
        }
        let mut examples = self.unit.examples().iter();
        let example = examples.find(|text| self.parse::<u64>(text).is_some());
        example.map_or(Ok(()), |example| write!(f, ", such as {example}"))
    }
}

/// Parses a node id, for use as a clap value parser.
pub fn node_argument(text: &str) -> Result<u32, String> {
    let node = u32::from_str(text).ok().filter(|node| *node > 0);
    node.ok_or_else(|| must_be("a node id (1, 2, …)", text))
}

/// Formats an error about a value. The text follows the name of the flag, variable or key.
pub fn must_be(what: impl fmt::Display, got: &str) -> String {
    format!("must be {what} (got {got})")
}

/// Parses a duration such as `500us`, `5ms`, `0.1s`, `2m` or `1h`, and returns it in seconds.
#[must_use]
pub fn seconds(text: &str) -> Option<f64> {
    let units = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    units.into_iter().find_map(|(name, unit)| {
        let number: f64 = text.strip_suffix(name)?.trim().parse().ok()?;
        Some(number * unit)
    })
}

/// Units of whole times, largest first, with their length in milliseconds.
pub(crate) const MS_UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// Parses a whole number with one of [`MS_UNITS`] to milliseconds.
pub(crate) fn whole_ms(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (count, unit) = text.split_at(digits);
    let (_, ms) = MS_UNITS.iter().find(|(name, _)| *name == unit)?;
    count.parse::<u64>().ok()?.checked_mul(*ms)
}

/// Parses a duration; `None` if it is not between `least` and `most` seconds.
#[must_use]
pub fn duration(text: &str, least: f64, most: f64) -> Option<Duration> {
    let within = seconds(text).filter(|seconds| (least..=most).contains(seconds));
    within.map(Duration::from_secs_f64)
}

/// Parses `on` or `off`. Also accepts `true` and `false`, which TOML files and shell scripts use.
pub(crate) fn switch(text: &str) -> Option<bool> {
    match text {
        "on" | "true" => Some(true),
        "off" | "false" => Some(false),
        _ => None,
    }
}

/// Formats the error about a value that one of our own parsers rejected, with the name of its flag.
/// Returns `None` for any other error.
pub(crate) fn refused(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let why = std::error::Error::source(error)?.to_string();
    let is_ours = error.kind() == ErrorKind::ValueValidation && why.starts_with("must be ");
    let name = argument.split(' ').next().unwrap_or_default();
    is_ours.then(|| format!("{} {why}", name.trim_matches(['<', '>', '[', ']'])))
}

/// Parses a number of bytes such as `4096`, `50MB` or `1GiB`. The units k and KB (m and MB, …) are
/// powers of 1000, and KiB, MiB, … powers of 1024; upper and lower case are equal.
pub(crate) fn size(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (count, unit) = text.split_at(digits);
    let unit = unit.trim_start().to_ascii_lowercase();
    let (prefix, base) = match unit.strip_suffix("ib") {
        Some(prefix) => (prefix, 1024_u64),
        None => (unit.strip_suffix('b').unwrap_or(&unit), 1000),
    };
    let power = match prefix {
        "" if base == 1000 => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        _ => return None,
    };
    count.parse::<u64>().ok()?.checked_mul(base.pow(power))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_have_units() {
        let limits = Number::between(256 << 20, 1 << 50, Unit::Bytes);
        assert_eq!(limits.to_string(), "between 256 MiB and 1 PiB, such as 1GiB");
        assert_eq!(limits.got("134217728"), "128 MiB");
        assert_eq!(limits.got("134217729"), "134217729 bytes");
        assert_eq!(limits.got("8XiB"), "8XiB");
        assert_eq!(limits.got("8MiB"), "8 MiB");
        assert_eq!(limits.parse::<u64>("268435456"), Some(256 << 20));
        assert_eq!(limits.parse::<u64>("268435455"), None);
        let rate = Number::at_least(64 << 10, Unit::BytesPerSecond);
        assert_eq!(rate.to_string(), "at least 64 KiB/s, such as 50MB");
        assert_eq!(rate.parse::<u64>("50MB/s"), Some(50_000_000));
        assert_eq!(limits.parse::<u64>("1GiB/s"), None);
        assert_eq!(Number::between(0, 9, Unit::Count).parse::<u8>("9"), Some(9));
        assert_eq!(Number::at_least(0, Unit::Bytes).got("0"), "0 bytes");
    }

    #[test]
    fn sizes_have_an_optional_unit() {
        let texts = ["0", "7B", "64 kib", "3MiB", "1PiB", "5k", "5kB", "50MB", "4g", "1tb"];
        let bytes = [0, 7, 64 << 10, 3 << 20, 1 << 50, 5000, 5000, 50_000_000, 4_000_000_000];
        let bytes = bytes.into_iter().chain([1_000_000_000_000]).map(Some);
        assert!(texts.map(size).into_iter().eq(bytes), "{:?}", texts.map(size));
        for bad in ["", "MB", "-1", "1.5GB", "1XB", "1ib", "1kk", "1MB/s", "99999999999GiB"] {
            assert_eq!(size(bad), None, "{bad}");
        }
    }

    #[test]
    fn an_argument_that_is_refused_is_named() {
        let parser = Number::between(1, 60, Unit::Count).argument::<u64>();
        let command = clap::Command::new("c")
            .arg(clap::Arg::new("every").long("every").value_name("N").value_parser(parser))
            .arg(clap::Arg::new("node").value_name("NODE").value_parser(node_argument));
        let told =
            |words: &[&str]| refused(&command.clone().try_get_matches_from(words).unwrap_err());
        let every = "--every must be between 1 and 60 (got 61)";
        assert_eq!(told(&["c", "--every", "61"]).as_deref(), Some(every));
        let node = "NODE must be a node id (1, 2, …) (got 0)";
        assert_eq!(told(&["c", "0"]).as_deref(), Some(node));
        assert_eq!(told(&["c", "--other"]), None);
    }

    #[test]
    fn times_have_units() {
        let shown = ["10s", "500ms", "1.5m", "2h", "250us"].map(seconds);
        let expected = [10.0, 0.5, 90.0, 7200.0, 0.000_25].map(Some);
        assert_eq!(shown, expected);
        for bad in ["10", "", "s"] {
            assert_eq!(seconds(bad), None, "{bad}");
        }
        for bad in ["-1s", "nans", "infs", "0s", "99h"] {
            assert_eq!(duration(bad, 0.001, 86_400.0), None, "{bad}");
        }
    }
}
