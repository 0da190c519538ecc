//! Blocking connection: a socket, optionally with a TLS session on top of it. Clones share the
//! connection, so that one thread can read while another writes.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::session::{ReadOutcome, Session};

const READ_BYTES: usize = 16 << 10;

/// Error message for a connection without TLS to a node that expects it.
pub const NEEDS_TLS: &str = "the node expects TLS, and this connection has none";
/// Prefix of the error message for a session that failed.
const FAILURE_PREFIX: &str = "TLS: ";

/// Returns an error if `first` is the start of a TLS alert, the answer of a node to a client
/// without TLS. No protocol of a node begins with that byte.
pub fn reject_tls_alert(first: &[u8]) -> io::Result<()> {
    match first {
        [0x15, ..] => Err(io::Error::new(ErrorKind::InvalidData, NEEDS_TLS)),
        _ => Ok(()),
    }
}

/// Returns whether a connection failed because of TLS or certificates, in which case another
/// attempt at the same node would fail as well.
pub fn is_tls_failure(text: &str) -> bool {
    text == NEEDS_TLS || text.starts_with(FAILURE_PREFIX)
}

#[derive(Clone, Debug)]
pub struct Stream(Arc<StreamShared>);

#[derive(Debug)]
struct StreamShared {
    socket: TcpStream,
    session: Option<Mutex<Session>>,
    /// Held while writing the session's output to the network, to keep it in order.
    write_lock: Mutex<()>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stream {
    /// Creates a connection from a connected socket and its TLS session, if any.
    pub fn new(socket: TcpStream, session: Option<Session>) -> Self {
        Self(Arc::new(StreamShared {
            socket,
            session: session.map(Mutex::new),
            write_lock: Mutex::new(()),
        }))
    }

    /// Returns the socket and the session for non-blocking use, or `None` while there are clones.
    pub fn into_parts(self) -> Option<(TcpStream, Option<Session>)> {
        let StreamShared { socket, session, .. } = Arc::into_inner(self.0)?;
        let inner =
            |session: Mutex<Session>| session.into_inner().unwrap_or_else(PoisonError::into_inner);
        Some((socket, session.map(inner)))
    }

    /// Returns the socket so that the caller can set its timeouts.
    pub fn socket(&self) -> &TcpStream {
        &self.0.socket
    }

    /// Shuts down both directions, which makes blocked threads return.
    pub fn shutdown(&self) -> io::Result<()> {
        self.0.socket.shutdown(Shutdown::Both)
    }

    /// Performs the handshake if there is a session. If the socket has a timeout, this may fail
    /// with `WouldBlock`; call it again to continue.
    pub fn handshake(&self) -> io::Result<()> {
        let Some(session) = &self.0.session else {
            return Ok(());
        };
        loop {
            self.send_sealed(session)?;
            if lock(session).is_established() {
                return Ok(());
            }
            if self.receive(session)? == 0 {
                let what = "the other side closed the connection during the handshake";
                return Err(io::Error::new(ErrorKind::UnexpectedEof, what));
            }
            let taken = lock(session).read_plaintext(&mut []);
            if taken == ReadOutcome::Failed {
                // The other side should receive the alert with the reason.
                let _ = self.send_sealed(session);
                return Err(failed(&lock(session)));
            }
        }
    }

    /// Performs the handshake with timeouts for reading and writing. The timeouts remain set on the
    /// socket.
    pub fn handshake_within(&self, wait: Duration) -> io::Result<()> {
        self.0.socket.set_read_timeout(Some(wait))?;
        self.0.socket.set_write_timeout(Some(wait))?;
        self.handshake()
    }

    /// Reads from the network once for the session. Returns the number of bytes read.
    fn receive(&self, session: &Mutex<Session>) -> io::Result<usize> {
        let mut came = [0; READ_BYTES];
        let count = (&self.0.socket).read(&mut came)?;
        lock(session).input_buffer().extend_from_slice(&came[..count]);
        Ok(count)
    }

    /// Writes the session's output to the network.
    fn send_sealed(&self, session: &Mutex<Session>) -> io::Result<()> {
        let _wire = lock(&self.0.write_lock);
        let mut bytes = Vec::new();
        lock(session).flush(&mut bytes)?;
        // The session is not locked here: if a reader had to wait for a writer, both ends could
        // wait for each other.
        (&self.0.socket).write_all(&bytes)
    }
}

fn failed(session: &Session) -> io::Error {
    let why = session.failure().unwrap_or("the session is over");
    io::Error::new(ErrorKind::InvalidData, format!("{FAILURE_PREFIX}{why}"))
}

impl Read for &Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Some(session) = &self.0.session else {
            return (&self.0.socket).read(into);
        };
        loop {
            let taken = lock(session).read_plaintext(into);
            match taken {
                ReadOutcome::Bytes(count) => return Ok(count),
                ReadOutcome::PeerClosed => return Ok(0),
                ReadOutcome::Failed => return Err(failed(&lock(session))),
                ReadOutcome::NeedsMore => {}
            }
            // TLS itself has a response to send. If another thread is writing, it sends the
            // response as well.
            if lock(session).has_unsent() && self.0.write_lock.try_lock().is_ok() {
                self.send_sealed(session)?;
            }
            if self.receive(session)? == 0 {
                return Ok(0);
            }
        }
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(session) = &self.0.session else {
            return (&self.0.socket).write(bytes);
        };
        let sealed = lock(session).encrypt(bytes);
        self.send_sealed(session)?;
        if sealed == 0 && !bytes.is_empty() {
            return Err(failed(&lock(session)));
        }
        Ok(sealed)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
