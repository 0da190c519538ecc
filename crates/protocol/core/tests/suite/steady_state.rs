//! The hot path: a step does not allocate, touches one range per list, and takes no slow path.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

use quorate_core::{
    configuration::Configuration,
    effect::{Effect, Effects, SlowPaths},
    input::Input,
    laying,
    message::Message,
    node::{Node, Options, Recovered},
    node_id::{Member, NodeId},
    record::{Class, RecordSeq},
    time::Time,
    value::{BatchName, StreamName, Value},
};

/// An allocator that counts the allocations of the current thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is forwarded unchanged to the system allocator. The counter is a plain
// thread-local cell without a destructor, so accessing it allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller upholds the contract of `alloc`, which is that of `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above; the pointer came from `System` through this allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

/// Three nodes with a perfect network and perfect disks.
struct Cluster {
    nodes: Vec<Node>,
    effects: Effects,
    letters: Vec<(Member, NodeId, Message)>,
    reading: Vec<(Member, NodeId, Message)>,
    decided: u64,
}

impl Cluster {
    fn new(class: Class) -> Self {
        let members: Vec<Member> = (1..=3).map(Member::first).collect();
        let configuration =
            Configuration::majority_of(members.clone(), class).expect("three nodes");
        let node = |member: &Member| {
            let options = Options {
                member: *member,
                heartbeat_ms: 20,
                election_min_ms: 100,
                election_max_ms: 100,
                inflight_max: 64,
                window_slots: 1 << 30,
                leases: None,
                earlier_lease_us: 0,
                lead_alone_wait_us: 0,
                thrifty: false,
                route: laying::Route::Star,
                seed: 1,
            };
            Node::new(options, Recovered::for_new_node(configuration.clone()))
        };
        let nodes = members.iter().map(node).collect();
        let mut cluster = Self {
            nodes,
            effects: Effects::with_capacity(256),
            letters: Vec::with_capacity(256),
            reading: Vec::with_capacity(256),
            decided: 0,
        };
        for at in 0..3 {
            cluster.step(at, Time(0), Input::Tick);
            for other in members.iter().filter(|other| **other != members[at]) {
                cluster.step(at, Time(0), Input::Connected(*other));
            }
        }
        cluster.step(0, Time(100_000), Input::Tick);
        cluster.deliver_all(Time(100_000));
        assert!(cluster.nodes[0].can_propose(), "node 1 leads");
        cluster
    }

    fn step(&mut self, at: usize, now: Time, input: Input) {
        self.nodes[at].step(now, input, &mut self.effects);
        #[expect(clippy::cast_possible_truncation, reason = "three nodes")]
        let from = Member::first(at as u32 + 1);
        let mut last = RecordSeq(0);
        for effect in self.effects.drain() {
            match effect {
                Effect::Send { to, message } => {
                    let letters = to.iter().map(|to| (from, to, message.clone()));
                    self.letters.extend(letters);
                }
                Effect::Persist { seq, .. } => last = seq,
                Effect::Decided { range, .. } => self.decided += range.len(),
                _ => {}
            }
        }
        if last > RecordSeq(0) {
            self.step(at, now, Input::Persisted(last));
        }
    }

    fn deliver_all(&mut self, now: Time) {
        while !self.letters.is_empty() {
            std::mem::swap(&mut self.letters, &mut self.reading);
            while let Some((from, to, message)) = self.reading.pop() {
                let input = Input::Message { from, message, bytes_held: true };
                self.step(to.0 as usize - 1, now, input);
            }
        }
    }

    fn propose(&mut self, value: Value, slots: u64) {
        let now = Time(100_001);
        self.step(0, now, Input::Propose { value, slots });
        self.deliver_all(now);
    }
}

fn batch(counter: u64) -> Value {
    Value::Batch(BatchName { counter, ..BatchName::default() })
}

fn steady(class: Class) {
    let mut cluster = Cluster::new(class);
    let stream = StreamName { owner: NodeId(1), boot: 1, number: 1 };
    for counter in 0..100 {
        cluster.propose(batch(counter), 1);
    }
    cluster.effects.slow = SlowPaths::default();
    cluster.decided = 0;
    let before = allocations();
    for counter in 100..1100 {
        cluster.propose(batch(counter), 1);
        // A run of a stream takes one range per list, however many slots it covers.
        cluster.propose(Value::Content { stream, offset: counter }, 1 << 16);
    }
    let during = allocations() - before;
    assert_eq!(cluster.decided, 3 * (1000 + (1000 << 16)), "everything is decided everywhere");
    assert_eq!(during, 0, "allocations in 2000 proposals of a {class:?} group");
    assert_eq!(cluster.effects.slow, SlowPaths::default());
}

#[test]
fn steady_state_allocates_nothing_and_takes_no_slow_path_durable() {
    steady(Class::Durable);
}

#[test]
fn steady_state_allocates_nothing_and_takes_no_slow_path_volatile() {
    steady(Class::Volatile);
}

/// Proves that the counters work: a lost message takes the slow path.
#[test]
fn a_lost_proposal_is_counted() {
    let mut cluster = Cluster::new(Class::Durable);
    cluster.effects.slow = SlowPaths::default();
    cluster.step(0, Time(100_001), Input::Propose { value: batch(1), slots: 1 });
    cluster.letters.clear();
    cluster.propose(batch(2), 1);
    assert!(cluster.effects.slow.proposal_gaps > 0);
}
