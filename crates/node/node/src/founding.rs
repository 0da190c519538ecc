//! First start of a node. The node founds a cluster, joins the cluster of its founder ([era-11]),
//! or joins an existing cluster under an id assigned by the log ([join-2]).
//!
//! Connections and requests between nodes are left to the caller. This module defines which files
//! are written, and in which order.

use std::{collections::BTreeMap, fmt};

use quorate_core::{node_id::NodeId, record::Class};
use quorate_replica::group::MemberRole;
use quorate_wire::{Join, NO_CLUSTER};

use crate::{
    home::Home,
    host::Founded,
    identity::{AddressBook, ExpectedIdentity, Founding, Identity, IdentityError},
    terms::FoundingTerms,
};

/// The operator's settings for the first start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundingSettings {
    /// Node id, durability class and store; each is `None` unless the operator specified it.
    pub expected: ExpectedIdentity,
    /// All members with their peer addresses; empty if not given.
    pub cluster: BTreeMap<NodeId, String>,
    /// Store of a new cluster if the operator did not choose one.
    pub store_default: String,
    /// Auxiliaries and quorum rule. They must be the same on all nodes.
    pub terms: FoundingTerms,
}

/// Role of a node without an identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FirstStartRole {
    /// The node founds the cluster.
    Founder { node: NodeId },
    /// The node joins the cluster of the node whose peer address is `founder`.
    Joiner { node: NodeId, founder: String },
}

impl FoundingSettings {
    /// Returns the role of this node; `None` if the list does not show which entry is this node.
    /// The node with the lowest id in the list is the founder.
    pub fn role(&self) -> Option<FirstStartRole> {
        let Some((first, address)) = self.cluster.first_key_value() else {
            let node = self.expected.node.unwrap_or(NodeId(1));
            return Some(FirstStartRole::Founder { node });
        };
        let alone = (self.cluster.len() == 1).then_some(*first);
        let node = self.expected.node.or(alone)?;
        Some(if node == *first {
            FirstStartRole::Founder { node }
        } else {
            let founder = address.clone();
            FirstStartRole::Joiner { node, founder }
        })
    }
}

/// [era-11] Founds a cluster of the listed members with weight 1 each, or of this node alone. This
/// node listens for peers at `peer`. `cluster` and `nonce` are random.
pub fn found_cluster<H: Home>(
    home: H,
    wanted: &FoundingSettings,
    node: NodeId,
    peer: &str,
    cluster: u128,
    nonce: u64,
) -> Result<Identity<H>, IdentityError> {
    let members = if wanted.cluster.is_empty() {
        BTreeMap::from([(node, peer.to_owned())])
    } else {
        wanted.cluster.clone()
    };
    let store = wanted.expected.store.as_ref();
    let founding = Founding {
        cluster: cluster.max(NO_CLUSTER + 1),
        node,
        class: wanted.expected.class.unwrap_or(Class::Durable),
        store: store.unwrap_or(&wanted.store_default).clone(),
        members,
        join_nonce: nonce,
        terms: wanted.terms.clone(),
    };
    Identity::create(home, founding)
}

/// A node that is ready to join through its founder. Its nonce is durable ([join-2]), so that after
/// a crash the founder recognizes the same folder.
#[derive(Debug)]
pub struct JoiningNode<H> {
    home: H,
    node: NodeId,
    nonce: u64,
}

impl<H: Home> JoiningNode<H> {
    /// Prepares a join with the nonce of an earlier attempt, or else the random number `fresh`.
    pub fn prepare(mut home: H, node: NodeId, fresh: u64) -> Result<Self, IdentityError> {
        let nonce = durable_nonce(&mut home, fresh)?;
        Ok(Self { home, node, nonce })
    }

    /// Returns the request to send to the founder.
    pub fn request(&self, wanted: &FoundingSettings) -> Join {
        Join {
            node: self.node,
            nonce: self.nonce,
            list_hash: hash_members(&wanted.cluster, &wanted.terms),
        }
    }

    /// Creates the identity from the founder's answer.
    pub fn finish(
        self,
        wanted: &FoundingSettings,
        founded: Founded,
    ) -> Result<Identity<H>, JoiningError> {
        check_settings(&wanted.expected, &founded)?;
        // These are equal to the founder's terms, because the founder compared the hash.
        let terms = wanted.terms.clone();
        let founding = to_founding(Founded { terms, ..founded }, self.node, self.nonce);
        Ok(Identity::create(self.home, founding)?)
    }
}

/// Answer to a node that joins a group founded by other nodes ([join-2]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    pub node: NodeId,
    /// Founding record of the group, the same for every node.
    pub founded: Founded,
    /// Addresses of the group's current nodes.
    pub address_book: AddressBook,
    /// The id was assigned for a learner.
    pub is_learner: bool,
}

/// A node that is ready to request an id from a group. Its nonce is durable ([join-2]), so that
/// after a crash the group recognizes the same folder and assigns the same id.
#[derive(Debug)]
pub struct Newcomer<H> {
    home: H,
    nonce: u64,
}

impl<H: Home> Newcomer<H> {
    /// Prepares a request with the nonce of an earlier attempt, or else the random number `fresh`.
    pub fn prepare(mut home: H, fresh: u64) -> Result<Self, IdentityError> {
        let nonce = durable_nonce(&mut home, fresh)?;
        Ok(Self { home, nonce })
    }

    pub fn nonce(&self) -> u64 {
        self.nonce
    }

    /// Creates the identity from the group's answer, with `role` unless the id is for a learner.
    pub fn finish(
        self,
        wanted: &FoundingSettings,
        role: MemberRole,
        joined: Joined,
    ) -> Result<Identity<H>, JoiningError> {
        let Joined { node, founded, address_book: book, is_learner: learns } = joined;
        let role = if learns { MemberRole::Learner } else { role };
        check_settings(&wanted.expected, &founded)?;
        if let Some(asked) = wanted.expected.node.filter(|asked| *asked != node) {
            return Err(JoiningError::SettingDiffers {
                setting: "node",
                founder_value: node.to_string(),
                own_value: asked.to_string(),
            });
        }
        let founding = to_founding(founded, node, self.nonce);
        Ok(Identity::join(self.home, founding, role, book)?)
    }
}

fn durable_nonce(home: &mut impl Home, fresh: u64) -> Result<u64, IdentityError> {
    let nonce = home.nonce()?.unwrap_or(fresh);
    // Write it even if it exists: its writer may have died before it was durable.
    home.keep_nonce(nonce)?;
    Ok(nonce)
}

/// Checks that the group matches the operator's settings.
fn check_settings(expected: &ExpectedIdentity, founded: &Founded) -> Result<(), JoiningError> {
    let ExpectedIdentity { class, store, .. } = expected;
    if let Some(class) = class.filter(|class| *class != founded.class) {
        return Err(JoiningError::SettingDiffers {
            setting: "durability",
            founder_value: founded.class.name().to_owned(),
            own_value: class.name().to_owned(),
        });
    }
    if let Some(store) = store.as_ref().filter(|store| **store != founded.store) {
        return Err(JoiningError::SettingDiffers {
            setting: "store",
            founder_value: founded.store.clone(),
            own_value: store.clone(),
        });
    }
    Ok(())
}

fn to_founding(founded: Founded, node: NodeId, nonce: u64) -> Founding {
    Founding {
        cluster: founded.cluster,
        node,
        class: founded.class,
        store: founded.store,
        members: founded.members.into_iter().collect(),
        join_nonce: nonce,
        terms: founded.terms,
    }
}

/// Reason why an admitted node does not join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JoiningError {
    /// The cluster was founded with another value of `setting`, a setting on the command line.
    SettingDiffers {
        setting: &'static str,
        founder_value: String,
        own_value: String,
    },
    Identity(IdentityError),
}

impl fmt::Display for JoiningError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SettingDiffers { setting: what, founder_value: theirs, own_value: ours } => {
                write!(f, "the cluster has {what} {theirs}, not {ours}")
            }
            Self::Identity(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for JoiningError {}

impl From<IdentityError> for JoiningError {
    fn from(error: IdentityError) -> Self {
        Self::Identity(error)
    }
}

/// Formats the members in the syntax of `--cluster`.
pub fn format_members(members: &BTreeMap<NodeId, String>) -> String {
    let entry = |(node, address): (&NodeId, &String)| format!("{node}={address}");
    members.iter().map(entry).collect::<Vec<_>>().join(",")
}

/// Returns the FNV-1a hash of members and terms, which detects accidental differences.
pub fn hash_members(members: &BTreeMap<NodeId, String>, terms: &FoundingTerms) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let text = format_members(members) + &terms.to_string();
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_member_lists_have_different_hashes() {
        let list = |text: &str| {
            let entries = text.split(',').map(|entry| entry.split_once('=').unwrap());
            let nodes =
                entries.map(|(node, address)| (NodeId(node.parse().unwrap()), address.to_owned()));
            hash_members(&nodes.collect(), &FoundingTerms::default())
        };
        assert_eq!(list("1=a:1,2=b:2"), list("2=b:2,1=a:1"));
        assert_ne!(list("1=a:1,2=b:2"), list("1=a:1,2=b:3"));
        let members = BTreeMap::from([(NodeId(1), "a:1".to_owned())]);
        let terms = FoundingTerms { auxiliaries: [NodeId(1)].into(), ..FoundingTerms::default() };
        assert_ne!(hash_members(&members, &terms), list("1=a:1"));
    }
}
