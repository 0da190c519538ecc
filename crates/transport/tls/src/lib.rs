//! Who nodes, clients and operators are: certificates that name them, and sessions of TLS without
//! sockets.
//!
//! Peers and clients have authorities of their own. A node's certificate names its cluster and its
//! id ([`names`]), and a handshake with a peer ends before a word is said if it names another
//! cluster, or another node than was dialled (`verify`). What is in the files ([`files`]) is read
//! again while the node runs ([`Trust`]); connections that stand are left alone. A [`session`] maps
//! bytes to bytes and owns no descriptor, so the reactor reads and writes as ever.
//!
//! TLS 1.3 alone: no renegotiation, no weaker version to be talked into, and no early data that
//! could be replayed.

#[cfg(feature = "authority")]
pub mod authority;
pub mod files;
pub mod names;
pub mod session;
pub mod stream;
mod trust;
mod verify;

pub use files::{BadFiles, ClientFiles, Files};
pub use rustls::{ClientConfig, ServerConfig};
pub use trust::{ClientTrust, Expiry, Protection, Trust, Validity, provider, validities};
pub use verify::common_name;
