//! When the certificates of a node end.

use serde::{Deserialize, Serialize};

/// Less than this is said to people.
pub const SOON_DAYS: i64 = 30;
const DAY_S: i64 = 24 * 3600;

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateView {
    /// `node`, `server`, `nodes' authority` or `clients' authority`.
    pub what: String,
    /// The last second in which it is valid, since 1970.
    pub ends_unix_s: i64,
    /// Whole days until then; negative afterwards.
    pub days_left: i64,
}

/// Whole days from one second to another, since 1970.
pub const fn days_left(ends_unix_s: i64, now_unix_s: i64) -> i64 {
    (ends_unix_s - now_unix_s).div_euclid(DAY_S)
}

impl CertificateView {
    /// As it looks at this second.
    pub fn at(what: &str, ends_unix_s: i64, now_unix_s: i64) -> Self {
        Self {
            what: what.to_owned(),
            ends_unix_s,
            days_left: days_left(ends_unix_s, now_unix_s),
        }
    }

    /// What people should hear of it, if anything.
    pub fn warning(&self) -> Option<String> {
        let Self {
            what, days_left, ..
        } = self;
        match days_left {
            days if *days < 0 => Some(format!(
                "the certificate of the {what} has expired: connections with it are refused; create a new one with 'quorate cert'"
            )),
            days if *days < SOON_DAYS => Some(format!(
                "the certificate of the {what} expires in {days} days; create a new one with 'quorate cert': the node reloads it while running"
            )),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_said_thirty_days_before() {
        let at = |days: i64| CertificateView::at("node", days * DAY_S + 5, 0);
        assert_eq!(at(30).warning(), None);
        assert!(
            at(29)
                .warning()
                .is_some_and(|text| text.contains("in 29 days"))
        );
        assert!(
            at(0)
                .warning()
                .is_some_and(|text| text.contains("in 0 days"))
        );
        assert!(
            at(-1)
                .warning()
                .is_some_and(|text| text.contains("has expired"))
        );
    }
}
