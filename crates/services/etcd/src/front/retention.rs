//! The history that an operator keeps.

use std::{fmt, str::FromStr, time::Duration};

/// History that is kept. Older history is compacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    All,
    Time(Duration),
    /// Number of revisions, including the current one.
    Revisions(i64),
}

/// Error for text that is not a [`Retention`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidRetention;

impl fmt::Display for InvalidRetention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "say off, a time such as 1h, 30m or 7d, or a number of revisions such as 10000rev",
        )
    }
}

impl FromStr for Retention {
    type Err = InvalidRetention;

    /// A number without a unit is refused: etcd reads it as hours or as revisions, by another flag.
    fn from_str(text: &str) -> Result<Self, InvalidRetention> {
        if text == "off" {
            return Ok(Self::All);
        }
        let unit = text.find(|c: char| !c.is_ascii_digit()).ok_or(InvalidRetention)?;
        let (number, unit) = text.split_at(unit);
        let number: u32 = number.parse().map_err(|_| InvalidRetention)?;
        let seconds = match unit {
            _ if number == 0 => return Err(InvalidRetention),
            "rev" => return Ok(Self::Revisions(number.into())),
            "s" => 1,
            "m" => 60,
            "h" => 3600,
            "d" => 24 * 3600,
            _ => return Err(InvalidRetention),
        };
        Ok(Self::Time(Duration::from_secs(u64::from(number) * seconds)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retentions_need_a_unit() {
        let of = |text: &str| text.parse();
        assert_eq!(of("off"), Ok(Retention::All));
        assert_eq!(of("90m"), Ok(Retention::Time(Duration::from_secs(5400))));
        assert_eq!(of("7d"), Ok(Retention::Time(Duration::from_secs(7 * 86400))));
        assert_eq!(of("1000rev"), Ok(Retention::Revisions(1000)));
        for bad in ["", "1", "0h", "0rev", "-1h", "1.5h", "1 h", "h", "9999999999s", "1w", "1é"] {
            assert_eq!(of(bad), Err(InvalidRetention), "{bad}");
        }
    }
}
