//! The data folder at start: opened, founded, or filled by joining the founder.

use quorate_core::node_id::NodeId;
use quorate_net::{FOUNDER_PATIENCE, JoinError, join, members_among};
use quorate_node::{
    LockedFolder,
    founding::{Joining, Role, found, list_text},
    identity::{Founding, Identity, IdentityError},
};

use crate::{
    error::{Error, join_refused},
    settings::Settings,
};

/// What a folder needs to become a node's.
pub enum Folder {
    /// It is one already; locked.
    Known(Identity<LockedFolder>),
    /// It is empty, and this node founds the cluster.
    Founder {
        /// This node.
        node: NodeId,
    },
    /// It is empty, and the founder has to be asked.
    Joiner {
        /// This node.
        node: NodeId,
        /// Where the founder listens for peers.
        founder: String,
    },
}

impl Folder {
    /// Looks at the folder. Nothing is written.
    pub fn open(settings: &Settings) -> Result<Self, Error> {
        let wanted = settings.wanted();
        if LockedFolder::holds_identity(&settings.data)? {
            let home = LockedFolder::open(&settings.data)?.with_flush(settings.disk_flush);
            let identity = Identity::open(home, &wanted.expected)?;
            warn_about_list(settings, identity.founding());
            return Ok(Self::Known(identity));
        }
        // A fault of the folder is told before any port is bound or any founder is asked.
        LockedFolder::refuse_foreign(&settings.data)?;
        match wanted.role() {
            Some(Role::Founder { node }) => Ok(Self::Founder { node }),
            Some(Role::Joiner { node, founder }) => Ok(Self::Joiner { node, founder }),
            None => Err(Error::new("bad_configuration", "--node is missing")
                .hint("say which entry of --cluster this node is")),
        }
    }

    /// Whose folder it is, or is to be.
    pub fn node(&self) -> NodeId {
        match self {
            Self::Known(identity) => identity.founding().node,
            Self::Founder { node } | Self::Joiner { node, .. } => *node,
        }
    }

    /// The cluster that the folder belongs to, if it does.
    pub fn cluster(&self) -> Option<u128> {
        match self {
            Self::Known(identity) => Some(identity.founding().cluster),
            Self::Founder { .. } | Self::Joiner { .. } => None,
        }
    }

    /// How many nodes the cluster has, or is to have.
    pub fn nodes(&self, settings: &Settings) -> usize {
        let listed = settings.cluster.len().max(1);
        match self {
            Self::Known(identity) => identity.founding().members.len().max(listed),
            Self::Founder { .. } | Self::Joiner { .. } => listed,
        }
    }

    /// Where this node's peers expect it, if there are others.
    pub fn listed_address(&self, settings: &Settings) -> Option<String> {
        let members = match self {
            Self::Known(identity) => &identity.founding().members,
            Self::Founder { .. } | Self::Joiner { .. } => &settings.cluster,
        };
        let listed = settings.cluster.contains_key(&self.node()) || members.len() > 1;
        members.get(&self.node()).filter(|_| listed).cloned()
    }

    /// Makes the folder this node's. `peer` is where it really listens; `waiting` hears what the
    /// founder's answer is waiting for.
    pub fn settle(
        self,
        settings: &Settings,
        peer: &str,
        stop: &dyn Fn() -> bool,
        waiting: &mut dyn FnMut(&str),
    ) -> Result<Option<Identity<LockedFolder>>, Error> {
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
            "--auxiliary or --quorum differs from what was founded and is ignored"
        );
    }
}

/// An empty folder may be a lost one: then the others have a cluster, and this node would found another
/// at the same addresses. Who is not up says nothing; it will not follow this node either.
fn refuse_second_cluster(settings: &Settings, node: NodeId) -> Result<(), Error> {
    let others = settings.cluster.iter().filter(|(other, _)| **other != node);
    let others: Vec<_> = others.map(|(other, at)| (*other, at.clone())).collect();
    let Some(member) = members_among(&others, node, FOUNDER_PATIENCE)
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
        "if this node lost its folder, bring it back, and let the others serve until then; for a new \
         cluster, use empty folders on all nodes, or other addresses",
    ))
}

/// `None` if a stop was asked for before the founder answered.
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
    match join(founder, joining.request(&wanted), stop, waiting) {
        Ok(founded) => Ok(Some(joining.finish(&wanted, founded)?)),
        Err(JoinError::Stopped) => Ok(None),
        Err(JoinError::Refused(code, reason)) => Err(join_refused(code, &reason)),
    }
}

fn create(settings: &Settings) -> Result<LockedFolder, IdentityError> {
    Ok(LockedFolder::create(&settings.data)?.with_flush(settings.disk_flush))
}

/// Random bytes of the operating system.
pub fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    let flags = rustix::rand::GetRandomFlags::empty();
    // Up to 256 bytes come whole, or not at all.
    rustix::rand::getrandom(&mut bytes, flags)
        .map_err(|error| Error::io("ask for random bytes", &error.into()))?;
    Ok(bytes)
}
