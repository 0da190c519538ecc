//! What a certificate proved about somebody.

/// Who is at the other end of a connection, as far as that was proved when it began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Who {
    /// Nothing was proved: there are no certificates here.
    #[default]
    Nobody,
    /// A node of this cluster. It has the whole log, so nothing is kept from it.
    Node(u32),
    /// A client of this cluster, by the name that its certificate has.
    Client(String),
    /// Somebody with a certificate that names neither a node nor a client of this cluster.
    Unnamed,
}
