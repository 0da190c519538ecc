//! This process's certificate, if it has one: it talks to one cluster at a time.

use std::{io, net::TcpStream, path::Path, sync::OnceLock, time::Duration};

use quorate_tls::{ClientFiles, ClientTrust, stream::Stream};

static TRUST: OnceLock<ClientTrust> = OnceLock::new();

/// From now on nodes are talked to by TLS, at all their addresses, with the certificate in this
/// folder. Once in a process.
pub fn use_certificate(folder: &Path) -> io::Result<()> {
    let files = ClientFiles::in_folder(folder);
    quorate_admin::client::use_certificate(&files).map_err(io::Error::other)?;
    let _ = TRUST.set(ClientTrust::load(&files).map_err(io::Error::other)?);
    Ok(())
}

/// Returns the certificate, for clients of the library.
pub(crate) fn certificate() -> Option<ClientTrust> {
    TRUST.get().cloned()
}

/// A connection to the node of this address, by TLS if there is a certificate.
pub(crate) fn secured(socket: TcpStream, address: &str, wait: Duration) -> io::Result<Stream> {
    let session = TRUST.get().map(|trust| trust.session_at(address));
    let session = session.transpose().map_err(io::Error::other)?;
    let stream = Stream::new(socket, session);
    if TRUST.get().is_some() {
        stream.handshake_within(wait)?;
    }
    Ok(stream)
}
