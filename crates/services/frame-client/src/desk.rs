//! Connection to a node, which responds in the order of the requests. Only connecting blocks.

use std::{
    collections::VecDeque,
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use quorate_wire::frame_clients::{LentName, NodePosition, Request};

/// Timeout for connecting and for a response.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(500);
/// Maximum length of a response; expected ones are far shorter.
const ANSWER_BYTES_MAX: usize = 1 << 10;
/// Unsent bytes above which a node counts as unreachable.
const OUTPUT_BYTES_MAX: usize = 1 << 20;
const LENGTH_BYTES: usize = 4;
const DONE_STATUS: u8 = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PendingRequest {
    SessionName,
    Position,
    Acceptance,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    SessionName(LentName),
    Position(NodePosition),
    /// The node accepted (`true`) or refused a registration or an offer.
    Acceptance(bool),
}

#[derive(Debug)]
pub(super) struct NodeConnection {
    stream: TcpStream,
    input: Vec<u8>,
    output: Vec<u8>,
    pending_requests: VecDeque<(PendingRequest, Instant)>,
}

impl NodeConnection {
    pub(super) fn connect(at: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&at, ANSWER_TIMEOUT)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            input: Vec::new(),
            output: Vec::new(),
            pending_requests: VecDeque::new(),
        })
    }

    pub(super) fn send_request(&mut self, request: &Request<'_>) -> io::Result<()> {
        let asked = match request {
            Request::LendName => PendingRequest::SessionName,
            Request::QueryPosition(_) => PendingRequest::Position,
            Request::Register(_) | Request::OfferBatch { .. } => PendingRequest::Acceptance,
        };
        if self.output.len() >= OUTPUT_BYTES_MAX {
            return Err(io::ErrorKind::TimedOut.into());
        }
        request.encode(&mut self.output);
        self.pending_requests.push_back((asked, Instant::now()));
        self.flush()
    }

    /// Returns whether a request is unanswered. Otherwise, any input violates the protocol.
    pub(super) fn has_pending_request(&self) -> bool {
        !self.pending_requests.is_empty()
    }

    /// Returns whether output waits for the socket.
    pub(super) fn has_unsent_output(&self) -> bool {
        !self.output.is_empty()
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        while !self.output.is_empty() {
            match self.stream.write(&self.output) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(sent) => drop(self.output.drain(..sent)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns the deadline of the oldest unanswered request.
    pub(super) fn answer_deadline(&self) -> Option<Instant> {
        self.pending_requests.front().map(|(_, at)| *at + ANSWER_TIMEOUT)
    }

    /// Returns the next response, if it has arrived. Fails if the connection is broken or a
    /// response is overdue.
    pub(super) fn next_answer(&mut self) -> io::Result<Option<Answer>> {
        if let Some(answer) = self.next()? {
            return Ok(Some(answer));
        }
        let mut bytes = [0; 4096];
        match self.stream.read(&mut bytes) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => self.input.extend_from_slice(&bytes[..count]),
            Err(error)
                if [io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted]
                    .contains(&error.kind()) => {}
            Err(error) => return Err(error),
        }
        let answer = self.next()?;
        if answer.is_none() && self.answer_deadline().is_some_and(|at| Instant::now() >= at) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(answer)
    }

    fn next(&mut self) -> io::Result<Option<Answer>> {
        let Some((length, rest)) = self.input.split_first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let malformed = || io::Error::from(io::ErrorKind::InvalidData);
        let length = usize::try_from(u32::from_le_bytes(*length)).map_err(|_| malformed())?;
        if !(1..=ANSWER_BYTES_MAX).contains(&length) {
            return Err(malformed());
        }
        let Some((status, body)) = rest.get(..length).and_then(<[u8]>::split_first) else {
            return Ok(None);
        };
        let (asked, _) = self.pending_requests.pop_front().ok_or_else(malformed)?;
        let answer = match (asked, *status) {
            (PendingRequest::Acceptance, status) => Some(Answer::Acceptance(status == DONE_STATUS)),
            (PendingRequest::SessionName, DONE_STATUS) => {
                LentName::read(body).map(|(name, _)| Answer::SessionName(name))
            }
            (PendingRequest::Position, DONE_STATUS) => {
                NodePosition::read(body).map(Answer::Position)
            }
            _ => None,
        };
        let answer = answer.ok_or_else(malformed)?;
        self.input.drain(..LENGTH_BYTES + length);
        Ok(Some(answer))
    }
}

impl AsFd for NodeConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
