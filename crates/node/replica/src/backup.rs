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

pub use brought::{ImportedBackup, Source};
pub use checked::{Checked, Each, check};
pub use encoded::Encoded;
pub use file::{BadBackup, ContentKind, Encoder, Header, Reader, Summary};
pub use founded::{ERAS_BETWEEN, Founded, NewGroup, Part, SPACE_BITS, StoreBytes, founded};
pub use held::{HeldSnapshot, Parts, StreamBytes, Unreadable};
