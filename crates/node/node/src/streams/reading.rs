//! What a read of a stream does next.

use quorate_replica::stream_front::StreamTag;
use quorate_stream::{Info, Name, table::Nowhere};

use crate::streams::refusal::Refusal;

/// One read, from its request to its end.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) name: Name,
    /// Tells the stream from another of the same name that comes later.
    id: u64,
    /// Of the next byte to send.
    pub(crate) position: u64,
    to: u64,
    follow: bool,
    pub(crate) step: Step,
}

/// What it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// That the table here has everything that was acknowledged before.
    Looking(StreamTag),
    /// Bytes, at most this many.
    Fetching(StreamTag, usize),
    /// That there are bytes.
    Waiting(StreamTag),
    /// That output is sent.
    Sending,
}

impl Step {
    pub(crate) const fn tag(self) -> Option<StreamTag> {
        match self {
            Self::Looking(tag) | Self::Fetching(tag, _) | Self::Waiting(tag) => Some(tag),
            Self::Sending => None,
        }
    }
}

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Ask for this many bytes.
    Fetch(usize),
    /// Ask to hear when there are more.
    Wait,
    /// Wait until output is sent.
    Send,
    /// Say that all is sent.
    End {
        finished: bool,
    },
    Refuse(Refusal),
}

impl Reading {
    pub(crate) const fn new(name: Name, from: u64, to: u64, follow: bool, tag: StreamTag) -> Self {
        Self {
            name,
            id: 0,
            position: from,
            to,
            follow,
            step: Step::Looking(tag),
        }
    }

    pub(crate) const fn is_waiting(&self) -> bool {
        matches!(self.step, Step::Waiting(_))
    }

    /// Bytes that may come at any time.
    pub(crate) const fn fetching(&self) -> usize {
        match self.step {
            Step::Fetching(_, most) => most,
            Step::Looking(_) | Step::Waiting(_) | Step::Sending => 0,
        }
    }

    pub(crate) const fn is_sending(&self) -> bool {
        matches!(self.step, Step::Sending)
    }

    /// The table was looked at. A read that does not follow ends where the stream ends now, so that it
    /// ends although somebody writes.
    pub(crate) fn begin(&mut self, info: Option<&Info>) -> Result<(), Refusal> {
        let info = info.ok_or_else(Refusal::unknown)?;
        self.id = info.id;
        if !self.follow {
            self.to = self.to.min(info.end.max(self.position));
        }
        Ok(())
    }

    /// `room`: for how many bytes there is room in the output.
    pub(crate) fn next(&self, info: Option<&Info>, room: usize) -> Next {
        let Some(info) = info.filter(|info| self.is_of(info)) else {
            return Next::Refuse(Refusal::replaced());
        };
        if self.position < info.start {
            return Next::Refuse(Refusal::trimmed(info.start));
        }
        if self.position > info.end {
            return Next::Refuse(Refusal::behind_end(info.end));
        }
        if self.position >= self.to || self.position == info.end {
            return self.at_end(info.end, info.finished);
        }
        let left = usize::try_from(self.to - self.position).unwrap_or(usize::MAX);
        match left.min(room) {
            0 => Next::Send,
            bytes => Next::Fetch(bytes),
        }
    }

    /// There were no bytes where some were asked for.
    pub(crate) fn nowhere(&self, nowhere: Nowhere) -> Next {
        match nowhere {
            Nowhere::BehindEnd { end, finished } if end == self.position => {
                self.at_end(end, finished)
            }
            _ => Next::Refuse(nowhere.into()),
        }
    }

    /// Whether the bytes that come are of the stream that was asked for, and not of another that was made
    /// under its name meanwhile.
    pub(crate) const fn is_of(&self, info: &Info) -> bool {
        info.id == self.id
    }

    const fn at_end(&self, end: u64, finished: bool) -> Next {
        let finished = finished && self.position == end;
        if self.follow && !finished && self.position < self.to {
            Next::Wait
        } else {
            Next::End { finished }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(start: u64, end: u64, finished: bool) -> Info {
        Info {
            name: "s".parse().unwrap(),
            id: 7,
            finished,
            writing: None,
            start,
            end,
            pieces: 1,
            created_ms: 0,
            keep: quorate_stream::Retention::default(),
        }
    }

    fn reading(from: u64, to: u64, follow: bool) -> Reading {
        let mut reading = Reading::new("s".parse().unwrap(), from, to, follow, StreamTag(1));
        reading.begin(Some(&info(10, 20, false))).unwrap();
        reading
    }

    #[test]
    fn every_place_of_a_read_has_one_next_step() {
        const ALL: u64 = u64::MAX;
        let end = |finished| Next::End { finished };
        for (from, to, follow, now, expected) in [
            (10, ALL, false, info(10, 20, false), Next::Fetch(10)),
            (10, 15, true, info(10, 20, false), Next::Fetch(5)),
            (10, ALL, true, info(10, 90, false), Next::Fetch(64)),
            (20, ALL, true, info(10, 20, false), Next::Wait),
            (20, ALL, true, info(10, 20, true), end(true)),
            (20, ALL, false, info(10, 20, false), end(false)),
            // What came since the read began is another read's.
            (20, ALL, false, info(10, 30, true), end(false)),
            (15, 15, true, info(10, 20, true), end(false)),
            (20, 15, true, info(10, 20, false), end(false)),
        ] {
            let next = reading(from, to, follow).next(Some(&now), 64);
            assert_eq!(
                next, expected,
                "from {from} to {to}, follow {follow}, {now:?}"
            );
        }
        let refused = |reading: Reading, now: Option<Info>| match reading.next(now.as_ref(), 64) {
            Next::Refuse(refusal) => refusal,
            other => panic!("{other:?}"),
        };
        let now = info(10, 20, false);
        let other = Info {
            id: 8,
            ..now.clone()
        };
        for (from, now, expected) in [
            (9, Some(now.clone()), Refusal::trimmed(10)),
            (21, Some(now.clone()), Refusal::behind_end(20)),
            (u64::MAX, Some(now), Refusal::behind_end(20)),
            (15, Some(info(16, 20, false)), Refusal::trimmed(16)),
            (15, None, Refusal::replaced()),
            (15, Some(other), Refusal::replaced()),
        ] {
            assert_eq!(refused(reading(from, ALL, false), now.clone()), expected);
            assert_eq!(refused(reading(from, ALL, true), now), expected);
        }
        let full = reading(10, ALL, true).next(Some(&info(10, 20, false)), 0);
        assert_eq!(full, Next::Send);
    }
}
