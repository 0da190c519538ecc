//! Small file with a checksum: its last line is `checksum` with the CRC-32C of all lines before it.

/// Appends the checksum line to `lines`, each of which must end with a line break.
pub fn append_checksum_line(lines: &str) -> String {
    let checksum = crc32c::crc32c(lines.as_bytes());
    format!("{lines}checksum {checksum:08x}\n")
}

/// Returns the lines that the checksum covers. Fails with a description if the checksum is wrong.
pub fn open(text: &str) -> Result<&str, &'static str> {
    let at = text.rfind("checksum ").ok_or("the checksum is missing")?;
    let (covered, _) = text.split_at(at);
    if append_checksum_line(covered) != text {
        return Err("the checksum does not match");
    }
    Ok(covered)
}
