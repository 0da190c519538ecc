//! Parsing of integers in requests and values.

/// Parses an integer as Redis does: an optional `-` and digits, without leading zeros and blanks.
pub fn parse_integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] => {}
        _ => return None,
    }
    // The number is accumulated as a negative one, because the minimum has no positive counterpart.
    let mut number = 0_i64;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number.checked_mul(10)?.checked_sub(i64::from(digit))?;
    }
    if negative { Some(number) } else { number.checked_neg() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// First version of the parser. Old logs were executed with it, so both must agree.
    fn first_parse_integer(text: &[u8]) -> Option<i64> {
        let digits = text.strip_prefix(b"-").unwrap_or(text);
        let plain = digits == b"0" && digits.len() == text.len();
        let starts_well = matches!(digits.first(), Some(b'1'..=b'9'));
        if !(plain || starts_well) || !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        std::str::from_utf8(text).ok()?.parse().ok()
    }

    #[test]
    fn integers_are_parsed_like_the_reference() {
        let (least, most) = (i64::MIN.to_string(), i64::MAX.to_string());
        let words = [
            ("0", Some(0)),
            ("-0", None),
            ("00", None),
            ("", None),
            ("-", None),
            ("--1", None),
            ("+1", None),
            (" 1", None),
            ("1 ", None),
            ("1a", None),
            ("/", None),
            (":", None),
            (&least, Some(i64::MIN)),
            (&most, Some(i64::MAX)),
            ("9223372036854775808", None),
            ("-9223372036854775809", None),
            ("99999999999999999999", None),
        ];
        for (word, number) in words {
            assert_eq!(parse_integer(word.as_bytes()), number, "{word}");
            assert_eq!(first_parse_integer(word.as_bytes()), number, "{word}");
        }
        // All short texts of relevant bytes, and numbers of every length.
        let alphabet = b"-+/0159: ";
        for first in alphabet {
            for second in alphabet {
                for third in alphabet {
                    let text = [*first, *second, *third];
                    for length in 0..=3 {
                        let text = &text[..length];
                        assert_eq!(parse_integer(text), first_parse_integer(text), "{text:?}");
                    }
                }
            }
        }
        let mut number = 1_i64;
        for step in 0..400_i64 {
            number = number.wrapping_mul(3).wrapping_sub(step);
            let text = (number >> (step % 63)).to_string();
            let (text, value) = (text.as_bytes(), number >> (step % 63));
            assert_eq!(parse_integer(text), Some(value));
        }
    }
}
