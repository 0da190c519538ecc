//! Backups: a snapshot in one file, from which a cluster of one node can start ([restore-1]).
//!
//! `file` parses and writes the file. `held` reads a node's own snapshot and prevents the deletion
//! of its files. `brought` makes a backup of data from outside any cluster. `checked` is a verified
//! file. `founded` derives the snapshot from which a new cluster starts. The format is specified in
//! `docs/spec/snapshot.md`.

mod brought;
mod checked;
mod encoded;
mod file;
mod founded;
mod held;
#[cfg(test)]
mod tests;

pub use brought::{ImageSource, ImportedBackup};
pub use checked::{CheckedBackup, ItemCallback, check_backup};
pub use encoded::EncodedBackup;
pub use file::{BackupEncoder, BackupHeader, BackupReader, BackupSummary, BadBackup, ContentKind};
pub use founded::{
    ERA_DISTANCE, NewGroup, NewLog, PartBlocks, SLOT_RANGE_BITS, StoreCallback, create_log,
};
pub use held::{HeldSnapshot, HeldStreamReader, PartReader, SnapshotUnreadable};
