//! Tests of a node's host: requests from its front end to the reactor.

use quorate_core::{
    ballot::Ballot,
    level::Level,
    message::{Message, Phase2a},
    node_id::{Incarnation, Member, NodeId},
    node_set::NodeSet,
    record::Class,
    slot::{Slot, SlotRange},
    time::Time,
    value::Value,
    witness::{LogEnd, Memory},
};
use quorate_log::LogOptions;
use quorate_log::disk::{MemoryDisk, SmallFiles as _};
use quorate_replica::{
    CommandId, ReplicaOptions, StateMachine,
    events::Event,
    front::{Completion, ConnectionId, Endpoints, Front, Requests},
    plane::{FrameBody, Plane, ReceivedFrame, TooLarge},
    tuner::SettingChange,
};
use quorate_wire::{Frame, Lane};

use crate::{
    boot::{BootError, BootStep, MemoryRequest, NodeParts, Starter, boot},
    host::{ClientHost as _, Host as _, PeerHost as _, TurnTimes},
    identity::{ExpectedIdentity, Founding, Identity},
    listener::EventListener,
    node_host::NodeHost,
};

struct Nothing;

impl StateMachine for Nothing {
    fn apply(&mut self, _: CommandId, _: &[u8], _: &mut Vec<u8>) {}
    fn query(&self, _: &[u8], _: u64, _: &mut Vec<u8>) {}
}

/// A front whose work the test controls.
#[derive(Default)]
struct Eager {
    is_eager: bool,
    /// Time from each poll to the next one that the front asks for.
    wake_in_ms: Option<u64>,
    wake_at_ms: Option<u64>,
}

impl Front for Eager {
    fn handle_opened(&mut self, _: ConnectionId, _: Endpoints, _: &mut dyn Requests) {}
    fn receive_bytes(&mut self, _: ConnectionId, bytes: &[u8], _: &mut dyn Requests) -> usize {
        bytes.len()
    }
    fn accepts_input(&self, _: ConnectionId) -> bool {
        true
    }
    fn handle_completion(&mut self, _: Completion<'_>, _: &mut dyn Requests) {}
    fn next_dirty(&mut self) -> Option<ConnectionId> {
        None
    }
    fn output(&mut self, _: ConnectionId) -> &[u8] {
        &[]
    }
    fn record_sent(&mut self, _: ConnectionId, _: usize) {}
    fn should_close(&self, _: ConnectionId) -> bool {
        true
    }
    fn handle_closed(&mut self, _: ConnectionId, _: &mut dyn Requests) {}
    fn is_busy(&self, _: ConnectionId) -> bool {
        false
    }
    fn open_requests(&self) -> usize {
        0
    }
    fn connections(&self) -> usize {
        0
    }
    fn is_eager(&self) -> bool {
        self.is_eager
    }
    fn run_turn(&mut self, requests: &mut dyn Requests) {
        self.wake_at_ms = self.wake_in_ms.map(|ms| requests.wall_ms() + ms);
    }
    fn wake_ms(&self) -> Option<u64> {
        self.wake_at_ms
    }
}

/// Starter with small sizes that ignores all reports.
struct SilentStarter;

impl Starter for SilentStarter {
    fn choose_log(&self, options: &mut LogOptions, _: Class) {
        options.segment_bytes = 64 << 10;
        options.write_bytes_max = 16 << 10;
        options.spare_segments = 1;
    }
    fn choose_replica(&self, _: &mut ReplicaOptions) {}
    fn report_step(&mut self, _: BootStep<'_>) {}
    fn request_memories(&mut self, _: &MemoryRequest<'_>) -> Vec<(NodeId, Memory)> {
        Vec::new()
    }
    fn wait_for_room(&mut self, _: &BootError) -> bool {
        false
    }
}

impl EventListener for SilentStarter {
    fn on_notice(&mut self, _: &str) {}
    fn on_tuning_change(&mut self, _: &SettingChange) {}
    fn on_event(&mut self, _: Time, _: &Event, _: Option<&str>) {}
    fn end_turn(&mut self, _: Time) {}
}

/// A network without peers.
struct NoPeers;

impl Plane for NoPeers {
    fn has_room(&self, _: NodeId, _: Lane, _: usize) -> bool {
        false
    }
    fn send(
        &mut self,
        _: NodeSet,
        _: Lane,
        _: &[u8],
        _: FrameBody<'_>,
    ) -> Result<NodeSet, TooLarge> {
        Ok(NodeSet::default())
    }
}

/// Returns the founding record of node 1 in a group of `nodes` nodes.
fn founding(nodes: u32) -> Founding {
    let members = (1..=nodes).map(|node| (NodeId(node), format!("a:{node}")));
    Founding {
        cluster: 1,
        node: NodeId(1),
        class: Class::Durable,
        store: "none".into(),
        members: members.collect(),
        join_nonce: 1,
        terms: Default::default(),
    }
}

fn parts() -> NodeParts<Nothing, Eager> {
    NodeParts {
        service: Nothing,
        stored_to: |_| Slot(0),
        front: Eager::default(),
        listener: Box::new(SilentStarter),
    }
}

/// Boots node 1 of a group of `nodes` nodes, on `disk`.
fn host(disk: MemoryDisk, nodes: u32) -> NodeHost<MemoryDisk, Nothing, Eager> {
    let identity = Identity::create(disk, founding(nodes)).unwrap();
    boot(identity, parts(), &mut SilentStarter).unwrap()
}

/// Starter that gets this memory of the node's log from a peer.
struct RememberingStarter(Option<Memory>);

impl Starter for RememberingStarter {
    fn choose_log(&self, options: &mut LogOptions, class: Class) {
        SilentStarter.choose_log(options, class);
    }
    fn choose_replica(&self, _: &mut ReplicaOptions) {}
    fn report_step(&mut self, _: BootStep<'_>) {}
    fn request_memories(&mut self, question: &MemoryRequest<'_>) -> Vec<(NodeId, Memory)> {
        assert_eq!((question.cluster, question.node), (1, NodeId(1)));
        assert_eq!(question.peers.len(), 3);
        vec![(NodeId(2), self.0.take().unwrap()), (NodeId(3), Memory::default())]
    }
    fn wait_for_room(&mut self, _: &BootError) -> bool {
        false
    }
}

/// [lie-4] Peers of a node may remember more of its log, a later incarnation or a later start than
/// its intact folder shows. The node then takes an incarnation and a boot number above all of them,
/// even if its folder claims never to have run. It does not start if they are too far above.
#[test]
fn folder_that_was_rolled_back_starts_a_new_incarnation() {
    let disk = MemoryDisk::new();
    let remembered = |incarnation, to, boot| {
        let written = LogEnd { incarnation: Incarnation(incarnation), last_write: to };
        RememberingStarter(Some(Memory { log_end: written, boot }))
    };
    let mut starts = [
        (remembered(0, 1_000, 0), Some((1, 1))),
        (remembered(0, 0, 1), Some((1, 2))),
        (remembered(1, 1_000, 2), Some((2, 3))),
        (remembered(1, 1_000, 3), Some((2, 4))),
        (remembered(4, 0, 3), Some((5, 5))),
        (remembered(5, 1_000, 3), Some((6, 6))),
        // A later process than any that the folder knows.
        (remembered(6, 0, 9), Some((7, 10))),
        (remembered(u32::MAX, 1_000, 10), None),
        (remembered(7, 0, u32::MAX - 1), None),
        (remembered(7, 0, 10), Some((7, 13))),
    ];
    for (told, begun) in &mut starts {
        let identity = match Identity::open(disk.reopen_after_crash(), &ExpectedIdentity::default())
        {
            Ok(identity) => identity,
            Err(_) => Identity::create(disk.reopen_after_crash(), founding(3)).unwrap(),
        };
        let host = boot(identity, parts(), told);
        assert!(told.0.is_none(), "it asked");
        match host {
            Ok(host) => {
                let identity = host.identity();
                assert_eq!(Some((identity.incarnation().0, identity.boot())), *begun);
            }
            Err(error) => {
                assert!(matches!(error, BootError::FarBehind { .. }), "{error}");
                assert_eq!(*begun, None);
            }
        }
        disk.crash(7);
    }
}

/// [level-8] The folder is marked with a level before its contents need it. Contents unknown to
/// this release are never accepted.
#[test]
fn folder_is_marked_before_a_raise_is_accepted() {
    let disk = MemoryDisk::new();
    let mut host = host(disk.clone(), 3);
    let marked = || {
        let text = String::from_utf8(disk.read("identity").unwrap().unwrap()).unwrap();
        text.lines().take(2).collect::<Vec<_>>().join(", ")
    };
    let mut hears = |to: u16| {
        let ballot = Ballot { round: 1, node: NodeId(2), ..Ballot::ZERO };
        let proposal = Phase2a {
            ballot,
            range: SlotRange::one(Slot(1)),
            value: Value::Raise { era: ballot.era, nodes: 0, to: Level(to) },
            prefix: 0,
            decided_to: Slot(1),
            own_volatile_to: Slot(1),
            own_durable_to: Slot(1),
            with_bytes: false,
        };
        let frame = Frame::Protocol { message: Message::Phase2a(proposal), bytes: None };
        let now = TurnTimes { time: Time(10), wall_ms: 0 };
        let received = ReceivedFrame::without_attributes(Member::first(2), frame);
        host.handle_frame(&mut now.turn(&mut NoPeers), Lane::Control, received);
        host.replica().node().newest_run().voted_to(ballot)
    };
    assert_eq!(hears(11), Slot(0), "no vote for what is not known here");
    assert!(marked().starts_with("quorate identity 1"), "{}", marked());
    assert_eq!(hears(9), Slot(2), "a vote, and nothing of it was written yet");
    assert_eq!(marked(), "quorate identity 2, level 9");
}

/// A front with more work gets the next turn at once. No other event would wake the reactor,
/// because a client that reads sends nothing.
#[test]
fn front_with_more_work_gets_the_next_turn_at_once() {
    let mut host = host(MemoryDisk::new(), 1);
    // Once the node itself has no work, only the front decides.
    let idle = (1..1_000).map(|turn| Time(turn * 10)).find(|now| {
        let now = TurnTimes { time: *now, wall_ms: 0 };
        host.poll(&mut now.turn(&mut NoPeers));
        host.submit_records(now);
        host.end_turn(now.time).is_none_or(|at| at > now.time)
    });
    let now = idle.expect("a turn without work");
    host.front_mut().is_eager = true;
    assert_eq!(host.end_turn(now), Some(now));
}

/// [time-3] A front names times of the group's clock, which no wall clock sets. A node whose own
/// clock runs ahead waits until then all the same, rather than begin one turn after another.
#[test]
fn front_is_woken_by_the_group_clock() {
    let mut host = host(MemoryDisk::new(), 1);
    host.front_mut().wake_in_ms = Some(100);
    let mut turn = |now: u64, wall_ms: u64| {
        let now = TurnTimes { time: Time(now), wall_ms };
        host.poll(&mut now.turn(&mut NoPeers));
        host.submit_records(now);
        (host.front_mut().wake_at_ms, host.end_turn(now.time))
    };
    let mut now = 0;
    for _ in 0..1_000 {
        now += 10;
        turn(now, 1_000_000);
    }
    let (seen_ms, wake_at) = turn(now, 1_005_000);
    assert!(
        seen_ms.is_some_and(|at| at < 1_005_000),
        "the group's clock has not jumped: {seen_ms:?}"
    );
    assert!(wake_at.is_none_or(|at| at > Time(now)), "{wake_at:?} at {now}");
}
