//! Writes to one stream. A durable position determines which of them are durable.

use std::collections::VecDeque;

use crate::{protocol::Malformed, schedule::Nanos};

/// Writes of a stream that are not durable yet.
#[derive(Clone, Debug)]
pub struct WriteProgress {
    write_bytes: u64,
    /// Position up to which all bytes are durable.
    durable_to: u64,
    /// Number of writes started.
    writes_begun: u64,
    /// Start times of the writes that are not durable yet, oldest first.
    write_starts: VecDeque<Nanos>,
}

/// Bytes and writes that an acknowledgement made durable.
#[derive(Debug, PartialEq, Eq)]
pub struct NewlyDurable {
    pub bytes: u64,
    /// Start times of the writes that became durable.
    pub write_starts: Vec<Nanos>,
}

impl WriteProgress {
    /// Returns the progress of a new stream. All writes are `write_bytes` long.
    pub fn new(write_bytes: usize) -> Self {
        Self {
            write_bytes: (write_bytes as u64).max(1),
            durable_to: 0,
            writes_begun: 0,
            write_starts: VecDeque::new(),
        }
    }

    /// Records that the next write starts at `now`.
    pub fn begin_write(&mut self, now: Nanos) {
        self.writes_begun += 1;
        self.write_starts.push_back(now);
    }

    pub const fn durable_to(&self) -> u64 {
        self.durable_to
    }

    /// Handles a node's report that all bytes below `position` are durable. Fails if the position
    /// is lower than before or above the bytes written.
    pub fn acknowledge(&mut self, position: u64) -> Result<NewlyDurable, Malformed> {
        if position < self.durable_to {
            return Err(Malformed("a durable position that goes back"));
        }
        if position > self.writes_begun * self.write_bytes {
            return Err(Malformed("a durable position beyond what was written"));
        }
        let writes = position / self.write_bytes - self.durable_to / self.write_bytes;
        let bytes = position - self.durable_to;
        self.durable_to = position;
        let writes = usize::try_from(writes).expect("as many as there are in the queue");
        Ok(NewlyDurable { bytes, write_starts: self.write_starts.drain(..writes).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_done_with_its_last_byte() {
        let mut progress = WriteProgress::new(10);
        (1..=3).for_each(|now| progress.begin_write(now));
        let mut news = |position| {
            let news = progress.acknowledge(position).unwrap();
            (news.bytes, news.write_starts)
        };
        assert_eq!(news(9), (9, vec![]));
        assert_eq!(news(10), (1, vec![1]));
        assert_eq!(news(10), (0, vec![]));
        assert_eq!(news(29), (19, vec![2]));
        assert_eq!(news(30), (1, vec![3]));
    }

    #[test]
    fn impossible_position_is_not_an_acknowledgement() {
        let mut progress = WriteProgress::new(10);
        progress.begin_write(0);
        assert!(progress.acknowledge(11).is_err());
        assert!(progress.acknowledge(5).is_ok());
        assert!(progress.acknowledge(4).is_err());
        assert_eq!(progress.durable_to(), 5);
    }
}
