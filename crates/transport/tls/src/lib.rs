//! Identities of nodes, clients and operators: certificates that name them, and TLS sessions
//! without sockets.
//!
//! Peers and clients have separate authorities. A node's certificate names its cluster and its id
//! ([`names`]). A handshake with a peer fails if its certificate names another cluster, or a node
//! other than the one connected to (`verify`). Files ([`files`]) are reloaded while the node runs
//! ([`NodeTrust`]); established connections are left alone. A [`session`] converts bytes to bytes
//! and owns no descriptor, so the reactor reads and writes as usual.
//!
//! TLS 1.3 only: no renegotiation, no downgrade, and no early data that could be replayed.

#[cfg(feature = "authority")]
pub mod authority;
pub mod files;
pub mod names;
pub mod session;
pub mod stream;
mod trust;
mod verify;

pub use files::{ClientFiles, NodeFiles, TlsFilesError};
pub use rustls::{ClientConfig, ServerConfig};
pub use trust::{
    CertificateExpiry, ClientTrust, NodeTrust, Protection, Validity, provider, read_validities,
};
pub use verify::common_name;
