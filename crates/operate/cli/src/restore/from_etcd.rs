//! `quorate restore --from-etcd`: creates a new cluster with one node from an etcd snapshot.
//! Without `--data`, only describes the snapshot.

use std::{
    fs::File,
    io,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use quorate_core::class::Class;
use quorate_etcd::import::{
    self, ImageItems, ImportError, ImportSettings, SnapshotContents, UnchangingFile,
};
use quorate_replica::backup::{ImageSource, ImportedBackup};
use serde::Serialize;

use super::{RestoreArgs, check_file, fill_folder, new_founding};
use crate::{
    config::{Service, Store},
    output::{Exit, Output, Problem, progress},
    password,
};

/// Description of a snapshot: the fields of `etcdutl snapshot status` and some more.
#[derive(Clone, Debug, Serialize)]
struct Status {
    /// CRC-32C of all buckets, in hexadecimal.
    hash: String,
    revision: i64,
    /// Number of entries over all buckets.
    total_key: u64,
    /// Total size of the pages in bytes.
    total_size: u64,
    /// etcd version. Empty for versions before 3.6.
    version: String,
    /// Revision below which the history was compacted. -1 if it was never compacted.
    compacted: i64,
    leases: usize,
    users: usize,
    roles: usize,
    /// Set if clients have to authenticate.
    auth_enabled: bool,
    /// Set if the file ends with a SHA-256 checksum that matches the data.
    checksum: bool,
}

/// Result of `quorate restore --from-etcd`: the new cluster.
#[derive(Clone, Debug, Serialize)]
struct Restored {
    cluster: String,
    /// Id of the only node.
    node: u32,
    #[serde(flatten)]
    status: Status,
}

/// Converts the items of the service to the form that a backup contains.
struct BackupItems<'c>(ImageItems<'c>);

impl ImageSource for BackupItems<'_> {
    fn rewind(&mut self) {
        self.0.rewind();
    }

    fn next(&mut self, item: &mut Vec<u8>) -> io::Result<bool> {
        self.0.next(item).map_err(io::Error::other)
    }
}

pub(super) fn run(args: &RestoreArgs, path: &Path, output: Output) -> Result<Exit, Problem> {
    let unusable = |bad: &ImportError| unusable_snapshot(path, bad);
    let open = File::open(path).and_then(UnchangingFile::new);
    let source =
        open.map_err(|error| Problem::io_error(format_args!("open {}", path.display()), &error))?;
    progress(&format!("reading {}", path.display()));
    let (bytes, checksum) = import::verify_checksum(&source).map_err(|bad| unusable(&bad))?;
    let contents = SnapshotContents::read(&source, bytes).map_err(|bad| unusable(&bad))?;
    let status = Status::from_contents(&contents, checksum);
    let Some(data) = &args.data else {
        output.print_result(&status, || status.human());
        return Ok(Exit::Done);
    };
    let settings = ImportSettings {
        now_ms: now_ms(),
        secret: quorate::random_bytes()?,
        root_hash: root_password_hash(args, &contents)?,
    };
    let items = ImageItems::new(&contents, &settings).map_err(|bad| unusable(&bad))?;
    progress(&format!("the snapshot is complete; restoring into {}", data.display()));
    let cluster = u128::from_le_bytes(quorate::random_bytes()?).max(1);
    let store = Store::default_for(Some(Service::Etcd)).name();
    let brought = ImportedBackup::new(BackupItems(items), store, Class::Durable, cluster);
    let mut brought = brought.map_err(|error| read_problem(path, &error))?;
    let (checked, state) = check_file(brought.read(), path)?;
    let group = new_founding(&checked, state, args)?;
    fill_folder(data, brought.read(), &checked, &group, path)?;
    let restored =
        Restored { cluster: format!("{:032x}", group.cluster), node: group.node.0, status };
    output.print_result(&restored, || restored.human(path, data, &args.peer));
    Ok(Exit::Done)
}

/// Returns the hash of root's new password, if one is given. It is required if authentication is
/// enabled, because etcd's hashes cannot be used and at least one user must be able to log in.
fn root_password_hash(
    args: &RestoreArgs,
    contents: &SnapshotContents<'_>,
) -> Result<Option<String>, Problem> {
    match &args.root_password_file {
        Some(file) => {
            let password = password::read_password(Some(file), "password of root")?;
            let hash = quorate::password::hash_password(password.as_bytes());
            let failed = |unusable| Problem::new(Exit::Failed, "password", unusable);
            hash.map(Some).map_err(failed)
        }
        None if contents.auth().enabled => {
            let what = "auth is on in this snapshot, and its passwords cannot be restored";
            let hint = "give root a new password with --root-password-file, and then the others with 'etcdctl user passwd'";
            Err(Problem::usage_error(what).with_hint(hint))
        }
        None => Ok(None),
    }
}

#[allow(clippy::disallowed_methods, reason = "leases begin anew at this moment")]
fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

impl Status {
    fn from_contents(contents: &SnapshotContents<'_>, checksum: bool) -> Self {
        let import::SnapshotStatus { hash, total_keys, total_size, version, .. } =
            contents.status().clone();
        let auth = contents.auth();
        Self {
            hash: format!("{hash:x}"),
            revision: contents.revision(),
            total_key: total_keys,
            total_size,
            version,
            compacted: contents.compacted_revision(),
            leases: contents.leases().len(),
            users: auth.users.len(),
            roles: auth.roles.len(),
            auth_enabled: auth.enabled,
            checksum,
        }
    }

    fn human(&self) -> String {
        let auth = if self.auth_enabled { "on" } else { "off" };
        let version = match &*self.version {
            "" => "below 3.6",
            version => version,
        };
        let checksum = match self.checksum {
            true => "matches",
            false => "none: this is a database file, not a snapshot",
        };
        let rows = [
            ("hash", self.hash.clone()),
            ("revision", self.revision.to_string()),
            (
                "compacted",
                match self.compacted {
                    -1 => "never".to_owned(),
                    revision => revision.to_string(),
                },
            ),
            ("total keys", self.total_key.to_string()),
            ("total size", format!("{} bytes", self.total_size)),
            ("version", version.to_owned()),
            ("leases", self.leases.to_string()),
            ("users", format!("{}, {} roles, auth {auth}", self.users, self.roles)),
            ("SHA-256", checksum.to_owned()),
        ];
        let lines = rows.map(|(name, value)| format!("{name:<11} {value}"));
        lines.join("\n")
    }
}

impl Restored {
    fn human(&self, from: &Path, data: &Path, peer: &str) -> String {
        let Self { cluster, node, status } = self;
        format!(
            "{}\n\nnode {node} of the new cluster {cluster} has everything in {}\n\
             start it: quorate start --service etcd --data {} --peer {peer}\n\
             others join it: quorate start --data DIR --join ADMIN",
            status.human(),
            from.display(),
            data.display(),
        )
    }
}

fn read_problem(path: &Path, error: &io::Error) -> Problem {
    Problem::io_error(format_args!("read {}", path.display()), error)
}

fn unusable_snapshot(path: &Path, bad: &ImportError) -> Problem {
    let hint = match bad {
        ImportError::Io(error) => return read_problem(path, error),
        ImportError::NotASnapshot | ImportError::NotEtcd(_) => {
            "create one with 'etcdctl snapshot save'; a backup of Quorate is restored without --from-etcd"
        }
        ImportError::Truncated { .. } | ImportError::Checksum | ImportError::Damaged { .. } => {
            "nothing was restored; use another snapshot, or another copy of this one"
        }
        ImportError::Unsupported(_) => "change that in etcd, and take another snapshot",
        ImportError::TooLarge => "use a machine with 64 bits",
    };
    let (exit, code) = match bad {
        ImportError::NotASnapshot | ImportError::NotEtcd(_) => (Exit::Failed, "not_a_snapshot"),
        ImportError::Unsupported(_) | ImportError::TooLarge => (Exit::Failed, "unfit_snapshot"),
        _ => (Exit::Violation, "damaged_snapshot"),
    };
    Problem::new(exit, code, format_args!("{}: {bad}", path.display())).with_hint(hint)
}
