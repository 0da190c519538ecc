//! `StreamReader`: reads the decided bytes of a stream from any position, without a gap.

use std::{
    io::{self, BufRead, Read, Seek, SeekFrom},
    thread,
};

use quorate_wire::streams::{ClientFrame, NAME_BYTES_MAX, NodeFrame};

use super::{
    Options,
    error::{AttemptError, Error},
    link::Link,
    nodes::Nodes,
    requests::{self, StreamInfo},
};

/// End of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadEnd {
    /// Position after the last byte read.
    pub position: u64,
    /// Set if the stream is permanently closed at this position.
    pub is_finished: bool,
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
    stop_position: u64,
    follow: bool,
    /// Connection with a pending response to a read from `position`.
    link: Option<Link>,
    /// Number of received bytes that the caller has not consumed, at the end of the previous frame.
    unconsumed_bytes: usize,
    /// Latest description of the stream received from a node.
    stream_info: Option<StreamInfo>,
    end: Option<ReadEnd>,
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
            stop_position: u64::MAX,
            follow: false,
            link: None,
            unconsumed_bytes: 0,
            stream_info: None,
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
    pub fn stop_at(mut self, position: u64) -> Self {
        self.stop_position = position;
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
    pub const fn end(&self) -> Option<ReadEnd> {
        self.end
    }

    /// Waits for at least one byte and returns the available ones. Empty at the end.
    pub fn next_bytes(&mut self) -> Result<&[u8], Error> {
        while self.unconsumed_bytes == 0 && self.end.is_none() && self.position < self.stop_position
        {
            match self.request_or_receive() {
                Ok(()) => {}
                Err(AttemptError::Permanent(error)) => {
                    self.link = None;
                    return Err(error);
                }
                Err(AttemptError::Retryable(why)) => {
                    self.link = None;
                    thread::sleep(self.nodes.on_failure(why)?);
                }
            }
        }
        Ok(match &self.link {
            Some(link) => link.frames.previous_frame_tail(self.unconsumed_bytes),
            None => &[],
        })
    }

    /// Sends a request, or receives one frame of the response.
    fn request_or_receive(&mut self) -> Result<(), AttemptError> {
        let Some(link) = &mut self.link else {
            return self.request_bytes();
        };
        let wait = match self.follow {
            true => self.nodes.options.silence_timeout,
            false => self.nodes.options.stall_timeout,
        };
        let due = self.position;
        let in_place = |position| match position == due {
            true => Ok(()),
            false => {
                Err(Error::WrongPosition { expected_position: due, received_position: position })
            }
        };
        let Some(answer) = link.next_frame_within(wait)? else {
            if !self.follow {
                return Err(AttemptError::Retryable("the node says nothing".to_owned()));
            }
            // The stream may be idle, or the node may have failed silently.
            self.link = None;
            return Ok(());
        };
        match answer {
            NodeFrame::Bytes { position, bytes } => {
                in_place(position)?;
                let wanted = self.stop_position - due;
                if bytes.len() as u64 > wanted {
                    return Err(AttemptError::unexpected_frame());
                }
                self.unconsumed_bytes = bytes.len();
            }
            NodeFrame::End { position, finished } => {
                in_place(position)?;
                self.end = Some(ReadEnd { position, is_finished: finished });
            }
            _ => return Err(AttemptError::unexpected_frame()),
        }
        self.nodes.on_success();
        Ok(())
    }

    /// Requests the stream's identity along with its bytes, to detect that the name now belongs to
    /// another stream.
    fn request_bytes(&mut self) -> Result<(), AttemptError> {
        if self.name.len() > NAME_BYTES_MAX {
            return Err(Error::bad_name(&self.name).into());
        }
        let Options { stall_timeout: stall, .. } = self.nodes.options;
        let mut link = self.nodes.dial_next()?;
        let read = ClientFrame::Read {
            from: self.position,
            to: self.stop_position,
            follow: self.follow,
            name: &self.name,
        };
        link.send_frames(&[ClientFrame::Stat { name: &self.name }, read], stall)?;
        let NodeFrame::Info(info) = link.next_frame(stall)? else {
            return Err(AttemptError::unexpected_frame());
        };
        if self.stream_info.as_ref().is_some_and(|known| known.id != info.id) {
            return Err(Error::StreamReplaced.into());
        }
        self.stream_info = Some(StreamInfo::from_wire(&info));
        self.link = Some(link);
        if self.follow {
            self.nodes.on_reached();
        }
        Ok(())
    }

    fn advance(&mut self, count: usize) {
        self.unconsumed_bytes -= count;
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
            SeekFrom::End(distance) => requests::stat(&mut self.nodes, &self.name)?
                .durable_end
                .checked_add_signed(distance),
        };
        let position = target.ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "no stream has such a position")
        })?;
        match position.checked_sub(self.position) {
            // These bytes have already been received.
            Some(ahead) if ahead <= self.unconsumed_bytes as u64 => {
                self.advance(usize::try_from(ahead).expect("not more than a frame"));
            }
            _ => {
                (self.link, self.unconsumed_bytes) = (None, 0);
                self.position = position;
            }
        }
        self.end = None;
        Ok(position)
    }
}
