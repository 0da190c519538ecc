//! Transport between two parts of a probe: a TCP connection or datagrams.

use std::{
    io::{self, ErrorKind, Read as _, Write as _},
    net::{SocketAddr, TcpStream, UdpSocket},
    time::Duration,
};

use super::part::dial;

/// Time after which a datagram counts as lost, so that the probe fails.
const DATAGRAM_LOST_AFTER: Duration = Duration::from_secs(5);
pub const DATAGRAM_BYTES_MAX: usize = 60_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProbeTransport {
    #[default]
    Tcp,
    /// UDP, with one datagram per message.
    Udp,
}

impl ProbeTransport {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }

    pub const fn display_name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Tcp, Self::Udp].into_iter().find(|over| over.name() == name)
    }
}

#[derive(Debug)]
pub enum ProbeSocket {
    Tcp(TcpStream),
    Udp(UdpSocket),
}

impl ProbeSocket {
    pub fn dial(address: SocketAddr, over: ProbeTransport) -> io::Result<Self> {
        match over {
            ProbeTransport::Tcp => dial(address).map(Self::Tcp),
            ProbeTransport::Udp => {
                let socket = UdpSocket::bind("127.0.0.1:0")?;
                socket.connect(address)?;
                socket.set_read_timeout(Some(DATAGRAM_LOST_AFTER))?;
                Ok(Self::Udp(socket))
            }
        }
    }

    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_nonblocking(nonblocking),
            Self::Udp(socket) => socket.set_nonblocking(nonblocking),
        }
    }

    pub fn send(&mut self, message: &[u8]) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.write_all(message),
            Self::Udp(socket) => match socket.send(message)? {
                sent if sent == message.len() => Ok(()),
                _ => Err(ErrorKind::WriteZero.into()),
            },
        }
    }

    /// Receives some bytes of a message, or a complete datagram; returns 0 at the end of a
    /// connection.
    pub fn receive(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(into),
            Self::Udp(socket) => socket.recv(into),
        }
    }

    /// Receives a message of exactly the length of `into`.
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
    fn transports_have_names() {
        for over in [ProbeTransport::Tcp, ProbeTransport::Udp] {
            assert_eq!(ProbeTransport::from_name(over.name()), Some(over));
        }
        assert_eq!(ProbeTransport::from_name("sctp"), None);
    }

    #[test]
    fn each_message_is_one_datagram() {
        let far = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut near = ProbeSocket::dial(far.local_addr().unwrap(), ProbeTransport::Udp).unwrap();
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
