//! Where clients connect, and by what both sides prove who they are, if they do.

use std::{
    io,
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use quorate_tls::{ClientTrust, stream::Stream};

/// A place of a node where clients connect.
#[derive(Clone, Debug)]
pub struct Door {
    address: SocketAddr,
    /// As somebody said it, HOST:PORT; a certificate has to name that host.
    name: String,
    trust: Option<ClientTrust>,
}

impl From<SocketAddr> for Door {
    fn from(address: SocketAddr) -> Self {
        Self::named(address, &address.to_string(), None)
    }
}

impl Door {
    /// A door that somebody named so; with `trust` both sides prove who they are.
    pub fn named(address: SocketAddr, name: &str, trust: Option<&ClientTrust>) -> Self {
        Self {
            address,
            name: name.to_owned(),
            trust: trust.cloned(),
        }
    }

    /// What it was named.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it is.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connects, and waits for that: so long for the network, and as long for the proof.
    pub fn connect(&self, wait: Duration) -> io::Result<Stream> {
        let socket = TcpStream::connect_timeout(&self.address, wait)?;
        socket.set_nodelay(true)?;
        let trust = self.trust.as_ref();
        let session = trust.map(|trust| trust.session_at(&self.name));
        let is_secured = session.is_some();
        let stream = Stream::new(socket, session.transpose().map_err(io::Error::other)?);
        if is_secured {
            stream.handshake_within(wait)?;
        }
        Ok(stream)
    }
}
