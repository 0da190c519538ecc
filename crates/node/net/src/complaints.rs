//! Logs each distinct problem once, however often it recurs.

use std::collections::BTreeSet;

/// Maximum number of remembered problems. Remote peers control the number of problems.
const LOGGED_PROBLEMS_MAX: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct LoggedProblems {
    logged: BTreeSet<(String, String)>,
}

impl LoggedProblems {
    /// Returns whether a problem has not been logged yet and should be logged now. Once the limit
    /// is reached, no problem counts as new.
    pub(crate) fn is_new(&mut self, about: &str, what: &str) -> bool {
        if self.logged.len() >= LOGGED_PROBLEMS_MAX {
            return false;
        }
        let new = self.logged.insert((about.to_owned(), what.to_owned()));
        if self.logged.len() == LOGGED_PROBLEMS_MAX {
            tracing::warn!(
                "too many different complaints about peers; further ones are counted but not logged"
            );
        }
        new
    }

    /// Forgets the problems of a subject, so that the next problem is logged again.
    pub(crate) fn forget_subject(&mut self, about: &str) {
        self.logged.retain(|(other, _)| other != about);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problem_is_new_once_and_again_after_it_was_settled() {
        let mut complaints = LoggedProblems::default();
        assert!(complaints.is_new("node 2", "foreign"));
        assert!(!complaints.is_new("node 2", "foreign"));
        assert!(complaints.is_new("node 2", "too new"));
        assert!(complaints.is_new("node 3", "foreign"));
        complaints.forget_subject("node 2");
        assert!(complaints.is_new("node 2", "foreign"));
        assert!(!complaints.is_new("node 3", "foreign"));
    }

    #[test]
    fn number_of_remembered_problems_is_bounded() {
        let mut complaints = LoggedProblems::default();
        let new = (0..10_000).filter(|n| complaints.is_new(&n.to_string(), "noise")).count();
        assert_eq!((new, complaints.logged.len()), (LOGGED_PROBLEMS_MAX, LOGGED_PROBLEMS_MAX));
    }
}
