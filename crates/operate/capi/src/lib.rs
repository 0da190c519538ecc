//! libquorate: a replicated log of values for programs in C, and whatever can call C.
//!
//! A program starts a node in its process, or attaches to one elsewhere; it submits values, and
//! every program is delivered all of them, in the order of their slots. `include/quorate.h` is the
//! interface, `docs/libquorate.md` the way in.
//!
//! Reading order: [`values`] (what is replicated), [`node`] and [`attach`] (where it comes from),
//! [`submits`] and [`handle`] (what a program holds), [`evpaxos`] (LibPaxos3's messages),
//! [`border`] (C). Only that holds `unsafe` code.
#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod attach;
pub mod bell;
pub mod border;
pub mod error;
pub mod evpaxos;
pub mod handle;
pub mod node;
pub mod options;
pub mod source;
pub mod submits;
pub mod values;
