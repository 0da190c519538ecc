//! Terms on which a cluster is founded: its quorum rule, and its auxiliaries.
//!
//! They are configured on every node and stored in the identity. The hash by which a founder checks
//! that a node has the same list includes them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use quorate_core::{
    configuration::{Configuration, InvalidConfiguration, Voter},
    node_id::{Member, NodeId},
    quorum::QuorumRule,
    record::Class,
};

/// Auxiliaries and quorum rule with which a cluster is founded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundingTerms {
    /// Founding members that receive no values while the other members suffice ([aux-1]).
    pub auxiliaries: BTreeSet<NodeId>,
    /// Rule that determines which members form a quorum.
    pub quorum_rule: QuorumRule,
}

impl FoundingTerms {
    /// Returns the founding configuration of `members`, each with weight 1. Fails unless quorums
    /// intersect and exist without the auxiliaries ([era-4]).
    pub fn configuration<'a>(
        &self,
        members: impl IntoIterator<Item = &'a NodeId>,
        class: Class,
    ) -> Result<Configuration, InvalidConfiguration> {
        let voter = |node: &NodeId| Voter {
            member: Member::first(node.0),
            weight: 1,
            auxiliary: self.auxiliaries.contains(node),
        };
        let voters: Vec<Voter> = members.into_iter().map(voter).collect();
        let known = |node: &&NodeId| voters.iter().any(|voter| voter.member.node == **node);
        if let Some(unknown) = self.auxiliaries.iter().find(|node| !known(node)) {
            return Err(InvalidConfiguration::Unknown(*unknown));
        }
        Configuration::new(voters, self.quorum_rule, class)
    }

    /// Returns whether all terms have their default values.
    pub fn are_default(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the reason why `members` cannot be founded on these terms; `None` if they can.
    pub fn why_invalid(&self, members: &BTreeMap<NodeId, String>) -> Option<String> {
        let invalid = self
            .configuration(members.keys(), Class::Durable)
            .err()
            .filter(|invalid| *invalid != InvalidConfiguration::Empty)?;
        Some(match invalid {
            InvalidConfiguration::Unknown(node) => format!("--auxiliary names node {node}, which --cluster does not list"),
            InvalidConfiguration::Auxiliaries => {
                "without its auxiliaries the cluster would have no quorum: of 2f + 1 nodes, f may be auxiliaries"
                    .to_owned()
            }
            InvalidConfiguration::Quorums => format!("--quorum {}: quorums would not meet, or could not be formed", self.quorum_rule),
            other => format!("{other:?}"),
        })
    }
}

/// Formats terms like `auxiliary 3, quorum flexible:2,2`. Default terms give an empty string.
impl fmt::Display for FoundingTerms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words: Vec<String> =
            self.auxiliaries.iter().map(|node| format!("auxiliary {node}")).collect();
        if self.quorum_rule != QuorumRule::Majority {
            words.push(format!("quorum {}", self.quorum_rule));
        }
        f.write_str(&words.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(count: u32) -> BTreeMap<NodeId, String> {
        (1..=count).map(|node| (NodeId(node), String::new())).collect()
    }

    #[test]
    fn terms_are_checked_against_the_member_list() {
        let terms = |auxiliaries: &[u32], rule: &str| FoundingTerms {
            auxiliaries: auxiliaries.iter().map(|node| NodeId(*node)).collect(),
            quorum_rule: QuorumRule::parse(rule).unwrap(),
        };
        let fits = |terms: &FoundingTerms, count| terms.why_invalid(&members(count)).is_none();
        assert!(fits(&terms(&[], "majority"), 3) && fits(&terms(&[3], "majority"), 3));
        assert!(fits(&terms(&[4, 5], "majority"), 5));
        assert!(!fits(&terms(&[2, 3], "majority"), 3), "one of three is no quorum");
        assert!(!fits(&terms(&[4], "majority"), 3), "not in the list");
        assert!(fits(&terms(&[], "flexible:3,1"), 3) && fits(&terms(&[2, 3], "flexible:3,1"), 3));
        assert!(!fits(&terms(&[], "flexible:2,1"), 3), "quorums do not meet");
        assert!(!fits(&terms(&[], "flexible:4,1"), 3), "no quorum can be formed");
        assert_eq!(terms(&[3], "flexible:2,2").to_string(), "auxiliary 3, quorum flexible:2,2");
        assert!(terms(&[], "majority").to_string().is_empty());
    }

    #[test]
    fn quorum_rules_round_trip_as_text() {
        for text in ["majority", "flexible:3,2"] {
            assert_eq!(QuorumRule::parse(text).unwrap().to_string(), text);
        }
        for text in
            ["", "most", "flexible", "flexible:3", "flexible:0,3", "flexible:3,2,1", "grid:2"]
        {
            assert_eq!(QuorumRule::parse(text), None, "{text}");
        }
    }
}
