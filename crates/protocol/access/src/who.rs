//! Identities proved by certificates.

/// Identity that the peer proved at the start of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Who {
    /// No identity was proved, because certificates are not used.
    #[default]
    Anonymous,
    /// A node of this cluster. It may read everything, because it has the complete log.
    Node(u32),
    /// A client of this cluster, with the name from its certificate.
    Client(String),
    /// A peer whose certificate names neither a node nor a client of this cluster.
    Unnamed,
}
