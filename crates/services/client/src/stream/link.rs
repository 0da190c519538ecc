//! Connection to one node, which carries frames of the stream protocol.

use std::{
    io::{self, ErrorKind, Read as _, Write as _},
    net::{TcpStream, ToSocketAddrs as _},
    ops::Range,
    time::{Duration, Instant},
};

use quorate_wire::streams::{
    ClientFrame, DecodedFrame, HEAD_BYTES, Malformed, NAME_BYTES_MAX, NodeFrame,
    PASSWORD_BYTES_MAX, Password, VERSION, decode_node_frame, head,
};

use quorate_tls::{
    ClientTrust,
    stream::{Stream, reject_tls_alert},
};

use super::error::{AttemptError, Error};
use crate::{Login, link::secure_stream};

/// Initial size of the input buffer, which grows to the size of the frames.
const INPUT_BYTES_MIN: usize = 4 << 10;
/// Minimum timeout of a socket; zero would mean no timeout.
const SOCKET_TIMEOUT_MIN: Duration = Duration::from_millis(1);

/// A connection to a node that has identified itself.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) socket: Stream,
    pub(super) frames: Frames,
    /// Address of the node, as configured.
    pub(super) address: String,
    /// Address of the leader, if the node is a follower and has one; otherwise empty.
    pub(super) leader_address: String,
}

impl Link {
    /// Exchanges greetings, in which node and client identify themselves.
    pub(super) fn greet(
        address: &str,
        socket: Stream,
        login: Option<&Login>,
        wait: Duration,
    ) -> Result<Self, AttemptError> {
        let mut link = Self {
            socket,
            frames: Frames::default(),
            address: address.to_owned(),
            leader_address: String::new(),
        };
        link.send_frames(&[ClientFrame::Hello { version: VERSION }], wait)?;
        link.leader_address = match link.next_frame(wait)? {
            NodeFrame::Welcome { version: VERSION, leader, .. } => leader.to_owned(),
            _ => return Err(AttemptError::unexpected_frame()),
        };
        if let Some(login) = login {
            link.log_in(login, wait)?;
        }
        Ok(link)
    }

    fn log_in(&mut self, login: &Login, wait: Duration) -> Result<(), AttemptError> {
        let (name, password) = (&*login.name, login.password.as_bytes());
        if name.len() > NAME_BYTES_MAX || password.len() > PASSWORD_BYTES_MAX {
            return Err(AttemptError::Permanent(Error::bad_login()));
        }
        let password = Password(password);
        self.send_frames(&[ClientFrame::Login { name, password }], wait)?;
        match self.next_frame(wait)? {
            NodeFrame::LoginAccepted => Ok(()),
            _ => Err(AttemptError::unexpected_frame()),
        }
    }

    /// Sends frames. Fails if the node reads nothing for `wait`.
    pub(super) fn send_frames(
        &mut self,
        asks: &[ClientFrame<'_>],
        wait: Duration,
    ) -> io::Result<()> {
        let mut bytes = Vec::new();
        for ask in asks {
            ask.encode(&mut bytes);
        }
        let timeout = Some(wait.max(SOCKET_TIMEOUT_MIN));
        self.socket.socket().set_write_timeout(timeout)?;
        (&self.socket).write_all(&bytes)
    }

    /// Returns the next frame, or an error frame as `Err`. Fails if nothing arrives for `wait`.
    pub(super) fn next_frame(&mut self, wait: Duration) -> Result<NodeFrame<'_>, AttemptError> {
        self.next_frame_within(wait)?
            .ok_or_else(|| AttemptError::Retryable("the node says nothing".to_owned()))
    }

    /// Returns the next frame, or an error frame as `Err`; `None` if nothing arrives for `wait`.
    pub(super) fn next_frame_within(
        &mut self,
        wait: Duration,
    ) -> Result<Option<NodeFrame<'_>>, AttemptError> {
        let timeout = Some(wait.max(SOCKET_TIMEOUT_MIN));
        self.socket.socket().set_read_timeout(timeout)?;
        match self.frames.next(&self.socket) {
            Ok(NodeFrame::Error { code, position, detail, hint }) => {
                Err(AttemptError::from_response(code, position, detail, hint))
            }
            Ok(answer) => Ok(Some(answer)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Connects to the first address of `name` that accepts a connection.
pub(super) fn connect(name: &str, tls: Option<&ClientTrust>, wait: Duration) -> io::Result<Stream> {
    let until = Instant::now() + wait;
    let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
    for address in name.to_socket_addrs()? {
        let left = until.saturating_duration_since(Instant::now());
        match TcpStream::connect_timeout(&address, left.max(SOCKET_TIMEOUT_MIN)) {
            Ok(socket) => {
                socket.set_nodelay(true)?;
                return secure_stream(socket, name, tls, left);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Splits received bytes into frames.
#[derive(Debug)]
pub(super) struct Frames {
    input: Vec<u8>,
    /// Received bytes of `input` that have not been parsed.
    new: Range<usize>,
}

impl Default for Frames {
    fn default() -> Self {
        Self { input: vec![0; INPUT_BYTES_MIN], new: 0..0 }
    }
}

impl Frames {
    /// Returns the next frame. Fails on malformed bytes, and with `WouldBlock` on a timeout of the
    /// socket.
    pub(super) fn next(&mut self, socket: &Stream) -> io::Result<NodeFrame<'_>> {
        let length = loop {
            let needed = match head(&self.input[self.new.clone()]).map_err(malformed_error)? {
                DecodedFrame::Frame(head, _) if self.new.len() >= HEAD_BYTES + head.length => {
                    break HEAD_BYTES + head.length;
                }
                DecodedFrame::Frame(head, _) => HEAD_BYTES + head.length,
                DecodedFrame::NeedMore(more) => self.new.len() + more,
            };
            self.reserve_frame(needed);
            self.fill_input(socket)?;
        };
        let frame = self.new.start..self.new.start + length;
        self.new.start = frame.end;
        match decode_node_frame(&self.input[frame]).map_err(malformed_error)? {
            DecodedFrame::Frame(answer, _) => Ok(answer),
            DecodedFrame::NeedMore(_) => unreachable!("the whole frame was given"),
        }
    }

    /// Returns the last `length` bytes of the previous frame.
    pub(super) fn previous_frame_tail(&self, length: usize) -> &[u8] {
        &self.input[self.new.start - length..self.new.start]
    }

    /// Makes space for the rest of a frame of `length` bytes.
    fn reserve_frame(&mut self, length: usize) {
        if self.new.start + length > self.input.len() {
            self.input.copy_within(self.new.clone(), 0);
            self.new = 0..self.new.len();
        }
        if length > self.input.len() {
            self.input.resize(length.next_power_of_two(), 0);
        }
    }

    fn fill_input(&mut self, mut socket: &Stream) -> io::Result<()> {
        match socket.read(&mut self.input[self.new.end..]) {
            Ok(0) => {
                Err(io::Error::new(ErrorKind::UnexpectedEof, "the node closed the connection"))
            }
            Ok(count) => {
                self.new.end += count;
                reject_tls_alert(&self.input[self.new.clone()])
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn malformed_error(malformed: Malformed) -> io::Error {
    let what = format!("the node sent what is no frame: {malformed}");
    io::Error::new(ErrorKind::InvalidData, what)
}
