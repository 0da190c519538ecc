//! What a machine can carry: probes, a verdict for each plane, and what the model expects of it.
//!
//! A library without output; `quorate doctor` shows what it finds. One file per probe ([`kernel`], [`rights`],
//! [`interfaces`], [`buffers`], [`clock`], [`load`], [`disk`], [`uring`], [`multicast`], [`peers`]), each of which gives
//! [`finding::Finding`]s; what they read of `/proc` and `/sys` comes through [`system::System`], so that tests can
//! bring their own. [`plane`] makes verdicts of findings, [`figures`] are the numbers that predictions rest on,
//! [`predict`] asks the model, [`check`] measures, [`reach`] asks members about multicast, [`trips`] are the ways between them, and [`examination`] is
//! all of it in order.
//!
//! What is not known is said to be so, with the reason: nothing is guessed.
#![forbid(unsafe_code)]

pub mod buffers;
pub mod check;
pub mod clock;
pub mod disk;
pub mod examination;
pub mod figures;
pub mod finding;
pub mod interfaces;
pub mod kernel;
pub mod load;
pub mod multicast;
pub mod peers;
pub mod plane;
pub mod predict;
pub mod reach;
pub mod rights;
pub mod system;
pub mod trips;
pub mod uring;
