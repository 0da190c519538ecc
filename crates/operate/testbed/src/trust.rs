//! This process's client certificate, if it has one. A process connects to one cluster at a time.

use std::{io, net::TcpStream, path::Path, sync::OnceLock, time::Duration};

use quorate_tls::{ClientFiles, ClientTrust, stream::Stream};

static TRUST: OnceLock<ClientTrust> = OnceLock::new();

/// Makes later connections use TLS with the certificate in `folder`. Once per process.
pub fn use_certificate(folder: &Path) -> io::Result<()> {
    let files = ClientFiles::in_folder(folder);
    quorate_admin::client::use_certificate(&files).map_err(io::Error::other)?;
    let _ = TRUST.set(ClientTrust::load(&files).map_err(io::Error::other)?);
    Ok(())
}

/// Returns the certificate for the library's clients, if there is one.
pub(crate) fn certificate() -> Option<ClientTrust> {
    TRUST.get().cloned()
}

/// Wraps a connection to a node in TLS if the process has a certificate.
pub(crate) fn secure_stream(
    socket: TcpStream,
    address: &str,
    wait: Duration,
) -> io::Result<Stream> {
    let session = TRUST.get().map(|trust| trust.session_to_address(address));
    let session = session.transpose().map_err(io::Error::other)?;
    let stream = Stream::new(socket, session);
    if TRUST.get().is_some() {
        stream.handshake_within(wait)?;
    }
    Ok(stream)
}
