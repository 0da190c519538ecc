//! Connection to one node, which carries whole commands and replies.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{TcpStream, ToSocketAddrs},
    time::{Duration, Instant},
};

use quorate_tls::{
    ClientTrust,
    stream::{Stream, reject_tls_alert},
};

use crate::reply::{self, Reply};

const READ_BYTES: usize = 16 << 10;
/// Minimum timeout of a socket; zero would mean no timeout.
const SOCKET_TIMEOUT_MIN: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(crate) struct Link {
    stream: Stream,
    input: Vec<u8>,
    reply_bytes_max: usize,
}

impl Link {
    /// Connects to the first address of `name` that accepts a connection.
    pub(crate) fn connect(
        name: &str,
        tls: Option<&ClientTrust>,
        wait: Duration,
        reply_bytes_max: usize,
    ) -> io::Result<Self> {
        let until = Instant::now() + wait;
        let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
        for address in name.to_socket_addrs()? {
            let left = until.saturating_duration_since(Instant::now()).max(SOCKET_TIMEOUT_MIN);
            match TcpStream::connect_timeout(&address, left) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    let stream = secure_stream(stream, name, tls, left)?;
                    return Ok(Self { stream, input: Vec::new(), reply_bytes_max });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Sends a command. Fails if the node reads nothing for `wait`.
    pub(crate) fn send(&mut self, command: &[u8], wait: Duration) -> io::Result<()> {
        let timeout = Some(wait.max(SOCKET_TIMEOUT_MIN));
        self.stream.socket().set_write_timeout(timeout)?;
        (&self.stream).write_all(command)
    }

    /// Returns the next reply. Fails with `TimedOut` if none arrives within `wait`.
    pub(crate) fn receive(&mut self, wait: Duration) -> io::Result<Reply> {
        let until = Instant::now() + wait;
        loop {
            match reply::parse_reply(&self.input, self.reply_bytes_max) {
                Ok(Some((reply, used))) => {
                    self.input.drain(..used);
                    return Ok(reply);
                }
                Ok(None) => {}
                Err(malformed) => return Err(io::Error::new(ErrorKind::InvalidData, malformed.0)),
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::Error::new(ErrorKind::TimedOut, "no reply in time"));
            }
            self.fill_input(left)?;
        }
    }

    /// Runs a command that the client itself sends to set up the connection.
    pub(crate) fn run_setup_command(
        &mut self,
        arguments: &[&[u8]],
        wait: Duration,
    ) -> io::Result<Reply> {
        let mut bytes = Vec::new();
        encode_command(arguments, &mut bytes);
        self.send(&bytes, wait)?;
        match self.receive(wait)? {
            Reply::Error(text) => Err(io::Error::other(text)),
            reply => Ok(reply),
        }
    }

    /// Returns whether bytes have arrived beyond the returned replies.
    pub(crate) const fn has_surplus(&self) -> bool {
        !self.input.is_empty()
    }

    fn fill_input(&mut self, wait: Duration) -> io::Result<()> {
        let timeout = Some(wait.max(SOCKET_TIMEOUT_MIN));
        self.stream.socket().set_read_timeout(timeout)?;
        let filled = self.input.len();
        self.input.resize(filled + READ_BYTES, 0);
        let read = (&self.stream).read(&mut self.input[filled..]);
        self.input.truncate(filled + read.as_ref().map_or(0, |bytes| *bytes));
        match read {
            Ok(0) => {
                Err(io::Error::new(ErrorKind::UnexpectedEof, "the node closed the connection"))
            }
            Ok(_) => reject_tls_alert(&self.input),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                Err(io::Error::new(ErrorKind::TimedOut, "no reply in time"))
            }
            Err(error) => Err(error),
        }
    }
}

/// Performs the TLS handshake with mutual authentication, if TLS is configured.
pub(crate) fn secure_stream(
    socket: TcpStream,
    name: &str,
    tls: Option<&ClientTrust>,
    wait: Duration,
) -> io::Result<Stream> {
    let session = tls.map(|tls| tls.session_to_address(name)).transpose();
    let stream = Stream::new(socket, session.map_err(io::Error::other)?);
    if tls.is_some() {
        stream.handshake_within(wait.max(SOCKET_TIMEOUT_MIN))?;
    }
    Ok(stream)
}

pub(crate) fn encode_command(arguments: &[&[u8]], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("*{}\r\n", arguments.len()).as_bytes());
    for argument in arguments {
        out.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        out.extend_from_slice(argument);
        out.extend_from_slice(b"\r\n");
    }
}
