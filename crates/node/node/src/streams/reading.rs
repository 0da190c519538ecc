//! A client's stream reader. A few reads are in flight at a time; results are sent in order.

use std::collections::VecDeque;

use quorate_log::disk::Blocks;
use quorate_replica::stream_front::StreamTag;
use quorate_stream::{Name, StreamInfo, table::LocateError};

use crate::streams::refusal::Refusal;

/// Maximum number of bytes in one read from the replica. Reads end at multiples of this number.
pub(crate) const FETCH_BYTES_MAX: usize = 1 << 20;

/// A client's read, from its request to its end.
#[derive(Debug)]
pub(crate) struct ClientRead {
    pub(crate) name: Name,
    /// Id of the stream, which distinguishes it from a later stream of the same name.
    id: u64,
    /// Position of the next byte to send.
    position: u64,
    end: u64,
    is_following: bool,
    awaited: AwaitedEvent,
    /// Reads in flight. Their ranges are contiguous, starting at `position`.
    fetches: VecDeque<Fetch>,
}

/// Event that the reader waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AwaitedEvent {
    /// The local table must first reflect everything acknowledged earlier.
    TableUpdate(StreamTag),
    /// All bytes have been sent; the stream must grow.
    StreamGrowth(StreamTag),
    /// Requested bytes must arrive, or queued output must be sent.
    BytesOrOutput,
}

/// One read from the replica, in flight or done.
#[derive(Debug)]
struct Fetch {
    tag: StreamTag,
    bytes: u64,
    /// Bytes that have been read but cannot be sent before earlier ones.
    arrived_bytes: Option<Blocks>,
}

/// Next action of the reader.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NextAction {
    /// Request the bytes starting at this position from the replica.
    Fetch {
        from: u64,
        bytes: usize,
    },
    /// Wait for a notification that the stream has bytes beyond this position.
    Wait(u64),
    /// Wait until bytes arrive or output is sent.
    Send,
    /// Report the end of the read to the client.
    End {
        position: u64,
        is_finished: bool,
    },
    Refuse(Refusal),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerPurpose {
    TableUpdate,
    StreamGrowth,
    /// The answer to the read with this index. Index 0 is the next to send.
    Fetch(usize),
}

impl ClientRead {
    pub(crate) const fn new(name: Name, from: u64, to: u64, follow: bool, tag: StreamTag) -> Self {
        Self {
            name,
            id: 0,
            position: from,
            end: to,
            is_following: follow,
            awaited: AwaitedEvent::TableUpdate(tag),
            fetches: VecDeque::new(),
        }
    }

    /// Returns whether the reader is caught up and waits for more bytes.
    pub(crate) const fn is_waiting(&self) -> bool {
        matches!(self.awaited, AwaitedEvent::StreamGrowth(_))
    }

    /// Returns the number of bytes in flight, or read but waiting for earlier ones.
    pub(crate) fn fetched_ahead_bytes(&self) -> usize {
        let bytes: u64 = self.fetches.iter().map(|fetch| fetch.bytes).sum();
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    /// Returns whether the reader will request bytes as soon as there is space.
    pub(crate) fn wants_to_fetch(&self) -> bool {
        let asked_to = self.position + self.fetched_ahead_bytes() as u64;
        matches!(self.awaited, AwaitedEvent::BytesOrOutput) && asked_to < self.end
    }

    /// Returns the tags of all unanswered requests of the reader.
    pub(crate) fn open_tags(&self) -> impl Iterator<Item = StreamTag> {
        let step = match self.awaited {
            AwaitedEvent::TableUpdate(tag) | AwaitedEvent::StreamGrowth(tag) => Some(tag),
            AwaitedEvent::BytesOrOutput => None,
        };
        let open = self.fetches.iter().filter(|fetch| fetch.arrived_bytes.is_none());
        step.into_iter().chain(open.map(|fetch| fetch.tag))
    }

    /// Returns the purpose of the answer with this tag; `None` if the reader did not request it.
    pub(crate) fn answer_purpose(&self, tag: StreamTag) -> Option<AnswerPurpose> {
        match self.awaited {
            AwaitedEvent::TableUpdate(looking) if looking == tag => {
                Some(AnswerPurpose::TableUpdate)
            }
            AwaitedEvent::StreamGrowth(waiting) if waiting == tag => {
                Some(AnswerPurpose::StreamGrowth)
            }
            _ => {
                let mut fetches = self.fetches.iter();
                fetches.position(|fetch| fetch.tag == tag).map(AnswerPurpose::Fetch)
            }
        }
    }

    /// Starts reading once the table is up to date. A read without following ends at the current
    /// end of the stream, so that it terminates despite concurrent writes.
    pub(crate) fn start_reading(&mut self, info: Option<&StreamInfo>) -> Result<(), Refusal> {
        let info = info.ok_or_else(Refusal::unknown_stream)?;
        self.id = info.id;
        if !self.is_following {
            self.end = self.end.min(info.end.max(self.position));
        }
        Ok(())
    }

    /// Returns the next action. `room` is the space for further bytes.
    pub(crate) fn next_action(&self, info: Option<&StreamInfo>, room: usize) -> NextAction {
        let Some(info) = info.filter(|info| self.reads_from(info)) else {
            return NextAction::Refuse(Refusal::stream_deleted());
        };
        if self.position < info.start {
            return NextAction::Refuse(Refusal::trimmed(info.start));
        }
        if self.position > info.end {
            return NextAction::Refuse(Refusal::beyond_end(info.end));
        }
        let from = self.position + self.fetched_ahead_bytes() as u64;
        if from >= self.end || from >= info.end {
            return match self.fetches.is_empty() {
                true => self.action_at_end(info.end, info.finished),
                false => NextAction::Send,
            };
        }
        let most = FETCH_BYTES_MAX as u64;
        let left = (self.end - from).min(info.end - from).min(most - from % most);
        let left = usize::try_from(left).expect("no more than one fetch");
        match left.min(room) {
            0 => NextAction::Send,
            bytes => NextAction::Fetch { from, bytes },
        }
    }

    /// Ends the wait for the table or for more bytes.
    pub(crate) const fn end_wait(&mut self) {
        self.awaited = AwaitedEvent::BytesOrOutput;
    }

    /// Records the tag of the request to be notified of more bytes.
    pub(crate) const fn record_wait(&mut self, tag: StreamTag) {
        self.awaited = AwaitedEvent::StreamGrowth(tag);
    }

    /// Records a read of the `bytes` bytes after those already requested.
    pub(crate) fn record_fetch(&mut self, tag: StreamTag, bytes: usize) {
        self.awaited = AwaitedEvent::BytesOrOutput;
        self.fetches.push_back(Fetch { tag, bytes: bytes as u64, arrived_bytes: None });
    }

    /// Records the bytes that a read returned, possibly fewer than requested. Returns the position
    /// and number of the missing bytes.
    pub(crate) fn record_arrived(&mut self, number: usize, bytes: &Blocks) -> Option<(u64, usize)> {
        let before = self.fetches.iter().take(number);
        let from = self.position + before.map(|fetch| fetch.bytes).sum::<u64>();
        let fetch = self.fetches.get_mut(number)?;
        let missing = fetch.bytes.saturating_sub(bytes.len() as u64);
        fetch.bytes = bytes.len() as u64;
        fetch.arrived_bytes = Some(bytes.clone());
        let missing = usize::try_from(missing).expect("no more than one fetch");
        (missing > 0).then_some((from + bytes.len() as u64, missing))
    }

    /// Records another read for the bytes that an earlier one did not return.
    pub(crate) fn fetch_missing(&mut self, number: usize, tag: StreamTag, bytes: usize) {
        let fetch = Fetch { tag, bytes: bytes as u64, arrived_bytes: None };
        self.fetches.insert(number + 1, fetch);
    }

    /// Returns the next bytes to send and their position, if they have arrived.
    pub(crate) fn next_bytes(&mut self) -> Option<(u64, Blocks)> {
        self.fetches.front()?.arrived_bytes.as_ref()?;
        let bytes = self.fetches.pop_front()?.arrived_bytes?;
        let position = self.position;
        self.position += bytes.len() as u64;
        Some((position, bytes))
    }

    /// Returns the next action after a read found no bytes.
    pub(crate) fn action_without_bytes(&self, nowhere: LocateError) -> NextAction {
        match nowhere {
            LocateError::PastEnd { end, finished } if end == self.position => {
                self.action_at_end(end, finished)
            }
            _ => NextAction::Refuse(nowhere.into()),
        }
    }

    /// Returns whether `info` describes the stream being read, not a later one of that name.
    pub(crate) const fn reads_from(&self, info: &StreamInfo) -> bool {
        info.id == self.id
    }

    const fn action_at_end(&self, end: u64, finished: bool) -> NextAction {
        let position = self.position;
        let finished = finished && position == end;
        if self.is_following && !finished && position < self.end {
            NextAction::Wait(position)
        } else {
            NextAction::End { position, is_finished: finished }
        }
    }
}

#[cfg(test)]
mod tests {
    use quorate_log::disk::BlockPool;

    use super::*;

    fn info(start: u64, end: u64, finished: bool) -> StreamInfo {
        StreamInfo {
            name: "s".parse().unwrap(),
            id: 7,
            finished,
            open_stream: None,
            start,
            end,
            pieces: 1,
            created_ms: 0,
            retention: quorate_stream::Retention::default(),
        }
    }

    fn reading(from: u64, to: u64, follow: bool) -> ClientRead {
        let mut reading = ClientRead::new("s".parse().unwrap(), from, to, follow, StreamTag(1));
        reading.start_reading(Some(&info(10, 20, false))).unwrap();
        reading.end_wait();
        reading
    }

    #[test]
    fn next_action_depends_on_position_and_end() {
        const ALL: u64 = u64::MAX;
        let end = |position, finished| NextAction::End { position, is_finished: finished };
        let fetch = |from, bytes| NextAction::Fetch { from, bytes };
        for (from, to, follow, now, expected) in [
            (10, ALL, false, info(10, 20, false), fetch(10, 10)),
            (10, 15, true, info(10, 20, false), fetch(10, 5)),
            (10, ALL, true, info(10, 90, false), fetch(10, 64)),
            (20, ALL, true, info(10, 20, false), NextAction::Wait(20)),
            (20, ALL, true, info(10, 20, true), end(20, true)),
            (20, ALL, false, info(10, 20, false), end(20, false)),
            // Bytes appended since the read began are left to another read.
            (20, ALL, false, info(10, 30, true), end(20, false)),
            (15, 15, true, info(10, 20, true), end(15, false)),
            (20, 15, true, info(10, 20, false), end(20, false)),
        ] {
            let next = reading(from, to, follow).next_action(Some(&now), 64);
            assert_eq!(next, expected, "from {from} to {to}, follow {follow}, {now:?}");
        }
        let refused = |reading: ClientRead, now: Option<StreamInfo>| match reading
            .next_action(now.as_ref(), 64)
        {
            NextAction::Refuse(refusal) => refusal,
            other => panic!("{other:?}"),
        };
        let now = info(10, 20, false);
        let other = StreamInfo { id: 8, ..now.clone() };
        for (from, now, expected) in [
            (9, Some(now.clone()), Refusal::trimmed(10)),
            (21, Some(now.clone()), Refusal::beyond_end(20)),
            (u64::MAX, Some(now), Refusal::beyond_end(20)),
            (15, Some(info(16, 20, false)), Refusal::trimmed(16)),
            (15, None, Refusal::stream_deleted()),
            (15, Some(other), Refusal::stream_deleted()),
        ] {
            assert_eq!(refused(reading(from, ALL, false), now.clone()), expected);
            assert_eq!(refused(reading(from, ALL, true), now), expected);
        }
        let full = reading(10, ALL, true).next_action(Some(&info(10, 20, false)), 0);
        assert_eq!(full, NextAction::Send);
    }

    fn bytes(length: usize) -> Blocks {
        BlockPool::new(0, 0).copy_bytes(&vec![7; length])
    }

    /// Requests as many bytes as there is space for.
    fn request_bytes(
        reading: &mut ClientRead,
        now: &StreamInfo,
        tags: &mut u64,
    ) -> Vec<(u64, usize)> {
        let mut asked = Vec::new();
        while let NextAction::Fetch { from, bytes } = reading.next_action(Some(now), usize::MAX) {
            *tags += 1;
            reading.record_fetch(StreamTag(*tags), bytes);
            asked.push((from, bytes));
        }
        asked
    }

    #[test]
    fn out_of_order_partial_reads_are_sent_in_order() {
        const MOST: usize = FETCH_BYTES_MAX;
        let end = 3 * MOST as u64 + 5;
        let now = info(0, end, true);
        let mut reading = ClientRead::new("s".parse().unwrap(), 7, u64::MAX, false, StreamTag(0));
        reading.start_reading(Some(&now)).unwrap();
        reading.end_wait();
        let mut tags = 0;
        let asked = request_bytes(&mut reading, &now, &mut tags);
        let most = MOST as u64;
        let parts = [(7, MOST - 7), (most, MOST), (2 * most, MOST), (3 * most, 5)];
        assert_eq!(asked, parts);
        assert_eq!(reading.fetched_ahead_bytes() as u64, end - 7);
        assert_eq!(reading.next_action(Some(&now), MOST), NextAction::Send, "they have not come");

        assert_eq!(reading.answer_purpose(StreamTag(3)), Some(AnswerPurpose::Fetch(2)));
        assert_eq!(reading.record_arrived(2, &bytes(MOST)), None);
        assert!(reading.next_bytes().is_none(), "others are before them");
        // The first read returns half of its bytes.
        assert_eq!(reading.record_arrived(0, &bytes(100)), Some((107, MOST - 107)));
        reading.fetch_missing(0, StreamTag(9), MOST - 107);
        assert_eq!(reading.next_bytes(), Some((7, bytes(100))));
        assert!(reading.next_bytes().is_none());
        assert_eq!(reading.answer_purpose(StreamTag(9)), Some(AnswerPurpose::Fetch(0)));
        assert_eq!(reading.record_arrived(0, &bytes(MOST - 107)), None);
        assert_eq!(reading.record_arrived(1, &bytes(MOST)), None);
        assert_eq!(reading.open_tags().collect::<Vec<_>>(), [StreamTag(4)]);
        for (position, length) in [(107, MOST - 107), (most, MOST), (2 * most, MOST)] {
            assert_eq!(reading.next_bytes(), Some((position, bytes(length))));
        }
        assert_eq!(reading.record_arrived(0, &bytes(5)), None);
        assert_eq!(reading.next_bytes(), Some((3 * most, bytes(5))));
        let all = NextAction::End { position: end, is_finished: true };
        assert_eq!(reading.next_action(Some(&now), MOST), all);
    }
}
