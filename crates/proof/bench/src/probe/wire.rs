//! Transport between two parts of a probe: a connection, or datagrams.

use std::{
    io::{self, ErrorKind, Read as _, Write as _},
    net::{SocketAddr, TcpStream, UdpSocket},
    time::Duration,
};

use super::part::dial;

/// A datagram that does not come in this time is lost, and the probe has failed.
const LOST: Duration = Duration::from_secs(5);
/// Most bytes that one datagram of a probe carries.
pub const DATAGRAM_BYTES_MAX: usize = 60_000;

/// Which.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Over {
    /// A connection.
    #[default]
    Tcp,
    /// Datagrams, one for each message.
    Udp,
}

impl Over {
    /// As an argument of a part, and in names.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }

    /// For people.
    pub const fn shown(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Tcp, Self::Udp].into_iter().find(|over| over.name() == name)
    }
}

/// One end.
#[derive(Debug)]
pub enum Wire {
    Tcp(TcpStream),
    /// A socket that knows its other end.
    Udp(UdpSocket),
}

impl Wire {
    /// To a part that listens there.
    pub fn dial(address: SocketAddr, over: Over) -> io::Result<Self> {
        match over {
            Over::Tcp => dial(address).map(Self::Tcp),
            Over::Udp => {
                let socket = UdpSocket::bind("127.0.0.1:0")?;
                socket.connect(address)?;
                socket.set_read_timeout(Some(LOST))?;
                Ok(Self::Udp(socket))
            }
        }
    }

    /// Sets non-blocking mode.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_nonblocking(nonblocking),
            Self::Udp(socket) => socket.set_nonblocking(nonblocking),
        }
    }

    /// A whole message.
    pub fn send(&mut self, message: &[u8]) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.write_all(message),
            Self::Udp(socket) => match socket.send(message)? {
                sent if sent == message.len() => Ok(()),
                _ => Err(ErrorKind::WriteZero.into()),
            },
        }
    }

    /// Some bytes of a message, or all of it where it is a datagram; 0 at the end of a connection.
    pub fn receive(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(into),
            Self::Udp(socket) => socket.recv(into),
        }
    }

    /// A message of exactly this length.
    pub fn receive_exact(&mut self, into: &mut [u8]) -> io::Result<()> {
        let mut have = 0;
        while have < into.len() {
            match self.receive(&mut into[have..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => have += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let why = "an answer did not come in time";
                    return Err(io::Error::new(ErrorKind::TimedOut, why));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_have_names() {
        for over in [Over::Tcp, Over::Udp] {
            assert_eq!(Over::named(over.name()), Some(over));
        }
        assert_eq!(Over::named("sctp"), None);
    }

    #[test]
    fn a_datagram_is_a_message() {
        let far = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut near = Wire::dial(far.local_addr().unwrap(), Over::Udp).unwrap();
        near.send(b"question").unwrap();
        let mut asked = [0; 64];
        let (count, from) = far.recv_from(&mut asked).unwrap();
        assert_eq!(&asked[..count], b"question");
        far.send_to(b"answer!!", from).unwrap();
        let mut answer = [0; 8];
        near.receive_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"answer!!");
    }
}
