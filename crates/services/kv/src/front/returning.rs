//! Limit of a connection's open writes whose replies can be as large as a value.
//!
//! The size of such a reply is unknown before the write has been executed, and then it lies in
//! memory until the client reads it. Most are small (`RPOP` of a queue, `EXEC` of two counters), so
//! a connection that has shown this may have more of them open; one large reply resets it to the
//! least.

/// Allowed from the start: eight replies of `--command-max` are what a client may leave unread.
const LEAST: usize = 8;
/// Never more, however small the replies were: as many values of `--command-max` still fit what the
/// replies of one batch may take, a quarter of `--client-memory`.
const MOST: usize = 32;
/// Bytes from which on a reply shows that the next ones may be large, too.
const LARGE: usize = 16 * 1024;

/// The writes of one connection.
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
    /// Returns whether another may be sent.
    pub(super) const fn ready(&self) -> bool {
        self.open < self.allowed
    }

    pub(super) const fn opens(&mut self) {
        self.open += 1;
    }

    /// Counts the reply of a write, of `bytes`.
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
    fn small_replies_earn_room_and_one_large_reply_takes_it_away() {
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
