//! Available votes of a cluster, compared with what its quorum rule requires.

/// Available votes, and the number required for both an election and a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AvailableVotes {
    pub available: u64,
    pub required: u64,
    /// Set if the available votes are no quorum, so that nothing can be written.
    pub is_quorum_lost: bool,
    /// Set if a quorum remains after the failure of any one voter.
    pub tolerates_failure: bool,
}

impl AvailableVotes {
    /// Counts votes under a quorum rule. `voters` are the weight of each voter and whether it is
    /// up. If there is a leader, the weight for writes suffices, even if an election would fail.
    pub fn count_votes(
        rule: &str,
        voters: impl Iterator<Item = (u32, bool)>,
        has_leader: bool,
    ) -> Self {
        let (mut all, mut has, mut heaviest) = (0, 0, 0);
        for (weight, is_up) in voters.map(|(weight, is_up)| (u64::from(weight), is_up)) {
            all += weight;
            if is_up {
                has += weight;
                heaviest = heaviest.max(weight);
            }
        }
        let (elect, write) = required_weights(rule, all);
        let need = elect.max(write);
        let is_lost = has < write || (!has_leader && has < elect);
        Self {
            available: has,
            required: need,
            is_quorum_lost: all > 0 && is_lost,
            tolerates_failure: has - heaviest >= need,
        }
    }

    /// Returns a sentence stating that the quorum is lost.
    pub fn lost_quorum_text(self) -> String {
        let Self { available: has, required: need, .. } = self;
        format!("Quorum lost: {has} of {need} needed votes available. Nothing is written.")
    }
}

/// Returns how many voters may fail, in any combination, without losing the quorum.
pub fn tolerated_failures(rule: &str, weights: &[u32]) -> usize {
    let mut weights: Vec<u64> = weights.iter().copied().map(u64::from).collect();
    weights.sort_unstable_by_key(|weight| std::cmp::Reverse(*weight));
    let mut has = weights.iter().sum();
    let (elect, write) = required_weights(rule, has);
    let fails = weights.iter().take_while(|weight| {
        has -= **weight;
        has >= elect.max(write)
    });
    fails.count()
}

/// Returns the weights required for an election and for a write under a quorum rule. `all` is the
/// total weight.
fn required_weights(rule: &str, all: u64) -> (u64, u64) {
    let flexible = rule.strip_prefix("flexible:");
    let parts = flexible.and_then(|parts| parts.split_once(','));
    let read = parts.and_then(|(elect, write)| Some((elect.parse().ok()?, write.parse().ok()?)));
    let majority = all / 2 + 1;
    read.unwrap_or((majority, majority))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_votes_are_compared_with_the_quorum_rule() {
        let count = |rule, voters: &[(u32, bool)], has_leader| {
            let votes = AvailableVotes::count_votes(rule, voters.iter().copied(), has_leader);
            (votes.available, votes.required, votes.is_quorum_lost, votes.tolerates_failure)
        };
        let (up, down) = ((1, true), (1, false));
        assert_eq!(count("majority", &[up, up, up], true), (3, 2, false, true));
        assert_eq!(count("majority", &[up, up, down], false), (2, 2, false, false));
        assert_eq!(count("majority", &[up, down, down], true), (1, 2, true, false));
        assert_eq!(count("flexible:3,1", &[up, down, down], true), (1, 3, false, false));
        assert_eq!(count("flexible:3,1", &[up, down, down], false), (1, 3, true, false));
        assert_eq!(count("majority", &[(5, true), up, up], true), (7, 4, false, false));
        assert!(!count("majority", &[], false).2, "nothing is known about the voters");
        assert_eq!(required_weights("flexible:x", 5), (3, 3));
    }

    #[test]
    fn survivable_failures_assume_the_heaviest_voters() {
        let survived = [&[1][..], &[1, 1], &[1, 1, 1], &[1; 5], &[1, 2, 1, 1], &[]];
        assert_eq!(survived.map(|all| tolerated_failures("majority", all)), [0, 0, 1, 2, 1, 0]);
        assert_eq!(tolerated_failures("flexible:2,4", &[1; 5]), 1);
    }
}
