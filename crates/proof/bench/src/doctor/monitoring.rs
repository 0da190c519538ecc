//! One line for monitoring in the format of Nagios plugins: a state, a summary, and figures.
//!
//! The worst finding determines the state. Findings that affect only unused planes do not count,
//! nor do those that the user excludes by name. Unknown findings count only if there are no other
//! findings.

use crate::doctor::{
    examination::Report,
    finding::{Finding, FindingState},
    flushes::SLOW_US,
    plane::Plane,
    trips,
};

const NAMED_FINDINGS_MAX: usize = 5;
/// Maximum number of certificates for which a line contains a figure.
const CERTIFICATES_MAX: usize = 32;

/// Line for a monitoring system, with its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckResult {
    /// Worst state of the findings that are not ignored and concern a plane in use, or no plane.
    /// Unknown states count only if no finding is ok.
    pub state: FindingState,
    /// Text of the line, without a line break.
    pub line: String,
}

/// Returns the exit code that Nagios defines for a state.
pub const fn nagios_exit_code(state: FindingState) -> u8 {
    match state {
        FindingState::Ok => 0,
        FindingState::Warning => 1,
        FindingState::Failing => 2,
        FindingState::Unknown => 3,
    }
}

const fn state_word(state: FindingState) -> &'static str {
    match state {
        FindingState::Ok => "OK",
        FindingState::Warning => "WARNING",
        FindingState::Failing => "CRITICAL",
        FindingState::Unknown => "UNKNOWN",
    }
}

/// Returns the result for an examination that produced no report.
pub fn without_report(state: FindingState, what: &str) -> CheckResult {
    CheckResult { state, line: format!("QUORATE {} - {}", state_word(state), escape_text(what)) }
}

/// Evaluates a report. Ignores findings whose names are listed in `ignored`.
pub fn summarize(report: &Report, ignored: &[String]) -> CheckResult {
    let used = planes_in_use(report);
    let counts = |finding: &&Finding| {
        let matters =
            finding.about.is_empty() || finding.about.iter().any(|plane| used.contains(plane));
        matters && !ignored.contains(&finding.name)
    };
    let counted: Vec<&Finding> = report.findings.iter().filter(counts).collect();
    let of = |state| {
        let of_state = counted.iter().filter(move |finding| finding.state == state);
        of_state.copied().collect::<Vec<&Finding>>()
    };
    let (ok, warning) = (of(FindingState::Ok), of(FindingState::Warning));
    let (failing, unknown) = (of(FindingState::Failing), of(FindingState::Unknown));
    // A plane blocked by an ignored finding does not count as blocked.
    let blocked = counted.iter().any(|finding| {
        finding.blocks && finding.state != FindingState::Ok && finding.about.contains(&Plane::Tcp)
    });
    let state = match () {
        () if blocked || !failing.is_empty() => FindingState::Failing,
        () if !warning.is_empty() => FindingState::Warning,
        () if !ok.is_empty() || unknown.is_empty() => FindingState::Ok,
        () => FindingState::Unknown,
    };
    let named: Vec<&Finding> = match state {
        FindingState::Unknown => unknown.clone(),
        _ => failing.iter().chain(&warning).copied().collect(),
    };
    let what = match named.len() {
        0 => format!("{} of {} findings are ok", ok.len(), counted.len()),
        count => {
            let mut all: Vec<String> = named
                .iter()
                .take(NAMED_FINDINGS_MAX)
                .map(|finding| format!("{}: {}", finding.name, finding.what))
                .collect();
            if count > NAMED_FINDINGS_MAX {
                all.push(format!("{} more", count - NAMED_FINDINGS_MAX));
            }
            all.join("; ")
        }
    };
    let counts = [("ok", ok), ("warning", warning), ("failing", failing), ("unknown", unknown)];
    let mut figures: Vec<String> =
        counts.into_iter().map(|(name, all)| format!("{name}={}", all.len())).collect();
    figures.extend(performance_data(report));
    let told = without_report(state, &what);
    CheckResult { line: format!("{} | {}", told.line, figures.join(" ")), ..told }
}

/// Returns the planes in use as reported by members. TCP is always included.
fn planes_in_use(report: &Report) -> Vec<Plane> {
    let trips = report.trips.as_deref().unwrap_or_default();
    let has = |plane: &Plane| trips.iter().any(|trip| trip.way == plane.name());
    let mut used: Vec<Plane> = Plane::ALL.into_iter().filter(has).collect();
    used.push(Plane::Tcp);
    used.extend(trips::most_common_plane(trips));
    used
}

/// Formats the figures, with their thresholds if they have any.
fn performance_data(report: &Report) -> Vec<String> {
    let mut all = Vec::new();
    if let Some(flushes) = &report.flushes {
        all.push(format!(
            "flush_us={:.0};{SLOW_US:.0} flush_p99_us={:.0}",
            flushes.quietest_us, flushes.p99_us
        ));
    }
    if let Some(room) = &report.room {
        let least = room.least_bytes;
        all.push(format!("free_bytes={}B;{least}:", room.free_bytes));
    }
    let soon = quorate_admin::certificates::EXPIRY_WARNING_DAYS;
    let certificates = report.certificates.iter().take(CERTIFICATES_MAX);
    all.extend(certificates.map(|certificate| {
        let label = format!("days_left {} {}", certificate.of, certificate.what);
        let label: String =
            label.chars().filter(|c| !matches!(c, '\'' | '=' | '|') && !c.is_control()).collect();
        format!("'{label}'={};{soon}:;0:", certificate.days_left)
    }));
    all
}

/// Replaces characters that have a meaning in the format of a line.
fn escape_text(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '|' => '/',
            c if c.is_control() => ' ',
            c => c,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::{
        certificates::Certificate, disk::DiskSpace, examination::tests::report,
        flushes::FlushTimes, trips::MemberPath,
    };

    fn of(findings: &[Finding]) -> Report {
        let mut report = report();
        report.findings = findings.to_vec();
        report
    }

    fn told(findings: &[Finding]) -> (FindingState, String) {
        let told = summarize(&of(findings), &[]);
        (told.state, told.line)
    }

    #[test]
    fn state_is_that_of_the_worst_finding() {
        let (ok, unknown) = (Finding::ok("a", "x"), Finding::unknown("u", "?", "h"));
        let warning = Finding::warning("w", "so so", "h");
        let failing = Finding::failing("f", "bad", "h");
        assert_eq!(
            told(&[ok.clone(), unknown.clone()]),
            (
                FindingState::Ok,
                "QUORATE OK - 1 of 2 findings are ok | ok=1 warning=0 failing=0 unknown=1".into()
            )
        );
        assert_eq!(
            told(&[warning.clone(), ok.clone()]),
            (
                FindingState::Warning,
                "QUORATE WARNING - w: so so | ok=1 warning=1 failing=0 unknown=0".into()
            )
        );
        let (state, line) = told(&[warning, ok, failing, unknown.clone()]);
        assert_eq!(state, FindingState::Failing);
        assert!(line.starts_with("QUORATE CRITICAL - f: bad; w: so so | "), "{line}");
        let (state, line) = told(&[unknown]);
        assert_eq!(state, FindingState::Unknown);
        assert!(line.starts_with("QUORATE UNKNOWN - u: ? | "), "{line}");
        assert_eq!(
            [FindingState::Ok, FindingState::Warning, FindingState::Failing, FindingState::Unknown]
                .map(nagios_exit_code),
            [0, 1, 2, 3]
        );
    }

    #[test]
    fn unused_planes_and_excluded_findings_do_not_count() {
        let ethernet = Finding::warning("raw", "no", "h").blocking(&[Plane::Ethernet]);
        let fine = Finding::ok("a", "x");
        let mut report = of(&[ethernet, fine]);
        assert_eq!(summarize(&report, &[]).state, FindingState::Ok);
        report.trips = Some(vec![MemberPath {
            from: 1,
            to: 2,
            connected: true,
            way: "ethernet".to_owned(),
            frames: None,
            rtt_us: None,
            why: String::new(),
        }]);
        assert_eq!(summarize(&report, &[]).state, FindingState::Warning);
        assert_eq!(summarize(&report, &["raw".to_owned()]).state, FindingState::Ok);
        let blocked = of(&[Finding::warning("t", "no", "h").blocking(&[Plane::Tcp])]);
        assert_eq!(summarize(&blocked, &[]).state, FindingState::Failing, "nothing works without");
    }

    #[test]
    fn output_is_one_line_with_one_bar_for_any_finding() {
        let many =
            ["1", "2", "3", "4", "5", "6", "7"].map(|name| Finding::warning(name, "a | b\nc", "h"));
        let (_, line) = told(&many);
        assert_eq!(line.matches('|').count(), 1, "{line}");
        assert_eq!(line.lines().count(), 1);
        assert!(line.contains("5: a / b c; 2 more | "), "{line}");
    }

    #[test]
    fn performance_data_has_thresholds() {
        let mut report = of(&[]);
        report.flushes =
            Some(FlushTimes { quietest_us: 812.4, p99_us: 2000.0, ..FlushTimes::default() });
        report.room = Some(DiskSpace { free_bytes: 5, least_bytes: 7, free_inodes: None });
        report.certificates = vec![Certificate {
            of: "node 1".to_owned(),
            what: "nodes' authority".to_owned(),
            days_left: -2,
        }];
        let line = summarize(&report, &[]).line;
        assert!(
            line.ends_with(
                "flush_us=812;20000 flush_p99_us=2000 free_bytes=5B;7: 'days_left node 1 nodes authority'=-2;30:;0:"
            ),
            "{line}"
        );
    }
}
