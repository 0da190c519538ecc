//! A TLS session without a socket: encrypted bytes on the network's side, decrypted bytes on the
//! caller's side.
//!
//! The TLS library also has an unbuffered interface, which copies less. However, it panics if it is
//! called again after it has rejected bytes, and received bytes must never crash a node. The
//! buffered interface does not panic.

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

/// Number of bytes to read from the network at a time.
const READ_BYTES: usize = 64 << 10;
/// Number of bytes to read from the network at a time during the handshake.
const HANDSHAKE_READ_BYTES: usize = 8 << 10;
/// Maximum number of encrypted bytes that wait to be sent.
const AHEAD_BYTES_MAX: usize = 64 << 10;

/// Result of reading decrypted bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// Number of bytes that were read.
    Some(usize),
    /// No bytes are available until more arrive from the network.
    NeedsMore,
    /// The other side has closed its direction of the connection.
    Ended,
    /// The session failed (see [`Session::failure`]).
    Failed,
}

pub struct Session {
    /// `None` if the session could not be created.
    connection: Option<Connection>,
    cluster: String,
    /// Bytes from the network. Bytes at or after `used` have not been processed.
    incoming: Vec<u8>,
    used: usize,
    /// Number of decrypted bytes that have not been read.
    readable: usize,
    /// The other side has announced its end, which has not been read.
    ends: bool,
    established: bool,
    finished: bool,
    failure: Option<String>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Keys and contents must not be shown.
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

    /// Creates a session that has already failed.
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
            ends: false,
            established: false,
            finished: false,
            failure,
        }
    }

    /// Returns whether the handshake is complete, so that both sides have proved their identity.
    pub const fn is_established(&self) -> bool {
        self.established
    }

    /// Returns the error if the session failed.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Returns the id of the node of this cluster that the other side has proved to be, if it is
    /// one.
    pub fn node(&self) -> Option<u32> {
        node_of(self.certificate()?, &self.cluster)
    }

    /// Returns the identity that the other side has proved.
    pub fn who(&self) -> Who {
        let certificate = self.certificate();
        certificate.map_or(Who::Anonymous, |certificate| who(certificate, &self.cluster))
    }

    fn certificate(&self) -> Option<&CertificateDer<'static>> {
        let connection = self.connection.as_ref().filter(|_| self.established)?;
        connection.peer_certificates()?.first()
    }

    // Input from the network.

    /// Returns the buffer to which bytes from the network must be appended, with space reserved.
    pub fn input_buffer(&mut self) -> &mut Vec<u8> {
        self.incoming.drain(..self.used);
        self.used = 0;
        let wanted = if self.established { READ_BYTES } else { HANDSHAKE_READ_BYTES };
        self.incoming.reserve_exact(wanted);
        &mut self.incoming
    }

    /// Releases the input buffer if it is empty, so that an idle connection uses no memory for it.
    pub fn release_buffers(&mut self) {
        if self.used == self.incoming.len() {
            (self.incoming, self.used) = (Vec::new(), 0);
        }
    }

    /// Returns whether [`Self::take`] can make progress without more input from the network.
    pub const fn holds_more(&self) -> bool {
        self.readable > 0 || self.used < self.incoming.len() || self.ends
    }

    /// Reads decrypted bytes into `into`. If `into` is empty, no bytes are read, but the handshake
    /// continues.
    pub fn take(&mut self, into: &mut [u8]) -> ReadOutcome {
        let Some(connection) = self.connection.as_mut() else {
            return ReadOutcome::Failed;
        };
        loop {
            // Bytes that arrived before the end, or before rejected bytes, must be read first.
            match connection.reader().read(into) {
                Ok(0) if into.is_empty() => {}
                Ok(0) => {
                    self.ends = false;
                    return ReadOutcome::Ended;
                }
                Ok(count) => {
                    self.readable = self.readable.saturating_sub(count);
                    return ReadOutcome::Some(count);
                }
                // No bytes are available. The only other error is an end without a close message,
                // which the socket reports as well.
                Err(_) => self.readable = 0,
            }
            if self.failure.is_some() {
                return ReadOutcome::Failed;
            }
            if self.used == self.incoming.len() {
                self.release_buffers();
                return ReadOutcome::NeedsMore;
            }
            if into.is_empty() && self.readable > 0 {
                return ReadOutcome::Some(0);
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
                Ok(state) => {
                    self.readable = state.plaintext_bytes_to_read();
                    self.ends = state.peer_has_closed();
                }
                Err(why) => {
                    self.failure = Some(why);
                    (self.incoming, self.used) = (Vec::new(), 0);
                }
            }
            self.established = self.failure.is_none() && !connection.is_handshaking();
        }
    }

    // Output to the network.

    /// Encrypts as many bytes as may wait for the network. Returns the number of bytes encrypted.
    pub fn seal(&mut self, bytes: &[u8]) -> usize {
        self.seal_all(&[IoSlice::new(bytes)])
    }

    /// Like [`Self::seal`], for bytes that are passed in several slices.
    pub fn seal_all(&mut self, pieces: &[IoSlice<'_>]) -> usize {
        if !self.established || self.failure.is_some() || self.finished {
            return 0;
        }
        let connection = self.connection.as_mut();
        let sealed = connection.map(|connection| connection.writer().write_vectored(pieces));
        sealed.and_then(Result::ok).unwrap_or(0)
    }

    /// Announces that no more bytes follow. Only the first call has an effect.
    pub fn finish(&mut self) {
        let finished = mem::replace(&mut self.finished, true);
        if let Some(connection) = self.connection.as_mut().filter(|_| !finished) {
            connection.send_close_notify();
        }
    }

    /// Returns whether encrypted bytes wait for the network.
    pub fn has_unsent(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.wants_write())
    }

    /// Writes waiting bytes until the network accepts no more. Returns whether all of them were
    /// written.
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
