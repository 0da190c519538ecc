//! Number formatting as in Redis, for the words of commands and for replies.

/// A number whose exponent is below the number of its digits plus this has no exponent in its text.
const PLAIN_ZEROS_MAX: i32 = 7;
/// Largest number that Redis formats as an integer: half of the largest 64-bit integer.
const PLAIN_INTEGER_MAX: f64 = 4_611_686_018_427_387_904.0;

/// Formats a number that is a word of a command. Whole numbers have no exponent.
pub(crate) fn format_word(number: f64) -> String {
    #[expect(clippy::cast_possible_truncation, reason = "the comparison is for that")]
    let whole = number as i64;
    #[expect(clippy::cast_precision_loss, reason = "as above")]
    match number.abs() <= PLAIN_INTEGER_MAX && whole as f64 == number {
        true => whole.to_string(),
        false => text(number),
    }
}

/// Formats a double in a reply: the shortest decimal, in the layout of `fpconv_dtoa`.
pub(crate) fn text(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    if number == 0.0 {
        return "0".to_owned();
    }
    let (sign, scientific) = (if number < 0.0 { "-" } else { "" }, format!("{:e}", number.abs()));
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let digits = mantissa.replace('.', "");
    format!("{sign}{}", format_decimal(&digits, exponent.parse().unwrap_or(0)))
}

/// Formats digits as a decimal; the first stands before the point and is scaled by `exponent`.
fn format_decimal(digits: &str, exponent: i32) -> String {
    let count = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    let scale = exponent - (count - 1);
    if scale >= 0 && exponent.abs() < count + PLAIN_ZEROS_MAX {
        return format!("{digits}{}", "0".repeat(usize::try_from(scale).unwrap_or(0)));
    }
    if scale < 0 && (scale > -PLAIN_ZEROS_MAX || exponent.abs() < 4) {
        let whole = count + scale;
        return match usize::try_from(whole) {
            Ok(whole) if whole > 0 => format!("{}.{}", &digits[..whole], &digits[whole..]),
            _ => format!("0.{}{digits}", "0".repeat(usize::try_from(-whole).unwrap_or(0))),
        };
    }
    let (first, rest) = digits.split_at(1);
    let (point, sign) =
        (if rest.is_empty() { "" } else { "." }, if exponent < 0 { '-' } else { '+' });
    format!("{first}{point}{rest}e{sign}{}", exponent.abs())
}
