//! What the reactor drives: a replica and its client protocol, without a socket in sight.

use std::os::fd::BorrowedFd;

use quorate_core::{
    effect::Refusal,
    node_id::{Member, NodeId},
    record::Class,
    time::Time,
};
use quorate_replica::{
    Probed,
    front::{ConnectionId, Endpoints},
    plane::Plane,
    pressure::Pressure,
    status::{Addresses, Status, TuningReport},
    tuner::Setting,
};
use quorate_wire::{Frame, Join, Lane, RefusalCode};

/// The clocks of one turn. Read by the reactor only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Monotonic, since the reactor was made.
    pub time: Time,
    /// Unix time in milliseconds.
    pub wall_ms: u64,
}

/// A peer that can be talked to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerUp {
    /// Who.
    pub member: Member,
    /// Its process start.
    pub boot: u32,
    /// Where it listens.
    pub addresses: Addresses,
}

/// What the founder wrote down; the owned form of [`quorate_wire::Founding`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Founded {
    /// The group's id.
    pub cluster: u128,
    /// The group's class.
    pub class: Class,
    /// The group's store, as on the command line.
    pub store: String,
    /// The first members and where they listen for peers.
    pub members: Vec<(NodeId, String)>,
}

/// Why a node may not join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// For programs.
    pub code: RefusalCode,
    /// For people.
    pub reason: String,
}

/// One replica with its front. All calls come from the reactor's thread and return without waiting.
///
/// One turn calls, in this order: `frame`, `peer_*`, `client_*` for what arrived; `poll`; then the
/// peers' queues are sent; then `submit`; then what the clients get; then `end_turn`. So what a leader says is on its
/// way before its own write begins (design §5).
pub trait Host {
    /// A peer's control lane is up. Called again, after `peer_down`, when it reconnects.
    fn peer_up(&mut self, now: Now, peer: &PeerUp, plane: &mut dyn Plane);

    /// It is gone.
    fn peer_down(&mut self, now: Now, node: NodeId, plane: &mut dyn Plane);

    /// A frame from a peer whose handshake is done.
    fn frame(
        &mut self,
        now: Now,
        from: Member,
        lane: Lane,
        frame: &Frame<'_>,
        plane: &mut dyn Plane,
    );

    /// A node without a cluster asks for the founding record.
    fn admit(&mut self, now: Now, join: Join) -> Result<Founded, Refused>;

    /// Collects completions of the log, runs what is due, decides what to say.
    fn poll(&mut self, now: Now, plane: &mut dyn Plane);

    /// Hands what has gathered to the log.
    fn submit(&mut self, now: Now);

    /// The turn is over, and cost the time since [`Now::time`].
    fn end_turn(&mut self, now: Time);

    /// When `poll` has to be called at the latest. A time that has passed means at once.
    fn wake_at(&self) -> Option<Time>;

    /// Descriptors that become readable when the log, or an applying thread, has news. Asked once.
    /// `poll` makes them unreadable again.
    fn wake_fds(&self) -> Vec<BorrowedFd<'_>>;

    /// A client connected.
    fn client_opened(
        &mut self,
        now: Now,
        client: ConnectionId,
        ends: Endpoints,
        plane: &mut dyn Plane,
    );

    /// As [`quorate_replica::front::Front::received`].
    fn client_received(
        &mut self,
        now: Now,
        client: ConnectionId,
        bytes: &[u8],
        plane: &mut dyn Plane,
    ) -> usize;

    /// How full the host is of what clients asked for; while it is [`Pressure::High`], and until
    /// it is [`Pressure::Low`] again, no client is read.
    fn pressure(&self) -> Pressure;

    /// As [`quorate_replica::front::Front::ready`].
    fn client_ready(&self, client: ConnectionId) -> bool;

    /// Whether requests of this client are open. A client that has sent its last byte gets the
    /// replies to what it asked before.
    fn client_busy(&self, client: ConnectionId) -> bool;

    /// As [`quorate_replica::front::Front::next_dirty`].
    fn next_dirty(&mut self) -> Option<ConnectionId>;

    /// As [`quorate_replica::front::Front::output`].
    fn client_output(&mut self, client: ConnectionId) -> &mut Vec<u8>;

    /// As [`quorate_replica::front::Front::sent`].
    fn client_sent(&mut self, client: ConnectionId);

    /// As [`quorate_replica::front::Front::held_bytes`].
    fn clients_held_bytes(&self) -> usize;

    /// As [`quorate_replica::front::Front::held_bytes_of`].
    fn client_held_bytes(&self, client: ConnectionId) -> usize;

    /// As [`quorate_replica::front::Front::closing`].
    fn client_closing(&self, client: ConnectionId) -> bool;

    /// The client is gone.
    fn client_closed(&mut self, now: Now, client: ConnectionId, plane: &mut dyn Plane);

    /// What this node is.
    fn status(&self) -> Status;

    /// Try whether a linearizable read is served here now; the end is reported by `probe_ended`.
    /// One attempt at a time: called again before its end, it is the same attempt.
    fn probe(&mut self, now: Now);

    /// How the attempt ended, once.
    fn probe_ended(&mut self) -> Option<Probed>;

    /// What batch and window are, and why.
    fn tuning(&self) -> TuningReport;

    /// Holds batch and window at these values until then; `None` ends that.
    fn hold(&mut self, now: Now, setting: Option<Setting>, until: Time);

    /// Appends the host's metrics in the text format of Prometheus.
    fn metrics(&self, out: &mut String);

    /// Hand leadership over; the end is reported by `transfer_ended`.
    fn transfer(&mut self, now: Now, to: Option<NodeId>, plane: &mut dyn Plane);

    /// How a transfer ended, once.
    fn transfer_ended(&mut self) -> Option<Result<NodeId, Refusal>>;

    /// Take nothing new, finish what was accepted.
    fn stop(&mut self, now: Now, plane: &mut dyn Plane);

    /// Whether everything accepted is finished, the log's mark of a clean stop included.
    fn stopped(&self) -> bool;
}
