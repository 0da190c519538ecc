//! State of the screen, and the actions that keys trigger.

use std::time::{Duration, Instant};

use super::{
    cluster::{Cluster, ClusterSnapshot},
    gather::NodeResponse,
    history::{History, node_state_text},
};

/// Views that the screen can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    Overview,
    Members,
    Links,
    Elections,
    Tuning,
}

impl View {
    pub(super) const ALL: [Self; 5] =
        [Self::Overview, Self::Members, Self::Links, Self::Elections, Self::Tuning];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Overview => "Overview",
            Self::Members => "Members",
            Self::Links => "Links",
            Self::Elections => "Elections",
            Self::Tuning => "Tuning",
        }
    }

    const fn tab_index(self) -> usize {
        self as usize
    }

    fn next(self, steps: usize) -> Self {
        Self::ALL[(self.tab_index() + steps) % Self::ALL.len()]
    }
}

/// Order in which nodes are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SortOrder {
    Node,
    MostTrouble,
    MostBehind,
    Commands,
    DiskFull,
}

impl SortOrder {
    const ALL: [Self; 5] =
        [Self::Node, Self::MostTrouble, Self::MostBehind, Self::Commands, Self::DiskFull];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Node => "id",
            Self::MostTrouble => "trouble",
            Self::MostBehind => "most behind",
            Self::Commands => "commands",
            Self::DiskFull => "disk full soonest",
        }
    }
}

/// Action requested by a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Show(View),
    NextView,
    PreviousView,
    /// Move down by a number of lines. A negative number moves up.
    Move(isize),
    First,
    Last,
    Details,
    Pause,
    Sort,
    Help,
    /// Close the help if it is open, else quit.
    Back,
    Quit,
    Interrupt,
    Suspend,
    Redraw,
}

/// Action that the caller must carry out after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterKey {
    Continue,
    Quit,
    Interrupt,
    Suspend,
    Redraw,
}

/// Status of the cluster, with its recorded history.
#[derive(Clone, Debug)]
pub(super) struct WatchedCluster {
    pub(super) cluster: Cluster,
    pub(super) history: History,
}

/// State of the screen, which keys and status updates change.
#[derive(Clone, Debug)]
pub(super) struct App {
    live_contents: WatchedCluster,
    /// Time and contents of the screen when it was paused, or `None` if it is not.
    paused_contents: Option<(Instant, WatchedCluster)>,
    pub(super) poll_interval: Duration,
    pub(super) view: View,
    pub(super) sort_order: SortOrder,
    pub(super) shows_help: bool,
    pub(super) selected_node: Option<u32>,
    /// Number of lines by which the view is scrolled down.
    pub(super) scrolled_lines: usize,
    /// Maximum value of `scrolled_lines`. The last drawing determines it.
    pub(super) scrolled_lines_max: usize,
}

impl App {
    pub(super) fn new(every: Duration) -> Self {
        Self {
            live_contents: WatchedCluster {
                cluster: Cluster::new(every),
                history: History::default(),
            },
            paused_contents: None,
            poll_interval: every,
            view: View::Overview,
            sort_order: SortOrder::Node,
            shows_help: false,
            selected_node: None,
            scrolled_lines: 0,
            scrolled_lines_max: 0,
        }
    }

    pub(super) fn record_response(&mut self, news: NodeResponse, at: Instant) {
        self.live_contents.cluster.record_response(news, at);
    }

    /// Records the current state in the history. Must be called at each polling interval.
    pub(super) fn record_state(&mut self, at: Instant) {
        self.live_contents.history.record_poll(&self.live_contents.cluster.snapshot_at(at));
    }

    /// Returns the contents to show, and the time to which they refer.
    pub(super) fn contents_at(&self, at: Instant) -> (&WatchedCluster, Instant) {
        match &self.paused_contents {
            Some((since, watched)) => (watched, *since),
            None => (&self.live_contents, at),
        }
    }

    pub(super) fn paused_since(&self) -> Option<Instant> {
        self.paused_contents.as_ref().map(|(since, _)| *since)
    }

    /// Returns the node ids in the selected sort order.
    pub(super) fn sorted_nodes(&self, now: &ClusterSnapshot<'_>, history: &History) -> Vec<u32> {
        let mut nodes: Vec<_> = now.nodes.iter().collect();
        let rate =
            |node: u32| history.rates.get(&node).map_or(-1.0, |rate| rate.commands_per_second);
        let view = |node: u32| now.node(node).and_then(|node| node.view);
        match self.sort_order {
            SortOrder::Node => {}
            SortOrder::MostTrouble => nodes.sort_by_key(|node| match node_state_text(node) {
                "no answer" | "never seen" => 0,
                "error" => 1,
                "starting" => 2,
                "catching up" => 3,
                _ => 4,
            }),
            // Nodes with an unknown lag are listed first.
            SortOrder::MostBehind => nodes.sort_by_key(|node| {
                let leads = Some(node.node) == now.leader;
                std::cmp::Reverse(match now.lag_slots(node.node) {
                    Some(lag) => lag,
                    None if leads => 0,
                    None => u64::MAX,
                })
            }),
            SortOrder::Commands => nodes.sort_by(|a, b| rate(b.node).total_cmp(&rate(a.node))),
            SortOrder::DiskFull => nodes.sort_by_key(|node| {
                let full = view(node.node).and_then(|view| view.disk.full_in_seconds);
                full.unwrap_or(u64::MAX)
            }),
        }
        nodes.iter().map(|node| node.node).collect()
    }

    /// Returns the selected node. Returns the first one if none is selected, or if the selected
    /// node is no longer listed.
    pub(super) fn selected_node(&self, order: &[u32]) -> Option<u32> {
        let is_there = |node: &u32| order.contains(node);
        self.selected_node.filter(is_there).or_else(|| order.first().copied())
    }

    /// Applies a key's action to the screen. Returns what the caller has to do.
    pub(super) fn apply_action(&mut self, wish: Action, at: Instant) -> AfterKey {
        match wish {
            Action::Quit => return AfterKey::Quit,
            Action::Interrupt => return AfterKey::Interrupt,
            Action::Suspend => return AfterKey::Suspend,
            Action::Redraw => return AfterKey::Redraw,
            Action::Back if !self.shows_help => return AfterKey::Quit,
            Action::Back => self.shows_help = false,
            Action::Help => self.shows_help = !self.shows_help,
            Action::Show(view) => self.show_view(view),
            Action::NextView => self.show_view(self.view.next(1)),
            Action::PreviousView => self.show_view(self.view.next(View::ALL.len() - 1)),
            Action::Details => self.show_view(View::Members),
            Action::Move(lines) => self.move_by(at, lines),
            Action::First => self.move_by(at, isize::MIN / 2),
            Action::Last => self.move_by(at, isize::MAX / 2),
            Action::Pause => {
                self.paused_contents = match self.paused_contents.take() {
                    Some(_) => None,
                    None => Some((at, self.live_contents.clone())),
                }
            }
            Action::Sort => {
                let place = SortOrder::ALL.iter().position(|sort| *sort == self.sort_order);
                self.sort_order = SortOrder::ALL[(place.unwrap_or(0) + 1) % SortOrder::ALL.len()];
            }
        }
        AfterKey::Continue
    }

    fn show_view(&mut self, view: View) {
        (self.view, self.shows_help, self.scrolled_lines) = (view, false, 0);
    }

    /// Returns whether the up and down keys select a node instead of scrolling.
    fn can_select_nodes(&self) -> bool {
        !self.shows_help && matches!(self.view, View::Overview | View::Members)
    }

    fn move_by(&mut self, at: Instant, lines: isize) {
        if !self.can_select_nodes() {
            let to = self.scrolled_lines.min(self.scrolled_lines_max);
            self.scrolled_lines = to.saturating_add_signed(lines).min(self.scrolled_lines_max);
            return;
        }
        let (watched, at) = self.contents_at(at);
        let order = self.sorted_nodes(&watched.cluster.snapshot_at(at), &watched.history);
        let Some(selected) = self.selected_node(&order) else {
            return;
        };
        let place = order.iter().position(|node| *node == selected).unwrap_or(0);
        let to = place.saturating_add_signed(lines).min(order.len() - 1);
        self.selected_node = Some(order[to]);
    }
}

#[cfg(test)]
mod tests {
    use quorate_admin::view::Answer;

    use super::{super::fixtures, *};

    fn app(at: Instant) -> App {
        let mut app = App::new(Duration::from_secs(1));
        app.live_contents.cluster = fixtures::sample_cluster(at, |mut view| {
            view.disk.full_in_seconds = Some(u64::from(100 - view.node));
            Some(view)
        });
        app
    }

    fn order(app: &App, at: Instant) -> Vec<u32> {
        let (watched, at) = app.contents_at(at);
        app.sorted_nodes(&watched.cluster.snapshot_at(at), &watched.history)
    }

    #[test]
    fn views_cycle_and_have_numbers() {
        let at = Instant::now();
        let mut app = app(at);
        let mut seen = Vec::new();
        for _ in View::ALL {
            seen.push(app.view);
            app.apply_action(Action::NextView, at);
        }
        assert_eq!((&seen[..], app.view), (&View::ALL[..], View::Overview));
        app.apply_action(Action::PreviousView, at);
        assert_eq!(app.view, View::Tuning);
        app.apply_action(Action::Show(View::Links), at);
        assert_eq!(app.view, View::Links);
    }

    #[test]
    fn selection_survives_sorting() {
        let at = Instant::now();
        let mut app = app(at);
        assert_eq!(app.selected_node(&order(&app, at)), Some(1));
        app.apply_action(Action::Move(1), at);
        assert_eq!(app.selected_node, Some(2));
        let mut orders = vec![order(&app, at)];
        for _ in 0..4 {
            app.apply_action(Action::Sort, at);
            orders.push(order(&app, at));
        }
        let expected = [[1, 2, 3], [1, 2, 3], [3, 1, 2], [1, 2, 3], [3, 2, 1]];
        assert_eq!(orders, expected);
        assert_eq!(app.selected_node, Some(2));
        app.apply_action(Action::Move(1), at);
        assert_eq!(app.selected_node, Some(1));
        app.apply_action(Action::First, at);
        app.apply_action(Action::Move(-1), at);
        assert_eq!(app.selected_node, Some(3));
        app.apply_action(Action::Last, at);
        assert_eq!(app.selected_node, Some(1));
    }

    #[test]
    fn pause_freezes_the_display_but_not_the_polling() {
        let at = Instant::now();
        let mut app = app(at);
        app.apply_action(Action::Pause, at);
        let later = at + Duration::from_secs(60);
        let mut view = fixtures::sample_status(1);
        view.applied = 12_345;
        let answer = Answer::Node(Box::new(view));
        app.record_response(NodeResponse::Answer("admin:1".to_owned(), answer), later);
        let applied = |app: &App| {
            let (watched, at) = app.contents_at(later);
            let now = watched.cluster.snapshot_at(at);
            let node = now.node(1).unwrap();
            (node.view.unwrap().applied, node.is_stale)
        };
        assert_eq!(applied(&app), (8900, false));
        app.apply_action(Action::Pause, later);
        assert_eq!(applied(&app), (12_345, false));
    }

    #[test]
    fn scrolling_stops_at_the_last_line() {
        let at = Instant::now();
        let mut app = app(at);
        app.apply_action(Action::Show(View::Tuning), at);
        app.scrolled_lines_max = 3;
        for (lines, expected) in [(1, 1), (10, 3), (-1, 2), (-10, 0)] {
            app.apply_action(Action::Move(lines), at);
            assert_eq!(app.scrolled_lines, expected);
        }
        app.apply_action(Action::Last, at);
        assert_eq!(app.scrolled_lines, 3);
    }

    #[test]
    fn escape_leaves_the_help_first() {
        let at = Instant::now();
        let mut app = app(at);
        app.apply_action(Action::Help, at);
        assert!(app.shows_help);
        assert_eq!(app.apply_action(Action::Back, at), AfterKey::Continue);
        assert_eq!(app.apply_action(Action::Back, at), AfterKey::Quit);
        assert_eq!(app.apply_action(Action::Interrupt, at), AfterKey::Interrupt);
    }
}
