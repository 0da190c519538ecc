//! Emulated networks that can be placed between the nodes of a measurement.

use std::fmt;

use crate::{lan::Lan, wan::LinkProfile};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmulatedNetwork {
    /// Slow links with long delays between each pair of nodes.
    Wan(LinkProfile),
    /// A segment: a switch with a link of limited speed to each node.
    Lan(Lan),
}

impl EmulatedNetwork {
    pub fn name(&self) -> String {
        match self {
            Self::Wan(profile) => profile.name.to_owned(),
            Self::Lan(lan) => lan.name(),
        }
    }
}

impl fmt::Display for EmulatedNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wan(profile) => profile.fmt(f),
            Self::Lan(lan) => lan.fmt(f),
        }
    }
}
