//! Scores of sorted sets: parsing, order, encoding and formatting.
//!
//! A score is an IEEE 754 double. All machines must agree on results, so only operations with an
//! exactly specified result are used: comparison, addition and multiplication rounded to nearest,
//! and the shortest decimal text, which is unique.

use std::fmt::Write as _;

/// Score: any double except NaN.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(super) struct Score(f64);

impl Score {
    pub(super) const ZERO: Self = Self(0.0);
    pub(super) const BYTES: usize = 8;

    pub(super) fn new(number: f64) -> Option<Self> {
        (!number.is_nan()).then_some(Self(number))
    }

    pub(super) const fn number(self) -> f64 {
        self.0
    }

    /// Parses a decimal number with an optional exponent, or an infinity. Overflow and underflow
    /// are errors, as in Redis.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        const TEXT_BYTES_MAX: usize = 1024;
        let text = std::str::from_utf8(text).ok()?;
        if text.len() > TEXT_BYTES_MAX {
            return None;
        }
        let number: f64 = text.parse().ok()?;
        let digits = text.split(['e', 'E']).next().unwrap_or_default();
        let said_infinite = text.contains(['i', 'I', 'n', 'N']);
        let said_zero = !digits.contains(|digit: char| matches!(digit, '1'..='9'));
        if (number.is_infinite() && !said_infinite) || (number == 0.0 && !said_zero) {
            return None;
        }
        Self::new(number)
    }

    /// Returns the sum, or `None` for the sum of opposite infinities.
    pub(super) fn plus(self, other: Self) -> Option<Self> {
        Self::new(self.0 + other.0)
    }

    pub(super) const fn to_bytes(self) -> [u8; Self::BYTES] {
        self.0.to_bits().to_be_bytes()
    }

    pub(super) fn from_bytes(kept: &[u8]) -> Option<Self> {
        let bytes = kept.try_into().ok()?;
        Self::new(f64::from_bits(u64::from_be_bytes(bytes)))
    }

    /// Encodes the score as bytes in the order of scores. Both zeros have the same encoding.
    pub(super) const fn order(self) -> [u8; Self::BYTES] {
        const SIGN: u64 = 1 << 63;
        let bits = if self.0 == 0.0 { 0 } else { self.0.to_bits() };
        let ordered = if bits & SIGN == 0 { bits | SIGN } else { !bits };
        ordered.to_be_bytes()
    }

    pub(super) fn from_order(order: [u8; Self::BYTES]) -> Option<Self> {
        const SIGN: u64 = 1 << 63;
        let ordered = u64::from_be_bytes(order);
        let bits = if ordered & SIGN == 0 { !ordered } else { ordered & !SIGN };
        Self::new(f64::from_bits(bits))
    }

    /// Returns the score with negative zero replaced by zero, as in Redis' small sets.
    pub(super) fn kept(self) -> Self {
        Self(self.0 + 0.0)
    }

    /// Formats the score as Redis does. Whole numbers up to 2^62 are written in full; others have
    /// the fewest digits that identify them, and an exponent if that is shorter.
    pub(super) fn text(self) -> String {
        let number = self.0;
        if number.is_infinite() {
            return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
        }
        if number == 0.0 {
            return if number.is_sign_negative() { "-0" } else { "0" }.to_owned();
        }
        if number.trunc() == number && number.abs() <= (1_u64 << 62) as f64 {
            // Exact, because the number is whole and small enough.
            return format!("{number:.0}");
        }
        shortest(number)
    }
}

/// Formats a fraction or a very large number as Redis does.
fn shortest(number: f64) -> String {
    // One digit, a point, the remaining digits, and the exponent of the first digit.
    let scientific = format!("{:e}", number.abs());
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let digits: String = digits.chars().filter(char::is_ascii_digit).collect();
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let count = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    // Exponent of the last digit.
    let last = exponent - (count - 1);
    let mut text = String::new();
    if number < 0.0 {
        text.push('-');
    }
    let places = |count: i32| usize::try_from(count).unwrap_or(0);
    if last >= 0 && exponent < count + 7 {
        text.push_str(&digits);
        text.extend(std::iter::repeat_n('0', places(last)));
    } else if last < 0 && (last > -7 || exponent.abs() < 4) {
        let whole = count + last;
        if whole <= 0 {
            text.push_str("0.");
            text.extend(std::iter::repeat_n('0', places(-whole)));
            text.push_str(&digits);
        } else {
            let (whole, fraction) = digits.split_at(places(whole));
            let _ = write!(text, "{whole}.{fraction}");
        }
    } else {
        let (first, rest) = digits.split_at(1);
        text.push_str(first);
        if !rest.is_empty() {
            let _ = write!(text, ".{rest}");
        }
        let _ = write!(text, "e{exponent:+}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Option<String> {
        Score::parse(text.as_bytes()).map(Score::text)
    }

    #[test]
    fn scores_are_written_as_redis_writes_them() {
        let cases = [
            ("1", "1"),
            ("-0", "-0"),
            ("0", "0"),
            ("0.1", "0.1"),
            ("0.30000000000000004", "0.30000000000000004"),
            ("3.0", "3"),
            ("1.5e3", "1500"),
            ("+5", "5"),
            (".5", "0.5"),
            ("5.", "5"),
            ("inf", "inf"),
            ("+inf", "inf"),
            ("-INF", "-inf"),
            ("infinity", "inf"),
            ("4611686018427387904", "4611686018427387904"),
            ("9007199254740993", "9007199254740992"),
            ("1e20", "1e+20"),
            ("123456789012345678901", "123456789012345680000"),
            ("1.5e300", "1.5e+300"),
            ("1e-5", "0.00001"),
            ("1e-7", "1e-7"),
            ("1.25e-9", "1.25e-9"),
            ("-1.7976931348623157e308", "-1.7976931348623157e+308"),
            ("5e-324", "5e-324"),
            ("3.14159", "3.14159"),
        ];
        for (text, expected) in cases {
            assert_eq!(said(text).as_deref(), Some(expected), "{text}");
        }
        for text in ["", " 1", "1 ", "nan", "-nan", "1e400", "1e-400", "x", "1,5", "--1", "1e"] {
            assert_eq!(said(text), None, "{text}");
        }
    }

    #[test]
    fn the_order_of_bytes_is_that_of_scores() {
        let texts = [
            "-inf", "-1e300", "-2.5", "-1", "-1e-300", "0", "1e-300", "0.5", "1", "2", "1e300",
            "inf",
        ];
        let scores: Vec<Score> =
            texts.iter().map(|text| Score::parse(text.as_bytes()).unwrap()).collect();
        for pair in scores.windows(2) {
            assert!(pair[0].order() < pair[1].order(), "{pair:?}");
            assert!(pair[0] < pair[1]);
        }
        let minus_zero = Score::parse(b"-0").unwrap();
        assert_eq!(minus_zero.order(), Score::ZERO.order());
        assert_eq!(Score::from_bytes(&minus_zero.to_bytes()).unwrap().text(), "-0");
        assert_eq!(minus_zero.kept().text(), "0");
        for score in scores {
            assert_eq!(Score::from_bytes(&score.to_bytes()), Some(score));
            assert_eq!(Score::from_order(score.order()), Some(score));
        }
        assert_eq!(Score::from_bytes(&f64::NAN.to_bits().to_be_bytes()), None);
        let (most, least) = (Score(f64::INFINITY), Score(f64::NEG_INFINITY));
        assert_eq!(most.plus(least), None);
    }
}
