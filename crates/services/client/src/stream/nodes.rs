//! Selects the node to try next and the delay before the attempt, and decides when to give up.

use std::time::{Duration, Instant};

use quorate_tls::stream::is_tls_failure;

use super::{
    Options,
    error::{Error, Trouble},
    link::{Link, connect},
};

/// Nodes of a cluster, tried in turn.
#[derive(Debug)]
pub(super) struct Nodes {
    addresses: Vec<String>,
    at: usize,
    pub(super) options: Options,
    /// Failed attempts since the last success.
    failures: u32,
    /// First failure since the last success.
    since: Option<Instant>,
    /// Set once a node has accepted a connection without demanding another identity.
    met: bool,
    /// Set once an attempt has succeeded.
    served: bool,
    /// Node of the current attempt; `None` once it has succeeded.
    last: Option<String>,
    /// Node of the last failed attempt.
    avoid: Option<String>,
}

impl Nodes {
    /// Creates the state for the nodes at `addresses`. Panics if there are none.
    pub(super) fn new<A: Into<String> + Clone>(addresses: &[A], options: Options) -> Self {
        assert!(!addresses.is_empty(), "a client needs an address");
        Self {
            addresses: addresses.iter().cloned().map(Into::into).collect(),
            at: 0,
            options,
            failures: 0,
            since: None,
            met: false,
            served: false,
            last: None,
            avoid: None,
        }
    }

    /// Connects to the next node in turn.
    pub(super) fn dial(&mut self) -> Result<Link, Trouble> {
        let address = self.addresses[self.at].clone();
        self.dial_to(&address)
    }

    fn dial_to(&mut self, address: &str) -> Result<Link, Trouble> {
        let wait = self.options.attempt;
        let mut dial = || {
            let socket = connect(address, self.options.tls.as_ref(), wait)?;
            let login = self.options.login.as_ref();
            let link = Link::greet(address, socket, login, wait);
            self.met |= !matches!(&link, Err(Trouble::Later(why)) if is_tls_failure(why));
            link
        };
        match dial() {
            Ok(link) => {
                self.last = Some(link.address.clone());
                Ok(link)
            }
            Err(Trouble::Later(why)) => Err(Trouble::Later(format!("{address}: {why}"))),
            Err(last) => Err(last),
        }
    }

    /// Connects to the leader that the next node in turn names, because a writer's bytes pass
    /// through the leader anyway. If the user gave only one address, or the leader is unreachable
    /// or failed last, uses the node itself.
    pub(super) fn dial_leader(&mut self) -> Result<Link, Trouble> {
        let link = self.dial()?;
        let avoided = self.avoid.as_ref() == Some(&link.leader);
        if self.addresses.len() == 1 || link.leader.is_empty() || avoided {
            return Ok(link);
        }
        Ok(self.dial_to(&link.leader).unwrap_or(link))
    }

    /// Records a failed attempt. Returns the delay before the next one, or an error if the client
    /// gives up. If no node has ever accepted a connection, each address gets only one attempt.
    pub(super) fn failed(&mut self, why: String) -> Result<Duration, Error> {
        let all = self.addresses.len();
        self.at = (self.at + 1) % all;
        self.failures += 1;
        self.avoid = self.last.take();
        let since = *self.since.get_or_insert_with(Instant::now);
        let patience = match self.served {
            true => self.options.patience,
            false => self.options.open,
        };
        let none_listens = !self.met && self.failures as usize >= all;
        if none_listens || since.elapsed() >= patience {
            return Err(Error::Unreachable(why));
        }
        // Delays start once every address has failed, because the failure of one node says nothing
        // about the others.
        let rounds = self.failures as usize / all;
        let wait = rounds.checked_sub(1).map_or(Duration::ZERO, |doublings| {
            self.options.backoff_min * (1 << doublings.min(10))
        });
        Ok(wait.min(self.options.backoff_max))
    }

    /// Records a successful attempt and resets the backoff.
    pub(super) fn served(&mut self) {
        self.failures = 0;
        self.last = None;
        self.reached();
    }

    /// Records that a node is reachable and owes no response. The backoff remains, because the next
    /// request may fail at once.
    pub(super) fn reached(&mut self) {
        self.since = None;
        self.served = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_is_tried_before_a_bounded_wait() {
        let options = Options {
            backoff_min: Duration::from_millis(10),
            backoff_max: Duration::from_millis(35),
            ..Options::default()
        };
        let mut nodes = Nodes::new(&["a", "b"], options);
        nodes.met = true;
        let waits: Vec<u128> =
            (0..8).map(|_| nodes.failed(String::new()).unwrap().as_millis()).collect();
        assert_eq!(waits, [0, 10, 10, 20, 20, 35, 35, 35]);
        nodes.served();
        assert_eq!(nodes.failed(String::new()), Ok(Duration::ZERO));
    }

    #[test]
    fn unreachable_nodes_are_tried_once() {
        let mut nodes = Nodes::new(&["a", "b"], Options::default());
        assert_eq!(nodes.failed(String::new()), Ok(Duration::ZERO));
        let last = Err(Error::Unreachable("no".to_owned()));
        assert_eq!(nodes.failed("no".to_owned()), last);
    }
}
