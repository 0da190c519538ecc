//! Byte streams: the table of streams, the decided bytes that belong to each, and their storage on
//! a node.
//!
//! [`table`] is replicated state: equal on every node after equal slots. It implements the one rule
//! that decides whether a byte of the log is a byte of a stream ([stream-4]), and never sees the
//! bytes. [`store`] keeps decided bytes on this node's disk. It is independent of quorums, ballots
//! and the log.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]

mod codec;
pub mod command;
pub mod name;
pub mod store;
pub mod table;

pub use command::{Command, Denied, OpenMode, Reply, Retention, StreamOutcome, Writer};
pub use name::{BadName, Name};
pub use table::{InnerPosition, InnerStreamChange, StreamInfo, Table};
