//! Embed a replica: your state machine, ordered by Paxos, on every node.
//!
//! Implement [`StateMachine`], give it to a [`Builder`], and every node of the cluster executes the
//! same commands in the same order; acknowledged commands survive any minority of failures, and, in
//! a durable group, the loss of power on all nodes at once. `examples/counter.rs` is a complete
//! program.
//!
//! The crate also contains the parts that the `quorate` binary and an embedding program share:
//! [`Settings`], the data folder from first start to recovery ([`StartFolder`], [`open`]), and the
//! [`NodeHost`] that a reactor drives.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod backup;
mod descriptors;
mod discard;
mod embedded;
mod error;
mod folder;
mod journal;
mod local;
mod node;
mod passwords;
mod settings;
pub mod stderr;

pub use backup::{ETCD_ENVELOPE_MAGIC, write_backup};
pub use descriptors::{DescriptorLimits, raise_descriptor_limit};
pub use embedded::{Builder, Embedded};
pub use error::{Error, STOPPED_CODE};
pub use folder::{SetupCallbacks, StartFolder, random_bytes};
pub use local::{Local, LocalFront, RequestError, local_channel};
pub use node::{OpeningStep, Starter, open};
pub use passwords::Passwords;
pub use quorate_access::{Role, Who};

/// Membership of the group and its changes: the types of [`Handle::members`] and [`Handle::group`].
pub mod members {
    pub use quorate_net::GroupError;
    pub use quorate_replica::group::{
        MemberRole,
        asking::{GroupAnswer, GroupRefusal, GroupRequest, ListedNode, MemberList, PlanInProgress},
    };
}

/// Password hashing. It is slow, so call it on a thread that may block.
pub mod password {
    pub use quorate_access::{password::*, users::UNMATCHABLE_HASH};
}

pub use quorate_core::{node_id::NodeId, record::Class, slot::Slot};
pub use quorate_net::{
    Handle, IoSpread, IoThreads, Spin, Unanswered, device::Kind as Device,
    plane::PlaneSettings as Place,
};
pub use quorate_node::{
    NodeHost, founding::Joined, host::Founded, identity::AddressBook,
    process::render as process_metrics,
};
pub use quorate_replica::{
    ProbeOutcome,
    front::{Failure, Sequenced, SessionId},
    service::{CommandId, Health, Imaged, LoadError, MetaChange, Metadata, Scrubbed, StateMachine},
    status::Status,
};
pub use quorate_tls::{NodeFiles, NodeTrust, Protection, TlsFilesError, common_name};
pub use settings::Settings;
