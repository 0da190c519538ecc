//! Choice of the route of votes to a leader: directly, or through a ring ([ring-1], [plane-3]).
//!
//! With a ring, the leader receives one vote instead of all, but each member of the ring adds a
//! hop. This pays off if the leader spends most of its time on votes. The prediction is the number
//! of hops of a proposal and its vote, weighted by how long a busy leader makes each hop. If all
//! nodes share two processors, a ring never pays off (`docs/performance.md`).

use quorate_core::{laying::Route, message::Message, time::Time};
use quorate_tuner::DampedChoice;

use crate::clock::to_moment;

/// Route of votes to this node while it leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VoteRoute {
    /// This fixed route.
    Fixed(Route),
    /// Directly or through a ring, whichever is predicted to be faster.
    Auto,
}

impl Default for VoteRoute {
    fn default() -> Self {
        Self::Fixed(Route::Star)
    }
}

impl VoteRoute {
    /// Parses an operator's choice; `None` if the name is unknown.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "auto" => Some(Self::Auto),
            name => Route::from_name(name).map(Self::Fixed),
        }
    }

    pub(crate) fn initial_route(&self) -> Route {
        match self {
            Self::Fixed(route) => route.clone(),
            Self::Auto => Route::Star,
        }
    }
}

/// Interval between reviews of the choice, in microseconds.
const REVIEW_INTERVAL_US: u64 = 100_000;
/// Weight of the newest measurement in the moving average.
const NEWEST_WEIGHT: f64 = 0.3;
/// Time in microseconds that a leader spends on reading and counting a vote.
const VOTE_COST_US: f64 = 6.0;
/// Upper bound of the estimated load, which is the share of busy time.
const LOAD_MAX: f64 = 0.98;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RouteKind {
    Star,
    Ring,
}

/// The chosen route, with the measurements on which the choice is based.
#[derive(Debug)]
pub(crate) struct Routing {
    choice: DampedChoice<RouteKind>,
    turn_began_at: Option<Time>,
    last_review_at: Time,
    /// Busy time since the last review, in microseconds.
    busy_us: u64,
    message_count: u64,
    /// Moving average of the share of busy time.
    busy_share: f64,
    messages_per_second: f64,
    /// Predicted cost of the two routes, in millionths of an idle leader's hop.
    predicted_costs: [u64; 2],
}

impl Routing {
    pub(crate) fn new(now: Time) -> Self {
        Self {
            choice: DampedChoice::new(RouteKind::Star, to_moment(now)),
            turn_began_at: None,
            last_review_at: now,
            busy_us: 0,
            message_count: 0,
            busy_share: 0.0,
            messages_per_second: 0.0,
            predicted_costs: [0; 2],
        }
    }

    pub(crate) const fn on_message(&mut self, message: &Message) {
        if matches!(message, Message::Phase2b(_) | Message::RingVote(_)) {
            self.message_count += 1;
        }
    }

    pub(crate) fn begin_turn(&mut self, now: Time) {
        self.turn_began_at.get_or_insert(now);
    }

    pub(crate) fn end_turn(&mut self, now: Time) {
        if let Some(began) = self.turn_began_at.take() {
            self.busy_us += now.since_us(began);
        }
    }

    /// Reviews the choice, if that is due and this node leads `voters` voters. Returns the route if
    /// it changed.
    pub(crate) fn review_choice(&mut self, leads: bool, voters: usize, now: Time) -> Option<Route> {
        let us = now.since_us(self.last_review_at);
        if us < REVIEW_INTERVAL_US {
            return None;
        }
        let (us, faded) = (us as f64, |before: f64, new: f64| {
            before * (1.0 - NEWEST_WEIGHT) + new * NEWEST_WEIGHT
        });
        self.busy_share = faded(self.busy_share, (self.busy_us as f64 / us).min(1.0));
        self.messages_per_second =
            faded(self.messages_per_second, self.message_count as f64 / us * 1e6);
        (self.last_review_at, self.busy_us, self.message_count) = (now, 0, 0);
        if !leads {
            return None;
        }
        self.predicted_costs = self.predict_costs(voters);
        let [star, ring] = self.predicted_costs;
        let both = [(RouteKind::Star, star), (RouteKind::Ring, ring)];
        self.choice.update(to_moment(now), &both).then(|| self.route())
    }

    fn route(&self) -> Route {
        match self.choice.chosen() {
            RouteKind::Star => Route::Star,
            RouteKind::Ring => Route::Ring,
        }
    }

    /// Predicts the cost of a proposal and its votes on each route, in millionths of an idle
    /// leader's hop. A busy leader's queue lengthens each hop.
    fn predict_costs(&self, voters: usize) -> [u64; 2] {
        let others = voters.saturating_sub(1).max(1) as f64;
        // A ring is a majority. Its first member receives the proposal, and each other member
        // receives a message from its predecessor.
        let ring_hops = (voters / 2 + 1) as f64;
        let star_s = match self.choice.chosen() {
            RouteKind::Star => self.messages_per_second,
            RouteKind::Ring => self.messages_per_second * others,
        };
        let saved = (star_s - star_s / others) * VOTE_COST_US / 1e6;
        let (star, ring) = match self.choice.chosen() {
            RouteKind::Star => (self.busy_share, self.busy_share - saved),
            RouteKind::Ring => (self.busy_share + saved, self.busy_share),
        };
        let waits = |hops: f64, busy: f64| {
            let cost = hops / (1.0 - busy.clamp(0.0, LOAD_MAX));
            (cost * 1e6) as u64
        };
        [waits(2.0, star), waits(ring_hops.max(2.0), ring)]
    }

    /// Returns why the current route is used, for operators.
    pub(crate) fn describe_choice(&self) -> String {
        let way = match self.choice.chosen() {
            RouteKind::Star => "straight",
            RouteKind::Ring => "by a ring",
        };
        let [star, ring] = self.predicted_costs.map(|cost| cost as f64 / 1e6);
        format!(
            "auto: votes come {way}: {:.0} messages/s, {:.0} % busy; predicted {star:.1} hops straight, {ring:.1} by a ring",
            self.messages_per_second,
            self.busy_share * 100.0
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reviews the choice every 100 ms with the given load of the leader and number of votes per
    /// second. Returns when the choice changed.
    fn looks(
        routing: &mut Routing,
        voters: usize,
        busy: f64,
        votes_s: u64,
        from_s: u64,
    ) -> Vec<u64> {
        let mut changed = Vec::new();
        for tenth in from_s * 10..(from_s + 10) * 10 {
            let now = Time(tenth * 100_000 + 100_000);
            routing.message_count += votes_s / 10;
            routing.busy_us += (busy * 100_000.0) as u64;
            if routing.review_choice(true, voters, now).is_some() {
                changed.push(tenth);
            }
        }
        changed
    }

    #[test]
    fn idle_leader_chooses_the_star() {
        let mut routing = Routing::new(Time(0));
        for voters in [1, 3, 5, 9] {
            assert!(looks(&mut routing, voters, 0.2, 3_000, 0).is_empty());
        }
        assert_eq!(routing.route(), Route::Star);
        assert!(routing.describe_choice().starts_with("auto: votes come straight"));
    }

    /// [plane-3] Votes of nine members keep a leader busy, so that hops are cheaper than its queue.
    /// The choice does not flap once the queue is gone.
    #[test]
    fn leader_busy_with_votes_chooses_a_ring() {
        let mut routing = Routing::new(Time(0));
        assert_eq!(looks(&mut routing, 9, 0.95, 120_000, 0).len(), 1);
        assert_eq!(routing.route(), Route::Ring);
        // A ring makes 15 000 messages/s of 120 000 votes/s, which saves 0.63 of a processor.
        assert!(looks(&mut routing, 9, 0.32, 15_000, 10).is_empty());
        // With few votes, they are sent directly again.
        assert_eq!(looks(&mut routing, 9, 0.05, 100, 20).len(), 1);
        assert_eq!(routing.route(), Route::Star);
    }

    /// A ring of three takes as many hops as the direct route, and saves one of two messages.
    #[test]
    fn leader_of_three_chooses_a_ring_only_if_busy_with_votes() {
        let mut routing = Routing::new(Time(0));
        assert!(looks(&mut routing, 3, 0.9, 1_000, 0).is_empty(), "busy with other things");
    }

    #[test]
    fn follower_chooses_no_route() {
        let mut routing = Routing::new(Time(0));
        for tenth in 1..100 {
            routing.message_count += 12_000;
            routing.busy_us += 95_000;
            assert!(routing.review_choice(false, 9, Time(tenth * 100_000)).is_none());
        }
    }

    #[test]
    fn routes_have_names() {
        assert_eq!(VoteRoute::from_name("auto"), Some(VoteRoute::Auto));
        assert_eq!(VoteRoute::from_name("ring"), Some(VoteRoute::Fixed(Route::Ring)));
        assert_eq!(VoteRoute::from_name("circle"), None);
        assert_eq!(VoteRoute::Auto.initial_route(), Route::Star);
        assert_eq!(VoteRoute::default(), VoteRoute::Fixed(Route::Star));
    }
}
