//! Reading and writing a socket through TLS.
//!
//! One system call may transfer many records, and one record many bytes. Only the session knows of
//! bytes that were received but not read ([`Session::has_buffered_input`]), and of bytes that were
//! written but not sent.

use std::{
    io::{self, ErrorKind, IoSlice, Write},
    os::fd::AsFd,
};

use quorate_tls::session::{ReadOutcome, Session};
use rustix::{
    buffer::spare_capacity,
    io::Errno,
    net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg},
};

/// Outcome of one read from a socket or one write to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransferOutcome {
    /// This many bytes were transferred, and more may be possible.
    Transferred(usize),
    /// No transfer is possible until the socket is ready.
    Blocked,
    /// The other side closed the connection, or the connection is broken.
    Ended(Option<Errno>),
}

/// The network as seen by the TLS session.
struct Wire<'a, F>(&'a F);

impl<F: AsFd> Write for Wire<'_, F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut control = SendAncillaryBuffer::default();
        match sendmsg(self.0, pieces, &mut control, SendFlags::NOSIGNAL) {
            Ok(count) => Ok(count),
            Err(Errno::AGAIN | Errno::INTR) => Err(ErrorKind::WouldBlock.into()),
            Err(error) => Err(error.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Sends as many of the pending records as possible.
pub(super) fn flush(fd: &impl AsFd, session: &mut Session) -> TransferOutcome {
    match session.flush(&mut Wire(fd)) {
        Ok(true) => TransferOutcome::Transferred(0),
        Ok(false) => TransferOutcome::Blocked,
        Err(error) => TransferOutcome::Ended(Errno::from_io_error(&error)),
    }
}

/// Returns received bytes, after at most one read from the network.
pub(super) fn read(fd: &impl AsFd, session: &mut Session, into: &mut [u8]) -> TransferOutcome {
    let mut read = false;
    loop {
        let taken = session.read_plaintext(into);
        // The handshake may produce output, and so may its failure.
        let flushed = flush(fd, session);
        match (taken, flushed) {
            (ReadOutcome::Bytes(count), _) => return TransferOutcome::Transferred(count),
            (ReadOutcome::PeerClosed, _) => return TransferOutcome::Ended(None),
            (ReadOutcome::Failed, _) => return TransferOutcome::Ended(Some(Errno::PROTO)),
            (ReadOutcome::NeedsMore, TransferOutcome::Ended(why)) => {
                return TransferOutcome::Ended(why);
            }
            (ReadOutcome::NeedsMore, _) if read => return TransferOutcome::Blocked,
            (ReadOutcome::NeedsMore, _) => {}
        }
        match recv(fd, spare_capacity(session.input_buffer()), RecvFlags::empty()) {
            Ok((0, _)) => return TransferOutcome::Ended(None),
            Ok(_) => read = true,
            Err(error) => {
                session.release_buffers();
                return match error {
                    Errno::AGAIN | Errno::INTR => TransferOutcome::Blocked,
                    error => TransferOutcome::Ended(Some(error)),
                };
            }
        }
    }
}

/// Writes as many of `pieces` as the network accepts, plus a little that stays in the session.
pub(super) fn write(
    fd: &impl AsFd,
    session: &mut Session,
    pieces: &[IoSlice<'_>],
) -> TransferOutcome {
    let mut rest = pieces.to_vec();
    let mut rest = rest.as_mut_slice();
    let mut total = 0;
    while !rest.is_empty() {
        match flush(fd, session) {
            TransferOutcome::Transferred(_) => {}
            ended @ TransferOutcome::Ended(_) => return ended,
            TransferOutcome::Blocked => break,
        }
        let sealed = session.encrypt_slices(rest);
        if sealed == 0 {
            break;
        }
        total += sealed;
        IoSlice::advance_slices(&mut rest, sealed);
    }
    match flush(fd, session) {
        ended @ TransferOutcome::Ended(_) => ended,
        _ if total > 0 => TransferOutcome::Transferred(total),
        _ if session.failure().is_some() => TransferOutcome::Ended(Some(Errno::PROTO)),
        _ => TransferOutcome::Blocked,
    }
}
