//! Generator of frames of every kind, from small seeds and with a bias towards extreme numbers.
#![allow(dead_code, reason = "each test file uses its part")]

use quorate_core::dice::Dice;
use quorate_core::{
    ballot::{Ballot, Era},
    configuration::Change,
    effect::Refusal,
    lease::Lease,
    level::{Level, Levels},
    message::{
        EarlyVotesQuery, Extent, Heartbeat, HeartbeatReply, Message, Phase1b, Phase2a, Phase2b,
        RingEntry, RingVote,
    },
    node_id::{Incarnation, Member, NodeId},
    quorum::QuorumRule,
    record::Class,
    slot::{Slot, SlotRange},
    time::Time,
    value::{BatchName, StreamName, Value},
    witness::{LogEnd, Memory},
};
use quorate_wire::{
    DatagramChannel, Datagrams, Founding, Frame, Hello, Join, Lane, RefusalCode, checksum, encode,
};

/// Generator of frames and fields from a seed.
pub(crate) struct Random(Dice);

/// Number of kinds of frames that [`Random::frame`] generates.
pub(crate) const KINDS: u64 = 42;

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(Dice::new(seed))
    }

    pub(crate) fn word(&mut self) -> u64 {
        self.0.word()
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    fn wide(&mut self) -> u64 {
        match self.below(8) {
            0 => 0,
            1 => u64::MAX,
            2 => self.below(10),
            _ => self.word(),
        }
    }

    fn small(&mut self) -> u32 {
        u32::try_from(self.wide() >> 32).unwrap()
    }

    fn slot(&mut self) -> Slot {
        Slot(self.wide())
    }

    fn lease(&mut self) -> Lease {
        Lease { requested_at: Time(self.wide()), duration_us: self.wide() }
    }

    fn ballot(&mut self) -> Ballot {
        Ballot { era: Era(self.small()), round: self.small(), node: NodeId(self.small()) }
    }

    pub(crate) fn member(&mut self) -> Member {
        Member { node: NodeId(self.small()), incarnation: Incarnation(self.small()) }
    }

    fn stream(&mut self) -> StreamName {
        StreamName { owner: NodeId(self.small()), boot: self.small(), number: self.small() }
    }

    pub(crate) fn batch(&mut self, bytes: &[u8]) -> Value {
        Value::Batch(BatchName {
            origin: NodeId(self.small()),
            boot: self.small(),
            counter: self.wide(),
            length: u32::try_from(bytes.len()).unwrap(),
            checksum: checksum(bytes),
        })
    }

    fn value(&mut self, bytes: &[u8]) -> Value {
        match self.below(10) {
            0 => Value::NoOp,
            1 => Value::Content { stream: self.stream(), offset: self.wide() },
            2 => Value::CloseStream(self.stream()),
            3 => Value::RegisterSession {
                origin: NodeId(self.small()),
                boot: self.small(),
                number: self.wide(),
            },
            4 => Value::ExpireSession { session: self.wide() },
            5 => Value::Reconfigure { era: Era(self.small()), change: self.change() },
            6 => Value::AllocateNode { nonce: self.wide() },
            7 => Value::Now { ms: self.wide() },
            8 => Value::Raise {
                era: Era(self.small()),
                nodes: self.small(),
                to: Level(u16::try_from(self.small() >> 16).unwrap()),
            },
            _ => self.batch(bytes),
        }
    }

    fn change(&mut self) -> Change {
        match self.below(7) {
            0 => Change::Increment(self.member()),
            1 => Change::Decrement(self.member()),
            2 => Change::Multiply(self.small()),
            3 => Change::Divide(self.small()),
            4 => Change::Remove(NodeId(self.small())),
            5 => Change::Role { member: self.member(), auxiliary: self.below(2) == 0 },
            _ => Change::Rule(match self.below(3) {
                0 => QuorumRule::Majority,
                1 => QuorumRule::Grid { columns: 3 },
                _ => QuorumRule::Flexible { phase1: self.small(), phase2: self.small() },
            }),
        }
    }

    fn range_for(&mut self, from: u64, value: &Value) -> SlotRange {
        let length = if value.may_span() { 1 + self.below(1000) } else { 1 };
        SlotRange::new(Slot(from), Slot(from + length))
    }

    fn extents(&mut self) -> Vec<Extent> {
        let mut next = 1;
        let mut extents = Vec::new();
        for _ in 0..self.below(5) {
            let value = self.value(b"elsewhere");
            let from = next + self.below(3);
            let range = self.range_for(from, &value);
            next = range.to.0;
            let class = if self.below(2) == 0 { Class::Volatile } else { Class::Durable };
            extents.push(Extent { range, ballot: self.ballot(), value, class });
        }
        extents
    }

    pub(crate) fn payload(&mut self) -> Vec<u8> {
        let length = self.below(200);
        (0..length).map(|_| u8::try_from(self.word() & 255).unwrap()).collect()
    }

    fn carry<'a>(&mut self, value: &Value, bytes: &'a [u8]) -> Option<&'a [u8]> {
        (value.has_bytes() && self.below(3) > 0).then_some(bytes)
    }

    fn levels(&mut self) -> Levels {
        let lowest = u16::try_from(self.small() & 0xffff).unwrap();
        let above = u16::try_from(self.below(2)).unwrap();
        Levels { lowest: Level(lowest), newest: Level(lowest.saturating_add(above)) }
    }

    fn hello(&mut self) -> Hello<'static> {
        Hello {
            levels: self.levels(),
            cluster: u128::from(self.word()) << 64 | u128::from(self.word()),
            from: self.member(),
            boot: self.small(),
            to: NodeId(self.small()),
            lane: if self.below(2) == 0 { Lane::Control } else { Lane::Bulk },
            client: "127.0.0.1:7450",
            admin: "hôst:7452",
            stream: "127.0.0.1:7453",
        }
    }

    /// Returns a frame of kind `kind`, and its sender.
    pub(crate) fn frame<'a>(&mut self, kind: u64, payload: &'a [u8]) -> (Member, Frame<'a>) {
        let from = self.member();
        let value = self.value(payload);
        let bytes = self.carry(&value, payload);
        let frame = match kind {
            0 => Frame::Hello(Hello { from, ..self.hello() }),
            1 => Frame::Welcome(Hello { from, ..self.hello() }),
            2 => Frame::Refused(
                RefusalCode::from_number(u32::try_from(self.below(12)).unwrap()),
                "because",
            ),
            3 => Frame::Join(Join {
                node: NodeId(self.small()),
                nonce: self.wide(),
                list_hash: self.wide(),
            }),
            4 => Frame::Founding(Founding {
                cluster: u128::from(self.word()) << 64 | u128::from(self.word()),
                class: if self.below(2) == 0 { Class::Volatile } else { Class::Durable },
                store: "lsm",
                members: vec![(NodeId(self.small()), "10.0.0.1:7451"), (NodeId(9), "")],
            }),
            5 => Frame::Forward { value, bytes: if value.has_bytes() { payload } else { &[] } },
            6 => Frame::NotTaken {
                value,
                why: self.refusal(),
                leader: Some(NodeId(self.small())).filter(|node| node.0 != 0),
            },
            7 => Frame::FetchRequest { value, slot: self.slot() },
            8 => Frame::FetchReply { value, bytes },
            24 => Frame::Applied { to: self.slot(), state_digest: self.wide() },
            25 => {
                Frame::SnapshotAsk { at: self.slot(), digest: self.digest(), offset: self.wide() }
            }
            26 => Frame::SnapshotOffer {
                at: self.slot(),
                digest: self.digest(),
                bytes: self.wide(),
                log_start: self.slot(),
                busy: self.below(2) == 0,
            },
            27 => Frame::SnapshotPiece {
                at: self.slot(),
                digest: self.digest(),
                offset: self.wide() >> 1,
                bytes: payload,
            },
            29 => Frame::StreamBytes {
                stream: self.stream(),
                position: self.wide() >> 1,
                bytes: if payload.is_empty() { b"x" } else { payload },
            },
            30 => Frame::Datagrams(Datagrams {
                boot: self.small(),
                address: "10.0.0.1:7451",
                key: u8::try_from(self.below(256)).unwrap(),
                channels: (1..=self.below(4))
                    .map(|at| DatagramChannel {
                        channel: u8::try_from(at).unwrap(),
                        is_unicast: self.below(2) == 0,
                        next: self.wide(),
                    })
                    .collect(),
            }),
            35 => Frame::Needless { stream: self.stream(), below: self.wide(), from: self.slot() },
            40 => Frame::Recall { cluster: self.digest(), node: NodeId(self.small()) },
            41 => Frame::Recalled(Memory {
                log_end: LogEnd { incarnation: Incarnation(self.small()), last_write: self.wide() },
                boot: self.small(),
            }),
            kind => return (from, self.protocol(kind, value, bytes)),
        };
        (from, frame)
    }

    fn digest(&mut self) -> u128 {
        u128::from(self.wide()) | u128::from(self.wide()) << 64
    }

    fn refusal(&mut self) -> Refusal {
        let all = [
            Refusal::NotLeader,
            Refusal::Busy,
            Refusal::Transferring,
            Refusal::InvalidChange,
            Refusal::InvalidTarget,
            Refusal::TimedOut,
            Refusal::SlotsNotHeld,
        ];
        all[usize::try_from(self.below(7)).unwrap()]
    }

    fn entry(&mut self) -> RingEntry {
        RingEntry {
            member: self.member(),
            from: self.slot(),
            volatile_to: self.slot(),
            durable_to: self.slot(),
            check: self.wide(),
        }
    }

    fn protocol<'a>(&mut self, kind: u64, value: Value, bytes: Option<&'a [u8]>) -> Frame<'a> {
        let ballot = self.ballot();
        let from = 1 + (self.wide() >> 12);
        let message = match kind {
            9 => Message::Phase1a { ballot, from: self.slot() },
            10 => Message::Phase1b(Phase1b {
                ballot,
                from: self.slot(),
                floor: self.slot(),
                log_start: self.slot(),
                decided_to: self.slot(),
                extents: self.extents(),
            }),
            11 => Message::Preempted { ballot, promised: self.ballot() },
            12 => {
                let message = Message::Phase2a(Phase2a {
                    ballot,
                    range: self.range_for(from, &value),
                    value,
                    prefix: self.wide(),
                    decided_to: self.slot(),
                    own_volatile_to: self.slot(),
                    own_durable_to: self.slot(),
                    with_bytes: self.below(2) == 0,
                });
                return Frame::Protocol { message, bytes };
            }
            13 => Message::Phase2b(Phase2b {
                ballot,
                from: self.slot(),
                volatile_to: self.slot(),
                durable_to: self.slot(),
                check: self.wide(),
            }),
            14 => Message::Decided { ballot, decided_to: self.slot() },
            15 => Message::Heartbeat(Heartbeat {
                ballot,
                decided_to: self.slot(),
                sent_to: self.slot(),
                read_round: self.wide(),
                held_by_all: self.slot(),
                held_by_quorum: self.slot(),
                lease: self.lease(),
                auxiliary: self.below(2) == 0,
                clock_ms: self.wide(),
                late_us: self.wide() as u32,
                full_disk: Some(NodeId(self.small())).filter(|node| node.0 > 0),
            }),
            16 => Message::HeartbeatReply(HeartbeatReply {
                ballot,
                promised: self.ballot(),
                decided_to: self.slot(),
                held_to: self.slot(),
                kept_to: self.slot(),
                voted_to: self.slot(),
                sent_to: self.slot(),
                read_round: self.wide(),
                lease: self.lease(),
                unfit: self.below(2) == 0,
                clock_ms: self.wide(),
                group_ms: self.wide(),
                late_us: self.wide() as u32,
                disk_full: self.below(2) == 0,
            }),
            17 => Message::PreVote { ballot },
            18 => Message::PreVoteReply {
                ballot,
                granted: self.below(2) == 0,
                promised: self.ballot(),
            },
            19 => Message::Transfer { ballot },
            20 => Message::CatchupRequest {
                range: SlotRange::new(Slot(from), Slot(from + self.below(3))),
            },
            21 => {
                let message = Message::Learn { range: self.range_for(from, &value), value };
                return Frame::Protocol { message, bytes };
            }
            28 => Message::BelowStart { log_start: self.slot() },
            31 => Message::Lay {
                ballot,
                number: self.small(),
                members: (0..self.below(17)).map(|_| self.member()).collect(),
            },
            32 => Message::RingVote(RingVote {
                ballot,
                entries: (0..self.below(17)).map(|_| self.entry()).collect(),
            }),
            33 => Message::Arm { ballot, slot: self.slot(), prefix: self.wide() },
            34 => Message::Armed { ballot, floor: self.slot() },
            36 => Message::LastingRequest { to: self.slot() },
            37 => Message::LastingReply { to: self.slot() },
            38 => Message::EarlyRequest(EarlyVotesQuery {
                ballot,
                to: self.slot(),
                check: self.wide(),
            }),
            39 => Message::EarlyReply { ballot, from: self.slot(), to: self.slot() },
            22 => Message::ReadRequest { id: self.wide() },
            _ => Message::ReadReply { id: self.wide(), slot: self.slot() },
        };
        Frame::Protocol { message, bytes: None }
    }
}

pub(crate) fn bytes_of(from: Member, frame: &Frame<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(from, frame, &mut bytes).unwrap();
    bytes
}
