//! The data folder at start: opened, founded, filled by joining the founder, or by joining a
//! cluster that exists.

use quorate_core::node_id::NodeId;
use quorate_net::{FOUNDER_PATIENCE, JoinError, join, members_among};
use quorate_node::{
    LockedFolder,
    founding::{Joined, Joining, Newcomer, Role, found, list_text},
    identity::{Founding, Identity, IdentityError},
};
use quorate_replica::group::As;

use crate::{
    error::{Error, join_refused},
    settings::Settings,
};

/// State of a folder before a start: the steps still needed to make it a node's.
#[expect(clippy::large_enum_variant, reason = "there is one, for a moment")]
pub enum Folder {
    /// Already a node's; locked.
    Known(Identity<LockedFolder>),
    /// Empty, and this node founds the cluster.
    Founder {
        /// This node.
        node: NodeId,
    },
    /// Empty, and the founder has to be asked.
    Joiner {
        /// This node.
        node: NodeId,
        /// The founder's address for peers.
        founder: String,
    },
    /// Empty, and a cluster has to be asked for an id.
    Newcomer {
        /// Role that the node is to take.
        role: As,
    },
}

/// Callbacks while a folder becomes a node's.
pub struct Settling<'a> {
    /// Actual address of the node for peers.
    pub peer: &'a str,
    /// Returns whether to stop.
    pub stop: &'a dyn Fn() -> bool,
    /// Reports the cause of a wait.
    pub waiting: &'a mut dyn FnMut(&str),
    /// Asks a cluster for an id, with this nonce, until there is an answer: `None` if a stop was
    /// requested before.
    pub join: &'a mut dyn FnMut(u64) -> Result<Option<Joined>, Error>,
}

impl Folder {
    /// Looks at the folder. Nothing is written.
    pub fn open(settings: &Settings) -> Result<Self, Error> {
        let wanted = settings.wanted();
        if LockedFolder::holds_identity(&settings.data)? {
            let home =
                LockedFolder::open(&settings.data)?.with_disk(settings.engine, settings.disk_flush);
            let identity = Identity::open(home, &wanted.expected)?;
            warn_about_list(settings, identity.founding());
            if let Some(why) = identity.book_lost() {
                tracing::warn!(
                    why,
                    "the addresses of the nodes are lost: asking the founding members"
                );
            }
            return Ok(Self::Known(identity));
        }
        // A fault of the folder is reported before any port is bound or any founder is asked.
        LockedFolder::refuse_foreign(&settings.data)?;
        if let Some(role) = settings.join {
            return Ok(Self::Newcomer { role });
        }
        match wanted.role() {
            Some(Role::Founder { node }) => Ok(Self::Founder { node }),
            Some(Role::Joiner { node, founder }) => Ok(Self::Joiner { node, founder }),
            None => Err(Error::new("bad_configuration", "--node is missing")
                .hint("give the id of this node's entry in --cluster")),
        }
    }

    /// Returns the node that owns the folder, or will; `None` if a cluster has to assign the id.
    pub fn node(&self) -> Option<NodeId> {
        match self {
            Self::Known(identity) => Some(identity.founding().node),
            Self::Founder { node } | Self::Joiner { node, .. } => Some(*node),
            Self::Newcomer { .. } => None,
        }
    }

    /// The cluster that the folder belongs to, if it does.
    pub fn cluster(&self) -> Option<u128> {
        match self {
            Self::Known(identity) => Some(identity.founding().cluster),
            Self::Founder { .. } | Self::Joiner { .. } | Self::Newcomer { .. } => None,
        }
    }

    /// Returns the number of nodes of the cluster, present or planned, as far as is known.
    pub fn nodes(&self, settings: &Settings) -> usize {
        let listed = settings.cluster.len().max(1);
        match self {
            Self::Known(identity) => identity.book().peers.len().max(listed),
            Self::Founder { .. } | Self::Joiner { .. } | Self::Newcomer { .. } => listed,
        }
    }

    /// Returns the address at which peers expect this node, if there are others.
    pub fn listed_address(&self, settings: &Settings) -> Option<String> {
        let peers = match self {
            Self::Known(identity) => &identity.book().peers,
            Self::Founder { .. } | Self::Joiner { .. } | Self::Newcomer { .. } => &settings.cluster,
        };
        let node = self.node()?;
        let listed = settings.cluster.contains_key(&node) || peers.len() > 1;
        peers.get(&node).filter(|_| listed).cloned()
    }

    /// Makes the folder this node's; `None` if a stop was requested before.
    pub fn settle(
        self,
        settings: &Settings,
        settling: Settling<'_>,
    ) -> Result<Option<Identity<LockedFolder>>, Error> {
        let Settling { peer, stop, waiting, join } = settling;
        match self {
            Self::Known(identity) => Ok(Some(identity)),
            Self::Founder { node } => {
                refuse_second_cluster(settings, node)?;
                let (cluster, nonce) = (random()?, random()?);
                let (cluster, nonce) = (u128::from_le_bytes(cluster), u64::from_le_bytes(nonce));
                let (home, wanted) = (create(settings)?, settings.wanted());
                Ok(Some(found(home, &wanted, node, peer, cluster, nonce)?))
            }
            Self::Joiner { node, founder } => ask_founder(settings, node, &founder, stop, waiting),
            Self::Newcomer { role } => {
                // Locked from here on: two processes must not join with one folder.
                let fresh = u64::from_le_bytes(random()?);
                let newcomer = Newcomer::prepare(create(settings)?, fresh)?;
                let Some(joined) = join(newcomer.nonce())? else {
                    return Ok(None);
                };
                Ok(Some(newcomer.finish(&settings.wanted(), role, joined)?))
            }
        }
    }
}

/// The stored membership wins.
fn warn_about_list(settings: &Settings, founding: &Founding) {
    if !settings.cluster.is_empty() && settings.cluster != founding.members {
        tracing::warn!(
            stored = %list_text(&founding.members),
            given = %list_text(&settings.cluster),
            "--cluster differs from the stored membership and is ignored"
        );
    }
    if !settings.terms.are_usual() && settings.terms != founding.terms {
        tracing::warn!(
            stored = %founding.terms,
            given = %settings.terms,
            "--auxiliary or --quorum differs from the founding record and is ignored"
        );
    }
}

/// An empty folder may be a lost one: then the others have a cluster, and this node would found
/// another at the same addresses. Nodes that are down do not answer; they will not follow this node
/// either.
fn refuse_second_cluster(settings: &Settings, node: NodeId) -> Result<(), Error> {
    let others = settings.cluster.iter().filter(|(other, _)| **other != node);
    let others: Vec<_> = others.map(|(other, at)| (*other, at.clone())).collect();
    let Some(member) = members_among(&others, node, settings.protection.trust(), FOUNDER_PATIENCE)
        .first()
        .copied()
    else {
        return Ok(());
    };
    let address = &settings.cluster[&member];
    let what = format_args!(
        "node {member} at {address} belongs to a cluster already, and this folder is empty: node {node} \
         would found a second cluster at the same addresses"
    );
    Err(Error::new("cluster_exists", what).hint(
        "if this node lost its folder, bring it back; the others serve until then. For a new \
         cluster, use empty folders on all nodes, or other addresses",
    ))
}

/// Asks the founder; `None` if a stop was requested before it answered.
fn ask_founder(
    settings: &Settings,
    node: NodeId,
    founder: &str,
    stop: &dyn Fn() -> bool,
    waiting: &mut dyn FnMut(&str),
) -> Result<Option<Identity<LockedFolder>>, Error> {
    // Locked from here on: two processes must not join with one folder.
    let home = create(settings)?;
    let wanted = settings.wanted();
    let joining = Joining::prepare(home, node, u64::from_le_bytes(random()?))?;
    let trust = settings.protection.trust();
    match join(founder, joining.request(&wanted), trust, stop, waiting) {
        Ok(founded) => Ok(Some(joining.finish(&wanted, founded)?)),
        Err(JoinError::Stopped) => Ok(None),
        Err(JoinError::Refused(code, reason)) => Err(join_refused(code, &reason)),
    }
}

fn create(settings: &Settings) -> Result<LockedFolder, IdentityError> {
    Ok(LockedFolder::create(&settings.data)?.with_disk(settings.engine, settings.disk_flush))
}

/// Random bytes of the operating system.
pub fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    let flags = rustix::rand::GetRandomFlags::empty();
    // Up to 256 bytes are returned as a whole, or not at all.
    rustix::rand::getrandom(&mut bytes, flags)
        .map_err(|error| Error::io("ask for random bytes", &error.into()))?;
    Ok(bytes)
}
