//! Identities that nodes and clients prove with their certificates.

/// Identity that a peer proved when it connected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Who {
    /// No identity, because certificates are not used.
    #[default]
    Anonymous,
    /// Node of this cluster, which may read everything because it has the log.
    Node(u32),
    /// Client of this cluster, by the name in the certificate.
    Client(String),
    /// The certificate names neither a node nor a client of this cluster.
    Unnamed,
}
