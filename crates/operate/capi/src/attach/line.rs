//! Non-blocking connection with its buffers: received bytes not yet handled, and bytes not yet
//! sent.

use std::{
    io::{self, ErrorKind, Read as _, Write as _},
    mem,
    net::{Shutdown, TcpStream},
};

/// Number of bytes per read.
const READ_BYTES: usize = 64 << 10;
/// Maximum number of bytes read in one turn, so that other work is not starved.
const READ_BYTES_MAX: usize = 1 << 20;
/// Buffer capacity in bytes that is retained after a large frame.
const KEPT_CAPACITY_BYTES: usize = 256 << 10;

/// Result of sending output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendProgress {
    All,
    /// Some output remains, because the connection cannot accept more now.
    Partly,
}

/// Received bytes, in a buffer with free capacity at its end.
pub(super) struct Input {
    bytes: Vec<u8>,
    filled_bytes: usize,
}

impl Input {
    const fn new() -> Self {
        Self { bytes: Vec::new(), filled_bytes: 0 }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.filled_bytes]
    }
}

/// A non-blocking connection with its buffers.
pub(super) struct BufferedSocket {
    socket: TcpStream,
    input: Input,
    output: Vec<u8>,
    sent_bytes: usize,
}

impl BufferedSocket {
    /// Creates the buffers for a socket, which must be non-blocking.
    pub(super) const fn new(socket: TcpStream) -> Self {
        Self { socket, input: Input::new(), output: Vec::new(), sent_bytes: 0 }
    }

    pub(super) const fn socket(&self) -> &TcpStream {
        &self.socket
    }

    pub(super) const fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// Sends as much output as the connection accepts.
    pub(super) fn send(&mut self) -> io::Result<SendProgress> {
        while self.sent_bytes < self.output.len() {
            match (&self.socket).write(&self.output[self.sent_bytes..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => self.sent_bytes += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Ok(SendProgress::Partly);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.sent_bytes = 0;
        self.output.clear();
        self.output.shrink_to(KEPT_CAPACITY_BYTES);
        Ok(SendProgress::All)
    }

    /// Receives the available bytes and returns the number received. The end of the connection is
    /// an error, reported after all bytes before it.
    pub(super) fn receive(&mut self) -> io::Result<usize> {
        let Input { bytes, filled_bytes: filled } = &mut self.input;
        let before = *filled;
        loop {
            // Memory grows with the bytes received, not with the length that a frame claims.
            if bytes.len() < *filled + READ_BYTES {
                bytes.resize(*filled + READ_BYTES, 0);
            }
            let read = (&self.socket).read(&mut bytes[*filled..]);
            let room = bytes.len() - *filled;
            *filled += *read.as_ref().unwrap_or(&0);
            let received = *filled - before;
            match read {
                Ok(0) if received == 0 => return Err(ErrorKind::UnexpectedEof.into()),
                // All available bytes have been read, or the limit has been reached and the
                // connection remains readable.
                Ok(count) if count < room || received >= READ_BYTES_MAX => return Ok(received),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(received),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // The bytes before the error are handled first. The next call will report it again.
                Err(_) if received > 0 => return Ok(received),
                Err(error) => return Err(error),
            }
        }
    }

    pub(super) const fn take_input(&mut self) -> Input {
        mem::replace(&mut self.input, Input::new())
    }

    /// Puts the received bytes back after the first `used` of them have been handled.
    pub(super) fn put_back(&mut self, mut input: Input, used: usize) {
        input.bytes.copy_within(used..input.filled_bytes, 0);
        input.filled_bytes -= used;
        if input.filled_bytes == 0 && input.bytes.len() > KEPT_CAPACITY_BYTES {
            input = Input::new();
        }
        self.input = input;
    }

    pub(super) fn shut_down(&self) {
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}
