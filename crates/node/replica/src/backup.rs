//! Backups: a snapshot as one file, from which a new cluster of one can be made ([restore-1]).
//!
//! `file` is the file, from any bytes that come in to what they say; `held` reads a node's own
//! snapshot while its files stay; `brought` makes one of data that no cluster had; `checked` is a
//! file all of which was looked at; `founded` is the snapshot that a new cluster begins with.
//! `docs/spec/snapshot.md` has the format.

mod brought;
mod checked;
mod encoded;
mod file;
mod founded;
mod held;
#[cfg(test)]
mod tests;

pub use brought::{Brought, Source};
pub use checked::{Checked, Each, check};
pub use encoded::Encoded;
pub use file::{Bad, Encoder, Header, Next, Reader, Summary};
pub use founded::{Founded, Keep, NewGroup, Part, founded};
pub use held::{Held, Parts, StreamBytes, Unreadable};
