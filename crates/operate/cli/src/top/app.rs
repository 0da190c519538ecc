//! State of the screen, and the actions that keys trigger.

use std::time::{Duration, Instant};

use super::{
    cluster::{Cluster, Now},
    gather::News,
    history::{History, state},
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

    const fn place(self) -> usize {
        self as usize
    }

    fn next(self, steps: usize) -> Self {
        Self::ALL[(self.place() + steps) % Self::ALL.len()]
    }
}

/// Order in which nodes are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    Node,
    Trouble,
    Behind,
    Commands,
    DiskFull,
}

impl Sort {
    const ALL: [Self; 5] =
        [Self::Node, Self::Trouble, Self::Behind, Self::Commands, Self::DiskFull];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Node => "id",
            Self::Trouble => "trouble",
            Self::Behind => "most behind",
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
    LastView,
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
    GoOn,
    Quit,
    Interrupt,
    Suspend,
    Redraw,
}

/// Status of the cluster, with its recorded history.
#[derive(Clone, Debug)]
pub(super) struct Watched {
    pub(super) cluster: Cluster,
    pub(super) history: History,
}

/// State of the screen, which keys and status updates change.
#[derive(Clone, Debug)]
pub(super) struct App {
    live: Watched,
    /// Time and contents of the screen when it was paused, or `None` if it is not.
    paused: Option<(Instant, Watched)>,
    pub(super) every: Duration,
    pub(super) view: View,
    pub(super) sort: Sort,
    pub(super) is_help: bool,
    pub(super) selected: Option<u32>,
    /// Number of lines by which the view is scrolled down.
    pub(super) scrolled: usize,
    /// Maximum value of `scrolled`. The last drawing determines it.
    pub(super) scroll_max: usize,
}

impl App {
    pub(super) fn new(every: Duration) -> Self {
        Self {
            live: Watched { cluster: Cluster::new(every), history: History::default() },
            paused: None,
            every,
            view: View::Overview,
            sort: Sort::Node,
            is_help: false,
            selected: None,
            scrolled: 0,
            scroll_max: 0,
        }
    }

    pub(super) fn record_news(&mut self, news: News, at: Instant) {
        self.live.cluster.take(news, at);
    }

    /// Records the current state in the history. Must be called at each polling interval.
    pub(super) fn record_state(&mut self, at: Instant) {
        self.live.history.look(&self.live.cluster.read(at));
    }

    /// Returns the contents to show, and the time to which they refer.
    pub(super) fn contents_at(&self, at: Instant) -> (&Watched, Instant) {
        match &self.paused {
            Some((since, watched)) => (watched, *since),
            None => (&self.live, at),
        }
    }

    pub(super) fn paused_since(&self) -> Option<Instant> {
        self.paused.as_ref().map(|(since, _)| *since)
    }

    /// Returns the node ids in the selected sort order.
    pub(super) fn order(&self, now: &Now<'_>, history: &History) -> Vec<u32> {
        let mut nodes: Vec<_> = now.nodes.iter().collect();
        let rate = |node: u32| history.rates.get(&node).map_or(-1.0, |rate| rate.commands);
        let view = |node: u32| now.node(node).and_then(|node| node.view);
        match self.sort {
            Sort::Node => {}
            Sort::Trouble => nodes.sort_by_key(|node| match state(node) {
                "no answer" | "never seen" => 0,
                "error" => 1,
                "starting" => 2,
                "catching up" => 3,
                _ => 4,
            }),
            // Nodes with an unknown lag are listed first.
            Sort::Behind => nodes.sort_by_key(|node| {
                let leads = Some(node.node) == now.leader;
                std::cmp::Reverse(match now.lag(node.node) {
                    Some(lag) => lag,
                    None if leads => 0,
                    None => u64::MAX,
                })
            }),
            Sort::Commands => nodes.sort_by(|a, b| rate(b.node).total_cmp(&rate(a.node))),
            Sort::DiskFull => nodes.sort_by_key(|node| {
                let full = view(node.node).and_then(|view| view.disk.full_in_seconds);
                full.unwrap_or(u64::MAX)
            }),
        }
        nodes.iter().map(|node| node.node).collect()
    }

    /// Returns the selected node. Returns the first one if none is selected, or if the selected
    /// node is no longer listed.
    pub(super) fn selected(&self, order: &[u32]) -> Option<u32> {
        let is_there = |node: &u32| order.contains(node);
        self.selected.filter(is_there).or_else(|| order.first().copied())
    }

    /// Applies a key's action to the screen. Returns what the caller has to do.
    pub(super) fn apply_action(&mut self, wish: Action, at: Instant) -> AfterKey {
        match wish {
            Action::Quit => return AfterKey::Quit,
            Action::Interrupt => return AfterKey::Interrupt,
            Action::Suspend => return AfterKey::Suspend,
            Action::Redraw => return AfterKey::Redraw,
            Action::Back if !self.is_help => return AfterKey::Quit,
            Action::Back => self.is_help = false,
            Action::Help => self.is_help = !self.is_help,
            Action::Show(view) => self.show(view),
            Action::NextView => self.show(self.view.next(1)),
            Action::LastView => self.show(self.view.next(View::ALL.len() - 1)),
            Action::Details => self.show(View::Members),
            Action::Move(lines) => self.go(at, lines),
            Action::First => self.go(at, isize::MIN / 2),
            Action::Last => self.go(at, isize::MAX / 2),
            Action::Pause => {
                self.paused = match self.paused.take() {
                    Some(_) => None,
                    None => Some((at, self.live.clone())),
                }
            }
            Action::Sort => {
                let place = Sort::ALL.iter().position(|sort| *sort == self.sort);
                self.sort = Sort::ALL[(place.unwrap_or(0) + 1) % Sort::ALL.len()];
            }
        }
        AfterKey::GoOn
    }

    fn show(&mut self, view: View) {
        (self.view, self.is_help, self.scrolled) = (view, false, 0);
    }

    /// Returns whether the up and down keys select a node instead of scrolling.
    fn selects(&self) -> bool {
        !self.is_help && matches!(self.view, View::Overview | View::Members)
    }

    fn go(&mut self, at: Instant, lines: isize) {
        if !self.selects() {
            let to = self.scrolled.min(self.scroll_max);
            self.scrolled = to.saturating_add_signed(lines).min(self.scroll_max);
            return;
        }
        let (watched, at) = self.contents_at(at);
        let order = self.order(&watched.cluster.read(at), &watched.history);
        let Some(selected) = self.selected(&order) else {
            return;
        };
        let place = order.iter().position(|node| *node == selected).unwrap_or(0);
        let to = place.saturating_add_signed(lines).min(order.len() - 1);
        self.selected = Some(order[to]);
    }
}

#[cfg(test)]
mod tests {
    use quorate_admin::view::Answer;

    use super::{super::fixtures, *};

    fn app(at: Instant) -> App {
        let mut app = App::new(Duration::from_secs(1));
        app.live.cluster = fixtures::cluster(at, |mut view| {
            view.disk.full_in_seconds = Some(u64::from(100 - view.node));
            Some(view)
        });
        app
    }

    fn order(app: &App, at: Instant) -> Vec<u32> {
        let (watched, at) = app.contents_at(at);
        app.order(&watched.cluster.read(at), &watched.history)
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
        app.apply_action(Action::LastView, at);
        assert_eq!(app.view, View::Tuning);
        app.apply_action(Action::Show(View::Links), at);
        assert_eq!(app.view, View::Links);
    }

    #[test]
    fn selection_survives_sorting() {
        let at = Instant::now();
        let mut app = app(at);
        assert_eq!(app.selected(&order(&app, at)), Some(1));
        app.apply_action(Action::Move(1), at);
        assert_eq!(app.selected, Some(2));
        let mut orders = vec![order(&app, at)];
        for _ in 0..4 {
            app.apply_action(Action::Sort, at);
            orders.push(order(&app, at));
        }
        let expected = [[1, 2, 3], [1, 2, 3], [3, 1, 2], [1, 2, 3], [3, 2, 1]];
        assert_eq!(orders, expected);
        assert_eq!(app.selected, Some(2));
        app.apply_action(Action::Move(1), at);
        assert_eq!(app.selected, Some(1));
        app.apply_action(Action::First, at);
        app.apply_action(Action::Move(-1), at);
        assert_eq!(app.selected, Some(3));
        app.apply_action(Action::Last, at);
        assert_eq!(app.selected, Some(1));
    }

    #[test]
    fn pause_freezes_the_display_but_not_the_polling() {
        let at = Instant::now();
        let mut app = app(at);
        app.apply_action(Action::Pause, at);
        let later = at + Duration::from_secs(60);
        let mut view = fixtures::view(1);
        view.applied = 12_345;
        let answer = Answer::Node(Box::new(view));
        app.record_news(News::Answer("admin:1".to_owned(), answer), later);
        let applied = |app: &App| {
            let (watched, at) = app.contents_at(later);
            let now = watched.cluster.read(at);
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
        app.scroll_max = 3;
        for (lines, expected) in [(1, 1), (10, 3), (-1, 2), (-10, 0)] {
            app.apply_action(Action::Move(lines), at);
            assert_eq!(app.scrolled, expected);
        }
        app.apply_action(Action::Last, at);
        assert_eq!(app.scrolled, 3);
    }

    #[test]
    fn escape_leaves_the_help_first() {
        let at = Instant::now();
        let mut app = app(at);
        app.apply_action(Action::Help, at);
        assert!(app.is_help);
        assert_eq!(app.apply_action(Action::Back, at), AfterKey::GoOn);
        assert_eq!(app.apply_action(Action::Back, at), AfterKey::Quit);
        assert_eq!(app.apply_action(Action::Interrupt, at), AfterKey::Interrupt);
    }
}
