//! RESP connection without retries, whose caller sees every reply and every missing reply.

use std::{
    io::{self, BufRead as _, BufReader, Read, Write as _},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use quorate_tls::stream::Stream;

use crate::trust::secure_stream;

/// Timeout for a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// Timeout for a reply, longer than a node lets a command wait, and longer than a pause.
const REPLY_TIMEOUT: Duration = Duration::from_millis(2500);
/// Maximum size of a reply in bytes.
const REPLY_BYTES_MAX: usize = 16 << 20;

/// RESP reply from a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Simple string such as `+OK`.
    Simple(String),
    /// Integer such as `:1`.
    Number(i64),
    /// Bulk string, `$…`.
    Bulk(String),
    /// Null: `$-1` or `*-1`.
    Null,
    /// Array, `*…`.
    Array(Vec<Self>),
    /// Error. Its first word indicates whether the command was executed.
    Error(String),
}

impl Reply {
    /// Returns the number if the reply is an integer.
    pub const fn as_number(&self) -> Option<i64> {
        match self {
            Self::Number(number) => Some(*number),
            _ => None,
        }
    }

    pub fn text(self) -> Option<String> {
        match self {
            Self::Simple(text) | Self::Bulk(text) => Some(text),
            _ => None,
        }
    }
}

/// Readable side of a connection, with or without TLS.
#[derive(Debug)]
struct ReadSide(Stream);

impl Read for ReadSide {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        (&self.0).read(bytes)
    }
}

#[derive(Debug)]
pub struct RespConnection {
    stream: BufReader<ReadSide>,
}

impl RespConnection {
    /// Connects to a node at `HOST:PORT`.
    pub fn connect(address: &str) -> io::Result<Self> {
        let place: SocketAddr = address.parse().map_err(io::Error::other)?;
        let socket = TcpStream::connect_timeout(&place, CONNECT_TIMEOUT)?;
        socket.set_nodelay(true)?;
        let stream = secure_stream(socket, address, REPLY_TIMEOUT)?;
        stream.socket().set_read_timeout(Some(REPLY_TIMEOUT))?;
        stream.socket().set_write_timeout(Some(REPLY_TIMEOUT))?;
        Ok(Self { stream: BufReader::new(ReadSide(stream)) })
    }

    pub fn send_commands(&mut self, commands: &[&[&str]]) -> io::Result<()> {
        let mut bytes = Vec::new();
        for command in commands {
            write!(bytes, "*{}\r\n", command.len())?;
            for word in *command {
                write!(bytes, "${}\r\n{word}\r\n", word.len())?;
            }
        }
        (&self.stream.get_ref().0).write_all(&bytes)
    }

    pub fn receive_reply(&mut self) -> io::Result<Reply> {
        let line = self.read_line()?;
        let (kind, rest) = line.split_at_checked(1).ok_or_else(|| malformed_reply(&line))?;
        let number = || rest.parse::<i64>().map_err(|_| malformed_reply(&line));
        match kind {
            "+" => Ok(Reply::Simple(rest.to_owned())),
            "-" => Ok(Reply::Error(rest.to_owned())),
            ":" => Ok(Reply::Number(number()?)),
            "$" | "*" if number()? < 0 => Ok(Reply::Null),
            "$" => self.read_bulk(usize::try_from(number()?).map_err(io::Error::other)?),
            "*" => (0..number()?)
                .map(|_| self.receive_reply())
                .collect::<io::Result<_>>()
                .map(Reply::Array),
            _ => Err(malformed_reply(&line)),
        }
    }

    pub fn run_command(&mut self, command: &[&str]) -> io::Result<Reply> {
        self.send_commands(&[command])?;
        self.receive_reply()
    }

    fn read_line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        let mut bounded = self.stream.by_ref().take(REPLY_BYTES_MAX as u64);
        bounded.read_line(&mut line)?;
        let text = line.strip_suffix("\r\n");
        // A line that is empty or incomplete means that the connection was closed.
        text.map(str::to_owned).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    fn read_bulk(&mut self, length: usize) -> io::Result<Reply> {
        if length > REPLY_BYTES_MAX {
            return Err(malformed_reply(&format!("${length}")));
        }
        let mut bytes = vec![0; length + 2];
        self.stream.read_exact(&mut bytes)?;
        bytes.truncate(length);
        String::from_utf8(bytes).map(Reply::Bulk).map_err(io::Error::other)
    }
}

/// Returns whether a RESP server responds at `address`.
pub fn answers_ping(address: &str) -> bool {
    let ask = || RespConnection::connect(address)?.run_command(&["PING"]);
    ask().is_ok_and(|reply| reply == Reply::Simple("PONG".to_owned()))
}

fn malformed_reply(line: &str) -> io::Error {
    io::Error::other(format!("not a reply: {line:?}"))
}
