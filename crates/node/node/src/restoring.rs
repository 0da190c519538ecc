//! Restores a backup, with its byte streams, as a new cluster of one node ([restore-1]).
//!
//! The whole backup was checked earlier. A mark is written first and the identity last. Until the
//! identity is written the folder has no owner, and another attempt starts over. Afterwards an
//! ordinary start finds everything it needs: a snapshot and a log that begins with it.

mod streams;

use std::{
    collections::BTreeMap,
    fmt,
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::FileExt as _,
    path::Path,
};

use quorate_log::Base;
use quorate_log::disk::{
    Family, FileId, SmallFiles as _, create_private_folder, private_file, temporary_name,
};
use quorate_replica::backup::{BadBackup, CheckedBackup, NewGroup, NewLog, PartBlocks, create_log};

use quorate_stream::store::Store;
use streams::RestoredStreams;

use crate::{
    folder::{LockedFolder, RESTORE_MARK_FILE, io_failure, sync_folder},
    home::Home as _,
    identity::{Founding, Identity, IdentityError},
    terms::FoundingTerms,
};

/// Reason why a backup was not restored. The folder is empty, or has files that another attempt
/// removes.
#[derive(Debug)]
pub enum RestoreError {
    /// The folder cannot be used or written.
    Folder(IdentityError),
    /// The backup passed its check, but could not be read again: it has changed since, or reading
    /// failed.
    Backup(BadBackup),
}

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(error) => error.fmt(f),
            Self::Backup(bad) => bad.fmt(f),
        }
    }
}

impl std::error::Error for RestoreError {}

impl From<IdentityError> for RestoreError {
    fn from(error: IdentityError) -> Self {
        Self::Folder(error)
    }
}

impl From<BadBackup> for RestoreError {
    fn from(bad: BadBackup) -> Self {
        Self::Backup(bad)
    }
}

/// Turns the folder into that of the new cluster's only node. `from` opens the backup again from
/// its start. `nonce` is random.
pub fn restore_backup<R: Read>(
    folder: &Path,
    from: R,
    checked: &CheckedBackup,
    group: &NewGroup,
    nonce: u64,
) -> Result<(), RestoreError> {
    let mut home = LockedFolder::create_to_restore(folder)?;
    home.replace(RESTORE_MARK_FILE, b"").map_err(IdentityError::from)?;
    let filled = create_contents(&mut home, from, checked, group);
    if filled.is_err() {
        // If this fails, the next attempt removes the leftovers.
        let _ = remove_unfinished(folder).and_then(|()| remove_mark(folder));
    }
    filled?;
    let founding = Founding {
        // The usual terms: a majority of one.
        terms: FoundingTerms::default(),
        cluster: group.cluster,
        node: group.node,
        class: checked.header.class,
        store: group.store.clone(),
        members: BTreeMap::from([(group.node, group.peer.clone())]),
        join_nonce: nonce,
    };
    Identity::create_at(home, founding, checked.level())?;
    // The mark has no meaning once there is an identity.
    remove_mark(folder)?;
    Ok(())
}

/// Creates all contents of the folder except the identity.
fn create_contents<R: Read>(
    home: &mut LockedFolder,
    from: R,
    checked: &CheckedBackup,
    group: &NewGroup,
) -> Result<(), RestoreError> {
    let folder = home.path().to_owned();
    remove_unfinished(&folder)?;
    for family in Family::all() {
        let path = folder.join(family.folder());
        create_private_folder(&path).map_err(|error| io_failure("create", &path, &error))?;
    }
    let mut parts = PartFiles { folder: &folder, open: None };
    let begins = match checked.header.stream_bytes {
        Some(1..) => {
            let mut streams = RestoredStreams::open(home)?;
            let begins = create_log::<R, RestoreError>(
                from,
                checked,
                group,
                &mut |part| Ok(parts.write(&part)?),
                &mut |stream, position, bytes| Ok(streams.append_bytes(stream, position, bytes)?),
            )?;
            streams.make_durable(group.first_slot)?;
            begins
        }
        _ => restore_without_streams(from, checked, group, &mut parts)?,
    };
    parts.close()?;
    sync_folder(&folder.join(Family::Snapshot.folder()))?;
    sync_folder(&folder)?;
    let base = Base { start: begins.first_slot, note: begins.base_note };
    let (name, bytes) = base.for_new_log(group.cluster, group.node);
    home.replace(name, &bytes).map_err(IdentityError::from)?;
    Ok(())
}

/// Restores a backup that has no streams or does not include their bytes.
fn restore_without_streams<R: Read>(
    from: R,
    checked: &CheckedBackup,
    group: &NewGroup,
    parts: &mut PartFiles<'_>,
) -> Result<NewLog, RestoreError> {
    create_log::<R, RestoreError>(
        from,
        checked,
        group,
        &mut |part| Ok(parts.write(&part)?),
        &mut |_, _, _| unreachable!("the backup has no bytes of streams"),
    )
}

/// Writer for the files of the backup. It has one file open at a time.
struct PartFiles<'a> {
    folder: &'a Path,
    open: Option<(FileId, File)>,
}

impl PartFiles<'_> {
    fn write(&mut self, part: &PartBlocks<'_>) -> Result<(), IdentityError> {
        let id = part.position.file;
        let path = self.folder.join(id.family.folder()).join(id.name());
        let file = match self.open.take() {
            Some((open, file)) if open == id => file,
            other => {
                self.open = other;
                self.close()?;
                let made =
                    private_file().write(true).create_new(true).open(&path).and_then(|file| {
                        file.set_len(part.file_bytes)?;
                        Ok(file)
                    });
                made.map_err(|error| io_failure("create", &path, &error))?
            }
        };
        file.write_all_at(part.bytes, part.position.offset)
            .map_err(|error| io_failure("write", &path, &error))?;
        self.open = Some((id, file));
        Ok(())
    }

    fn close(&mut self) -> Result<(), IdentityError> {
        let Some((id, file)) = self.open.take() else {
            return Ok(());
        };
        let path = self.folder.join(id.family.folder()).join(id.name());
        file.sync_all().map_err(|error| io_failure("sync", &path, &error))
    }
}

/// Removes the files of an unfinished attempt.
fn remove_unfinished(folder: &Path) -> Result<(), IdentityError> {
    let ignore_missing = |result: io::Result<()>| match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    };
    for family in Family::all() {
        let path = folder.join(family.folder());
        ignore_missing(fs::remove_dir_all(&path))
            .map_err(|error| io_failure("remove", &path, &error))?;
    }
    let made = Family::all().map(Family::newest_record_name);
    for name in made.chain([Base::FILE, Store::POINTER_FILE]) {
        let names = [name.to_owned(), temporary_name(name)];
        for path in names.map(|name| folder.join(name)) {
            ignore_missing(fs::remove_file(&path))
                .map_err(|error| io_failure("remove", &path, &error))?;
        }
    }
    sync_folder(folder)
}

fn remove_mark(folder: &Path) -> Result<(), IdentityError> {
    let path = folder.join(RESTORE_MARK_FILE);
    fs::remove_file(&path).map_err(|error| io_failure("remove", &path, &error))?;
    sync_folder(folder)
}
