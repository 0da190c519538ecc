//! Allocations on the hot path: after a warm-up, SET and GET through the front end allocate
//! nothing.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

use quorate_core::{
    ballot::{Ballot, Era},
    effect::Role,
    node_id::Member,
    record::Class,
    slot::Slot,
};
use quorate_kv::{
    front::{RespFront, Settings},
    service::Service,
    store::memory::MemoryStore,
};
use quorate_replica::{
    front::{Completion, ConnectionId, Endpoints, Failure, Front as _, Requests, Sequenced, Tag},
    service::{CommandId, StateMachine as _},
    status::{DiskUse, Status},
};

/// Allocator that counts the allocations of each thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is passed unchanged to the system allocator. The counter is a plain
// thread-local cell without a destructor, so access to it allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller fulfills the contract of `alloc`, which is that of `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above. The pointer was returned by `System` through this allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Replica that executes a single request at a time, in a reused buffer.
struct Instant {
    service: Service,
    slot: u64,
    write: Option<Tag>,
    read: Option<Tag>,
    command: Vec<u8>,
}

impl Requests for Instant {
    fn write(&mut self, tag: Tag, command: &[u8]) -> Result<(), Failure> {
        self.write = Some(tag);
        self.command.clear();
        self.command.extend_from_slice(command);
        Ok(())
    }

    fn write_once(&mut self, _: Tag, _: Sequenced, _: &[u8]) -> Result<(), Failure> {
        Err(Failure::Busy)
    }

    fn register(&mut self, _: Tag) -> Result<(), Failure> {
        Err(Failure::Busy)
    }

    fn read(&mut self, tag: Tag) -> Result<(), Failure> {
        self.read = Some(tag);
        Ok(())
    }

    fn queue_read(&mut self, _: Tag) -> Result<(), Failure> {
        Err(Failure::Busy)
    }

    fn drop_requests(&mut self, _: Tag) {}

    fn query(&mut self, query: &[u8], reply: &mut Vec<u8>) -> Result<(), Failure> {
        self.service.query(query, 0, reply);
        Ok(())
    }

    fn status(&self) -> Status {
        Status {
            cluster: 1,
            member: Member::first(1),
            role: Role::Leader,
            leader: None,
            era: Era(0),
            level: quorate_replica::status::LevelStatus::default(),
            plan: None,
            removed: false,
            ballot: Ballot::ZERO,
            decided_to: Slot(1),
            applied_to: Slot(1),
            durable_to: Slot(1),
            class: Class::Durable,
            log_bytes: 0,
            log_start: Slot::FIRST,
            snapshot: None,
            snapshot_taking: None,
            ring: Vec::new(),
            choices: Vec::new(),
            scrub: quorate_replica::ScrubStatus::default(),
            device: None,
            disk: DiskUse::default(),
            streams: quorate_replica::status::Streams::default(),
            traffic: quorate_replica::status::Traffic::default(),
            reigns: Vec::new(),
            quorum: quorate_core::quorum::QuorumRule::Majority,
            progress: None,
            error: None,
            notices: Vec::new(),
            peers: Vec::new(),
        }
    }

    fn wall_ms(&self) -> u64 {
        0
    }

    fn command_bytes_max(&self) -> usize {
        8 << 20
    }
}

#[test]
fn a_warm_set_and_get_allocate_nothing() {
    let client = ConnectionId(1);
    let mut front = RespFront::new(Settings::default());
    let mut replica = Instant {
        service: Service::new(Box::new(MemoryStore::new())),
        slot: 1,
        write: None,
        read: None,
        command: Vec::new(),
    };
    front.handle_opened(client, Endpoints::default(), &mut replica);
    let set = b"*3\r\n$3\r\nSET\r\n$7\r\nkey:123\r\n$16\r\n0123456789abcdef\r\n";
    let get = b"*2\r\n$3\r\nGET\r\n$7\r\nkey:123\r\n";
    let mut reply = Vec::new();
    let mut counted = [0, 0];
    for round in 0..1000 {
        for (request, count) in [&set[..], &get[..]].into_iter().zip(&mut counted) {
            let before = ALLOCATIONS.with(Cell::get);
            assert_eq!(front.receive_bytes(client, request, &mut replica), request.len());
            if let Some(tag) = replica.write.take() {
                let id = CommandId { slot: Slot(replica.slot), index: 0 };
                replica.slot += 1;
                reply.clear();
                replica.service.apply(id, &replica.command, &mut reply);
                front.handle_completion(Completion::Written(tag, &reply), &mut replica);
            }
            if let Some(tag) = replica.read.take() {
                front.handle_completion(Completion::Readable(tag), &mut replica);
            }
            assert_eq!(front.next_dirty(), Some(client));
            let answer: &[u8] =
                if request == set { b"+OK\r\n" } else { b"$16\r\n0123456789abcdef\r\n" };
            assert_eq!(front.output(client), answer);
            front.record_sent(client, answer.len());
            if round >= 10 {
                *count += ALLOCATIONS.with(Cell::get) - before;
            }
        }
    }
    assert_eq!(counted[0], 0, "allocations of 990 SETs");
    assert_eq!(counted[1], 0, "allocations of 990 GETs");
}
