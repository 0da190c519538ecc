//! Paxos in one page, then the reading order of this crate.
//!
//! A log is a sequence of [slots](slot::Slot). Every slot decides one [value](value::Value), and
//! every node learns the same one. A node that wants to lead picks a [ballot](ballot::Ballot)
//! higher than any it knows and requests promises (**phase 1**): "answer no lower ballot from now
//! on, and report your votes." When a quorum has promised, any value that may have been chosen
//! before is among the reported votes. The leader proposes it again, and new values after it
//! (**phase 2**). Members vote unless they have promised a higher ballot. A value is *chosen* in a
//! slot once a quorum has voted for it in one ballot, and *decided* at each node that knows this.
//! Every phase-1 quorum shares a member with every phase-2 quorum, so a later leader cannot miss a
//! value that an earlier one may have had chosen.
//!
//! Specific to this implementation:
//!
//! - **Everything is a range.** A promise covers all slots; a vote and a decision cover a run of
//!   slots with one small descriptor. A step costs the same however many slots it covers.
//! - **The core sees descriptors, never bytes.** It requires the bytes before a node votes.
//! - **A promise or vote waits for its record.** The node sends it only once the log reports that
//!   the record is as durable as the statement claims ([`durable`]). The caller never holds a
//!   message back until a write completes.
//! - **Eras overlap.** A reconfiguration takes effect in the next slot while earlier slots are
//!   still in flight ([`reconfigure`]), and the leader's casting vote lets it move on without a
//!   pause.
//! - **Safety is separate from liveness.** Safety modules other than [`lease`] never read the time;
//!   liveness modules cannot write a promise or a vote.
//!
//! # Reading order
//!
//! 1. [`message`], [`input`], [`effect`]: all messages, inputs and effects.
//! 2. **Safety**: [`acceptor`] (promises and votes), [`durable`] (when they may be
//!    sent), [`rounds`] (the choice of a ballot), [`leader`] (phase 1 and the choice of value),
//!    [`learner`] (counting in slot order), [`lost`] (what a damaged log must learn again),
//!    [`reconfigure`] with [`configuration`] and [`quorum`] (who votes), [`fence`] with [`device`]
//!    and [`counted`] (votes cast and counted outside the node), [`lease`] (the only part that
//!    reads a clock, off by default), [`witness`] (nodes that reconnect with less than they
//!    reported).
//! 3. **Liveness**: [`election`], [`flow`], [`auxiliaries`], [`ring`] with [`laying`] (the route of
//!    votes), [`catchup`], [`reads`], [`transfer`], [`waiting`], [`offload`] (phase 2 in devices).
//! 4. [`node`]: joins them: the spine, which orders commands, and its wings
//!    (`docs/spec/structure.md`).
//! 5. `tests/testdata/*.txt`: exchanges between nodes, one story per file.
//!
//! Rule ids such as [p2-1] refer to `docs/spec/protocol.md`; `docs/spec/divergences.md` lists those
//! that are not implemented yet.
//!
//! # Example
//!
//! A single-node cluster: propose a value, let its record become durable, and see it decided.
//!
//! ```
//! use quorate_core::{
//!     configuration::Configuration,
//!     effect::{Effect, Effects},
//!     input::Input,
//!     laying::Route,
//!     node::{Node, Options, Recovered},
//!     node_id::Member,
//!     record::{Class, RecordSeq},
//!     time::Time,
//!     value::Value,
//! };
//!
//! let member = Member::first(1);
//! let founding = Configuration::majority_of([member], Class::Durable).expect("one member");
//! let options = Options {
//!     member,
//!     heartbeat_ms: 20,
//!     election_min_ms: 100,
//!     election_max_ms: 200,
//!     inflight_max: 1024,
//!     window_slots: 1 << 20,
//!     leases: None,
//!     earlier_lease_us: 0,
//!     lead_alone_wait_us: 0,
//!     thrifty: false,
//!     route: Route::Star,
//!     seed: 7,
//! };
//! let mut node = Node::new(options, Recovered::for_new_node(founding));
//! let mut effects = Effects::default();
//!
//! node.step(Time(0), Input::Tick, &mut effects); // records its round and its promise
//! node.step(Time(1), Input::Persisted(RecordSeq(2)), &mut effects); // leads
//! node.step(Time(2), Input::Propose { value: Value::NoOp, slots: 1 }, &mut effects);
//! assert!(!effects.as_slice().iter().any(|effect| matches!(effect, Effect::Decided { .. })));
//!
//! node.step(Time(3), Input::Persisted(RecordSeq(3)), &mut effects); // the vote is on disk
//! assert!(effects.as_slice().iter().any(|effect| matches!(effect, Effect::Decided { .. })));
//! ```
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![warn(clippy::wildcard_enum_match_arm)]
extern crate alloc;

pub mod acceptor;
pub mod auxiliaries;
pub mod ballot;
pub mod catchup;
pub mod class;
pub mod configuration;
pub mod counted;
pub mod device;
pub mod dice;
pub mod durable;
pub mod early;
pub mod effect;
pub mod election;
pub mod explanation;
pub mod extents;
pub mod fence;
pub mod fitness;
pub mod flow;
pub mod group_time;
pub mod input;
pub mod invariants;
pub mod lasting;
pub mod laying;
pub mod leader;
pub mod learner;
pub mod lease;
pub mod level;
pub mod lost;
pub mod message;
pub mod node;
pub mod node_id;
pub mod node_set;
pub mod offload;
pub mod pauses;
pub mod quorum;
pub mod reads;
pub mod reconfigure;
pub mod record;
pub mod ring;
pub mod rounds;
pub mod slot;
pub mod time;
pub mod transfer;
pub mod value;
pub mod waiting;
pub mod witness;
