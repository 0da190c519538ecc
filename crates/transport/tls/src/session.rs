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

use crate::verify::{identity_of, node_named_by};

/// Number of bytes to read from the network at a time.
const READ_BYTES: usize = 64 << 10;
/// Number of bytes to read from the network at a time during the handshake.
const HANDSHAKE_READ_BYTES: usize = 8 << 10;
/// Maximum number of encrypted bytes that wait to be sent.
const UNSENT_BYTES_MAX: usize = 64 << 10;

/// Result of reading decrypted bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// Number of bytes that were read.
    Bytes(usize),
    /// No bytes are available until more arrive from the network.
    NeedsMore,
    /// The other side has closed its direction of the connection.
    PeerClosed,
    /// The session failed (see [`Session::failure`]).
    Failed,
}

pub struct Session {
    /// `None` if the session could not be created.
    connection: Option<Connection>,
    cluster: String,
    /// Bytes from the network. Bytes at or after `processed_bytes` have not been processed.
    network_input: Vec<u8>,
    processed_bytes: usize,
    /// Number of decrypted bytes that have not been read.
    unread_plaintext_bytes: usize,
    /// The other side has announced its end, which has not been read.
    peer_has_ended: bool,
    is_handshake_done: bool,
    has_finished: bool,
    failure: Option<String>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Keys and contents must not be shown.
        f.debug_struct("Session")
            .field("established", &self.is_handshake_done)
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
                connection.set_buffer_limit(Some(UNSENT_BYTES_MAX));
                (Some(connection), None)
            }
            Err(error) => (None, Some(error.to_string())),
        };
        Self {
            connection,
            cluster,
            network_input: Vec::new(),
            processed_bytes: 0,
            unread_plaintext_bytes: 0,
            peer_has_ended: false,
            is_handshake_done: false,
            has_finished: false,
            failure,
        }
    }

    /// Returns whether the handshake is complete, so that both sides have proved their identity.
    pub const fn is_established(&self) -> bool {
        self.is_handshake_done
    }

    /// Returns the error if the session failed.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Returns the id of the node of this cluster that the other side has proved to be, if it is
    /// one.
    pub fn peer_node(&self) -> Option<u32> {
        node_named_by(self.peer_certificate()?, &self.cluster)
    }

    /// Returns the identity that the other side has proved.
    pub fn peer_identity(&self) -> Who {
        let certificate = self.peer_certificate();
        certificate.map_or(Who::Anonymous, |certificate| identity_of(certificate, &self.cluster))
    }

    fn peer_certificate(&self) -> Option<&CertificateDer<'static>> {
        let connection = self.connection.as_ref().filter(|_| self.is_handshake_done)?;
        connection.peer_certificates()?.first()
    }

    // Input from the network.

    /// Returns the buffer to which bytes from the network must be appended, with space reserved.
    pub fn input_buffer(&mut self) -> &mut Vec<u8> {
        self.network_input.drain(..self.processed_bytes);
        self.processed_bytes = 0;
        let wanted = if self.is_handshake_done { READ_BYTES } else { HANDSHAKE_READ_BYTES };
        self.network_input.reserve_exact(wanted);
        &mut self.network_input
    }

    /// Releases the input buffer if it is empty, so that an idle connection uses no memory for it.
    pub fn release_buffers(&mut self) {
        if self.processed_bytes == self.network_input.len() {
            (self.network_input, self.processed_bytes) = (Vec::new(), 0);
        }
    }

    /// Returns whether [`Self::read_plaintext`] can make progress without more input from the
    /// network.
    pub const fn has_buffered_input(&self) -> bool {
        self.unread_plaintext_bytes > 0
            || self.processed_bytes < self.network_input.len()
            || self.peer_has_ended
    }

    /// Reads decrypted bytes into `into`. If `into` is empty, no bytes are read, but the handshake
    /// continues.
    pub fn read_plaintext(&mut self, into: &mut [u8]) -> ReadOutcome {
        let Some(connection) = self.connection.as_mut() else {
            return ReadOutcome::Failed;
        };
        loop {
            // Bytes that arrived before the end, or before rejected bytes, must be read first.
            match connection.reader().read(into) {
                Ok(0) if into.is_empty() => {}
                Ok(0) => {
                    self.peer_has_ended = false;
                    return ReadOutcome::PeerClosed;
                }
                Ok(count) => {
                    self.unread_plaintext_bytes = self.unread_plaintext_bytes.saturating_sub(count);
                    return ReadOutcome::Bytes(count);
                }
                // No bytes are available. The only other error is an end without a close message,
                // which the socket reports as well.
                Err(_) => self.unread_plaintext_bytes = 0,
            }
            if self.failure.is_some() {
                return ReadOutcome::Failed;
            }
            if self.processed_bytes == self.network_input.len() {
                self.release_buffers();
                return ReadOutcome::NeedsMore;
            }
            if into.is_empty() && self.unread_plaintext_bytes > 0 {
                return ReadOutcome::Bytes(0);
            }
            let read = connection.read_tls(&mut &self.network_input[self.processed_bytes..]);
            let processed = match read {
                Ok(count) => {
                    self.processed_bytes += count;
                    connection.process_new_packets().map_err(|error| error.to_string())
                }
                Err(error) => Err(error.to_string()),
            };
            match processed {
                Ok(state) => {
                    self.unread_plaintext_bytes = state.plaintext_bytes_to_read();
                    self.peer_has_ended = state.peer_has_closed();
                }
                Err(why) => {
                    self.failure = Some(why);
                    (self.network_input, self.processed_bytes) = (Vec::new(), 0);
                }
            }
            self.is_handshake_done = self.failure.is_none() && !connection.is_handshaking();
        }
    }

    // Output to the network.

    /// Encrypts as many bytes as may wait for the network. Returns the number of bytes encrypted.
    pub fn encrypt(&mut self, bytes: &[u8]) -> usize {
        self.encrypt_slices(&[IoSlice::new(bytes)])
    }

    /// Like [`Self::encrypt`], for bytes that are passed in several slices.
    pub fn encrypt_slices(&mut self, pieces: &[IoSlice<'_>]) -> usize {
        if !self.is_handshake_done || self.failure.is_some() || self.has_finished {
            return 0;
        }
        let connection = self.connection.as_mut();
        let sealed = connection.map(|connection| connection.writer().write_vectored(pieces));
        sealed.and_then(Result::ok).unwrap_or(0)
    }

    /// Announces that no more bytes follow. Only the first call has an effect.
    pub fn finish(&mut self) {
        let finished = mem::replace(&mut self.has_finished, true);
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
