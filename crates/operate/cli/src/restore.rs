//! `quorate restore`: creates a new cluster with one node from a backup or from an etcd snapshot
//! (`from_etcd`).

#[cfg(feature = "etcd")]
mod from_etcd;

use std::{
    fs::File,
    io::{BufReader, Read, Seek as _},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

use clap::Args;
use quorate::ETCD_ENVELOPE_MAGIC;
use quorate_admin::progress::{Progress, ProgressReport};
use quorate_kv::store::image::ImageChecker;
use quorate_node::{
    LockedFolder,
    identity::IdentityError,
    restoring::{self, RestoreError},
};
use quorate_replica::backup::{BadBackup, CheckedBackup, NewGroup, check_backup};
use serde::Serialize;

use crate::{
    addresses::{DEFAULT_PEER, address_argument},
    backup::Report,
    config::Store,
    etcd,
    output::{Exit, Output, Problem, progress},
    values::must_be,
};

/// Size of one read, in bytes.
const READ_BYTES: usize = 256 << 10;

/// Arguments of `quorate restore`.
#[derive(Args, Clone, Debug)]
pub(crate) struct RestoreArgs {
    /// The backup file
    #[arg(
        value_name = "FILE",
        required_unless_present = "from_etcd",
        conflicts_with = "from_etcd"
    )]
    file: Option<PathBuf>,
    /// Restore a snapshot of etcd v3 instead: what 'etcdctl snapshot save' wrote, or etcd's file
    /// member/snap/db; without --data, only show what is in it
    #[arg(long, value_name = "SNAPSHOT")]
    from_etcd: Option<PathBuf>,
    /// With --from-etcd: the new password of etcd's user root is the content of this file (`-`:
    /// standard input)
    #[arg(long, value_name = "FILE", requires = "from_etcd")]
    root_password_file: Option<PathBuf>,
    /// Data folder of the new node; empty or missing
    #[arg(long, env = "QUORATE_DATA", value_name = "DIR", required_unless_present = "from_etcd")]
    data: Option<PathBuf>,
    /// Peer address of the new node
    #[arg(long, env = "QUORATE_PEER", value_name = "ADDR", default_value = DEFAULT_PEER, value_parser = address_argument)]
    peer: String,
    /// Where the new node keeps its data: lsm (on disk) or memory [default: as in the backup;
    /// memory with --from-etcd]
    #[arg(long, value_name = "STORE", value_parser = parse_store)]
    store: Option<Store>,
    /// Raise the revision of the service etcd by N, above all that clients of the old cluster may
    /// have seen; needs --mark-compacted
    #[arg(long, value_name = "N", requires = "mark_compacted",
          value_parser = clap::value_parser!(u64).range(1..))]
    bump_revision: Option<u64>,
    /// Compact all history before the raised revision, so that watches from before end with an
    /// error instead of missing changes; needs --bump-revision
    #[arg(long, requires = "bump_revision")]
    mark_compacted: bool,
}

fn parse_store(text: &str) -> Result<Store, String> {
    let place = Store::parse_flag(text).filter(|place| *place != Store::None);
    place.ok_or_else(|| must_be("lsm or memory", text))
}

/// Result of `quorate restore`: the new cluster.
#[derive(Clone, Debug, Serialize)]
struct Restored {
    /// Id of the new cluster.
    cluster: String,
    /// Id of the only node.
    node: u32,
    /// Slot below which the new cluster contains everything from the old one.
    decided: u64,
    bytes: u64,
    checksum: String,
    /// Id of the cluster that was backed up.
    from: String,
    /// Number of byte streams restored with their bytes.
    streams: u64,
    stream_bytes: u64,
    /// Number of byte streams that were not restored.
    streams_left_out: u64,
}

pub(crate) fn run(args: &RestoreArgs, output: Output) -> Result<Exit, Problem> {
    if args.peer.ends_with(":0") {
        let what = format_args!("--peer {}: the port must be fixed, not 0", args.peer);
        return Err(Problem::usage_error(what)
            .with_hint("give the same address as to 'quorate start' later"));
    }
    if let Some(data) = &args.data {
        LockedFolder::refuse_used(data).map_err(folder_problem)?;
    }
    match (&args.from_etcd, &args.file, &args.data) {
        (Some(snapshot), _, _) => run_from_etcd(args, snapshot, output),
        (None, Some(file), Some(data)) => run_from_backup(args, file, data, output),
        _ => Err(Problem::usage_error("FILE and --data are missing")),
    }
}

#[cfg(feature = "etcd")]
use from_etcd::run as run_from_etcd;

#[cfg(not(feature = "etcd"))]
fn run_from_etcd(_: &RestoreArgs, _: &Path, _: Output) -> Result<Exit, Problem> {
    Err(etcd::refused())
}

fn run_from_backup(
    args: &RestoreArgs,
    path: &Path,
    data: &Path,
    output: Output,
) -> Result<Exit, Problem> {
    let mut file = File::open(path)
        .map_err(|error| Problem::io_error(format_args!("open {}", path.display()), &error))?;
    let length = enclosed_length(&file).unwrap_or(u64::MAX);
    let (checked, state) = check_file((&file).take(length), path)?;
    let group = new_founding(&checked, state, args)?;
    file.rewind()
        .map_err(|error| Problem::io_error(format_args!("read {}", path.display()), &error))?;
    progress(&format!("the backup is complete; restoring into {}", data.display()));
    let from = BufReader::with_capacity(READ_BYTES, file.take(length));
    fill_folder(data, from, &checked, &group, path)?;
    let report = Report::from_checked_file(&checked);
    let streams_said = report.describe_streams("the backup was taken without --streams");
    let Report {
        cluster: from,
        decided,
        bytes,
        checksum,
        streams,
        stream_bytes,
        streams_left_out,
        ..
    } = report;
    let restored = Restored {
        cluster: format!("{:032x}", group.cluster),
        node: group.node.0,
        decided,
        bytes,
        checksum,
        from,
        streams,
        stream_bytes,
        streams_left_out,
    };
    output.print_result(&restored, || human(&restored, &streams_said, data, &args.peer));
    Ok(Exit::Done)
}

/// Returns the description of the new cluster. `state` is the item that contains the revision of an
/// etcd service.
fn new_founding(
    checked: &CheckedBackup,
    state: Option<Vec<u8>>,
    args: &RestoreArgs,
) -> Result<NewGroup, Problem> {
    let cluster = u128::from_le_bytes(quorate::random_bytes()?).max(1);
    let group = NewGroup::from_backup(checked, cluster, &args.peer);
    let mut group = group.map_err(|error| Problem::new(Exit::Failed, "exhausted", error))?;
    if let Some(store) = store_if_other(&group.store, args.store)? {
        store.name().clone_into(&mut group.store);
    }
    match (args.bump_revision.filter(|_| args.mark_compacted), state) {
        (None, None) => {}
        (None, Some(state)) => progress(&format!(
            "its revision is {}: where clients have seen higher ones, restore with --bump-revision N --mark-compacted, \
             or they will see those again with other contents",
            etcd::item_revision(&state).unwrap_or_default()
        )),
        (Some(by), Some(state)) => {
            let raised = etcd::raise_revision(&state, by).ok_or_else(|| {
                Problem::usage_error(format_args!(
                    "--bump-revision {by}: the revision would be too high"
                ))
                .with_hint("such as 1000000000, more than the changes since the backup")
            })?;
            group.replaced_item = Some((state, raised));
        }
        (Some(_), None) => {
            let what = "--bump-revision is for the service etcd, once something was written to it";
            return Err(Problem::usage_error(what).with_hint("leave it and --mark-compacted out"));
        }
    }
    Ok(group)
}

/// Returns the requested store if it differs from the backup's. All stores of a service accept the
/// same items.
fn store_if_other(store: &str, place: Option<Store>) -> Result<Option<Store>, Problem> {
    match Store::parse_name(store) {
        Some(Store::None) if place.is_some() => {
            let what = "--store has no effect on a service without state";
            Err(Problem::usage_error(what).with_hint("leave it out"))
        }
        store => Store::for_service(store.map(Store::service), place),
    }
}

/// Writes the data folder of the new node. `from` reads the backup a second time. `path` is used in
/// messages.
fn fill_folder(
    data: &Path,
    from: impl Read,
    checked: &CheckedBackup,
    group: &NewGroup,
    path: &Path,
) -> Result<(), Problem> {
    let nonce = u64::from_le_bytes(quorate::random_bytes()?);
    let done = restoring::restore_backup(data, from, checked, group, nonce);
    done.map_err(|error| match error {
        RestoreError::Folder(error) => folder_problem(error),
        RestoreError::Backup(bad) => unusable_backup(path, &bad),
    })
}

fn human(restored: &Restored, streams: &str, data: &Path, peer: &str) -> String {
    let Restored { cluster, node, decided, from, .. } = restored;
    format!(
        "node {node} of the new cluster {cluster} has everything below slot {decided} of cluster {from}{streams}\n\
         start it: quorate start --data {} --peer {peer}\n\
         others join it: quorate start --data DIR --join ADMIN",
        data.display()
    )
}

/// Length of a SHA-256 checksum in bytes.
const CHECKSUM_BYTES: u64 = 32;

/// Returns the length of the backup inside a file written by `etcdctl`, or `None` for a plain
/// backup. The backup has its own checksums.
fn enclosed_length(file: &File) -> Option<u64> {
    let length = file.metadata().ok()?.len();
    let at = length.checked_sub(CHECKSUM_BYTES + 16)?;
    let mut tail = [0; 16];
    file.read_exact_at(&mut tail, at).ok()?;
    let (bytes, word) = tail.split_first_chunk::<8>()?;
    let bytes = u64::from_be_bytes(*bytes);
    (word == ETCD_ENVELOPE_MAGIC && bytes <= at).then_some(bytes)
}

/// Checks the whole file before anything is written. Also returns the item that contains the
/// revision of an etcd service.
fn check_file(file: impl Read, path: &Path) -> Result<(CheckedBackup, Option<Vec<u8>>), Problem> {
    let mut keys = ItemCheckers::default();
    let mut how_far = Progress::start();
    let checked = check_backup(
        BufReader::with_capacity(READ_BYTES, file),
        &mut |header, item| keys.check_item(&header.store, item),
        &mut |header, bytes| {
            how_far.report(|| ProgressReport::bytes("checking", bytes, header.content_bytes()))
        },
    );
    drop(how_far);
    let checked = checked.map_err(|bad| unusable_backup(path, &bad))?;
    keys.check_complete(&checked).map_err(|what| {
        let at = checked.summary.bytes;
        unusable_backup(path, &BadBackup::Damaged { bytes_read: at, description: what })
    })?;
    Ok((checked, keys.revision_item))
}

/// Checks that the service's items can be loaded into a store.
#[derive(Default)]
struct ItemCheckers {
    kv: ImageChecker,
    etcd: etcd::ItemValidator,
    /// Item that contains the revision of an etcd service, once found.
    revision_item: Option<Vec<u8>>,
}

impl ItemCheckers {
    fn check_item(&mut self, store: &str, item: &[u8]) -> Result<(), String> {
        match Store::parse_name(store) {
            Some(Store::Memory | Store::Lsm) => match self.kv.check_item(item) {
                Ok(_) => Ok(()),
                Err(error) => Err(error.to_string()),
            },
            Some(Store::EtcdLsm | Store::EtcdMemory) => {
                self.etcd.validate_item(item).map_err(|error| error.to_string())?;
                if etcd::item_revision(item).is_some() {
                    self.revision_item = Some(item.to_vec());
                }
                Ok(())
            }
            Some(Store::None) => {
                Err("a backup of a service without state contains state".to_owned())
            }
            None => Err(format!("this version does not support store {store}")),
        }
    }

    fn check_complete(&self, checked: &CheckedBackup) -> Result<(), String> {
        let header = &checked.header;
        match Store::parse_name(&header.store) {
            Some(Store::Memory | Store::Lsm) => {
                let ended = self.kv.end(header.slot);
                ended.map_err(|error| error.to_string())
            }
            Some(Store::EtcdLsm | Store::EtcdMemory) => {
                self.etcd.check_complete().map_err(|error| error.to_string())
            }
            Some(Store::None) => Ok(()),
            None => Err(format!("this version does not support store {}", header.store)),
        }
    }
}

fn folder_problem(error: IdentityError) -> Problem {
    let used = matches!(error, IdentityError::AlreadyExists { .. } | IdentityError::Foreign { .. });
    let problem = Problem::from(quorate::Error::from(error));
    match used {
        true => problem.with_hint("use an empty folder, or one that does not exist yet"),
        false => problem,
    }
}

fn unusable_backup(path: &Path, bad: &BadBackup) -> Problem {
    let (exit, code, hint) = match bad {
        BadBackup::Io(_) => (Exit::Failed, "io", ""),
        BadBackup::NotABackup => (Exit::Failed, "not_a_backup", "create one with 'quorate backup'"),
        BadBackup::NewerFormat(_) => {
            (Exit::Failed, "newer_format", "restore it with the version that created it")
        }
        BadBackup::Truncated(_) | BadBackup::Damaged { .. } => (
            Exit::Violation,
            "damaged_backup",
            "nothing was restored; use another backup, or another copy of this one",
        ),
    };
    let what = format_args!("{}: {bad}", path.display());
    Problem::new(exit, code, what).with_hint(hint)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn backup_can_be_restored_into_any_store_of_its_service() {
        let other = |store, place| store_if_other(store, Some(place)).map_err(|no| no.message);
        assert_eq!(other("lsm", Store::Memory), Ok(Some(Store::Memory)));
        let etcd = [(Store::Lsm, Store::EtcdLsm), (Store::Memory, Store::EtcdMemory)];
        for (place, store) in etcd {
            assert_eq!(other("etcd-memory", place), Ok(Some(store)));
            assert_eq!(other("etcd-lsm", place), Ok(Some(store)));
        }
        assert!(other("none", Store::Lsm).is_err());
        assert_eq!(store_if_other("none", None).map_err(|no| no.message), Ok(None));
    }

    #[test]
    fn backup_is_found_in_an_etcdctl_snapshot() {
        let mut file = tempfile::tempfile().expect("a file");
        let mut all = vec![7; 100];
        all.extend(100_u64.to_be_bytes());
        all.extend(ETCD_ENVELOPE_MAGIC);
        all.extend([9; 32]);
        file.write_all(&all).expect("written");
        assert_eq!(enclosed_length(&file), Some(100));
        file.write_all(b"!").expect("written");
        assert_eq!(enclosed_length(&file), None, "its end is another one");
        file.set_len(47).expect("cut");
        assert_eq!(enclosed_length(&file), None);
    }
}
