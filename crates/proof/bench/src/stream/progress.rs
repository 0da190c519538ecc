//! Writes to one stream. A durable position determines which of them are durable.

use std::collections::VecDeque;

use crate::{protocol::Malformed, schedule::Nanos};

/// Writes of a stream that are not durable yet.
#[derive(Clone, Debug)]
pub struct Progress {
    write_bytes: u64,
    /// Position up to which all bytes are durable.
    durable: u64,
    /// Number of writes started.
    begun: u64,
    /// Start times of the writes that are not durable yet, oldest first.
    calls: VecDeque<Nanos>,
}

/// Bytes and writes that an acknowledgement made durable.
#[derive(Debug, PartialEq, Eq)]
pub struct News {
    pub bytes: u64,
    /// Start times of the writes that became durable.
    pub calls: Vec<Nanos>,
}

impl Progress {
    /// Returns the progress of a new stream. All writes are `write_bytes` long.
    pub fn new(write_bytes: usize) -> Self {
        Self {
            write_bytes: (write_bytes as u64).max(1),
            durable: 0,
            begun: 0,
            calls: VecDeque::new(),
        }
    }

    /// Records that the next write starts at `now`.
    pub fn begin(&mut self, now: Nanos) {
        self.begun += 1;
        self.calls.push_back(now);
    }

    pub const fn durable(&self) -> u64 {
        self.durable
    }

    /// Handles a node's report that all bytes below `position` are durable. Fails if the position
    /// is lower than before or above the bytes written.
    pub fn acknowledge(&mut self, position: u64) -> Result<News, Malformed> {
        if position < self.durable {
            return Err(Malformed("a durable position that goes back"));
        }
        if position > self.begun * self.write_bytes {
            return Err(Malformed("a durable position beyond what was written"));
        }
        let writes = position / self.write_bytes - self.durable / self.write_bytes;
        let bytes = position - self.durable;
        self.durable = position;
        let writes = usize::try_from(writes).expect("as many as there are in the queue");
        Ok(News { bytes, calls: self.calls.drain(..writes).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_done_with_its_last_byte() {
        let mut progress = Progress::new(10);
        (1..=3).for_each(|now| progress.begin(now));
        let mut news = |position| {
            let news = progress.acknowledge(position).unwrap();
            (news.bytes, news.calls)
        };
        assert_eq!(news(9), (9, vec![]));
        assert_eq!(news(10), (1, vec![1]));
        assert_eq!(news(10), (0, vec![]));
        assert_eq!(news(29), (19, vec![2]));
        assert_eq!(news(30), (1, vec![3]));
    }

    #[test]
    fn impossible_position_is_not_an_acknowledgement() {
        let mut progress = Progress::new(10);
        progress.begin(0);
        assert!(progress.acknowledge(11).is_err());
        assert!(progress.acknowledge(5).is_ok());
        assert!(progress.acknowledge(4).is_err());
        assert_eq!(progress.durable(), 5);
    }
}
