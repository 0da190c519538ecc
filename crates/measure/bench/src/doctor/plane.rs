//! Planes: ways to move messages between nodes, and a verdict on each from what was found.

use serde::Serialize;

use crate::doctor::{
    finding::{Finding, State},
    predict::Predicted,
};

/// A way to move messages between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Plane {
    /// A connection to each peer; works anywhere.
    Tcp,
    /// Datagrams to each peer.
    Udp,
    /// Datagrams to all at once.
    Multicast,
    /// The same without IP.
    Ethernet,
    /// Datagrams from one member to the next.
    Chain,
}

impl Plane {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Tcp,
        Self::Udp,
        Self::Multicast,
        Self::Ethernet,
        Self::Chain,
    ];

    /// As in the JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Multicast => "multicast",
            Self::Ethernet => "ethernet",
            Self::Chain => "chain",
        }
    }

    /// Whether nodes of this version can be told to use it.
    pub const fn is_spoken(self) -> bool {
        match self {
            Self::Tcp | Self::Udp | Self::Multicast | Self::Ethernet | Self::Chain => true,
        }
    }
}

/// What is to be thought of a plane on this machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// Which.
    pub plane: Plane,
    /// Whether this machine can carry it, as far as was found.
    pub works: bool,
    /// Whether nodes of this version can be told to use it.
    pub spoken: bool,
    /// Names of the findings that keep it from working; else of those by which it could be better.
    pub because: Vec<String>,
    /// What to do about them; empty if nothing.
    pub what_to_do: Vec<String>,
    /// What the model expects of it.
    pub predicted: Predicted,
}

impl Verdict {
    /// Of what was found.
    pub fn new(
        plane: Plane,
        findings: &[Finding],
        predict: impl FnOnce(bool) -> Predicted,
    ) -> Self {
        let about = |finding: &&Finding| finding.about.contains(&plane);
        let blocks = |finding: &&Finding| about(finding) && finding.blocks;
        let works = !findings.iter().any(|finding| blocks(&finding));
        let counts = |finding: &&Finding| match works {
            true => about(finding) && finding.state != State::Ok,
            false => blocks(finding),
        };
        let reasons = || findings.iter().filter(counts);
        Self {
            plane,
            works,
            spoken: plane.is_spoken(),
            because: reasons().map(|finding| finding.name.clone()).collect(),
            what_to_do: hints(reasons()),
            predicted: predict(works),
        }
    }
}

/// Each once, in order.
fn hints<'a>(reasons: impl Iterator<Item = &'a Finding>) -> Vec<String> {
    let mut hints: Vec<String> = Vec::new();
    for finding in reasons {
        if !finding.hint.is_empty() && !hints.contains(&finding.hint) {
            hints.push(finding.hint.clone());
        }
    }
    hints
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(plane: Plane, findings: &[Finding]) -> Verdict {
        Verdict::new(plane, findings, |_| Predicted::unknown("not asked"))
    }

    #[test]
    fn a_plane_works_unless_a_finding_blocks_it() {
        let raw = Finding::warning("raw", "no", "do this").blocks(&[Plane::Ethernet]);
        let small =
            Finding::warning("small", "no", "do that").about(&[Plane::Udp, Plane::Ethernet]);
        let fine = Finding::ok("fine", "yes").about(&Plane::ALL);
        let all = [raw, small, fine];
        let tcp = verdict(Plane::Tcp, &all);
        assert!(tcp.works && tcp.because.is_empty() && tcp.what_to_do.is_empty());
        let udp = verdict(Plane::Udp, &all);
        assert!(udp.works);
        assert_eq!(
            (&*udp.because, &*udp.what_to_do),
            (&["small".to_owned()][..], &["do that".to_owned()][..])
        );
        let ethernet = verdict(Plane::Ethernet, &all);
        assert!(!ethernet.works);
        let twice = [all[0].clone(), all[0].clone()];
        assert_eq!(
            verdict(Plane::Ethernet, &twice).what_to_do,
            ["do this"],
            "said once"
        );
        assert_eq!(
            ethernet.because,
            ["raw"],
            "what only could be better is no reason"
        );
    }

    #[test]
    fn names_are_those_of_the_json() {
        for plane in Plane::ALL {
            assert_eq!(serde_json::to_value(plane).unwrap(), plane.name());
        }
    }
}
