//! `quorate start --join`: requests an id from a cluster, and a vote once the node has caught up.
//!
//! Every step may be repeated. A data folder always uses the same nonce and therefore gets the same
//! id ([join-2]); a second request for a vote has no effect.

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs as _},
    thread,
    time::Duration,
};

use quorate::{AddressBook, Class, Error, Founded, Joined, NodeId, Slot, Status};
use quorate_admin::{
    client::{self, Refusal, Response},
    joining::{JoinAnswer, JoinRequest, LOOPBACK_PEER_CODE, Place, UNREACHABLE_PEER_CODE},
    members::MembersRequest,
    progress::{Progress, ProgressReport},
};
use quorate_core::quorum::QuorumRule;
use quorate_net::{Handle, Unanswered};
use quorate_node::terms::FoundingTerms;
use quorate_replica::group::MemberRole;

use crate::output::progress;

/// Timeout for the connection attempt that determines this machine's address on the route to a
/// node.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout for a join request, during which the serving node dials back, resolves names and waits
/// for the log.
const JOIN_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause between two attempts.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// Number of consecutive checks without a leader after which the operator is notified.
const LEADERLESS_CHECKS_MAX: u32 = 10;

/// Address at which peers reach this node.
pub(crate) struct OwnPeerAddress {
    /// Host name and port given by the operator. `None` for an IP address or port 0.
    given_address: Option<String>,
    bound_address: SocketAddr,
}

impl OwnPeerAddress {
    /// Creates the address. A host name given by the operator is kept, so that peers resolve it
    /// themselves. Otherwise the bound address is used, because it has the actual port.
    pub(crate) fn from_given(given: Option<&str>, bound: SocketAddr) -> Self {
        let is_name = |text: &&str| text.parse::<SocketAddr>().is_err() && !text.ends_with(":0");
        Self { given_address: given.filter(is_name).map(str::to_owned), bound_address: bound }
    }

    /// Returns the address at which peers can dial this node. `own` is this machine's address on
    /// the route to the contacted node. It replaces an unspecified address.
    fn dialable_address(&self, own: IpAddr) -> String {
        if let Some(name) = &self.given_address {
            return name.clone();
        }
        let ip = self.bound_address.ip();
        let ip = if ip.is_unspecified() { own } else { ip };
        SocketAddr::new(ip, self.bound_address.port()).to_string()
    }
}

/// A data folder's request for a node id.
pub(crate) struct IdRequest<'a> {
    pub(crate) admin_addresses: &'a [String],
    pub(crate) own_peer_address: &'a OwnPeerAddress,
    pub(crate) role: MemberRole,
    pub(crate) reserved_id: Option<NodeId>,
    pub(crate) stop: &'a dyn Fn() -> bool,
}

/// Reason why an attempt yielded no id.
enum AttemptFailure {
    /// A later attempt may succeed.
    RetryLater(String),
    /// Every further attempt would fail for the same reason.
    Permanent(Error),
}

impl IdRequest<'_> {
    /// Requests an id from each node in turn until one assigns it. Returns `None` if a stop was
    /// requested first.
    pub(crate) fn request_id(
        &self,
        nonce: u64,
        waiting: &mut dyn FnMut(&str),
    ) -> Result<Option<Joined>, Error> {
        waiting(&format!("asking for an id at {}", self.admin_addresses.join(", ")));
        let mut told = String::new();
        loop {
            let mut why = Vec::new();
            for admin in self.admin_addresses {
                if (self.stop)() {
                    return Ok(None);
                }
                match self.request_from(admin, nonce) {
                    Ok(joined) => {
                        let Joined { node, founded, .. } = &joined;
                        let cluster = founded.cluster;
                        progress(&format!("got id {node} in cluster {cluster:032x} from {admin}"));
                        return Ok(Some(joined));
                    }
                    Err(AttemptFailure::Permanent(error)) => return Err(error),
                    Err(AttemptFailure::RetryLater(reason)) => {
                        why.push(format!("{admin}: {reason}"))
                    }
                }
            }
            let why = format!("waiting for an id: {}", why.join("; "));
            if why != told {
                waiting(&why);
                told = why;
            }
            thread::sleep(RETRY_PAUSE);
        }
    }

    fn request_from(&self, admin: &str, nonce: u64) -> Result<Joined, AttemptFailure> {
        let way = connect_admin(admin).and_then(|stream| {
            let (own, other) = (stream.local_addr()?, stream.peer_addr()?);
            Ok((own.ip(), other.ip()))
        });
        let (own, other) = way.map_err(|error| AttemptFailure::RetryLater(error.to_string()))?;
        let request = JoinRequest {
            nonce: format!("{nonce:016x}"),
            peer: self.own_peer_address.dialable_address(own),
            role: self.role.name().to_owned(),
            node: self.reserved_id.map(|node| node.0),
            via: Some(other.to_string()),
        };
        let response = post_json(admin, "/join", &request);
        let response = response.map_err(|error| AttemptFailure::RetryLater(error.to_string()))?;
        let later = matches!(response.status, 503 | 504);
        match response.parse_json::<JoinAnswer>() {
            Ok(answer) => convert_answer(answer).ok_or_else(|| {
                AttemptFailure::RetryLater("this version does not understand its answer".to_owned())
            }),
            Err(refusal) if later => Err(AttemptFailure::RetryLater(refusal.message)),
            Err(refusal) => Err(AttemptFailure::Permanent(refusal_error(admin, refusal))),
        }
    }
}

fn refusal_error(admin: &str, refusal: Refusal) -> Error {
    let code =
        [UNREACHABLE_PEER_CODE, LOOPBACK_PEER_CODE].into_iter().find(|code| *code == refusal.code);
    Error {
        code: code.unwrap_or("join_refused"),
        message: format!("{admin} refused this node: {}", refusal.message),
        hint: refusal.hint,
    }
}

fn connect_admin(admin: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::other("the name has no address");
    for address in admin.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn post_json(
    admin: &str,
    path: &str,
    body: &impl serde::Serialize,
) -> Result<Response, client::Error> {
    let body = serde_json::to_string(body).expect("texts and numbers are always JSON");
    client::post(admin, path, &body, JOIN_TIMEOUT)
}

/// Converts a response. Returns `None` if the response is inconsistent or from an incompatible
/// version.
fn convert_answer(answer: JoinAnswer) -> Option<Joined> {
    let place = |place: Place| (NodeId(place.node), place.peer);
    let classes = [Class::Durable, Class::Volatile];
    let class = classes.into_iter().find(|class| class.name() == answer.durability)?;
    let founded = Founded {
        cluster: u128::from_str_radix(&answer.cluster, 16).ok()?,
        class,
        store: answer.store,
        members: answer.founding.into_iter().map(place).collect(),
        terms: FoundingTerms {
            auxiliaries: answer.auxiliaries.into_iter().map(NodeId).collect(),
            quorum_rule: QuorumRule::parse(&answer.quorum)?,
        },
    };
    let nodes = founded.members.iter().map(|(node, _)| node);
    founded.terms.configuration(nodes, class).ok()?;
    let book = AddressBook {
        as_of_slot: Slot(answer.at),
        peers: answer.peers.into_iter().map(place).collect(),
        removed_nodes: answer.removed.into_iter().map(NodeId).collect(),
    };
    let node = NodeId(answer.node);
    let sensible = node.0 > 0 && book.peers.contains_key(&node) && book.check_limits().is_ok();
    sensible.then_some(Joined { node, founded, address_book: book, is_learner: answer.learns })
}

/// Reports the progress of catching up, and requests a vote once the node has caught up. Returns at
/// the latest when the reactor ends.
pub(crate) fn follow_promotion(
    handle: Handle,
    node: NodeId,
    role: MemberRole,
    admins: Vec<String>,
) -> io::Result<()> {
    let thread = thread::Builder::new().name("joining".to_owned());
    let mut promotion = Promotion {
        node,
        role,
        admin_addresses: admins,
        last_line: String::new(),
        // Lines are not redrawn, because the node logs to the same terminal.
        catch_up_progress: Progress::separate_lines(),
        leaderless_checks: 0,
    };
    thread.spawn(move || {
        loop {
            match handle.status() {
                Ok(status) if promotion.handle_status(&status) => return,
                Err(Unanswered::Stopped) => return,
                Ok(_) | Err(_) => thread::sleep(RETRY_PAUSE),
            }
        }
    })?;
    Ok(())
}

struct Promotion {
    node: NodeId,
    role: MemberRole,
    /// Admin addresses given by the operator.
    admin_addresses: Vec<String>,
    last_line: String,
    catch_up_progress: Progress,
    /// Number of consecutive checks without a leader.
    leaderless_checks: u32,
}

impl Promotion {
    /// Handles a new status of this node. Returns whether the node has its vote.
    fn handle_status(&mut self, status: &Status) -> bool {
        let node = self.node;
        let own = status.peers.iter().find(|peer| peer.member.node == node);
        if own.is_some_and(|own| own.weight > 0) {
            self.log_line(&format!("node {node} now votes"));
            return true;
        }
        if let Some(pursuit) = &status.progress {
            let view = quorate_admin::view::ProgressView::from_node(pursuit);
            self.report_waiting(format_args!("catching up: {view}"));
            return false;
        }
        let Some(leader) = status.leader else {
            // A short period without a leader is normal.
            self.leaderless_checks += 1;
            if self.leaderless_checks > LEADERLESS_CHECKS_MAX {
                self.log_line("waiting for a leader");
            }
            return false;
        };
        self.leaderless_checks = 0;
        let leaders = status.peers.iter();
        let leaders = leaders.filter(|peer| peer.member.node == leader);
        let leaders =
            leaders.filter_map(|peer| dialable_admin(&peer.addresses.admin, &peer.addresses.peer));
        let mut admins: Vec<String> = leaders.collect();
        admins.extend(self.admin_addresses.iter().cloned());
        let learns = self.role == MemberRole::Learner;
        match request_vote(&admins, node, learns) {
            // The leader determines the lag. This node cannot, if it has just started or loaded a
            // snapshot.
            Ok(()) if learns => {
                self.log_line(&format!("node {node} is caught up: it learns without a vote"));
                return true;
            }
            Err(why) if learns => self.report_waiting(format_args!("waiting to catch up: {why}")),
            Ok(()) => self.log_line(&format!("node {node} is caught up: requesting its vote")),
            Err(why) => self.report_waiting(format_args!("waiting for a vote: {why}")),
        }
        false
    }

    /// Reports the condition that the node waits for. The text may change with every check.
    fn report_waiting(&mut self, what: fmt::Arguments<'_>) {
        self.catch_up_progress.report(|| ProgressReport::text(what));
    }

    fn log_line(&mut self, line: &str) {
        if self.last_line != line {
            progress(line);
            line.clone_into(&mut self.last_line);
        }
    }
}

/// Returns an admin address that can be dialled. The host of the node's peer address replaces an
/// unspecified host.
fn dialable_admin(admin: &str, peer: &str) -> Option<String> {
    let everywhere = |address: &SocketAddr| address.ip().is_unspecified();
    let Some(bound) = admin.parse::<SocketAddr>().ok().filter(everywhere) else {
        return (!admin.is_empty()).then(|| admin.to_owned());
    };
    let (host, _) = peer.rsplit_once(':')?;
    Some(format!("{host}:{}", bound.port()))
}

/// Requests a vote from the leader through the given nodes. With `only_asks`, only checks whether
/// the vote would be granted.
fn request_vote(admins: &[String], node: NodeId, only_asks: bool) -> Result<(), String> {
    let mut why = "there is no address to ask".to_owned();
    for admin in admins {
        let request = MembersRequest {
            promote: Some(node.0),
            dry_run: only_asks,
            ..MembersRequest::default()
        };
        let answer = post_json(admin, "/members", &request);
        let answer = answer.map(|response| response.parse_json::<serde_json::Value>());
        match answer {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(refusal)) if refusal.code == "not_leader" => why = refusal.message,
            // [member-4] A learner at a voter's address gets its vote by `member replace`.
            Ok(Err(refusal)) if only_asks && refusal.code == "address_taken" => return Ok(()),
            Ok(Err(refusal)) => return Err(refusal.message),
            Err(error) => why = format!("{admin}: {error}"),
        }
    }
    Err(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advertised_address_can_be_dialled_by_others() {
        let own = "10.0.0.4".parse().unwrap();
        let seen = |given: Option<&str>, bound: &str| {
            OwnPeerAddress::from_given(given, bound.parse().unwrap()).dialable_address(own)
        };
        assert_eq!(seen(None, "127.0.0.1:7451"), "127.0.0.1:7451");
        assert_eq!(seen(Some("0.0.0.0:7451"), "0.0.0.0:7451"), "10.0.0.4:7451");
        assert_eq!(seen(Some("[::]:7451"), "[::]:7451"), "10.0.0.4:7451");
        assert_eq!(seen(Some("n4.lan:7451"), "10.0.0.9:7451"), "n4.lan:7451");
        assert_eq!(seen(Some("10.0.0.9:0"), "10.0.0.9:33"), "10.0.0.9:33");
        assert_eq!(seen(Some("n4.lan:0"), "10.0.0.9:33"), "10.0.0.9:33");
    }

    #[test]
    fn unspecified_admin_address_takes_the_peer_host() {
        let check = |admin, peer| dialable_admin(admin, peer).unwrap_or_default();
        assert_eq!(check("10.0.0.1:7452", "10.0.0.1:7451"), "10.0.0.1:7452");
        assert_eq!(check("0.0.0.0:7452", "n1.lan:7451"), "n1.lan:7452");
        assert_eq!(check("", "n1.lan:7451"), "");
    }

    fn answer() -> JoinAnswer {
        let place = |node: u32| Place { node, peer: format!("10.0.0.{node}:7451") };
        JoinAnswer {
            cluster: format!("{:032x}", 7),
            node: 4,
            durability: "durable".to_owned(),
            store: "lsm".to_owned(),
            founding: [1].map(place).into(),
            auxiliaries: Vec::new(),
            quorum: "majority".to_owned(),
            at: 99,
            peers: [2, 4].map(place).into(),
            removed: vec![1, 3],
            learns: true,
        }
    }

    #[test]
    fn join_answer_is_parsed_or_refused() {
        let joined = convert_answer(answer()).unwrap();
        assert_eq!((joined.node, joined.address_book.as_of_slot), (NodeId(4), Slot(99)));
        assert_eq!(joined.founded.members.len(), 1);
        assert!(joined.address_book.removed_nodes.contains(&NodeId(3)));
        assert!(joined.is_learner);
        let spoilt: [fn(&mut JoinAnswer); 6] = [
            |answer| answer.cluster = "x".to_owned(),
            |answer| answer.durability = "soft".to_owned(),
            |answer| answer.node = 5,
            |answer| answer.auxiliaries = vec![1],
            |answer| answer.quorum = "flexible:0,1".to_owned(),
            |answer| answer.peers[0].peer = "two words".to_owned(),
        ];
        for spoil in spoilt {
            let mut answer = answer();
            spoil(&mut answer);
            assert!(convert_answer(answer.clone()).is_none(), "{answer:?}");
        }
    }
}
