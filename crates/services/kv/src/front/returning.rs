//! Limits the writes in flight on a connection whose replies may be as large as a value.
//!
//! The size of such a reply is unknown before the write is executed. Afterwards, the reply occupies
//! memory until the client reads it. Most replies are small (`RPOP` from a queue, `EXEC` with two
//! counters), so each small reply raises the limit, and a large one resets it to the minimum.

/// Minimum and initial limit. A client may leave this many replies of `--command-max` bytes unread.
const LEAST: usize = 8;
/// Maximum limit. This many values of `--command-max` bytes fit in the allowance for the replies of
/// a batch, which is a quarter of `--client-memory`.
const MOST: usize = 32;
/// Size in bytes from which on a reply is large, so that the next ones may be large too.
const LARGE: usize = 16 * 1024;

#[derive(Debug)]
pub(super) struct Returning {
    open: usize,
    allowed: usize,
}

impl Default for Returning {
    fn default() -> Self {
        Self { open: 0, allowed: LEAST }
    }
}

impl Returning {
    pub(super) const fn ready(&self) -> bool {
        self.open < self.allowed
    }

    pub(super) const fn opens(&mut self) {
        self.open += 1;
    }

    /// Handles the reply to a write.
    pub(super) fn closes(&mut self, bytes: usize) {
        self.open -= 1;
        self.allowed = if bytes < LARGE { (self.allowed + 1).min(MOST) } else { LEAST };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open_all(returning: &mut Returning) -> usize {
        while returning.ready() {
            returning.opens();
        }
        returning.open
    }

    #[test]
    fn small_replies_raise_the_limit_and_a_large_one_lowers_it() {
        let mut returning = Returning::default();
        assert_eq!(open_all(&mut returning), LEAST);
        for _ in 0..LEAST {
            returning.closes(LARGE - 1);
        }
        assert_eq!(open_all(&mut returning), 2 * LEAST);
        for _ in 0..10 * MOST {
            returning.closes(3);
            open_all(&mut returning);
        }
        assert_eq!(returning.open, MOST, "never more, however long it lasts");

        returning.closes(LARGE);
        assert!(!returning.ready());
        for _ in 0..MOST - LEAST {
            returning.closes(LARGE);
        }
        assert_eq!(open_all(&mut returning), LEAST);
    }
}
