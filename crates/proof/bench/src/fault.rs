//! Faults that a measurement injects into one group member.

use std::{fmt, ops::RangeInclusive, time::Duration};

/// Valid pause durations, in milliseconds.
const STOP_MS_RANGE: RangeInclusive<u64> = 10..=60_000;
/// Valid percentages of the link capacity that remains.
const LINK_PERCENT_RANGE: RangeInclusive<u64> = 1..=99;
/// Valid flush times of a slow disk, in milliseconds.
const FLUSH_MS_RANGE: RangeInclusive<u64> = 1..=1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Pauses the process for the given duration.
    Stop(Duration),
    /// Reduces the link of the node to this percentage of its capacity, in both directions.
    NarrowLink(u64),
    /// Kills the node and restarts it on a disk with the given flush time.
    SlowDisk(Duration),
}

impl Fault {
    /// Parses a fault such as `stop:2s`, `narrow:10%` or `slow-disk:100ms`.
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, extent) = text.split_once(':')?;
        Some(match kind {
            "stop" => Self::Stop(parse_duration(extent, STOP_MS_RANGE)?),
            "narrow" => {
                Self::NarrowLink(parse_number(extent.strip_suffix('%')?, LINK_PERCENT_RANGE)?)
            }
            "slow-disk" => Self::SlowDisk(parse_duration(extent, FLUSH_MS_RANGE)?),
            _ => return None,
        })
    }

    /// Returns the time until the fault ends; `None` if it is permanent.
    pub const fn duration(self) -> Option<Duration> {
        match self {
            Self::Stop(time) => Some(time),
            Self::NarrowLink(_) | Self::SlowDisk(_) => None,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stop(time) => write!(f, "stopped for {time:?}"),
            Self::NarrowLink(percent) => write!(f, "left with {percent} % of its link"),
            Self::SlowDisk(time) => write!(f, "killed, and back with a disk of {time:?} per flush"),
        }
    }
}

fn parse_number(text: &str, range: RangeInclusive<u64>) -> Option<u64> {
    text.parse().ok().filter(|number| range.contains(number))
}

/// Parses a duration in whole milliseconds or seconds, such as `100ms` or `2s`.
fn parse_duration(text: &str, range: RangeInclusive<u64>) -> Option<Duration> {
    let (count, ms) = match text.strip_suffix("ms") {
        Some(count) => (count, 1),
        None => (text.strip_suffix('s')?, 1000),
    };
    let ms = count.parse::<u64>().ok()?.checked_mul(ms)?;
    range.contains(&ms).then(|| Duration::from_millis(ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_have_names() {
        let ms = Duration::from_millis;
        for (text, fault) in [
            ("stop:2s", Fault::Stop(ms(2000))),
            ("stop:500ms", Fault::Stop(ms(500))),
            ("narrow:10%", Fault::NarrowLink(10)),
            ("slow-disk:100ms", Fault::SlowDisk(ms(100))),
        ] {
            assert_eq!(Fault::parse(text), Some(fault), "{text}");
        }
        for bad in [
            "",
            "stop",
            "stop:2",
            "stop:0s",
            "stop:61s",
            "stop:-1s",
            "stop:99999999999999999999s",
            "stop:18446744073709551615s",
            "narrow:10",
            "narrow:0%",
            "narrow:100%",
            "slow-disk:2s",
            "slow:100ms",
            "narrow:10%:stop:2s",
        ] {
            assert_eq!(Fault::parse(bad), None, "{bad}");
        }
    }
}
