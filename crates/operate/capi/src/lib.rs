//! libquorate: a replicated log of values, for programs in C and other languages that can call C.
//!
//! A program starts a node in its process, or attaches to a remote one. It submits values, and
//! every program receives all values in slot order. `include/quorate.h` is the interface,
//! `docs/libquorate.md` the introduction.
//!
//! Reading order: [`values`] (the replicated state), [`node`] and [`attach`] (local and remote
//! sources of values), [`submits`] and [`handle`] (a program's handle), [`evpaxos`] (messages of
//! LibPaxos3), [`border`] (the C interface). Only `border` contains `unsafe` code.
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
