//! One client connection that never blocks.

use std::{
    io::{self, ErrorKind, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

/// A connection is made in this time, or not at all.
const CONNECT_WAIT: Duration = Duration::from_secs(5);
/// One read.
const READ_BYTES: usize = 256 << 10;
/// Replies that were not taken from here yet; a reply is not longer.
const INPUT_BYTES_MAX: usize = 513 << 20;
/// Above this many bytes waiting to be sent, nothing is added.
const OUTPUT_BYTES_MAX: usize = 1 << 20;

/// A socket with what is to be sent and what came.
#[derive(Debug)]
pub struct Connection {
    socket: TcpStream,
    output: Vec<u8>,
    sent: usize,
    input: Vec<u8>,
    used: usize,
    blocked: bool,
}

impl Connection {
    /// Connects; waits for that.
    pub fn dial(address: SocketAddr) -> io::Result<Self> {
        let socket = TcpStream::connect_timeout(&address, CONNECT_WAIT)?;
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            output: Vec::new(),
            sent: 0,
            input: Vec::new(),
            used: 0,
            blocked: false,
        })
    }

    /// Where a request is appended.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// Whether another request may be appended.
    pub fn has_room(&self) -> bool {
        self.output.len() - self.sent < OUTPUT_BYTES_MAX
    }

    /// Whether something waits for the socket to have room.
    pub fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Sends what the socket takes.
    pub fn send(&mut self) -> io::Result<()> {
        self.blocked = false;
        while self.sent < self.output.len() {
            match self.socket.write(&self.output[self.sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.blocked = true;
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        self.output.clear();
        self.sent = 0;
        Ok(())
    }

    /// Reads what is there, once. Level-triggered readiness tells if there is more.
    pub fn receive(&mut self, scratch: &mut Scratch) -> io::Result<()> {
        if self.input.len() - self.used > INPUT_BYTES_MAX {
            return Err(io::Error::new(ErrorKind::InvalidData, "a very long reply"));
        }
        match self.socket.read(&mut scratch.0) {
            Ok(0) => Err(io::Error::new(
                ErrorKind::UnexpectedEof,
                "the system closed the connection",
            )),
            Ok(count) => {
                self.input.drain(..self.used);
                self.used = 0;
                self.input.extend_from_slice(&scratch.0[..count]);
                Ok(())
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// What came and was not taken.
    pub fn input(&self) -> &[u8] {
        &self.input[self.used..]
    }

    /// Takes `bytes` of it.
    pub fn take(&mut self, bytes: usize) {
        self.used += bytes;
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Where reads go first; shared by all connections.
#[derive(Debug)]
pub struct Scratch(Vec<u8>);

impl Default for Scratch {
    fn default() -> Self {
        Self(vec![0; READ_BYTES])
    }
}
