//! Validity of a node's certificates, and the warnings and errors derived from it.

use quorate_tls::{Validity, names::NodeName};
use serde::{Deserialize, Serialize};

use crate::units;

/// Number of days before expiry at which warnings start.
pub const EXPIRY_WARNING_DAYS: i64 = 30;
const DAY_SECONDS: i64 = 24 * 3600;
/// Suffix that marks an authority's name in [`CertificateView::what`].
const AUTHORITY_SUFFIX: &str = "authority";

/// Validity of a certificate, ordered from best to worst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CertificateState {
    #[default]
    Valid,
    /// The certificate is valid, but fewer than [`EXPIRY_WARNING_DAYS`] days are left.
    ExpiresSoon,
    /// The certificate is an expired authority that a valid one has replaced.
    Superseded,
    NotYetValid,
    Expired,
}

/// JSON form of a certificate's validity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateView {
    /// Use of the certificate: `node`, `server`, `nodes' authority` or `clients' authority`.
    pub what: String,
    /// First second of validity, in Unix time.
    #[serde(default)]
    pub begins_unix_s: i64,
    /// Last second of validity, in Unix time.
    pub ends_unix_s: i64,
    /// Number of full days until expiry. Negative once expired.
    pub days_left: i64,
    #[serde(default)]
    pub state: CertificateState,
}

/// Returns the number of full days until expiry, rounded down. Negative once expired.
pub const fn days_left(ends_unix_s: i64, now_unix_s: i64) -> i64 {
    (ends_unix_s - now_unix_s).div_euclid(DAY_SECONDS)
}

/// Formats a Unix time as a date and time in UTC.
pub fn format_utc(unix_s: i64) -> String {
    let at = u64::try_from(unix_s).unwrap_or_default();
    let (hour, minute, second) = (at / 3600 % 24, at / 60 % 60, at % 60);
    format!("{} {hour:02}:{minute:02}:{second:02} UTC", units::format_date(at))
}

impl CertificateView {
    /// Creates the view of a certificate as of `now_unix_s`. `what` is its use.
    pub fn view_at(what: &str, valid: Validity, now_unix_s: i64) -> Self {
        let days_left = days_left(valid.ends_unix_s, now_unix_s);
        let state = match () {
            () if days_left < 0 => CertificateState::Expired,
            () if valid.begins_unix_s > now_unix_s => CertificateState::NotYetValid,
            () if days_left < EXPIRY_WARNING_DAYS => CertificateState::ExpiresSoon,
            () => CertificateState::Valid,
        };
        Self {
            what: what.to_owned(),
            begins_unix_s: valid.begins_unix_s,
            ends_unix_s: valid.ends_unix_s,
            days_left,
            state,
        }
    }

    /// Creates the views of all certificates of a node or client. An expired authority is
    /// superseded if another one of the same kind is valid.
    pub fn views_of_all<'a>(
        certificates: impl IntoIterator<Item = (&'a str, Validity)>,
        now_unix_s: i64,
    ) -> Vec<Self> {
        let certificates = certificates.into_iter();
        let mut all: Vec<_> =
            certificates.map(|(what, valid)| Self::view_at(what, valid, now_unix_s)).collect();
        let serves = |view: &Self| view.state <= CertificateState::ExpiresSoon;
        let served: Vec<String> = all
            .iter()
            .filter(|view| view.is_authority() && serves(view))
            .map(|view| view.what.clone())
            .collect();
        for view in &mut all {
            if view.state == CertificateState::Expired && served.contains(&view.what) {
                view.state = CertificateState::Superseded;
            }
        }
        all
    }

    fn is_authority(&self) -> bool {
        self.what.ends_with(AUTHORITY_SUFFIX)
    }

    /// Returns a warning if the certificate is still usable but needs attention.
    pub fn warning(&self) -> Option<String> {
        let Self { what, days_left, .. } = self;
        match self.state {
            CertificateState::ExpiresSoon => Some(format!(
                "the certificate of the {what} expires in {days_left} days; create a new one with 'quorate cert': the node reloads it while running"
            )),
            CertificateState::Superseded => Some(format!(
                "the previous certificate of the {what} expired on {}: renew what it still signs with 'quorate cert node' and 'quorate cert client'",
                format_utc(self.ends_unix_s)
            )),
            CertificateState::Valid | CertificateState::NotYetValid | CertificateState::Expired => {
                None
            }
        }
    }

    /// Returns the error about a certificate that is not valid now, with its cause, consequence and
    /// remedy. `own` is the node that uses the certificate.
    pub fn error(&self, own: &NodeName) -> Option<String> {
        let what = &self.what;
        let (since, breaks) = (self.invalidity_period()?, self.failing_operations());
        let clock = match self.state {
            CertificateState::NotYetValid => "check the clock of this machine, or ",
            _ => "",
        };
        let (command, put) = self.renewal_command(own);
        Some(format!(
            "the certificate of the {what} {since}: {breaks}; {clock}create a new one with '{command}' and {put}"
        ))
    }

    /// Describes since when, or until when, the certificate is invalid. Returns `None` if it is
    /// valid.
    pub fn invalidity_period(&self) -> Option<String> {
        match self.state {
            CertificateState::Expired => {
                Some(format!("expired on {}", format_utc(self.ends_unix_s)))
            }
            CertificateState::NotYetValid => {
                let begins = format_utc(self.begins_unix_s);
                Some(format!("is not valid until {begins}"))
            }
            CertificateState::Valid
            | CertificateState::ExpiresSoon
            | CertificateState::Superseded => None,
        }
    }

    /// Describes the operations that fail without a valid certificate.
    pub fn failing_operations(&self) -> &'static str {
        match &*self.what {
            "node" => "running connections continue, but other nodes refuse new ones",
            "server" => "running connections continue, but clients and operators refuse new ones",
            // Nodes check the dates of the certificates that an authority signed, but not its own.
            _ => {
                "running connections continue, but redis-cli, curl and others that check an authority's dates refuse new ones"
            }
        }
    }

    /// Returns the command that creates a new certificate, and instructions for installing its
    /// files.
    pub fn renewal_command(&self, own: &NodeName) -> (String, &'static str) {
        let NodeName { cluster, node } = own;
        match self.is_authority() {
            true => (
                format!("quorate cert init --cluster {cluster} --renew"),
                "copy ca.crt and clients-ca.crt to all nodes, which reload them while running",
            ),
            false => (
                format!("quorate cert node {node} --renew --host HOST"),
                "copy its folder to the node, which reloads it while running",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_767_225_600;

    fn lasts(from_days: i64, to_days: i64) -> Validity {
        Validity {
            begins_unix_s: NOW + from_days * DAY_SECONDS,
            ends_unix_s: NOW + to_days * DAY_SECONDS + 5,
        }
    }

    fn own() -> NodeName {
        NodeName { cluster: "orders".to_owned(), node: 2 }
    }

    #[test]
    fn expiry_is_announced_thirty_days_before() {
        let at = |days: i64| CertificateView::view_at("node", lasts(-1, days), NOW);
        assert_eq!((at(30).warning(), at(30).state), (None, CertificateState::Valid));
        for days in [29, 0] {
            let warning = at(days).warning().unwrap();
            assert!(warning.contains(&format!("in {days} days")), "{warning}");
            assert_eq!(at(days).error(&own()), None);
        }
        let last = Validity { ends_unix_s: NOW, ..lasts(-1, 0) };
        assert_eq!(
            CertificateView::view_at("node", last, NOW).state,
            CertificateState::ExpiresSoon
        );
        assert_eq!(
            CertificateView::view_at("node", last, NOW + 1).state,
            CertificateState::Expired
        );
    }

    #[test]
    fn invalid_certificate_is_an_error_with_a_remedy() {
        let error = |what: &str, from, to| {
            let view = CertificateView::view_at(what, lasts(from, to), NOW);
            assert_eq!(view.warning(), None);
            view.error(&own()).unwrap()
        };
        assert_eq!(
            error("node", -400, -1),
            "the certificate of the node expired on 2025-12-31 00:00:05 UTC: running connections continue, but other \
             nodes refuse new ones; create a new one with 'quorate cert node 2 --renew --host HOST' and copy its \
             folder to the node, which reloads it while running"
        );
        assert_eq!(
            error("server", 1, 400),
            "the certificate of the server is not valid until 2026-01-02 00:00:00 UTC: running connections continue, \
             but clients and operators refuse new ones; check the clock of this machine, or create a new one with \
             'quorate cert node 2 --renew --host HOST' and copy its folder to the node, which reloads it while running"
        );
        let authority = error("clients' authority", -400, -1);
        assert!(authority.contains("'quorate cert init --cluster orders --renew'"));
    }

    /// Once an authority has been replaced, the old one may expire.
    #[test]
    fn expired_authority_with_a_valid_successor_is_a_warning() {
        let states = |of: &[(&'static str, i64)]| {
            let all = of.iter().map(|(what, days)| (*what, lasts(-400, *days)));
            let all = CertificateView::views_of_all(all, NOW);
            all.into_iter().map(|view| view.state).collect::<Vec<_>>()
        };
        let (nodes, clients) = ("nodes' authority", "clients' authority");
        assert_eq!(
            states(&[(nodes, -3), (nodes, 300), (clients, -3), ("node", -3)]),
            [
                CertificateState::Superseded,
                CertificateState::Valid,
                CertificateState::Expired,
                CertificateState::Expired
            ]
        );
        assert_eq!(states(&[("node", -3), ("node", 300)])[0], CertificateState::Expired);
        let all =
            CertificateView::views_of_all([(nodes, lasts(-9, -3)), (nodes, lasts(-9, 300))], NOW);
        assert!(all[0].warning().is_some() && all[0].error(&own()).is_none());
    }

    #[test]
    fn fields_missing_from_older_nodes_have_defaults() {
        let text = r#"{"what": "node", "ends_unix_s": 5, "days_left": 40}"#;
        let view: CertificateView = serde_json::from_str(text).unwrap();
        assert_eq!((view.begins_unix_s, view.state), (0, CertificateState::Valid));
    }
}
