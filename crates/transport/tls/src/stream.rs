//! A connection that waits: a socket, and the session between its bytes and the network, if there
//! is one. Copies are the same connection, so that one thread can read and another write.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::session::{Session, Taken};

const READ_BYTES: usize = 16 << 10;

/// The connection.
#[derive(Clone, Debug)]
pub struct Stream(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    socket: TcpStream,
    session: Option<Mutex<Session>>,
    /// The holder sends the session's output to the network, in order.
    wire: Mutex<()>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stream {
    /// A connection that was dialled, with what it is to be secured by.
    pub fn new(socket: TcpStream, session: Option<Session>) -> Self {
        Self(Arc::new(Shared { socket, session: session.map(Mutex::new), wire: Mutex::new(()) }))
    }

    /// Socket and session, for who does not want to wait; `None` while there are copies.
    pub fn into_parts(self) -> Option<(TcpStream, Option<Session>)> {
        let Shared { socket, session, .. } = Arc::into_inner(self.0)?;
        let inner =
            |session: Mutex<Session>| session.into_inner().unwrap_or_else(PoisonError::into_inner);
        Some((socket, session.map(inner)))
    }

    /// The socket, for its time-outs.
    pub fn socket(&self) -> &TcpStream {
        &self.0.socket
    }

    /// Ends both directions, and the waiting threads.
    pub fn shutdown(&self) -> io::Result<()> {
        self.0.socket.shutdown(Shutdown::Both)
    }

    /// Both sides prove who they are; nothing to do where they need not. With a time-out of the
    /// socket it may end with `WouldBlock`, and go on when it is called again.
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
            let taken = lock(session).take(&mut []);
            if taken == Taken::Failed {
                // It hears why.
                let _ = self.send_sealed(session);
                return Err(failed(&lock(session)));
            }
        }
    }

    /// The same with time-outs that hold for the handshake alone.
    pub fn handshake_within(&self, wait: Duration) -> io::Result<()> {
        self.0.socket.set_read_timeout(Some(wait))?;
        self.0.socket.set_write_timeout(Some(wait))?;
        self.handshake()
    }

    /// One read of the network for the session; how many bytes.
    fn receive(&self, session: &Mutex<Session>) -> io::Result<usize> {
        let mut came = [0; READ_BYTES];
        let count = (&self.0.socket).read(&mut came)?;
        lock(session).room().extend_from_slice(&came[..count]);
        Ok(count)
    }

    /// Gives the network what the session has for it.
    fn send_sealed(&self, session: &Mutex<Session>) -> io::Result<()> {
        let _wire = lock(&self.0.wire);
        let mut bytes = Vec::new();
        lock(session).flush(&mut bytes)?;
        // Not under the session's lock: who reads must not wait for who writes, or two ends could
        // wait for each other.
        (&self.0.socket).write_all(&bytes)
    }
}

fn failed(session: &Session) -> io::Error {
    let why = session.failure().unwrap_or("the session is over");
    io::Error::new(ErrorKind::InvalidData, format!("TLS: {why}"))
}

impl Read for &Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Some(session) = &self.0.session else {
            return (&self.0.socket).read(into);
        };
        loop {
            let taken = lock(session).take(into);
            match taken {
                Taken::Some(count) => return Ok(count),
                Taken::Ended => return Ok(0),
                Taken::Failed => return Err(failed(&lock(session))),
                Taken::NeedsMore => {}
            }
            // A reply of the protocol itself; a thread that is writing sends it, too.
            if lock(session).has_unsent() && self.0.wire.try_lock().is_ok() {
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
        let sealed = lock(session).seal(bytes);
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
