//! Compares the nodes of a running cluster: versions, settings, space for logs, and each node's own
//! health report.

use std::collections::{BTreeMap, BTreeSet};

use quorate_admin::{
    quorum::AvailableVotes,
    units::{format_bytes, format_span},
    view::{Answer, ClusterView, NodeView},
};

use crate::{doctor::finding::Finding, environment};

const NAMED_NODES_MAX: usize = 8;
/// Maximum number of characters shown of a value, because values are untrusted input.
const SHOWN_VALUE_CHARS_MAX: usize = 60;

/// Time until a disk is full, in seconds, below which the operator must act today.
const FULL_SOON_S: u64 = 24 * 3600;

pub fn examine(cluster: &ClusterView) -> Vec<Finding> {
    let views: Vec<&NodeView> = cluster.nodes.iter().filter_map(Answer::node_view).collect();
    let silent = cluster.nodes.len() - views.len();
    let found = [
        version_finding(&views),
        settings_finding(&views),
        space_finding(&views),
        quorum_finding(cluster, &views),
        health_finding(&views),
        clock_finding(&views),
        scrub_finding(&views),
        level_finding(cluster, &views),
    ];
    found
        .into_iter()
        .map(|finding| match silent {
            0 => finding,
            silent => {
                let detail = format!("{silent} of {} nodes do not report it", cluster.nodes.len());
                let detail = [&*finding.detail, &*detail].join("; ");
                finding.with_detail(detail.trim_start_matches("; "))
            }
        })
        .collect()
}

/// Sets of node ids, keyed by the value that their nodes report.
type NodesByValue = BTreeMap<String, BTreeSet<u32>>;

fn version_finding(views: &[&NodeView]) -> Finding {
    let name = "versions";
    let mut all = NodesByValue::new();
    for view in views {
        all.entry(shorten_untrusted(&view.full_version())).or_default().insert(view.node);
    }
    let own = environment::version();
    match all.len() {
        0 => Finding::unknown(name, "no node reports it", "start a node"),
        1 => {
            let (version, _) = all.first_key_value().expect("there is one");
            let found = Finding::ok(name, format!("all run {version}"));
            match version == own {
                true => found,
                false => found.with_detail(format!("this program is {own}")),
            }
        }
        _ => {
            // Versions are sorted numerically, so that 0.9 precedes 0.10, and then by date.
            let mut order: Vec<(&String, &BTreeSet<u32>)> = all.iter().collect();
            order.sort_by_key(|(version, _)| version_order(version));
            let what: Vec<String> = order
                .iter()
                .map(|(version, nodes)| format!("{version} ({})", format_nodes(nodes)))
                .collect();
            let (newest, _) = order.last().expect("there are two");
            let hint = format!("finish the upgrade: the newest is {newest}");
            Finding::warning(name, format!("nodes differ: {}", what.join(", ")), hint)
        }
    }
}

/// [level-5] Reports the cluster's feature level and the levels that its releases support.
fn level_finding(cluster: &ClusterView, views: &[&NodeView]) -> Finding {
    let name = "level";
    let telling = || views.iter().filter(|view| view.level.level > 0);
    let leads = telling().find(|view| Some(view.node) == cluster.leader);
    let Some(view) = leads.or_else(|| telling().max_by_key(|view| view.applied)) else {
        return Finding::unknown(name, "no node reports it", "upgrade the nodes");
    };
    let told = format!("the cluster is at level {}", view.level.level);
    Finding::ok(name, told).with_detail(view.level.raise_outlook())
}

/// Returns the order of a version such as `0.3.0-dev (1a2b3c4d5e 2026-11-28)`: numbers, whether it
/// is released, date.
fn version_order(version: &str) -> (Vec<u64>, bool, &str) {
    let (numbers, rest) = version.split_at(version.find(['-', ' ']).unwrap_or(version.len()));
    let numbers = numbers.split('.').filter_map(|part| part.parse().ok()).collect();
    (numbers, !rest.starts_with('-'), rest.rsplit(' ').next().unwrap_or_default())
}

fn settings_finding(views: &[&NodeView]) -> Finding {
    let name = "settings";
    // A node that reports no settings runs an older version or another program.
    let telling: Vec<&&NodeView> = views.iter().filter(|view| !view.settings.is_empty()).collect();
    let mut all: BTreeMap<&str, NodesByValue> = BTreeMap::new();
    let names: BTreeSet<&String> = telling.iter().flat_map(|view| view.settings.keys()).collect();
    for view in &telling {
        for name in &names {
            let value = view.settings.get(*name).map_or("not given", |value| &**value);
            let values = all.entry(name).or_default();
            values.entry(shorten_untrusted(value)).or_default().insert(view.node);
        }
    }
    for view in views {
        for (name, value) in [("durability", &view.durability), ("store", &view.store)] {
            let values = all.entry(name).or_default();
            values.entry(shorten_untrusted(value)).or_default().insert(view.node);
        }
    }
    let differ: Vec<String> = all
        .iter()
        .filter(|(_, values)| values.len() > 1)
        .map(|(name, values)| {
            let values: Vec<String> = values
                .iter()
                .map(|(value, nodes)| format!("{value} ({})", format_nodes(nodes)))
                .collect();
            format!("{}: {}", shorten_untrusted(name), values.join(", "))
        })
        .collect();
    if !differ.is_empty() {
        let count = differ.len();
        let mut named: Vec<String> = differ.into_iter().take(NAMED_NODES_MAX).collect();
        if count > NAMED_NODES_MAX {
            named.push(format!("{} more", count - NAMED_NODES_MAX));
        }
        let what = format!("nodes differ: {}", named.join("; "));
        return Finding::warning(
            name,
            what,
            "start all nodes with the same settings; 'quorate help start' describes each",
        );
    }
    match (views.len(), telling.len()) {
        (0, _) => Finding::unknown(name, "no node reports it", "start a node"),
        (_, 0) => {
            Finding::unknown(name, "no node reports its settings", "finish the upgrade of nodes")
        }
        (_, 1) => Finding::ok(name, "one node reports its settings"),
        (_, count) => Finding::ok(name, format!("{count} nodes have the same settings")),
    }
}

/// Checks whether each node's disk has space for the log to grow to its limit.
fn space_finding(views: &[&NodeView]) -> Finding {
    let name = "room of nodes";
    let hint = "free disk space on those machines, or lower --log-max";
    let mut trouble = describe_full_disks(views);
    if views.iter().any(|view| view.disk.data_refused) {
        let what = match trouble.is_empty() {
            true => "too few members have room".to_owned(),
            false => trouble.join("; "),
        };
        let hint = "free disk space there, or remove data: DEL, FLUSHALL and the like still work";
        return Finding::failing(name, format!("data is refused (-DISKFULL): {what}"), hint);
    }
    let mut known = 0;
    for view in views.iter().filter(|view| view.disk.needed_bytes.is_none()) {
        let Some(free) = view.disk.free_bytes else {
            continue;
        };
        known += 1;
        let most = view.settings.get("log-max");
        let most = most.and_then(|text| text.parse::<u64>().ok());
        let grows = most.map_or(0, |most| most.saturating_sub(view.log_bytes));
        match view.disk.full_in_seconds {
            Some(seconds) if seconds < FULL_SOON_S => {
                trouble.push(format!("node {} is full in {}", view.node, format_span(seconds)));
            }
            _ if free < grows => trouble.push(format!(
                "node {}: {} free, but its log may grow by {}",
                view.node,
                format_bytes(free),
                format_bytes(grows)
            )),
            _ => (),
        }
    }
    if !trouble.is_empty() {
        trouble.truncate(NAMED_NODES_MAX);
        return Finding::warning(name, trouble.join("; "), hint);
    }
    match known {
        0 => Finding::unknown(name, "no node reports its free space", "run df on each machine"),
        _ => Finding::ok(name, format!("{known} nodes have enough space for their logs")),
    }
}

/// Returns a description of each full disk, with the free space that it needs for more data.
fn describe_full_disks(views: &[&NodeView]) -> Vec<String> {
    let full = |view: &&NodeView| {
        let (needed, free) = (view.disk.needed_bytes?, view.disk.free_bytes.unwrap_or(0));
        Some(format!(
            "the disk of node {} is full: {} MiB free, {} MiB needed",
            view.node,
            free >> 20,
            needed >> 20
        ))
    };
    views.iter().filter_map(full).collect()
}

/// Checks whether the voters that are up form a quorum: the voters connected to the leader or,
/// without a leader, those that respond.
fn quorum_finding(cluster: &ClusterView, views: &[&NodeView]) -> Finding {
    let name = "quorum";
    let leads = views.iter().find(|view| Some(view.node) == cluster.leader);
    let Some(view) = leads.or_else(|| views.iter().max_by_key(|view| view.applied)) else {
        return Finding::unknown(name, "no node reports it", "start a node");
    };
    let responds = |node| views.iter().any(|view| view.node == node && view.role != "learner");
    let voters = view.members.iter().filter(|member| member.weight > 0).map(|member| {
        let is_up = match leads {
            Some(_) => member.connected,
            None => responds(member.node),
        };
        (member, is_up)
    });
    let weights = voters.clone().map(|(member, is_up)| (member.weight, is_up));
    let votes = AvailableVotes::count_votes(&view.quorum, weights, leads.is_some());
    if votes.is_quorum_lost {
        let down = voters.filter(|(_, is_up)| !is_up).map(|(member, _)| member.node).collect();
        let what = format!("{} Start nodes {}", votes.lost_quorum_text(), format_nodes(&down));
        let hint = "if they are permanently lost: docs/operate/lost-majority.md";
        return Finding::failing(name, what, hint);
    }
    Finding::ok(name, format!("{} votes available, {} needed", votes.available, votes.required))
}

/// Checks whether any node reports an error.
fn health_finding(views: &[&NodeView]) -> Finding {
    let name = "health of nodes";
    let troubled = views.iter().filter_map(|view| {
        let error = view.error.as_ref()?;
        Some(format!("node {}: {}", view.node, shorten_untrusted(error)))
    });
    let mut troubled: Vec<String> = troubled.collect();
    if !troubled.is_empty() {
        troubled.truncate(NAMED_NODES_MAX);
        let hint = "'quorate status' shows the full text; docs/operate.md tells you what to do";
        return Finding::failing(name, troubled.join("; "), hint);
    }
    match views.len() {
        0 => Finding::unknown(name, "no node reports it", "start a node"),
        count => Finding::ok(name, format!("{count} nodes report no errors")),
    }
}

/// Checks whether the clocks of all nodes agree, according to the nodes' reports.
fn clock_finding(views: &[&NodeView]) -> Finding {
    let name = "clocks of nodes";
    let mut off = BTreeMap::new();
    for notice in views.iter().flat_map(|view| &view.notices) {
        // The leader and the node itself report the same clock: `clock: node 3 is …`.
        if let Some(text) = notice.strip_prefix("clock: ") {
            let node = text.split(" is ").next().unwrap_or_default();
            off.entry(node).or_insert_with(|| shorten_untrusted(text));
        }
    }
    if !off.is_empty() {
        let off: Vec<String> = off.into_values().take(NAMED_NODES_MAX).collect();
        let hint = "repair the time synchronisation of those machines ('timedatectl' shows it)";
        return Finding::warning(name, off.join("; "), hint);
    }
    match views.len() {
        0 => Finding::unknown(name, "no node reports it", "start a node"),
        count => Finding::ok(name, format!("{count} nodes report no clock that is off")),
    }
}

/// Checks whether every node's last scrub found all stored data intact.
fn scrub_finding(views: &[&NodeView]) -> Finding {
    let name = "scrubs";
    let damaged = views.iter().filter(|view| view.scrub.is_damaged());
    let mut damaged: Vec<String> = damaged
        .map(|view| {
            let places = view.scrub.found.len() as u64 + view.scrub.more;
            format!("node {}: {places} damaged places", view.node)
        })
        .collect();
    if !damaged.is_empty() {
        damaged.truncate(NAMED_NODES_MAX);
        let hint =
            "'quorate scrub --show --admin ADDR' lists them and says what to do; check the disk";
        return Finding::warning(name, damaged.join("; "), hint);
    }
    let scrubbed = views.iter().filter(|view| view.scrub.ended_unix_ms.is_some());
    match (views.len(), scrubbed.count()) {
        (0, _) => Finding::unknown(name, "no node reports it", "start a node"),
        (_, 0) => Finding::ok(name, "no node has been scrubbed yet"),
        (_, count) => {
            Finding::ok(name, format!("{count} nodes have been scrubbed, and lack nothing"))
        }
    }
}

fn format_nodes(nodes: &BTreeSet<u32>) -> String {
    let nodes: Vec<String> = nodes.iter().map(u32::to_string).collect();
    nodes.join(" ")
}

fn shorten_untrusted(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(SHOWN_VALUE_CHARS_MAX).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use quorate_admin::view::MemberView;

    use super::*;
    use crate::doctor::finding::FindingState;

    /// Returns a minimal status of a node, for tests.
    pub(crate) fn view(node: u32) -> NodeView {
        let json = serde_json::json!({
            "cluster": "ab", "node": node, "role": "follower", "leader": 1, "era": 0, "plan": null,
            "removed": false, "ballot": {"era": 0, "round": 3, "node": 1}, "decided": 1, "applied": 1,
            "durable": 1, "durability": "durable", "store": "lsm", "log_bytes": 1, "version": "0.9.1",
            "error": null, "notices": [], "members": [],
        });
        serde_json::from_value(json).unwrap()
    }

    fn member(node: u32, connected: bool) -> MemberView {
        let json = serde_json::json!({
            "node": node, "peer": null, "client": null, "admin": null, "role": "follower", "weight": 1,
            "connected": connected, "lag": null, "payload_bytes_sent": 0, "engaged": null,
        });
        serde_json::from_value(json).unwrap()
    }

    fn examined(change: impl Fn(&mut NodeView)) -> [(FindingState, String); 2] {
        let view = |node| {
            let mut view = view(node);
            view.settings = [("reads".to_owned(), "index".to_owned())].into();
            change(&mut view);
            Answer::Node(Box::new(view))
        };
        let cluster = ClusterView::new(vec![view(1), view(2), view(3)]);
        let found = examine(&cluster);
        let [versions, settings, ..] = &found[..] else { panic!("{found:?}") };
        [versions, settings].map(|finding| (finding.state, finding.what.clone()))
    }

    #[test]
    fn equal_versions_and_settings_are_ok() {
        let [versions, settings] = examined(|_| ());
        assert_eq!(versions, (FindingState::Ok, "all run 0.9.1".to_owned()));
        assert_eq!(settings, (FindingState::Ok, "3 nodes have the same settings".to_owned()));
    }

    #[test]
    fn unrepaired_damage_is_a_warning() {
        let found = |fate: &str| {
            let mut one = view(1);
            one.scrub.ended_unix_ms = Some(1);
            one.scrub.found = vec![quorate_admin::scrub::FoundView {
                kind: "store".to_owned(),
                fate: fate.to_owned(),
                what: "a table".to_owned(),
            }];
            scrub_finding(&[&one, &view(2)])
        };
        let stays = found("stays");
        let told = (stays.state, &*stays.what);
        assert_eq!(told, (FindingState::Warning, "node 1: 1 damaged places"));
        assert_eq!(found("repaired").state, FindingState::Ok);
    }

    #[test]
    fn differing_versions_are_listed_oldest_first() {
        let [versions, _] = examined(|view| {
            if view.node == 2 {
                view.version = "0.10.0".to_owned();
            }
        });
        let expected = "nodes differ: 0.9.1 (1 3), 0.10.0 (2)".to_owned();
        assert_eq!(versions, (FindingState::Warning, expected));
        let [versions, _] = examined(|view| {
            let (version, commit) = [
                ("0.9.1", "f 2026-11-30"),
                ("0.9.1-dev", "a 2026-11-29"),
                ("0.9.1-dev", "b 2026-11-28"),
            ][view.node as usize - 1];
            (view.version, view.commit) = (version.to_owned(), commit.to_owned());
        });
        let order = "0.9.1-dev (b 2026-11-28) (3), 0.9.1-dev (a 2026-11-29) (2), 0.9.1 (f";
        assert!(versions.1.contains(order), "{}", versions.1);
    }

    #[test]
    fn differing_settings_are_listed_with_their_nodes() {
        let [_, settings] = examined(|view| {
            if view.node == 3 {
                view.settings.insert("reads".to_owned(), "lease".to_owned());
                view.settings.insert("thrifty".to_owned(), "on".to_owned());
                view.store = "memory".to_owned();
            }
        });
        let expected = "nodes differ: reads: index (1 2), lease (3); store: lsm (1 2), memory (3); thrifty: not given (1 2), on (3)";
        assert_eq!(settings, (FindingState::Warning, expected.to_owned()));
        // A node whose version reports no settings does not count as different.
        let [_, settings] = examined(|view| {
            if view.node == 3 {
                view.settings.clear();
            }
        });
        assert_eq!(settings.0, FindingState::Ok);
        let [_, settings] = examined(|view| view.settings.clear());
        assert_eq!(settings.0, FindingState::Unknown);
    }

    #[test]
    fn logs_without_space_to_grow_are_reported() {
        let of = |free, full, log_max: &str| {
            let mut view = view(7);
            view.disk.free_bytes = free;
            view.disk.full_in_seconds = full;
            view.log_bytes = 1 << 30;
            let setting = ("log-max".to_owned(), log_max.to_owned());
            view.settings = [setting].into();
            let found = space_finding(&[&view]);
            (found.state, found.what)
        };
        let (max, gib) = ("8589934592", 1u64 << 30);
        assert_eq!(of(Some(7 * gib), None, max).0, FindingState::Ok);
        let (state, what) = of(Some(5 * gib), None, max);
        assert_eq!(state, FindingState::Warning);
        assert_eq!(what, "node 7: 5 GiB free, but its log may grow by 7 GiB");
        assert_eq!(of(Some(5 * gib), None, "much").0, FindingState::Ok);
        let (state, what) = of(Some(99 * gib), Some(7200), max);
        assert_eq!((state, &*what), (FindingState::Warning, "node 7 is full in 2 h"));
        assert_eq!(of(Some(99 * gib), Some(FULL_SOON_S), max).0, FindingState::Ok);
        assert_eq!(of(None, None, max).0, FindingState::Unknown);
    }

    #[test]
    fn a_lost_quorum_is_critical() {
        let of = |leader: Option<u32>, up: &[u32]| {
            let answer = |node| {
                let mut view = view(node);
                (view.leader, view.quorum) = (leader, "majority".to_owned());
                view.members = [1, 2, 3].map(|node| member(node, up.contains(&node))).into();
                Answer::Node(Box::new(view))
            };
            let cluster = ClusterView::new(up.iter().copied().map(answer).collect());
            let found = quorum_finding(
                &cluster,
                &cluster.nodes.iter().filter_map(Answer::node_view).collect::<Vec<_>>(),
            );
            (found.state, found.what)
        };
        assert_eq!(
            of(Some(1), &[1, 2]),
            (FindingState::Ok, "2 votes available, 2 needed".to_owned())
        );
        assert_eq!(of(None, &[2, 3]).0, FindingState::Ok, "an election is in progress");
        let lost =
            "Quorum lost: 1 of 2 needed votes available. Nothing is written. Start nodes 1 3";
        assert_eq!(of(None, &[2]), (FindingState::Failing, lost.to_owned()));
        assert_eq!(of(None, &[]).0, FindingState::Unknown);
    }

    /// A group that refuses data serves reads, but must not pass as healthy.
    #[test]
    fn full_disks_are_named_and_refused_data_is_critical() {
        let of = |full: &[u32], refused| {
            let views: Vec<NodeView> = (1..=3)
                .map(|node| {
                    let mut view = view(node);
                    view.disk.free_bytes =
                        Some(if full.contains(&node) { 150 } else { 9000 } << 20);
                    view.disk.needed_bytes = full.contains(&node).then_some(256 << 20);
                    view.disk.data_refused = refused;
                    view
                })
                .collect();
            let found = space_finding(&views.iter().collect::<Vec<_>>());
            (found.state, found.what)
        };
        assert_eq!(of(&[], false).0, FindingState::Ok);
        let one = "the disk of node 2 is full: 150 MiB free, 256 MiB needed";
        assert_eq!(of(&[2], false), (FindingState::Warning, one.to_owned()));
        let two = "the disk of node 3 is full: 150 MiB free, 256 MiB needed";
        let refused = format!("data is refused (-DISKFULL): {one}; {two}");
        assert_eq!(of(&[2, 3], true), (FindingState::Failing, refused));
        let unnamed = "data is refused (-DISKFULL): too few members have room";
        assert_eq!(of(&[], true), (FindingState::Failing, unnamed.to_owned()));
    }

    #[test]
    fn node_with_a_problem_is_named_with_it() {
        let (well, mut ill) = (view(1), view(2));
        let found = health_finding(&[&well, &view(2)]);
        assert_eq!(found.state, FindingState::Ok);
        ill.error = Some("no room for the log: prepare segment 7: no storage space".to_owned());
        let found = health_finding(&[&well, &ill]);
        assert_eq!(found.state, FindingState::Failing);
        assert!(found.what.starts_with("node 2: no room for the log: "), "{}", found.what);
        assert_eq!(health_finding(&[]).state, FindingState::Unknown);
    }

    #[test]
    fn deviating_clock_is_named_once() {
        let (mut leader, mut late) = (view(1), view(3));
        assert_eq!(clock_finding(&[&leader, &late]).state, FindingState::Ok);
        leader.notices = vec!["clock: node 3 is 90.0 s ahead of the group's clock".to_owned()];
        late.notices = vec!["clock: node 3 is 90.1 s ahead of the group's clock".to_owned()];
        let found = clock_finding(&[&leader, &late]);
        let told = (found.state, &*found.what);
        assert_eq!(told, (FindingState::Warning, "node 3 is 90.0 s ahead of the group's clock"));
        assert_eq!(clock_finding(&[]).state, FindingState::Unknown);
    }

    #[test]
    fn nodes_that_do_not_answer_are_counted() {
        let gone = Answer::Unreachable { node: Some(2), error: "refused".to_owned() };
        let cluster = ClusterView::new(vec![Answer::Node(Box::new(view(1))), gone]);
        let found = examine(&cluster);
        assert!(found[0].detail.ends_with("1 of 2 nodes do not report it"), "{found:?}");
        assert!(
            examine(&ClusterView::new(Vec::new()))
                .iter()
                .all(|finding| finding.state == FindingState::Unknown)
        );
    }
}
