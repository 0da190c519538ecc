//! The tag of a datagram: a keyed hash, or a checksum if the network segment is trusted ([pkt-3]).

use quorate_core::node_id::Member;

use crate::{
    header::{TAG_BYTES, TAG_OFFSET},
    trust::keys::Key,
};

/// Context of the key derivation. Other subkeys may later be derived from the same key.
const SUBKEY_CONTEXT: &[u8] = b"quorate datagram subkey 1";

/// Identity of a group in one of its generations. A group that was forced or restored is a
/// different one ([pkt-2]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupIdentity {
    pub cluster: u128,
    pub group: u64,
    pub generation: u32,
}

impl GroupIdentity {
    /// Returns the part of the group's identity that headers contain.
    pub fn header_hint(&self) -> u32 {
        let digest = blake3::hash(&self.bytes());
        let [a, b, c, d, ..] = *digest.as_bytes();
        u32::from_le_bytes([a, b, c, d])
    }

    fn bytes(&self) -> [u8; 28] {
        let mut bytes = [0; 28];
        bytes[..16].copy_from_slice(&self.cluster.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.group.to_le_bytes());
        bytes[24..].copy_from_slice(&self.generation.to_le_bytes());
        bytes
    }
}

/// Context of a tag: everything that it covers besides the datagram. No two places share a sequence
/// of tags, even if numbers repeat after a disk was restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagContext {
    pub group: GroupIdentity,
    pub sender: Member,
    pub boot: u32,
    pub channel: u8,
}

impl TagContext {
    fn bytes(&self) -> [u8; 41] {
        let mut bytes = [0; 41];
        bytes[..28].copy_from_slice(&self.group.bytes());
        bytes[28..32].copy_from_slice(&self.sender.node.0.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.sender.incarnation.0.to_le_bytes());
        bytes[36..40].copy_from_slice(&self.boot.to_le_bytes());
        bytes[40] = self.channel;
        bytes
    }
}

/// Key for the tags of one channel.
#[derive(Clone)]
pub enum TagKey {
    /// Keyed BLAKE3 for tags of 128 bits. The subkey depends on the place.
    Keyed([u8; 32]),
    /// CRC-32C checksums, whose initial value depends on the place. They protect against
    /// corruption, not against attackers.
    Checksum(u32),
}

impl TagKey {
    /// Creates a seal for the datagrams of a place. Without a key, tags are checksums.
    pub fn new(key: Option<&Key>, place: &TagContext) -> Self {
        match key {
            Some(key) => {
                let mut hasher = blake3::Hasher::new_keyed(key.bytes());
                hasher.update(SUBKEY_CONTEXT).update(&place.bytes());
                Self::Keyed(*hasher.finalize().as_bytes())
            }
            None => Self::Checksum(crc32c::crc32c(&place.bytes())),
        }
    }

    /// Computes the tag that a datagram should have, ignoring the one that it has. `to` is the
    /// receiver of a datagram for one node; it is covered although no header field contains it
    /// ([pkt-2]).
    pub fn tag(&self, datagram: &[u8], to: Option<Member>) -> [u8; TAG_BYTES] {
        let (head, payload) = (&datagram[..TAG_OFFSET], &datagram[TAG_OFFSET + TAG_BYTES..]);
        let mut to_bytes = [0; 8];
        if let Some(to) = to {
            to_bytes[..4].copy_from_slice(&to.node.0.to_le_bytes());
            to_bytes[4..].copy_from_slice(&to.incarnation.0.to_le_bytes());
        }
        let mut tag = [0; TAG_BYTES];
        match self {
            Self::Keyed(subkey) => {
                let mut hasher = blake3::Hasher::new_keyed(subkey);
                hasher.update(head).update(&to_bytes).update(payload);
                tag.copy_from_slice(&hasher.finalize().as_bytes()[..TAG_BYTES]);
            }
            Self::Checksum(seed) => {
                let sum = crc32c::crc32c_append(*seed, head);
                let sum = crc32c::crc32c_append(sum, &to_bytes);
                let sum = crc32c::crc32c_append(sum, payload);
                tag[..4].copy_from_slice(&sum.to_le_bytes());
            }
        }
        tag
    }

    /// Computes a datagram's tag and writes it into the datagram.
    pub fn write_tag(&self, datagram: &mut [u8], to: Option<Member>) {
        let tag = self.tag(datagram, to);
        datagram[TAG_OFFSET..TAG_OFFSET + TAG_BYTES].copy_from_slice(&tag);
    }

    /// Returns whether `tag` is the datagram's tag. Compares in constant time.
    pub fn verifies(&self, datagram: &[u8], tag: [u8; TAG_BYTES], to: Option<Member>) -> bool {
        let right = self.tag(datagram, to);
        u128::from_le_bytes(right) ^ u128::from_le_bytes(tag) == 0
    }
}

#[cfg(test)]
mod tests {
    use quorate_core::node_id::Incarnation;

    use super::*;

    fn tag_context() -> TagContext {
        let group = GroupIdentity { cluster: 7, group: 1, generation: 0 };
        TagContext { group, sender: Member::first(1), boot: 3, channel: 1 }
    }

    /// [pkt-3] Tags depend on every part of the channel's identity, and on the destination.
    #[test]
    fn tag_depends_on_channel_and_destination() {
        let key = Key::new([9; 32]);
        let datagram = [5; 100];
        let mut others = [tag_context(); 6];
        others[0].group.cluster += 1;
        others[1].group.group += 1;
        others[2].group.generation += 1;
        others[3].sender.incarnation = Incarnation(1);
        others[4].boot += 1;
        others[5].channel += 1;
        for key in [Some(&key), None] {
            let seal = TagKey::new(key, &tag_context());
            let tag = seal.tag(&datagram, None);
            assert!(seal.verifies(&datagram, tag, None));
            assert!(!seal.verifies(&datagram, tag, Some(Member::first(2))));
            let to_one = seal.tag(&datagram, Some(Member::first(2)));
            assert!(!seal.verifies(&datagram, to_one, Some(Member::first(3))));
            for other in others {
                assert!(!TagKey::new(key, &other).verifies(&datagram, tag, None), "{other:?}");
            }
        }
        let other_key = Key::new([8; 32]);
        let tag = TagKey::new(Some(&key), &tag_context()).tag(&datagram, None);
        assert!(!TagKey::new(Some(&other_key), &tag_context()).verifies(&datagram, tag, None));
    }

    #[test]
    fn no_byte_and_no_bit_can_be_changed() {
        for key in [Some(Key::new([9; 32])), None] {
            let seal = TagKey::new(key.as_ref(), &tag_context());
            let mut datagram: Vec<u8> = (0..=255).collect();
            seal.write_tag(&mut datagram, None);
            let tag = |bytes: &[u8]| *bytes[TAG_OFFSET..].first_chunk::<TAG_BYTES>().unwrap();
            assert!(seal.verifies(&datagram, tag(&datagram), None));
            for bit in 0..datagram.len() * 8 {
                let mut changed = datagram.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                assert!(!seal.verifies(&changed, tag(&changed), None), "bit {bit}");
            }
            assert!(!seal.verifies(&datagram[..255], tag(&datagram), None));
        }
    }
}
