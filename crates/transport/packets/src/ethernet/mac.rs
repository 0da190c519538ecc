//! Hardware addresses of interfaces and multicast groups.

use std::{fmt, str::FromStr};

/// A hardware address: six bytes, in transmission order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// Address of all interfaces on a network segment.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Returns whether this is a multicast address that can be joined, which excludes the broadcast
    /// address.
    pub fn is_multicast(self) -> bool {
        self.0[0] & 1 == 1 && self != Self::BROADCAST
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// Error for text that is not a hardware address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a hardware address is six bytes in hexadecimal, such as 02:00:00:00:00:01")]
pub struct InvalidMac;

impl FromStr for Mac {
    type Err = InvalidMac;

    fn from_str(text: &str) -> Result<Self, InvalidMac> {
        let mut parts = text.split(':');
        let mut bytes = [0; 6];
        for byte in &mut bytes {
            let part = parts.next().ok_or(InvalidMac)?;
            // `from_str_radix` would accept a sign, too.
            let plain = part.len() == 2 && part.bytes().all(|digit| digit.is_ascii_hexdigit());
            *byte = u8::from_str_radix(part, 16).ok().filter(|_| plain).ok_or(InvalidMac)?;
        }
        match parts.next() {
            None => Ok(Self(bytes)),
            Some(_) => Err(InvalidMac),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mac_addresses_round_trip_as_text() {
        for text in ["02:00:00:00:00:01", "ff:ff:ff:ff:ff:ff", "01:00:5e:7f:0a:b0"] {
            assert_eq!(text.parse::<Mac>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "02",
            "02:00:00:00:00",
            "02:00:00:00:00:01:",
            "2:0:0:0:0:1",
            "+2:00:00:00:00:01",
            "02:00:00:00:00:0g",
            "02-00-00-00-00-01",
        ] {
            assert_eq!(text.parse::<Mac>(), Err(InvalidMac), "{text}");
        }
    }

    #[test]
    fn only_multicast_addresses_are_groups() {
        for (text, group) in [
            ("02:00:00:00:00:01", false),
            ("03:00:00:00:00:01", true),
            ("01:00:5e:00:00:01", true),
            ("ff:ff:ff:ff:ff:ff", false),
        ] {
            assert_eq!(text.parse::<Mac>().unwrap().is_multicast(), group, "{text}");
        }
    }
}
