//! Text of a small file that verifies itself: lines, the last of which is `checksum` with the
//! CRC-32C of all before.

/// Returns these lines, each with its line end, followed by the checksum line.
pub fn seal(lines: &str) -> String {
    let checksum = crc32c::crc32c(lines.as_bytes());
    format!("{lines}checksum {checksum:08x}\n")
}

/// Returns the lines covered by the checksum, if it is right.
///
/// # Errors
/// What is wrong with the checksum, for humans.
pub fn open(text: &str) -> Result<&str, &'static str> {
    let at = text.rfind("checksum ").ok_or("the checksum is missing")?;
    let (covered, _) = text.split_at(at);
    if seal(covered) != text {
        return Err("the checksum does not match");
    }
    Ok(covered)
}
