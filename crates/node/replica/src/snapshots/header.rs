//! Header, the first item of a snapshot: the cluster, the position, and the eras from there on.

use quorate_core::{reconfigure::Eras, slot::Slot};

use super::eras::{put_eras, take_eras};
use crate::fields::Fields;

const FORMAT: u16 = 1;

/// Identity of a snapshot ([snap-1]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SnapshotHeader {
    pub(crate) cluster: u128,
    /// Slot of the snapshot. The snapshot covers all lower slots.
    pub(crate) slot: Slot,
    pub(crate) eras: Eras,
}

impl SnapshotHeader {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = FORMAT.to_be_bytes().to_vec();
        out.extend_from_slice(&self.cluster.to_be_bytes());
        out.extend_from_slice(&self.slot.0.to_be_bytes());
        put_eras(&self.eras, &mut out);
        out
    }

    /// Decodes a header; `None` if it is of a later version or invalid.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        if fields.u16()? != FORMAT {
            return None;
        }
        let header = Self {
            cluster: fields.u128()?,
            slot: Slot(fields.u64()?),
            eras: take_eras(&mut fields)?,
        };
        fields.0.is_empty().then_some(header)
    }
}
