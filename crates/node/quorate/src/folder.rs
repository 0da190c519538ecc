//! The data folder at start: opened, or set up by founding a cluster, by joining the founder, or by
//! joining an existing cluster.

use std::path::Path;

use quorate_core::node_id::NodeId;
use quorate_log::disk::make_private;
use quorate_net::{FOUNDER_QUERY_TIMEOUT, JoinError, find_cluster_members, request_founding};
use quorate_node::{
    LockedFolder,
    founding::{FirstStartRole, Joined, JoiningNode, Newcomer, format_members, found_cluster},
    identity::{Founding, Identity, IdentityError},
};
use quorate_replica::group::MemberRole;

use crate::{
    error::{Error, join_refused},
    settings::Settings,
};

/// State of a folder before a start. It determines the steps needed until the folder belongs to a
/// node.
#[expect(clippy::large_enum_variant, reason = "there is one, for a moment")]
pub enum StartFolder {
    /// The folder belongs to a node, and is now locked.
    ExistingNode(Identity<LockedFolder>),
    /// The folder is empty, and this node founds the cluster.
    Founder {
        /// Id of this node in the new cluster.
        node: NodeId,
    },
    /// The folder is empty, and the founder must provide the founding record.
    Joiner {
        /// Id of this node in the founder's cluster.
        node: NodeId,
        /// Peer address of the founder.
        founder: String,
    },
    /// The folder is empty, and an existing cluster must assign an id.
    Newcomer {
        /// Role that the node will take in the cluster.
        role: MemberRole,
    },
}

/// Callbacks used while a folder is set up for a node.
pub struct SetupCallbacks<'a> {
    /// Actual peer address of the node.
    pub peer: &'a str,
    /// Returns whether the start should be aborted.
    pub stop: &'a dyn Fn() -> bool,
    /// Called with the reason whenever the start has to wait.
    pub report_wait: &'a mut dyn FnMut(&str),
    /// Requests an id from a cluster with the given nonce until it responds. Returns `None` if the
    /// start was aborted first.
    pub request_id: &'a mut dyn FnMut(u64) -> Result<Option<Joined>, Error>,
}

impl StartFolder {
    /// Determines the state of the folder without writing to it.
    pub fn open(settings: &Settings) -> Result<Self, Error> {
        let wanted = settings.founding_settings();
        if LockedFolder::holds_identity(&settings.data_folder)? {
            let home = LockedFolder::open(&settings.data_folder)?
                .with_disk(settings.engine, settings.disk_flush);
            restrict_permissions(&settings.data_folder);
            let identity = Identity::open(home, &wanted.expected)?;
            warn_if_members_differ(settings, identity.founding());
            if let Some(why) = identity.address_book_damage() {
                tracing::warn!(
                    why,
                    "the addresses of the nodes are lost: asking the founding members"
                );
            }
            return Ok(Self::ExistingNode(identity));
        }
        // A problem with the folder is reported before a port is bound or a founder is contacted.
        LockedFolder::refuse_foreign(&settings.data_folder)?;
        if let Some(role) = settings.join_role {
            return Ok(Self::Newcomer { role });
        }
        match wanted.role() {
            Some(FirstStartRole::Founder { node }) => Ok(Self::Founder { node }),
            Some(FirstStartRole::Joiner { node, founder }) => Ok(Self::Joiner { node, founder }),
            None => Err(Error::new("bad_configuration", "--node is missing")
                .hint("give the id of this node's entry in --cluster")),
        }
    }

    /// Returns the node that owns the folder or will own it; `None` if a cluster has yet to assign
    /// the id.
    pub fn node(&self) -> Option<NodeId> {
        match self {
            Self::ExistingNode(identity) => Some(identity.founding().node),
            Self::Founder { node } | Self::Joiner { node, .. } => Some(*node),
            Self::Newcomer { .. } => None,
        }
    }

    /// Returns the cluster of the node that owns the folder; `None` if it has no owner.
    pub fn cluster(&self) -> Option<u128> {
        match self {
            Self::ExistingNode(identity) => Some(identity.founding().cluster),
            Self::Founder { .. } | Self::Joiner { .. } | Self::Newcomer { .. } => None,
        }
    }

    /// Returns the known number of current or planned nodes in the cluster.
    pub fn node_count(&self, settings: &Settings) -> usize {
        let listed = settings.cluster.len().max(1);
        match self {
            Self::ExistingNode(identity) => identity.address_book().peers.len().max(listed),
            Self::Founder { .. } | Self::Joiner { .. } | Self::Newcomer { .. } => listed,
        }
    }

    /// Returns the address at which peers expect this node; `None` if it has no peers.
    pub fn listed_address(&self, settings: &Settings) -> Option<String> {
        let peers = match self {
            Self::ExistingNode(identity) => &identity.address_book().peers,
            Self::Founder { .. } | Self::Joiner { .. } | Self::Newcomer { .. } => &settings.cluster,
        };
        let node = self.node()?;
        let listed = settings.cluster.contains_key(&node) || peers.len() > 1;
        peers.get(&node).filter(|_| listed).cloned()
    }

    /// Sets up the folder for this node. Returns `None` if the start was aborted first.
    pub fn set_up(
        self,
        settings: &Settings,
        settling: SetupCallbacks<'_>,
    ) -> Result<Option<Identity<LockedFolder>>, Error> {
        let SetupCallbacks { peer, stop, report_wait: waiting, request_id: join } = settling;
        match self {
            Self::ExistingNode(identity) => Ok(Some(identity)),
            Self::Founder { node } => {
                refuse_second_cluster(settings, node)?;
                let (cluster, nonce) = (random_bytes()?, random_bytes()?);
                let (cluster, nonce) = (u128::from_le_bytes(cluster), u64::from_le_bytes(nonce));
                let (home, wanted) = (create_folder(settings)?, settings.founding_settings());
                Ok(Some(found_cluster(home, &wanted, node, peer, cluster, nonce)?))
            }
            Self::Joiner { node, founder } => join_founder(settings, node, &founder, stop, waiting),
            Self::Newcomer { role } => {
                // Locked from here on: two processes must not join with one folder.
                let fresh = u64::from_le_bytes(random_bytes()?);
                let newcomer = Newcomer::prepare(create_folder(settings)?, fresh)?;
                let Some(joined) = join(newcomer.nonce())? else {
                    return Ok(None);
                };
                Ok(Some(newcomer.finish(&settings.founding_settings(), role, joined)?))
            }
        }
    }
}

/// Warns if the configured membership differs from the stored one. The stored membership takes
/// precedence.
fn warn_if_members_differ(settings: &Settings, founding: &Founding) {
    if !settings.cluster.is_empty() && settings.cluster != founding.members {
        tracing::warn!(
            stored = %format_members(&founding.members),
            given = %format_members(&settings.cluster),
            "--cluster differs from the stored membership and is ignored"
        );
    }
    if !settings.terms.are_default() && settings.terms != founding.terms {
        tracing::warn!(
            stored = %founding.terms,
            given = %settings.terms,
            "--auxiliary or --quorum differs from the founding record and is ignored"
        );
    }
}

/// Refuses to found a cluster if a configured member already belongs to one. An empty folder may be
/// a lost one, and this node would found a second cluster at the same addresses. Members that are
/// down do not respond, but they will not follow this node either.
fn refuse_second_cluster(settings: &Settings, node: NodeId) -> Result<(), Error> {
    let others = settings.cluster.iter().filter(|(other, _)| **other != node);
    let others: Vec<_> = others.map(|(other, at)| (*other, at.clone())).collect();
    let Some(member) =
        find_cluster_members(&others, node, settings.protection.trust(), FOUNDER_QUERY_TIMEOUT)
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

/// Joins the founder's cluster. Returns `None` if the start was aborted before the founder
/// responded.
fn join_founder(
    settings: &Settings,
    node: NodeId,
    founder: &str,
    stop: &dyn Fn() -> bool,
    waiting: &mut dyn FnMut(&str),
) -> Result<Option<Identity<LockedFolder>>, Error> {
    // Locked from here on: two processes must not join with one folder.
    let home = create_folder(settings)?;
    let wanted = settings.founding_settings();
    let joining = JoiningNode::prepare(home, node, u64::from_le_bytes(random_bytes()?))?;
    let trust = settings.protection.trust();
    match request_founding(founder, joining.request(&wanted), trust, stop, waiting) {
        Ok(founded) => Ok(Some(joining.finish(&wanted, founded)?)),
        Err(JoinError::Stopped) => Ok(None),
        Err(JoinError::Refused(code, reason)) => Err(join_refused(code, &reason)),
    }
}

fn create_folder(settings: &Settings) -> Result<LockedFolder, IdentityError> {
    let home = LockedFolder::create(&settings.data_folder)?;
    restrict_permissions(&settings.data_folder);
    Ok(home.with_disk(settings.engine, settings.disk_flush))
}

/// Removes other users' permissions from a folder of an earlier version, or one that the operator
/// created. A folder of another user stays unchanged.
fn restrict_permissions(folder: &Path) {
    let mut done = (0, 0);
    // The folder itself may be a link.
    make_private(&folder.join("."), &mut done);
    let (closed, failed) = done;
    if closed + failed > 0 {
        let folder = folder.display();
        tracing::info!(%folder, closed, failed, "closed the data folder to other users");
    }
}

/// Returns random bytes from the operating system.
pub fn random_bytes<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    let flags = rustix::rand::GetRandomFlags::empty();
    // The kernel returns up to 256 bytes completely, or none.
    rustix::rand::getrandom(&mut bytes, flags)
        .map_err(|error| Error::from_io("ask for random bytes", &error.into()))?;
    Ok(bytes)
}
