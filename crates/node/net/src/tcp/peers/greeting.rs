//! Handshake of peer connections: the greetings of both sides, the answers, and refusals.

use quorate_core::{level::Levels, node_id::NodeId, time::Time};
use quorate_wire::{Founding, Frame, Hello, Join, Lane, NO_CLUSTER, RefusalCode};

use super::{
    Peers,
    stage::{Greeter, Stage, Verdict},
};
use crate::{
    cx::PeerCx,
    host::{JoinRefusal, TurnTimes},
    identity::Identity,
    sources::LinkId,
    tcp::handshake::{Expectation, check_hello},
};

const SECOND_CLUSTER_HINT: &str = "starts with an empty folder, and would have founded a second cluster; it was \
     told that this one exists";

impl Peers {
    /// Sends the hello on a connection whose dial succeeded, or closes a failed one.
    pub(super) fn on_dialled(
        &mut self,
        id: LinkId,
        node: NodeId,
        lane: Lane,
        deadline: Time,
        cx: &mut PeerCx<'_>,
    ) {
        let Some(link) = self.links.get_mut(id) else {
            return;
        };
        if let Err(error) = link.socket().check_connected() {
            self.close_link(id, cx);
            return self.log_unreachable(node, &error.to_string());
        }
        link.set_stage(Stage::Greeting { node, lane, deadline });
        if !self.register_interest(id, cx) {
            return;
        }
        let identity = self.identity.clone();
        self.queue_frame(id, &Frame::Hello(build_hello(&identity, self.levels, node, lane)));
    }

    pub(super) fn on_stranger_frame(
        &mut self,
        id: LinkId,
        frame: Frame<'_>,
        cx: &mut PeerCx<'_>,
    ) -> Verdict {
        match frame {
            Frame::Hello(hello) if self.check_certificate(id, hello.from.node, cx) => {
                self.on_hello(id, &hello, cx);
            }
            Frame::Join(join) if self.check_certificate(id, join.node, cx) => {
                self.on_join(id, join, cx)
            }
            Frame::Recall { cluster, node } if self.check_certificate(id, node, cx) => {
                self.on_recall(id, cluster, node, cx);
            }
            Frame::Hello(_) | Frame::Join(_) | Frame::Recall { .. } => {}
            _ => return Verdict::Close,
        }
        Verdict::GoOn
    }

    /// Returns whether a greeter has the certificate of the node that it claims to be; otherwise
    /// refuses it. A node that requests an id has no certificate of its own yet, so any node's
    /// certificate is accepted.
    fn check_certificate(&mut self, id: LinkId, node: NodeId, cx: &mut PeerCx<'_>) -> bool {
        let session = self.links.get(id).and_then(|link| link.socket().session());
        let Some(session) = session else {
            return true;
        };
        let proved = session.peer_node();
        if proved == Some(node.0) || (node == NodeId(0) && proved.is_some()) {
            return true;
        }
        self.stats.refusals += 1;
        let named = proved.map_or_else(|| "no node".to_owned(), |proved| format!("node {proved}"));
        let reason = format!("it greets as node {node}, and its certificate names {named}");
        self.journal.log_problem(node, &reason);
        self.refuse_link(id, RefusalCode::WrongNode, &reason, cx.now);
        false
    }

    pub(super) fn on_answer(
        &mut self,
        id: LinkId,
        node: NodeId,
        lane: Lane,
        frame: Frame<'_>,
        cx: &mut PeerCx<'_>,
    ) -> Verdict {
        match frame {
            Frame::Welcome(hello) => self.on_welcome(id, node, lane, &hello, cx),
            Frame::Refused(code, reason) => {
                self.stats.refusals += 1;
                self.on_refused(node, code, reason, cx);
                Verdict::Close
            }
            _ => {
                self.journal.log_problem(node, "did not answer a hello with a welcome");
                Verdict::Close
            }
        }
    }

    fn on_hello(&mut self, id: LinkId, hello: &Hello<'_>, cx: &mut PeerCx<'_>) {
        match self.check_greeting(hello, None, cx.now) {
            Ok(()) => {
                let identity = self.identity.clone();
                let welcome = build_hello(&identity, self.levels, hello.from.node, hello.lane);
                self.queue_frame(id, &Frame::Welcome(welcome));
                let greeter = Greeter::of(hello);
                if self.would_replace_live(&greeter, cx.now) {
                    self.wait_for_first_frame(id, greeter, cx.now);
                } else if !self.open_link(id, greeter, cx) {
                    self.close_link(id, cx);
                }
            }
            Err(JoinRefusal { code, reason }) => {
                self.stats.refusals += 1;
                let node = hello.from.node;
                match code {
                    RefusalCode::ForeignCluster if hello.cluster == NO_CLUSTER => {
                        self.journal.log_problem(node, SECOND_CLUSTER_HINT);
                    }
                    RefusalCode::ForeignCluster => self.on_foreign(node, cx.now),
                    // This was a knock. This node will dial the greeter anyway.
                    RefusalCode::UnexpectedFrame => {}
                    _ => {
                        let what = format!("refused a peer ({code:?}): {reason}");
                        self.journal.log_problem(node, &what);
                    }
                }
                self.refuse_link(id, code, &reason, cx.now);
            }
        }
    }

    /// Answers a node without a cluster that requests the founding record.
    fn on_join(&mut self, id: LinkId, join: Join, cx: &mut PeerCx<'_>) {
        match cx.host.answer_join(join) {
            Ok(founded) => {
                tracing::info!(node = join.node.0, "sent the founding record to a new node");
                let members = founded.members.iter();
                let members = members.map(|(node, address)| (*node, address.as_str()));
                let founding = Founding {
                    cluster: founded.cluster,
                    class: founded.class,
                    store: &founded.store,
                    members: members.collect(),
                };
                self.send_last_frame(id, &Frame::Founding(founding), cx.now);
            }
            Err(refused) => {
                self.stats.refusals += 1;
                let what = format!("may not join: {}", refused.reason);
                self.journal.log_problem(join.node, &what);
                self.refuse_link(id, refused.code, &refused.reason, cx.now);
            }
        }
    }

    /// [lie-3] Answers a starting node that requests this node's memory of its log.
    fn on_recall(&mut self, id: LinkId, cluster: u128, node: NodeId, cx: &mut PeerCx<'_>) {
        if cluster != self.identity.cluster {
            self.stats.refusals += 1;
            let me = self.identity.member.node;
            let reason = format!("node {node} does not belong to the cluster of node {me}");
            return self.refuse_link(id, RefusalCode::ForeignCluster, &reason, cx.now);
        }
        let memory = cx.host.memory_of(node);
        self.send_last_frame(id, &Frame::Recalled(memory), cx.now);
    }

    fn on_welcome(
        &mut self,
        id: LinkId,
        node: NodeId,
        lane: Lane,
        hello: &Hello<'_>,
        cx: &mut PeerCx<'_>,
    ) -> Verdict {
        match self.check_greeting(hello, Some(node), cx.now) {
            Ok(()) if hello.lane == lane => {
                if self.open_link(id, Greeter::of(hello), cx) {
                    Verdict::GoOn
                } else {
                    Verdict::Close
                }
            }
            Ok(()) => {
                self.journal.log_problem(node, "answered for another lane");
                Verdict::Close
            }
            Err(JoinRefusal { code, reason }) => {
                self.stats.refusals += 1;
                match code {
                    RefusalCode::ForeignCluster => self.on_foreign(node, cx.now),
                    _ => self.journal.log_problem(node, &reason),
                }
                Verdict::Close
            }
        }
    }

    fn on_refused(&mut self, node: NodeId, code: RefusalCode, reason: &str, cx: &mut PeerCx<'_>) {
        match code {
            RefusalCode::ForeignCluster => self.on_foreign(node, cx.now),
            RefusalCode::NotServingYet => self.journal.log_temporary_refusal(node, reason),
            RefusalCode::NodeRemoved => self.on_removed(node, cx),
            // This is the expected answer to a knock.
            RefusalCode::UnexpectedFrame if node > self.identity.member.node => {}
            _ => {
                let what = format!("refused by the peer ({code:?}): {reason}");
                self.journal.log_problem(node, &what);
            }
        }
    }

    /// Handles a peer's claim that this node was removed. Any process may listen at a peer's
    /// address, so the claim must come from more than half of the peers, and from at least two.
    pub(super) fn on_removed(&mut self, by: NodeId, cx: &mut PeerCx<'_>) {
        self.journal.log_removed_claim(by);
        let peers = self.table.peer_nodes();
        let (say_so, all) = peers.fold((0, 0), |(say_so, all), peer| {
            (say_so + usize::from(self.journal.is_removed_by(peer)), all + 1)
        });
        if say_so >= 2 && 2 * say_so > all {
            cx.host.on_removal_claimed(cx.now);
        }
    }

    /// Handles a known node that claims to belong to another cluster or to none.
    fn on_foreign(&mut self, node: NodeId, now: TurnTimes) {
        let journal = &mut self.journal;
        // State is kept only for known nodes, whose number is bounded. Strangers and guests choose
        // their ids.
        match self.table.listed_address(node) {
            None => journal.log_problem(node, "a node of another cluster wanted to connect"),
            // The real peer is connected.
            Some(_) if self.table.is_connected(node) => {
                journal.log_problem(node, "a node of another cluster greeted in its name");
            }
            Some(address) => journal.log_foreign_claim(node, address, now.time),
        }
    }

    fn check_greeting(
        &self,
        hello: &Hello<'_>,
        dialled: Option<NodeId>,
        now: TurnTimes,
    ) -> Result<(), JoinRefusal> {
        let greeter = hello.from.node;
        let room =
            self.table.has_node(greeter) || !self.table.is_full() || self.idle_guest(now).is_some();
        let expectation = Expectation {
            identity: &self.identity,
            levels: self.levels,
            is_removed: self.table.is_removed(greeter),
            has_free_entry: room,
            dialled,
            connected_boot: self.newest_live_boot(greeter, now),
        };
        check_hello(&expectation, hello)
    }

    pub(super) fn refuse_link(
        &mut self,
        id: LinkId,
        code: RefusalCode,
        reason: &str,
        now: TurnTimes,
    ) {
        self.send_last_frame(id, &Frame::Refused(code, reason), now);
    }

    /// Sends one last frame. The connection stays open until the other side has read it and closed,
    /// or until the deadline, because closing at once could discard the frame in transit.
    fn send_last_frame(&mut self, id: LinkId, frame: &Frame<'_>, now: TurnTimes) {
        self.queue_frame(id, frame);
        let deadline = now.time.plus_ms(self.limits.close_timeout_ms);
        if let Some(link) = self.links.get_mut(id) {
            link.set_stage(Stage::Leaving { deadline });
        }
    }
}

fn build_hello(identity: &Identity, levels: Levels, to: NodeId, lane: Lane) -> Hello<'_> {
    Hello {
        levels,
        cluster: identity.cluster,
        from: identity.member,
        boot: identity.boot,
        to,
        lane,
        client: &identity.addresses.client,
        admin: &identity.addresses.admin,
        stream: &identity.addresses.stream,
    }
}
