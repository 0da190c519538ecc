//! The data folder at start: opened, founded, or filled by joining the founder.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read as _, Write as _},
    path::Path,
};

use quorate_core::{node_id::NodeId, record::Class};
use quorate_net::{FOUNDER_PATIENCE, JoinError, join, members_among};
use quorate_node::founding::{list_hash, list_text};
use quorate_node::identity::{Expected, Founding, Identity, IdentityError};
use quorate_wire::{Join, NO_CLUSTER};
use rustix::fs::{FlockOperation, flock};

use crate::{
    error::{Error, join_refused},
    settings::{Settings, class_name},
};

/// What a folder needs to become a node's.
pub enum Folder {
    /// It is one already; locked.
    Known(Identity),
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
        if Identity::exists(&settings.data)? {
            let identity = Identity::open(&settings.data, &expected(settings))?;
            warn_about_list(settings, identity.founding());
            return Ok(Self::Known(identity));
        }
        refuse_other_contents(settings)?;
        let Some((first, address)) = settings.cluster.first_key_value() else {
            return Ok(Self::Founder {
                node: settings.node.unwrap_or(NodeId(1)),
            });
        };
        let node = match settings.node {
            Some(node) => node,
            None if settings.cluster.len() == 1 => *first,
            None => {
                return Err(Error::new("bad_configuration", "--node is missing")
                    .hint("say which entry of --cluster this node is"));
            }
        };
        if node == *first {
            Ok(Self::Founder { node })
        } else {
            Ok(Self::Joiner {
                node,
                founder: address.clone(),
            })
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
    ) -> Result<Option<Identity>, Error> {
        let founding = match self {
            Self::Known(identity) => return Ok(Some(identity)),
            Self::Founder { node } => {
                refuse_second_cluster(settings, node)?;
                found(settings, node, peer)?
            }
            Self::Joiner { node, founder } => {
                match ask_founder(settings, node, &founder, stop, waiting)? {
                    Some(founding) => founding,
                    None => return Ok(None),
                }
            }
        };
        Ok(Some(Identity::create(&settings.data, founding)?))
    }
}

fn expected(settings: &Settings) -> Expected {
    Expected {
        node: settings.node,
        class: settings.class,
        store: settings.store.clone(),
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
}

/// A fault of the folder is told before any port is bound or any founder is asked.
fn refuse_other_contents(settings: &Settings) -> Result<(), Error> {
    match Identity::open(&settings.data, &Expected::default()) {
        Err(IdentityError::Missing { .. }) => Ok(()),
        Err(error) => Err(error.into()),
        Ok(_) => Err(Error::new(
            "folder_in_use",
            format_args!(
                "{}: another process has just founded a node here",
                settings.data.display()
            ),
        )),
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

/// [era-11] Founding: a random cluster id, the listed members with weight 1 each.
fn found(settings: &Settings, node: NodeId, peer: &str) -> Result<Founding, Error> {
    let members = if settings.cluster.is_empty() {
        BTreeMap::from([(node, peer.to_owned())])
    } else {
        settings.cluster.clone()
    };
    Ok(Founding {
        cluster: u128::from_le_bytes(random()?).max(NO_CLUSTER + 1),
        node,
        class: settings.class.unwrap_or(Class::Durable),
        store: settings
            .store
            .as_ref()
            .unwrap_or(&settings.store_default)
            .clone(),
        members,
        join_nonce: u64::from_le_bytes(random()?),
    })
}

/// `None` if a stop was asked for before the founder answered.
fn ask_founder(
    settings: &Settings,
    node: NodeId,
    founder: &str,
    stop: &dyn Fn() -> bool,
    waiting: &mut dyn FnMut(&str),
) -> Result<Option<Founding>, Error> {
    // Held until the identity is written: two processes must not join with one folder.
    let nonce = Nonce::reserve(&settings.data)?;
    let request = Join {
        node,
        nonce: nonce.value,
        list_hash: list_hash(&settings.cluster),
    };
    let founded = match join(founder, request, stop, waiting) {
        Ok(founded) => founded,
        Err(JoinError::Stopped) => return Ok(None),
        Err(JoinError::Refused(code, reason)) => return Err(join_refused(code, &reason)),
    };
    let class = settings.class.filter(|class| *class != founded.class);
    let store = settings
        .store
        .as_ref()
        .filter(|store| **store != founded.store);
    let differs = |what, theirs: &str, ours: &str| {
        Error::new(
            "mismatch",
            format_args!("the cluster has {what} {theirs}, not {ours}"),
        )
        .hint(format!("leave --{what} out, or set it to {theirs}"))
    };
    if let Some(class) = class {
        return Err(differs(
            "durability",
            class_name(founded.class),
            class_name(class),
        ));
    }
    if let Some(store) = store {
        return Err(differs("store", &founded.store, store));
    }
    Ok(Some(Founding {
        cluster: founded.cluster,
        node,
        class: founded.class,
        store: founded.store,
        members: founded.members.into_iter().collect(),
        join_nonce: nonce.value,
    }))
}

/// A number that tells this folder from another one with the same node id. It is on disk before the
/// founder hears of it ([join-2]): a node that crashes while it joins may ask again.
struct Nonce {
    value: u64,
    _lock: File,
}

impl Nonce {
    /// The file that [`Identity`] locks, too; it may stand in a folder without an identity.
    const FILE: &str = "lock";

    fn reserve(folder: &Path) -> Result<Self, Error> {
        let path = folder.join(Self::FILE);
        let failed = |error: &io::Error| Error::io(path.display(), error);
        fs::create_dir_all(folder).map_err(|error| failed(&error))?;
        let mut file = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&path)
            .map_err(|error| failed(&error))?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            let folder = folder.to_owned();
            return Err(IdentityError::InUse { folder }.into());
        }
        let mut bytes = Vec::new();
        (&mut file)
            .take(64)
            .read_to_end(&mut bytes)
            .map_err(|error| failed(&error))?;
        if let Ok(bytes) = bytes.try_into() {
            return Ok(Self {
                value: u64::from_le_bytes(bytes),
                _lock: file,
            });
        }
        let bytes = random()?;
        let written = file.set_len(0).and_then(|()| file.write_all(&bytes));
        written
            .and_then(|()| file.sync_all())
            .map_err(|error| failed(&error))?;
        File::open(folder)
            .and_then(|folder| folder.sync_all())
            .map_err(|error| failed(&error))?;
        Ok(Self {
            value: u64::from_le_bytes(bytes),
            _lock: file,
        })
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A crash between the founder's yes and the identity must not make the node a stranger.
    #[test]
    fn a_folder_keeps_its_nonce() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("n");
        let first = Nonce::reserve(&data).unwrap().value;
        assert_eq!(Nonce::reserve(&data).unwrap().value, first);
        let other = folder.path().join("m");
        assert_ne!(Nonce::reserve(&other).unwrap().value, first);
    }

    #[test]
    fn two_processes_cannot_join_with_one_folder() {
        let folder = tempfile::tempdir().unwrap();
        let _held = Nonce::reserve(folder.path()).unwrap();
        let problem = Nonce::reserve(folder.path()).err().unwrap();
        assert_eq!(problem.code, "folder_in_use");
    }
}
