//! Reloads certificates whose files have changed, so that they can be replaced while the node runs.
//! Logs warnings before a certificate expires and errors afterwards.

use std::{
    io,
    time::{SystemTime, UNIX_EPOCH},
};

use quorate::NodeTrust;
use quorate_admin::certificates::{CertificateState, CertificateView, format_utc};
use quorate_tls::names::NodeName;
use tracing::Level;

use crate::watched;

/// Minimum interval between log lines about the same certificate problem, in seconds.
const REPEAT_INTERVAL_S: i64 = 24 * 3600;

/// Starts a thread that reloads and checks the certificates.
pub(crate) fn reload_in_background(trust: NodeTrust) -> io::Result<()> {
    let mut told = LastLogged::default();
    told.log_changes(&trust, unix_now_s(), false);
    watched::follow("certificates", "certificates", move || {
        let changed = trust.reload()?;
        if changed {
            tracing::info!("certificates reloaded: new connections use them");
        }
        told.log_changes(&trust, unix_now_s(), changed);
        Ok::<_, quorate_tls::TlsFilesError>(())
    })
}

/// States of all certificates when last logged, and the time of that.
#[derive(Debug, Default)]
struct LastLogged {
    states: Vec<CertificateState>,
    at_s: i64,
}

impl LastLogged {
    /// Logs the state of all certificates if it changed or a day has passed.
    fn log_changes(&mut self, trust: &NodeTrust, now_s: i64, changed: bool) {
        let expiries = trust.expiries();
        let certificates = expiries.iter().map(|expiry| (expiry.purpose, expiry.validity));
        let views = CertificateView::views_of_all(certificates, now_s);
        let states = views.iter().map(|view| view.state).collect();
        if !self.should_log(states, now_s, changed) {
            return;
        }
        for (expiry, view) in expiries.iter().zip(&views) {
            if let Some(line) = CertificateLogLine::from_view(view, trust.own_name()) {
                line.log(view, &expiry.file);
            }
        }
    }

    fn should_log(&mut self, states: Vec<CertificateState>, now_s: i64, changed: bool) -> bool {
        let due = changed || states != self.states || now_s - self.at_s >= REPEAT_INTERVAL_S;
        if due {
            (self.states, self.at_s) = (states, now_s);
        }
        due
    }
}

/// Log line about the state of one certificate.
#[derive(Debug, PartialEq, Eq)]
struct CertificateLogLine {
    level: Level,
    text: String,
}

impl CertificateLogLine {
    /// Returns the log line for a certificate, or `None` if the certificate is valid.
    fn from_view(view: &CertificateView, own: &NodeName) -> Option<Self> {
        let breaks = view.failing_operations();
        let (command, put) = view.renewal_command(own);
        let create = format!("create a new one with '{command}' and {put}");
        let (level, text) = match view.state {
            CertificateState::Valid => return None,
            CertificateState::ExpiresSoon => (
                Level::WARN,
                "a certificate expires soon; no peer or client can connect once it has expired"
                    .to_owned(),
            ),
            CertificateState::Superseded => (
                Level::WARN,
                "the previous certificate of an authority has expired; renew what it still signs"
                    .to_owned(),
            ),
            CertificateState::NotYetValid => (
                Level::ERROR,
                format!(
                    "a certificate is not valid yet: {breaks}; check the clock of this machine, or {create}"
                ),
            ),
            CertificateState::Expired => {
                (Level::ERROR, format!("a certificate has expired: {breaks}; {create}"))
            }
        };
        Some(Self { level, text })
    }

    fn log(&self, view: &CertificateView, file: &str) {
        let (what, text) = (&*view.what, &*self.text);
        let (begins, ends) = (format_utc(view.begins_unix_s), format_utc(view.ends_unix_s));
        match view.state {
            CertificateState::NotYetValid => tracing::error!(what, file, begins, "{text}"),
            CertificateState::Expired => tracing::error!(what, file, since = ends, "{text}"),
            CertificateState::Superseded => tracing::warn!(what, file, since = ends, "{text}"),
            _ => tracing::warn!(what, file, days = view.days_left, "{text}"),
        }
    }
}

/// Returns the current Unix time.
pub(crate) fn unix_now_s() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    i64::try_from(now.unwrap_or_default().as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use quorate_tls::Validity;

    use super::*;

    const DAY_S: i64 = 24 * 3600;

    fn line(what: &str, begins: i64, ends: i64) -> Option<CertificateLogLine> {
        let valid = Validity { begins_unix_s: begins * DAY_S, ends_unix_s: ends * DAY_S };
        let own = NodeName { cluster: "orders".to_owned(), node: 1 };
        CertificateLogLine::from_view(&CertificateView::view_at(what, valid, 100 * DAY_S), &own)
    }

    /// Every line is listed in docs/operate/log-lines.md.
    #[test]
    fn each_log_line_is_documented() {
        let book = include_str!("../../../../docs/operate/log-lines.md");
        assert_eq!(line("node", 0, 300), None);
        let lines = [
            line("node", 0, 110),
            line("node", 0, 99),
            line("nodes' authority", 0, 99),
            line("server", 101, 300),
        ];
        for line in lines.map(Option::unwrap) {
            let head = line.text.split([':', ';']).next().unwrap();
            let row = format!("| {} | {head}", line.level.as_str().to_lowercase());
            assert!(book.contains(&row), "docs/operate/log-lines.md lacks {row:?}");
        }
    }

    #[test]
    fn expired_certificate_is_logged_as_an_error_with_a_remedy() {
        let expired = line("node", 0, 99).unwrap();
        assert_eq!(expired.level, Level::ERROR);
        assert_eq!(
            expired.text,
            "a certificate has expired: running connections continue, but other nodes refuse new ones; create a new \
             one with 'quorate cert node 1 --renew --host HOST' and copy its folder to the node, which reloads it \
             while running"
        );
        assert_eq!(line("node", 0, 100).unwrap().level, Level::WARN);
    }

    /// The state is logged once a day, and at once when a certificate expires or files change.
    #[test]
    fn state_is_logged_on_change_and_once_a_day() {
        let mut told = LastLogged::default();
        let mut is_due = |state, now_s, changed| told.should_log(vec![state], now_s, changed);
        assert!(is_due(CertificateState::ExpiresSoon, 1_000_000, false));
        assert!(!is_due(CertificateState::ExpiresSoon, 1_000_001, false));
        assert!(is_due(CertificateState::Expired, 1_000_002, false));
        assert!(!is_due(CertificateState::Expired, 1_000_003, false));
        assert!(is_due(CertificateState::Expired, 1_000_004, true));
        assert!(!is_due(CertificateState::Expired, 1_086_403, false));
        assert!(is_due(CertificateState::Expired, 1_086_404, false));
    }
}
