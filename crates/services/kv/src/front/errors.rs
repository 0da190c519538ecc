//! Counts of the errors sent to this node's clients, by error code.

use std::{collections::BTreeMap, fmt::Write};

/// Maximum number of distinct codes. A service has a few dozen; clients can cause any others.
const CODES_MAX: usize = 128;
const CODE_BYTES_MAX: usize = 32;

#[derive(Debug, Default)]
pub(super) struct Errors {
    total: u64,
    by_code: BTreeMap<Box<[u8]>, u64>,
}

impl Errors {
    /// Counts a neutral reply if it is an error.
    pub(super) fn count(&mut self, reply: &[u8]) {
        if let Some(text) = reply.strip_prefix(b"-") {
            self.add(text);
        }
    }

    #[cold]
    fn add(&mut self, text: &[u8]) {
        self.total += 1;
        let code = text.split(|byte| b" \r".contains(byte)).next().unwrap_or_default();
        if let Some(count) = self.by_code.get_mut(code) {
            *count += 1;
        } else if self.by_code.len() < CODES_MAX
            && code.len() <= CODE_BYTES_MAX
            && code.iter().all(u8::is_ascii_graphic)
        {
            self.by_code.insert(code.into(), 1);
        }
    }

    pub(super) const fn total(&self) -> u64 {
        self.total
    }

    /// Writes the `errorstats` section of INFO.
    pub(super) fn write(&self, text: &mut String) -> std::fmt::Result {
        write!(text, "# Errorstats\r\n")?;
        for (code, count) in &self.by_code {
            write!(text, "errorstat_{}:count={count}\r\n", String::from_utf8_lossy(code))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_bounded_and_all_errors_count() {
        let mut errors = Errors::default();
        errors.count(b"+OK\r\n");
        errors.count(b"-LOADING\r\n");
        errors.count(format!("-{} x\r\n", "C".repeat(CODE_BYTES_MAX + 1)).as_bytes());
        errors.count("-Ä x\r\n".as_bytes());
        for code in 0..2 * CODES_MAX {
            errors.count(format!("-CODE{code} x\r\n").as_bytes());
        }
        errors.count(b"-LOADING again\r\n");
        assert_eq!(errors.total(), 4 + 2 * CODES_MAX as u64);
        assert_eq!(errors.by_code.len(), CODES_MAX);
        assert_eq!(errors.by_code.get(&b"LOADING"[..]), Some(&2));
    }
}
