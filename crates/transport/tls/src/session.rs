//! One session of TLS, without a socket: bytes of the network on one side, bytes of the connection
//! on the other.
//!
//! The library has an interface without buffers, too, which copies less. It panics when it is asked
//! again after bytes that it refused, and what strangers send must never end a node: this one does
//! not.

use std::{
    fmt,
    io::{self, ErrorKind, IoSlice, Read as _, Write},
    mem,
    sync::Arc,
};

use quorate_access::Who;
use rustls::{
    ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection,
    pki_types::{CertificateDer, ServerName},
};

use crate::verify::{node_of, who};

/// Asked from the network at once.
const READ_BYTES: usize = 64 << 10;
/// And while the handshake lasts.
const HANDSHAKE_READ_BYTES: usize = 8 << 10;
/// Most bytes that are encrypted ahead of what the network takes.
const AHEAD_BYTES_MAX: usize = 64 << 10;

/// Result of taking decrypted bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// This many bytes.
    Some(usize),
    /// Nothing before more comes of the network.
    NeedsMore,
    /// The other side has sent its last byte.
    Ended,
    /// The session is over: see [`Session::failure`].
    Failed,
}

/// One session.
pub struct Session {
    /// `None` if it could not begin.
    connection: Option<Connection>,
    cluster: String,
    /// From the network, and not shown to the library up from `used`.
    incoming: Vec<u8>,
    used: usize,
    /// Decrypted, and not taken.
    readable: usize,
    established: bool,
    finished: bool,
    failure: Option<String>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Neither keys nor what is said.
        f.debug_struct("Session")
            .field("established", &self.established)
            .field("failure", &self.failure)
            .finish_non_exhaustive()
    }
}

impl Session {
    pub(crate) fn server(config: Arc<ServerConfig>, cluster: String) -> Self {
        Self::new(ServerConnection::new(config).map(Connection::from), cluster)
    }

    pub(crate) fn client(
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
        cluster: String,
    ) -> Self {
        let connection = ClientConnection::new(config, name);
        Self::new(connection.map(Connection::from), cluster)
    }

    /// One that is over before it begins.
    pub(crate) fn failed(why: String) -> Self {
        Self::new(Err(rustls::Error::General(why)), String::new())
    }

    fn new(connection: Result<Connection, rustls::Error>, cluster: String) -> Self {
        let (connection, failure) = match connection {
            Ok(mut connection) => {
                connection.set_buffer_limit(Some(AHEAD_BYTES_MAX));
                (Some(connection), None)
            }
            Err(error) => (None, Some(error.to_string())),
        };
        Self {
            connection,
            cluster,
            incoming: Vec::new(),
            used: 0,
            readable: 0,
            established: false,
            finished: false,
            failure,
        }
    }

    /// Returns whether both sides have proved their identity.
    pub const fn is_established(&self) -> bool {
        self.established
    }

    /// Why it is over, if it is.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// The node of this cluster that the other side has proved to be.
    pub fn node(&self) -> Option<u32> {
        node_of(self.certificate()?, &self.cluster)
    }

    /// Returns the proven identity of the other side.
    pub fn who(&self) -> Who {
        let certificate = self.certificate();
        certificate.map_or(Who::Anonymous, |certificate| who(certificate, &self.cluster))
    }

    fn certificate(&self) -> Option<&CertificateDer<'static>> {
        let connection = self.connection.as_ref().filter(|_| self.established)?;
        connection.peer_certificates()?.first()
    }

    // From the network.

    /// Room for what comes of the network: it is appended here.
    pub fn room(&mut self) -> &mut Vec<u8> {
        self.incoming.drain(..self.used);
        self.used = 0;
        let wanted = if self.established { READ_BYTES } else { HANDSHAKE_READ_BYTES };
        self.incoming.reserve_exact(wanted);
        &mut self.incoming
    }

    /// Nothing came: an idle connection holds no memory for it.
    pub fn rest(&mut self) {
        if self.used == self.incoming.len() {
            (self.incoming, self.used) = (Vec::new(), 0);
        }
    }

    /// Returns whether [`Self::take`] can continue without more input from the network.
    pub const fn holds_more(&self) -> bool {
        self.readable > 0 || self.used < self.incoming.len()
    }

    /// Bytes for the connection. An empty `into` takes none, and the handshake goes on all the
    /// same.
    pub fn take(&mut self, into: &mut [u8]) -> Taken {
        let Some(connection) = self.connection.as_mut() else {
            return Taken::Failed;
        };
        loop {
            // What came before the end, or before what was refused, is taken first.
            match connection.reader().read(into) {
                Ok(0) if into.is_empty() => {}
                Ok(0) => return Taken::Ended,
                Ok(count) => {
                    self.readable = self.readable.saturating_sub(count);
                    return Taken::Some(count);
                }
                // Nothing now: the only other thing that it says is an end without a goodbye, which
                // the socket sees.
                Err(_) => self.readable = 0,
            }
            if self.failure.is_some() {
                return Taken::Failed;
            }
            if self.used == self.incoming.len() {
                self.rest();
                return Taken::NeedsMore;
            }
            if into.is_empty() && self.readable > 0 {
                return Taken::Some(0);
            }
            let read = connection.read_tls(&mut &self.incoming[self.used..]);
            let processed = match read {
                Ok(count) => {
                    self.used += count;
                    connection.process_new_packets().map_err(|error| error.to_string())
                }
                Err(error) => Err(error.to_string()),
            };
            match processed {
                Ok(state) => self.readable = state.plaintext_bytes_to_read(),
                Err(why) => {
                    self.failure = Some(why);
                    (self.incoming, self.used) = (Vec::new(), 0);
                }
            }
            self.established = self.failure.is_none() && !connection.is_handshaking();
        }
    }

    // To the network.

    /// Encrypts the beginning of these bytes, as far as there is room ahead of the network: how
    /// many.
    pub fn seal(&mut self, bytes: &[u8]) -> usize {
        self.seal_all(&[IoSlice::new(bytes)])
    }

    /// The same of several pieces in a row.
    pub fn seal_all(&mut self, pieces: &[IoSlice<'_>]) -> usize {
        if !self.established || self.failure.is_some() || self.finished {
            return 0;
        }
        let connection = self.connection.as_mut();
        let sealed = connection.map(|connection| connection.writer().write_vectored(pieces));
        sealed.and_then(Result::ok).unwrap_or(0)
    }

    /// Says that nothing more will be written; once.
    pub fn finish(&mut self) {
        let finished = mem::replace(&mut self.finished, true);
        if let Some(connection) = self.connection.as_mut().filter(|_| !finished) {
            connection.send_close_notify();
        }
    }

    /// Returns whether output waits for the network.
    pub fn has_unsent(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.wants_write())
    }

    /// Gives the network what waits, as far as it takes it; whether it took all.
    pub fn flush(&mut self, to: &mut dyn Write) -> io::Result<bool> {
        let Some(connection) = &mut self.connection else {
            return Ok(true);
        };
        while connection.wants_write() {
            match connection.write_tls(to) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}
