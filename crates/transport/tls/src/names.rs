//! Names in certificates: `node-3.orders.quorate.internal` is node 3 of the cluster `orders`, and
//! `ann.client.orders.quorate.internal` is its client `ann`.
//!
//! They are DNS names, so that any authority can issue them. They are never resolved, because
//! connections to nodes use addresses.

use std::fmt;

use quorate_access::Name;

/// Suffix of every name. `.internal` is reserved for private use.
const DNS_SUFFIX: &str = ".quorate.internal";
const CLIENT_SUFFIX: &str = ".client";
const NODE_PREFIX: &str = "node-";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeName {
    pub cluster: String,
    /// Starts at 1.
    pub node: u32,
}

/// A client of a cluster: a program or a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientName {
    pub cluster: String,
    pub client: String,
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{NODE_PREFIX}{}.{}{DNS_SUFFIX}", self.node, self.cluster)
    }
}

impl fmt::Display for ClientName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{CLIENT_SUFFIX}.{}{DNS_SUFFIX}", self.client, self.cluster)
    }
}

impl NodeName {
    /// Parses a name from a certificate, or returns `None` if it is not the name of a node.
    pub fn parse(text: &str) -> Option<Self> {
        let (node, cluster) = text.strip_suffix(DNS_SUFFIX)?.split_once('.')?;
        let digits = node.strip_prefix(NODE_PREFIX)?;
        let node: u32 = digits.parse().ok()?;
        // Each node has only one valid name: neither `node-07` nor `node-+7` is accepted.
        let exact = node > 0 && node.to_string() == digits;
        (exact && is_label(cluster)).then(|| Self { cluster: cluster.to_owned(), node })
    }
}

impl ClientName {
    /// Parses a name from a certificate, or returns `None` if it is not the name of a client.
    pub fn parse(text: &str) -> Option<Self> {
        let (client, cluster) = text.strip_suffix(DNS_SUFFIX)?.split_once('.')?;
        let cluster = cluster.strip_prefix(&CLIENT_SUFFIX[1..])?.strip_prefix('.')?;
        (is_label(client) && is_label(cluster))
            .then(|| Self { cluster: cluster.to_owned(), client: client.to_owned() })
    }
}

/// Returns whether the text is valid as the name of a cluster or a client: lower-case letters,
/// digits and dashes, as in DNS. User names follow the same rule.
pub fn is_label(text: &str) -> bool {
    Name::new(text).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        let node = NodeName { cluster: "orders".to_owned(), node: 3 };
        assert_eq!(node.to_string(), "node-3.orders.quorate.internal");
        assert_eq!(NodeName::parse(&node.to_string()), Some(node));
        let client = ClientName { cluster: "orders".to_owned(), client: "ann".to_owned() };
        assert_eq!(client.to_string(), "ann.client.orders.quorate.internal");
        assert_eq!(ClientName::parse(&client.to_string()), Some(client));
    }

    #[test]
    fn malformed_names_are_refused() {
        for text in [
            "",
            "node-3",
            "node-3.quorate.internal",
            "node-3.orders.quorate.internal.",
            "node-3.orders.example.com",
            "node-0.orders.quorate.internal",
            "node-03.orders.quorate.internal",
            "node-+3.orders.quorate.internal",
            "node--3.orders.quorate.internal",
            "node-4294967296.orders.quorate.internal",
            "node-3.or.ders.quorate.internal",
            "node-3.Orders.quorate.internal",
            "node-3..quorate.internal",
            "*.orders.quorate.internal",
            "ann.client.orders.quorate.internal",
        ] {
            assert_eq!(NodeName::parse(text), None, "{text}");
        }
        for text in [
            "ann.orders.quorate.internal",
            ".client.orders.quorate.internal",
            "ann.client.quorate.internal",
            "ann.clientorders.quorate.internal",
            "a.b.client.orders.quorate.internal",
            "node-3.orders.quorate.internal",
        ] {
            assert_eq!(ClientName::parse(text), None, "{text}");
        }
    }
}
