//! Verdict on a plane: whether the findings permit it on this machine, and its expected
//! performance.

use serde::Serialize;

use crate::doctor::{
    finding::{Finding, FindingState},
    plane::Plane,
    predict::PlanePrediction,
};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlaneVerdict {
    pub plane: Plane,
    /// Set if no finding prevents the plane from working on this machine.
    pub works: bool,
    /// Set if nodes of this version support the plane.
    pub spoken: bool,
    /// Names of the findings that prevent the plane from working. If it works, names of the
    /// findings that suggest improvements.
    pub because: Vec<String>,
    /// Advice from the findings in `because`; empty if none.
    pub what_to_do: Vec<String>,
    pub predicted: PlanePrediction,
}

impl PlaneVerdict {
    pub fn new(
        plane: Plane,
        findings: &[Finding],
        predict: impl FnOnce(bool) -> PlanePrediction,
    ) -> Self {
        let about = |finding: &&Finding| finding.about.contains(&plane);
        let blocks = |finding: &&Finding| about(finding) && finding.blocks;
        let works = !findings.iter().any(|finding| blocks(&finding));
        let counts = |finding: &&Finding| match works {
            true => about(finding) && finding.state != FindingState::Ok,
            false => blocks(finding),
        };
        let reasons = || findings.iter().filter(counts);
        Self {
            plane,
            works,
            spoken: plane.is_supported(),
            because: reasons().map(|finding| finding.name.clone()).collect(),
            what_to_do: distinct_hints(reasons()),
            predicted: predict(works),
        }
    }
}

/// Returns the distinct pieces of advice, in the order of the findings.
fn distinct_hints<'a>(reasons: impl Iterator<Item = &'a Finding>) -> Vec<String> {
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

    fn judge_plane(plane: Plane, findings: &[Finding]) -> PlaneVerdict {
        PlaneVerdict::new(plane, findings, |_| PlanePrediction::unknown("not asked"))
    }

    #[test]
    fn a_plane_works_unless_a_finding_blocks_it() {
        let raw = Finding::warning("raw", "no", "do this").blocking(&[Plane::Ethernet]);
        let small =
            Finding::warning("small", "no", "do that").with_planes(&[Plane::Udp, Plane::Ethernet]);
        let fine = Finding::ok("fine", "yes").with_planes(&Plane::ALL);
        let all = [raw, small, fine];
        let tcp = judge_plane(Plane::Tcp, &all);
        assert!(tcp.works && tcp.because.is_empty() && tcp.what_to_do.is_empty());
        let udp = judge_plane(Plane::Udp, &all);
        assert!(udp.works);
        assert_eq!(
            (&*udp.because, &*udp.what_to_do),
            (&["small".to_owned()][..], &["do that".to_owned()][..])
        );
        let ethernet = judge_plane(Plane::Ethernet, &all);
        assert!(!ethernet.works);
        let twice = [all[0].clone(), all[0].clone()];
        assert_eq!(judge_plane(Plane::Ethernet, &twice).what_to_do, ["do this"], "said once");
        assert_eq!(ethernet.because, ["raw"], "what only could be better is no reason");
    }
}
