//! Files with certificates and keys in PEM format, and errors in them.

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

/// Maximum size of a file; larger than any bundle of authorities in use.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Paths of a node's certificates, keys and authorities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// This node's certificate for peers, with any intermediate certificates.
    pub cert: PathBuf,
    /// Key of `cert`.
    pub key: PathBuf,
    /// The nodes' authorities: one, or the old and the new one.
    pub ca: PathBuf,
    /// The certificate for clients and operators; it contains the hosts that they connect to.
    pub server_cert: PathBuf,
    /// Key of `server_cert`.
    pub server_key: PathBuf,
    /// The clients' authorities.
    pub client_ca: PathBuf,
}

impl Files {
    /// Returns the paths in a folder created by `quorate cert node`.
    pub fn in_folder(folder: &Path) -> Self {
        let at = |name: &str| folder.join(name);
        Self {
            cert: at("node.crt"),
            key: at("node.key"),
            ca: at("ca.crt"),
            server_cert: at("server.crt"),
            server_key: at("server.key"),
            client_ca: at("clients-ca.crt"),
        }
    }

    /// Returns all paths.
    pub fn all(&self) -> [&Path; 6] {
        [&self.cert, &self.key, &self.ca, &self.server_cert, &self.server_key, &self.client_ca]
    }
}

/// Paths of a client's certificate, key and authorities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientFiles {
    /// The client's certificate.
    pub cert: PathBuf,
    /// Key of `cert`.
    pub key: PathBuf,
    /// The authorities that certify nodes for clients.
    pub ca: PathBuf,
}

impl ClientFiles {
    /// Returns the paths in a folder created by `quorate cert client`, or in a node's own folder; a
    /// node may do what an operator may.
    pub fn in_folder(folder: &Path) -> Self {
        let at = |name: &str| folder.join(name);
        let own = at("client.crt");
        if !own.exists() && at("node.crt").exists() {
            return Self { cert: at("node.crt"), key: at("node.key"), ca: at("clients-ca.crt") };
        }
        Self { cert: own, key: at("client.key"), ca: at("clients-ca.crt") }
    }
}

/// Reason why a file cannot be used.
#[derive(Debug, Error)]
pub enum BadFiles {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}", path = path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        source: io::Error,
    },
    /// The contents are invalid.
    #[error("{path}: {what}", path = path.display())]
    Contents {
        /// Path of the file.
        path: PathBuf,
        what: String,
    },
}

impl BadFiles {
    pub(crate) fn contents(path: &Path, what: impl ToString) -> Self {
        Self::Contents { path: path.to_owned(), what: what.to_string() }
    }

    /// Returns advice for the operator.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Io { .. } => {
                "create these files with 'quorate cert'; docs/operate/tls.md describes them"
            }
            Self::Contents { .. } => {
                "docs/operate/tls.md describes each file; 'quorate cert' creates them"
            }
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, BadFiles> {
    let failed = |source| BadFiles::Io { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    let mut file = file.take(FILE_BYTES_MAX + 1);
    file.read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(BadFiles::contents(path, "too large for a certificate file"));
    }
    Ok(bytes)
}

/// Returns all certificates in a file, the owner's first.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, BadFiles> {
    let bytes = read(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let found =
        found.map_err(|error| BadFiles::contents(path, format!("no certificate: {error}")))?;
    if found.is_empty() {
        return Err(BadFiles::contents(path, "it contains no certificate"));
    }
    Ok(found)
}

pub(crate) fn key(path: &Path) -> Result<PrivateKeyDer<'static>, BadFiles> {
    let bytes = read(path)?;
    // The parser's error is not shown, because nothing about a key may ever be displayed.
    PrivateKeyDer::from_pem_slice(&bytes)
        .map_err(|_| BadFiles::contents(path, "it contains no private key"))
}

pub(crate) fn roots(path: &Path) -> Result<RootCertStore, BadFiles> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        let added = roots.add(certificate);
        added.map_err(|error| BadFiles::contents(path, format!("no authority: {error}")))?;
    }
    Ok(roots)
}
