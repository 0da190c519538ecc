//! Networks that can be put between nodes that are started here.

use std::fmt;

use crate::{lan::Lan, wan::Profile};

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emulated {
    /// Long and narrow links between each two nodes.
    Wan(Profile),
    /// One segment, on which every node receives every other's frames.
    Lan(Lan),
}

impl Emulated {
    /// As rows have it.
    pub fn name(&self) -> String {
        match self {
            Self::Wan(profile) => profile.name.to_owned(),
            Self::Lan(lan) => lan.name(),
        }
    }
}

impl fmt::Display for Emulated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wan(profile) => profile.fmt(f),
            Self::Lan(lan) => lan.fmt(f),
        }
    }
}
