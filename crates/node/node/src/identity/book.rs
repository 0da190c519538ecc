//! Address book: last known addresses of the group's nodes, stored next to the identity.
//!
//! The book only helps a node to find the others before it has read its log. It is never used to
//! count votes. The log's table replaces it once the log is applied up to the slot of the book.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use quorate_core::{node_id::NodeId, slot::Slot};
use quorate_log::disk::{DiskError, SmallFiles, sealed};
use quorate_replica::group::{ADDRESS_BYTES_MAX, NODES_MAX, asking::PeerTable};

/// Name of the address book's file.
pub(crate) const ADDRESS_BOOK_FILE: &str = "peers";
const FIRST_LINE: &str = "quorate peers 1";

/// Addresses of all nodes with an id, as of a slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressBook {
    /// Slot of the table. The node that wrote the book had applied all slots below it.
    pub as_of_slot: Slot,
    /// All nodes that have an id and a known address.
    pub peers: BTreeMap<NodeId, String>,
    /// Nodes that were removed from the group ([member-1]).
    pub removed_nodes: BTreeSet<NodeId>,
}

impl AddressBook {
    /// Returns a node's initial book: the founding members.
    pub fn from_founding(members: &BTreeMap<NodeId, String>) -> Self {
        Self { peers: members.clone(), ..Self::default() }
    }

    /// Returns the book updated from the log's table at `at`, with addresses that the table lacks.
    #[must_use]
    pub fn updated_from(&self, table: &PeerTable, at: Slot) -> Self {
        let peer = |(node, address): &(NodeId, String)| {
            let known = self.peers.get(node).filter(|_| address.is_empty());
            let address = known.unwrap_or(address).clone();
            (!address.is_empty()).then_some((*node, address))
        };
        Self {
            as_of_slot: at,
            peers: table.peers.iter().filter_map(peer).collect(),
            removed_nodes: table.removed_nodes.iter().copied().collect(),
        }
    }

    /// Returns the addresses as the peer table that the network uses.
    pub fn peer_table(&self) -> PeerTable {
        let peers = self.peers.iter();
        PeerTable {
            peers: peers.map(|(node, address)| (*node, address.clone())).collect(),
            removed_nodes: self.removed_nodes.iter().copied().collect(),
        }
    }

    /// Returns whether both books have the same contents, regardless of the slot.
    pub fn has_same_contents(&self, other: &Self) -> bool {
        (&self.peers, &self.removed_nodes) == (&other.peers, &other.removed_nodes)
    }

    /// Rejects contents that exceed a limit or could not be read back from lines of text.
    pub fn check_limits(&self) -> Result<(), &'static str> {
        if self.peers.len() > NODES_MAX {
            return Err("too many nodes");
        }
        let plain = |text: &String| {
            let length = 1..=ADDRESS_BYTES_MAX;
            length.contains(&text.len()) && !text.chars().any(char::is_whitespace)
        };
        if !self.peers.values().all(plain) {
            return Err("an address is not one word");
        }
        Ok(())
    }

    /// Writes the book's file durably, replacing it as a whole.
    pub(super) fn write(&self, files: &mut impl SmallFiles) -> Result<(), DiskError> {
        let mut text = format!("{FIRST_LINE}\nat {}\n", self.as_of_slot.0);
        for (node, address) in &self.peers {
            let _ = writeln!(text, "peer {node} {address}");
        }
        for node in &self.removed_nodes {
            let _ = writeln!(text, "removed {node}");
        }
        files.replace(ADDRESS_BOOK_FILE, sealed::append_checksum_line(&text).as_bytes())
    }

    /// Reads the file; `None` if it does not exist.
    pub(super) fn read(files: &impl SmallFiles) -> Result<Option<Self>, Unreadable> {
        let bytes = files.read(ADDRESS_BOOK_FILE).map_err(Unreadable::ReadFailed)?;
        let Some(bytes) = bytes else {
            return Ok(None);
        };
        let text = String::from_utf8(bytes);
        let text = text.map_err(|_| Unreadable::Malformed("not a text".to_owned()))?;
        decode(&text).map(Some).map_err(Unreadable::Malformed)
    }
}

/// Reason why the address book could not be read.
#[derive(Debug)]
pub(super) enum Unreadable {
    /// The disk failed to read the file.
    ReadFailed(DiskError),
    /// The file's text is malformed, as described.
    Malformed(String),
}

fn decode(text: &str) -> Result<AddressBook, String> {
    let mut lines = sealed::open(text)?.lines();
    if lines.next() != Some(FIRST_LINE) {
        return Err("the first line is unknown".to_owned());
    }
    let number = |text: &str| text.parse().map_err(|_| format!("not a number: {text}"));
    let node = |text: &str| number(text).map(NodeId);
    let mut book = AddressBook::default();
    for line in lines {
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            ["at", slot] => {
                let slot = slot.parse().map_err(|_| format!("not a slot: {slot}"))?;
                book.as_of_slot = Slot(slot);
            }
            ["peer", id, address] => {
                book.peers.insert(node(id)?, address.to_owned());
            }
            ["removed", id] => {
                book.removed_nodes.insert(node(id)?);
            }
            _ => return Err(format!("unknown line: {line}")),
        }
    }
    book.check_limits()?;
    Ok(book)
}

#[cfg(test)]
mod tests {
    use quorate_log::disk::MemoryDisk;

    use super::*;

    fn book() -> AddressBook {
        let peer = |node: u32| (NodeId(node), format!("10.0.0.{node}:7451"));
        AddressBook {
            as_of_slot: Slot(77),
            peers: [1, 4, 9].map(peer).into(),
            removed_nodes: [2, 3].map(NodeId).into(),
        }
    }

    #[test]
    fn address_book_survives_a_restart_and_damage_is_detected() {
        let mut disk = MemoryDisk::new();
        assert!(matches!(AddressBook::read(&disk), Ok(None)));
        book().write(&mut disk).unwrap();
        assert_eq!(AddressBook::read(&disk).unwrap(), Some(book()));
        let bytes = disk.read(ADDRESS_BOOK_FILE).unwrap().unwrap();
        for cut in 0..bytes.len() {
            disk.replace(ADDRESS_BOOK_FILE, &bytes[..cut]).unwrap();
            let read = AddressBook::read(&disk);
            assert!(matches!(read, Err(Unreadable::Malformed(_))), "cut at {cut}");
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            disk.replace(ADDRESS_BOOK_FILE, &damaged).unwrap();
            assert!(AddressBook::read(&disk).is_err(), "flipped at {at}");
        }
    }

    #[test]
    fn log_table_replaces_the_book_but_keeps_known_addresses() {
        let table = PeerTable {
            peers: vec![
                (NodeId(1), String::new()),
                (NodeId(4), "moved:1".to_owned()),
                (NodeId(10), String::new()),
            ],
            removed_nodes: vec![NodeId(2), NodeId(3), NodeId(9)],
        };
        let next = book().updated_from(&table, Slot(80));
        let expected = AddressBook {
            as_of_slot: Slot(80),
            peers: [(NodeId(1), "10.0.0.1:7451".to_owned()), (NodeId(4), "moved:1".to_owned())]
                .into(),
            removed_nodes: [2, 3, 9].map(NodeId).into(),
        };
        assert_eq!(next, expected);
        assert!(!next.has_same_contents(&book()));
        assert!(next.has_same_contents(&next.updated_from(&next.peer_table(), Slot(99))));
    }

    #[test]
    fn invalid_address_books_are_refused() {
        let mut many = book();
        many.peers = (0..=NODES_MAX as u32).map(|node| (NodeId(node), "a:1".to_owned())).collect();
        assert_eq!(many.check_limits(), Err("too many nodes"));
        for address in ["", "a b:1", "a\nb:1"] {
            let mut odd = book();
            odd.peers.insert(NodeId(1), address.to_owned());
            assert_eq!(odd.check_limits(), Err("an address is not one word"));
        }
    }
}
