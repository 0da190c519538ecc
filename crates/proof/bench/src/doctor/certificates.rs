//! Examines certificates: those in a folder, together with their keys, and those presented by
//! running nodes. No part of a key is retained.

use std::{
    cmp::Reverse,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use quorate_admin::{
    certificates::{CertificateState, CertificateView},
    view::{Answer, ClusterView},
};
use quorate_tls::{ClientFiles, ClientTrust, NodeFiles, NodeTrust, read_validities};
use serde::Serialize;

use crate::doctor::finding::Finding;

const RENEW_HINT: &str = "create a new one with 'quorate cert': the node reloads it while running";
const NOT_YET_HINT: &str = "check the clock of this machine, or create a new one with 'quorate cert': the node reloads \
                            it while running";
/// File mode bit that lets every account on the machine read the file.
const OTHERS_READ_MODE: u32 = 0o004;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Certificate {
    /// `folder`, or the node that presents the certificate.
    pub of: String,
    /// File name of the certificate, or the name that the node reports for it.
    pub what: String,
    /// Number of whole days until expiry; negative if the certificate has expired.
    pub days_left: i64,
}

#[derive(Clone, Debug, Default)]
pub struct CertificateExamination {
    /// One finding per file and per node.
    pub findings: Vec<Finding>,
    pub certificates: Vec<Certificate>,
}

/// Examines the files in a node's or client's certificate folder.
pub fn examine_folder(folder: &Path) -> CertificateExamination {
    let (certificates, keys) = if folder.join("node.crt").exists() {
        (
            &["node.crt", "server.crt", "ca.crt", "clients-ca.crt"][..],
            &["node.key", "server.key"][..],
        )
    } else {
        (&["client.crt", "clients-ca.crt"][..], &["client.key"][..])
    };
    let now = now_unix_s();
    let mut examined = CertificateExamination::default();
    for file in certificates {
        let found = match read_validities(&folder.join(file)) {
            Ok(all) => {
                let what = reported_name(file);
                let views =
                    CertificateView::views_of_all(all.iter().map(|valid| (what, *valid)), now);
                let worst = worst_certificate(&views).expect("a file that can be used has one");
                examined.certificates.push(Certificate {
                    of: "folder".to_owned(),
                    what: (*file).to_owned(),
                    days_left: worst.days_left,
                });
                certificate_finding(&format!("certificate {file}"), "it", worst)
            }
            Err(bad) => {
                let hint = bad.hint();
                Finding::failing(&format!("certificate {file}"), "cannot be used", hint)
                    .with_detail(bad.to_string())
            }
        };
        examined.findings.push(found);
    }
    examined.findings.extend(keys.iter().map(|file| key(folder, file)));
    examined.findings.push(matching_finding(folder));
    examined
}

/// Examines the certificates presented by each running node.
pub fn examine_nodes(cluster: &ClusterView) -> CertificateExamination {
    let mut examined = CertificateExamination::default();
    for view in cluster.nodes.iter().filter_map(Answer::node_view) {
        let of = format!("node {}", view.node);
        if let Some(worst) = worst_certificate(&view.certificates) {
            let name = format!("certificates of {of}");
            let which = format!("that of the {}", worst.what);
            examined.findings.push(certificate_finding(&name, &which, worst));
        }
        examined.certificates.extend(view.certificates.iter().map(|one| Certificate {
            of: of.clone(),
            what: one.what.clone(),
            days_left: one.days_left,
        }));
    }
    examined
}

/// Returns the name that nodes report for a certificate file.
fn reported_name(file: &str) -> &str {
    match file {
        "node.crt" => "node",
        "server.crt" => "server",
        "ca.crt" => "nodes' authority",
        "clients-ca.crt" => "clients' authority",
        other => other,
    }
}

/// Returns the certificate that needs attention first.
fn worst_certificate(all: &[CertificateView]) -> Option<&CertificateView> {
    all.iter().min_by_key(|one| (Reverse(one.state), one.ends_unix_s))
}

fn certificate_finding(name: &str, which: &str, view: &CertificateView) -> Finding {
    let days = view.days_left;
    if let Some(since) = view.invalidity_period() {
        let what = format!("{which} {since}: running connections continue, new ones are refused");
        let hint = match view.state {
            CertificateState::NotYetValid => NOT_YET_HINT,
            _ => RENEW_HINT,
        };
        return Finding::failing(name, what, hint);
    }
    match view.state {
        CertificateState::ExpiresSoon => {
            Finding::warning(name, format!("{which} expires in {days} days"), RENEW_HINT)
        }
        CertificateState::Superseded => Finding::warning(
            name,
            format!("{which} has expired, next to a valid one"),
            "renew what the previous authority still signs, with 'quorate cert'",
        ),
        _ => Finding::ok(name, format!("{which} expires in {days} days")),
    }
}

/// Checks whether other accounts can read a key file. The key itself is examined together with its
/// certificate.
fn key(folder: &Path, file: &str) -> Finding {
    let name = format!("key {file}");
    let path = folder.join(file);
    match fs::metadata(&path) {
        Ok(data) if data.permissions().mode() & OTHERS_READ_MODE != 0 => {
            let mode = data.permissions().mode() & 0o777;
            let hint = format!(
                "chmod 600 {}, and replace the key if anyone else has an account here",
                path.display()
            );
            Finding::warning(
                &name,
                format!("readable by everyone on this machine: mode {mode:03o}"),
                hint,
            )
        }
        Ok(data) => {
            let mode = data.permissions().mode() & 0o777;
            Finding::ok(&name, format!("mode {mode:03o}"))
        }
        Err(error) => {
            let hint = "run doctor as the user of the node; 'quorate cert' creates these files";
            Finding::failing(&name, "cannot be read", hint).with_detail(error.to_string())
        }
    }
}

/// Checks whether certificates, keys and names match, with the check that a node or client runs on
/// startup.
fn matching_finding(folder: &Path) -> Finding {
    let name = "certificates";
    let loaded = if folder.join("node.crt").exists() {
        NodeTrust::load(NodeFiles::in_folder(folder))
            .map(|trust| format!("of {}", trust.own_name()))
    } else {
        ClientTrust::load(&ClientFiles::in_folder(folder)).map(|_| "of a client".to_owned())
    };
    match loaded {
        Ok(whose) => Finding::ok(name, whose),
        Err(bad) => {
            let hint = bad.hint();
            Finding::failing(name, "the files do not fit together", hint)
                .with_detail(bad.to_string())
        }
    }
}

fn now_unix_s() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    i64::try_from(now.unwrap_or_default().as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use quorate_tls::{Validity, authority};

    use super::*;
    use crate::doctor::{finding::FindingState, nodes::tests::view};

    fn made(days: u32) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join("authority");
        authority::create_authorities(&at, "blue", 400, false).unwrap();
        let own =
            authority::issue_node_certificates(&at, 2, &["localhost".to_owned()], days, false)
                .unwrap();
        (folder, own)
    }

    fn of<'a>(examined: &'a CertificateExamination, name: &str) -> &'a Finding {
        let mut all = examined.findings.iter();
        all.find(|finding| finding.name == name).unwrap()
    }

    #[test]
    fn each_certificate_file_of_a_node_is_checked() {
        let (_folder, own) = made(10);
        let examined = examine_folder(&own);
        let names: Vec<_> = examined.findings.iter().map(|finding| &*finding.name).collect();
        assert_eq!(
            names,
            [
                "certificate node.crt",
                "certificate server.crt",
                "certificate ca.crt",
                "certificate clients-ca.crt",
                "key node.key",
                "key server.key",
                "certificates",
            ]
        );
        assert_eq!(of(&examined, "certificate node.crt").state, FindingState::Warning);
        assert_eq!(of(&examined, "certificate ca.crt").state, FindingState::Ok);
        assert_eq!(of(&examined, "key node.key").state, FindingState::Ok);
        let whose = of(&examined, "certificates");
        assert_eq!(
            (whose.state, &*whose.what),
            (FindingState::Ok, "of node-2.blue.quorate.internal")
        );
        assert_eq!(examined.certificates.len(), 4);
    }

    #[test]
    fn readable_keys_and_mismatched_certificates_are_reported() {
        let (folder, own) = made(400);
        let key = own.join("node.key");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
        let examined = examine_folder(&own);
        assert_eq!(of(&examined, "key node.key").state, FindingState::Warning);
        let authority = folder.path().join("authority");
        let other = authority::issue_node_certificates(&authority, 3, &[], 400, false).unwrap();
        fs::copy(other.join("node.key"), &key).unwrap();
        assert_eq!(of(&examine_folder(&own), "certificates").state, FindingState::Failing);
        fs::write(own.join("node.crt"), "nonsense").unwrap();
        fs::remove_file(&key).unwrap();
        let examined = examine_folder(&own);
        for name in ["certificate node.crt", "key node.key", "certificates"] {
            let found = of(&examined, name);
            assert!(found.state == FindingState::Failing && !found.hint.is_empty(), "{found:?}");
        }
    }

    #[test]
    fn client_folder_is_checked_and_an_empty_one_fails() {
        let (folder, _) = made(400);
        let authority = folder.path().join("authority");
        let client = authority::issue_client_certificate(&authority, "ann", 400, false).unwrap();
        for finding in examine_folder(&client).findings {
            assert_eq!(finding.state, FindingState::Ok, "{finding:?}");
        }
        let empty = tempfile::tempdir().unwrap();
        for finding in examine_folder(empty.path()).findings {
            assert_eq!(finding.state, FindingState::Failing, "{finding:?}");
        }
    }

    #[test]
    fn expiry_of_a_certificate_is_reported_in_time() {
        let day = 24 * 3600;
        let lasts =
            |from: i64, to: i64| Validity { begins_unix_s: from * day, ends_unix_s: to * day };
        let of =
            |valid| certificate_finding("a", "it", &CertificateView::view_at("server", valid, 0));
        let state = |days| of(lasts(-1, days)).state;
        assert_eq!(state(-1), FindingState::Failing);
        let expired = of(lasts(-9, -1)).what;
        assert!(expired.starts_with("it expired on"), "{expired}");
        let early = of(lasts(1, 9));
        assert!(early.state == FindingState::Failing && early.hint.contains("clock"));
        assert_eq!(
            (state(0), state(29), state(30)),
            (FindingState::Warning, FindingState::Warning, FindingState::Ok)
        );
        let mut shown = view(2);
        shown.certificates =
            [90, 5].map(|days| CertificateView::view_at("server", lasts(-1, days), 0)).to_vec();
        let cluster =
            ClusterView::new(vec![Answer::Node(Box::new(view(1))), Answer::Node(Box::new(shown))]);
        let examined = examine_nodes(&cluster);
        let [found] = &examined.findings[..] else { panic!("{examined:?}") };
        assert_eq!((&*found.name, found.state), ("certificates of node 2", FindingState::Warning));
        assert_eq!(found.what, "that of the server expires in 5 days");
        assert_eq!(examined.certificates.len(), 2);
    }
}
