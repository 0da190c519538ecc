//! Keys that seal datagrams. Up to two are accepted at a time, and one of them is used for sending
//! ([pkt-3]).

use std::{collections::BTreeMap, fmt};

use quorate_core::node_id::NodeId;

/// Maximum number of peers at a time.
pub const PEERS_MAX: usize = 256;

#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; 32]);

impl Key {
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub(crate) const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// Redacts the key.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

/// Number of a key, as contained in headers. 0 means no key.
pub type KeyId = u8;

/// Keys that a node accepts, one of which it also sends with.
///
/// A new key is added on every node, and each node announces it to the others over TCP. Once a node
/// has received the announcement from every member, it sends with the new key. It accepts the older
/// key until that is dropped.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    /// The keys, at most two, in the order in which they were added. Without keys, datagrams carry
    /// only a checksum.
    keys: Vec<(KeyId, Key)>,
    /// Key used for sending.
    current: KeyId,
    /// Newest key that each node announced.
    announced: BTreeMap<NodeId, KeyId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadKey {
    /// The number is 0, which means that there is no key.
    Zero,
    Taken,
    /// The node runs without keys. With a key, it would reject the datagrams of its peers.
    Unkeyed,
    /// There are two keys, and the older one is still used for sending.
    Busy,
}

impl Keys {
    pub fn none() -> Self {
        Self::default()
    }

    /// Creates a set with one key. Used at start.
    pub fn one(id: KeyId, key: Key) -> Result<Self, BadKey> {
        if id == 0 {
            return Err(BadKey::Zero);
        }
        Ok(Self { keys: vec![(id, key)], current: id, announced: BTreeMap::new() })
    }

    /// Adds a key. If there are two already, replaces the older one, unless it is used for sending.
    pub fn add(&mut self, id: KeyId, key: Key) -> Result<(), BadKey> {
        if id == 0 {
            return Err(BadKey::Zero);
        }
        if self.keys.is_empty() {
            return Err(BadKey::Unkeyed);
        }
        if self.keys.iter().any(|(held, _)| *held == id) {
            return Err(BadKey::Taken);
        }
        if let [(older, _), _] = self.keys[..] {
            if older == self.current {
                return Err(BadKey::Busy);
            }
            self.keys.remove(0);
        }
        self.keys.push((id, key));
        Ok(())
    }

    /// Drops the keys for which `wanted` returns false, except the one used for sending.
    pub fn retain_keys(&mut self, wanted: impl Fn(KeyId) -> bool) {
        let current = self.current;
        self.keys.retain(|(id, _)| *id == current || wanted(*id));
    }

    /// Records the newest key that a node announced over TCP. Nodes beyond [`PEERS_MAX`] are
    /// ignored.
    pub fn record_announced(&mut self, node: NodeId, id: KeyId) {
        if self.announced.len() < PEERS_MAX || self.announced.contains_key(&node) {
            self.announced.insert(node, id);
        }
    }

    /// Switches to sending with the newest key if all `members` have announced it. Returns whether
    /// the key changed.
    pub fn switch(&mut self, members: &[NodeId]) -> bool {
        let newest = self.newest();
        let all = members.iter().all(|node| self.announced.get(node) == Some(&newest));
        let changed = all && newest != self.current;
        if changed {
            self.current = newest;
        }
        changed
    }

    /// Returns the number of the newest key, which this node announces.
    pub fn newest(&self) -> KeyId {
        self.keys.last().map_or(0, |(id, _)| *id)
    }

    /// Returns the key used for sending, with its number.
    pub fn current(&self) -> (KeyId, Option<&Key>) {
        let held = self.keys.iter().find(|(id, _)| *id == self.current);
        held.map_or((0, None), |(id, key)| (*id, Some(key)))
    }

    /// Returns all accepted keys, or number 0 without a key if there are none.
    pub(crate) fn accepted(&self) -> impl Iterator<Item = (KeyId, Option<&Key>)> {
        let none = self.keys.is_empty().then_some((0, None));
        let held = self.keys.iter().map(|(id, key)| (*id, Some(key)));
        none.into_iter().chain(held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> Key {
        Key::new([byte; 32])
    }

    /// [pkt-3] No node sends with a key that a member has not announced.
    #[test]
    fn new_key_is_used_once_all_members_announced_it() {
        let mut keys = Keys::one(1, key(1)).unwrap();
        let members = [NodeId(2), NodeId(3)];
        keys.add(2, key(2)).unwrap();
        assert_eq!((keys.newest(), keys.current().0), (2, 1));
        keys.record_announced(NodeId(2), 2);
        assert!(!keys.switch(&members));
        assert_eq!(keys.add(3, key(3)), Err(BadKey::Busy));
        keys.record_announced(NodeId(3), 2);
        assert!(keys.switch(&members) && !keys.switch(&members));
        assert_eq!(keys.current(), (2, Some(&key(2))));
        assert_eq!(keys.accepted().count(), 2);
        keys.add(3, key(3)).unwrap();
        let held = |keys: &Keys| keys.accepted().map(|(id, _)| id).collect::<Vec<KeyId>>();
        assert_eq!(held(&keys), [2, 3]);
        keys.retain_keys(|id| id == 3);
        assert_eq!(held(&keys), [2, 3], "it is still sent with");
        members.iter().for_each(|node| keys.record_announced(*node, 3));
        assert!(keys.switch(&members));
        keys.retain_keys(|id| id == 3);
        assert_eq!(held(&keys), [3]);
    }

    #[test]
    fn invalid_keys_are_refused() {
        assert_eq!(Keys::one(0, key(1)).unwrap_err(), BadKey::Zero);
        assert_eq!(Keys::none().add(1, key(1)), Err(BadKey::Unkeyed));
        let mut keys = Keys::one(1, key(1)).unwrap();
        assert_eq!(keys.add(1, key(2)), Err(BadKey::Taken));
        assert_eq!(keys.add(0, key(2)), Err(BadKey::Zero));
        assert_eq!(format!("{:?}", key(7)), "Key");
    }
}
