//! The owner of a device: turns requests of a replica into calls over the port, and puts the frames
//! of the port in order.
//!
//! An [`Owner`] connects a replica to its device ([`crate::port::Device`]). Requests never block;
//! they are carried out by [`Owner::turn`], and their outcomes are [`Event`]s. Calls whose answers
//! are lost are repeated under new numbers ([offload-17]); a device that lost its memory, or that
//! cannot be read, is [`Event::Lost`] and never a success ([offload-9]). There is no clock, thread
//! or socket here: time is an argument.
//!
//! Reading order: [`event`] (outcomes of requests), [`owner`] (the requests), [`value`] (values
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

pub use event::{Event, Loss, SlotValue, Start};
pub use owning::{Counts, Owner};
pub use settings::{Pace, Settings};
pub use value::NotCarried;
pub use waiting::NotSubmitted;
