//! Log lines for operators on standard error: one rate-limited line for each change, with its cause
//! and its meaning.
//!
//! The level states the urgency: error requires action now, warn requires action soon, info reports
//! a change of state. A test writes all lines into `docs/operate/log-lines.md`, next to their
//! meanings.

use quorate_core::{
    ballot::Ballot,
    effect::{Alarm, Role},
    explanation::{BallotEnd, Explanation},
    node_id::NodeId,
    time::Time,
};
use quorate_net::Limiter;
use quorate_node::listener::EventListener;
use quorate_replica::{events::Event, tuner::SettingChange};
use tracing::Level;

use crate::stderr;

/// Interval in milliseconds between log lines of one kind beyond their burst.
const LOG_INTERVAL_MS: u64 = 10_000;
/// Burst for lines about leadership. One election takes up to five lines, and more than a few
/// elections rarely add information.
const LEADERSHIP_BURST: u32 = 20;
const PROGRESS_BURST: u32 = 6;

/// A log line without its time and node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogLine {
    level: Level,
    /// Description of the event. The part before the first colon is the same for all events of one
    /// type.
    text: String,
    ballot: Option<Ballot>,
}

/// Formatter of events as log lines. It remembers facts of earlier events that later lines contain.
#[derive(Debug)]
pub(crate) struct EventFormatter {
    node: NodeId,
    limiter: Limiter<&'static str, LogLine>,
    /// Last known reason for the lack of a leader.
    no_leader_reason: Option<String>,
    /// The last known leader, with its ballot.
    leader: Option<(NodeId, Ballot)>,
    /// Ballot of this node's last campaign, and the time at which it started.
    last_campaign: Option<(Ballot, Time)>,
    lacks_vote: bool,
}

impl EventListener for EventFormatter {
    fn on_notice(&mut self, notice: &str) {
        tracing::error!("{notice}");
    }

    /// Logs a change of settings. Probes last only a few batches and are logged at trace level.
    fn on_tuning_change(&mut self, change: &SettingChange) {
        let SettingChange { from, to, reason } = change;
        if reason.is_probing() {
            tracing::trace!(%from, %to, %reason, "batch and window");
        } else {
            tracing::debug!(%from, %to, %reason, "batch and window changed");
        }
    }

    fn dropped_line_count(&self) -> u64 {
        stderr::dropped_line_count()
    }

    /// Passes the line of an event to the limiter.
    fn on_event(&mut self, now: Time, event: &Event, leads_never: Option<&str>) {
        let Some(line) = self.format_event(now, event, leads_never) else {
            return;
        };
        let (kind, burst) = kind(event);
        if let Some((line, left_out)) = self.limiter.admit_line(now, kind, burst, line) {
            self.write(&line, left_out);
        }
    }

    /// Writes the delayed lines that are due.
    fn end_turn(&mut self, now: Time) {
        while let Some((line, left_out)) = self.limiter.next_due(now) {
            self.write(&line, left_out);
        }
    }
}

impl EventFormatter {
    pub(crate) const fn new(node: NodeId) -> Self {
        Self {
            node,
            limiter: Limiter::new(LOG_INTERVAL_MS),
            no_leader_reason: None,
            leader: None,
            last_campaign: None,
            lacks_vote: false,
        }
    }

    fn write(&self, line: &LogLine, left_out: u64) {
        let node = self.node.0;
        let ballot = line.ballot.map(tracing::field::display);
        let left_out = (left_out > 0).then_some(left_out);
        let text = &line.text;
        match line.level {
            Level::ERROR => tracing::error!(node, ballot, left_out, "{text}"),
            Level::WARN => tracing::warn!(node, ballot, left_out, "{text}"),
            Level::INFO => tracing::info!(node, ballot, left_out, "{text}"),
            _ => tracing::debug!(node, ballot, left_out, "{text}"),
        }
    }

    fn format_event(
        &mut self,
        now: Time,
        event: &Event,
        leads_never: Option<&str>,
    ) -> Option<LogLine> {
        let line = |level, text: String| {
            let ballot = None;
            Some(LogLine { level, text, ballot })
        };
        match event {
            Event::Leadership(explanation) => self.format_leadership(now, *explanation),
            Event::Role { role, leader, ballot } => self.format_role(*role, *leader, *ballot),
            Event::NoLeader {
                leaderless_ms: for_ms,
                connected_count: connected,
                member_count: members,
            } => match leads_never {
                Some(why) => line(Level::ERROR, format!("no leader is possible: {why}")),
                None => line(
                    Level::WARN,
                    format!(
                        "no leader for {} s: {connected} of {members} members connected; reads \
                         and writes wait until a majority elects a leader",
                        for_ms / 1000
                    ),
                ),
            },
            Event::Behind(progress) => line(Level::INFO, format!("behind: {progress}")),
            Event::StillBehind(progress) => line(Level::INFO, format!("still behind: {progress}")),
            Event::ActivityDone { activity, slots, duration_ms: ms } => line(
                Level::INFO,
                format!("done: {activity}, {slots} slots in {}", format_duration(*ms)),
            ),
            Event::CaughtUp { applied_to: at, ms } => line(
                Level::INFO,
                format!(
                    "caught up: applied all decided slots below {at}, after {}",
                    format_duration(*ms)
                ),
            ),
            Event::NoSegment { is_waiting: true, why } => line(
                Level::WARN,
                format!(
                    "no room for the log: {why}; when the current segment is full, this node neither \
                     votes nor leads until disk space is free; nothing is lost"
                ),
            ),
            Event::NoSegment { is_waiting: false, why } => line(
                Level::ERROR,
                format!(
                    "cannot create a log segment: {why}; when the current segment is full, the log \
                     fails"
                ),
            ),
            Event::SegmentsRecovered { ms } => line(
                Level::INFO,
                format!("room for the log again: writes continue after {}", format_duration(*ms)),
            ),
            Event::DiskFull { is_full: true, free_bytes: free } => line(
                Level::WARN,
                format!(
                    "disk full: {} MiB free; if too few members have room, writes are refused, but not \
                     those that only remove data",
                    free >> 20
                ),
            ),
            Event::DiskFull { is_full: false, .. } => {
                line(Level::INFO, "disk no longer full: it has room for data again".to_owned())
            }
            Event::SlowWrite { ms, bytes } => line(
                Level::WARN,
                format!(
                    "slow disk: writing {bytes} bytes to the log took {ms} ms, and commits waited \
                     for it"
                ),
            ),
            Event::WriteHangs { ms } => line(
                Level::WARN,
                format!(
                    "slow disk: a write to the log has been hanging for {}; this node casts no \
                     votes meanwhile",
                    format_duration(*ms)
                ),
            ),
            Event::HandedOver { to, why } => {
                line(Level::WARN, format!("handed leadership to node {to}: {why}"))
            }
            Event::LogFailed { why } => line(
                Level::ERROR,
                format!(
                    "the log failed: {why}; this node neither votes nor leads until it is restarted"
                ),
            ),
            Event::Unreadable { why } => line(
                Level::ERROR,
                format!(
                    "cannot read back the log: {why}; stop the node and run 'quorate log verify' on \
                     its folder"
                ),
            ),
            Event::ServiceTrouble { why } => {
                line(Level::WARN, format!("service unavailable: {why}; this node keeps voting"))
            }
            Event::ServiceRecovered => {
                line(Level::INFO, "service available again: commands are applied".to_owned())
            }
            Event::LevelRaised { level } => line(
                Level::INFO,
                format!(
                    "feature level: the cluster is at level {level}; releases that do not support it are refused"
                ),
            ),
            Event::ClockOff(off) if off.is_off() => line(
                Level::WARN,
                format!(
                    "clock: node {} is {}, by which keys and locks end; \
                     check its time synchronisation",
                    off.node,
                    off.text()
                ),
            ),
            Event::ClockOff(off) => {
                line(Level::INFO, format!("clock: node {} agrees with the group's again", off.node))
            }
            Event::ServiceRestarted { why } => {
                line(Level::WARN, format!("service restarted: {why}"))
            }
            Event::SnapshotTaken { at, bytes } => {
                line(Level::INFO, format!("snapshot: taken at slot {at}, {bytes} bytes"))
            }
            Event::SnapshotInstalled { at } => line(
                Level::INFO,
                format!("snapshot: installed a peer's, which replaces all slots below {at}"),
            ),
            Event::SnapshotLoaded { at } => {
                line(Level::INFO, format!("snapshot: loaded, the service continues at slot {at}"))
            }
            Event::SnapshotFailed { why } => line(Level::WARN, format!("snapshot: {why}")),
            Event::DamageFound { kind, what } => line(
                Level::WARN,
                format!(
                    "scrub: damaged {kind}: {what}; 'quorate scrub --show' says what becomes of it"
                ),
            ),
            Event::Scrubbed { bytes, found_count: found, ms } => line(
                match found {
                    0 => Level::INFO,
                    _ => Level::WARN,
                },
                format!(
                    "scrub: read {bytes} bytes in {}, {found} damaged places",
                    format_duration(*ms)
                ),
            ),
            Event::Alarm(alarm) => {
                let next = match alarm {
                    Alarm::DifferentHistory { .. } => "docs/operate/divergence.md says what to do",
                    _ => "stop the nodes, keep their folders, and report it",
                };
                line(Level::ERROR, format!("protocol violation: {alarm}; {next}"))
            }
        }
    }

    fn format_leadership(&mut self, now: Time, explanation: Explanation) -> Option<LogLine> {
        let line = |level, ballot, text| Some(LogLine { level, text, ballot });
        match explanation {
            Explanation::LeaderSilent { leader, silent_us } => {
                let why = format!("no heartbeat from leader {leader} for {} ms", silent_us / 1000);
                self.no_leader_reason = Some(why.clone());
                line(Level::WARN, None, format!("leader lost: {why}"))
            }
            Explanation::LeaderUnreachable { leader } => {
                let why = format!("the connection to leader {leader} broke");
                self.no_leader_reason = Some(why.clone());
                line(Level::WARN, None, format!("leader lost: {why}"))
            }
            Explanation::WaitsAlone { us } => {
                let text = format!(
                    "waiting {} for other nodes to connect: this node is a quorum by itself, and only they can tell \
                     whether its folder is an old copy",
                    format_duration(us / 1_000)
                );
                line(Level::INFO, None, text)
            }
            Explanation::Campaigns { ballot, why } => {
                self.last_campaign = Some((ballot, now));
                let cause = match self.no_leader_reason.take() {
                    Some(unled) => format!("{why}; {unled}"),
                    None => why.to_string(),
                };
                let text = format!("starting an election: {cause}");
                line(Level::INFO, Some(ballot), text)
            }
            Explanation::Leads { ballot } => {
                let began = self.last_campaign.filter(|(campaign, _)| *campaign == ballot);
                let took = began.map_or(0, |(_, began)| now.since_us(began) / 1000);
                self.leader = Some((self.node, ballot));
                line(
                    Level::INFO,
                    Some(ballot),
                    format!("elected leader in {took} ms"),
                )
            }
            Explanation::NotElected { ballot, why } => {
                line(Level::INFO, Some(ballot), format!("lost the election: {why}"))
            }
            Explanation::Engages { ballot } => line(
                Level::WARN,
                Some(ballot),
                "auxiliaries engaged: the full replicas make no progress without them".to_owned(),
            ),
            Explanation::RingLaid { ballot, nodes } => {
                let nodes: Vec<String> = nodes.iter().map(|node| node.to_string()).collect();
                let nodes = nodes.join(", ");
                line(
                    Level::INFO,
                    Some(ballot),
                    format!("ring formed: votes pass through nodes {nodes}"),
                )
            }
            Explanation::Offloads { ballot } => line(
                Level::INFO,
                Some(ballot),
                "devices engaged: they vote and count until they are told to stop".to_owned(),
            ),
            Explanation::TakesBack { ballot } => line(
                Level::INFO,
                Some(ballot),
                "devices released: the nodes vote and count themselves, and nothing is lost".to_owned(),
            ),
            Explanation::DeviceLate => line(
                Level::WARN,
                None,
                "the device does not answer: this node neither votes nor leads until it does"
                    .to_owned(),
            ),
            Explanation::DeviceForgot => line(
                Level::ERROR,
                None,
                "the device lost votes: this node no longer votes; restart it, and it returns as a new member"
                    .to_owned(),
            ),
            Explanation::RingBreaks { ballot, slot } => line(
                Level::DEBUG,
                Some(ballot),
                format!(
                    "ring abandoned: slot {slot} was not decided in time, so members vote directly"
                ),
            ),
            Explanation::Retires { ballot } => line(
                Level::INFO,
                Some(ballot),
                "auxiliaries released: the full replicas hold everything again".to_owned(),
            ),
            Explanation::StepsDown { ballot, why } => {
                self.leader = None;
                // Another node leads or campaigns. On this node, a transfer also looks like this.
                let level = match why {
                    BallotEnd::HigherBallot { .. } => Level::INFO,
                    _ => Level::WARN,
                };
                self.no_leader_reason = Some(format!("this node stepped down: {why}"));
                line(level, Some(ballot), format!("stepped down: {why}"))
            }
        }
    }

    fn format_role(
        &mut self,
        role: Role,
        leader: Option<NodeId>,
        ballot: Ballot,
    ) -> Option<LogLine> {
        let text = match (role, leader) {
            (Role::Learner, _) if !self.lacks_vote => {
                self.lacks_vote = true;
                return Some(LogLine {
                    level: Level::WARN,
                    text:
                        "no vote: this node is not a voting member, or may have forgotten votes; \
                           it learns and serves, but counts towards no majority"
                            .to_owned(),
                    ballot: None,
                });
            }
            // `Explanation::Leads` has more detail, and so does `Explanation::Campaigns`.
            (Role::Leader, _) => return None,
            (Role::Candidate, _) if self.last_campaign.is_some_and(|(own, _)| own == ballot) => {
                return None;
            }
            (_, Some(leader)) if self.leader != Some((leader, ballot)) => {
                self.leader = Some((leader, ballot));
                self.no_leader_reason = None;
                format!("following leader {leader}: requests from clients are forwarded to it")
            }
            (Role::Candidate, None) => {
                let why = self.no_leader_reason.as_deref();
                let why = why.unwrap_or("this node has heard from no leader");
                let text = format!("starting a pre-vote: {why}");
                return Some(LogLine { level: Level::INFO, text, ballot: None });
            }
            _ => return None,
        };
        Some(LogLine { level: Level::INFO, text, ballot: Some(ballot) })
    }
}

/// Returns the rate-limiting category of an event, with its burst. The last line of a category is
/// never dropped, so an event and the event that ends it share a category.
const fn kind(event: &Event) -> (&'static str, u32) {
    match event {
        Event::Leadership(_) | Event::Role { .. } => ("leadership", LEADERSHIP_BURST),
        Event::NoLeader { .. } => ("no leader", 1),
        Event::Behind(_)
        | Event::StillBehind(_)
        | Event::ActivityDone { .. }
        | Event::CaughtUp { .. } => ("progress", PROGRESS_BURST),
        Event::NoSegment { .. } | Event::SegmentsRecovered { .. } => ("segments", 2),
        Event::DiskFull { .. } => ("disk full", 2),
        Event::SlowWrite { .. } => ("slow write", 1),
        Event::WriteHangs { .. } => ("write hangs", 1),
        Event::HandedOver { .. } => ("handed over", 2),
        Event::LogFailed { .. } => ("log failed", 1),
        Event::Unreadable { .. } => ("unreadable", 1),
        Event::SnapshotTaken { .. }
        | Event::SnapshotInstalled { .. }
        | Event::SnapshotLoaded { .. } => ("snapshot", 2),
        Event::SnapshotFailed { .. } => ("snapshot failed", 1),
        Event::ServiceTrouble { .. } | Event::ServiceRecovered | Event::ServiceRestarted { .. } => {
            ("service", 4)
        }
        Event::LevelRaised { .. } => ("level", 2),
        Event::ClockOff(_) => ("clock", 4),
        Event::DamageFound { .. } => ("damage", 16),
        Event::Scrubbed { .. } => ("scrubbed", 2),
        Event::Alarm(_) => ("alarm", 1),
    }
}

/// Formats a duration, in seconds if it is long and otherwise in milliseconds.
fn format_duration(ms: u64) -> String {
    match ms {
        10_000.. => format!("{} s", ms / 1000),
        1_000.. => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        _ => format!("{ms} ms"),
    }
}

#[cfg(test)]
mod tests {
    use std::{env, fs};

    use quorate_core::{ballot::Era, explanation::Campaign, node_set::NodeSet, slot::Slot};
    use quorate_replica::{
        ClockDeviation,
        status::{Activity, Progress},
    };

    use super::*;

    const BALLOT: Ballot = Ballot { era: Era(0), round: 3, node: NodeId(2) };

    fn at_ms(ms: u64) -> Time {
        Time(0).plus_ms(ms)
    }

    fn texts(journal: &mut EventFormatter, events: &[(u64, Event)]) -> Vec<String> {
        let lines =
            events.iter().filter_map(|(ms, event)| journal.format_event(at_ms(*ms), event, None));
        lines.map(|line| format!("{} {}", line.level, line.text)).collect()
    }

    fn role(role: Role, leader: Option<u32>) -> Event {
        Event::Role { role, leader: leader.map(NodeId), ballot: BALLOT }
    }

    #[test]
    fn election_is_logged_with_its_cause() {
        let silent = Explanation::LeaderSilent { leader: NodeId(1), silent_us: 153_400 };
        let campaigns = Explanation::Campaigns { ballot: BALLOT, why: Campaign::PreVotes };
        let leads = Explanation::Leads { ballot: BALLOT };
        let steps_down = Explanation::StepsDown { ballot: BALLOT, why: BallotEnd::QuorumSilent };
        let events = [
            (0, Event::Leadership(silent)),
            (1, role(Role::Candidate, None)),
            (5, Event::Leadership(campaigns)),
            (12, Event::Leadership(leads)),
            (12, role(Role::Leader, Some(2))),
            (900, Event::Leadership(steps_down)),
            (900, role(Role::Follower, None)),
        ];
        let expected = [
            "WARN leader lost: no heartbeat from leader 1 for 153 ms",
            "INFO starting a pre-vote: no heartbeat from leader 1 for 153 ms",
            "INFO starting an election: a quorum sees no leader; no heartbeat from leader 1 for 153 ms",
            "INFO elected leader in 7 ms",
            "WARN stepped down: lost contact with the quorum",
        ];
        assert_eq!(texts(&mut EventFormatter::new(NodeId(2)), &events), expected);
    }

    /// A group of one campaigns at once, without a pre-vote.
    #[test]
    fn single_node_campaigns_without_a_pre_vote() {
        let campaigns = Explanation::Campaigns { ballot: BALLOT, why: Campaign::Alone };
        let events = [(0, Event::Leadership(campaigns)), (0, role(Role::Candidate, None))];
        let told = texts(&mut EventFormatter::new(NodeId(2)), &events);
        assert_eq!(told, ["INFO starting an election: this node is a quorum by itself"]);
    }

    #[test]
    fn known_leader_is_logged_once() {
        let events = [
            (0, role(Role::Follower, Some(2))),
            (1, role(Role::Candidate, Some(2))),
            (2, role(Role::Follower, Some(2))),
        ];
        let told = texts(&mut EventFormatter::new(NodeId(3)), &events);
        assert_eq!(told, ["INFO following leader 2: requests from clients are forwarded to it"]);
    }

    #[test]
    fn missing_vote_of_a_learner_is_logged_once() {
        let events = [
            (0, role(Role::Learner, None)),
            (1, role(Role::Learner, Some(2))),
            (2, role(Role::Learner, None)),
        ];
        let told = texts(&mut EventFormatter::new(NodeId(3)), &events);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].starts_with("WARN no vote: "));
        assert!(told[1].starts_with("INFO following leader 2: "));
    }

    #[test]
    fn permanently_lost_quorum_is_logged_as_an_error() {
        let event = Event::NoLeader { leaderless_ms: 1_000, connected_count: 3, member_count: 3 };
        let mut journal = EventFormatter::new(NodeId(1));
        let line = journal.format_event(at_ms(0), &event, Some("too many members …"));
        let expected = "no leader is possible: too many members …";
        let line = line.unwrap();
        assert_eq!((line.level, &*line.text), (Level::ERROR, expected));
    }

    const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/operate/log-lines.md");
    const HEAD: &str = "| Level | Line | What it means |\n|---|---|---|\n";

    /// Compares the table at the end of the page with the journal's lines, or rewrites it. The
    /// meaning of each line is written by hand and kept.
    #[test]
    fn page_of_log_lines_is_generated() {
        let progress = Progress {
            activity: Activity::CatchingUp,
            from: 0,
            position: 1_438,
            end: 2_052,
            per_second: Some(614),
            elapsed_ms: 2_300,
        };
        let (ballot, why) = (BALLOT, "…".to_owned());
        let end = BallotEnd::QuorumSilent;
        let leadership = [
            Explanation::LeaderSilent { leader: NodeId(1), silent_us: 153_000 },
            Explanation::LeaderUnreachable { leader: NodeId(1) },
            Explanation::WaitsAlone { us: 2_000_000 },
            Explanation::Campaigns { ballot, why: Campaign::PreVotes },
            Explanation::Leads { ballot },
            Explanation::NotElected { ballot, why: end },
            Explanation::Engages { ballot },
            Explanation::Retires { ballot },
            Explanation::RingLaid { ballot, nodes: NodeSet::one(NodeId(2)) },
            Explanation::RingBreaks { ballot, slot: Slot(7) },
            Explanation::Offloads { ballot },
            Explanation::TakesBack { ballot },
            Explanation::DeviceLate,
            Explanation::DeviceForgot,
            Explanation::StepsDown { ballot, why: end },
        ];
        let events = [
            role(Role::Candidate, None),
            role(Role::Follower, Some(1)),
            role(Role::Learner, None),
            Event::NoLeader { leaderless_ms: 10_000, connected_count: 1, member_count: 3 },
            Event::Behind(progress),
            Event::StillBehind(progress),
            Event::ActivityDone { activity: Activity::Replaying, slots: 2_000, duration_ms: 1_200 },
            Event::CaughtUp { applied_to: Slot(2_052), ms: 1_200 },
            Event::NoSegment { is_waiting: true, why: why.clone() },
            Event::NoSegment { is_waiting: false, why: why.clone() },
            Event::SegmentsRecovered { ms: 40_000 },
            Event::DiskFull { is_full: true, free_bytes: 180 << 20 },
            Event::DiskFull { is_full: false, free_bytes: 1 << 30 },
            Event::SlowWrite { ms: 300, bytes: 4_096 },
            Event::WriteHangs { ms: 700 },
            Event::HandedOver { to: NodeId(2), why: why.clone() },
            Event::LogFailed { why: why.clone() },
            Event::Unreadable { why: why.clone() },
            Event::ServiceTrouble { why: why.clone() },
            Event::ServiceRecovered,
            Event::SnapshotTaken { at: Slot(90), bytes: 4_194_752 },
            Event::SnapshotInstalled { at: Slot(90) },
            Event::SnapshotLoaded { at: Slot(90) },
            Event::SnapshotFailed { why: why.clone() },
            Event::DamageFound {
                kind: quorate_replica::scrubbing::report::Kind::Log,
                what: why.clone(),
            },
            Event::Scrubbed { bytes: 1_297, found_count: 0, ms: 3_000 },
            Event::LevelRaised { level: quorate_core::level::Level::NEWEST },
            Event::ClockOff(ClockDeviation { node: NodeId(3), offset_ms: -90_000 }),
            Event::ClockOff(ClockDeviation { node: NodeId(3), offset_ms: 0 }),
            Event::ServiceRestarted { why },
            Event::Alarm(Alarm::ConflictingProposals { ballot, slot: Slot(7) }),
        ];
        let page = fs::read_to_string(PAGE).unwrap();
        let (before, now) = page.rsplit_once(HEAD).expect("the page has the table");
        let leadership = leadership.map(Event::Leadership);
        let row = |event: &Event| {
            let mut journal = EventFormatter::new(NodeId(2));
            let LogLine { level, text, .. } = journal.format_event(at_ms(0), event, None).unwrap();
            let line = format!("| {} | {text} |", level.as_str().to_lowercase());
            let meaning = now.lines().find_map(|row| row.strip_prefix(&*line));
            format!("{line}{}\n", meaning.unwrap_or(" |"))
        };
        let table: String = leadership.iter().chain(&events).map(row).collect();
        if env::var_os("REWRITE").is_some() {
            fs::write(PAGE, [before, HEAD, &table].concat()).unwrap();
        } else {
            assert!(now == table, "REWRITE=1 cargo test -p quorate --lib log_lines writes {PAGE}");
        }
    }

    #[test]
    fn times_are_cut_to_two_digits() {
        assert_eq!([7, 1_250, 23_900].map(format_duration), ["7 ms", "1.2 s", "23 s"]);
    }
}
