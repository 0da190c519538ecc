//! Limits the writes in flight on a connection whose replies may be as large as a value.
//!
//! The size of such a reply is unknown before the write is executed. Afterwards, the reply occupies
//! memory until the client reads it. Most replies are small (`RPOP` from a queue, `EXEC` with two
//! counters), so each small reply raises the limit, and a large one resets it to the minimum.

/// Minimum and initial limit. A client may leave this many replies of `--command-max` bytes unread.
const WRITES_MIN: usize = 8;
/// Maximum limit. This many values of `--command-max` bytes fit in the allowance for the replies of
/// a batch, which is a quarter of `--client-memory`.
const WRITES_MAX: usize = 32;
/// Size in bytes from which on a reply is large, so that the next ones may be large too.
const LARGE_REPLY_BYTES: usize = 16 * 1024;

#[derive(Debug)]
pub(super) struct LargeReplyLimit {
    open: usize,
    writes_allowed: usize,
}

impl Default for LargeReplyLimit {
    fn default() -> Self {
        Self { open: 0, writes_allowed: WRITES_MIN }
    }
}

impl LargeReplyLimit {
    pub(super) const fn has_capacity(&self) -> bool {
        self.open < self.writes_allowed
    }

    pub(super) const fn begin_write(&mut self) {
        self.open += 1;
    }

    /// Handles the reply to a write.
    pub(super) fn end_write(&mut self, bytes: usize) {
        self.open -= 1;
        self.writes_allowed = if bytes < LARGE_REPLY_BYTES {
            (self.writes_allowed + 1).min(WRITES_MAX)
        } else {
            WRITES_MIN
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open_all(returning: &mut LargeReplyLimit) -> usize {
        while returning.has_capacity() {
            returning.begin_write();
        }
        returning.open
    }

    #[test]
    fn small_replies_raise_the_limit_and_a_large_one_lowers_it() {
        let mut returning = LargeReplyLimit::default();
        assert_eq!(open_all(&mut returning), WRITES_MIN);
        for _ in 0..WRITES_MIN {
            returning.end_write(LARGE_REPLY_BYTES - 1);
        }
        assert_eq!(open_all(&mut returning), 2 * WRITES_MIN);
        for _ in 0..10 * WRITES_MAX {
            returning.end_write(3);
            open_all(&mut returning);
        }
        assert_eq!(returning.open, WRITES_MAX, "never more, however long it lasts");

        returning.end_write(LARGE_REPLY_BYTES);
        assert!(!returning.has_capacity());
        for _ in 0..WRITES_MAX - WRITES_MIN {
            returning.end_write(LARGE_REPLY_BYTES);
        }
        assert_eq!(open_all(&mut returning), WRITES_MIN);
    }
}
