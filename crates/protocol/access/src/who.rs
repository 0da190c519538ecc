//! Identities proved by certificates.

/// Proved identity of the peer at the start of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Who {
    /// Nothing was proved, because there are no certificates.
    #[default]
    Anonymous,
    /// A node of this cluster. It has the whole log, so it may read everything.
    Node(u32),
    /// A client of this cluster, with the name in its certificate.
    Client(String),
    /// A peer whose certificate names neither a node nor a client of this cluster.
    Unnamed,
}
