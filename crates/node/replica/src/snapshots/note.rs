//! The replica's note in the base of its log: the eras at its start, and this node's snapshot.

use quorate_core::reconfigure::Eras;

use super::{
    eras::{put_eras, take_eras},
    manifest::Manifest,
};
use crate::fields::Fields;

const FORMAT: u16 = 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BaseNote {
    pub(crate) eras: Eras,
    pub(crate) snapshot: Option<Manifest>,
    /// The slots below the start are missing and no snapshot replaces them, because this node
    /// discarded them as an auxiliary. `eras` then holds the eras that it knew at that time
    /// ([trim-1]).
    pub(crate) is_hollow: bool,
}

const NO_SNAPSHOT: u8 = 0;
const SNAPSHOT: u8 = 1;
const HOLLOW: u8 = 2;

impl BaseNote {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = FORMAT.to_be_bytes().to_vec();
        put_eras(&self.eras, &mut out);
        out.push(match (&self.snapshot, self.is_hollow) {
            (Some(_), _) => SNAPSHOT,
            (None, true) => HOLLOW,
            (None, false) => NO_SNAPSHOT,
        });
        if let Some(manifest) = &self.snapshot {
            manifest.encode(&mut out);
        }
        out
    }

    /// Decodes a note; `None` if it is of a later version or invalid.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        if fields.u16()? != FORMAT {
            return None;
        }
        let eras = take_eras(&mut fields)?;
        let (snapshot, hollow) = match fields.u8()? {
            NO_SNAPSHOT => (None, false),
            SNAPSHOT => (Some(Manifest::decode(&mut fields)?), false),
            HOLLOW => (None, true),
            _ => return None,
        };
        fields.0.is_empty().then_some(Self { eras, snapshot, is_hollow: hollow })
    }
}
