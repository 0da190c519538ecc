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
pub struct KeyRing {
    /// The keys, at most two, in the order in which they were added. Without keys, datagrams carry
    /// only a checksum.
    keys: Vec<(KeyId, Key)>,
    /// Key used for sending.
    sending_key: KeyId,
    /// Newest key that each node announced.
    announced_keys: BTreeMap<NodeId, KeyId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidKey {
    /// The number is 0, which means that there is no key.
    Zero,
    IdTaken,
    /// The node runs without keys. With a key, it would reject the datagrams of its peers.
    NodeWithoutKeys,
    /// There are two keys, and the older one is still used for sending.
    SwitchPending,
}

impl KeyRing {
    pub fn none() -> Self {
        Self::default()
    }

    /// Creates a set with one key. Used at start.
    pub fn one(id: KeyId, key: Key) -> Result<Self, InvalidKey> {
        if id == 0 {
            return Err(InvalidKey::Zero);
        }
        Ok(Self { keys: vec![(id, key)], sending_key: id, announced_keys: BTreeMap::new() })
    }

    /// Adds a key. If there are two already, replaces the older one, unless it is used for sending.
    pub fn add(&mut self, id: KeyId, key: Key) -> Result<(), InvalidKey> {
        if id == 0 {
            return Err(InvalidKey::Zero);
        }
        if self.keys.is_empty() {
            return Err(InvalidKey::NodeWithoutKeys);
        }
        if self.keys.iter().any(|(held, _)| *held == id) {
            return Err(InvalidKey::IdTaken);
        }
        if let [(older, _), _] = self.keys[..] {
            if older == self.sending_key {
                return Err(InvalidKey::SwitchPending);
            }
            self.keys.remove(0);
        }
        self.keys.push((id, key));
        Ok(())
    }

    /// Drops the keys for which `wanted` returns false, except the one used for sending.
    pub fn retain_keys(&mut self, wanted: impl Fn(KeyId) -> bool) {
        let current = self.sending_key;
        self.keys.retain(|(id, _)| *id == current || wanted(*id));
    }

    /// Records the newest key that a node announced over TCP. Nodes beyond [`PEERS_MAX`] are
    /// ignored.
    pub fn record_announced(&mut self, node: NodeId, id: KeyId) {
        if self.announced_keys.len() < PEERS_MAX || self.announced_keys.contains_key(&node) {
            self.announced_keys.insert(node, id);
        }
    }

    /// Switches to sending with the newest key if all `members` have announced it. Returns whether
    /// the key changed.
    pub fn switch_to_newest(&mut self, members: &[NodeId]) -> bool {
        let newest = self.newest_id();
        let all = members.iter().all(|node| self.announced_keys.get(node) == Some(&newest));
        let changed = all && newest != self.sending_key;
        if changed {
            self.sending_key = newest;
        }
        changed
    }

    /// Returns the number of the newest key, which this node announces.
    pub fn newest_id(&self) -> KeyId {
        self.keys.last().map_or(0, |(id, _)| *id)
    }

    /// Returns the key used for sending, with its number.
    pub fn current(&self) -> (KeyId, Option<&Key>) {
        let held = self.keys.iter().find(|(id, _)| *id == self.sending_key);
        held.map_or((0, None), |(id, key)| (*id, Some(key)))
    }

    /// Returns all accepted keys, or number 0 without a key if there are none.
    pub(crate) fn accepted_keys(&self) -> impl Iterator<Item = (KeyId, Option<&Key>)> {
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
        let mut keys = KeyRing::one(1, key(1)).unwrap();
        let members = [NodeId(2), NodeId(3)];
        keys.add(2, key(2)).unwrap();
        assert_eq!((keys.newest_id(), keys.current().0), (2, 1));
        keys.record_announced(NodeId(2), 2);
        assert!(!keys.switch_to_newest(&members));
        assert_eq!(keys.add(3, key(3)), Err(InvalidKey::SwitchPending));
        keys.record_announced(NodeId(3), 2);
        assert!(keys.switch_to_newest(&members) && !keys.switch_to_newest(&members));
        assert_eq!(keys.current(), (2, Some(&key(2))));
        assert_eq!(keys.accepted_keys().count(), 2);
        keys.add(3, key(3)).unwrap();
        let held = |keys: &KeyRing| keys.accepted_keys().map(|(id, _)| id).collect::<Vec<KeyId>>();
        assert_eq!(held(&keys), [2, 3]);
        keys.retain_keys(|id| id == 3);
        assert_eq!(held(&keys), [2, 3], "it is still sent with");
        members.iter().for_each(|node| keys.record_announced(*node, 3));
        assert!(keys.switch_to_newest(&members));
        keys.retain_keys(|id| id == 3);
        assert_eq!(held(&keys), [3]);
    }

    #[test]
    fn invalid_keys_are_refused() {
        assert_eq!(KeyRing::one(0, key(1)).unwrap_err(), InvalidKey::Zero);
        assert_eq!(KeyRing::none().add(1, key(1)), Err(InvalidKey::NodeWithoutKeys));
        let mut keys = KeyRing::one(1, key(1)).unwrap();
        assert_eq!(keys.add(1, key(2)), Err(InvalidKey::IdTaken));
        assert_eq!(keys.add(0, key(2)), Err(InvalidKey::Zero));
        assert_eq!(format!("{:?}", key(7)), "Key");
    }
}
