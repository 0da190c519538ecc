//! The data folder at start: opened, founded, or filled by joining the founder.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read as _, Write as _},
    path::Path,
};

use quorate_core::{node_id::NodeId, record::Class};
use quorate_log::identity::{Expected, Founding, Identity, IdentityError};
use quorate_net::{JoinError, join};
use quorate_wire::{Join, RefusalCode};
use rustix::fs::{FlockOperation, flock};

use crate::{
    config::{StartConfig, Store, class_name},
    output::{Exit, Problem},
};

/// What a folder needs to become a node's.
pub(crate) enum Folder {
    /// It is one already; locked.
    Known(Identity),
    /// It is empty, and this node founds the cluster.
    Founder { node: NodeId },
    /// It is empty, and the founder has to be asked.
    Joiner { node: NodeId, founder: String },
}

impl Folder {
    /// Looks at the folder. Nothing is written.
    pub(crate) fn open(config: &StartConfig) -> Result<Self, Problem> {
        if Identity::exists(&config.data).map_err(|error| identity_problem(&error))? {
            let identity = Identity::open(&config.data, &expected(config))
                .map_err(|error| identity_problem(&error))?;
            warn_about_list(config, identity.founding());
            return Ok(Self::Known(identity));
        }
        refuse_other_contents(config)?;
        let Some((first, address)) = config.cluster.first_key_value() else {
            return Ok(Self::Founder {
                node: config.node.unwrap_or(NodeId(1)),
            });
        };
        let node = match config.node {
            Some(node) => node,
            None if config.cluster.len() == 1 => *first,
            None => {
                return Err(Problem::usage("--node is missing")
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

    pub(crate) fn node(&self) -> NodeId {
        match self {
            Self::Known(identity) => identity.founding().node,
            Self::Founder { node } | Self::Joiner { node, .. } => *node,
        }
    }

    /// Where this node's peers expect it, if there are others.
    pub(crate) fn listed_address(&self, config: &StartConfig) -> Option<String> {
        let members = match self {
            Self::Known(identity) => &identity.founding().members,
            Self::Founder { .. } | Self::Joiner { .. } => &config.cluster,
        };
        let listed = config.cluster.contains_key(&self.node()) || members.len() > 1;
        members.get(&self.node()).filter(|_| listed).cloned()
    }

    /// Makes the folder this node's. `peer` is where it really listens; `waiting` hears what the
    /// founder's answer is waiting for.
    pub(crate) fn settle(
        self,
        config: &StartConfig,
        peer: &str,
        stop: &dyn Fn() -> bool,
        waiting: &mut dyn FnMut(&str),
    ) -> Result<Option<Identity>, Problem> {
        let founding = match self {
            Self::Known(identity) => return Ok(Some(identity)),
            Self::Founder { node } => found(config, node, peer)?,
            Self::Joiner { node, founder } => {
                match ask_founder(config, node, &founder, stop, waiting)? {
                    Some(founding) => founding,
                    None => return Ok(None),
                }
            }
        };
        let identity = Identity::create(&config.data, founding);
        identity.map(Some).map_err(|error| identity_problem(&error))
    }
}

fn expected(config: &StartConfig) -> Expected {
    Expected {
        node: config.node,
        class: config.durability,
        store: config.store.map(|store| store.name().to_owned()),
    }
}

/// The stored membership wins.
fn warn_about_list(config: &StartConfig, founding: &Founding) {
    if !config.cluster.is_empty() && config.cluster != founding.members {
        tracing::warn!(
            stored = %list_text(&founding.members),
            given = %list_text(&config.cluster),
            "--cluster differs from the stored membership and is ignored"
        );
    }
}

/// A fault of the folder is told before any port is bound or any founder is asked.
fn refuse_other_contents(config: &StartConfig) -> Result<(), Problem> {
    match Identity::open(&config.data, &Expected::default()) {
        Err(IdentityError::Missing { .. }) => Ok(()),
        Err(error) => Err(identity_problem(&error)),
        Ok(_) => Err(Problem::new(
            Exit::Failed,
            "folder_in_use",
            format_args!(
                "{}: another process has just founded a node here",
                config.data.display()
            ),
        )),
    }
}

/// [era-11] Founding: a random cluster id, the listed members with weight 1 each.
fn found(config: &StartConfig, node: NodeId, peer: &str) -> Result<Founding, Problem> {
    let members = if config.cluster.is_empty() {
        BTreeMap::from([(node, peer.to_owned())])
    } else {
        config.cluster.clone()
    };
    Ok(Founding {
        cluster: u128::from_le_bytes(random()?),
        node,
        class: config.durability.unwrap_or(Class::Durable),
        store: config.store.unwrap_or(Store::Lsm).name().to_owned(),
        members,
        join_nonce: u64::from_le_bytes(random()?),
    })
}

/// `None` if a stop was asked for before the founder answered.
fn ask_founder(
    config: &StartConfig,
    node: NodeId,
    founder: &str,
    stop: &dyn Fn() -> bool,
    waiting: &mut dyn FnMut(&str),
) -> Result<Option<Founding>, Problem> {
    // Held until the identity is written: two processes must not join with one folder.
    let nonce = Nonce::reserve(&config.data)?;
    let request = Join {
        node,
        nonce: nonce.value,
        list_hash: list_hash(&config.cluster),
    };
    let founded = match join(founder, request, stop, waiting) {
        Ok(founded) => founded,
        Err(JoinError::Stopped) => return Ok(None),
        Err(JoinError::Refused(code, reason)) => return Err(join_problem(code, &reason)),
    };
    let class = config.durability.filter(|class| *class != founded.class);
    let store = config.store.filter(|store| store.name() != founded.store);
    let differs = |what, theirs: &str, ours: &str| {
        Problem::new(
            Exit::Failed,
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
        return Err(differs("store", &founded.store, store.name()));
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
/// founder hears of it: a node that crashes while it joins may ask again.
struct Nonce {
    value: u64,
    _lock: File,
}

impl Nonce {
    /// The file that [`Identity`] locks, too; it may stand in a folder without an identity.
    const FILE: &str = "lock";

    fn reserve(folder: &Path) -> Result<Self, Problem> {
        let path = folder.join(Self::FILE);
        let failed = |error: &io::Error| Problem::io(path.display(), error);
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
            return Err(identity_problem(&IdentityError::InUse { folder }));
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

pub(crate) fn random<const N: usize>() -> Result<[u8; N], Problem> {
    let mut bytes = [0; N];
    let flags = rustix::rand::GetRandomFlags::empty();
    // Up to 256 bytes come whole, or not at all.
    rustix::rand::getrandom(&mut bytes, flags)
        .map_err(|error| Problem::io("ask for random bytes", &error.into()))?;
    Ok(bytes)
}

fn list_text(members: &BTreeMap<NodeId, String>) -> String {
    let entry = |(node, address): (&NodeId, &String)| format!("{node}={address}");
    members.iter().map(entry).collect::<Vec<_>>().join(",")
}

/// FNV-1a of the list in its canonical form: tells lists apart that differ by mistake.
pub(crate) fn list_hash(members: &BTreeMap<NodeId, String>) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    list_text(members).bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

/// One clear error each.
pub(crate) fn identity_problem(error: &IdentityError) -> Problem {
    let code = match error {
        IdentityError::Io { .. } => "io",
        IdentityError::InUse { .. } => "folder_in_use",
        IdentityError::Foreign { .. } => "foreign_folder",
        IdentityError::Missing { .. } => "no_node",
        IdentityError::Exists { .. } => "node_exists",
        IdentityError::Damaged { .. } => "damaged_identity",
        IdentityError::Newer { .. } => "newer_format",
        IdentityError::Mismatch { .. } => "mismatch",
        IdentityError::AlreadyAdmitted { .. } => "already_admitted",
        IdentityError::TooManyNodes => "too_many_nodes",
        IdentityError::Exhausted(_) => "exhausted",
    };
    Problem::new(Exit::Failed, code, error).hint(error.hint())
}

fn join_problem(code: RefusalCode, reason: &str) -> Problem {
    let hint = match code {
        RefusalCode::ListDiffers => "give all nodes the same --cluster",
        RefusalCode::UnknownNode => "the founder's --cluster must list this node",
        RefusalCode::NotFounder => "the lowest id of --cluster must be the node that founded it",
        RefusalCode::DuplicateNode => "bring back this node's own folder, or use another id",
        RefusalCode::Version => "run the same version on all nodes",
        RefusalCode::ForeignCluster
        | RefusalCode::WrongNode
        | RefusalCode::NotFounded
        | RefusalCode::Unexpected
        | RefusalCode::Other(_) => "check --cluster",
    };
    Problem::new(
        Exit::Failed,
        "join_refused",
        format_args!("the founder refused this node: {reason}"),
    )
    .hint(hint)
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

    #[test]
    fn lists_that_differ_have_other_hashes() {
        let list = |text: &str| {
            let entries = text.split(',').map(|entry| entry.split_once('=').unwrap());
            let nodes =
                entries.map(|(node, address)| (NodeId(node.parse().unwrap()), address.to_owned()));
            list_hash(&nodes.collect())
        };
        assert_eq!(list("1=a:1,2=b:2"), list("2=b:2,1=a:1"));
        assert_ne!(list("1=a:1,2=b:2"), list("1=a:1,2=b:3"));
    }
}
