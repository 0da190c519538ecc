//! Certificate and key files in PEM format, and errors found in them.

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use thiserror::Error;

/// Maximum size of a file in bytes, larger than any bundle of authorities in use.
const FILE_BYTES_MAX: u64 = 1 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFiles {
    /// This node's certificate on peer connections, with any intermediate certificates.
    pub peer_cert: PathBuf,
    pub key: PathBuf,
    /// Authorities that certify nodes: one, or the old and the new one.
    pub peer_ca: PathBuf,
    /// This node's certificate on client and operator connections. It contains the host names and
    /// addresses that they connect to.
    pub server_cert: PathBuf,
    /// Private key for `server_cert`.
    pub server_key: PathBuf,
    pub client_ca: PathBuf,
}

impl NodeFiles {
    /// Returns the paths in a folder created by `quorate cert node`.
    pub fn in_folder(folder: &Path) -> Self {
        let at = |name: &str| folder.join(name);
        Self {
            peer_cert: at("node.crt"),
            key: at("node.key"),
            peer_ca: at("ca.crt"),
            server_cert: at("server.crt"),
            server_key: at("server.key"),
            client_ca: at("clients-ca.crt"),
        }
    }

    pub fn all_paths(&self) -> [&Path; 6] {
        [
            &self.peer_cert,
            &self.key,
            &self.peer_ca,
            &self.server_cert,
            &self.server_key,
            &self.client_ca,
        ]
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientFiles {
    pub cert: PathBuf,
    pub key: PathBuf,
    /// Authorities that certify nodes for clients.
    pub ca: PathBuf,
}

impl ClientFiles {
    /// Returns the paths in a folder created by `quorate cert client`, or in a node's own folder,
    /// because nodes have the rights of operators.
    pub fn in_folder(folder: &Path) -> Self {
        let at = |name: &str| folder.join(name);
        let own = at("client.crt");
        if !own.exists() && at("node.crt").exists() {
            return Self { cert: at("node.crt"), key: at("node.key"), ca: at("clients-ca.crt") };
        }
        Self { cert: own, key: at("client.key"), ca: at("clients-ca.crt") }
    }
}

#[derive(Debug, Error)]
pub enum TlsFilesError {
    #[error("cannot read {path}: {source}", path = path.display())]
    Io { path: PathBuf, source: io::Error },
    /// The contents of the file are invalid.
    #[error("{path}: {what}", path = path.display())]
    InvalidContents { path: PathBuf, what: String },
}

impl TlsFilesError {
    pub(crate) fn invalid_contents(path: &Path, what: impl ToString) -> Self {
        Self::InvalidContents { path: path.to_owned(), what: what.to_string() }
    }

    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Io { .. } => {
                "create these files with 'quorate cert'; docs/operate/tls.md describes them"
            }
            Self::InvalidContents { .. } => {
                "docs/operate/tls.md describes each file; 'quorate cert' creates them"
            }
        }
    }
}

fn read_bounded(path: &Path) -> Result<Vec<u8>, TlsFilesError> {
    let failed = |source| TlsFilesError::Io { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    let mut file = file.take(FILE_BYTES_MAX + 1);
    file.read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(TlsFilesError::invalid_contents(path, "too large for a certificate file"));
    }
    Ok(bytes)
}

/// Returns all certificates in a file, beginning with the owner's.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFilesError> {
    let bytes = read_bounded(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let found = found.map_err(|error| {
        TlsFilesError::invalid_contents(path, format!("no certificate: {error}"))
    })?;
    if found.is_empty() {
        return Err(TlsFilesError::invalid_contents(path, "it contains no certificate"));
    }
    Ok(found)
}

pub(crate) fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsFilesError> {
    let bytes = read_bounded(path)?;
    // The parser's error is omitted, because it might contain parts of the key.
    PrivateKeyDer::from_pem_slice(&bytes)
        .map_err(|_| TlsFilesError::invalid_contents(path, "it contains no private key"))
}

pub(crate) fn root_store(path: &Path) -> Result<RootCertStore, TlsFilesError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        let added = roots.add(certificate);
        added.map_err(|error| {
            TlsFilesError::invalid_contents(path, format!("no authority: {error}"))
        })?;
    }
    Ok(roots)
}
