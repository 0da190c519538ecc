//! Which node is tried next, how long one waits before that, and when all are given up.

use std::time::{Duration, Instant};

use super::{
    Options,
    error::{Error, Trouble},
    link::{Link, connect},
};

/// The nodes that may be asked, in turn.
#[derive(Debug)]
pub(super) struct Nodes {
    addresses: Vec<String>,
    at: usize,
    pub(super) options: Options,
    /// Attempts that failed since one did what it was for.
    failures: u32,
    /// When the first of them failed.
    since: Option<Instant>,
    /// A node listens at one of the addresses.
    met: bool,
    /// An attempt did what it was for.
    served: bool,
    /// The node of the present attempt, as long as that did not do what it is for.
    last: Option<String>,
    /// The node of the attempt that failed last.
    avoid: Option<String>,
}

impl Nodes {
    /// # Panics
    /// Without an address.
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

    /// A connection to the node whose turn it is.
    pub(super) fn dial(&mut self) -> Result<Link, Trouble> {
        let address = self.addresses[self.at].clone();
        self.dial_to(&address)
    }

    fn dial_to(&mut self, address: &str) -> Result<Link, Trouble> {
        let wait = self.options.attempt;
        let mut dial = || {
            let socket = connect(address, self.options.tls.as_ref(), wait)?;
            self.met = true;
            let login = self.options.login.as_ref();
            Link::greet(address, socket, login, wait)
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

    /// The same, but to the leader if that node names it and the user named several: what a writer
    /// sends passes through the leader in any case. A leader that cannot be reached from here, or
    /// that has just failed to do it, is no obstacle.
    pub(super) fn dial_leader(&mut self) -> Result<Link, Trouble> {
        let link = self.dial()?;
        let avoided = self.avoid.as_ref() == Some(&link.leader);
        if self.addresses.len() == 1 || link.leader.is_empty() || avoided {
            return Ok(link);
        }
        Ok(self.dial_to(&link.leader).unwrap_or(link))
    }

    /// Notes a failed attempt. Returns the time until the next one, at the next node, or the error
    /// if there is none. Where no node has ever listened, each address gets one attempt.
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
        // No wait before each address had its turn once: the first failure says nothing about
        // others.
        let rounds = self.failures as usize / all;
        let wait = rounds.checked_sub(1).map_or(Duration::ZERO, |doublings| {
            self.options.backoff_min * (1 << doublings.min(10))
        });
        Ok(wait.min(self.options.backoff_max))
    }

    /// An attempt did what it was for.
    pub(super) fn served(&mut self) {
        self.failures = 0;
        self.last = None;
        self.reached();
    }

    /// A node does all that it owes, which is nothing at the moment. Should that fail at once, it
    /// is no reason to be faster.
    pub(super) fn reached(&mut self) {
        self.since = None;
        self.served = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_has_its_turn_before_anybody_waits_and_waits_are_bounded() {
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
    fn where_nobody_listens_nobody_is_asked_twice() {
        let mut nodes = Nodes::new(&["a", "b"], Options::default());
        assert_eq!(nodes.failed(String::new()), Ok(Duration::ZERO));
        let last = Err(Error::Unreachable("no".to_owned()));
        assert_eq!(nodes.failed("no".to_owned()), last);
    }
}
