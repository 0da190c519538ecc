//! The files with certificates and keys, in PEM, and what is wrong with them.

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

/// Longer than any bundle of authorities in use.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Paths of a node's certificates, keys and authorities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// This node's certificate, for peers, with what is between it and the authority.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The authorities of nodes: one, or the old and the new one.
    pub ca: PathBuf,
    /// The certificate for clients and operators; it names the hosts at which they dial.
    pub server_cert: PathBuf,
    /// Its key.
    pub server_key: PathBuf,
    /// The authorities of clients.
    pub client_ca: PathBuf,
}

impl Files {
    /// A folder as `quorate cert node` makes it.
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

    /// All of them.
    pub fn all(&self) -> [&Path; 6] {
        [&self.cert, &self.key, &self.ca, &self.server_cert, &self.server_key, &self.client_ca]
    }
}

/// Paths of a client's certificate, key and authorities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientFiles {
    /// Its certificate.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The authorities that nodes have a certificate of.
    pub ca: PathBuf,
}

impl ClientFiles {
    /// A folder as `quorate cert client` makes it; or a node's own, which may do what an operator
    /// may.
    pub fn in_folder(folder: &Path) -> Self {
        let at = |name: &str| folder.join(name);
        let own = at("client.crt");
        if !own.exists() && at("node.crt").exists() {
            return Self { cert: at("node.crt"), key: at("node.key"), ca: at("clients-ca.crt") };
        }
        Self { cert: own, key: at("client.key"), ca: at("clients-ca.crt") }
    }
}

/// Why a file cannot be used.
#[derive(Debug, Error)]
pub enum BadFiles {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}", path = path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        source: io::Error,
    },
    /// The contents are not what they should be.
    #[error("{path}: {what}", path = path.display())]
    Contents {
        /// Which file.
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

/// All certificates of a file, the owner's first.
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
    // What the parser says of a key is not repeated: nothing of a key is ever shown.
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
