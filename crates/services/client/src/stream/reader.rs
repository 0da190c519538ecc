//! `StreamReader`: reads the decided bytes of a stream from any position, without a gap.

use std::{
    io::{self, BufRead, Read, Seek, SeekFrom},
    thread,
};

use quorate_wire::streams::{Answer, Ask, NAME_BYTES_MAX};

use super::{
    Options,
    error::{Error, Trouble},
    link::Link,
    nodes::Nodes,
    requests::{self, Info},
};

/// End of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Position after the last byte read.
    pub position: u64,
    /// Set if the stream is permanently closed at this position.
    pub finished: bool,
}

/// A reader of a stream from any position. After the loss of a connection or a node, it continues
/// at the next node. It never skips bytes: a trimmed range or a replaced stream is an error.
///
/// The reader stops at the stream's end when it reaches it. A following reader continues until the
/// stream is permanently closed. All positions, including those of [`Seek`], are positions in the
/// stream.
#[derive(Debug)]
pub struct StreamReader {
    nodes: Nodes,
    name: String,
    /// Position of the next byte for the caller.
    position: u64,
    to: u64,
    follow: bool,
    /// Connection with a pending response to a read from `position`.
    link: Option<Link>,
    /// Number of received bytes that the caller has not consumed, at the end of the previous frame.
    left: usize,
    /// Latest description of the stream received from a node.
    info: Option<Info>,
    end: Option<End>,
}

impl StreamReader {
    /// Creates a reader from the first byte of a stream. The first read connects to the first of
    /// `addresses` (each `HOST:PORT`) that responds.
    ///
    /// # Panics
    ///
    /// Panics if `addresses` is empty.
    pub fn new<A: Into<String> + Clone>(addresses: &[A], name: &str, options: Options) -> Self {
        Self {
            nodes: Nodes::new(addresses, options),
            name: name.to_owned(),
            position: 0,
            to: u64::MAX,
            follow: false,
            link: None,
            left: 0,
            info: None,
            end: None,
        }
    }

    /// Sets the position to start from.
    #[must_use]
    pub fn from(mut self, position: u64) -> Self {
        self.position = position;
        self
    }

    /// Sets the position to stop at.
    #[must_use]
    pub fn to(mut self, position: u64) -> Self {
        self.to = position;
        self
    }

    /// Makes the reader wait for more bytes at the end, until the stream is closed permanently.
    #[must_use]
    pub fn follow(mut self) -> Self {
        self.follow = true;
        self
    }

    /// Returns the position of the next byte.
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// Returns the position at which the reader stopped, if it has.
    pub const fn end(&self) -> Option<End> {
        self.end
    }

    /// Waits for at least one byte and returns the available ones. Empty at the end.
    pub fn next_bytes(&mut self) -> Result<&[u8], Error> {
        while self.left == 0 && self.end.is_none() && self.position < self.to {
            match self.step() {
                Ok(()) => {}
                Err(Trouble::Final(error)) => {
                    self.link = None;
                    return Err(error);
                }
                Err(Trouble::Later(why)) => {
                    self.link = None;
                    thread::sleep(self.nodes.failed(why)?);
                }
            }
        }
        Ok(match &self.link {
            Some(link) => link.frames.tail(self.left),
            None => &[],
        })
    }

    /// Sends a request, or receives one frame of the response.
    fn step(&mut self) -> Result<(), Trouble> {
        let Some(link) = &mut self.link else {
            return self.ask();
        };
        let wait = match self.follow {
            true => self.nodes.options.silence,
            false => self.nodes.options.stall,
        };
        let due = self.position;
        let in_place = |position| match position == due {
            true => Ok(()),
            false => Err(Error::Skipped { expected: due, position }),
        };
        let Some(answer) = link.hear_within(wait)? else {
            if !self.follow {
                return Err(Trouble::Later("the node says nothing".to_owned()));
            }
            // The stream may be idle, or the node may have failed silently.
            self.link = None;
            return Ok(());
        };
        match answer {
            Answer::Bytes { position, bytes } => {
                in_place(position)?;
                let wanted = self.to - due;
                if bytes.len() as u64 > wanted {
                    return Err(Trouble::unexpected());
                }
                self.left = bytes.len();
            }
            Answer::End { position, finished } => {
                in_place(position)?;
                self.end = Some(End { position, finished });
            }
            _ => return Err(Trouble::unexpected()),
        }
        self.nodes.served();
        Ok(())
    }

    /// Requests the stream's identity along with its bytes, to detect that the name now belongs to
    /// another stream.
    fn ask(&mut self) -> Result<(), Trouble> {
        if self.name.len() > NAME_BYTES_MAX {
            return Err(Error::bad_name(&self.name).into());
        }
        let Options { stall, .. } = self.nodes.options;
        let mut link = self.nodes.dial()?;
        let read =
            Ask::Read { from: self.position, to: self.to, follow: self.follow, name: &self.name };
        link.send_frames(&[Ask::Stat { name: &self.name }, read], stall)?;
        let Answer::Info(info) = link.next_frame(stall)? else {
            return Err(Trouble::unexpected());
        };
        if self.info.as_ref().is_some_and(|known| known.id != info.id) {
            return Err(Error::Replaced.into());
        }
        self.info = Some(Info::of(&info));
        self.link = Some(link);
        if self.follow {
            self.nodes.reached();
        }
        Ok(())
    }

    fn advance(&mut self, count: usize) {
        self.left -= count;
        self.position += count as u64;
    }
}

impl BufRead for StreamReader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        Ok(self.next_bytes()?)
    }

    fn consume(&mut self, count: usize) {
        self.advance(count);
    }
}

impl Read for StreamReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let bytes = self.next_bytes()?;
        let count = bytes.len().min(buffer.len());
        buffer[..count].copy_from_slice(&bytes[..count]);
        self.advance(count);
        Ok(count)
    }
}

impl Seek for StreamReader {
    /// Seeks in the stream. Positions from the end refer to the current durable end.
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let target = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::Current(distance) => self.position.checked_add_signed(distance),
            SeekFrom::End(distance) => {
                requests::stat(&mut self.nodes, &self.name)?.end.checked_add_signed(distance)
            }
        };
        let position = target.ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "no stream has such a position")
        })?;
        match position.checked_sub(self.position) {
            // These bytes have already been received.
            Some(ahead) if ahead <= self.left as u64 => {
                self.advance(usize::try_from(ahead).expect("not more than a frame"));
            }
            _ => {
                (self.link, self.left) = (None, 0);
                self.position = position;
            }
        }
        self.end = None;
        Ok(position)
    }
}
