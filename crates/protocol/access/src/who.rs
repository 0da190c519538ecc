//! Identities proved by certificates.

/// Identity of the peer of a connection, as far as it was proved at its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Who {
    /// Nothing was proved: there are no certificates here.
    #[default]
    Anonymous,
    /// A node of this cluster. It has the whole log, so nothing is kept from it.
    Node(u32),
    /// A client of this cluster, by the name that its certificate has.
    Client(String),
    /// A peer with a certificate that names neither a node nor a client of this cluster.
    Unnamed,
}
