//! `StreamReader`: the decided bytes of a stream, from any position on, without a gap.

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

/// The place where a reader stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// End of the bytes read.
    pub position: u64,
    /// The stream ends there for good.
    pub finished: bool,
}

/// Reads a stream of a cluster from a position on. Where a connection or a node is lost, it goes on
/// at the next one. Bytes that are forgotten, and a stream that was replaced, are errors: nothing
/// is skipped.
///
/// It reads to the end that the stream has when it gets there; one that follows, to where the
/// stream is closed for good. Positions are those of the stream, so [`Seek`] goes by them.
#[derive(Debug)]
pub struct StreamReader {
    nodes: Nodes,
    name: String,
    /// Position of the next byte for the caller.
    position: u64,
    to: u64,
    follow: bool,
    /// The answer to a read from `position` comes, or goes on, here.
    link: Option<Link>,
    /// Bytes that came and that the caller did not get: the last ones of the frame before.
    left: usize,
    /// Last description by the node.
    info: Option<Info>,
    end: Option<End>,
}

impl StreamReader {
    /// A reader of a stream from its first byte on; it connects to the first of these nodes
    /// (`HOST:PORT`) that answers when it is read from.
    ///
    /// # Panics
    /// Without an address.
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

    /// The same from this position on.
    #[must_use]
    pub fn from(mut self, position: u64) -> Self {
        self.position = position;
        self
    }

    /// The same to this position at most.
    #[must_use]
    pub fn to(mut self, position: u64) -> Self {
        self.to = position;
        self
    }

    /// The same, but it waits for more where the stream ends, until it is closed for good.
    #[must_use]
    pub fn follow(mut self) -> Self {
        self.follow = true;
        self
    }

    /// Returns the position of the next byte.
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// Returns the end, once reached.
    pub const fn end(&self) -> Option<End> {
        self.end
    }

    /// The bytes that come next, waiting for one at least; empty at the end.
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

    /// Asks, or takes one frame of the answer.
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
            // There may be nothing to say, or the node is gone without a word.
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

    /// Asks which stream it is, and for its bytes: a name that was given to another one must not go
    /// on with that one's bytes.
    fn ask(&mut self) -> Result<(), Trouble> {
        if self.name.len() > NAME_BYTES_MAX {
            return Err(Error::bad_name(&self.name).into());
        }
        let Options { stall, .. } = self.nodes.options;
        let mut link = self.nodes.dial()?;
        let read =
            Ask::Read { from: self.position, to: self.to, follow: self.follow, name: &self.name };
        link.say(&[Ask::Stat { name: &self.name }, read], stall)?;
        let Answer::Info(info) = link.hear(stall)? else {
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
    /// The end is the durable end that the stream has now.
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
            // It came already.
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
