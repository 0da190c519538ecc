//! Backups: a snapshot as one file, from which a new cluster of one node can be made ([restore-1]).
//!
//! `file` parses and writes the file. `held` reads a node's own snapshot and keeps its files
//! meanwhile. `brought` makes a backup of data from outside any cluster. `checked` is a completely
//! verified file. `founded` is the snapshot with which a new cluster begins. The format is in
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
pub use file::{Bad, Encoder, Header, Next, Reader, Summary};
pub use founded::{Founded, Keep, NewGroup, Part, founded};
pub use held::{Held, Parts, StreamBytes, Unreadable};
