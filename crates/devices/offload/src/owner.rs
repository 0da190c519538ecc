//! Owner of a device: turns a replica's requests into calls over the port, and frames from the port
//! into ordered events.
//!
//! An [`Owner`] connects a replica to its device ([`crate::port::Device`]). Requests never block:
//! [`Owner::turn`] executes them, and reports their outcomes as [`Event`]s. Calls whose responses
//! are lost are repeated under new numbers ([offload-17]). A device that lost its memory, or that
//! cannot be read, is reported as [`Event::Lost`], never as a success ([offload-9]). Nothing here
//! uses a clock, thread or socket: the time is an argument.
//!
//! Reading order: [`event`] (outcomes of requests), [`owning`] (the requests), [`value`] (values
//! that a device carries), and inside: `voting` (the acceptor: arm, fence), `giving` (the
//! coordinator: start, withdraw), `upkeep` (duties for a started coordinator), over `call`, `ask`
//! and `reader` (three kinds of requests to the device, each repeated in its own way).
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]

extern crate alloc;

mod ask;
mod call;
mod desk;
pub mod event;
mod frames;
mod giving;
pub mod owning;
mod reader;
mod reads;
mod ring;
pub mod settings;
mod stuck;
mod tap;
mod upkeep;
pub mod value;
mod voting;
mod waiting;

pub use event::{Event, LossReason, SlotValue, Start};
pub use owning::{Owner, OwnerCounters};
pub use settings::{Settings, Timeouts};
pub use value::NotOffloadable;
pub use waiting::NotSubmitted;
