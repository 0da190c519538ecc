//! History of a cluster since the program started: throughput, latency, rates of each node, and
//! events.

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use quorate_admin::{traffic::TrafficView, view::NodeView};

use super::{
    cluster::{ClusterSnapshot, Node},
    health::{QuorumHealth, voter_health},
};

/// Maximum number of samples retained.
pub(super) const SAMPLES_MAX: usize = 600;
/// Maximum number of events retained.
pub(super) const EVENTS_MAX: usize = 200;
/// Minimum time between the two statuses from which a rate is computed.
const RATE_INTERVAL_MIN: Duration = Duration::from_millis(200);

/// Traffic of the cluster between two polls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    /// Commands per second, if known.
    pub(super) commands_per_second: Option<f64>,
    /// Median and 99th percentile of the latency in microseconds; `None` if no command was
    /// answered.
    pub(super) latency_us: Option<(f64, f64)>,
    /// Set if the leader differs from that of the previous poll.
    pub(super) leader_changed: bool,
}

/// A change in the cluster, as listed for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) time: Instant,
    pub(super) is_bad: bool,
    pub(super) description: String,
}

/// Recorded samples and events, and the latest rates.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    /// Samples, oldest first.
    pub(super) samples: VecDeque<Sample>,
    /// Events, oldest first.
    pub(super) events: VecDeque<Event>,
    /// Latest rates of each node.
    pub(super) rates: BTreeMap<u32, NodeRates>,
    last_counters: BTreeMap<u32, NodeCounters>,
    last_seen: Option<SeenState>,
}

/// Rates of one node, per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct NodeRates {
    /// Commands executed per second.
    pub(super) commands_per_second: f64,
    /// Payload bytes that the leader sends to the node. `None` for the leader itself.
    pub(super) bytes_per_second: Option<f64>,
}

/// Counters of a node's process, which only a restart decreases.
#[derive(Clone, Debug)]
struct NodeCounters {
    time: Instant,
    traffic: TrafficView,
    /// The leader, and the number of payload bytes that it has sent to the node.
    sent_by_leader: Option<(u32, u64)>,
}

/// Part of the state whose changes are recorded as events.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SeenState {
    leader: Option<u32>,
    level: QuorumHealth,
    plan: Option<(u64, String)>,
    nodes: BTreeMap<u32, SeenNode>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct SeenNode {
    state: &'static str,
    version: Option<String>,
    error: Option<String>,
}

/// Returns a node's state in one or two words, as shown to the user.
pub(super) fn node_state_text(node: &Node<'_>) -> &'static str {
    match node.fresh_view() {
        None if node.is_starting => "starting",
        None if node.view.is_none() && node.last_failure.is_none() => "never seen",
        None => "no answer",
        Some(view) if view.removed => "removed",
        Some(view) if view.error.is_some() => "error",
        Some(_) if node.progress.is_some() => "catching up",
        Some(_) => "serves",
    }
}

impl History {
    /// Records the result of a poll: a sample, and an event for each change.
    pub(super) fn record_poll(&mut self, now: &ClusterSnapshot<'_>) {
        self.add_sample(now);
        self.add_events(now);
    }

    fn add_sample(&mut self, now: &ClusterSnapshot<'_>) {
        let (mut commands, mut all) = (None, TrafficView::default());
        let mut is_known = false;
        let mut next = BTreeMap::new();
        let mut rates = BTreeMap::new();
        for node in &now.nodes {
            let (Some(view), Some(age)) = (node.fresh_view(), node.age) else {
                continue;
            };
            let counters =
                NodeCounters::from_view(view, now, now.time.checked_sub(age).unwrap_or(now.time));
            let Some(before) = self.last_counters.get(&node.node) else {
                next.insert(node.node, counters);
                continue;
            };
            let passed = counters.time.saturating_duration_since(before.time);
            if passed < RATE_INTERVAL_MIN {
                // A response was late, so two statuses are too close. The next poll counts both.
                next.insert(node.node, before.clone());
                rates.extend(self.rates.get(&node.node).map(|rate| (node.node, *rate)));
                continue;
            }
            let since = counters.increase_since(before);
            next.insert(node.node, counters);
            let Some(since) = since else {
                continue;
            };
            is_known = true;
            all.add(&since.traffic);
            let rate = since.traffic.applied as f64 / passed.as_secs_f64();
            let sent_bytes = since.sent_bytes.map(|bytes| bytes as f64 / passed.as_secs_f64());
            let rate = NodeRates { commands_per_second: rate, bytes_per_second: sent_bytes };
            rates.insert(node.node, rate);
            if Some(node.node) == now.leader {
                commands = Some(rate.commands_per_second);
            }
        }
        (self.last_counters, self.rates) = (next, rates);
        let last = self.samples.back().copied();
        let carried = match (now.leader, now.leader_status) {
            (None, _) => is_known.then_some(0.0),
            (Some(_), None) => None,
            (Some(_), Some(_)) => last.and_then(|last| last.commands_per_second),
        };
        let was = self.last_seen.as_ref().map(|seen| seen.leader);
        self.samples.push_back(Sample {
            commands_per_second: commands.or(carried),
            latency_us: all.percentile_us(0.5).zip(all.percentile_us(0.99)),
            leader_changed: was.is_some_and(|was| was != now.leader),
        });
        if self.samples.len() > SAMPLES_MAX {
            self.samples.pop_front();
        }
    }

    fn add_events(&mut self, now: &ClusterSnapshot<'_>) {
        let seen = SeenState::from_snapshot(now);
        let Some(was) = self.last_seen.replace(seen.clone()) else {
            return;
        };
        let mut told = Vec::new();
        let mut tell = |is_bad: bool, what: String| told.push((is_bad, what));
        if was.leader != seen.leader {
            match seen.leader {
                Some(leader) => tell(false, format!("node {leader} leads")),
                None => tell(true, "no leader".to_owned()),
            }
        }
        if was.level != seen.level {
            match seen.level {
                QuorumHealth::QuorumLost => tell(true, "quorum lost".to_owned()),
                QuorumHealth::NoSpareVoter => {
                    tell(true, "one failure away from quorum loss".to_owned())
                }
                QuorumHealth::HasSpare => tell(false, "the cluster tolerates a failure".to_owned()),
                QuorumHealth::TooFewVoters | QuorumHealth::Unknown => {}
            }
        }
        if was.plan != seen.plan {
            match &seen.plan {
                Some((id, what)) => tell(false, format!("plan {id}: {what}")),
                None => tell(false, "the plan ended".to_owned()),
            }
        }
        for (node, is) in &seen.nodes {
            let Some(was) = was.nodes.get(node) else {
                tell(false, format!("node {node} is new: {}", is.state));
                continue;
            };
            if was.error != is.error
                && let Some(error) = &is.error
            {
                tell(true, format!("node {node}: {error}"));
            } else if was.state != is.state {
                let is_bad = matches!(is.state, "no answer" | "error");
                tell(is_bad, format!("node {node}: {}", is.state));
            }
            if let (Some(was), Some(is)) = (&was.version, &is.version)
                && was != is
            {
                tell(false, format!("node {node} now runs version {is}, before {was}"));
            }
        }
        for node in was.nodes.keys().filter(|node| !seen.nodes.contains_key(node)) {
            tell(false, format!("node {node} left the cluster"));
        }
        for (is_bad, what) in told {
            self.events.push_back(Event { time: now.time, is_bad, description: what });
        }
        let surplus = self.events.len().saturating_sub(EVENTS_MAX);
        self.events.drain(..surplus);
    }
}

/// Increase of the counters between two polls.
struct CounterIncrease {
    traffic: TrafficView,
    sent_bytes: Option<u64>,
}

impl NodeCounters {
    fn from_view(view: &NodeView, now: &ClusterSnapshot<'_>, at: Instant) -> Self {
        let leading = now.leader_status.filter(|leading| leading.node != view.node);
        let sent = leading.and_then(|leading| {
            let mut members = leading.members.iter();
            let member = members.find(|member| member.node == view.node)?;
            Some((leading.node, member.payload_bytes_sent))
        });
        Self { time: at, traffic: view.traffic.clone(), sent_by_leader: sent }
    }

    /// Returns the increase since `before`, or `None` if a restart has reset a counter.
    fn increase_since(&self, before: &Self) -> Option<CounterIncrease> {
        let sent = self.sent_by_leader.zip(before.sent_by_leader);
        let sent = sent.filter(|((by, _), (then, _))| by == then);
        Some(CounterIncrease {
            traffic: self.traffic.increase_since(&before.traffic)?,
            sent_bytes: sent.and_then(|((_, is), (_, was))| is.checked_sub(was)),
        })
    }
}

impl SeenState {
    fn from_snapshot(now: &ClusterSnapshot<'_>) -> Self {
        let plan = now.best_view.and_then(|view| view.plan.as_ref());
        let nodes = now.nodes.iter().map(|node| {
            let fresh = node.fresh_view();
            let seen = SeenNode {
                state: node_state_text(node),
                version: node.view.map(|view| view.version.clone()),
                error: fresh.and_then(|view| view.error.clone()),
            };
            (node.node, seen)
        });
        Self {
            leader: now.leader,
            // If no node responds, the state of the quorum is unknown.
            level: match now.is_silent() {
                true => QuorumHealth::Unknown,
                false => voter_health(now).quorum_health,
            },
            plan: plan.map(|plan| (plan.id, plan.what.clone())),
            nodes: nodes.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            cluster::Cluster,
            fixtures::{self, record_status},
        },
        *,
    };

    const SECOND: Duration = Duration::from_secs(1);

    /// Test harness that polls at given times and receives given responses.
    struct Watched {
        began: Instant,
        cluster: Cluster,
        history: History,
    }

    impl Watched {
        fn new() -> Self {
            let began = Instant::now();
            let cluster = fixtures::sample_cluster(began, Some);
            let mut history = History::default();
            history.record_poll(&cluster.snapshot_at(began));
            Self { began, cluster, history }
        }

        fn look(&mut self, second: u32, change: impl Fn(NodeView) -> Option<NodeView>) -> Sample {
            let at = self.began + SECOND * second;
            record_status(&mut self.cluster, at, change);
            self.history.record_poll(&self.cluster.snapshot_at(at));
            *self.history.samples.back().unwrap()
        }

        fn events(&self) -> Vec<&str> {
            let events = self.history.events.iter();
            events.map(|event| &*event.description).collect()
        }
    }

    fn busy(commands: u64) -> impl Fn(NodeView) -> Option<NodeView> {
        move |mut view| {
            view.traffic.applied += commands;
            view.traffic.add(&fixtures::traffic_with(commands / 2, 224));
            for member in &mut view.members {
                member.payload_bytes_sent += commands * 64;
            }
            Some(view)
        }
    }

    #[test]
    fn rates_are_increases_between_two_polls() {
        let mut watched = Watched::new();
        assert_eq!(watched.history.samples[0].commands_per_second, None);
        let sample = watched.look(2, busy(400));
        assert_eq!(
            (sample.commands_per_second, sample.latency_us.map(|(median, _)| median)),
            (Some(200.0), Some(208.0))
        );
        let rates = &watched.history.rates;
        assert_eq!(
            (rates[&2].commands_per_second, rates[&2].bytes_per_second),
            (200.0, Some(12_800.0))
        );
        assert_eq!(rates[&1].bytes_per_second, None);
        // No command was answered, so the latency is unknown.
        let sample = watched.look(3, busy(400));
        assert_eq!((sample.commands_per_second, sample.latency_us), (Some(0.0), None));
    }

    #[test]
    fn restarted_process_and_stale_response_add_no_rate() {
        let mut watched = Watched::new();
        watched.look(1, busy(400));
        // The same responses again: the known rates stay.
        let at = watched.began + SECOND + RATE_INTERVAL_MIN / 2;
        watched.history.record_poll(&watched.cluster.snapshot_at(at));
        assert_eq!(watched.history.samples.back().unwrap().commands_per_second, Some(400.0));
        assert_eq!(watched.history.rates[&3].commands_per_second, 400.0);
        watched.look(2, |mut view| {
            view.traffic = TrafficView::default();
            Some(view)
        });
        assert!(watched.history.rates.is_empty());
    }

    #[test]
    fn events_are_reported_once() {
        let mut watched = Watched::new();
        watched.look(1, Some);
        assert_eq!(watched.events(), [""; 0]);
        let cut = |mut view: NodeView| {
            view.members[2].connected = false;
            (view.node != 3).then_some(view)
        };
        for second in 2..8 {
            watched.look(second, cut);
        }
        let expected = ["one failure away from quorum loss", "node 3: no answer"];
        assert_eq!(watched.events(), expected);
        watched.look(8, |mut view| {
            (view.leader, view.ballot.round) = (Some(2), 4);
            view.version = "0.2.0".to_owned();
            Some(view)
        });
        assert!(watched.history.samples.back().unwrap().leader_changed);
        assert_eq!(
            watched.events()[2..],
            [
                "node 2 leads",
                "the cluster tolerates a failure",
                "node 1 now runs version 0.2.0, before 0.1.0",
                "node 2 now runs version 0.2.0, before 0.1.0",
                "node 3: serves",
                "node 3 now runs version 0.2.0, before 0.1.0",
            ]
        );
    }

    #[test]
    fn memory_is_bounded() {
        let mut watched = Watched::new();
        for second in 1..1500 {
            watched.look(second, |mut view| {
                (view.leader, view.ballot.round) = (Some(1 + second % 3), u64::from(second));
                Some(view)
            });
        }
        let history = &watched.history;
        assert_eq!(history.samples.len(), SAMPLES_MAX);
        assert_eq!(history.events.len(), EVENTS_MAX);
    }
}
