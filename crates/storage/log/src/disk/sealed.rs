//! The text of a small file that says whether it is what was written: lines, the last of them
//! `checksum` with the CRC-32C of all before.

/// These lines, each with its line end, and the one with their checksum.
pub fn seal(lines: &str) -> String {
    let checksum = crc32c::crc32c(lines.as_bytes());
    format!("{lines}checksum {checksum:08x}\n")
}

/// The lines that the checksum covers, if it is theirs.
///
/// # Errors
/// What is wrong with the checksum, for a person.
pub fn open(text: &str) -> Result<&str, &'static str> {
    let at = text.rfind("checksum ").ok_or("the checksum is missing")?;
    let (covered, _) = text.split_at(at);
    if seal(covered) != text {
        return Err("the checksum does not match");
    }
    Ok(covered)
}
