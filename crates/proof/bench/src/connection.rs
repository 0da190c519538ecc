//! A client connection with non-blocking I/O.

use std::{
    io::{self, ErrorKind, Read as _, Write as _},
    net::TcpStream,
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

use quorate_tls::session::{ReadOutcome, Session};

use crate::door::ClientAddress;

/// Timeout for establishing a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of bytes read at a time.
const READ_BYTES: usize = 256 << 10;
/// Maximum number of unread input bytes, larger than any valid reply.
const INPUT_BYTES_MAX: usize = 513 << 20;
/// Number of unsent bytes at which the connection accepts no more requests.
const OUTPUT_BYTES_MAX: usize = 1 << 20;

#[derive(Debug)]
pub struct Connection {
    socket: TcpStream,
    /// TLS state, which encrypts between the buffers and the socket; `None` for plain TCP.
    tls_session: Option<Box<Session>>,
    output: Vec<u8>,
    sent_bytes: usize,
    input: Vec<u8>,
    consumed_bytes: usize,
    is_blocked: bool,
}

impl Connection {
    /// Connects to a node's client address and blocks until the connection is established.
    pub fn connect_to(door: &ClientAddress) -> io::Result<Self> {
        let stream = door.connect(CONNECT_TIMEOUT)?;
        let (socket, session) = stream.into_parts().expect("there is one");
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            tls_session: session.map(Box::new),
            output: Vec::new(),
            sent_bytes: 0,
            input: Vec::new(),
            consumed_bytes: 0,
            is_blocked: false,
        })
    }

    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    pub fn has_output_space(&self) -> bool {
        self.output.len() - self.sent_bytes < OUTPUT_BYTES_MAX
    }

    /// Returns whether unsent output is waiting until the socket is writable.
    pub fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    /// Sends as much output as the socket accepts.
    pub fn send(&mut self) -> io::Result<()> {
        self.is_blocked = match self.send_output() {
            Ok(()) => false,
            Err(error) if error.kind() == ErrorKind::WouldBlock => true,
            Err(error) => return Err(error),
        };
        if !self.is_blocked {
            self.output.clear();
            self.sent_bytes = 0;
        }
        Ok(())
    }

    /// Sends all output, or fails with `WouldBlock` when the socket is full.
    fn send_output(&mut self) -> io::Result<()> {
        loop {
            let rest = &self.output[self.sent_bytes..];
            let moved = match &mut self.tls_session {
                None if rest.is_empty() => return Ok(()),
                None => self.socket.write(rest),
                Some(session) => match session.flush(&mut self.socket) {
                    Ok(false) => return Err(ErrorKind::WouldBlock.into()),
                    Ok(true) if rest.is_empty() => return Ok(()),
                    Ok(true) => Ok(session.encrypt(rest)),
                    Err(error) => Err(error),
                },
            };
            match moved {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => self.sent_bytes += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads from the socket once. Level-triggered readiness reports any remaining data.
    pub fn receive(&mut self, scratch: &mut ReadBuffer) -> io::Result<()> {
        if self.input.len() - self.consumed_bytes > INPUT_BYTES_MAX {
            return Err(io::Error::new(ErrorKind::InvalidData, "a very long reply"));
        }
        let count = match self.socket.read(&mut scratch.0) {
            Ok(0) => return Err(closed_error()),
            Ok(count) => count,
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.input.drain(..self.consumed_bytes);
        self.consumed_bytes = 0;
        match &mut self.tls_session {
            None => self.input.extend_from_slice(&scratch.0[..count]),
            Some(session) => {
                session.input_buffer().extend_from_slice(&scratch.0[..count]);
                open(session, &mut scratch.0, &mut self.input)?;
            }
        }
        Ok(())
    }

    /// Returns the bytes received but not yet marked as read.
    pub fn unread_input(&self) -> &[u8] {
        &self.input[self.consumed_bytes..]
    }

    /// Marks the first `bytes` of the input as read.
    pub fn consume(&mut self, bytes: usize) {
        self.consumed_bytes += bytes;
    }
}

/// Appends all decrypted data of the session to `input`, because the poller reports no event for
/// data that the session has buffered.
fn open(session: &mut Session, scratch: &mut [u8], input: &mut Vec<u8>) -> io::Result<()> {
    let before = input.len();
    loop {
        match session.read_plaintext(scratch) {
            ReadOutcome::Bytes(count) => input.extend_from_slice(&scratch[..count]),
            ReadOutcome::NeedsMore => return Ok(()),
            // The next read of the socket reports the end of the connection again.
            ReadOutcome::PeerClosed if input.len() > before => return Ok(()),
            ReadOutcome::PeerClosed => return Err(closed_error()),
            ReadOutcome::Failed => {
                let why = session.failure().unwrap_or("the session is over");
                return Err(io::Error::new(ErrorKind::InvalidData, format!("TLS: {why}")));
            }
        }
    }
}

fn closed_error() -> io::Error {
    io::Error::new(ErrorKind::UnexpectedEof, "the system closed the connection")
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Read buffer shared by all connections.
#[derive(Debug)]
pub struct ReadBuffer(Vec<u8>);

impl Default for ReadBuffer {
    fn default() -> Self {
        Self(vec![0; READ_BYTES])
    }
}
