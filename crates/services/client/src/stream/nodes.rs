//! Selects the node to try next and the delay before the attempt, and decides when to give up.

use std::time::{Duration, Instant};

use quorate_tls::stream::is_tls_failure;

use super::{
    Options,
    error::{AttemptError, Error},
    link::{Link, connect},
};

/// Nodes of a cluster, tried in turn.
#[derive(Debug)]
pub(super) struct Nodes {
    addresses: Vec<String>,
    next_index: usize,
    pub(super) options: Options,
    /// Failed attempts since the last success.
    consecutive_failures: u32,
    /// First failure since the last success.
    failing_since: Option<Instant>,
    /// Set once a node has accepted a connection without demanding another identity.
    has_connected: bool,
    /// Set once an attempt has succeeded.
    has_succeeded: bool,
    /// Node of the current attempt; `None` once it has succeeded.
    attempted_node: Option<String>,
    /// Node of the last failed attempt.
    failed_node: Option<String>,
}

impl Nodes {
    /// Creates the state for the nodes at `addresses`. Panics if there are none.
    pub(super) fn new<A: Into<String> + Clone>(addresses: &[A], options: Options) -> Self {
        assert!(!addresses.is_empty(), "a client needs an address");
        Self {
            addresses: addresses.iter().cloned().map(Into::into).collect(),
            next_index: 0,
            options,
            consecutive_failures: 0,
            failing_since: None,
            has_connected: false,
            has_succeeded: false,
            attempted_node: None,
            failed_node: None,
        }
    }

    /// Connects to the next node in turn.
    pub(super) fn dial_next(&mut self) -> Result<Link, AttemptError> {
        let address = self.addresses[self.next_index].clone();
        self.dial_to(&address)
    }

    fn dial_to(&mut self, address: &str) -> Result<Link, AttemptError> {
        let wait = self.options.connect_timeout;
        let mut dial = || {
            let socket = connect(address, self.options.tls.as_ref(), wait)?;
            let login = self.options.login.as_ref();
            let link = Link::greet(address, socket, login, wait);
            self.has_connected |=
                !matches!(&link, Err(AttemptError::Retryable(why)) if is_tls_failure(why));
            link
        };
        match dial() {
            Ok(link) => {
                self.attempted_node = Some(link.address.clone());
                Ok(link)
            }
            Err(AttemptError::Retryable(why)) => {
                Err(AttemptError::Retryable(format!("{address}: {why}")))
            }
            Err(last) => Err(last),
        }
    }

    /// Connects to the leader that the next node in turn names, because a writer's bytes pass
    /// through the leader anyway. If the user gave only one address, or the leader is unreachable
    /// or failed last, uses the node itself.
    pub(super) fn dial_leader(&mut self) -> Result<Link, AttemptError> {
        let link = self.dial_next()?;
        let avoided = self.failed_node.as_ref() == Some(&link.leader_address);
        if self.addresses.len() == 1 || link.leader_address.is_empty() || avoided {
            return Ok(link);
        }
        Ok(self.dial_to(&link.leader_address).unwrap_or(link))
    }

    /// Records a failed attempt. Returns the delay before the next one, or an error if the client
    /// gives up. If no node has ever accepted a connection, each address gets only one attempt.
    pub(super) fn on_failure(&mut self, why: String) -> Result<Duration, Error> {
        let all = self.addresses.len();
        self.next_index = (self.next_index + 1) % all;
        self.consecutive_failures += 1;
        self.failed_node = self.attempted_node.take();
        let since = *self.failing_since.get_or_insert_with(Instant::now);
        let patience = match self.has_succeeded {
            true => self.options.give_up_timeout,
            false => self.options.open,
        };
        let none_listens = !self.has_connected && self.consecutive_failures as usize >= all;
        if none_listens || since.elapsed() >= patience {
            return Err(Error::Unreachable(why));
        }
        // Delays start once every address has failed, because the failure of one node says nothing
        // about the others.
        let rounds = self.consecutive_failures as usize / all;
        let wait = rounds.checked_sub(1).map_or(Duration::ZERO, |doublings| {
            self.options.backoff_min * (1 << doublings.min(10))
        });
        Ok(wait.min(self.options.backoff_max))
    }

    /// Records a successful attempt and resets the backoff.
    pub(super) fn on_success(&mut self) {
        self.consecutive_failures = 0;
        self.attempted_node = None;
        self.on_reached();
    }

    /// Records that a node is reachable and owes no response. The backoff remains, because the next
    /// request may fail at once.
    pub(super) fn on_reached(&mut self) {
        self.failing_since = None;
        self.has_succeeded = true;
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
        nodes.has_connected = true;
        let waits: Vec<u128> =
            (0..8).map(|_| nodes.on_failure(String::new()).unwrap().as_millis()).collect();
        assert_eq!(waits, [0, 10, 10, 20, 20, 35, 35, 35]);
        nodes.on_success();
        assert_eq!(nodes.on_failure(String::new()), Ok(Duration::ZERO));
    }

    #[test]
    fn unreachable_nodes_are_tried_once() {
        let mut nodes = Nodes::new(&["a", "b"], Options::default());
        assert_eq!(nodes.on_failure(String::new()), Ok(Duration::ZERO));
        let last = Err(Error::Unreachable("no".to_owned()));
        assert_eq!(nodes.on_failure("no".to_owned()), last);
    }
}
